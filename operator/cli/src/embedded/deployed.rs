//! What one arm of a trial loads: a store, a store with a control plane on it, or a store that was there already.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use storebench_core::validate::{Target, ValidatedArm};

use super::control_plane::ControlPlane;
use super::peers::Binaries;
use super::service::{Between, NeverReady, Service};

/// Between two looks at whether a process has died.
const OBITUARY_INTERVAL: Duration = Duration::from_millis(1);

/// What is loaded.
#[derive(Debug)]
pub(super) enum Deployed {
    /// What was started here, and answers.
    Started(Box<Started>),
    /// A store that was there already, at these addresses. Nothing is known of its processes, and nothing is done to it.
    External(Vec<String>),
}

/// What was started. Dropped, it is killed and its data are removed.
#[derive(Debug)]
pub(super) struct Started {
    /// Killed before the store is: it would complain.
    pub(super) control_plane: Option<ControlPlane>,
    pub(super) store: Service,
}

impl Deployed {
    /// Starts an arm in a directory that exists and that is removed with it. The inner
    /// error is the store's or Kubernetes' doing, the outer ours.
    pub(super) fn start(
        arm: &ValidatedArm,
        binaries: &Binaries,
        directory: &Path,
        between: Between,
    ) -> anyhow::Result<Result<Self, NeverReady>> {
        let service = match &arm.target {
            Target::Service(service) => service,
            Target::ControlPlane(plane) => &plane.service,
            Target::External(store) => return Ok(Ok(Self::External(store.external.endpoints.clone()))),
            Target::Cluster(_) => {
                return Ok(Err(NeverReady("a cluster given by a Secret cannot be started".into())));
            }
        };
        let found = binaries.store.as_ref().context("an arm with a store to start has no executables")?;
        let store = match Service::start(service, found, directory, between)? {
            Ok(store) => store,
            Err(never) => return Ok(Err(never)),
        };
        let mut started = Started { control_plane: None, store };
        if let (Some(control_plane), Some(binaries)) = (arm.control_plane(), &binaries.control_plane) {
            let addresses = started.store.addresses();
            match ControlPlane::start(control_plane, binaries, &addresses, directory)? {
                Ok(running) => started.control_plane = Some(running),
                // Why a store died explains why nothing became ready on it.
                Err(never) => return Ok(Err(started.store.death().map_or(never, NeverReady))),
            }
        }
        Ok(Ok(Self::Started(Box::new(started))))
    }

    /// What was started; `None`: it was there already.
    pub(super) fn started(&self) -> Option<&Started> {
        match self {
            Self::Started(started) => Some(started),
            Self::External(_) => None,
        }
    }

    /// The store, to do something to it. Errors: it was there already, and is somebody's.
    pub(super) fn store(&mut self) -> anyhow::Result<&mut Service> {
        match self {
            Self::Started(started) => Ok(&mut started.store),
            Self::External(_) => anyhow::bail!("a store that was there already is not for us to kill or start"),
        }
    }

    /// Where the load goes.
    pub(super) fn endpoints(&self) -> Vec<String> {
        let started = match self {
            Self::Started(started) => started,
            Self::External(endpoints) => return endpoints.clone(),
        };
        match &started.control_plane {
            Some(control_plane) => vec![control_plane.address()],
            None => started.store.addresses().iter().map(SocketAddr::to_string).collect(),
        }
    }

    /// How a process died, in one line; `None` while all live.
    pub(super) fn death(&mut self) -> Option<String> {
        let Self::Started(started) = self else { return None };
        started.store.death().or_else(|| started.control_plane.as_mut()?.death())
    }

    /// As [`Self::death`], but waits for it.
    pub(super) fn death_within(&mut self, timeout: Duration) -> Option<String> {
        let deadline = Instant::now() + timeout;
        loop {
            let death = self.death();
            if death.is_some() || Instant::now() >= deadline {
                return death;
            }
            std::thread::sleep(OBITUARY_INTERVAL);
        }
    }
}
