//! `bench-job` against a real etcd: every operation and option, a store that dies or hangs, and a store whose data is
//! tampered with during a run.
//!
//! Needs etcd in the peers folder; `peers/fetch etcd` puts it there. A run may end as hindered by a busy machine, which
//! says nothing about the store: figures are checked all the same.

// Clippy knows tests by their attribute, and helpers have none.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::thread::sleep;
use std::time::{Duration, Instant};

use bench_jobs::net::etcd::messages::{RangeRequest, RangeResponse, path};
use rustix::process::Signal;
use serde_json::{Value, json};
use storebench_crds::job::{JobLine, JobOutcome, JobSummary, Phase, WorkloadSummary};
use storebench_crds::measure::Reading;

use support::etcd::Etcd;
use support::job::Job;

const TIMEOUT: Duration = Duration::from_secs(2);

fn key(number: u32) -> String {
    format!("storebench/{number:021}")
}

/// A job of one workload: ten clients on two connections unless `load` says otherwise.
fn job(etcd: &Etcd, workload: Value, load: Value) -> Value {
    let mut merged = json!({ "connections": 2, "clients": 10, "warmUp": "0s", "timeout": "20s" });
    for (name, value) in load.as_object().unwrap() {
        merged[name] = value.clone();
    }
    json!({
        "run": "test", "arm": "etcd", "trial": 0, "seed": 7, "endpoints": [etcd.endpoint],
        "workloads": [{ "name": "w", "etcd": workload, "load": merged }],
    })
}

/// The same of a workload of the key-value family.
fn key_value(etcd: &Etcd, workload: Value, load: Value) -> Value {
    let mut job = job(etcd, json!({}), load);
    let of_etcd = job["workloads"][0].as_object_mut().unwrap();
    of_etcd.remove("etcd");
    of_etcd.insert("keyValue".into(), workload);
    job
}

/// Runs a job; `at` is called when the measured phase has begun.
fn run_with(job: &Value, at: impl FnOnce()) -> JobSummary {
    let mut running = Job::start(job, &[]);
    running.until(Phase::Measure);
    at();
    running.end().summary
}

/// The figures of a run in which nothing was wrong with the store, and whether nothing hindered the loader either.
fn measured(job: &Value) -> (WorkloadSummary, bool) {
    let summary = run_with(job, || {});
    let unhindered = match &summary.outcome {
        JobOutcome::Completed => true,
        JobOutcome::Hindered { .. } => false,
        other => panic!("{job}: {other:?}"),
    };
    let figures = summary.workloads[0].clone();
    assert_eq!(figures.errors, 0, "{job}");
    (figures, unhindered)
}

/// The key and detail of the first wrong answer.
fn wrong(summary: JobSummary) -> (String, String) {
    match summary.outcome {
        JobOutcome::WrongAnswer { key, detail, .. } => {
            assert!(!detail.contains('\n') && !key.contains('\n'));
            (key, detail)
        }
        other => panic!("expected a wrong answer: {other:?}"),
    }
}

// --- a broken word -----------------------------------------------------------

/// etcd runs with --unsafe-no-fsync here.
#[test]
fn a_store_that_does_not_sync_as_it_was_told_to_does_not_count() {
    let etcd = Etcd::start();
    let told = |durability: &str, operation: &str| {
        let mut job = job(&etcd, json!({ "operation": operation }), json!({ "total": 5000 }));
        let counters = json!({ "etcd_disk_wal_fsync_duration_seconds_count": 1 });
        job["durability"] = json!(durability);
        job["syncCounters"] = json!([{ "address": etcd.endpoint, "path": "/metrics", "counters": counters }]);
        run_with(&job, || {}).outcome
    };
    let JobOutcome::StoreFailed { detail, .. } = told("Fsync", "Put") else { panic!("it counts") };
    assert!(
        detail.contains(
            "durability Fsync is not kept: 5000 writes were acknowledged, of which at most 10 were on their way"
        ),
        "{detail}"
    );
    assert!(!matches!(told("None", "Put"), JobOutcome::StoreFailed { .. }));
    assert!(!matches!(told("Fsync", "Range"), JobOutcome::StoreFailed { .. }));
}

// --- stale answers ------------------------------------------------------------

