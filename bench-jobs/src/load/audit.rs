//! The loader's account of itself during one measured phase, and what disqualifies it.
//!
//! Taken from `/proc` and the control group before and after the phase; nothing is sampled in between. What the system
//! does not offer (a kernel without `schedstat`, a container that hides its control group) counts as zero: the audit
//! finds faults, it cannot prove their absence.
//!
//! A quota that stops the loader, and a processor that it waits for, disqualify nothing here: a store that uses what it gets takes part in
//! both, and would lose its own trials. A thread that had no time left for either reason is saturated, which the judgement reads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use procfs::process::Process;
use storebench_crds::job::{Hindrance, LoaderAudit};

use crate::load::pace::is_backlog;
use crate::measure::control_group;
use crate::measure::thread::ThreadUse;

/// A larger step of the wall clock against the monotonic clock: hindered.
pub const CLOCK_STEP_MAX: Duration = Duration::from_millis(50);
/// Open loop: a request that left this much too late by the loader's own doing is late.
pub const LATE: Duration = Duration::from_millis(10);
/// Open loop: more late requests than this share: hindered. 1 %.
pub const LATE_BASIS_POINTS_MAX: u64 = 100;
/// Open loop: up to this much, the 99th percentile of lag is never held against the loader.
pub const LAG_P99_HARMLESS: Duration = Duration::from_millis(1);

/// The loader's state at one instant.
#[derive(Clone, Debug)]
pub struct Snapshot {
    at: Instant,
    wall: SystemTime,
    throttled_nanos: Vec<u64>,
    threads: BTreeMap<i32, (String, ThreadUse)>,
    rss_peak_bytes: u64,
}

impl Snapshot {
    /// When it was taken, by the monotonic clock.
    pub fn at(&self) -> Instant {
        self.at
    }

    /// When it was taken, by the wall clock.
    pub fn wall(&self) -> SystemTime {
        self.wall
    }
}

/// Where the loader's own figures are found; the control group does not change while it runs.
#[derive(Clone, Debug, Default)]
pub struct Auditor {
    cpu_stat_files: Vec<PathBuf>,
}

/// What [`judge`] needs besides the audit. All of the measured phase.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Length of the phase.
    pub elapsed: Duration,
    /// Open loop: requests that were due but never sent, because the store did not keep up.
    pub unsent: u64,
    /// Requests that were due beside the load, by a rate of their own.
    pub due_beside: u64,
    /// Of these: never sent, because the store did not keep up.
    pub unsent_beside: u64,
    /// Open loop: requests that left more than [`LATE`] too late although a client was free.
    pub late: u64,
    /// Open loop: 99th percentile of lag over all requests sent, nanoseconds.
    pub lag_p99_nanos: u64,
    /// Open loop: 99th percentile of intended latency, nanoseconds.
    pub intended_p99_nanos: u64,
}

impl Auditor {
    /// Finds the control group of this process, version 1 or 2, and its visible ancestors.
    pub fn new() -> Self {
        let files = control_group::groups().into_iter().map(|group| group.folder.join("cpu.stat"));
        Self { cpu_stat_files: files.filter(|file| file.is_file()).collect() }
    }

    /// The state now.
    pub fn snapshot(&self) -> Snapshot {
        let (at, wall) = both_clocks();
        let mut snapshot = Snapshot {
            at,
            wall,
            throttled_nanos: self.cpu_stat_files.iter().map(|file| throttled_nanos(file)).collect(),
            threads: BTreeMap::new(),
            rss_peak_bytes: 0,
        };
        let Ok(process) = Process::myself() else {
            return snapshot;
        };
        if let Ok(status) = process.status() {
            snapshot.rss_peak_bytes = status.vmhwm.unwrap_or_default() * 1024;
        }
        // A thread may end between the listing and the reading; its use is then not seen.
        for task in process.tasks().into_iter().flatten().flatten() {
            let name = std::fs::read_to_string(format!("/proc/self/task/{}/comm", task.tid)).unwrap_or_default();
            snapshot.threads.insert(task.tid, (name.trim().to_owned(), ThreadUse::of(&task)));
        }
        snapshot
    }
}

/// The account between two snapshots. `lag_max_nanos`, `scheduled` and `started_unix_nanos` are for the caller to fill in.
pub fn account(before: &Snapshot, after: &Snapshot) -> LoaderAudit {
    let elapsed = after.at.saturating_duration_since(before.at);
    let mut audit = LoaderAudit {
        // A group is throttled when one of its ancestors is; which of them it was does not matter.
        throttled_nanos: (after.throttled_nanos.iter().zip(&before.throttled_nanos))
            .map(|(after, before)| after.saturating_sub(*before))
            .max()
            .unwrap_or_default(),
        clock_step_nanos: clock_step_nanos(before, after),
        rss_peak_bytes: after.rss_peak_bytes,
        ..LoaderAudit::default()
    };
    for (tid, (name, used)) in &after.threads {
        let used = used.since(before.threads.get(tid).map(|(_, used)| *used).unwrap_or_default());
        audit.voluntary_switches += used.voluntary_switches;
        audit.involuntary_switches += used.involuntary_switches;
        audit.count_in(name, used.cpu_nanos, used.waited_nanos, elapsed.as_nanos() as u64);
    }
    audit
}

