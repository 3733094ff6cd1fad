//! `d-engine bench`, where members do not stay as they are.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::command_line::run;
use crate::group::{Group, PROGRAM};

#[tokio::test]
async fn a_load_follows_the_leader_when_it_changes() {
    let group = Group::start(3);
    group.leader().await;
    let addresses = group.addresses.join(",");
    for door in ["unary", "first", "stream"] {
        let load = ["bench", "put", "--conns", "3", "--clients", "6", "--total", "6000", "--door", door];
        let mut child = Command::new(PROGRAM)
            .args(load)
            .args(["--endpoints", &addresses])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Leaders change for as long as it lasts, and once at least.
        let mut changes = 0;
        while changes == 0 || child.try_wait().unwrap().is_none() {
            let next = group.leader().await % 3 + 1;
            changes += usize::from(group.ctl(&["transfer", &next.to_string()]).is_ok());
        }
        let output = child.wait_with_output().unwrap();
        let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{door}, {changes} changes of leader: {out}{error}");
        assert!(out.contains("requests: 6000"), "{door}: {out}");
    }
}

/// It asked once, and met an election now and then.
#[tokio::test]
async fn a_load_waits_for_a_leader_and_says_so_when_there_is_none() {
    let mut group = Group::start(3);
    group.leader().await;
    group.kill(2);
    group.kill(3);
    while group.status(1).await.unwrap().leader_id != 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let addresses = group.addresses.join(",");
    let load = || {
        let mut load = Command::new(PROGRAM);
        load.args(["bench", "put", "--total", "100", "--endpoints", &addresses]);
        load.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let output = load().wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("no leader was found within 10s: "), "{error}");
    let waits = load();
    // It has asked by then, most of the time.
    tokio::time::sleep(Duration::from_millis(500)).await;
    group.start_member(2);
    let output = waits.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn what_was_measured_is_printed_although_the_member_is_lost() {
    let mut group = Group::start(1);
    group.leader().await;
    let load = ["bench", "put", "--conns", "1", "--clients", "4", "--total", "100000000", "--endpoints"];
    let child = Command::new(PROGRAM)
        .args(load)
        .arg(&group.addresses[0])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let client = group.client().await;
    let mut commands = 0;
    // Until it is under way.
    while commands < 100 {
        commands = client.put("k", "v").await.unwrap();
    }
    group.kill(1);
    let output = child.wait_with_output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{out}");
    assert!(out.contains("latency us: avg") && out.contains("syncs of the leader's log: not known"), "{out}");
    assert!(out.contains("failed: ") && out.contains(", made again: "), "{out}");
}

/// The mean of all syncs since the member was started was told as the run's.
#[tokio::test]
async fn a_run_that_syncs_nothing_tells_no_mean() {
    let group = Group::start(1);
    group.leader().await;
    let bench = |work: &str| run(&["bench", work, "--total", "200", "--endpoints", &group.addresses[0]]);
    let (code, out, error) = bench("put");
    assert!(code == Some(0) && out.contains(" us with their writes"), "{out}{error}");
    let (code, out, error) = bench("get");
    assert!(code == Some(0) && out.contains("syncs of the leader's log: 0\n"), "{out}{error}");
}
