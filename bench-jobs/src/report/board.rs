//! What a scraper sees while the job runs, in OpenMetrics: requests, errors, wrong answers, the phase, latencies.
//!
//! Threads copy their counts into [`Live`] about every 50 ms; nothing on the hot path is shared. Counts cover the load
//! phases, WarmUp and Measure, and never fall. The only label besides the phase is the workload's name: run, arm and trial are
//! labels of the pod, which whoever scrapes it knows.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use storebench_crds::job::Phase;

use crate::report::record::{BUCKET_BOUNDS_NANOS, Record};

const BUCKETS: usize = BUCKET_BOUNDS_NANOS.len() + 1;
const PHASES: [(Phase, &str); 5] = [
    (Phase::Prepare, "prepare"),
    (Phase::WarmUp, "warmUp"),
    (Phase::Measure, "measure"),
    (Phase::Verify, "verify"),
    (Phase::Done, "done"),
];

/// Counts at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests answered.
    pub operations: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Wrong answers.
    pub wrong: u64,
    service_sum_nanos: u64,
    buckets: [u64; BUCKETS],
}

impl Totals {
    fn of(record: &Record) -> Self {
        Self {
            operations: record.operations,
            errors: record.errors,
            wrong: record.wrong,
            service_sum_nanos: record.service_sum_nanos,
            buckets: record.buckets,
        }
    }

    /// Within what 99 of 100 answers came that have come since `earlier`, nanoseconds: one of [`BUCKET_BOUNDS_NANOS`]. `None`: none came, or
    /// that took longer than the last of them.
    pub fn p99_nanos_max(&self, earlier: &Self) -> Option<u64> {
        let counts = self.buckets.iter().zip(earlier.buckets).map(|(now, then)| now.saturating_sub(then));
        let all: u64 = counts.clone().sum();
        let mut so_far = 0;
        let mut bounds = counts.zip(BUCKET_BOUNDS_NANOS);
        let found = bounds.find(|(count, _)| {
            so_far += count;
            so_far >= all - all / 100
        });
        found.map(|(_, bound)| bound).filter(|_| all > 0)
    }

    fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.errors += other.errors;
        self.wrong += other.wrong;
        self.service_sum_nanos = self.service_sum_nanos.saturating_add(other.service_sum_nanos);
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets) {
            *mine += theirs;
        }
    }
}

/// One thread's counts, as other threads may read them. Only the owner writes.
#[derive(Debug, Default)]
pub struct Live {
    operations: AtomicU64,
    errors: AtomicU64,
    wrong: AtomicU64,
    service_sum_nanos: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Live {
    fn store(&self, totals: &Totals) {
        self.operations.store(totals.operations, Ordering::Relaxed);
        self.errors.store(totals.errors, Ordering::Relaxed);
        self.wrong.store(totals.wrong, Ordering::Relaxed);
        self.service_sum_nanos.store(totals.service_sum_nanos, Ordering::Relaxed);
        for (mine, theirs) in self.buckets.iter().zip(totals.buckets) {
            mine.store(theirs, Ordering::Relaxed);
        }
    }

    fn load(&self) -> Totals {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Totals {
            operations: load(&self.operations),
            errors: load(&self.errors),
            wrong: load(&self.wrong),
            service_sum_nanos: load(&self.service_sum_nanos),
            buckets: std::array::from_fn(|at| load(&self.buckets[at])),
        }
    }
}

/// The owner's side of [`Live`].
#[derive(Debug)]
pub(crate) struct Publisher {
    live: Arc<Live>,
    /// Counts of phases that are over.
    settled: Totals,
}

impl Publisher {
    pub(crate) fn new(live: Arc<Live>) -> Self {
        Self { live, settled: Totals::default() }
    }

    /// Shows the counts with those of the running phase.
    pub(crate) fn publish(&self, record: &Record) {
        let mut totals = self.settled;
        totals.add(&Totals::of(record));
        self.live.store(&totals);
    }

