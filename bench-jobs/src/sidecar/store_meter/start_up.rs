//! Measures a store's start: from its process to its first answer, and what it costs idle.
//!
//! The start of the process is when its executable is first seen, if this program waited for it: known to
//! a millisecond. A store that was there first is known to have started at a tick of 10 ms.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use storebench_crds::storage_service::Footprint;

use super::watch::Found;
use super::{StoreMeter, tell};
use crate::family::probe;
use crate::measure::machine;
use crate::measure::meter::Meter;

/// Between two probes of a starting store. Bounds the error of the start-up time.
const PROBE_INTERVAL: Duration = Duration::from_millis(1);
/// A store that has not answered for this long is in trouble; how long it took to the millisecond no longer matters.
const PROMPT: Duration = Duration::from_secs(10);
/// Between two probes of such a store.
const PATIENT_INTERVAL: Duration = Duration::from_millis(100);
/// How long the idle store is watched.
const IDLE_SPAN: Duration = Duration::from_millis(300);
/// A store that was there for longer when this program began may have answered before: when, nobody knows.
const HEAD_START_MAX: Duration = Duration::from_secs(2);

/// What the start has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartUp {
    /// The version as the server itself reports it.
    pub version: Option<String>,
    /// What the idle store costs.
    pub footprint: Footprint,
}

/// Waits for the store's process and for its first answer, then watches it for a moment. Returns when all is known; a
/// store that ends before it has answered is waited for again.
pub fn measure(meter: &StoreMeter) {
    let begun_nanos = machine::boottime_nanos();
    loop {
        let (process, started_nanos) = appeared(meter);
        if begun_nanos.saturating_sub(started_nanos) > HEAD_START_MAX.as_nanos() as u64 {
            let problem = "the store started long before store-meter did: when it first answered is not known";
            tell(problem);
            return meter.note(Err(problem.into()));
        }
        meter.note(Err("the store has not answered yet".into()));
        let Some(answered_nanos) = answered(meter, &process) else { continue };
        let startup_micros = answered_nanos.saturating_sub(started_nanos) / 1_000;
        tell(&format!("the store answered {startup_micros} µs after its process had started"));
        let start_up = idle(meter, &process, startup_micros);
        if let Err(problem) = &start_up {
            tell(problem);
        }
        return meter.note(start_up);
    }
}

/// Waits for the store's process: when it started, nanoseconds since the machine did.
fn appeared(meter: &StoreMeter) -> (Found, u64) {
    let begun = Instant::now();
    let mut was_absent = false;
    loop {
        match meter.watch.find() {
            Ok(found) if was_absent => return (found, machine::boottime_nanos()),
            Ok(found) => {
                let started_nanos = found.started_ticks * machine::nanos_per_tick();
                return (found, started_nanos);
            }
            Err(problem) => meter.note(Err(problem.to_string())),
        }
        was_absent = true;
        sleep(interval(begun));
    }
}

/// Waits for the store's first answer: when it came, nanoseconds since the machine started. `None`: the process ended.
fn answered(meter: &StoreMeter, process: &Found) -> Option<u64> {
    let begun = Instant::now();
    loop {
        if meter.readiness.ask().is_ok() {
            return Some(machine::boottime_nanos());
        }
        if meter.watch.find().ok().as_ref() != Some(process) {
            return None;
        }
        sleep(interval(begun));
    }
}

/// Between two probes of a store that has been waited for since then.
fn interval(begun: Instant) -> Duration {
    if begun.elapsed() < PROMPT { PROBE_INTERVAL } else { PATIENT_INTERVAL }
}

/// Watches the idle store.
fn idle(meter: &StoreMeter, process: &Found, startup_micros: u64) -> Result<StartUp, String> {
    let watched = Meter::start(&process.processes);
    sleep(IDLE_SPAN);
    let idle = watched.finish();
    let version = probe::version(meter.protocol, meter.store);
    if let Err(problem) = &version {
        tell(&format!("the store's version is not known: {problem}"));
    }
    let executable = process.processes.first().map(|pid| PathBuf::from(format!("/proc/{pid}/exe")));
    let binary = executable.ok_or("there is no process").and_then(|path| {
        // Follows the link into the store's own file system.
        std::fs::metadata(path).map_err(|_| "its process is gone")
    });
    let binary_bytes = binary.map_err(|error| format!("the store's executable cannot be weighed: {error}"))?.len();
    let footprint = Footprint { binary_bytes, startup_micros, idle_rss_bytes: idle.rss_average_bytes };
    Ok(StartUp { version: version.ok(), footprint })
}
