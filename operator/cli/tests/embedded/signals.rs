//! However a run is ended, nothing of it is left.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::world::{World, one_arm};
use crate::{ETCD_PUT, kill};

/// A run that is under way: started, and its store loaded.
fn under_way(world: &World) -> Child {
    let file = world
        .write("run.yaml", &one_arm("Etcd", harness::version("etcd"), ETCD_PUT, "{ duration: 10s, connections: 2 }"));
    let mut command = world.storebench();
    command.arg("run").arg(file).args(["--wait-for-quiet", "0s"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !world.processes().iter().any(|line| line.contains("bench-job")) {
        assert!(Instant::now() < deadline, "the run does not get under way");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let world = World::new();
    let mut child = under_way(&world);
    kill(child.id(), "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    world.assert_nothing_is_left();
}

/// As `timeout` does, which signals its child and then the group of it.
#[test]
fn a_signal_that_comes_twice_at_once_is_one_and_the_report_is_printed() {
    let world = World::new();
    let child = under_way(&world);
    kill(child.id(), "TERM");
    kill(child.id(), "TERM");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("interrupted after"), "{said}");
    world.assert_nothing_is_left();
}

#[test]
fn sigkill_leaves_nothing_behind() {
    let world = World::new();
    let mut child = under_way(&world);
    kill(child.id(), "KILL");
    child.wait().unwrap();
    world.assert_nothing_is_left();
}
