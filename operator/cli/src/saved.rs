//! Runs on disk: `DIRECTORY/RUN/TIME-VERDICT/`, with its reports, and `latest`, which leads to the newest of them.
//!
//! While a run goes on its folder is `TIME-unfinished` and holds `record.json`, written anew after each trial of an arm, so that a run that was
//! interrupted, killed or hit by a reboot goes on where it was: the ledger decides from the record alone. What was saved earlier is never
//! written over.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use storebench_core::record::{RECORD_VERSION, RunRecord};
use storebench_core::report::{Report, from_json};
use storebench_core::validate::{ValidatedArm, ValidatedRun};
use storebench_crds::{ControlPlane, Isolation, StorageService};

use crate::Output;
use crate::commands::report::render;

const RECORD: &str = "record.json";
pub(crate) const REPORT: &str = "report.json";
pub(crate) const RUN: &str = "run.yaml";
const SERVICES: &str = "services.json";
const UNFINISHED: &str = "-unfinished";
pub(crate) const LATEST: &str = "latest";
const LOCK: &str = "lock";

/// The folder of one run, held by this process alone.
pub(crate) struct Folder {
    path: PathBuf,
    _lock: File,
}

/// What is there of a run that is to go on.
pub(crate) enum Begun {
    /// It was interrupted: its folder, and what it has measured.
    Unfinished(Folder, Box<RunRecord>),
    /// It came to its end: its folder and report.
    Finished(PathBuf, Box<Report>),
}

impl Begun {
    /// What a folder has. `None`: nothing that could go on, such as one whose making was cut short, or another run that came to its end.
    fn read(path: &Path, asked: &Asked<'_>) -> anyhow::Result<Option<Self>> {
        let is_finished = !path.to_string_lossy().ends_with(UNFINISHED);
        let wanted = path.join(if is_finished { REPORT } else { RECORD });
        let (Ok(text), Ok(services)) = (fs::read_to_string(&wanted), fs::read_to_string(path.join(SERVICES))) else {
            return Ok(None);
        };
        let services_are_same = serde_json::from_str(&services).ok().as_ref() == Some(&asked.services);
        let damaged = || format!("--resume: {} is not what storebench writes", wanted.display());
        if is_finished {
            let report = from_json(&text).with_context(damaged)?;
            let is_same = check_same(&report.record, asked.record, services_are_same).is_ok();
            return Ok(is_same.then(|| Self::Finished(path.to_owned(), Box::new(report))));
        }
        let head: Head = serde_json::from_str(&text).with_context(damaged)?;
        check_version(&asked.record.name, &head)?;
        let record: RunRecord = serde_json::from_str(&text).with_context(damaged)?;
        check_same(&record, asked.record, services_are_same)?;
        let folder = Folder { _lock: lock(path)?, path: path.to_owned() };
        Ok(Some(Self::Unfinished(folder, Box::new(record))))
    }
}

/// The objects that a run names: with them its run.yaml can be run again as it stands.
#[derive(Serialize)]
pub(crate) struct Objects {
    services: Vec<StorageService>,
    control_planes: Vec<ControlPlane>,
}

impl Objects {
    pub(crate) fn of(run: &ValidatedRun) -> Self {
        let services: BTreeMap<_, _> =
            run.arms.iter().filter_map(ValidatedArm::service).map(|service| (&service.name, &service.spec)).collect();
        let planes: BTreeMap<_, _> =
            run.arms.iter().filter_map(ValidatedArm::control_plane).map(|plane| (&plane.name, &plane.spec)).collect();
        Self {
            services: services.into_iter().map(|(name, spec)| StorageService::new(name, spec.clone())).collect(),
            control_planes: planes.into_iter().map(|(name, spec)| ControlPlane::new(name, spec.clone())).collect(),
        }
    }

    fn yaml(&self) -> anyhow::Result<String> {
        let services = self.services.iter().map(serde_yaml::to_string);
        let planes = self.control_planes.iter().map(serde_yaml::to_string);
        services.chain(planes).map(|text| Ok(text? + "---\n")).collect()
    }
}

/// What is asked for now.
pub(crate) struct Asked<'a> {
    /// The run, before its first trial.
    pub(crate) record: &'a RunRecord,
    /// The objects that it names. The record has only what differs between reports.
    pub(crate) services: Value,
}

impl Folder {
    /// Makes the folder of a run that begins. Whoever gets one can write there.
    pub(crate) fn create(directory: &Path, asked: &Asked<'_>) -> anyhow::Result<Self> {
        let RunRecord { name: run, started_at, .. } = asked.record;
        let all = directory.join(run);
        let time: String = started_at.chars().filter(|character| character.is_ascii_alphanumeric()).collect();
        let said = || format!("--save: {}: cannot be written to", all.display());
        fs::create_dir_all(&all).with_context(said)?;
        // Two runs may begin within a second.
        for number in 1.. {
            let name = if number == 1 { time.clone() } else { format!("{time}-{number}") };
            let is_taken =
                names(&all).with_context(said)?.any(|taken| taken.strip_prefix(&name).is_some_and(ends_a_name));
            if !is_taken {
                let path = all.join(name + UNFINISHED);
                fs::create_dir(&path).with_context(said)?;
                let folder = Self { _lock: lock(&path)?, path };
                write(&folder.path.join(SERVICES), asked.services.to_string().as_bytes())?;
                folder.keep(asked.record)?;
                return Ok(folder);
            }
        }
        bail!("{} has no room for another run", all.display())
    }

