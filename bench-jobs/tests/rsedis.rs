//! `bench-job` against a real rsedis, whose syncs are held against what it acknowledges: nobody is accused who keeps the word, and nobody
//! believed who does not.
//!
//! Needs rsedis beside the tests, where cargo puts it that builds the workspace.

// Helpers of a test fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::free_address;
use serde_json::json;
use storebench_crds::engine::EngineKind;
use storebench_crds::job::{JobLine, JobOutcome};
use storebench_crds::measure::{FSYNCS, Reading};

use support::job::{Ended, Job};
use support::redis::{Redis, commands};

const CLIENTS: u32 = 50;
const REQUESTS: u64 = 4_000;

/// An rsedis that syncs as it is told, and where it counts that.
struct Counting {
    redis: Redis,
    metrics: String,
}

impl Counting {
    fn start(appendfsync: &str) -> Self {
        let metrics = free_address().to_string();
        let arguments = ["--appendonly", "yes", "--appendfsync", appendfsync, "--metrics-listen", &metrics];
        Self { redis: Redis::start_rsedis(&arguments), metrics }
    }

    /// Loads it as one that was told to sync each write before it acknowledges it. It counts under the name that stands in its row.
    fn run(&self, command: &str, pipeline: u32) -> Ended {
        let mut redis = json!({ "command": command, "pipeline": pipeline, "valueBytes": 10, "keySpace": 10 });
        if command == "Mixed" {
            redis["readPercent"] = json!(50);
        }
        let load = json!({ "connections": CLIENTS, "total": REQUESTS, "warmUp": "0s" });
        let metrics = EngineKind::Rsedis.engine().metrics.unwrap();
        let counters: serde_json::Map<_, _> =
            metrics.syncs.iter().map(|(name, syncs)| ((*name).to_owned(), json!(syncs))).collect();
        let spec = json!({
            "run": "test", "arm": "rsedis", "trial": 0, "seed": 42, "endpoints": [self.redis.endpoint()], "durability": "Fsync",
            "syncCounters": [{ "address": self.metrics, "path": metrics.path, "counters": counters }],
            "workloads": [{ "name": "w", "redis": redis, "load": load }],
        });
        Job::start(&spec, &[]).end()
    }
}

/// `None`: it was asked and did not answer in time.
fn syncs(ended: &Ended) -> Option<u64> {
    ended.lines.iter().find_map(|line| match line {
        JobLine::Measure { measure, reading: Reading::Total(total), .. } if measure == FSYNCS.0 => Some(*total),
        _ => None,
    })
}

/// Of a SADD of what is there nothing is written, and of fifty pipelines all is with one sync.
#[test]
fn a_store_that_syncs_what_it_acknowledges_is_accused_of_no_command() {
    let store = Counting::start("always");
    let mut counted = Vec::new();
    for command in commands().iter().map(String::as_str) {
        for pipeline in [1, 16] {
            let ended = store.run(command, pipeline);
            assert_eq!(ended.measured().operations, REQUESTS, "{command}");
            let Some(syncs) = syncs(&ended) else { continue };
            let only_reads = ["Ping", "PingInline", "Get"].contains(&command) || command.starts_with("Lrange");
            assert!(!only_reads || syncs == 0, "{command}: {syncs} syncs");
            let fewest = REQUESTS.div_ceil(u64::from(CLIENTS * pipeline));
            assert!(command != "Set" || syncs >= fewest, "{syncs} syncs, and {fewest} are the fewest");
            counted.push(command.to_owned());
        }
    }
    for command in ["Set", "Sadd", "Zadd"] {
        assert!(counted.iter().any(|known| known == command), "{command} was counted in no run");
    }
}

#[test]
fn a_store_that_acknowledges_whole_pipelines_and_syncs_none_is_found() {
    let store = Counting::start("no");
    for pipeline in [1, 16] {
        let outcome = store.run("Set", pipeline).summary.outcome;
        let JobOutcome::StoreFailed { detail, .. } = &outcome else { panic!("{outcome:?}") };
        let in_flight = CLIENTS * pipeline;
        assert!(detail.contains(&format!("of which at most {in_flight} were on their way at a time")), "{detail}");
        assert!(detail.ends_with("syncs, and the store counts 0"), "{detail}");
    }
}