    /// Shows the counts; the phase is over and its counts stay.
    pub(crate) fn settle(&mut self, record: &Record) {
        self.settled.add(&Totals::of(record));
        self.live.store(&self.settled);
    }
}

/// One workload on the [`Board`].
#[derive(Debug)]
struct Entry {
    workload: String,
    phase: Phase,
    threads: Vec<Arc<Live>>,
}

impl Entry {
    fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.threads.iter().for_each(|live| totals.add(&live.load()));
        totals
    }
}

/// All workloads of the job so far: what progress lines and `/metrics` are made from.
#[derive(Debug, Default)]
pub struct Board(Mutex<Vec<Entry>>);

impl Board {
    /// A workload begins, on threads that publish to `threads`. One that begins anew goes on in the same series, which scrapers want once.
    pub fn begin(&self, workload: &str, threads: Vec<Arc<Live>>) {
        let mut entries = self.entries();
        match entries.last_mut().filter(|entry| entry.workload == workload) {
            Some(entry) => {
                entry.phase = Phase::Prepare;
                entry.threads.extend(threads);
            }
            None => entries.push(Entry { workload: workload.to_owned(), phase: Phase::Prepare, threads }),
        }
    }

    /// The current workload enters a phase.
    pub fn enter(&self, phase: Phase) {
        if let Some(entry) = self.entries().last_mut() {
            entry.phase = phase;
        }
    }

    /// Counts of the current workload.
    pub fn totals(&self) -> Totals {
        self.entries().last().map(Entry::totals).unwrap_or_default()
    }

    /// The text that a scraper gets.
    pub fn open_metrics(self: &Arc<Self>) -> String {
        let mut registry = Registry::with_prefix("storebench_job");
        registry.register_collector(Box::new(Arc::clone(self)));
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &registry);
        text
    }

    fn entries(&self) -> std::sync::MutexGuard<'_, Vec<Entry>> {
        // A poisoned lock guards plain counters; they are as good as before.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for Board {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let entries = self.entries();
        let live = |what: &str| format!("{what}; a live figure of a trial that goes on, and not its result");
        type Pick = fn(&Totals) -> u64;
        let counters: [(&str, &str, Pick); 3] = [
            ("requests", "Requests answered in WarmUp and Measure", |totals| totals.operations),
            ("errors", "Requests that failed in WarmUp and Measure", |totals| totals.errors),
            ("wrong_answers", "Answers that were wrong in WarmUp and Measure", |totals| totals.wrong),
        ];
        for (name, help, pick) in counters {
            let mut family = encoder.encode_descriptor(name, &live(help), None, MetricType::Counter)?;
            for entry in entries.iter() {
                ConstCounter::new(pick(&entry.totals())).encode(family.encode_family(&labels(entry))?)?;
            }
        }
        let help = live("1 for the phase that a workload is in, 0 for the others");
        let mut family = encoder.encode_descriptor("phase", &help, None, MetricType::Gauge)?;
        for entry in entries.iter() {
            for (phase, name) in PHASES {
                let labels = [("workload", entry.workload.as_str()), ("phase", name)];
                ConstGauge::new(i64::from(entry.phase == phase)).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = live("Latency from send to answer in WarmUp and Measure");
        let unit = Some(&Unit::Seconds);
        let mut family = encoder.encode_descriptor("service_latency", &help, unit, MetricType::Histogram)?;
        for entry in entries.iter() {
            encode_latency(family.encode_family(&labels(entry))?, &entry.totals())?;
        }
        Ok(())
    }
}

fn labels(entry: &Entry) -> [(&str, &str); 1] {
    [("workload", entry.workload.as_str())]
}

