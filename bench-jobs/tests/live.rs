//! The figures that a load shows while it goes on: `/metrics` of real `bench-job` processes that load a real redis-server.
//!
//! Needs redis-server in the peers folder; `peers/fetch redis` puts it there.

// Helpers of a test fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use bench_jobs::net::http_client::get;
use harness::{dashboard, free_address, free_port};
use serde_json::{Value, json};
use storebench_crds::job::Phase;

use support::job::Job;
use support::redis::Redis;

/// A job with one workload named `w`, which reads so many keys back that a scrape meanwhile is certain.
fn spec(redis: &Redis, load: Value, processes: u32) -> Value {
    let parameters = json!({ "command": "Set", "keySpace": 200_000, "keyOrder": "Sequential" });
    let mut spec = json!({
        "run": "test", "arm": "redis", "trial": 0, "seed": 42, "endpoints": [redis.endpoint()], "parallelism": processes,
        "workloads": [{ "name": "w", "redis": parameters, "load": load }],
    });
    if processes > 1 {
        spec["barrier"] = json!(format!("localhost:{}", free_port()));
    }
    spec
}

fn scrape(address: &str) -> String {
    get(address, "/metrics", Duration::from_secs(5)).unwrap()
}

/// The value of one series.
fn value(text: &str, series: &str) -> u64 {
    let found = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {series} in\n{text}")).parse().unwrap()
}

fn requests(text: &str) -> u64 {
    value(text, "storebench_job_requests_total{workload=\"w\"}")
}

#[test]
fn figures_grow_while_it_loads_and_come_to_what_the_result_says() {
    let redis = Redis::start(&[]);
    let address = free_address().to_string();
    let load = json!({ "connections": 2, "duration": "2s", "warmUp": "0s" });
    let mut job = Job::start(&spec(&redis, load, 1), &["--metrics-listen", &address]);
    job.until(Phase::Measure);
    let mut seen = Vec::new();
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(300));
        let text = scrape(&address);
        assert_eq!(value(&text, "storebench_job_phase{workload=\"w\",phase=\"measure\"}"), 1);
        assert_eq!(value(&text, "storebench_job_phase{workload=\"w\",phase=\"verify\"}"), 0);
        seen.push(requests(&text));
    }
    assert!(seen[0] > 0 && seen.is_sorted_by(|earlier, later| earlier < later), "{seen:?}");
    job.until(Phase::Verify);
    let text = scrape(&address);
    dashboard::check("dashboards/live.json", "storebench_job_", &text);
    let ended = job.end();
    let operations = ended.measured().operations;
    assert_eq!(requests(&text), operations);
    let answered = value(&text, "storebench_job_service_latency_seconds_count{workload=\"w\"}");
    assert_eq!(answered, operations, "each answer has one latency");
    assert_eq!(value(&text, "storebench_job_errors_total{workload=\"w\"}"), 0);
    assert_eq!(value(&text, "storebench_job_wrong_answers_total{workload=\"w\"}"), 0);
}

#[test]
fn each_of_several_processes_shows_its_own_share_and_together_they_show_the_whole() {
    let redis = Redis::start(&[]);
    let load = json!({ "connections": 4, "total": 30_001, "warmUp": "0s" });
    let spec = spec(&redis, load, 2);
    let addresses = [0, 1].map(|_| free_address().to_string());
    let start = |number: usize| {
        let arguments = ["--process", &number.to_string(), "--metrics-listen", &addresses[number]];
        Job::start(&spec, &arguments)
    };
    let mut jobs = [0, 1].map(start);
    jobs.iter_mut().for_each(|job| job.until(Phase::Verify));
    let shown = addresses.each_ref().map(|address| requests(&scrape(address)));
    let measured = jobs.map(|job| job.end().measured().operations);
    assert_eq!(shown, measured);
    assert_eq!(shown.iter().sum::<u64>(), 30_001);
}

#[test]
fn a_port_that_somebody_has_costs_the_figures_and_not_the_trial() {
    let redis = Redis::start(&[]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let load = json!({ "connections": 1, "total": 100, "warmUp": "0s" });
    let ended = Job::start(&spec(&redis, load, 1), &["--metrics-listen", &address]).end();
    assert_eq!(ended.measured().operations, 100);
    let said = format!("bench-job: no live figures: --metrics-listen {address}: ");
    assert!(ended.errors.lines().any(|line| line.starts_with(&said)), "{}", ended.errors);
}
