//! An engine: a member of a group, with its state, within this process. A server is a thin shell around one.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = d_engine::Engine::start(d_engine::Options::alone("/var/lib/d-engine"))?;
//! engine.wait_ready(std::time::Duration::from_secs(5)).await?;
//! let client = engine.client();
//! client.put("greeting", "hello").await?;
//! assert_eq!(client.get("greeting").await?.map(|item| item.value), Some("hello".into()));
//! engine.stop()?;
//! # Ok(())
//! # }
//! ```

mod backup;
mod counters;
mod defragment;
mod door;
mod forward;
mod housekeeping;
mod identity;
mod members;
mod opening;
mod options;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use d_engine_client::{Client, Door, Error, Leader};
use replog::Membership;
use replog::runtime::identity::{Begun as BegunLog, Founding, Known};
use replog::runtime::tcp::{Peers, Tcp, TcpOptions};
use replog::runtime::{Forwarder, Handle, Leadership, Limits, Member, MemberError, Origin, Start, Status};
use service_kit::grpc::{Memory, Room};
use tokio::sync::{Semaphore, watch};

use crate::machine::{Machine, Reply, Shown};
use crate::state::{self, BackupError, Principal, Roster, Storage, StorageError, User, Users};

use forward::{Leader as Leading, Neighbour};
use housekeeping::Housekeeping;

pub use counters::{Counted, Counters};
pub(crate) use door::Begun;
pub(crate) use door::denied_but_to_administrators;
pub use door::{NotLeading, Watching};
pub use identity::IdentityError;
use identity::{Identity, Serial};
pub use members::{MemberChange, Members};
use opening::{backup_of, is_open, listen, open, open_storage, peers, settings};
pub use options::{Address, Durability, Group, Options, StateStorage, check_times};

/// The directories of a state on disk, of the log and of its snapshots, in the engine's own.
const STATE: &str = "state";
const WAL: &str = "wal";
const SNAPSHOTS: &str = "snapshots";

/// What answers to writes on streams may take that clients have not taken, bytes, besides a little of each stream.
const ANSWERS_BYTES_MAX: usize = 256 << 20;

/// What reads on streams may take that wait until the state is fresh enough, bytes, besides a little of each.
const READS_BYTES_MAX: usize = 256 << 20;

/// Reads at a time that wait for an index that the state does not have yet.
const AWAITING_MAX: usize = 10_000;

/// Whoever takes all of the state, at a time: each takes a thread for as long as its client may take.
const BACKUPS_MAX: usize = 4;

/// Long looks at the state at a time: each takes a thread, and makes an answer of up to 64 MiB.
const LONG_LOOKS_MAX: usize = 4;

/// Between two looks whether an engine is ready: that it is not may be told at once.
const READY_PAUSE: Duration = Duration::from_millis(10);

/// What a founder is told that the others' group is not its own: not more than fits into an answer between members.
const OTHER_GROUP_REMEDY: &str =
    " With --restore all of them are given the same file and --group, each with an empty directory";

/// How long a member that joins waits for others to know it.
const JOIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Why an engine cannot start, or go on.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// What it was started with.
    #[error("{0}")]
    Options(String),
    /// Whose directory it is.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Its directory.
    #[error("{0}: {1}")]
    Directory(String, io::Error),
    /// Where other members reach it.
    #[error("cannot listen for other members on {0}: {1}")]
    Listen(String, io::Error),
    /// Where its state lies.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Its state is of a log that is gone.
    #[error(
        "the storage has what {0} entries did, and {1} has no log: it would be mixed with another one. Restore the directory as it was, or begin with an empty storage"
    )]
    StateAlone(u64, String),
    /// Its state is of another log.
    #[error(
        "the storage has the state of another group (serial number {0:x}, and {1} says {2:x}): begin with an empty storage (move {1}/state away), and the log makes it again"
    )]
    StateOfAnother(u64, String, u64),
    /// What it shall begin with.
    #[error("backup {0}: {1}")]
    Backup(String, BackupError),
    /// Its log.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// Its log, later.
    #[error("{0}")]
    Ended(Arc<MemberError>),
    /// Its state, later.
    #[error("{0}")]
    State(String),
    /// The group has no use for it any more.
    #[error("member {0} was removed from its group for good: its directory can be deleted")]
    Removed(u64),
    /// A thread.
    #[error("a thread cannot be started: {0}")]
    Thread(io::Error),
    /// It has no leader yet, or is behind.
    #[error("not ready in time: {0}")]
    NotReady(Error),
}

/// A member of a group, as everything around it sees it, and on whose behalf it is asked. Clones are the same one.
///
/// It is the wall: whoever is around the engine reads, writes and changes by its methods alone, and each of them looks on whose behalf it is
/// asked. A test calls every one of them for somebody who may nothing.
#[derive(Clone)]
pub struct Node(Arc<Inner>, Principal);

