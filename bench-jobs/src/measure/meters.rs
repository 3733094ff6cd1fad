//! Asks the meters beside the members what the store uses: [`crate::sidecar::store_meter`] answers. Where a control plane is loaded,
//! its own meter is asked, too ([`crate::sidecar::control_plane::meter`]).
//!
//! For the first load process only, since one is enough. A meter that does not answer costs its figures and never the
//! trial: one line for people says what is missing, and the driver is told nothing rather than zeros.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use storebench_crds::job::{JobLine, JobSpec, MachineUse, StoreReading, SyncCounters, Usage};
use storebench_crds::meter::{self, MemberReading, Reading};
use storebench_crds::storage_service::Footprint;

use crate::measure::fsyncs;
use crate::measure::machine;
use crate::measure::meter::Extras;
use crate::measure::meter::accumulator::Accumulator;
use crate::net::http_client::{HttpError, get};
use crate::report::Report;

/// How long the members' footprints are waited for before the first workload.
const FOOTPRINT_PATIENCE: Duration = Duration::from_secs(30);
/// Between two questions for a footprint.
const FOOTPRINT_INTERVAL: Duration = Duration::from_millis(100);
/// How long the idle store is watched before the first workload.
const IDLE_SPAN: Duration = Duration::from_millis(300);
/// Between two samples of what the store uses.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// A meter that does not answer within this has failed.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Why what the store uses is not known, in one line that names the meter.
#[derive(Debug, thiserror::Error)]
pub enum MeterError {
    /// It did not answer.
    #[error("the meter at {address} does not answer: GET {path}: {error}")]
    Silent {
        /// Its address.
        address: String,
        /// What was asked for.
        path: String,
        /// What came instead.
        error: HttpError,
    },
    /// It answered what cannot be understood.
    #[error("the meter at {address} answered what is no reading: GET {path}: {error}")]
    Garbled {
        /// Its address.
        address: String,
        /// What was asked for.
        path: String,
        /// What is wrong with it.
        error: serde_json::Error,
    },
    /// It has no footprint.
    #[error("the meter at {address} has no footprint: {problem}")]
    NoFootprint {
        /// Its address.
        address: String,
        /// Why not.
        problem: String,
    },
    /// The member was replaced while it was measured.
    #[error("what the meter at {address} measures was restarted meanwhile")]
    Restarted {
        /// The meter's address.
        address: String,
    },
    /// The thread that samples could not run.
    #[error("the store cannot be sampled: {0}")]
    Thread(String),
}

/// The meters of a job, and what they said before the first workload.
#[derive(Debug, Default)]
pub struct Meters {
    addresses: Vec<String>,
    /// Where the store counts its syncs, if there are no meters.
    sync_counters: Vec<SyncCounters>,
    /// Of the control plane. At most one.
    control_plane: Vec<String>,
    idle: Option<Idle>,
}

/// Whose readings a meter is asked for.
#[derive(Clone, Copy, Debug)]
enum Whose {
    Store,
    ApiServer,
    /// What else there is of a control plane.
    Others,
}

impl Whose {
    fn path(self) -> &'static str {
        match self {
            Self::Store => meter::READING,
            Self::ApiServer => meter::API_SERVER,
            Self::Others => meter::OTHERS,
        }
    }

    /// What the part of a trial is called whose machine a meter sees.
    fn part(self, member: usize) -> String {
        match self {
            Self::Store => format!("store-{member}"),
            Self::ApiServer | Self::Others => "control-plane-0".into(),
        }
    }
}

/// What was used over a span, and what the machines went through meanwhile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampled {
    /// By the processes that were measured.
    pub usage: Usage,
    /// One entry for each member.
    pub machines: Vec<MachineUse>,
}

#[derive(Debug)]
struct Idle {
    members: Vec<MemberReading>,
    usage: Usage,
}

impl Meters {
    /// No meters: whoever started the job measures the store, or another load process does.
    pub fn none() -> Self {
        Self::default()
    }

