//! The state machine of rusd: keys and their history, leases, users, alarms and members.
//!
//! Commands come out of the replicated log, one after the other, and make the next [`State`] of the last: equal commands in equal
//! order make equal states, answers and snapshots. The log is the database: there is no other file; a snapshot of the log is the
//! checkpoint.
//!
//! ```text
//!  log ──► Store::apply ──► State ──publish──► Reader::view ──► View: range, txn, hash, leases, users, …
//!          command, state   trees that share               └──► watch::Hub, timers::LeaseTimers
//! ```
//!
//! Readers take a [`View`], which costs a reference, and keep it as long as they like; the writer goes on. What is published is
//! on the disks of a quorum, because nothing else is applied.

use std::io::Read;

use replog::{Entry, RestoreError, SnapshotView, StateMachine};

pub mod auth;
pub mod check;
mod cluster;
pub mod command;
pub mod counts;
mod effort;
pub mod error;
mod hash;
pub mod import;
mod keys;
mod keyspace;
mod lease;
mod log_time;
pub mod quota;
mod range;
mod record;
mod replies;
mod reply;
pub mod snapshot;
pub mod spill;
mod state;
pub mod timers;
mod view;
pub mod watch;

pub use auth::{Access, Auth};
pub use cluster::Cluster;
pub use command::{Caller, Command, IssuedToken, Request};
pub use counts::Counts;
pub use error::{Code, Error};
pub use hash::{KeyValueHash, hash_key_values};
pub use keys::Keys;
pub use keyspace::{Keyspace, NEVER};
pub use lease::{Lease, Leases};
use log_time::LogTime;
pub use range::Found;
pub use record::{Fields, Record, Revision};
use replies::Replies;
pub use replies::{Held, Reply};
pub use reply::{NewestRevision, OtherReply};
pub use spill::Spill;
pub use state::{Outcome, Response, Room, State};
pub use view::{Chunks, Reader, View};

/// How many changes of the log compaction looks at after each batch, and at a time while nothing happens: a millisecond or two.
const SWEEP_CHANGES: usize = 500;

/// How many values are moved to the disk after each batch beside twice as many as it had commands, and at a time while nothing
/// happens: a few milliseconds.
const SPILL_RECORDS: usize = 64;
const SPILL_RECORDS_IDLE: usize = 1000;

/// The state machine.
pub struct Store {
    state: State,
    applied_index: u64,
    log_time: LogTime,
    reader: Reader,
    /// Told of every publication, on the thread that applies.
    on_publish: Option<Box<dyn Fn() + Send>>,
    /// Told of every compaction, and of what was kept before: see [`Store::on_compaction`].
    on_compaction: Option<Box<dyn Fn(Keyspace, i64) + Send>>,
    /// Where records are put together.
    scratch: Vec<u8>,
    /// Where values go that are too many for the memory, if anywhere.
    spill: Option<Spill>,
    /// What was read for those who wait.
    replies: Replies,
    /// Commands since that was looked at last.
    applied: usize,
}

impl Default for Store {
    fn default() -> Self {
        let state = State::default();
        let reader = Reader::new(state.clone());
        let (on_publish, on_compaction, scratch) = (None, None, Vec::new());
        let log_time = LogTime::default();
        let replies = Replies::default();
        Self {
            state,
            applied_index: 0,
            log_time,
            reader,
            on_publish,
            on_compaction,
            scratch,
            spill: None,
            replies,
            applied: 0,
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Store").field("revision", &self.state.keyspace.revision()).finish_non_exhaustive()
    }
}

impl Store {
    /// Begins with what was taken over from elsewhere; who the group is made of stays.
    pub fn take_over(&mut self, taken: State) {
        let mut cluster = Cluster::clone(&self.state.cluster);
        taken.cluster.alarms(0).into_iter().for_each(|alarm| cluster.restore_alarm(alarm));
        self.state = State { cluster: std::sync::Arc::new(cluster), ..taken };
    }

    /// As before any command, in a group of these members.
    pub fn of_group(members: impl IntoIterator<Item = crate::proto::etcdserverpb::Member>) -> Self {
        let mut store = Self::default();
        store.state.cluster = std::sync::Arc::new(Cluster::of(members));
        store
    }

    /// Gives views of what is published.
    pub fn reader(&self) -> Reader {
        self.reader.clone()
    }

    /// The keys as they are now, published or not.
    pub fn keyspace(&self) -> &Keyspace {
        &self.state.keyspace
    }

