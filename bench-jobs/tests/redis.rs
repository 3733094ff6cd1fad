//! `bench-job` against a real redis-server: every command, both protocols, stalls, deaths and wrong answers.
//!
//! Needs redis-server in the peers folder; `peers/fetch redis` puts it there. A run may end as hindered by a
//! busy machine, which says nothing about the store: answers and figures are checked all the same.

// Helpers of a test fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use harness::free_port;
use rustix::process::Signal;
use serde_json::{Value, json};
use storebench_crds::job::{Hindrance, JobLine, JobOutcome, LatencyKind, Phase, decode_histogram};

use support::job::{Ended, Job};
use support::redis::{Redis, commands};

/// A workload named `w`; `redis` and `load` as users write them.
fn workload(redis: Value, load: Value) -> Value {
    json!({ "name": "w", "redis": redis, "load": load })
}

fn start(port: u16, workload: Value, arguments: &[&str]) -> Job {
    let spec = json!({
        "run": "test", "arm": "redis", "trial": 0, "seed": 42,
        "endpoints": [format!("127.0.0.1:{port}")], "workloads": [workload],
    });
    Job::start(&spec, arguments)
}

fn run(redis: &Redis, parameters: Value, load: Value) -> Ended {
    start(redis.port, workload(parameters, load), &[]).end()
}

fn parameters(command: &str, protocol: &str, pipeline: u32) -> Value {
    let mut parameters =
        json!({ "command": command, "protocol": protocol, "pipeline": pipeline, "valueBytes": 40, "keySpace": 300 });
    if command == "Mixed" {
        parameters["readPercent"] = json!(50);
    }
    parameters
}

fn phases(ended: &Ended) -> Vec<Phase> {
    let phase = |line: &JobLine| match line {
        JobLine::Phase { phase, .. } => Some(*phase),
        _ => None,
    };
    ended.lines.iter().filter_map(phase).collect()
}

/// How many latencies of a kind were reported.
fn recorded(ended: &Ended, kind: LatencyKind) -> Option<u64> {
    ended.lines.iter().find_map(|line| match line {
        JobLine::Histogram { latency, data, .. } if *latency == kind => Some(decode_histogram(data).unwrap().len()),
        _ => None,
    })
}

/// Every request is answered, counted and recorded, and every answer that can be checked was.
fn check_every_command(protocol: &str, pipeline: u32, threads: u32) {
    let redis = Redis::start(&[]);
    for command in commands().iter().map(String::as_str) {
        let load = json!({ "connections": 5, "threads": threads, "total": 2000, "warmUp": "30ms" });
        let ended = run(&redis, parameters(command, protocol, pipeline), load);
        let measured = ended.measured();
        assert_eq!((measured.operations, measured.errors), (2000, 0), "{command}");
        assert!(measured.elapsed_nanos > 0 && measured.service.max_nanos > 0 && measured.intended.is_none());
        // Writes are checked when they are read back: as many as keys were drawn. PING has nothing to compare.
        let least = match command {
            "PingInline" | "Ping" => 0,
            "Set" | "Mset" => 250,
            "Mixed" => 1_000,
            _ => 2_000,
        };
        assert!(measured.verified >= least, "{command}: {} verified", measured.verified);
        assert_eq!(recorded(&ended, LatencyKind::Service), Some(2000), "{command}");
        assert!(ended.lines.iter().any(|line| matches!(line, JobLine::Audit { .. })));
        let all = [Phase::Prepare, Phase::WarmUp, Phase::Measure, Phase::Verify, Phase::Done];
        assert_eq!(phases(&ended), all);
    }
}

