//! An operator that is replaced by another in mid-run: loads of two kinds are not compared with one another.

use serde_json::json;

use crate::world::World;

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn an_operator_with_another_loader_ends_the_run_that_the_one_before_had_begun() {
    let mut world = World::new("upgraded");
    // No node takes its pods, so that the run is under way for a while.
    world.service("store", &json!({ "pod": { "nodeSelector": { "no": "such-node" } } }));
    world.run("run", "store");
    world.begins("run");
    world.start_operator(&[]);
    world.within(30, "a status of the same operator, started anew", || {
        world.status("run")["message"].as_str().map(drop)
    });
    assert!(world.status("run")["verdict"].is_null(), "{}", world.status("run"));
    world.start_operator(&["--bench-job-image", "storebench/bench-job:0.2.0"]);
    let message = world.ends("run");
    assert!(message.contains("the operator was changed while the run was under way, load image"), "{message}");
    assert!(message.ends_with("make a new run"), "{message}");
}
