//! Faults of a store, embedded: one that is killed, stopped, cut off or slowed because the workload says so voids no trial, what users feel of it is
//! measured, and what it acknowledged is read back.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod finished;
#[allow(dead_code)]
mod world;

use serde_json::Value;
use world::{World, one_store};

/// A run of one trial. `store` is the spec of the service, `workloads` the elements of a YAML list, indented by two.
fn run(store: &str, workloads: &str) -> String {
    one_store(store, workloads, "min: 1, max: 1, retries: 2, timeout: 90s")
}

const KILLED: &str = "  - name: killed
    redis: { command: Mixed, readPercent: 20, valueBytes: 40, keySpace: 500 }
    load:
      { connections: 8, duration: 7s, warmUp: 200ms, timeout: 2s, mode: OpenLoop, rate: 400, fault: { kind: Kill, after: 500ms, duration: 4s } }";

/// What each trial measured of each workload.
fn measured(report: &Value) -> Vec<&Value> {
    let trials = report["record"]["trials"].as_array().unwrap();
    for trial in trials {
        // Others may have kept the machine busy, or the store from its rate; that says nothing about the store.
        let cause = trial["failure"]["cause"].as_str().unwrap_or("none").to_lowercase();
        assert!(matches!(cause.as_str(), "none" | "disturbed" | "outofreach"), "{trial}");
    }
    let measured: Vec<&Value> = trials.iter().flat_map(|trial| trial["workloads"].as_array().unwrap()).collect();
    assert!(!measured.is_empty());
    measured
}

fn millis(measured: &Value, measure: &str) -> u64 {
    let nanos = measured["measures"][measure]["durations"]["summary"]["maxNanos"].as_u64();
    nanos.unwrap_or_else(|| panic!("no {measure} in {measured}")) / 1_000_000
}

fn total(measured: &Value, measure: &str) -> u64 {
    measured["measures"][measure]["total"].as_u64().unwrap_or_else(|| panic!("no {measure} in {measured}"))
}

#[test]
fn a_store_that_is_killed_or_stands_still_is_timed_and_has_all_that_it_acknowledged() {
    let world = World::new();
    let stopped = "  - name: stopped
    redis: { command: Set, valueBytes: 40, keySpace: 500, pipeline: 4 }
    load: { connections: 4, duration: 3s, warmUp: 0s, timeout: 30s, fault: { kind: Stop, after: 500ms, duration: 1s } }";
    let report = world.run(&run("engine: Redis, durability: Fsync", &format!("{KILLED}\n{stopped}"))).report();
    for measured in measured(&report) {
        let is_killed = measured["summary"]["name"] == "killed";
        let pause = millis(measured, "writePause");
        assert!(pause >= 950, "nothing is acknowledged meanwhile: {pause} ms in {measured}");
        // Recovery counts from the end of the fault, and the pause from its beginning.
        let (recovery, fault) = (millis(measured, "recovery"), if is_killed { 4_000 } else { 1_000 });
        assert!(recovery + fault * 3 / 4 < pause, "{recovery} ms, of a pause of {pause} ms, in {measured}");
        assert_eq!(total(measured, "lostWrites"), 0, "{measured}");
        assert_eq!(measured["usage"] == Value::Null, is_killed, "what a killed process used is not known");
        let failed = total(measured, "failedRequests");
        if is_killed {
            // A request waits for two seconds, and the store is gone for four.
            assert!(failed > 0 && failed >= total(measured, "unknownWrites"), "{measured}");
        } else {
            assert_eq!(failed, 0, "who waits long enough hears of everything: {measured}");
        }
        assert!(measured["summary"]["verified"].as_u64().unwrap() >= 250, "{measured}");
    }
}

#[test]
fn a_store_that_forgets_in_a_kill_what_it_promised_to_keep_is_found_out() {
    let world = World::new();
    let script = r#"
for argument in "$@"; do
    [ "$before" = --dir ] && directory=$argument
    before=$argument
done
rm -rf "$directory/appendonlydir" "$directory/appendonly.aof"
exec "$REAL" "$@""#;
    world.install_wrapper("redis", "redis-server", script);
    let said = world.run(&run("engine: Redis, version: faulty, durability: Fsync", KILLED)).invalid();
    assert!(said.contains("wrong answers") && said.contains("a write that was acknowledged is not there"), "{said}");
}

