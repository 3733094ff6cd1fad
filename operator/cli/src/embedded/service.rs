//! One running store with its companions: every role as child processes, from spawn to first answer to kill.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bench_jobs::family::probe;
use bench_jobs::measure::disk;
use rustix::process::Signal;
use storebench_core::engine::{self, Engine, Member, Placement, ProcessPlan, Readiness, Role, RolePlan};
use storebench_core::validate::ValidatedService;
use storebench_crds::job::SyncCounters;
use storebench_crds::meter::Syncs;
use storebench_crds::storage_service::Footprint;

use super::interrupt;
use super::peers::{Binary, StoreBinaries};
use super::process::Running;
use super::relay::{self, Relay};
use super::slow_disk::SlowDisk;

/// A store that has not answered after this long never becomes ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two probes of a starting store. Bounds the error of the start-up time.
const PROBE_INTERVAL: Duration = Duration::from_millis(1);
/// Where everything listens.
const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// What stands between a store and others, where a workload of the run needs it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Between {
    /// The store sends its requests for its object store to the load.
    pub(super) fault_proxy: bool,
    /// Members are dialled through a [`Relay`], so that one can be cut off.
    pub(super) relay: bool,
}

/// A store that answers. Dropped, it is killed and its data are removed.
#[derive(Debug)]
pub(super) struct Service {
    /// Killed before its companions, for which it would look.
    store: Vec<RunningProcess>,
    /// By role; each has one process.
    companions: Vec<(&'static str, RunningProcess)>,
    engine: &'static Engine,
    directory: PathBuf,
    /// The directory that it shares with the load.
    shared: Option<PathBuf>,
    /// Where the load is to listen for the store's requests to its object store.
    fault_proxy: Option<String>,
    /// Stands before all members.
    relay: Option<Relay>,
    /// What the idle store costs, resident memory aside.
    pub(super) footprint: Footprint,
    /// The first member's command line.
    pub(super) command: Vec<String>,
}

#[derive(Debug)]
struct RunningProcess {
    /// Absent while it is killed because somebody asked for it.
    process: Option<Running>,
    plan: ProcessPlan,
    program: PathBuf,
    /// How often it was started.
    starts: u32,
}

impl RunningProcess {
    /// Starts it where its files and directories are.
    fn start(plan: ProcessPlan, program: PathBuf, directory: &Path) -> anyhow::Result<Self> {
        let mut running = Self { process: None, plan, program, starts: 0 };
        running.start_again(directory)?;
        Ok(running)
    }

    fn start_again(&mut self, directory: &Path) -> anyhow::Result<()> {
        self.starts += 1;
        let ProcessPlan { name, arguments, environment, data_directory, .. } = &self.plan;
        let log = match self.starts {
            1 => format!("{name}.log"),
            starts => format!("{name}-{starts}.log"),
        };
        let log = directory.join(log);
        let data = Path::new(data_directory);
        self.process = Some(Running::start(name, &self.program, arguments, environment, data, log)?);
        Ok(())
    }

    fn death(&mut self) -> Option<String> {
        self.process.as_mut()?.death()
    }

