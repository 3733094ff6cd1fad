//! What was refused lately (`ACL LOG`). The same refusal within a minute is counted, not repeated.

use std::collections::VecDeque;

/// Where a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// As a client sent it.
    TopLevel,
    /// In a transaction.
    Multi,
    /// In a script.
    Script,
}

impl Context {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::TopLevel => "toplevel",
            Self::Multi => "multi",
            Self::Script => "lua",
        }
    }
}

/// A refusal.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Times it happened.
    pub count: u64,
    /// `command`, `key`, `channel` or `auth`.
    pub reason: &'static str,
    /// Where.
    pub context: Context,
    /// What was refused.
    pub object: Vec<u8>,
    /// To whom.
    pub user: Vec<u8>,
    /// Milliseconds since 1970, of the last time.
    pub at: i64,
    /// The client as CLIENT LIST shows it.
    pub client: String,
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct Log {
    entries: VecDeque<Entry>,
}

/// Entries that are looked through for the same refusal.
const COMPARED: usize = 10;
/// A refusal is the same within this many milliseconds.
const SAME_MILLIS: i64 = 60_000;

impl Log {
    /// Notes a refusal, and keeps at most so many.
    pub fn add(&mut self, entry: Entry, most: usize) {
        let is_same = |known: &Entry| {
            known.reason == entry.reason
                && known.context == entry.context
                && (known.at - entry.at).abs() <= SAME_MILLIS
                && known.object == entry.object
                && known.user == entry.user
        };
        let count = match self.entries.iter().take(COMPARED).position(is_same) {
            Some(place) => self.entries.remove(place).map_or(0, |known| known.count),
            None => 0,
        };
        self.entries.push_front(Entry { count: count + 1, ..entry });
        self.entries.truncate(most);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// All, newest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }
}