/// What hindered the loader, if anything, and the figures in one line. The gravest first.
pub fn judge(audit: &LoaderAudit, figures: &Figures) -> Option<(Hindrance, String)> {
    if audit.clock_step_nanos.unsigned_abs() > CLOCK_STEP_MAX.as_nanos() as u64 {
        let millis = audit.clock_step_nanos / 1_000_000;
        let detail = format!("the wall clock was stepped by {millis} ms during the measurement");
        return Some((Hindrance::ClockStepped, detail));
    }
    judge_timetable(audit, figures)
}

/// The faults that only what keeps a rate can have: an open loop, or what is sent beside the load. Lag comes first: a loader that is late cannot
/// blame the store. Nor can one that had no time left: answers that it did not come to read look like answers that did not come.
fn judge_timetable(audit: &LoaderAudit, figures: &Figures) -> Option<(Hindrance, String)> {
    let beside = is_backlog(figures.unsent_beside, figures.due_beside).then(|| {
        let (due, sent) = (figures.due_beside, figures.due_beside.saturating_sub(figures.unsent_beside));
        let share = percent(basis_points(sent, due));
        let detail = format!("{sent} of {due} requests that were due beside the load could be sent ({share}): those before them were not answered");
        (Hindrance::RateNotReached, detail)
    });
    let (hindrance, detail) = open_loop(audit, figures).or(beside)?;
    if audit.is_saturated() {
        let (thread, share) = (&audit.saturated_thread, percent(audit.saturation_basis_points.into()));
        let detail = format!(
            "{detail}; but thread {thread} of the loader ran or waited for a processor for {share} of the time, so that the loader was \
             late and not the store: raise load.threads, or lower the rate"
        );
        return Some((Hindrance::Saturated, detail));
    }
    Some((hindrance, detail))
}

/// Whether an open loop was late, or left requests unsent.
fn open_loop(audit: &LoaderAudit, figures: &Figures) -> Option<(Hindrance, String)> {
    if audit.scheduled == 0 {
        return None;
    }
    let late = basis_points(figures.late, audit.scheduled);
    let distorts = figures.lag_p99_nanos > LAG_P99_HARMLESS.as_nanos() as u64
        && figures.lag_p99_nanos > figures.intended_p99_nanos / 2;
    let lag = (late > LATE_BASIS_POINTS_MAX || distorts).then(|| {
        let detail = format!(
            "requests left late although clients were free: {} of {} more than {LATE:?}, 99th percentile {}, largest {}",
            figures.late,
            audit.scheduled,
            text_of(figures.lag_p99_nanos),
            text_of(audit.lag_max_nanos),
        );
        (Hindrance::ScheduleLag, detail)
    });
    // The schedule gives up only on a backlog above 2 %; see `pace`.
    let unsent = (figures.unsent > 0).then(|| {
        let sent = audit.scheduled.saturating_sub(figures.unsent);
        let detail = format!(
            "{sent} of {} requests that were due could be sent ({}): all clients were busy",
            audit.scheduled,
            percent(basis_points(sent, audit.scheduled)),
        );
        (Hindrance::RateNotReached, detail)
    });
    lag.or(unsent)
}

fn basis_points(part: u64, whole: u64) -> u64 {
    match whole {
        0 => 0,
        whole => (u128::from(part) * 10_000 / u128::from(whole)) as u64,
    }
}

fn percent(basis_points: u64) -> String {
    format!("{}.{:02} %", basis_points / 100, basis_points % 100)
}

fn text_of(nanos: u64) -> String {
    format!("{:.1?}", Duration::from_nanos(nanos))
}

/// Monotonic and wall clock at the same instant: read again when something came between the two readings.
fn both_clocks() -> (Instant, SystemTime) {
    let mut attempts = 0;
    loop {
        let at = Instant::now();
        let wall = SystemTime::now();
        attempts += 1;
        if at.elapsed() < Duration::from_millis(1) || attempts == 20 {
            return (at, wall);
        }
    }
}

fn clock_step_nanos(before: &Snapshot, after: &Snapshot) -> i64 {
    let since_epoch = |wall: SystemTime| wall.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as i128;
    let wall = since_epoch(after.wall) - since_epoch(before.wall);
    let monotonic = after.at.saturating_duration_since(before.at).as_nanos() as i128;
    (wall - monotonic) as i64
}

/// `throttled_time` (version 1, nanoseconds) or `throttled_usec` (version 2) of a `cpu.stat`.
fn throttled_nanos(file: &Path) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    throttled_nanos_in(&text)
}

