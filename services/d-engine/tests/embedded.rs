//! Engines within a program: alone, and three of them; with the words of the remote client.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use d_engine::engine::Node;
use d_engine::state::{Disk, EachRow, Rows, Storage, StorageError, Table};
use d_engine::{Address, Durability, Engine, MemberChange, Options, StateStorage};
use d_engine_client::{
    Error, EventKind, Operation, Query, ReadLevel, ReadPath, Scan, Stamp, Transaction, WatchOptions, end_of_prefix,
};

const PATIENCE: Duration = Duration::from_secs(30);

/// A member alone whose state is on disk.
fn on_disk(directory: &Path) -> Options {
    Options {
        durability: Durability::None,
        storage: StateStorage::Disk { cache_bytes: 1 << 20 },
        ..Options::alone(directory)
    }
}

/// fjall panics where it looks for a key that is too long, which ended every member that was asked for one.
#[tokio::test]
async fn a_read_of_a_key_that_no_storage_takes_is_refused() {
    let root = harness::folder();
    let engine = Engine::start(on_disk(&root.path().join("data"))).unwrap();
    engine.wait_ready(PATIENCE).await.unwrap();
    let client = engine.client();
    client.put("k", "v").await.unwrap();
    let long = || Bytes::from(vec![b'k'; 70_000]);
    let queries = [
        Query::Get(long()),
        Query::GetMany(vec!["k".into(), long()]),
        Query::Scan(Scan::prefix(long())),
        Query::Scan(Scan { start: long(), ..Scan::default() }),
        Query::Scan(Scan { end: Some(long()), ..Scan::default() }),
        Query::Scan(Scan { after: Some(long()), ..Scan::default() }),
    ];
    for query in queries {
        for level in [ReadLevel::Linearizable, ReadLevel::Lease, ReadLevel::Eventual] {
            let refused = engine.node().read_later(query.clone(), level.into()).await;
            assert!(matches!(&refused, Err(Error::Invalid(said)) if said.contains("70000 bytes")), "{refused:?}");
        }
    }
    let refused = engine.node().scan_all(long(), 1 << 20).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    assert!(matches!(client.watch(WatchOptions::key(long())).await, Err(Error::Invalid(_))));
    // The longest key, and a range that ends just behind it, are none of these.
    let longest = Bytes::from(vec![b'l'; 4096]);
    client.put(longest.clone(), "v").await.unwrap();
    let scan = Scan { start: longest.clone(), end: Some([&longest[..], &[0]].concat().into()), ..Scan::default() };
    let found = engine.node().read_later(Query::Scan(scan), ReadLevel::Linearizable.into()).await.unwrap();
    assert_eq!(found.value.items.len(), 1);
    engine.stop().unwrap();
}

/// A transaction of more than 3 MiB is told in two pieces. Who went on one above the last event's revision, as the documentation had it, missed the
/// second one.
#[tokio::test]
async fn a_watch_that_broke_within_a_long_transaction_goes_on_without_a_gap() {
    let root = harness::folder();
    let options = Options { durability: Durability::None, ..Options::alone(root.path().join("data")) };
    let engine = Engine::start(options).unwrap();
    engine.wait_ready(PATIENCE).await.unwrap();
    let client = engine.client();
    let mut watch = client.watch_prefix("").await.unwrap();
    assert_eq!(watch.next_revision(), 0);
    let value = Bytes::from(vec![0; 900_000]);
    let put =
        |key: &str| Operation::Put { key: Bytes::copy_from_slice(key.as_bytes()), value: value.clone(), ttl_millis: 0 };
    let then = ["a", "b", "c", "d"].map(put).to_vec();
    let revision = client.transact(Transaction { then, ..Transaction::default() }).await.unwrap().revision;
    for key in ["a", "b", "c"] {
        assert_eq!(watch.next().await.unwrap().unwrap().key, key);
        assert!((1..=revision).contains(&watch.next_revision()), "{key}: {}", watch.next_revision());
    }
    let from = WatchOptions { from_revision: watch.next_revision(), ..WatchOptions::prefix("") };
    let mut again = client.watch(from).await.unwrap();
    let mut told = Vec::new();
    while told.last().is_none_or(|key| key != "d") {
        told.push(again.next().await.unwrap().unwrap().key);
    }
    assert_eq!(told, ["a", "b", "c", "d"], "those of this revision come again");
    assert_eq!((watch.next().await.unwrap().unwrap().key, watch.next_revision()), ("d".into(), revision + 1));
    engine.stop().unwrap();
}

