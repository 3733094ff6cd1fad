//! Threads that connections live on: each connection on one, from its first byte to its last.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::lines::Lines;
use crate::places::Place;
use crate::socket::Socket;

/// Connections that may wait for their thread.
const WAITING_MAX: usize = 1024;

/// Connections of this process that were closed because their thread could not keep up.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// How many connections of this process were closed at once, for [`crate::metrics::Process`]: the thread that they were for had more of them
/// waiting than it may have.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// A clock that always runs while there are connections. A thread whose next clock rings later than one that is set wakes itself for
/// that, with two system calls; deadlines of requests are later than this.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// A connection that was accepted.
#[derive(Debug)]
pub struct Incoming {
    /// Not blocking.
    pub socket: Socket,
    /// Which of the listeners it came to.
    pub listener: usize,
    /// Its place among those that may be open at a time, free again when it has ended.
    pub place: Place,
}

struct Worker {
    sender: mpsc::Sender<Incoming>,
    connections: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

/// The threads.
pub struct Workers {
    workers: Vec<Worker>,
    stop: watch::Sender<bool>,
    lines: Mutex<Lines>,
}

impl Workers {
    /// Starts so many threads. On each of them `make` makes what serves a connection; what that gets besides turns true when
    /// the connection shall come to its end. After that, connections have `patience`.
    pub fn start<C, F>(
        threads: usize,
        patience: Duration,
        make: impl Fn(usize) -> C + Send + Sync + 'static,
    ) -> io::Result<Self>
    where
        C: Fn(Incoming, watch::Receiver<bool>) -> F + 'static,
        F: Future<Output = ()> + 'static,
    {
        let (stop, stopped) = watch::channel(false);
        let make = Arc::new(make);
        let mut workers = Vec::new();
        for number in 0..threads.max(1) {
            let (sender, receiver) = mpsc::channel(WAITING_MAX);
            let connections = Arc::new(AtomicUsize::new(0));
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (make, stopped, load) = (Arc::clone(&make), stopped.clone(), Arc::clone(&connections));
            let work = move || {
                let serve = make(number);
                LocalSet::new().block_on(&runtime, accept(receiver, serve, stopped, load, patience));
            };
            let thread = std::thread::Builder::new().name(format!("worker-{number}")).spawn(work)?;
            workers.push(Worker { sender, connections, thread });
        }
        Ok(Self { workers, stop, lines: Mutex::default() })
    }

    /// Gives a connection to the thread that has the fewest. Closes it if that thread cannot keep up, and tells so.
    pub fn give(&self, incoming: Incoming) {
        let fewest = self.workers.iter().min_by_key(|worker| worker.connections.load(Ordering::Relaxed));
        let Some(worker) = fewest else { return };
        worker.connections.fetch_add(1, Ordering::Relaxed);
        if worker.sender.try_send(incoming).is_err() {
            worker.connections.fetch_sub(1, Ordering::Relaxed);
            DROPPED.fetch_add(1, Ordering::Relaxed);
            let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(connections) = lines.one_more(Instant::now()) {
                tracing::warn!(
                    connections,
                    "connections were closed: their thread cannot keep up with {WAITING_MAX} that wait"
                );
            }
        }
    }

    /// Connections at the moment.
    pub fn connections(&self) -> usize {
        self.workers.iter().map(|worker| worker.connections.load(Ordering::Relaxed)).sum()
    }

    /// Ends all connections, gently as long as the patience lasts, and the threads.
    pub fn stop(self) {
        self.stop.send_replace(true);
        // All of them are told before one is waited for: the patience is theirs together, and not of one after the other.
        let threads: Vec<_> = self.workers.into_iter().map(|Worker { thread, .. }| thread).collect();
        for thread in threads {
            // A thread that has panicked has ended as well.
            let _ = thread.join();
        }
    }
}

async fn accept<C, F>(
    mut receiver: mpsc::Receiver<Incoming>,
    serve: C,
    stopped: watch::Receiver<bool>,
    connections: Arc<AtomicUsize>,
    patience: Duration,
) where
    C: Fn(Incoming, watch::Receiver<bool>) -> F,
    F: Future<Output = ()> + 'static,
{
    let mut tasks = JoinSet::new();
    let mut heartbeat = interval(HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            incoming = receiver.recv() => match incoming {
                Some(incoming) => {
                    let served_by = incoming.place.served_by();
                    served_by(tasks.spawn_local(serve(incoming, stopped.clone())));
                }
                None => break,
            },
            Some(_) = tasks.join_next() => {
                connections.fetch_sub(1, Ordering::Relaxed);
            }
            _ = heartbeat.tick(), if !tasks.is_empty() => {}
        }
    }
    // What has not ended by then is cut off.
    let _ = timeout(patience, async { while tasks.join_next().await.is_some() {} }).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::Places;
    use std::os::unix::net::UnixStream;

    #[tokio::test]
    async fn a_connection_that_its_thread_has_no_place_for_is_counted() {
        // Nobody takes what is given to it.
        let (sender, _receiver) = mpsc::channel(1);
        let worker = Worker { sender, connections: Arc::default(), thread: std::thread::spawn(|| ()) };
        let workers = Workers { workers: vec![worker], stop: watch::Sender::new(false), lines: Mutex::default() };
        let (places, mut lines) = (Places::new(3), Lines::default());
        let mut clients = Vec::new();
        for _ in 0..3 {
            let (client, socket) = UnixStream::pair().unwrap();
            let place = places.take(&mut lines).await;
            workers.give(Incoming { socket: Socket::Unix(socket), listener: 0, place });
            clients.push(client);
        }
        assert_eq!((workers.connections(), places.free(), dropped()), (1, 2, 2));
    }
}
