//! One client's side of the load phases: which command comes next, and whether its reply is right.
//!
//! What is known about a reply when it comes, and is therefore checked:
//!
//! | command | its reply must be |
//! | --- | --- |
//! | PING | `PONG` |
//! | SET, MSET | `OK` |
//! | GET | a value that the key can have; see [`crate::content::expect`] |
//! | INCR | the count of increments that the key's owner sent; of all clients, at most, where the key space is shared |
//! | LPUSH, RPUSH | more than the last one this client got: the list only grows |
//! | SADD, HSET, ZADD | 1 the first time the owner sends the element, 0 later; either where the key space is shared |
//! | LPOP, RPOP, SPOP, ZPOPMIN | an element that was written and not taken before; in order, for all but SPOP; or nothing |
//! | LRANGE | exactly the elements asked for, each in its place |
//! | XADD | an identifier above the last one this client got |
//!
//! Replies of another type, and errors, fail the store. Whether the sum of all replies adds up is for
//! [`crate::family::redis::verify`].

use std::sync::atomic::Ordering;

use storebench_crds::job::Phase;
use storebench_crds::workload::redis::RedisCommand;

use crate::content::doubts::Doubts;
use crate::content::expect::{Ledger, Mismatch};
use crate::content::keys::KeyPicker;
use crate::failure::Failure;
use crate::family::redis::connection::{Dialogue, Received, unexpected};
use crate::family::redis::encode::Encoder;
use crate::family::redis::plan::{MSET_KEYS, Plan};
use crate::family::redis::resp::{Token, score};
use crate::load::session::Session;

/// The version of elements that commands that take elements away find in the measured phase.
pub const VERSION_MEASURED: u32 = 1;
/// The same for the warm-up.
pub const VERSION_WARM_UP: u32 = 2;

/// A command whose reply has not come.
#[derive(Clone, Copy, Debug)]
struct Pending {
    slot: u32,
    /// Of a write: the version sent. Of a read: the floor.
    version: u32,
    is_read: bool,
    /// Of a read: see [`Doubts::may_miss`].
    may_miss: bool,
}

/// One client in one load phase.
pub struct Measured<'a> {
    plan: &'a Plan,
    ledger: &'a Ledger,
    /// What a fault leaves in doubt, where there is one, and the keys of writes that were acknowledged since somebody asked.
    doubts: Option<(&'a Doubts, Vec<u32>)>,
    session: &'a Session,
    encoder: Encoder,
    picker: KeyPicker,
    /// Commands in flight in the order in which they were sent, from `answered` on.
    pending: Vec<Pending>,
    answered: usize,
    /// Replies that were compared and right, not yet told to the session.
    verified: u64,
    /// Elements sent by this client, for pushes.
    pushes: &'a mut u32,
    added: u64,
    new: u64,
    taken: u64,
    found_nothing: u64,
    /// Whether the array that is being read was found to be wrong.
    is_wrong: bool,
    /// The elements of an array that are still to come.
    missing: u64,
    /// The element that the last array's first token named.
    element: Option<u32>,
    /// The last integer, element or identifier that must not come again: replies of the command only rise or only fall.
    last: Option<(u64, u64)>,
}

impl<'a> Measured<'a> {
    /// For the client of a session. `pushes` counts over phases.
    pub fn new(
        plan: &'a Plan,
        ledger: &'a Ledger,
        session: &'a Session,
        picker: KeyPicker,
        pushes: &'a mut u32,
    ) -> Self {
        let warm_up = plan.warm_up_structure().filter(|_| session.phase() == Phase::WarmUp);
        Self {
            plan,
            ledger,
            doubts: None,
            session,
            encoder: Encoder::new(plan, warm_up.or(plan.structure())),
            picker,
            pending: Vec::new(),
            answered: 0,
            verified: 0,
            pushes,
            added: 0,
            new: 0,
            taken: 0,
            found_nothing: 0,
            is_wrong: false,
            missing: 0,
            element: None,
            last: None,
        }
    }

    /// The same where a fault leaves doubts.
    pub fn doubting(self, doubts: &'a Doubts) -> Self {
        Self { doubts: Some((doubts, Vec::new())), ..self }
    }

    /// The keys of writes that were acknowledged since this was last called, where there may be doubts.
    pub fn acknowledged(&mut self) -> Vec<u32> {
        self.doubts.as_mut().map(|(_, acknowledged)| std::mem::take(acknowledged)).unwrap_or_default()
    }

    /// What is on its way is given up; how many writes of it are in doubt now.
    pub fn give_up(&mut self) -> u64 {
        let mut in_doubt = 0;
        for pending in self.pending.drain(..).skip(self.answered).filter(|pending| !pending.is_read) {
            if let Some((doubts, _)) = &self.doubts {
                doubts.add(pending.slot, pending.version);
                in_doubt += 1;
            }
        }
        self.answered = 0;
        in_doubt
    }

