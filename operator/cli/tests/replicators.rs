//! Replicators of SQLite as a user meets them: a store that shares a directory with the load, beside an object store.
//!
//! Needs litestream and versitygw in the peers folder (`peers/fetch litestream versitygw`), and walsync, as `cargo build --release --workspace
//! --bins` builds it. A run may end as disturbed by a busy machine, which says nothing about them.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod finished;
#[allow(dead_code)]
mod world;

use finished::Finished;
use serde_json::Value;
use world::World;

const ENGINES: [&str; 2] = ["Litestream", "Walsync"];

/// A run of one trial of every replicator.
struct Ran {
    finished: Finished,
}

impl Ran {
    fn of(parameters: &str, load: &str) -> Self {
        let world = World::new();
        ["litestream", "versitygw"].iter().for_each(|name| world.install(name, name));
        // storebench looks for it beside itself.
        harness::own("walsync");
        let services = ENGINES.iter().map(|engine| {
            format!(
                "apiVersion: storebench.dev/v1alpha1\nkind: StorageService\nmetadata: {{ name: {name} }}\n\
                 spec: {{ engine: {engine}, durability: None }}\n---\n",
                name = engine.to_lowercase()
            )
        });
        let arms = ENGINES.iter().map(|engine| {
            let (name, baseline) = (engine.to_lowercase(), *engine == "Litestream");
            format!("  - {{ name: {name}, baseline: {baseline}, serviceRef: {{ name: {name} }} }}\n")
        });
        let text = format!(
            "{services}apiVersion: storebench.dev/v1alpha1
kind: BenchmarkRun
metadata: {{ name: replicators }}
spec:
  arms:
{arms}  workloads:
  - name: work
    sqliteReplication: {{ {parameters} }}
    load: {{ {load} }}
  trials: {{ min: 1, max: 1, retries: 1 }}
",
            services = services.collect::<String>(),
            arms = arms.collect::<String>()
        );
        let file = world.write("run.yaml", &text);
        let arguments = ["-o", "json", "--wait-for-quiet", "0s"];
        let output = world.storebench().arg("run").arg(file).args(arguments).output().unwrap();
        world.assert_nothing_is_left();
        Self { finished: Finished::of(output) }
    }

    /// Looks at what every trial measured. A busy machine voids figures, of which there are none here.
    fn each(&self, mut look: impl FnMut(&Value)) {
        let report = self.finished.report();
        let trials = report["record"]["trials"].as_array().unwrap();
        for trial in trials {
            let failure = &trial["failure"];
            let is_slow = failure["cause"] == "Disturbed" || failure["cause"] == "OutOfReach";
            assert!(failure.is_null() || is_slow, "{failure}: {}", self.finished.stderr);
            let [workload] = trial["workloads"].as_array().unwrap().as_slice() else { panic!("{trial}") };
            look(workload);
        }
        for engine in ENGINES {
            assert!(trials.iter().any(|trial| trial["arm"] == engine.to_lowercase()), "{}", self.finished.stderr);
        }
    }
}

fn total(workload: &Value, measure: &str) -> u64 {
    let total = workload["measures"][measure]["total"].as_u64();
    total.unwrap_or_else(|| panic!("{measure}: {workload}"))
}

#[test]
fn replicas_are_compared_row_by_row_and_nothing_is_left() {
    let load = "mode: OpenLoop, rate: 50, duration: 1s, warmUp: 100ms";
    let ran = Ran::of("operation: Write, databases: 2, rows: 100", load);
    ran.each(|workload| {
        assert_eq!(workload["summary"]["verified"], 200, "{workload}");
        assert!(workload["measures"]["replicationLag"]["durations"]["summary"]["p50Nanos"].as_u64().unwrap() > 0);
        assert!(workload["usage"]["rssPeakBytes"].as_u64().unwrap() > 1 << 20, "{workload}");
    });
}

#[test]
fn what_each_tool_restores_is_compared_and_related_to_a_plain_get() {
    let parameters =
        "operation: Restore, databases: 2, rows: 300, rowBytes: 1000, rowsPerTransaction: 20, increments: 2";
    let ran = Ran::of(parameters, "connections: 2, threads: 2, total: 6, warmUp: 0s, timeout: 1m");
    ran.each(|workload| {
        assert_eq!(workload["summary"]["operations"], 6, "{workload}");
        // Six that the tool restored, two that the loader did.
        assert_eq!(workload["summary"]["verified"], 8 * 300, "{workload}");
        assert!(total(workload, "restoredBytes") > 6 * 300 * 1000, "{workload}");
        assert!(
            total(workload, "restoreNanos") > total(workload, "plainGetNanos"),
            "a process, a file and a sync: {workload}"
        );
        assert!(workload["measures"]["restoreRssBytes"]["largest"].as_u64().unwrap() > 1 << 20, "{workload}");
        // A snapshot and two increments each, at least: none was merged away before the restore.
        assert!(total(workload, "replicaObjects") >= 6, "{workload}");
    });
}

/// Commits go on, nothing is lost, and what was committed in the outage arrives after it: through the proxy, and after SIGKILL.
#[test]
fn an_outage_is_survived_and_its_length_is_found_in_the_lag() {
    for kind in ["BlackHole", "ServiceUnavailable", "Kill"] {
        let parameters = format!(
            "operation: Outage, databases: 2, rows: 100, outage: {{ kind: {kind}, after: 500ms, duration: 2s }}"
        );
        let ran = Ran::of(&parameters, "mode: OpenLoop, rate: 40, duration: 4s, warmUp: 0s");
        ran.each(|workload| {
            assert_eq!(workload["summary"]["verified"], 200, "{kind}: {workload}");
            // 80 were due of 160; those of the last moment may be acknowledged after it, and a machine that stands still commits nothing.
            assert!((15..=160).contains(&total(workload, "commitsInOutage")), "{kind}: {workload}");
            assert_eq!(
                (total(workload, "lostRows"), total(workload, "lostTransactions")),
                (0, 0),
                "{kind}: {workload}"
            );
            let lag = workload["measures"]["replicationLag"]["durations"]["summary"]["maxNanos"].as_u64().unwrap();
            assert!(lag > 1_500_000_000, "{kind}: what was committed at its beginning waited for its end: {workload}");
            let recoveries = &workload["measures"]["outageRecovery"]["durations"]["summary"];
            assert!(recoveries["maxNanos"].as_u64().is_some(), "{kind}: {workload}");
            assert_eq!(workload["usage"].is_null(), kind == "Kill", "{kind}: {workload}");
        });
        let caveats = ran.finished.report()["record"]["caveats"].to_string();
        for engine in ENGINES {
            let arm = engine.to_lowercase();
            let said = format!("what {arm} lost in an outage is what a restore by litestream ");
            assert!(caveats.contains(&said), "{caveats}");
        }
    }
}
