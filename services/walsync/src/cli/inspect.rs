//! `list`, `verify`, `compact`, `explain`, `import`: what is there, whether it holds, what may go, what it means, and what it was before.

use super::{ImportArgs, PlaceArgs, time};
use rand::seq::IndexedRandom;
use service_kit::console::{self, OneLine};
use std::collections::BTreeMap;
use std::path::Path;
use walsync::arena::Arena;
use walsync::chain::Chain;
use walsync::clock::{Clock, SystemClock};
use walsync::config::{Either, Found, Location, Places};
use walsync::cost::Requests;
use walsync::database::DatabaseFiles;
use walsync::pin::PinKind;
use walsync::replica::{RemoteFile, Replica};
use walsync::replicator::{Settings, allowance};
use walsync::restore::read_each;
use walsync::retention::{FILES_AT_ONCE, Policy, plan};
use walsync::store::{StoreError, retry};

/// A replica of Litestream 0.3 becomes one of ours.
pub fn import(arguments: &ImportArgs) -> anyhow::Result<()> {
    let options = arguments.s3.options();
    let from = Location::open(&arguments.from, &options)?.legacy();
    let to = Location::open(&arguments.to, &options)?.replica("");
    let folder = arguments.staging_folder.clone().unwrap_or_else(std::env::temp_dir);
    let arena = Arena::new(Settings::default().arena_bytes, folder.clone());
    let imported = walsync::import::import(&from, arguments.generation.as_deref(), &to, &arena, &folder)?;
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
    console::print(format_args!("level\tmin_txid\tmax_txid\tsize_bytes\tkey\tcommitted\n"))?;
    for (file, millis) in files.iter().zip(&times).filter(|(file, _)| is_shown(file)) {
        let (min, max) = (file.name.min_txid, file.name.max_txid);
        console::print(format_args!(
            "{}\t{min}\t{max}\t{}\t{}\t{}\n",
            file.level,
            file.size,
            OneLine(replica.key(file.level, file.name)),
            millis.map_or("-".to_owned(), time)
        ))?;
    }
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
fn print_stranded(chain: &Chain) -> std::io::Result<()> {
    let Some(first) = chain.stranded().next() else { return Ok(()) };
    let (count, last) = (chain.stranded().count(), chain.stranded().last().unwrap_or(first));
    let why = chain.plan(first).err().map(|why| OneLine(why).to_string()).unwrap_or_default();
    console::print(format_args!("not restorable: {count} points from TXID {first} to {last}, for the first: {why}\n"))
}

/// Reads all files, or a sample of them; memory of one page.
pub fn verify(place: &PlaceArgs, sample: Option<u64>) -> anyhow::Result<()> {
    let replica = place.replica()?;
    let files = replica.files()?;
    if files.is_empty() {
        return Err(place.no_replica(&replica));
    }
    let chosen: Vec<_> = match sample.and_then(|sample| usize::try_from(sample).ok()) {
        Some(sample) => files.sample(&mut rand::rng(), sample).collect(),
        None => files.iter().collect(),
    };
    let (mut bytes, mut damaged, mut read) = (0, 0, BTreeMap::new());
    for file in &chosen {
        let holds = retry(5, || {
            let mut pages = 0;
            let (header, _) = replica.read(file, |_, _, _| {
                pages += 1;
                Ok(())
            })?;
            Ok((header, pages))
        });
        match holds {
            Ok(held) => drop(read.insert((file.level, file.name), held)),
            Err(error) => {
                damaged += 1;
                console::print(format_args!("damaged: {}\n", OneLine(error)))?;
            }
        }
        bytes += file.size;
    }
    let (count, of) = (chosen.len(), files.len());
    let is_sample = count < of;
    let of = if is_sample { format!(" of {of}") } else { String::new() };
    console::print(format_args!("{count}{of} files, {bytes} bytes read, {damaged} damaged\n"))?;
    let chain = Chain::new(files);
    if is_sample {
        let newest = chain.newest().map(|point| chain.plan(point)).transpose();
        match &newest {
            Ok(plan) => console::print(format_args!(
                "the newest point restores from {} files, if those that were not read hold\n",
                plan.as_ref().map_or(0, Vec::len)
            ))?,
            Err(error) => console::print(format_args!("{}\n", OneLine(error)))?,
        }
        print_stranded(&chain)?;
        anyhow::ensure!(damaged == 0 && newest.is_ok(), "the replica is not whole");
        return Ok(());
    }
    let judged = chain.judge(|file| read.get(&(file.level, file.name)));
    let newest = chain.newest().unwrap_or(0);
    let restores = judged.iter().rev().find_map(|(point, after)| after.ok().map(|after| (*point, after.files)));
    match (restores, chain.plan(newest)) {
        (Some((point, files)), _) if point == newest => {
            console::print(format_args!("the newest point, TXID {point}, restores from {files} files\n"))?;
        }
        (_, Err(error)) => console::print(format_args!("{}\n", OneLine(error)))?,
        (_, Ok(_)) => {}
    }
    print_stranded(&chain)?;
    let mut needed: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (point, file) in judged.iter().filter_map(|(point, after)| Some((*point, after.err()?))) {
        needed.entry(replica.key(file.level, file.name)).or_insert((point, point)).1 = point;
    }
    for (key, (first, last)) in needed {
        let key = OneLine(key);
        let points = if first == last { format!("TXID {first} needs") } else { format!("TXID {first} to {last} need") };
        console::print(format_args!("not restorable: {points} {key}, which is damaged or cannot follow\n"))?;
    }
    match restores {
        Some((point, _)) => {
            let last = chain.last_file(point).and_then(|file| read.get(&(file.level, file.name)));
            let time = last.map_or_else(String::new, |(header, _)| time(header.timestamp_millis));
            console::print(format_args!("newest point that restores: TXID {point}, committed {time}\n"))?;
        }
        None => console::print(format_args!("no point restores\n"))?,
    }
    let is_whole = damaged == 0 && restores.is_some_and(|(point, _)| point == newest);
    anyhow::ensure!(is_whole, "the replica is not whole");
    Ok(())
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
    let bytes: u64 = plan.remove.iter().map(|file| file.size).sum();
    let (files, points) = (plan.remove.len(), plan.points.len());
    console::print(format_args!(
        "{files} files, {bytes} bytes; {points} points are kept, and proved to be restorable without them\n"
    ))?;
    if !force && files > 0 {
        console::print(format_args!("nothing was removed: --force does it\n"))?;
    }
    Ok(())
}

/// How many databases are held by what, and of each kind the first, with what there is to say of it.
fn pins<'a>(wanted: Option<PinKind>, paths: impl Iterator<Item = &'a Path>) -> BTreeMap<String, (usize, String)> {
    let mut pins: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for path in paths {
        let kind = DatabaseFiles::open(path).and_then(|files| files.pin_kind(wanted));
        let (kind, why) = match kind {
            Ok((kind, why)) => (kind.to_string(), why),
            Err(error) => ("nothing".to_owned(), Some(error.to_string())),
        };
        let first = || format!("{}{}", path.display(), why.map(|why| format!(" ({why})")).unwrap_or_default());
        pins.entry(kind).or_insert_with(|| (0, first())).0 += 1;
    }
    pins
}

