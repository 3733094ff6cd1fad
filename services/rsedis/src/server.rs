//! The state that commands work on: databases, sessions, subscriptions, counters. No sockets, no files, no clock: the reactor
//! sets the time, takes effects to the file and replies to the sockets.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::acl;
use crate::command::{Command, NO_TOUCH};
use crate::effects::Effects;
use crate::events::{self, Classes};
use crate::eviction::{self, Eviction};
use crate::failure::{Outcome, WRONG_TYPE};
use crate::glob;
use crate::keyspace::{Database, Entry, Key, Place};
use crate::memory::Memory;
use crate::number::integer_text;
use crate::protocol::{Args, Reply};
use crate::random::Random;
use crate::scripting::Scripts;
use crate::session::Session;
use crate::settings::Settings;
use crate::structure::listpack::Item;
use crate::value::{Hash, List, Packing, Set, Stream, Value, Zset};

/// Counters, since the start or CONFIG RESETSTAT.
#[derive(Debug, Default)]
pub struct Stats {
    /// Commands that were run.
    pub commands: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections that were refused.
    pub rejected: u64,
    /// Keys that expired.
    pub expired: u64,
    /// Keys that went because memory was full.
    pub evicted: u64,
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
    /// Error replies.
    pub errors: u64,
    /// Error replies by code.
    pub errors_by_code: BTreeMap<String, u64>,
    /// Bytes received.
    pub input_bytes: u64,
    /// Bytes sent.
    pub output_bytes: u64,
    /// Calls, refused calls and failed calls by command.
    pub by_command: HashMap<&'static str, CommandStats>,
}

/// Counters of one command.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommandStats {
    /// Times it ran.
    pub calls: u64,
    /// Times it was refused before it ran.
    pub rejected: u64,
    /// Times it answered with an error.
    pub failed: u64,
}

/// What the reactor is asked to do after the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Stop.
    Shutdown,
    /// Read the append-only file anew (`DEBUG LOADAOF`), and answer the client at a slot.
    ReloadAof(usize),
    /// Write the RDB file while everybody waits, and answer the client at a slot.
    Save(usize),
    /// Write the RDB file.
    BackgroundSave,
    /// Write the append-only file's base anew.
    RewriteAof,
    /// Read the file of users, and answer the client at a slot.
    LoadUsers(usize),
    /// Write the file of users, and answer the client at a slot.
    SaveUsers(usize),
    /// Begin or end the append-only file: the setting has changed. Answer the client at a slot, if one waits.
    SwitchAof(Option<usize>),
}

/// What the append-only file's keeper says of it; shown by INFO, and decides whether writes are taken.
#[derive(Clone, Debug, Default)]
pub struct AofStatus {
    /// Why it cannot be written.
    pub failure: Option<String>,
    /// Bytes of all its files.
    pub current_bytes: u64,
    /// Bytes of its base.
    pub base_bytes: u64,
    /// Syncs that were made.
    pub syncs: u64,
}

/// How snapshots go.
#[derive(Clone, Debug)]
pub struct SaveStatus {
    /// An RDB file is being written.
    pub saves: bool,
    /// A base of the append-only file is being written.
    pub rewrites: bool,
    /// A rewrite is to follow what goes on now.
    pub is_rewrite_due: bool,
    /// A save is to follow what goes on now.
    pub is_save_due: bool,
    /// Of the last RDB file that was written, milliseconds since 1970.
    pub last: i64,
    /// Changes when it was written.
    pub dirty: u64,
    /// What [`SaveStatus::last`] will be when the file that is being written is whole.
    pub last_begun: i64,
    /// The same for [`SaveStatus::dirty`].
    pub dirty_begun: u64,
    /// Whether the last one went well.
    pub is_saved_well: bool,
    /// The same for bases.
    pub is_rewritten_well: bool,
    /// Bases that were written.
    pub rewritten: u64,
    /// RDB files that were written.
    pub saved: u64,
}

