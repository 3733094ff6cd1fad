//! Sockets, connections and the threads that they live on, put together; and how they stop.
//!
//! A server binds its sockets first ([`Bound::bind`]), so that a port that is taken is told before anything else has happened. Then it
//! opens what it serves, and starts ([`Bound::start`]): connections are accepted while [`Server::accept`] runs.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::grpc::{Limits, Memory, Service};
use crate::lines::Lines;
use crate::listen::{self, Front, Group, Role};
use crate::open_files;
use crate::places::Places;
use crate::socket::{Accepting, Listener};
use crate::tls::Tls;
use crate::workers::{Incoming, Workers};

/// How long connections may go on after they were asked to end, if nothing else is said: with what a server does besides, it stops
/// within 10 seconds.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// What messages under way on all connections may take, bytes, if nothing else is said.
const MESSAGES_BYTES_MAX: usize = 1 << 30;

/// Between attempts to accept while there are too many open files.
const PAUSE: Duration = Duration::from_millis(50);

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Open files.
    #[error("the limit on open files (ulimit -n) leaves no room for connections: it is {0}, raise it to some thousand")]
    OpenFiles(u64),
    /// A socket.
    #[error("cannot listen on {0}{remedy}", remedy = what_to_do(.0))]
    Listen(io::Error),
    /// A thread.
    #[error("a thread cannot be started: {0}")]
    Thread(io::Error),
}

/// What to do about a socket that cannot be bound.
fn what_to_do(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; is another server running there?",
        io::ErrorKind::AddrNotAvailable => {
            "; that address is not of this machine: name one that is, or 0.0.0.0 for all of them"
        }
        _ => "",
    }
}

/// What connections are served with.
#[derive(Clone)]
pub struct Options {
    /// Certificates, where a URL begins with `https` or `unixs`.
    pub tls: Option<Arc<Tls>>,
    /// What a connection may use.
    pub limits: Limits,
    /// What messages under way on all connections may take.
    pub memory: Memory,
    /// Threads that connections live on.
    pub threads: usize,
    /// How long connections may go on after they were asked to end.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tls: None,
            limits: Limits::default(),
            memory: Memory::new(MESSAGES_BYTES_MAX),
            threads: threads(),
            patience: PATIENCE,
        }
    }
}

/// As many as the machine has processors.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Sockets on which nothing is accepted yet.
pub struct Bound {
    sockets: Vec<Socket>,
    roles: Vec<Role>,
}

/// A socket, and the places of connections to it and others of its kind.
struct Socket {
    listener: Listener,
    places: Places,
}

impl Bound {
    /// Binds all sockets. Connections may be as many as the limit on open files leaves room for: see [`Places`].
    pub fn bind(groups: &[Group<'_>]) -> Result<Self, StartError> {
        let open_files = open_files::limit();
        let (clients_max, others_max) = open_files::connections_max(open_files);
        if others_max == 0 {
            return Err(StartError::OpenFiles(open_files.unwrap_or_default()));
        }
        let bound = listen::bind(groups).map_err(StartError::Listen)?;
        let (clients, others) = (Places::new(clients_max), Places::new(others_max));
        let place = |(listener, role): (Listener, Role)| {
            let places = if role.grpc { &clients } else { &others }.clone();
            (Socket { listener, places }, role)
        };
        let (sockets, roles) = bound.into_iter().map(place).unzip();
        Ok(Self { sockets, roles })
    }

    /// Where it listens, in the order of the groups.
    pub fn addresses(&self) -> Vec<String> {
        self.sockets.iter().map(|socket| socket.listener.address()).collect()
    }

    /// Starts the threads. `make` makes, on each of them, what serves there; it gets the thread's number.
    pub fn start<S: Service>(
        self,
        options: Options,
        make: impl Fn(usize) -> S + Send + Sync + 'static,
    ) -> Result<Server, StartError> {
        let addresses = self.addresses();
        let Options { tls, limits, memory, threads, patience } = options;
        let roles: Arc<[Role]> = self.roles.into();
        let workers = Workers::start(threads, patience, move |number| {
            let service = Rc::new(make(number));
            let (roles, memory) = (Arc::clone(&roles), memory.clone());
            let (tls, limits, rejected) = (tls.clone(), limits.clone(), RefCell::default());
            let front = Rc::new(Front { service, tls, roles, limits, memory, rejected });
            move |incoming, stop| Rc::clone(&front).serve(incoming, stop)
        });
        let workers = workers.map_err(StartError::Thread)?;
        Ok(Server { workers, sockets: self.sockets, addresses, patience })
    }
}

/// A server: its sockets and its threads.
pub struct Server {
    workers: Workers,
    sockets: Vec<Socket>,
    addresses: Vec<String>,
    patience: Duration,
}

impl Server {
    /// Where it listens, in the order of the groups.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Connections at the moment.
    pub fn connections(&self) -> usize {
        self.workers.connections()
    }

    /// Accepts connections for as long as this runs, on a tokio runtime; to be called once. Dropping it closes the sockets.
    pub async fn accept(&mut self) -> Result<(), StartError> {
        let sockets = std::mem::take(&mut self.sockets);
        let mut accepting = Vec::new();
        for (listener, Socket { listener: socket, places }) in sockets.into_iter().enumerate() {
            let socket = socket.accepting().map_err(StartError::Listen)?;
            accepting.push(accept(socket, listener, &self.workers, places));
        }
        futures::future::join_all(accepting).await;
        Ok(())
    }

    /// Ends all connections, gently as long as the patience lasts, and the threads.
    pub fn stop(self) {
        tracing::info!("stopping: connections have {} s", self.patience.as_secs());
        self.workers.stop();
    }

    /// Serves until `stop` is there, and then ends gently.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), StartError> {
        let result = tokio::select! {
            () = stop => Ok(()),
            result = self.accept() => result,
        };
        self.stop();
        result
    }
}

async fn accept(socket: Accepting, listener: usize, workers: &Workers, places: Places) {
    let [mut lines, mut failed] = [(); 2].map(|()| Lines::default());
    loop {
        match socket.accept().await {
            // Only now: nobody is closed for a connection that does not come.
            Ok(socket) => workers.give(Incoming { socket, listener, place: places.take(&mut lines).await }),
            Err(error) => {
                if let Some(times) = failed.one_more(Instant::now()) {
                    tracing::warn!(%error, times, "a connection could not be accepted");
                }
                // Too many open files: others must end first.
                sleep(PAUSE).await;
            }
        }
    }
}
