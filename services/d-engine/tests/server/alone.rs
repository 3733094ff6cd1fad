//! Members whose place is said by flags and the environment alone.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use harness::{Process, command};

use crate::group::{PATIENCE, PROGRAM, free};

/// The second member was told that the first one is at the address of a member that says nothing, and never caught up.
#[test]
fn a_member_alone_that_says_where_it_listens_is_joined() {
    let root = harness::folder();
    let places = free(4);
    let [client, peer, other_client, other_peer] = &places[..] else { panic!("{places:?}") };
    let serve = |id: &str, more: &[&str]| {
        let mut serve = command(PROGRAM);
        serve.args(["serve", "--log-level", "warn", "--node-id", id, "--db-root-dir"]).arg(root.path().join(id));
        Process::start(serve.args(more).stderr(std::fs::File::create(root.path().join(format!("{id}.log"))).unwrap()))
    };
    let ctl = |verb: &[&str]| {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let output = Command::new(PROGRAM).args(["ctl", "--endpoints", client]).args(verb).output().unwrap();
            if output.status.success() {
                return;
            }
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let log = || std::fs::read_to_string(root.path().join("2.log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "{verb:?}: {said}{}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let _first = serve("1", &["--listen-address", client, "--listen-peer-address", peer]);
    let place = format!("{other_client},{other_peer}");
    ctl(&["member", "add", "2", &place]);
    let _second = serve("2", &["--member", &format!("2={place}"), "--join", peer]);
    ctl(&["member", "promote", "2"]);
}

/// Any variable of the environment that was not UTF-8 ended a server by a panic.
#[test]
fn variables_of_others_may_be_anything_and_unknown_ones_of_ours_are_refused() {
    let said = |name: &str, value: OsString| {
        let output = command(PROGRAM).arg("serve").env(name, value).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, error) = said("LESS", OsString::from_vec(vec![b'a', 0xff]));
    assert!(code == Some(2) && error.starts_with("d-engine: --node-id"), "{code:?}: {error}");
    for (name, expected) in [
        ("D_ENGINE_NODEID", "d-engine: D_ENGINE_NODEID: there is no such variable"),
        ("RAFT__CLUSTER__NODE_ID", "d-engine: RAFT__CLUSTER__NODE_ID=x: invalid type"),
        // Of other commands, and what Kubernetes brings of a service.
        ("D_ENGINE_USER", "d-engine: --node-id"),
        ("D_ENGINE_PASSWORD", "d-engine: --node-id"),
        ("D_ENGINE_CLIENT_TLS_KEY", "d-engine: --node-id"),
        ("D_ENGINE_SERVICE_PORT_CLIENT", "d-engine: --node-id"),
    ] {
        let (code, error) = said(name, "x".into());
        assert!(code == Some(2) && error.starts_with(expected), "{name}: {code:?}: {error}");
    }
    // A misspelt user would be nobody, without a word.
    for verb in [&["ctl", "get", "k"][..], &["bench", "get"]] {
        let output = command(PROGRAM).args(verb).env("D_ENGINE_USRE", "x").output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(2) && error.starts_with("d-engine: D_ENGINE_USRE: there is no"),
            "{error}"
        );
    }
}
