//! The stores that no fetch brings by default, started as any other: one takes many minutes to build, one is put there by hand. Whoever changes
//! their rows or their plans runs these tests where they are: `cargo test --release -p storebench --test originals -- --ignored`.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod finished;
#[allow(dead_code)]
mod world;

use finished::Finished;
use storebench_crds::engine::{ENGINES, EngineKind, Source};
use world::{World, one_store};

/// Runs one trial of a store, which must be in the peers folder: a test that was asked for does not pass without it.
fn is_loaded(kind: EngineKind, service: &str, workload: &str) {
    let (engine, peers) = (kind.engine(), harness::peers::folder());
    let program = peers.join(engine.name).join(engine.default_version).join(engine.binary());
    assert!(program.is_file(), "{} is missing; remedy: {}", program.display(), engine.install());
    let world = World::new();
    let text = one_store(&format!("engine: {kind:?}, {service}"), workload, "min: 1, max: 1, retries: 1");
    let file = world.write("run.yaml", &text);
    let arguments = ["-o", "json", "--wait-for-quiet", "0s"];
    let output =
        world.storebench().env("STOREBENCH_PEERS", peers).arg("run").arg(file).args(arguments).output().unwrap();
    world.assert_nothing_is_left();
    let finished = Finished::of(output);
    let report = finished.report();
    let trials = report["record"]["trials"].as_array().unwrap();
    for failure in trials.iter().map(|trial| &trial["failure"]) {
        // A busy machine voids figures, of which there are none here.
        let is_slow = failure["cause"] == "Disturbed" || failure["cause"] == "OutOfReach";
        assert!(failure.is_null() || is_slow, "{failure}: {}", finished.stderr);
    }
    let operations = |trial: &serde_json::Value| trial["workloads"][0]["summary"]["operations"].as_u64();
    assert!(trials.iter().filter_map(operations).any(|count| count > 0), "{}", finished.stdout);
}

#[test]
#[ignore = "takes many minutes to build: peers/fetch d-engine-original"]
fn the_original_d_engine_starts_as_a_group_and_is_loaded() {
    let workload =
        "  - name: write\n    keyValue: { operation: Put, valueBytes: 64 }\n    load: { duration: 1s, warmUp: 100ms }";
    is_loaded(EngineKind::DEngineOriginal, "replicas: 3, durability: None", workload);
}

#[test]
#[ignore = "is put there by hand: peers/README.md, hiero-block-node"]
fn the_java_block_node_starts_and_is_loaded() {
    let workload = "  - name: publish\n    blockStream: { operation: Publish, hashRules: Legacy }\n    load: { total: 100, warmUp: 0s }";
    is_loaded(EngineKind::HieroBlockNode, "durability: None", workload);
}

/// A third such row would be started by no test at all.
#[test]
fn every_store_that_no_fetch_brings_has_its_test_here() {
    let is_original = |source| matches!(source, Source::PeerOnRequest(_) | Source::ByHand(_));
    let originals = ENGINES.iter().filter(|engine| is_original(engine.source)).map(|engine| engine.kind);
    assert_eq!(originals.collect::<Vec<_>>(), [EngineKind::DEngineOriginal, EngineKind::HieroBlockNode]);
}
