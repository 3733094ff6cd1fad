//! The family of replicated SQLite databases: the load is an application with real SQLite in WAL mode, and looks into the object
//! store for what a replicator beside it has copied.
//!
//! From the outside in: [`run`] makes a [`Plan`] that all threads share, and the [`watcher`], which sees objects arrive. Each thread
//! is one writer with the [`application`]'s databases that are its own. At the end every database is restored from its
//! [`replica`], by code of our own that knows the format and no replicator, and compared row by row. A replica that lacks
//! something, or holds something else, is a wrong answer; one that does not follow is a failed store.

mod application;
mod replica;
mod watcher;

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use storebench_crds::engine::object_store;
use storebench_crds::job::{JobSpec, Phase};
use storebench_crds::workload::sqlite_replication::{
    BYTES, OBJECTS, REPLICATION_LAG, SqliteOperation, SqliteReplicationWorkload, WATCHED_DATABASES_MAX,
};

use crate::content::values::Values;
use crate::failure::Failure;
use crate::load::session::Session;
use crate::load::{self, Context, Ending, Family, Seat, Surroundings};

use application::{Database, Mark};
use replica::{Damage, Replica, Replicas};
use watcher::{Watched, Watcher};

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
    let watcher = Watcher::start(Arc::clone(&watched))?;
    let plan = Plan { parameters: parameters.clone(), directory: directory.into(), replicas, watched };
    let ending = load::run::<SqliteReplication>(context, plan, around);
    watcher.stop();
    ending
}

/// What all threads of one workload share.
pub struct Plan {
    parameters: SqliteReplicationWorkload,
    directory: PathBuf,
    replicas: Replicas,
    /// The first databases, by number.
    watched: Arc<[Watched]>,
}

/// One thread, which is one writer: its databases.
pub struct SqliteReplication {
    plan: Arc<Plan>,
    seat: Rc<Seat>,
    values: Values,
    databases: RefCell<Vec<Database>>,
}

impl SqliteReplication {
    /// Waits until a replica has a transaction, or a later one.
    async fn caught_up(&self, session: &Session, number: u32, sequence: u64) -> Result<Replica, Failure> {
        let replica = self.plan.replicas.of(&application::name(number));
        let mark = Mark::new(self.seat.context.seed, number);
        let deadline = Instant::now() + CATCH_UP_TIMEOUT;
        loop {
            let found = replica.newest_mark(&mark)?;
            if found.is_some_and(|found| found >= sequence) || session.is_stopped() {
                return Ok(replica);
            }
            if Instant::now() > deadline {
                let has = found.map_or("has nothing".to_owned(), |found| format!("ends with transaction {found}"));
                let name = application::name(number);
                let text = format!("{name}: its replica {has} {CATCH_UP_TIMEOUT:?} after transaction {sequence}");
                return Err(Failure::new(text));
            }
            tokio::time::sleep(CATCH_UP_PAUSE).await;
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
        Ok(Self { plan, seat, values, databases: RefCell::default() })
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
        let waiting: Vec<(u32, u64)> =
            self.databases.borrow().iter().map(|database| (database.number(), database.sequence())).collect();
        for (number, sequence) in waiting {
            self.caught_up(&session, number, sequence).await?;
        }
        Ok(())
    }

    async fn load(self: Rc<Self>, session: Session) -> Result<(), Failure> {
        let parameters = &self.plan.parameters;
        let count = self.databases.borrow().len();
        for turn in (0..count).cycle() {
            let Some(mut batch) = session.next().await else { break };
            match parameters.operation {
                SqliteOperation::Write => {
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
                }
                SqliteOperation::Idle => {
                    self.databases.borrow()[turn].read()?;
                    session.answered(&mut batch, 1, Instant::now());
                }
            }
            match parameters.operation {
                SqliteOperation::Write => tokio::task::yield_now().await,
                SqliteOperation::Idle => tokio::time::sleep(IDLE_PAUSE).await,
            }
        }
        Ok(())
    }

    async fn verify(self: Rc<Self>, session: Session) -> Result<(), Failure> {
        // Nobody else uses them any more.
        let databases = self.databases.take();
        for database in &databases {
            let replica = self.caught_up(&session, database.number(), database.sequence()).await?;
            if let Some(watched) = self.plan.watched.get(database.number() as usize) {
                watched.finish().await?.into_iter().for_each(|lag| session.took(REPLICATION_LAG, lag));
            }
            let (objects, bytes) = replica.size()?;
            session.count(OBJECTS, objects);
            session.count(BYTES, bytes);
            self.check(&session, &replica, database)?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}
