//! The state machine of these tests: the commands that were applied, and how many.

use std::io::Read;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use replog::{Entry, RestoreError, SnapshotView, StateMachine};

/// A command that takes long to apply, and one with which the state takes long to restore: several elections of who uses them.
pub const SLOW: &str = "slow";
pub const SLOW_TO_RESTORE: &str = "slow to restore";
const LONG_STEP: Duration = Duration::from_secs(4);

/// What is seen by readers: published once for each batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub index: u64,
    pub commands: Arc<Vec<String>>,
    /// Replies that were made: somebody waits for each of them.
    pub replies: usize,
}

/// A list of everything.
#[derive(Debug, Default)]
pub struct List {
    commands: Arc<Vec<String>>,
    replies: usize,
    pub seen: Arc<Mutex<Seen>>,
}

impl List {
    pub fn new(seen: &Arc<Mutex<Seen>>) -> Self {
        Self { commands: Arc::default(), replies: 0, seen: Arc::clone(seen) }
    }
}

impl StateMachine for List {
    type Reply = usize;

    fn apply(&mut self, entry: &Entry) -> usize {
        self.apply_unasked(entry);
        self.replies += 1;
        self.commands.len()
    }

    fn apply_unasked(&mut self, entry: &Entry) {
        if entry.data == SLOW {
            std::thread::sleep(LONG_STEP);
        }
        Arc::make_mut(&mut self.commands).push(String::from_utf8(entry.data.to_vec()).unwrap());
    }

    fn takes_long<'a>(&self, mut commands: impl Iterator<Item = (&'a Entry, bool)>) -> bool {
        commands.any(|(entry, _)| entry.data == SLOW)
    }

    fn applied(&mut self, index: u64) {
        *self.seen.lock().unwrap() = Seen { index, commands: Arc::clone(&self.commands), replies: self.replies };
    }

    fn snapshot(&self) -> SnapshotView {
        let commands = Arc::clone(&self.commands);
        Box::new(move |to| to.write_all(commands.join("\n").as_bytes()))
    }

    fn restore(&mut self, snapshot: &mut dyn Read) -> Result<(), RestoreError> {
        let mut text = String::new();
        snapshot.read_to_string(&mut text)?;
        if text.contains(SLOW_TO_RESTORE) {
            std::thread::sleep(LONG_STEP);
        }
        self.commands = Arc::new(text.lines().map(str::to_owned).collect());
        Ok(())
    }
}

/// A list that keeps its state over restarts, as far as `kept` says.
#[derive(Debug)]
pub struct KeptList {
    pub list: List,
    pub kept: Arc<Mutex<u64>>,
}

impl StateMachine for KeptList {
    type Reply = usize;

    fn apply(&mut self, entry: &Entry) -> usize {
        self.list.apply(entry)
    }

    fn applied(&mut self, index: u64) {
        *self.kept.lock().unwrap() = index;
        self.list.applied(index);
    }

    fn kept(&self) -> u64 {
        *self.kept.lock().unwrap()
    }

    fn forget(&mut self) -> Result<(), RestoreError> {
        *self.kept.lock().unwrap() = 0;
        Ok(())
    }

    fn snapshot(&self) -> SnapshotView {
        self.list.snapshot()
    }

    fn restore(&mut self, snapshot: &mut dyn Read) -> Result<(), RestoreError> {
        self.list.restore(snapshot)
    }
}

/// A list that notes of which time it was restored.
#[derive(Debug)]
pub struct DatedList {
    pub list: List,
    pub restored_millis: Arc<Mutex<Vec<u64>>>,
}

impl StateMachine for DatedList {
    type Reply = usize;

    fn apply(&mut self, entry: &Entry) -> usize {
        self.list.apply(entry)
    }

    fn snapshot(&self) -> SnapshotView {
        self.list.snapshot()
    }

    fn restore(&mut self, snapshot: &mut dyn Read) -> Result<(), RestoreError> {
        self.list.restore(snapshot)
    }

    fn restored(&mut self, time_millis: u64) {
        self.restored_millis.lock().unwrap().push(time_millis);
    }
}