struct Inner {
    handle: Handle<Reply>,
    shown: Shown,
    options: Options,
    group: Group,
    forwarder: Forwarder<Leading>,
    peers: Peers,
    serial: Arc<Serial>,
    /// What its directory says of it.
    known: Known<Identity>,
    /// Who asks the others whether it has lost what it had.
    founding: Option<Founding>,
    /// Where the group's members are, as the state says.
    members: watch::Sender<Arc<Members>>,
    following: Mutex<()>,
    /// Whoever changes the members: one at a time.
    changing: Arc<Semaphore>,
    /// Others can reach this member.
    serves_members: bool,
    /// Others than members may reach it as well, and speak as one.
    has_open_port: bool,
    leadership: watch::Receiver<Leadership>,
    /// Set once it is about to stop.
    is_ending: watch::Sender<bool>,
    counters: Counters,
    /// What commands take that wait for a leader, or for its answer.
    forwarding: Memory,
    /// What answers take that clients of streams have not taken.
    answers: Memory,
    /// What reads of streams take that wait until the state is fresh enough.
    reads: Memory,
    /// Reads that wait for an index that the state does not have, of which a client may say anything.
    awaiting: Arc<Semaphore>,
    /// Whoever takes all of the state.
    backups: Arc<Semaphore>,
    /// Whoever looks at much.
    long_looks: Arc<Semaphore>,
    /// Whoever rewrites the files of the state: one at a time.
    defragmenting: Arc<Semaphore>,
}

impl Node {
    /// The same member, asked by somebody else: what it does from here on is what that one may do.
    pub fn acting_for(&self, who: Principal) -> Self {
        Self(Arc::clone(&self.0), who)
    }

    /// On whose behalf it is asked.
    fn principal(&self) -> &Principal {
        &self.1
    }

    /// Whether it is asked by somebody who administers.
    pub(crate) fn administers(&self) -> Result<(), Error> {
        self.users().is_admin(&self.1).then_some(()).ok_or_else(denied_but_to_administrators)
    }

    /// Whether it is asked by anybody: a user that was removed, or has got another password, is nobody any more.
    pub(crate) fn is_asked_by_somebody(&self) -> bool {
        self.users().knows(&self.1)
    }

    /// Waits until it is asked by nobody any more.
    pub(crate) async fn forgotten(&self) {
        let mut users = self.shown().users();
        if users.wait_for(|users| !users.knows(&self.1)).await.is_err() {
            // The member has ended, which is heard elsewhere.
            std::future::pending::<()>().await;
        }
    }

    /// Whether it is asked for users.
    pub(crate) fn asks_for_users(&self) -> bool {
        self.users().is_enabled()
    }

    /// A user, with what its password is checked against: for who finds out on whose behalf this member is asked.
    pub(crate) fn user(&self, name: &[u8]) -> Option<Arc<User>> {
        self.users().all().get(name).cloned()
    }

    /// All users. For administrators.
    pub fn list_users(&self) -> Result<Arc<Users>, Error> {
        self.administers()?;
        Ok(self.users())
    }

    fn users(&self) -> Arc<Users> {
        Arc::clone(&self.shown().view().users)
    }

    /// What it has done.
    pub fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.0.options.id
    }

    /// What an acknowledged write has been through.
    pub fn durability(&self) -> Durability {
        self.0.options.durability
    }

    /// What the log is at the moment.
    pub fn status(&self) -> Status {
        self.handle().status()
    }

    /// How long batches of the log took to be written and synced.
    pub(crate) fn sync_times(&self) -> wal::SyncTimes {
        self.handle().sync_times()
    }

    /// Whether it may answer strong reads alone now.
    pub(crate) fn has_lease(&self) -> bool {
        self.handle().try_read(replog::ReadLevel::Lease, 0).is_some()
    }

    /// How many sessions are open.
    pub(crate) fn sessions(&self) -> usize {
        self.shown().view().sessions
    }

    /// How many watches it serves.
    pub(crate) fn watchers(&self) -> usize {
        self.shown().history.watchers()
    }

    /// The log.
    fn handle(&self) -> &Handle<Reply> {
        &self.0.handle
    }

    /// The state.
    fn shown(&self) -> &Shown {
        &self.0.shown
    }

    /// What it was started with.
    fn options(&self) -> &Options {
        &self.0.options
    }

    /// The group that it is of.
    pub fn group(&self) -> &Group {
        &self.0.group
    }

    /// Room for answers that a client has not taken.
    pub(crate) fn room_for_answers(&self) -> Room {
        self.0.answers.room()
    }

    /// Room for reads that wait.
    pub(crate) fn room_for_reads(&self) -> Room {
        self.0.reads.room()
    }

    /// Who leads, and each change of it.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.0.leadership.clone()
    }

    /// Waits until it is about to stop: what goes on without an end should come to one.
    pub fn ending(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut is_ending = self.0.is_ending.subscribe();
        async move {
            // An error: it has stopped.
            let _ = is_ending.wait_for(|is_ending| *is_ending).await;
        }
    }

    /// Whether this member leads, as far as it knows.
    pub fn leads(&self) -> bool {
        self.0.leadership.borrow().leader == Some(self.id())
    }

    /// Who leads, if that is another member and known.
    pub fn leader_elsewhere(&self) -> Option<Leader> {
        let leader = self.0.leadership.borrow().leader;
        self.leader(leader.filter(|leader| *leader != self.id()))
    }

    /// A member, and where clients find it.
    pub fn leader(&self, id: Option<u64>) -> Option<Leader> {
        let id = id?;
        let address = self.members().get(&id).map(|member| member.client.clone()).unwrap_or_default();
        Some(Leader { id, address })
    }

    /// Whether strong reads succeed: there is a leader with a majority, and this member has what it has.
    pub async fn is_ready(&self) -> Result<(), Error> {
        let read = self.0.handle.read_async(replog::ReadLevel::Linearizable, 0).await;
        read.map(|_| ()).map_err(door::read_error)
    }
}

