//! The command line, right and wrong; probes and metrics.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use harness::{Process, command};
use std::time::Duration;

use d_engine_client::grpc::Channel;

use crate::group::{Group, PROGRAM, free};

pub fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(PROGRAM).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn mistakes_are_one_line_and_exit_code_2() {
    let root = harness::folder();
    let data = root.path().join("data").display().to_string();
    let file = root.path().join("file.toml");
    std::fs::write(&file, "[cluster]\nname = 1\n").unwrap();
    let file = file.display().to_string();
    let serve = |more: &[&str]| [&["serve", "--node-id", "1", "--db-root-dir", &data], more].concat().join("\n");
    let mistakes = [
        "serve".to_owned(),
        "nothing".to_owned(),
        serve(&["--unknown"]),
        serve(&["--durability", "interval"]),
        serve(&["--election-timeout-ms", "x"]),
        serve(&["--config", &file]),
        serve(&["--member", "2=127.0.0.1:1"]),
        serve(&["--log-level", "loud"]),
        serve(&["--tls-key", &file]),
        serve(&["--member", "1=0.0.0.0:1"]),
        serve(&["--member", "1=127.0.0.1:1", "--join", "127.0.0.1:2", "--group", "other"]),
        ["ctl", "promote", "4"].join("\n"),
        ["ctl", "put", "--endpoint", "x"].join("\n"),
        ["ctl", "put", "key"].join("\n"),
        ["ctl", "put", "key", "value", "--value-file", &file].join("\n"),
        ["bench", "--conns", "0", "put"].join("\n"),
        ["bench", "range", "--consistency", "x"].join("\n"),
    ];
    for mistake in mistakes {
        let (code, out, error) = run(&mistake.lines().collect::<Vec<_>>());
        assert_eq!((code, &*out, error.trim_end().lines().count()), (Some(2), "", 1), "{mistake:?}: {error}");
        assert!(error.starts_with("d-engine: "), "{error}");
    }
    assert!(!std::path::Path::new(&data).exists(), "a mistake has made a directory");
    let (code, out, _) = run(&["--version"]);
    assert_eq!((code, out.trim()), (Some(0), concat!("d-engine ", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn who_says_nothing_is_helped_and_gets_exit_code_2() {
    for nothing in [&[][..], &["ctl"], &["ctl", "member"]] {
        let (code, out, error) = run(nothing);
        assert_eq!((code, &*out), (Some(2), ""), "{nothing:?}: {error}");
        assert!(error.contains("Usage: d-engine") && error.contains("Commands:"), "{nothing:?}: {error}");
    }
}

#[test]
fn what_may_have_been_meant_is_said() {
    for (said, meant) in [
        (&["serve", "--db-root-dri", "x"][..], "--db-root-dir"),
        (&["ctl", "statu"], "status"),
        (&["ctl", "--endpoint", "127.0.0.1:1", "status"], "--endpoints"),
        // It was taken for the key.
        (&["ctl", "put", "--endpoint", "127.0.0.1:1"], "--endpoints"),
        (&["bench", "--door", "streem", "put"], "stream"),
    ] {
        let (code, _, error) = run(said);
        assert_eq!((code, error.trim_end().lines().count()), (Some(2), 1), "{said:?}: {error}");
        assert!(error.contains(&format!("exists: '{meant}'")), "{said:?}: {error}");
    }
}

pub fn get(address: &str, path: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[tokio::test]
async fn a_server_is_probed_measured_and_loaded() {
    let group = Group::start(1);
    group.leader().await;
    let address = group.addresses[0].clone();
    let ctl = |verb: &[&str]| run(&[&["ctl", "--endpoints", &address], verb].concat());
    assert_eq!(ctl(&["put", "k", "v"]).0, Some(0));
    assert_eq!(ctl(&["get", "k", "--consistency", "lease"]).1, "v\n");
    assert_eq!(ctl(&["get", "none"]).0, Some(1));
    assert!(ctl(&["status"]).1.contains("member 1 leader"));
    for path in ["/livez", "/readyz"] {
        assert!(get(&address, path).starts_with("HTTP/1.1 200"), "{path}");
    }
    assert!(get(&address, "/other").starts_with("HTTP/1.1 404"));
    for door in ["unary", "first", "stream"] {
        let bench = |more: &[&str]| {
            let load = ["--total", "200", "--conns", "2", "--clients", "10", "--sequential-keys", "--door", door];
            run(&[&["bench", "--endpoints", &address], &load[..], more].concat())
        };
        let (code, out, error) = bench(&["put"]);
        assert_eq!(code, Some(0), "{error}");
        assert!(out.contains("durability of acknowledged writes: fsync") && out.contains("requests: 200"), "{out}");
        for level in ["l", "s", "e"] {
            let (_, out, error) = bench(&["range", "--consistency", level]);
            assert!(out.contains("found: 200 of 200"), "{out}{error}");
        }
        let (_, out, _) = bench(&["--report-inflight", "get"]);
        assert!(out.contains("limited to the connections"), "{out}");
    }
    let metrics = get(&address, "/metrics");
    for name in
        ["dengine_term", "dengine_is_leader 1", "dengine_reads_total{path=\"lease\"}", "dengine_log_sync_seconds_count"]
    {
        assert!(metrics.contains(name), "{name} is not in {metrics}");
    }
    // What monitoring of processes looks for, and what tells which release it is.
    for name in
        ["process_resident_memory_bytes ", "process_open_fds ", "dengine_info{version=\"", "dengine_has_lease 1"]
    {
        assert!(metrics.contains(name), "{name} is not in {metrics}");
    }
    assert!(metrics.contains("dengine_commands_total{outcome=\"applied\"}") && !metrics.contains("# EOF"), "{metrics}");
    assert!(get(&address, "/readyz?verbose").contains("[+]leader ok\n[+]majority ok\nok\n"));
}

/// Asks for the names of all services, as `grpcurl` does.
#[derive(Clone, PartialEq, prost::Message)]
struct ReflectionRequest {
    #[prost(string, optional, tag = "7")]
    list_services: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ReflectionResponse {
    #[prost(message, optional, tag = "6")]
    services: Option<Services>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Services {
    #[prost(message, repeated, tag = "1")]
    service: Vec<ServiceName>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ServiceName {
    #[prost(string, tag = "1")]
    name: String,
}

#[tokio::test]
async fn a_member_describes_what_it_speaks() {
    let group = Group::start(1);
    group.leader().await;
    let channel = Channel::connect(&group.addresses[0]).await.unwrap();
    let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    let (_question, mut answers) =
        channel.stream(path, &ReflectionRequest { list_services: Some(String::new()) }, true).await.unwrap();
    let answer: ReflectionResponse = answers.next().await.unwrap().unwrap();
    let services = answer.services.unwrap().service.into_iter().map(|service| service.name).collect::<Vec<_>>();
    for name in ["raft.client.RaftClientService", "d_engine.client.RaftClientService", "storebench.dengine.v1.Store"] {
        assert!(services.iter().any(|service| service == name), "{name} is not in {services:?}");
    }
}

/// Set where this test runs again, as a server: where to listen.
const SERVED: &str = "TEST_PANICS_SERVED";

#[test]
fn a_panic_on_any_thread_ends_a_server() {
    if let Ok(address) = std::env::var(SERVED) {
        // One of its threads, as soon as it serves.
        std::thread::spawn(move || {
            while TcpStream::connect(&address).is_err() {
                std::thread::sleep(Duration::from_millis(10));
            }
            panic!("half dead");
        });
        // As in `main`. What it needs besides is in the environment.
        d_engine::command_line::run(["d-engine".into(), "serve".into()]);
        return;
    }
    let root = harness::folder();
    let address = free(1).remove(0);
    let mut server = command(std::env::current_exe().unwrap());
    server
        .args(["--exact", "command_line::a_panic_on_any_thread_ends_a_server", "--nocapture"])
        .envs([
            (SERVED, &*address),
            ("D_ENGINE_MEMBERS", &*format!("1={address},127.0.0.1:1")),
            ("D_ENGINE_NODE_ID", "1"),
        ])
        .env("D_ENGINE_DB_ROOT_DIR", root.path().join("data"))
        .stderr(std::fs::File::create(root.path().join("log")).unwrap());
    let status = Process::start(&mut server).wait();
    let said = std::fs::read_to_string(root.path().join("log")).unwrap();
    // By a signal: it did not end in order.
    assert!(status.code().is_none(), "{status:?}: {said}");
    assert!(said.contains("panic, the process ends: half dead"), "{said}");
}