    /// Moves values to files when they are too many. Before anybody has a [`Reader`].
    pub fn spill_to(&mut self, spill: Spill) {
        self.reader = Reader::of(self.state.clone(), spill.shown());
        self.spill = Some(spill);
    }

    /// `told` is called after every publication, on the thread that applies: it should wake others, and return.
    pub fn on_publish(&mut self, told: impl Fn() + Send + 'static) {
        self.on_publish = Some(Box::new(told));
    }

    /// `told` is called with the keys as they were before each compaction, and its revision, on the thread that applies: it should
    /// hand them to others, and return.
    pub fn on_compaction(&mut self, told: impl Fn(Keyspace, i64) + Send + 'static) {
        self.on_compaction = Some(Box::new(told));
    }

    /// Does some of what compaction put off; whether that was anything.
    fn sweep(&mut self) -> bool {
        let space = &mut self.state.keyspace;
        if !space.has_to_sweep() {
            return false;
        }
        let seen = |space: &Keyspace| (space.bytes(), space.kept_from(), space.is_swept());
        let before = seen(space);
        space.sweep(SWEEP_CHANGES, self.reader.seen(space.revision()));
        before != seen(space)
    }

    /// Moves values of so many records to the disk, if there are too many in memory; whether there were.
    fn spill(&mut self, records_max: usize) -> bool {
        let space = &mut self.state.keyspace;
        self.spill.as_mut().is_some_and(|spill| spill.step(space, records_max))
    }

    /// Lets readers see what was applied.
    pub fn publish(&self) {
        self.reader.publish(self.state.clone(), self.applied_index, self.log_time);
        if let Some(told) = &self.on_publish {
            told();
        }
    }
}

impl Store {
    fn apply_within(&mut self, entry: &Entry, room: Room) -> Outcome {
        self.applied += 1;
        self.log_time.saw(entry.time_millis);
        let command = Command::decode(&entry.data)?;
        let put_bytes = Counts::put_bytes_of(&command.request);
        let is_revocation = matches!(command.request, Request::LeaseRevoke(_));
        let outcome = self.apply_command(command, entry.time_millis, room);
        self.reader.counts().applied(&outcome, put_bytes, is_revocation);
        outcome
    }

    fn apply_command(&mut self, command: Command, time_millis: u64, room: Room) -> Outcome {
        let revision = match (&command.request, &self.on_compaction) {
            (Request::Compaction(compaction), Some(_)) => compaction.revision,
            _ => return self.state.apply(command, time_millis, &mut self.scratch, room),
        };
        let before = self.state.keyspace.clone();
        let outcome = self.state.apply(command, time_millis, &mut self.scratch, room);
        if let (Ok(_), Some(told)) = (&outcome, &self.on_compaction) {
            told(before, revision);
        }
        outcome
    }
}

impl StateMachine for Store {
    type Reply = Reply;

    fn apply(&mut self, entry: &Entry) -> Reply {
        let outcome = self.apply_within(entry, self.replies.room());
        self.replies.reply(outcome)
    }

    fn apply_unasked(&mut self, entry: &Entry) {
        // What it came to is in the state.
        let _ = self.apply_within(entry, Room::NONE);
    }