#[test]
fn a_store_that_reads_once_and_remembers_is_found_although_the_load_only_reads() {
    let faulty = Etcd::faulty(&["stale-read-millis=60000"]);
    let load = json!({ "duration": "1s" });
    let (_, detail) =
        wrong(run_with(&job(&faulty, json!({ "operation": "Range", "keySpace": 100 }), load.clone()), || {}));
    assert!(detail.contains("expected"), "{detail}");
    let parameters = json!({ "operation": "Get", "keySpace": 100 });
    wrong(run_with(&key_value(&faulty, parameters, load), || {}));
}

/// One connection goes to the first member; the second answers from memory.
#[test]
fn a_stale_follower_is_found_although_the_load_never_asks_it() {
    let faulty = Etcd::faulty(&["stale-read-millis=60000"]);
    let upstream = faulty.behind_the_proxy();
    for operation in ["Range", "Mixed"] {
        let mut workload = json!({ "operation": operation, "keySpace": 20 });
        if operation == "Mixed" {
            workload["readPercent"] = json!(50);
        }
        let load = json!({ "duration": "1s", "connections": 1, "clients": 1 });
        let mut job = job(&faulty, workload, load);
        job["endpoints"] = json!([upstream, faulty.endpoint]);
        let (_, detail) = wrong(run_with(&job, || {}));
        assert!(
            detail.contains(&format!("a linearizable read at {} is stale", faulty.endpoint)),
            "{operation}: {detail}"
        );
    }
}

#[test]
fn a_store_that_ignores_what_a_swap_compares_is_found_although_every_swap_of_the_load_must_succeed() {
    let (faulty, etcd) = (Etcd::faulty(&["ignore-compares"]), Etcd::start());
    let swaps = |etcd: &Etcd| {
        let parameters = json!({ "operation": "CompareAndSwap", "keySpace": 100 });
        run_with(&key_value(etcd, parameters, json!({ "total": 500 })), || {})
    };
    assert!(wrong(swaps(&faulty)).1.contains("the store does not compare"));
    let figures = &swaps(&etcd).workloads[0];
    assert_eq!((figures.operations, figures.errors), (500, 0));
}

// --- right answers -----------------------------------------------------------

#[test]
fn locks_are_contended_for() {
    let etcd = Etcd::start();
    for (locks, total) in [(1, 60), (4, 200)] {
        let parameters = json!({ "operation": "Lock", "locks": locks });
        let (figures, _) = measured(&key_value(&etcd, parameters, json!({ "total": total, "timeout": "10s" })));
        assert_eq!(figures.operations, total);
        // Of each its holder and its fenced write, and at the end what it guards.
        assert!(figures.verified >= 2 * total + locks, "{}", figures.verified);
    }
}

