//! Both dialects of the original, as their clients speak them; the same data behind all doors.

use std::pin::pin;

use d_engine_client::grpc::{Answers, Channel, GrpcError};
use d_engine_client::proto::d_engine::client as second;
use d_engine_client::proto::d_engine::server::cluster as new;
use d_engine_client::proto::raft::client as first;
use d_engine_client::proto::raft::cluster as old;
use d_engine_client::{EventKind, ReadLevel, WatchOptions, end_of_prefix};

use crate::group::{Group, PATIENCE};

const FIRST_WRITE: &str = "/raft.client.RaftClientService/HandleClientWrite";
const FIRST_READ: &str = "/raft.client.RaftClientService/HandleClientRead";
const WRITE: &str = "/d_engine.client.RaftClientService/HandleClientWrite";
const READ: &str = "/d_engine.client.RaftClientService/HandleClientRead";
const SCAN: &str = "/d_engine.client.RaftClientService/HandleClientScan";
const WATCH: &str = "/d_engine.client.RaftClientService/Watch";
const METADATA: &str = "/d_engine.server.cluster.ClusterManagementService/GetClusterMetadata";

fn insert(key: &'static str, value: &'static str, ttl_secs: u64) -> second::ClientWriteRequest {
    use second::write_command::{Insert, Operation};
    let insert = Insert { key: key.into(), value: value.into(), ttl_secs };
    command(Operation::Insert(insert))
}

fn command(operation: second::write_command::Operation) -> second::ClientWriteRequest {
    second::ClientWriteRequest { client_id: 1, command: Some(second::WriteCommand { operation: Some(operation) }) }
}

fn swap(key: &'static str, expected: Option<&'static str>, new: &'static str) -> second::ClientWriteRequest {
    use second::write_command::{CompareAndSwap, Operation};
    let expected_value = expected.map(Into::into);
    command(Operation::CompareAndSwap(CompareAndSwap { key: key.into(), expected_value, new_value: new.into() }))
}

async fn write(channel: &Channel, request: second::ClientWriteRequest) -> bool {
    let response: second::ClientResponse = channel.unary(WRITE, &request).await.unwrap();
    match response.success_result {
        Some(second::client_response::SuccessResult::WriteResult(result)) if response.error == 0 => result.succeeded,
        _ => panic!("{response:?}"),
    }
}

