//! Runs on disk: `DIRECTORY/RUN/TIME-VERDICT/`, with its reports, and `latest`, which leads to the newest of them.
//!
//! While a run goes on its folder is `TIME-unfinished` and holds `record.json`, written anew after each trial of an arm, so that a run that was
//! interrupted, killed or hit by a reboot goes on where it was: the ledger decides from the record alone. A run that was saved
//! earlier is never written over; the pages of a suite have one folder, also when it goes on.

mod suite;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use serde::Serialize;
use serde_json::Value;
use storebench_core::ledger::go_on_after_disturbances;
use storebench_core::record::RunRecord;
use storebench_core::report::{Report, from_json};
use storebench_core::validate::{ValidatedArm, ValidatedRun};
use storebench_crds::{ControlPlane, StorageService};

use crate::folder_name::{REPORT, UNFINISHED, age, ends_a_name, folder_time, is_of_a_run, is_unfinished};
use crate::output::{Output, render};
use crate::resumable::{Head, REMEDY, check_same, check_stores_are_there, check_version};
pub(crate) use suite::keep_suite;

const RECORD: &str = "record.json";
pub(crate) const RUN: &str = "run.yaml";
const SERVICES: &str = "services.json";
const LATEST: &str = "latest";
const LOCK: &str = "lock";
/// A report in the forms that are kept.
const FORMS: [(&str, Output); 3] =
    [("report.html", Output::Html), ("report.md", Output::Markdown), (REPORT, Output::Json)];

/// The folder of one run, held by this process alone. Dropped before there is anything to go on with, it is taken away, so that whatever ends a
/// run before its first trial leaves nothing behind.
pub(crate) struct Folder {
    path: PathBuf,
    _lock: File,
    is_worth_keeping: Cell<bool>,
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_worth_keeping.get() {
            return;
        }
        // What cannot be removed is an unfinished run without a trial, which nobody reads.
        let _ = fs::remove_dir_all(&self.path);
        // Of the run, if there is no other.
        if let Some(run) = self.path.parent() {
            let _ = fs::remove_dir(run);
        }
    }
}

/// What is there of a run that is to go on.
pub(crate) enum Begun {
    /// It was interrupted: its folder, and what it has measured.
    Unfinished(Folder, Box<RunRecord>),
    /// It ended because it was disturbed too often: its folder, and what it has measured, ready to go on in another.
    Disturbed(PathBuf, Box<RunRecord>),
    /// It came to its end: its folder and report.
    Finished(PathBuf, Box<Report>),
}

/// What a folder holds of a run that might go on, as it was read.
struct Kept {
    path: PathBuf,
    /// The file with the record, and what it holds.
    wanted: PathBuf,
    text: String,
    services: String,
}

impl Kept {
    /// `None`: it is no folder, or its making was cut short.
    fn read(path: PathBuf) -> anyhow::Result<Option<Self>> {
        let is_finished = !is_unfinished(&path.to_string_lossy());
        let wanted = path.join(if is_finished { REPORT } else { RECORD });
        let (text, services) = (read_if_there(&wanted)?, read_if_there(&path.join(SERVICES))?);
        Ok(text.zip(services).map(|(text, services)| Self { path, wanted, text, services }))
    }
}

