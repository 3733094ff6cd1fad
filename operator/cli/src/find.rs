//! Finds saved runs, for all who read them: `report`, `compare`, `history`, `export`, and the baseline of a `run`.
//!
//! A source is a report.json, or the run.yaml beside one; the folder of one run; a directory of `--save`; standard input (`-`); or a place in Git
//! (`git:REVISION[:PATH]`), which is read as a directory is, however deep. What is found is judged anew, so that it cannot say what its own
//! trials do not.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use service_kit::console;
use storebench_core::judgement::{Judgement, judge};
use storebench_core::report::{self, Report};
use storebench_crds::Verdict;

use crate::folder_name::{REPORT, is_finished_report, is_unfinished, newest_of_each};
use crate::git::place::{GitFile, GitPlace};
use crate::saved::{LATEST, RUN, SavedRun};

/// What to do about a source that is no report.
pub(crate) const READABLE: &str = "pass what `run` has written: a report.json or -o json (`-`: standard input), or a directory of --save, in Git as \
                        git:REVISION:PATH";

/// The same of those who also take a run in a cluster.
pub(crate) fn or_of_a_cluster(error: anyhow::Error) -> anyhow::Error {
    match format!("{error:#}") {
        text if text.contains(READABLE) => anyhow!("{text}; or benchmarkrun/NAME for a run in a cluster"),
        _ => error,
    }
}

/// Which runs of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// The newest of each run: what `latest` leads to.
    Newest,
    /// All that came to their end.
    All,
}

/// A file with one report, or a list of them.
pub(crate) enum FoundFile {
    /// Standard input.
    Input,
    /// On disk.
    Disk(PathBuf),
    /// In Git.
    Git(GitPlace, GitFile),
}

/// Reports that were found, judged anew.
pub(crate) struct Found {
    pub(crate) reports: Vec<Report>,
    /// Whether they were several by intent, even where there is one.
    pub(crate) is_list: bool,
}

impl FoundFile {
    /// Its name in messages.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Input => "-".into(),
            Self::Disk(path) => path.display().to_string(),
            Self::Git(place, file) => place.name(file),
        }
    }

    /// Whether it is of a run that did not come to its end.
    pub(crate) fn is_interrupted(&self) -> anyhow::Result<bool> {
        Ok(is_unfinished(&self.folder()?))
    }

    /// The run whose report it holds, with what lies beside it.
    pub(crate) fn saved_run(&self, report: Report) -> anyhow::Result<SavedRun> {
        SavedRun::read(&self.name(), self.folder()?, report, |name| self.beside(name))
    }

    /// The folder in which it lies, by the name that it has without links. Empty: none that has a name.
    fn folder(&self) -> anyhow::Result<String> {
        let path = match self {
            Self::Input => PathBuf::new(),
            Self::Disk(path) => {
                std::fs::canonicalize(path).with_context(|| format!("{}: cannot be read", self.name()))?
            }
            Self::Git(place, file) => PathBuf::from(place.path_of(file)),
        };
        let folder = path.parent().and_then(Path::file_name);
        Ok(folder.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default())
    }

    /// What a file of this name beside it holds. `None`: there is none.
    fn beside(&self, name: &str) -> anyhow::Result<Option<Vec<u8>>> {
        match self {
            Self::Input => Ok(None),
            Self::Disk(path) => match std::fs::read(path.with_file_name(name)) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => {
                    Err(error).with_context(|| format!("{}: cannot be read", path.with_file_name(name).display()))
                }
            },
            Self::Git(place, file) => place.beside(file, name),
        }
    }

    /// What it holds, judged anew, and whether that is a list.
    pub(crate) fn reports(&self) -> anyhow::Result<Found> {
        let text = match self {
            Self::Input => std::io::read_to_string(std::io::stdin()).context("standard input cannot be read")?,
            Self::Disk(path) => std::fs::read_to_string(path)
                .map_err(|error| anyhow!("{}: cannot be read: {error}: {READABLE}", self.name()))?,
            Self::Git(place, file) => place.read(file)?,
        };
        let name = self.name();
        let saved = report::list_from_json(&text).map_err(|error| anyhow!("{name}: {error}: {READABLE}"))?;
        let anew = saved.into_iter().map(|saved| {
            let judgement = judge(&saved.record);
            tell_change(&name, saved.judgement.verdict, &judgement);
            Report { record: saved.record, judgement }
        });
        Ok(Found { reports: anew.collect(), is_list: text.trim_start().starts_with('[') })
    }
}

/// The files with the reports of a source. Errors: it cannot be read, or holds none.
pub(crate) fn files(source: &Path, which: Which) -> anyhow::Result<Vec<FoundFile>> {
    let name = source.display();
    if source.as_os_str() == "-" {
        return Ok(vec![FoundFile::Input]);
    }
    let found = match source.to_str().map_or(Ok(None), GitPlace::of)? {
        Some(place) => in_git(&place, which)?,
        None => on_disk(source, which)?.into_iter().map(FoundFile::Disk).collect(),
    };
    match (found.is_empty(), which) {
        (false, _) => Ok(found),
        (true, Which::Newest) => bail!(
            "{name}: no report.json is in it: {READABLE}; keep runs there with storebench run FILE --save, or storebench export"
        ),
        (true, Which::All) if source.is_dir() && !unfinished(source)?.is_empty() => {
            let found = unfinished(source)?;
            let first = &found[0];
            // What --resume takes is the directory that has the runs.
            let directory = first.parent().and_then(Path::parent).unwrap_or(source);
            bail!(
                "{name}: holds only unfinished runs ({}): go on with storebench run FILE --resume {}",
                found.iter().map(|one| one.display().to_string()).collect::<Vec<_>>().join(", "),
                directory.display()
            )
        }
        (true, Which::All) => {
            bail!("{name}: no run has been saved there: keep runs with `storebench run FILE --save DIRECTORY`")
        }
    }
}

