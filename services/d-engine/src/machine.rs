//! Between the log and the state: what was applied becomes visible, batch by batch.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use bytes::Bytes;
use replog::{Entry, RestoreError, SnapshotView, StateMachine};

use crate::history::History;
use tokio::sync::watch;

use crate::state::{
    Applied, Defragmentation, EachRow, Roster, Rows, State, StateError, Storage, StorageError, Table, Users,
};

/// A state as of a moment. Everything read from one view is of one moment.
pub struct View {
    /// Its rows.
    pub rows: Arc<dyn Rows + Send + Sync>,
    /// It has every entry up to this one.
    pub applied: u64,
    /// Its users.
    pub users: Arc<Users>,
    /// How many sessions are open.
    pub sessions: usize,
}

/// What a member's state shows to everybody else. Clones show the same.
#[derive(Clone)]
pub struct Shown {
    view: Arc<ArcSwap<View>>,
    /// What has happened.
    pub history: Arc<History>,
    users: watch::Sender<Arc<Users>>,
    /// None any more once the state has ended.
    roster: watch::Sender<Option<Arc<Roster>>>,
    broken: Arc<OnceLock<StateError>>,
    /// None any more once the state has ended.
    defragmentation: Arc<Mutex<Option<Defragmentation>>>,
}

impl Shown {
    /// What is visible now: all in it is on the disks of a quorum.
    pub fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// The users, and each change of them, once it is visible.
    pub fn users(&self) -> watch::Receiver<Arc<Users>> {
        self.users.subscribe()
    }

    /// What the group knows of itself, and each change of it, once it is visible. None once the state has ended: others may know more by then.
    pub fn roster(&self) -> watch::Receiver<Option<Arc<Roster>>> {
        self.roster.subscribe()
    }

    /// The same, as it is now.
    pub fn known(&self) -> Option<Arc<Roster>> {
        self.roster.borrow().clone()
    }

    /// Why the state cannot go on, if it cannot.
    pub fn broken(&self) -> Option<&StateError> {
        self.broken.get()
    }

