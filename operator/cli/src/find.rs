//! Finds saved runs, for all who read them: `report`, `compare`, `history`, `export`, and the baseline of a `run`.
//!
//! A source is a report.json, or the run.yaml beside one; the folder of one run; a directory of `--save`; standard input (`-`); or a place in Git
//! (`git:REVISION[:PATH]`). Of a directory all that lies below it is looked at, on disk as in Git: a run is told by the name of its folder, and
//! a link, such as `latest`, is followed only where it is the source. What is found is judged anew, so that it cannot say what its own trials
//! do not.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use service_kit::console;
use storebench_core::across::judged_again;
use storebench_core::judgement::Judgement;
use storebench_core::report::{self, JsonError, Report};
use storebench_crds::Verdict;

use crate::folder_name::{REPORT, is_finished_report, is_report, is_unfinished, is_valid_report, newest_of_each};
use crate::git::place::{GitFile, GitPlace};
use crate::saved::{RUN, SavedRun};

/// A source is no report, or holds none: what is wrong, which goes before what to do about it.
#[derive(Debug)]
pub(crate) struct NotAReport(pub(crate) String);

impl fmt::Display for NotAReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remedy = "pass what `run` has written: a report.json or -o json (`-`: standard input), or a directory of --save, in Git as \
                      git:REVISION:PATH";
        write!(formatter, "{}: {remedy}", self.0)
    }
}

impl std::error::Error for NotAReport {}

/// The same of those who also take a run in a cluster.
pub(crate) fn or_of_a_cluster(error: anyhow::Error) -> anyhow::Error {
    match error.is::<NotAReport>() {
        true => anyhow!("{error:#}; or benchmarkrun/NAME for a run in a cluster"),
        false => error,
    }
}

/// Which runs of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Of each run, the newest that came to its end.
    Newest,
    /// Of each run, the newest that came to its end and is not Invalid, if there is one: what another may be held to.
    Baseline,
    /// Those, and of each run what was interrupted since.
    NewestOrInterrupted,
    /// All that came to their end.
    All,
}

/// A file with one report, or a list of them.
#[derive(Clone)]
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
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
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
                .map_err(|error| NotAReport(format!("{}: cannot be read: {error}", self.name())))?,
            Self::Git(place, file) => place.read(file)?,
        };
        let name = self.name();
        let saved = report::list_from_json(&text).map_err(|error| match error {
            // It is one, and says itself what to do.
            JsonError::Newer { .. } => anyhow!("{name}: {error}"),
            other => NotAReport(format!("{name}: {other}")).into(),
        })?;
        let anew = saved.into_iter().map(|saved| {
            let judgement = judged_again(&saved);
            tell_change(&name, saved.judgement.verdict, &judgement);
            Report { record: saved.record, judgement }
        });
        Ok(Found { reports: anew.collect(), is_list: text.trim_start().starts_with('[') })
    }
}

/// A file, and its path from the source, with `/` between its parts; empty where the source is the file.
type Below = (String, FoundFile);

/// The files with the reports of a source. Errors: it cannot be read, or holds none.
pub(crate) fn files(source: &Path, which: Which) -> anyhow::Result<Vec<FoundFile>> {
    fn path((path, _): &Below) -> &str {
        path
    }
    let all = all(source)?;
    // What somebody named is taken for what it is, also where it was interrupted.
    let is_wanted = |path: &str| path.is_empty() || is_finished_report(path);
    let mut found: Vec<Below> = all.iter().filter(|file| is_wanted(path(file))).cloned().collect();
    let newest = |files| newest_of_each(files, path, |_| true);
    found = match which {
        Which::All => found,
        Which::Newest | Which::NewestOrInterrupted => newest(found),
        Which::Baseline => {
            let trusted = newest_of_each(found.clone(), path, is_valid_report);
            let is_passed_over = |newer: &Below| trusted.iter().all(|(path, _)| *path != newer.0);
            for (_, file) in newest(found).into_iter().filter(is_passed_over) {
                let name = file.name();
                console::tell(format_args!("storebench: {name}: the run is Invalid; an earlier one is taken"));
            }
            trusted
        }
    };
    if which == Which::NewestOrInterrupted {
        let reports = all.iter().filter(|file| is_report(path(file))).cloned().collect();
        found.extend(newest(reports).into_iter().filter(|file| !is_wanted(path(file))));
    }
    match found.is_empty() {
        true => Err(holds_none(source, which, &all)),
        false => Ok(found.into_iter().map(|(_, file)| file).collect()),
    }
}

