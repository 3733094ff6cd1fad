//! `bench-job` against a real block-node: every operation, publishers that race, a node that dies, and one that lies.
//!
//! Needs block-node beside the tests; `cargo build --release -p block-node` puts it there. A run may end as hindered by a busy machine,
//! which says nothing about the store: figures are checked all the same.

// Clippy knows tests by their attribute, and helpers have none.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use storebench_crds::job::{Hindrance, JobLine, JobOutcome, Phase};
use storebench_crds::measure::Reading;

use support::block_node::{BlockNode, Liar};
use support::job::{Ended, Job};
use support::meter::Meter;

/// A job of one workload: two connections unless `load` says otherwise.
fn job(endpoint: &str, workload: Value, load: Value) -> Value {
    let mut merged = json!({ "connections": 2, "warmUp": "0s", "timeout": "5s" });
    for (name, value) in load.as_object().unwrap() {
        merged[name] = value.clone();
    }
    json!({
        "run": "test", "arm": "block-node", "trial": 0, "seed": 7, "endpoints": [endpoint],
        "workloads": [{ "name": "w", "blockStream": workload, "load": merged }],
    })
}

fn run(endpoint: &str, workload: Value, load: Value) -> Ended {
    Job::start(&job(endpoint, workload, load), &[]).end()
}

fn measure(ended: &Ended, wanted: &str) -> Option<u64> {
    ended.lines.iter().find_map(|line| match line {
        JobLine::Measure { measure, reading, .. } if measure == wanted => Some(match reading {
            Reading::Total(total) | Reading::Largest(total) => *total,
            Reading::Durations(distribution) => distribution.decode().unwrap().len(),
        }),
        _ => None,
    })
}

#[test]
fn every_operation_answers_rightly_and_each_answer_is_checked() {
    // One store for all: each workload learns what those before it published.
    let node = BlockNode::start();
    // The workload, how many operations a request is, and how many blocks there are afterwards.
    for (workload, per_request, stored) in [
        (json!({ "operation": "Publish", "blockBytes": 2000 }), 1, 200),
        (json!({ "operation": "Publish", "blockBytes": 2000, "window": 32, "itemsPerBlock": 3 }), 1, 400),
        (json!({ "operation": "Publish", "blockBytes": 2000, "hashRules": "Legacy" }), 1, 600),
        (json!({ "operation": "GetBlock" }), 1, 600),
        (json!({ "operation": "GetBlock", "blockOrder": "Sequential", "historyBlocks": 620 }), 1, 620),
        (json!({ "operation": "ServerStatus" }), 1, 620),
        (json!({ "operation": "Subscribe" }), 1, 620),
        (json!({ "operation": "Subscribe", "from": "Live", "blockBytes": 2000 }), 2, 820),
    ] {
        let ended = run(&node.endpoint, workload.clone(), json!({ "total": 200 }));
        let figures = ended.measured();
        assert_eq!(figures.operations, 200 * per_request, "{workload}");
        assert!(figures.verified >= 200 * per_request, "{workload}: verified {}", figures.verified);
        assert_eq!(measure(&ended, "storedBlocks"), Some(stored), "{workload}");
        let publishes = workload["operation"] == "Publish" || workload["from"] == "Live";
        assert_eq!(measure(&ended, "acknowledgement"), publishes.then_some(200), "{workload}");
        assert_eq!(measure(&ended, "unnamedBlocks"), publishes.then_some(0), "{workload}");
        let moves_blocks = workload["operation"] != "ServerStatus";
        let bytes = measure(&ended, "blockBytes");
        assert_eq!(bytes.is_some_and(|bytes| bytes > 200 * 1_500), moves_blocks, "{workload}: {bytes:?}");
    }
}

#[test]
fn refusals_are_counted_apart_and_blocks_are_published_beside_the_reads() {
    let node = BlockNode::start();
    let mixed = json!({
        "operation": "Mixed", "publishRate": 50, "window": 50, "historyBlocks": 20, "refusalPercent": 50, "blockBytes": 2000
    });
    let ended = run(&node.endpoint, mixed, json!({ "duration": "1s", "connections": 3, "warmUp": "200ms" }));
    let (hits, refusals) = (ended.measured().operations, measure(&ended, "refusals").unwrap());
    assert!(hits > 50 && refusals > 50, "{hits} hits, {refusals} refusals");
    assert_eq!(measure(&ended, "refusalLatency"), Some(refusals));
    let (acknowledged, stored) =
        (measure(&ended, "acknowledgement").unwrap(), measure(&ended, "storedBlocks").unwrap());
    assert!(acknowledged > 20 && stored > 20 + acknowledged, "{acknowledged} of {stored} in the measured phase");
}

