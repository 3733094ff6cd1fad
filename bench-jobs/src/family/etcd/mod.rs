//! The etcd family: load on the etcd v3 API, every answer checked.
//!
//! From the outside in: [`run`] makes a [`Plan`] that all threads share; each thread has an [`Etcd`], which owns its
//! connections, its keys' expected versions and what the watches saw; a client sends through its `store::Store`. One
//! module per kind of load (`writes`, `reads`, `watch`, `lease`) and one per kind of check (`revisions`, `answers`,
//! `deletions`, `read_back`). The protocol is in [`grpc`] and [`messages`].
//!
//! What is checked, beyond what [`crate::content::expect`] says about values:
//! - each workload begins with no key under its [`Prefix`], so that etcd's own counter of a key (`version`, the puts since
//!   its creation) must equal the number of puts that were acknowledged: a write that was dropped is seen even when a
//!   later one hides it, and so is a foreign write, even when it was undone;
//! - revisions of acknowledged writes rise for each client and are never given twice;
//! - a deletion finds its key exactly once;
//! - each watcher gets each event exactly once, in order of revision, with the right value;
//! - a linearizable read is not stale, whichever member answers it (`fresh`), and every member has what was acknowledged when all is
//!   read back.
//!
//! Several load processes cut the prefix at the borders of their slices of the keys: each clears, fills and reads back
//! everything between its borders. A read of the whole prefix is checked by every process against all keys, because the
//! value of a key's first version follows from the trial's seed and is the same whoever writes it.

mod answers;
mod compaction;
mod deletions;
mod fresh;
mod lease;
pub mod outside;
mod prepare;
pub(crate) mod probe;
mod read_back;
mod reads;
mod revisions;
mod space;
pub(crate) mod surface;
mod watch;
mod writes;

use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use service_kit::client::Channel;
use storebench_crds::DurationText;
use storebench_crds::workload::etcd::{Consistency, EtcdOperation, EtcdWorkload, RangeScope};

use crate::content::expect::{Ledger, SharedVersions};
use crate::content::keys::{KeyNames, KeyPicker, KeySpace, ThreadKeys};
use crate::content::seeds::mix;
use crate::content::values::Values;
use crate::failure::Failure;
use crate::family::etcd::deletions::{Deletions, SharedDeletions};
use crate::family::etcd::lease::Leases;
use crate::family::etcd::outside::Prefix;
use crate::family::etcd::revisions::Revisions;
use crate::family::etcd::watch::Watch;
use crate::load::session::Session;
use crate::load::{self, Context, Ending, Family, Seat, Surroundings};
use crate::net::etcd::store::Store;

/// Runs one workload of the etcd family. Errors are the loader's own; everything about the store is in the [`Ending`].
pub fn run(context: Context, parameters: &EtcdWorkload, around: &Surroundings<'_>) -> io::Result<Ending> {
    let plan = Plan::new(parameters, &context);
    let prefix = plan.prefix.clone();
    load::outside::run(context, around, &prefix, |context| load::run::<Etcd>(context, plan, around))
}

/// Looks at a store that is somebody's, as [`run`] does before it writes.
pub fn look(context: &Context) -> io::Result<Result<(), Failure>> {
    let prefix = Prefix::of(context.namespace.as_deref());
    Ok(load::outside::look(context, &prefix)?.map(drop))
}

/// What all threads of one workload share.
#[derive(Debug)]
pub struct Plan {
    parameters: EtcdWorkload,
    /// What every key begins with.
    prefix: Prefix,
    space: KeySpace,
    /// What this load process clears and reads back: from the first name to before the last.
    borders: (Vec<u8>, Vec<u8>),
    versions: Arc<SharedVersions>,
    deletions: Arc<SharedDeletions>,
    /// The store's revision once nothing is left under the prefix; 0 until then.
    cleared: tokio::sync::watch::Sender<i64>,
    compact_interval: Option<Duration>,
    hub: watch::Hub,
}

