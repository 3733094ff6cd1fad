//! What stands for users and passwords.

use std::process::Command;

use harness::output;

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