/// The reports of a source.
pub(crate) fn reports(source: &Path, which: Which) -> anyhow::Result<Found> {
    let files = files(source, which)?;
    let mut found = Found { reports: Vec::new(), is_list: files.len() > 1 };
    for file in &files {
        let of_file = file.reports()?;
        found.is_list |= of_file.is_list;
        found.reports.extend(of_file.reports);
    }
    if which == Which::Newest && matches!(files.first(), Some(FoundFile::Git(..))) {
        // A run may be kept in two folders.
        let key = |report: &Report| (report.record.name.clone(), report.record.started_at.clone());
        found.reports.sort_by_cached_key(|report| std::cmp::Reverse(key(report)));
        found.reports.dedup_by(|one, other| one.record.name == other.record.name);
        found.reports.reverse();
    }
    Ok(found)
}

/// The report of a source that must have one alone.
pub(crate) fn one_report(source: &Path) -> anyhow::Result<Report> {
    let mut reports = reports(source, Which::Newest)?.reports;
    match (reports.pop(), reports.len()) {
        (Some(report), 0) => Ok(report),
        (None, _) => bail!("{}: the list of reports is empty: {READABLE}", source.display()),
        (_, others) => bail!("{}: holds {} reports: pass one of them", source.display(), others + 1),
    }
}

/// Says that a run was judged otherwise when it was kept.
pub(crate) fn tell_change(name: &str, before: Verdict, now: &Judgement) {
    if now.verdict != before {
        let now = now.verdict;
        console::tell(format_args!(
            "storebench: {name}: was judged {before:?} then and is {now:?} now; shown is the new judgement"
        ));
    }
}

fn in_git(place: &GitPlace, which: Which) -> anyhow::Result<Vec<FoundFile>> {
    let mut files = place.files()?;
    // A place that is a file is what somebody named.
    files.retain(|file| file.path.is_empty() || is_finished_report(&file.path));
    if which == Which::Newest {
        files = newest_of_each(files, |file| file.path.as_str());
    }
    Ok(files.into_iter().map(|file| FoundFile::Git(place.clone(), file)).collect())
}

fn on_disk(source: &Path, which: Which) -> anyhow::Result<Vec<PathBuf>> {
    let beside = source.with_file_name(REPORT);
    if source.file_name().is_some_and(|name| name == RUN) && beside.is_file() {
        return Ok(vec![beside]);
    }
    // One that is not there is told by who reads it.
    if !source.is_dir() {
        return Ok(vec![source.to_owned()]);
    }
    match which {
        Which::Newest => newest_on_disk(source),
        Which::All => all_on_disk(source),
    }
}

/// Of a folder of one time, its report; of a run, the newest; of a directory of --save, the newest of each run.
fn newest_on_disk(source: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if let Some(file) = newest_in(source)? {
        return Ok(vec![file]);
    }
    let runs = folders(source)?;
    let newest = runs.iter().map(|run| newest_in(run)).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(newest.into_iter().flatten().collect())
}

/// The report of a folder of one time; of a run, the newest: that of `latest`, or, where nothing but folders was kept, as on a branch
/// in Git, of the last that came to its end.
fn newest_in(folder: &Path) -> anyhow::Result<Option<PathBuf>> {
    let named = [folder.join(REPORT), folder.join(LATEST).join(REPORT)].into_iter().find(|file| file.is_file());
    if named.is_some() {
        return Ok(named);
    }
    let mut times = folders(folder)?.into_iter().map(|time| time.join(REPORT));
    Ok(times.rfind(|file| file.is_file() && is_finished_report(&file.to_string_lossy())))
}

/// Of a directory of --save, or of one run in it, the reports of all runs that came to their end.
fn all_on_disk(source: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let is_finished = |file: &PathBuf| file.is_file() && is_finished_report(&file.to_string_lossy());
    let own = folders(source)?;
    let mut found = vec![source.join(REPORT)];
    found.extend(own.iter().map(|folder| folder.join(REPORT)));
    for run in own.iter().filter(|folder| !folder.join(REPORT).is_file()) {
        found.extend(folders(run)?.iter().map(|folder| folder.join(REPORT)));
    }
    found.retain(is_finished);
    Ok(found)
}

/// Of a directory of --save, of one run in it, or of a folder of such a run, the folders of runs that did not come to their end.
fn unfinished(source: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let own = folders(source)?;
    let mut found = vec![source.to_owned()];
    for run in &own {
        found.extend(folders(run)?);
    }
    found.extend(own);
    found.retain(|folder| is_unfinished(&folder.to_string_lossy()));
    found.sort();
    Ok(found)
}

/// The folders in a folder, sorted, but for `latest`, which leads to one of them.
fn folders(of: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(of).with_context(|| format!("{}: cannot be read", of.display()))?;
    let named = entries.flatten().filter(|entry| entry.file_name() != LATEST).map(|entry| entry.path());
    let mut found: Vec<PathBuf> = named.filter(|path| path.is_dir()).collect();
    found.sort();
    Ok(found)
}