#[test]
fn every_operation_completes_and_counts_what_it_did() {
    let etcd = Etcd::start();
    let total = 500;
    for (workload, per_request, verified_at_least) in [
        (json!({ "operation": "Put", "keySpace": 100 }), 1, 90),
        (json!({ "operation": "Put", "keySpace": 100, "keyOrder": "Sequential", "valueBytes": 8 }), 1, 100),
        (json!({ "operation": "Put", "keySpace": 3, "keyBytes": 24 }), 1, 3),
        (json!({ "operation": "Put", "keySpace": 20, "valueBytes": 100_000 }), 1, 20),
        (json!({ "operation": "Range", "keySpace": 100 }), 1, 600),
        (json!({ "operation": "Range", "keySpace": 5, "keyOrder": "Sequential" }), 1, 505),
        (json!({ "operation": "Range", "keySpace": 100, "consistency": "Serializable" }), 1, 600),
        (json!({ "operation": "Range", "keySpace": 100, "countOnly": true }), 1, 600),
        (json!({ "operation": "Range", "keySpace": 100, "keysOnly": true }), 1, 600),
        (json!({ "operation": "Range", "keySpace": 100, "scope": "Prefix" }), 1, 600),
        (json!({ "operation": "Range", "keySpace": 100, "scope": "Prefix", "limit": 7, "keysOnly": true }), 1, 600),
        (json!({ "operation": "Range", "keySpace": 100, "scope": "Prefix", "limit": 100 }), 1, 600),
        (
            json!({ "operation": "Range", "keySpace": 100, "scope": "Prefix", "countOnly": true,
                    "consistency": "Serializable" }),
            1,
            600,
        ),
        (json!({ "operation": "Delete", "keySpace": 1000 }), 1, 1500),
        (json!({ "operation": "Delete", "keySpace": 100, "keyOrder": "Sequential" }), 1, 600),
        (json!({ "operation": "Delete", "keySpace": 7 }), 1, 507),
        (json!({ "operation": "TxnPut", "keySpace": 1000, "operationsPerTransaction": 20 }), 1, 900),
        (json!({ "operation": "TxnPut", "keySpace": 128, "operationsPerTransaction": 128 }), 1, 128),
        (json!({ "operation": "TxnPut", "keySpace": 100, "keyOrder": "Sequential" }), 1, 100),
        (json!({ "operation": "Mixed", "keySpace": 100, "readPercent": 50 }), 1, 200),
        (json!({ "operation": "Mixed", "keySpace": 100, "readPercent": 90, "consistency": "Serializable" }), 1, 400),
        (json!({ "operation": "Mixed", "keySpace": 2, "readPercent": 50 }), 1, 150),
        (json!({ "operation": "WatchLatency", "keySpace": 100 }), 1, 500),
        (json!({ "operation": "WatchLatency", "keySpace": 2 }), 1, 500),
        (
            json!({ "operation": "WatchLatency", "keySpace": 100, "watchers": 5, "streams": 3, "previousValue": true }),
            5,
            2500,
        ),
        (json!({ "operation": "WatchThroughput", "keySpace": 100, "watchers": 6, "streams": 2 }), 6, 3000),
        (json!({ "operation": "WatchThroughput", "keySpace": 3, "streams": 4, "previousValue": true }), 1, 500),
        (json!({ "operation": "LeaseKeepAlive" }), 1, 500),
    ] {
        let (figures, _) = measured(&job(&etcd, workload.clone(), json!({ "total": total })));
        assert_eq!(figures.operations, total * per_request, "{workload}");
        assert!(figures.verified >= verified_at_least, "{workload}: verified {}", figures.verified);
        assert!(figures.service.p50_nanos > 0 && figures.intended.is_none());
    }
}

#[test]
fn open_loops_threads_and_warm_ups_change_nothing_about_what_is_right() {
    let etcd = Etcd::start();
    let open = json!({ "total": 500, "mode": "OpenLoop", "rate": 1000, "warmUp": "100ms" });
    let two_threads = json!({ "total": 500, "threads": 2, "warmUp": "100ms" });
    for (workload, per_request) in [
        (json!({ "operation": "Put" }), 1),
        (json!({ "operation": "Range" , "keySpace": 500}), 1),
        (json!({ "operation": "Delete", "keySpace": 500 }), 1),
        (json!({ "operation": "TxnPut", "operationsPerTransaction": 4 }), 1),
        (json!({ "operation": "Mixed", "keySpace": 500, "readPercent": 30 }), 1),
        (json!({ "operation": "WatchLatency", "watchers": 3, "streams": 2 }), 3),
        (json!({ "operation": "WatchThroughput", "keySpace": 4, "watchers": 3, "streams": 3 }), 3),
        (json!({ "operation": "LeaseKeepAlive" }), 1),
    ] {
        for load in [&open, &two_threads] {
            let (figures, unhindered) = measured(&job(&etcd, workload.clone(), load.clone()));
            // An open loop leaves requests out when the machine was too slow for its timetable, and says so.
            let complete = figures.operations == 500 * per_request;
            let cut_short = load["rate"].is_number() && !unhindered && figures.operations % per_request == 0;
            assert!(complete || cut_short, "{workload} {load}: {} operations", figures.operations);
            assert_eq!(figures.intended.is_some(), load["rate"].is_number());
        }
    }
    // Several workloads in one job: each begins with a clean prefix and with counters from 1.
    let mut several = job(&etcd, json!({ "operation": "Put", "keySpace": 100 }), json!({ "total": 500 }));
    for operation in ["Put", "Range", "Delete"] {
        let mut next = several["workloads"][0].clone();
        next["name"] = json!(operation.to_lowercase());
        next["etcd"]["operation"] = json!(operation);
        several["workloads"].as_array_mut().unwrap().push(next);
    }
    several["workloads"].as_array_mut().unwrap().retain(|workload| workload["name"] != "w");
    measured(&several);
}

