//! What a workload family and the machinery that runs it agree on.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use storebench_crds::job::{JobLine, JobOutcome, Phase, WorkloadSummary};
use storebench_crds::workload::Fault;
use storebench_crds::{Arrivals, HighestRate};

use crate::failure::Failure;
use crate::load::barrier::Barrier;
use crate::load::control::Control;
use crate::load::highest_rate::Hunt;
use crate::load::outside::Outside;
use crate::load::session::Session;
use crate::load::share::Share;
use crate::measure::meters::Meters;
use crate::report::Report;
use crate::report::board::Board;

/// What a workload runs with: `load` of the workload, checked and parsed, and what the job adds.
#[derive(Clone, Debug)]
pub struct Context {
    /// The workload's name.
    pub workload: String,
    /// Seeds keys and values; differs for each trial and workload.
    pub seed: u64,
    /// The same, but different for each arm, too.
    pub arm_seed: u64,
    /// Which part of the load is this process's. Connections, clients and threads below are its own already.
    pub share: Share,
    /// Client addresses of the store, `host:port`; connection *c* goes to address *c* modulo their number. Not empty.
    pub endpoints: Vec<String>,
    /// Connections of all threads; at least `threads`.
    pub connections: u32,
    /// Clients of all threads; client *i* uses connection *i* modulo `connections`. At least `connections`.
    pub clients: u32,
    /// Operating-system threads; connection *c* belongs to thread *c* modulo `threads`. At least 1.
    pub threads: u32,
    /// Measured requests of all processes; exactly one of this and `duration` is given.
    pub total: Option<u64>,
    /// Measured time.
    pub duration: Option<Duration>,
    /// Load before the measurement.
    pub warm_up: Duration,
    /// Requests per second of an open loop, of all processes; absent: closed loop.
    pub rate: Option<u64>,
    /// Open loop: whether requests are due by chance.
    pub arrivals: Arrivals,
    /// Open loop: what the highest rate is looked for to keep; absent: `rate` is measured.
    pub highest_rate: Option<HighestRate>,
    /// No answer for this long is a failure.
    pub timeout: Duration,
    /// What is done to a member of the store within the measured phase.
    pub fault: Option<Fault>,
    /// Whether the store may lose what it acknowledged when that is done to it.
    pub may_lose_writes: bool,
    /// How many of 100 requests are writes that the store must sync before it acknowledges them, as it was told to.
    pub synced_writes_percent: u32,
    /// Requests of all clients that are on their way at a time, at most. At least 1.
    pub in_flight_max: u32,
    /// Whether members of the store are killed and started again meanwhile: what they count of themselves says nothing then.
    pub restarts_members: bool,
    /// What may be done to a store that is somebody's; absent: it is this run's own.
    pub outside: Option<Outside>,
    /// A name below which all keys are written, and from below which they are removed afterwards; absent: the store is this run's own, and
    /// goes with it.
    pub namespace: Option<String>,
    /// Settings that the store must say it has.
    pub store_settings: BTreeMap<String, String>,
}

impl Context {
    /// How long a client may wait in a phase before the thread that it belongs to takes it for lost. `None`: it bounds each request itself. That is
    /// so in the load of a store that has a fault, where a late answer fails nothing as long as requests may fail.
    pub fn patience(&self, phase: Phase) -> Option<Duration> {
        let bounds_itself = self.fault.is_some() && matches!(phase, Phase::WarmUp | Phase::Measure);
        (!bounds_itself).then_some(self.timeout)
    }

    /// Measured requests of this process.
    pub fn own_total(&self) -> Option<u64> {
        self.total.map(|total| self.share.of(total))
    }
}

/// What a workload runs beside: where it reports, whom it waits for, who measures the store.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// Lines for the driver and for people.
    pub report: &'a Report,
    /// Live counts.
    pub board: &'a Board,
    /// The other load processes.
    pub barrier: &'a Barrier,
    /// The meters beside the members.
    pub meters: &'a Meters,
    /// Who looks at both ends of the measured phase, if a family has somebody.
    pub onlooker: Option<&'a dyn Onlooker>,
    /// The driver, where it strikes members that it is asked to.
    pub control: Option<&'a Arc<Control>>,
    /// The search for the highest rate, where the workload has one: it outlives a workload that begins anew.
    pub hunt: Option<&'a RefCell<Hunt>>,
}

/// Reads something at both ends of the measured phase, while no load runs and nobody's use is measured.
pub trait Onlooker {
    /// The measured phase is about to begin.
    fn before(&self);

    /// It is over: what the driver is told of it.
    fn after(&self) -> Option<JobLine>;
}

/// One thread's share of connections and clients.
#[derive(Clone, Debug)]
pub struct Seat {
    /// What all threads have in common.
    pub context: Arc<Context>,
    /// The thread's number, from 0.
    pub thread: u32,
    /// Its connections, rising.
    pub connections: Vec<u32>,
    /// Its clients, rising; a client's index here is its *place*.
    pub clients: Vec<u32>,
}

impl Seat {
    pub(super) fn new(context: &Arc<Context>, thread: u32) -> Self {
        let connection_of = |client: &u32| client % context.connections;
        Self {
            context: Arc::clone(context),
            thread,
            connections: (thread..context.connections).step_by(context.threads as usize).collect(),
            clients: (0..context.clients).filter(|client| connection_of(client) % context.threads == thread).collect(),
        }
    }

    /// The address of a connection.
    pub fn endpoint(&self, connection: u32) -> &str {
        &self.context.endpoints[connection as usize % self.context.endpoints.len()]
    }

    /// The index into [`Seat::connections`] of a client of this thread.
    pub fn connection_of(&self, client: u32) -> u32 {
        client % self.context.connections / self.context.threads
    }
}

/// A workload family: what one thread does. Lives on its thread; clients share it through [`Rc`].
///
/// A failed request is returned as `Err` and ends the workload; a wrong answer goes to [`Session::wrong`] and does not.
/// Requests sent between [`Session::next`] or [`Session::begin`] and [`Session::answered`] are bounded by the timeout;
/// tasks that are overdue are dropped at their next `await`. A family must not wait for anything else without a bound.
pub trait Family: Sized + 'static {
    /// What all threads share, such as the workload's parameters and totals for [`Family::verify`].
    type Plan: Send + Sync + 'static;

    /// Opens this thread's connections, with [`crate::net::dial::dial`]. Bounded by patience and the timeout.
    fn connect(plan: Arc<Self::Plan>, seat: Rc<Seat>) -> impl Future<Output = Result<Self, Failure>>;

    /// Writes what the load needs: each client the keys that it owns.
    fn prepare(self: Rc<Self>, session: Session) -> impl Future<Output = Result<(), Failure>>;

    /// One client's load, in WarmUp and again in Measure: returns when [`Session::next`] returns `None`.
    fn load(self: Rc<Self>, session: Session) -> impl Future<Output = Result<(), Failure>>;

    /// Reads back what was written and compares: each client the keys that it owns. Totals over all clients are for
    /// client 0.
    fn verify(self: Rc<Self>, session: Session) -> impl Future<Output = Result<(), Failure>>;
}

/// What became of a workload.
#[derive(Debug)]
pub struct Ending {
    /// Absent when the store failed.
    pub summary: Option<WorkloadSummary>,
    /// [`JobOutcome::Completed`] if nothing was wrong.
    pub outcome: JobOutcome,
}