#[test]
fn a_store_that_promises_nothing_may_lose_what_it_had_and_that_is_counted() {
    let world = World::new();
    let report = world.run(&run("engine: Redis, durability: None", KILLED)).report();
    for measured in measured(&report) {
        // Keys that nobody wrote after the kill.
        let lost = total(measured, "lostWrites");
        assert!((1..=500).contains(&lost), "{lost} in {measured}");
    }
}

#[test]
fn a_single_member_of_another_protocol_is_killed_and_read_back_too() {
    let world = World::new();
    let workloads = "  - name: killed
    keyValue: { operation: Put, keySpace: 200 }
    load: { connections: 4, clients: 8, duration: 6s, warmUp: 0s, timeout: 10s, fault: { kind: Kill, after: 500ms, duration: 500ms } }";
    let report = world.run(&run("engine: Etcd", workloads)).report();
    for measured in measured(&report) {
        assert!(millis(measured, "writePause") >= 450, "{measured}");
        assert!(
            (1..30_000).contains(&millis(measured, "recovery")),
            "etcd does not start in a millisecond: {measured}"
        );
        assert_eq!(total(measured, "lostWrites"), 0, "{measured}");
    }
}

/// All that is under way on a stream is in doubt when it breaks, and nothing else is.
#[test]
fn a_stream_that_breaks_with_its_member_loses_nothing_that_was_acknowledged() {
    let world = World::new();
    let workloads = "  - name: killed
    keyValue: { operation: Mixed, readPercent: 20, keySpace: 200, door: Streaming }
    load: { connections: 4, clients: 16, duration: 5s, warmUp: 0s, timeout: 5s, fault: { kind: Kill, after: 500ms, duration: 500ms } }";
    let report = world.run(&run("engine: DEngine, replicas: 3", workloads)).report();
    let caveats = report["record"]["caveats"].to_string();
    assert!(caveats.contains("and the loader were built for tests, with assertions"), "{caveats}");
    for measured in measured(&report) {
        let (failed, unknown) = (total(measured, "failedRequests"), total(measured, "unknownWrites"));
        assert!(failed >= unknown && unknown > 0, "{measured}");
        assert_eq!(total(measured, "lostWrites"), 0, "{measured}");
        assert!(measured["summary"]["verified"].as_u64().unwrap() >= 3 * 200, "{measured}");
    }
}

#[test]
fn a_follower_that_stands_still_keeps_nobody_from_writing() {
    let world = World::new();
    let workloads = "  - name: stopped
    keyValue: { operation: Mixed, readPercent: 30, keySpace: 200 }
    load:
      { connections: 6, duration: 13s, warmUp: 0s, timeout: 8s, fault: { kind: Stop, member: Follower, after: 500ms, duration: 10s } }";
    let report = world.run(&run("engine: Etcd, replicas: 3", workloads)).report();
    for measured in measured(&report) {
        // Clients of the others go on; those of the follower go to another member when they have waited: all before it is let go. What it is
        // asked for afterwards it answers when it has caught up, which takes seconds where others keep the machine busy.
        let pause = millis(measured, "writePause");
        assert!(pause < 10_000, "{pause} ms in {measured}");
        assert!(millis(measured, "recovery") < 10_000, "{measured}");
        assert!(millis(measured, "catchUp") < 30_000, "{measured}");
    }
}

