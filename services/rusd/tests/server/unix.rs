//! Clients that come by a socket that is a file.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use harness::{output, peer};

use crate::process::Rusd;

fn put(path: &Path, scheme: &str, more: &[&str]) -> String {
    let mut command = Command::new(peer("etcd", "etcdctl"));
    let endpoint = format!("--endpoints={scheme}://{}", path.display());
    output(command.env_clear().args([endpoint.as_str(), "put", "k", "v"]).args(more))
}

#[test]
fn clients_come_by_a_file_which_a_killed_server_may_have_left() {
    let place = harness::folder();
    let path = place.path().join("client");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a listener leaves its file");
    let server = Rusd::start(&[&format!("--listen-client-urls=http://127.0.0.1:0,unix://{}", path.display())]);
    assert_eq!(server.other_addresses(), [path.to_str().unwrap()]);
    assert_eq!(put(&path, "unix", &[]), "OK\n");
    let server = server.restart();
    assert_eq!(put(&path, "unix", &[]), "OK\n");
    assert_eq!(server.etcdctl(&["get", "k", "--print-value-only"]), "v\n");
    assert!(server.stop().success());
    assert!(!path.exists(), "who stops gently takes it away");
}

#[test]
fn tls_is_spoken_through_a_file() {
    let place = harness::folder();
    let path = place.path().join("client");
    let _server =
        Rusd::start(&["--auto-tls", &format!("--listen-client-urls=https://127.0.0.1:0,unixs://{}", path.display())]);
    assert_eq!(put(&path, "unixs", &["--insecure-transport=false", "--insecure-skip-tls-verify"]), "OK\n");
}
