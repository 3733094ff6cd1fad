//! WatchLatency and WatchThroughput: clients put, watchers of the whole key space are told.
//!
//! An operation is an event delivered to a watcher, its latency the time from the send of its put. With WatchLatency a
//! client's next put waits until the event of its last has reached every watcher; with WatchThroughput a client may be
//! [`RUN_AHEAD_MAX`] puts ahead of the slowest watcher, so that a backlog cannot grow without bound. Watcher *w* is on
//! stream *w* modulo `streams`, stream *s* on connection *s* modulo `connections`: the same connections that carry the
//! puts. All watchers begin at the same revision, so all must be told the same (see [`sequence`]).
//!
//! A phase ends when every event of its puts has arrived everywhere. An event that does not arrive although nothing
//! else is under way is missing: a wrong answer that names its key.

mod outstanding;
mod sequence;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use service_kit::client::StreamReceiver;
use tokio::sync::watch::Sender;

use storebench_crds::job::Phase;
use storebench_crds::workload::etcd::{EtcdOperation, EtcdWorkload, PUT_LATENCY};

use crate::failure::Failure;
use crate::family::etcd::{Etcd, Plan};
use crate::load::session::Session;
use crate::load::{Context, Seat};
use crate::net::etcd::messages::{
    EVENT_PUT, Event, KeyValue, PutRequest, WatchCreateRequest, WatchRequest, WatchResponse, path, watch_request,
};
use crate::net::etcd::store::{Store, revision_of};

use outstanding::Outstanding;
use sequence::{Observed, Sequence};

/// WatchThroughput: how many puts of a client may have events on their way.
pub const RUN_AHEAD_MAX: u32 = 256;
/// Watches that are asked for on one stream before the first is confirmed.
const CREATIONS_IN_FLIGHT: usize = 256;

/// What the threads of one workload share.
#[derive(Debug)]
pub struct Hub {
    watchers: u32,
    streams: u32,
    outstanding: Outstanding,
    /// Load phases that threads have entered, all threads added up.
    entered: Sender<u64>,
    /// Load phases that clients have finished, all clients added up.
    finished: Sender<u64>,
}

impl Hub {
    /// For one workload; empty if it does not watch.
    pub fn new(parameters: &EtcdWorkload, context: &Context) -> Self {
        let room = match parameters.operation {
            EtcdOperation::WatchLatency => 1,
            EtcdOperation::WatchThroughput => RUN_AHEAD_MAX,
            EtcdOperation::Put
            | EtcdOperation::Range
            | EtcdOperation::Delete
            | EtcdOperation::TxnPut
            | EtcdOperation::Mixed
            | EtcdOperation::LeaseKeepAlive => 0,
        };
        let watchers = if room == 0 { 0 } else { parameters.watchers.unwrap_or(1) };
        Self {
            watchers,
            // A stream without a watcher would be of no use.
            streams: parameters.streams.unwrap_or(1).min(watchers),
            outstanding: Outstanding::new(context.clients, watchers, room, context.timeout),
            entered: Sender::new(0),
            finished: Sender::new(0),
        }
    }
}

/// One thread's streams.
#[derive(Debug)]
pub struct Watch {
    /// For each stream of this thread: the index of its connection, and how many watchers it carries.
    streams: Vec<(usize, u32)>,
    sequence: RefCell<Sequence>,
    /// Where events are counted now.
    session: RefCell<Option<Rc<Session>>>,
    broken: RefCell<Option<Failure>>,
}

impl Watch {
    /// The thread's share of the streams, none open yet.
    pub fn new(plan: &Arc<Plan>, seat: &Rc<Seat>) -> Self {
        let context = &seat.context;
        let hub = &plan.hub;
        let streams: Vec<(usize, u32)> = (0..hub.streams)
            .filter_map(|stream| {
                let connection = stream % context.connections;
                let index = seat.connections.binary_search(&connection).ok()?;
                Some((index, (hub.watchers - stream).div_ceil(hub.streams)))
            })
            .collect();
        let watchers: u32 = streams.iter().map(|(_, watchers)| watchers).sum();
        Self {
            sequence: RefCell::new(Sequence::new(plan.space, watchers)),
            streams,
            session: RefCell::default(),
            broken: RefCell::default(),
        }
    }

    /// Whether this thread's watchers were told of as many puts of a key as the store counts. Errors: why not.
    pub fn check_final(&self, key: u32, counted: i64) -> Result<(), String> {
        self.sequence.borrow().check_final(key, counted)
    }
}

/// Opens this thread's streams and begins its watches.
pub async fn open(etcd: &Rc<Etcd>, session: Session) -> Result<(), Failure> {
    let session = Rc::new(session);
    etcd.watch.session.replace(Some(Rc::clone(&session)));
    let mut first_watcher = 0;
    for &(connection, watchers) in &etcd.watch.streams {
        let endpoint = etcd.seat.endpoint(etcd.seat.connections[connection]);
        let mut store = Store::new(&etcd.channels[connection], endpoint);
        let numbers = first_watcher..first_watcher + watchers as usize;
        first_watcher = numbers.end;
        open_stream(etcd, &session, &mut store, numbers).await?;
    }
    Ok(())
}

