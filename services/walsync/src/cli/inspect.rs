//! `list`, `compact`, `import`: what is there, what may go, and what it was before.

use super::{ImportArgs, PlaceArgs, table, time};
use service_kit::console::{self, OneLine};
use std::collections::BTreeMap;
use walsync::arena::Arena;
use walsync::chain::Chain;
use walsync::clock::{Clock, SystemClock};
use walsync::config::Location;
use walsync::import::ImportError;
use walsync::replica::{RemoteFile, Replica};
use walsync::replicator::Settings;
use walsync::restore::read_each;
use walsync::retention::{FILES_AT_ONCE, Policy, plan};
use walsync::store::StoreError;

/// A replica of Litestream 0.3 becomes one of ours.
pub fn import(arguments: &ImportArgs) -> anyhow::Result<()> {
    let options = arguments.s3.options();
    let from = Location::open(&arguments.from, &options)?;
    let to = Location::open(&arguments.to, &options)?.replica("");
    let folder = arguments.staging_folder.clone().unwrap_or_else(std::env::temp_dir);
    let arena = Arena::new(Settings::default().arena_bytes, folder.clone());
    let imported = walsync::import::import(&from.legacy(), arguments.generation.as_deref(), &to, &arena, &folder);
    let imported = imported.map_err(|error| match error {
        ImportError::Empty => nothing_to_import(&arguments.from, &from.replica("")),
        error => error.into(),
    })?;
    let (first, last) = imported.millis;
    console::print(format_args!(
        "imported generation {}: TXID 1 to {}, of {} to {}\n",
        imported.generation,
        imported.txid,
        time(first),
        time(last)
    ))?;
    console::print(format_args!("walsync verify {} reads and compares all of it\n", OneLine(&arguments.to)))?;
    Ok(())
}

/// Says where there is nothing of Litestream 0.3; one of 0.5 may have been meant.
fn nothing_to_import(place: &str, replica: &Replica) -> anyhow::Error {
    if replica.files().is_ok_and(|files| !files.is_empty()) {
        return anyhow::anyhow!(
            "{place} is a replica of Litestream 0.5, or of walsync: it needs no import; `watch` goes on with it, and `restore` reads it"
        );
    }
    anyhow::anyhow!("there is no replica of Litestream 0.3 at {place}: nothing below generations/")
}

