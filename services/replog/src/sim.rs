//! The simulator: a group of members, their clients, and everything that goes wrong, in one thread and in no real time. A seed
//! decides all of it, so that a seed that fails does so again, step by step, with a trace.
//!
//! Members run the code that servers run, [`crate::ReplicatedLog`] on a `wal::Log`; only the directory, the network and the clocks
//! are not real. See `checks` for what must be true after every step, and `faults` for what happens.

mod checks;
mod clients;
mod faults;
mod host;
mod kv;
mod life;
mod looks;
mod mirror;
mod network;
mod settings;
mod world;

#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::bugs::Bug;

pub use checks::Violation;
pub use world::Stats;

/// What is to be simulated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// An error to plant.
    pub bug: Option<Bug>,
    /// Whether to print everything that happens.
    pub trace: bool,
    /// Do not look at what disks hold: find only harm that was done.
    pub harm_only: bool,
    /// Members at the beginning; 0 lets the seed decide.
    pub nodes: u64,
}

/// What came of a seed.
#[derive(Clone, Debug)]
pub struct Report {
    /// The first promise that was broken.
    pub violation: Option<Violation>,
    /// What happened, in numbers.
    pub stats: Stats,
    /// A hash of everything that happened: the same for the same seed and options.
    pub fingerprint: u64,
}

/// Simulates one seed.
pub fn run(seed: u64, options: Options) -> Report {
    let mut world = world::World::new(seed, options);
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    let violation = match outcome {
        Ok(Ok(())) => None,
        Ok(Err(violation)) => Some(violation),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Some(Violation { promise: "no assertion fails", detail: text.unwrap_or_default() })
        }
    };
    if let Some(violation) = &violation {
        world.say(0, || format!("BROKEN: {}: {}", violation.promise, violation.detail));
    }
    Report { violation, stats: world.stats.clone(), fingerprint: world.fingerprint }
}

/// Keeps assertions that fail from printing: they are in the report.
pub fn quiet_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}
