//! The state that commands work on: databases, sessions, subscriptions, counters. No sockets, no files, no clock: the reactor
//! sets the time, takes effects to the file and replies to the sockets.

mod access;
mod aside;
mod busy;
mod changes;
mod client_memory;
mod ending;
mod handing_over;
mod messages;
pub mod output;
mod own_expiries;
mod pace;
mod pauses;
mod reclaim;
mod replicating;
mod status;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

pub use access::Typed;
pub use aside::Aside;
pub use busy::{DEBUGGER_PATIENCE, Heard, Interlude, RunningScript};
pub use client_memory::{ClientMemory, bytes_of};
pub use ending::{PendingShutdown, Shutdown};
pub use messages::{Message, OwnMessages};
pub use own_expiries::OwnExpiries;
pub use pace::{Pace, Sample};
pub use pauses::{Pause, PausePurpose, Pauses};
pub use reclaim::Reclaimer;
pub use status::{
    AofStatus, CommandStats, LoadStatus, Migration, Request, SaveStatus, SettingsBefore, SlowCommand, Stats,
};

use crate::acl;
use crate::command::Command;
use crate::command::tracking::Trackers;
use crate::connection::Connection;
use crate::effects::Effects;
use crate::eviction::{self, Eviction};
use crate::keyspace::Database;
use crate::latency::Monitor;
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::random::Random;
use crate::replication::Replication;
use crate::scripting::Scripts;
use crate::session::Session;
use crate::settings::Settings;
use crate::tls::Tls;
use crate::waiting::Waiter;