#[tokio::test]
async fn an_engine_alone_reads_writes_watches_and_starts_again() {
    let root = harness::folder();
    let options = Options::alone(root.path().join("data"));
    let engine = Engine::start(options.clone()).unwrap();
    engine.wait_ready(PATIENCE).await.unwrap();
    // Who is told of leaders is told a moment after who reads.
    let mut leadership = engine.leadership();
    tokio::time::timeout(PATIENCE, leadership.wait_for(|now| now.is_ready_leader)).await.unwrap().unwrap();
    let client = engine.client();
    let mut watch = client.watch_prefix("a/").await.unwrap();
    let first = client.put("a/1", "x").await.unwrap();
    assert_eq!(client.compare_and_swap("a/1", Some("y".into()), "z").await, Ok(None));
    let token = client.compare_and_swap("a/1", Some("x".into()), "z").await.unwrap().unwrap();
    assert!(token > first);
    assert_eq!(client.add("n", -2).await, Ok(-2));
    assert_eq!(client.delete("a/1").await, Ok(true));
    assert_eq!(client.delete("a/1").await, Ok(false));
    let seen = client.get_with("n", ReadLevel::Lease).await.unwrap();
    assert_eq!((seen.path, seen.value.unwrap().value), (ReadPath::Lease, "-2".into()));
    let mut events = Vec::new();
    for _ in 0..4 {
        events.push(watch.next().await.unwrap().unwrap());
    }
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::Put, EventKind::Put, EventKind::Delete, EventKind::Delete]);
    // What is not kept any more cannot be watched; what is, can.
    let all = WatchOptions { start: "a/".into(), end: end_of_prefix(b"a/"), from_revision: token, with_previous: true };
    let mut later = client.watch(all).await.unwrap();
    let event = later.next().await.unwrap().unwrap();
    assert_eq!((event.revision, event.previous.unwrap()), (token, "x".into()));

    // The same write twice, as a client that lost the answer sends it.
    let door = client.door();
    let session = door.open_session().await.unwrap();
    let stamp = Stamp { session, sequence: 1, awaited_from: 1 };
    let add = Transaction::of(Operation::Add { key: "once".into(), delta: 1 });
    let answer = door.write(add.clone(), Some(stamp)).await.unwrap();
    assert_eq!(door.write(add, Some(stamp)).await.unwrap(), answer);
    engine.stop().unwrap();

    let engine = Engine::start(options).unwrap();
    engine.wait_ready(PATIENCE).await.unwrap();
    let found = engine.client().scan(Scan::default(), ReadLevel::Linearizable).await.unwrap().value.items;
    let found: Vec<_> = found.iter().map(|item| (&*item.key, &*item.value)).collect();
    assert_eq!(found, [(&b"n"[..], &b"-2"[..]), (b"once", b"1")]);
}

