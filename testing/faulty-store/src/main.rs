//! `faulty-store`: a real store behind a proxy with planted faults, posing as the store's own binary.
//!
//! storebench claims that its numbers can be trusted. This instrument puts that to the test: it is slower by a known
//! share, or loses a known share of writes, or flips bytes, or stops, and storebench must say so. Without a fault it is
//! the control arm, and storebench must find nothing.
//!
//! Promises: what is not a planted fault is the store's own behaviour: its arguments, its output, its signals, its end;
//! a fault that cannot be planted as asked for is refused before the store is started. See README.md for use.

mod arguments;
mod child;
mod etcd;
mod faults;
mod frames;
mod hold;
mod protobuf;
mod proxy;
mod redis;
mod resp;
mod tally;

use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::exit;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use clap::Parser;

use arguments::Listen;
use faults::{Faults, Store};
use hold::Delay;
use tally::Tally;

/// Exit status for bad usage.
const USAGE: i32 = 2;
/// Exit status of the fault `refuse`.
const REFUSED: i32 = 3;

/// Starts a real store behind a proxy with planted faults. Without a fault the proxy is transparent.
#[derive(Debug, Parser)]
#[command(name = "faulty-store", version, after_help = FAULTS)]
struct Cli {
    /// What the store is, and so which protocol it speaks
    #[arg(long, value_enum)]
    store: Store,
    /// The store's own binary
    #[arg(long, value_name = "PATH")]
    upstream: PathBuf,
    /// A fault to plant, may be repeated
    #[arg(long = "fault", value_name = "NAME[=VALUE]")]
    faults: Vec<String>,
    /// The store's own arguments; without a listen address in them the store is run as it is
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

const FAULTS: &str = "\
Faults:
  delay-percent=N          each answer takes N percent longer at the proxy
  delay-micros=N           each answer takes N µs longer
  drop-write-every=N       every Nth write is acknowledged and never made
  flip-value-every=N       every Nth value read has a bit flipped in its last byte
  stop-after-millis=N      SIGSTOP N ms after the first request …
  stop-for-millis=N        … and SIGCONT N ms after that
  kill-after-millis=N      SIGKILL N ms after the 101st request
  arm-after-requests=N     stop and kill count from the request after the Nth instead
  disk-full-after-bytes=N  no file of the store can grow beyond N bytes
  never-ready              nothing is started; connections are accepted and never answered
  refuse                   nothing is started; exit status 3";

fn main() {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    match arguments.get(1).and_then(|argument| argument.to_str()) {
        Some(child::BECOME_STORE) => fail(&child::become_store(&arguments[2..]), USAGE),
        Some(child::DIE_OF) => child::die_of(&arguments[2..]),
        _ => {}
    }
    let cli = Cli::try_parse().unwrap_or_else(|error| {
        if !error.use_stderr() {
            error.exit(); // --help, --version
        }
        let text = error.to_string();
        let complaint = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
        fail(&complaint.split_whitespace().collect::<Vec<_>>().join(" "), USAGE)
    });
    let faults = Faults::parse(&cli.faults, cli.store).unwrap_or_else(|error| fail(&error, USAGE));
    match Listen::find(cli.store, &cli.arguments) {
        Err(error) => fail(&error, USAGE),
        Ok(None) => fail(&child::exec_unchanged(&cli.upstream, &cli.arguments), USAGE),
        Ok(Some(_)) if faults.refuse => fail("refuses to start, as planted", REFUSED),
        Ok(Some(listen)) => {
            if let Err(error) = run(&cli, faults, &listen) {
                fail(&format!("{error:#}"), 1);
            }
        }
    }
}

fn fail(error: &str, status: i32) -> ! {
    eprintln!("faulty-store: {error}");
    exit(status)
}

/// Starts store and proxy, and ends with the store.
fn run(cli: &Cli, faults: Faults, listen: &Listen) -> anyhow::Result<()> {
    // Taken before the store is started, as the store itself would fail on an address that is not free. Connections
    // that come before the store is ready wait in the backlog.
    let bind = |address: &SocketAddr| {
        TcpListener::bind(address).map_err(|error| anyhow::anyhow!("cannot listen on {address}: {error}"))
    };
    let listeners = listen.addresses.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
    if faults.never_ready {
        never_answer(&listeners)?;
    }
    let port = free_port(listen)?;
    let upstream = listen.upstream(port);
    let file_max_bytes = faults.disk_full_after_bytes;
    let tally = Arc::new(Tally::new(faults));
    let store = cli.store;

    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let status = runtime.block_on(async {
        let mut signals = child::Signals::catch()?;
        let mut child = child::start(&cli.upstream, &listen.rewrite(&cli.arguments, port), file_max_bytes)?;
        if let Some(pid) = child::pid(&child) {
            tally.store_is(pid);
        }
        let tally = tally.clone();
        thread::spawn(move || {
            await_store(upstream);
            let delay = Delay::of(tally.faults()).unwrap_or_else(|error| fail(&format!("cannot measure: {error}"), 1));
            let proxy = Arc::new(Proxy { store, upstream, delay, tally, newest: Arc::default() });
            for listener in listeners {
                let proxy = proxy.clone();
                thread::spawn(move || proxy.serve(&listener));
            }
        });
        signals.pass_on_until_end(&mut child).await
    })?;
    eprintln!("faulty-store: the store has ended: {status}; {tally}");
    child::end_like(status)
}

/// Returns when the store takes connections. If it never does it ends, and this process with it.
fn await_store(upstream: SocketAddr) {
    while TcpStream::connect(upstream).is_err() {
        thread::sleep(Duration::from_micros(500));
    }
}

/// Accepts and is silent, until a signal ends this process.
fn never_answer(listeners: &[TcpListener]) -> io::Result<()> {
    thread::scope(|scope| {
        for listener in listeners {
            // Kept open, all of them.
            scope.spawn(|| listener.incoming().filter_map(Result::ok).collect::<Vec<_>>());
        }
    });
    Err(io::Error::other("no listener is left"))
}

/// A port that is free on the store's address. Not one that the system gives out to clients, or a client could have it
/// before the store does.
fn free_port(listen: &Listen) -> io::Result<u16> {
    const PORTS: std::ops::Range<u32> = 20_000..30_000;
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.subsec_nanos() / 100);
    let start = clock.wrapping_add(std::process::id().wrapping_mul(7919));
    let ports = (0..PORTS.len() as u32).map(|n| PORTS.start + start.wrapping_add(n) % PORTS.len() as u32);
    let mut ports = ports.map(|port| port as u16);
    ports
        .find(|port| listen.addresses.iter().all(|address| TcpListener::bind((address.ip(), *port)).is_ok()))
        .ok_or_else(|| io::Error::other("no port is free for the store"))
}

