//! A real etcd behind the proxy: nothing happens without a fault, and with one just what was asked for.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod faulty;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use faulty::Faulty;
use faulty::etcd::{Etcd, Operation, Put, PutAnswer, Range, RangeAnswer, Txn, TxnAnswer, Watch, WatchAnswer};
use harness::eventually;
use prost::Message;

/// What must work the same with and without the proxy in between, and with faults in it that do not strike.
fn behaves_like_etcd(faults: &[&str]) {
    let faulty = Faulty::etcd(faults, &[]);
    let mut etcd = Etcd::connect(&faulty);

    // Plain HTTP on the same port.
    let http = |path: &str| {
        let mut http = faulty.connect();
        http.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        http.read_to_string(&mut answer).unwrap();
        answer
    };
    let health = http("/health");
    assert!(health.contains("200 OK") && health.contains(r#""health":"true""#), "{health}");

    // A stream that lasts, and on it a second question.
    let create = |key: &str| Watch { create: Some(Range { key: key.into() }) };
    let mut watch = etcd.open("Watch/Watch", &create("key"));
    assert_eq!(etcd.next::<WatchAnswer>(&mut watch).events, []);
    etcd.send(&mut watch, &create("big"));
    assert_eq!(etcd.next::<WatchAnswer>(&mut watch).events, []);

    let before = etcd.put("key", b"first").header.unwrap();
    let after = etcd.put("key", b"second").header.unwrap();
    assert_eq!(after.revision, before.revision + 1);
    assert_eq!(etcd.get("key"), Some(b"second".to_vec()));
    // A value greater than HTTP/2's first window, there and back.
    let big = vec![b'x'; 1_000_000];
    etcd.put("big", &big);
    assert!(etcd.get("big").as_ref() == Some(&big));
    let mut seen = vec![];
    while seen.len() < 3 {
        let events = etcd.next::<WatchAnswer>(&mut watch).events;
        seen.extend(events.into_iter().map(|event| event.kv.unwrap().value.len()));
    }
    assert_eq!(seen, [5, 6, 1_000_000]);
    // What the client gives up, the store gives up.
    let watchers = || http("/metrics").lines().any(|line| line == "etcd_debugging_mvcc_watcher_total 2");
    assert!(watchers());
    drop(watch);
    eventually("the end of the watch", || {
        etcd.get("key"); // the client works only while it is asked something
        (!watchers()).then_some(())
    });

    // Many at once on one connection, each with its own answer.
    let key = |n| format!("many/{n}").into_bytes();
    let puts = (0..100).map(|n| ("KV/Put", Put { key: key(n), value: key(n) }.encode_to_vec())).collect();
    assert!(etcd.call_all(puts).iter().all(Result::is_ok));
    let gets = (0..100).map(|n| ("KV/Range", Range { key: key(n) }.encode_to_vec())).collect();
    for (n, answer) in etcd.call_all(gets).into_iter().enumerate() {
        assert_eq!(RangeAnswer::decode(answer.unwrap()).unwrap().kvs[0].value, key(n));
    }

    // etcd's own refusals come through: an answer of nothing but trailers.
    let error = etcd.call("KV/Put", &Put::default()).unwrap_err();
    assert!(error.contains("etcdserver: key is not provided"), "{error}");
    // And those that come before the question is complete, which is a race: etcd looks at no more than the name.
    for _ in 0..100 {
        let error = etcd.call("KV/Nonsense", &Put::default()).unwrap_err();
        assert!(error.contains("unknown method Nonsense"), "{error}");
    }
}

#[test]
fn without_a_fault_the_client_sees_etcd() {
    behaves_like_etcd(&[]);
}

#[test]
fn between_faults_the_client_sees_etcd() {
    behaves_like_etcd(&["drop-write-every=1000", "flip-value-every=1000"]);
}

#[test]
fn delayed_the_client_sees_etcd() {
    behaves_like_etcd(&["delay-percent=25"]);
}

#[test]
fn one_write_in_five_is_lost_and_acknowledged() {
    let faulty = Faulty::etcd(&["drop-write-every=5"], &[]);
    let (mut one, mut two) = (Etcd::connect(&faulty), Etcd::connect(&faulty));
    let mut revision = 1;
    for n in 0..60 {
        let (etcd, key) = (if n % 2 == 0 { &mut one } else { &mut two }, format!("key/{n}"));
        let header = if n % 3 == 0 {
            let put = |key: String| Operation { put: Some(Put { key: key.into(), value: b"value".into() }) };
            let txn = Txn { success: vec![put(key.clone()), put(format!("{key}/too"))] };
            let answer = TxnAnswer::decode(etcd.call("KV/Txn", &txn).unwrap()).unwrap();
            assert_eq!((answer.succeeded, answer.responses.len()), (true, 2));
            assert!(answer.responses.iter().all(|response| response.put.is_some()));
            answer.header.unwrap()
        } else {
            etcd.put(&key, b"value").header.unwrap()
        };
        let lost = n % 5 == 4;
        // The lost write claims the revision that the next one really gets.
        assert_eq!(header.revision, revision + 1, "write {n}");
        assert!(header.cluster_id != 0 && header.member_id != 0);
        revision += i64::from(!lost);
        for key in [key.clone(), format!("{key}/too")].iter().take(if n % 3 == 0 { 2 } else { 1 }) {
            assert_eq!(one.get(key).is_none(), lost, "{key}");
        }
    }
    let answer = PutAnswer::decode(one.call("KV/Put", &Put { key: b"k".into(), value: vec![] }).unwrap()).unwrap();
    assert_eq!(answer.header.unwrap().revision, revision + 1);
}

#[test]
fn one_value_in_four_is_flipped_and_nothing_else() {
    let faulty = Faulty::etcd(&["flip-value-every=4"], &[]);
    let (mut one, mut two) = (Etcd::connect(&faulty), Etcd::connect(&faulty));
    let big = vec![b'b'; 300_000];
    one.put("key", b"value");
    one.put("big", &big);
    for n in 1..=24 {
        assert_eq!(two.get("missing"), None);
        if n % 8 == 0 {
            let answer = one.get("big").unwrap();
            assert!(answer[..299_999] == big[..299_999] && answer[299_999] == b'c');
        } else {
            let expected = if n % 4 == 0 { b"valud" } else { b"value" };
            assert_eq!(two.get("key").unwrap(), expected);
        }
    }
}

#[test]
fn no_answer_escapes_its_delay() {
    const DELAY: Duration = Duration::from_millis(100);
    let faulty = Faulty::etcd(&["delay-micros=100000"], &[]);
    let mut etcd = Etcd::connect(&faulty);
    // Among the first ones the server measures the connection by PING frames, which are no answers.
    for n in 0..20 {
        let start = Instant::now();
        etcd.put("key", &vec![b'v'; 10 * n]);
        assert!(start.elapsed() >= DELAY, "{n}: {:?}", start.elapsed());
    }
    // Side by side, not one after another: else the last one would be ten seconds late.
    let start = Instant::now();
    let gets = (0..100).map(|_| ("KV/Range", Range { key: b"key".into() }.encode_to_vec())).collect();
    assert!(etcd.call_all(gets).iter().all(Result::is_ok));
    assert!(start.elapsed() >= DELAY && start.elapsed() < DELAY * 90, "{:?}", start.elapsed());
}
