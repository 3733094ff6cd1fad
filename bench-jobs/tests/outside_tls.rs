//! A store that is somebody's and speaks TLS: a real Redis and a real etcd that want a certificate and a password, loaded with both; and what is
//! said where one of them is wrong.
//!
//! Needs redis-server and etcd in the peers folder; `peers/fetch redis etcd` puts them there.

// Helpers of a test fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{Authority, free_port};
use serde_json::{Value, json};

use support::etcd::Etcd;
use support::outside::{run, store_failed};
use support::redis::Redis;

const PASSWORD: &str = "s3cret";

/// What a client has that the store takes.
fn client(authority: &Authority) -> Value {
    let (certificate, key) = authority.sign("client");
    let password = authority.file("password");
    std::fs::write(&password, PASSWORD).unwrap();
    json!({
        "passwordFrom": { "file": password },
        "tls": { "caFile": authority.path(), "certificateFile": certificate, "keyFile": key },
    })
}

/// The same with another value at a path, or without it.
fn with(client: &Value, path: &str, value: Value) -> Value {
    let mut changed = client.clone();
    let (parent, last) = path.rsplit_once('/').unwrap();
    let parent = changed.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    if value.is_null() {
        parent.remove(last)
    } else {
        parent.insert(last.into(), value)
    };
    changed
}

fn without_certificate(client: &Value) -> Value {
    with(&with(client, "/tls/certificateFile", Value::Null), "/tls/keyFile", Value::Null)
}

/// Another who signs certificates, and a file with another password.
fn wrong(authority: &Authority) -> (Authority, String) {
    let password = authority.file("wrong");
    std::fs::write(&password, "guess").unwrap();
    (Authority::new(), password)
}

/// Holds what is said of each client against what it must name.
fn refused(endpoint: &str, family: &str, parameters: &Value, clients: &[(Value, &str)]) {
    for (client, expected) in clients {
        let ended = run(endpoint, client.clone(), family, parameters.clone());
        let said = store_failed(&ended);
        assert!(said.contains(expected), "{expected:?} is not in: {said}");
        assert!(!said.contains(PASSWORD) && !ended.errors.contains(PASSWORD), "{said}");
    }
}

fn redis_over_tls(authority: &Authority) -> Redis {
    let (certificate, key) = authority.sign("redis");
    let port = free_port();
    let text = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
    let files = [text(certificate), text(key), text(authority.path())];
    let arguments = [
        ["--port", "0"],
        ["--tls-port", &port.to_string()],
        ["--tls-cert-file", &files[0]],
        ["--tls-key-file", &files[1]],
        ["--tls-ca-cert-file", &files[2]],
        ["--requirepass", PASSWORD],
    ];
    Redis::start_on(port, &arguments.concat())
}

#[test]
fn a_redis_that_wants_a_certificate_and_a_password_is_loaded_with_both_and_nothing_stays() {
    let authority = Authority::new();
    let redis = redis_over_tls(&authority);
    let client = client(&authority);
    for parameters in [
        json!({ "command": "Set", "keySpace": 300 }),
        json!({ "command": "Get", "keySpace": 300, "protocol": "Resp3" }),
        // More than a socket, or a record of TLS, takes at once, on both ways.
        json!({ "command": "Set", "keySpace": 30, "valueBytes": 200_000, "pipeline": 8 }),
        json!({ "command": "Get", "keySpace": 30, "valueBytes": 200_000, "pipeline": 8 }),
        json!({ "command": "Mixed", "readPercent": 50, "keySpace": 300, "valueBytes": 20_000, "pipeline": 4 }),
    ] {
        // Without consent: what another workload had left would be somebody's.
        let ended = run(&redis.endpoint(), client.clone(), "redis", parameters.clone());
        assert!(ended.measured().operations >= 600, "{parameters}");
    }
    let named = with(&client, "/tls/serverName", json!("localhost"));
    assert!(run(&redis.endpoint(), named, "redis", json!({ "command": "Ping" })).measured().operations >= 600);
}

#[test]
fn what_a_redis_refuses_is_told_by_its_field() {
    let authority = Authority::new();
    let redis = redis_over_tls(&authority);
    let client = client(&authority);
    let (other, password) = wrong(&authority);
    let set = json!({ "command": "Set", "keySpace": 300 });
    refused(
        &redis.endpoint(),
        "redis",
        &set,
        &[
            (with(&client, "/tls/caFile", json!(other.path())), "external.tls.caFile"),
            (with(&client, "/tls/serverName", json!("redis.example")), "external.tls.serverName"),
            (without_certificate(&client), "certificateFile and keyFile"),
            (with(&client, "/passwordFrom/file", json!(password)), "external.user and external.passwordFrom"),
            (with(&client, "/passwordFrom", Value::Null), "it wants a password: give external.passwordFrom"),
            (with(&client, "/tls", Value::Null), "if it speaks TLS, give external.tls"),
        ],
    );
    let clear = Redis::start(&["--requirepass", PASSWORD]);
    refused(&clear.endpoint(), "redis", &set, &[(client, "remove external.tls")]);
}

#[test]
fn an_etcd_that_wants_a_certificate_and_a_user_is_loaded_with_both_and_nothing_stays() {
    let authority = Authority::new();
    let etcd = Etcd::over_tls(&authority, PASSWORD);
    let client = with(&client(&authority), "/user", json!("root"));
    for parameters in [
        json!({ "operation": "Put", "keySpace": 300, "valueBytes": 20_000 }),
        json!({ "operation": "Mixed", "readPercent": 50, "keySpace": 300 }),
        json!({ "operation": "WatchLatency", "keySpace": 300 }),
    ] {
        let ended = run(&etcd.endpoint, client.clone(), "etcd", parameters.clone());
        assert!(ended.measured().operations >= 600, "{parameters}");
    }
}

#[test]
fn what_an_etcd_refuses_is_told_by_its_field() {
    let authority = Authority::new();
    let etcd = Etcd::over_tls(&authority, PASSWORD);
    let client = with(&client(&authority), "/user", json!("root"));
    let (other, password) = wrong(&authority);
    let put = json!({ "operation": "Put", "keySpace": 300 });
    refused(
        &etcd.endpoint,
        "etcd",
        &put,
        &[
            (with(&client, "/tls/caFile", json!(other.path())), "external.tls.caFile"),
            (with(&client, "/tls/serverName", json!("etcd.example")), "external.tls.serverName"),
            (without_certificate(&client), "certificateFile and keyFile"),
            (with(&client, "/passwordFrom/file", json!(password)), "external.user and external.passwordFrom"),
            (with(&client, "/user", json!("nobody")), "external.user and external.passwordFrom"),
            (with(&client, "/tls", Value::Null), "if it speaks TLS, give external.tls"),
        ],
    );
    let clear = Etcd::start();
    refused(&clear.endpoint, "etcd", &put, &[(client, "remove external.tls")]);
}