async fn open_stream(
    etcd: &Rc<Etcd>,
    session: &Session,
    store: &mut Store,
    watchers: std::ops::Range<usize>,
) -> Result<(), Failure> {
    let create = WatchRequest {
        request: Some(watch_request::Request::Create(WatchCreateRequest {
            key: etcd.plan.prefix.first.clone().into(),
            range_end: etcd.plan.prefix.end.clone().into(),
            start_revision: *etcd.plan.cleared.borrow() + 1,
            prev_kv: etcd.plan.parameters.previous_value,
        })),
    };
    let mut batch = session.begin(1);
    let (mut sender, mut receiver) = store.stream::<_, WatchResponse>(path::WATCH, &create).await?;
    let mut asked = 1;
    let mut created = HashMap::with_capacity(watchers.len());
    while created.len() < watchers.len() {
        while asked < watchers.len() && asked < created.len() + CREATIONS_IN_FLIGHT {
            sender.queue(&create).map_err(|error| store.failure("Watch", &error))?;
            asked += 1;
        }
        let received = receiver.next().await.map_err(|error| store.failure("Watch", &error))?;
        let Some(answer) = received else {
            return Err(Failure::new("Watch: the store ended the stream"));
        };
        if answer.created && !answer.canceled {
            created.insert(answer.watch_id, watchers.start + created.len());
            session.answered_uncounted(&mut batch, 1);
            batch = session.begin(1);
        } else {
            etcd.told(&created, answer)?;
        }
    }
    session.answered_uncounted(&mut batch, 1);
    let (etcd, endpoint) = (Rc::clone(etcd), store.endpoint().to_owned());
    tokio::task::spawn_local(async move {
        // Dropping the sender would cancel the stream.
        let _sender = sender;
        let failure = listen(&etcd, &created, &mut receiver, &endpoint).await;
        etcd.watch.broken.replace(Some(failure.clone()));
        if let Some(session) = &*etcd.watch.session.borrow() {
            session.fail(&failure);
        }
    });
    Ok(())
}

/// Takes what the store tells on a stream until the stream breaks.
async fn listen(
    etcd: &Etcd,
    watchers: &HashMap<i64, usize>,
    receiver: &mut StreamReceiver<WatchResponse>,
    endpoint: &str,
) -> Failure {
    loop {
        match receiver.next().await {
            Ok(Some(answer)) => {
                if let Err(failure) = etcd.told(watchers, answer) {
                    return failure;
                }
            }
            Ok(None) => return Failure::new(format_args!("Watch at {endpoint}: the store ended the stream")),
            Err(error) => return Failure::new(format_args!("Watch at {endpoint}: {error}")),
        }
    }
}

impl Etcd {
    /// The store told something on a stream. Errors: a watch is over, or was never begun.
    fn told(&self, watchers: &HashMap<i64, usize>, answer: WatchResponse) -> Result<(), Failure> {
        if answer.canceled {
            return Err(Failure::new(format_args!(
                "Watch: the store canceled watch {}: {:?}, compacted up to revision {}",
                answer.watch_id, answer.cancel_reason, answer.compact_revision
            )));
        }
        if answer.events.is_empty() {
            return Ok(());
        }
        let Some(&watcher) = watchers.get(&answer.watch_id) else {
            return Err(Failure::new(format_args!(
                "Watch: events of watch {}, which was never begun",
                answer.watch_id
            )));
        };
        let now = Instant::now();
        let session = self.watch.session.borrow();
        let Some(session) = session.as_ref() else {
            return Ok(());
        };
        let outstanding = &self.plan.hub.outstanding;
        for event in &answer.events {
            let observed = self.observe(watcher, event).and_then(|observed| match observed {
                Observed::Ignored => Ok(()),
                Observed::Put { key, version } => match outstanding.arrived(key, version) {
                    Some((due, sent)) => {
                        session.delivered(due, sent, now);
                        session.verified(1);
                        Ok(())
                    }
                    None => Err((self.names.text(key), format!("told of version {version}, which was not under way"))),
                },
            });
            if let Err((key, detail)) = observed {
                session.wrong(key, format!("watcher {watcher} was {detail}"));
                outstanding.spoil();
            }
        }
        Ok(())
    }