/// A slow command.
#[derive(Debug)]
pub struct SlowCommand {
    /// Counted up.
    pub id: u64,
    /// Seconds since 1970.
    pub at: i64,
    /// How long it took.
    pub micros: u64,
    /// Its arguments, shortened.
    pub arguments: Vec<Vec<u8>>,
    /// Who sent it.
    pub address: String,
    /// The name of who sent it.
    pub name: Vec<u8>,
}

/// See the module's description.
#[derive(Debug)]
pub struct Server {
    /// Parameters.
    pub settings: Settings,
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
    /// What was changed.
    pub effects: Effects,
    /// Changes since the start.
    pub dirty: u64,
    /// Clients by their slot. The one whose command runs is not there.
    pub sessions: Vec<Option<Box<Session>>>,
    /// Who watches what: by database and key, the clients' identifiers.
    pub watchers: HashMap<(usize, Vec<u8>), Vec<u64>>,
    /// A watched key was changed by the client whose command runs.
    pub broken_watches: Vec<u64>,
    /// Who listens to a channel: slots.
    pub channels: BTreeMap<Vec<u8>, Vec<usize>>,
    /// Who listens to a pattern.
    pub patterns: BTreeMap<Vec<u8>, Vec<usize>>,
    /// Slots of clients that got something without asking, or are to be closed.
    pub woken: Vec<usize>,
    /// Asked of the reactor.
    pub requests: Vec<Request>,
    /// The append-only file.
    pub aof: AofStatus,
    /// Snapshots.
    pub save: SaveStatus,
    /// Databases that were flushed, and are being written as they were.
    pub flushed: Vec<Database>,
    /// How much is allocated.
    pub memory: Memory,
    /// More is used than `maxmemory`, and nothing may go: what needs memory is refused.
    pub is_out_of_memory: bool,
    /// Keys that go when memory is full.
    pub eviction: Eviction,
    /// Data are being read at the start: keys do not expire, limits do not hold.
    pub is_loading: bool,
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
    /// `DEBUG PAUSE-CRON`.
    pub is_tick_paused: bool,
    /// The command that runs.
    pub running: Option<&'static Command>,
    /// Who waits for what: by database and key, the clients' slots, the longest waiting first.
    pub waiters: HashMap<(usize, Vec<u8>), Vec<usize>>,
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
    pub trackers: usize,
    /// Who has read which key: slots and identifiers.
    pub tracked: HashMap<Vec<u8>, Vec<(usize, u64)>>,
    /// Keys that have changed, and the identifier of who changed them, before those who track were told.
    pub invalidated: Vec<(Vec<u8>, u64)>,
    /// The same for broadcasts.
    pub broadcast: Vec<(Vec<u8>, u64)>,
    /// All keys have changed.
    pub is_flushed: bool,
    /// The identifier of the client whose command runs.
    pub current: u64,
    /// Until when commands are postponed, milliseconds since 1970, and whether all are or only those that may write.
    pub pause: Option<(i64, bool)>,
    /// Clients that get all effects.
    pub replicas: usize,
    /// Messages for the client whose command runs, which is not among the sessions.
    pub own_messages: Vec<(usize, Message)>,
}

/// What a client gets that listens to channels.
#[derive(Clone, Debug)]
pub struct Message {
    /// The pattern that matches its channel, if it came by one.
    pub pattern: Option<Vec<u8>>,
    /// Where it was sent to.
    pub channel: Vec<u8>,
    /// What was sent.
    pub text: Vec<u8>,
}

impl Message {
    /// Writes it to its receiver.
    pub fn push_to(&self, reply: &mut Reply) {
        match &self.pattern {
            None => {
                reply.push(3);
                reply.bulk(b"message");
            }
            Some(pattern) => {
                reply.push(4);
                reply.bulk(b"pmessage");
                reply.bulk(pattern);
            }
        }
        reply.bulk(&self.channel);
        reply.bulk(&self.text);
    }
}

/// A value of a certain type.
pub trait Typed: Default {
    /// If it is one.
    fn of(value: &Value) -> Option<&Self>;
    /// The same, to change it.
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
    /// As a value.
    fn wrap(self) -> Value;
}