    /// Waits until the members of a job have been watched, and watches them idle. Without meters, this does nothing.
    pub fn begin(job: &JobSpec, report: &Report) -> Self {
        let mut meters = Self {
            addresses: job.meters.clone(),
            sync_counters: job.sync_counters.clone(),
            control_plane: job.control_plane_meter.iter().cloned().collect(),
            idle: None,
        };
        if !meters.addresses.is_empty() {
            match meters.watch_idle() {
                Ok(idle) => meters.idle = Some(idle),
                Err(error) => report.warn(&format!("what the idle store costs is not known: {error}")),
            }
        }
        meters
    }

    /// Measures everything that has a meter from now on.
    pub fn sample(&self) -> Samplers {
        Samplers {
            store: Sampler::start(&self.addresses, Whose::Store),
            api_server: Sampler::start(&self.control_plane, Whose::ApiServer),
            others: Sampler::start(&self.control_plane, Whose::Others),
        }
    }

    /// How often each member has synced its disk so far; `None` where one does not say.
    pub fn fsyncs(&self) -> Option<Vec<u64>> {
        let of_meter = |address: &String| ask::<u64>(address, meter::FSYNCS).ok();
        let of_store = |member: &SyncCounters| fsyncs::so_far(member).ok();
        match self.addresses.is_empty() {
            false => self.addresses.iter().map(of_meter).collect(),
            true if !self.sync_counters.is_empty() => self.sync_counters.iter().map(of_store).collect(),
            true => None,
        }
    }

    /// Tells the driver what the meters say of the store as a whole, after the last workload.
    pub fn conclude(&self, report: &Report) -> io::Result<()> {
        let Some(idle) = &self.idle else { return Ok(()) };
        let members = match ask_all(&self.addresses, meter::STORE) {
            Ok(members) => members,
            Err(error) => {
                report.warn(&format!("the space that the store takes on disk is not known: {error}"));
                without_disk(&idle.members)
            }
        };
        // A footprint is that of the first start, and is known since before the first workload.
        let footprints = idle.members.iter().filter_map(|member| member.footprint);
        report.line(&JobLine::Store { reading: store_reading(footprints, idle.usage, &members) })
    }

    fn watch_idle(&self) -> Result<Idle, MeterError> {
        let deadline = Instant::now() + FOOTPRINT_PATIENCE;
        let members: Result<_, _> = self.addresses.iter().map(|address| footprint_of(address, deadline)).collect();
        let usage = measure(&self.addresses, Whose::Store, || {
            sleep(IDLE_SPAN);
            false
        })?
        .usage;
        Ok(Idle { members: members?, usage })
    }
}

/// What is being measured of a phase.
#[derive(Debug)]
pub struct Samplers {
    /// The store.
    pub store: Sampler,
    /// The API server on it.
    pub api_server: Sampler,
    /// The other processes of the control plane.
    pub others: Sampler,
}

/// A measurement that is under way on a thread of its own. Dropped, it ends by itself.
#[derive(Debug)]
pub struct Sampler {
    thread: Option<io::Result<JoinHandle<Result<Sampled, MeterError>>>>,
    _stop: SyncSender<()>,
}

impl Sampler {
    fn start(addresses: &[String], whose: Whose) -> Self {
        let (stop, stopped) = sync_channel(1);
        let thread = (!addresses.is_empty()).then(|| {
            let addresses = addresses.to_vec();
            thread::Builder::new().name("meters".into()).spawn(move || {
                let next = || stopped.recv_timeout(SAMPLE_INTERVAL) == Err(RecvTimeoutError::Timeout);
                measure(&addresses, whose, next)
            })
        });
        Self { thread, _stop: stop }
    }

    /// Ends the measurement; `None` if there are no meters.
    pub fn finish(self) -> Result<Option<Sampled>, MeterError> {
        let Self { thread, _stop: stop } = self;
        drop(stop);
        let Some(thread) = thread else { return Ok(None) };
        let thread = thread.map_err(|error| MeterError::Thread(error.to_string()))?;
        thread.join().map_err(|_| MeterError::Thread("its thread crashed".into()))?.map(Some)
    }
}

