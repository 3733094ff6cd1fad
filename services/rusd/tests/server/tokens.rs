//! What stands for users and passwords.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use bytes::Bytes;
use harness::output;
use rusd::proto::etcdserverpb as pb;
use service_kit::grpc;

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

/// A login with the first 72 bytes of a longer password was one.
#[test]
fn a_password_of_more_bytes_than_count_is_refused() {
    let server = Rusd::start(&["--bcrypt-cost=4"]);
    let said = server.refused(&["user", "add", &format!("eve:{}", "x".repeat(73))]);
    assert!(said.contains("password length exceeds 72 bytes"), "{said}");
    server.etcdctl(&["user", "add", &format!("eve:{}", "x".repeat(72))]);
}