impl Plan {
    fn new(parameters: &EtcdWorkload, context: &Context) -> Self {
        let batch = parameters.operations_per_transaction.unwrap_or(1);
        let slice = context.share.slice(parameters.key_space);
        let space = KeySpace::slice(slice.clone(), context.clients, batch);
        let prefix = Prefix::of(context.namespace.as_deref());
        Self {
            parameters: parameters.clone(),
            space,
            borders: borders(&prefix, parameters, slice),
            prefix,
            versions: SharedVersions::new(space),
            deletions: SharedDeletions::new(space),
            cleared: tokio::sync::watch::Sender::new(0),
            compact_interval: parameters.compact_interval.as_ref().map(DurationText::duration),
            hub: watch::Hub::new(parameters, context),
        }
    }

    fn operation(&self) -> EtcdOperation {
        self.parameters.operation
    }

    /// Whether the load reads keys, or takes them away, that must have been written before.
    fn needs_keys(&self) -> bool {
        matches!(self.operation(), EtcdOperation::Range | EtcdOperation::Delete | EtcdOperation::Mixed)
    }

    fn is_watch(&self) -> bool {
        matches!(self.operation(), EtcdOperation::WatchLatency | EtcdOperation::WatchThroughput)
    }

    fn is_serializable(&self) -> bool {
        self.parameters.consistency == Consistency::Serializable
    }
}

/// The first name of a slice, and the first name after it. The slices' borders leave nothing of the prefix out, so that
/// what nobody of this trial wrote is somebody's to find.
fn borders(prefix: &Prefix, parameters: &EtcdWorkload, slice: Range<u32>) -> (Vec<u8>, Vec<u8>) {
    let names = KeyNames::new(&prefix.first, parameters.key_bytes as usize);
    let start = if slice.start == 0 { prefix.first.clone().into() } else { names.name(slice.start) };
    let end = if slice.end == parameters.key_space { prefix.end.clone().into() } else { names.name(slice.end) };
    (start, end)
}

/// One thread's connections, and what it knows about the store.
#[derive(Debug)]
pub struct Etcd {
    plan: Arc<Plan>,
    seat: Rc<Seat>,
    /// By index into the seat's connections.
    channels: Vec<Channel>,
    names: KeyNames,
    values: Values,
    keys: Rc<ThreadKeys>,
    ledger: Ledger,
    deletions: Deletions,
    revisions: RefCell<Revisions>,
    watch: Watch,
    leases: Leases,
}

impl Etcd {
    /// A client's way to its connection.
    fn store(&self, session: &Session) -> Store {
        let connection = session.connection() as usize;
        let number = self.seat.connections.get(connection).copied().unwrap_or_default();
        // A session's connection is one of this thread's.
        Store::new(&self.channels[connection], self.seat.endpoint(number))
    }

    /// Draws a client's keys. The same keys again in each phase would make the measured phase a repetition of the
    /// warm-up, so the phase goes into the seed.
    fn picker(&self, session: &Session) -> KeyPicker {
        let context = &self.seat.context;
        let seed = mix(context.share.seed(context.seed), session.phase() as u64);
        KeyPicker::new(&self.keys, session.place(), self.plan.parameters.key_order, seed)
    }

    /// A key's name for a message.
    fn name_of(&self, slot: u32) -> String {
        self.names.text(self.keys.key(slot))
    }

    /// The store acknowledged a write to the key in `slot` as `revision`.
    fn written(&self, session: &Session, slot: u32, revision: i64) {
        let taken = self.revisions.borrow_mut().take(session.place(), revision);
        if let Err(detail) = taken {
            session.wrong(self.name_of(slot), detail);
        }
    }
}

impl Family for Etcd {
    type Plan = Plan;

    async fn connect(plan: Arc<Plan>, seat: Rc<Seat>) -> Result<Self, Failure> {
        let context = &seat.context;
        let mut channels = Vec::with_capacity(seat.connections.len());
        for &connection in &seat.connections {
            let endpoint = seat.endpoint(connection);
            channels.push(outside::log_in(endpoint, context).await?);
        }
        let parameters = &plan.parameters;
        let keys = Rc::new(ThreadKeys::new(plan.space, seat.clients.clone()));
        let clients = seat.clients.len();
        Ok(Self {
            channels,
            names: KeyNames::new(&plan.prefix.first, parameters.key_bytes as usize),
            values: Values::new(context.seed, parameters.value_bytes),
            ledger: Ledger::new(Rc::clone(&keys), Arc::clone(&plan.versions)),
            deletions: Deletions::new(&keys, Arc::clone(&plan.deletions), plan.operation()),
            revisions: RefCell::new(Revisions::new(clients)),
            watch: Watch::new(&plan, &seat),
            leases: Leases::new(clients),
            keys,
            seat,
            plan,
        })
    }

