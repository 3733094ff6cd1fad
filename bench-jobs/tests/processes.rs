//! Several `bench-job` processes that make the load of one trial together, against one real store.
//!
//! Needs redis-server and etcd in the peers folder; `peers/fetch` puts them there.

// Helpers of a test fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::process::Command;
use std::time::{Duration, Instant};

use harness::free_port;
use rustix::process::Signal;
use serde_json::{Value, json};
use storebench_crds::job::{JobOutcome, Phase};

use support::etcd::Etcd;
use support::job::{Ended, Job};
use support::redis::{Redis, commands};

const PROCESSES: u32 = 3;

fn spec(endpoint: &str, workloads: Value) -> Value {
    json!({
        "run": "test", "arm": "a", "trial": 0, "seed": 42, "endpoints": [endpoint],
        "parallelism": PROCESSES, "barrier": format!("localhost:{}", free_port()), "workloads": workloads,
    })
}

/// Starts the processes, the first last: the others wait for it.
fn start(spec: &Value) -> Vec<Job> {
    let mut jobs: Vec<Job> =
        (0..PROCESSES).rev().map(|number| Job::start(spec, &["--process", &number.to_string()])).collect();
    jobs.reverse();
    jobs
}

/// One workload named `w`, to its end.
fn run(endpoint: &str, family: &str, parameters: Value, load: Value) -> Vec<Ended> {
    let spec = spec(endpoint, json!([{ "name": "w", family: parameters, "load": load }]));
    start(&spec).into_iter().map(Job::end).collect()
}

fn operations(all: &[Ended]) -> u64 {
    all.iter().map(|ended| ended.measured().operations).sum()
}

#[test]
fn processes_begin_together_and_share_connections_requests_and_keys() {
    let redis = Redis::start(&[]);
    let load = json!({ "connections": 8, "threads": 2, "total": 3001, "warmUp": "50ms" });
    let set = json!({ "command": "Set", "keySpace": 301, "keyOrder": "Sequential" });
    let all = run(&redis.endpoint(), "redis", set, load);
    let each: Vec<u64> = all.iter().map(|ended| ended.measured().operations).collect();
    assert_eq!(each, [1001, 1000, 1000]);
    let verified: Vec<u64> = all.iter().map(|ended| ended.measured().verified).collect();
    assert_eq!(verified, [101, 100, 100], "each reads back its own keys");
    assert_eq!(redis.command("DBSIZE"), ":301\r\n", "nobody wrote the keys of another");
    let starts: Vec<u64> = all.iter().map(|ended| ended.audit().started_unix_nanos).collect();
    let (first, last) = (starts.iter().min().unwrap(), starts.iter().max().unwrap());
    assert!(*first > 0 && last - first < 1_000_000_000, "{starts:?}");
}

#[test]
fn every_kind_of_redis_command_is_verified_in_each_process() {
    let redis = Redis::start(&[]);
    let load = json!({ "connections": 6, "total": 600, "warmUp": "30ms" });
    // PING has nothing to compare.
    for command in commands().iter().filter(|command| !command.starts_with("Ping")) {
        let mut parameters = json!({ "command": command, "keySpace": 90, "valueBytes": 40, "pipeline": 2 });
        if command == "Mixed" {
            parameters["readPercent"] = json!(50);
        }
        let all = run(&redis.endpoint(), "redis", parameters, load.clone());
        assert_eq!(operations(&all), 600, "{command}");
        assert!(all.iter().all(|ended| ended.measured().verified >= 25), "{command}");
    }
}

#[test]
fn every_kind_of_etcd_request_is_verified_in_each_process() {
    let etcd = Etcd::start();
    let load = json!({ "connections": 3, "clients": 9, "total": 300, "warmUp": "30ms" });
    for (parameters, keys) in [
        (json!({ "operation": "Put", "keySpace": 100, "keyOrder": "Sequential" }), 100),
        // Fewer keys than clients: several write the same, but never those of another process.
        (json!({ "operation": "Put", "keySpace": 4 }), 4),
        (json!({ "operation": "Range", "keySpace": 100 }), 100),
        (json!({ "operation": "Range", "keySpace": 100, "scope": "Prefix" }), 100),
        (json!({ "operation": "Range", "keySpace": 100, "scope": "Prefix", "limit": 40, "keysOnly": true }), 100),
        (json!({ "operation": "Range", "keySpace": 100, "scope": "Prefix", "countOnly": true }), 100),
        (json!({ "operation": "Mixed", "keySpace": 100, "readPercent": 50 }), 100),
        (
            json!({ "operation": "TxnPut", "keySpace": 120, "operationsPerTransaction": 10, "keyOrder": "Sequential" }),
            120,
        ),
        (json!({ "operation": "Delete", "keySpace": 100, "keyOrder": "Sequential" }), 0),
        (json!({ "operation": "LeaseKeepAlive" }), 0),
        (json!({ "operation": "Put", "keySpace": 60, "keyOrder": "Sequential", "compactInterval": "20ms" }), 60),
    ] {
        let all = run(&etcd.endpoint, "etcd", parameters.clone(), load.clone());
        assert_eq!(operations(&all), 300, "{parameters}");
        assert!(all.iter().all(|ended| ended.measured().verified >= 1), "{parameters}");
        assert_eq!(etcd.count("storebench/"), keys, "{parameters}");
    }
}

