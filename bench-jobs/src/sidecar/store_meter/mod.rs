//! `store-meter`: stands beside one member of a store and says what it costs, what it uses and whether it answers.
//!
//! In a pod it is a native sidecar that starts before the store, sees its processes (`shareProcessNamespace: true`), runs
//! as the same user and has its data directory mounted read-only. It needs no capability, writes nothing and, once the
//! store has been watched for a moment after its start, does not wake up unless it is asked, by `GET`:
//!
//! What it answers is [`storebench_crds::meter`].
//!
//! | path | answers |
//! | --- | --- |
//! | `/livez` | 200 |
//! | `/readyz` | 200 if the store answers what it is asked (`--ready`) now, else 503 and why not |
//! | `/reading` | a [`Reading`]; with `?pss=true` with the proportional set size, whose reading holds up the store; with `?switches=false` without context switches |
//! | `/store` | a [`MemberReading`] |
//! | `/fsyncs` | how often the store has synced its disk so far, a number; 503 where it does not say |
//! | `/protocol` | what of the protocol the store serves, tried out: a list of [`Check`](storebench_crds::meter::Check) |
//!
//! With `--strike-token` it also strikes the store, for whoever shows the token ([`strike`]): `POST /strike`, and `GET /struck`.
//!
//! [`watch`] finds the store's processes, [`start_up`] measures their start.

pub mod start_up;
pub mod strike;
pub mod watch;

use std::ffi::OsString;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use clap::Parser;
use storebench_crds::job::SyncCounters;
use storebench_crds::meter::{self, MemberReading, Reading, Syncs};

use crate::failure::short_line;
use crate::family::probe::{self, Protocol, Readiness};
use crate::measure::disk;
use crate::measure::fsyncs;
use crate::measure::machine;
use crate::net::http_server::{Answer, Request, serve_with_posts};
use crate::program;

use start_up::StartUp;
use strike::{Striker, Token};
use watch::{Watch, Whose};

/// Threads that answer: a kubelet, a loader, who waits for the end of a strike, and a person do not wait for one another.
const THREADS: usize = 4;

/// Stands beside a store: says what it costs, what it uses, and whether it answers.
///
/// Runs in the store's pod as a native sidecar, with shareProcessNamespace: true and the store's own user.
#[derive(Parser, Debug)]
#[command(name = "store-meter", version)]
struct Arguments {
    /// What the store speaks: etcd, redis or s3.
    #[arg(long, env = "STORE_METER_PROTOCOL")]
    protocol: Protocol,
    /// Where the store listens, such as 127.0.0.1:2379.
    #[arg(long, value_name = "ADDRESS", env = "STORE_METER_STORE")]
    store: SocketAddr,
    /// What it is asked to find out whether it serves: `protocol` (its own), `http:PORT/PATH`, `tcp:PORT`, or `running`, which
    /// asks nothing.
    #[arg(long, value_name = "QUESTION", env = "STORE_METER_READY", default_value = "protocol")]
    ready: Question,
    /// Where it serves metrics, and what counts the syncs of its disk there, each with how many syncs one of it is:
    /// `PORT/PATH,NAME=COUNT,…`. Absent: it does not count them.
    #[arg(long, value_name = "COUNTERS", env = "STORE_METER_SYNCS")]
    syncs: Option<Syncs>,
    /// The store's data directory, to weigh it. Absent: not weighed.
    #[arg(long, value_name = "DIRECTORY", env = "STORE_METER_DATA")]
    data: Option<PathBuf>,
    /// Where to answer.
    #[arg(long, value_name = "ADDRESS", env = "STORE_METER_LISTEN", default_value = "0.0.0.0:9465")]
    listen: SocketAddr,
    /// The store's process, where it is not in a pod of its own. Absent: the processes of the pod's other containers.
    #[arg(long, value_name = "PID", env = "STORE_METER_PID")]
    pid: Option<u32>,
    /// The name of the store's executable, where the pod's other containers are not all of the store.
    #[arg(long, value_name = "NAME", env = "STORE_METER_EXECUTABLE", conflicts_with = "pid")]
    executable: Option<String>,
    /// Kill the store, or let it stand still for a while, for whoever shows this token. Absent: for nobody. Better given as a variable,
    /// since a command line can be read by others.
    #[arg(long, value_name = "TOKEN", env = "STORE_METER_STRIKE_TOKEN", hide_env_values = true)]
    strike_token: Option<Token>,
}

