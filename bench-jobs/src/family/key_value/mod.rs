//! The key-value family: the same requests to stores that speak different protocols, every answer checked.
//!
//! From the outside in: [`run`] makes a [`Plan`] that all threads share; each thread has a [`KeyValue`] with its connections and the
//! versions that its keys must have ([`crate::content::expect`]); a client sends through a `store::Store`, which knows what each protocol calls
//! a put and the levels of reads. `d_engine` has the messages of d-engine's dialect of release 0.2.4, `streaming` those of its streaming door; those
//! of etcd's API are the etcd family's.
//!
//! Connections go to the members that take writes: all of them where members forward writes to their leader, else the leader. Eventual and bounded
//! reads without writes, and watches, go to all members; such reads beside writes to other members than these. Whether reads that
//! must not be stale are, `fresh` looks at all members that take them, and so does the reading back at the end. Clients of a `failover`, which is
//! also how any other fault of the store is outlived, go from member to member.

mod d_engine;
mod failover;
mod fresh;
mod lock;
pub(crate) mod probe;
mod scan;
mod staleness;
mod store;
mod streaming;
mod swap;
mod watch;

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use storebench_crds::workload::key_value::{KeyValueOperation, KeyValueWorkload, ReadLevel, STALE_READS, STALENESS};
use tokio::sync::{Notify, OnceCell};

use crate::content::doubts::Doubts;
use crate::content::expect::{Ledger, SharedVersions};
use crate::content::keys::{KeyNames, KeyPicker, KeySpace, ThreadKeys};
use crate::content::seeds::mix;
use crate::content::values::Values;
use crate::failure::Failure;
use crate::load::fault::Course;
use crate::load::session::Session;
use crate::load::{self, Context, Ending, Family, Seat, Surroundings};

use failover::line::Line;
use lock::Locks;
use staleness::Acknowledged;
use store::{Connection, Store};

/// What every key begins with: one byte, so that keys may be as short as those of published reports, 8 bytes.
const KEY_PREFIX: &str = "k";
/// Digits of the largest key space.
const KEY_DIGITS: usize = 7;
/// How long a member may take to apply what was acknowledged before the load, where its own state is read.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a client waits before it looks again whether a member has caught up.
const CATCH_UP_PAUSE: Duration = Duration::from_millis(5);

/// Runs one workload of the family. Errors are the loader's own; everything about the store is in the [`Ending`].
pub fn run(context: Context, parameters: &KeyValueWorkload, around: &Surroundings<'_>) -> io::Result<Ending> {
    let slice = context.share.slice(parameters.key_space);
    let space = KeySpace::slice(slice, context.clients, 1);
    let course = Course::of(&context, around)?;
    let locks = (parameters.operation == KeyValueOperation::Lock).then(|| Locks::new(parameters.contended_locks()));
    let versions = SharedVersions::new(space);
    let plan = Plan { parameters: parameters.clone(), space, versions, course: course.clone(), locks };
    let ending = load::run::<KeyValue>(context, plan, around)?;
    match course.as_ref().and_then(|course| course.broken()) {
        Some(broken) => Err(io::Error::other(broken.to_owned())),
        None => Ok(ending),
    }
}

/// What all threads of one workload share.
#[derive(Debug)]
pub struct Plan {
    parameters: KeyValueWorkload,
    space: KeySpace,
    versions: Arc<SharedVersions>,
    /// Of a failover, or another fault.
    course: Option<Arc<Course>>,
    /// That clients contend for.
    locks: Option<Arc<Locks>>,
}

impl Plan {
    /// Whether keys must be there before the load.
    fn needs_keys(&self) -> bool {
        match self.parameters.operation {
            KeyValueOperation::Put | KeyValueOperation::WatchLatency | KeyValueOperation::Lock => false,
            KeyValueOperation::Get
            | KeyValueOperation::Mixed
            | KeyValueOperation::Scan
            | KeyValueOperation::CompareAndSwap
            | KeyValueOperation::Failover => true,
        }
    }

    /// How many of 100 requests read, of those that read or put single keys.
    fn read_percent(&self) -> u32 {
        match self.parameters.operation {
            KeyValueOperation::Get => 100,
            KeyValueOperation::Mixed | KeyValueOperation::Failover => self.parameters.read_percent.unwrap_or_default(),
            KeyValueOperation::Put
            | KeyValueOperation::Scan
            | KeyValueOperation::CompareAndSwap
            | KeyValueOperation::Lock
            | KeyValueOperation::WatchLatency => 0,
        }
    }

