use proptest::prelude::*;

use super::super::keyspace::model::Changes;
use super::super::keyspace::model::Model;
use super::super::{Request, Store};
use super::*;
use crate::store::{Caller, Command};
use replog::{Entry, EntryKind, StateMachine};

/// A store whose batches end when the test says so, a hub, and what is expected of both.
struct World {
    store: Store,
    hub: Hub,
    model: Model,
    index: u64,
    streams: Vec<StreamId>,
    told: Vec<Told>,
    ever_compacted: bool,
}

/// A watcher as its client sees it.
#[derive(Debug)]
struct Told {
    stream: StreamId,
    id: i64,
    request: pb::WatchCreateRequest,
    from: i64,
    /// Its client knows of it, and has not asked to end it.
    known: bool,
    left: bool,
    /// Main and sub revision of every event.
    events: Vec<(i64, u32)>,
    ended: bool,
    is_fragment: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Write(Changes),
    Publish,
    Compact(i64),
    Create { stream: usize, key: Vec<u8>, range_end: Vec<u8>, back: i64, options: u8 },
    Cancel { watcher: prop::sample::Index },
    Progress { stream: usize },
    Take { stream: usize, count: usize },
}

const STREAMS: usize = 3;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || (0..6u8).prop_map(|n| vec![b'a' + n]);
    let put = (proptest::collection::vec(any::<u8>(), 0..30), Just(0i64));
    let change = (key(), proptest::option::weighted(0.7, put));
    let end = prop_oneof![Just(vec![]), Just(vec![0]), Just(vec![b'c']), Just(vec![b'e'])];
    let step = prop_oneof![
        12 => proptest::collection::vec(change, 1..4).prop_map(Step::Write),
        8 => Just(Step::Publish),
        1 => (0..6i64).prop_map(Step::Compact),
        4 => (0..STREAMS, key(), end, -2..12i64, any::<u8>())
            .prop_map(|(stream, key, range_end, back, options)| Step::Create { stream, key, range_end, back, options }),
        1 => any::<prop::sample::Index>().prop_map(|watcher| Step::Cancel { watcher }),
        2 => (0..STREAMS).prop_map(|stream| Step::Progress { stream }),
        8 => (0..STREAMS, 1..6usize).prop_map(|(stream, count)| Step::Take { stream, count }),
    ];
    proptest::collection::vec(step, 0..150)
}

impl World {
    fn new() -> Self {
        let store = Store::default();
        let limits = Limits { queue_bytes: 150, catch_up_changes: 3, fragment_bytes: 60, ..Limits::default() };
        let mut hub = store.reader().hub(limits);
        let streams = (0..STREAMS).map(|_| hub.open()).collect();
        Self { store, hub, model: Model::default(), index: 0, streams, told: Vec::new(), ever_compacted: false }
    }

    fn apply(&mut self, request: Request) {
        self.index += 1;
        let data = Command { caller: Caller::Server, request }.encode();
        let entry = Entry { index: self.index, term: 1, kind: EntryKind::Command, time_millis: 0, data };
        drop(self.store.apply(&entry));
    }

    fn write(&mut self, changes: &Changes) {
        let mut seen = BTreeSet::new();
        let once: Changes = changes.iter().filter(|(key, _)| seen.insert(key.clone())).cloned().collect();
        let operation = |(key, put): &(Vec<u8>, Option<(Vec<u8>, i64)>)| {
            let key = key.clone().into();
            let request = match put {
                Some((value, _)) => pb::request_op::Request::RequestPut(pb::PutRequest {
                    key,
                    value: value.clone().into(),
                    ..Default::default()
                }),
                None => {
                    pb::request_op::Request::RequestDeleteRange(pb::DeleteRangeRequest { key, ..Default::default() })
                }
            };
            pb::RequestOp { request: Some(request) }
        };
        let success = once.iter().map(operation).collect();
        self.apply(Request::Txn(pb::TxnRequest { success, ..Default::default() }));
        self.model.write(&once);
    }