impl Begun {
    /// What a folder has, which is held if it is unfinished. `None`: nothing that could go on, such as another run that came to its end.
    fn of(kept: &Kept, held: Option<Folder>, asked: &Asked<'_>) -> anyhow::Result<Option<Self>> {
        let Kept { path, wanted, text, services } = kept;
        let services_are_same = serde_json::from_str(services).ok().as_ref() == Some(&asked.services);
        let damaged = || format!("--resume: {} is not what storebench writes", wanted.display());
        let Some(folder) = held else {
            let report = from_json(text).with_context(damaged)?;
            if check_same(&report.record, asked.record, services_are_same).is_err() {
                return Ok(None);
            }
            let mut record = report.record.clone();
            let goes_on = record.aborted.is_none() && go_on_after_disturbances(&record.spec, &mut record.trials);
            if goes_on && check_stores_are_there(&record).is_err() {
                return Ok(None);
            }
            if goes_on {
                return Ok(Some(Self::Disturbed(path.to_owned(), Box::new(record))));
            }
            complete(path)?;
            return Ok(Some(Self::Finished(path.to_owned(), Box::new(report))));
        };
        let head: Head = serde_json::from_str(text).with_context(damaged)?;
        check_version(&asked.record.name, &head)?;
        let record: RunRecord = serde_json::from_str(text).with_context(damaged)?;
        check_same(&record, asked.record, services_are_same)?;
        check_stores_are_there(&record)?;
        folder.is_worth_keeping.set(!record.trials.is_empty());
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
        let deployed = run.arms.iter().filter_map(ValidatedArm::service);
        let external = run.arms.iter().filter_map(ValidatedArm::external);
        let services: BTreeMap<_, _> = deployed
            .map(|service| (&service.name, service.spec.clone()))
            .chain(external.map(|store| (&store.name, store.spec())))
            .collect();
        let planes: BTreeMap<_, _> =
            run.arms.iter().filter_map(ValidatedArm::control_plane).map(|plane| (&plane.name, &plane.spec)).collect();
        Self {
            services: services.into_iter().map(|(name, spec)| StorageService::new(name, spec)).collect(),
            control_planes: planes.into_iter().map(|(name, spec)| ControlPlane::new(name, spec.clone())).collect(),
        }
    }