    /// Whether single keys are read, and the answers may be stale.
    fn may_read_stale(&self) -> bool {
        self.read_percent() > 0 && matches!(self.parameters.read_level, ReadLevel::Bounded | ReadLevel::Eventual)
    }

    /// How old an answer may be, where that is asked for.
    fn max_age(&self) -> Option<Duration> {
        let bound = self.parameters.max_age.as_ref().filter(|_| self.parameters.read_level == ReadLevel::Bounded)?;
        Some(bound.duration())
    }

    /// Which of a store's members a connection reads from, or watches, whose writes go to `writer`.
    fn reader<'a>(&self, number: u32, own: &'a str, writer: &'a str, endpoints: &'a [String]) -> &'a str {
        match self.parameters.operation {
            KeyValueOperation::WatchLatency => own,
            KeyValueOperation::Get if self.may_read_stale() => own,
            KeyValueOperation::Mixed if self.may_read_stale() => {
                // Who has acknowledged a write is not stale.
                let others = || endpoints.iter().filter(|endpoint| *endpoint != writer);
                others().nth(number as usize % others().count().max(1)).map_or(writer, String::as_str)
            }
            KeyValueOperation::Get
            | KeyValueOperation::Mixed
            | KeyValueOperation::Put
            | KeyValueOperation::Scan
            | KeyValueOperation::CompareAndSwap
            | KeyValueOperation::Lock
            | KeyValueOperation::Failover => writer,
        }
    }
}

/// One thread's connections, and what it knows about the store.
#[derive(Debug)]
pub struct KeyValue {
    plan: Arc<Plan>,
    seat: Rc<Seat>,
    /// By index into the seat's connections: where the load goes, and where writes go.
    connections: Vec<(Connection, Connection)>,
    /// The members that answer reads that must not be stale.
    members: Vec<Connection>,
    /// By the same index: whether the member has applied what was written before the load.
    caught_up: Vec<OnceCell<()>>,
    names: KeyNames,
    values: Values,
    keys: Rc<ThreadKeys>,
    ledger: Ledger,
    /// Of no keys where staleness is not measured.
    acknowledged: Acknowledged,
    /// By index into the seat's connections: where a load goes that outlives a fault. Empty of anything else.
    lines: Vec<Line>,
    /// What a fault leaves in doubt.
    doubts: Doubts,
}

impl KeyValue {
    fn store(&self, session: &Session) -> Store {
        self.connections[session.connection() as usize].0.store()
    }

    fn writer(&self, session: &Session) -> Store {
        self.connections[session.connection() as usize].1.store()
    }

    /// Draws a client's keys; the phase goes into the seed, or the measured phase would repeat the warm-up.
    fn picker(&self, session: &Session) -> KeyPicker {
        let context = &self.seat.context;
        let seed = mix(context.share.seed(context.seed), session.phase() as u64);
        KeyPicker::new(&self.keys, session.place(), self.plan.parameters.key_order, seed)
    }

    fn name(&self, slot: u32, into: &mut Vec<u8>) {
        into.clear();
        self.names.write(self.keys.key(slot), into);
    }

    /// Makes the next version of the key in `slot`; that version's number.
    fn next_version(&self, slot: u32, key: &mut Vec<u8>, value: &mut Vec<u8>) -> u32 {
        let version = self.ledger.issue(slot);
        self.name(slot, key);
        value.clear();
        self.values.write(self.keys.key(slot), version, value);
        version
    }

    /// Compares what was found with what may be there, and tells the session.
    fn check(&self, session: &Session, slot: u32, floor: u32, found: Option<&[u8]>) {
        match self.ledger.check(&self.values, slot, floor, found) {
            Ok(()) => session.verified(1),
            Err(mismatch) => session.wrong(self.names.text(mismatch.key), mismatch.detail),
        }
    }