/// When the last transaction of each file was committed, as its header says, which is what a restore goes by. Of a file that is damaged, or gone
/// since it was listed, nobody knows; nor of any where headers cannot be read.
fn times(replica: &Replica, files: &[RemoteFile]) -> Vec<Option<i64>> {
    let time = |file: &RemoteFile| match replica.header(file) {
        Ok(header) => Ok(Some(header.timestamp_millis)),
        Err(StoreError::Damaged(_) | StoreError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    };
    read_each(files, time).unwrap_or_else(|error| {
        console::tell(OneLine(format_args!("walsync: no times: {error}")));
        vec![None; files.len()]
    })
}

/// One line a file, then the points. `level`: files of that one alone. In JSON, as Litestream's, files alone.
pub fn list(place: &PlaceArgs, level: Option<u8>, json: bool) -> anyhow::Result<()> {
    let replica = place.replica()?;
    let files = replica.files()?;
    if files.is_empty() {
        return Err(place.no_replica(&replica));
    }
    let is_shown = |file: &RemoteFile| level.is_none_or(|level| file.level == level);
    if json {
        let files: Vec<RemoteFile> = files.into_iter().filter(is_shown).collect();
        let object = |(file, millis): (&RemoteFile, Option<i64>)| {
            serde_json::json!({
                "level": file.level,
                "min_txid": format!("{:016x}", file.name.min_txid),
                "max_txid": format!("{:016x}", file.name.max_txid),
                "size": file.size,
                "timestamp": millis.map(time),
            })
        };
        let all = serde_json::Value::Array(files.iter().zip(times(&replica, &files)).map(object).collect());
        return Ok(console::print(format_args!("{all:#}\n"))?);
    }
    // Of the points, too, whatever level their files are of.
    let times = times(&replica, &files);
    let mut lines = String::from("level\tmin_txid\tmax_txid\tsize_bytes\tkey\tcommitted\n");
    for (file, millis) in files.iter().zip(&times).filter(|(file, _)| is_shown(file)) {
        let (level, min, max, size) = (file.level, file.name.min_txid, file.name.max_txid, file.size);
        let (key, committed) = (OneLine(replica.key(level, file.name)), millis.map_or("-".to_owned(), time));
        lines += &format!("{level}\t{min}\t{max}\t{size}\t{key}\t{committed}\n");
    }
    table::print(&lines)?;
    // Of a point the file of the lowest level comes first, as it was committed.
    let mut committed: BTreeMap<u64, i64> = BTreeMap::new();
    for (file, millis) in files.iter().zip(&times) {
        if let Some(millis) = millis {
            committed.entry(file.name.max_txid).or_insert(*millis);
        }
    }
    let committed = |point: u64| committed.get(&point).map_or("at no known time".to_owned(), |millis| time(*millis));
    let chain = Chain::new(files);
    let (first, last) = (chain.restorable().next(), chain.restorable().last());
    match (first, last, chain.newest()) {
        (Some(first), Some(last), Some(newest)) if last == newest => {
            console::print(format_args!(
                "restorable: TXID {first} to {last}, {} points, committed {} to {}\n",
                chain.restorable().count(),
                committed(first),
                committed(last)
            ))?;
        }
        (_, last, newest) => {
            let last = last.map(|last| format!("TXID {last} at most, committed {}", committed(last)));
            let (last, newest) = (last.unwrap_or_else(|| "nothing".to_owned()), newest.unwrap_or(0));
            console::print(format_args!("restorable: {last}, though files reach {newest}\n"))?;
        }
    }
    Ok(print_stranded(&chain)?)
}

/// Says how many points cannot be restored although a file ends there, and why the first of them cannot.
pub(super) fn print_stranded(chain: &Chain) -> std::io::Result<()> {
    let Some(first) = chain.stranded().next() else { return Ok(()) };
    let (count, last) = (chain.stranded().count(), chain.stranded().last().unwrap_or(first));
    let why = chain.plan(first).err().map(|why| OneLine(why).to_string()).unwrap_or_default();
    console::print(format_args!("not restorable: {count} points from TXID {first} to {last}, for the first: {why}\n"))
}

/// What may go, and what stays; removes it if asked.
pub fn compact(place: &PlaceArgs, policy: &Policy, levels: u8, force: bool) -> anyhow::Result<()> {
    let replica = place.replica()?;
    let files = replica.files()?;
    if files.is_empty() {
        return Err(place.no_replica(&replica));
    }
    let plan = plan(&files, policy, levels, SystemClock::default().unix_millis())?;
    anyhow::ensure!(!plan.points.is_empty(), "no point of this replica can be restored: verify says what is missing");
    for files in plan.remove.chunks(FILES_AT_ONCE) {
        if force {
            replica.remove_all(files)?;
        }
        for file in files {
            let (done, key) =
                (if force { "removed" } else { "would remove" }, OneLine(replica.key(file.level, file.name)));
            console::print(format_args!("{done}\t{key}\n"))?;
        }
    }
    // Sizes are as listed: whatever a store says.
    let bytes = plan.remove.iter().fold(0u64, |sum, file| sum.saturating_add(file.size));
    let (files, points) = (plan.remove.len(), plan.points.len());
    console::print(format_args!(
        "{files} files, {bytes} bytes; {points} points are kept, and proved to be restorable without them\n"
    ))?;
    if !force && files > 0 {
        console::print(format_args!("nothing was removed: --force does it\n"))?;
    }
    Ok(())
}