    fn publish(&mut self) {
        self.store.applied(self.index);
        self.hub.published(self.store.reader().view());
    }

    fn create(&mut self, stream: usize, key: Vec<u8>, range_end: Vec<u8>, back: i64, options: u8) {
        let now = self.hub.view.revision();
        let request = pb::WatchCreateRequest {
            key: key.into(),
            range_end: range_end.into(),
            start_revision: if back > 9 { 0 } else { (now - back).max(1) },
            prev_kv: options & 1 != 0,
            fragment: options & 2 != 0,
            filters: if options & 4 != 0 { vec![i32::from(options & 8 != 0)] } else { vec![] },
            ..Default::default()
        };
        let stream = self.streams[stream];
        let before = self.hub.watchers();
        self.hub.create(stream, &request);
        if self.hub.watchers() > before {
            let id = self.hub.streams[&stream].next_id_for_tests() - 1;
            let from = if request.start_revision == 0 { now + 1 } else { request.start_revision };
            self.told.push(Told {
                stream,
                id,
                request,
                from,
                known: false,
                left: false,
                events: vec![],
                ended: false,
                is_fragment: false,
            });
        }
    }

    /// What a watcher should have been told from its beginning to a revision.
    fn expected(&self, told: &Told, to: i64) -> Vec<(i64, u32)> {
        let keys = Keys::new(&told.request.key, &told.request.range_end);
        let wanted = self.model.changes.iter().filter(|change| {
            let filter = if change.put.is_some() { FilterType::Noput } else { FilterType::Nodelete };
            let passes = !told.request.filters.contains(&(filter as i32));
            change.at.main >= told.from && change.at.main <= to && keys.contains(&change.key) && passes
        });
        wanted.map(|change| (change.at.main, change.at.sub)).collect()
    }

    fn take(&mut self, stream: usize) -> bool {
        let stream = self.streams[stream];
        let Some(response) = self.hub.next(stream) else { return false };
        let mut encoded = Vec::new();
        response.encode(&pb::ResponseHeader::default(), &mut encoded);
        assert!(encoded.len() <= response.encoded_len_about());
        assert_eq!(<pb::WatchResponse as prost::Message>::decode(&encoded[..]).unwrap(), response.message());
        if response.watch_id == NO_WATCHER {
            if !response.created {
                self.check_progress(stream, response.revision);
            }
            return true;
        }
        let told = self.told.iter().rposition(|told| told.stream == stream && told.id == response.watch_id).unwrap();
        for event in &response.events {
            self.check_previous(told, event);
        }
        let told = &mut self.told[told];
        assert!(!told.ended);
        assert!(told.known || told.left || response.created);
        told.known = !told.left;
        told.ended = response.canceled;
        if let Some(first) = response.events.first() {
            let first = first.record.revision().main;
            let torn = told.events.last().is_some_and(|last| last.0 == first);
            assert!(!torn || told.is_fragment, "a revision was torn apart");
        }
        assert!(!response.fragment || told.request.fragment);
        told.is_fragment = response.fragment;
        told.events
            .extend(response.events.iter().map(|event| (event.record.revision().main, event.record.revision().sub)));
        assert!(told.events.last().is_none_or(|last| response.canceled || last.0 <= response.revision));
        true
    }

    fn check_previous(&self, told: usize, event: &Event) {
        let before = self.model.exists(event.record.key(), event.record.main() - 1);
        let before = before.filter(|_| self.told[told].request.prev_kv);
        let previous = event.previous.as_ref().map(Record::to_key_value);
        assert!(previous == before || (self.ever_compacted && previous.is_none()));
    }