/// It runs with `appendonly no`.
#[test]
fn a_store_that_says_another_setting_than_it_was_given_is_not_loaded() {
    let redis = Redis::start(&[]);
    let told = |name: &str, value: &str| {
        let workload = workload(parameters("Set", "Resp2", 1), json!({ "connections": 1, "total": 10 }));
        let spec = json!({
            "run": "test", "arm": "redis", "trial": 0, "seed": 42, "endpoints": [redis.endpoint()],
            "storeSettings": { "appendfsync": "everysec", name: value }, "workloads": [workload],
        });
        Job::start(&spec, &[]).end().summary.outcome
    };
    let JobOutcome::StoreFailed { detail, .. } = told("appendonly", "yes") else { panic!("it was loaded") };
    assert!(detail.contains("durability is not kept: appendonly is no at 127.0.0.1:"), "{detail}");
    let JobOutcome::StoreFailed { detail, .. } = told("append-only", "yes") else { panic!("it was loaded") };
    assert!(detail.contains("CONFIG GET append-only: there is no such setting"), "{detail}");
    assert!(!matches!(told("appendonly", "no"), JobOutcome::StoreFailed { .. }));
}

/// A module or a neighbour may do so when nobody looks.
#[test]
fn a_setting_that_is_taken_back_during_the_load_is_found() {
    let redis = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let workload =
        workload(parameters("Set", "Resp2", 1), json!({ "connections": 1, "duration": "1s", "warmUp": "100ms" }));
    let spec = json!({
        "run": "test", "arm": "redis", "trial": 0, "seed": 42, "endpoints": [redis.endpoint()],
        "storeSettings": { "appendfsync": "always" }, "workloads": [workload],
    });
    let mut job = Job::start(&spec, &[]);
    job.until(Phase::Measure);
    assert_eq!(redis.command("CONFIG SET appendfsync no"), "+OK\r\n");
    let JobOutcome::StoreFailed { detail, .. } = job.end().summary.outcome else { panic!("it counts") };
    assert!(detail.contains("durability is not kept: appendfsync is no at 127.0.0.1:"), "{detail}");
    assert!(detail.ends_with("and always was asked for after the load"), "{detail}");
}

#[test]
fn every_command_resp2() {
    check_every_command("Resp2", 1, 1);
}

#[test]
fn every_command_resp2_pipelined() {
    check_every_command("Resp2", 16, 2);
}

#[test]
fn every_command_resp3() {
    check_every_command("Resp3", 1, 2);
}

#[test]
fn every_command_resp3_pipelined() {
    check_every_command("Resp3", 16, 1);
}

#[test]
fn unusual_shapes_are_measured_too() {
    let redis = Redis::start(&[]);
    let mixed = |value_bytes: u32, key_space: u32, pipeline: u32| {
        json!({ "command": "Mixed", "readPercent": 60, "valueBytes": value_bytes, "keySpace": key_space,
                "pipeline": pipeline, "keyOrder": "Sequential" })
    };
    let total = |total: u32| json!({ "connections": 7, "threads": 3, "total": total, "warmUp": "0s" });
    // Values that fill socket buffers in both directions; one-byte values; fewer keys than clients.
    for (parameters, requests) in
        [(mixed(1_048_576, 20, 8), 150), (mixed(1, 500, 1000), 5_000), (mixed(100, 3, 16), 3_000)]
    {
        let ended = run(&redis, parameters, total(requests));
        assert_eq!(ended.measured().operations, u64::from(requests));
        assert_eq!(phases(&ended), [Phase::Prepare, Phase::Measure, Phase::Verify, Phase::Done]);
    }
    for command in ["Incr", "Sadd", "Hset", "Zadd", "Mset", "Lpop", "Spop"] {
        let parameters = json!({ "command": command, "valueBytes": 3, "keySpace": 2, "pipeline": 4 });
        assert_eq!(run(&redis, parameters, total(1_000)).measured().operations, 1_000, "{command}");
    }
    let load = json!({ "connections": 4, "duration": "1500ms", "warmUp": "100ms" });
    let ended = run(&redis, parameters("Get", "Resp2", 4), load);
    assert!(ended.measured().elapsed_nanos >= 1_490_000_000, "{:?}", ended.summary);
    let progress = ended.lines.iter().any(|line| matches!(line, JobLine::Progress { operations: 1.., .. }));
    assert!(progress, "{:?}", ended.lines);
}

fn open_loop(connections: u32, rate: u64, duration: &str) -> Value {
    json!({ "connections": connections, "mode": "OpenLoop", "rate": rate, "duration": duration, "warmUp": "100ms" })
}

