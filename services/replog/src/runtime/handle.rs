//! What the rest of a server holds of a member: to propose, to read, to look, from any thread, without waiting.
//!
//! A callback is called once, on the core thread or on the caller's; it must be quick and must not block.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::channel::oneshot;
use futures::executor::block_on;
use tokio::sync::watch;

use super::clock;
use super::inbox::{Inbox, Proposal, Read, Refused, Request};
use super::published::Published;
use super::status::{Board, Counters, Counts, Leadership, Status};
use crate::membership::{Change, Membership};
use crate::reads::{ReadLevel, ReadPath, ReadPermit};

/// A command that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed<R> {
    /// Its index in the log.
    pub index: u64,
    /// The term in which the entry was proposed.
    pub term: u64,
    /// What the state machine said.
    pub reply: R,
}

/// Why a command has not succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Nothing has happened, and nothing will: this member does not lead. This is who does, as far as it knows.
    #[error("not the leader")]
    NotLeader(Option<u64>),
    /// Nothing has happened, and nothing will: too much is waiting.
    #[error("busy, try again")]
    Busy,
    /// Nothing has happened, and nothing will: a command of so many bytes is larger than the settings allow.
    #[error("a command of {0} bytes is too large")]
    TooLarge(usize),
    /// It is in a log, but leadership was lost or the member ended before it was committed: it may yet succeed, or not.
    #[error("the outcome is not known: leadership was lost meanwhile")]
    Unknown,
    /// Nothing has happened, and nothing will: the member has ended.
    #[error("the member has ended")]
    Stopped,
}

impl From<Refused> for ProposeError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => Self::Busy,
            Refused::Closed => Self::Stopped,
        }
    }
}

/// Why a read cannot be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The queue is full.
    #[error("busy, try again")]
    Busy,
    /// No leader with a quorum was found in time.
    #[error("no quorum was found in time, try again")]
    NoQuorum,
    /// The member has ended.
    #[error("the member has ended")]
    Stopped,
}

/// Why leadership or membership was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The call was refused before anything happened.
    #[error(transparent)]
    Rejected(#[from] crate::node::Rejected),
    /// It may yet succeed, or not.
    #[error("the outcome is not known: leadership was lost meanwhile")]
    Unknown,
    /// The member has ended.
    #[error("the member has ended")]
    Stopped,
}

/// A read may look at the state machine's published state now; then [`Handle::confirm`] must be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The state has at least this index.
    pub index: u64,
    /// The term in which that was ensured.
    pub term: u64,
    /// How the member made sure that the state is recent enough.
    pub path: ReadPath,
    /// An upper bound of the state's age when the ticket was given, microseconds; `None` if nothing is known.
    pub age_micros: Option<u64>,
}

impl From<ReadPermit> for Ticket {
    fn from(permit: ReadPermit) -> Self {
        let ReadPermit { index, path, term, age_micros, .. } = permit;
        Self { index, term, path, age_micros }
    }
}

/// Called with what came of a change of the membership: the index at which it took effect.
pub(crate) type ChangeDone = Box<dyn FnOnce(Result<u64, RequestError>) + Send>;
pub(crate) type LeaderWatcher = Box<dyn FnMut(Leadership) + Send>;

/// What the core thread and the handles share.
pub(crate) struct Shared<R> {
    pub(crate) inbox: Inbox<R>,
    pub(crate) published: Published,
    pub(crate) board: Board,
    pub(crate) counters: Counters,
    pub(crate) sync_times: Arc<wal::SyncRecorder>,
    pub(crate) command_bytes_max: usize,
    /// Of the log, as of the last turn of the core thread.
    pub(crate) time_millis: AtomicU64,
}

/// A member, for whoever asks it something. Clones are handles of the same one.
pub struct Handle<R> {
    pub(crate) shared: Arc<Shared<R>>,
}