    /// Rewrites the files of the state, if it has some.
    pub fn defragmentation(&self) -> Option<Defragmentation> {
        self.defragmentation.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Shown {
    /// From here on its rows are not to be seen.
    fn end(&self, why: String) {
        let last = self.view();
        let View { applied, sessions, .. } = *last;
        let users = Arc::clone(&last.users);
        self.view.store(Arc::new(View { rows: Arc::new(Ended(why)), applied, users, sessions }));
        self.roster.send_replace(None);
    }

    /// Tells of users and of what the group knows of itself where these have changed. After they are visible: who hears of it looks at them.
    fn tell(&self, users: &Arc<Users>, roster: &Arc<Roster>) {
        self.users.send_if_modified(|told| {
            let is_new = !Arc::ptr_eq(told, users);
            *told = Arc::clone(users);
            is_new
        });
        self.roster.send_if_modified(|told| {
            let is_new = !told.as_ref().is_some_and(|told| Arc::ptr_eq(told, roster));
            *told = Some(Arc::clone(roster));
            is_new
        });
    }
}

/// What is seen of a state that has ended, and why. The log may go on for a moment after one that cannot: whoever waited for what it applies
/// shall not find what was there before. Who still has a view to ask for does not keep files open.
struct Ended(String);

impl Rows for Ended {
    fn get(&self, _: Table, _: &[u8]) -> Result<Option<Bytes>, StorageError> {
        Err(StorageError(self.0.clone()))
    }

    fn scan(&self, _: Table, _: &[u8], _: Option<&[u8]>, _: &mut EachRow<'_>) -> Result<(), StorageError> {
        Err(StorageError(self.0.clone()))
    }
}

/// The member cannot apply any more; what became of a command is not known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// What the log tells who proposed.
pub type Reply = Result<Applied, Broken>;

/// The state, driven by the log.
pub struct Machine<S> {
    state: State<S>,
    shown: Shown,
}

impl<S: Storage> Machine<S> {
    /// Of what the storage has.
    pub fn new(storage: S) -> Result<Self, StorageError> {
        let defragmentation = Arc::new(Mutex::new(storage.defragmentation()));
        let state = State::new(storage)?;
        let users = watch::Sender::new(Arc::clone(state.users()));
        let roster = watch::Sender::new(Some(Arc::clone(state.roster())));
        let view = View {
            rows: state.view(),
            applied: state.committed(),
            users: Arc::clone(state.users()),
            sessions: state.sessions(),
        };
        let history = Arc::new(History::new(state.committed() + 1));
        let view = Arc::new(ArcSwap::from_pointee(view));
        Ok(Self { state, shown: Shown { view, history, users, roster, broken: Arc::default(), defragmentation } })
    }

    /// What it shows.
    pub fn shown(&self) -> Shown {
        self.shown.clone()
    }

    /// Lets the state do what an entry says.
    fn given<T>(
        &mut self,
        entry: &Entry,
        apply: impl FnOnce(&mut State<S>, u64, u64, u64, Bytes) -> Result<T, StateError>,
    ) -> Result<T, Broken> {
        // What a storage has kept is not done again: nobody waits for the answer.
        if self.shown.broken().is_some() || entry.index <= self.state.committed() {
            return Err(Broken);
        }
        let applied = apply(&mut self.state, entry.index, entry.term, entry.time_millis, entry.data.clone());
        applied.map_err(|error| {
            self.end(error);
            Broken
        })
    }

    /// From here on nothing is applied, and nothing is read. The first reason counts.
    fn end(&self, why: StateError) {
        tracing::error!(error = %why, "the state cannot go on");
        let text = why.to_string();
        // First: who hears that the state has ended asks why.
        let _ = self.shown.broken.set(why);
        self.shown.end(text);
    }
}

impl<S> Drop for Machine<S> {
    fn drop(&mut self) {
        self.shown.defragmentation.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.shown.end("the engine has stopped".into());
    }
}

impl<S: Storage> StateMachine for Machine<S> {
    type Reply = Reply;

    fn apply(&mut self, entry: &Entry) -> Reply {
        self.given(entry, State::apply)
    }

    fn apply_unasked(&mut self, entry: &Entry) {
        // What has failed is told by what is shown from then on.
        let _ = self.given(entry, State::apply_unasked);
    }

    fn takes_long<'a>(&self, commands: impl Iterator<Item = (&'a Entry, bool)>) -> bool {
        // A storage that cannot tell will say so where it is used.
        self.state.takes_long(commands.map(|(entry, _)| &entry.data)).unwrap_or(true)
    }

    fn applied(&mut self, index: u64) {
        if self.shown.broken().is_some() || index < self.state.committed() {
            return;
        }
        if let Err(error) = self.state.commit(index) {
            return self.end(error.into());
        }
        let users = Arc::clone(self.state.users());
        let (rows, sessions) = (self.state.view(), self.state.sessions());
        self.shown.view.store(Arc::new(View { rows, applied: index, users: Arc::clone(&users), sessions }));
        self.shown.tell(&users, self.state.roster());
        let (changes, bytes) = self.state.take_changes();
        self.shown.history.publish(changes, bytes, index);
    }

    fn kept(&self) -> u64 {
        self.state.committed()
    }

    fn forget(&mut self) -> Result<(), RestoreError> {
        // At once, and not with the next entry: a snapshot that is made before it, and readers, would have what was there.
        let forgotten = self.state.clear().and_then(|()| self.state.commit(0));
        forgotten.map_err(|error| RestoreError(error.to_string()))?;
        let (rows, users) = (self.state.view(), Arc::clone(self.state.users()));
        self.shown.view.store(Arc::new(View { rows, applied: 0, users: Arc::clone(&users), sessions: 0 }));
        self.shown.tell(&users, self.state.roster());
        self.shown.history.begin_anew();
        Ok(())
    }

    fn snapshot(&self) -> SnapshotView {
        let write = self.state.snapshot();
        let broken = Arc::clone(&self.shown.broken);
        Box::new(move |out: &mut dyn Write| match broken.get() {
            None => write(out),
            Some(error) => Err(std::io::Error::other(error.to_string())),
        })
    }

