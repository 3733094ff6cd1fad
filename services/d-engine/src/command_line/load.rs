//! One run of load: clients on connections, closed loop, each request timed by who made it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use d_engine_client::grpc::{Channel, GrpcError};
use d_engine_client::proto::d_engine::client as second;
use d_engine_client::proto::raft::client as first;
use d_engine_client::{Client, Error, ReadLevel};
use hdrhistogram::Histogram;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet};

use super::access::Access;
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
    /// Requests that failed, and were made again.
    pub failed: u64,
    /// The first of their errors.
    pub problem: Option<String>,
    /// All latencies together, seconds: divided by the time, how many were in flight.
    pub busy_seconds: f64,
}

/// One connection, as its clients use it.
#[derive(Clone)]
enum Connection {
    Unary(Channel),
    First(Channel),
    Stream(Client),
}

#[derive(Default)]
struct Tally {
    latencies: Option<Histogram<u64>>,
    found: u64,
    failed: u64,
    problem: Option<String>,
    busy: Duration,
}

/// Failures of one client after which it gives up.
const FAILURES_MAX: u64 = 1000;

/// Runs it: on two threads, each with its share of connections.
pub fn run(load: &Load, leader: &str) -> anyhow::Result<Measured> {
    let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get).min(load.connections).min(4);
    let next = Arc::new(AtomicU64::new(0));
    let places = load.limits_in_flight.then(|| Arc::new(Semaphore::new(load.connections)));
    let barrier = Arc::new(std::sync::Barrier::new(threads + 1));
    let mut running = Vec::new();
    for number in 0..threads {
        let (load, leader) = (load.clone(), leader.to_owned());
        let (next, places, barrier) = (Arc::clone(&next), places.clone(), Arc::clone(&barrier));
        running.push(thread::spawn(move || -> anyhow::Result<Vec<Tally>> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            LocalSet::new().block_on(&runtime, async move {
                let mut connections = Vec::new();
                let mut problem = None;
                for at in (number..load.connections).step_by(threads) {
                    let spread = matches!(load.work, Work::Get(ReadLevel::Eventual));
                    let endpoint = if spread { &load.endpoints[at % load.endpoints.len()] } else { &leader };
                    match connect(&load.access, load.door, endpoint).await {
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
                        let client = client(load.clone(), connection.clone(), Arc::clone(&next), places.clone());
                        clients.spawn_local(client);
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
        problem: None,
        busy_seconds: 0.0,
    };
    for thread in running {
        let tallies = thread.join().map_err(|_| anyhow::anyhow!("a thread of the load has panicked"))??;
        for Tally { latencies, found, failed, problem, busy } in tallies {
            if let Some(latencies) = latencies {
                measured.latencies.add(latencies)?;
            }
            measured.found += found;
            measured.failed += failed;
            measured.busy_seconds += busy.as_secs_f64();
            measured.problem = measured.problem.or(problem);
        }
    }
    measured.elapsed = begun.elapsed();
    Ok(measured)
}

/// As the report's tool has it: a microsecond to ten minutes, three digits.
fn histogram() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 600_000_000, 3)?)
}

async fn connect(access: &Access, door: Door, endpoint: &str) -> anyhow::Result<Connection> {
    Ok(match door {
        Door::Unary => Connection::Unary(access.channel(endpoint).await?),
        Door::First => Connection::First(access.channel(endpoint).await?),
        Door::Stream => Connection::Stream(access.client(&[endpoint.to_owned()]).await?),
    })
}

async fn client(load: Load, connection: Connection, next: Arc<AtomicU64>, places: Option<Arc<Semaphore>>) -> Tally {
    let mut tally = Tally { latencies: histogram().ok(), ..Tally::default() };
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= load.total {
            return tally;
        }
        let number = number % load.key_space;
        loop {
            let place = match &places {
                Some(places) => places.acquire().await.ok(),
                None => None,
            };
            let begun = Instant::now();
            let outcome = request(&load, &connection, number).await;
            let took = begun.elapsed();
            drop(place);
            match outcome {
                Ok(found) => {
                    tally.found += u64::from(found);
                    tally.busy += took;
                    if let Some(latencies) = &mut tally.latencies {
                        latencies.saturating_record((took.as_micros() as u64).max(1));
                    }
                    break;
                }
                Err(error) => {
                    tally.failed += 1;
                    tally.problem.get_or_insert(error);
                    if tally.failed >= FAILURES_MAX {
                        return tally;
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }
}

/// Whether a value was found, or written.
async fn request(load: &Load, connection: &Connection, number: u64) -> Result<bool, String> {
    let key: Bytes = load.keys.key(number).into();
    match connection {
        Connection::Stream(client) => match load.work {
            Work::Put(bytes) => client.put(key, value(number, bytes)).await.map(|_| true),
            Work::Get(level) => client.get_with(key, level).await.map(|seen| seen.value.is_some()),
        }
        .map_err(|error: Error| error.to_string()),
        Connection::Unary(channel) => unary(load, channel, key, number).await.map_err(|error| error.to_string()),
        Connection::First(channel) => old(load, channel, key, number).await.map_err(|error| error.to_string()),
    }
}

const POLICIES: &str = "the dialects have no bounded reads";

fn policy(level: ReadLevel) -> Result<i32, GrpcError> {
    match level {
        ReadLevel::Lease => Ok(0),
        ReadLevel::Linearizable => Ok(1),
        ReadLevel::Eventual => Ok(2),
        ReadLevel::Bounded { .. } => Err(GrpcError::Broken(POLICIES.into())),
    }
}

async fn unary(load: &Load, channel: &Channel, key: Bytes, number: u64) -> Result<bool, GrpcError> {
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
        None => Err(GrpcError::Broken(format!("error {} in the answer", response.error))),
    }
}

async fn old(load: &Load, channel: &Channel, key: Bytes, number: u64) -> Result<bool, GrpcError> {
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
        None => Err(GrpcError::Broken(format!("error {} in the answer", response.error))),
    }
}