    /// The newest run that is what is asked for now. Errors: there are unfinished ones of this name, and none of them is; what differs.
    pub(crate) fn find(directory: &Path, asked: &Asked<'_>) -> anyhow::Result<Option<Begun>> {
        let all = directory.join(&asked.record.name);
        let Ok(names) = names(&all) else { return Ok(None) };
        let mut names: Vec<String> =
            names.filter(|name| name.starts_with(|first: char| first.is_ascii_digit())).collect();
        names.sort_by_key(|name| age(name));
        let mut problem = None;
        for name in names.iter().rev() {
            match Begun::read(&all.join(name), asked) {
                Ok(None) => {}
                Ok(begun) => return Ok(begun),
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        problem.map_or(Ok(None), Err)
    }

    /// Keeps what was measured so far; it is on disk when this returns.
    pub(crate) fn keep(&self, record: &RunRecord) -> anyhow::Result<()> {
        let bytes = serde_json::to_vec(record)?;
        write(&self.path.join(RECORD), &bytes)
    }

    /// Writes the reports of a run that has ended, and names the folder after the verdict. One that was interrupted keeps its name and
    /// record. Returns where the folder is then.
    pub(crate) fn finish(self, report: &Report, objects: &Objects, is_interrupted: bool) -> anyhow::Result<PathBuf> {
        let forms = [(REPORT, Output::Json), ("report.md", Output::Markdown), ("report.html", Output::Html)];
        write(&self.path.join(RUN), (objects.yaml()? + &render(report, Output::Yaml)?).as_bytes())?;
        for (name, form) in forms {
            write(&self.path.join(name), render(report, form)?.as_bytes())?;
        }
        let mut path = self.path.clone();
        if !is_interrupted {
            let name = self.path.to_string_lossy();
            let time = name.strip_suffix(UNFINISHED).unwrap_or(&name);
            path = PathBuf::from(format!("{time}-{:?}", report.judgement.verdict));
            let said = || format!("{}: cannot be renamed to {}", self.path.display(), path.display());
            fs::rename(&self.path, &path).with_context(said)?;
            // The record is in report.json.
            fs::remove_file(path.join(RECORD)).with_context(said)?;
            fs::remove_file(path.join(LOCK)).with_context(said)?;
        }
        point_to(&path)?;
        Ok(path)
    }
}

/// Nobody else may measure for the same folder.
fn lock(folder: &Path) -> anyhow::Result<File> {
    let said = || format!("{}", folder.display());
    let file = File::options().write(true).create(true).truncate(false).open(folder.join(LOCK)).with_context(said)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!("--resume: {}: another storebench measures this run: wait for it", folder.display())
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(said),
    }
}

/// By what names are older than others: the time, and the number of those that began in the same second.
fn age(name: &str) -> (String, u32) {
    let mut parts = name.split('-');
    let time = parts.next().unwrap_or_default().to_owned();
    (time, parts.next().and_then(|part| part.parse().ok()).unwrap_or(1))
}

fn ends_a_name(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('-')
}

/// The names in a folder.
fn names(folder: &Path) -> io::Result<impl Iterator<Item = String>> {
    Ok(fs::read_dir(folder)?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()))
}

/// Of a record, what can be read whatever wrote it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    record_version: u32,
    storebench_version: String,
}

const REMEDY: &str = "start anew with --save";

fn check_version(name: &str, head: &Head) -> anyhow::Result<()> {
    match head.record_version == RECORD_VERSION && head.storebench_version == env!("CARGO_PKG_VERSION") {
        true => Ok(()),
        false => bail!("--resume: {name} was begun by storebench {}: {REMEDY}", head.storebench_version),
    }
}

/// Whether a record is of the run that is asked for now, on the same machine. Errors name what differs.
fn check_same(kept: &RunRecord, now: &RunRecord, services_are_same: bool) -> anyhow::Result<()> {
    let (name, remedy) = (&now.name, REMEDY);
    if kept.spec != now.spec {
        bail!("--resume: {name} was begun with another spec than the file has now: restore it, or {remedy}");
    }
    let settings = |record: &RunRecord| {
        let arms = record.arms.iter().map(|arm| {
            let setting = (arm.durability_setting.clone(), arm.replicas, arm.control_plane.clone());
            (arm.name.clone(), arm.engine, arm.version.clone(), setting)
        });
        arms.collect::<Vec<_>>()
    };
    if settings(kept) != settings(now) || !services_are_same {
        bail!(
            "--resume: {name} was begun with other services or versions than there are now: restore them, or {remedy}"
        );
    }
    if kept.spec.isolation == Isolation::Shared && !kept.trials.is_empty() {
        bail!("--resume: {name} has isolation Shared, and what its trials left in its stores is gone: {remedy}");
    }
    let (before, after) = (&kept.fingerprint.facts, &now.fingerprint.facts);
    let differs = |fact: &&String| before.get(*fact) != after.get(*fact);
    if let Some(fact) = before.keys().chain(after.keys()).find(differs) {
        let of =
            |facts: &std::collections::BTreeMap<String, String>| facts.get(fact).cloned().unwrap_or("unknown".into());
        bail!("--resume: {name} was begun where {fact} was {}, and here it is {}: {remedy}", of(before), of(after));
    }
    Ok(())
}