    async fn prepare(self: Rc<Self>, session: Session) -> Result<(), Failure> {
        let is_first_client = session.client() == 0;
        space::guarded(&self, is_first_client, prepare_for(&self, session)).await
    }

    async fn load(self: Rc<Self>, session: Session) -> Result<(), Failure> {
        let is_first_client = session.client() == 0;
        space::guarded(&self, is_first_client, load_beside_others(&self, session)).await
    }

    async fn verify(self: Rc<Self>, session: Session) -> Result<(), Failure> {
        let mut store = self.store(&session);
        if self.plan.operation() == EtcdOperation::LeaseKeepAlive {
            return self.leases.revoke(&mut store, &session).await;
        }
        if session.place() == 0 {
            read_back::run(&self, &mut store, &session).await?;
            // The first thread asks the other members as well: who has one connection would never read what followers have.
            if self.seat.thread == 0 && self.seat.context.endpoints.len() > 1 {
                let others = self.members().await?;
                for mut member in others.into_iter().filter(|member| member.endpoint() != store.endpoint()) {
                    read_back::run(&self, &mut member, &session).await?;
                }
            }
        }
        Ok(())
    }
}

async fn prepare_for(etcd: &Rc<Etcd>, session: Session) -> Result<(), Failure> {
    let mut store = etcd.store(&session);
    if session.client() == 0 {
        let revision = prepare::clear(&etcd.plan.borders, &mut store, &session).await?;
        etcd.plan.cleared.send_replace(revision);
    } else {
        // The sender lives in the plan, so waiting ends when the prefix is clear; if clearing fails, this is dropped.
        let _ = etcd.plan.cleared.subscribe().wait_for(|revision| *revision > 0).await;
    }
    if etcd.plan.needs_keys() {
        prepare::fill(etcd, &mut store, &session).await?;
    }
    if etcd.plan.operation() == EtcdOperation::LeaseKeepAlive {
        etcd.leases.open(&mut store, &session).await?;
    }
    if etcd.plan.is_watch() && session.place() == 0 {
        watch::open(etcd, session).await?;
    }
    Ok(())
}

async fn load_beside_others(etcd: &Rc<Etcd>, session: Session) -> Result<(), Failure> {
    let session = Rc::new(session);
    match etcd.plan.compact_interval {
        Some(interval) if session.client() == 0 && etcd.seat.context.share.is_first() => tokio::select! {
            biased;
            loaded = load_of(etcd, &session) => loaded,
            failure = compaction::run(etcd, &session, interval) => Err(failure),
        },
        _ if etcd.looks_for_stale_answers(&session) => {
            let ended = tokio::sync::Notify::new();
            let load = async {
                let loaded = load_of(etcd, &session).await;
                ended.notify_one();
                loaded
            };
            let (loaded, looked) = tokio::join!(load, fresh::run(etcd, &session, &ended));
            loaded.and(looked)
        }
        _ => load_of(etcd, &session).await,
    }
}

async fn load_of(etcd: &Etcd, session: &Rc<Session>) -> Result<(), Failure> {
    let mut store = etcd.store(session);
    match (etcd.plan.operation(), etcd.plan.parameters.scope) {
        (EtcdOperation::Put, _) => writes::put(etcd, &mut store, session).await,
        (EtcdOperation::TxnPut, _) => writes::transact(etcd, &mut store, session).await,
        (EtcdOperation::Delete, _) => writes::delete(etcd, &mut store, session).await,
        (EtcdOperation::Range, RangeScope::Prefix) => reads::prefix(etcd, &mut store, session).await,
        (EtcdOperation::Range, RangeScope::Key) => reads::mixed(etcd, &mut store, session, 100).await,
        (EtcdOperation::Mixed, _) => {
            let read_percent = etcd.plan.parameters.read_percent.unwrap_or_default();
            reads::mixed(etcd, &mut store, session, read_percent).await
        }
        (EtcdOperation::WatchLatency | EtcdOperation::WatchThroughput, _) => {
            watch::load(etcd, &mut store, session).await
        }
        (EtcdOperation::LeaseKeepAlive, _) => etcd.leases.keep_alive(session).await,
    }
}