#[test]
fn an_open_loop_keeps_its_timetable() {
    harness::again_if_late(harness::BUSY, || {
        let redis = Redis::start(&[]);
        let mut load = open_loop(10, 2_000, "1s");
        load["threads"] = json!(2);
        let ended = run(&redis, parameters("Set", "Resp2", 1), load);
        is_in_reach(&ended)?;
        let measured = ended.measured();
        assert_eq!(measured.operations, 2_000);
        let intended = measured.intended.unwrap();
        assert!(intended.max_nanos >= measured.service.max_nanos);
        assert_eq!(recorded(&ended, LatencyKind::Intended), Some(2_000));
        let scheduled = ended.lines.iter().find_map(|line| match line {
            JobLine::Audit { audit, .. } => Some(audit.scheduled),
            _ => None,
        });
        assert_eq!(scheduled, Some(2_000));
        let seconds = measured.elapsed_nanos as f64 / 1e9;
        if (0.9..1.5).contains(&seconds) { Ok(()) } else { Err(format!("it took {seconds} s")) }
    });
}

/// Whether a rate was reached that stores and loaders reach on a machine that does not stand still.
fn is_in_reach(ended: &Ended) -> Result<(), String> {
    match &ended.summary.outcome {
        JobOutcome::Hindered { hindrance: Hindrance::RateNotReached, detail, .. } => Err(detail.clone()),
        _ => Ok(()),
    }
}

/// The store stands still for 1.1 s. Requests that were due meanwhile had to wait, and the result says so; the service
/// time, which only ten requests spent waiting, hides it.
#[test]
fn a_stall_is_not_omitted() {
    harness::again_if_late(harness::BUSY, || {
        let redis = Redis::start(&[]);
        let parameters = parameters("Get", "Resp2", 1);
        let mut job = start(redis.port, workload(parameters, open_loop(10, 1_000, "4s")), &[]);
        job.until(Phase::Measure);
        thread::sleep(Duration::from_millis(1_000));
        redis.signal(Signal::STOP);
        thread::sleep(Duration::from_millis(1_100));
        redis.signal(Signal::CONT);
        let ended = job.end();
        is_in_reach(&ended)?;
        let measured = ended.measured();
        assert_eq!(measured.operations, 4_000, "nothing was dropped");
        let (service, intended) = (measured.service, measured.intended.unwrap());
        let is_told = intended.p999_nanos > 800_000_000
            && intended.max_nanos > 1_000_000_000
            && intended.p90_nanos > 300_000_000
            && service.p99_nanos < intended.p90_nanos
            && service.max_nanos > 1_000_000_000;
        if is_told { Ok(()) } else { Err(format!("{service:?}, {intended:?}")) }
    });
}

