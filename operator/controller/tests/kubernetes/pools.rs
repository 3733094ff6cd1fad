//! Each pool of nodes has one run at a time, and knows nothing of the others.

use serde_json::json;

use crate::world::World;

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn pools_of_nodes_have_a_run_each_at_once() {
    let world = World::new("pools");
    // The node is in no pool, so that runs of pools stay where they begin, and the run of none lasts longer than this test.
    world.service("store", &json!({ "pod": { "nodeSelector": { "no": "such-node" } } }));
    world.run("anywhere", "store");
    world.begins("anywhere");
    for (run, pool) in [("fast", "fast"), ("slow", "slow")] {
        world.run_with(run, "store", &json!({ "nodePool": pool }));
        world.begins(run);
    }
    for (run, more) in [("anywhere-too", json!({})), ("fast-too", json!({ "nodePool": "fast" }))] {
        world.run_with(run, "store", &more);
        world.within(30, "a place in the queue", || (world.status(run)["queuePosition"] == 1).then_some(()));
        assert!(!world.has_store(run), "{run}");
    }
    let sets = world.list("apps/v1", "statefulsets");
    let of_fast = sets.iter().find(|set| set["metadata"]["labels"]["storebench.dev/run"] == "fast").unwrap();
    let pod = &of_fast["spec"]["template"]["spec"];
    assert_eq!(pod["nodeSelector"], json!({ "no": "such-node", "storebench.dev/node-pool": "fast" }));
    assert_eq!(pod["tolerations"][0]["value"], "fast");
    // The turn of a pool passes on within it.
    world.delete(&world.path("storebench.dev/v1alpha1", "benchmarkruns", "slow"));
    world.delete(&world.path("storebench.dev/v1alpha1", "benchmarkruns", "fast"));
    world.begins("fast-too");
    assert!(!world.has_store("anywhere-too"));
}
