//! A member of a group, running: how it starts, how it ends.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use futures::executor::block_on;
use wal::files::Directory;
use wal::{CommitError, Log, OpenError, Writer, WriterOptions};

use super::clock;
use super::core::Core;
use super::handle::{Handle, Shared};
use super::identity::{Begun, IdentityError};
use super::inbox::{Inbox, Limits};
use super::published::Published;
use super::status::{Board, Counters};
use super::transport::Transport;
use crate::alone;
use crate::consensus::Role;
use crate::machine::StateMachine;
use crate::membership::Membership;
use crate::recovery::{RecoverError, Recovered, RecoveryError, recover_unless_empty};
use crate::replica::{Fatal, ReplicatedLog};
use crate::settings::Settings;

/// What an empty directory means; or that it must not be empty; or that who was in the group is not there any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This member founds a group with these, all of whom say the same.
    Found(Membership),
    /// The same, with a state machine that has the state of a log that is gone, and with entries that are numbered from behind this
    /// index of that log. All founders have the same state.
    FoundAfter(Membership, u64),
    /// This member was, or will be, added to a group that exists; it waits to hear from it.
    Join,
    /// This member has been in its group before, and has had a log: it goes on with that. Refused where nothing is in the log: see
    /// [`super::identity`].
    GoOn,
    /// The others are lost for good, and this member goes on as the only one, with all that its log has, decided or not. Should the
    /// others come back with what they have, there are two groups. Refused where nothing is in the log, and to a state machine that keeps
    /// its state itself: see [`MemberError::KeepsItself`].
    Alone,
}

/// What a member starts with.
pub struct Start<S, D> {
    /// Its number in the group, never used before by another; not 0.
    pub id: u64,
    /// What the whole group has agreed on.
    pub settings: Settings,
    /// How many proposals and reads may wait.
    pub limits: Limits,
    /// How the write-ahead log is kept.
    pub wal_options: wal::Options,
    /// The state machine as it is before any entry.
    pub machine: S,
    /// The directory of the write-ahead log, which nothing else uses.
    pub wal: D,
    /// The directory of the snapshots, which nothing else uses.
    pub snapshots: D,
    /// Looked at only where there is no log yet; but for [`Origin::GoOn`] and [`Origin::Alone`].
    pub origin: Origin,
    /// Where it is written down that there is something in the log, so that the next start goes on with it.
    pub begun: Begun,
    /// The member's side of the network.
    pub transport: Box<dyn Transport>,
}

/// Why a member cannot start, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    /// The write-ahead log cannot be opened.
    #[error("write-ahead log: {0}")]
    Open(#[from] OpenError),
    /// The write-ahead log holds something else than this group's log.
    #[error("write-ahead log: {0}")]
    Recovery(#[from] RecoveryError),
    /// The write-ahead log cannot be written.
    #[error("write-ahead log: {0}")]
    Commit(#[from] CommitError),
    /// The write-ahead log takes no more.
    #[error("write-ahead log: {0}")]
    Refused(wal::Rejected),
    /// Snapshots or the consensus.
    #[error(transparent)]
    Fatal(#[from] Fatal),
    /// The first snapshot cannot be written.
    #[error("the founding snapshot cannot be written: {0}; correct the cause and start again")]
    Found(io::Error),
    /// The member is to go on alone, and its state machine keeps its state itself ([`StateMachine::kept`]): what was never decided would be
    /// in that state before it is in a log that says so, and stay there were the log not written. Nothing was changed.
    #[error(
        "a state machine that keeps its state over a restart cannot go on alone: restore a snapshot into a new group instead"
    )]
    KeepsItself,
    /// There was a log, and nothing is in it any more.
    #[error(
        "write-ahead log: nothing is in it, and this member has had one: it would forget what it has acknowledged. Restore the directory, or \
         remove this member from the group and add a new one"
    )]
    LogLost,
    /// That there is something in the log cannot be written down.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A thread cannot be started.
    #[error("a thread cannot be started: {0}")]
    Thread(io::Error),
    /// The transport cannot start.
    #[error("the transport cannot start: {0}")]
    Transport(io::Error),
    /// An assertion failed. This is a bug.
    #[error("an assertion failed, please report it: {0}")]
    Panicked(String),
}

