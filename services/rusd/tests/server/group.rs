//! Groups of several members.

use std::io::Read as _;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use harness::{free_address, output, peer};

use crate::gateway::send;
use crate::hostile::{call_of, connect, run};
use crate::process::{Log, Rusd, Starting, rusd};

const LONG: Duration = Duration::from_secs(120);

fn free_addresses(count: usize) -> Vec<String> {
    (0..count).map(|_| free_address().to_string()).collect()
}

/// The flags of the members of a group of so many.
fn flags(scheme: &str, addresses: &[String], more: &[String]) -> Vec<Vec<String>> {
    let all = addresses.iter().enumerate().map(|(number, address)| format!("m{number}={scheme}://{address}"));
    let all = all.collect::<Vec<_>>().join(",");
    let one = |(number, address): (usize, &String)| {
        let mut flags = vec![
            format!("--name=m{number}"),
            format!("--listen-peer-urls={scheme}://{address}"),
            format!("--initial-advertise-peer-urls={scheme}://{address}"),
            format!("--initial-cluster={all}"),
        ];
        flags.extend_from_slice(more);
        flags
    };
    addresses.iter().enumerate().map(one).collect()
}

fn spawn(flags: Vec<String>) -> Starting {
    Rusd::spawn(harness::folder(), flags)
}

/// The flags of three members.
pub fn flags_of_three() -> Vec<Vec<String>> {
    flags("http", &free_addresses(3), &[])
}

/// A group that is ready.
pub fn group(count: usize, scheme: &str, more: &[String]) -> Vec<Rusd> {
    let starting = flags(scheme, &free_addresses(count), more).into_iter().map(spawn).collect::<Vec<_>>();
    starting.into_iter().map(Starting::ready).collect()
}

fn json(server: &Rusd, arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&server.etcdctl(&[arguments, &["-w", "json"]].concat())).unwrap()
}

fn status(server: &Rusd) -> serde_json::Value {
    json(server, &["endpoint", "status"])[0]["Status"].clone()
}

/// Where other members find it.
pub fn peer_url(server: &Rusd) -> String {
    let listed = json(server, &["member", "list"]);
    let own = listed["header"]["member_id"].as_u64();
    let members = listed["members"].as_array().unwrap();
    let itself = members.iter().find(|member| member["ID"].as_u64() == own).unwrap();
    itself["peerURLs"][0].as_str().unwrap().to_owned()
}

/// Its own number, and that of the leader.
fn ids(server: &Rusd) -> (u64, u64) {
    let status = status(server);
    (status["header"]["member_id"].as_u64().unwrap(), status["leader"].as_u64().unwrap_or(0))
}

/// Its own number, as lines of the log have it.
fn hex(server: &Rusd) -> String {
    format!("{:x}", ids(server).0)
}

/// Whether it knows of a leader.
pub fn knows_a_leader(server: &Rusd) -> bool {
    ids(server).1 != 0
}

pub fn leader_of(servers: &[Rusd]) -> usize {
    let deadline = Instant::now() + LONG;
    loop {
        let (_, leader) = ids(&servers[0]);
        if let Some(place) = servers.iter().position(|server| ids(server).0 == leader) {
            return place;
        }
        assert!(Instant::now() < deadline, "nobody leads");
    }
}

fn hash(server: &Rusd) -> u64 {
    json(server, &["endpoint", "hashkv"])[0]["HashKV"]["hash"].as_u64().unwrap()
}