    /// Waits until the member behind a client's connection has, in its own state, the last key that each client of this thread
    /// wrote before the load: logs are applied in order, so it then has all keys that this thread may read.
    async fn catch_up(&self, session: &Session) -> Result<(), Failure> {
        let mut store = self.store(session);
        let deadline = Instant::now() + CATCH_UP_TIMEOUT;
        let mut key = Vec::new();
        for place in 0..self.seat.clients.len() as u32 {
            let Some(slot) = self.keys.owned_slots(place).last() else { continue };
            self.name(slot, &mut key);
            loop {
                let mut batch = session.begin(1);
                let found = store.get(&key, ReadLevel::Eventual).await?;
                session.answered_uncounted(&mut batch, 1);
                if self.ledger.check(&self.values, slot, 1, found.as_deref()).is_ok() {
                    break;
                }
                if session.is_stopped() {
                    return Ok(());
                }
                if Instant::now() > deadline {
                    let name = self.names.text(self.keys.key(slot));
                    let text = format!("{}: has not applied {name} after {CATCH_UP_TIMEOUT:?}", store.endpoint());
                    return Err(Failure::new(text));
                }
                tokio::time::sleep(CATCH_UP_PAUSE).await;
            }
        }
        Ok(())
    }
}

impl Family for KeyValue {
    type Plan = Plan;

    async fn connect(plan: Arc<Plan>, seat: Rc<Seat>) -> Result<Self, Failure> {
        let context = &seat.context;
        let owns_keys =
            matches!(plan.parameters.operation, KeyValueOperation::CompareAndSwap | KeyValueOperation::WatchLatency)
                || plan.course.is_some();
        if owns_keys && plan.space.is_shared() {
            return Err(Failure::new("keySpace must be at least the number of clients: each needs a key of its own"));
        }
        let writers = store::writers(&context.endpoints, context.timeout, plan.parameters.door()).await?;
        let mut connections = Vec::with_capacity(seat.connections.len());
        for &number in &seat.connections {
            let (protocol, endpoints) = &writers;
            let to_write = &endpoints[number as usize % endpoints.len()];
            let writer = Connection::open(*protocol, to_write, context.timeout).await?;
            let to_read = plan.reader(number, seat.endpoint(number), to_write, &context.endpoints);
            let reader = match to_read == to_write {
                true => writer.clone(),
                false => Connection::open(*protocol, to_read, context.timeout).await?,
            };
            connections.push((reader, writer));
        }
        let mut members = Vec::with_capacity(writers.1.len());
        for endpoint in &writers.1 {
            members.push(Connection::open(writers.0, endpoint, context.timeout).await?);
        }
        let mut lines = Vec::new();
        if plan.course.is_some() {
            let endpoints: Rc<[String]> = context.endpoints.clone().into();
            lines.extend(connections.iter().map(|(_, writer)| Line::new(writer, &endpoints, context.timeout)));
        }
        let keys = Rc::new(ThreadKeys::new(plan.space, seat.clients.clone()));
        let parameters = &plan.parameters;
        // Where several clients write a key, nobody knows which version is newer.
        let is_measured = plan.may_read_stale() && plan.read_percent() < 100 && !plan.space.is_shared();
        Ok(Self {
            acknowledged: Acknowledged::new(if is_measured { keys.slots() } else { 0 }),
            caught_up: connections.iter().map(|_| OnceCell::new()).collect(),
            connections,
            lines,
            doubts: Doubts::new(context.may_lose_writes),
            members,
            names: KeyNames::with_digits(KEY_PREFIX, parameters.key_bytes as usize, KEY_DIGITS),
            values: Values::new(context.seed, parameters.value_bytes),
            ledger: Ledger::new(Rc::clone(&keys), Arc::clone(&plan.versions)),
            keys,
            seat,
            plan,
        })
    }

    async fn prepare(self: Rc<Self>, session: Session) -> Result<(), Failure> {
        if !self.plan.needs_keys() {
            return Ok(());
        }
        let mut store = self.writer(&session);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for slot in self.keys.owned_slots(session.place()) {
            let mut batch = session.begin(1);
            let version = self.next_version(slot, &mut key, &mut value);
            store.put(&key, &value).await?;
            session.answered(&mut batch, 1, Instant::now());
            self.ledger.acknowledge(slot, version);
        }
        Ok(())
    }

