//! The loader's account of itself during one measured phase, and what disqualifies it.
//!
//! Taken from `/proc` and the control group before and after the phase; nothing is sampled in between. What the system
//! does not offer (a kernel without `schedstat`, a container that hides its control group) counts as zero: the audit
//! finds faults, it cannot prove their absence.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use procfs::ProcessCGroup;
use procfs::process::{MountInfo, Process};
use storebench_crds::job::{Hindrance, LoaderAudit};

/// Throttled for more than this share of the elapsed time: hindered. 1 %.
pub const THROTTLED_BASIS_POINTS_MAX: u64 = 100;
/// A larger step of the wall clock against the monotonic clock: hindered.
pub const CLOCK_STEP_MAX: Duration = Duration::from_millis(50);
/// A thread that was runnable without a processor for more than this share of the elapsed time: hindered. 50 %. So high
/// because a store that uses every core it finds, beside the loader on two cores, takes up to 30 % from it by itself
/// (docs/accuracy.md); what other processes take is for the driver to see.
pub const WITHHELD_BASIS_POINTS_MAX: u64 = 5_000;
/// Up to so much of it is never held against the system: in a phase that short a few waits are a large share.
pub const WITHHELD_HARMLESS: Duration = Duration::from_millis(100);
/// Open loop: a request that left this much too late by the loader's own doing is late.
pub const LATE: Duration = Duration::from_millis(10);
/// Open loop: more late requests than this share: hindered. 1 %.
pub const LATE_BASIS_POINTS_MAX: u64 = 100;
/// Open loop: up to this much, the 99th percentile of lag is never held against the loader.
pub const LAG_P99_HARMLESS: Duration = Duration::from_millis(1);

/// What one thread has used since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ThreadUse {
    cpu_nanos: u64,
    waited_nanos: u64,
    voluntary_switches: u64,
    involuntary_switches: u64,
}

/// The loader's state at one instant.
#[derive(Clone, Debug)]
pub struct Snapshot {
    at: Instant,
    wall: SystemTime,
    throttled_nanos: Vec<u64>,
    threads: BTreeMap<i32, ThreadUse>,
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
    /// The longest that any one thread was runnable without a processor, nanoseconds.
    pub waited_nanos_max: u64,
    /// Open loop: requests that were due but never sent, because the store did not keep up.
    pub unsent: u64,
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
        let Ok(process) = Process::myself() else {
            return Self::default();
        };
        let groups = process.cgroups().map(|groups| groups.0).unwrap_or_default();
        let mounts = process.mountinfo().map(|mounts| mounts.0).unwrap_or_default();
        Self {
            cpu_stat_files: cpu_stat_candidates(&groups, &mounts).into_iter().filter(|file| file.is_file()).collect(),
        }
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
            let mut used = ThreadUse::default();
            if let Ok(schedule) = task.schedstat() {
                used.cpu_nanos = schedule.sum_exec_runtime;
                used.waited_nanos = schedule.run_delay;
            }
            if let Ok(status) = task.status() {
                used.voluntary_switches = status.voluntary_ctxt_switches.unwrap_or_default();
                used.involuntary_switches = status.nonvoluntary_ctxt_switches.unwrap_or_default();
            }
            snapshot.threads.insert(task.tid, used);
        }
        snapshot
    }
}

/// The account between two snapshots, and the longest wait of one thread for a processor, nanoseconds. `lag_max_nanos`,
/// `scheduled` and `started_unix_nanos` are for the caller to fill in.
pub fn account(before: &Snapshot, after: &Snapshot) -> (LoaderAudit, u64) {
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
    let mut busiest_nanos = 0;
    let mut waited_nanos_max = 0;
    for (tid, used) in &after.threads {
        let earlier = before.threads.get(tid).copied().unwrap_or_default();
        let cpu_nanos = used.cpu_nanos.saturating_sub(earlier.cpu_nanos);
        let waited_nanos = used.waited_nanos.saturating_sub(earlier.waited_nanos);
        audit.cpu_nanos += cpu_nanos;
        audit.run_queue_nanos += waited_nanos;
        audit.voluntary_switches += used.voluntary_switches.saturating_sub(earlier.voluntary_switches);
        audit.involuntary_switches += used.involuntary_switches.saturating_sub(earlier.involuntary_switches);
        busiest_nanos = busiest_nanos.max(cpu_nanos);
        waited_nanos_max = waited_nanos_max.max(waited_nanos);
    }
    audit.busiest_thread_basis_points = basis_points(busiest_nanos, elapsed.as_nanos() as u64) as u32;
    (audit, waited_nanos_max)
}

