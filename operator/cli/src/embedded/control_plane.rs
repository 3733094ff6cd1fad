//! One running control plane: API server, controller manager, scheduler and simulated nodes on top of a store that answers,
//! from the first certificate to the kill.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use bench_jobs::family::probe;
use bench_jobs::sidecar::control_plane::{create_nodes, nodes_take_pods, serves};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rcgen::KeyPair;
use storebench_core::control_plane::{
    self as core, ControlPlanePlan, Placement, Process, ValidatedControlPlane, Validity,
};

use super::interrupt;
use super::peers::ControlPlaneBinaries;
use super::process::Running;
use super::service::NeverReady;

/// A control plane that is not ready after this long never becomes ready.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// Between two looks at whether it is ready.
const PROBE_INTERVAL: Duration = Duration::from_millis(20);
/// How long before and after now a certificate is valid: clocks of one machine agree, so an hour is ample.
const VALID_BEFORE: Duration = Duration::from_secs(3600);
const VALID_AFTER: Duration = Duration::from_secs(24 * 3600);

/// A control plane that is ready: the API server serves, all nodes take pods. Dropped, its processes are killed; its files
/// are in the store's directory and go with it.
#[derive(Debug)]
pub(super) struct ControlPlane {
    /// Killed before the API server, which they would look for.
    others: Vec<Running>,
    api_server: Running,
    address: SocketAddr,
    kubeconfig: String,
}

impl ControlPlane {
    /// Starts a control plane on a store in a directory that exists. The inner error is the store's or Kubernetes' doing, the
    /// outer ours.
    pub(super) fn start(
        control_plane: &ValidatedControlPlane,
        binaries: &ControlPlaneBinaries,
        store: &[SocketAddr],
        directory: &Path,
    ) -> anyhow::Result<Result<Self, NeverReady>> {
        if let Some(refusal) = refusal(store) {
            return Ok(Err(refusal));
        }
        let directory = directory.join("control-plane");
        let placement = place(&directory, store)?;
        let plan = core::plan(&placement);
        write(&plan, &directory)?;
        let start = |process: &Process| -> anyhow::Result<Running> {
            let log = directory.join(format!("{}.log", process.binary));
            let program = binaries.path(process.binary).context("an executable of the control plane was not found")?;
            Running::start(process.binary, program, &process.arguments, &process.environment, &directory, log)
        };
        let mut running = Self {
            others: Vec::new(),
            api_server: start(&plan.api_server)?,
            address: SocketAddr::from(([127, 0, 0, 1], placement.port)),
            kubeconfig: plan.administrator.clone(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let deadline = Instant::now() + READY_TIMEOUT;
        let client = runtime.block_on(running.client())?;
        if let Err(never) = runtime.block_on(running.wait(deadline, "the API server is ready", || serves(&client))) {
            return Ok(Err(never));
        }
        for process in &plan.others {
            running.others.push(start(process)?);
        }
        let ready = runtime.block_on(async {
            running.wait(deadline, "simulated nodes exist", || create_nodes(&client, control_plane.nodes)).await?;
            running.wait(deadline, "all nodes take pods", || nodes_take_pods(&client, control_plane.nodes)).await
        });
        Ok(ready.map(|()| running))
    }

    async fn client(&self) -> anyhow::Result<Client> {
        let file = Kubeconfig::read_from(&self.kubeconfig)?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }

    /// Asks until what is waited for is so.
    async fn wait<F>(&mut self, deadline: Instant, what: &str, is_so: impl Fn() -> F) -> Result<(), NeverReady>
    where
        F: Future<Output = Result<bool, kube::Error>>,
    {
        loop {
            // An error is an API server that does not serve yet, or that has died, which is looked for below.
            let answer = tokio::time::timeout_at(deadline.into(), is_so()).await;
            if matches!(answer, Ok(Ok(true))) {
                return Ok(());
            }
            if let Some(death) = self.death() {
                return Err(NeverReady(format!("the control plane never became ready: {death}")));
            }
            if Instant::now() > deadline || interrupt::requested() {
                let last = match answer {
                    Ok(Err(error)) => format!(": {error}"),
                    _ => self.api_server.last_word(),
                };
                return Err(NeverReady(format!(
                    "the control plane never became ready: waited in vain until {what}{last}"
                )));
            }
            tokio::time::sleep(PROBE_INTERVAL).await;
        }
    }

    /// Where clients reach the API server.
    pub(super) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Where and as whom load is made: a path.
    pub(super) fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// The API server's process identifier.
    pub(super) fn api_server(&self) -> u32 {
        self.api_server.id()
    }

    /// The process identifiers of all else.
    pub(super) fn others(&self) -> Vec<u32> {
        self.others.iter().map(Running::id).collect()
    }

    /// How a process died, in one line; `None` while all live.
    pub(super) fn death(&mut self) -> Option<String> {
        std::iter::once(&mut self.api_server).chain(&mut self.others).find_map(Running::death)
    }
}

/// Why the store cannot hold a cluster: what of the etcd API it does not serve. Asked before anything is started, since an
/// API server would only say that it is not ready.
fn refusal(store: &[SocketAddr]) -> Option<NeverReady> {
    let lacking =
        store.iter().flat_map(|address| probe::surface(probe::Protocol::Etcd, *address)).find(|check| !check.ok)?;
    Some(NeverReady(format!("the store cannot hold a Kubernetes cluster: {}: {}", lacking.name, lacking.detail)))
}

/// Chooses a free port on loopback.
fn place(directory: &Path, store: &[SocketAddr]) -> anyhow::Result<Placement> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port on loopback")?;
    let directory = directory.display().to_string();
    Ok(Placement {
        bind: "127.0.0.1".into(),
        advertise: "127.0.0.1".into(),
        host: "127.0.0.1".into(),
        port: listener.local_addr()?.port(),
        scratch: directory.clone(),
        directory,
        store: store.iter().map(SocketAddr::to_string).collect(),
    })
}

/// Writes everything that the processes are given, so that only its owner may read it.
fn write(plan: &ControlPlanePlan, directory: &Path) -> anyhow::Result<()> {
    let create =
        |path: &Path| std::fs::create_dir_all(path).with_context(|| format!("{}: cannot be created", path.display()));
    create(directory)?;
    for path in &plan.directories {
        create(Path::new(path))?;
    }
    let now = SystemTime::now();
    let validity = Validity { from: now - VALID_BEFORE, until: now + VALID_AFTER };
    for (path, text) in core::files(plan, validity, KeyPair::generate)? {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("{path}: cannot be written"))?;
    }
    Ok(())
}