    async fn load(self: Rc<Self>, session: Session) -> Result<(), Failure> {
        if let Some(course) = &self.plan.course {
            return failover::load(&self, &session, course).await;
        }
        match self.plan.parameters.operation {
            KeyValueOperation::Put | KeyValueOperation::Get | KeyValueOperation::Mixed => {
                if !self.looks_for_stale_answers(&session) {
                    return self.read_and_put(&session).await;
                }
                let ended = Notify::new();
                let load = async {
                    let loaded = self.read_and_put(&session).await;
                    ended.notify_one();
                    loaded
                };
                let (loaded, looked) = tokio::join!(load, fresh::run(&self, &session, &ended));
                loaded.and(looked)
            }
            KeyValueOperation::Scan => scan::load(&self, &session).await,
            KeyValueOperation::CompareAndSwap => swap::load(&self, &session).await,
            KeyValueOperation::WatchLatency => watch::load(&self, &session).await,
            KeyValueOperation::Lock => lock::load(&self, &session).await,
            KeyValueOperation::Failover => Err(Failure::new("a failover without a fault")),
        }
    }

    async fn verify(self: Rc<Self>, session: Session) -> Result<(), Failure> {
        if self.plan.course.is_some() {
            return failover::verify(&self, &session).await;
        }
        if self.plan.locks.is_some() {
            return lock::verify(&self, &session).await;
        }
        let mut members: Vec<Store> = self.members.iter().map(Connection::store).collect();
        let mut key = Vec::new();
        for slot in self.keys.owned_slots(session.place()) {
            if self.ledger.sent(slot) == 0 {
                continue;
            }
            let floor = self.ledger.floor(slot);
            self.name(slot, &mut key);
            for member in &mut members {
                let mut batch = session.begin(1);
                let found = member.get(&key, ReadLevel::Linearizable).await?;
                session.answered_uncounted(&mut batch, 1);
                self.check(&session, slot, floor, found.as_deref());
            }
        }
        Ok(())
    }
}

impl KeyValue {
    /// Reads and puts single keys.
    async fn read_and_put(&self, session: &Session) -> Result<(), Failure> {
        let (level, max_age) = (self.plan.parameters.read_level, self.plan.max_age());
        if self.plan.may_read_stale() {
            self.caught_up[session.connection() as usize].get_or_try_init(|| self.catch_up(session)).await?;
        }
        let read_percent = self.plan.read_percent();
        let (mut store, mut writer) = (self.store(session), self.writer(session));
        let mut picker = self.picker(session);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while let Some(mut batch) = session.next().await {
            if read_percent == 100 || (read_percent > 0 && picker.is_read(read_percent)) {
                let slot = picker.slot_to_read();
                self.name(slot, &mut key);
                // A stale answer may be any version that was ever acknowledged; the first was before the load.
                let newest = self.acknowledged.newest(slot);
                let floor = if self.plan.may_read_stale() { 1 } else { self.ledger.floor(slot) };
                let found = match max_age {
                    Some(max_age) => store.get_bounded(&key, max_age).await?,
                    None => store.get(&key, level).await?,
                };
                session.answered(&mut batch, 1, Instant::now());
                self.check(session, slot, floor, found.as_deref());
                if let Some(newest) = newest {
                    let stale = self.measure_staleness(session, slot, found.as_deref(), newest, batch.sent());
                    if let (Some(stale), Some(max_age)) = (stale, max_age)
                        && stale > max_age
                    {
                        let detail = format!(
                            "a read that must be no older than {max_age:?} missed a write that had been acknowledged for at least {stale:?}"
                        );
                        session.wrong(self.names.text(self.keys.key(slot)), detail);
                    }
                }
            } else {
                let slot = picker.slot_to_write();
                let version = self.next_version(slot, &mut key, &mut value);
                writer.put(&key, &value).await?;
                let now = Instant::now();
                session.answered(&mut batch, 1, now);
                self.ledger.acknowledge(slot, version);
                self.acknowledged.note(slot, version, now);
            }
        }
        Ok(())
    }

    /// Notes how old a read's answer was, and returns it if it was stale; one that is wrong is told of elsewhere.
    fn measure_staleness(
        &self,
        session: &Session,
        slot: u32,
        found: Option<&[u8]>,
        newest: (u32, Instant),
        sent: Instant,
    ) -> Option<Duration> {
        let (_, version) = found.and_then(|found| self.values.read_back(found))?;
        let stale = self.acknowledged.staleness(slot, version, newest, sent);
        session.count(STALE_READS, u64::from(stale.is_some()));
        session.took(STALENESS, stale.unwrap_or_default());
        stale
    }
}
