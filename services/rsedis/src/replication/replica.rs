//! What a master knows of one of its replicas.

/// How far a replica is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// It has said something of itself (REPLCONF) and asked for nothing yet.
    #[default]
    Introducing,
    /// It needs all keys; the snapshot that it will get has not begun.
    Waiting,
    /// The snapshot that it will get is being written to a file.
    Snapshot,
    /// Keys are being sent to it. What follows them in the stream is held back.
    Receiving,
    /// All keys were sent without telling their length before: what follows waits for its first acknowledgement.
    Loading,
    /// It gets the stream.
    Online,
}

/// What an RDB file for a replica is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Keys and their values.
    pub has_keys: bool,
    /// Libraries of functions.
    pub has_functions: bool,
}

impl Contents {
    /// All that there is.
    pub const ALL: Self = Self { has_keys: true, has_functions: true };
}

impl Default for Contents {
    fn default() -> Self {
        Self::ALL
    }
}

/// See the module's description.
#[derive(Clone, Debug, Default)]
pub struct Replica {
    /// How far it is.
    pub stage: Stage,
    /// Where it listens, as it says.
    pub port: u16,
    /// Its address, as it says; empty: where it comes from.
    pub address: String,
    /// It understands a snapshot whose end is a mark.
    pub takes_mark: bool,
    /// It understands that its master's replication has another name after `+CONTINUE`.
    pub takes_new_id: bool,
    /// It wants an RDB file, and nothing of the stream.
    pub is_rdb_only: bool,
    /// What that file is to hold.
    pub contents: Contents,
    /// The keys are in a file that is whole.
    pub has_file: bool,
    /// It asked by SYNC, and acknowledges nothing.
    pub is_silent: bool,
    /// Bytes of the stream that it has applied.
    pub acknowledged: u64,
    /// When it said something last, milliseconds since 1970.
    pub heard_at: i64,
    /// Since when it waits for a snapshot, milliseconds since 1970.
    pub waits_since: i64,
    /// What follows so many bytes of the stream is to be sent behind the keys; the backlog keeps it.
    pub held_from: Option<u64>,
}

impl Replica {
    /// It asks for keys.
    pub fn wait(&mut self, now: i64) {
        (self.stage, self.waits_since, self.heard_at) = (Stage::Waiting, now, now);
    }

    /// How much is to be sent behind the keys, where the stream has so many bytes.
    pub fn held_bytes(&self, offset: u64) -> usize {
        self.held_from.map_or(0, |from| usize::try_from(offset.saturating_sub(from)).unwrap_or(usize::MAX))
    }

    /// Seconds since it said something.
    pub fn lag_seconds(&self, now: i64) -> i64 {
        match self.is_silent {
            true => 0,
            false => (now - self.heard_at).max(0) / 1000,
        }
    }

    /// The word that INFO has for its stage.
    pub fn stage_word(&self) -> &'static str {
        match self.stage {
            Stage::Receiving if self.has_file => "send_bulk",
            // As in Redis, where who is sent keys while they are taken waits for the process that takes them.
            Stage::Introducing | Stage::Waiting | Stage::Snapshot | Stage::Receiving => "wait_bgsave",
            Stage::Loading | Stage::Online => "online",
        }
    }
}
