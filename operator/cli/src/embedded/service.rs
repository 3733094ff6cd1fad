//! One running store: its members as child processes, from spawn to first answer to kill.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bench_jobs::family::probe;
use bench_jobs::measure::disk;
use storebench_core::engine::{Member, Placement, Protocol, ServicePlan};
use storebench_core::validate::ValidatedService;
use storebench_crds::storage_service::Footprint;

use super::interrupt;
use super::peers::Binary;
use super::process::Running;

/// A store that has not answered after this long never becomes ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two probes of a starting store. Bounds the error of the start-up time.
const PROBE_INTERVAL: Duration = Duration::from_millis(1);

/// A store that answers. Dropped, it is killed and its data are removed.
#[derive(Debug)]
pub(super) struct Service {
    members: Vec<RunningMember>,
    protocol: Protocol,
    directory: PathBuf,
    /// What the idle store costs, resident memory aside.
    pub(super) footprint: Footprint,
    /// The first member's command line.
    pub(super) command: Vec<String>,
}

#[derive(Debug)]
struct RunningMember {
    process: Running,
    address: SocketAddr,
}

/// A store that never became ready, in one line.
#[derive(Debug)]
pub(super) struct NeverReady(pub(super) String);

impl Service {
    /// Starts all members and waits for an answer from each. The inner error is the store's doing, the outer ours.
    pub(super) fn start(
        service: &ValidatedService,
        binary: &Binary,
        directory: &Path,
        timeout: Duration,
    ) -> anyhow::Result<Result<Self, NeverReady>> {
        let placement = place(service, directory)?;
        let plan = service.engine.plan(service, &placement);
        let started = Instant::now();
        let mut running = Self {
            members: Vec::with_capacity(plan.members.len()),
            protocol: plan.protocol,
            directory: directory.to_path_buf(),
            footprint: Footprint { binary_bytes: file_bytes(&binary.path), ..Footprint::default() },
            command: std::iter::once(plan.members[0].binary.to_owned())
                .chain(plan.members[0].arguments.iter().cloned())
                .collect(),
        };
        for (process, member) in plan.members.iter().zip(&placement.members) {
            let log = directory.join(format!("{}.log", member.name));
            let data = Path::new(&member.data_directory);
            let process =
                Running::start(&member.name, &binary.path, &process.arguments, &process.environment, data, log)?;
            let address = SocketAddr::from(([127, 0, 0, 1], member.client_port));
            running.members.push(RunningMember { process, address });
        }
        let ready = running.wait_until_ready(&plan, timeout.min(READY_TIMEOUT));
        running.footprint.startup_micros = started.elapsed().as_micros() as u64;
        Ok(ready.map(|()| running))
    }

    fn wait_until_ready(&mut self, plan: &ServicePlan, timeout: Duration) -> Result<(), NeverReady> {
        let deadline = Instant::now() + timeout;
        for index in 0..self.members.len() {
            while probe::answers(spoken(plan.protocol), self.members[index].address).is_err() {
                if let Some(death) = self.death() {
                    return Err(NeverReady(format!("never became ready: {death}")));
                }
                if Instant::now() > deadline || interrupt::requested() {
                    let member = &self.members[index].process;
                    let last = member.last_word();
                    return Err(NeverReady(format!(
                        "never became ready: {} gave no answer within {} s{last}",
                        member.name(),
                        timeout.as_secs_f64()
                    )));
                }
                std::thread::sleep(PROBE_INTERVAL);
            }
        }
        Ok(())
    }

    /// Where clients reach the members.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| member.address).collect()
    }

    /// Where the members serve metrics in Prometheus's format; empty where the protocol has none.
    pub(super) fn metrics(&self) -> Vec<String> {
        match self.protocol {
            Protocol::Etcd => self.addresses().iter().map(SocketAddr::to_string).collect(),
            Protocol::Redis => Vec::new(),
        }
    }

    /// The members' process identifiers.
    pub(super) fn processes(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.process.id()).collect()
    }

    /// How a member died, in one line; `None` while all live.
    pub(super) fn death(&mut self) -> Option<String> {
        self.members.iter_mut().find_map(|member| member.process.death())
    }

    /// Where all members keep their data.
    pub(super) fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// Space that the data take on disk, bytes: allocated blocks, as `du` counts. `None` where they cannot be read.
    pub(super) fn disk_bytes(&self) -> Option<u64> {
        disk::allocated_bytes(&self.data()).ok()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // A process that lives would go on writing.
        self.members.clear();
        // What cannot be removed now is removed with the run's directory.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// What the engine speaks, in the words of the probe.
fn spoken(protocol: Protocol) -> probe::Protocol {
    match protocol {
        Protocol::Etcd => probe::Protocol::Etcd,
        Protocol::Redis => probe::Protocol::Redis,
    }
}

/// Chooses names, free loopback ports and empty data directories.
fn place(service: &ValidatedService, directory: &Path) -> anyhow::Result<Placement> {
    // Held together until all are known, so that no port is given twice.
    let mut listeners = Vec::new();
    let mut free_port = || -> anyhow::Result<u16> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port on loopback")?;
        let port = listener.local_addr()?.port();
        listeners.push(listener);
        Ok(port)
    };
    let mut members = Vec::new();
    for ordinal in 0..service.replicas {
        let name = format!("{}-{ordinal}", service.name);
        let data = directory.join("data").join(&name);
        std::fs::create_dir_all(&data).with_context(|| format!("{}: cannot be created", data.display()))?;
        members.push(Member {
            own_name: name.clone(),
            name,
            host: "127.0.0.1".into(),
            own_host: "127.0.0.1".into(),
            bind: "127.0.0.1".into(),
            client_port: free_port()?,
            peer_port: free_port()?,
            data_directory: data.display().to_string(),
        });
    }
    Ok(Placement { members })
}

fn file_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}