    #[inline]
    fn receive_set(&mut self, pending: Pending) {
        self.ledger.acknowledge(pending.slot, pending.version);
        if let Some((_, acknowledged)) = &mut self.doubts {
            acknowledged.push(pending.slot);
        }
    }

    /// The phase is over: adds what this client saw to the totals, and gives the keys' order back.
    pub fn finish(self) -> KeyPicker {
        let totals = &self.plan.totals;
        totals.added.fetch_add(self.added, Ordering::Relaxed);
        totals.new.fetch_add(self.new, Ordering::Relaxed);
        if self.session.phase() == Phase::Measure {
            totals.found_nothing.fetch_add(self.found_nothing, Ordering::Relaxed);
            totals.taken.fetch_add(self.taken, Ordering::Relaxed);
        }
        self.session.verified(self.verified);
        self.picker
    }

    #[inline]
    fn write(&mut self) -> (u32, u32) {
        let slot = self.picker.slot_to_write();
        let version = self.ledger.issue(slot);
        self.pending.push(Pending { slot, version, is_read: false, may_miss: false });
        (self.ledger.keys().key(slot), version)
    }

    #[inline]
    fn read(&mut self, out: &mut Vec<u8>) {
        let slot = self.picker.slot_to_read();
        let may_miss = self.doubts.as_ref().is_some_and(|(doubts, _)| doubts.may_miss(slot));
        self.pending.push(Pending { slot, version: self.ledger.floor(slot), is_read: true, may_miss });
        self.encoder.get(self.ledger.keys().key(slot), out);
    }

    #[inline]
    fn set(&mut self, out: &mut Vec<u8>) {
        let (key, version) = self.write();
        self.encoder.key_and_value(key, version, &self.plan.values, out);
    }

    #[inline]
    fn next_pending(&mut self) -> Pending {
        let pending = self.pending[self.answered];
        self.answered += 1;
        // All of a batch are answered before the next is sent.
        if self.answered == self.pending.len() {
            self.pending.clear();
            self.answered = 0;
        }
        pending
    }

    fn key_name(&self, slot: u32) -> String {
        self.plan.names.text(self.ledger.keys().key(slot))
    }

    /// The name of the one key that the command touches, for messages.
    #[cold]
    fn structure(&self) -> String {
        self.plan.structure().unwrap_or_default().to_owned()
    }

    #[cold]
    fn wrong(&self, key: String, detail: String) {
        self.session.wrong(key, detail);
    }

    #[inline]
    fn judge(&mut self, right: bool, slot: u32, detail: impl FnOnce() -> String) {
        if right {
            self.verified += 1;
        } else {
            self.wrong(self.key_name(slot), detail());
        }
    }

    #[inline]
    fn receive_get(&mut self, pending: Pending, found: Option<&[u8]>) {
        match self.ledger.check(&self.plan.values, pending.slot, pending.version, found) {
            Ok(()) => self.verified += 1,
            Err(mismatch) => self.receive_mismatch(pending, mismatch, found),
        }
    }

    #[cold]
    fn receive_mismatch(&mut self, pending: Pending, Mismatch { key, detail }: Mismatch, found: Option<&[u8]>) {
        let asked = (pending.slot, pending.may_miss);
        let judged = match &self.doubts {
            Some((doubts, _)) => doubts.judge(self.ledger, &self.plan.values, asked, found, detail).map(drop),
            None => Err(detail),
        };
        match judged {
            Ok(()) => self.verified += 1,
            Err(detail) => self.wrong(self.plan.names.text(key), detail),
        }
    }

    fn receive_incremented(&mut self, number: i64) {
        let Pending { slot, version, .. } = self.next_pending();
        self.ledger.acknowledge(slot, version);
        if self.plan.space.is_shared() {
            let sent = self.ledger.sent(slot);
            self.judge((1..=i64::from(sent)).contains(&number), slot, || {
                format!("expected a count from 1 to {sent}, found {number}")
            });
        } else {
            self.judge(number == i64::from(version), slot, || format!("expected the count {version}, found {number}"));
        }
    }

    /// SADD, HSET, ZADD: how many are new.
    fn receive_new(&mut self, number: i64) {
        let Pending { slot, version, .. } = self.next_pending();
        self.ledger.acknowledge(slot, version);
        let is_new = number == 1;
        self.new += u64::from(is_new);
        let right = match self.plan.space.is_shared() {
            true => number == 0 || is_new,
            false => number == i64::from(version == 1),
        };
        self.judge(right, slot, || {
            let expected = if version == 1 { "1, for it is new" } else { "0, for it was there" };
            format!("expected {expected}, found {number}")
        });
    }