/// Why there is nothing to read, and what to do.
fn holds_none(source: &Path, which: Which, all: &[Below]) -> anyhow::Error {
    let name = source.display();
    let of_interrupted = all.iter().filter(|(_, file)| file.is_interrupted().unwrap_or_default());
    let folders = of_interrupted.filter_map(|(_, file)| Some(Path::new(&file.name()).parent()?.to_owned()));
    let folders: BTreeSet<PathBuf> = folders.collect();
    if let Some(first) = folders.first() {
        // What --resume takes is the directory that has the runs, which may lie above the source.
        let directory =
            std::fs::canonicalize(first).ok().and_then(|folder| Some(folder.ancestors().nth(2)?.to_owned()));
        return anyhow!(
            "{name}: holds only unfinished runs ({}): go on with storebench run FILE --resume {}",
            folders.iter().map(|one| one.display().to_string()).collect::<Vec<_>>().join(", "),
            directory.unwrap_or("DIRECTORY".into()).display()
        );
    }
    match which {
        Which::All => {
            anyhow!("{name}: no run has been saved there: keep runs with `storebench run FILE --save DIRECTORY`")
        }
        Which::Newest | Which::Baseline | Which::NewestOrInterrupted => NotAReport(format!(
            "{name}: no report.json is in it, such as storebench run FILE --save or storebench export leaves there"
        ))
        .into(),
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
    if matches!(which, Which::Newest | Which::Baseline) && files.len() > 1 {
        // A run may be kept in two folders.
        let is_preferred = |report: &Report| which != Which::Baseline || report.judgement.verdict != Verdict::Invalid;
        let key =
            |report: &Report| (report.record.name.clone(), is_preferred(report), report.record.started_at.clone());
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
        (None, _) => bail!(NotAReport(format!("{}: the list of reports is empty", source.display()))),
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

/// All files of a source.
fn all(source: &Path) -> anyhow::Result<Vec<Below>> {
    if source.as_os_str() == "-" {
        return Ok(vec![(String::new(), FoundFile::Input)]);
    }
    if let Some(place) = source.to_str().map_or(Ok(None), GitPlace::of)? {
        let files = place.files()?.into_iter();
        return Ok(files.map(|file| (file.path.clone(), FoundFile::Git(place.clone(), file))).collect());
    }
    let report = source.with_file_name(REPORT);
    if source.file_name().is_some_and(|name| name == RUN) && report.is_file() {
        return Ok(vec![(String::new(), FoundFile::Disk(report))]);
    }
    // One that is not there is told by who reads it.
    if !source.is_dir() {
        return Ok(vec![(String::new(), FoundFile::Disk(source.to_owned()))]);
    }
    let path = |file: &Path| file.strip_prefix(source).unwrap_or(file).to_string_lossy().into_owned();
    Ok(below(source)?.into_iter().map(|file| (path(&file), FoundFile::Disk(file))).collect())
}

/// All files below a folder, sorted. Links lead to what is there by itself, or to what no checkout would have.
fn below(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let (mut found, mut to_do) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = to_do.pop() {
        let mut look = || -> io::Result<()> {
            for entry in std::fs::read_dir(&next)? {
                let entry = entry?;
                match entry.file_type()? {
                    kind if kind.is_dir() => to_do.push(entry.path()),
                    kind if kind.is_file() => found.push(entry.path()),
                    _ => {}
                }
            }
            Ok(())
        };
        match look() {
            // A run that has just come to its end has another name now.
            Err(error) if error.kind() == ErrorKind::NotFound && next != folder => {}
            looked => looked.with_context(|| format!("{}: cannot be read", next.display()))?,
        }
    }
    found.sort();
    Ok(found)
}
