//! The family of replicated SQLite databases: the load is an application with real SQLite in WAL mode, and looks into the object
//! store for what a replicator beside it has copied.
//!
//! From the outside in: [`run`] makes a [`Plan`] that all threads share, and the [`watcher`], which sees objects arrive. Each thread
//! is one writer with the [`application`]'s databases that are its own. At the end every database is restored from its
//! [`replica`], by code of our own that knows the format and no replicator, and compared row by row. A replica that lacks
//! something, or holds something else, is a wrong answer; one that does not follow is a failed store.
//!
//! Restore measures the replicator's own [`tool`], and compares every database that this made. Outage lets something fail
//! ([`outage`], [`fault_proxy`]) while commits go on; what a tool restores afterwards may then be behind, which is counted as
//! loss, but it must be what the application had at some commit.

mod application;
mod fault_proxy;
mod outage;
mod replica;
mod tool;
mod watcher;

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use storebench_crds::engine::object_store;
use storebench_crds::job::{JobSpec, Phase};
use storebench_crds::measure::TOOLS_CPU_NANOS;
use storebench_crds::workload::sqlite_replication::{
    BYTES, COMMITS_IN_OUTAGE, LOST_ROWS, LOST_TRANSACTIONS, OBJECTS, OUTAGE_RECOVERY, OutageKind, PLAIN_GET_NANOS,
    REPLICATION_LAG, RESTORE_NANOS, RESTORE_RSS_BYTES, RESTORED_BYTES, SqliteOperation, SqliteReplicationWorkload,
    WATCHED_DATABASES_MAX,
};

use crate::content::values::Values;
use crate::failure::Failure;
use crate::load::session::{Batch, Session};
use crate::load::{self, Context, Ending, Family, Seat, Surroundings};

use application::{Database, Mark};
use fault_proxy::{Fault, FaultProxy};
use outage::{Interruption, Means};
use replica::{Damage, Replica, Replicas};
use tool::{PlainRead, Taken, Tool};
use watcher::{Seen, Watched, Watcher};

/// How long a replicator may take to find new databases and copy them, and to copy what is left at the end.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(120);
/// Between two looks at a replica that has not caught up.
const CATCH_UP_PAUSE: Duration = Duration::from_millis(50);
/// Idle: between two reads.
const IDLE_PAUSE: Duration = Duration::from_millis(100);

/// Runs one workload of the family. Errors are the loader's own; everything about the store is in the [`Ending`].
pub fn run(
    context: Context,
    job: &JobSpec,
    parameters: &SqliteReplicationWorkload,
    around: &Surroundings<'_>,
) -> io::Result<Ending> {
    let directory = job.shared_directory.as_ref().ok_or_else(|| io::Error::other("sharedDirectory: is missing"))?;
    let store = job.companions.get(object_store::ROLE);
    let store = store.ok_or_else(|| io::Error::other(format!("companions.{}: is missing", object_store::ROLE)))?;
    let replicas = Replicas::new(store, context.timeout).map_err(io::Error::other)?;
    let watched = (0..parameters.databases.min(WATCHED_DATABASES_MAX)).map(|number| {
        let mark = Mark::new(context.seed, number);
        Watched::new(replicas.of(&application::name(number)), mark)
    });
    let watched: Arc<[Watched]> = watched.collect();
    let interruption = interruption(job, parameters, store, around)?.map(Arc::new);
    let plan = Plan {
        parameters: parameters.clone(),
        directory: directory.into(),
        replicas,
        watched: Arc::clone(&watched),
        tool: tool(job, parameters)?,
        interruption: interruption.clone(),
        cpu_before_nanos: OnceLock::new(),
    };
    let watcher = Watcher::start(watched)?;
    let ending = load::run::<SqliteReplication>(context, plan, around);
    watcher.stop();
    match interruption.as_ref().and_then(|interruption| interruption.broken()) {
        Some(broken) => Err(io::Error::other(broken.to_owned())),
        None => ending,
    }
}

/// What restores, where the workload restores by a tool.
fn tool(job: &JobSpec, parameters: &SqliteReplicationWorkload) -> io::Result<Option<Tool>> {
    match parameters.operation {
        SqliteOperation::Write | SqliteOperation::Idle => Ok(None),
        SqliteOperation::Restore | SqliteOperation::Outage => {
            let words = job.restore_tool.as_ref().ok_or_else(|| io::Error::other("restoreTool: is missing"))?;
            Tool::find(words).map(Some).map_err(io::Error::other)
        }
    }
}

