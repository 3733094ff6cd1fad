//! `store-meter`, run beside a store.

use std::process::{Command, Stdio};
use std::time::Duration;

use bench_jobs::net::http_client::{HttpError, get};
use harness::{Process, command, free_address};
use rustix::process::Signal;
use serde::de::DeserializeOwned;
use storebench_crds::meter::MemberReading;

/// A store-meter; killed when dropped.
pub struct Meter {
    process: Process,
    pub address: String,
}

impl Meter {
    pub fn start(protocol: &str, store: &str, arguments: &[&str]) -> Self {
        let mut command = command(env!("CARGO_BIN_EXE_store-meter"));
        Self::run(&mut command, protocol, store, arguments)
    }

    /// `command` runs store-meter with the arguments that are added to it.
    pub fn run(command: &mut Command, protocol: &str, store: &str, arguments: &[&str]) -> Self {
        let address = free_address().to_string();
        command
            .args(["--protocol", protocol, "--store", store, "--listen", &address])
            .args(arguments)
            .stderr(Stdio::null());
        let meter = Self { process: Process::start(command), address };
        meter.until(|| meter.ask("/livez").is_ok());
        meter
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    pub fn ask(&self, path: &str) -> Result<String, HttpError> {
        get(&self.address, path, Duration::from_secs(10))
    }

    pub fn read<T: DeserializeOwned>(&self, path: &str) -> T {
        serde_json::from_str(&self.ask(path).unwrap()).unwrap()
    }

    /// Waits until the member has a footprint.
    pub fn member(&self) -> MemberReading {
        self.until(|| self.read::<MemberReading>("/store").footprint.is_some());
        self.read("/store")
    }

    #[track_caller]
    pub fn until(&self, holds: impl Fn() -> bool) {
        harness::until("what store-meter says", holds);
    }
}