/// What hindered the loader, if anything, and the figures in one line. The gravest first.
pub fn judge(audit: &LoaderAudit, figures: &Figures) -> Option<(Hindrance, String)> {
    let elapsed_nanos = figures.elapsed.as_nanos() as u64;
    if audit.clock_step_nanos.unsigned_abs() > CLOCK_STEP_MAX.as_nanos() as u64 {
        let millis = audit.clock_step_nanos / 1_000_000;
        let detail = format!("the wall clock was stepped by {millis} ms during the measurement");
        return Some((Hindrance::ClockStepped, detail));
    }
    let throttled = basis_points(audit.throttled_nanos, elapsed_nanos);
    if throttled > THROTTLED_BASIS_POINTS_MAX {
        let detail = format!(
            "the CPU quota stopped the loader for {} of {:.1?}: {}, at most {} is accepted",
            text_of(audit.throttled_nanos),
            figures.elapsed,
            percent(throttled),
            percent(THROTTLED_BASIS_POINTS_MAX),
        );
        return Some((Hindrance::CpuThrottled, detail));
    }
    let withheld = basis_points(figures.waited_nanos_max, elapsed_nanos);
    let is_long = figures.waited_nanos_max > WITHHELD_HARMLESS.as_nanos() as u64;
    if is_long && withheld > WITHHELD_BASIS_POINTS_MAX {
        let detail = format!(
            "a thread of the loader waited for a processor for {} of {:.1?}: {}, at most {} is accepted",
            text_of(figures.waited_nanos_max),
            figures.elapsed,
            percent(withheld),
            percent(WITHHELD_BASIS_POINTS_MAX),
        );
        return Some((Hindrance::ProcessorWithheld, detail));
    }
    judge_timetable(audit, figures)
}

