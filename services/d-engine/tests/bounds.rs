//! What clients can make an engine hold and how long they can make it stand still; and what it answers where it refuses.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytes::Bytes;
use d_engine::engine::Node;
use d_engine::state::{Access, EachRow, Memory, Principal, Rows, Storage, StorageError, Table, UserChange};
use d_engine::{Address, Durability, Engine, MemberChange, Options};
use d_engine_client::{Door, Error, Query, ReadLevel, ReadOptions, Stamp, Transaction, WatchOptions};

const PATIENCE: Duration = Duration::from_secs(30);

/// An engine of a group of one, for which nothing is synced.
async fn alone(root: &harness::TempDir) -> Engine {
    let options = Options { durability: Durability::None, ..Options::alone(root.path().join("data")) };
    let engine = Engine::start(options).unwrap();
    engine.wait_ready(PATIENCE).await.unwrap();
    // Who is told of leaders is told a moment after who reads.
    let mut leadership = engine.leadership();
    tokio::time::timeout(PATIENCE, leadership.wait_for(|now| now.is_ready_leader)).await.unwrap().unwrap();
    engine
}

/// Each waits for up to two election timeouts; a client may have thousands on their way.
#[tokio::test]
async fn writes_that_wait_for_a_leader_hold_so_many_bytes_and_others_are_busy() {
    let root = harness::folder();
    let peers = (0..2).map(|_| Address { client: String::new(), peer: harness::free_address().to_string() });
    let members: BTreeMap<u64, Address> = (1..).zip(peers).collect();
    let options = Options { members, ..Options::alone(root.path().join("data")) };
    let engine = Engine::start(options).unwrap();
    let client = engine.client();
    let value = Bytes::from(vec![7; 1 << 20]);
    let puts = (0..100).map(|number| client.put(format!("k{number}"), value.clone()));
    let outcomes = futures::future::join_all(puts).await;
    let busy = outcomes.iter().filter(|outcome| **outcome == Err(Error::Busy)).count();
    assert!((30..60).contains(&busy), "{busy} of 100: {:?}", outcomes.first());
    // They wait no more, and their room is there again.
    assert_eq!(client.put("k", "v").await, Err(Error::NotLeader(None)));
}

/// Its client took it for a write that would never succeed.
#[tokio::test]
async fn a_session_with_too_many_answers_is_told_what_to_say_and_to_come_again() {
    let root = harness::folder();
    let engine = alone(&root).await;
    let client = engine.client();
    let door = client.door();
    let session = door.open_session().await.unwrap();
    let write = |sequence, awaited_from| {
        door.write(Transaction::put("k", "v"), Some(Stamp { session, sequence, awaited_from }))
    };
    for outcome in futures::future::join_all((1..=4096).map(|sequence| write(sequence, 1))).await {
        outcome.unwrap();
    }
    let refused = write(4097, 1).await.unwrap_err();
    assert!(matches!(&refused, Error::NotNow(text) if text.contains("awaited_from")), "{refused:?}");
    assert!(refused.is_temporary() && !refused.may_have_happened());
    assert!(write(4097, 4097).await.is_ok());
}

#[tokio::test]
async fn who_does_not_administer_changes_no_members_and_who_may_not_read_scans_nothing() {
    let root = harness::folder();
    let engine = alone(&root).await;
    let node = engine.node();
    engine.client().put("k/1", "v").await.unwrap();
    let add = UserChange::Add { name: "root".into(), hash: "h".into(), is_admin: true };
    for change in [add, UserChange::Enable(true)] {
        node.change_users(change).await.unwrap();
    }
    let nobody = node.acting_for(Principal::Nobody);
    assert!(matches!(nobody.change_members(MemberChange::Remove(9)).await, Err(Error::Denied(_))));
    assert!(matches!(node.change_members(MemberChange::Remove(9)).await, Err(Error::Invalid(_))));
    let scan = |node: &Node| {
        let node = node.clone();
        async move { node.scan_all("k/".into(), 1 << 20).await }
    };
    assert!(matches!(scan(&nobody).await, Err(Error::Denied(_))));
    let before = node.counters().counted().reads_read_index;
    let seen = scan(node).await.unwrap();
    assert_eq!((seen.value.items.len(), seen.value.has_more), (1, false));
    assert_eq!(node.counters().counted().reads_read_index, before + 1);
    assert!(node.scan_all("k/".into(), 3).await.unwrap().value.has_more, "four bytes begin so");
}

/// A user named `guest` with these grants; who it is, and who has none.
async fn guest(engine: &Engine, prefix: Option<&'static str>) -> Node {
    let node = engine.node();
    let add = |name: &'static str, is_admin| UserChange::Add { name: name.into(), hash: "h".into(), is_admin };
    let mut changes = vec![add("root", true), add("guest", false), UserChange::Enable(true)];
    let access = Access { read: true, write: true };
    changes.extend(prefix.map(|prefix| UserChange::Grant { name: "guest".into(), prefix: prefix.into(), access }));
    for change in changes {
        node.change_users(change).await.unwrap();
    }
    let since = node.list_users().unwrap().all()["guest".as_bytes()].since;
    node.acting_for(Principal::User { name: "guest".into(), since })
}