    /// What must rise over the replies of this client, and does not, is wrong.
    fn receive_risen(&mut self, reply: (u64, u64), text: impl Fn((u64, u64)) -> String) {
        let last = self.last.replace(reply);
        if last.is_none_or(|last| reply > last) {
            self.verified += 1;
        } else {
            let last = last.map(&text).unwrap_or_default();
            let key = self.structure();
            self.wrong(key, format!("expected more than {last}, found {}", text(reply)));
        }
    }

    /// An element was taken away, or there was none.
    fn receive_taken(&mut self, element: Option<u32>) {
        let Some(element) = element else {
            self.found_nothing += 1;
            return;
        };
        self.taken += 1;
        let command = self.plan.parameters.command;
        if element >= self.plan.fill {
            return self.wrong(self.structure(), format!("found element {element}, which was never written"));
        }
        if self.session.phase() == Phase::Measure && !self.plan.taken.take(element) {
            return self.wrong(self.structure(), format!("element {element} was taken twice"));
        }
        match command {
            RedisCommand::Lpop | RedisCommand::Zpopmin => {
                self.receive_risen((u64::from(element), 0), |(element, _)| format!("element {element}"));
            }
            RedisCommand::Rpop => {
                let from_the_end = self.plan.fill - element;
                self.receive_risen((u64::from(from_the_end), 0), |(place, _)| format!("place {place} from the end"));
            }
            _ => self.verified += 1,
        }
    }

    /// LPOP, RPOP: the element that a value says it is. Values below 8 bytes cannot say.
    fn receive_popped(&mut self, found: &[u8]) {
        let version = match self.session.phase() {
            Phase::WarmUp => VERSION_WARM_UP,
            _ => VERSION_MEASURED,
        };
        let values = &self.plan.values;
        match values.read_back(found) {
            Some((element, of)) if of == version => self.receive_taken(Some(element)),
            None if values.value_bytes() < crate::content::values::HEADER_BYTES
                && found.len() == values.value_bytes() =>
            {
                self.taken += 1;
            }
            _ => {
                let key = self.structure();
                let found = values.describe(found);
                self.wrong(key, format!("expected an element that was written, found {found}"));
            }
        }
    }

    /// SPOP, and the first half of ZPOPMIN's answer: the element that a name says it is.
    fn element_named(&mut self, name: &[u8]) -> Option<u32> {
        let element = self.plan.names.read_back(name);
        if element.is_none() {
            let key = self.structure();
            let found = name[..name.len().min(40)].escape_ascii();
            self.wrong(key, format!("expected an element that was written, found \"{found}\""));
        }
        element
    }

    fn receive_lowest(&mut self, token: Token<'_>) -> Result<Received, Failure> {
        match (self.missing, token) {
            (0, Token::Array(0) | Token::Null) => {
                self.receive_taken(None);
                Ok(Received::Complete)
            }
            (0, Token::Array(2)) => {
                self.missing = 2;
                Ok(Received::More)
            }
            (2, Token::Bulk(name)) => {
                self.element = self.element_named(name);
                self.missing = 1;
                Ok(Received::More)
            }
            (1, token) => {
                self.missing = 0;
                let number = score(token).ok_or_else(|| unexpected("ZPOPMIN", &token))?;
                if let Some(element) = self.element.take() {
                    if number == f64::from(element) {
                        self.receive_taken(Some(element));
                    } else {
                        let detail = format!("expected the score {element}, found {number}");
                        self.wrong(self.plan.names.text(element), detail);
                    }
                }
                Ok(Received::Complete)
            }
            (_, token) => Err(unexpected("ZPOPMIN", &token)),
        }
    }

    fn receive_range(&mut self, token: Token<'_>) -> Result<Received, Failure> {
        let count = u64::from(self.plan.lrange_count());
        match token {
            Token::Array(found) if self.missing == 0 => {
                self.is_wrong = found != count;
                if self.is_wrong {
                    self.wrong(self.structure(), format!("expected {count} elements, found {found}"));
                }
                self.missing = found;
            }
            Token::Bulk(found) if self.missing > 0 => {
                // Of a wrong answer only the first fault is told.
                let place = count.saturating_sub(self.missing) as u32;
                self.missing -= 1;
                let values = &self.plan.values;
                if !self.is_wrong && !values.matches(place, VERSION_MEASURED, found) {
                    self.is_wrong = true;
                    let detail = format!("expected element {place}, found {}", values.describe(found));
                    self.wrong(self.structure(), detail);
                } else if self.missing == 0 && !self.is_wrong {
                    self.verified += 1;
                }
            }
            token => return Err(unexpected("LRANGE", &token)),
        }
        Ok(if self.missing == 0 { Received::Complete } else { Received::More })
    }
}

