//! What the API servers above the stores say of a workload's requests, and of those that they sent to the stores because of
//! them: kinds as rows, one below the other for each arm.

use storebench_crds::api_requests::AnsweredBy;
use storebench_crds::status::TrialState;
use storebench_crds::workload::Workload;

use super::Report;
use super::lookup;
use super::table::{Cell, Column, Table};
use super::units;
use crate::judgement::RequestResult;

/// Below this no percentile can be told: the upper bound of the first bucket of Kubernetes' histograms of requests
/// (k8s.io/apiserver, `pkg/endpoints/metrics` and `pkg/storage/etcd3/metrics`).
const RESOLUTION_NANOS: u64 = 5_000_000;
/// Kinds that are rarer than this, per thousand of those of one arm that the same side answered, are left to the JSON.
const SHARE_MIN_PER_THOUSAND: u64 = 10;

/// What the API servers say. `None`: there are none, or they say nothing.
pub(super) fn table(report: &Report, workload: &Workload) -> Option<Table> {
    let found: Vec<&RequestResult> =
        report.judgement.requests.iter().filter(|one| one.workload == workload.name).collect();
    let kinds = frequent_kinds(&found);
    if kinds.is_empty() {
        return None;
    }
    let columns = vec![
        Column::words("as the API server says"),
        Column::words("arm"),
        Column::numbers("per operation"),
        Column::numbers("mean"),
        Column::numbers("p50").dispensable(1),
        Column::numbers("p99"),
    ];
    let mut rows = Vec::new();
    for kind in kinds {
        for (position, arm) in lookup::started_arms(report) {
            let Some(one) = found.iter().find(|one| one.arm == arm.name && self::kind(one) == kind) else { continue };
            let operations = lookup::result(report, &workload.name, &arm.name).map_or(0, |result| result.operations);
            let milli = u128::from(one.latency.requests) * 1_000 / u128::from(operations.max(1));
            rows.push(vec![
                Cell::plain(in_words(one)),
                Cell::arm(&arm.name, position),
                Cell::plain(units::per_operation_milli(milli as u64)),
                Cell::plain(units::duration_nanos(one.latency.mean_nanos)),
                Cell::plain(percentile(one.latency.p50_nanos)),
                Cell::plain(percentile(one.latency.p99_nanos)),
            ]);
        }
    }
    Some(Table { columns, rows })
}

type Kind<'a> = (AnsweredBy, &'a str, &'a str);

fn kind(one: &RequestResult) -> Kind<'_> {
    (one.answered_by, &one.verb, &one.resource)
}

/// Kinds in the order in which they stand for the arm that has them first, without rare ones.
fn frequent_kinds<'a>(found: &[&'a RequestResult]) -> Vec<Kind<'a>> {
    let mut kinds = Vec::new();
    for one in found {
        let same = found.iter().filter(|other| other.arm == one.arm && other.answered_by == one.answered_by);
        let all: u64 = same.map(|other| other.latency.requests).sum();
        let is_frequent =
            u128::from(one.latency.requests) * 1_000 >= u128::from(all) * u128::from(SHARE_MIN_PER_THOUSAND);
        if is_frequent && !kinds.contains(&kind(one)) {
            kinds.push(kind(one));
        }
    }
    kinds
}

fn in_words(one: &RequestResult) -> String {
    match one.answered_by {
        AnsweredBy::ApiServer => format!("{} {}", one.verb, one.resource),
        AnsweredBy::Store => format!("store: {} {}", one.verb, one.resource),
    }
}

fn percentile(nanos: u64) -> String {
    if nanos < RESOLUTION_NANOS {
        format!("< {}", units::duration_nanos(RESOLUTION_NANOS))
    } else {
        units::duration_nanos(nanos)
    }
}

/// What a reader must know of these figures, one statement each.
pub(super) fn notes(report: &Report, workload: &Workload) -> Vec<String> {
    let mut notes = Vec::new();
    if report.judgement.requests.iter().any(|one| one.workload == workload.name) {
        notes.push(format!(
            "what the API server says is of its own histograms: means are precise, percentiles interpolated between few bounds, the first of which is {}",
            units::duration_nanos(RESOLUTION_NANOS)
        ));
    }
    for (_, arm) in lookup::started_arms(report) {
        let trials =
            report.record.trials.iter().filter(|trial| trial.arm == arm.name && trial.state == TrialState::Valid);
        let measured = trials.flat_map(|trial| &trial.workloads).filter(|one| one.summary.name == workload.name);
        let mut problems = measured.filter_map(|one| one.api_requests.as_ref()?.problem.as_ref());
        if let Some(problem) = problems.next() {
            notes.push(format!("{}: what its API server says is not known, or not of all trials: {problem}", arm.name));
        }
    }
    notes
}
