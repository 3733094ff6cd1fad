//! Locks and elections of the server's own services, asked through the gateway.

use std::io::{BufRead, Read};
use std::thread;

use serde_json::Value;

use crate::gateway::send;
use crate::process::Rusd;

fn post(server: &str, path: &str, body: &str) -> Value {
    let (status, mut reader) = send(server, "POST", path, "", body);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(status, 200, "{path} {body}: {text}");
    serde_json::from_str(&text).unwrap()
}

fn lease(server: &str, id: &str) {
    post(server, "/v3/lease/grant", &format!(r#"{{"TTL":"600","ID":"{id}"}}"#));
}

fn keys(server: &Rusd, prefix: &str) -> usize {
    server.etcdctl(&["get", "--prefix", prefix, "--keys-only"]).split_whitespace().count()
}

#[test]
fn a_lock_has_one_owner_and_the_next_waits_until_it_goes() {
    let server = Rusd::start(&[]);
    let address = server.address().to_owned();
    lease(&address, "1");
    lease(&address, "2");
    let first = post(&address, "/v3/lock/lock", r#"{"name":"bA==","lease":"1"}"#);
    // Whoever holds it may ask again.
    assert_eq!(post(&address, "/v3/lock/lock", r#"{"name":"bA==","lease":"1"}"#)["key"], first["key"]);
    let second = thread::spawn({
        let address = address.clone();
        move || post(&address, "/v3/lock/lock", r#"{"name":"bA==","lease":"2"}"#)
    });
    while keys(&server, "l/") < 2 {}
    assert!(!second.is_finished());
    post(&address, "/v3/lock/unlock", &format!(r#"{{"key":{}}}"#, first["key"]));
    assert_ne!(second.join().unwrap()["key"], first["key"]);
    assert_eq!(keys(&server, "l/"), 1);
}

#[test]
fn who_waits_for_a_lock_and_goes_leaves_nothing_behind() {
    let server = Rusd::start(&[]);
    let address = server.address().to_owned();
    lease(&address, "1");
    lease(&address, "2");
    post(&address, "/v3/lock/lock", r#"{"name":"bA==","lease":"1"}"#);
    {
        use std::io::Write;
        let mut socket = std::net::TcpStream::connect(&address).unwrap();
        let body = r#"{"name":"bA==","lease":"2"}"#;
        write!(socket, "POST /v3/lock/lock HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            .unwrap();
        while keys(&server, "l/") < 2 {}
    }
    while keys(&server, "l/") > 1 {}
}

#[test]
fn an_election_is_won_observed_and_resigned() {
    let server = Rusd::start(&[]);
    let address = server.address().to_owned();
    lease(&address, "1");
    lease(&address, "2");
    // Nothing is said, not even a status, before somebody leads.
    let (said, observed) = std::sync::mpsc::channel();
    let listener = address.clone();
    thread::spawn(move || {
        let (status, lines) = send(&listener, "POST", "/v3/election/observe", "", r#"{"name":"ZQ=="}"#);
        assert_eq!(status, 200);
        for line in lines.lines().map_while(Result::ok) {
            let line: Value = serde_json::from_str(&line).unwrap();
            drop(said.send(line["result"]["kv"]["value"].clone()));
        }
    });
    let mut observed = observed.into_iter();
    let won = post(&address, "/v3/election/campaign", r#"{"name":"ZQ==","lease":"1","value":"MQ=="}"#);
    assert_eq!(observed.next().unwrap(), "MQ==");
    let leader = &won["leader"];
    post(&address, "/v3/election/proclaim", &format!(r#"{{"leader":{leader},"value":"Mg=="}}"#));
    assert_eq!(observed.next().unwrap(), "Mg==");
    let next = thread::spawn({
        let address = address.clone();
        move || post(&address, "/v3/election/campaign", r#"{"name":"ZQ==","lease":"2","value":"Mw=="}"#)
    });
    while keys(&server, "e/") < 2 {}
    assert_eq!(post(&address, "/v3/election/leader", r#"{"name":"ZQ=="}"#)["kv"]["value"], "Mg==");
    post(&address, "/v3/election/resign", &format!(r#"{{"leader":{leader}}}"#));
    next.join().unwrap();
    assert_eq!(observed.next().unwrap(), "Mw==");
    let (status, _) =
        send(&address, "POST", "/v3/election/proclaim", "", &format!(r#"{{"leader":{leader},"value":"Mg=="}}"#));
    assert_eq!(status, 500);
}
