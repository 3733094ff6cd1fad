//! What commands changed, as commands: what goes to the append-only file and to replicas.
//!
//! Effects are deterministic: times are absolute, what was chosen at random is named. Those of a transaction stand between MULTI
//! and EXEC.

use std::borrow::Cow;

use crate::protocol::{Args, push_command};

/// Who gets the effects of a script (`redis.set_repl`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// The append-only file and the replicas.
    #[default]
    All,
    /// The append-only file alone.
    File,
    /// The replicas alone.
    Replicas,
    /// Nobody.
    Nobody,
}

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
    /// What is for the file alone.
    private: Vec<(usize, usize)>,
    /// The database that the last SELECT in the file chose.
    selected: Option<usize>,
    in_transaction: bool,
    has_begun: bool,
    /// Where MULTI stands, and where the first effect behind it begins.
    multi: (usize, usize),
    /// Effects since MULTI.
    count: usize,
    /// Who gets what the script at hand changes.
    pub reach: Reach,
    /// Where SELECT and MULTI ended that came last.
    opened: usize,
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
        self.reaching(|effects| effects.add(database, arguments));
    }

    /// Adds something as far as the script at hand wants it to go.
    fn reaching(&mut self, add: impl FnOnce(&mut Self)) {
        if self.reach == Reach::All {
            return add(self);
        }
        if self.reach == Reach::Nobody || (self.reach == Reach::Replicas && !self.is_replicated) {
            return;
        }
        // What opens the way, SELECT and MULTI, is for both.
        let from = self.bytes.len();
        add(self);
        let to = self.bytes.len();
        let from = self.opened.max(from);
        let ranges = if self.reach == Reach::File { &mut self.private } else { &mut self.hidden };
        if from < to {
            ranges.push((from, to));
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
    pub fn unreplicated(&self) -> Cow<'_, [u8]> {
        match self.is_replicated {
            true => without(&self.bytes, self.replicated, &self.private),
            false => Cow::Borrowed(&[]),
        }
    }

    /// How much that is.
    #[inline]
    pub fn unreplicated_bytes(&self) -> usize {
        if !self.is_replicated {
            return 0;
        }
        let private = self.private.iter().filter(|(from, _)| *from >= self.replicated).map(|(from, to)| to - from);
        self.bytes.len() - self.replicated - private.sum::<usize>()
    }

    /// All so far is in the stream, or is no part of it.
    pub fn mark_replicated(&mut self) {
        self.replicated = self.bytes.len();
    }

    /// What the append-only file gets.
    pub fn for_file(&self) -> Cow<'_, [u8]> {
        without(&self.bytes, 0, &self.hidden)
    }

    /// All were written.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(1 << 20);
        self.hidden.clear();
        self.private.clear();
        (self.replicated, self.opened) = (0, 0);
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
        if self.is_enabled && !self.is_said {
            self.reaching(|effects| {
                effects.prepare(database);
                push_command(&mut effects.bytes, args.iter());
            });
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
            // MULTI may be behind what is in the stream, or in front of its end.
            self.replicated -= self.replicated.clamp(from, to) - from;
            for range in self.hidden.iter_mut().chain(&mut self.private).filter(|range| range.0 >= to) {
                *range = (range.0 - (to - from), range.1 - (to - from));
            }
        } else if self.has_begun {
            push_command(&mut self.bytes, [b"EXEC".as_slice()].into_iter());
        }
        self.in_transaction = false;
        self.has_begun = false;
    }

    /// What the transaction has changed so far stands on its own: what follows belongs to another history.
    pub fn split_transaction(&mut self) {
        let goes_on = self.in_transaction;
        self.end_transaction();
        self.in_transaction = goes_on;
        self.count = 0;
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
        self.opened = self.bytes.len();
        self.count += 1;
    }
}

/// Bytes from a place on but for some ranges, which are in their order and none of which is on both sides of the place.
fn without<'a>(bytes: &'a [u8], mut at: usize, ranges: &[(usize, usize)]) -> Cow<'a, [u8]> {
    if ranges.is_empty() {
        return Cow::Borrowed(&bytes[at..]);
    }
    let mut left = Vec::with_capacity(bytes.len() - at);
    let start = at;
    for &(from, to) in ranges.iter().filter(|(from, _)| *from >= start) {
        left.extend_from_slice(&bytes[at..from]);
        at = to;
    }
    left.extend_from_slice(&bytes[at..]);
    Cow::Owned(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::OwnedArgs;

    /// As Redis's test: what only the file gets is not in the stream, and what only the replicas get is not in the file.
    #[test]
    fn a_script_chooses_who_gets_its_effects() {
        let mut effects = Effects { is_enabled: true, is_replicated: true, ..Effects::default() };
        effects.begin_transaction();
        for (reach, name) in [(Reach::File, "f"), (Reach::Nobody, "n"), (Reach::Replicas, "r"), (Reach::All, "a")] {
            effects.reach = reach;
            effects.begin();
            effects.end(0, OwnedArgs::new([b"INCR".as_slice(), name.as_bytes()]).as_args());
        }
        effects.end_transaction();
        let names = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let has = |name: &&str| text.contains(&format!("\n{name}\r\n"));
            ["SELECT", "MULTI", "f", "n", "r", "a", "EXEC"].into_iter().filter(has).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(&effects.for_file()), "SELECT MULTI f a EXEC");
        assert_eq!(names(&effects.unreplicated()), "SELECT MULTI r a EXEC");
        assert_eq!(effects.unreplicated().len(), effects.unreplicated_bytes());
    }
}
