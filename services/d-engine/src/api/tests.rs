//! Messages of both dialects byte by byte, from the tables of field numbers and not from the `.proto` files.

use bytes::Bytes;
use d_engine_client::proto::d_engine::client as second;
use d_engine_client::proto::d_engine::server::cluster as new;
use d_engine_client::proto::raft::client as first;
use d_engine_client::proto::raft::cluster as old;
use d_engine_client::{Applied, Error, Event, EventKind, KeyValue, Leader, Operation, Query, ReadLevel, Written};
use prost::Message;
use service_kit::grpc::Code;

use super::{Method, cluster, operate};

/// A field of bytes: number, content.
fn bytes(number: u8, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    [&[number << 3 | 2, content.len() as u8], content].concat()
}

/// A field of a number.
fn number(field: u8, value: u64) -> Vec<u8> {
    let mut out = vec![field << 3];
    let mut value = value;
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

fn parse<M: Message + Default>(parts: &[Vec<u8>]) -> M {
    M::decode(parts.concat().as_slice()).unwrap()
}

fn item(key: &'static str, value: &'static str) -> KeyValue {
    KeyValue { key: key.into(), value: value.into(), revision: 1, expires_millis: 0, lease: 0 }
}

fn put(key: &'static str, value: &'static str, ttl_millis: u64) -> Operation {
    Operation::Put { key: key.into(), value: value.into(), ttl_millis }
}

#[test]
fn every_method_has_its_path() {
    let paths = [
        ("/raft.client.RaftClientService/HandleClientWrite", Method::First(super::first::Method::Write)),
        ("/raft.client.RaftClientService/HandleClientRead", Method::First(super::first::Method::Read)),
        (
            "/raft.cluster.ClusterManagementService/DiscoverLeader",
            Method::First(super::first::Method::Cluster(cluster::Method::DiscoverLeader)),
        ),
        ("/d_engine.client.RaftClientService/HandleClientWrite", Method::Second(super::second::Method::Write)),
        ("/d_engine.client.RaftClientService/HandleClientScan", Method::Second(super::second::Method::Scan)),
        ("/d_engine.client.RaftClientService/Watch", Method::Second(super::second::Method::Watch)),
        ("/d_engine.client.RaftClientService/WatchMembership", Method::Second(super::second::Method::WatchMembership)),
        (
            "/d_engine.server.cluster.ClusterManagementService/GetClusterMetadata",
            Method::Second(super::second::Method::Cluster(cluster::Method::GetClusterMetadata)),
        ),
    ];
    for (path, method) in paths {
        assert_eq!(Method::of(path), Some(method));
    }
    let own = [
        ("Operate", operate::Method::Operate, true),
        ("Watch", operate::Method::Watch, true),
        ("Snapshot", operate::Method::Snapshot, true),
        ("Status", operate::Method::Status, false),
        ("ChangeMembers", operate::Method::ChangeMembers, false),
        ("ChangeUsers", operate::Method::ChangeUsers, false),
        ("ListUsers", operate::Method::ListUsers, false),
        ("Defragment", operate::Method::Defragment, false),
    ];
    for (name, method, is_stream) in own {
        let found = Method::of(&format!("/storebench.dengine.v1.Store/{name}")).unwrap();
        assert_eq!((found, found.is_stream()), (Method::Own(method), is_stream));
    }
    for path in
        ["", "/", "/raft.client.RaftClientService/Watch", "/raft.client.RaftClientService", "/x/HandleClientRead"]
    {
        assert_eq!(Method::of(path), None);
    }
}

#[test]
fn writes_of_the_first_dialect() {
    let insert = bytes(1, [bytes(1, "k"), bytes(2, "v")].concat());
    let delete = bytes(2, bytes(1, "d"));
    let request: first::ClientWriteRequest = parse(&[number(1, 7), bytes(2, insert), bytes(2, delete)]);
    assert_eq!(request.client_id, 7);
    let transaction = super::first::transaction(request).unwrap();
    assert_eq!(transaction.then, [put("k", "v", 0), Operation::Delete { key: "d".into() }]);
    assert!(super::first::transaction(parse(&[bytes(2, "")])).is_err());
    let answer = super::first::acknowledgement(Ok(())).unwrap();
    assert_eq!(answer.encode_to_vec(), number(2, 1));
}

#[test]
fn who_does_not_lead_says_so_in_the_body_of_the_first_dialect() {
    let leader = Leader { id: 3, address: "h:1".into() };
    let answer = super::first::acknowledgement(Err(Error::NotLeader(Some(leader)))).unwrap();
    let metadata = [bytes(2, "3"), bytes(3, "h:1"), bytes(15, "Not leader")].concat();
    assert_eq!(answer.encode_to_vec(), [number(1, 4001), bytes(4, metadata)].concat());
}

#[test]
fn reads_of_the_first_dialect() {
    let request: first::ClientReadRequest = parse(&[number(1, 7), bytes(2, "a"), bytes(2, "b"), number(3, 2)]);
    assert_eq!(super::first::query(request), (Query::GetMany(vec!["a".into(), "b".into()]), ReadLevel::Eventual));
    let level = |parts: &[Vec<u8>]| super::first::query(parse(parts)).1;
    // A number of 0 is there, if the client sends it.
    assert_eq!(level(&[number(3, 0)]), ReadLevel::Lease);
    assert_eq!(level(&[number(3, 1)]), ReadLevel::Linearizable);
    assert_eq!((level(&[]), level(&[number(3, 99)])), (ReadLevel::Linearizable, ReadLevel::Linearizable));
    let answer = d_engine_client::Answer { items: vec![item("a", "1"), item("b", "")], has_more: false };
    let results = [bytes(1, [bytes(1, "a"), bytes(2, "1")].concat()), bytes(1, bytes(1, "b"))].concat();
    assert_eq!(super::first::results(answer).encode_to_vec(), bytes(3, results));
    // Nothing found is an empty list, and no error.
    assert_eq!(super::first::results(d_engine_client::Answer::default()).encode_to_vec(), bytes(3, ""));
}

#[test]
fn writes_of_the_second_dialect() {
    let transaction = |command: Vec<u8>| super::second::transaction(parse(&[number(1, 7), bytes(2, command)]));
    let insert = [bytes(1, "k"), bytes(2, "v"), number(3, 2)].concat();
    assert_eq!(transaction(bytes(1, insert)).unwrap().then, [put("k", "v", 2000)]);
    assert_eq!(transaction(bytes(2, bytes(1, "d"))).unwrap().then, [Operation::Delete { key: "d".into() }]);
    let swap = |parts: &[Vec<u8>]| transaction(bytes(3, parts.concat())).unwrap();
    let expected = swap(&[bytes(1, "k"), bytes(2, ""), bytes(3, "w")]);
    assert_eq!(expected, d_engine_client::Transaction::compare_and_swap("k", Some(Bytes::new()), "w"));
    let absent = swap(&[bytes(1, "k"), bytes(3, "w")]);
    assert_eq!(absent, d_engine_client::Transaction::compare_and_swap("k", None, "w"));
    assert!(transaction(Vec::new()).is_err());
    let written = |succeeded| Written { revision: 5, term: 1, applied: Applied { succeeded, results: Vec::new() } };
    assert_eq!(super::second::result(&written(true)).encode_to_vec(), bytes(2, number(1, 1)));
    assert_eq!(super::second::result(&written(false)).encode_to_vec(), bytes(2, ""));
}

#[test]
fn reads_and_scans_of_the_second_dialect() {
    let request: second::ClientReadRequest = parse(&[bytes(2, "a"), number(3, 0)]);
    assert_eq!(super::second::query(request), (Query::GetMany(vec!["a".into()]), ReadLevel::Lease));
    let answer = d_engine_client::Answer { items: vec![item("a", "1")], has_more: false };
    let result = bytes(1, [bytes(1, "a"), bytes(2, "1")].concat());
    assert_eq!(super::second::results(answer).encode_to_vec(), bytes(3, result));
    let scan: second::ScanRequest = parse(&[number(1, 7), bytes(2, "/a/")]);
    assert_eq!((scan.client_id, &*scan.prefix), (7, &b"/a/"[..]));
    let found = second::ClientResult { key: "a".into(), value: "1".into() };
    let response = second::ScanResponse { entries: vec![found], revision: 300 };
    let entry = bytes(1, [bytes(1, "a"), bytes(2, "1")].concat());
    assert_eq!(response.encode_to_vec(), [entry, number(2, 300)].concat());
}

#[test]
fn watches_of_the_second_dialect() {
    let watched = |parts: &[Vec<u8>]| super::second::watched(parse(parts));
    let options = watched(&[bytes(2, "/a/"), number(3, 1), number(4, 1)]).unwrap();
    assert!(options.covers(b"/a/b") && !options.covers(b"/a") && options.with_previous);
    assert!(watched(&[bytes(2, "a")]).unwrap().covers(b"a"));
    for wrong in ["a/", "/a", ""] {
        assert!(watched(&[bytes(2, wrong), number(3, 1)]).is_err(), "{wrong}");
    }
    let event = |kind, previous: Option<&'static str>| {
        let previous = previous.map(Bytes::from);
        let value = if kind == EventKind::Put { "v" } else { "" };
        let event = Event { kind, key: "k".into(), value: value.into(), revision: 9, previous };
        super::second::happened(event).encode_to_vec()
    };
    let put = [bytes(1, "k"), bytes(2, "v"), number(5, 9), bytes(6, "o")].concat();
    assert_eq!(event(EventKind::Put, Some("o")), put);
    for gone in [EventKind::Delete, EventKind::Expire] {
        assert_eq!(event(gone, None), [bytes(1, "k"), number(3, 1), number(5, 9)].concat());
    }
    let canceled = second::WatchResponse { event_type: second::WatchEventType::Canceled.into(), ..Default::default() };
    assert_eq!(canceled.encode_to_vec(), number(3, 2));
    let progress = second::WatchEventType::Progress.into();
    let progress = second::WatchResponse { event_type: progress, revision: 4, ..Default::default() };
    assert_eq!(progress.encode_to_vec(), [number(3, 3), number(5, 4)].concat());
    let snapshot = second::MembershipSnapshot { members: vec![1, 2], learners: vec![3], committed_index: 8 };
    assert_eq!(snapshot.encode_to_vec(), [bytes(1, [1, 2]), bytes(2, [3]), number(3, 8)].concat());
}