#[tokio::test]
async fn a_snapshot_and_the_log_behind_it_are_the_state() {
    let root = harness::folder();
    // Nothing here is about power: syncs would only take time.
    let options = Options { durability: Durability::None, ..Options::alone(root.path().join("data")) };
    let engine = Engine::start(options.clone()).unwrap();
    engine.wait_ready(PATIENCE).await.unwrap();
    let client = engine.client();
    // More than the log keeps without a snapshot.
    let value = vec![7; 100_000];
    for number in 0..100 {
        client.put(format!("k{}", number % 30), value.clone()).await.unwrap();
    }
    harness::until("there is a snapshot", || engine.node().status().snapshot > 1);
    client.put("last", "v").await.unwrap();
    engine.stop().unwrap();
    let engine = Engine::start(options).unwrap();
    engine.wait_ready(PATIENCE).await.unwrap();
    let scan = Scan { keys_only: true, ..Scan::default() };
    let found = engine.client().scan(scan, ReadLevel::Linearizable).await.unwrap().value;
    assert_eq!((found.items.len(), found.has_more), (31, false));
}

/// Of one engine alone, and so through the log all the same.
#[tokio::test]
async fn keys_end_with_their_lease_and_locks_pass_on_with_rising_tokens() {
    let root = harness::folder();
    let options = Options { durability: Durability::None, ..Options::alone(root.path().join("data")) };
    let engine = Engine::start(options).unwrap();
    engine.wait_ready(PATIENCE).await.unwrap();
    let client = engine.client();
    // What is kept alive must outlast a machine that stands still for a while; what ends may do so soon.
    let ttl = Duration::from_secs(10);
    let short = client.grant_lease(Duration::from_millis(600)).await.unwrap();
    let kept = client.lease(ttl).await.unwrap();
    client.put_with_lease("short", "v", short.number).await.unwrap();
    let mut watch = client.watch(WatchOptions::key("short")).await.unwrap();
    client.put_with_lease("kept", "v", kept.number()).await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap().kind, EventKind::Expire);
    assert_eq!(client.keep_alive(short.number).await, Ok(None));
    let refused = client.put_with_lease("late", "v", short.number).await.unwrap_err();
    assert!(refused.to_string().contains("there is no such lease"), "{refused}");
    assert_eq!(client.get("late").await, Ok(None), "all of it or nothing");
    let found = client.get("kept").await.unwrap().unwrap();
    assert_eq!((found.lease, kept.is_alive()), (kept.number(), true));
    kept.revoke().await.unwrap();
    assert_eq!(client.get("kept").await, Ok(None));

    let first = client.lock("lock", ttl, PATIENCE).await.unwrap().unwrap();
    assert!(client.lock("lock", ttl, Duration::from_millis(100)).await.unwrap().is_none());
    let waiting =
        |client: d_engine_client::Client| async move { client.lock("lock", ttl, PATIENCE).await.unwrap().unwrap() };
    let second = tokio::spawn(waiting(client.clone()));
    let by_first = Transaction { compares: vec![first.fence()], ..Transaction::put("guarded", "1") };
    assert!(client.transact(by_first.clone()).await.unwrap().applied.succeeded);
    let token = first.token();
    // As one whose process was stopped: it says nothing any more.
    drop(first);
    let second = second.await.unwrap();
    assert!(second.token() > token);
    // And comes back, believing that it holds the lock.
    assert!(!client.transact(by_first).await.unwrap().applied.succeeded, "a fence lets the holder before pass");
    let third = tokio::spawn(waiting(client.clone()));
    let token = second.token();
    second.release().await.unwrap();
    let third = third.await.unwrap();
    assert!(third.token() > token);
    // One that was revoked by somebody else is told.
    assert!(client.revoke_lease(third.lease().number()).await.unwrap());
    third.lease().ended().await;
    assert!(!third.lease().is_alive());
}

/// A view that counts how often somebody reads the table of members.
struct CountingView {
    rows: Arc<dyn Rows + Send + Sync>,
    members: Arc<AtomicUsize>,
}

impl CountingView {
    fn count(&self, table: Table) {
        self.members.fetch_add(usize::from(table == Table::Members), Ordering::Relaxed);
    }
}

impl Rows for CountingView {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        self.count(table);
        self.rows.get(table, key)
    }

    fn scan(&self, table: Table, start: &[u8], end: Option<&[u8]>, each: &mut EachRow<'_>) -> Result<(), StorageError> {
        self.count(table);
        self.rows.scan(table, start, end, each)
    }
}