    fn last_word(&self) -> String {
        self.process.as_ref().map(Running::last_word).unwrap_or_default()
    }
}

/// A store that never became ready, in one line.
#[derive(Debug)]
pub(super) struct NeverReady(pub(super) String);

impl Service {
    /// Starts every role, one after the other, and waits for an answer from each of its members. The inner error is the store's doing, the outer
    /// ours.
    pub(super) fn start(
        service: &ValidatedService,
        binaries: &StoreBinaries,
        directory: &Path,
        between: Between,
    ) -> anyhow::Result<Result<Self, NeverReady>> {
        let placement = place(service, binaries, directory, between)?;
        let plan = engine::plan(service, &placement);
        let deadline = Instant::now() + READY_TIMEOUT;
        let mut running = Self {
            store: Vec::new(),
            companions: Vec::new(),
            engine: service.engine,
            directory: directory.to_path_buf(),
            shared: plan.shared_directory.map(PathBuf::from),
            fault_proxy: placement.fault_proxy.clone(),
            relay: if between.relay { Some(Relay::start(routes(&placement))?) } else { None },
            footprint: Footprint { binary_bytes: file_bytes(&binaries.store.path), ..Footprint::default() },
            command: Vec::new(),
        };
        for planned in &plan.roles {
            let binary = binaries.of(planned.role.name).context("an executable of a companion was not found")?;
            let started = Instant::now();
            running.start_role(planned, binary)?;
            if let Err(never) = running.wait_until_ready(planned, deadline) {
                return Ok(Err(never));
            }
            if planned.role.is_store() {
                running.footprint.startup_micros = started.elapsed().as_micros() as u64;
            }
        }
        Ok(Ok(running))
    }

    fn start_role(&mut self, planned: &RolePlan, binary: &Binary) -> anyhow::Result<()> {
        let role = planned.role.name;
        for process in &planned.processes {
            write(process)?;
            let child = RunningProcess::start(process.clone(), binary.path.clone(), &self.directory)?;
            if planned.role.is_store() {
                self.store.push(child);
            } else {
                self.companions.push((role, child));
            }
        }
        if let Some(process) = planned.processes.first().filter(|_| planned.role.is_store()) {
            self.command =
                std::iter::once(process.binary.to_owned()).chain(process.arguments.iter().cloned()).collect();
        }
        Ok(())
    }

    fn wait_until_ready(&mut self, planned: &RolePlan, deadline: Instant) -> Result<(), NeverReady> {
        let begun = Instant::now();
        for (index, process) in planned.processes.iter().enumerate() {
            let question = question(planned.role.service.engine, process);
            while question.ask().is_err() {
                if let Some(death) = self.death() {
                    return Err(NeverReady(format!("never became ready: {death}")));
                }
                if Instant::now() > deadline || interrupt::requested() {
                    let last = self.running(&planned.role, index).map(RunningProcess::last_word);
                    return Err(NeverReady(format!(
                        "never became ready: {} gave no answer within {:.1} s{}",
                        process.name,
                        begun.elapsed().as_secs_f64(),
                        last.unwrap_or_default()
                    )));
                }
                std::thread::sleep(PROBE_INTERVAL);
            }
        }
        Ok(())
    }

    fn running(&self, role: &Role, index: usize) -> Option<&RunningProcess> {
        if role.is_store() {
            return self.store.get(index);
        }
        self.companions.iter().filter(|(name, _)| *name == role.name).map(|(_, process)| process).nth(index)
    }

    /// Where clients reach the members.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let own = self.store.iter().filter_map(|member| client_address(self.engine, &member.plan.ports));
        match &self.relay {
            Some(_) => (0..).zip(own).map(|(member, own)| (relay::host(member), own.port()).into()).collect(),
            None => own.collect(),
        }
    }

    /// Where the members count the syncs of their disks; empty where the engine does not.
    pub(super) fn sync_counters(&self) -> Vec<SyncCounters> {
        let Some(metrics) = self.engine.metrics else { return Vec::new() };
        let ports = self.store.iter().filter_map(|member| member.plan.ports.get(metrics.port));
        let counted = ports.filter_map(|port| Syncs::of(&metrics, *port));
        counted.map(|syncs| syncs.at(|port| format!("{LOOPBACK}:{port}"))).collect()
    }

    /// Where the companions are reached, by role.
    pub(super) fn companions(&self) -> BTreeMap<String, String> {
        let address =
            |process: &RunningProcess| Some(format!("{LOOPBACK}:{}", process.plan.ports.get(engine::CLIENT)?));
        self.companions.iter().filter_map(|(role, one)| Some(((*role).to_owned(), address(one)?))).collect()
    }

    /// The directory that it shares with the load, if it does.
    pub(super) fn shared_directory(&self) -> Option<&Path> {
        self.shared.as_deref()
    }