    fn check_progress(&self, stream: StreamId, revision: i64) {
        for told in self.told.iter().filter(|told| told.stream == stream && told.known && !told.ended) {
            let of_then: Vec<_> = told.events.iter().filter(|event| event.0 <= revision).copied().collect();
            assert_eq!(of_then, told.events, "progress at {revision} came after events of later");
            assert_eq!(of_then, self.expected(told, revision), "progress at {revision} overtook an event of {told:?}");
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Write(changes) => self.write(&changes),
            Step::Publish => self.publish(),
            Step::Compact(back) => {
                let revision = self.model.revision - back;
                self.ever_compacted |= revision > 0;
                self.apply(Request::Compaction(pb::CompactionRequest { revision, physical: false }));
            }
            Step::Create { stream, key, range_end, back, options } => {
                self.create(stream, key, range_end, back, options)
            }
            Step::Cancel { watcher } if !self.told.is_empty() => {
                let at = watcher.index(self.told.len());
                self.hub.cancel(self.told[at].stream, self.told[at].id);
                self.told[at].known = false;
                self.told[at].left = true;
            }
            Step::Cancel { .. } => {}
            Step::Progress { stream } => self.hub.request_progress(self.streams[stream]),
            Step::Take { stream, count } => drop((0..count).take_while(|_| self.take(stream)).count()),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]
    #[test]
    fn every_event_is_told_once_and_in_order_however_streams_stall(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.run(step);
            for stream in world.hub.streams.values() {
                // What is of one revision is not torn apart: three changes of thirty bytes and what was before them.
                prop_assert!(stream.bytes() < 150 + 3 * 120, "{}", stream.bytes());
            }
        }
        world.publish();
        // Whoever has something to be told says so, until all have been told everything.
        loop {
            let ready = world.hub.take_ready();
            if ready.is_empty() {
                break;
            }
            for id in ready {
                let stream = world.streams.iter().position(|stream| *stream == id).unwrap();
                while world.take(stream) {}
            }
        }
        for told in &world.told {
            let expected = world.expected(told, world.model.revision);
            if told.ended {
                prop_assert!(expected.starts_with(&told.events), "{:?} instead of {:?}", told, expected);
            } else {
                prop_assert_eq!(&told.events, &expected, "{:?}", told);
            }
        }
        for stream in 0..STREAMS {
            world.hub.request_progress(world.streams[stream]);
            world.take(stream);
        }
    }
}

fn small() -> World {
    let mut world = World::new();
    world.hub.limits = Limits::default();
    world
}

fn put(world: &mut World, key: &str) {
    world.write(&vec![(key.as_bytes().to_vec(), Some((b"v".to_vec(), 0)))]);
    world.publish();
}

#[test]
fn a_watcher_that_does_not_read_loses_nothing_and_keeps_little() {
    // The original rusd dropped events when a channel of 256 was full.
    let mut world = World::new();
    world.create(0, b"a".to_vec(), b"b".to_vec(), 10, 0);
    for n in 0..5000 {
        put(&mut world, &format!("a{}", n % 7));
    }
    assert!(world.hub.streams[&world.streams[0]].bytes() < 400);
    while world.take(0) || !world.hub.take_ready().is_empty() {}
    assert_eq!(world.told[0].events.len(), 5000);
}

/// Eight hundred watchers of keys of a megabyte each took three times that, for as long as their stream was open.
#[test]
fn watchers_have_a_bound_for_all_hubs_together_and_who_goes_makes_room() {
    let limits = Limits { watchers_bytes: 2_000, ..Limits::default() };
    let reader = Store::default().reader();
    let [mut hub, mut other] = [reader.hub(limits), reader.hub(limits)];
    let [stream, of_other] = [hub.open(), other.open()];
    let request = pb::WatchCreateRequest { key: vec![b'k'; 500].into(), ..Default::default() };
    let create = |hub: &mut Hub, stream| {
        hub.create(stream, &request);
        let told = hub.next(stream).unwrap();
        assert!(told.created);
        (!told.canceled).then_some(told.watch_id).ok_or(told.cancel_reason)
    };
    assert_eq!([create(&mut hub, stream), create(&mut other, of_other)], [Ok(0), Ok(0)]);
    assert_eq!([create(&mut hub, stream), create(&mut other, of_other)], [Err(NO_ROOM); 2]);
    assert_eq!((hub.watchers(), other.watchers()), (1, 1));
    hub.cancel(stream, 0);
    assert!(hub.next(stream).unwrap().canceled);
    assert!(create(&mut other, of_other).is_ok());
    assert_eq!(create(&mut hub, stream), Err(NO_ROOM));
    other.close(of_other);
    assert!([(); 2].map(|()| create(&mut hub, stream)).iter().all(Result::is_ok));
}