/// The outage, where the workload has one. Errors: nobody does what it takes.
fn interruption(
    job: &JobSpec,
    parameters: &SqliteReplicationWorkload,
    store: &str,
    around: &Surroundings<'_>,
) -> io::Result<Option<Interruption>> {
    let Some(outage) = &parameters.outage else { return Ok(None) };
    let proxy = || {
        let listen = job.fault_proxy.as_ref().ok_or_else(|| io::Error::other("faultProxy: is missing"))?;
        FaultProxy::start(listen, store)
    };
    let means = match outage.kind {
        OutageKind::BlackHole => Means::Proxy(proxy()?, Fault::BlackHole),
        OutageKind::ServiceUnavailable => Means::Proxy(proxy()?, Fault::ServiceUnavailable),
        OutageKind::Kill => {
            let control = around.control.ok_or_else(|| io::Error::other("strikesMembers: is missing"))?;
            let endpoint = job.endpoints.first().ok_or_else(|| io::Error::other("endpoints: holds 0 items"))?;
            Means::Kill(Arc::clone(control), endpoint.clone())
        }
    };
    Ok(Some(Interruption::new(outage.clone(), means)))
}

/// What all threads of one workload share.
pub struct Plan {
    parameters: SqliteReplicationWorkload,
    directory: PathBuf,
    replicas: Replicas,
    /// The first databases, by number.
    watched: Arc<[Watched]>,
    tool: Option<Tool>,
    interruption: Option<Arc<Interruption>>,
    /// Processor time of ended children when the measured phase began.
    cpu_before_nanos: OnceLock<u64>,
}

/// One thread, which is one writer: its databases.
pub struct SqliteReplication {
    plan: Arc<Plan>,
    seat: Rc<Seat>,
    values: Values,
    databases: RefCell<Vec<Database>>,
    /// What was restored in the measured phase: the index of its database, the file, and what that took.
    restored: RefCell<Vec<(usize, PathBuf, Taken)>>,
}

impl SqliteReplication {
    fn replica(&self, number: u32) -> Replica {
        self.plan.replicas.of(&application::name(number))
    }

    /// Waits until a replica has a transaction, or a later one. The inner error says how far it has come by the deadline.
    async fn catch_up(
        &self,
        session: &Session,
        (number, sequence): (u32, u64),
        deadline: Instant,
    ) -> Result<Result<(), Failure>, Failure> {
        let replica = self.replica(number);
        let mark = Mark::new(self.seat.context.seed, number);
        loop {
            let found = replica.newest_mark(&mark)?;
            if found.is_some_and(|found| found >= sequence) || session.is_stopped() {
                return Ok(Ok(()));
            }
            if Instant::now() > deadline {
                let has = found.map_or("has nothing".to_owned(), |found| format!("ends with transaction {found}"));
                let name = application::name(number);
                let text = format!("{name}: its replica {has} {CATCH_UP_TIMEOUT:?} after transaction {sequence}");
                return Ok(Err(Failure::new(text)));
            }
            tokio::time::sleep(CATCH_UP_PAUSE).await;
        }
    }

    /// Waits until the replicas of all its databases have what was committed.
    async fn all_caught_up(&self, session: &Session) -> Result<(), Failure> {
        let waiting: Vec<(u32, u64)> =
            self.databases.borrow().iter().map(|database| (database.number(), database.sequence())).collect();
        for place in waiting {
            self.catch_up(session, place, Instant::now() + CATCH_UP_TIMEOUT).await??;
        }
        Ok(())
    }

    /// A request of Restore. Its end is that of the tool.
    fn restore(&self, session: &Session, batch: &mut Batch, turn: usize) -> Result<(), Failure> {
        let Some(tool) = &self.plan.tool else { return Ok(()) };
        let name = self.databases.borrow()[turn].name();
        let mut restored = self.restored.borrow_mut();
        let path = self.plan.directory.join(format!("restored-{}-{}.tmp", session.client(), restored.len()));
        let taken = tool.restore(&name, &path, self.seat.context.timeout)?;
        session.answered(batch, 1, Instant::now());
        if session.phase() != Phase::Measure {
            let _ = std::fs::remove_file(&path);
            return Ok(());
        }
        let bytes = std::fs::metadata(&path).map_err(|error| Failure::io("what was restored", &error))?.len();
        session.count(RESTORED_BYTES, bytes);
        session.count(RESTORE_NANOS, taken.time.as_nanos() as u64);
        session.largest(RESTORE_RSS_BYTES, taken.rss_peak_bytes);
        restored.push((turn, path, taken));
        Ok(())
    }