#[test]
fn members_in_both_dialects() {
    use d_engine_client::proto::d_engine::common as new_words;
    use d_engine_client::proto::raft::common as old_words;
    let (leader, active) = (old_words::NodeRole::Leader, old_words::NodeStatus::Active);
    let node = old::NodeMeta { id: 1, address: "h:1".into(), role: leader.into(), status: active.into() };
    let expected = bytes(2, [number(1, 1), bytes(2, "h:1"), number(3, 2), number(4, 2)].concat());
    let membership = old::ClusterMembership { version: 1, nodes: vec![node] };
    assert_eq!(membership.encode_to_vec(), [number(1, 1), expected].concat());
    let (leader, active) = (new_words::NodeRole::Leader, new_words::NodeStatus::Active);
    let node = new::NodeMeta { id: 1, address: "h:1".into(), role: leader.into(), status: active.into() };
    let expected = bytes(2, [number(1, 1), bytes(2, "h:1"), number(3, 3), number(4, 3)].concat());
    let membership = new::ClusterMembership { version: 1, nodes: vec![node], current_leader_id: Some(1) };
    assert_eq!(membership.encode_to_vec(), [number(1, 1), expected, number(3, 1)].concat());
    let found = old::LeaderDiscoveryResponse { leader_id: 2, leader_address: "h:2".into(), term: 3 };
    assert_eq!(found.encode_to_vec(), [number(1, 2), bytes(2, "h:2"), number(3, 3)].concat());
    let join: new::JoinRequest = parse(&[number(1, 4), number(2, 4), bytes(3, "h:4"), number(4, 1)]);
    assert_eq!((join.node_id, join.node_role, &*join.address, join.status), (4, 4, "h:4", 1));
    let refused = old::JoinResponse { error: "no".into(), leader_id: 2, ..Default::default() };
    assert_eq!(refused.encode_to_vec(), [bytes(2, "no"), number(6, 2)].concat());
    let change: old::ClusterConfChangeRequest =
        parse(&[number(1, 1), number(2, 2), number(3, 3), bytes(4, bytes(2, number(1, 9)))]);
    let removed = old::membership_change::Change::RemoveNode(old::RemoveNode { node_id: 9 });
    assert_eq!(change.change.unwrap().change, Some(removed));
    let why = old::cluster_conf_update_response::ErrorCode::InvalidChange.into();
    let answer = old::ClusterConfUpdateResponse { id: 1, term: 2, version: 3, success: false, error_code: why };
    assert_eq!(answer.encode_to_vec(), [number(1, 1), number(2, 2), number(3, 3), number(5, 4)].concat());
}