/// A key of a megabyte was kept by its watcher, and again for those who look for watchers of a key.
#[test]
fn keys_of_watchers_are_kept_once_and_counted_until_they_end() {
    let mut hub = Store::default().reader().hub(Limits::default());
    let (one, other) = (hub.open(), hub.open());
    let request = |range_end: &'static str| pb::WatchCreateRequest {
        key: "key".into(),
        range_end: range_end.into(),
        ..Default::default()
    };
    for range_end in ["", "kez", "\0"] {
        hub.create(one, &request(range_end));
        hub.create(other, &request(range_end));
    }
    let keys = |hub: &Hub| hub.watchers.values().map(|watcher| watcher.watched.clone()).collect::<Vec<_>>();
    for watched in keys(&hub) {
        let equal = keys(&hub).into_iter().filter(|other| other.keys() == watched.keys());
        assert!(equal.clone().count() == 2 && equal.clone().all(|other| Arc::ptr_eq(&other.key, &watched.key)));
    }
    let sum: usize = ["", "kez", "\0"].iter().map(|range_end| Hub::bytes_of(&request(range_end))).sum();
    assert_eq!([one, other].map(|id| hub.watchers_bytes(id)), [sum, sum]);
    let held: Vec<_> = keys(&hub).iter().map(|watched| Arc::downgrade(&watched.key)).collect();
    for watch_id in 0..3 {
        hub.cancel(one, watch_id);
    }
    assert_eq!([one, other].map(|id| hub.watchers_bytes(id)), [0, sum]);
    hub.close(other);
    assert!(held.iter().all(|key| key.upgrade().is_none()), "something is kept");
}

#[test]
fn a_watcher_of_the_past_is_told_the_past() {
    // The original rusd replayed no history.
    let mut world = small();
    for key in ["a", "b", "a"] {
        put(&mut world, key);
    }
    world.create(0, b"a".to_vec(), vec![], 2, 0);
    while world.take(0) {}
    assert_eq!(world.told[0].events, [(2, 0), (4, 0)]);
}

#[test]
fn progress_is_told_only_when_all_watchers_of_the_stream_are_in_step() {
    // The original rusd answered at once, with id 0 (etcd issue 15220).
    let mut world = small();
    let stream = world.streams[0];
    world.hub.request_progress(stream);
    assert_eq!(world.hub.next(stream), None, "a stream without watchers");
    for _ in 0..5000 {
        put(&mut world, "a");
    }
    world.create(0, b"b".to_vec(), vec![], 10, 0);
    world.create(0, b"a".to_vec(), vec![], 9, 0);
    world.hub.limits.catch_up_changes = 3;
    world.hub.request_progress(stream);
    let first: Vec<_> =
        (0..3).filter_map(|_| world.hub.next(stream)).map(|told| (told.created, told.watch_id)).collect();
    assert_eq!(first, [(true, 0), (true, 1), (false, 1)]);
    while world.hub.next(stream).is_some() || !world.hub.take_ready().is_empty() {}
    world.hub.request_progress(stream);
    let told = world.hub.next(stream).unwrap();
    assert_eq!((told.watch_id, told.revision, told.events.len()), (NO_WATCHER, 5001, 0));
}