    /// Compares what the tool restored, and reads the same objects plainly, as often.
    fn check_restored(&self, session: &Session, databases: &[Database]) -> Result<(), Failure> {
        if let (0, Some(before_nanos)) = (session.client(), self.plan.cpu_before_nanos.get()) {
            session.count(TOOLS_CPU_NANOS, tool::cpu_of_ended_children_nanos() - before_nanos);
        }
        for (turn, path, taken) in self.restored.take() {
            let database = &databases[turn];
            let plainly = self.replica(database.number()).read_plainly()?;
            session.count(PLAIN_GET_NANOS, plainly.time.as_nanos() as u64);
            self.check_source(session, database, &taken, &plainly);
            let right = database.compare(&path, &self.values, |place, detail| session.wrong(place, detail));
            session.verified(right);
            let _ = std::fs::remove_file(&path);
        }
        Ok(())
    }

    /// Tells a tool that restored a database without reading its objects, such as one that copies what it should restore.
    fn check_source(&self, session: &Session, database: &Database, taken: &Taken, plainly: &PlainRead) {
        if tool::is_from_elsewhere(taken.received_bytes, plainly) {
            let (received, bytes) = (taken.received_bytes.unwrap_or_default(), plainly.snapshot_bytes);
            let text = format!(
                "was restored from elsewhere than the object store: its snapshot has {bytes} bytes there, and {received} came in over the \
                 network meanwhile"
            );
            session.wrong(database.name(), text);
        }
    }

    /// Restores a database with the tool after an outage, and counts what it lacks.
    fn check_loss(&self, session: &Session, database: &Database) {
        let Some(tool) = &self.plan.tool else { return };
        let path = self.plan.directory.join(format!("restored-{}.tmp", session.client()));
        match tool.restore(&database.name(), &path, CATCH_UP_TIMEOUT) {
            Ok(taken) => {
                // What cannot be read as a whole has no restore to be held against.
                if let Ok(plainly) = self.replica(database.number()).read_plainly() {
                    self.check_source(session, database, &taken, &plainly);
                }
                let wrong = |place, detail| session.wrong(place, format!("{}: {detail}", tool.name()));
                let (right, loss) = database.compare_with_loss(&path, &self.values, wrong);
                session.verified(right);
                session.count(LOST_TRANSACTIONS, loss.transactions);
                session.count(LOST_ROWS, loss.rows);
            }
            // Of what cannot be restored everything is lost, and somebody was told that it is there.
            Err(failure) => session.wrong(database.name(), failure.text()),
        }
        let _ = std::fs::remove_file(&path);
    }

    /// What was seen of a database's commits, when all of them were.
    fn report_seen(&self, session: &Session, seen: &[Seen]) {
        seen.iter().for_each(|one| session.took(REPLICATION_LAG, one.lag));
        if let Some(recovery) = self.plan.interruption.as_ref().and_then(|one| one.recovery(seen)) {
            session.took(OUTAGE_RECOVERY, recovery);
        }
    }

    /// Restores a database, and compares all of it.
    fn check(&self, session: &Session, replica: &Replica, database: &Database) -> Result<(), Failure> {
        // Its name is not that of a database, so that no replicator takes it for one.
        let path = self.plan.directory.join(format!("restored-{}.tmp", session.client()));
        let restored = replica.restore(&path);
        let checked = match restored {
            Ok(()) => {
                session.verified(database.compare(&path, &self.values, |place, detail| session.wrong(place, detail)));
                Ok(())
            }
            Err(Damage::Replica(what)) => {
                session.wrong(database.name(), what);
                Ok(())
            }
            Err(Damage::Store(failure)) => Err(failure),
        };
        // What is left is removed with the directory.
        let _ = std::fs::remove_file(&path);
        checked
    }
}

impl Family for SqliteReplication {
    type Plan = Plan;

    async fn connect(plan: Arc<Plan>, seat: Rc<Seat>) -> Result<Self, Failure> {
        let values = Values::new(seat.context.seed, plan.parameters.row_bytes);
        Ok(Self { plan, seat, values, databases: RefCell::default(), restored: RefCell::default() })
    }

