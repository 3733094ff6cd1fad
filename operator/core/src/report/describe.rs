//! What was asked, in a line: how hard a workload loads, a run, how to read a report. The request itself is [`super::family`]'s.

use storebench_crds::status::Verdict;
use storebench_crds::workload::{Arrivals, Fault, FaultKind, FaultMember, Load, LoadMode};
use storebench_crds::{DurationText, Workload};

use super::Report;
use super::family;
use super::units;
use super::wording;
use crate::judgement::other_version;
use crate::record::Driver;

/// What is asked of the store, and how hard.
pub(super) fn asked(workload: &Workload, driver: Driver) -> String {
    let asked = format!("{} · {}", family::request(workload), load(&workload.load));
    let is_killed = workload.fault().is_some_and(|fault| fault.kind == FaultKind::Kill);
    match driver {
        Driver::Kubernetes if is_killed => {
            format!("{asked} (in a cluster by the kubelet instead, as soon as it sees that)")
        }
        _ => asked,
    }
}

/// How hard and how long, as `closed loop, 64 clients on 8 connections, 10s after 1s of warm-up`.
fn load(load: &Load) -> String {
    let mode = match (load.mode, load.rate, &load.highest_rate) {
        (LoadMode::OpenLoop, _, Some(search)) => format!("open loop at the highest rate with {}", search.target()),
        (LoadMode::OpenLoop, Some(rate), None) => format!("open loop at {}/s", units::count(rate)),
        (LoadMode::OpenLoop, None, None) => "open loop".to_owned(),
        (LoadMode::ClosedLoop, ..) => "closed loop".to_owned(),
    };
    let chance = if load.arrivals == Arrivals::Poisson { ", due by chance" } else { "" };
    let mut parts = vec![
        format!("{mode}{chance}"),
        format!("{} on {}", units::things(load.clients(), "client"), units::things(load.connections, "connection")),
    ];
    if load.threads > 1 {
        parts.push(format!("{} threads", load.threads));
    }
    let amount = match (&load.duration, load.total) {
        (Some(duration), _) => duration.as_str().to_owned(),
        (None, Some(total)) => format!("{} requests", units::count(total)),
        (None, None) => "no end".to_owned(),
    };
    parts.push(format!("{amount} after {} of warm-up", load.warm_up.as_str()));
    parts.extend(load.fault.as_ref().map(fault));
    parts.join(", ")
}

/// As `follower stopped after 3s for 2s`.
fn fault(fault: &Fault) -> String {
    let member = match fault.member {
        FaultMember::Leader => "leader or only member",
        FaultMember::Follower => "follower",
    };
    let (after, duration) = (fault.after.as_str(), fault.duration.as_str());
    match fault.kind {
        FaultKind::Kill => format!("{member} killed after {after} and started again {duration} later"),
        FaultKind::Stop => format!("{member} stopped after {after} for {duration}"),
        FaultKind::Partition => format!("{member} cut off after {after} for {duration}, all through a relay"),
        FaultKind::SlowDisk => {
            let delay = fault.sync_delay.as_ref().map(DurationText::as_str).unwrap_or_default();
            format!("syncs of {member} slower by {delay} after {after} for {duration}")
        }
    }
}

/// The judgement's message, or what the verdict means if there is none. What an invalid run is worth is said in any case.
pub(super) fn message(report: &Report) -> (String, Option<&'static str>) {
    let meaning = wording::verdict_meaning(report.judgement.verdict);
    match report.judgement.message.trim() {
        "" => (meaning.to_owned(), None),
        message => (message.to_owned(), (report.judgement.verdict == Verdict::Invalid).then_some(meaning)),
    }
}

/// What must be read before anything else.
pub(super) fn warnings(report: &Report) -> Vec<String> {
    report.record.arms.iter().filter_map(other_version).collect()
}

/// Where, when, how long and by what, in parts.
pub(super) fn circumstances(report: &Report) -> Vec<String> {
    let record = &report.record;
    vec![
        wording::driver(record.driver, &record.arms).to_owned(),
        instant(&record.started_at),
        format!("took {}", units::run_duration(record.duration_millis)),
        format!("storebench {}", record.storebench_version),
    ]
}

/// `2026-03-01T12:00:00.123Z` as `2026-03-01 12:00:00 UTC`; anything else as it is.
fn instant(rfc3339: &str) -> String {
    let is_utc_second =
        rfc3339.is_ascii() && rfc3339.len() >= 20 && rfc3339.ends_with('Z') && rfc3339.as_bytes()[10] == b'T';
    if is_utc_second { format!("{} {} UTC", &rfc3339[..10], &rfc3339[11..19]) } else { rfc3339.to_owned() }
}