/// What all of them used: from now on, sampled as long as `next` returns true, until then.
fn measure(addresses: &[String], whose: Whose, mut next: impl FnMut() -> bool) -> Result<Sampled, MeterError> {
    let mut accumulator = Accumulator::start(read(addresses, whose, Extras::SWITCHES)?);
    while next() {
        accumulator.sample(read(addresses, whose, Extras::NONE)?);
    }
    let last = read(addresses, whose, Extras::ALL)?;
    if let Some(member) = accumulator.restarted(&last) {
        return Err(MeterError::Restarted { address: addresses[member].clone() });
    }
    let machines = accumulator.machines(&last, |member| whose.part(member));
    let mut usage = accumulator.finish(&last);
    // What everything on the machine used includes the loader only if that is where the loader runs.
    let machine = machine::boot_identifier().unwrap_or_default();
    if last.iter().any(|reading| reading.machine != machine) {
        usage.machine_cpu_nanos = 0;
    }
    Ok(Sampled { usage, machines })
}

fn read(addresses: &[String], whose: Whose, extras: Extras) -> Result<Vec<Reading>, MeterError> {
    let query = match (extras.switches, extras.pss) {
        (true, true) => "?pss=true",
        (true, false) => "",
        (false, _) => "?switches=false",
    };
    ask_all(addresses, &format!("{}{query}", whose.path()))
}

fn ask_all<T: DeserializeOwned>(addresses: &[String], path: &str) -> Result<Vec<T>, MeterError> {
    addresses.iter().map(|address| ask(address, path)).collect()
}

fn ask<T: DeserializeOwned>(address: &str, path: &str) -> Result<T, MeterError> {
    let answer = get(address, path, ANSWER_TIMEOUT);
    let answer = answer.map_err(|error| MeterError::Silent { address: address.into(), path: path.into(), error })?;
    serde_json::from_str(&answer).map_err(|error| MeterError::Garbled {
        address: address.into(),
        path: path.into(),
        error,
    })
}

/// Waits until a meter has a footprint, even if it does not answer at first.
fn footprint_of(address: &str, deadline: Instant) -> Result<MemberReading, MeterError> {
    loop {
        let answer = ask::<MemberReading>(address, meter::STORE).and_then(|member| match member.footprint {
            Some(_) => Ok(member),
            None => {
                let problem = member.problem.unwrap_or_else(|| "it does not say why".into());
                Err(MeterError::NoFootprint { address: address.into(), problem })
            }
        });
        if answer.is_ok() || Instant::now() >= deadline {
            return answer;
        }
        sleep(FOOTPRINT_INTERVAL);
    }
}

fn without_disk(members: &[MemberReading]) -> Vec<MemberReading> {
    members.iter().map(|member| MemberReading { disk_bytes: None, ..member.clone() }).collect()
}