fn throttled_nanos_in(text: &str) -> u64 {
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    value("throttled_time ")
        .or_else(|| value("throttled_usec ").map(|micros| micros.saturating_mul(1_000)))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audit() -> LoaderAudit {
        LoaderAudit { scheduled: 10_000, ..LoaderAudit::default() }
    }

    fn saturated() -> LoaderAudit {
        LoaderAudit { saturation_basis_points: 9_500, saturated_thread: "load-1".into(), ..audit() }
    }

    fn figures() -> Figures {
        Figures { elapsed: Duration::from_secs(10), ..Figures::default() }
    }

    #[test]
    fn a_loader_that_is_busy_or_stopped_by_the_quota_that_the_store_uses_up_too_is_not_hindered() {
        let audit = LoaderAudit {
            busiest_thread_basis_points: 9_990,
            throttled_nanos: 5_000_000_000,
            saturation_basis_points: 10_000,
            clock_step_nanos: -50_000_000,
            lag_max_nanos: 400_000_000,
            ..audit()
        };
        let figures = Figures { late: 100, lag_p99_nanos: 1_000_000, ..figures() };
        assert_eq!(judge(&audit, &figures), None);
    }

    #[test]
    fn each_hindrance_is_found_just_above_its_bound() {
        let quiet = (audit(), figures());
        let cases: [(&str, Hindrance, LoaderAudit, Figures); 6] = [
            (
                "stepped by -51 ms",
                Hindrance::ClockStepped,
                LoaderAudit { clock_step_nanos: -51_000_000, ..audit() },
                quiet.1,
            ),
            (
                "101 of 10000 more than 10ms",
                Hindrance::ScheduleLag,
                quiet.0.clone(),
                Figures { late: 101, ..figures() },
            ),
            (
                "99th percentile 2.0ms",
                Hindrance::ScheduleLag,
                quiet.0.clone(),
                Figures { lag_p99_nanos: 2_000_000, intended_p99_nanos: 3_900_000, ..figures() },
            ),
            (
                "9799 of 10000 requests that were due could be sent (97.99 %)",
                Hindrance::RateNotReached,
                quiet.0.clone(),
                Figures { unsent: 201, ..figures() },
            ),
            (
                "(97.99 %): all clients were busy; but thread load-1 of the loader ran or waited for a processor for 95.00 % of the time",
                Hindrance::Saturated,
                saturated(),
                Figures { unsent: 201, ..figures() },
            ),
            (
                "101 of 10000 more than 10ms, 99th percentile 0.0ns, largest 0.0ns; but thread load-1",
                Hindrance::Saturated,
                saturated(),
                Figures { late: 101, ..figures() },
            ),
        ];
        for (detail, hindrance, audit, figures) in cases {
            let (found, text) = judge(&audit, &figures).expect(detail);
            assert_eq!(found, hindrance);
            assert!(text.contains(detail), "{text}");
        }
    }

    #[test]
    fn what_is_sent_beside_a_closed_loop_must_keep_its_rate_too() {
        let beside = |unsent_beside| Figures { due_beside: 1_000, unsent_beside, ..figures() };
        assert_eq!(judge(&LoaderAudit::default(), &beside(20)), None);
        let (hindrance, detail) = judge(&LoaderAudit::default(), &beside(21)).unwrap();
        assert_eq!(hindrance, Hindrance::RateNotReached);
        assert!(
            detail.starts_with("979 of 1000 requests that were due beside the load could be sent (97.90 %)"),
            "{detail}"
        );
        assert_eq!(judge(&audit(), &beside(21)).unwrap().0, Hindrance::RateNotReached, "an open loop has both");
        assert_eq!(judge(&saturated(), &beside(21)).unwrap().0, Hindrance::Saturated);
    }

    #[test]
    fn lag_that_hardly_shows_beside_a_slow_store_is_reported_only() {
        let figures = Figures { lag_p99_nanos: 3_000_000, intended_p99_nanos: 900_000_000, ..figures() };
        assert_eq!(judge(&audit(), &figures), None);
    }

    #[test]
    fn a_closed_loop_has_no_timetable() {
        let figures = Figures { late: 500, unsent: 500, ..figures() };
        assert_eq!(judge(&LoaderAudit::default(), &figures), None);
    }

    #[test]
    fn both_versions_of_throttling_are_read() {
        let first = "nr_periods 4\nnr_throttled 2\nthrottled_time 1500\n";
        let second = "usage_usec 9\nnr_throttled 2\nthrottled_usec 7\n";
        assert_eq!(throttled_nanos_in(first), 1_500);
        assert_eq!(throttled_nanos_in(second), 7_000);
        assert_eq!(throttled_nanos_in("usage_usec 9\n"), 0);
    }

    #[test]
    fn a_busy_thread_is_seen() {
        let auditor = Auditor::new();
        let before = auditor.snapshot();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(100) {
            std::hint::black_box(0);
        }
        let audit = account(&before, &auditor.snapshot());
        assert!(audit.cpu_nanos > 0 && audit.busiest_thread_basis_points > 0, "{audit:?}");
        // It wanted to run all the time, however busy the machine is.
        assert!(audit.is_saturated() && !audit.saturated_thread.is_empty(), "{audit:?}");
        assert!(audit.rss_peak_bytes > 1_000_000, "{audit:?}");
        assert!(audit.clock_step_nanos.abs() < 50_000_000, "{audit:?}");
    }
}
