//! One run of load: clients on connections, closed loop, each request timed by who made it.
//!
//! It goes on at the new leader when leaders change, and ends at the first answer that no repetition would change.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use d_engine_client::grpc::{Channel, GrpcError};
use d_engine_client::proto::d_engine::client as second;
use d_engine_client::proto::raft::client as first;
use d_engine_client::{Client, Error, ReadLevel};
use hdrhistogram::Histogram;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::{JoinSet, LocalSet};

use super::access::Access;
use super::ctl;
use super::keys::{Keys, value};

/// What is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Door {
    /// The dialect of release 0.2.4, a call for each operation.
    Unary,
    /// The dialect of release 0.1.4, a call for each operation.
    First,
    /// The streaming RPC: many operations a frame.
    Stream,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Puts of values of so many bytes.
    Put(usize),
    /// Gets.
    Get(ReadLevel),
}

/// A run.
#[derive(Clone, Debug)]
pub struct Load {
    pub access: Access,
    pub endpoints: Vec<String>,
    pub connections: usize,
    pub clients: usize,
    pub total: u64,
    pub keys: Keys,
    pub key_space: u64,
    pub door: Door,
    pub work: Work,
    /// In flight are as many requests as there are connections, and clocks start when a request is let in.
    pub limits_in_flight: bool,
}

/// What a run came to.
pub struct Measured {
    pub elapsed: Duration,
    /// Of requests that succeeded, microseconds.
    pub latencies: Histogram<u64>,
    /// Gets that found a value.
    pub found: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Those of them that were made again.
    pub made_again: u64,
    /// The first of their errors.
    pub problem: Option<String>,
    /// What no repetition would have changed: the run has ended with it.
    pub refusal: Option<String>,
    /// All latencies together, seconds: divided by the time, how many were in flight.
    pub busy_seconds: f64,
}

/// One connection, as its clients use it.
#[derive(Clone)]
enum Connection {
    Unary(Rc<Seat>),
    First(Rc<Seat>),
    /// It finds members by itself.
    Stream(Client),
}

/// A connection to a member, which may be another one later.
struct Seat {
    channel: RefCell<Channel>,
    /// How often it was another one.
    moves: Cell<u64>,
    moving: Mutex<()>,
    /// Where it looks next, if it is not bound to the leader.
    next: Option<Cell<usize>>,
}

/// A client's own handle of its connection, and how often that was another one.
type Held = Option<(Channel, u64)>;

/// What all clients of a run share.
struct Run {
    next: AtomicU64,
    /// Nothing more is begun.
    is_over: AtomicBool,
    places: Option<Semaphore>,
}

#[derive(Default)]
struct Tally {
    latencies: Option<Histogram<u64>>,
    found: u64,
    failed: u64,
    made_again: u64,
    problem: Option<String>,
    refusal: Option<String>,
    busy: Duration,
}

/// Why a request has failed.
enum Failure {
    /// It will fail again.
    Refused(String),
    /// The member does not lead, or is lost: another one is looked for.
    Elsewhere(String),
    /// It may succeed the next time.
    Passing(String),
}

/// A client gives up when nothing has succeeded for so long; and so does a run that finds no leader to begin with.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Before a request is made again.
const RETRY: Duration = Duration::from_millis(10);