/// Fewer blocks beside the reads make these faster: who publishes more slowly than was asked does other work than who keeps up.
#[test]
fn a_rate_of_blocks_beside_the_reads_that_is_missed_is_told_and_its_waiting_counts() {
    let node = BlockNode::start();
    // One block on its way at a time, each of which is synced: no disk does so many.
    let mixed =
        json!({ "operation": "Mixed", "publishRate": 100_000, "window": 1, "historyBlocks": 20, "blockBytes": 1000 });
    let ended = run(&node.endpoint, mixed, json!({ "duration": "1s" }));
    let JobOutcome::Hindered { hindrance, detail, .. } = &ended.summary.outcome else {
        panic!("{:?}", ended.summary.outcome);
    };
    // Whose delay it was cannot be told on a busy machine.
    assert!(matches!(hindrance, Hindrance::RateNotReached | Hindrance::Saturated), "{hindrance:?}: {detail}");
    assert!(detail.contains("requests that were due beside the load could be sent"), "{detail}");
    let waits = ended.lines.iter().find_map(|line| match line {
        JobLine::Measure { measure, reading: Reading::Durations(durations), .. } if measure == "acknowledgement" => {
            Some(durations.decode().unwrap().value_at_quantile(0.5))
        }
        _ => None,
    });
    // After half a second, what was due in the first quarter of one at most has been sent.
    assert!(waits.unwrap() > 200_000_000, "{waits:?}");
}

#[test]
fn open_loops_many_publishers_and_large_blocks_change_nothing_about_what_is_right() {
    let node = BlockNode::start();
    let open = json!({ "total": 100, "mode": "OpenLoop", "rate": 400, "warmUp": "100ms", "connections": 1 });
    for (workload, load, per_request) in [
        (json!({ "operation": "Publish", "window": 16 }), open.clone(), 1),
        (json!({ "operation": "Subscribe", "from": "Live", "window": 16 }), open.clone(), 1),
        (json!({ "operation": "GetBlock" }), open, 1),
        (
            json!({ "operation": "Publish", "window": 16 }),
            json!({ "total": 300, "connections": 8, "warmUp": "100ms" }),
            1,
        ),
        (json!({ "operation": "Publish", "blockBytes": 3_000_000 }), json!({ "total": 6 }), 1),
        (json!({ "operation": "Subscribe", "from": "Live", "blockBytes": 3_000_000 }), json!({ "total": 6 }), 2),
        (json!({ "operation": "Subscribe", "from": "Live" }), json!({ "total": 30, "connections": 32 }), 32),
    ] {
        let ended = run(&node.endpoint, workload.clone(), load.clone());
        let complete = ended.summary.workloads[0].operations == load["total"].as_u64().unwrap() * per_request;
        // An open loop leaves requests out when the machine was too slow for its timetable, and says so.
        let cut_short = load["rate"].is_number() && matches!(ended.summary.outcome, JobOutcome::Hindered { .. });
        assert!(complete || cut_short, "{workload} {load}: {:?}", ended.summary);
        assert!(matches!(ended.summary.outcome, JobOutcome::Completed | JobOutcome::Hindered { .. }), "{workload}");
    }
}

/// What a block looks like where its content begins; see `block.rs` of the family.
const RECIPE: &[u8] = b"storebch";

fn wrong(ended: &Ended) -> (&str, &str) {
    match &ended.summary.outcome {
        JobOutcome::WrongAnswer { key, detail, .. } => (key, detail),
        other => panic!("{other:?}: {}", ended.errors),
    }
}

