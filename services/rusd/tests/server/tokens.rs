//! What stands for users and passwords.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use harness::{Etcd, output};
use rusd::proto::etcdserverpb as pb;
use service_kit::grpc;

use crate::gateway;
use crate::hostile::{call, connect, run, send, trailers};
use crate::process::Rusd;

fn with_users(server: &Rusd) {
    server.etcdctl(&["user", "add", "root:secret"]);
    server.etcdctl(&["user", "grant-role", "root", "root"]);
    server.etcdctl(&["auth", "enable"]);
}

#[test]
fn json_web_tokens_are_made_and_taken() {
    let directory = harness::folder();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (private, public) = (path("private"), path("public"));
    let rsa = ["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", &private];
    output(Command::new("openssl").args(rsa));
    output(Command::new("openssl").args(["pkey", "-in", &private, "-pubout", "-out", &public]));
    let flag = format!("--auth-token=jwt,pub-key={public},priv-key={private},sign-method=RS256,ttl=10m");
    let server = Rusd::start(&[&flag, "--bcrypt-cost=4"]);
    with_users(&server);
    assert_eq!(server.etcdctl(&["--user", "root:secret", "put", "k", "v"]), "OK\n");
    assert!(server.refused(&["--user", "root:wrong", "put", "k", "v"]).contains("authentication failed"));
    // It is not remembered anywhere, and is good after a restart.
    let server = server.restart();
    assert_eq!(server.etcdctl(&["--user", "root:secret", "get", "k", "--print-value-only"]), "v\n");
}

#[test]
fn a_mistake_in_the_keys_is_told_before_anything_is_served() {
    let directory = harness::folder();
    let mut rusd = crate::process::rusd();
    rusd.arg("--data-dir").arg(directory.path().join("data"));
    let output = rusd.arg("--auth-token=jwt,pub-key=/nowhere,sign-method=RS256").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("--auth-token: /nowhere"), "{said}");
    assert!(!output.status.success());
}