/// Counts rows that are put in, and looks at members.
struct Counting {
    disk: Disk,
    puts: Arc<AtomicUsize>,
    members: Arc<AtomicUsize>,
}

impl Rows for Counting {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        self.disk.get(table, key)
    }

    fn scan(&self, table: Table, start: &[u8], end: Option<&[u8]>, each: &mut EachRow<'_>) -> Result<(), StorageError> {
        self.disk.scan(table, start, end, each)
    }
}

impl Storage for Counting {
    fn put(&mut self, table: Table, key: Bytes, value: Bytes) -> Result<(), StorageError> {
        self.puts.fetch_add(1, Ordering::Relaxed);
        self.disk.put(table, key, value)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), StorageError> {
        self.disk.delete(table, key)
    }

    fn commit(&mut self, applied: u64) -> Result<(), StorageError> {
        self.disk.commit(applied)
    }

    fn applied(&self) -> u64 {
        self.disk.applied()
    }

    fn view(&self) -> Arc<dyn Rows + Send + Sync> {
        Arc::new(CountingView { rows: self.disk.view(), members: Arc::clone(&self.members) })
    }

    fn clear(&mut self) -> Result<(), StorageError> {
        self.disk.clear()
    }
}

#[tokio::test]
async fn a_state_on_disk_is_gone_on_with_and_not_made_again() {
    let root = harness::folder();
    let options = Options { durability: Durability::None, ..Options::alone(root.path().join("data")) };
    let puts = Arc::new(AtomicUsize::new(0));
    let start = || {
        let disk = Disk::open(&root.path().join("rows"), 1 << 20).unwrap();
        Engine::start_with(options.clone(), Counting { disk, puts: Arc::clone(&puts), members: Arc::default() })
            .unwrap()
    };
    let engine = start();
    engine.wait_ready(PATIENCE).await.unwrap();
    let client = engine.client();
    // More than the log keeps without a snapshot.
    let value = vec![7; 100_000];
    for number in 0..100 {
        client.put(format!("k{number:03}"), value.clone()).await.unwrap();
    }
    harness::until("there is a snapshot", || engine.node().status().snapshot > 1);
    client.add("last", 1).await.unwrap();
    engine.stop().unwrap();
    let before = puts.swap(0, Ordering::Relaxed);
    let engine = start();
    engine.wait_ready(PATIENCE).await.unwrap();
    let again = puts.load(Ordering::Relaxed);
    assert!(before > 100 && again < 10, "{before} rows were put in at first, {again} when it started again");
    let client = engine.client();
    assert_eq!(client.add("last", 1).await, Ok(2));
    let scan = Scan { keys_only: true, ..Scan::default() };
    assert_eq!(client.scan(scan, ReadLevel::Linearizable).await.unwrap().value.items.len(), 101);
    // A state in memory begins with what the log has, and the other way round.
    engine.stop().unwrap();
    for storage in [StateStorage::Memory, StateStorage::Disk { cache_bytes: 1 << 20 }, StateStorage::Memory] {
        let engine = Engine::start(Options { storage, ..options.clone() }).unwrap();
        engine.wait_ready(PATIENCE).await.unwrap();
        let found = engine.client().get("last").await.unwrap().unwrap();
        assert_eq!(&*found.value, b"2", "{}", storage.name());
        engine.stop().unwrap();
    }
}

