//! A server whose values are on disk tells the same as any other.

use std::io::BufRead;
use std::time::{Duration, Instant};

use crate::gateway;
use crate::process::Rusd;

const KEYS: usize = 20;

fn value(number: usize) -> String {
    format!("value-{number:02}-").repeat(100)
}

fn sample(server: &Rusd, name: &str) -> u64 {
    let (status, body) = gateway::send(server.address(), "GET", "/metrics", "", "");
    assert_eq!(status, 200);
    let line = body.lines().map(Result::unwrap).find(|line| line.starts_with(name));
    line.unwrap_or_else(|| panic!("no {name}")).rsplit(' ').next().unwrap().parse().unwrap()
}

/// Values are moved while nothing else happens.
fn until_all_are_on_disk(server: &Rusd) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while sample(server, "rusd_store_values_in_memory_bytes") > 0 {
        assert!(Instant::now() < deadline, "values are still in memory");
    }
    assert!(sample(server, "rusd_store_values_files_bytes") >= (KEYS * value(0).len()) as u64);
    assert_eq!(sample(server, "rusd_store_values_files_failing"), 0);
}

fn told(server: &Rusd) -> (String, String, String) {
    let values = server.etcdctl(&["get", "", "--prefix", "--print-value-only"]);
    let sorted = server.etcdctl(&["get", "", "--prefix", "--sort-by=VALUE", "--order=DESCEND", "--limit=2"]);
    let hash = server.etcdctl(&["endpoint", "hashkv", "-w", "json"]);
    let hash: serde_json::Value = serde_json::from_str(&hash).unwrap();
    (values, sorted, hash[0]["HashKV"]["hash"].to_string())
}

#[test]
fn values_on_disk_are_told_as_from_memory_and_after_a_kill() {
    let mut server = Rusd::start(&["--values-memory-bytes=0"]);
    let other = Rusd::start(&[]);
    for number in 0..KEYS {
        for server in [&server, &other] {
            server.etcdctl(&["put", &format!("key-{number:02}"), &value(number)]);
        }
    }
    let expected = told(&other);
    assert!(expected.0.contains(&value(KEYS - 1)) && expected.1.contains(&value(KEYS - 1)));
    until_all_are_on_disk(&server);
    assert_eq!(told(&server), expected);
    let previous = server.etcdctl(&["put", "key-03", "new", "--prev-kv"]);
    assert!(previous.contains(&value(3)), "{previous}");
    assert_eq!(previous, other.etcdctl(&["put", "key-03", "new", "--prev-kv"]));
    server = server.restart();
    until_all_are_on_disk(&server);
    let names = std::fs::read_dir(server.directory().join("data/member")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().all(|name| ["identity.json", "snap", "wal"].contains(&&**name)), "scratch files: {names:?}");
    assert_eq!(told(&server), told(&other));
    assert_eq!(server.etcdctl(&["get", "key-03", "--rev=10", "--print-value-only"]).trim_end(), value(3));
}