/// It could be shown again after a restart, for reads and writes, for as long as nobody had written.
#[test]
fn a_token_that_has_ended_is_refused_after_a_restart_too() {
    let server = Rusd::start(&["--bcrypt-cost=4", "--auth-token-ttl=2"]);
    with_users(&server);
    let (_, answer) =
        gateway::post(server.address(), "/v3/auth/authenticate", "", r#"{"name":"root","password":"secret"}"#);
    let of_root = format!("Authorization: {}\r\n", answer["token"].as_str().unwrap());
    let get = |server: &Rusd| gateway::post(server.address(), "/v3/kv/range", &of_root, r#"{"key":"a2V5"}"#).0;
    // So that nothing but it is read at the start.
    assert_eq!(gateway::post(server.address(), "/v3/maintenance/defragment", &of_root, "{}").0, 200);
    // Its use lets it live on.
    thread::sleep(Duration::from_secs(3));
    assert_eq!(get(&server), 401);
    let server = server.restart();
    assert_eq!(get(&server), 401);
    let (status, said) = gateway::post(server.address(), "/v3/kv/put", &of_root, r#"{"key":"a2V5"}"#);
    assert_eq!(status, 401, "{said}");
}

/// Logins, one after the other until told otherwise: when each was answered, and whether with a token.
fn logins(server: &Rusd, stop: &AtomicBool, name: &str, password: &str) -> Vec<(Instant, bool)> {
    let mut answered = Vec::new();
    run(async {
        let connection = connect(server).await;
        while !stop.load(Ordering::Relaxed) {
            let (answer, mut stream) = call(&connection, "Auth/Authenticate").await;
            let request = pb::AuthenticateRequest { name: name.into(), password: password.into() };
            assert!(send(&mut stream, grpc::encode(&request)).await);
            stream.send_data(Bytes::new(), true).unwrap();
            let (head, body) = answer.await.unwrap().into_parts();
            let told = trailers(body, head.headers).await;
            answered.push((Instant::now(), told["grpc-status"] == "0"));
        }
    });
    answered
}

/// Who was checking a password while it was changed got a token for it afterwards, and used that for ever.
#[test]
fn a_login_that_began_before_the_password_was_changed_has_no_token_after_it() {
    let server = Rusd::start(&["--bcrypt-cost=11"]);
    server.etcdctl(&["user", "add", "eve:leaked"]);
    with_users(&server);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let eve: Vec<_> = (0..4).map(|_| scope.spawn(|| logins(&server, &stop, "eve", "leaked"))).collect();
        let mut change = server.command(&["--user=root:secret", "user", "passwd", "eve", "--interactive=false"]);
        let mut change = change.stdin(Stdio::piped()).spawn().unwrap();
        change.stdin.take().unwrap().write_all(b"new\n").unwrap();
        let output = change.wait_with_output().unwrap();
        let changed = Instant::now();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // By then all that had begun are answered.
        server.etcdctl(&["--user=root:secret", "get", "k"]);
        stop.store(true, Ordering::Relaxed);
        let answered: Vec<_> = eve.into_iter().flat_map(|eve| eve.join().unwrap()).collect();
        assert!(answered.iter().any(|(at, is_in)| *at < changed && *is_in), "nobody logged in before");
        let late = answered.iter().filter(|(at, is_in)| *at > changed && *is_in).count();
        assert_eq!(late, 0, "tokens for the old password");
    });
}

/// They were cut in silence: 72 bytes of 80 were the password.
#[test]
fn passwords_that_bcrypt_cannot_tell_apart_are_refused_as_in_etcd() {
    let directory = harness::folder();
    let etcd = Etcd::start(&directory.path().join("etcd"));
    let server = Rusd::start(&["--bcrypt-cost=4"]);
    let request = |path: &str, name: &str, length: usize| {
        let body = format!("{{\"name\":\"{name}\",\"password\":\"{}\"}}", "x".repeat(length));
        let answers = [etcd.address(), server.address()].map(|address| gateway::post(address, path, "", &body));
        let [theirs, ours] = answers.map(|(status, said)| (status, said["message"].clone(), said["token"].is_string()));
        assert_eq!(ours, theirs, "{path} with {length}");
        ours
    };
    let (status, said, _) = request("/v3/auth/user/add", "root", 73);
    assert_eq!((status, said.as_str()), (500, Some("bcrypt: password length exceeds 72 bytes")));
    request("/v3/auth/user/add", "root", 72);
    request("/v3/auth/user/changepw", "root", 73);
    for address in [etcd.address(), server.address()] {
        for (path, body) in [("/v3/auth/user/grant", r#"{"user":"root","role":"root"}"#), ("/v3/auth/enable", "{}")] {
            assert_eq!(gateway::post(address, path, "", body).0, 200);
        }
    }
    for length in [71, 72, 73, 80] {
        request("/v3/auth/authenticate", "root", length);
    }
}

/// Five hundred logins with a wrong password had a thread each, and honest writes went from 3,138 to 2 a second.
#[test]
fn a_flood_of_logins_has_a_few_threads_and_writes_go_on_beside_it() {
    const LOGINS: usize = 200;
    let server = Rusd::start(&["--bcrypt-cost=10"]);
    with_users(&server);
    let (_, answer) =
        gateway::post(server.address(), "/v3/auth/authenticate", "", r#"{"name":"root","password":"secret"}"#);
    let of_root = format!("Authorization: {}\r\n", answer["token"].as_str().unwrap());
    let before = server.threads();
    run(async {
        let connection = connect(&server).await;
        let wrong = grpc::encode(&pb::AuthenticateRequest { name: "root".into(), password: "wrong".into() });
        let mut answers = Vec::new();
        for _ in 0..LOGINS {
            let (answer, mut stream) = call(&connection, "Auth/Authenticate").await;
            stream.send_data(wrong.clone(), true).unwrap();
            answers.push(answer);
        }
        // Two checks of the same thread are done by now, so that all have begun that may.
        for answer in answers.drain(..2) {
            let (head, body) = answer.await.unwrap().into_parts();
            assert_eq!(trailers(body, head.headers).await["grpc-status"], "3");
        }
        let during = server.threads();
        let processors = std::thread::available_parallelism().unwrap().get() as u64;
        assert!(during <= before + processors + 2, "{during} threads, {before} before");
        let (status, said) = gateway::post(server.address(), "/v3/kv/put", &of_root, r#"{"key":"a2V5"}"#);
        assert_eq!(status, 200, "{said}");
        // Who goes leaves the queue: the next is not the two hundredth.
        drop((answers, connection));
    });
    let (status, said) =
        gateway::post(server.address(), "/v3/auth/authenticate", "", r#"{"name":"root","password":"secret"}"#);
    assert_eq!(status, 200, "{said}");
}
