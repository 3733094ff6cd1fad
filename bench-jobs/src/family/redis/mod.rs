//! The redis family: load on the Redis protocol.
//!
//! One connection for each client, `pipeline` commands in flight on it: they are written together and their replies
//! read before the next are written, as redis-benchmark does. Commands and names are those of redis-benchmark. The store
//! is taken to be the benchmark's own: keys of these names are overwritten and deleted. In one that is somebody's ([`outside`]) names have a
//! namespace of this load before them.
//!
//! - [`resp`]: the protocol; [`connection`]: a socket that speaks it
//! - [`plan`]: what threads share; [`encode`]: the commands
//! - [`measured`]: the load and its checks; [`verify`]: what is written before and read back after
//! - [`fault`]: the same load by clients that outlive a fault of the store

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use storebench_crds::job::JobOutcome;
use storebench_crds::workload::redis::RedisWorkload;

use crate::content::doubts::Doubts;
use crate::content::expect::Ledger;
use crate::content::keys::{KeyPicker, ThreadKeys};
use crate::failure::Failure;
use crate::family::redis::connection::Connection;
use crate::family::redis::measured::Measured;
use crate::family::redis::plan::Plan;
use crate::family::redis::verify::Around;
use crate::load::fault::Course;
use crate::load::session::Session;
use crate::load::{self, Context, Ending, Family, Seat, Surroundings};

pub mod connection;
pub mod encode;
mod fault;
pub mod measured;
mod outside;
pub mod plan;
pub(crate) mod probe;
pub mod resp;
pub mod verify;

/// Runs one workload.
pub fn run(context: Context, parameters: &RedisWorkload, around: &Surroundings<'_>) -> io::Result<Ending> {
    let (workload, endpoints, settings) =
        (context.workload.clone(), context.endpoints.clone(), context.store_settings.clone());
    let breach = |when: &str| {
        let detail = probe::differing_setting(&endpoints, &settings)?;
        let outcome = JobOutcome::StoreFailed { workload: workload.clone(), detail: format!("{detail}{when}") };
        Some(Ending { summary: None, outcome })
    };
    if let Some(breach) = breach("") {
        return Ok(breach);
    }
    let mut plan = Plan::new(&context, parameters);
    plan.course = Course::of(&context, around)?;
    let (written, course) = (outside::Written::by(&plan), plan.course.clone());
    let ending = load::outside::run(context, around, &written, |context| load::run::<Redis>(context, plan, around))?;
    match course.as_ref().and_then(|course| course.broken()) {
        Some(broken) => Err(io::Error::other(broken.to_owned())),
        // What was kept when the load began may be taken back meanwhile. A store that failed has its reason already.
        None if ending.summary.is_some() => Ok(breach(" after the load").unwrap_or(ending)),
        None => Ok(ending),
    }
}

/// Looks at a server that is somebody's, as [`run`] does before it writes.
pub fn look(context: &Context, parameters: &RedisWorkload) -> io::Result<Result<(), Failure>> {
    let written = outside::Written::by(&Plan::new(context, parameters));
    Ok(load::outside::look(context, &written)?.map(drop))
}

/// One thread of a redis workload.
struct Redis {
    plan: Arc<Plan>,
    seat: Rc<Seat>,
    ledger: Ledger,
    /// What a fault leaves in doubt.
    doubts: Doubts,
    /// By place. A client is taken out while its task works with it.
    clients: Vec<RefCell<Option<Client>>>,
}

/// What a client keeps from phase to phase.
struct Client {
    connection: Connection,
    picker: KeyPicker,
    /// Values that it has pushed.
    pushes: u32,
}

impl Redis {
    fn take(&self, session: &Session) -> Result<Client, Failure> {
        let client = self.clients.get(session.place() as usize).and_then(RefCell::take);
        client.ok_or_else(|| Failure::new("a client is missing after an earlier failure"))
    }

    fn put_back(&self, session: &Session, client: Client) {
        if let Some(place) = self.clients.get(session.place() as usize) {
            place.replace(Some(client));
        }
    }

    fn around<'a>(&'a self, session: &'a Session, connection: &'a mut Connection) -> Around<'a> {
        Around {
            plan: &self.plan,
            ledger: &self.ledger,
            doubts: self.plan.course.as_ref().map(|_| &self.doubts),
            session,
            connection,
            has_warm_up: !self.seat.context.warm_up.is_zero(),
        }
    }
}

impl Family for Redis {
    type Plan = Plan;

    async fn connect(plan: Arc<Plan>, seat: Rc<Seat>) -> Result<Self, Failure> {
        let keys = Rc::new(ThreadKeys::new(plan.space, seat.clients.clone()));
        let mut clients = Vec::with_capacity(seat.clients.len());
        // Clients and connections are as many, so that the place of one is the place of the other.
        for (place, &number) in seat.connections.iter().enumerate() {
            let protocol = plan.parameters.protocol;
            let context = &seat.context;
            let connection =
                Connection::open(seat.endpoint(number), protocol, context.timeout, context.outside.as_ref()).await?;
            clients.push(RefCell::new(Some(Client {
                connection,
                picker: KeyPicker::new(&keys, place as u32, plan.parameters.key_order, plan.seed),
                pushes: 0,
            })));
        }
        let (ledger, doubts) =
            (Ledger::new(keys, Arc::clone(&plan.shared_versions)), Doubts::new(seat.context.may_lose_writes));
        Ok(Self { ledger, doubts, plan, seat, clients })
    }

    async fn prepare(self: Rc<Self>, session: Session) -> Result<(), Failure> {
        let mut client = self.take(&session)?;
        let slots = self.ledger.keys().owned_slots(session.place());
        self.around(&session, &mut client.connection).prepare(slots).await?;
        self.put_back(&session, client);
        Ok(())
    }

    async fn load(self: Rc<Self>, session: Session) -> Result<(), Failure> {
        if let Some(course) = &self.plan.course {
            return fault::load(&self, &session, course).await;
        }
        let Client { mut connection, picker, mut pushes } = self.take(&session)?;
        let mut measured = Measured::new(&self.plan, &self.ledger, &session, picker, &mut pushes);
        while let Some(batch) = session.next_batch(self.plan.parameters.pipeline).await {
            connection.exchange(&mut measured, &session, batch).await?;
        }
        let picker = measured.finish();
        let client = Client { connection, picker, pushes };
        self.put_back(&session, client);
        Ok(())
    }

    async fn verify(self: Rc<Self>, session: Session) -> Result<(), Failure> {
        let mut client = self.take(&session)?;
        let slots = self.ledger.keys().owned_slots(session.place());
        self.around(&session, &mut client.connection).verify(slots).await?;
        self.put_back(&session, client);
        Ok(())
    }
}
