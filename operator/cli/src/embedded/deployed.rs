//! What one arm of a trial loads: a store, or a store with a control plane on it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use storebench_core::validate::ValidatedArm;

use super::control_plane::ControlPlane;
use super::peers::Binaries;
use super::service::{NeverReady, Service};

/// Between two looks at whether a process has died.
const OBITUARY_INTERVAL: Duration = Duration::from_millis(1);

/// What answers. Dropped, it is killed and its data are removed.
#[derive(Debug)]
pub(super) struct Deployed {
    /// Killed before the store is: it would complain.
    pub(super) control_plane: Option<ControlPlane>,
    pub(super) store: Service,
}

impl Deployed {
    /// Starts an arm in a directory that exists and that is removed with it; `fault_proxy` as for [`Service::start`]. The inner
    /// error is the store's or Kubernetes' doing, the outer ours.
    pub(super) fn start(
        arm: &ValidatedArm,
        binaries: &Binaries,
        directory: &Path,
        fault_proxy: bool,
        timeout: Duration,
    ) -> anyhow::Result<Result<Self, NeverReady>> {
        let Some(service) = arm.service() else {
            return Ok(Err(NeverReady("a cluster given by a Secret cannot be started".into())));
        };
        let store = match Service::start(service, &binaries.store, directory, fault_proxy, timeout)? {
            Ok(store) => store,
            Err(never) => return Ok(Err(never)),
        };
        let mut deployed = Self { control_plane: None, store };
        if let (Some(control_plane), Some(binaries)) = (arm.control_plane(), &binaries.control_plane) {
            let addresses = deployed.store.addresses();
            match ControlPlane::start(control_plane, binaries, &addresses, directory, timeout)? {
                Ok(running) => deployed.control_plane = Some(running),
                // Why a store died explains why nothing became ready on it.
                Err(never) => return Ok(Err(deployed.store.death().map_or(never, NeverReady))),
            }
        }
        Ok(Ok(deployed))
    }

    /// Where the load goes.
    pub(super) fn endpoints(&self) -> Vec<String> {
        match &self.control_plane {
            Some(control_plane) => vec![control_plane.address()],
            None => self.store.addresses().iter().map(SocketAddr::to_string).collect(),
        }
    }

    /// How a process died, in one line; `None` while all live.
    pub(super) fn death(&mut self) -> Option<String> {
        self.store.death().or_else(|| self.control_plane.as_mut()?.death())
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