impl From<RecoverError> for MemberError {
    fn from(error: RecoverError) -> Self {
        match error {
            RecoverError::Open(error) => Self::Open(error),
            RecoverError::Log(error) => Self::Recovery(error),
            RecoverError::Machine(error) => Self::Fatal(error.into()),
            RecoverError::Empty => Self::LogLost,
        }
    }
}

type Outcome = Result<(), Arc<MemberError>>;

#[derive(Default)]
struct End {
    outcome: Mutex<Option<Outcome>>,
    came: Condvar,
}

/// A member that runs until it is stopped or cannot go on. Dropping it stops it.
pub struct Member<R: Send + 'static> {
    handle: Handle<R>,
    end: Arc<End>,
    thread: Option<JoinHandle<()>>,
}

impl<R: Send + 'static> Member<R> {
    /// Opens the log, recovers the state or founds the group, and runs.
    pub fn start<S, D>(start: Start<S, D>) -> Result<Self, MemberError>
    where
        S: StateMachine<Reply = R> + Send + 'static,
        D: Directory,
    {
        let Start { id, settings, limits, wal_options, mut machine, wal, snapshots, origin, begun, mut transport } =
            start;
        let (wal, recovered) = open(id, wal, wal_options, &settings, &mut machine, &snapshots, origin)?;
        // Who joins has nothing in its log before a leader or a candidate is heard.
        let begun = match recovered.is_empty() {
            true => Some(begun),
            false => {
                begun.write()?;
                None
            }
        };
        let (reads_max, command_bytes_max) = (settings.reads_max, settings.command_bytes_max);
        // More than may be unsafe never waits: see `Core::room` and what a follower is sent at most.
        let queue_bytes_max = limits.unsafe_bytes_max.saturating_mul(8);
        let seed = rand::random();
        let log = ReplicatedLog::new(id, settings, machine, recovered, snapshots, seed, clock::now())?;
        let writer_options = WriterOptions { queue_bytes_max, ..WriterOptions::default() };
        let writer = Writer::start(wal, writer_options).map_err(MemberError::Thread)?;
        let shared = Arc::new(Shared {
            inbox: Inbox::new(limits, reads_max),
            published: Published::default(),
            board: Board::default(),
            counters: Counters::default(),
            time_millis: AtomicU64::new(0),
            sync_times: writer.sync_times(),
            command_bytes_max,
        });
        let [messages, ends] = [&shared, &shared].map(Arc::clone);
        let deliver = Arc::new(move |message| {
            if !messages.inbox.deliver(message) {
                messages.counters.messages_refused.fetch_add(1, Ordering::Relaxed);
            }
        });
        let closed = Arc::new(move |member| ends.inbox.closed(member));
        transport.start(deliver, closed).map_err(MemberError::Transport)?;
        let core = Core::new(log, writer, transport, Arc::clone(&shared), limits, begun);
        let end = Arc::new(End::default());
        let (of_thread, shown) = (Arc::clone(&end), Arc::clone(&shared));
        let name = format!("member-{id:x}");
        let thread = thread::Builder::new().name(name).spawn(move || {
            let outcome = run(core);
            shown.board.update(|status| (status.has_ended, status.role, status.leader) = (true, Role::Follower, None));
            *of_thread.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome.map_err(Arc::new));
            of_thread.came.notify_all();
        });
        Ok(Self { handle: Handle { shared }, end, thread: Some(thread.map_err(MemberError::Thread)?) })
    }

    /// To ask it something.
    pub fn handle(&self) -> Handle<R> {
        self.handle.clone()
    }

    /// Waits until it has ended. An error says why it could not go on; nothing was acknowledged after that.
    pub fn wait(&self) -> Result<(), Arc<MemberError>> {
        let mut outcome = self.end.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(outcome) = &*outcome {
                return outcome.clone();
            }
            outcome = self.end.came.wait(outcome).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Hands leadership to whom has most of the log, if this member leads and is not alone, and waits for that, at most so long.
    pub fn resign(&self, timeout: Duration) {
        let status = self.handle.status();
        let voters = status.progress.iter().filter(|(id, _)| *id != status.id && status.membership.voters.contains(id));
        if let Some((heir, _)) = voters.max_by_key(|(_, matched)| *matched)
            && block_on(self.handle.transfer_leader(*heir)).is_ok()
        {
            // Whether it worked or not, the member will be stopped next, and another one elected.
            let _ = self.handle.wait_for(|status| status.role != Role::Leader, timeout);
        }
    }

    /// Stops it, and waits until its threads have ended and its directories are free.
    pub fn stop(mut self) -> Result<(), Arc<MemberError>> {
        self.shut_down();
        self.wait()
    }

    fn shut_down(&mut self) {
        self.handle.shared.inbox.stop();
        if let Some(thread) = self.thread.take() {
            // Panics were caught in it.
            drop(thread.join());
        }
    }
}