/// An engine that runs. Dropping it stops it.
pub struct Engine {
    node: Node,
    housekeeping: Option<Housekeeping>,
    member: Option<Member<Reply>>,
}

impl Engine {
    /// Starts with the state where the options say. Blocks while it reads its log.
    pub fn start(options: Options) -> Result<Self, EngineError> {
        Self::begin(options, None)
    }

    /// Starts with the state in a storage of one's own.
    pub fn start_with(options: Options, storage: impl Storage) -> Result<Self, EngineError> {
        Self::begin(options, Some(Box::new(storage)))
    }

    /// With this storage, or with that of the options.
    fn begin(options: Options, storage: Option<Box<dyn Storage>>) -> Result<Self, EngineError> {
        let tls = options.peer_tls.clone();
        let ask = |address: &str| identity::ask(address, tls.as_ref());
        let (group, serial, backup) = match identity::join(&options, JOIN_TIMEOUT, ask)? {
            Some((group, serial)) => (group, serial, None),
            None => {
                let (restored, backup) = backup_of(&options)?;
                (options.founded(restored), Some(0), backup)
            }
        };
        if options.id == 0 || !group.members.contains_key(&options.id) {
            return Err(EngineError::Options(format!("member {} is not among the members of the group", options.id)));
        }
        let known = identity::check(&options, &group, serial, ask)?;
        let serial = Arc::new(Serial::of(known.identity().serial()));
        // Not before: others that begin as well shall not wait for an answer that cannot come yet.
        let listeners = listen(&options, &group)?;
        let serves_members = !listeners.is_empty();
        let addresses = listeners.iter().filter_map(|listener| listener.local_addr().ok());
        let has_open_port = is_open(addresses, options.peer_tls.is_some());
        let mut storage = match storage {
            Some(storage) => storage,
            None => open_storage(&options)?,
        };
        if !identity::has_log_files(&options.directory)? && storage.applied() > 0 {
            return Err(EngineError::StateAlone(storage.applied(), options.directory.display().to_string()));
        }
        if let Some(found) = Roster::load(&storage)?.serial
            && ![0, found].contains(&serial.get())
        {
            return Err(EngineError::StateOfAnother(found, options.directory.display().to_string(), serial.get()));
        }
        if let Some((path, _)) = &backup {
            let taken = state::restore_backup(path, &mut storage)
                .map_err(|error| EngineError::Backup(path.display().to_string(), error))?;
            tracing::info!(backup = %path.display(), index = taken.index, keys = taken.keys, "the member begins with a backup");
        }
        let machine = Machine::new(storage)?;
        let shown = machine.shown();
        let mut tcp = TcpOptions::new(options.id, group.number, listeners, peers(&group));
        tcp.tls = options.peer_tls.clone();
        tcp.other_group_remedy = OTHER_GROUP_REMEDY;
        let neighbour = Arc::new(Neighbour::new(shown.clone(), Arc::clone(&serial)));
        tcp.host = Some(Arc::clone(&neighbour) as _);
        let founding = identity::founding(options.id, &group, &known);
        tcp.founding = founding.clone();
        let tcp = Tcp::new(tcp);
        let peers = tcp.peers();
        let open = |name| open(&options.directory.join(name));
        let member = Member::start(Start {
            id: options.id,
            settings: settings(&options)?,
            limits: Limits::default(),
            wal_options: wal::Options { sync: options.durability == Durability::Fsync, ..wal::Options::default() },
            machine,
            wal: open(WAL)?,
            snapshots: open(SNAPSHOTS)?,
            origin: known.origin(match (group.is_joined, backup) {
                (true, _) => Origin::Join,
                (false, None) => Origin::Found(Membership::of(group.members.keys().copied())),
                (false, Some((_, after))) => Origin::FoundAfter(Membership::of(group.members.keys().copied()), after),
            }),
            begun: if founding.is_some() { BegunLog::unwritten() } else { known.begun() },
            transport: Box::new(tcp),
        });
        let member = member.map_err(|error| match error {
            MemberError::LogLost => EngineError::Identity(IdentityError::LogLost(options.directory.join(WAL))),
            MemberError::Identity(error) => EngineError::Identity(error.into()),
            error => EngineError::Member(error),
        })?;
        let handle = member.handle();
        let forwarder = Forwarder::new(options.id, handle.clone(), peers.clone(), Leading);
        let inner = Arc::new(Inner {
            handle,
            shown,
            leadership: forwarder.leadership(),
            forwarder,
            peers,
            serial,
            known,
            founding,
            members: watch::Sender::new(Arc::new(group.members.clone())),
            following: Mutex::default(),
            changing: Arc::new(Semaphore::new(1)),
            serves_members,
            has_open_port,
            options,
            group,
            is_ending: watch::Sender::new(false),
            counters: Counters::default(),
            forwarding: Memory::new(forward::FORWARDING_BYTES_MAX),
            answers: Memory::new(ANSWERS_BYTES_MAX),
            reads: Memory::new(READS_BYTES_MAX),
            awaiting: Arc::new(Semaphore::new(AWAITING_MAX)),
            backups: Arc::new(Semaphore::new(BACKUPS_MAX)),
            long_looks: Arc::new(Semaphore::new(LONG_LOOKS_MAX)),
            defragmenting: Arc::new(Semaphore::new(1)),
        });
        let node = Node(inner, Principal::Process);
        neighbour.hears(&node);
        let housekeeping = Housekeeping::start(node.clone()).map_err(EngineError::Thread)?;
        Ok(Self { node, housekeeping: Some(housekeeping), member: Some(member) })
    }

