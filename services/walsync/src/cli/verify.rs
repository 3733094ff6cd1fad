//! `verify`: whether a replica holds what it says, in lines or, for scripts, in JSON.

use super::inspect::print_stranded;
use super::restore::unwritten;
use super::{PlaceArgs, time};
use rand::seq::IndexedRandom;
use serde_json::{Value, json};
use service_kit::console::{self, OneLine};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use walsync::chain::{Chain, InFile};
use walsync::store::retry;

/// What was found, told as it is found, or at the end as one object.
struct Report(Option<serde_json::Map<String, Value>>);

impl Report {
    /// A line for people; it is one whatever keys and errors have.
    fn say(&self, text: impl Display) -> io::Result<()> {
        if self.0.is_some() { Ok(()) } else { console::print(format_args!("{}\n", OneLine(text))) }
    }

    /// A word for programs.
    fn set(&mut self, name: &str, value: impl Into<Value>) {
        if let Some(object) = &mut self.0 {
            object.insert(name.to_owned(), value.into());
        }
    }

    fn stranded(&mut self, chain: &Chain) -> io::Result<()> {
        self.set("points_stranded", chain.stranded().count());
        if self.0.is_some() { Ok(()) } else { print_stranded(chain) }
    }

    /// The end: `is_whole`, and an error where it is not.
    fn end(mut self, is_whole: bool) -> anyhow::Result<()> {
        self.set("is_whole", is_whole);
        if let Some(object) = self.0 {
            console::print(format_args!("{:#}\n", Value::Object(object)))?;
        }
        anyhow::ensure!(is_whole, "the replica is not whole");
        Ok(())
    }
}

/// Reads all files, or a sample of them; memory of one page.
pub fn verify(place: &PlaceArgs, sample: Option<u64>, in_json: bool) -> anyhow::Result<()> {
    let replica = place.replica()?;
    let files = replica.files()?;
    if files.is_empty() {
        return Err(place.no_replica(&replica));
    }
    let mut report = Report(in_json.then(Default::default));
    let chosen: Vec<_> = match sample.and_then(|sample| usize::try_from(sample).ok()) {
        Some(sample) => files.sample(&mut rand::rng(), sample).collect(),
        None => files.iter().collect(),
    };
    let (mut bytes, mut damaged, mut read) = (0u64, Vec::new(), BTreeMap::new());
    for file in &chosen {
        let holds = retry(5, || {
            let mut held = InFile::of(file.level);
            let (header, checksum) = replica.read(file, |header, number, _| {
                held.page(header, number);
                Ok(())
            })?;
            held.ends(checksum);
            Ok((header, held))
        });
        match holds {
            Ok(held) => drop(read.insert((file.level, file.name), held)),
            Err(error) => {
                report.say(format_args!("damaged: {error}"))?;
                damaged.push(error.to_string());
            }
        }
        // Sizes are as listed: whatever a store says.
        bytes = bytes.saturating_add(file.size);
    }
    let (count, of) = (chosen.len(), files.len());
    let is_sample = count < of;
    let of_all = if is_sample { format!(" of {of}") } else { String::new() };
    report.say(format_args!("{count}{of_all} files, {bytes} bytes read, {} damaged", damaged.len()))?;
    for (name, value) in [("files", json!(of)), ("files_read", json!(count)), ("bytes_read", json!(bytes))] {
        report.set(name, value);
    }
    let is_sound = damaged.is_empty();
    report.set("damaged", damaged);
    let chain = Chain::new(files);
    report.set("newest_txid", chain.newest());
    if is_sample {
        let newest = chain.newest().map(|point| chain.plan(point)).transpose();
        match &newest {
            Ok(plan) => report.say(format_args!(
                "the newest point restores from {} files, if those that were not read hold",
                plan.as_ref().map_or(0, Vec::len)
            ))?,
            Err(error) => report.say(error)?,
        }
        report.stranded(&chain)?;
        return report.end(is_sound && newest.is_ok());
    }
    let judged = chain.judge(|file| read.get(&(file.level, file.name)));
    let newest = chain.newest().unwrap_or(0);
    let restores = judged.iter().rev().find_map(|(point, after)| after.ok().map(|after| (*point, after)));
    match (restores, chain.plan(newest)) {
        (Some((point, after)), _) if point == newest => {
            report.say(format_args!("the newest point, TXID {point}, restores from {} files", after.files))?;
        }
        (_, Err(error)) => report.say(error)?,
        (_, Ok(_)) => {}
    }
    report.stranded(&chain)?;
    let mut needed: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (point, file) in judged.iter().filter_map(|(point, after)| Some((*point, after.err()?))) {
        needed.entry(replica.key(file.level, file.name)).or_insert((point, point)).1 = point;
    }
    for (key, (first, last)) in &needed {
        let points = if first == last { format!("TXID {first} needs") } else { format!("TXID {first} to {last} need") };
        report.say(format_args!("not restorable: {points} {key}, which is damaged or cannot follow"))?;
    }
    let lost =
        |(key, (first, last)): (&String, &(u64, u64))| json!({"first_txid": first, "last_txid": last, "needs": key});
    report.set("not_restorable", needed.iter().map(lost).collect::<Vec<Value>>());
    match restores {
        Some((point, after)) => {
            let last = chain.last_file(point).and_then(|file| read.get(&(file.level, file.name)));
            let time = last.map(|(header, _)| time(header.timestamp_millis));
            let committed = time.as_deref().unwrap_or_default();
            report.say(format_args!("newest point that restores: TXID {point}, committed {committed}"))?;
            report.set("newest_txid_that_restores", point);
            report.set("committed", time);
            if let Some(page) = after.unwritten {
                report.say(unwritten(page))?;
            }
            report.set("unwritten_page", after.unwritten);
        }
        None => {
            report.say("no point restores")?;
            report.set("newest_txid_that_restores", Value::Null);
        }
    }
    report.end(is_sound && restores.is_some_and(|(point, after)| point == newest && after.unwritten.is_none()))
}
