//! What of an arm is measured during a phase: its store, the control plane on it, and the thread of ours through which requests go, where there is
//! one.

use std::path::PathBuf;
use std::time::Instant;

use bench_jobs::measure::meter::Meter;
use bench_jobs::measure::thread::ThreadUse;
use storebench_core::record::ControlPlaneUsage;
use storebench_core::trial::{Gathering, ThreadInTheWay};

use super::deployed::Started;
use super::relay;

/// Whose use is measured.
pub(super) struct Processes {
    store: Vec<u32>,
    /// Where the store keeps its data.
    data: PathBuf,
    /// The API server, and the other processes of the control plane.
    control_plane: Option<(u32, Vec<u32>)>,
}

impl Processes {
    pub(super) fn of(started: &Started) -> Self {
        let control_plane = started.control_plane.as_ref();
        Self {
            store: started.store.processes(),
            data: started.store.data(),
            control_plane: control_plane.map(|plane| (plane.api_server(), plane.others())),
        }
    }

    /// Measures them from now on.
    pub(super) fn measure(&self) -> Meters {
        let control_plane = self.control_plane.as_ref();
        Meters {
            store: Meter::of_store(&self.store, &self.data),
            control_plane: control_plane.map(|(server, others)| (Meter::start(&[*server]), Meter::start(others))),
        }
    }
}

/// What is measured of a phase.
pub(super) struct Meters {
    store: Meter,
    control_plane: Option<(Meter, Meter)>,
}

impl Meters {
    pub(super) fn sample(&mut self) {
        self.store.sample();
        if let Some((api_server, others)) = &mut self.control_plane {
            api_server.sample();
            others.sample();
        }
    }

    pub(super) fn finish(self, workload: &str, gathering: &mut Gathering) {
        gathering.usage(workload, self.store.finish());
        if let Some((api_server, others)) = self.control_plane {
            let usage = ControlPlaneUsage { api_server: api_server.finish(), others: others.finish() };
            gathering.control_plane_usage(workload, usage);
        }
    }
}

/// The thread that relays, during a phase.
pub(super) struct Relaying {
    thread: i32,
    begun: Instant,
    before: ThreadUse,
}

impl Relaying {
    /// A phase begins.
    pub(super) fn begin(thread: i32) -> Self {
        Self { thread, begun: Instant::now(), before: ThreadUse::of_own(thread) }
    }

    /// The phase is over.
    pub(super) fn finish(&self) -> ThreadInTheWay {
        let used = ThreadUse::of_own(self.thread).since(self.before);
        ThreadInTheWay {
            name: relay::THREAD.into(),
            cpu_nanos: used.cpu_nanos,
            waited_nanos: used.waited_nanos,
            elapsed_nanos: self.begun.elapsed().as_nanos() as u64,
        }
    }
}