#[test]
fn a_node_that_changes_a_byte_of_a_block_is_caught_by_readers_subscribers_and_at_the_end() {
    let node = BlockNode::start();
    let filled = run(&node.endpoint, json!({ "operation": "Publish", "blockBytes": 2000 }), json!({ "total": 100 }));
    filled.measured();
    // What was there before is read whole first: the lies begin behind that.
    for (workload, first) in [
        (json!({ "operation": "GetBlock", "historyBlocks": 1 }), 100),
        (json!({ "operation": "Subscribe", "historyBlocks": 1 }), 120),
        (json!({ "operation": "Subscribe", "from": "Live", "blockBytes": 2000 }), 110),
        // Nothing is read in the load: what was acknowledged is read back behind it.
        (json!({ "operation": "Publish", "blockBytes": 2000 }), 110),
    ] {
        let liar = Liar::before(&node, RECIPE, 200, first);
        let mut load = json!({ "total": 200, "connections": 1 });
        if workload["operation"] == "Publish" || workload["from"] == "Live" {
            // What lies there afterwards is right, and the next of these workloads learns it.
            load["total"] = json!(40);
        }
        let ended = Job::start(&job(&liar.endpoint, workload.clone(), load), &[]).end();
        let (key, detail) = wrong(&ended);
        assert!(liar.lies() > 0 && key.starts_with("block "), "{workload}: {key}: {detail}");
        assert!(detail.contains("its items do not hash to what its proof says"), "{workload}: {detail}");
    }
    // And before the load, in what it learns.
    let liar = Liar::before(&node, RECIPE, 200, 50);
    let ended =
        Job::start(&job(&liar.endpoint, json!({ "operation": "ServerStatus" }), json!({ "total": 1 })), &[]).end();
    let (_, detail) = wrong(&ended);
    assert!(detail.starts_with("was there before this workload, and its items do not hash"), "{detail}");
}

/// It looked like one that acknowledges all.
#[test]
fn a_node_that_acknowledges_one_block_of_ten_is_told_from_one_that_acknowledges_each() {
    let node = BlockNode::start();
    let liar = Liar::silent_but_for(&node, |number| number % 10 == 9);
    let workload = json!({ "operation": "Publish", "blockBytes": 2000, "window": 20 });
    let ended = Job::start(&job(&liar.endpoint, workload, json!({ "total": 200, "connections": 1 })), &[]).end();
    assert_eq!(ended.measured().operations, 200);
    // The first ten may have been before the stream.
    assert_eq!((liar.lies(), measure(&ended, "unnamedBlocks")), (180, Some(171)));
}

#[test]
fn a_node_that_refuses_the_blocks_is_quoted() {
    let node = BlockNode::start_with(&[]);
    let ended = run(&node.endpoint, json!({ "operation": "Publish" }), json!({ "total": 10 }));
    let said = ended.store_failed();
    assert!(said.contains("the node ended the stream: BAD_BLOCK_PROOF (6)"), "{said}");
}

#[test]
fn a_node_that_dies_or_hangs_fails_the_job_within_its_timeout() {
    for signal in [Signal::KILL, Signal::STOP] {
        for workload in [
            json!({ "operation": "Publish" }),
            json!({ "operation": "Subscribe", "from": "Live" }),
            json!({ "operation": "GetBlock", "historyBlocks": 10 }),
        ] {
            let node = BlockNode::start();
            let spec = job(&node.endpoint, workload.clone(), json!({ "duration": "60s", "timeout": "2s" }));
            let mut running = Job::start(&spec, &[]);
            running.until(Phase::Measure);
            let begun = Instant::now();
            node.signal(signal);
            let ended = running.end();
            let took = begun.elapsed();
            assert!(took < Duration::from_secs(30), "{workload}: took {took:?}");
            assert!(!ended.store_failed().is_empty());
        }
    }
}

#[test]
fn a_meter_tries_the_protocol_out_and_counts_syncs() {
    let node = BlockNode::start();
    let port = node.endpoint.rsplit(':').next().unwrap();
    let syncs = format!("{port}/metrics,block_node_batch_sync_seconds_count=1");
    let meter = Meter::start("block-stream", &node.endpoint, &["--pid", &node.pid().to_string(), "--syncs", &syncs]);
    let checks: Vec<Value> = meter.read("/protocol");
    assert_eq!(checks.len(), 5, "{checks:?}");
    assert!(checks.iter().all(|check| check["ok"] == true), "{checks:?}");
    assert_eq!(checks[1]["detail"], env!("CARGO_PKG_VERSION"));
    let syncs = || meter.ask("/fsyncs").unwrap().trim().parse::<u64>().unwrap();
    let before = syncs();
    run(&node.endpoint, json!({ "operation": "Publish", "window": 1 }), json!({ "total": 20, "connections": 1 }))
        .measured();
    assert_eq!(syncs() - before, 20, "one block in flight: one sync each");
}
