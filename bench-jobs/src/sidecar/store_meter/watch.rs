//! Finds the store's processes, and notices when they are replaced.
//!
//! In a process namespace that the containers of a pod share, the first process of each container has no parent, and
//! process 1 is the pod's own, which only holds the namespace. Whatever else has no parent and is not this program is the
//! store. (A shell that somebody opened in a container looks the same; it matters only if it is there when the store's
//! processes are first found.)

use std::sync::{Mutex, PoisonError};

use procfs::process::{Process, all_processes};
use storebench_crds::meter::Reading;

use crate::measure::meter::Extras;
use crate::measure::meter::tree::ProcessTree;
use crate::net::http_server::Request;

/// The store's root processes, while they live.
#[derive(Debug)]
pub struct Watch {
    whose: Whose,
    found: Mutex<Tracked>,
}

/// Which root processes are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// This process, which the user named.
    Process(u32),
    /// All.
    Every,
    /// Those of the executable of this name; see [`command_name`].
    Executable(String),
    /// All but those of the executable of this name.
    EveryBut(String),
}

/// What the kernel calls a process of an executable of this name: it keeps 15 bytes.
pub fn command_name(executable: &str) -> String {
    executable.get(..15).unwrap_or(executable).to_owned()
}

#[derive(Debug, Default)]
struct Tracked {
    roots: Vec<Root>,
    restarts: u32,
}

/// Why no process of a store is found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoStore {
    /// There is none.
    #[error("no process of a store is there: it has not started, or the pod lacks shareProcessNamespace: true")]
    Absent,
    /// There is one that nobody may look into: that of a container runtime, which replaces itself by the store, or of
    /// another user.
    #[error("process {pid} has not started, or store-meter does not run as its user: {reason}")]
    Hidden {
        /// The process.
        pid: i32,
        /// What the system says.
        reason: String,
    },
}

/// A process; its number alone may be given to another one later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Root {
    pid: i32,
    started_ticks: u64,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The root processes.
    pub processes: Vec<u32>,
    /// When the first of them was started, ticks since the machine was.
    pub started_ticks: u64,
    /// How often they were replaced since they were first found.
    pub restarts: u32,
}

impl Watch {
    /// Watches these.
    pub fn new(whose: Whose) -> Self {
        Self { whose, found: Mutex::default() }
    }

    /// The store's root processes: those found before if they still live, else those that are there now.
    pub fn find(&self) -> Result<Found, NoStore> {
        let mut tracked = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if tracked.roots.is_empty() || !tracked.roots.iter().all(|root| root.lives()) {
            let roots = match &self.whose {
                Whose::Process(pid) => Root::of(pid.cast_signed()).into_iter().collect(),
                Whose::Every => roots(|_| true),
                Whose::Executable(name) => roots(|command| command == *name),
                Whose::EveryBut(name) => roots(|command| command != *name),
            };
            let roots = visible(roots)?;
            tracked.restarts += u32::from(!tracked.roots.is_empty());
            tracked.roots = roots;
        }
        Ok(Found {
            processes: tracked.roots.iter().map(|root| root.pid.unsigned_abs()).collect(),
            started_ticks: tracked.roots.iter().map(|root| root.started_ticks).min().unwrap_or_default(),
            restarts: tracked.restarts,
        })
    }

    /// Whether none of the processes that were found last lives any more.
    pub fn has_ended(&self) -> bool {
        let tracked = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        !tracked.roots.iter().any(|root| root.lives())
    }

    /// What the processes use, with what a request's query asks for besides.
    pub fn read(&self, request: &Request) -> Result<Reading, NoStore> {
        let found = self.find()?;
        let extras = Extras { switches: !request.has("switches", "false"), pss: request.has("pss", "true") };
        Ok(Reading { restarts: found.restarts, ..ProcessTree::of(&found.processes).read(extras) })
    }
}

impl Root {
    fn of(pid: i32) -> Option<Self> {
        let stat = Process::new(pid).ok()?.stat().ok()?;
        (stat.state != 'Z').then_some(Self { pid, started_ticks: stat.starttime })
    }

    fn lives(self) -> bool {
        Self::of(self.pid) == Some(self)
    }
}

/// Processes without a parent whose executable is wanted, besides process 1 and this one.
fn roots(is_wanted: impl Fn(&str) -> bool) -> Vec<Root> {
    let own = std::process::id().cast_signed();
    let all = all_processes().into_iter().flatten().flatten();
    all.filter_map(|process| process.stat().ok())
        .filter(|stat| stat.ppid == 0 && stat.pid != 1 && stat.pid != own && stat.state != 'Z')
        .filter(|stat| is_wanted(&stat.comm))
        .map(|stat| Root { pid: stat.pid, started_ticks: stat.starttime })
        .collect()
}

/// The processes, if there are any and their executables can be read.
fn visible(roots: Vec<Root>) -> Result<Vec<Root>, NoStore> {
    if roots.is_empty() {
        return Err(NoStore::Absent);
    }
    for &Root { pid, .. } in &roots {
        let executable = Process::new(pid).and_then(|process| process.exe());
        executable.map_err(|error| NoStore::Hidden { pid, reason: error.to_string() })?;
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn sleeping() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_named_process_is_found_while_it_lives() {
        let child = sleeping();
        let watch = Watch::new(Whose::Process(child.id()));
        let found = watch.find().unwrap();
        assert_eq!((found.processes.as_slice(), found.restarts), ([child.id()].as_slice(), 0));
        assert_eq!(watch.find().unwrap(), found);
        end(child);
        assert_eq!(watch.find(), Err(NoStore::Absent));
    }

    #[test]
    fn a_process_that_was_replaced_is_counted() {
        let (first, second) = (sleeping(), sleeping());
        let mut watch = Watch::new(Whose::Process(first.id()));
        watch.find().unwrap();
        end(first);
        assert!(watch.find().is_err());
        watch.whose = Whose::Process(second.id());
        let found = watch.find().unwrap();
        end(second);
        assert_eq!(found.restarts, 1);
    }
}
