//! Users of a group: every door asks for them, and what is open ends when they may no longer.

use std::time::Duration;

use d_engine_client::grpc::{Channel, GrpcError};
use d_engine_client::proto::d_engine::client as second;
use d_engine_client::proto::raft::client as first;
use d_engine_client::{Client, Credentials, Error, Operation, Options, ReadLevel, Transaction, WatchOptions, wire};
use tokio::time::{sleep, timeout};

use crate::group::{Group, PATIENCE};

const FIRST_READ: &str = "/raft.client.RaftClientService/HandleClientRead";
const READ: &str = "/d_engine.client.RaftClientService/HandleClientRead";
const WRITE: &str = "/d_engine.client.RaftClientService/HandleClientWrite";
const SCAN: &str = "/d_engine.client.RaftClientService/HandleClientScan";
const WATCH: &str = "/d_engine.client.RaftClientService/Watch";
const MEMBERS: &str = "/d_engine.server.cluster.ClusterManagementService/GetClusterMetadata";
const MEMBERSHIP: &str = "/d_engine.client.RaftClientService/WatchMembership";
const STATUS: &str = "/storebench.dengine.v1.Store/Status";
const SNAPSHOT: &str = "/storebench.dengine.v1.Store/Snapshot";

const UNAUTHENTICATED: u8 = 16;
const PERMISSION_DENIED: u8 = 7;
const ABORTED: u8 = 10;

fn credentials(name: &str, password: &str) -> Credentials {
    Credentials { name: name.into(), password: password.into() }
}

fn code<T: std::fmt::Debug>(outcome: Result<T, GrpcError>) -> u8 {
    match outcome {
        Ok(_) => 0,
        Err(GrpcError::Status { code, .. }) => code,
        Err(error) => panic!("{error}"),
    }
}

/// Root administers; anna may read and write what begins with /a/.
struct World {
    group: Group,
    folder: harness::TempDir,
}