#[test]
fn a_timetable_is_shared_out_whole() {
    let redis = Redis::start(&[]);
    let load = json!({ "connections": 9, "duration": "1s", "warmUp": "50ms", "mode": "OpenLoop", "rate": 1000 });
    let all = run(&redis.endpoint(), "redis", json!({ "command": "Get", "keySpace": 300 }), load);
    assert_eq!(operations(&all), 1_000);
    let scheduled: Vec<u64> = all.iter().map(|ended| ended.audit().scheduled).collect();
    assert_eq!(scheduled, [334, 333, 333]);
}

#[test]
fn what_one_process_finds_ends_all_with_the_same_outcome() {
    let etcd = Etcd::start();
    let slow = json!({ "connections": 3, "duration": "4s", "warmUp": "0s", "mode": "OpenLoop", "rate": 100 });
    let put = json!({ "operation": "Range", "keySpace": 90 });
    let workload = |name| json!({ "name": name, "etcd": put, "load": slow });
    let mut jobs = start(&spec(&etcd.endpoint, json!([workload("first"), workload("second")])));
    jobs[0].until(Phase::Measure);
    // Key 40 of 90 is of the second third.
    etcd.put(&format!("storebench/{:021}", 40), b"changed from outside");
    for (number, ended) in jobs.into_iter().map(Job::end).enumerate() {
        match &ended.summary.outcome {
            JobOutcome::WrongAnswer { workload, key, .. } => {
                assert_eq!((workload.as_str(), key.as_str()), ("first", "storebench/000000000000000000040"));
            }
            // Of what it found itself, on a busy machine; only the second process reads the key.
            JobOutcome::Hindered { .. } if number != 1 => {}
            other => panic!("process {number}: {other:?}"),
        }
        assert!(ended.summary.workloads.iter().all(|workload| workload.name == "first"), "process {number}");
    }
}

#[test]
fn a_killed_process_ends_the_others_in_time_and_in_one_line() {
    let redis = Redis::start(&[]);
    let load = json!({ "connections": 3, "duration": "2s", "warmUp": "0s" });
    let workload = json!([{ "name": "w", "redis": { "command": "Set" }, "load": load }]);
    for (killed, said) in [(1, "load process 1 is gone"), (0, "load process 0 is gone")] {
        let mut jobs = start(&spec(&redis.endpoint(), workload.clone()));
        jobs[0].until(Phase::Measure);
        let at = Instant::now();
        jobs[killed].signal(Signal::KILL);
        drop(jobs.remove(killed));
        for job in jobs {
            let (status, errors) = job.fail();
            assert_eq!(status.code(), Some(1), "{errors}");
            let line = errors.lines().last().unwrap_or_default();
            assert!(line.starts_with("bench-job: barrier: ") && line.contains(said), "{errors}");
        }
        assert!(at.elapsed() < Duration::from_secs(20), "{:?}", at.elapsed());
    }
}

#[test]
fn an_unrelated_process_is_turned_away_and_the_others_go_on() {
    let redis = Redis::start(&[]);
    let load = json!({ "connections": 3, "total": 300, "warmUp": "0s" });
    let ours = spec(&redis.endpoint(), json!([{ "name": "w", "redis": { "command": "Set" }, "load": load }]));
    let mut theirs = ours.clone();
    theirs["trial"] = json!(1);
    let first = Job::start(&ours, &["--process", "0"]);
    let stranger = Job::start(&theirs, &["--process", "1"]);
    let (_, errors) = stranger.fail();
    assert!(errors.contains("belongs to another trial"), "{errors}");
    let others = ["1", "2"].map(|number| Job::start(&ours, &["--process", number]));
    assert_eq!(operations(&[first].into_iter().chain(others).map(Job::end).collect::<Vec<_>>()), 300);
}

#[test]
fn a_job_may_come_without_a_file_and_its_number_from_the_environment() {
    let redis = Redis::start(&[]);
    let load = json!({ "connections": 1, "total": 10, "warmUp": "0s" });
    let mut alone = spec(&redis.endpoint(), json!([{ "name": "w", "redis": { "command": "Set" }, "load": load }]));
    alone["parallelism"] = json!(1);
    let bench_job = |arguments: &[&str], environment: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bench-job"));
        let output = command.args(arguments).envs(environment.iter().copied()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let text = alone.to_string();
    assert_eq!(bench_job(&["--job-json", &text], &[]).0, Some(0));
    assert_eq!(bench_job(&[], &[("BENCH_JOB_JSON", &text), ("JOB_COMPLETION_INDEX", "0")]).0, Some(0));
    let (code, said) = bench_job(&[], &[("BENCH_JOB_JSON", &text), ("JOB_COMPLETION_INDEX", "1")]);
    assert_eq!((code, said.as_str()), (Some(1), "bench-job: --process 1: must be less than the job's processes, 1\n"));
    let (code, said) = bench_job(&["--job", "job.json", "--job-json", &text], &[]);
    assert!(code == Some(1) && said.contains("cannot be used with"), "{said}");
    let (code, said) = bench_job(&[], &[]);
    assert!(code == Some(1) && said.contains("--job"), "{said}");
}
