//! Threads that connections live on: each connection on one, from its first byte to its last.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::socket::Socket;

/// Connections that may wait for their thread.
const WAITING_MAX: usize = 1024;

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
    pub place: OwnedSemaphorePermit,
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
        Ok(Self { workers, stop })
    }

    /// Gives a connection to the thread that has the fewest. Closes it if that thread cannot keep up.
    pub fn give(&self, incoming: Incoming) {
        let fewest = self.workers.iter().min_by_key(|worker| worker.connections.load(Ordering::Relaxed));
        let Some(worker) = fewest else { return };
        worker.connections.fetch_add(1, Ordering::Relaxed);
        if worker.sender.try_send(incoming).is_err() {
            worker.connections.fetch_sub(1, Ordering::Relaxed);
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
                    tasks.spawn_local(serve(incoming, stopped.clone()));
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
