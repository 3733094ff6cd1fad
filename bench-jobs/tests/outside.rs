//! A store that is somebody's, with somebody's keys: a real Redis and a real etcd, loaded with every command and operation. What was there is
//! there afterwards, byte by byte, and nothing else is.
//!
//! Needs redis-server and etcd in the peers folder; `peers/fetch redis etcd` puts them there.

// Helpers of a test fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use bench_jobs::net::etcd::messages::{
    AuthenticateRequest, PutRequest, RangeRequest, RangeResponse, StatusRequest, StatusResponse, path,
};
use serde_json::json;
use storebench_crds::job::JobLine;

use support::etcd::Etcd;
use support::job::Ended;
use support::outside::{run, run_load, store_failed};
use support::redis::{Redis, commands};

/// What somebody else has, under the very names that the load has in a store of its own.
fn of_somebody(redis: &Redis) {
    redis.command("MSET key:000000000042 mine counter:000000000042 7 storebench theirs storebench:mine too");
    redis.command("RPUSH mylist a b c");
    redis.command("SADD myset a b c");
    redis.command("HSET myhash a 1");
    redis.command("ZADD myzset 1 a");
    redis.command("XADD mystream 1-1 a 1");
}

/// Everything there is, as the server itself sums it up.
fn digest(redis: &Redis) -> String {
    redis.command("DEBUG DIGEST")
}

#[test]
fn every_command_leaves_the_keys_of_others_as_they_were_and_none_of_its_own() {
    let redis = Redis::start(&["--enable-debug-command", "yes"]);
    of_somebody(&redis);
    let before = digest(&redis);
    assert!(before.starts_with('+') && redis.command("DBSIZE") == ":9\r\n", "{before}");
    for command in commands() {
        let mut parameters = json!({ "command": command, "valueBytes": 40, "keySpace": 300 });
        if command == "Mixed" {
            parameters["readPercent"] = json!(50);
        }
        let ended = run(&redis.endpoint(), json!({ "allowData": true }), "redis", parameters);
        assert!(ended.measured().operations >= 600, "{command}");
        assert_eq!(digest(&redis), before, "{command} changed what somebody has, or left something behind");
    }
}

#[test]
fn a_redis_that_holds_keys_is_not_touched_without_consent() {
    let redis = Redis::start(&["--enable-debug-command", "yes"]);
    of_somebody(&redis);
    let before = digest(&redis);
    let ended = run(&redis.endpoint(), json!({}), "redis", json!({ "command": "Set" }));
    let said = store_failed(&ended);
    assert!(said.contains("holds 9 keys") && said.contains("allowData"), "{said}");
    assert_eq!(digest(&redis), before);
    redis.command("FLUSHALL");
    let ended = run(&redis.endpoint(), json!({}), "redis", json!({ "command": "Set", "keySpace": 300 }));
    assert!(ended.measured().operations >= 600);
    assert_eq!(redis.command("DBSIZE"), ":0\r\n");
}

#[test]
fn a_redis_that_holds_keys_in_another_database_is_not_touched_without_consent() {
    let redis = Redis::start(&[]);
    redis.command("SELECT 3\r\nSET a mine");
    assert_eq!(redis.command("DBSIZE"), ":0\r\n");
    let ended = run(&redis.endpoint(), json!({}), "redis", json!({ "command": "Set", "keySpace": 300 }));
    let said = store_failed(&ended);
    assert!(said.contains("holds 1 key,") && said.contains("allowData"), "{said}");
}

#[test]
fn a_redis_that_would_evict_keys_of_others_is_not_filled() {
    let set = json!({ "command": "Set", "keySpace": 3000, "valueBytes": 4096 });
    let redis =
        Redis::start(&["--enable-debug-command", "yes", "--maxmemory", "4mb", "--maxmemory-policy", "allkeys-lru"]);
    of_somebody(&redis);
    let before = digest(&redis);
    let ended = run(&redis.endpoint(), json!({ "allowData": true }), "redis", set.clone());
    let said = store_failed(&ended);
    assert!(said.contains("allkeys-lru") && said.contains("noeviction"), "{said}");
    assert_eq!(digest(&redis), before);
    // Nobody's keys can be evicted where there are none, or where writes are refused instead.
    redis.command("FLUSHALL");
    let few = json!({ "command": "Set", "keySpace": 300 });
    assert!(run(&redis.endpoint(), json!({}), "redis", few).measured().operations >= 600);
    let redis = Redis::start(&["--maxmemory", "64mb", "--maxmemory-policy", "noeviction"]);
    of_somebody(&redis);
    assert!(run(&redis.endpoint(), json!({ "allowData": true }), "redis", set).measured().operations >= 600);
}

/// Which of these lines there are, in order.
fn namespaces(ended: &Ended) -> Vec<&JobLine> {
    let is_one = |line: &&JobLine| matches!(line, JobLine::Namespace { .. } | JobLine::NamespaceRemoved { .. });
    ended.lines.iter().filter(is_one).collect()
}