    /// Checks an event. Errors: the key's name, and what the watcher "was …".
    fn observe(&self, watcher: usize, event: &Event) -> Result<Observed, (String, String)> {
        let missing = KeyValue::default();
        let pair = event.kv.as_ref().unwrap_or(&missing);
        let name = || pair.key.escape_ascii().to_string();
        let key = self.names.read_back(&pair.key).filter(|key| self.plan.space.contains(*key));
        let Some(key) = key else {
            return Err((name(), "told of a key that nobody wrote".into()));
        };
        if event.kind != EVENT_PUT {
            return Err((name(), "told of a deletion that nobody asked for".into()));
        }
        let version = |known: Option<u32>| match known {
            Some(version) => self.values.matches(key, version, &pair.value).then_some(version),
            None => {
                let read = self.values.read_back(&pair.value);
                read.filter(|(of, _)| *of == key).map(|(_, version)| version)
            }
        };
        let mut sequence = self.watch.sequence.borrow_mut();
        let observed = sequence.observe(watcher, pair.mod_revision, key, pair.version, version);
        let observed = observed.map_err(|detail| (name(), detail))?;
        if let Observed::Put { version, .. } = observed {
            self.check_previous(key, version, pair.version, event.prev_kv.as_ref())
                .map_err(|detail| (name(), detail))?;
        }
        Ok(observed)
    }

    /// Checks the value before the change, if it was asked for. etcd leaves it out when its history is compacted.
    fn check_previous(&self, key: u32, version: u32, counter: i64, previous: Option<&KeyValue>) -> Result<(), String> {
        if !self.plan.parameters.previous_value || (previous.is_none() && self.plan.compact_interval.is_some()) {
            return Ok(());
        }
        let right = match previous {
            None => counter == 1,
            Some(previous) => {
                let value_is_right = match self.plan.space.is_shared() {
                    false => self.values.matches(key, version - 1, &previous.value),
                    true => self.values.read_back(&previous.value).is_some_and(|(of, _)| of == key),
                };
                previous.version == counter - 1 && value_is_right
            }
        };
        match right {
            true => Ok(()),
            false => Err(format!("told of put {counter} without the right value before it")),
        }
    }
}

/// One client's load. Watchers on one thread are told of the puts of all, so all threads begin and end a phase together:
/// an event must not be counted for the phase before by a thread that begins late, nor be lost for one that ended early.
pub async fn load(etcd: &Etcd, store: &mut Store, session: &Rc<Session>) -> Result<(), Failure> {
    let (watch, hub, context) = (&etcd.watch, &etcd.plan.hub, &etcd.seat.context);
    // Which load phase this is, from 1.
    let phase = match session.phase() {
        Phase::Measure if !context.warm_up.is_zero() => 2,
        _ => 1,
    };
    if session.place() == 0 {
        watch.session.replace(Some(Rc::clone(session)));
        hub.entered.send_modify(|entered| *entered += 1);
    }
    if let Some(failure) = &*watch.broken.borrow() {
        return Err(failure.clone());
    }
    reach(&hub.entered, phase * u64::from(context.threads)).await;
    put_all(etcd, store, session).await?;
    hub.finished.send_modify(|finished| *finished += 1);
    if session.place() == 0 {
        reach(&hub.finished, phase * u64::from(context.clients)).await;
    }
    Ok(())
}

/// Waits until a count that only rises has come to `target`. If someone fails who should have made it rise, the phase
/// ends and this is dropped; the counts themselves live in the plan.
async fn reach(count: &Sender<u64>, target: u64) {
    let _ = count.subscribe().wait_for(|count| *count >= target).await;
}

async fn put_all(etcd: &Etcd, store: &mut Store, session: &Session) -> Result<(), Failure> {
    let outstanding = &etcd.plan.hub.outstanding;
    let client = session.client();
    let mut picker = etcd.picker(session);
    let mut request = PutRequest::default();
    loop {
        if let Err(missing) = outstanding.wait_for_room(client).await {
            return report_missing(etcd, session, &missing);
        }
        if outstanding.is_spoilt() {
            return Ok(());
        }
        let Some(mut batch) = session.next().await else {
            break;
        };
        let slot = picker.slot_to_write();
        let version = etcd.fill_put(&mut request, slot);
        outstanding.send(etcd.keys.key(slot), version, client, session.due(&batch), batch.sent());
        let answer = store.put(&request).await?;
        session.took(PUT_LATENCY, batch.sent().elapsed());
        session.answered_uncounted(&mut batch, 1);
        etcd.ledger.acknowledge(slot, version);
        etcd.written(session, slot, revision_of(answer.header.as_ref()));
    }
    match outstanding.wait_for_all(client).await {
        Ok(()) => Ok(()),
        Err(missing) => report_missing(etcd, session, &missing),
    }
}

/// An event did not come: a wrong answer, after which nothing more can be learned.
fn report_missing(etcd: &Etcd, session: &Session, missing: &outstanding::Missing) -> Result<(), Failure> {
    let detail = format!(
        "put was acknowledged, but {} of {} watchers were not told within {:?}",
        missing.watchers, etcd.plan.hub.watchers, etcd.seat.context.timeout
    );
    session.wrong(etcd.names.text(missing.key), detail);
    etcd.plan.hub.outstanding.spoil();
    Ok(())
}