    /// The member, for servers around it.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Reads, writes and watches within this process, with the words of the remote client. A member that does not lead hands writes
    /// to the leader. On a tokio runtime.
    pub fn client(&self) -> Client {
        Client::through(Arc::new(self.node.clone()) as Arc<dyn Door>)
    }

    /// Who leads, and each change of it.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.node.leadership()
    }

    /// Waits until strong reads succeed; on a tokio runtime.
    pub async fn wait_ready(&self, patience: Duration) -> Result<(), EngineError> {
        ready_in_time(patience, || self.node.is_ready()).await.map_err(EngineError::NotReady)
    }

    /// Whether it cannot go on.
    pub fn has_ended(&self) -> bool {
        self.node.has_ended()
    }

    /// Waits until it cannot go on; on a tokio runtime.
    pub async fn ended(&self) {
        self.node.ended().await;
    }

    /// Hands leadership over if it leads and is not alone, and lets streams come to their end.
    pub(crate) fn begin_to_stop(&self) {
        if let Some(member) = &self.member {
            member.resign(self.node.options().election);
        }
        self.node.0.is_ending.send_replace(true);
    }

    /// Hands leadership over if it leads, stops, and waits until its directory is free. An error says why it could not go on.
    pub fn stop(mut self) -> Result<(), EngineError> {
        self.shut_down()
    }

    fn shut_down(&mut self) -> Result<(), EngineError> {
        if let Some(housekeeping) = self.housekeeping.take() {
            housekeeping.stop();
        }
        let Some(member) = self.member.take() else { return Ok(()) };
        member.resign(self.node.options().election);
        let (is_removed, emptied) = (self.node.is_removed(), self.node.emptied());
        member.stop().map_err(EngineError::Ended)?;
        if let Some(emptied) = emptied {
            return Err(emptied.into());
        }
        if is_removed {
            return Err(EngineError::Removed(self.node.id()));
        }
        match self.node.shown().broken() {
            Some(error) => Err(EngineError::State(error.to_string())),
            None => Ok(()),
        }
    }
}

/// Asks until the answer is that it is; the last reason why it was not.
async fn ready_in_time<F>(patience: Duration, is_ready: impl Fn() -> F) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>>,
{
    let mut problem = Error::NoQuorum;
    let ready = async {
        while let Err(error) = is_ready().await {
            problem = error;
            tokio::time::sleep(READY_PAUSE).await;
        }
    };
    let is_in_time = tokio::time::timeout(patience, ready).await.is_ok();
    if is_in_time { Ok(()) } else { Err(problem) }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Who wants to know asks `stop`.
        let _ = self.shut_down();
    }
}
