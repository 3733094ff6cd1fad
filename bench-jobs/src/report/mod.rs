//! Where results go: lines for the driver on standard output, progress for people on standard error, the summary in a
//! file; to a scraper what the [`board`] shows ([`scrape`]). What is observed is a [`record`], with a family's [`measures`].

pub mod board;
pub mod measures;
pub mod record;
pub mod scrape;

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use storebench_crds::job::{JobLine, JobOutcome, JobSummary, SUMMARY_BYTES_MAX};

use crate::failure::short_line;

/// Where Kubernetes expects the termination message unless told otherwise.
pub const TERMINATION_LOG: &str = "/dev/termination-log";

/// Lines for the driver and for people.
#[derive(Debug)]
pub struct Report {
    for_people: bool,
}

impl Report {
    /// Progress for people is written if they asked (`verbose`) or look (standard error is a terminal).
    pub fn new(verbose: bool) -> Self {
        Self { for_people: verbose || io::stderr().is_terminal() }
    }

    /// Writes a line for the driver, at once. Fails when nobody reads any more.
    pub fn line(&self, line: &JobLine) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(format!("{}\n", line.encode()).as_bytes())?;
        out.flush()
    }

    /// Writes a line for people that they must not miss.
    pub fn warn(&self, line: &str) {
        // Nobody to tell is no reason to stop.
        let _ = writeln!(io::stderr(), "bench-job: {}", short_line(line));
    }

    /// Writes a line for people.
    pub fn tell(&self, line: impl FnOnce() -> String) {
        if self.for_people {
            // Nobody to tell is no reason to stop.
            let _ = writeln!(io::stderr(), "{}", line());
        }
    }
}

/// Writes the summary as JSON: to `path`, or to [`TERMINATION_LOG`] if that exists, or else as the last line of standard
/// output. A reader finds the whole summary or none.
pub fn write_summary(summary: &JobSummary, path: Option<&Path>) -> io::Result<()> {
    let text = encode_summary(summary)?;
    let default = PathBuf::from(TERMINATION_LOG);
    match path {
        Some(path) => write_whole(path, text.as_bytes()),
        None if default.exists() => write_whole(&default, text.as_bytes()),
        None => writeln!(io::stdout().lock(), "{text}"),
    }
}

/// The summary within [`SUMMARY_BYTES_MAX`]: details are cut first, then the last workloads left out.
fn encode_summary(summary: &JobSummary) -> io::Result<String> {
    let mut summary = JobSummary { outcome: with_short_details(&summary.outcome), ..summary.clone() };
    loop {
        let text = serde_json::to_string(&summary)?;
        if text.len() <= SUMMARY_BYTES_MAX {
            return Ok(text);
        }
        let longest = details(&mut summary.outcome).into_iter().max_by_key(|text| text.len());
        match longest {
            Some(text) if text.len() > 80 => {
                let keep = text.floor_char_boundary(77);
                text.truncate(keep);
                text.push('…');
            }
            _ if summary.workloads.pop().is_some() => {}
            _ => return Err(io::Error::other("the summary is too long")),
        }
    }
}

/// The outcome, every text of it one line of bounded length.
pub(crate) fn with_short_details(outcome: &JobOutcome) -> JobOutcome {
    let mut outcome = outcome.clone();
    for text in details(&mut outcome) {
        *text = short_line(text);
    }
    outcome
}

fn details(outcome: &mut JobOutcome) -> Vec<&mut String> {
    match outcome {
        JobOutcome::Completed => vec![],
        JobOutcome::WrongAnswer { key, detail, .. } => vec![key, detail],
        JobOutcome::StoreFailed { detail, .. } | JobOutcome::Hindered { detail, .. } => vec![detail],
    }
}

/// Writes a file beside the target and renames it. Kubernetes mounts the termination log as a single file, which can
/// only be written in place.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let beside = PathBuf::from(beside);
    let renamed = fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, path));
    if renamed.is_err() {
        let _ = fs::remove_file(&beside);
        return fs::write(path, bytes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use storebench_crds::job::WorkloadSummary;
    use storebench_crds::status::LatencySummary;

    fn summary(workloads: usize, detail: &str) -> JobSummary {
        let latency = LatencySummary {
            mean_nanos: 9_999_999_999,
            p50_nanos: 9_999_999_999,
            p90_nanos: 9_999_999_999,
            p95_nanos: 9_999_999_999,
            p99_nanos: 9_999_999_999,
            p999_nanos: 9_999_999_999,
            max_nanos: 9_999_999_999,
        };
        let workload = WorkloadSummary {
            name: "x".repeat(40),
            operations: 999_999_999,
            errors: 999_999_999,
            elapsed_nanos: 999_999_999_999,
            verified: 999_999_999,
            service: latency,
            intended: Some(latency),
        };
        JobSummary {
            outcome: JobOutcome::WrongAnswer {
                workload: "x".repeat(40),
                count: 1,
                key: detail.to_owned(),
                detail: detail.to_owned(),
            },
            workloads: vec![workload; workloads],
        }
    }

    #[test]
    fn the_longest_summary_fits() {
        for detail in [String::new(), "ö".repeat(5_000), "\n\"".repeat(5_000)] {
            let text = encode_summary(&summary(8, &detail)).unwrap();
            assert!(text.len() <= SUMMARY_BYTES_MAX);
            let back: JobSummary = serde_json::from_str(&text).unwrap();
            assert!(matches!(back.outcome, JobOutcome::WrongAnswer { .. }));
            // Only an answer that is as long as it may be costs a workload its place.
            assert!(back.workloads.len() >= if detail.is_empty() { 8 } else { 7 });
        }
    }

    #[test]
    fn the_file_holds_the_whole_summary() {
        let folder = harness::folder();
        let path = folder.path().join("summary");
        write_summary(&summary(1, "first, and longer than the second"), Some(&path)).unwrap();
        write_summary(&summary(1, "second"), Some(&path)).unwrap();
        let back: JobSummary = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(back, summary(1, "second"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }
}
