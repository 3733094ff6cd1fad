//! `control-plane-meter`: stands in the pod of a hosted control plane, gives it its simulated nodes, says whether it can be
//! loaded and what it uses.
//!
//! It is a native sidecar that shares the pod's process namespace and user, and reaches the API server with a kubeconfig:
//!
//! | `GET` | answers |
//! | --- | --- |
//! | `/livez` | 200 |
//! | `/readyz` | 200 if the API server serves and all nodes take pods, else 503 and what is waited for |
//! | `/version` | the version that the API server reports |
//! | `/api-server`, `/others` | a [`Reading`](storebench_crds::meter::Reading) of the API server, and of every other process; queries as of `store-meter` |
//!
//! What was ready stays so as long as the API server's process lives, so that a kubelet's questions load nothing.
//! `/readyz?anew=true` asks the API server again, and creates nodes that have vanished because the store lost its data.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread;
use std::time::Duration;

use clap::Parser;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use storebench_crds::meter;
use tokio::runtime::Runtime;

use super::{create_nodes, nodes_take_pods, serves};
use crate::net::http_server::{Answer, Request, serve};
use crate::program;
use crate::sidecar::store_meter::watch::{Watch, Whose, command_name};

/// Threads that answer: a kubelet, a loader and the operator do not wait for one another.
const THREADS: usize = 4;
/// The API server's executable.
const API_SERVER: &str = "kube-apiserver";
/// How long one look may take; creating thousands of nodes takes several.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// Stands in a hosted control plane's pod: creates its simulated nodes, says whether it is ready, and what it uses.
#[derive(Parser, Debug)]
#[command(name = "control-plane-meter", version)]
struct Arguments {
    /// Where and as whom the API server is reached.
    #[arg(long, value_name = "FILE", env = "CONTROL_PLANE_METER_KUBECONFIG")]
    kubeconfig: PathBuf,
    /// Simulated nodes.
    #[arg(long, value_name = "NUMBER", env = "CONTROL_PLANE_METER_NODES")]
    nodes: u32,
    /// Where to answer.
    #[arg(long, value_name = "ADDRESS", env = "CONTROL_PLANE_METER_LISTEN", default_value = "0.0.0.0:9465")]
    listen: SocketAddr,
}

/// Runs `control-plane-meter` with the given arguments, the first of which is the program's name.
pub fn main_with<I, T>(arguments: I) -> ExitCode
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    program::main_with("control-plane-meter", arguments, run)
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    let meter = Arc::new(ControlPlaneMeter::new(&arguments)?);
    let address = serve(arguments.listen, "meter", THREADS, move |request| meter.answer(request))
        .map_err(|error| anyhow::anyhow!("--listen {}: {error}", arguments.listen))?;
    let _ = writeln!(io::stderr(), "control-plane-meter: at http://{address}, {} nodes", arguments.nodes);
    loop {
        // What there is to do is done by the threads that answer.
        thread::park();
    }
}

/// What the threads share.
struct ControlPlaneMeter {
    nodes: u32,
    /// One look at a time.
    cluster: Mutex<(Runtime, Client)>,
    api_server: Watch,
    others: Watch,
    /// When the API server's process that was found ready had started, ticks; 0: none was.
    ready_since: AtomicU64,
}

impl ControlPlaneMeter {
    fn new(arguments: &Arguments) -> anyhow::Result<Self> {
        let problem = |error: &dyn Display| anyhow::anyhow!("--kubeconfig {}: {error}", arguments.kubeconfig.display());
        let file = Kubeconfig::read_from(&arguments.kubeconfig).map_err(|error| problem(&error))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(async {
            let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
            let config = config.map_err(|error| problem(&error))?;
            Client::try_from(config).map_err(|error| problem(&error))
        })?;
        Ok(Self {
            nodes: arguments.nodes,
            cluster: Mutex::new((runtime, client)),
            api_server: Watch::new(Whose::Executable(command_name(API_SERVER))),
            others: Watch::new(Whose::EveryBut(command_name(API_SERVER))),
            ready_since: AtomicU64::new(0),
        })
    }

    fn answer(&self, request: &Request) -> Answer {
        let text = |text: &str| Answer::content("text/plain; charset=utf-8", format!("{text}\n"));
        let reading = |watch: &Watch| match watch.read(request) {
            Ok(reading) => Answer::json(&reading),
            Err(reason) => Answer::unavailable(&reason),
        };
        match request.path.as_str() {
            "/livez" => text("alive"),
            "/readyz" => match self.is_ready(request.has("anew", "true")) {
                Ok(()) => text("ready"),
                Err(reason) => Answer::unavailable(&reason),
            },
            "/version" => match self.version() {
                Ok(version) => text(&version),
                Err(reason) => Answer::unavailable(&reason),
            },
            meter::API_SERVER => reading(&self.api_server),
            meter::OTHERS => reading(&self.others),
            _ => Answer::not_found("there are /livez, /readyz, /version, /api-server and /others"),
        }
    }

    /// Errors: what is waited for, in one line.
    fn is_ready(&self, anew: bool) -> Result<(), String> {
        let started = self.api_server.find().map_err(|_| "the API server's process is not there")?.started_ticks;
        if !anew && self.ready_since.load(Ordering::Relaxed) == started {
            return Ok(());
        }
        self.ask(async |client| {
            let so = |answer: Result<bool, kube::Error>, what: &str| match answer {
                Ok(true) => Ok(()),
                Ok(false) => Err(format!("waits until {what}")),
                Err(error) => Err(format!("waits until {what}: {error}")),
            };
            so(serves(&client).await, "the API server is ready")?;
            so(create_nodes(&client, self.nodes).await, "simulated nodes exist")?;
            so(nodes_take_pods(&client, self.nodes).await, "all nodes take pods")
        })?;
        self.ready_since.store(started, Ordering::Relaxed);
        Ok(())
    }

    fn version(&self) -> Result<String, String> {
        self.ask(async |client| {
            let version = client.apiserver_version().await.map_err(|error| error.to_string())?;
            Ok(version.git_version)
        })
    }

    /// Asks the API server, unless somebody does so now.
    fn ask<T>(&self, question: impl AsyncFnOnce(Client) -> Result<T, String>) -> Result<T, String> {
        let cluster = match self.cluster.try_lock() {
            Ok(cluster) => cluster,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err("the API server is being asked".into()),
        };
        let (runtime, client) = &*cluster;
        let answer = async { tokio::time::timeout(LOOK_TIMEOUT, question(client.clone())).await };
        runtime.block_on(answer).unwrap_or_else(|_| Err("the API server does not answer in time".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sidecar::store_meter::watch::NoStore;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn without_an_api_server_nothing_is_ready_and_why_is_said() {
        let watch = Watch::new(Whose::Executable("no-such-thing".into()));
        let request = Request { path: "/api-server".into(), query: String::new(), token: None };
        assert_eq!(watch.read(&request), Err(NoStore::Absent));
    }
}