impl World {
    async fn start(size: usize) -> Self {
        let group = Group::start(size);
        group.leader().await;
        let world = Self { group, folder: harness::folder() };
        for (name, password) in [("root", "r00t"), ("anna", "s3cret"), ("anna-2", "0ther")] {
            std::fs::write(world.file(name), format!("{password}\n")).unwrap();
        }
        let file = |name: &str| world.file(name);
        world.plain(&["user", "add", "root", "--admin", "--new-password-file", &file("root")]).unwrap();
        world.plain(&["user", "add", "anna", "--new-password-file", &file("anna")]).unwrap();
        world.plain(&["user", "grant", "anna", "readwrite", "/a/"]).unwrap();
        world.plain(&["auth", "enable"]).unwrap();
        // Each member has heard of it before anybody asks.
        for id in 1..=size {
            let channel = world.channel(id, None).await;
            let deadline = std::time::Instant::now() + PATIENCE;
            while code(status(&channel).await) != UNAUTHENTICATED {
                assert!(std::time::Instant::now() < deadline, "member {id} asks for no user");
                sleep(Duration::from_millis(20)).await;
            }
        }
        world
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn plain(&self, verb: &[&str]) -> Result<String, String> {
        self.group.ctl(verb)
    }

    /// `ctl` as a user, whose password is in its file.
    fn ctl(&self, name: &str, verb: &[&str]) -> Result<String, String> {
        let file = self.file(name);
        let mut all = vec!["--user", name, "--password-file", &file];
        all.extend(verb);
        self.group.ctl(&all)
    }

    async fn channel(&self, id: usize, who: Option<&Credentials>) -> Channel {
        Channel::connect(&self.group.addresses[id - 1]).await.unwrap().signed_in(who)
    }

    async fn client(&self, who: Option<Credentials>) -> Result<Client, Error> {
        let options = Options { request_timeout: PATIENCE, credentials: who, ..Options::default() };
        Client::connect(&self.group.addresses, options).await
    }
}

async fn status(channel: &Channel) -> Result<wire::StatusReply, GrpcError> {
    channel.unary(STATUS, &wire::StatusRequest {}).await
}

fn read(key: &'static str) -> second::ClientReadRequest {
    second::ClientReadRequest { client_id: 1, keys: vec![key.into()], consistency_policy: None }
}

fn insert(key: &'static str) -> second::ClientWriteRequest {
    use second::write_command::{Insert, Operation};
    let insert = Insert { key: key.into(), value: "v".into(), ttl_secs: 0 };
    second::ClientWriteRequest {
        client_id: 1,
        command: Some(second::WriteCommand { operation: Some(Operation::Insert(insert)) }),
    }
}

fn http_get(address: &str, path: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut socket = std::net::TcpStream::connect(address).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    text
}

#[tokio::test]
async fn every_door_asks_who_it_is() {
    let world = World::start(1).await;
    let said = world.plain(&["status"]).unwrap_err();
    assert!(said.contains("1 of 1 members answer, and refuse to say it"), "{said}");
    let said = world.plain(&["member", "remove", "9"]).unwrap_err();
    assert!(said.contains(": UNAUTHENTICATED: "), "{said}");
    let wrong = credentials("anna", "guessed");
    let unknown = credentials("eve", "s3cret");
    for who in [None, Some(&wrong), Some(&unknown)] {
        let channel = world.channel(1, who).await;
        assert_eq!(code(status(&channel).await), UNAUTHENTICATED);
        assert_eq!(code(channel.unary::<second::ClientResponse>(READ, &read("/a/1")).await), UNAUTHENTICATED);
        assert_eq!(code(channel.unary::<second::ClientResponse>(WRITE, &insert("/a/1")).await), UNAUTHENTICATED);
        let asked = first::ClientReadRequest { client_id: 1, keys: vec!["/a/1".into()], consistency_policy: None };
        assert_eq!(code(channel.unary::<first::ClientResponse>(FIRST_READ, &asked).await), UNAUTHENTICATED);
        let members = d_engine_client::proto::d_engine::server::cluster::MetadataRequest {};
        let members = channel
            .unary::<d_engine_client::proto::d_engine::server::cluster::ClusterMembership>(MEMBERS, &members)
            .await;
        assert_eq!(code(members), UNAUTHENTICATED);
        let watched = second::WatchRequest { client_id: 1, key: "/a/1".into(), prefix: false, prev_kv: false };
        let (_questions, mut answers) =
            channel.stream::<_, second::WatchResponse>(WATCH, &watched, true).await.unwrap();
        assert_eq!(code(answers.next().await), UNAUTHENTICATED);
        if let Ok(client) = world.client(who.cloned()).await {
            let refused = client.get("/a/1").await.unwrap_err();
            assert!(matches!(refused, Error::Denied(_)), "{refused}");
        }
    }
    let anna = world.channel(1, Some(&credentials("anna", "s3cret"))).await;
    assert_eq!(code(anna.unary::<second::ClientResponse>(WRITE, &insert("/a/1")).await), 0);
    assert_eq!(code(anna.unary::<second::ClientResponse>(READ, &read("/a/1")).await), 0);
    assert_eq!(code(anna.unary::<second::ClientResponse>(WRITE, &insert("/b/1")).await), PERMISSION_DENIED);
    assert_eq!(code(anna.unary::<second::ClientResponse>(READ, &read("/b/1")).await), PERMISSION_DENIED);
    for (prefix, expected) in [("/a/", 0), ("/", PERMISSION_DENIED), ("/a", PERMISSION_DENIED)] {
        let scan = second::ScanRequest { client_id: 1, prefix: prefix.into() };
        assert_eq!(code(anna.unary::<second::ScanResponse>(SCAN, &scan).await), expected, "{prefix}");
        let watched = second::WatchRequest { client_id: 1, key: prefix.into(), prefix: true, prev_kv: false };
        if expected != 0 && prefix.ends_with('/') {
            let (_questions, mut answers) =
                anna.stream::<_, second::WatchResponse>(WATCH, &watched, true).await.unwrap();
            assert_eq!(code(answers.next().await), expected, "a watch of {prefix}");
        }
    }
    let (_questions, mut pieces) =
        anna.stream::<_, wire::SnapshotPiece>(SNAPSHOT, &wire::SnapshotRequest {}, true).await.unwrap();
    assert_eq!(code(pieces.next().await), PERMISSION_DENIED, "all of the state is an administrator's");
    // What a monitor asks, nobody need sign in for.
    let address = &world.group.addresses[0];
    let live = http_get(address, "/livez");
    assert!(live.starts_with("HTTP/1.1 200"), "{live}");
}

#[tokio::test]
async fn a_user_does_what_it_may_through_any_member_and_what_is_open_ends_with_it() {
    let world = World::start(3).await;
    let anna = world.client(Some(credentials("anna", "s3cret"))).await.unwrap();
    anna.put("/a/1", "1").await.unwrap();
    assert!(matches!(anna.put("/b/1", "1").await, Err(Error::Denied(_))));
    for level in [ReadLevel::Linearizable, ReadLevel::Lease, ReadLevel::Eventual] {
        assert!(matches!(anna.get_with("/b/1", level).await, Err(Error::Denied(_))), "{level:?}");
    }
    // Locks and leases are of keys within the prefix.
    let lock = anna.lock("/a/lock", Duration::from_secs(5), PATIENCE).await.unwrap().unwrap();
    lock.release().await.unwrap();
    assert!(matches!(anna.lock("/b/lock", Duration::from_secs(5), PATIENCE).await, Err(Error::Denied(_))));
    let both =
        Transaction { otherwise: vec![Operation::Delete { key: "/b/1".into() }], ..Transaction::put("/a/1", "2") };
    assert!(matches!(anna.transact(both).await, Err(Error::Denied(_))));
    // A watch of everything is refused, one of the prefix goes on until the prefix is taken back.
    let everything = WatchOptions { start: "".into(), end: Some("\u{7f}".into()), ..WatchOptions::default() };
    match anna.watch(everything).await {
        Err(Error::Denied(_)) => {}
        Err(error) => panic!("{error}"),
        Ok(mut watch) => assert!(matches!(watch.next().await, Some(Err(Error::Denied(_))))),
    }
    // A member that watches may not have heard yet that the lock was released.
    let from_revision = 1 + anna.put("/a/1", "1").await.unwrap();
    let prefix = WatchOptions { from_revision, ..WatchOptions::prefix("/a/") };
    let mut watch = anna.watch(prefix).await.unwrap();
    anna.put("/a/2", "2").await.unwrap();
    let told = timeout(PATIENCE, watch.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(told.key, "/a/2");
    world.ctl("root", &["user", "revoke", "anna", "/a/"]).unwrap();
    let ended = timeout(PATIENCE, watch.next()).await.unwrap();
    assert!(matches!(ended, Some(Err(Error::Denied(_)))), "{ended:?}");
    assert!(matches!(anna.put("/a/1", "3").await, Err(Error::Denied(_))));
    world.ctl("root", &["user", "grant", "anna", "read", "/a/"]).unwrap();
    assert!(matches!(anna.put("/a/1", "3").await, Err(Error::Denied(_))));
    assert_eq!(anna.get("/a/1").await.unwrap().unwrap().value, "1");
    // With another password, what is open ends, and the old one is worth nothing.
    let channel = world.channel(1, Some(&credentials("anna", "s3cret"))).await;
    let request = second::WatchMembershipRequest { client_id: 1 };
    let (_questions, mut members) =
        channel.stream::<_, second::MembershipSnapshot>(MEMBERSHIP, &request, true).await.unwrap();
    assert!(members.next().await.unwrap().is_some());
    let new = world.file("anna-2");
    world.ctl("anna", &["user", "passwd", "anna", "--new-password-file", &new]).unwrap();
    let deadline = std::time::Instant::now() + PATIENCE;
    while anna.get("/a/1").await.is_ok() {
        assert!(std::time::Instant::now() < deadline, "an open stream goes on");
        sleep(Duration::from_millis(20)).await;
    }
    let ended = async {
        loop {
            match members.next().await {
                Ok(Some(_)) => {}
                ended => return code(ended),
            }
        }
    };
    assert_eq!(timeout(PATIENCE, ended).await.unwrap(), ABORTED);
    let again = world.client(Some(credentials("anna", "0ther"))).await.unwrap();
    assert_eq!(again.get("/a/1").await.unwrap().unwrap().value, "1");
    assert!(world.ctl("anna", &["get", "/a/1"]).unwrap_err().contains("name or the password"));
    // Who does not administer changes nobody and no members.
    std::fs::copy(&new, world.file("anna")).unwrap();
    for verb in [
        &["user", "list"][..],
        &["user", "grant", "anna", "read", ""],
        &["auth", "disable"],
        &["member", "remove", "2"],
        &["snapshot", "save", &world.file("stolen")],
        &["defragment"],
    ] {
        let said = world.ctl("anna", verb).unwrap_err();
        assert!(said.contains("permission denied: only administrators may do that"), "{verb:?}: {said}");
    }
    // A grant would help here.
    let said = world.ctl("anna", &["put", "/b/1", "1"]).unwrap_err();
    assert!(said.contains("ask an administrator for a grant of the prefix"), "{said}");
    let listed = world.ctl("root", &["user", "list"]).unwrap();
    assert_eq!(listed, "users are asked for\nanna\n  read \"/a/\"\nroot administers\n");
}

/// It would be an entry of the log each time, and never succeed.
#[tokio::test]
async fn a_load_that_may_not_write_ends_at_the_first_answer() {
    let world = World::start(1).await;
    let file = world.file("anna");
    for door in ["unary", "first", "stream"] {
        let load = ["bench", "put", "--total", "10000", "--conns", "2", "--clients", "4", "--door", door];
        let who = ["--user", "anna", "--password-file", &file, "--endpoints", &world.group.addresses[0]];
        let (code, out, error) = crate::command_line::run(&[&load[..], &who].concat());
        assert_eq!(code, Some(1), "{door}: {out}{error}");
        assert!(error.contains("the run has ended early: ") && !out.contains("avg 0"), "{door}: {out}{error}");
        let failed = out.lines().find_map(|line| line.strip_prefix("failed: ")).unwrap_or_else(|| panic!("{out}"));
        let (failed, rest) = failed.split_once(", made again: 0, the first: ").unwrap_or_else(|| panic!("{out}"));
        assert!(failed.parse::<u32>().unwrap() <= 4, "{door}: each client has at most one under way: {out}");
        assert!(rest.contains("denied") || door == "first", "{door}: {rest}");
    }
}

#[tokio::test]
async fn users_are_there_again_after_a_restart_and_can_be_left_out() {
    let mut world = World::start(1).await;
    world.group.kill(1);
    world.group.start_member(1);
    let deadline = std::time::Instant::now() + PATIENCE;
    while world.ctl("anna", &["put", "/a/1", "1"]).is_err() {
        assert!(std::time::Instant::now() < deadline, "{}", world.group.log(1));
        sleep(Duration::from_millis(50)).await;
    }
    let said = world.plain(&["get", "/a/1"]).unwrap_err();
    assert!(said.contains("--user NAME --password-file FILE") && said.contains("authorization: Basic"), "{said}");
    world.ctl("root", &["auth", "disable"]).unwrap();
    assert_eq!(world.plain(&["get", "/a/1"]).unwrap(), "1\n");
}

/// Two frames and no password turned users off: the port between members took commands of whoever said a number that no member has.
#[tokio::test]
async fn who_is_no_member_hands_no_command_to_a_member() {
    use std::io::{Read as _, Write as _};

    fn framed(payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_le_bytes();
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&length), payload);
        [&length[..], &checksum.to_le_bytes(), payload].concat()
    }

