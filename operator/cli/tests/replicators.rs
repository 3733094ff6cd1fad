//! Replicators of SQLite as a user meets them: a store that shares a directory with the load, beside an object store.
//!
//! Needs litestream and versitygw in the peers folder (`peers/fetch litestream versitygw`); without them it says `NOT TESTED`. walsync
//! is compared with them where it is built, as by `cargo build --release --workspace --bins`. A run may end as disturbed by a busy machine,
//! which says nothing about them.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod finished;
#[allow(dead_code)]
mod world;

use std::path::Path;

use finished::Finished;
use harness::peers;
use world::World;

/// Puts a peer that few tests need into the world, if it is there.
fn install(world: &World, name: &str) -> bool {
    let installed = peers::folder().join(name).join(peers::version(name)).join(name);
    if !installed.is_file() {
        eprintln!("NOT TESTED: {name} is not installed; remedy: peers/fetch {name}");
        return false;
    }
    let folder = world.peers().join(name).join(peers::version(name));
    std::fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink(installed, folder.join(name)).unwrap();
    true
}

#[test]
fn replicas_are_compared_row_by_row_and_nothing_is_left() {
    let world = World::new();
    if !["litestream", "versitygw"].iter().all(|name| install(&world, name)) {
        return;
    }
    let walsync = Path::new(env!("CARGO_BIN_EXE_storebench")).with_file_name("walsync").is_file();
    let engines: &[&str] = if walsync { &["Litestream", "Walsync"] } else { &["Litestream"] };
    let services = engines.iter().map(|engine| {
        format!(
            "apiVersion: storebench.dev/v1alpha1\nkind: StorageService\nmetadata: {{ name: {name} }}\n\
             spec: {{ engine: {engine}, durability: None }}\n---\n",
            name = engine.to_lowercase()
        )
    });
    let arms = engines.iter().map(|engine| {
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
  - name: write
    sqliteReplication: {{ operation: Write, databases: 2, rows: 100 }}
    load: {{ mode: OpenLoop, rate: 50, duration: 1s, warmUp: 100ms }}
  trials: {{ min: 1, max: 1, retries: 1 }}
",
        services = services.collect::<String>(),
        arms = arms.collect::<String>()
    );
    let file = world.write("run.yaml", &text);
    let arguments = ["-o", "json", "--wait-for-quiet", "0s"];
    let output = world.storebench().arg("run").arg(file).args(arguments).output().unwrap();
    world.assert_nothing_is_left();
    let finished = Finished::of(output);
    let report = finished.report();
    // A busy machine voids figures, of which there are none here.
    let trials = report["record"]["trials"].as_array().unwrap();
    for trial in trials {
        let failure = &trial["failure"];
        assert!(failure.is_null() || failure["cause"] == "Disturbed", "{failure}: {}", finished.stderr);
        let [workload] = trial["workloads"].as_array().unwrap().as_slice() else { panic!("{trial}") };
        assert_eq!(workload["summary"]["verified"], 200, "{workload}");
        assert!(workload["measures"]["replicationLag"]["durations"]["summary"]["p50Nanos"].as_u64().unwrap() > 0);
        assert!(workload["usage"]["rssPeakBytes"].as_u64().unwrap() > 1 << 20, "{workload}");
    }
    for engine in engines {
        assert!(trials.iter().any(|trial| trial["arm"] == engine.to_lowercase()), "{}", finished.stderr);
    }
}
