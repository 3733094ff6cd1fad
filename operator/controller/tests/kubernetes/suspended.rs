//! Who is suspended leaves its turn to the next, and nothing of its own beside that.

use serde_json::{Value, json};

use crate::world::{TURN_SECONDS_MAX, World};

const GROUP: &str = "storebench.dev/v1alpha1";

/// A run whose first store starts and never answers, and one that waits for its turn.
fn first_starts_and_second_waits(namespace: &str) -> World {
    let world = World::new(namespace);
    world.service("store", &json!({ "pod": { "nodeSelector": { "no": "such-node" } } }));
    world.run("first", "store");
    world.begins("first");
    world.run("second", "store");
    world.within(TURN_SECONDS_MAX, "a place in the queue", || {
        (world.status("second")["queuePosition"] == 1).then_some(())
    });
    world
}

fn suspend(world: &World, run: &str, suspend: bool) {
    let path = world.path(GROUP, "benchmarkruns", run);
    world.cluster.call("PATCH", &path, Some(&json!({ "spec": { "suspend": suspend } }))).unwrap();
}

fn is_suspended(world: &World, run: &str) -> bool {
    let status = world.status(run);
    status["conditions"].as_array().into_iter().flatten().any(|one| one["reason"] == "Suspended")
}

/// Waits until the second run has a store. The first one's must be gone by then.
fn second_begins_alone(world: &World, seconds: u64) {
    world.within(seconds, "the turn of second", || {
        // One list, so that both are seen at one moment.
        let sets = world.list("apps/v1", "statefulsets");
        let has_store =
            |run: &str| sets.iter().any(|set: &Value| set["metadata"]["labels"]["storebench.dev/run"] == run);
        let begins = has_store("second");
        assert!(!begins || !has_store("first"), "the store of first stayed beside that of second");
        begins.then_some(())
    });
    assert!(is_suspended(world, "first"), "{}", world.status("first"));
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_run_that_is_suspended_while_its_first_store_starts_leaves_no_store_beside_the_next_run() {
    let world = first_starts_and_second_waits("suspended");
    suspend(&world, "first", true);
    second_begins_alone(&world, 60);
    // It has its turn again when that comes.
    suspend(&world, "first", false);
    world.delete(&world.path(GROUP, "benchmarkruns", "second"));
    world.within(60, "the turn of first", || world.has_store("first").then_some(()));
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn an_operator_that_takes_over_removes_the_first_store_of_a_suspended_run_before_the_next_run_begins() {
    let mut world = first_starts_and_second_waits("suspended-killed");
    world.stop_operator();
    suspend(&world, "first", true);
    world.start_operator(&[]);
    second_begins_alone(&world, 120);
}