/// The faults that only an open loop can have. Lag comes first: a loader that is late cannot blame the store.
fn judge_timetable(audit: &LoaderAudit, figures: &Figures) -> Option<(Hindrance, String)> {
    if audit.scheduled == 0 {
        return None;
    }
    let late = basis_points(figures.late, audit.scheduled);
    let distorts = figures.lag_p99_nanos > LAG_P99_HARMLESS.as_nanos() as u64
        && figures.lag_p99_nanos > figures.intended_p99_nanos / 2;
    if late > LATE_BASIS_POINTS_MAX || distorts {
        let detail = format!(
            "requests left late although clients were free: {} of {} more than {LATE:?}, 99th percentile {}, largest {}",
            figures.late,
            audit.scheduled,
            text_of(figures.lag_p99_nanos),
            text_of(audit.lag_max_nanos),
        );
        return Some((Hindrance::ScheduleLag, detail));
    }
    // The schedule gives up only on a backlog above 2 %; see `pace`.
    if figures.unsent > 0 {
        let sent = audit.scheduled.saturating_sub(figures.unsent);
        let detail = format!(
            "{sent} of {} requests that were due could be sent ({}): all clients were busy",
            audit.scheduled,
            percent(basis_points(sent, audit.scheduled)),
        );
        return Some((Hindrance::RateNotReached, detail));
    }
    None
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

/// Where `cpu.stat` of the process's control group and of its ancestors may be. Version 1 mounts each controller by
/// itself, version 2 has one tree (hierarchy 0). Inside a container the path may name a group that is not visible; the
/// root of the mount is then the group itself, which is always among the candidates.
fn cpu_stat_candidates(groups: &[ProcessCGroup], mounts: &[MountInfo]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for mount in mounts {
        let group = groups.iter().find(|group| match mount.fs_type.as_str() {
            "cgroup2" => group.hierarchy == 0,
            "cgroup" => {
                group.controllers.iter().any(|controller| controller == "cpu")
                    && mount.super_options.contains_key("cpu")
            }
            _ => false,
        });
        let Some(group) = group else { continue };
        let path = Path::new(&group.pathname);
        // In a container the mount shows a subtree: take the path relative to it.
        let below = path.strip_prefix(&mount.root).or_else(|_| path.strip_prefix("/"));
        let mut folder = mount.mount_point.join(below.unwrap_or(Path::new("")));
        loop {
            files.push(folder.join("cpu.stat"));
            if folder == mount.mount_point || !folder.pop() {
                break;
            }
        }
    }
    files
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
    use procfs::FromRead;
    use procfs::process::MountInfos;

    fn audit() -> LoaderAudit {
        LoaderAudit { scheduled: 10_000, ..LoaderAudit::default() }
    }

    fn figures() -> Figures {
        Figures { elapsed: Duration::from_secs(10), ..Figures::default() }
    }

    #[test]
    fn a_quiet_loader_is_not_hindered_even_when_busy() {
        let audit = LoaderAudit {
            busiest_thread_basis_points: 9_990,
            throttled_nanos: 100_000_000,
            clock_step_nanos: -50_000_000,
            lag_max_nanos: 400_000_000,
            ..audit()
        };
        let figures = Figures { waited_nanos_max: 5_000_000_000, late: 100, lag_p99_nanos: 1_000_000, ..figures() };
        assert_eq!(judge(&audit, &figures), None);
    }

    #[test]
    fn each_hindrance_is_found_just_above_its_bound() {
        let quiet = (audit(), figures());
        let cases: [(&str, Hindrance, LoaderAudit, Figures); 6] = [
            (
                "quota stopped the loader for 101.0ms of 10.0s: 1.01 %",
                Hindrance::CpuThrottled,
                LoaderAudit { throttled_nanos: 101_000_000, ..audit() },
                quiet.1,
            ),
            (
                "stepped by -51 ms",
                Hindrance::ClockStepped,
                LoaderAudit { clock_step_nanos: -51_000_000, ..audit() },
                quiet.1,
            ),
            (
                "waited for a processor for 5.1s of 10.0s: 51.00 %",
                Hindrance::ProcessorWithheld,
                quiet.0.clone(),
                Figures { waited_nanos_max: 5_100_000_000, ..figures() },
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
        ];
        for (detail, hindrance, audit, figures) in cases {
            let (found, text) = judge(&audit, &figures).expect(detail);
            assert_eq!(found, hindrance);
            assert!(text.contains(detail), "{text}");
        }
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

    fn candidates(mount: &str, hierarchy: u32, controllers: &[&str], path: &str) -> Vec<String> {
        let mounts = MountInfos::from_read(mount.as_bytes()).unwrap().0;
        let group = ProcessCGroup {
            hierarchy,
            controllers: controllers.iter().map(|&name| name.to_owned()).collect(),
            pathname: path.to_owned(),
        };
        let files = cpu_stat_candidates(&[group], &mounts);
        files.iter().map(|file| file.display().to_string()).collect()
    }

    #[test]
    fn the_control_group_and_its_ancestors_are_found() {
        let second = "30 20 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
        assert_eq!(
            candidates(second, 0, &[], "/pod/job"),
            ["/sys/fs/cgroup/pod/job/cpu.stat", "/sys/fs/cgroup/pod/cpu.stat", "/sys/fs/cgroup/cpu.stat"]
        );
        let first = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                     33 31 0:30 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n";
        assert_eq!(
            candidates(first, 1, &["cpu", "cpuacct"], "/pod"),
            ["/sys/fs/cgroup/cpu/pod/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat"]
        );
        let container = "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        assert_eq!(candidates(container, 1, &["cpu"], "/docker/abc"), ["/sys/fs/cgroup/cpu/cpu.stat"]);
    }

    #[test]
    fn a_busy_thread_is_seen() {
        let auditor = Auditor::new();
        let before = auditor.snapshot();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(100) {
            std::hint::black_box(0);
        }
        let (audit, _) = account(&before, &auditor.snapshot());
        assert!(audit.cpu_nanos > 0 && audit.busiest_thread_basis_points > 0, "{audit:?}");
        assert!(audit.rss_peak_bytes > 1_000_000, "{audit:?}");
        assert!(audit.clock_step_nanos.abs() < 50_000_000, "{audit:?}");
    }
}
