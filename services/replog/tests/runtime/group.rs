//! Groups of members in this process.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use replog::runtime::identity::Begun;
use replog::runtime::{
    Committed, Handle, Limits, LocalNetwork, Member, MemberError, Origin, ProposeError, Start, Transport,
};
use replog::{Membership, Role, Settings};
use wal::files::{Directory, RealDirectory};

use crate::machine::{List, Seen};

/// Nothing takes so long, on whatever machine.
pub const LONG: Duration = Duration::from_secs(120);

pub fn settings() -> Settings {
    Settings { tick_micros: 10_000, heartbeat_ticks: 5, election_ticks: 60, ..Settings::default() }
}

pub const WAL_OPTIONS: wal::Options =
    wal::Options { segment_bytes: 256 << 10, first_segment_bytes: 64 << 10, sync: true };

/// A member and what its readers see.
pub struct Running {
    pub id: u64,
    pub member: Member<usize>,
    pub handle: Handle<usize>,
    pub seen: Arc<Mutex<Seen>>,
}

pub fn start_in<D: Directory>(
    id: u64,
    settings: Settings,
    limits: Limits,
    (wal, snapshots): (D, D),
    origin: Origin,
    transport: Box<dyn Transport>,
) -> Result<Running, MemberError> {
    let seen = Arc::default();
    let machine = List::new(&seen);
    let (wal_options, begun) = (WAL_OPTIONS, Begun::unwritten());
    let start = Start { id, settings, limits, wal_options, machine, wal, snapshots, origin, begun, transport };
    let member = Member::start(start)?;
    Ok(Running { id, handle: member.handle(), member, seen })
}

impl Running {
    pub fn commands(&self) -> Vec<String> {
        self.seen.lock().unwrap().commands.to_vec()
    }

    pub fn propose(&self, command: &str) -> Result<Committed<usize>, ProposeError> {
        self.handle.propose_blocking(Bytes::copy_from_slice(command.as_bytes()))
    }

    pub fn wait_until_it_leads(&self) {
        self.handle.wait_for(|status| status.role == Role::Leader, LONG).expect("it leads some time");
    }

    pub fn wait_until_applied(&self, index: u64) {
        self.handle.wait_for(|status| status.applied >= index, LONG).expect("it catches up some time");
    }
}

/// Founders on real files and a network in memory.
pub struct Group {
    pub network: LocalNetwork,
    pub settings: Settings,
    pub founders: Membership,
    pub members: Vec<Option<Running>>,
    scratch: harness::TempDir,
}

impl Group {
    pub fn of(founders: u64, settings: Settings) -> Self {
        let mut group = Self {
            network: LocalNetwork::default(),
            settings,
            founders: Membership::of(1..=founders),
            members: Vec::new(),
            scratch: harness::folder(),
        };
        (1..=founders).for_each(|id| group.start(id));
        group
    }

    pub fn path(&self, id: u64) -> PathBuf {
        self.scratch.path().join(id.to_string())
    }

    pub fn try_start(&self, id: u64) -> Result<Running, MemberError> {
        let is_founder = self.founders.voters.contains(&id);
        let origin = if is_founder { Origin::Found(self.founders.clone()) } else { Origin::Join };
        self.start_as(id, origin)
    }

    pub fn start_as(&self, id: u64, origin: Origin) -> Result<Running, MemberError> {
        let transport = self.network.join(id);
        start_in(id, self.settings.clone(), Limits::default(), directories(&self.path(id)), origin, transport)
    }

    pub fn start(&mut self, id: u64) {
        let running = self.try_start(id).unwrap();
        let at = id as usize - 1;
        if self.members.len() <= at {
            self.members.resize_with(at + 1, || None);
        }
        self.members[at] = Some(running);
    }

    pub fn stop(&mut self, id: u64) {
        let running = self.members[id as usize - 1].take().unwrap();
        running.member.stop().unwrap();
    }

    pub fn member(&self, id: u64) -> &Running {
        self.members[id as usize - 1].as_ref().unwrap()
    }

    pub fn running(&self) -> impl Iterator<Item = &Running> {
        self.members.iter().flatten()
    }

    /// Proposes at whoever leads, until it is known to have succeeded. A command whose outcome is not known is proposed again.
    pub fn propose(&self, command: &str) -> (u64, Committed<usize>) {
        let deadline = std::time::Instant::now() + LONG;
        loop {
            assert!(std::time::Instant::now() < deadline, "nobody leads");
            for running in self.running().filter(|running| running.handle.status().role == Role::Leader) {
                if let Ok(committed) = running.propose(command) {
                    return (running.id, committed);
                }
            }
            std::thread::yield_now();
        }
    }

    pub fn wait_until_all_have(&self, index: u64) {
        self.running().for_each(|running| running.wait_until_applied(index));
    }
}

pub fn directories(path: &Path) -> (RealDirectory, RealDirectory) {
    std::fs::create_dir_all(path).unwrap();
    (RealDirectory::open(path.join("wal")).unwrap(), RealDirectory::open(path.join("snapshots")).unwrap())
}
