//! Writes that are given to members that do not lead.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use d_engine_client::grpc::Channel;
use d_engine_client::proto::d_engine::client as second;
use d_engine_client::proto::raft::client as first;
use d_engine_client::{Client, Error, Operation, ReadLevel, Scan, Transaction};

use crate::command_line::get;
use crate::group::{Group, PATIENCE};

/// What a member has counted under this name.
fn counted(group: &Group, id: usize, name: &str) -> u64 {
    let metrics = get(&group.addresses[id - 1], "/metrics");
    let line = metrics.lines().find(|line| line.split(' ').next() == Some(name));
    line.unwrap_or_else(|| panic!("{name} is not in {metrics}")).rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_write_at_a_follower_is_done_once_and_seen_there() {
    let group = Group::start(3);
    let leader = group.leader().await;
    let follower = leader % 3 + 1;
    let client = group.client_of(follower).await;
    let revision = client.put("k", "v").await.unwrap();
    // The member that answers has applied what it acknowledges.
    let seen = client.get_with("k", ReadLevel::Eventual).await.unwrap();
    assert_eq!(seen.value.map(|item| (item.value, item.revision)), Some(("v".into(), revision)));
    assert_eq!(client.add("n", 3).await, Ok(3));
    assert_eq!(client.compare_and_swap("k", Some("other".into()), "w").await, Ok(None));
    assert!(matches!(client.add("k", 1).await, Err(Error::Invalid(_))), "no counter");
    let session = client.session().await.unwrap();
    session.transact(Transaction::put("s", "1"), PATIENCE).await.unwrap();
    session.close().await.unwrap();
    assert_eq!(counted(&group, follower, "dengine_forwarded_total"), 7);
    assert_eq!(counted(&group, leader, "dengine_forwarded_total"), 0);
    // Who may ask anybody learns where writes are quicker.
    let others = [group.addresses[follower - 1].clone()];
    let client = Client::connect(&others, d_engine_client::Options::default()).await.unwrap();
    for number in 0..10 {
        client.put("k", number.to_string()).await.unwrap();
    }
    assert_eq!(counted(&group, follower, "dengine_forwarded_total"), 8);
}

#[tokio::test]
async fn the_dialects_writes_are_forwarded_where_that_is_wanted() {
    let group = Group::start_with(3, &["--forward-dialect-writes"]);
    let follower = group.leader().await % 3 + 1;
    let channel = Channel::connect(&group.addresses[follower - 1]).await.unwrap();
    let insert = second::write_command::Insert { key: "k".into(), value: "v".into(), ttl_secs: 0 };
    let operation = Some(second::write_command::Operation::Insert(insert));
    let request = second::ClientWriteRequest { client_id: 1, command: Some(second::WriteCommand { operation }) };
    let path = "/d_engine.client.RaftClientService/HandleClientWrite";
    let response: second::ClientResponse = channel.unary(path, &request).await.unwrap();
    let succeeded = second::WriteResult { succeeded: true };
    assert_eq!(response.success_result, Some(second::client_response::SuccessResult::WriteResult(succeeded)));
    let delete = first::write_command::Delete { key: "k".into() };
    let operation = Some(first::write_command::Operation::Delete(delete));
    let request = first::ClientWriteRequest { client_id: 1, commands: vec![first::WriteCommand { operation }] };
    let path = "/raft.client.RaftClientService/HandleClientWrite";
    let response: first::ClientResponse = channel.unary(path, &request).await.unwrap();
    assert_eq!(response.success_result, Some(first::client_response::SuccessResult::WriteAck(true)));
    assert_eq!(counted(&group, follower, "dengine_forwarded_total"), 2);
}

/// Puts keys of its own through one member until it is told to stop; what was acknowledged, with its revision.
async fn put_until(client: Client, writer: usize, stop: Arc<AtomicBool>) -> Vec<(String, u64)> {
    let mut acknowledged = Vec::new();
    for number in 0_u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("{writer}-{number}");
        match client.put(key.clone(), "v").await {
            Ok(revision) => acknowledged.push((key, revision)),
            Err(Error::UnknownOutcome(_)) => {}
            Err(error) => assert!(error.is_temporary(), "{error}"),
        }
    }
    acknowledged
}

#[tokio::test]
async fn what_was_acknowledged_by_any_member_is_there_once_after_leaders_were_killed() {
    const ADDS: u64 = 150;
    let mut group = Group::start(3);
    group.leader().await;
    let stop = Arc::new(AtomicBool::new(false));
    let (mut writers, mut adders) = (Vec::new(), Vec::new());
    // Each member gets load: at any time that of two is forwarded.
    for member in 1..=3 {
        let client = group.client_of(member).await;
        writers.push(tokio::spawn(put_until(client.clone(), member, Arc::clone(&stop))));
        adders.push(tokio::spawn(async move {
            let session = client.session().await.unwrap();
            for _ in 0..ADDS {
                let add = Transaction::of(Operation::Add { key: "counter".into(), delta: 1 });
                session.transact(add, PATIENCE).await.unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }));
    }
    let mut forwarded = 0;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let leader = group.leader().await;
        let by_follower = || counted(&group, leader % 3 + 1, "dengine_forwarded_total");
        // A disk that is slow for a while takes its time.
        let deadline = std::time::Instant::now() + PATIENCE;
        while by_follower() < 20 && std::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        forwarded += by_follower();
        group.kill(leader);
        let next = group.leader().await;
        assert_ne!(next, leader);
        group.start_member(leader);
    }
    for adder in adders {
        adder.await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    let mut acknowledged = Vec::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    assert!(forwarded > 50 && acknowledged.len() > 100, "{forwarded} forwarded, {} in all", acknowledged.len());
    let client = group.client().await;
    assert_eq!(client.get("counter").await.unwrap().unwrap().value, (3 * ADDS).to_string());
    let mut found = BTreeMap::new();
    let mut scan = Scan { keys_only: true, ..Scan::default() };
    loop {
        let page = client.scan(scan.clone(), ReadLevel::Linearizable).await.unwrap().value;
        scan.after = page.items.last().map(|item| item.key.clone());
        found.extend(page.items.into_iter().map(|item| (item.key, item.revision)));
        if !page.has_more {
            break;
        }
    }
    for (key, revision) in acknowledged {
        assert_eq!(found.get(key.as_bytes()), Some(&revision), "{key} was acknowledged");
    }
}