/// See the module's description.
#[derive(Debug)]
pub struct Server {
    /// Parameters.
    pub settings: Settings,
    /// What they were before CONFIG SET asked for another place to listen at, until that is done.
    pub settings_before: Option<Box<SettingsBefore>>,
    /// What they make of TLS.
    pub tls: Tls,
    /// Keys.
    pub databases: Vec<Database>,
    /// Milliseconds since 1970; the same for all commands of a turn of the loop.
    pub now: i64,
    /// The same for the start.
    pub started: i64,
    /// Choices.
    pub random: Random,
    /// Who may do what.
    pub users: acl::Users,
    /// What was refused to them.
    pub acl_log: acl::Log,
    /// Counters.
    pub stats: Stats,
    /// What they were a little while ago.
    pub pace: Pace,
    /// Spikes that were seen.
    pub latency: Monitor,
    /// What is told to Prometheus, if it is.
    pub metrics: Option<Arc<Metrics>>,
    /// What was changed.
    pub effects: Effects,
    /// Changes since the start.
    pub dirty: u64,
    /// Clients by their slot. The one whose command runs is not there.
    pub sessions: Vec<Option<Box<Session>>>,
    /// What they have sent and not taken, by their slot.
    pub connections: Vec<Option<Connection>>,
    /// How many there are.
    pub clients: usize,
    /// What they take, while that is limited.
    pub client_memory: ClientMemory,
    /// Serves them while a script runs.
    pub interlude: Interlude,
    /// What runs: a script or a function.
    pub running_script: Option<Box<RunningScript>>,
    /// Who watches what: by database and key, the clients' identifiers.
    pub watchers: HashMap<(usize, Vec<u8>), Vec<u64>>,
    /// The same of keys whose time had come when they were watched.
    pub stale_watches: HashMap<(usize, Vec<u8>), Vec<u64>>,
    /// A watched key was changed by the client whose command runs.
    pub broken_watches: Vec<u64>,
    /// Who listens to a channel: slots.
    pub channels: BTreeMap<Vec<u8>, Vec<usize>>,
    /// Who listens to a pattern.
    pub patterns: BTreeMap<Vec<u8>, Vec<usize>>,
    /// Who listens to a channel of SSUBSCRIBE.
    pub shard_channels: BTreeMap<Vec<u8>, Vec<usize>>,
    /// Slots of clients that MONITOR.
    pub monitors: Vec<usize>,
    /// Slots of clients that got something without asking, or are to be closed.
    pub woken: Vec<usize>,
    /// Asked of the reactor.
    pub requests: Vec<Request>,
    /// Keys that go to another server.
    pub migration: Option<Box<Migration>>,
    /// The append-only file.
    pub aof: AofStatus,
    /// Snapshots.
    pub save: SaveStatus,
    /// Databases that were flushed, and are being written as they were.
    pub flushed: Vec<Database>,
    /// Frees what is large.
    pub reclaimer: Reclaimer,
    /// How much is allocated.
    pub memory: Memory,
    /// More is used than `maxmemory`, and nothing may go: what needs memory is refused.
    pub is_out_of_memory: bool,
    /// Keys that go when memory is full.
    pub eviction: Eviction,
    /// Data are being read at the start: keys do not expire, limits do not hold.
    pub is_loading: bool,
    /// How far that is, or how it ended.
    pub load: LoadStatus,
    /// `SLOWLOG`, newest first.
    pub slow: std::collections::VecDeque<SlowCommand>,
    /// The next slow command's number.
    pub next_slow: u64,
    /// The name of this run.
    pub run_id: String,
    /// Where the executable is, for INFO.
    pub executable: String,
    /// The next client's identifier.
    pub next_session: u64,
    /// `DEBUG SET-ACTIVE-EXPIRE`.
    pub expires_actively: bool,
    /// `DEBUG SET-SKIP-CHECKSUM-VALIDATION`.
    pub skips_checksums: bool,
    /// A signal has asked for this while [`Server::is_tick_paused`].
    pub asked_to_end: Option<Shutdown>,
    /// `DEBUG PAUSE-CRON`: signals wait.
    pub is_tick_paused: bool,
    /// The command that runs.
    pub running: Option<&'static Command>,
    /// Who waits for what: by database and key, the clients' slots, the longest waiting first.
    pub waiters: HashMap<(usize, Vec<u8>), Vec<Waiter>>,
    /// Keys that were changed and that somebody waits for.
    pub ready: Vec<(usize, Vec<u8>)>,
    /// Until when clients wait: milliseconds since 1970, and their slots.
    pub deadlines: BTreeSet<(i64, usize)>,
    /// Slots of clients that have waited and may go on.
    pub resumed: Vec<usize>,
    /// Scripts and functions, once there are any.
    pub scripts: Option<Box<Scripts>>,
    /// `DEBUG SET-DISABLE-DENY-SCRIPTS`.
    pub allows_all_in_scripts: bool,
    /// Clients that are told when keys change.
    pub trackers: Trackers,
    /// The identifier of the client whose command runs.
    pub current: u64,
    /// Until when commands are postponed.
    pub pauses: Pauses,
    /// The end of the server, which waits for replicas.
    pub pending_shutdown: Option<PendingShutdown>,
    /// A master's keys that are read while others are served, or kept.
    pub aside: Option<Box<Aside>>,
    /// Who follows this server, and whom it follows.
    pub replication: Replication,
    /// On a replica: keys that clients let expire.
    pub own_expiries: OwnExpiries,
    /// There is an append-only file to write effects into.
    pub writes_aof: bool,
    /// What runs comes from the master: keys whose time has come are there until it says otherwise.
    pub applies_stream: bool,
    /// Messages for the client whose command runs, which is not among the sessions.
    pub own_messages: OwnMessages,
}