#[test]
fn a_driver_is_told_what_would_stay_if_the_load_were_killed() {
    let (redis, etcd) = (Redis::start(&[]), Etcd::start());
    for (endpoint, family, parameters, name, tool) in [
        (redis.endpoint(), "redis", json!({ "command": "Set", "keySpace": 300 }), "storebench:", "redis-cli"),
        (etcd.endpoint.clone(), "etcd", json!({ "operation": "Put", "keySpace": 300 }), "storebench/", "etcdctl"),
    ] {
        let ended = run(&endpoint, json!({}), family, parameters);
        assert!(ended.measured().operations >= 600);
        let [JobLine::Namespace { workload, prefix, removal }, JobLine::NamespaceRemoved { .. }] =
            namespaces(&ended)[..]
        else {
            panic!("{:?}", ended.lines)
        };
        assert_eq!(workload, "w");
        assert!(prefix.starts_with(name) && prefix.len() == name.len() + 9, "{prefix}");
        assert!(removal.starts_with(tool) && removal.contains(prefix), "{removal}");
    }
}

#[test]
fn what_a_killed_load_left_is_removed_by_the_command_that_was_told() {
    let redis = Redis::start(&[]);
    let ended = run(&redis.endpoint(), json!({ "allowData": true }), "redis", json!({ "command": "Set" }));
    let [JobLine::Namespace { prefix, removal, .. }, _] = namespaces(&ended)[..] else { panic!("{:?}", ended.lines) };
    redis.command(&format!("MSET {prefix}key:1 a {prefix}mylist b storebench:mine c"));
    let tool = harness::peer("redis", "redis-cli");
    let at_port = format!("{} -p {}", tool.display(), redis.port);
    let removed = harness::command("sh").args(["-c", &removal.replace("redis-cli", &at_port)]).status().unwrap();
    assert!(removed.success());
    assert_eq!(redis.command("DBSIZE"), ":1\r\n");
}

/// Servers of the protocol that are none of Redis's repeat the arguments of a command that they do not know.
#[test]
fn a_password_that_a_store_repeats_is_told_to_nobody() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut input) = (client.unwrap(), [0; 4096]);
            if client.read(&mut input).is_ok_and(|count| count > 0) {
                let said = b"-ERR unknown command 'AUTH', with args beginning with: 'bench' 's3cret' \r\n";
                client.write_all(said).unwrap();
            }
        }
    });
    let folder = harness::folder();
    let password = folder.path().join("password");
    std::fs::write(&password, "s3cret\n").unwrap();
    let external = json!({ "user": "bench", "passwordFrom": { "file": password } });
    let ended = run(&endpoint, external, "redis", json!({ "command": "Set", "keySpace": 300 }));
    let said = store_failed(&ended);
    assert!(said.contains("AUTH: ERR: the store does not know this command"), "{said}");
    let everything = format!("{:?} {:?} {}", ended.summary, ended.lines, ended.errors);
    assert!(!everything.contains("s3cret"), "{everything}");
}

#[test]
fn a_redis_with_a_password_is_loaded_with_it_and_not_without() {
    let redis = Redis::start(&["--requirepass", "s3cret"]);
    let folder = harness::folder();
    let password = folder.path().join("password");
    let set = json!({ "command": "Set", "keySpace": 300 });
    let said = run(&redis.endpoint(), json!({}), "redis", set.clone());
    assert!(store_failed(&said).contains("NOAUTH"), "{:?}", said.summary);
    for (word, user, expected) in
        [("wrong", None, Some("WRONGPASS")), ("s3cret", None, None), ("s3cret", Some("default"), None)]
    {
        std::fs::write(&password, format!("{word}\n")).unwrap();
        let mut external = json!({ "passwordFrom": { "file": password } });
        if let Some(user) = user {
            external["user"] = json!(user);
        }
        let ended = run(&redis.endpoint(), external, "redis", set.clone());
        match expected {
            Some(expected) => assert!(store_failed(&ended).contains(expected), "{:?}", ended.summary),
            None => assert!(ended.measured().operations >= 600),
        }
        assert!(!ended.errors.contains("s3cret"), "{}", ended.errors);
    }
}

/// Every key of an etcd, its value, and how often it was written.
fn all(etcd: &Etcd) -> Vec<(Vec<u8>, Vec<u8>, i64)> {
    let request = RangeRequest { key: vec![0], range_end: vec![0], ..RangeRequest::default() };
    let answer: RangeResponse = etcd.ask(path::RANGE, &request).unwrap();
    answer.kvs.into_iter().map(|one| (one.key.to_vec(), one.value.to_vec(), one.version)).collect()
}