impl Dialogue for Measured<'_> {
    #[inline]
    fn send(&mut self, out: &mut Vec<u8>) {
        match self.plan.parameters.command {
            RedisCommand::Set => self.set(out),
            RedisCommand::Get => self.read(out),
            RedisCommand::Mixed => {
                let percent = self.plan.parameters.read_percent.unwrap_or_default();
                if self.picker.is_read(percent) { self.read(out) } else { self.set(out) }
            }
            RedisCommand::Mset => {
                self.encoder.fixed(out);
                (0..MSET_KEYS).for_each(|_| self.set(out));
            }
            RedisCommand::Incr | RedisCommand::Sadd => {
                let (key, _) = self.write();
                self.encoder.key_last(key, out);
            }
            RedisCommand::Hset => self.set(out),
            RedisCommand::Zadd => {
                let (key, version) = self.write();
                self.encoder.score_and_key(key, version, out);
            }
            RedisCommand::Lpush | RedisCommand::Rpush | RedisCommand::Xadd => {
                *self.pushes = self.pushes.wrapping_add(1);
                let client = self.session.client();
                self.encoder.value_last(client, *self.pushes, &self.plan.values, out);
            }
            RedisCommand::PingInline
            | RedisCommand::Ping
            | RedisCommand::Lpop
            | RedisCommand::Rpop
            | RedisCommand::Spop
            | RedisCommand::Zpopmin
            | RedisCommand::Lrange100
            | RedisCommand::Lrange300
            | RedisCommand::Lrange500
            | RedisCommand::Lrange600 => self.encoder.fixed(out),
        }
    }

    #[inline]
    fn receive(&mut self, token: Token<'_>) -> Result<Received, Failure> {
        match (self.plan.parameters.command, token) {
            (RedisCommand::Set, Token::Simple(b"OK")) => {
                let pending = self.next_pending();
                self.receive_set(pending);
            }
            (RedisCommand::Get, Token::Bulk(found)) => {
                let pending = self.next_pending();
                self.receive_get(pending, Some(found));
            }
            (RedisCommand::Get, Token::Null) => {
                let pending = self.next_pending();
                self.receive_get(pending, None);
            }
            (RedisCommand::Mixed, token) => {
                let pending = self.next_pending();
                match (pending.is_read, token) {
                    (true, Token::Bulk(found)) => self.receive_get(pending, Some(found)),
                    (true, Token::Null) => self.receive_get(pending, None),
                    (false, Token::Simple(b"OK")) => self.receive_set(pending),
                    (true, token) => return Err(unexpected("GET", &token)),
                    (false, token) => return Err(unexpected("SET", &token)),
                }
            }
            (RedisCommand::Mset, Token::Simple(b"OK")) => {
                for _ in 0..MSET_KEYS {
                    let pending = self.next_pending();
                    self.ledger.acknowledge(pending.slot, pending.version);
                }
            }
            (RedisCommand::PingInline | RedisCommand::Ping, Token::Simple(b"PONG")) => {}
            (RedisCommand::Incr, Token::Integer(number)) => self.receive_incremented(number),
            (RedisCommand::Sadd | RedisCommand::Hset | RedisCommand::Zadd, Token::Integer(number)) => {
                self.receive_new(number);
            }
            (RedisCommand::Lpush | RedisCommand::Rpush, Token::Integer(length)) => {
                self.added += 1;
                let length = u64::try_from(length).unwrap_or_default();
                self.receive_risen((length, 0), |(length, _)| format!("the length {length}"));
            }
            (RedisCommand::Xadd, Token::Bulk(text)) => {
                self.added += 1;
                let identifier = stream_identifier(text).ok_or_else(|| unexpected("XADD", &token))?;
                self.receive_risen(identifier, |(time, sequence)| format!("{time}-{sequence}"));
            }
            (RedisCommand::Lpop | RedisCommand::Rpop, Token::Bulk(found)) => self.receive_popped(found),
            (RedisCommand::Spop, Token::Bulk(name)) => {
                if let Some(element) = self.element_named(name) {
                    self.receive_taken(Some(element));
                }
            }
            (RedisCommand::Lpop | RedisCommand::Rpop | RedisCommand::Spop, Token::Null) => self.receive_taken(None),
            (RedisCommand::Zpopmin, token) => return self.receive_lowest(token),
            (
                RedisCommand::Lrange100 | RedisCommand::Lrange300 | RedisCommand::Lrange500 | RedisCommand::Lrange600,
                token,
            ) => return self.receive_range(token),
            (_, token) => return Err(unexpected(self.plan.command_name(), &token)),
        }
        Ok(Received::Complete)
    }
}

/// `1700000000000-3` as a pair that compares as identifiers do.
pub fn stream_identifier(text: &[u8]) -> Option<(u64, u64)> {
    let (time, sequence) = std::str::from_utf8(text).ok()?.split_once('-')?;
    Some((time.parse().ok()?, sequence.parse().ok()?))
}
