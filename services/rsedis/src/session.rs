//! What the server knows of one client. Sockets are the reactor's business.

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::command::Command;
use crate::command::tracking::Tracking;
use crate::protocol::{Args, OwnedArgs, Reply};
use crate::replication::{Replica, Stage};
use crate::waiting::Waiting;

/// Which replies a client wants (`CLIENT REPLY`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyMode {
    /// All.
    #[default]
    On,
    /// None.
    Off,
    /// Not that of the next command.
    SkipNext,
    /// Not that of this command.
    Skip,
}

/// What becomes of a client's scripts (`SCRIPT DEBUG`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Debugging {
    /// They run.
    #[default]
    Off,
    /// They run in the debugger, and what they change stays.
    Sync,
    /// One is in the debugger: the client talks to that.
    Underway,
    /// What they change was to be taken back, which cannot be: they do not run.
    Refused,
}

/// Commands between MULTI and EXEC.
#[derive(Debug, Default)]
pub struct Transaction {
    /// In the order in which they came.
    pub queue: Vec<(&'static Command, OwnedArgs)>,
    /// Memory of the queue.
    pub bytes: usize,
    /// One was refused: EXEC will be, too.
    pub is_aborted: bool,
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct Session {
    /// Never used again.
    pub id: u64,
    /// Where it stands among the server's sessions.
    pub slot: usize,
    /// The client's address and the server's, `ip:port`.
    pub address: String,
    /// See [`Session::address`].
    pub local_address: String,
    /// It comes from this machine.
    pub is_local: bool,
    /// `CLIENT SETNAME`.
    pub name: Vec<u8>,
    /// What it has changed in this turn of the loop is not safe yet.
    pub has_written: bool,
    /// The number of the selected database.
    pub database: usize,
    /// Whether it may send commands.
    pub is_authenticated: bool,
    /// The name of its user.
    pub user: Vec<u8>,
    /// Its user may do everything: nothing needs to be looked up.
    pub may_all: bool,
    /// Replies that were not sent.
    pub reply: Reply,
    /// Which replies it wants.
    pub reply_mode: ReplyMode,
    /// After MULTI.
    pub transaction: Option<Transaction>,
    /// WATCH: databases and keys.
    pub watched: Vec<(usize, Vec<u8>)>,
    /// A watched key was changed.
    pub is_watch_broken: bool,
    /// SUBSCRIBE.
    pub channels: BTreeSet<Vec<u8>>,
    /// PSUBSCRIBE.
    pub patterns: BTreeSet<Vec<u8>>,
    /// SSUBSCRIBE.
    pub shard_channels: BTreeSet<Vec<u8>>,
    /// To be closed once its replies are sent.
    pub is_closing: bool,
    /// To be closed now.
    pub is_killed: bool,
    /// `CLIENT NO-EVICT`: it stays, however much memory it takes.
    pub no_evict: bool,
    /// Milliseconds since 1970.
    pub created: i64,
    /// Of its last command, milliseconds since 1970.
    pub last_active: i64,
    /// Its last command's name.
    pub last_command: &'static str,
    /// Bytes received and not done yet, with those of the command at hand; kept by the reactor.
    pub query_bytes: usize,
    /// Of those, the arguments of a command that has not come whole.
    pub argument_bytes: usize,
    /// What the buffer takes that holds what was not done; kept by the reactor.
    pub query_capacity: usize,
    /// What it takes to know where the arguments of a command are that has not come whole; kept by the reactor.
    pub parser_bytes: usize,
    /// How much of [`Session::reply`] was sent; kept by the reactor.
    pub sent_bytes: usize,
    /// It waits for keys, or for the end of a pause.
    pub waiting: Option<Box<Waiting>>,
    /// Its command runs again, after it has waited.
    pub is_retrying: bool,
    /// For this key, which became ready; the others that it waits for have their turn.
    pub served_key: Option<Rc<[u8]>>,
    /// Its command cannot be done yet this time either.
    pub still_waits: bool,
    /// Its command has got to where a key of another type is an error, though it has waited.
    pub answers_wrong_type: bool,
    /// It is told when keys change that it has read.
    pub tracking: Option<Box<Tracking>>,
    /// MONITOR.
    pub is_monitor: bool,
    /// It is a replica, or says that it will be one.
    pub replica: Option<Box<Replica>>,
    /// It is the master that this server follows.
    pub is_master: bool,
    /// Where the stream ended behind the last thing that it changed.
    pub written_until: u64,
    /// Its script has run a command that reads.
    pub has_read: bool,
    /// It is a script.
    pub is_script: bool,
    /// What becomes of its scripts.
    pub debugging: Debugging,
    /// Nothing it does may wait: it is between MULTI and EXEC.
    pub may_not_wait: bool,
}

impl Session {
    /// Whether its command may take something from a key now.
    #[inline]
    pub fn is_served(&self, name: &[u8]) -> bool {
        self.served_key.as_deref().is_none_or(|key| key == name)
    }

    /// A client that has just come.
    pub fn new(id: u64, slot: usize, address: String, local_address: String, now: i64) -> Self {
        Self {
            id,
            slot,
            address,
            local_address,
            created: now,
            last_active: now,
            last_command: "NULL",
            user: crate::acl::DEFAULT.to_vec(),
            ..Self::default()
        }
    }

    /// Channels and patterns that it listens to.
    pub fn subscriptions(&self) -> usize {
        self.channels.len() + self.patterns.len() + self.shard_channels.len()
    }

    /// Where it is as a replica, if it is one: as it says, or where it comes from.
    pub fn replica_address(&self) -> Option<String> {
        let replica = self.replica.as_deref()?;
        let from = self.address.rsplit_once(':').map_or(self.address.as_str(), |(host, _)| host);
        Some(match replica.address.is_empty() {
            true => from.trim_matches(['[', ']']).to_owned(),
            false => replica.address.clone(),
        })
    }

    /// Whether it has asked for the replication stream.
    pub fn is_replica(&self) -> bool {
        self.replica.as_ref().is_some_and(|replica| replica.stage != Stage::Introducing)
    }

    /// A command in MULTI was refused.
    pub fn abort_transaction(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.is_aborted = true;
        }
    }

    /// Queues a command behind MULTI. A client that queues more bytes than may wait is cut off.
    pub fn queue(&mut self, command: &'static Command, args: Args<'_>, bytes_max: usize) {
        if let Some(transaction) = &mut self.transaction {
            let args = args.to_owned();
            transaction.bytes += args.memory() + size_of::<(&Command, OwnedArgs)>();
            transaction.queue.push((command, args));
            self.is_killed |= transaction.bytes > bytes_max;
        }
    }

    /// Bytes of replies that wait to be sent.
    pub fn waiting_bytes(&self) -> usize {
        self.reply.bytes.len().saturating_sub(self.sent_bytes)
    }

    /// Bytes that the queue of a transaction takes.
    pub fn transaction_memory(&self) -> usize {
        self.transaction.as_ref().map_or(0, |transaction| transaction.bytes)
    }
}
