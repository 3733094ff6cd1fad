//! One running store: its members as child processes, from spawn to first answer to kill.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bench_jobs::{disk, probe};
use rustix::process::{Pid, Signal, kill_process_group};
use storebench_core::engine::{Member, Placement, Protocol, ServicePlan};
use storebench_core::validate::ValidatedService;
use storebench_crds::storage_service::Footprint;

use super::peers::Binary;
use super::{guard, interrupt};

/// A store that has not answered after this long never becomes ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two probes of a starting store. Bounds the error of the start-up time.
const PROBE_INTERVAL: Duration = Duration::from_millis(1);
/// How much of the end of a log is searched for a last word, bytes.
const LAST_WORD_BYTES_MAX: usize = 16 * 1024;

/// A store that answers. Dropped, it is killed and its data are removed.
#[derive(Debug)]
pub(super) struct Service {
    members: Vec<RunningMember>,
    directory: PathBuf,
    /// What the idle store costs, resident memory aside.
    pub(super) footprint: Footprint,
    /// The first member's command line.
    pub(super) command: Vec<String>,
}

#[derive(Debug)]
struct RunningMember {
    name: String,
    child: Child,
    address: SocketAddr,
    log: PathBuf,
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
            directory: directory.to_path_buf(),
            footprint: Footprint { binary_bytes: file_bytes(&binary.path), ..Footprint::default() },
            command: std::iter::once(plan.members[0].binary.to_owned())
                .chain(plan.members[0].arguments.iter().cloned())
                .collect(),
        };
        for (process, member) in plan.members.iter().zip(&placement.members) {
            let log = directory.join(format!("{}.log", member.name));
            let output = File::create(&log).with_context(|| format!("{}: cannot be created", log.display()))?;
            let child = guard::command(&binary.path)?
                .args(&process.arguments)
                .env_clear()
                .envs(process.environment.iter().map(|(name, value)| (name, value)))
                .current_dir(&member.data_directory)
                .stdin(Stdio::null())
                .stdout(output.try_clone()?)
                .stderr(output)
                .spawn()
                .with_context(|| format!("{} cannot be started", binary.path.display()))?;
            let address = SocketAddr::from(([127, 0, 0, 1], member.client_port));
            running.members.push(RunningMember { name: member.name.clone(), child, address, log });
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
                    let member = &self.members[index];
                    let last = last_word(&member.log);
                    return Err(NeverReady(format!(
                        "never became ready: {} gave no answer within {} s{last}",
                        member.name,
                        timeout.as_secs_f64()
                    )));
                }
                std::thread::sleep(PROBE_INTERVAL);
            }
        }
        Ok(())
    }

    /// Where clients reach the members.
    pub(super) fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.address.to_string()).collect()
    }

    /// The members' process identifiers.
    pub(super) fn processes(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.child.id()).collect()
    }

    /// How a member died, in one line; `None` while all live.
    pub(super) fn death(&mut self) -> Option<String> {
        self.members.iter_mut().find_map(|member| {
            let status = member.child.try_wait().ok().flatten()?;
            let last = last_word(&member.log);
            Some(format!("{} {}{last}", member.name, describe(status)))
        })
    }

    /// As [`Self::death`], but waits for it.
    pub(super) fn death_within(&mut self, timeout: Duration) -> Option<String> {
        let deadline = Instant::now() + timeout;
        loop {
            let death = self.death();
            if death.is_some() || Instant::now() >= deadline {
                return death;
            }
            std::thread::sleep(PROBE_INTERVAL);
        }
    }

    /// Space that the data take on disk, bytes: allocated blocks, as `du` counts. `None` where they cannot be read.
    pub(super) fn disk_bytes(&self) -> Option<u64> {
        disk::allocated_bytes(&self.directory.join("data")).ok()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        for member in &mut self.members {
            // An error means that the process is gone already, which is what is wanted.
            if let Some(group) = Pid::from_raw(member.child.id().cast_signed()) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = member.child.wait();
        }
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

pub(super) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".into(),
    }
}

/// The last line of a log that says something, as the end of a message; empty where there is none.
pub(super) fn last_word(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let tail = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(LAST_WORD_BYTES_MAX)..]);
    let line = tail.lines().rev().map(str::trim).find(|line| !line.is_empty());
    line.map_or_else(String::new, |line| format!("; its last log line: {}", line.chars().take(300).collect::<String>()))
}

fn file_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}