#[test]
fn a_store_that_is_cut_off_or_has_a_slow_disk_is_timed_and_has_all_that_it_acknowledged() {
    let world = World::new();
    let cut = "  - name: cut
    redis: { command: Set, valueBytes: 40, keySpace: 500 }
    load:
      { connections: 8, duration: 8s, warmUp: 0s, timeout: 2s, mode: OpenLoop, rate: 400, fault: { kind: Partition, after: 500ms, duration: 5s } }";
    let slow = "  - name: slow
    redis: { command: Set, valueBytes: 40, keySpace: 500 }
    load:
      { connections: 4, duration: 4s, warmUp: 0s, timeout: 20s, fault: { kind: SlowDisk, syncDelay: 300ms, after: 500ms, duration: 2s } }";
    let report = world.run(&run("engine: Redis, durability: Fsync", &format!("{cut}\n{slow}"))).report();
    for measured in measured(&report) {
        let pause = millis(measured, "writePause");
        let is_cut = measured["summary"]["name"] == "cut";
        // All wait for one sync, or for the end.
        let expected = if is_cut { 950..30_000 } else { 290..20_000 };
        assert!(expected.contains(&pause), "{pause} ms in {measured}");
        assert!(millis(measured, "recovery") < 30_000, "{measured}");
        assert_eq!(total(measured, "lostWrites"), 0, "{measured}");
        assert_eq!(total(measured, "failedRequests") > 0, is_cut, "{measured}");
        assert_eq!(measured["usage"] == Value::Null, !is_cut, "what a traced process used is not its own");
        // Not every key is written once.
        assert!(measured["summary"]["verified"].as_u64().unwrap() >= 30, "{measured}");
    }
}

/// Cut off from its clients alone it would go on to lead, and nobody else would have to.
#[test]
fn a_leader_that_is_cut_off_from_the_others_too_is_replaced() {
    for engine in ["Etcd", "DEngine"] {
        let world = World::new();
        let workloads = "  - name: cut
    keyValue: { operation: Put, keySpace: 200 }
    load: { connections: 6, clients: 12, duration: 14s, warmUp: 0s, timeout: 2s, fault: { kind: Partition, after: 1s, duration: 10s } }";
        let report = world.run(&run(&format!("engine: {engine}, replicas: 3"), workloads)).report();
        for measured in measured(&report) {
            let (pause, recovery) = (millis(measured, "writePause"), millis(measured, "recovery"));
            // Elections are not called for at once.
            assert!((100..10_000).contains(&pause), "{engine}: {pause} ms in {measured}");
            assert!((100..10_000).contains(&recovery), "{engine}: {recovery} ms in {measured}");
            assert!(millis(measured, "catchUp") < 30_000, "{measured}");
            assert_eq!(total(measured, "lostWrites"), 0, "{measured}");
            assert!(measured["summary"]["verified"].as_u64().unwrap() >= 3 * 200, "{measured}");
        }
    }
}

#[test]
fn without_strace_a_slow_disk_is_refused_before_anything_is_measured() {
    let world = World::new();
    let workloads = "  - name: slow
    redis: { command: Set, valueBytes: 40, keySpace: 500 }
    load: { connections: 4, duration: 3s, fault: { kind: SlowDisk, syncDelay: 10ms, after: 500ms, duration: 1s } }";
    let file = world.write("run.yaml", &run("engine: Redis, durability: Fsync", workloads));
    let output = world.storebench().env("PATH", "/nowhere").arg("run").arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("spec.workloads[0].load.fault.kind") && said.contains("needs strace"), "{said}");
}

/// The run went on to nothing, and what it had measured was gone.
#[test]
fn a_slow_disk_that_cannot_be_is_its_trials_failure_and_not_the_runs() {
    let workloads = "  - name: slow
    redis: { command: Set, valueBytes: 40, keySpace: 500 }
    load: { connections: 4, duration: 3s, warmUp: 0s, fault: { kind: SlowDisk, syncDelay: 10ms, after: 500ms, duration: 1s } }";
    // What storebench started is the proxy, which syncs nothing.
    let cases: [(&[&str], &str); 2] =
        [(&[], "no sync of the store was delayed"), (&["kill-after-millis=1000"], "signal: 9")];
    for (faults, expected) in cases {
        let world = World::new();
        world.install_faulty("redis", faults);
        let message = world.run(&run("engine: Redis, version: faulty, durability: Fsync", workloads)).invalid();
        assert!(message.contains(expected), "{message}");
    }
}
