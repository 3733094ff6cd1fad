//! Failover, embedded: a leader that is killed because the load asks for it voids no trial; one that dies by itself does, and so does a group
//! that loses what it acknowledged.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod finished;
#[allow(dead_code)]
mod world;

use serde_json::Value;
use world::{World, one_store};

/// Three members of a version of etcd that lose their leader half a second into the load.
fn failover(version: &str) -> String {
    failover_of(&format!("engine: Etcd{version}"), "")
}

/// Three members of an engine do, asked with these parameters besides.
fn failover_of(engine: &str, parameters: &str) -> String {
    let workload = format!(
        "  - name: failover
    keyValue: {{ operation: Failover, readPercent: 20, keySpace: 200, killAfter: 500ms, restartAfter: 1s{parameters} }}
    load: {{ connections: 6, clients: 12, duration: 5s, warmUp: 200ms, timeout: 1s, mode: OpenLoop, rate: 200 }}"
    );
    one_store(&format!("{engine}, replicas: 3"), &workload, "min: 1, max: 1, retries: 2, timeout: 90s")
}

fn trials(report: &Value) -> &Vec<Value> {
    report["record"]["trials"].as_array().unwrap()
}

#[test]
fn a_killed_leader_is_timed_and_voids_no_trial() {
    // No write is acknowledged before another leader was elected, which takes etcd a second.
    check_times(&failover(""), 200_000_000);
}

/// Clients of a stream go to another member with all that surely had no effect, and give up the rest.
#[test]
fn a_leader_is_killed_under_streams() {
    check_times(&failover_of("engine: DEngine", ", door: Streaming"), 50_000_000);
}

fn check_times(run: &str, first_write_nanos_min: u64) {
    let world = World::new();
    let report = world.run(run).report();
    for trial in trials(&report) {
        // Others may have kept the machine busy, or the store from its rate; that says nothing about the store.
        let cause = trial["failure"]["cause"].as_str().unwrap_or("none");
        assert!(matches!(cause, "none" | "disturbed" | "Disturbed" | "outOfReach" | "OutOfReach"), "{trial}");
        let measured = &trial["workloads"][0];
        for time in ["writePause", "firstWriteAfterKill", "catchUp"] {
            let summary = &measured["measures"][time]["durations"]["summary"];
            let micros = summary["maxNanos"].as_u64().unwrap() / 1_000;
            assert!((100..60_000_000).contains(&micros), "{time}: {micros} us in {measured}");
        }
        let first_write = &measured["measures"]["firstWriteAfterKill"]["durations"]["summary"]["maxNanos"];
        assert!(first_write.as_u64().unwrap() > first_write_nanos_min, "{first_write}");
        assert!(measured["summary"]["verified"].as_u64().unwrap() >= 3 * 200, "each key from each member: {measured}");
        assert_eq!(measured["usage"], Value::Null, "what a killed process used is not known");
    }
}

#[test]
fn a_member_that_dies_unasked_fails_the_store() {
    let world = World::new();
    world.install_faulty("etcd", &["kill-after-millis=1200", "arm-after-requests=30"]);
    let said = world.run(&failover(", version: faulty")).invalid();
    assert!(said.contains("store-") && (said.contains("exited") || said.contains("killed")), "{said}");
}

#[test]
fn a_group_that_loses_what_it_acknowledged_is_found_out() {
    let world = World::new();
    world.install_faulty("etcd", &["drop-write-every=50"]);
    let said = world.run(&failover(", version: faulty")).invalid();
    assert!(said.contains("wrong answers"), "{said}");
}