/// They were read and decoded twenty times a second and more, by members with nothing to do.
#[tokio::test]
async fn what_is_known_of_members_is_not_read_over_and_over() {
    let root = harness::folder();
    let options = Options { durability: Durability::None, ..Options::alone(root.path().join("data")) };
    let members = Arc::new(AtomicUsize::new(0));
    let disk = Disk::open(&root.path().join("rows"), 1 << 20).unwrap();
    let counting = Counting { disk, puts: Arc::default(), members: Arc::clone(&members) };
    let engine = Engine::start_with(options, counting).unwrap();
    engine.wait_ready(PATIENCE).await.unwrap();
    // The group's first snapshot has them.
    let before = members.load(Ordering::Relaxed);
    // Rounds in which a leader looks have passed when the second one has ended: an end waits for a round, and for an election's time at first.
    let client = engine.client();
    for key in ["first", "second"] {
        let mut watch = client.watch(WatchOptions::key(key)).await.unwrap();
        client.put_with_ttl(key, "v", Duration::from_millis(1)).await.unwrap();
        while watch.next().await.unwrap().unwrap().kind != EventKind::Expire {}
    }
    assert_eq!(
        members.load(Ordering::Relaxed),
        before,
        "the table of members is read by a member that tells nobody of it"
    );
}

#[tokio::test]
async fn three_engines_in_one_program_agree() {
    let root = harness::folder();
    let peers = (0..3).map(|_| Address { client: String::new(), peer: harness::free_address().to_string() });
    let members: BTreeMap<u64, Address> = (1..).zip(peers).collect();
    let engines: Vec<Engine> = (1..=3)
        .map(|id| {
            let options = Options { id, members: members.clone(), ..Options::alone(root.path().join(id.to_string())) };
            Engine::start(options).unwrap()
        })
        .collect();
    for engine in &engines {
        engine.wait_ready(PATIENCE).await.unwrap();
    }
    let leader = engines[0].leadership().borrow().leader.unwrap();
    let mut revision = engines[leader as usize - 1].client().put("k", "v").await.unwrap();
    for engine in &engines {
        let client = engine.client();
        let seen = client.get_with("k", ReadLevel::Linearizable).await.unwrap();
        assert_eq!(seen.value.unwrap().revision, revision);
        // Whoever does not lead hands it to the leader, and then has it.
        revision = client.put("k", "w").await.unwrap();
        let seen = client.get_with("k", ReadLevel::Eventual).await.unwrap();
        assert_eq!(seen.value.map(|item| item.revision), Some(revision));
        assert_eq!(engine.node().counters().counted().forwarded, u64::from(engine.node().id() != leader));
    }
}

/// One that hears nobody knows how old it is at least: what it says of that is no less, and it refuses what it cannot keep.
#[tokio::test]
async fn a_bounded_read_is_no_older_than_it_says_and_says_no_less_than_it_is() {
    let root = harness::folder();
    let peers = (0..3).map(|_| Address { client: String::new(), peer: harness::free_address().to_string() });
    let members: BTreeMap<u64, Address> = (1..).zip(peers).collect();
    let start = |id| {
        let options = Options { id, members: members.clone(), ..Options::alone(root.path().join(id.to_string())) };
        Engine::start(options).unwrap()
    };
    let mut engines: Vec<Engine> = (1..=3).map(start).collect();
    for engine in &engines {
        engine.wait_ready(PATIENCE).await.unwrap();
    }
    let left = engines.remove(0);
    let client = left.client();
    client.put("k", "v").await.unwrap();
    let bounded = |millis: u64| ReadLevel::Bounded { max_staleness_micros: millis * 1000 };
    let age = || async { client.get_with("k", bounded(60_000)).await.unwrap().age_micros.unwrap() };
    assert!(age().await <= 60_000_000);
    for engine in engines {
        engine.stop().unwrap();
    }
    let alone = std::time::Instant::now();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let least = alone.elapsed();
    let told = Duration::from_micros(age().await);
    // Who led knows that nobody else acknowledged anything until its lease was over, which lasts no longer than an election takes.
    let lease = Options::alone(root.path().to_owned()).election;
    assert!(told + lease >= least, "it says {told:?}, and has heard nobody for {least:?}");
    let refused = tokio::time::timeout(PATIENCE, client.get_with("k", bounded(1_000))).await;
    assert!(!matches!(refused, Ok(Ok(_))), "{refused:?}");
    left.stop().unwrap();
}

