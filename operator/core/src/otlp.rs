//! A finished run as OpenTelemetry's metrics: the body of one POST to the `/v1/metrics` of an OTLP/HTTP receiver, in JSON
//! (`ExportMetricsServiceRequest` of opentelemetry-proto 1).
//!
//! The gauges are the operator's ([`crate::gauges`]), and all are of one instant, the end of the run: what is sent twice is the same samples
//! twice.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::gauges;
use crate::judgement::Report;
use crate::status::status;

/// What is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Payload {
    /// The body.
    pub body: Value,
    /// How many data points are in it.
    pub points: usize,
}

/// The figures of a run that ended at this time, Unix time in nanoseconds.
pub fn payload(report: &Report, ended_unix_nanos: i128) -> Payload {
    // 64-bit integers are strings in the JSON of protocol buffers.
    let time = ended_unix_nanos.to_string();
    let mut points: BTreeMap<&'static str, Vec<Value>> = BTreeMap::new();
    gauges::read(&status(report), |name, labels, value| {
        let of_run = [("run", report.record.name.clone())];
        let attributes: Vec<Value> =
            of_run.into_iter().chain(labels).map(|(key, value)| attribute(key, &value)).collect();
        let point = json!({ "attributes": attributes, "timeUnixNano": time, "asDouble": value });
        points.entry(name).or_default().push(point);
    });
    let count = points.values().map(Vec::len).sum();
    let about: BTreeMap<&str, &str> = gauges::all().collect();
    // No unit: receivers that translate to Prometheus would add it to names that have it.
    let metric = |(name, points): (&str, Vec<Value>)| {
        let name_in_full = format!("{}_{name}", gauges::PREFIX);
        let description = about.get(name).copied().unwrap_or_default();
        json!({ "name": name_in_full, "description": description, "gauge": { "dataPoints": points } })
    };
    let metrics: Vec<Value> = points.into_iter().map(metric).collect();
    let version = report.record.storebench_version.as_str();
    let resource = [attribute("service.name", "storebench"), attribute("service.version", version)];
    let body = json!({
        "resourceMetrics": [{
            "resource": { "attributes": resource },
            "scopeMetrics": [{ "scope": { "name": "storebench", "version": version }, "metrics": metrics }],
        }],
    });
    Payload { body, points: count }
}

fn attribute(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::two_arms;

    #[test]
    fn every_figure_is_a_gauge_of_the_run_and_of_its_end() {
        let report = two_arms();
        let Payload { body, points } = payload(&report, 1_763_832_615_000_000_000);
        let resource = &body["resourceMetrics"][0]["resource"]["attributes"][0];
        assert_eq!(resource, &attribute("service.name", "storebench"));
        let metrics = body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap();
        let of = |metric: &Value| metric["gauge"]["dataPoints"].as_array().unwrap().clone();
        assert_eq!(metrics.iter().map(|metric| of(metric).len()).sum::<usize>(), points);
        let throughput = metrics.iter().find(|metric| metric["name"] == "storebench_result_throughput_per_second");
        let throughput = throughput.unwrap();
        assert!(!throughput["description"].as_str().unwrap().is_empty(), "{throughput}");
        let result = &report.judgement.results[0];
        let point = &of(throughput)[0];
        assert_eq!(point["asDouble"].as_f64(), Some(result.throughput_milli as f64 / 1e3));
        assert_eq!(point["timeUnixNano"], "1763832615000000000");
        let attributes = point["attributes"].as_array().unwrap();
        for (key, value) in [("run", &report.record.name), ("workload", &result.workload), ("arm", &result.arm)] {
            assert!(attributes.contains(&attribute(key, value)), "{key} is not in {point}");
        }
        // A value that JSON cannot hold would be null, which receivers refuse with all the rest.
        assert!(metrics.iter().flat_map(of).all(|point| point["asDouble"].is_f64()), "{body}");
        assert_eq!(payload(&report, 1_763_832_615_000_000_000).body, body);
    }
}