    async fn prepare(self: Rc<Self>, session: Session) -> Result<(), Failure> {
        let (parameters, seat) = (&self.plan.parameters, &self.seat);
        for number in (session.client()..parameters.databases).step_by(seat.context.clients as usize) {
            let mark = Mark::new(seat.context.seed, number);
            let (directory, timeout) = (&self.plan.directory, seat.context.timeout);
            let mut database = Database::create(directory, number, mark, parameters, &self.values, timeout)?;
            // A replicator sees a database when its WAL is there.
            database.change(0, &self.values)?;
            self.databases.borrow_mut().push(database);
            tokio::task::yield_now().await;
        }
        self.all_caught_up(&session).await?;
        let increments = if parameters.operation == SqliteOperation::Restore { parameters.increments() } else { 0 };
        for _ in 0..increments {
            for database in self.databases.borrow_mut().iter_mut() {
                database.change(parameters.rows_per_transaction(), &self.values)?;
            }
            // Together they would be one object.
            self.all_caught_up(&session).await?;
        }
        Ok(())
    }

    async fn load(self: Rc<Self>, session: Session) -> Result<(), Failure> {
        let parameters = &self.plan.parameters;
        let count = self.databases.borrow().len();
        if session.phase() == Phase::Measure {
            self.plan.cpu_before_nanos.get_or_init(tool::cpu_of_ended_children_nanos);
            if let (0, Some(interruption)) = (session.client(), &self.plan.interruption) {
                let begun = interruption.begin(&self.seat.context.workload);
                begun.map_err(|error| Failure::io("begin the outage", &error))?;
            }
        }
        for turn in (0..count).cycle() {
            let Some(mut batch) = session.next().await else { break };
            match parameters.operation {
                SqliteOperation::Write | SqliteOperation::Outage => {
                    let mut databases = self.databases.borrow_mut();
                    let database = &mut databases[turn];
                    database.change(parameters.rows_per_transaction(), &self.values)?;
                    let done = Instant::now();
                    session.answered(&mut batch, 1, done);
                    if let (Phase::Measure, Some(watched)) =
                        (session.phase(), self.plan.watched.get(database.number() as usize))
                    {
                        watched.committed(database.sequence(), done);
                    }
                    if self.plan.interruption.as_ref().is_some_and(|one| one.lasted_at(done)) {
                        session.count(COMMITS_IN_OUTAGE, 1);
                    }
                }
                SqliteOperation::Restore => self.restore(&session, &mut batch, turn)?,
                SqliteOperation::Idle => {
                    self.databases.borrow()[turn].read()?;
                    session.answered(&mut batch, 1, Instant::now());
                }
            }
            match parameters.operation {
                SqliteOperation::Write | SqliteOperation::Outage | SqliteOperation::Restore => {
                    tokio::task::yield_now().await;
                }
                SqliteOperation::Idle => tokio::time::sleep(IDLE_PAUSE).await,
            }
        }
        Ok(())
    }

    async fn verify(self: Rc<Self>, session: Session) -> Result<(), Failure> {
        // Nobody else uses them any more.
        let databases = self.databases.take();
        if self.plan.parameters.operation == SqliteOperation::Restore {
            self.check_restored(&session, &databases)?;
        }
        if self.plan.interruption.is_some() {
            // Also where there was none.
            session.count(COMMITS_IN_OUTAGE, 0);
        }
        let deadline = Instant::now() + CATCH_UP_TIMEOUT;
        for database in &databases {
            let caught_up = self.catch_up(&session, (database.number(), database.sequence()), deadline).await?;
            let watched = self.plan.watched.get(database.number() as usize);
            match (&self.plan.interruption, caught_up) {
                // What has not come by now is lost, which is what is asked.
                (Some(_), Err(_)) => {
                    watched.iter().for_each(|watched| self.report_seen(&session, &watched.give_up()));
                }
                (_, caught_up) => {
                    caught_up?;
                    if let Some(watched) = watched {
                        self.report_seen(&session, &watched.finish().await?);
                    }
                }
            }
            let replica = self.replica(database.number());
            let (objects, bytes) = replica.size()?;
            session.count(OBJECTS, objects);
            session.count(BYTES, bytes);
            match self.plan.interruption {
                Some(_) => self.check_loss(&session, database),
                None => self.check(&session, &replica, database)?,
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}
