//! TLS as users of Redis have it: redis-cli and redis-benchmark with certificates, CONFIG SET, and replication with Redis 7.0.15.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use harness::{Authority, free_port, until};
use support::{Server, redis_program, rsedis_program, start};

/// A server that listens with TLS as well, and the port.
fn start_tls(program: &Path, authority: &Authority, folder: &Path, more: &[&str]) -> (Server, u16) {
    let port = free_port();
    let (certificate, key, root) =
        (authority.file("server.pem"), authority.file("server.key"), authority.file("ca.pem"));
    let text = port.to_string();
    let options =
        ["--tls-port", &text, "--tls-cert-file", &certificate, "--tls-key-file", &key, "--tls-ca-cert-file", &root];
    (start(program, folder, &[&options[..], more].concat()), port)
}

/// What redis-cli says over TLS, believing in one authority, and showing a certificate or none.
fn ask(port: u16, authority: &Authority, shown: Option<(&Authority, &str)>, words: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(redis_program("redis-cli"));
    command.args(["-p", &port.to_string(), "--tls", "--cacert", &authority.file("ca.pem")]);
    if let Some((owner, name)) = shown {
        command.args(["--cert", &owner.file(&format!("{name}.pem")), "--key", &owner.file(&format!("{name}.key"))]);
    }
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

fn says(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn redis_cli_and_redis_benchmark_speak_tls() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    for (owner, name) in [(&authority, "server"), (&authority, "client"), (&stranger, "client")] {
        owner.sign(name);
    }
    let folder = harness::folder();
    let (server, port) = start_tls(rsedis_program(), &authority, folder.path(), &[]);
    let me = Some((&authority, "client"));
    assert_eq!(says(&ask(port, &authority, me, &["SET", "key", "value"], b"")), "OK\n");
    // Many records each way.
    let value: Vec<u8> = (0..5_000_000u32).map(|number| b'a' + (number % 23) as u8).collect();
    assert_eq!(says(&ask(port, &authority, me, &["-x", "SET", "large"], &value)), "OK\n");
    let read = ask(port, &authority, me, &["GET", "large"], b"").stdout;
    assert!(read.strip_suffix(b"\n") == Some(&value[..]), "{} bytes", read.len());
    // Who shows no certificate, or one that somebody else has signed, is not served, and does not believe in another server.
    for (root, shown) in [(&authority, None), (&authority, Some((&stranger, "client"))), (&stranger, me)] {
        let output = ask(port, root, shown, &["GET", "key"], b"");
        assert!(!says(&output).contains("value"), "{}", says(&output));
    }
    let benchmark = Command::new(redis_program("redis-benchmark"))
        .args([
            "-p",
            &port.to_string(),
            "--tls",
            "--cacert",
            &authority.file("ca.pem"),
            "-q",
            "-t",
            "set,get,lrange_600",
        ])
        .args(["--cert", &authority.file("client.pem"), "--key", &authority.file("client.key")])
        .args(["-n", "2000", "-P", "16", "-d", "3000"])
        .output()
        .unwrap();
    assert!(benchmark.status.success() && says(&benchmark).contains("LRANGE_600"), "{}", says(&benchmark));
    // The port without TLS is another, and this one takes nothing else.
    let mut plain = support::Client::connect(port).unwrap();
    assert!(plain.try_call(&[b"PING"]).is_err());
    assert_eq!(server.client().call("GET key"), "$5\r\nvalue\r\n");
    let set = server.client().call("CONFIG SET tls-auth-clients optional");
    assert_eq!(set, "+OK\r\n");
    assert_eq!(says(&ask(port, &authority, None, &["GET", "key"], b"")), "value\n");
    let output = ask(port, &authority, Some((&stranger, "client")), &["GET", "key"], b"");
    assert!(!says(&output).contains("value"), "one that is shown is checked");
}

#[test]
fn certificates_are_renewed_by_config_set() {
    let (old, new) = (Authority::new(), Authority::new());
    for owner in [&old, &new] {
        owner.sign("server");
    }
    let folder = harness::folder();
    let (server, port) = start_tls(rsedis_program(), &old, folder.path(), &["--tls-auth-clients", "no"]);
    let pong = |authority: &Authority| says(&ask(port, authority, None, &["PING"], b"")) == "PONG\n";
    assert!(pong(&old) && !pong(&new));
    // A key of another certificate: refused as a whole, and what was there before stays.
    let refused = server.client().call(&format!("CONFIG SET tls-key-file {}", new.file("server.key")));
    assert_eq!(
        refused,
        "-ERR CONFIG SET failed (possibly related to argument 'tls-key-file') - Unable to update TLS configuration. Check server logs.\r\n"
    );
    assert!(server.client().call("CONFIG GET tls-key-file").contains(&old.file("server.key")));
    assert!(pong(&old));
    let (certificate, key) = (new.file("server.pem"), new.file("server.key"));
    assert_eq!(server.client().call(&format!("CONFIG SET tls-cert-file {certificate} tls-key-file {key}")), "+OK\r\n");
    assert!(pong(&new) && !pong(&old));
    // The same names, another certificate in them: read again when they are set again.
    for name in ["server.pem", "server.key"] {
        std::fs::copy(old.file(name), new.file(name)).unwrap();
    }
    assert_eq!(server.client().call(&format!("CONFIG SET tls-cert-file {certificate}")), "+OK\r\n");
    assert!(pong(&old) && !pong(&new));
}

/// Of a CONFIG SET that is refused for another reason, its certificates held.
#[test]
fn certificates_of_what_is_refused_do_not_hold() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    for owner in [&authority, &stranger] {
        owner.sign("server");
        owner.sign("client");
    }
    let folder = harness::folder();
    let (server, port) = start_tls(rsedis_program(), &authority, folder.path(), &[]);
    let mut client = server.client();
    let (certificate, key) = (stranger.file("server.pem"), stranger.file("server.key"));
    client.call("MULTI");
    client.call(&format!("CONFIG SET port {}", free_port()));
    client.call(&format!("CONFIG SET port {} tls-cert-file {certificate} tls-key-file {key}", free_port()));
    let replies = client.call("EXEC");
    assert!(replies.starts_with("*2\r\n+OK\r\n-ERR ") && replies.contains("try again"), "{replies}");
    let shown = ask(port, &authority, Some((&authority, "client")), &["PING"], b"");
    assert_eq!(says(&shown), "PONG\n");
}