/// Runs it: on two threads, each with its share of connections.
pub fn run(load: &Load, leader: &str) -> anyhow::Result<Measured> {
    let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get).min(load.connections).min(4);
    let places = load.limits_in_flight.then(|| Semaphore::new(load.connections));
    let shared = Arc::new(Run { next: AtomicU64::new(0), is_over: AtomicBool::new(false), places });
    let barrier = Arc::new(std::sync::Barrier::new(threads + 1));
    let mut running = Vec::new();
    for number in 0..threads {
        let (load, leader) = (load.clone(), leader.to_owned());
        let (shared, barrier) = (Arc::clone(&shared), Arc::clone(&barrier));
        running.push(thread::spawn(move || -> anyhow::Result<Vec<Tally>> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            LocalSet::new().block_on(&runtime, async move {
                let mut connections = Vec::new();
                let mut problem = None;
                for at in (number..load.connections).step_by(threads) {
                    match connect(&load, at, &leader).await {
                        Ok(connection) => connections.push((at, connection)),
                        Err(error) => problem = Some(error),
                    }
                }
                // Everybody begins at once, also who has failed.
                tokio::task::spawn_blocking(move || barrier.wait()).await?;
                if let Some(problem) = problem {
                    return Err(problem);
                }
                let mut clients = JoinSet::new();
                for (at, connection) in &connections {
                    for _ in (*at..load.clients).step_by(load.connections) {
                        clients.spawn_local(client(load.clone(), connection.clone(), Arc::clone(&shared)));
                    }
                }
                Ok(clients.join_all().await)
            })
        }));
    }
    barrier.wait();
    let begun = Instant::now();
    let mut measured = Measured {
        elapsed: Duration::ZERO,
        latencies: histogram()?,
        found: 0,
        failed: 0,
        made_again: 0,
        problem: None,
        refusal: None,
        busy_seconds: 0.0,
    };
    for thread in running {
        let tallies = thread.join().map_err(|_| anyhow::anyhow!("a thread of the load has panicked"))??;
        for Tally { latencies, found, failed, made_again, problem, refusal, busy } in tallies {
            if let Some(latencies) = latencies {
                measured.latencies.add(latencies)?;
            }
            measured.found += found;
            measured.failed += failed;
            measured.made_again += made_again;
            measured.busy_seconds += busy.as_secs_f64();
            measured.problem = measured.problem.or(problem);
            measured.refusal = measured.refusal.or(refusal);
        }
    }
    measured.elapsed = begun.elapsed();
    Ok(measured)
}

/// As the report's tool has it: a microsecond to ten minutes, three digits.
fn histogram() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 600_000_000, 3)?)
}

/// Whether any member will do.
fn is_spread(load: &Load) -> bool {
    matches!(load.work, Work::Get(ReadLevel::Eventual))
}

async fn connect(load: &Load, at: usize, leader: &str) -> anyhow::Result<Connection> {
    let spread = is_spread(load);
    if load.door == Door::Stream {
        let mut endpoints = load.endpoints.clone();
        match spread {
            true => endpoints.rotate_left(at % load.endpoints.len()),
            false => endpoints.insert(0, leader.to_owned()),
        }
        return Ok(Connection::Stream(load.access.client(&endpoints).await?));
    }
    let seat = match spread {
        true => {
            let (channel, next) = open_next(load, at).await?;
            Seat::new(channel, Some(next))
        }
        false => Seat::new(load.access.channel(leader).await?, None),
    };
    Ok(if load.door == Door::Unary { Connection::Unary(Rc::new(seat)) } else { Connection::First(Rc::new(seat)) })
}