/// Runs `store-meter` with the given arguments, the first of which is the program's name.
pub fn main_with<I, T>(arguments: I) -> ExitCode
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    program::main_with("store-meter", arguments, run)
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    let watch = Arc::new(Watch::new(match (arguments.pid, arguments.executable) {
        (Some(pid), _) => Whose::Process(pid),
        (None, Some(name)) => Whose::Executable(watch::command_name(&name)),
        (None, None) => Whose::Every,
    }));
    let meter = Arc::new(StoreMeter {
        protocol: arguments.protocol,
        store: arguments.store,
        syncs: arguments.syncs.map(|syncs| counted_beside(syncs, arguments.store)),
        data: arguments.data,
        readiness: arguments.ready.of(arguments.protocol, arguments.store),
        striker: Striker::new(arguments.strike_token, Arc::clone(&watch)),
        watch,
        start_up: Mutex::new(Err("the store's process has not been looked for yet".into())),
    });
    let asked = Arc::clone(&meter);
    let address =
        serve_with_posts(arguments.listen, "meter", THREADS, &[meter::STRIKE], move |request| asked.answer(request))
            .map_err(|error| anyhow::anyhow!("--listen {}: {error}", arguments.listen))?;
    tell(&format!("at http://{address}, beside {:?} at {}", meter.protocol, meter.store));
    start_up::measure(&meter);
    loop {
        // What is left to do is done by the threads that answer.
        thread::park();
    }
}

/// A line for people.
fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "store-meter: {}", short_line(line));
}

/// What a store is asked, as it is written on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Question {
    Protocol,
    Http(u16, String),
    Tcp(u16),
    Running,
}

impl FromStr for Question {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        const REMEDY: &str = "write protocol, http:PORT/PATH, tcp:PORT or running";
        match text.split_once(':') {
            None if text == "protocol" => Ok(Self::Protocol),
            None if text == "running" => Ok(Self::Running),
            Some(("tcp", port)) => port.parse().map(Self::Tcp).map_err(|_| REMEDY),
            Some(("http", rest)) => {
                let (port, path) = rest.split_once('/').ok_or(REMEDY)?;
                Ok(Self::Http(port.parse().map_err(|_| REMEDY)?, format!("/{path}")))
            }
            _ => Err(REMEDY),
        }
    }
}

impl Question {
    /// The question to a store at this address.
    fn of(self, protocol: Protocol, store: SocketAddr) -> Readiness {
        let at = |port| SocketAddr::new(store.ip(), port);
        match self {
            Self::Protocol => Readiness::Protocol(protocol, store),
            Self::Http(port, path) => Readiness::Http(at(port), path),
            Self::Tcp(port) => Readiness::Tcp(at(port)),
            Self::Running => Readiness::Running,
        }
    }
}

/// Where a store at this address counts its syncs.
fn counted_beside(syncs: Syncs, store: SocketAddr) -> SyncCounters {
    syncs.at(|port| SocketAddr::new(store.ip(), port).to_string())
}

/// What the threads share.
#[derive(Debug)]
pub struct StoreMeter {
    protocol: Protocol,
    store: SocketAddr,
    syncs: Option<SyncCounters>,
    readiness: Readiness,
    data: Option<PathBuf>,
    watch: Arc<Watch>,
    striker: Striker,
    /// What the store's start has shown, or why that is not known (yet), in one line.
    start_up: Mutex<Result<StartUp, String>>,
}