impl<R: Send + 'static> Drop for Member<R> {
    fn drop(&mut self) {
        self.shut_down();
    }
}

fn run<S, D>(mut core: Core<S, D>) -> Result<(), MemberError>
where
    S: StateMachine + Send + 'static,
    S::Reply: Send + 'static,
    D: Directory,
{
    // Without this, who waits would wait for ever where panics unwind.
    let outcome = catch_unwind(AssertUnwindSafe(|| core.run()));
    core.end();
    outcome.unwrap_or_else(|panic| Err(MemberError::Panicked(text_of(&*panic))))
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// The write-ahead log, and the state in which the member goes on.
fn open<S: StateMachine, D: Directory>(
    id: u64,
    directory: D,
    options: wal::Options,
    settings: &Settings,
    machine: &mut S,
    snapshots: &D,
    origin: Origin,
) -> Result<(Log<D>, Recovered), MemberError> {
    // Files without content, as a file system may leave them, are no log.
    let may_be_empty = !matches!(origin, Origin::GoOn | Origin::Alone);
    let (mut wal, recovered) = recover_unless_empty(directory, options, settings, machine, may_be_empty)?;
    match origin {
        // Everything in the log would be applied, decided or not, before the log says that it is.
        Origin::Alone if machine.kept() > 0 => Err(MemberError::KeepsItself),
        Origin::Alone => {
            let (recovered, records) = alone::go_on(id, settings, machine, recovered, snapshots)?;
            if machine.kept() > 0 {
                // It began to keep its state while it was applied to.
                machine.forget().map_err(Fatal::from)?;
                return Err(MemberError::KeepsItself);
            }
            wal.commit(&records)?;
            Ok((wal, recovered))
        }
        Origin::Found(membership) if recovered.is_empty() => {
            found(settings, machine, membership, snapshots, 0, &mut wal).map(|recovered| (wal, recovered))
        }
        Origin::FoundAfter(membership, after) if recovered.is_empty() => {
            found(settings, machine, membership, snapshots, after, &mut wal).map(|recovered| (wal, recovered))
        }
        Origin::Found(_) | Origin::FoundAfter(..) | Origin::Join | Origin::GoOn => Ok((wal, recovered)),
    }
}

fn found<S: StateMachine, D: Directory>(
    settings: &Settings,
    machine: &S,
    membership: Membership,
    snapshots: &D,
    after: u64,
    wal: &mut Log<D>,
) -> Result<Recovered, MemberError> {
    let founded = ReplicatedLog::found_after(settings, machine, membership, snapshots.clone(), after);
    let (recovered, records) = founded.map_err(MemberError::Found)?;
    wal.commit(&records)?;
    Ok(recovered)
}