    fn takes_long<'a>(&self, commands: impl Iterator<Item = (&'a Entry, bool)>) -> bool {
        effort::is_long(&self.state, commands)
    }

    fn applied(&mut self, index: u64) {
        self.applied_index = index;
        self.sweep();
        let commands = std::mem::take(&mut self.applied);
        self.spill(SPILL_RECORDS + 2 * commands);
        self.publish();
    }

    fn idle(&mut self) {
        if self.sweep() | self.spill(SPILL_RECORDS_IDLE) {
            self.publish();
        }
    }

    fn goes_on_alone(&mut self, id: u64) {
        std::sync::Arc::make_mut(&mut self.state.cluster).keep_only(id);
    }

    fn snapshot(&self) -> SnapshotView {
        let state = self.state.clone();
        Box::new(move |to| snapshot::write(&state, to))
    }

    fn restore(&mut self, snapshot: &mut dyn Read) -> Result<(), RestoreError> {
        let restored = snapshot::read(snapshot, self.spill.as_mut());
        self.state = restored.map_err(|refused| RestoreError(refused.to_string()))?;
        Ok(())
    }

    fn restored(&mut self, time_millis: u64) {
        self.log_time.saw(time_millis);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::etcdserverpb as pb;

    /// A store, and what applies requests to it, one after the other.
    fn store() -> (Store, impl FnMut(&mut Store, Request)) {
        let mut index = 0;
        let apply = move |store: &mut Store, request| {
            index += 1;
            let data = Command { caller: Caller::Server, request }.encode();
            let entry = Entry { index, term: 1, kind: replog::EntryKind::Command, time_millis: 0, data };
            store.apply(&entry).outcome.unwrap();
            store.applied(index);
        };
        (Store::default(), apply)
    }

    fn entry(request: Request) -> Entry {
        let data = Command { caller: Caller::Server, request }.encode();
        Entry { index: 1, term: 1, kind: replog::EntryKind::Command, time_millis: 0, data }
    }

    /// A dozen clients that take no answers had half a gigabyte of them, one by one within their bound.
    #[test]
    fn replies_that_nobody_has_sent_yet_have_a_bound_together() {
        let (mut store, mut apply) = store();
        for number in 0..30 {
            let (key, value) = (format!("k{number}").into(), vec![7; 1 << 20].into());
            apply(&mut store, Request::Put(pb::PutRequest { key, value, ..Default::default() }));
        }
        let operation = |request| pb::RequestOp { request: Some(request) };
        let put = pb::PutRequest { key: "done".into(), ..Default::default() };
        let all = pb::RangeRequest { key: "k".into(), range_end: "l".into(), ..Default::default() };
        let one = pb::RangeRequest { key: "done".into(), ..Default::default() };
        let mut ask = |read: &pb::RangeRequest| {
            let success = vec![
                operation(pb::request_op::Request::RequestPut(put.clone())),
                operation(pb::request_op::Request::RequestRange(read.clone())),
            ];
            store.apply(&entry(Request::Txn(pb::TxnRequest { success, ..Default::default() })))
        };
        let mut held: Vec<Reply> = (0..3).map(|_| ask(&all)).collect();
        assert!(held.iter().all(|reply| reply.outcome.is_ok()));
        assert_eq!(ask(&all).outcome, Err(Error::AnswerTooLarge));
        assert!(ask(&one).outcome.is_ok(), "small ones are answered all the same");
        held.pop();
        assert!(ask(&all).outcome.is_ok());
    }

    /// A leader that is busy for longer than an election is no leader any more.
    #[test]
    fn what_takes_long_is_known_before() {
        let (mut store, mut apply) = store();
        apply(&mut store, Request::LeaseGrant(pb::LeaseGrantRequest { ttl: 10, id: 7 }));
        for number in 0..6_000 {
            let lease = if number % 6 < 5 { 0 } else { 7 };
            let key = format!("{number:04}").into();
            apply(&mut store, Request::Put(pb::PutRequest { key, value: "v".into(), lease, ..Default::default() }));
        }
        let takes_long = |request: Request, is_awaited| store.takes_long([(&entry(request), is_awaited)].into_iter());
        let range = |key: &str, range_end: &str| (Into::into(key.to_owned()), Into::into(range_end.to_owned()));
        let delete = |from, to| {
            let (key, range_end) = range(from, to);
            pb::DeleteRangeRequest { key, range_end, prev_kv: false }
        };
        let read = |revision| {
            let (key, range_end) = range("\0", "\0");
            pb::RangeRequest { key, range_end, revision, ..Default::default() }
        };
        let txn = |request| {
            let success = vec![pb::RequestOp { request: Some(request) }];
            pb::TxnRequest { success, ..Default::default() }
        };
        use pb::request_op::Request as Operation;
        assert!(takes_long(Request::DeleteRange(delete("\0", "\0")), false));
        assert!(!takes_long(Request::DeleteRange(delete("0000", "2000")), false));
        assert!(!takes_long(Request::DeleteRange(delete("0000", "")), true));
        assert!(takes_long(Request::Txn(txn(Operation::RequestDeleteRange(delete("\0", "\0")))), false));
        assert!(takes_long(Request::Txn(txn(Operation::RequestRange(read(0)))), true));
        assert!(!takes_long(Request::Txn(txn(Operation::RequestRange(read(0)))), false), "nobody waits for it");
        assert!(takes_long(Request::Txn(txn(Operation::RequestTxn(txn(Operation::RequestRange(read(0)))))), true));
        assert!(!takes_long(Request::LeaseRevoke(pb::LeaseRevokeRequest { id: 7 }), true));
        assert_eq!(store.state.leases.count_keys(7), 1_000);
        let halves =
            [entry(Request::DeleteRange(delete("0000", "3000"))), entry(Request::DeleteRange(delete("3000", "\0")))];
        assert!(store.takes_long(halves.iter().map(|entry| (entry, false))), "together they do");
    }

    /// A stream held all that was there when it began, for as long as its client did not read: as much memory as data, for each.
    #[test]
    fn a_stream_of_ranges_shows_one_revision_and_holds_none() {
        let (mut store, mut apply) = store();
        let put = |key: &str, value: &str| {
            Request::Put(pb::PutRequest {
                key: key.to_owned().into(),
                value: value.to_owned().into(),
                ..Default::default()
            })
        };
        for key in ["a", "b", "c", "d", "e"] {
            apply(&mut store, put(key, "old"));
        }
        let request = |limit| pb::RangeRequest { key: "a".into(), range_end: "z".into(), limit, ..Default::default() };
        let reader = store.reader();
        let mut streams = [0, 4].map(|limit| reader.view().chunks(request(limit)).unwrap());
        let mut next = |keys_max| streams.each_mut().map(|stream| stream.next_chunk(&reader.view(), keys_max));
        let keys = |chunk: &pb::RangeResponse| {
            chunk.kvs.iter().map(|kv| (kv.key.clone(), kv.value.clone())).collect::<Vec<_>>()
        };
        let of = |keys: &[&'static str]| {
            keys.iter().map(|key| ((*key).into(), "old".into())).collect::<Vec<(bytes::Bytes, bytes::Bytes)>>()
        };
        for first in next(2) {
            assert_eq!(keys(&first.unwrap().unwrap()), of(&["a", "b"]));
        }
        apply(&mut store, put("c", "new"));
        apply(&mut store, put("cc", "new"));
        apply(&mut store, Request::DeleteRange(pb::DeleteRangeRequest { key: "d".into(), ..Default::default() }));
        let [all, limited] = next(3).map(|chunk| chunk.unwrap().unwrap());
        assert_eq!((keys(&all), all.more, all.count), (of(&["c", "d", "e"]), false, 5));
        assert_eq!((keys(&limited), limited.more, limited.count), (of(&["c", "d"]), true, 5));
        assert_eq!(limited.header.unwrap().revision, 6);
        assert!(next(1).iter().all(|end| *end == Ok(None)));
        let mut late = reader.view().chunks(pb::RangeRequest { revision: 6, ..request(0) }).unwrap();
        assert!(late.next_chunk(&reader.view(), 1).is_ok());
        apply(&mut store, Request::Compaction(pb::CompactionRequest { revision: 7, physical: false }));
        assert_eq!(late.next_chunk(&reader.view(), 1), Err(Error::Compacted));
    }

    /// How long it takes: `cargo test --release -p rusd --lib how_long -- --ignored --nocapture`.
    #[test]
    #[ignore = "it measures"]
    fn how_long_a_million_keys_take() {
        let (mut store, mut apply) = store();
        for number in 0..1_000_000 {
            let put = pb::PutRequest { key: number.to_string().into(), value: "v".into(), ..Default::default() };
            apply(&mut store, Request::Put(put));
        }
        let took = |what: &str, work: &mut dyn FnMut()| {
            let start = std::time::Instant::now();
            work();
            println!("{what}: {:?}", start.elapsed());
        };
        let everything = pb::DeleteRangeRequest { key: "\0".into(), range_end: "\0".into(), ..Default::default() };
        let request = Request::DeleteRange(everything);
        took("to see that it takes long", &mut || {
            assert!(store.takes_long([(&entry(request.clone()), true)].into_iter()))
        });
        took("to delete a million keys", &mut || apply(&mut store, request.clone()));
        let revision = store.reader().view().revision();
        let request = Request::Compaction(pb::CompactionRequest { revision, physical: false });
        took("to compact", &mut || apply(&mut store, request.clone()));
        let mut longest = std::time::Duration::ZERO;
        while !store.reader().view().keyspace.is_swept() {
            let start = std::time::Instant::now();
            store.idle();
            longest = longest.max(start.elapsed());
        }
        println!("the longest step of what compaction leaves: {longest:?}");
    }

    /// Ten million leases of a minute took no part of the quota.
    #[test]
    fn leases_count_for_the_quota() {
        let (mut store, mut apply) = store();
        for id in 1..=1_000 {
            apply(&mut store, Request::LeaseGrant(pb::LeaseGrantRequest { ttl: 10, id }));
        }
        let granted = store.reader().view().bytes();
        assert!(granted >= 100_000, "{granted}");
        let put = |lease| pb::PutRequest { key: "k".into(), lease, ..Default::default() };
        apply(&mut store, Request::Put(put(1)));
        apply(&mut store, Request::Put(put(2)));
        for id in 1..=1_000 {
            apply(&mut store, Request::LeaseRevoke(pb::LeaseRevokeRequest { id }));
        }
        assert_eq!(store.state.leases.bytes(), 0);
    }

    #[test]
    fn time_goes_on_between_entries_and_never_back() {
        let (mut store, _) = store();
        let mut entry = entry(Request::Alarm(pb::AlarmRequest::default()));
        for (time_millis, at_least) in [(5_000_000, 5_000_000), (4_000_000, 5_000_000), (6_000_000, 6_000_000)] {
            entry.time_millis = time_millis;
            store.apply_unasked(&entry);
            store.applied(1);
            let seen = store.reader().view().log_millis();
            // A minute is more than this takes on any machine.
            assert!((at_least..at_least + 60_000).contains(&seen), "{seen}");
        }
    }

    /// Of a member that began with a snapshot all tokens that had ended lived again, for as long as nobody wrote.
    #[test]
    fn a_token_that_has_ended_does_not_live_again_with_a_snapshot() {
        let (mut store, _) = store();
        let hashed_password = "aGFzaA==".to_owned();
        let user = pb::AuthUserAddRequest { name: "root".into(), hashed_password, ..Default::default() };
        let role = pb::AuthUserGrantRoleRequest { user: "root".into(), role: "root".into() };
        let login = IssuedToken { user: "root".into(), token: "t".into(), ttl_seconds: 2, auth_revision: 0 };
        for request in [
            Request::AuthUserAdd(user),
            Request::AuthUserGrantRole(role),
            Request::AuthEnable(pb::AuthEnableRequest {}),
            Request::Authenticate(login),
        ] {
            assert_eq!(store.apply(&Entry { time_millis: 5_000_000, ..entry(request) }).outcome.err(), None);
        }
        let mut bytes = Vec::new();
        store.snapshot()(&mut bytes).unwrap();
        let lives = |time_millis| {
            let mut other = Store::default();
            other.restore(&mut &bytes[..]).unwrap();
            other.restored(time_millis);
            other.applied(4);
            let view = other.reader().view();
            view.auth.token("t", view.log_millis()).is_some()
        };
        assert_eq!([lives(5_000_000), lives(5_002_000)], [true, false]);
    }

    /// All of them have the revision that is compacted.
    #[test]
    fn many_keys_that_are_deleted_at_once_are_swept_to_the_last() {
        let (mut store, mut apply) = store();
        for number in 0..3 * SWEEP_CHANGES {
            let put = pb::PutRequest { key: number.to_string().into(), value: "v".into(), ..Default::default() };
            apply(&mut store, Request::Put(put));
        }
        let everything = pb::DeleteRangeRequest { key: "\0".into(), range_end: "\0".into(), ..Default::default() };
        apply(&mut store, Request::DeleteRange(everything));
        let revision = store.reader().view().revision();
        apply(&mut store, Request::Compaction(pb::CompactionRequest { revision, physical: false }));
        for _ in 0..50 {
            store.idle();
        }
        assert!(store.reader().view().keyspace.is_swept());
        assert_eq!(store.reader().view().bytes(), 0);
    }

    #[test]
    fn compaction_goes_on_while_nothing_is_written() {
        let (mut store, mut apply) = store();
        for value in 0..5 * SWEEP_CHANGES {
            let put = pb::PutRequest { key: "k".into(), value: value.to_string().into(), ..Default::default() };
            apply(&mut store, Request::Put(put));
        }
        let revision = store.reader().view().revision();
        apply(&mut store, Request::Compaction(pb::CompactionRequest { revision, physical: false }));
        let full = store.reader().view().bytes();
        assert!(store.state.keyspace.has_to_sweep());
        for _ in 0..20 {
            store.idle();
        }
        assert!(!store.state.keyspace.has_to_sweep());
        assert!(store.reader().view().bytes() < full / 100, "what was freed is published");
    }
}