#[test]
fn a_start_without_certificates_is_one_line_and_exit_code_1() {
    let port = free_port().to_string();
    let output = Command::new(rsedis_program()).args(["--bind", "127.0.0.1", "--tls-port", &port]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("tls-cert-file") && text.trim_end().lines().count() == 1, "{text}");
}

/// One follows the other over TLS: all keys, and then the stream.
fn follows(master: &Path, replica: &Path, diskless: &str) {
    let authority = Authority::new();
    // For no host: Redis looks at who has signed alone.
    authority.sign_as("server", |parameters| parameters.subject_alt_names.clear());
    let (here, there) = (harness::folder(), harness::folder());
    let options = ["--tls-replication", "yes", "--repl-diskless-sync", diskless, "--repl-diskless-sync-delay", "0"];
    let (master, port) = start_tls(master, &authority, here.path(), &options);
    let mut writer = master.client();
    let value = "x".repeat(3_000);
    for number in 0..2_000 {
        assert_eq!(writer.call(&format!("SET before{number} {value}")), "+OK\r\n");
    }
    let (replica, _) = start_tls(replica, &authority, there.path(), &options);
    assert_eq!(replica.client().call(&format!("REPLICAOF 127.0.0.1 {port}")), "+OK\r\n");
    until("all keys", || replica.client().call("DBSIZE") == ":2000\r\n");
    for number in 0..2_000 {
        assert_eq!(writer.call(&format!("SET behind{number} {value}")), "+OK\r\n");
    }
    assert_eq!(writer.call("WAIT 1 60000"), ":1\r\n");
    assert_eq!(replica.client().call("DBSIZE"), ":4000\r\n");
    assert_eq!(replica.client().call("GET behind1999"), format!("$3000\r\n{value}\r\n"));
}

#[test]
fn redis_follows_us_over_tls() {
    follows(rsedis_program(), &redis_program("redis-server"), "yes");
    follows(rsedis_program(), &redis_program("redis-server"), "no");
}

#[test]
fn we_follow_redis_over_tls() {
    follows(&redis_program("redis-server"), rsedis_program(), "yes");
    follows(&redis_program("redis-server"), rsedis_program(), "no");
}

#[test]
fn we_follow_ourselves_over_tls() {
    follows(rsedis_program(), rsedis_program(), "yes");
}
