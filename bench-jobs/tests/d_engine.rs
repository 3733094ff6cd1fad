//! `bench-job` against real members of d-engine: its streaming door, and what the dialect of its release 0.2.4 does not have.
//!
//! Needs d-engine beside the tests; `cargo build --release -p d-engine` puts it there. A run may end as hindered by a busy machine, which
//! says nothing about the store: figures are checked all the same.

// Clippy knows tests by their attribute, and helpers have none.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{Process, TempDir, command, free_address};
use serde_json::{Value, json};
use storebench_crds::job::{JobOutcome, WorkloadSummary};

use support::job::Job;

/// Members on ports of their own; killed when dropped.
struct Group {
    endpoints: Vec<String>,
    _members: Vec<Process>,
    _folder: TempDir,
}

impl Group {
    fn start(size: usize) -> Self {
        let folder = harness::folder();
        let addresses: Vec<String> = (0..2 * size).map(|_| free_address().to_string()).collect();
        let (endpoints, peers) = addresses.split_at(size);
        let named = endpoints.iter().zip(peers).enumerate();
        let members: Vec<String> = named.map(|(at, (own, peer))| format!("{}={own},{peer}", at + 1)).collect();
        let start = |id: usize| {
            let mut server = command(harness::own("d-engine"));
            server.args(["serve", "--log-level", "error", "--node-id", &id.to_string(), "--durability", "none"]);
            server.arg("--db-root-dir").arg(folder.path().join(id.to_string()));
            server.env("D_ENGINE_MEMBERS", members.join(" "));
            // No election while the machine stands still.
            server.env("D_ENGINE_ELECTION_TIMEOUT_MS", "5000");
            Process::start(&mut server)
        };
        let processes = (1..=size).map(start).collect();
        Self { endpoints: endpoints.to_vec(), _members: processes, _folder: folder }
    }

    /// Runs one workload; its figures.
    fn run(&self, workload: Value, load: Value) -> WorkloadSummary {
        let mut merged = json!({ "connections": 4, "clients": 12, "warmUp": "0s", "timeout": "10s" });
        for (name, value) in load.as_object().unwrap() {
            merged[name] = value.clone();
        }
        let job = json!({
            "run": "test", "arm": "d-engine", "trial": 0, "seed": 7, "endpoints": self.endpoints,
            "workloads": [{ "name": "w", "keyValue": workload, "load": merged }],
        });
        let summary = Job::start(&job, &[]).end().summary;
        match &summary.outcome {
            JobOutcome::Completed | JobOutcome::Hindered { .. } => summary.workloads[0].clone(),
            other => panic!("{job}: {other:?}"),
        }
    }
}

#[test]
fn locks_are_contended_for() {
    let group = Group::start(3);
    for (locks, total) in [(1, 60), (4, 200)] {
        let figures = group.run(json!({ "operation": "Lock", "locks": locks }), json!({ "total": total }));
        assert_eq!((figures.operations, figures.errors), (total, 0));
        // Of each its holder and its fenced write, and at the end what it guards.
        assert!(figures.verified >= 2 * total + locks, "{}", figures.verified);
    }
}

#[test]
fn bounded_reads_are_no_older_than_they_say() {
    let group = Group::start(3);
    let workload =
        json!({ "operation": "Mixed", "readPercent": 50, "readLevel": "Bounded", "maxAge": "1ms", "keySpace": 12 });
    let figures = group.run(workload, json!({ "total": 5000 }));
    assert_eq!((figures.operations, figures.errors), (5000, 0));
    let figures =
        group.run(json!({ "operation": "Get", "readLevel": "Bounded", "maxAge": "1s" }), json!({ "total": 500 }));
    assert_eq!((figures.operations, figures.errors), (500, 0));
}

#[test]
fn every_request_that_may_goes_by_the_streaming_door() {
    let group = Group::start(3);
    let by_stream = |mut workload: Value| {
        workload["door"] = "Streaming".into();
        group.run(workload, json!({ "total": 3000 }))
    };
    for workload in [
        json!({ "operation": "Put", "keySpace": 100 }),
        json!({ "operation": "Get", "keySpace": 100 }),
        json!({ "operation": "Get", "keySpace": 100, "readLevel": "Lease" }),
        json!({ "operation": "Get", "keySpace": 100, "readLevel": "Eventual" }),
        json!({ "operation": "Mixed", "readPercent": 50, "keySpace": 24 }),
        json!({ "operation": "CompareAndSwap", "keySpace": 24 }),
        json!({ "operation": "Scan", "scanKeys": 10, "keySpace": 100 }),
        json!({ "operation": "WatchLatency", "keySpace": 12 }),
    ] {
        let figures = by_stream(workload.clone());
        assert_eq!((figures.operations, figures.errors), (3000, 0), "{workload}");
        // Each read and swap; of puts, what is read back at the end.
        let least = match workload["operation"].as_str() {
            Some("Put") => 100,
            Some("Mixed") => 1000,
            _ => 3000,
        };
        assert!(figures.verified >= least, "{workload}: {}", figures.verified);
    }
}

/// A page of a scan ends at 4 MiB.
#[test]
fn a_scan_by_the_streaming_door_goes_on_where_a_page_ends() {
    let group = Group::start(1);
    let workload =
        json!({ "operation": "Scan", "scanKeys": 1000, "keySpace": 1000, "valueBytes": 10_000, "door": "Streaming" });
    let figures = group.run(workload, json!({ "total": 24 }));
    assert_eq!((figures.operations, figures.errors), (24, 0));
}
