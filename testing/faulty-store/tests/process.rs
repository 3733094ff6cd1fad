//! The store as a process: its start, its end, and what it inherits from the proxy or passes on to it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod faulty;

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use faulty::etcd::Etcd;
use faulty::{Faulty, Redis};
use harness::process::{is_alive, state};
use harness::{eventually, peer};
use rustix::process::Signal;

fn faulty_store(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_faulty-store")).args(arguments).output().unwrap()
}

#[test]
fn what_is_no_server_is_run_as_it_is() {
    for (store, binary) in [("etcd", "etcd"), ("redis", "redis-server")] {
        let binary = peer(store, binary);
        let path = binary.to_str().unwrap();
        let expected = Command::new(path).arg("--version").output().unwrap();
        let output = faulty_store(&["--store", store, "--upstream", path, "--fault", "refuse", "--", "--version"]);
        assert_eq!(output, expected);
    }
}

#[test]
fn bad_usage_is_one_line_and_nothing_started() {
    for (arguments, complaint) in [
        (&["--upstream", "/x"][..], "--store"),
        (&["--store", "oracle", "--upstream", "/x"], "oracle"),
        (&["--store", "etcd", "--upstream", "/x", "--fault", "slow"], "\"slow\""),
        (&["--store", "etcd", "--upstream", "/x", "--fault", "delay-percent"], "delay-percent=N"),
        (&["--store", "etcd", "--upstream", "/x", "--what"], "--what"),
        (
            &["--store", "etcd", "--upstream", "/x", "--", "--listen-client-urls", "https://127.0.0.1:1"],
            "http://HOST:PORT",
        ),
        (&["--store", "etcd", "--upstream", "/nowhere/etcd", "--", "--version"], "cannot run /nowhere/etcd"),
    ] {
        let output = faulty_store(arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("faulty-store: ") && stderr.contains(complaint), "{stderr}");
    }
    assert_eq!(faulty_store(&["--help"]).status.code(), Some(0));
}

#[test]
fn a_store_that_is_not_there() {
    let port = harness::free_port().to_string();
    let output = faulty_store(&["--store", "redis", "--upstream", "/nowhere", "--", "--port", &port]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && stderr.contains("cannot run /nowhere"), "{stderr}");
}

#[test]
fn refuse_refuses() {
    let mut faulty = Faulty::redis(&["refuse"], &[]);
    assert_eq!(faulty.wait().code(), Some(3));
    assert!(faulty.stderr().contains("refuses to start"));
}

#[test]
fn never_ready_accepts_and_is_silent() {
    let faulty = Faulty::etcd(&["never-ready"], &[]);
    let mut sockets = [faulty.connect(), faulty.connect()];
    for socket in &mut sockets {
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let error = socket.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    }
    assert!(!faulty.folder.path().join("data").exists(), "no store was started");
}

#[test]
fn the_store_does_not_outlive_the_proxy() {
    for faulty in [Faulty::redis(&["delay-percent=25"], &[]), Faulty::etcd(&["drop-write-every=2"], &[])] {
        faulty.connect();
        let store = faulty.store();
        assert!(is_alive(store));
        faulty.signal(Signal::KILL);
        eventually("the end of the store", || (!is_alive(store)).then_some(()));
    }
}

#[test]
fn the_proxy_ends_as_the_store_ends() {
    // Redis ends by itself after SIGTERM and SIGINT; etcd cleans up and then dies of the signal.
    for signal in [Signal::TERM, Signal::INT] {
        let mut faulty = Faulty::redis(&[], &[]);
        Redis::connect(&faulty);
        faulty.signal(signal);
        assert_eq!(faulty.wait().code(), Some(0));
    }
    let mut faulty = Faulty::etcd(&["flip-value-every=2"], &[]);
    Etcd::connect(&faulty).put("key", b"value");
    faulty.signal(Signal::TERM);
    assert_eq!(faulty.wait().signal(), Some(15));
    let stderr = faulty.stderr();
    assert!(
        stderr.contains("the store has ended: signal: 15 (SIGTERM)") && stderr.contains("0 of 0 values"),
        "{stderr}"
    );
    // A store that cannot start.
    let mut faulty = Faulty::redis(&[], &["--nonsense", "1"]);
    assert_eq!(faulty.wait().code(), Some(1));
}

#[test]
fn killed_after_the_hundred_and_first_request() {
    let mut faulty = Faulty::redis(&["kill-after-millis=50"], &[]);
    let mut redis = Redis::connect(&faulty);
    let store = faulty.store();
    while !faulty.stderr().contains("kills") {
        redis.send(b"PING\r\n");
        if redis.try_reply().is_err() {
            break;
        }
    }
    assert_eq!(faulty.wait().signal(), Some(9));
    assert!(!is_alive(store));

    let faulty = Faulty::redis(&["kill-after-millis=0"], &[]);
    let mut redis = Redis::connect(&faulty);
    // Redis::connect asked at least once and, as there is no -LOADING without data, hardly more.
    for _ in 0..95 {
        assert_eq!(redis.call("PING"), "+PONG");
    }
    assert!(is_alive(faulty.store()));
    eventually("the kill", || {
        redis.send(b"PING\r\n");
        redis.try_reply().is_err().then_some(())
    });
}

#[test]
fn stopped_for_a_while_and_then_as_before() {
    let faults = ["stop-after-millis=20", "stop-for-millis=5000", "arm-after-requests=10"];
    let faulty = Faulty::redis(&faults, &[]);
    let mut redis = Redis::connect(&faulty);
    let store = faulty.store();
    for _ in 0..11 {
        assert_eq!(redis.call("PING"), "+PONG");
    }
    eventually("the stop", || (state(store) == Some('T')).then_some(()));
    let start = Instant::now();
    assert_eq!(redis.call("PING"), "+PONG");
    assert!(start.elapsed() >= Duration::from_millis(150), "{:?}", start.elapsed());
    assert_ne!(state(store), Some('T'));
}