impl Server {
    /// Empty, at a time (milliseconds since 1970).
    pub fn new(settings: Settings, now: i64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let (run_id, replication_id) = (random.name(), random.name());
        let mut server = Self {
            databases: (0..settings.databases()).map(|_| Database::default()).collect(),
            settings,
            settings_before: None,
            tls: Tls::default(),
            now,
            started: now,
            random,
            users: acl::Users::default(),
            acl_log: acl::Log::default(),
            stats: Stats::default(),
            pace: Pace::default(),
            latency: Monitor::default(),
            metrics: None,
            effects: Effects::default(),
            dirty: 0,
            sessions: Vec::new(),
            connections: Vec::new(),
            clients: 0,
            client_memory: ClientMemory::default(),
            interlude: Interlude::default(),
            running_script: None,
            watchers: HashMap::new(),
            stale_watches: HashMap::new(),
            broken_watches: Vec::new(),
            channels: BTreeMap::new(),
            patterns: BTreeMap::new(),
            shard_channels: BTreeMap::new(),
            monitors: Vec::new(),
            woken: Vec::new(),
            requests: Vec::new(),
            migration: None,
            aof: AofStatus::default(),
            save: SaveStatus {
                tried: 0,
                saves: false,
                feeds: false,
                is_pointless: false,
                rewrites: false,
                is_rewrite_due: false,
                is_save_due: false,
                last: now,
                dirty: 0,
                last_begun: now,
                dirty_begun: 0,
                last_seconds: None,
                is_saved_well: true,
                is_rewritten_well: true,
                rewritten: 0,
                rewrite_tried: 0,
                rewrite_failures: 0,
                saved: 0,
            },
            flushed: Vec::new(),
            reclaimer: Reclaimer::default(),
            memory: Memory::default(),
            is_out_of_memory: false,
            eviction: Eviction::default(),
            is_loading: false,
            load: LoadStatus::default(),
            slow: Default::default(),
            next_slow: 0,
            run_id,
            executable: String::new(),
            next_session: 1,
            expires_actively: true,
            skips_checksums: false,
            asked_to_end: None,
            is_tick_paused: false,
            running: None,
            waiters: HashMap::new(),
            ready: Vec::new(),
            deadlines: BTreeSet::new(),
            resumed: Vec::new(),
            scripts: None,
            allows_all_in_scripts: false,
            trackers: Trackers::default(),
            current: 0,
            pauses: Pauses::default(),
            pending_shutdown: None,
            aside: None,
            replication: Replication::new(replication_id, now),
            own_expiries: OwnExpiries::default(),
            writes_aof: false,
            applies_stream: false,
            own_messages: OwnMessages::default(),
        };
        let replicaof = server.settings.text("replicaof").to_owned();
        if let Some((host, port)) = replicaof.split_once(' ')
            && let Ok(port) = port.parse()
        {
            server.follow(host.to_owned(), port);
        }
        eviction::follow_settings(&mut server);
        server.users.allows_channels = server.settings.text("acl-pubsub-default") == "allchannels";
        server.users.set_default_password(server.settings.password.as_bytes());
        server
    }

    /// Sets the time.
    pub fn set_time(&mut self, now: i64) {
        let before = std::mem::replace(&mut self.now, now);
        eviction::follow_time(self, before);
    }

    /// The counters of now, for whoever asks how much is done at the moment.
    pub fn note_pace(&mut self) {
        let Stats { commands, input_bytes, output_bytes, .. } = self.stats;
        self.pace.note(Sample { at: self.now, commands, input_bytes, output_bytes });
    }

    /// Data are read from now on, of so many bytes.
    pub fn begin_loading(&mut self, total_bytes: u64) {
        self.is_loading = true;
        self.load = LoadStatus { began: self.now, total_bytes, ..LoadStatus::default() };
    }

    /// Something that clients wait for took this long.
    #[inline]
    pub fn note_latency(&mut self, event: &'static str, took: Duration) {
        let threshold = self.settings.latency_threshold_millis;
        if threshold > 0 && took.as_millis() >= u128::from(threshold) {
            self.latency.note(event, self.now, took);
        }
    }

    /// Forgets what a client watches.
    pub fn unwatch(&mut self, session: &mut Session) {
        for watched in session.watched.drain(..) {
            for watches in [&mut self.watchers, &mut self.stale_watches] {
                if let Some(ids) = watches.get_mut(&watched) {
                    ids.retain(|id| *id != session.id);
                    if ids.is_empty() {
                        watches.remove(&watched);
                    }
                }
            }
        }
        session.is_watch_broken = false;
    }

    /// Forgets a client that has gone.
    pub fn forget(&mut self, session: &mut Session) {
        self.unwatch(session);
        crate::waiting::forget(self, session);
        crate::command::tracking::end(self, session);
        crate::command::monitor::end(self, session);
        if session.replica.take().is_some() {
            let replication = &mut self.replication;
            replication.replicas.retain(|slot| *slot != session.slot);
            replication.alone_since = self.now;
            replication.has_news = true;
            self.pin_backlog();
        }
        crate::command::pubsub::unsubscribe_all(self, session);
    }
}