    /// Where the load is to listen for the store's requests to its object store; absent where the store sends them there.
    pub(super) fn fault_proxy(&self) -> Option<String> {
        self.fault_proxy.clone()
    }

    /// The members' process identifiers; companions are not the store.
    pub(super) fn processes(&self) -> Vec<u32> {
        self.store.iter().filter_map(|member| Some(member.process.as_ref()?.id())).collect()
    }

    /// How a process died, in one line; `None` while all live that nobody asked to be killed.
    pub(super) fn death(&mut self) -> Option<String> {
        let companions = self.companions.iter_mut().map(|(_, process)| process);
        self.store.iter_mut().chain(companions).find_map(RunningProcess::death)
    }

    /// Which member clients reach at `endpoint`.
    pub(super) fn member_at(&self, endpoint: &str) -> anyhow::Result<usize> {
        let position = self.addresses().iter().position(|address| address.to_string() == endpoint);
        position.with_context(|| format!("no member of the store is at {endpoint}"))
    }

    /// Kills a member, and waits until it is dead. Errors: it is dead already; who has died by itself is noticed as ever.
    pub(super) fn kill(&mut self, member: usize) -> anyhow::Result<()> {
        if let Some(death) = self.store[member].death() {
            anyhow::bail!(death);
        }
        // Dropped, it is killed, and waited for.
        let killed = self.store[member].process.take();
        killed.map(drop).with_context(|| format!("{} is killed already", self.store[member].plan.name))
    }

    /// Stops a member, or lets it go on.
    pub(super) fn signal(&self, member: usize, signal: Signal) -> anyhow::Result<()> {
        let RunningProcess { process, plan, .. } = &self.store[member];
        process.as_ref().with_context(|| format!("{} is not running", plan.name))?.signal(signal)
    }

    /// Cuts a member off from clients and other members.
    pub(super) fn cut(&self, member: usize) -> anyhow::Result<()> {
        let relay = self.relay.as_ref().context("the run has no relay to cut a member off")?;
        relay.cut(member, self.process(member)?);
        Ok(())
    }

    /// The thread of ours through which all requests go; absent where they go to the store directly.
    pub(super) fn relay_thread(&self) -> Option<i32> {
        self.relay.as_ref().map(Relay::thread)
    }

    /// Lets all members reach one another again.
    pub(super) fn heal(&self) {
        self.relay.iter().for_each(Relay::heal);
    }

    /// Makes the syncs of a member take longer, as long as the value lives.
    pub(super) fn slow_disk(&self, member: usize, delay: Duration) -> anyhow::Result<SlowDisk> {
        SlowDisk::begin(self.process(member)?, delay, &self.directory)
    }

    fn process(&self, member: usize) -> anyhow::Result<u32> {
        let RunningProcess { process, plan, .. } = &self.store[member];
        process.as_ref().map(Running::id).with_context(|| format!("{} is not running", plan.name))
    }

    /// Starts a member that was killed, with its data.
    pub(super) fn restart(&mut self, member: usize) -> anyhow::Result<()> {
        self.store[member].start_again(&self.directory)
    }

    /// Where all members keep their data.
    pub(super) fn data(&self) -> PathBuf {
        self.directory.join(engine::STORE)
    }