#[test]
fn a_watcher_of_what_is_compacted_is_created_and_then_canceled() {
    let mut world = small();
    for _ in 0..5 {
        put(&mut world, "a");
    }
    world.apply(Request::Compaction(pb::CompactionRequest { revision: 4, physical: false }));
    world.publish();
    let stream = world.streams[0];
    for start_revision in [3, 4, -1] {
        world.hub.create(stream, &pb::WatchCreateRequest { key: "a".into(), start_revision, ..Default::default() });
    }
    let told: Vec<_> = std::iter::from_fn(|| world.hub.next(stream)).collect();
    let seen = |told: &Response| (told.watch_id, told.created, told.canceled, told.compact_revision, told.events.len());
    let seen: Vec<_> = told.iter().map(seen).collect();
    assert_eq!(
        seen,
        [
            (0, true, false, 0, 0),
            (1, true, false, 0, 0),
            (-1, true, true, 0, 0),
            (0, false, true, 4, 0),
            (1, false, false, 0, 3)
        ]
    );
    assert_eq!(told[2].cancel_reason, Error::Compacted.message());
}

#[test]
fn a_watcher_in_step_is_told_what_was_compacted_in_the_same_moment() {
    let mut world = small();
    world.create(0, b"a".to_vec(), vec![], 10, 0);
    for _ in 0..3 {
        world.write(&vec![(b"a".to_vec(), Some((b"v".to_vec(), 0)))]);
    }
    world.apply(Request::Compaction(pb::CompactionRequest { revision: 4, physical: false }));
    world.publish();
    while world.take(0) {}
    assert_eq!(world.told[0].events, [(2, 0), (3, 0), (4, 0)]);
}

#[test]
fn watcher_ids_are_the_clients_or_the_next_free_ones() {
    let mut world = small();
    let stream = world.streams[0];
    for watch_id in [0, 2, 0, 0, 2] {
        world.hub.create(stream, &pb::WatchCreateRequest { key: "a".into(), watch_id, ..Default::default() });
    }
    world.hub.create(stream, &pb::WatchCreateRequest { key: "b".into(), range_end: "a".into(), ..Default::default() });
    let told: Vec<_> =
        std::iter::from_fn(|| world.hub.next(stream)).map(|told| (told.watch_id, told.cancel_reason)).collect();
    let (twice, empty) = ("mvcc: duplicate watch ID provided on the WatchStream", "mvcc: watcher range is empty");
    assert_eq!(told, [(0, ""), (2, ""), (1, ""), (3, ""), (-1, twice), (-1, empty)]);
}

#[test]
fn periodic_progress_goes_to_who_was_told_nothing() {
    let mut world = small();
    let stream = world.streams[0];
    for key in ["a", "b"] {
        let request = pb::WatchCreateRequest { key: key.into(), progress_notify: true, ..Default::default() };
        world.hub.create(stream, &request);
    }
    world.hub.notify_progress(stream);
    put(&mut world, "a");
    while world.hub.next(stream).is_some() {}
    world.hub.notify_progress(stream);
    let told: Vec<_> =
        std::iter::from_fn(|| world.hub.next(stream)).map(|told| (told.watch_id, told.revision)).collect();
    assert_eq!(told, [(1, 2)]);
}

#[test]
fn a_stream_that_ends_leaves_nothing_behind() {
    let mut world = small();
    for n in 0..100u8 {
        world.create(0, vec![b'a', n], if n % 2 == 0 { vec![] } else { vec![0] }, 10, 0);
    }
    world.hub.close(world.streams[0]);
    put(&mut world, "a");
    assert_eq!((world.hub.watchers(), world.hub.take_ready()), (0, vec![]));
    let mut found = Vec::new();
    world.hub.index.of(b"zzz", &mut found);
    assert_eq!(found, [0; 0]);
}