macro_rules! typed {
    ($($name:ident),*) => {$(
        impl Typed for $name {
            fn of(value: &Value) -> Option<&Self> {
                match value { Value::$name(value) => Some(value), _ => None }
            }
            fn of_mut(value: &mut Value) -> Option<&mut Self> {
                match value { Value::$name(value) => Some(value), _ => None }
            }
            fn wrap(self) -> Value {
                Value::$name(self)
            }
        }
    )*};
}
typed!(List, Set, Hash, Zset, Stream);

impl Server {
    /// Empty, at a time (milliseconds since 1970).
    pub fn new(settings: Settings, now: i64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let run_id = random.name();
        let mut server = Self {
            databases: (0..settings.databases()).map(|_| Database::default()).collect(),
            settings,
            now,
            started: now,
            random,
            users: acl::Users::default(),
            acl_log: acl::Log::default(),
            stats: Stats::default(),
            effects: Effects::default(),
            dirty: 0,
            sessions: Vec::new(),
            watchers: HashMap::new(),
            broken_watches: Vec::new(),
            channels: BTreeMap::new(),
            patterns: BTreeMap::new(),
            woken: Vec::new(),
            requests: Vec::new(),
            aof: AofStatus::default(),
            save: SaveStatus {
                saves: false,
                rewrites: false,
                is_rewrite_due: false,
                is_save_due: false,
                last: now,
                dirty: 0,
                last_begun: now,
                dirty_begun: 0,
                is_saved_well: true,
                is_rewritten_well: true,
                rewritten: 0,
                saved: 0,
            },
            flushed: Vec::new(),
            memory: Memory::default(),
            is_out_of_memory: false,
            eviction: Eviction::default(),
            is_loading: false,
            slow: Default::default(),
            next_slow: 0,
            run_id,
            executable: String::new(),
            next_session: 1,
            expires_actively: true,
            skips_checksums: false,
            is_tick_paused: false,
            running: None,
            waiters: HashMap::new(),
            ready: Vec::new(),
            deadlines: BTreeSet::new(),
            resumed: Vec::new(),
            scripts: None,
            allows_all_in_scripts: false,
            trackers: 0,
            tracked: HashMap::new(),
            invalidated: Vec::new(),
            broadcast: Vec::new(),
            is_flushed: false,
            current: 0,
            pause: None,
            replicas: 0,
            own_messages: Vec::new(),
        };
        eviction::follow_settings(&mut server);
        server.users.allows_channels = server.settings.text("acl-pubsub-default") == "allchannels";
        server.users.set_default_password(server.settings.password.as_bytes());
        server
    }

    /// Limits of packed values.
    #[inline]
    pub fn packing(&self) -> Packing {
        self.settings.packing
    }

    /// Where a key is. A key that has expired is removed, and is not there.
    #[inline]
    pub fn find(&mut self, database: usize, key: &Key<'_>) -> Option<Place> {
        let keys = &self.databases[database];
        let place = keys.find(key)?;
        match keys.entry(place).expiry() {
            Some(expiry) if expiry <= self.now && !self.is_loading => {
                // While writes are postponed nothing changes.
                if !self.is_paused() {
                    self.expire(database, key);
                }
                None
            }
            _ => {
                if self.eviction.clock().is_some() && !self.running.is_some_and(|command| command.is(NO_TOUCH)) {
                    eviction::note_use(self, database, place);
                }
                Some(place)
            }
        }
    }

    /// The same for a command that reads, with hits and misses counted.
    #[inline]
    pub fn find_to_read(&mut self, database: usize, key: &Key<'_>) -> Option<Place> {
        let place = self.find(database, key);
        match place {
            Some(_) => self.stats.hits += 1,
            None => self.stats.misses += 1,
        }
        place
    }

    /// A key's entry, to be read.
    #[inline]
    pub fn entry(&mut self, database: usize, key: &Key<'_>) -> Option<&Entry> {
        let place = self.find_to_read(database, key)?;
        Some(self.databases[database].entry(place))
    }