/// Written beside its place and renamed, so that neither a reader nor a crash ever sees half a file.
fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let written = || -> io::Result<()> {
        let mut file = File::create(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&partial, path)?;
        path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    written().with_context(|| format!("{}: cannot be written", path.display()))
}

fn point_to(path: &Path) -> anyhow::Result<()> {
    let (Some(all), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let (latest, next) = (all.join(LATEST), all.join(".latest.partial"));
    let pointed = || -> io::Result<()> {
        match fs::remove_file(&next) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        std::os::unix::fs::symlink(name, &next)?;
        fs::rename(&next, &latest)
    };
    pointed().with_context(|| format!("{}: cannot be written", latest.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> RunRecord {
        serde_json::from_value(serde_json::json!({
            "recordVersion": RECORD_VERSION, "name": "run", "storebenchVersion": env!("CARGO_PKG_VERSION"),
            "startedAt": "2026-11-22T17:30:15Z", "durationMillis": 0, "driver": "Embedded",
            "spec": { "arms": [], "workloads": [] }, "arms": [], "trials": [],
            "fingerprint": { "hash": "0" }, "caveats": [],
        }))
        .unwrap()
    }

    #[test]
    fn a_run_goes_on_only_as_what_it_was_begun_as_and_for_one_process() {
        let directory = harness::folder();
        let first = record();
        fn asked<'a>(record: &'a RunRecord, services: &str) -> Asked<'a> {
            Asked { record, services: Value::from(services) }
        }
        let folder = Folder::create(directory.path(), &asked(&first, "args a")).unwrap();
        let find = |record: &RunRecord, services: &str| Folder::find(directory.path(), &asked(record, services));
        let refused = |record: &RunRecord, services: &str| format!("{:#}", find(record, services).err().unwrap());
        assert!(refused(&first, "args a").contains("another storebench measures this run"));
        drop(folder);
        assert!(matches!(find(&first, "args a"), Ok(Some(Begun::Unfinished(..)))));
        assert!(refused(&first, "args b").contains("with other services or versions"));
        let mut elsewhere = first.clone();
        elsewhere.fingerprint.facts.insert("cores".into(), "8".into());
        assert!(refused(&elsewhere, "args a").contains("was begun where cores was unknown, and here it is 8"));
        // What somebody began to make, and did not.
        fs::create_dir(directory.path().join("run/20261123T000000Z-unfinished")).unwrap();
        assert!(matches!(find(&first, "args a"), Ok(Some(Begun::Unfinished(..)))));
        let path = directory.path().join("run/20261122T173015Z-unfinished").join(RECORD);
        let older = fs::read_to_string(&path).unwrap().replace(env!("CARGO_PKG_VERSION"), "0.0.1");
        fs::write(&path, older.replace("\"trials\"", "\"measured\"")).unwrap();
        assert!(refused(&first, "args a").contains("was begun by storebench 0.0.1"));
    }

    #[test]
    fn of_two_runs_in_a_second_the_second_is_newer() {
        let mut names = ["20261122T173015Z-2-Passed", "20261122T173015Z-unfinished", "20261122T173014Z-10-Passed"];
        names.sort_by_key(|name| age(name));
        assert_eq!(names, ["20261122T173014Z-10-Passed", "20261122T173015Z-unfinished", "20261122T173015Z-2-Passed"]);
    }

    #[test]
    fn no_run_is_written_over() {
        let directory = harness::folder();
        let record = record();
        let asked = Asked { record: &record, services: Value::Null };
        let create = || Folder::create(directory.path(), &asked).unwrap().path;
        let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
        let first = create();
        assert_eq!(name(&first), "20261122T173015Z-unfinished");
        let finished = first.with_file_name("20261122T173015Z-Passed");
        fs::rename(&first, &finished).unwrap();
        assert_eq!(name(&create()), "20261122T173015Z-2-unfinished");
        assert_eq!(name(&create()), "20261122T173015Z-3-unfinished");
        for path in [&finished, &create()] {
            point_to(path).unwrap();
            assert_eq!(fs::canonicalize(directory.path().join("run/latest")).unwrap(), fs::canonicalize(path).unwrap());
        }
    }

    #[test]
    fn where_nothing_can_be_written_is_told_before_anything_is_measured() {
        let directory = harness::folder();
        fs::write(directory.path().join("file"), "").unwrap();
        let record = record();
        let asked = Asked { record: &record, services: Value::Null };
        let refused = Folder::create(&directory.path().join("file"), &asked).err().unwrap();
        assert!(format!("{refused:#}").contains("file/run: cannot be written to: Not a directory"), "{refused:#}");
    }
}