#[test]
fn compaction_runs_along_and_forgets_the_history() {
    let etcd = Etcd::start();
    for workload in [
        json!({ "operation": "Put", "keySpace": 100, "compactInterval": "50ms", "compactKeepRevisions": 10 }),
        json!({ "operation": "WatchThroughput", "keySpace": 100, "compactInterval": "50ms", "previousValue": true,
                "compactKeepRevisions": 5_000 }),
    ] {
        measured(&job(&etcd, workload, json!({ "duration": "700ms" })));
    }
    let old = RangeRequest { key: key(0).into(), revision: 2, ..RangeRequest::default() };
    let error = etcd.ask::<_, RangeResponse>(path::RANGE, &old).unwrap_err();
    assert!(error.to_string().contains("has been compacted"), "{error}");
}

// --- a store that fails ------------------------------------------------------

#[test]
fn a_killed_or_hanging_store_fails_the_run_in_one_line_and_in_time() {
    for (signal, workload) in [
        (Signal::KILL, json!({ "operation": "Put" })),
        (Signal::KILL, json!({ "operation": "WatchLatency", "watchers": 2 })),
        (Signal::KILL, json!({ "operation": "LeaseKeepAlive" })),
        (Signal::STOP, json!({ "operation": "Mixed", "readPercent": 50, "keySpace": 100 })),
        (Signal::STOP, json!({ "operation": "WatchThroughput" })),
    ] {
        let etcd = Etcd::start();
        let mut hit = None;
        let summary = run_with(&job(&etcd, workload.clone(), json!({ "duration": "20s", "timeout": "2s" })), || {
            sleep(Duration::from_millis(200));
            etcd.signal(signal);
            hit = Some(Instant::now());
        });
        let waited = hit.unwrap().elapsed();
        // Far less than the run would have lasted; not sharper, for a busy machine.
        assert!(waited < TIMEOUT + Duration::from_secs(14), "{workload}: ended after {waited:?}");
        let JobOutcome::StoreFailed { detail, .. } = summary.outcome else {
            panic!("{workload}: {:?}", summary.outcome);
        };
        assert!(!detail.is_empty() && !detail.contains('\n'), "{workload}: {detail}");
        if signal == Signal::STOP {
            assert!(detail.contains("no answer within 2s"), "{detail}");
        }
    }
}

// --- a store that is tampered with -------------------------------------------

#[test]
fn what_others_change_during_a_run_is_a_wrong_answer_that_names_the_key() {
    let etcd = Etcd::start();
    let pause = || sleep(Duration::from_millis(150));
    let duration = json!({ "duration": "3s" });
    let run = |workload: Value, load: &Value, tamper: &dyn Fn()| {
        wrong(run_with(&job(&etcd, workload, load.clone()), || {
            pause();
            tamper();
        }))
    };

    let (name, detail) = run(json!({ "operation": "Range", "keySpace": 50 }), &duration, &|| {
        etcd.put(&key(7), b"changed from outside");
    });
    assert_eq!(name, key(7), "{detail}");
    assert!(detail.contains("changed from outside"), "{detail}");

    let (name, detail) = run(json!({ "operation": "Range", "keySpace": 50 }), &duration, &|| etcd.delete(&key(8)));
    assert_eq!(name, key(8), "{detail}");
    assert!(detail.contains("no such key"), "{detail}");

    // The writers overwrite it again; the store's counter of puts tells.
    let (name, detail) = run(json!({ "operation": "Put", "keySpace": 50 }), &duration, &|| etcd.delete(&key(9)));
    assert_eq!(name, key(9), "{detail}");
    assert!(detail.contains("put count"), "{detail}");

    // The same where several clients write the same keys.
    let (name, detail) = run(json!({ "operation": "Put", "keySpace": 3 }), &duration, &|| etcd.delete(&key(1)));
    assert_eq!(name, key(1), "{detail}");
    assert!(detail.contains("put count"), "{detail}");

    // Overwritten and restored while nobody looks: one client deletes the first keys in order, slowly.
    let slow = json!({ "connections": 1, "clients": 1, "total": 20, "mode": "OpenLoop", "rate": 20 });
    let aside = json!({ "operation": "Delete", "keySpace": 50, "keyOrder": "Sequential" });
    let (name, detail) = run(aside, &slow, &|| {
        let value = etcd.get(&key(40));
        etcd.put(&key(40), b"something else");
        etcd.put(&key(40), &value);
    });
    assert_eq!(name, key(40), "{detail}");
    assert_eq!(detail, "expected put count 1 since the key was created, found 3");

    let (name, detail) = run(json!({ "operation": "Put", "keySpace": 50 }), &duration, &|| etcd.put(&key(50), b"new"));
    assert_eq!((name, detail.as_str()), (key(50), "nobody wrote this key"));

    // A whole prefix, in which one key is missing.
    let prefix = json!({ "operation": "Range", "keySpace": 50, "scope": "Prefix" });
    let (name, detail) = run(prefix, &duration, &|| etcd.delete(&key(11)));
    assert_eq!(name, key(11), "{detail}");

    // Watchers are told of everything, and of nothing that nobody sent.
    for operation in ["WatchLatency", "WatchThroughput"] {
        let watch = json!({ "operation": operation, "keySpace": 5000, "watchers": 2 });
        let (name, detail) = run(watch, &duration, &|| etcd.put(&key(12), b"foreign"));
        assert_eq!(name, key(12), "{detail}");
        assert!(detail.contains("watcher"), "{detail}");
    }

    // A key that was deleted does not come back. All are gone long before the foreign put.
    let (name, detail) = run(json!({ "operation": "Delete", "keySpace": 20 }), &duration, &|| etcd.put(&key(13), b"x"));
    assert_eq!(name, key(13), "{detail}");
    assert_eq!(detail, "expected a deletion to find 0 keys, for it was deleted before, it found 1");
}