/// They were refused where they are applied, and stood in the log of all members by then.
#[tokio::test]
async fn what_nobody_may_write_is_in_no_log() {
    let root = harness::folder();
    let engine = alone(&root).await;
    let guest = guest(&engine, Some("mine/")).await;
    guest.write(Transaction::put("mine/k", "v"), None).await.unwrap();
    let before = engine.node().status().applied;
    for _ in 0..10 {
        assert!(matches!(guest.write(Transaction::put("k", "v"), None).await, Err(Error::Denied(_))));
        let change = UserChange::Remove { name: "root".into() };
        assert!(matches!(guest.change_users(change).await, Err(Error::Denied(_))));
    }
    let nobody = engine.node().acting_for(Principal::Nobody);
    assert!(matches!(nobody.open_session().await, Err(Error::Denied(_))));
    assert_eq!(engine.node().status().applied, before);
    let own = UserChange::Password { name: "guest".into(), hash: "other".into() };
    guest.change_users(own).await.unwrap();
}

/// The key was a slice of the message that it came in, which stayed for as long as the watch.
#[tokio::test]
async fn a_watch_keeps_nothing_of_the_message_that_asked_for_it() {
    struct Message(Vec<u8>, #[expect(dead_code, reason = "it is counted by who holds it")] Arc<()>);
    impl AsRef<[u8]> for Message {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let root = harness::folder();
    let engine = alone(&root).await;
    let held = Arc::new(());
    let message = Bytes::from_owner(Message(vec![b'k'; 1 << 20], Arc::clone(&held)));
    let options = WatchOptions { start: message.slice(..5), end: Some(message.slice(..9)), ..WatchOptions::default() };
    drop(message);
    let _watching = engine.node().watch_now(options).unwrap();
    assert_eq!(Arc::strong_count(&held), 1);
}

/// They took all places of the queue that everybody's reads stand in.
#[tokio::test]
async fn reads_of_what_may_never_come_have_few_places() {
    let root = harness::folder();
    let engine = alone(&root).await;
    let node = engine.node();
    let never = ReadOptions { at_least: u64::MAX / 2, ..ReadLevel::Eventual.into() };
    let reads = (0..10_100).map(|_| node.read_later(Query::Get("k".into()), never));
    let all = tokio::spawn(futures::future::join_all(reads));
    tokio::task::yield_now().await;
    let seen = node.read_later(Query::Get("k".into()), ReadLevel::Linearizable.into()).await;
    assert!(seen.is_ok(), "{seen:?}");
    let busy = all.await.unwrap().into_iter().filter(|outcome| matches!(outcome, Err(Error::Busy))).count();
    assert_eq!(busy, 100);
}

#[tokio::test]
async fn a_few_take_all_of_the_state_at_a_time() {
    let root = harness::folder();
    let engine = alone(&root).await;
    let node = engine.node();
    let mut taken = Vec::new();
    for _ in 0..4 {
        taken.push(node.backup().await.unwrap());
    }
    assert!(matches!(node.backup().await.map(drop), Err(Error::Busy)));
    taken.pop().unwrap()(&mut std::io::sink()).unwrap();
    drop(node.backup().await.unwrap());
}

/// Whether rows that are slow may be read.
type Gate = Arc<(Mutex<bool>, Condvar)>;

/// A view whose rows of one key come when the gate is open, or very late.
struct Slow(Arc<dyn Rows + Send + Sync>, Gate);

impl Rows for Slow {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        if key == b"slow" {
            let (is_open, opened) = &*self.1;
            drop(opened.wait_timeout_while(is_open.lock().unwrap(), PATIENCE, |is_open| !*is_open).unwrap());
        }
        self.0.get(table, key)
    }

    fn scan(&self, table: Table, start: &[u8], end: Option<&[u8]>, each: &mut EachRow<'_>) -> Result<(), StorageError> {
        self.0.scan(table, start, end, each)
    }
}

/// In memory, with such a view.
struct SlowStorage(Memory, Gate);

impl Rows for SlowStorage {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        self.0.get(table, key)
    }

    fn scan(&self, table: Table, start: &[u8], end: Option<&[u8]>, each: &mut EachRow<'_>) -> Result<(), StorageError> {
        self.0.scan(table, start, end, each)
    }
}

impl Storage for SlowStorage {
    fn put(&mut self, table: Table, key: Bytes, value: Bytes) -> Result<(), StorageError> {
        self.0.put(table, key, value)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), StorageError> {
        self.0.delete(table, key)
    }

    fn commit(&mut self, applied: u64) -> Result<(), StorageError> {
        self.0.commit(applied)
    }

    fn applied(&self) -> u64 {
        self.0.applied()
    }

    fn view(&self) -> Arc<dyn Rows + Send + Sync> {
        Arc::new(Slow(self.0.view(), Arc::clone(&self.1)))
    }

    fn clear(&mut self) -> Result<(), StorageError> {
        self.0.clear()
    }
}

/// Who asked for ten thousand keys held up all others of the same thread.
#[tokio::test]
async fn who_reads_much_does_not_hold_up_who_reads_little() {
    let root = harness::folder();
    let gate = Gate::default();
    let options = Options { durability: Durability::None, ..Options::alone(root.path().join("data")) };
    let engine = Engine::start_with(options, SlowStorage(Memory::default(), Arc::clone(&gate))).unwrap();
    engine.wait_ready(PATIENCE).await.unwrap();
    let client = engine.client();
    client.put("quick", "v").await.unwrap();
    let much = Query::GetMany(vec!["slow".into(); 10_000]);
    let reader = tokio::spawn({
        let door = Arc::clone(client.door());
        async move { door.read(much, ReadLevel::Eventual.into()).await }
    });
    // It has begun by then: there is one thread for both, and this waits for a round.
    assert_eq!(client.get_with("quick", ReadLevel::Linearizable).await.unwrap().value.unwrap().value, "v");
    assert!(!reader.is_finished());
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    assert_eq!(reader.await.unwrap().unwrap().value.items, []);
}
