//! Members whose state is on disk: killed at any instant, behind the others, on a disk that is full.

use std::collections::BTreeMap;
use std::time::Duration;

use d_engine_client::{Client, Error, Operation, ReadLevel, ReadOptions, Scan, Transaction};
use harness::Random;

use crate::group::{Group, PATIENCE};

const DISK: &[&str] = &["--storage", "disk", "--storage-cache-mib", "1"];

/// All keys with their values and revisions, page by page, and the index of the last page.
async fn everything(client: &Client, options: impl Into<ReadOptions>) -> (BTreeMap<Vec<u8>, (Vec<u8>, u64)>, u64) {
    let (options, mut found, mut scan) = (options.into(), BTreeMap::new(), Scan::default());
    loop {
        let page = client.scan(scan.clone(), options).await.unwrap();
        for item in page.value.items {
            scan.after = Some(item.key.clone());
            found.insert(item.key.to_vec(), (item.value.to_vec(), item.revision));
        }
        if !page.value.has_more {
            return (found, page.index);
        }
    }
}

/// One that was killed is wherever its disk is; what was acknowledged is there, once.
#[tokio::test]
async fn a_state_on_disk_is_right_after_kills_at_any_instant() {
    let mut group = Group::start_with(1, DISK);
    group.leader().await;
    let (mut random, mut next) = (Random::new(1), 0_u64);
    for _ in 0..12 {
        let client = group.client().await;
        let session = client.session().await.unwrap();
        let put = |number: u64| {
            let add = Operation::Add { key: "sum".into(), delta: 1 };
            let put = Operation::Put { key: format!("k{number}").into(), value: vec![7; 3000].into(), ttl_millis: 0 };
            let both = Transaction { then: vec![add, put], ..Transaction::default() };
            let session = session.clone();
            async move { session.transact(both, PATIENCE).await }
        };
        let until = tokio::time::Instant::now() + Duration::from_millis(20 + random.below(300));
        let mut under_way = None;
        while tokio::time::Instant::now() < until {
            let (number, write) = (next + 1, put(next + 1));
            under_way = Some(tokio::spawn(write));
            if let Some(write) = &mut under_way
                && let Ok(written) = tokio::time::timeout_at(until, write).await
            {
                written.unwrap().unwrap();
                next = number;
                under_way = None;
            }
        }
        group.kill(1);
        group.start_member(1);
        if let Some(write) = under_way {
            // The session asks again until it knows.
            write.await.unwrap().unwrap();
            next += 1;
        }
        group.leader().await;
    }
    assert!(next > 12, "{next} writes");
    let (found, _) = everything(&group.client().await, ReadLevel::Linearizable).await;
    assert_eq!(found.len() as u64, next + 1);
    assert_eq!(found[&b"sum"[..]].0, next.to_string().into_bytes());
}

/// A member with its state on disk takes a snapshot of one that has it in memory, and is killed in the midst of it.
#[tokio::test]
async fn a_member_that_was_away_gets_a_snapshot_onto_its_disk() {
    let mut group = Group::start_with(3, &["--durability", "none"]);
    let leader = group.leader().await;
    let behind = leader % 3 + 1;
    group.kill(behind);
    let client = group.client().await;
    // More than the log keeps for a member that is away.
    let value = vec![7; 500_000];
    for number in 0..200 {
        client.put(format!("k{}", number % 60), value.clone()).await.unwrap();
    }
    let reached = client.put("last", "v").await.unwrap();
    for millis in [50, 200, 400] {
        group.start_by(behind, ":", DISK);
        tokio::time::sleep(Duration::from_millis(millis)).await;
        group.kill(behind);
    }
    group.start_by(behind, ":", DISK);
    group.wait_until_it_serves(behind).await;
    let options = ReadOptions { level: ReadLevel::Eventual, at_least: reached };
    let own = group.client_of(behind).await;
    let (found, index) = everything(&own, options).await;
    assert_eq!(found.len(), 61);
    let others = group.client_of(leader).await;
    let at_least = ReadOptions { level: ReadLevel::Eventual, at_least: index };
    assert_eq!(everything(&others, at_least).await.0, found);
    // It goes on from there.
    group.kill(behind);
    group.start_by(behind, ":", DISK);
    group.wait_until_it_serves(behind).await;
    let own = group.client_of(behind).await;
    assert_eq!(everything(&own, options).await.0, found);
}

/// A file that may not grow stands for a disk that is full.
#[tokio::test]
async fn a_full_disk_is_a_clear_end_and_loses_nothing() {
    let mut group = Group::start_with(1, DISK);
    group.leader().await;
    group.kill(1);
    // Not the log's first segment, but the journal of rows meets this.
    group.start_by(1, "trap '' XFSZ; ulimit -f 24000", &[]);
    group.leader().await;
    let client = group.client_of(1).await;
    let (mut acknowledged, value) = (0_u64, vec![7; 200_000]);
    let end = loop {
        let put = Transaction::of(Operation::Put {
            key: format!("k{acknowledged}").into(),
            value: value.clone().into(),
            ttl_millis: 0,
        });
        match client.transact(put).await {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
        assert!(acknowledged < 1000, "the limit is met");
    };
    assert!(matches!(end, Error::UnknownOutcome(_)) || end.is_temporary(), "{end}");
    let (status, said) = group.wait_for_end(1);
    assert!(!status.success() && said.contains("see that its disk has room"), "{acknowledged}, {status}: {said}");
    group.start_member(1);
    group.leader().await;
    let (found, _) = everything(&group.client().await, ReadLevel::Linearizable).await;
    let missing = (0..acknowledged).find(|number| !found.contains_key(format!("k{number}").as_bytes()));
    assert_eq!(missing, None, "of {acknowledged}");
}

/// Rows that were deleted leave files when the member is told to, while it goes on; one whose state is in memory says so.
#[tokio::test]
async fn a_member_rewrites_its_files_when_it_is_told_to() {
    let group = Group::start_with(1, &["--storage", "disk", "--durability", "none"]);
    group.leader().await;
    let client = group.client().await;
    for number in 0..600 {
        client.put(format!("k{}", number % 100), vec![number as u8; 100_000]).await.unwrap();
    }
    for number in 10..100 {
        assert!(client.delete(format!("k{number}")).await.unwrap());
    }
    let said = group.ctl(&["defragment"]).unwrap();
    let bytes: Vec<u64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [before, after] = bytes[..] else { panic!("{said}") };
    assert!(before > 10_000_000 && after < 3_000_000, "{said}");
    assert_eq!(everything(&client, ReadLevel::Linearizable).await.0.len(), 10);
    assert_eq!(group.ctl(&["delete", "k1"]).unwrap().trim(), "deleted");
    assert_eq!(group.ctl(&["delete", "k1"]).unwrap().trim(), "not there");

    let in_memory = Group::start(1);
    in_memory.leader().await;
    let said = in_memory.ctl(&["defragment"]).unwrap_err();
    assert!(said.contains("in memory"), "{said}");
}