    fn restore(&mut self, snapshot: &mut dyn Read) -> Result<(), RestoreError> {
        let restored = self.state.restore(snapshot).map_err(|error| RestoreError(error.to_string()));
        // What happened in between is not known here.
        self.shown.history.begin_anew();
        restored
    }
}

#[cfg(test)]
mod tests {
    use d_engine_client::Transaction;
    use replog::EntryKind;

    use super::*;
    use crate::state::{AllRows, Command, Disk, Memory};

    /// Tables on a disk that is full at last.
    struct Full {
        rows: Memory,
        commits_left: u32,
    }

    impl Rows for Full {
        fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
            self.rows.get(table, key)
        }

        fn scan(
            &self,
            table: Table,
            start: &[u8],
            end: Option<&[u8]>,
            each: &mut EachRow<'_>,
        ) -> Result<(), StorageError> {
            self.rows.scan(table, start, end, each)
        }

        fn detach(&self) -> Option<AllRows> {
            self.rows.detach()
        }
    }

    impl Storage for Full {
        fn put(&mut self, table: Table, key: Bytes, value: Bytes) -> Result<(), StorageError> {
            self.rows.put(table, key, value)
        }

        fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), StorageError> {
            self.rows.delete(table, key)
        }

        fn commit(&mut self, applied: u64) -> Result<(), StorageError> {
            self.commits_left = self.commits_left.checked_sub(1).ok_or(StorageError("no room".into()))?;
            self.rows.commit(applied)
        }

        fn applied(&self) -> u64 {
            self.rows.applied()
        }

        fn view(&self) -> Arc<dyn Rows + Send + Sync> {
            self.rows.view()
        }

        fn clear(&mut self) -> Result<(), StorageError> {
            self.rows.clear()
        }
    }

    fn put(machine: &mut Machine<impl Storage>, index: u64) -> Reply {
        let data = Command::Write(Transaction::put("k", index.to_string()), None).encode();
        let reply = machine.apply(&Entry { index, term: 1, kind: EntryKind::Command, time_millis: 1, data });
        machine.applied(index);
        reply
    }

    /// A group was founded with what a state on disk had of another one.
    #[test]
    fn what_a_state_has_forgotten_is_in_no_snapshot_and_not_shown() {
        let root = harness::folder();
        let mut machine = Machine::new(Disk::open(root.path(), 1 << 20).unwrap()).unwrap();
        let empty = bytes_of(&machine);
        for index in 1..=3 {
            put(&mut machine, index).unwrap();
        }
        drop(machine);
        let mut machine = Machine::new(Disk::open(root.path(), 1 << 20).unwrap()).unwrap();
        assert_eq!(machine.kept(), 3);
        machine.forget().unwrap();
        assert_eq!((machine.kept(), bytes_of(&machine)), (0, empty));
        let view = machine.shown().view();
        assert_eq!((view.applied, view.rows.get(Table::Keys, b"k")), (0, Ok(None)));
    }

    fn bytes_of(machine: &Machine<impl Storage>) -> Vec<u8> {
        let mut bytes = Vec::new();
        machine.snapshot()(&mut bytes).unwrap();
        bytes
    }

    /// The log counts what was given to it as applied: a strong read that waited for that found what was there before.
    #[test]
    fn a_state_that_cannot_go_on_shows_nothing_old() {
        let mut machine = Machine::new(Full { rows: Memory::default(), commits_left: 1 }).unwrap();
        let shown = machine.shown();
        put(&mut machine, 1).unwrap();
        assert!(shown.view().rows.get(Table::Keys, b"k").unwrap().is_some());
        put(&mut machine, 2).unwrap();
        assert!(shown.broken().is_some());
        let found = shown.view().rows.get(Table::Keys, b"k");
        assert!(found.as_ref().is_err_and(|error| error.0.contains("no room")), "{found:?}");
        assert_eq!(put(&mut machine, 3), Err(Broken));
    }
}
