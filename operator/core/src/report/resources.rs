//! What each arm cost: processor, memory, disk, start-up; measures as rows, arms as columns.

use storebench_crds::status::ArmResources;

use super::Report;
use super::lookup;
use super::table::{Cell, Column, Table};
use super::units;

/// A measure: what it is called, and how to read it from an arm's costs.
type Measure = (&'static str, fn(&ArmResources) -> Option<String>);

/// The measures, in the order in which they are shown.
///
/// Where nothing can be 0 (a running process has memory, an executable has a size), 0 means that it was not measured.
const MEASURES: [Measure; 12] = [
    // An idle store may use no processor time at all.
    ("CPU, idle", |cost| (cost.rss_idle_bytes > 0).then(|| units::cores(cost.cpu_idle_millicores))),
    ("CPU under load, average", |cost| above_zero(cost.cpu_average_millicores, units::cores)),
    ("CPU under load, peak", |cost| above_zero(cost.cpu_peak_millicores, units::cores)),
    ("operations/CPU-second", |cost| above_zero(cost.operations_per_cpu_second, units::count_short)),
    ("memory (RSS), idle", |cost| above_zero(cost.rss_idle_bytes, units::bytes)),
    ("memory (RSS), average", |cost| above_zero(cost.rss_average_bytes, units::bytes)),
    ("memory (RSS), peak", |cost| above_zero(cost.rss_peak_bytes, units::bytes)),
    ("memory (PSS), peak", |cost| above_zero(cost.pss_peak_bytes, units::bytes)),
    ("disk after the trial", |cost| above_zero(cost.disk_bytes, units::bytes)),
    ("executable", |cost| above_zero(cost.binary_bytes, units::bytes)),
    ("start-up to first answer", |cost| above_zero(cost.startup_micros, units::duration_micros)),
    ("context switches", |cost| above_zero(cost.context_switches, units::count_short)),
];

/// What the API server above a store used: shown where an arm has one.
const API_SERVER: [Measure; 5] = [
    ("API server CPU, average", |cost| Some(units::cores(cost.api_server?.cpu_average_millicores))),
    ("API server CPU, peak", |cost| Some(units::cores(cost.api_server?.cpu_peak_millicores))),
    ("API server memory, average", |cost| Some(units::bytes(cost.api_server?.rss_average_bytes))),
    ("API server memory, peak", |cost| Some(units::bytes(cost.api_server?.rss_peak_bytes))),
    ("controllers' CPU, average", |cost| Some(units::cores(cost.api_server?.others_cpu_average_millicores))),
];

fn above_zero(value: u64, show: fn(u64) -> String) -> Option<String> {
    (value > 0).then(|| show(value))
}

/// What the arms cost. `None`: nothing was measured.
pub(super) fn table(report: &Report) -> Option<Table> {
    let arms: Vec<_> = lookup::started_arms(report)
        .filter_map(|(_, arm)| {
            let cost = report.judgement.resources.iter().find(|cost| cost.arm == arm.name)?;
            Some((arm, cost))
        })
        .collect();
    // What an executable weighs is no measurement.
    if arms.is_empty() || report.judgement.results.is_empty() {
        return None;
    }
    let mut columns = vec![Column::words("")];
    columns.extend(arms.iter().map(|(arm, _)| Column::numbers(&arm.name)));
    let has_api_server = arms.iter().any(|(_, cost)| cost.api_server.is_some());
    let measures = MEASURES.iter().chain(API_SERVER.iter().filter(|_| has_api_server));
    let rows = measures.map(|(name, read)| {
        let mut row = vec![Cell::plain(name)];
        row.extend(arms.iter().map(|(_, cost)| Cell::or_absent(read(cost))));
        row
    });
    Some(Table { rows: rows.collect(), columns })
}