    let world = World::start(1).await;
    let open = status(&world.channel(1, None).await).await;
    assert_eq!(code(open), UNAUTHENTICATED);
    let place = world.group.place(1);
    let connect = || std::net::TcpStream::connect(place.split_once(',').unwrap().1).unwrap();
    let mut newcomer = connect();
    newcomer.write_all(&framed(b"storebench-intro")).unwrap();
    let mut told = Vec::new();
    newcomer.read_to_end(&mut told).unwrap();
    let told = String::from_utf8(told.split_off(8)).unwrap();
    let group = told.split_once("\"group\":\"").unwrap().1.split_once('"').unwrap().0;
    let group = u64::from_str_radix(group, 16).unwrap();
    let numbers = |numbers: &[u64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let mut stranger = connect();
    stranger.write_all(&framed(&[b"storebench-peer2", &numbers(&[group, 77, 1, 5])[..]].concat())).unwrap();
    stranger.read_exact(&mut [0; 9]).unwrap();
    // A note with a command: on behalf of the process, users are not asked for.
    let note = [&[0][..], &numbers(&[1]), &[0], &[3, 10, 1, 6, 0]].concat();
    stranger.write_all(&framed(&[&[1][..], &numbers(&[77, 1]), &[2], &note].concat())).unwrap();
    let deadline = std::time::Instant::now() + PATIENCE;
    while !world.group.log(1).contains("is not known here is not handed on") {
        assert!(std::time::Instant::now() < deadline, "{}", world.group.log(1));
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(code(status(&world.channel(1, None).await).await), UNAUTHENTICATED);
}
