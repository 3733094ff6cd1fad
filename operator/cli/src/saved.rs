//! Runs on disk: `DIRECTORY/RUN/TIME-VERDICT/`, with its reports, and `latest`, which leads to the newest of them.
//!
//! While a run goes on its folder is `TIME-unfinished` and holds `record.json`, written anew after each trial of an arm, so that a run that was
//! interrupted, killed or hit by a reboot goes on where it was: the ledger decides from the record alone. What was saved earlier is never
//! written over.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use storebench_core::record::{RECORD_VERSION, RunRecord};
use storebench_core::report::Report;

use crate::Output;
use crate::commands::report::render;

const RECORD: &str = "record.json";
const UNFINISHED: &str = "-unfinished";
const LATEST: &str = "latest";

/// The folder of one run.
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes the folder of a run that begins. Whoever gets one can write there.
    pub(crate) fn create(directory: &Path, run: &str, started_at: &str) -> anyhow::Result<Self> {
        let all = directory.join(run);
        let time: String = started_at.chars().filter(|character| character.is_ascii_alphanumeric()).collect();
        let said = || format!("--save: {}: cannot be written to", all.display());
        fs::create_dir_all(&all).with_context(said)?;
        // Two runs may begin within a second.
        for number in 1.. {
            let name = if number == 1 { time.clone() } else { format!("{time}-{number}") };
            let is_taken = fs::read_dir(&all)
                .with_context(said)?
                .flatten()
                .any(|entry| entry.file_name().to_string_lossy().strip_prefix(&name).is_some_and(ends_a_name));
            if !is_taken {
                let path = all.join(name + UNFINISHED);
                fs::create_dir(&path).with_context(said)?;
                return Ok(Self { path });
            }
        }
        bail!("{} has no room for another run", all.display())
    }

    /// The newest unfinished run of this name, and what it has measured.
    pub(crate) fn find(directory: &Path, run: &str) -> anyhow::Result<Option<(Self, RunRecord)>> {
        let Ok(entries) = fs::read_dir(directory.join(run)) else { return Ok(None) };
        let is_unfinished =
            |path: &PathBuf| path.to_string_lossy().ends_with(UNFINISHED) && path.join(RECORD).is_file();
        let Some(path) = entries.flatten().map(|entry| entry.path()).filter(is_unfinished).max() else {
            return Ok(None);
        };
        let file = path.join(RECORD);
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let record: RunRecord = serde_json::from_str(&text)
            .with_context(|| format!("{}: it was changed by somebody else", file.display()))?;
        Ok(Some((Self { path }, record)))
    }

    /// Keeps what was measured so far; it is on disk when this returns.
    pub(crate) fn keep(&self, record: &RunRecord) -> anyhow::Result<()> {
        let bytes = serde_json::to_vec(record)?;
        write(&self.path.join(RECORD), &bytes)
    }

    /// Writes the reports of a run that has ended, and names the folder after the verdict. One that was interrupted keeps its name and
    /// record. Returns where the folder is then.
    pub(crate) fn finish(self, report: &Report, is_interrupted: bool) -> anyhow::Result<PathBuf> {
        let forms = [
            ("report.json", Output::Json),
            ("report.md", Output::Markdown),
            ("report.html", Output::Html),
            ("run.yaml", Output::Yaml),
        ];
        for (name, form) in forms {
            write(&self.path.join(name), render(report, form)?.as_bytes())?;
        }
        let mut path = self.path.clone();
        if !is_interrupted {
            let name = self.path.to_string_lossy();
            let time = name.strip_suffix(UNFINISHED).unwrap_or(&name);
            path = PathBuf::from(format!("{time}-{:?}", report.judgement.verdict));
            let said = || format!("{}: cannot be renamed to {}", self.path.display(), path.display());
            // The record is in report.json.
            fs::remove_file(self.path.join(RECORD)).with_context(said)?;
            fs::rename(&self.path, &path).with_context(said)?;
        }
        point_to(&path)?;
        Ok(path)
    }
}

fn ends_a_name(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('-')
}

/// Whether a record is of the run that is asked for now, on the same machine. Errors name what differs.
pub(crate) fn check_same(kept: &RunRecord, now: &RunRecord) -> anyhow::Result<()> {
    let name = &now.name;
    let remedy = "start anew with --save";
    if kept.record_version != RECORD_VERSION || kept.storebench_version != now.storebench_version {
        bail!("--resume: {name} was begun by storebench {}: {remedy}", kept.storebench_version);
    }
    if kept.spec != now.spec {
        bail!("--resume: {name} was begun with another spec than the file has now: restore it, or {remedy}");
    }
    let settings = |record: &RunRecord| {
        let arms = record.arms.iter();
        arms.map(|arm| {
            (arm.name.clone(), arm.engine, arm.version.clone(), arm.durability_setting.clone(), arm.replicas)
        })
        .collect::<Vec<_>>()
    };
    if settings(kept) != settings(now) {
        bail!(
            "--resume: {name} was begun with other services or versions than there are now: restore them, or {remedy}"
        );
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

    #[test]
    fn no_run_is_written_over() {
        let directory = harness::folder();
        let create = || Folder::create(directory.path(), "run", "2026-11-22T17:30:15Z").unwrap().path;
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
        let refused = Folder::create(&directory.path().join("file"), "run", "2026-11-22T17:30:15Z").err().unwrap();
        assert!(format!("{refused:#}").contains("file/run: cannot be written to: Not a directory"), "{refused:#}");
    }
}
