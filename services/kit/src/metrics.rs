//! Metrics as monitoring reads them: OpenMetrics for who asks for that, else the text format of Prometheus, version 0.0.4.
//!
//! Servers register what they count with a [`Registry`] of `prometheus-client`, or a `Collector` that reads it when it is asked.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderMap, Response, StatusCode, header};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use rustix::process::{Resource, getrlimit};

use crate::http::{Body, answer, text};
use crate::resources::{open_files, resident_bytes, usage};

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format of Prometheus.
    Prometheus,
}

impl Format {
    /// What a client accepts; OpenMetrics only where it is named.
    pub fn of(headers: &HeaderMap) -> Self {
        let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        match accepted.any(|value| value.contains("application/openmetrics-text")) {
            true => Self::OpenMetrics,
            false => Self::Prometheus,
        }
    }

    /// The content type of the answer.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// All metrics, as who asked for them is answered.
    pub fn answer(self, registry: &Registry) -> Response<Body> {
        match self.write(registry) {
            Ok(metrics) => answer(StatusCode::OK, self.content_type(), metrics),
            Err(_) => {
                tracing::warn!("metrics cannot be written: one of their collectors has failed");
                text(StatusCode::INTERNAL_SERVER_ERROR, "one of the collectors has failed\n".into())
            }
        }
    }

    /// All metrics. Errors: a collector could not tell its own. Half of them would be taken for all.
    pub fn write(self, registry: &Registry) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, registry)?;
        Ok(match self {
            Self::OpenMetrics => text,
            Self::Prometheus => prometheus(&text),
        })
    }
}

/// What differs: a counter's head has its sample's name, `_total` and all; there are neither units nor an end; and what OpenMetrics
/// calls an info is a gauge, what it calls unknown is untyped.
fn prometheus(open_metrics: &str) -> String {
    let mut out = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            // Its name follows from the type, which comes next.
            help = rest.split_once(' ');
            continue;
        }
        let (Some(rest), true) = (line.strip_prefix("# "), line.starts_with("# TYPE ")) else {
            if !line.starts_with("# UNIT ") && line != "# EOF" {
                let _ = writeln!(out, "{line}");
            }
            continue;
        };
        let mut words = rest.split(' ').skip(1);
        let (name, kind) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (suffix, kind) = match kind {
            "counter" => ("_total", "counter"),
            "info" => ("_info", "gauge"),
            "unknown" => ("", "untyped"),
            kind => ("", kind),
        };
        if let Some((_, text)) = help.take().filter(|(about, _)| *about == name) {
            let _ = writeln!(out, "# HELP {name}{suffix} {text}");
        }
        let _ = writeln!(out, "# TYPE {name}{suffix} {kind}");
    }
    out
}

/// Writes a metric that has one value and no labels, as a collector does.
pub fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: i64) -> fmt::Result {
    let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(value).encode(metric)
}

/// As [`gauge`]; of a number that only grows. Its name gets `_total`.
pub fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    ConstCounter::new(value).encode(metric)
}

/// As [`gauge`]; of durations that somebody else has counted: how many were up to each bound, in microseconds, beyond the bound before; the
/// last count is of those beyond all bounds. Its unit is seconds.
pub fn histogram(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    (bounds_micros, counts): (&[u64], &[u64]),
    sum_nanos: u64,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    let bounds = bounds_micros.iter().map(|micros| *micros as f64 / 1e6).chain([f64::INFINITY]);
    let buckets: Vec<_> = bounds.zip(counts.iter().copied()).collect();
    metric.encode_histogram::<NoLabelSet>(sum_nanos as f64 / 1e9, counts.iter().sum(), &buckets, None)
}

/// Durations, as a histogram counts them; any thread may record and read at any time. A reader may see a duration's count before its time.
#[derive(Debug)]
pub struct Times {
    bounds_micros: &'static [u64],
    counts: Box<[AtomicU64]>,
    sum_nanos: AtomicU64,
}

impl Times {
    /// With these upper bounds of its buckets, in microseconds and ascending; what is longer than all of them is in a last bucket.
    pub fn new(bounds_micros: &'static [u64]) -> Self {
        let counts = (0..=bounds_micros.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds_micros, counts, sum_nanos: AtomicU64::new(0) }
    }

