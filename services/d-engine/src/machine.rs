//! Between the log and the state: what was applied becomes visible, batch by batch.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use bytes::Bytes;
use replog::{Entry, RestoreError, SnapshotView, StateMachine};

use crate::history::History;
use tokio::sync::watch;

use crate::state::{Applied, Defragmentation, EachRow, Rows, State, StateError, Storage, StorageError, Table, Users};

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

    /// Why the state cannot go on, if it cannot.
    pub fn broken(&self) -> Option<&StateError> {
        self.broken.get()
    }

    /// Rewrites the files of the state, if it has some.
    pub fn defragmentation(&self) -> Option<Defragmentation> {
        self.defragmentation.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What is seen of a state that has ended: who still has a view to ask for does not keep its files open.
struct Ended;

impl Rows for Ended {
    fn get(&self, _: Table, _: &[u8]) -> Result<Option<Bytes>, StorageError> {
        Err(StorageError("the engine has stopped".into()))
    }

    fn scan(&self, _: Table, _: &[u8], _: Option<&[u8]>, _: &mut EachRow<'_>) -> Result<(), StorageError> {
        Err(StorageError("the engine has stopped".into()))
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
        let view = View {
            rows: state.view(),
            applied: state.committed(),
            users: Arc::clone(state.users()),
            sessions: state.sessions(),
        };
        let history = Arc::new(History::new(state.committed() + 1));
        let view = Arc::new(ArcSwap::from_pointee(view));
        Ok(Self { state, shown: Shown { view, history, users, broken: Arc::default(), defragmentation } })
    }

    /// What it shows.
    pub fn shown(&self) -> Shown {
        self.shown.clone()
    }

    /// From here on nothing is applied. The first reason counts.
    fn end(&self, why: StateError) {
        tracing::error!(error = %why, "the state cannot go on");
        let _ = self.shown.broken.set(why);
    }
}

impl<S> Drop for Machine<S> {
    fn drop(&mut self) {
        self.shown.defragmentation.lock().unwrap_or_else(PoisonError::into_inner).take();
        let last = self.shown.view();
        let View { applied, sessions, .. } = *last;
        let users = Arc::clone(&last.users);
        self.shown.view.store(Arc::new(View { rows: Arc::new(Ended), applied, users, sessions }));
    }
}

impl<S: Storage> StateMachine for Machine<S> {
    type Reply = Reply;

    fn apply(&mut self, entry: &Entry) -> Reply {
        // What a storage has kept is not done again: nobody waits for the answer.
        if self.shown.broken().is_some() || entry.index <= self.state.committed() {
            return Err(Broken);
        }
        let applied = self.state.apply(entry.index, entry.term, entry.time_millis, entry.data.clone());
        applied.map_err(|error| {
            self.end(error);
            Broken
        })
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
        // After they are visible: who hears of it looks at them.
        self.shown.users.send_if_modified(|told| {
            let is_new = !Arc::ptr_eq(told, &users);
            *told = users;
            is_new
        });
        self.shown.history.publish(self.state.take_changes(), index);
    }

    fn kept(&self) -> u64 {
        self.state.committed()
    }

    fn forget(&mut self) -> Result<(), RestoreError> {
        self.state.clear().map_err(|error| RestoreError(error.to_string()))
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