impl<R> Clone for Handle<R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<R: Send + 'static> Handle<R> {
    /// Proposes a command. `done` is called when it was applied here, or has failed. Commands that wait enter the log together.
    pub fn propose(&self, command: Bytes, done: impl FnOnce(Result<Committed<R>, ProposeError>) + Send + 'static) {
        if command.len() > self.shared.command_bytes_max {
            return done(Err(ProposeError::TooLarge(command.len())));
        }
        let proposal = Proposal::new(command, |result| {
            done(result);
            None
        });
        if let Err((refused, proposal)) = self.shared.inbox.propose(proposal) {
            proposal.end(Err(refused.into()));
        }
    }

    /// Proposes many commands, in this order. The core thread is woken once for all of them, and they enter the log together as far as there
    /// is room.
    pub fn propose_all(&self, mut proposals: Vec<Proposal<R>>) {
        let is_too_large = |proposal: &mut Proposal<R>| proposal.command.len() > self.shared.command_bytes_max;
        for proposal in proposals.extract_if(.., is_too_large) {
            let bytes = proposal.command.len();
            proposal.end(Err(ProposeError::TooLarge(bytes)));
        }
        if proposals.is_empty() {
            return;
        }
        for (refused, proposal) in self.shared.inbox.propose_all(proposals) {
            proposal.end(Err(refused.into()));
        }
    }

    /// [`Handle::propose`] for who waits asynchronously. Dropping the future does not withdraw the command.
    pub fn propose_async(
        &self,
        command: Bytes,
    ) -> impl Future<Output = Result<Committed<R>, ProposeError>> + Send + 'static {
        let (done, outcome) = oneshot::channel();
        self.propose(command, move |result| send(done, result));
        async { outcome.await.unwrap_or(Err(ProposeError::Unknown)) }
    }

    /// [`Handle::propose`] for who waits.
    pub fn propose_blocking(&self, command: Bytes) -> Result<Committed<R>, ProposeError> {
        block_on(self.propose_async(command))
    }

    /// A ticket that needs nobody else: for `Lease` while this member has one, for `Bounded` while it is fresh enough, for
    /// `Eventual` always; `at_least` is an index that the state must have besides. No lock, no message.
    pub fn try_read(&self, level: ReadLevel, at_least: u64) -> Option<Ticket> {
        let standing = self.shared.published.load()?;
        let now = clock::boot_micros();
        let has_lease = standing.has_lease(now);
        let as_of = if has_lease { now } else { standing.as_of_micros };
        let age_micros = (as_of > 0).then(|| now.saturating_sub(as_of));
        let path = match level {
            ReadLevel::Lease if has_lease => ReadPath::Lease,
            ReadLevel::Bounded { max_staleness_micros } if age_micros? <= max_staleness_micros => ReadPath::Age,
            ReadLevel::Eventual => ReadPath::Local,
            ReadLevel::Lease | ReadLevel::Bounded { .. } | ReadLevel::Linearizable => return None,
        };
        let ticket = Ticket { index: standing.applied, term: standing.term, path, age_micros };
        (standing.applied >= at_least).then_some(ticket)
    }

    /// Asks to read: at once where [`Handle::try_read`] can, else `done` is called when the state is fresh enough.
    pub fn read(&self, level: ReadLevel, at_least: u64, done: impl FnOnce(Result<Ticket, ReadError>) + Send + 'static) {
        if let Some(ticket) = self.try_read(level, at_least) {
            return done(Ok(ticket));
        }
        if let Err((refused, read)) = self.shared.inbox.read(Read { level, at_least, done: Box::new(done) }) {
            let error = if refused == Refused::Full { ReadError::Busy } else { ReadError::Stopped };
            (read.done)(Err(error));
        }
    }

    /// [`Handle::read`] for who waits asynchronously.
    pub fn read_async(
        &self,
        level: ReadLevel,
        at_least: u64,
    ) -> impl Future<Output = Result<Ticket, ReadError>> + Send + 'static {
        let (done, outcome) = oneshot::channel();
        self.read(level, at_least, move |result| send(done, result));
        async { outcome.await.unwrap_or(Err(ReadError::Stopped)) }
    }

    /// [`Handle::read`] for who waits.
    pub fn read_blocking(&self, level: ReadLevel, at_least: u64) -> Result<Ticket, ReadError> {
        block_on(self.read_async(level, at_least))
    }

    /// Whether what was seen with this ticket may be told. Ask *after* the look. If not, read again, `Linearizable`.
    pub fn confirm(&self, ticket: &Ticket) -> bool {
        let still_leads = || {
            let standing = self.shared.published.load()?;
            Some(standing.term == ticket.term && standing.has_lease(clock::boot_micros()))
        };
        ticket.path != ReadPath::Lease || still_leads().unwrap_or(false)
    }

    /// Reads: waits for a ticket, looks, and looks again by a round to a quorum should the lease have run out meanwhile.
    pub async fn look<T>(
        &self,
        level: ReadLevel,
        at_least: u64,
        mut look: impl FnMut() -> T,
    ) -> Result<(Ticket, T), ReadError> {
        let ticket = self.read_async(level, at_least).await?;
        let seen = look();
        if self.confirm(&ticket) {
            return Ok((ticket, seen));
        }
        let ticket = self.read_async(ReadLevel::Linearizable, at_least).await?;
        Ok((ticket, look()))
    }

    /// What the member is at the moment.
    pub fn status(&self) -> Status {
        self.shared.board.status()
    }

    /// The time of the log: an entry that this member proposes now is stamped with no less. No more than a tick old; 0 at first.
    pub fn time_millis(&self) -> u64 {
        self.shared.time_millis.load(Ordering::Relaxed)
    }

    /// What the member has counted since it started.
    pub fn counts(&self) -> Counts {
        self.shared.counters.read()
    }

    /// How long batches of the member's log took to be written and synced.
    pub fn sync_times(&self) -> wal::SyncTimes {
        self.shared.sync_times.read()
    }

    /// Who leads as far as this member knows, and whether it is this member. Cheaper than [`Handle::status`].
    pub fn leader(&self) -> (Option<u64>, bool) {
        self.shared.board.leader()
    }

    /// Who belongs to the group, as of the last committed change, and each change of it: [`Status::membership`] is never older.
    pub fn membership(&self) -> watch::Receiver<Arc<Membership>> {
        self.shared.board.membership()
    }

    /// Waits until the status is as wanted, at most so long; the last one that was seen if it never was.
    pub fn wait_for(&self, is_wanted: impl Fn(&Status) -> bool, timeout: Duration) -> Result<Status, Box<Status>> {
        self.shared.board.wait_for(is_wanted, timeout)
    }

    /// Has `watcher` called on the core thread: soon with what is, then at each change, in order.
    pub fn watch_leader(&self, watcher: impl FnMut(Leadership) + Send + 'static) -> Result<(), RequestError> {
        self.request(Request::Watch(Box::new(watcher))).map_err(|(error, _)| error)
    }

    /// Changes the membership: see [`crate::Node::change_membership`]. The index at which it took effect.
    pub fn change_membership(
        &self,
        changes: Vec<Change>,
    ) -> impl Future<Output = Result<u64, RequestError>> + Send + 'static {
        let (done, outcome) = oneshot::channel();
        let asked = self.request(Request::Change(changes, Box::new(move |result| send(done, result))));
        async {
            asked.map_err(|(error, _)| error)?;
            outcome.await.unwrap_or(Err(RequestError::Unknown))
        }
    }

    /// Begins to hand leadership over: see [`crate::Node::transfer_leader`]. Whether it succeeds shows in the status.
    pub fn transfer_leader(&self, to: u64) -> impl Future<Output = Result<(), RequestError>> + Send + 'static {
        let (done, outcome) = oneshot::channel();
        let asked = self.request(Request::Transfer(to, Box::new(move |result| send(done, result))));
        async {
            asked.map_err(|(error, _)| error)?;
            outcome.await.unwrap_or(Err(RequestError::Stopped))
        }
    }

    /// Has a snapshot made soon, due or not, unless one is being made or nothing was applied since the last one: for who needs the
    /// room on the disk that the log takes. [`Status::snapshot_settled`] tells when that is free, and [`Status::snapshot_failures`] when there
    /// was no room for it.
    pub fn want_snapshot(&self) {
        // Who is too busy to take it makes one by itself before long; who has ended needs no room.
        let _ = self.request(Request::Snapshot);
    }

    fn request(&self, request: Request) -> Result<(), (RequestError, Request)> {
        self.shared.inbox.request(request).map_err(|(refused, request)| match refused {
            Refused::Full => (crate::node::Rejected::Busy.into(), request),
            Refused::Closed => (RequestError::Stopped, request),
        })
    }
}

/// Who dropped the future does not want to know.
fn send<T>(done: oneshot::Sender<T>, result: T) {
    let _ = done.send(result);
}