    /// Counts one.
    pub fn record(&self, took: Duration) {
        let micros = took.as_nanos().div_ceil(1000);
        let bucket = self.bounds_micros.partition_point(|bound| u128::from(*bound) < micros);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_nanos.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Counts what others have counted, with the same bounds.
    pub fn merge(&self, other: &Self) {
        for (count, more) in self.counts.iter().zip(&other.counts) {
            count.fetch_add(more.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.sum_nanos.fetch_add(other.sum_nanos.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Writes it as a collector does, in seconds.
    pub fn encode(&self, encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str) -> fmt::Result {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        self.encode_into(&mut metric)
    }

    /// Writes it into a family, whose unit is seconds.
    pub fn encode_into(&self, metric: &mut MetricEncoder<'_>) -> fmt::Result {
        let counts: Vec<u64> = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let bounds = self.bounds_micros.iter().map(|micros| *micros as f64 / 1e6).chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(counts.iter().copied()).collect();
        let sum = self.sum_nanos.load(Ordering::Relaxed) as f64 / 1e9;
        metric.encode_histogram::<NoLabelSet>(sum, counts.iter().sum(), &buckets, None)
    }
}

/// What the process uses, by the names that all clients of Prometheus give it; and connections that it closed by itself.
#[derive(Debug)]
pub struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        gauge(encoder, "process_resident_memory_bytes", "Resident memory size in bytes", resident_bytes() as i64)?;
        gauge(encoder, "process_open_fds", "Number of open file descriptors", open_files() as i64)?;
        if let Some(limit) = getrlimit(Resource::Nofile).current {
            gauge(encoder, "process_max_fds", "Maximum number of open file descriptors", limit as i64)?;
        }
        let text = "Connections that were closed because their thread could not keep up";
        counter(encoder, "connections_dropped", text, crate::workers::dropped())?;
        let text = "Idle connections that were closed for others, where as many were open as may be";
        counter(encoder, "connections_closed_for_others", text, crate::places::closed())?;
        let usage = usage();
        gauge(encoder, "process_virtual_memory_bytes", "Virtual memory size in bytes", usage.virtual_bytes as i64)?;
        let help = "Start time of the process since unix epoch in seconds";
        let metric = encoder.encode_descriptor("process_start_time_seconds", help, None, MetricType::Gauge)?;
        ConstGauge::new(usage.start_seconds).encode(metric)?;
        let help = "Total user and system CPU time spent in seconds";
        let metric = encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
        ConstCounter::new(usage.cpu_seconds).encode(metric)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::histogram::Histogram;
    use prometheus_client::metrics::info::Info;
    use prometheus_client::registry::Unit;

    use super::*;

    #[test]
    fn both_formats_say_the_same_in_their_own_words() {
        let mut registry = Registry::default();
        let calls = Counter::<u64>::default();
        calls.inc();
        registry.register("calls", "Calls", calls);
        registry.register("build", "Which one", Info::new([("version", "1")]));
        let histogram = Histogram::new([0.5]);
        histogram.observe(0.25);
        registry.register_with_unit("latency", "How long", Unit::Seconds, histogram);
        let open_metrics = "# HELP calls Calls.\n# TYPE calls counter\ncalls_total 1\n\
            # HELP build Which one.\n# TYPE build info\nbuild_info{version=\"1\"} 1\n\
            # HELP latency_seconds How long.\n# TYPE latency_seconds histogram\n# UNIT latency_seconds seconds\n\
            latency_seconds_sum 0.25\nlatency_seconds_count 1\n\
            latency_seconds_bucket{le=\"0.5\"} 1\nlatency_seconds_bucket{le=\"+Inf\"} 1\n# EOF\n";
        assert_eq!(Format::OpenMetrics.write(&registry).unwrap(), open_metrics);
        let prometheus = "# HELP calls_total Calls.\n# TYPE calls_total counter\ncalls_total 1\n\
            # HELP build_info Which one.\n# TYPE build_info gauge\nbuild_info{version=\"1\"} 1\n\
            # HELP latency_seconds How long.\n# TYPE latency_seconds histogram\n\
            latency_seconds_sum 0.25\nlatency_seconds_count 1\n\
            latency_seconds_bucket{le=\"0.5\"} 1\nlatency_seconds_bucket{le=\"+Inf\"} 1\n";
        assert_eq!(Format::Prometheus.write(&registry).unwrap(), prometheus);
    }

    #[test]
    fn open_metrics_is_for_who_asks_for_it() {
        let mut headers = HeaderMap::new();
        assert_eq!(Format::of(&headers), Format::Prometheus);
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/plain;version=0.0.4;q=0.5,*/*;q=0.1"));
        assert_eq!(Format::of(&headers), Format::Prometheus);
        let accept = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        assert_eq!(Format::of(&headers), Format::OpenMetrics);
    }

    #[test]
    fn a_duration_is_in_the_first_bucket_that_holds_it() {
        let times = Times::new(&[1_000, 2_000]);
        for nanos in [0, 1_000_000, 1_000_001, 2_000_000, 2_000_001] {
            times.record(Duration::from_nanos(nanos));
        }
        let counts: Vec<_> = times.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        assert_eq!((counts, times.sum_nanos.into_inner()), (vec![2, 2, 1], 6_000_002));
    }

    #[derive(Debug)]
    struct Speechless;

    impl Collector for Speechless {
        fn encode(&self, _: DescriptorEncoder<'_>) -> fmt::Result {
            Err(fmt::Error)
        }
    }

    #[test]
    fn half_of_the_metrics_are_none() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process));
        registry.register_collector(Box::new(Speechless));
        assert!(Format::Prometheus.write(&registry).is_err() && Format::OpenMetrics.write(&registry).is_err());
    }

    #[test]
    fn the_process_knows_what_it_uses() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process));
        let text = Format::Prometheus.write(&registry).unwrap();
        let value = |name: &str| {
            let line = text.lines().find(|line| line.split(' ').next() == Some(name)).unwrap();
            line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()
        };
        assert!(value("process_resident_memory_bytes") > 100_000);
        // Another test drops some.
        assert!(value("connections_dropped_total") <= 2);
        assert!(value("process_virtual_memory_bytes") > value("process_resident_memory_bytes"));
        assert!(text.contains("process_cpu_seconds_total ") && text.contains("process_start_time_seconds 1"), "{text}");
        assert!((3..=value("process_max_fds")).contains(&value("process_open_fds")));
    }
}