/// It was taken as it is: founders with and without one had different states, and what another group had written came back.
#[tokio::test]
async fn a_group_is_not_founded_with_the_state_of_a_log_that_is_gone() {
    let root = harness::folder();
    let directory = root.path().join("data");
    let options = on_disk(&directory);
    let own = || Disk::open(&root.path().join("own"), 1 << 20).unwrap();
    let lose_the_log = || {
        ["wal", "snapshots"].iter().for_each(|name| std::fs::remove_dir_all(directory.join(name)).unwrap());
        std::fs::remove_file(directory.join("identity.json")).unwrap();
    };
    for is_own in [false, true] {
        let start = || if is_own { Engine::start_with(options.clone(), own()) } else { Engine::start(options.clone()) };
        let engine = start().unwrap();
        engine.wait_ready(PATIENCE).await.unwrap();
        engine.client().put("secret", "old").await.unwrap();
        engine.stop().unwrap();
        lose_the_log();
        for _ in 0..2 {
            let refused = start().map(drop).unwrap_err().to_string();
            assert!(refused.contains("of a log that is gone") || refused.contains("has no log"), "{refused}");
        }
        let state = if is_own { root.path().join("own") } else { directory.join("state") };
        std::fs::rename(&state, state.with_extension("away")).unwrap();
        let engine = start().unwrap();
        engine.wait_ready(PATIENCE).await.unwrap();
        assert_eq!(engine.client().get("secret").await, Ok(None));
        engine.stop().unwrap();
        lose_the_log();
        drop(std::fs::remove_dir_all(directory.join("state")));
    }
}

/// The member ended at each start again: the damage was found by the same entry.
#[tokio::test]
async fn what_a_disk_has_changed_is_made_again_from_the_log_though_it_is_found_late() {
    let root = harness::folder();
    let directory = root.path().join("data");
    let options = on_disk(&directory);
    let start = async || {
        let engine = Engine::start(options.clone()).unwrap();
        engine.wait_ready(PATIENCE).await.unwrap();
        engine
    };
    let engine = start().await;
    for number in 0..40 {
        engine.client().put(format!("k{number}"), vec![7; 20_000]).await.unwrap();
    }
    engine.node().defragment().await.unwrap();
    engine.stop().unwrap();
    let folders = std::fs::read_dir(directory.join("state/keyspaces")).unwrap();
    let tables = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path().join("tables")));
    let tables = tables.flatten().map(|table| table.unwrap().path());
    let table = tables.max_by_key(|table| table.metadata().unwrap().len()).unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    let half = bytes.len() / 2;
    bytes[half] ^= 1;
    std::fs::write(&table, bytes).unwrap();

    let engine = start().await;
    let read = engine.client().scan(Scan::default(), ReadLevel::Linearizable).await;
    assert!(read.unwrap_err().to_string().contains("start again: they are moved aside"));
    // It may be acknowledged: the log has it.
    let put = engine.client().put("new", "v").await;
    harness::until("the member has ended", || engine.has_ended());
    let said = engine.stop().unwrap_err().to_string();
    assert!(said.contains("start again: they are moved aside"), "{said}");

    let engine = start().await;
    let scan = Scan { keys_only: true, ..Scan::default() };
    let found = engine.client().scan(scan, ReadLevel::Linearizable).await.unwrap().value.items;
    assert!(found.len() >= 40 + usize::from(put.is_ok()), "{} keys, {put:?}", found.len());
    assert!(directory.join("state.damaged").exists() && !directory.join("state.is-damaged").exists());
}