/// A connection to the first of the members from this one on that can be reached, and which one comes after it.
async fn open_next(load: &Load, at: usize) -> Result<(Channel, usize), GrpcError> {
    let mut problem = GrpcError::Connect("no address was given".into());
    for at in at..at + load.endpoints.len() {
        match load.access.channel(&load.endpoints[at % load.endpoints.len()]).await {
            Ok(channel) => return Ok((channel, at + 1)),
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

impl Seat {
    fn new(channel: Channel, next: Option<usize>) -> Self {
        let (channel, next) = (RefCell::new(channel), next.map(Cell::new));
        Self { channel, moves: Cell::new(0), moving: Mutex::default(), next }
    }

    /// The connection, and how often it was another one before; what a client holds of it is made new when it has changed.
    fn now<'a>(&self, held: &'a mut Held) -> &'a (Channel, u64) {
        if held.as_ref().is_none_or(|(_, moves)| *moves != self.moves.get()) {
            *held = None;
        }
        held.get_or_insert_with(|| (self.channel.borrow().clone(), self.moves.get()))
    }

    /// Looks for the leader, or for another member, unless somebody has since then.
    async fn move_on(&self, load: &Load, moves: u64) {
        let _turn = self.moving.lock().await;
        if self.moves.get() != moves {
            return;
        }
        let found = match &self.next {
            Some(next) => match open_next(load, next.get()).await {
                Ok((channel, after)) => {
                    next.set(after);
                    Some(channel)
                }
                Err(_) => None,
            },
            None => match ctl::find_leader(&load.access, &load.endpoints).await {
                Ok((leader, _)) => load.access.channel(&leader).await.ok(),
                Err(_) => None,
            },
        };
        // Else the next request fails as this one did, and looks again.
        if let Some(channel) = found {
            self.channel.replace(channel);
            self.moves.set(moves + 1);
        }
    }
}

async fn client(load: Load, connection: Connection, run: Arc<Run>) -> Tally {
    let mut tally = Tally { latencies: histogram().ok(), ..Tally::default() };
    let mut succeeded = Instant::now();
    let mut held = None;
    while !run.is_over.load(Ordering::Relaxed) {
        let number = run.next.fetch_add(1, Ordering::Relaxed);
        if number >= load.total {
            break;
        }
        let number = number % load.key_space;
        loop {
            let place = match &run.places {
                Some(places) => places.acquire().await.ok(),
                None => None,
            };
            let begun = Instant::now();
            let outcome = request(&load, &connection, &mut held, number).await;
            let took = begun.elapsed();
            drop(place);
            let (failure, moves) = match outcome {
                Ok(found) => {
                    succeeded = Instant::now();
                    tally.found += u64::from(found);
                    tally.busy += took;
                    if let Some(latencies) = &mut tally.latencies {
                        latencies.saturating_record((took.as_micros() as u64).max(1));
                    }
                    break;
                }
                Err(failure) => failure,
            };
            tally.failed += 1;
            let (Failure::Refused(said) | Failure::Elsewhere(said) | Failure::Passing(said)) = &failure;
            tally.problem.get_or_insert_with(|| said.clone());
            if let Failure::Refused(said) = failure {
                run.is_over.store(true, Ordering::Relaxed);
                tally.refusal.get_or_insert(said);
                break;
            }
            if run.is_over.load(Ordering::Relaxed) || succeeded.elapsed() > PATIENCE {
                return tally;
            }
            tokio::time::sleep(RETRY).await;
            if let (Failure::Elsewhere(_), Connection::Unary(seat) | Connection::First(seat)) = (&failure, &connection)
            {
                seat.move_on(&load, moves).await;
            }
            tally.made_again += 1;
        }
    }
    tally
}

/// Whether a value was found, or written; why not, and how often the connection was another one when it was asked.
async fn request(load: &Load, connection: &Connection, held: &mut Held, number: u64) -> Result<bool, (Failure, u64)> {
    let key: Bytes = load.keys.key(number).into();
    match connection {
        Connection::Stream(client) => match load.work {
            Work::Put(bytes) => client.put(key, value(number, bytes)).await.map(|_| true),
            Work::Get(level) => client.get_with(key, level).await.map(|seen| seen.value.is_some()),
        }
        .map_err(|error| (Failure::of(&error), 0)),
        Connection::Unary(seat) => {
            let (channel, moves) = seat.now(held);
            unary(load, channel, key, number).await.map_err(|failure| (failure, *moves))
        }
        Connection::First(seat) => {
            let (channel, moves) = seat.now(held);
            old(load, channel, key, number).await.map_err(|failure| (failure, *moves))
        }
    }
}

impl Failure {
    fn of(error: &Error) -> Self {
        if error.is_temporary() { Self::Passing(error.to_string()) } else { Self::Refused(error.to_string()) }
    }
}

/// Status codes of gRPC that come again, however often one asks: invalid, out of range, permission, unimplemented, unauthenticated.
const REFUSALS: [u8; 5] = [3, 7, 11, 12, 16];
/// Much waits.
const RESOURCE_EXHAUSTED: u8 = 8;

impl From<GrpcError> for Failure {
    fn from(error: GrpcError) -> Self {
        let said = error.to_string();
        match error {
            GrpcError::Status { code, .. } if REFUSALS.contains(&code) => Self::Refused(said),
            GrpcError::Status { code: RESOURCE_EXHAUSTED, .. } => Self::Passing(said),
            // Not leader, no quorum, the connection is lost: members know more of each other than is known here.
            GrpcError::Connect(_) | GrpcError::Broken(_) | GrpcError::Status { .. } => Self::Elsewhere(said),
        }
    }
}

/// Error codes within answers, of both dialects.
const NOT_LEADER: i32 = 4001;
const INVALID_REQUEST: i32 = 4003;
const PERMISSION_DENIED: i32 = 3004;

fn failure_of_code(code: i32) -> Failure {
    let said = format!("error {code} in the answer");
    match code {
        NOT_LEADER => Failure::Elsewhere(format!("{said}: not leader")),
        INVALID_REQUEST | PERMISSION_DENIED => Failure::Refused(said),
        _ => Failure::Passing(said),
    }
}

const POLICIES: &str = "the dialects have no bounded reads";

fn policy(level: ReadLevel) -> Result<i32, Failure> {
    match level {
        ReadLevel::Lease => Ok(0),
        ReadLevel::Linearizable => Ok(1),
        ReadLevel::Eventual => Ok(2),
        ReadLevel::Bounded { .. } => Err(Failure::Refused(POLICIES.into())),
    }
}

async fn unary(load: &Load, channel: &Channel, key: Bytes, number: u64) -> Result<bool, Failure> {
    use second::client_response::SuccessResult;
    use second::write_command::{Insert, Operation};
    let response: second::ClientResponse = match load.work {
        Work::Put(bytes) => {
            let insert = Insert { key, value: value(number, bytes).into(), ttl_secs: 0 };
            let command = Some(second::WriteCommand { operation: Some(Operation::Insert(insert)) });
            let request = second::ClientWriteRequest { client_id: 1, command };
            channel.unary("/d_engine.client.RaftClientService/HandleClientWrite", &request).await?
        }
        Work::Get(level) => {
            let consistency_policy = Some(policy(level)?);
            let request = second::ClientReadRequest { client_id: 1, keys: vec![key], consistency_policy };
            channel.unary("/d_engine.client.RaftClientService/HandleClientRead", &request).await?
        }
    };
    match response.success_result {
        Some(SuccessResult::WriteResult(result)) => Ok(result.succeeded),
        Some(SuccessResult::ReadData(data)) => Ok(!data.results.is_empty()),
        None => Err(failure_of_code(response.error)),
    }
}

async fn old(load: &Load, channel: &Channel, key: Bytes, number: u64) -> Result<bool, Failure> {
    use first::client_response::SuccessResult;
    use first::write_command::{Insert, Operation};
    let response: first::ClientResponse = match load.work {
        Work::Put(bytes) => {
            let insert = Insert { key, value: value(number, bytes).into() };
            let commands = vec![first::WriteCommand { operation: Some(Operation::Insert(insert)) }];
            let request = first::ClientWriteRequest { client_id: 1, commands };
            channel.unary("/raft.client.RaftClientService/HandleClientWrite", &request).await?
        }
        Work::Get(level) => {
            let consistency_policy = Some(policy(level)?);
            let request = first::ClientReadRequest { client_id: 1, keys: vec![key], consistency_policy };
            channel.unary("/raft.client.RaftClientService/HandleClientRead", &request).await?
        }
    };
    match response.success_result {
        Some(SuccessResult::WriteAck(is_written)) => Ok(is_written),
        Some(SuccessResult::ReadData(data)) => Ok(!data.results.is_empty()),
        None => Err(failure_of_code(response.error)),
    }
}