#[test]
fn every_operation_leaves_the_keys_of_others_as_they_were_and_none_of_its_own() {
    let etcd = Etcd::start();
    for key in ["a", "storebench", "storebench/000000000000000000042", "storebench/zz", "storebench0", "z"] {
        etcd.put(key, b"somebody's");
    }
    let before = all(&etcd);
    assert_eq!(before.len(), 6);
    let operations = [
        json!({ "operation": "Put" }),
        json!({ "operation": "Range" }),
        json!({ "operation": "Range", "scope": "Prefix", "limit": 10 }),
        json!({ "operation": "TxnPut", "operationsPerTransaction": 3 }),
        json!({ "operation": "Mixed", "readPercent": 50 }),
        json!({ "operation": "WatchLatency" }),
        json!({ "operation": "LeaseKeepAlive" }),
    ];
    for mut operation in operations {
        operation["keySpace"] = json!(300);
        let ended = run(&etcd.endpoint, json!({ "allowData": true }), "etcd", operation.clone());
        assert!(ended.measured().operations >= 600, "{operation}");
        assert_eq!(all(&etcd), before, "{operation} changed what somebody has, or left something behind");
    }
}

#[test]
fn an_etcd_that_holds_keys_is_not_touched_without_consent() {
    let etcd = Etcd::start();
    etcd.put("a", b"somebody's");
    let before = all(&etcd);
    let ended = run(&etcd.endpoint, json!({}), "etcd", json!({ "operation": "Put", "keySpace": 300 }));
    let said = store_failed(&ended);
    assert!(said.contains("holds 1 key,") && said.contains("allowData"), "{said}");
    assert_eq!(all(&etcd), before);
}

#[test]
fn an_etcd_with_users_is_loaded_as_one_of_them_and_not_as_a_stranger() {
    let etcd = Etcd::start();
    // All these requests are of two texts, or one.
    let of = |name: &str, password: &str| AuthenticateRequest { name: name.into(), password: password.into() };
    for (path, request) in [
        ("/etcdserverpb.Auth/UserAdd", of("root", "s3cret")),
        ("/etcdserverpb.Auth/RoleAdd", of("root", "")),
        ("/etcdserverpb.Auth/UserGrantRole", of("root", "root")),
        ("/etcdserverpb.Auth/AuthEnable", of("", "")),
    ] {
        etcd.ask::<_, PutRequest>(path, &request).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    let put = json!({ "operation": "Put", "keySpace": 300 });
    let stranger = run(&etcd.endpoint, json!({}), "etcd", put.clone());
    assert!(store_failed(&stranger).contains("user name is empty"), "{:?}", stranger.summary);
    let folder = harness::folder();
    let password = folder.path().join("password");
    for (word, is_right) in [("wrong", false), ("s3cret", true)] {
        std::fs::write(&password, word).unwrap();
        let login = json!({ "user": "root", "passwordFrom": { "file": password } });
        let ended = run(&etcd.endpoint, login, "etcd", put.clone());
        match is_right {
            true => assert!(ended.measured().operations >= 600),
            false => assert!(store_failed(&ended).contains("authentication failed"), "{:?}", ended.summary),
        }
    }
}

/// An etcd of so many MiB, and a value that is one.
fn small_etcd(mebibytes: u64) -> (Etcd, Vec<u8>) {
    (Etcd::with(&["--quota-backend-bytes", &(mebibytes << 20).to_string()]), vec![7; 1 << 20])
}

#[test]
fn an_etcd_that_is_half_full_or_has_an_alarm_is_not_loaded() {
    let (etcd, value) = small_etcd(16);
    let put = json!({ "operation": "Put", "keySpace": 300 });
    let consent = json!({ "allowData": true });
    etcd.put("a", &value);
    assert!(run(&etcd.endpoint, consent.clone(), "etcd", put.clone()).measured().operations >= 600);
    // All of these stay in the history, of which its owner sees one key.
    (0..9).for_each(|_| etcd.put("a", &value));
    harness::until("etcd to commit them", || {
        etcd.ask::<_, StatusResponse>(path::STATUS, &StatusRequest {}).unwrap().db_size > 9 << 20
    });
    let ended = run(&etcd.endpoint, consent.clone(), "etcd", put.clone());
    let said = store_failed(&ended);
    assert!(said.contains("above 50 % of 16 MiB") && said.contains("compact"), "{said}");
    let request = PutRequest { key: b"a".to_vec(), value };
    while etcd.ask::<_, RangeResponse>(path::PUT, &request).is_ok() {}
    let ended = run(&etcd.endpoint, consent, "etcd", put);
    assert!(store_failed(&ended).contains("NOSPACE"), "{:?}", ended.summary);
    assert_eq!(etcd.count("storebench/"), 0);
}

#[test]
fn a_load_that_fills_an_etcd_stops_before_nobody_can_write() {
    let (etcd, value) = small_etcd(64);
    // 16 MiB each second: the last fifth of the quota takes most of a second.
    let load = json!({
        "connections": 3, "duration": "20s", "mode": "OpenLoop", "rate": 256, "warmUp": "0s", "timeout": "5s",
    });
    let put = json!({ "operation": "Put", "keySpace": 30, "valueBytes": 65536 });
    let ended = run_load(&etcd.endpoint, json!({}), "etcd", put, load);
    let said = store_failed(&ended);
    assert!(said.contains("the load was stopped") && said.contains("above 80 % of 64 MiB"), "{said}");
    assert_eq!(etcd.count("storebench/"), 0);
    etcd.put("a", &value);
}