/// Members of a group of three, whose directories are below `directory`, by their numbers: all such groups have one number.
fn three(directory: PathBuf) -> impl Fn(u64) -> Options {
    std::fs::create_dir(&directory).unwrap();
    let peers = (0..3).map(|_| Address { client: String::new(), peer: harness::free_address().to_string() });
    let members: BTreeMap<u64, Address> = (1..).zip(peers).collect();
    move |id| Options {
        id,
        members: members.clone(),
        durability: Durability::None,
        ..Options::alone(directory.join(id.to_string()))
    }
}

async fn start(options: &impl Fn(u64) -> Options, ids: &[u64]) -> Vec<Engine> {
    let engines: Vec<Engine> = ids.iter().map(|id| Engine::start(options(*id)).unwrap()).collect();
    for engine in &engines {
        engine.wait_ready(PATIENCE).await.unwrap();
    }
    engines
}

/// Waits until each of three members has written down which of all groups of its number it is of.
fn know_their_group(options: &impl Fn(u64) -> Options) {
    let knows = |id| {
        let identity = std::fs::read_to_string(options(id).directory.join("identity.json")).unwrap();
        identity.contains("\"serial\": ") && !identity.contains("\"serial\": 0,")
    };
    harness::until("all know which group they are of", || (1..=3).all(knows));
}

/// Two groups of the default name and of the same numbers: a member with a directory of the other one answered linearizable reads with what
/// that one had written.
#[tokio::test]
async fn a_member_with_the_directory_of_another_group_of_the_same_name_is_refused() {
    let root = harness::folder();
    let (first, second) = (three(root.path().join("first")), three(root.path().join("second")));
    let of_first = start(&first, &[1, 2, 3]).await;
    for number in 0..12 {
        of_first[0].client().put(format!("k{number}"), "first").await.unwrap();
    }
    know_their_group(&first);
    drop(of_first);
    let mut of_second = start(&second, &[1, 2, 3]).await;
    of_second[0].client().put("k0", "second").await.unwrap();
    know_their_group(&second);
    of_second.pop().unwrap().stop().unwrap();
    let away = second(3).directory.with_extension("away");
    std::fs::rename(second(3).directory, &away).unwrap();
    std::fs::rename(first(3).directory, second(3).directory).unwrap();

    let foreign = Engine::start(second(3)).unwrap();
    let mut waited = foreign.wait_ready(Duration::from_secs(2)).await;
    assert!(waited.is_err(), "it is one of them");
    let read = foreign.client().get_with("k0", ReadLevel::Eventual).await.unwrap();
    assert_eq!(read.value.unwrap().value, "first", "what it had, and only to who asks for that");
    of_second[0].client().put("k1", "second").await.unwrap();
    waited = foreign.wait_ready(Duration::from_millis(1)).await;
    assert!(waited.is_err());
    foreign.stop().unwrap();

    // With its own directory it is.
    std::fs::remove_dir_all(second(3).directory).unwrap();
    std::fs::rename(away, second(3).directory).unwrap();
    let back = start(&second, &[3]).await;
    assert_eq!(back[0].client().get("k1").await.unwrap().unwrap().value, "second");
}

/// Its vote was counted on where nobody of the group was: with one more that is lost, the group would have decided nothing any more.
#[tokio::test]
async fn a_member_that_votes_is_not_looked_for_where_another_group_has_one_of_its_number() {
    let root = harness::folder();
    let (first, second) = (three(root.path().join("first")), three(root.path().join("second")));
    let of_first = start(&first, &[1, 2, 3]).await;
    let _of_second = start(&second, &[1, 2, 3]).await;
    know_their_group(&first);
    know_their_group(&second);
    let leader = leader_of(&of_first);
    let moved = leader.id() % 3 + 1;
    let refused = leader.change_members(MemberChange::Add(moved, second(moved).members[&moved].clone())).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("another group with the same name"), "{refused}");
    assert_eq!(leader.members()[&moved], first(moved).members[&moved]);
}

fn leader_of(engines: &[Engine]) -> Node {
    harness::eventually("there is a leader", || engines.iter().map(Engine::node).find(|node| node.leads()).cloned())
}