    /// As they were measured: a service that left its version open names the one that ran, so that the same is measured again.
    fn yaml(&self, record: &RunRecord) -> anyhow::Result<String> {
        let measured = |service: &StorageService| {
            let mut service = service.clone();
            let name = service.metadata.name.as_deref().unwrap_or_default();
            let arms = record.arms.iter().filter(|arm| arm.service == name && !arm.is_external());
            let version = arms.filter_map(|arm| arm.folder_version.as_ref().or(arm.version.as_ref())).next().cloned();
            if service.spec.version.is_none() && service.spec.image.is_none() && service.spec.external.is_none() {
                service.spec.version = version;
            }
            serde_yaml::to_string(&service)
        };
        let services = self.services.iter().map(measured);
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
    /// Makes the folder of a run that begins, or goes on there, with what it has measured: from the first moment that is in it. Whoever gets one
    /// can write there.
    pub(crate) fn create(directory: &Path, asked: &Asked<'_>, measured: &RunRecord) -> anyhow::Result<Self> {
        let RunRecord { name: run, started_at, .. } = asked.record;
        let all = directory.join(run);
        let time = folder_time(started_at);
        let said = || format!("--save: {}: cannot be written to", all.display());
        fs::create_dir_all(&all).with_context(said)?;
        // Two runs may begin within a second.
        for number in 1.. {
            let name = if number == 1 { time.clone() } else { format!("{time}-{number}") };
            let is_taken =
                names(&all).with_context(said)?.iter().any(|taken| taken.strip_prefix(&name).is_some_and(ends_a_name));
            if !is_taken {
                let path = all.join(name + UNFINISHED);
                fs::create_dir(&path).with_context(said)?;
                let folder = Self::held(&path, false)?;
                write(&folder.path.join(SERVICES), asked.services.to_string().as_bytes())?;
                folder.keep(measured)?;
                return Ok(folder);
            }
        }
        bail!("{} has no room for another run", all.display())
    }

    /// The newest run that is what is asked for now. Errors: there are unfinished ones of this name, and none of them is; what differs.
    pub(crate) fn find(directory: &Path, asked: &Asked<'_>) -> anyhow::Result<Option<Begun>> {
        let all = directory.join(&asked.record.name);
        let mut names = match names(&all) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            names => names.map_err(|error| cannot_be_read(&all, &error))?,
        };
        names.retain(|name| is_of_a_run(name));
        names.sort_by_key(|name| age(name));
        let mut problem = None;
        for name in names.iter().rev() {
            let path = all.join(name);
            // Before it is read: who measures there writes on.
            let held = is_unfinished(name).then(|| Self::held(&path, true)).transpose();
            // Who held it until now may have come to its end, and given it another name.
            if path.symlink_metadata().is_err() {
                return Self::find(directory, asked);
            }
            let held = match held {
                Ok(held) => held,
                Err(_) if path.is_file() => continue,
                Err(error) => {
                    problem = problem.or(Some(error));
                    continue;
                }
            };
            // What cannot be read might be what is asked for: nothing older is, and nothing is measured anew.
            let Some(kept) = Kept::read(path)? else { continue };
            match Begun::of(&kept, held, asked) {
                Ok(None) => {}
                Ok(begun) => return Ok(begun),
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        problem.map_or(Ok(None), Err)
    }

    /// A folder that is there, for this process.
    fn held(path: &Path, is_worth_keeping: bool) -> anyhow::Result<Self> {
        Ok(Self { _lock: lock(path)?, path: path.to_owned(), is_worth_keeping: Cell::new(is_worth_keeping) })
    }

    /// Keeps what was measured so far; it is on disk when this returns.
    pub(crate) fn keep(&self, record: &RunRecord) -> anyhow::Result<()> {
        let bytes = serde_json::to_vec(record)?;
        if !record.trials.is_empty() {
            self.is_worth_keeping.set(true);
        }
        write(&self.path.join(RECORD), &bytes)
    }

    /// Writes the reports of a run that has ended, and names the folder after the verdict. One that was interrupted keeps its name and
    /// record. Returns where the folder is then.
    pub(crate) fn finish(self, report: &Report, objects: &Objects, is_interrupted: bool) -> anyhow::Result<PathBuf> {
        self.is_worth_keeping.set(true);
        write(&self.path.join(RUN), (objects.yaml(&report.record)? + &render(report, Output::Yaml)?).as_bytes())?;
        for (name, form) in FORMS {
            write(&self.path.join(name), render(report, form)?.as_bytes())?;
        }
        let mut path = self.path.clone();
        if !is_interrupted {
            let name = self.path.file_name().unwrap_or_default().to_string_lossy();
            let time = name.strip_suffix(UNFINISHED).unwrap_or(&name);
            path = self.path.with_file_name(format!("{time}-{:?}", report.judgement.verdict));
            let said = || format!("{}: cannot be renamed to {}", self.path.display(), path.display());
            fs::rename(&self.path, &path).with_context(said)?;
            tidy(&path)?;
        }
        point_to(&path)?;
        Ok(path)
    }
}

/// Takes away what only a run that goes on needs: the record is in report.json.
fn tidy(folder: &Path) -> anyhow::Result<()> {
    for name in [RECORD, LOCK] {
        match fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("{}: cannot be removed", folder.join(name).display()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Does what is left to do of a run that was killed between its last file and its end.
fn complete(folder: &Path) -> anyhow::Result<()> {
    tidy(folder)?;
    let latest = fs::canonicalize(folder.with_file_name(LATEST)).ok();
    let name = |path: &Path| path.file_name().map(|name| age(&name.to_string_lossy()));
    match latest.as_deref().and_then(name) >= name(folder) {
        true => Ok(()),
        false => point_to(folder),
    }
}

/// A run that came to its end, as `--save` keeps it: what is copied elsewhere.
pub(crate) struct SavedRun {
    /// Judged anew.
    pub(crate) report: Report,
    /// `TIME-VERDICT`, which no other run of this name has.
    pub(crate) folder: String,
    /// Names and contents. The last is report.json: where that is, all are.
    pub(crate) files: Vec<(String, Vec<u8>)>,
}

impl SavedRun {
    /// The run whose report.json has this name and lies in this folder; `beside` has what lies there, too, by name.
    pub(crate) fn read(
        name: &str,
        folder: String,
        report: Report,
        beside: impl Fn(&str) -> anyhow::Result<Option<Vec<u8>>>,
    ) -> anyhow::Result<Self> {
        if !is_of_a_run(&folder) || is_unfinished(&folder) {
            bail!(
                "{name}: lies in no folder of --save (DIRECTORY/RUN/TIME-VERDICT): keep runs with storebench run FILE --save DIRECTORY"
            );
        }
        let mut files = Vec::new();
        for name in [SERVICES, RUN].into_iter().chain(FORMS.map(|(name, _)| name)) {
            // One that is not there was kept by an earlier storebench, or by somebody who has no need of it.
            files.extend(beside(name)?.map(|bytes| (name.to_owned(), bytes)));
        }
        Self { report, folder, files }.checked()
    }

    /// A run that is kept nowhere, as `--save` would have kept it; of the services that it names there is nothing.
    pub(crate) fn of(report: Report) -> anyhow::Result<Self> {
        let mut files = Vec::new();
        for (name, form) in [(RUN, Output::Yaml)].into_iter().chain(FORMS) {
            files.push((name.to_owned(), render(&report, form)?.into_bytes()));
        }
        let folder = format!("{}-{:?}", folder_time(&report.record.started_at), report.judgement.verdict);
        Self { report, folder, files }.checked()
    }

    /// A report says its own name, and may say anything.
    fn checked(self) -> anyhow::Result<Self> {
        let name = &self.report.record.name;
        let is_safe = |part: char| part.is_ascii_alphanumeric() || "-.".contains(part);
        match !name.is_empty() && !name.starts_with('.') && name.chars().all(is_safe) {
            true => Ok(self),
            false => bail!("`{name}` is no name of a run: a report that storebench wrote has another"),
        }
    }

    /// `RUN/TIME-VERDICT`.
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.report.record.name, self.folder)
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

/// The names in a folder.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// What a file holds; `None`: it is not there.
fn read_if_there(file: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        // Where a folder was meant may lie a file of somebody's own.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(cannot_be_read(file, &error)),
    }
}

fn cannot_be_read(path: &Path, error: &io::Error) -> anyhow::Error {
    anyhow!("--resume: {}: cannot be read: {error}: mend that, or {REMEDY}", path.display())
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
    use storebench_core::record::RECORD_VERSION;

    use super::*;

    /// After its first trial.
    fn record() -> RunRecord {
        serde_json::from_value(serde_json::json!({
            "recordVersion": RECORD_VERSION, "name": "run", "storebenchVersion": env!("CARGO_PKG_VERSION"),
            "startedAt": "2026-11-22T17:30:15Z", "durationMillis": 0, "driver": "Embedded",
            "spec": { "arms": [], "workloads": [] }, "arms": [], "fingerprint": { "hash": "0" }, "caveats": [],
            "trials": [{
                "index": 0, "arm": "redis", "state": "Valid", "startedMillis": 0, "durationMillis": 1, "workloads": [],
            }],
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
        let folder = Folder::create(directory.path(), &asked(&first, "args a"), &first).unwrap();
        let find = |record: &RunRecord, services: &str| Folder::find(directory.path(), &asked(record, services));
        let refused = |record: &RunRecord, services: &str| format!("{:#}", find(record, services).err().unwrap());
        assert!(refused(&first, "args a").contains("another storebench measures this run"));
        assert!(refused(&first, "args b").contains("another storebench"), "what is read while it is written is old");
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

    /// What was measured would be measured anew, and nobody would hear why.
    #[test]
    fn a_run_that_cannot_be_read_is_not_begun_anew() {
        let directory = harness::folder();
        let record = record();
        let asked = Asked { record: &record, services: Value::Null };
        let find = || Folder::find(directory.path(), &asked);
        let folder = Folder::create(directory.path(), &asked, &record).unwrap().path.clone();
        for name in [RECORD, SERVICES] {
            let file = folder.join(name);
            let whole = fs::read(&file).unwrap();
            let refused = |why: &str| {
                let said = format!("{:#}", find().err().unwrap());
                let expected = format!("--resume: {}: cannot be read: ", file.display());
                assert!(said.starts_with(&expected) && said.contains(why), "{said}");
            };
            fs::write(&file, b"\xff").unwrap();
            refused("valid UTF-8");
            fs::remove_file(&file).unwrap();
            fs::create_dir(&file).unwrap();
            refused("Is a directory");
            fs::remove_dir(&file).unwrap();
            assert!(find().unwrap().is_none(), "its making was cut short");
            fs::write(&file, whole).unwrap();
        }
        fs::write(directory.path().join("run/2027-notes"), "somebody's own").unwrap();
        assert!(matches!(find(), Ok(Some(Begun::Unfinished(..)))));
        fs::remove_dir_all(directory.path().join("run")).unwrap();
        assert!(find().unwrap().is_none());
        fs::write(directory.path().join("run"), "").unwrap();
        assert!(format!("{:#}", find().err().unwrap()).contains("/run: cannot be read: "));
    }

    #[test]
    fn a_run_ends_in_its_folder_whatever_the_bytes_of_those_above() {
        use std::os::unix::ffi::OsStrExt as _;
        let above = harness::folder();
        let directory = above.path().join(std::ffi::OsStr::from_bytes(b"r\xffns"));
        let record = record();
        let asked = Asked { record: &record, services: Value::Null };
        let folder = Folder::create(&directory, &asked, &record).unwrap();
        let report = Report { judgement: storebench_core::judgement::judge(&record), record: record.clone() };
        let objects = Objects { services: Vec::new(), control_planes: Vec::new() };
        let path = folder.finish(&report, &objects, false).unwrap();
        assert_eq!(path, directory.join("run/20261122T173015Z-Invalid"));
        assert!(path.join(REPORT).is_file());
    }

    /// Killed after its folder had its last name: what leads to the newest run would lead to an earlier one for ever.
    #[test]
    fn a_run_that_was_killed_at_its_very_end_is_completed_when_it_is_to_go_on() {
        let directory = harness::folder();
        let record = record();
        let asked = Asked { record: &record, services: Value::Null };
        let folder = Folder::create(directory.path(), &asked, &record).unwrap();
        let report = Report { judgement: storebench_core::judgement::judge(&record), record: record.clone() };
        write(&folder.path.join(REPORT), render(&report, Output::Json).unwrap().as_bytes()).unwrap();
        let (path, all) = (folder.path.clone(), directory.path().join("run"));
        drop(folder);
        let finished = all.join("20261122T173015Z-Invalid");
        fs::rename(path, &finished).unwrap();
        let earlier = all.join("20261121T000000Z-Passed");
        fs::create_dir(&earlier).unwrap();
        let find = || assert!(matches!(Folder::find(directory.path(), &asked), Ok(Some(Begun::Finished(..)))));
        for before in [None, Some(&earlier)] {
            if let Some(before) = before {
                point_to(before).unwrap();
            }
            find();
            assert_eq!(fs::read_link(all.join(LATEST)).unwrap(), Path::new("20261122T173015Z-Invalid"));
            assert!(!finished.join(RECORD).exists() && !finished.join(LOCK).exists());
        }
        // What is newer stays the newest.
        let later = all.join("20261123T000000Z-Passed");
        fs::create_dir(&later).unwrap();
        point_to(&later).unwrap();
        find();
        assert_eq!(fs::read_link(all.join(LATEST)).unwrap(), Path::new("20261123T000000Z-Passed"));
    }

    #[test]
    fn no_run_is_written_over() {
        let directory = harness::folder();
        let record = record();
        let asked = Asked { record: &record, services: Value::Null };
        let create = || Folder::create(directory.path(), &asked, &record).unwrap().path.clone();
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

    /// Whoever ends before a first trial, by a signal or an error, has begun nothing that could go on.
    #[test]
    fn a_folder_without_a_trial_is_taken_away_and_no_other() {
        let directory = harness::folder();
        let measured = record();
        let before = RunRecord { trials: Vec::new(), ..measured.clone() };
        let asked = Asked { record: &before, services: Value::Null };
        let all = directory.path().join("run");
        drop(Folder::create(directory.path(), &asked, &before).unwrap());
        assert!(!all.exists());
        let folder = Folder::create(directory.path(), &asked, &before).unwrap();
        folder.keep(&measured).unwrap();
        drop(folder);
        let found = || Folder::find(directory.path(), &asked).unwrap();
        for _ in 0..2 {
            assert!(matches!(found(), Some(Begun::Unfinished(_, record)) if record.trials.len() == 1));
        }
        drop(Folder::create(directory.path(), &asked, &before).unwrap());
        assert_eq!(names(&all).unwrap(), ["20261122T173015Z-unfinished"]);
    }

    #[test]
    fn where_nothing_can_be_written_is_told_before_anything_is_measured() {
        let directory = harness::folder();
        fs::write(directory.path().join("file"), "").unwrap();
        let record = record();
        let asked = Asked { record: &record, services: Value::Null };
        let refused = Folder::create(&directory.path().join("file"), &asked, &record).err().unwrap();
        assert!(format!("{refused:#}").contains("file/run: cannot be written to: Not a directory"), "{refused:#}");
    }
}
