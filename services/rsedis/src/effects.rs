//! What commands changed, as commands: what goes to the append-only file and to replicas.
//!
//! Effects are deterministic: times are absolute, what was chosen at random is named. Those of a transaction stand between MULTI
//! and EXEC.

use std::borrow::Cow;

use crate::protocol::{Args, push_command};

/// Effects that have not been written yet.
#[derive(Debug, Default)]
pub struct Effects {
    /// Commands as clients send them.
    pub bytes: Vec<u8>,
    /// Somebody wants them.
    pub is_enabled: bool,
    /// They are the stream that replicas get.
    pub is_replicated: bool,
    /// Bytes that are in the stream already, or are no part of it.
    replicated: usize,
    /// What is for replicas alone: from where to where.
    hidden: Vec<(usize, usize)>,
    /// The database that the last SELECT in the file chose.
    selected: Option<usize>,
    in_transaction: bool,
    has_begun: bool,
    /// Where MULTI stands, and where the first effect behind it begins.
    multi: (usize, usize),
    /// Effects since MULTI.
    count: usize,
    /// A script has asked that its effects are not kept.
    pub is_silenced: bool,
    /// The command at hand has said what its effects are.
    is_said: bool,
}

impl Effects {
    /// A command begins.
    #[inline]
    pub fn begin(&mut self) {
        self.is_said = false;
    }

    /// The command has no effects but those that it said.
    pub fn say_nothing(&mut self) {
        self.is_said = true;
    }

    /// An effect of the command at hand, in the place of the command itself.
    pub fn say(&mut self, database: usize, arguments: &[&[u8]]) {
        self.is_said = true;
        if !self.is_silenced {
            self.add(database, arguments);
        }
    }

    /// An effect beside those of the command at hand: a key went by time or for want of memory, which no script can silence.
    pub fn add(&mut self, database: usize, arguments: &[&[u8]]) {
        if self.is_enabled {
            self.prepare(database);
            push_command(&mut self.bytes, arguments.iter().copied());
        }
    }

    /// What replicas are to do as well, though it changes no key, and the file does not need it.
    pub fn add_for_replicas(&mut self, database: usize, arguments: Args<'_>) {
        if self.is_replicated {
            self.prepare(database);
            let from = self.bytes.len();
            push_command(&mut self.bytes, arguments.iter());
            self.hidden.push((from, self.bytes.len()));
        }
    }

    /// What is not in the replication stream yet.
    pub fn unreplicated(&self) -> &[u8] {
        if self.is_replicated { &self.bytes[self.replicated..] } else { &[] }
    }

    /// All so far is in the stream, or is no part of it.
    pub fn mark_replicated(&mut self) {
        self.replicated = self.bytes.len();
    }

    /// What the append-only file gets.
    pub fn for_file(&self) -> Cow<'_, [u8]> {
        if self.hidden.is_empty() {
            return Cow::Borrowed(&self.bytes);
        }
        let mut bytes = Vec::with_capacity(self.bytes.len());
        let mut at = 0;
        for &(from, to) in &self.hidden {
            bytes.extend_from_slice(&self.bytes[at..from]);
            at = to;
        }
        bytes.extend_from_slice(&self.bytes[at..]);
        Cow::Owned(bytes)
    }

    /// All were written.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(1 << 20);
        self.hidden.clear();
        self.replicated = 0;
    }

    /// Whether effects stand behind a MULTI that has not ended.
    pub fn is_in_group(&self) -> bool {
        self.has_begun
    }

    /// The database that the last SELECT chose.
    pub fn selected_database(&self) -> usize {
        self.selected.unwrap_or(0)
    }

    /// The command has changed something: it is its own effect, unless it said otherwise.
    #[inline]
    pub fn end(&mut self, database: usize, args: Args<'_>) {
        if self.is_enabled && !self.is_said && !self.is_silenced {
            self.prepare(database);
            push_command(&mut self.bytes, args.iter());
        }
    }

    /// EXEC begins.
    pub fn begin_transaction(&mut self) {
        self.in_transaction = true;
        self.has_begun = false;
        self.count = 0;
    }

    /// A script begins; false: it is part of a transaction, whose effects it shares.
    pub fn begin_group(&mut self) -> bool {
        let is_outermost = !self.in_transaction;
        if is_outermost {
            self.begin_transaction();
        }
        is_outermost
    }

    /// EXEC ends. A single effect needs no MULTI.
    pub fn end_transaction(&mut self) {
        if self.has_begun && self.count == 1 {
            let (from, to) = self.multi;
            self.bytes.drain(from..to);
            for hidden in self.hidden.iter_mut().filter(|hidden| hidden.0 >= to) {
                *hidden = (hidden.0 - (to - from), hidden.1 - (to - from));
            }
        } else if self.has_begun {
            push_command(&mut self.bytes, [b"EXEC".as_slice()].into_iter());
        }
        self.in_transaction = false;
        self.has_begun = false;
    }

    /// A new file begins: nothing is selected in it.
    pub fn forget_selected(&mut self) {
        self.selected = None;
    }

    fn prepare(&mut self, database: usize) {
        if self.selected != Some(database) {
            self.selected = Some(database);
            let number = database.to_string();
            push_command(&mut self.bytes, [b"SELECT", number.as_bytes()].into_iter());
        }
        if self.in_transaction && !self.has_begun {
            self.has_begun = true;
            let at = self.bytes.len();
            push_command(&mut self.bytes, [b"MULTI".as_slice()].into_iter());
            self.multi = (at, self.bytes.len());
        }
        self.count += 1;
    }
}