#[test]
fn a_failover_is_refused_where_nobody_kills() {
    let etcd = Etcd::start();
    let parameters = json!({ "operation": "Failover", "killAfter": "1s", "restartAfter": "1s" });
    let (status, said) = Job::start(&key_value(&etcd, parameters, json!({ "duration": "4s" })), &[]).fail();
    assert_eq!(status.code(), Some(1), "it is no fault of the store");
    assert!(said.contains("the job has neither strikesMembers nor metersStrike"), "{said}");
}

/// Ten clients of a slow open loop: the last waits for nine seconds before its first request, longer than its lease lasts.
#[test]
fn a_lease_lives_as_long_as_its_client_waits_for_its_turn() {
    let etcd = Etcd::start();
    let load = json!({ "mode": "OpenLoop", "rate": 1, "duration": "11s", "timeout": "1s" });
    let ended = Job::start(&key_value(&etcd, json!({ "operation": "Lock", "keySpace": 10 }), load), &[]).end();
    let measured = ended.measured();
    assert!(measured.operations >= 10 && measured.verified >= 20, "{measured:?}");
    let expired = ended.lines.iter().find_map(|line| match line {
        JobLine::Measure { measure, reading, .. } if measure == "expiredLeases" => Some(reading.clone()),
        _ => None,
    });
    assert_eq!(expired, Some(Reading::Total(0)), "each was kept alive in time");
}

/// A client that was stopped for longer than its lease lasts has itself to blame.
#[test]
fn a_lease_that_a_stopped_loader_let_end_is_taken_anew_and_no_fault_of_the_store() {
    let etcd = Etcd::start();
    let load =
        json!({ "connections": 1, "clients": 1, "mode": "OpenLoop", "rate": 1, "duration": "12s", "timeout": "1s" });
    let mut running = Job::start(&key_value(&etcd, json!({ "operation": "Lock", "keySpace": 10 }), load), &[]);
    running.until(Phase::Measure);
    // Between two requests, of which one is due each second and takes some milliseconds.
    sleep(Duration::from_millis(1_500));
    running.signal(Signal::STOP);
    sleep(Duration::from_secs(8));
    running.signal(Signal::CONT);
    let ended = running.end();
    match &ended.summary.outcome {
        JobOutcome::Completed | JobOutcome::Hindered { .. } => {}
        other => panic!("{other:?}: {}", ended.errors),
    }
    let expired = ended.lines.iter().find_map(|line| match line {
        JobLine::Measure { measure, reading: Reading::Total(total), .. } if measure == "expiredLeases" => Some(*total),
        _ => None,
    });
    assert!(expired.is_some_and(|expired| expired >= 1), "{expired:?}");
}