fn encode_latency(mut encoder: MetricEncoder, totals: &Totals) -> fmt::Result {
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    let bounds = BUCKET_BOUNDS_NANOS.iter().map(|bound| seconds(*bound)).chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(totals.buckets).collect();
    let count = totals.buckets.iter().sum();
    encoder.encode_histogram::<NoLabelSet>(seconds(totals.service_sum_nanos), count, &buckets, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;

    #[test]
    fn the_tail_is_that_of_what_came_since() {
        let mut record = Record::default();
        record.served(1_000_000, 500);
        let earlier = Totals::of(&record);
        assert_eq!(earlier.p99_nanos_max(&earlier), None);
        record.served(20_000, 99);
        record.served(40_000, 1);
        let now = Totals::of(&record);
        assert_eq!(now.p99_nanos_max(&earlier), Some(1 << 15));
        assert_eq!(now.p99_nanos_max(&Totals::default()), Some(1 << 20));
        record.served(40_000, 1);
        assert_eq!(Totals::of(&record).p99_nanos_max(&earlier), Some(1 << 16));
        record.served(40_000_000_000, 100);
        assert_eq!(Totals::of(&record).p99_nanos_max(&earlier), None);
    }

    #[test]
    fn a_workload_that_begins_anew_goes_on_in_the_same_series() {
        let board = Arc::new(Board::default());
        let mut record = Record::default();
        record.served(20_000, 5);
        for _ in 0..2 {
            let live = Arc::new(Live::default());
            board.begin("put", vec![Arc::clone(&live)]);
            Publisher::new(live).settle(&record);
        }
        let text = board.open_metrics();
        let series = |name: &str| text.lines().filter(|line| line.starts_with(name)).collect::<Vec<_>>();
        assert_eq!(series("storebench_job_requests_total"), ["storebench_job_requests_total{workload=\"put\"} 10"]);
        assert_eq!(series("storebench_job_phase{").len(), PHASES.len(), "{text}");
        board.begin("get", Vec::new());
        assert_eq!(board.totals(), Totals::default(), "another workload counts anew");
    }

    #[test]
    fn a_scraper_is_told_what_figures_are_and_that_they_are_no_result() {
        let board = Arc::new(Board::default());
        board.begin("put", Vec::new());
        let text = board.open_metrics();
        for (name, kind) in [
            ("requests", "counter"),
            ("errors", "counter"),
            ("wrong_answers", "counter"),
            ("phase", "gauge"),
            ("service_latency_seconds", "histogram"),
        ] {
            let line = format!("# TYPE storebench_job_{name} {kind}");
            assert!(text.lines().any(|found| found == line), "no line {line} in\n{text}");
            let help = text.lines().find(|line| line.starts_with(&format!("# HELP storebench_job_{name} ")));
            let help = help.unwrap_or_else(|| panic!("no help of {name} in\n{text}"));
            assert!(help.contains("live figure of a trial that goes on, and not its result"), "{help}");
        }
        assert!(text.contains("# UNIT storebench_job_service_latency_seconds seconds\n"), "{text}");
    }

    #[test]
    fn counts_never_fall_and_scrapers_see_them() {
        let live = Arc::new(Live::default());
        let board = Arc::new(Board::default());
        board.begin("put", vec![Arc::clone(&live)]);
        let mut publisher = Publisher::new(live);
        let mut record = Record::default();
        record.served(20_000, 5);
        publisher.publish(&record);
        assert_eq!(board.totals().operations, 5);
        publisher.settle(&record);
        assert_eq!(board.totals().operations, 5);
        let mut next = Record::default();
        next.served(40_000_000_000, 2);
        next.failed(&Failure::new("timeout"));
        publisher.publish(&next);
        board.enter(Phase::Measure);
        let text = board.open_metrics();
        for line in [
            "storebench_job_requests_total{workload=\"put\"} 7",
            "storebench_job_errors_total{workload=\"put\"} 1",
            "storebench_job_wrong_answers_total{workload=\"put\"} 0",
            "storebench_job_phase{workload=\"put\",phase=\"measure\"} 1",
            "storebench_job_phase{workload=\"put\",phase=\"prepare\"} 0",
            "storebench_job_service_latency_seconds_bucket{le=\"0.000016384\",workload=\"put\"} 0",
            "storebench_job_service_latency_seconds_bucket{le=\"0.000032768\",workload=\"put\"} 5",
            "storebench_job_service_latency_seconds_bucket{le=\"17.179869184\",workload=\"put\"} 5",
            "storebench_job_service_latency_seconds_bucket{le=\"+Inf\",workload=\"put\"} 7",
            "storebench_job_service_latency_seconds_count{workload=\"put\"} 7",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "no line {line} in\n{text}");
        }
    }
}