/// All members together.
fn store_reading(footprints: impl Iterator<Item = Footprint>, idle: Usage, members: &[MemberReading]) -> StoreReading {
    let footprint = footprints.fold(Footprint::default(), |all, one| Footprint {
        // All members run the same executable.
        binary_bytes: all.binary_bytes.max(one.binary_bytes),
        startup_micros: all.startup_micros.max(one.startup_micros),
        idle_rss_bytes: all.idle_rss_bytes + one.idle_rss_bytes,
    });
    let mut facts: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in members.iter().flat_map(|member| &member.facts) {
        let values = facts.entry(name.clone()).or_default();
        if !values.split(", ").any(|known| known == value) {
            let comma = if values.is_empty() { "" } else { ", " };
            values.push_str(comma);
            values.push_str(value);
        }
    }
    StoreReading {
        version: members.iter().find_map(|member| member.version.clone()),
        footprint,
        idle,
        disk_bytes: members.iter().map(|member| member.disk_bytes).sum(),
        facts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::http_server::{Answer, serve};
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn member(startup_micros: u64, disk_bytes: Option<u64>, kernel: &str) -> MemberReading {
        MemberReading {
            version: Some("3.7.3".into()),
            footprint: Some(Footprint { binary_bytes: 20, startup_micros, idle_rss_bytes: 100 }),
            problem: None,
            disk_bytes,
            facts: BTreeMap::from([("kernel".into(), kernel.into()), ("file system".into(), "ext4".into())]),
        }
    }

    fn together(members: &[MemberReading]) -> StoreReading {
        store_reading(members.iter().filter_map(|member| member.footprint), Usage::default(), members)
    }

    #[test]
    fn members_are_put_together() {
        let reading = together(&[member(5, Some(10), "6.1"), member(7, Some(20), "6.2"), member(6, Some(30), "6.1")]);
        assert_eq!(reading.footprint, Footprint { binary_bytes: 20, startup_micros: 7, idle_rss_bytes: 300 });
        assert_eq!((reading.disk_bytes, reading.version.as_deref()), (Some(60), Some("3.7.3")));
        assert_eq!((reading.facts["kernel"].as_str(), reading.facts["file system"].as_str()), ("6.1, 6.2", "ext4"));
        let partly = together(&[member(5, Some(10), "6.1"), member(7, None, "6.1")]);
        assert_eq!(partly.disk_bytes, None, "a part is not the whole");
    }

    /// A meter that gives these readings one after the other, the last again and again.
    fn meter(readings: Vec<Reading>) -> Meters {
        let asked = AtomicUsize::new(0);
        let address = serve("127.0.0.1:0".parse().unwrap(), "test", 1, move |_| {
            let number = asked.fetch_add(1, Ordering::Relaxed);
            Answer::json(&readings[number.min(readings.len() - 1)])
        });
        Meters { addresses: vec![address.unwrap().to_string()], ..Meters::default() }
    }

    fn reading(cpu_nanos: u64, restarts: u32, machine: &str) -> Reading {
        Reading { cpu_nanos, restarts, machine: machine.into(), machine_cpu_nanos: 2 * cpu_nanos, ..Reading::default() }
    }

    #[test]
    fn a_store_that_is_restarted_meanwhile_has_no_usage() {
        let meters = meter(vec![reading(500, 0, ""), reading(3, 1, "")]);
        let said = meters.sample().store.finish().unwrap_err().to_string();
        assert!(said.ends_with("was restarted meanwhile"), "{said}");
    }

    #[test]
    fn what_a_machine_used_is_told_only_of_the_loaders_own() {
        let here = machine::boot_identifier().unwrap();
        for (machine, expected) in [(here.as_str(), 400), ("elsewhere", 0)] {
            let meters = meter(vec![reading(100, 0, machine), reading(300, 0, machine)]);
            let Sampled { usage, machines } = meters.sample().store.finish().unwrap().unwrap();
            assert_eq!((usage.cpu_nanos, usage.machine_cpu_nanos), (200, expected), "{machine}");
            let told: Vec<_> =
                machines.iter().map(|one| (one.machine.as_str(), one.cpu_nanos, one.own_nanos)).collect();
            assert_eq!(told, [(machine, 400, 200)], "of every machine it is told by its name");
            assert_eq!(machines[0].parts, ["store-0".to_owned()].into());
        }
    }

    #[test]
    fn what_is_no_reading_and_a_member_without_a_footprint_are_told_apart() {
        let garbled = Meters { addresses: meter(vec![reading(1, 0, "")]).addresses, ..Meters::default() };
        let said = ask::<Vec<u32>>(&garbled.addresses[0], "/reading").unwrap_err().to_string();
        assert!(said.contains("answered what is no reading: GET /reading"), "{said}");
        let said = footprint_of(&garbled.addresses[0], Instant::now()).unwrap_err().to_string();
        assert!(said.contains("answered what is no reading: GET /store: unknown field"), "{said}");
        let member = MemberReading { problem: Some("it is not idle yet".into()), ..MemberReading::default() };
        let address = serve("127.0.0.1:0".parse().unwrap(), "test", 1, move |_| Answer::json(&member)).unwrap();
        let said = footprint_of(&address.to_string(), Instant::now()).unwrap_err().to_string();
        assert!(said.ends_with("has no footprint: it is not idle yet"), "{said}");
    }

    #[test]
    fn a_silent_meter_yields_an_error_that_names_it_and_no_zeros() {
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let meters = Meters { addresses: vec![address.clone()], ..Meters::default() };
        let said = meters.sample().store.finish().unwrap_err().to_string();
        assert_eq!(said, format!("the meter at {address} does not answer: GET /reading: Connection refused"));
        assert_eq!(Meters::none().sample().store.finish().unwrap(), None);
    }
}