impl StoreMeter {
    fn answer(&self, request: &Request) -> Answer {
        match request.path.as_str() {
            "/livez" => Answer::content("text/plain; charset=utf-8", "alive\n".into()),
            "/readyz" => match self.readiness.ask() {
                Ok(()) => Answer::content("text/plain; charset=utf-8", "ready\n".into()),
                Err(failure) => Answer::unavailable(&failure),
            },
            meter::READING => match self.watch.read(request) {
                Ok(reading) => Answer::json(&self.with_disk(reading)),
                Err(reason) => Answer::unavailable(&reason),
            },
            meter::STORE => Answer::json(&self.member()),
            meter::FSYNCS => match self.syncs.as_ref().map(fsyncs::so_far) {
                Some(Ok(count)) => Answer::json(&count),
                Some(Err(failure)) => Answer::unavailable(&failure),
                None => Answer::unavailable(&"the store does not count its syncs (--syncs)"),
            },
            meter::PROTOCOL => Answer::json(&probe::surface(self.protocol, self.store)),
            meter::STRIKE => self.striker.strike(request),
            meter::STRUCK => self.striker.struck(request),
            _ => Answer::not_found("there are /livez, /readyz, /reading, /store, /fsyncs and /protocol"),
        }
    }

    /// Where a reading is of the beginning or the end of a span, what was written to the disk belongs to it.
    fn with_disk(&self, reading: Reading) -> Reading {
        let data = self.data.as_deref().filter(|_| reading.switches.is_some());
        Reading { disk: data.and_then(disk::writes), ..reading }
    }

    fn member(&self) -> MemberReading {
        let start_up = self.start_up.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut facts: Vec<(&str, String)> = machine::facts().into_iter().collect();
        facts.extend(machine::cores().map(|cores| ("cores", cores.to_string())));
        let file_system = self.data.as_deref().and_then(disk::file_system);
        facts.extend(file_system.map(|name| ("file system", name.to_owned())));
        MemberReading {
            version: start_up.as_ref().ok().and_then(|start_up| start_up.version.clone()),
            footprint: start_up.as_ref().ok().map(|start_up| start_up.footprint),
            problem: start_up.err(),
            disk_bytes: self.data.as_deref().and_then(|data| disk::allocated_bytes(data).ok()),
            facts: facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        }
    }

    fn note(&self, start_up: Result<StartUp, String>) {
        *self.start_up.lock().unwrap_or_else(PoisonError::into_inner) = start_up;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use clap::CommandFactory;

    #[test]
    fn what_is_asked_is_read_from_the_command_line() {
        let store = "127.0.0.1:7".parse().unwrap();
        let asked = |text: &str| text.parse::<Question>().map(|question| question.of(Protocol::S3, store));
        assert_eq!(asked("protocol"), Ok(Readiness::Protocol(Protocol::S3, store)));
        assert_eq!(
            asked("http:80/healthz/x"),
            Ok(Readiness::Http("127.0.0.1:80".parse().unwrap(), "/healthz/x".into()))
        );
        assert_eq!(asked("tcp:80"), Ok(Readiness::Tcp("127.0.0.1:80".parse().unwrap())));
        assert_eq!(asked("running"), Ok(Readiness::Running));
        for wrong in ["", "http", "http:80", "tcp:", "tcp:70000", "running:1"] {
            assert!(asked(wrong).unwrap_err().contains("write protocol"), "{wrong}");
        }
    }

    #[test]
    fn syncs_are_counted_where_the_store_is() {
        let syncs: Syncs = "2379/metrics,log=1,commit=2".parse().unwrap();
        let counters = BTreeMap::from([("log".to_owned(), 1), ("commit".to_owned(), 2)]);
        let expected = SyncCounters { address: "[::1]:2379".into(), path: "/metrics".into(), counters };
        assert_eq!(counted_beside(syncs, "[::1]:80".parse().unwrap()), expected);
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }
}