/// What a configuration means.
pub fn explain(config: &Either) -> anyhow::Result<()> {
    let settings = config.settings()?;
    let Found { databases, refused, empty } = config.open(false)?.look(&mut Places::default())?;
    for (pattern, why) in empty {
        console::print(format_args!("{}: {why} now\n", pattern.display()))?;
    }
    for (path, why) in &refused {
        console::print(format_args!("{} is not replicated: {why}\n", path.display()))?;
    }
    for (path, replica) in &databases {
        let name = ltx::FileName { min_txid: 2, max_txid: 2 };
        console::print(format_args!("{} -> {}\n", path.display(), replica.key(0, name)))?;
    }
    for (kind, (count, first)) in pins(settings.pin, databases.iter().map(|(path, _)| path.as_path())) {
        console::print(format_args!("frames held by {kind}: {count} databases, {first}\n"))?;
    }
    let (count, interval) = (databases.len(), settings.interval);
    console::print(format_args!(
        "{count} databases; a change is sent within {} ms, as one object\n",
        interval.as_millis()
    ))?;
    if let Some(most) = settings.uploads_a_month_max {
        // No shorter than without a bound, whatever the bound.
        let wait = allowance::time_of_one(most).mul_f64(count as f64).max(interval);
        console::print(format_args!(
            "no more than {most} uploads a month: if all databases change all the time, each is sent every {:.1} s. Check points that \
             wait, `walsync sync` and the end go beyond that, and those that come later wait for longer\n",
            wait.as_secs_f64()
        ))?;
    }
    console::print(format_args!("snapshots every {} s\n", settings.snapshot_interval.as_secs()))?;
    let levels: Vec<String> = settings.levels.iter().map(|level| format!("{} s", level.as_secs_f64())).collect();
    console::print(format_args!(
        "merged after {}\n",
        if levels.is_empty() { "never".to_owned() } else { levels.join(", ") }
    ))?;
    match &settings.retention {
        None => console::print(format_args!("nothing is removed\n"))?,
        Some(kept) => console::print(format_args!(
            "kept: every upload for {} s, every merged file for {} s, then one point in each of {} hours, {} days, {} weeks \
             and {} months; what is not kept stays for {} s more\n",
            kept.uploads.as_secs(),
            kept.merged.as_secs(),
            kept.hourly,
            kept.daily,
            kept.weekly,
            kept.monthly,
            kept.grace.as_secs()
        ))?,
    }
    console::print(format_args!(
        "a WAL grows by at most {} bytes because it is held, also while the store is away\n",
        settings.wal_bytes_max
    ))?;
    if let Some(drill) = &settings.drill {
        console::print(format_args!(
            "restored for a trial every {} s: {} databases in turn, below {}\n",
            drill.interval.as_secs_f64(),
            drill.databases,
            drill.folder.display()
        ))?;
    }
    console::print(format_args!(
        "requests: one LIST a day of a database that is idle. At most in a month, of one that changes all the time: {}; if all do: {} \
         (0.005 dollars for a thousand PUTs or LISTs, 0.0004 for a thousand GETs)\n",
        Requests::of(&settings, 1),
        Requests::of(&settings, count)
    ))?;
    Ok(())
}
