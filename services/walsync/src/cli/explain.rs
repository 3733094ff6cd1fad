//! `explain`: what a configuration means and costs, and how its databases stand, before they are watched. Nothing is sent, and nobody logs in.

use super::watch;
use service_kit::console::{self, OneLine};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;
use walsync::config::{Either, Found, Places};
use walsync::cost::Requests;
use walsync::database::{DatabaseFiles, with_suffix};
use walsync::pin::PinKind;
use walsync::replicator::{Settings, allowance};
use walsync::source::{Source, page_size};

/// So many, in words.
fn many(count: usize, of: &str) -> String {
    format!("{count} {of}{}", if count == 1 { "" } else { "s" })
}

fn line(text: impl std::fmt::Display) -> io::Result<()> {
    console::print(format_args!("{}\n", OneLine(text)))
}

/// How a database stands: what a watch would find.
struct Standing {
    state: String,
    bytes: u64,
    /// What would hold its frames, and why not the other. One that is not there, or cannot be replicated, has nothing to hold.
    held: Option<(String, Option<String>)>,
}

impl Standing {
    fn of(path: &Path, wanted: Option<PinKind>) -> Self {
        let size = |path: &Path| path.metadata().map_or(0, |metadata| metadata.len());
        let bytes = size(path);
        let files = match DatabaseFiles::open(path) {
            Ok(files) => files,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Self { state: "not there yet: it is waited for".into(), bytes, held: None };
            }
            Err(error) => {
                return Self { state: format!("cannot be replicated: {error}"), bytes, held: None };
            }
        };
        if let Err(error) = page_size(files.database()) {
            return Self { state: format!("cannot be replicated as it is: {error}"), bytes, held: None };
        }
        let state = format!("in WAL mode, {bytes} bytes, and {} in its WAL", size(&with_suffix(path, "-wal")));
        let held = match files.pin_kind(wanted) {
            Ok((kind, why)) => Some((kind.to_string(), why)),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => Some(("nothing".into(), Some(error.to_string()))),
        };
        Self { state, bytes, held }
    }
}

/// What a configuration means.
pub fn explain(config: &Either) -> anyhow::Result<()> {
    watch::beside(config)?;
    let settings = config.settings()?;
    let opened = config.open(false)?;
    let places = opened.places();
    let Found { databases, refused, empty } = opened.look(&mut Places::default())?;
    for place in &places {
        line(format_args!("replicates into {place}"))?;
    }
    let mut bytes = 0_u64;
    // How many are held by what, and of each kind the first, with what there is to say of it.
    let mut held: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for (path, replica) in &databases {
        let name = ltx::FileName { min_txid: 1, max_txid: 1 };
        let standing = Standing::of(path, settings.pin);
        line(format_args!("{} -> {}: {}", path.display(), replica.key(0, name), standing.state))?;
        bytes = bytes.saturating_add(standing.bytes);
        if let Some((kind, why)) = standing.held {
            let first = || format!("{}{}", path.display(), why.map(|why| format!(" ({why})")).unwrap_or_default());
            held.entry(kind).or_insert_with(|| (0, first())).0 += 1;
        }
    }
    for (path, why) in &refused {
        line(format_args!("{} is not replicated: {why}", path.display()))?;
    }
    for (pattern, why) in empty {
        line(format_args!("{}: {why} now", pattern.display()))?;
    }
    for (kind, (count, first)) in held {
        line(format_args!("frames held by {kind}: {}, {first}", many(count, "database")))?;
    }
    if let Some(problem) = watch::without_staging_folder(&settings) {
        line(format_args!("{}: {problem}", settings.staging_folder.display()))?;
    }
    let count = databases.len();
    line(format_args!(
        "{}; a change is sent within {} ms, as one object",
        many(count, "database"),
        settings.interval.as_millis()
    ))?;
    schedule(&settings, count)?;
    costs(&settings, &places, count, bytes)
}

/// When what is done.
fn schedule(settings: &Settings, count: usize) -> io::Result<()> {
    if let Some(most) = settings.uploads_a_month_max {
        // No shorter than without a bound, whatever the bound.
        let wait = allowance::time_of_one(most).mul_f64(count as f64).max(settings.interval);
        line(format_args!(
            "no more than {most} uploads a month: if all databases change all the time, each is sent every {:.1} s. Check points that \
             wait, `walsync sync` and the end go beyond that, and those that come later wait for longer",
            wait.as_secs_f64()
        ))?;
    }
    line(format_args!("snapshots every {} s", settings.snapshot_interval.as_secs()))?;
    let levels: Vec<String> = settings.levels.iter().map(|level| format!("{} s", level.as_secs_f64())).collect();
    line(format_args!("merged after {}", if levels.is_empty() { "never".to_owned() } else { levels.join(", ") }))?;
    match &settings.retention {
        None => line("nothing is removed")?,
        Some(kept) => line(format_args!(
            "kept: every upload for {} s, every merged file for {} s, then one point in each of {} hours, {} days, {} weeks \
             and {} months; what is not kept stays for {} s more",
            kept.uploads.as_secs(),
            kept.merged.as_secs(),
            kept.hourly,
            kept.daily,
            kept.weekly,
            kept.monthly,
            kept.grace.as_secs()
        ))?,
    }
    line(format_args!(
        "a WAL grows by at most {} bytes because it is held, also while the store is away",
        settings.wal_bytes_max
    ))?;
    if let Some(drill) = &settings.drill {
        line(format_args!(
            "restored for a trial every {} s: {} in turn, below {}",
            drill.interval.as_secs_f64(),
            many(drill.databases.min(count.max(1)), "database"),
            drill.folder.display()
        ))?;
    }
    Ok(())
}

/// Folders cost nothing but room.
fn costs(settings: &Settings, places: &[String], count: usize, bytes: u64) -> anyhow::Result<()> {
    if places.iter().all(|place| !place.contains("://")) {
        return Ok(line("requests: none, for it goes into a folder")?);
    }
    let drills = |databases: usize| match &settings.drill {
        None => String::new(),
        Some(_) => {
            let trials = Requests::of(settings, databases).trials;
            let read = trials * bytes as f64 / count.max(1) as f64 / 1e9;
            format!(
                "; restores for a trial read {trials:.0} databases, some {read:.1} GB as large as they are now, 4 MiB by each GET"
            )
        }
    };
    line(format_args!(
        "requests: one LIST a day of a database that is idle. At most in a month, of one that changes all the time: {}; if all do: {} \
         (as Amazon takes for S3: 0.005 dollars for a thousand PUTs or LISTs, 0.0004 for a thousand GETs){}",
        Requests::of(settings, 1),
        Requests::of(settings, count),
        drills(count)
    ))?;
    Ok(())
}