#[test]
fn a_rate_out_of_reach_is_said_to_be() {
    let redis = Redis::start(&[]);
    let ended = run(&redis, parameters("Set", "Resp2", 1), open_loop(1, 5_000_000, "300ms"));
    match &ended.summary.outcome {
        // One thread cannot send so much: it is the loader that is late, and not said to be the store.
        JobOutcome::Hindered { hindrance: Hindrance::RateNotReached | Hindrance::Saturated, detail, .. } => {
            assert!(detail.contains("of 1500000 requests"), "{detail}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_store_that_dies_has_failed() {
    let redis = Redis::start(&[]);
    let load = json!({ "connections": 20, "threads": 2, "duration": "20s", "warmUp": "0s" });
    let mut job = start(redis.port, workload(parameters("Set", "Resp2", 4), load), &[]);
    job.until(Phase::Measure);
    thread::sleep(Duration::from_millis(300));
    let killed = Instant::now();
    redis.signal(Signal::KILL);
    let ended = job.end();
    let detail = ended.store_failed();
    let address = format!("127.0.0.1:{}", redis.port);
    assert!(detail.contains(&address), "{detail}");
    assert!(["closed", "reset", "Broken pipe"].iter().any(|word| detail.contains(word)), "{detail}");
    assert!(killed.elapsed() < Duration::from_secs(5));
    assert_eq!(phases(&ended).last(), Some(&Phase::Done));
}

#[test]
fn a_store_that_hangs_has_failed() {
    let redis = Redis::start(&[]);
    for load in [
        json!({ "connections": 3, "duration": "20s", "warmUp": "0s", "timeout": "400ms" }),
        json!({ "connections": 3, "duration": "20s", "warmUp": "0s", "timeout": "400ms", "mode": "OpenLoop", "rate": 100 }),
    ] {
        let mut job = start(redis.port, workload(parameters("Get", "Resp2", 1), load), &[]);
        job.until(Phase::Measure);
        let stopped = Instant::now();
        redis.signal(Signal::STOP);
        let ended = job.end();
        redis.signal(Signal::CONT);
        assert_eq!(ended.store_failed(), "no answer within 400ms");
        assert!(stopped.elapsed() < Duration::from_secs(5));
    }
}

/// A load that waits 400 ms for an answer and is measuring.
fn measuring_with_little_patience(redis: &Redis) -> Job {
    let load = json!({ "connections": 3, "duration": "20s", "warmUp": "0s", "timeout": "400ms" });
    let mut job = start(redis.port, workload(parameters("Get", "Resp2", 1), load), &[]);
    job.until(Phase::Measure);
    job
}

/// A machine that is frozen or suspended: the loader and the store.
#[test]
fn a_store_that_hangs_while_the_loader_stands_still_too_has_not_failed() {
    let redis = Redis::start(&[]);
    let job = measuring_with_little_patience(&redis);
    redis.signal(Signal::STOP);
    job.signal(Signal::STOP);
    thread::sleep(Duration::from_secs(1));
    job.signal(Signal::CONT);
    let ended = job.end();
    redis.signal(Signal::CONT);
    match &ended.summary.outcome {
        JobOutcome::Hindered { hindrance: Hindrance::ProcessorWithheld, detail, .. } => {
            assert!(detail.ends_with("before it failed: no answer within 400ms"), "{detail}");
        }
        other => panic!("{other:?}"),
    }
}

/// That the loader stood still explains an answer that did not come, and no process that has died.
#[test]
fn a_store_that_dies_while_the_loader_stands_still_has_failed() {
    let redis = Redis::start(&[]);
    let job = measuring_with_little_patience(&redis);
    job.signal(Signal::STOP);
    redis.signal(Signal::KILL);
    thread::sleep(Duration::from_secs(1));
    job.signal(Signal::CONT);
    let outcome = job.end().summary.outcome;
    assert!(matches!(outcome, JobOutcome::StoreFailed { .. }), "{outcome:?}");
}

#[test]
fn a_store_that_is_not_there_has_failed() {
    let started = Instant::now();
    let load = json!({ "connections": 3, "total": 10 });
    let ended = start(free_port(), workload(parameters("Set", "Resp2", 1), load), &[]).end();
    assert!(ended.store_failed().ends_with("tried for 5s: Connection refused"), "{}", ended.store_failed());
    assert!((4..15).contains(&started.elapsed().as_secs()));
}

#[test]
fn a_store_that_starts_late_is_waited_for() {
    let redis = Redis::start(&[]);
    let port = redis.port;
    drop(redis);
    let load = json!({ "connections": 3, "total": 10, "warmUp": "0s" });
    let job = start(port, workload(parameters("Set", "Resp2", 1), load), &[]);
    thread::sleep(Duration::from_millis(500));
    let _redis = Redis::start_on(port, &[]);
    assert_eq!(job.end().measured().operations, 10);
}

#[test]
fn an_error_reply_is_a_failure() {
    let redis = Redis::start(&["--maxmemory", "1mb", "--maxmemory-policy", "noeviction"]);
    let load = json!({ "connections": 3, "total": 1000, "warmUp": "0s" });
    let ended = run(&redis, parameters("Set", "Resp2", 2), load);
    assert!(ended.store_failed().contains(": SET: OOM command not allowed"), "{}", ended.store_failed());
}

/// Runs `command` and meanwhile changes the store from outside, again and again.
fn tampered(command: &str, tamper: &str) -> (String, u64, String) {
    let redis = Redis::start(&[]);
    let load = json!({ "connections": 10, "threads": 2, "duration": "4s", "warmUp": "0s" });
    let mut job = start(redis.port, workload(parameters(command, "Resp2", 2), load), &[]);
    job.until(Phase::Measure);
    for _ in 0..4 {
        thread::sleep(Duration::from_millis(100));
        let reply = redis.command(tamper);
        assert!(!reply.starts_with('-'), "{reply}");
    }
    match job.end().summary.outcome {
        JobOutcome::WrongAnswer { workload, count, key, detail } => {
            assert_eq!(workload, "w");
            assert!(count > 0 && !detail.contains('\n'));
            (key, count, detail)
        }
        other => panic!("{command} with {tamper}: {other:?}"),
    }
}

#[test]
fn wrong_answers_are_found_and_the_key_named() {
    let (key, count, detail) = tampered("Get", "SET key:000000000007 planted");
    assert_eq!(key, "key:000000000007");
    assert_eq!(detail, "expected version 1, found 7 bytes that were never written, \"planted\"");
    assert!(count > 1, "{count}");
    let (key, _, detail) = tampered("Get", "DEL key:000000000042");
    assert_eq!(key, "key:000000000042");
    assert_eq!(detail, "expected version 1, found no such key");
    let (key, _, detail) = tampered("Incr", "INCRBY counter:000000000011 5");
    assert_eq!(key, "counter:000000000011");
    assert!(detail.starts_with("expected the count "), "{detail}");
    let (key, _, detail) = tampered("Mixed", "FLUSHALL");
    assert!(key.starts_with("key:"), "{key}");
    assert!(detail.ends_with("found no such key"), "{detail}");
    let (key, _, _) = tampered("Sadd", "SREM myset element:000000000013");
    assert_eq!(key, "element:000000000013");
    let (key, _, _) = tampered("Lpush", "LPOP mylist");
    assert_eq!(key, "mylist");
    let (key, _, detail) = tampered("Lrange100", "LSET mylist 99 planted");
    assert_eq!(key, "mylist");
    assert!(detail.starts_with("expected element 99, found 7 bytes"), "{detail}");
    let (key, _, _) = tampered("Xadd", "XTRIM mystream MAXLEN 1");
    assert_eq!(key, "mystream");
}

#[test]
fn what_is_lost_at_the_end_is_found_when_read_back() {
    // Two elements of ten are popped by someone else before anyone measures: nobody sees it but the sum.
    let redis = Redis::start(&[]);
    let load = json!({ "connections": 1, "duration": "1s", "warmUp": "0s", "mode": "OpenLoop", "rate": 5 });
    let parameters = json!({ "command": "Spop", "keySpace": 10 });
    let mut job = start(redis.port, workload(parameters, load), &[]);
    job.until(Phase::Measure);
    redis.command("SPOP myset 2");
    match job.end().summary.outcome {
        JobOutcome::WrongAnswer { key, detail, .. } => {
            assert_eq!(key, "myset");
            assert_eq!(detail, "expected SCARD 5, found 3");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_bad_job_is_refused_in_one_line() {
    let bench_job =
        |arguments: &[&str]| Command::new(env!("CARGO_BIN_EXE_bench-job")).args(arguments).output().unwrap();
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bad-{}.json", std::process::id()));
    let spec = json!({
        "run": "test", "arm": "redis", "trial": 0, "seed": 42, "endpoints": ["127.0.0.1:1"],
        "workloads": [workload(json!({ "command": "Set", "pipeline": 0 }), json!({ "total": 10 }))],
    });
    std::fs::write(&file, spec.to_string()).unwrap();
    let output = bench_job(&["--job", file.to_str().unwrap()]);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "bench-job: workloads[0].redis.pipeline: is 0: give a number from 1 to 1000\n");
    assert_eq!(bench_job(&["--nonsense"]).status.code(), Some(1));
    let help = bench_job(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8(help.stdout).unwrap().contains("Exit code:"));
}