/// Followers that have just stopped still count as connected, and the leader still has its lease.
#[test]
fn a_read_or_a_renewal_by_rounds_is_not_answered_while_no_majority_is_there() {
    for (mode, is_answered) in [("round", false), ("lease", true)] {
        let servers = group(3, "http", &[format!("--linearizable-reads={mode}"), "--election-timeout=10000".into()]);
        let leader = leader_of(&servers);
        servers[leader].etcdctl(&["put", "a", "1"]);
        assert_eq!(servers[leader].etcdctl(&["get", "a", "--print-value-only"]), "1\n");
        let granted = servers[leader].etcdctl(&["lease", "grant", "600"]);
        let lease = granted.split(' ').nth(1).unwrap();
        assert!(
            servers[leader].etcdctl(&["lease", "keep-alive", "--once", lease]).contains("keepalived with TTL(600)")
        );
        let followers = || servers.iter().enumerate().filter(|(number, _)| *number != leader).map(|(_, server)| server);
        followers().for_each(|server| server.pause(true));
        let mut get = servers[leader].command(&["get", "a", "--command-timeout=3s"]);
        let output = get.output().unwrap();
        // It asks again until it is answered.
        let mut keep_alive = servers[leader].command(&["lease", "keep-alive", "--once", lease]);
        let mut keep_alive = keep_alive.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Its lease lasts for ten; where nobody should answer, two are enough.
        let patience = Duration::from_secs(if is_answered { 6 } else { 2 });
        let began = Instant::now();
        let mut is_renewed = false;
        while !is_renewed && began.elapsed() < patience {
            thread::sleep(Duration::from_millis(20));
            is_renewed = keep_alive.try_wait().unwrap().is_some();
        }
        keep_alive.kill().unwrap();
        keep_alive.wait().unwrap();
        followers().for_each(|server| server.pause(false));
        assert_eq!(output.status.success(), is_answered, "{mode}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(is_renewed, is_answered, "{mode}");
    }
}

#[test]
fn every_member_of_three_does_everything() {
    let servers = group(3, "http", &[]);
    for (number, server) in servers.iter().enumerate() {
        let key = format!("k{number}");
        assert_eq!(server.etcdctl(&["put", &key, "v"]), "OK\n");
        // What was acknowledged by one is seen at once at all.
        for other in &servers {
            assert_eq!(other.etcdctl(&["get", &key, "--print-value-only"]), "v\n");
        }
        let granted = server.etcdctl(&["lease", "grant", "600"]);
        let lease = granted.split(' ').nth(1).unwrap();
        for other in &servers {
            assert!(other.etcdctl(&["lease", "keep-alive", "--once", lease]).contains("keepalived with TTL(600)"));
            assert!(other.etcdctl(&["lease", "timetolive", lease]).contains("granted with TTL(600s), remaining(59"));
        }
        assert!(server.etcdctl(&["lease", "revoke", lease]).contains("revoked"));
        assert!(server.refused(&["lease", "keep-alive", "--once", lease]).contains("requested lease not found"));
        assert!(server.refused(&["lease", "revoke", lease]).contains("requested lease not found"));
        assert!(server.etcdctl(&["endpoint", "health"]).contains("is healthy"));
        assert_eq!(server.etcdctl(&["member", "list"]).matches("started, m").count(), 3);
    }
    let hashes = servers.iter().map(hash).collect::<Vec<_>>();
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
    assert_eq!(servers.iter().filter(|server| ids(server).0 == ids(server).1).count(), 1, "one leads");
}

#[test]
fn users_are_checked_at_every_member() {
    let servers = group(3, "http", &[]);
    servers[0].etcdctl(&["user", "add", "root:secret"]);
    servers[1].etcdctl(&["user", "grant-role", "root", "root"]);
    servers[2].etcdctl(&["auth", "enable"]);
    for server in &servers {
        assert_eq!(server.etcdctl(&["--user", "root:secret", "put", "k", "v"]), "OK\n");
        assert!(server.refused(&["--user", "root:wrong", "get", "k"]).contains("authentication failed"));
    }
}

#[test]
fn the_group_goes_on_without_its_leader_which_comes_back() {
    let mut servers = group(3, "http", &[]);
    servers[0].etcdctl(&["put", "before", "v"]);
    let killed = servers.remove(leader_of(&servers));
    let (directory, flags) = killed.kill();
    for (number, server) in servers.iter().enumerate() {
        put(server, &format!("without{number}"), "v");
        assert_eq!(server.etcdctl(&["get", "before", "--print-value-only"]), "v\n");
    }
    let back = Rusd::spawn(directory, flags).ready();
    assert_eq!(back.etcdctl(&["get", "", "--prefix", "--keys-only"]).split_whitespace().count(), 3);
    assert_eq!(back.etcdctl(&["put", "after", "v"]), "OK\n");
}

#[test]
fn two_of_three_that_are_gone_leave_no_leader() {
    let mut servers = group(3, "http", &["--heartbeat-interval=20".into(), "--election-timeout=200".into()]);
    servers[0].etcdctl(&["put", "k", "v"]);
    let last = servers.pop().unwrap();
    let watch = last.command(&["watch", "k"]).spawn().unwrap();
    drop(servers);
    harness::until("the last one to see no leader", || ids(&last).1 == 0);
    let said = last.refused(&["put", "k", "v", "--command-timeout=20s"]);
    assert!(said.contains("etcdserver: request timed out"), "{said}");
    assert_eq!(last.etcdctl(&["get", "k", "--consistency=s", "--print-value-only"]), "v\n");
    assert!(status(&last)["errors"].to_string().contains("etcdserver: no leader"));
    // Who watches is told to look elsewhere.
    let said = String::from_utf8(watch.wait_with_output().unwrap().stderr).unwrap();
    assert!(said.contains("no leader"), "{said}");
}

/// The lease would still let it read. etcd's own `TestKVGetNoQuorum` wants an error.
#[test]
fn a_leader_whose_majority_is_gone_does_not_read_on_its_lease() {
    let mut servers = group(3, "http", &["--heartbeat-interval=100".into(), "--election-timeout=10000".into()]);
    servers[0].etcdctl(&["put", "k", "v"]);
    let leader = servers.remove(leader_of(&servers));
    assert_eq!(leader.etcdctl(&["get", "k", "--print-value-only"]), "v\n");
    drop(servers);
    let said = leader.refused(&["get", "k", "--command-timeout=2s"]);
    assert!(said.contains("deadline exceeded"), "{said}");
    assert_eq!(leader.etcdctl(&["get", "k", "--consistency=s", "--print-value-only"]), "v\n");
}

#[test]
fn leadership_moves_where_it_is_told() {
    let servers = group(3, "http", &[]);
    let leader = leader_of(&servers);
    let heir = (leader + 1) % 3;
    let id = format!("{:x}", ids(&servers[heir]).0);
    assert!(servers[leader].etcdctl(&["move-leader", &id]).contains("Leadership transferred"));
    assert_eq!(leader_of(&servers), heir);
}

/// A member that was away for longer than the log goes back gets a snapshot.
#[test]
fn a_member_far_behind_catches_up() {
    let members = flags("http", &free_addresses(3), &["--snapshot-catchup-entries=5".into()]);
    let starting = members.into_iter().map(spawn).collect::<Vec<_>>();
    let (mut servers, mut logs): (Vec<_>, Vec<_>) = starting.into_iter().map(Starting::ready_with_log).unzip();
    let follower = (leader_of(&servers) + 1) % 3;
    let (directory, flags) = servers.remove(follower).kill();
    logs.remove(follower);
    // Snapshots are made every 100,000 entries.
    let mut benchmark = Command::new(peer("etcd", "benchmark"));
    benchmark.arg(format!("--endpoints={}", servers[0].endpoint().trim_start_matches("http://")));
    benchmark.args(["--conns=10", "--clients=1000", "put", "--total=110000", "--key-space-size=1000"]);
    output(&mut benchmark);
    let is_newer = |name: &str| name.starts_with("snapshot-") && !name.contains("snapshot-00000000000000000001-");
    harness::until("a snapshot", || {
        let files = std::fs::read_dir(servers[0].directory().join("data/member/snap")).unwrap();
        files.flatten().any(|file| is_newer(&file.file_name().to_string_lossy()))
    });
    let (back, mut log) = Rusd::spawn(directory, flags).ready_with_log();
    harness::until("it to have what the others have", || hash(&back) == hash(&servers[0]));
    assert_eq!(back.etcdctl(&["put", "after", "v"]), "OK\n");
    let begun = log.line("receiving database snapshot");
    let received = log.line("received and saved database snapshot");
    let id = hex(&back);
    assert_eq!([&begun, &received].map(|line| line["local-member-id"].clone()), [&*id, &*id]);
    // Who leads may have changed since.
    for text in ["sending database snapshot", "sent database snapshot"] {
        let said = harness::eventually(text, || logs.iter_mut().find_map(|log| log.find(|said| said == text)));
        assert_eq!(said["remote-peer-id"], *id, "{said}");
        assert_eq!(said["snapshot-index"], received["incoming-snapshot-index"], "{said}");
        assert_eq!(said["bytes"], received["incoming-snapshot-size-bytes"], "{said}");
    }
}

/// A new leader was told of by nobody.
#[test]
fn each_member_says_who_leads_when_that_changes() {
    let starting = flags_of_three().into_iter().map(spawn).collect::<Vec<_>>();
    let (mut servers, mut logs): (Vec<_>, Vec<_>) = starting.into_iter().map(Starting::ready_with_log).unzip();
    let leader = leader_of(&servers);
    let gone = hex(&servers[leader]);
    let says = |logs: &mut Vec<Log>, one_of: &[String]| {
        let is_it = |said: &str| said.starts_with("raft.node: ") && one_of.iter().any(|text| said.contains(text));
        for log in logs {
            harness::until(&one_of.join(" or "), || log.find(is_it).is_some());
        }
    };
    says(&mut logs, &[format!(" elected leader {gone} at term "), format!(" to {gone} at term ")]);
    servers.remove(leader).kill();
    logs.remove(leader);
    let next = hex(&servers[leader_of(&servers)]);
    let changed = format!(" changed leader from {gone} to {next} at term ");
    // Who is asked for its vote may learn of the next one before anybody looks.
    says(&mut logs, &[format!(" lost leader {gone} at term "), changed.clone()]);
    says(&mut logs, &[format!(" elected leader {next} at term "), changed]);
}

/// A client may be told that nobody knows what became of its write while a leader is lost; then it tries again.
fn put(server: &Rusd, key: &str, value: &str) {
    let is_ok = || server.command(&["put", key, value]).output().unwrap().status.success();
    harness::until("a write to succeed", is_ok);
}

/// Waits for a learner that has caught up, and promotes it.
fn promote(server: &Rusd, id: &str) {
    harness::until("the learner to catch up", || {
        let output = server.command(&["member", "promote", id]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() || said.contains("in sync with leader"), "{said}");
        output.status.success()
    });
}

/// The flags of so many members whose groups may be changed however short a time they are together, and of one that joins them.
pub fn flags_of_founders_and_another(founders: usize) -> (Vec<Vec<String>>, Vec<String>) {
    let mut addresses = free_addresses(founders + 1);
    let other = addresses.pop().unwrap();
    let founders = flags("http", &addresses, &["--strict-reconfig-check=false".into()]);
    let other = joining(&founders[0], "other", &other);
    (founders, other)
}

/// The flags of a member that was added.
fn joining(first: &[String], name: &str, address: &str) -> Vec<String> {
    let all = first.iter().find_map(|flag| flag.strip_prefix("--initial-cluster=")).unwrap();
    vec![
        format!("--name={name}"),
        format!("--listen-peer-urls=http://{address}"),
        format!("--initial-advertise-peer-urls=http://{address}"),
        format!("--initial-cluster={all},{name}=http://{address}"),
        "--initial-cluster-state=existing".into(),
    ]
}

#[test]
fn a_group_grows_by_learners_and_shrinks() {
    let addresses = free_addresses(2);
    let first = flags("http", &addresses[..1], &["--max-learners=1".into()]).remove(0);
    let one = spawn(first.clone()).ready();
    one.etcdctl(&["put", "k", "v"]);
    let url = format!("--peer-urls=http://{}", addresses[1]);
    let added = json(&one, &["member", "add", "m1", "--learner", &url]);
    let id = format!("{:x}", added["member"]["ID"].as_u64().unwrap());
    assert!(one.refused(&["member", "promote", &id]).contains("in sync with leader"));
    let said = one.refused(&["member", "add", "m2", "--learner", "--peer-urls=http://127.0.0.1:1"]);
    assert!(said.contains("too many learner members in cluster"), "{said}");
    let said = one.refused(&["member", "add", "m2", &format!("{url},http://127.0.0.1:1")]);
    assert!(said.contains("Peer URLs already exists"), "{said}");

    let mut two = spawn(joining(&first, "m1", &addresses[1])).ready();
    assert!(status(&two)["isLearner"].as_bool().unwrap());
    assert!(two.refused(&["put", "k", "v"]).contains("rpc not supported for learner"));
    assert!(!says_that_it_serves(&two));
    harness::until("the learner to have the key", || {
        two.etcdctl(&["get", "k", "--consistency=s", "--print-value-only"]) == "v\n"
    });
    promote(&one, &id);
    assert_eq!(two.etcdctl(&["put", "from", "two"]), "OK\n");
    harness::until("it to serve", || says_that_it_serves(&two));
    assert!(one.refused(&["member", "promote", &id]).contains("can only promote a learner member"));
    assert!(one.refused(&["member", "remove", "abc"]).contains("member not found"));

    // It goes on by itself after a restart: what it was told is written down.
    two = two.restart();
    put(&two, "from", "two again");
    harness::until("it to be removed", || {
        let output = one.command(&["member", "remove", &id]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() || said.contains("unhealthy cluster"), "{said}");
        output.status.success()
    });
    assert_eq!(two.wait().code(), Some(1), "who was removed ends");
    put(&one, "alone", "again");
}

/// What gRPC's own health service says of all of it.
fn says_that_it_serves(server: &Rusd) -> bool {
    let mut said = Bytes::new();
    run(async {
        let connection = connect(server).await;
        let (answer, mut stream) = call_of(&connection, "grpc.health.v1.Health/Check").await;
        stream.send_data(Bytes::from_static(&[0; 5]), true).unwrap();
        said = answer.await.unwrap().into_body().data().await.unwrap().unwrap();
    });
    match &said[..] {
        b"\0\0\0\0\x02\x08\x01" => true,
        b"\0\0\0\0\x02\x08\x02" => false,
        other => panic!("neither SERVING nor NOT_SERVING: {other:?}"),
    }
}

/// It said so to who asked over HTTP, and that it serves to who asked over gRPC.
#[test]
fn a_member_without_a_leader_says_that_it_does_not_serve() {
    let mut servers = group(3, "http", &[]);
    for server in &servers {
        harness::until("it to serve", || says_that_it_serves(server));
    }
    let last = servers.swap_remove(0);
    let lost = servers.into_iter().map(Rusd::kill).collect::<Vec<_>>();
    harness::until("it to notice", || !knows_a_leader(&last));
    harness::until("it to say so", || !says_that_it_serves(&last));
    let health = |query: &str| {
        let (status, mut body) = send(last.address(), "GET", &format!("/health{query}"), "", "");
        let mut said = String::new();
        body.read_to_string(&mut said).unwrap();
        (status, said)
    };
    for query in ["", "?serializable=false"] {
        let (status, said) = health(query);
        assert!(status == 503 && said.contains("RAFT NO LEADER"), "{query}: {status} {said}");
    }
    // Who reads what this member has needs no leader.
    assert_eq!(health("?serializable=true"), (200, r#"{"health":"true","reason":""}"#.to_owned()));
    let back = lost.into_iter().map(|(directory, flags)| Rusd::spawn(directory, flags)).collect::<Vec<_>>();
    let _back = back.into_iter().map(Starting::ready).collect::<Vec<_>>();
    harness::until("it to serve again", || says_that_it_serves(&last));
    assert_eq!(health("").0, 200);
}

/// A member that lost its disk is removed, and a new one takes its place; the group depends on neither meanwhile.
#[test]
fn a_member_is_replaced() {
    let mut servers = group(3, "http", &["--strict-reconfig-check=false".into()]);
    put(&servers[0], "k", "v");
    let lost = servers.pop().unwrap();
    let (id, place) = (format!("{:x}", ids(&lost).0), peer_url(&lost));
    let (_, flags) = lost.kill();
    harness::until("it to be removed", || {
        servers[0].command(&["member", "remove", &id]).output().unwrap().status.success()
    });
    let address = free_addresses(1).remove(0);
    servers[1].etcdctl(&["member", "add", "new", &format!("--peer-urls=http://{address}")]);
    put(&servers[0], "meanwhile", "v");
    let new = spawn(joining(&flags, "new", &address)).ready();
    harness::until("the new member to have all", || {
        new.etcdctl(&["get", "", "--prefix", "--keys-only"]).split_whitespace().count() == 2
    });
    put(&new, "by the new one", "v");
    assert_eq!(new.etcdctl(&["member", "list"]).matches("started").count(), 3);
    // Whoever is started again has the lost one in its flags, and called it for ever, every two seconds.
    let again = servers.remove(0).restart();
    put(&again, "by the one that was started again", "v");
    thread::sleep(Duration::from_secs(1));
    let listener = TcpListener::bind(place.strip_prefix("http://").unwrap()).unwrap();
    listener.set_nonblocking(true).unwrap();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(5) {
        assert!(listener.accept().is_err(), "somebody calls who was removed");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Both were told that the other was left, and both were removed: a group of nobody.
#[test]
fn of_two_that_remove_each_other_one_stays() {
    let servers = group(2, "http", &["--strict-reconfig-check=false".into()]);
    let ids = servers.iter().map(|server| format!("{:x}", ids(server).0)).collect::<Vec<_>>();
    let both = thread::scope(|scope| {
        let remove = |by: usize| servers[by].command(&["member", "remove", &ids[1 - by]]).output().unwrap();
        let both = [0, 1].map(|by| scope.spawn(move || remove(by)));
        both.map(|thread| thread.join().unwrap())
    });
    let told = both.each_ref().map(|output| String::from_utf8_lossy(&output.stderr));
    let done: Vec<_> = (0..2).filter(|by| both[*by].status.success()).collect();
    assert_eq!(done.len(), 1, "{told:?}");
    let survivor = servers.into_iter().nth(done[0]).unwrap();
    let serves = |server: &Rusd| {
        let listed = server.etcdctl(&["member", "list"]);
        assert!(listed.lines().count() == 1 && listed.starts_with(&ids[done[0]]), "{listed}");
        assert_eq!(server.etcdctl(&["put", "k", "v"]), "OK\n");
    };
    serves(&survivor);
    serves(&survivor.restart());
}

/// Of three members one was imported, and the others began with nothing: all were healthy, and had different data for ever.
#[test]
fn a_member_that_was_imported_is_refused_by_those_that_were_not() {
    let folder = harness::folder();
    let snapshot = folder.path().join("snapshot");
    let source = Rusd::start(&[]);
    source.etcdctl(&["put", "old", "v"]);
    source.etcdctl(&["snapshot", "save", snapshot.to_str().unwrap()]);
    let flags = flags_of_three();
    let imported = |flags: &[String]| {
        let directory = harness::folder();
        let mut import = rusd();
        import.arg("import").arg(&snapshot).arg("--data-dir").arg(directory.path().join("data")).args(flags);
        output(&mut import);
        directory
    };
    let [one, two, three] = [0, 1, 2].map(|number| flags[number].clone());
    let alone = Rusd::spawn(imported(&one), one.clone());
    let others = [&two, &three].map(|flags| Rusd::spawn(harness::folder(), flags.clone()));
    let others = others.map(Starting::ready);
    others[0].etcdctl(&["put", "new", "v"]);
    // It says so, and is never ready.
    let told = alone.line_with("were they founded with the same members, and with the same data?");
    assert!(told.contains("it belongs to group"), "{told}");
    drop(others);
    // Where all were imported they are a group.
    let all = flags_of_three();
    let starting: Vec<_> = all.iter().map(|flags| Rusd::spawn(imported(flags), flags.clone())).collect();
    let servers: Vec<_> = starting.into_iter().map(Starting::ready).collect();
    for server in &servers {
        assert_eq!(server.etcdctl(&["get", "old", "--print-value-only"]), "v\n");
    }
}

/// Disaster recovery: what the last member has is served again, and the group grows again. What is left of the others is refused.
#[test]
fn the_last_of_three_is_forced_to_go_on_alone() {
    let mut servers = group(3, "http", &[]);
    for number in 0..20 {
        servers[number % 3].etcdctl(&["put", "k", &number.to_string()]);
    }
    let before = hash(&servers[0]);
    harness::until("all to have everything", || servers.iter().all(|server| hash(server) == before));
    let lost = servers.split_off(1).into_iter().map(Rusd::kill).collect::<Vec<_>>();
    let (directory, flags) = servers.remove(0).kill();
    let forced = [&flags[..], &["--force-new-cluster".to_owned()]].concat();
    let alone = Rusd::spawn(directory, forced).ready();
    assert_eq!(alone.etcdctl(&["get", "k", "--print-value-only"]), "19\n");
    assert_eq!(alone.etcdctl(&["member", "list"]).lines().count(), 1);
    alone.etcdctl(&["put", "k", "alone"]);

    let (directory, _) = alone.kill();
    let alone = Rusd::spawn(directory, flags).ready();
    assert_eq!(alone.etcdctl(&["get", "k", "--print-value-only"]), "alone\n");
    let address = free_addresses(1).remove(0);
    let url = format!("http://{address}");
    alone.etcdctl(&["member", "add", "new", &format!("--peer-urls={url}")]);
    let flags = [
        "--name=new".to_owned(),
        format!("--listen-peer-urls={url}"),
        format!("--initial-advertise-peer-urls={url}"),
        format!("--initial-cluster=m0={},new={url}", peer_url(&alone)),
        "--initial-cluster-state=existing".to_owned(),
    ];
    let new = spawn(flags.to_vec()).ready();
    assert_eq!(new.etcdctl(&["get", "k", "--print-value-only"]), "alone\n");
    new.etcdctl(&["put", "k", "two"]);
    assert_eq!(alone.etcdctl(&["get", "k", "--print-value-only"]), "two\n");
    harness::until("both to have everything", || hash(&alone) == hash(&new));
    drop(lost);
}