async fn read(channel: &Channel, keys: &[&'static str], policy: Option<i32>) -> Vec<(String, String)> {
    let keys = keys.iter().map(|key| (*key).into()).collect();
    let request = second::ClientReadRequest { client_id: 1, keys, consistency_policy: policy };
    let response: second::ClientResponse = channel.unary(READ, &request).await.unwrap();
    let Some(second::client_response::SuccessResult::ReadData(data)) = response.success_result else {
        panic!("{response:?}")
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    data.results.iter().map(|result| (text(&result.key), text(&result.value))).collect()
}

fn code(error: &GrpcError) -> u8 {
    match error {
        GrpcError::Status { code, .. } => *code,
        other => panic!("{other}"),
    }
}

/// `grpc.health.v1.HealthCheckResponse`; 1 is SERVING.
#[derive(Clone, PartialEq, prost::Message)]
struct Health {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// What is written until a watch tells of it.
const BEGUN: &str = "/w/begun";

/// The next event that is of something else.
async fn next(answers: &mut Answers<second::WatchResponse>) -> (i32, String, String, u64) {
    loop {
        let event = next_of_any(answers).await;
        if event.1 != BEGUN {
            return event;
        }
    }
}

async fn next_of_any(answers: &mut Answers<second::WatchResponse>) -> (i32, String, String, u64) {
    let event = tokio::time::timeout(PATIENCE, answers.next()).await.unwrap().unwrap().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (event.event_type, text(&event.key), text(&event.value), event.revision)
}

#[tokio::test]
async fn three_members_serve_both_dialects_and_the_streaming_door() {
    let group = Group::start(3);
    let leader = group.leader().await;
    let follower = leader % 3 + 1;
    let at_leader = Channel::connect(&group.addresses[leader - 1]).await.unwrap();
    let at_follower = Channel::connect(&group.addresses[follower - 1]).await.unwrap();

    // Release 0.2.4.
    let watched = second::WatchRequest { client_id: 1, key: "/w/".into(), prefix: true, prev_kv: true };
    let (_question, mut events) = at_follower.stream(WATCH, &watched, true).await.unwrap();
    {
        // The head of the answer says that the watch has begun; it is asked for with the first event.
        let mut event = pin!(next_of_any(&mut events));
        while futures::poll!(&mut event).is_pending() {
            assert!(write(&at_leader, insert(BEGUN, "", 0)).await);
        }
    }
    let delete = second::write_command::Operation::Delete(second::write_command::Delete { key: BEGUN.into() });
    assert!(write(&at_leader, command(delete)).await);
    assert!(write(&at_leader, insert("/w/a", "1", 0)).await);
    assert!(!write(&at_leader, swap("/w/a", Some("2"), "3")).await);
    assert!(write(&at_leader, swap("/w/a", Some("1"), "3")).await);
    assert!(!write(&at_leader, swap("/w/a", None, "4")).await);
    assert!(write(&at_leader, insert("/w/b", "", 5)).await);
    let delete = second::write_command::Operation::Delete(second::write_command::Delete { key: "/w/none".into() });
    assert!(write(&at_leader, command(delete)).await);
    let (put, deleted) = (0, 1);
    let first_event = next(&mut events).await;
    assert_eq!((first_event.0, &*first_event.1, &*first_event.2), (put, "/w/a", "1"));
    let second_event = next(&mut events).await;
    assert_eq!((second_event.0, &*second_event.2), (put, "3"));
    assert!(second_event.3 > first_event.3);
    assert_eq!(next(&mut events).await.1, "/w/b");
    let missing = next(&mut events).await;
    assert_eq!((missing.0, &*missing.1), (deleted, "/w/none"));
    let expired = next(&mut events).await;
    assert_eq!((expired.0, &*expired.1), (deleted, "/w/b"));
    for policy in [None, Some(0), Some(1)] {
        for channel in [&at_leader, &at_follower] {
            let found = read(channel, &["/w/a", "none", "/w/a"], policy).await;
            assert_eq!(found, [("/w/a".into(), "3".into()), ("/w/a".into(), "3".into())]);
        }
    }
    assert_eq!(read(&at_follower, &["/w/a"], Some(2)).await.len(), 1);
    let scan = second::ScanRequest { client_id: 1, prefix: "/w/".into() };
    let scanned: second::ScanResponse = at_leader.unary(SCAN, &scan).await.unwrap();
    assert_eq!(scanned.entries.len(), 1);
    assert!(scanned.revision >= expired.3);

    // Who does not lead.
    let refused = at_follower.unary::<second::ClientResponse>(WRITE, &insert("k", "v", 0)).await.unwrap_err();
    let GrpcError::Status { code: 9, message, leader: Some(named) } = refused else { panic!("{refused:?}") };
    assert_eq!(message, "Not leader");
    assert!(
        named.contains(&format!("\"leader_id\":{leader}")) && named.contains(&group.addresses[leader - 1]),
        "{named}"
    );

    // Who is asked for nothing, or for too much.
    let nothing = second::ClientWriteRequest { client_id: 1, command: None };
    assert_eq!(code(&at_leader.unary::<second::ClientResponse>(WRITE, &nothing).await.unwrap_err()), 3);
    let mut large = insert("k", "", 0);
    if let Some(second::WriteCommand { operation: Some(second::write_command::Operation::Insert(insert)) }) =
        &mut large.command
    {
        insert.value = vec![0; (1 << 20) + 1].into();
    }
    assert_eq!(code(&at_leader.unary::<second::ClientResponse>(WRITE, &large).await.unwrap_err()), 3);
    assert_eq!(read(&at_leader, &["k"], None).await, []);

    // Release 0.1.4 sees the same data.
    use first::write_command::{Delete, Insert, Operation};
    let commands = [
        Operation::Insert(Insert { key: "x".into(), value: "1".into() }),
        Operation::Insert(Insert { key: "y".into(), value: "2".into() }),
        Operation::Delete(Delete { key: "/w/a".into() }),
    ];
    let commands = commands.map(|operation| first::WriteCommand { operation: Some(operation) }).to_vec();
    let request = first::ClientWriteRequest { client_id: 1, commands };
    let response: first::ClientResponse = at_leader.unary(FIRST_WRITE, &request).await.unwrap();
    assert_eq!(response.success_result, Some(first::client_response::SuccessResult::WriteAck(true)));
    let response: first::ClientResponse = at_follower.unary(FIRST_WRITE, &request).await.unwrap();
    assert_eq!((response.error, response.metadata.unwrap().leader_id), (4001, Some(leader.to_string())));
    let keys = vec!["y".into(), "/w/a".into(), "x".into()];
    let request = first::ClientReadRequest { client_id: 1, keys, consistency_policy: None };
    let response: first::ClientResponse = at_follower.unary(FIRST_READ, &request).await.unwrap();
    let Some(first::client_response::SuccessResult::ReadData(data)) = response.success_result else { panic!() };
    assert_eq!(data.results.iter().map(|result| &*result.value).collect::<Vec<_>>(), [b"2", b"1"]);

    // Who the members are.
    let known: new::ClusterMembership = at_follower.unary(METADATA, &new::MetadataRequest {}).await.unwrap();
    assert_eq!((known.nodes.len(), known.current_leader_id), (3, Some(leader as u32)));
    let path = "/raft.cluster.ClusterManagementService/GetClusterMetadata";
    let known: old::ClusterMembership = at_follower.unary(path, &old::MetadataRequest {}).await.unwrap();
    let leads = known.nodes.iter().find(|node| node.role == 2).unwrap();
    assert_eq!((leads.id as usize, &leads.address), (leader, &group.addresses[leader - 1]));
    let path = "/d_engine.server.cluster.ClusterManagementService/DiscoverLeader";
    let found: new::LeaderDiscoveryResponse =
        at_follower.unary(path, &new::LeaderDiscoveryRequest::default()).await.unwrap();
    assert_eq!(found.leader_id as usize, leader);
    let path = "/d_engine.client.RaftClientService/WatchMembership";
    let (_question, mut snapshots) =
        at_follower.stream(path, &second::WatchMembershipRequest { client_id: 1 }, true).await.unwrap();
    let snapshot: second::MembershipSnapshot = snapshots.next().await.unwrap().unwrap();
    assert_eq!(snapshot.members, [1, 2, 3]);
    let path = "/grpc.health.v1.Health/Check";
    let answer: Health = at_follower.unary(path, &()).await.unwrap();
    assert_eq!(answer.status, 1);

    // Our own.
    let client = group.client().await;
    assert_eq!(client.get("x").await.unwrap().unwrap().value, "1");
    let options = WatchOptions { start: "/o/".into(), end: end_of_prefix(b"/o/"), ..WatchOptions::default() };
    let begun_at = client.put("/o/a", "1").await.unwrap();
    let mut watch = client.watch(WatchOptions { from_revision: begun_at, ..options }).await.unwrap();
    assert_eq!(client.add("/o/n", 5).await, Ok(5));
    assert_eq!(
        client.compare_revision_and_swap("/o/a", begun_at, "2").await.unwrap().map(|at| at > begun_at),
        Some(true)
    );
    assert_eq!(client.compare_revision_and_swap("/o/a", begun_at, "3").await, Ok(None));
    assert_eq!(client.delete("/o/a").await, Ok(true));
    let mut seen = Vec::new();
    for _ in 0..4 {
        let event = tokio::time::timeout(PATIENCE, watch.next()).await.unwrap().unwrap().unwrap();
        seen.push((event.kind, String::from_utf8(event.value.to_vec()).unwrap()));
    }
    let put = |value: &str| (EventKind::Put, value.to_owned());
    assert_eq!(seen, [put("1"), put("5"), put("2"), (EventKind::Delete, String::new())]);
    let lease = client.get_with("x", ReadLevel::Lease).await.unwrap();
    assert_eq!(lease.path, d_engine_client::ReadPath::Lease);
    let by_round = group.client_of(follower).await.get_with("x", ReadLevel::Linearizable).await.unwrap();
    assert_eq!(by_round.path, d_engine_client::ReadPath::ReadIndex);
    let bounded = ReadLevel::Bounded { max_staleness_micros: 10_000_000 };
    let bounded = group.client_of(follower).await.get_with("x", bounded).await.unwrap();
    assert!(bounded.age_micros.is_some_and(|age| age <= 10_000_000), "{bounded:?}");
}