/// What every connection needs.
struct Proxy {
    store: Store,
    upstream: SocketAddr,
    delay: Option<Delay>,
    tally: Arc<Tally>,
    newest: Arc<etcd::Newest>,
}

impl Proxy {
    fn serve(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            let Ok(client) = client else {
                // Out of file descriptors, most likely: not to be tried again at once.
                thread::sleep(Duration::from_millis(10));
                continue;
            };
            let proxy = self.clone();
            thread::spawn(move || {
                if let Err(error) = proxy.carry(client)
                    && std::env::var_os("FAULTY_STORE_DEBUG").is_some()
                {
                    eprintln!("faulty-store: a connection ended: {error:#}");
                }
            });
        }
    }

    fn carry(&self, client: TcpStream) -> anyhow::Result<()> {
        let (faults, tally, delay) = (self.tally.faults(), &self.tally, self.delay);
        match self.store {
            _ if !faults.edits() && delay.is_none() => {}
            Store::Redis | Store::Valkey => {
                return Ok(proxy::carry(&client, self.upstream, delay, redis::conversation(tally))?);
            }
            // /health and /metrics come by HTTP/1 on the same port.
            Store::Etcd if !speaks_http2(&client)? => {}
            Store::Etcd if delay.is_some() => {
                return Ok(proxy::carry(&client, self.upstream, delay, frames::conversation(tally))?);
            }
            Store::Etcd => return etcd::carry(client, self.upstream, tally, &self.newest),
        }
        Ok(proxy::carry(&client, self.upstream, delay, proxy::unknown_protocol(tally))?)
    }
}

/// Looks at the first bytes of a connection and leaves them there.
fn speaks_http2(client: &TcpStream) -> io::Result<bool> {
    // As few as tell it from any method of HTTP/1.
    let mut start = [0; 3];
    loop {
        let length = client.peek(&mut start)?;
        if start[..length] != frames::PREFACE[..length] || length == 0 {
            return Ok(false);
        }
        if length == start.len() {
            return Ok(true);
        }
        thread::sleep(Duration::from_millis(1));
    }
}