    /// A key's string, to be read.
    #[inline]
    pub fn text(&mut self, database: usize, key: &Key<'_>) -> Outcome<Option<Item<'_>>> {
        match self.entry(database, key) {
            None => Ok(None),
            Some(entry) => entry.text().map(Some).ok_or(WRONG_TYPE),
        }
    }

    /// A key's value of a type, to be read.
    pub fn typed<T: Typed>(&mut self, database: usize, key: &Key<'_>) -> Outcome<Option<&T>> {
        match self.entry(database, key) {
            None => Ok(None),
            Some(entry) => entry.value().and_then(T::of).map(Some).ok_or(WRONG_TYPE),
        }
    }

    /// A key's value of a type, to be changed.
    pub fn typed_mut<T: Typed>(&mut self, database: usize, key: &Key<'_>) -> Outcome<Option<&mut T>> {
        match self.find(database, key) {
            None => Ok(None),
            Some(place) => {
                let entry = self.databases[database].entry_mut(place);
                entry.value_mut().and_then(T::of_mut).map(Some).ok_or(WRONG_TYPE)
            }
        }
    }

    /// The same; a key that is not there gets an empty one, which must not stay empty.
    pub fn typed_or_new<T: Typed>(&mut self, database: usize, key: &Key<'_>) -> Outcome<&mut T> {
        let place = match self.find(database, key) {
            Some(place) => place,
            None => self.databases[database].insert_value(key, T::default().wrap()),
        };
        let entry = self.databases[database].entry_mut(place);
        entry.value_mut().and_then(T::of_mut).ok_or(WRONG_TYPE)
    }

    /// The values of a type of several keys, to be read.
    pub fn typed_all<T: Typed>(&mut self, database: usize, names: Args<'_>) -> Outcome<Vec<Option<&T>>> {
        // Those that have expired go first, so that nothing moves any more.
        for name in names.iter() {
            self.find_to_read(database, &Key::new(name));
        }
        let keys = &self.databases[database];
        let value = |name| match keys.find(&Key::new(name)) {
            None => Ok(None),
            Some(place) => keys.entry(place).value().and_then(T::of).map(Some).ok_or(WRONG_TYPE),
        };
        names.iter().map(value).collect()
    }

    /// A key was changed so many times: watchers learn of it, the command has an effect. A value with nothing left goes.
    pub fn changed(&mut self, database: usize, key: &Key<'_>, times: usize) {
        if times > 0 {
            self.changed_string(database, key.bytes);
            self.dirty += times as u64 - 1;
        }
        self.drop_empty(database, key);
    }

    /// A value with nothing left goes.
    pub fn drop_empty(&mut self, database: usize, key: &Key<'_>) {
        let keys = &mut self.databases[database];
        if let Some(place) = keys.find(key)
            && keys.entry(place).value().is_some_and(Value::is_empty)
        {
            keys.remove(key);
            self.notify(events::GENERIC, "del", database, key.bytes);
        }
    }

    /// A string was changed; the same without a look whether anything is left.
    #[inline]
    pub fn changed_string(&mut self, database: usize, key: &[u8]) {
        self.dirty += 1;
        self.touch(database, key);
        if self.settings.events != 0
            && let Some((class, event)) = self.running.and_then(|command| events::of(command.name))
        {
            self.notify(class, event, database, key);
        }
    }

    /// A key was changed: watches of it break, and who waits for it may go on.
    #[inline]
    pub fn touch(&mut self, database: usize, key: &[u8]) {
        if !self.watchers.is_empty() {
            self.break_watches(database, key);
        }
        if !self.waiters.is_empty() {
            self.make_ready(database, key);
        }
        if self.trackers > 0 {
            self.invalidated.push((key.to_vec(), self.current));
        }
    }

    fn make_ready(&mut self, database: usize, key: &[u8]) {
        let place = (database, key.to_vec());
        if self.waiters.contains_key(&place) && !self.ready.contains(&place) {
            self.ready.push(place);
        }
    }

    /// Tells of a keyspace event.
    #[inline]
    pub fn notify(&mut self, class: Classes, event: &str, database: usize, key: &[u8]) {
        if self.settings.events & class != 0 {
            self.tell_event(event, database, key);
        }
    }

    fn tell_event(&mut self, event: &str, database: usize, key: &[u8]) {
        if self.settings.events & events::KEYSPACE != 0 {
            let channel = [format!("__keyspace@{database}__:").as_bytes(), key].concat();
            self.publish(&channel, event.as_bytes());
        }
        if self.settings.events & events::KEYEVENT != 0 {
            self.publish(format!("__keyevent@{database}__:{event}").as_bytes(), key);
        }
    }

    /// Sends a message to all who listen to a channel; how many.
    pub fn publish(&mut self, channel: &[u8], text: &[u8]) -> usize {
        let mut receivers: Vec<(usize, Option<Vec<u8>>)> = Vec::new();
        if let Some(slots) = self.channels.get(channel) {
            receivers.extend(slots.iter().map(|slot| (*slot, None)));
        }
        for (pattern, slots) in self.patterns.iter().filter(|(pattern, _)| glob::matches(pattern, channel)) {
            receivers.extend(slots.iter().map(|slot| (*slot, Some(pattern.clone()))));
        }
        let count = receivers.len();
        for (slot, pattern) in receivers {
            let message = Message { pattern, channel: channel.to_vec(), text: text.to_vec() };
            match self.sessions.get_mut(slot) {
                Some(Some(session)) => {
                    message.push_to(&mut session.reply);
                    self.woken.push(slot);
                }
                _ => self.own_messages.push((slot, message)),
            }
        }
        count
    }

    fn break_watches(&mut self, database: usize, key: &[u8]) {
        if let Some(ids) = self.watchers.get(&(database, key.to_vec())) {
            self.broken_watches.extend_from_slice(ids);
            for session in self.sessions.iter_mut().flatten().filter(|session| ids.contains(&session.id)) {
                session.is_watch_broken = true;
            }
        }
    }

    /// Removes all keys of a database; what it held.
    pub fn take_database(&mut self, database: usize) -> usize {
        let empty = eviction::empty_database(self);
        let keys = std::mem::replace(&mut self.databases[database], empty);
        let count = keys.len();
        if keys.walked_number().is_some() {
            self.flushed.push(keys);
        }
        count
    }

    /// Removes a key for good; whether it was there.
    pub fn delete(&mut self, database: usize, key: &Key<'_>) -> bool {
        self.find(database, key).is_some() && {
            self.databases[database].remove(key);
            self.changed_string(database, key.bytes);
            true
        }
    }

    /// Removes a key whose time has come, and says so.
    pub fn expire(&mut self, database: usize, key: &Key<'_>) {
        if self.databases[database].remove(key).is_some() {
            self.stats.expired += 1;
            self.touch(database, key.bytes);
            self.notify(events::EXPIRED, "expired", database, key.bytes);
            self.effects.add(database, &[b"DEL", key.bytes]);
        }
    }

    /// Whether commands are postponed.
    pub fn is_paused(&self) -> bool {
        self.pause.is_some_and(|(until, _)| until > self.now)
    }

    /// Removes keys whose time has come: at most so many.
    pub fn expire_some(&mut self, most: usize) {
        if self.is_paused() {
            return;
        }
        let mut left = most;
        for database in 0..self.databases.len() {
            while left > 0
                && let Some(name) = self.databases[database].expired(self.now)
            {
                let name = name.to_vec();
                self.expire(database, &Key::new(&name));
                left -= 1;
            }
        }
    }

    /// Sets a key's expiry and makes that the command's effect.
    pub fn expire_at(&mut self, database: usize, key: &Key<'_>, place: Place, at: i64) {
        self.databases[database].set_expiry(place, Some(at));
        self.effects.say(database, &[b"PEXPIREAT", key.bytes, &integer_text(at)]);
        self.changed_string(database, key.bytes);
    }

    /// Forgets what a client watches.
    pub fn unwatch(&mut self, session: &mut Session) {
        for watched in session.watched.drain(..) {
            if let Some(ids) = self.watchers.get_mut(&watched) {
                ids.retain(|id| *id != session.id);
                if ids.is_empty() {
                    self.watchers.remove(&watched);
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
        if std::mem::take(&mut session.is_replica) {
            self.replicas -= 1;
            self.effects.is_enabled = self.replicas > 0 || self.settings.is_yes("appendonly");
        }
        crate::command::pubsub::unsubscribe_all(self, session);
    }
}