    /// Space that the data take on disk, bytes: allocated blocks, as `du` counts. `None` where they cannot be read.
    pub(super) fn disk_bytes(&self) -> Option<u64> {
        disk::allocated_bytes(&self.data()).ok()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // A process that lives would go on writing.
        self.store.clear();
        self.companions.clear();
        // What cannot be removed now is removed with the run's directory.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn client_address(engine: &Engine, ports: &BTreeMap<&'static str, u16>) -> Option<SocketAddr> {
    // As in a pod: the port for clients, or the first of a store that has none.
    let port = ports.get(engine::CLIENT).or_else(|| ports.get(engine.ports.first()?.name))?;
    Some(SocketAddr::from((LOOPBACK, *port)))
}

/// What a process is asked to find out whether it serves.
fn question(engine: &Engine, process: &ProcessPlan) -> probe::Readiness {
    let at = |name: &str| match process.ports.get(name) {
        Some(port) => SocketAddr::from((LOOPBACK, *port)),
        None => unreachable!("{} has no port {name}, by which it is asked whether it is ready", engine.name),
    };
    match engine.readiness {
        Readiness::Protocol => probe::Readiness::Protocol(engine.protocol, at(engine::CLIENT)),
        Readiness::Http { port, path } => probe::Readiness::Http(at(port), path.into()),
        Readiness::Tcp { port } => probe::Readiness::Tcp(at(port)),
        Readiness::Running => probe::Readiness::Running,
    }
}

/// Chooses names, free loopback ports and empty data directories for every role.
fn place(
    service: &ValidatedService,
    binaries: &StoreBinaries,
    directory: &Path,
    between: Between,
) -> anyhow::Result<Placement> {
    let create = |path: PathBuf| -> anyhow::Result<String> {
        std::fs::create_dir_all(&path).with_context(|| format!("{}: cannot be created", path.display()))?;
        Ok(path.display().to_string())
    };
    // Held together until all are known, so that no port is given twice.
    let mut listeners = Vec::new();
    let mut free_port = || -> anyhow::Result<u16> {
        let listener = TcpListener::bind((LOOPBACK, 0)).context("no free port on loopback")?;
        let port = listener.local_addr()?.port();
        listeners.push(listener);
        Ok(port)
    };
    let mut member = |role: &Role, ordinal: u32| -> anyhow::Result<Member> {
        let name = format!("{}-{ordinal}", role.service.name);
        let mut ports = BTreeMap::new();
        for port in role.service.engine.ports {
            ports.insert(port.name, free_port()?);
        }
        let binary = binaries.of(role.name).context("an executable of a companion was not found")?;
        // Where others find it; it listens at the same ports behind.
        let host = if between.relay && role.is_store() { relay::host(ordinal) } else { LOOPBACK };
        Ok(Member {
            programs_directory: binary.folder(role.service.engine).display().to_string(),
            data_directory: create(directory.join(role.name).join(&name))?,
            files_directory: create(directory.join("files").join(&name))?,
            own_name: name.clone(),
            name,
            host: host.to_string(),
            own_host: host.to_string(),
            bind: LOOPBACK.to_string(),
            ports,
        })
    };
    let mut placement = Placement::default();
    for role in engine::roles(service) {
        let members =
            (0..role.service.replicas).map(|ordinal| member(&role, ordinal)).collect::<anyhow::Result<_>>()?;
        placement.roles.insert(role.name, members);
    }
    if service.engine.shares_directory {
        placement.shared_directory = Some(create(directory.join("shared"))?);
        if between.fault_proxy {
            placement.fault_proxy = Some(format!("{LOOPBACK}:{}", free_port()?));
        }
    }
    Ok(placement)
}

/// The ways to the members of the store, at all of their ports: the member, where others dial, and where it listens.
fn routes(placement: &Placement) -> Vec<(usize, SocketAddr, SocketAddr)> {
    let of = |(number, member): (u32, &Member)| {
        let (at, ports) = (relay::host(number), member.ports.clone());
        ports.into_values().map(move |port| (number as usize, (at, port).into(), (LOOPBACK, port).into()))
    };
    (0..).zip(placement.members(engine::STORE)).flat_map(of).collect()
}

/// Makes what a process needs before it starts, so that only its owner may read it.
fn write(process: &ProcessPlan) -> anyhow::Result<()> {
    for path in &process.directories {
        std::fs::create_dir_all(path).with_context(|| format!("{path}: cannot be created"))?;
    }
    for (path, text) in &process.files {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("{path}: cannot be written"))?;
    }
    Ok(())
}

fn file_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
