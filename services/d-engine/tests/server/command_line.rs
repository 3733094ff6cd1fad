//! The command line, right and wrong; probes and metrics.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use crate::group::{Group, PROGRAM};

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(PROGRAM).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn mistakes_are_one_line_and_exit_code_2() {
    let root = tempfile::tempdir().unwrap();
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

fn get(address: &str, path: &str) -> String {
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
        let (_, out, _) = bench(&["--report-inflight", "range"]);
        assert!(out.contains("limited to the connections"), "{out}");
    }
    let metrics = get(&address, "/metrics");
    for name in
        ["dengine_term", "dengine_is_leader 1", "dengine_reads_total{path=\"lease\"}", "dengine_log_sync_seconds_count"]
    {
        assert!(metrics.contains(name), "{name} is not in {metrics}");
    }
    assert!(metrics.trim_end().ends_with("# EOF"));
}