/// Eight kilobytes of gzip were eight mebibytes of empty commands, and those hundreds of mebibytes once they were decoded.
#[test]
fn a_request_of_very_many_small_things_is_refused_before_it_is_decoded_in_every_dialect() {
    let code = |path: &str, message: Vec<u8>| {
        super::understand(Method::of(path).unwrap(), message.into()).err().map(|status| (status.code, status.message))
    };
    let deletes = |count| bytes(2, bytes(2, "")).repeat(count);
    let keys = |count| bytes(2, "").repeat(count);
    let write = "/raft.client.RaftClientService/HandleClientWrite";
    assert_eq!(code(write, deletes(10_000)), None);
    let refused = |path, message| {
        let (code, text) = code(path, message).unwrap_or_else(|| panic!("{path} takes all of it"));
        assert_eq!((code, text.ends_with(": send several")), (Code::InvalidArgument, true), "{text}");
    };
    refused(write, deletes(10_001));
    for read in
        ["/raft.client.RaftClientService/HandleClientRead", "/d_engine.client.RaftClientService/HandleClientRead"]
    {
        assert_eq!(code(read, keys(10_000)), None);
        refused(read, keys(10_001));
    }
    for change in [
        "/raft.cluster.ClusterManagementService/UpdateClusterConf",
        "/d_engine.server.cluster.ClusterManagementService/UpdateClusterConf",
    ] {
        refused(change, vec![0; 64 << 10].into_iter().chain([0]).collect());
    }
}

proptest::proptest! {
    #[test]
    fn any_request_is_understood_or_refused(content in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..48)) {
        let paths = [
            "/raft.client.RaftClientService/HandleClientWrite",
            "/raft.client.RaftClientService/HandleClientRead",
            "/raft.cluster.ClusterManagementService/UpdateClusterConf",
            "/d_engine.client.RaftClientService/HandleClientWrite",
            "/d_engine.client.RaftClientService/HandleClientRead",
            "/d_engine.client.RaftClientService/HandleClientScan",
            "/d_engine.client.RaftClientService/Watch",
            "/d_engine.server.cluster.ClusterManagementService/UpdateClusterConf",
            "/storebench.dengine.v1.Store/Operate",
        ];
        for path in paths {
            // An error is an answer too.
            let _ = super::understand(Method::of(path).unwrap(), content.clone().into());
        }
    }
}