/// How the numbers were made and what the signs mean, for a first reader. One statement each.
pub(super) fn reading_guide(report: &Report) -> Vec<String> {
    let mut guide = vec![
        "Throughput, latency percentiles and costs are the median of what the valid trials had, each of which counts alike, as in ratios and gates; the largest latency is the largest of all. ± is the 95 % interval of throughput, of which both ends are shown where it is lopsided.",
        "A ratio is the arm divided by the baseline, paired trial by trial, with its 95 % interval. If the interval contains 1, neither is called better.",
        "Where a table says what it would see: the smallest change that so many pairs of trials would find four times in five. A smaller one may have gone unseen.",
        "—: not measured, or too few requests for that percentile.",
    ];
    if report.record.spec.workloads.iter().any(super::lookup::is_open_loop) {
        guide.insert(
            1,
            "Open loop: intended latency runs from the instant a request was due, whether or not it could be sent then; service latency from its send. Users feel the intended one.",
        );
    }
    let mut guide: Vec<String> = guide.into_iter().map(str::to_owned).collect();
    let decisions = report.judgement.gates.len();
    if decisions > 1 {
        guide.push(format!(
            "As one of {decisions} decisions: gates and workloads make {decisions} decisions, and one miss makes a run Regressed. So that chance \
             alone does so in no more than 5 % of runs, a gate is missed only if a wider interval than that of 95 %, shown as one of \
             {decisions} decisions, lies beyond its bound, too."
        ));
    }
    guide
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_to_a_store_stands_with_its_load() {
        let said = |fault: serde_json::Value| {
            let all = serde_json::json!({ "connections": 2, "duration": "9s", "fault": fault });
            load(&serde_json::from_value(all).unwrap())
        };
        assert_eq!(
            said(serde_json::json!({ "kind": "Kill", "after": "3s", "duration": "2s" })),
            "closed loop, 2 clients on 2 connections, 9s after 1s of warm-up, leader or only member killed after 3s and started again 2s later"
        );
        let stopped =
            said(serde_json::json!({ "kind": "Stop", "member": "Follower", "after": "3s", "duration": "2s" }));
        assert!(stopped.ends_with(", follower stopped after 3s for 2s"), "{stopped}");
        let cut = said(serde_json::json!({ "kind": "Partition", "after": "3s", "duration": "2s" }));
        assert!(cut.ends_with(", leader or only member cut off after 3s for 2s, all through a relay"), "{cut}");
        let slow =
            said(serde_json::json!({ "kind": "SlowDisk", "syncDelay": "20ms", "after": "3s", "duration": "2s" }));
        assert!(slow.ends_with(", syncs of leader or only member slower by 20ms after 3s for 2s"), "{slow}");
    }

    /// Whatever the workload says of it.
    #[test]
    fn in_a_cluster_nobody_is_said_to_have_waited_before_a_killed_member_started_again() {
        let workload = |kind: &str| -> Workload {
            let fault = serde_json::json!({ "kind": kind, "after": "3s", "duration": "2s" });
            let load = serde_json::json!({ "duration": "9s", "fault": fault });
            serde_json::from_value(serde_json::json!({ "name": "w", "redis": { "command": "Set" }, "load": load }))
                .unwrap()
        };
        let embedded = asked(&workload("Kill"), Driver::Embedded);
        assert!(embedded.ends_with("killed after 3s and started again 2s later"), "{embedded}");
        let in_cluster = asked(&workload("Kill"), Driver::Kubernetes);
        assert!(
            in_cluster.ends_with("2s later (in a cluster by the kubelet instead, as soon as it sees that)"),
            "{in_cluster}"
        );
        assert!(!asked(&workload("Stop"), Driver::Kubernetes).contains("kubelet"));
    }

    #[test]
    fn instants_are_readable_and_never_guessed() {
        assert_eq!(instant("2026-03-01T12:00:00Z"), "2026-03-01 12:00:00 UTC");
        assert_eq!(instant("2026-03-01T12:00:00.123456Z"), "2026-03-01 12:00:00 UTC");
        assert_eq!(instant("2026-03-01T12:00:00+02:00"), "2026-03-01T12:00:00+02:00");
        assert_eq!(instant("yesterday"), "yesterday");
    }
}
