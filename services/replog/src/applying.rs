//! The state machine at work: in its place where a step is quick, beside the protocol where it takes long.
//!
//! What takes long is handed out as a [`LongStep`], with the state machine in it. Until that comes back the member goes on: it votes,
//! is heard, writes its log, acknowledges and counts; what is decided meanwhile waits in a queue. So no command and no snapshot,
//! however large, costs a leader its place or a group a follower.

use std::collections::VecDeque;

use wal::files::Directory;

use crate::entry::{Entry, EntryKind};
use crate::machine::{RestoreError, StateMachine};
use crate::snapshot::{ChunkReader, SnapshotMeta};

/// What the state machine has to take in.
enum Step<D: Directory> {
    Install(SnapshotMeta, Box<ChunkReader<D::File>>),
    /// Entries in order, and of each whether somebody here waits for its reply.
    Apply(Vec<(Entry, bool)>),
}

/// An entry that was applied.
#[derive(Debug)]
pub struct Applied<R> {
    /// The index of the entry that was applied.
    pub index: u64,
    /// Its term: see [`crate::Proposed`].
    pub term: u64,
    /// What the state machine said to a command that was proposed here.
    pub reply: Option<R>,
}

/// What came of a step.
pub(crate) struct Progress<R> {
    /// The snapshot that replaced the state, if it was that.
    pub(crate) installed: Option<SnapshotMeta>,
    pub(crate) applied: Vec<Applied<R>>,
    /// Newest time of the entries, and their size.
    pub(crate) time_millis: u64,
    pub(crate) bytes: u64,
    /// The state machine has everything up to here.
    pub(crate) last: u64,
}

/// A step that takes long, and the state machine that takes it: to be run on another thread, and then
/// [`crate::ReplicatedLog::long_step_done`] must be told.
pub struct LongStep<S: StateMachine, D: Directory> {
    machine: S,
    step: Step<D>,
}

impl<S: StateMachine, D: Directory> std::fmt::Debug for LongStep<S, D> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("LongStep").finish_non_exhaustive()
    }
}

/// A state machine that comes back from a long step, and what came of it.
pub struct LongStepDone<S: StateMachine> {
    machine: S,
    outcome: Result<Progress<S::Reply>, RestoreError>,
}

impl<S: StateMachine, D: Directory> LongStep<S, D> {
    /// Takes as long as it takes.
    pub fn run(self) -> LongStepDone<S> {
        let Self { mut machine, step } = self;
        let outcome = step.take(&mut machine);
        LongStepDone { machine, outcome }
    }
}

impl<D: Directory> Step<D> {
    fn takes_long<S: StateMachine>(&self, machine: &S) -> bool {
        match self {
            Self::Install(..) => true,
            Self::Apply(entries) => {
                let commands = entries.iter().filter(|(entry, _)| entry.kind == EntryKind::Command);
                machine.takes_long(commands.map(|(entry, is_awaited)| (entry, *is_awaited)))
            }
        }
    }

    fn take<S: StateMachine>(self, machine: &mut S) -> Result<Progress<S::Reply>, RestoreError> {
        let mut progress = Progress { installed: None, applied: Vec::new(), time_millis: 0, bytes: 0, last: 0 };
        match self {
            Self::Install(meta, mut reader) => {
                machine.restore(&mut *reader)?;
                machine.restored(meta.time_millis);
                (progress.last, progress.time_millis) = (meta.index, meta.time_millis);
                progress.installed = Some(meta);
            }
            Self::Apply(entries) => {
                progress.applied.reserve(entries.len());
                for (entry, is_awaited) in &entries {
                    progress.last = entry.index;
                    progress.time_millis = progress.time_millis.max(entry.time_millis);
                    progress.bytes += entry.data.len() as u64;
                    let reply = match entry.kind == EntryKind::Command {
                        true if *is_awaited => Some(machine.apply(entry)),
                        true => {
                            machine.apply_unasked(entry);
                            None
                        }
                        false => None,
                    };
                    progress.applied.push(Applied { index: entry.index, term: entry.term, reply });
                }
            }
        }
        machine.applied(progress.last);
        Ok(progress)
    }
}

/// The state machine, if it is here, and what it has yet to take in.
pub(crate) struct Applying<S: StateMachine, D: Directory> {
    /// `None`: it takes a long step elsewhere.
    machine: Option<S>,
    steps: VecDeque<Step<D>>,
    waiting_bytes: usize,
}

/// What is next.
pub(crate) enum Next<S: StateMachine, D: Directory> {
    /// A step was taken.
    Taken(Progress<S::Reply>),
    /// To be taken elsewhere.
    Long(LongStep<S, D>),
    /// Nothing, for now.
    Nothing,
}

impl<S: StateMachine, D: Directory> Applying<S, D> {
    pub(crate) fn new(machine: S) -> Self {
        Self { machine: Some(machine), steps: VecDeque::new(), waiting_bytes: 0 }
    }

    /// The state machine, unless it takes a long step elsewhere.
    pub(crate) fn machine(&self) -> Option<&S> {
        self.machine.as_ref()
    }

    pub(crate) fn machine_mut(&mut self) -> Option<&mut S> {
        self.machine.as_mut()
    }

    /// Bytes of entries that wait for the state machine.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// A snapshot replaces the state, and whatever was to be applied before.
    pub(crate) fn install(&mut self, meta: SnapshotMeta, reader: ChunkReader<D::File>) {
        self.steps.clear();
        self.waiting_bytes = 0;
        self.steps.push_back(Step::Install(meta, Box::new(reader)));
    }

    pub(crate) fn apply(&mut self, entries: Vec<(Entry, bool)>) {
        let step = Step::Apply(entries);
        self.waiting_bytes += step.bytes();
        self.steps.push_back(step);
    }

    /// Takes the next step, or hands it out.
    pub(crate) fn advance(&mut self) -> Result<Next<S, D>, RestoreError> {
        let Some(machine) = &mut self.machine else { return Ok(Next::Nothing) };
        let Some(step) = self.steps.pop_front() else { return Ok(Next::Nothing) };
        self.waiting_bytes -= step.bytes();
        if !step.takes_long(machine) {
            return step.take(machine).map(Next::Taken);
        }
        match self.machine.take() {
            Some(machine) => Ok(Next::Long(LongStep { machine, step })),
            None => Ok(Next::Nothing),
        }
    }

    /// A long step was taken.
    pub(crate) fn long_step_done(&mut self, done: LongStepDone<S>) -> Result<Progress<S::Reply>, RestoreError> {
        self.machine = Some(done.machine);
        done.outcome
    }
}

impl<D: Directory> Step<D> {
    fn bytes(&self) -> usize {
        match self {
            Self::Install(..) => 0,
            Self::Apply(entries) => {
                entries.iter().map(|(entry, _)| entry.data.len() + std::mem::size_of::<Entry>()).sum()
            }
        }
    }
}
