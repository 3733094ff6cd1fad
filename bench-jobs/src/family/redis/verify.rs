//! What surrounds the measurement: Prepare writes what the command needs, Verify reads back what it wrote.
//!
//! | command | Prepare | Verify |
//! | --- | --- | --- |
//! | PING | | |
//! | SET, MSET | | GET of every key that was written |
//! | GET, Mixed | SET of every key | GET of every key |
//! | INCR | DEL of every counter | GET of every counter that was sent |
//! | SADD, HSET, ZADD | DEL | SISMEMBER, HGET, ZSCORE of every element that was sent; the size |
//! | LPUSH, RPUSH | DEL | the length; the first elements, as many as the key space, are ones that were sent |
//! | XADD | DEL | the length; the first 1,000 entries are ones that were sent |
//! | LPOP, RPOP, SPOP, ZPOPMIN | DEL, fill | what is left adds up, and nothing was missed while there was something |
//! | LRANGE | DEL, fill with 600 elements | (every reply was compared whole) |
//!
//! Lists and streams are deleted afterwards: they may be large, and the next workload should not pay for them.

use std::sync::atomic::Ordering;

use storebench_crds::workload::fault::LOST_WRITES;
use storebench_crds::workload::redis::RedisCommand;

use crate::content::doubts::{Doubts, Excuse};
use crate::content::expect::Ledger;
use crate::content::values::HEADER_BYTES;
use crate::failure::Failure;
use crate::family::redis::connection::{Connection, Dialogue, Received, unexpected};
use crate::family::redis::measured::{VERSION_MEASURED, VERSION_WARM_UP};
use crate::family::redis::plan::{LRANGE_ELEMENTS, Plan};
use crate::family::redis::resp::{Token, score, write_command};
use crate::load::session::Session;

/// The most commands in flight.
const WINDOW_MAX: usize = 64;
/// About the most bytes of values in flight.
const WINDOW_BYTES: usize = 1 << 20;
/// Elements read back at a time.
const READ_BACK_CHUNK: u64 = 100;
/// The most entries of a stream that are read back.
const STREAM_ENTRIES_MAX: u64 = 1_000;

/// One client outside the load phases.
pub struct Around<'a> {
    /// The workload.
    pub plan: &'a Plan,
    /// Versions of this thread's keys.
    pub ledger: &'a Ledger,
    /// What a fault leaves in doubt, where there was one.
    pub doubts: Option<&'a Doubts>,
    /// The client's session.
    pub session: &'a Session,
    /// The client's connection.
    pub connection: &'a mut Connection,
    /// Whether there is a warm-up.
    pub has_warm_up: bool,
}

/// A dialogue about a list of items: one command each.
struct Items<I, S, R> {
    to_send: I,
    to_receive: I,
    send: S,
    receive: R,
}

impl<I, S, R> Dialogue for Items<I, S, R>
where
    I: Iterator<Item = u32>,
    S: FnMut(u32, &mut Vec<u8>),
    R: FnMut(u32, Token<'_>) -> Result<(), Failure>,
{
    fn send(&mut self, out: &mut Vec<u8>) {
        // A batch is never larger than the list.
        if let Some(item) = self.to_send.next() {
            (self.send)(item, out);
        }
    }

    fn receive(&mut self, token: Token<'_>) -> Result<Received, Failure> {
        if let Some(item) = self.to_receive.next() {
            (self.receive)(item, token)?;
        }
        Ok(Received::Complete)
    }
}

/// A dialogue of one command, whose reply may be nested: gathers its tokens.
struct Whole<'t, T> {
    arguments: &'t [&'t [u8]],
    missing: u64,
    take: T,
}

impl<T: FnMut(Token<'_>) -> Result<(), Failure>> Dialogue for Whole<'_, T> {
    fn send(&mut self, out: &mut Vec<u8>) {
        write_command(self.arguments, out);
    }

    fn receive(&mut self, token: Token<'_>) -> Result<Received, Failure> {
        if let Token::Error(_) = token {
            return Err(unexpected(&String::from_utf8_lossy(self.arguments[0]), &token));
        }
        self.missing = self.missing.saturating_add(token.following()).saturating_sub(1);
        (self.take)(token)?;
        Ok(if self.missing == 0 { Received::Complete } else { Received::More })
    }
}

impl Around<'_> {
    /// Prepare, for this client.
    pub async fn prepare(&mut self, slots: impl Iterator<Item = u32> + Clone) -> Result<(), Failure> {
        let (plan, ledger) = (self.plan, self.ledger);
        if let Some(structure) = plan.structure() {
            if self.session.client() == 0 {
                self.prepare_structure(structure).await?;
            }
            return Ok(());
        }
        match plan.parameters.command {
            RedisCommand::Get | RedisCommand::Mixed => {
                let send = |slot: u32, out: &mut Vec<u8>| {
                    let key = ledger.keys().key(slot);
                    let mut value = Vec::with_capacity(plan.values.value_bytes());
                    plan.values.write(key, ledger.issue(slot), &mut value);
                    write_command(&[b"SET", &plan.names.name(key), &value], out);
                };
                let receive = |slot: u32, token: Token<'_>| match token {
                    Token::Simple(b"OK") => {
                        ledger.acknowledge(slot, ledger.sent(slot));
                        Ok(())
                    }
                    token => Err(unexpected("SET", &token)),
                };
                self.for_each(slots, send, receive).await
            }
            RedisCommand::Incr => {
                let send = |slot: u32, out: &mut Vec<u8>| {
                    write_command(&[b"DEL", &plan.names.name(ledger.keys().key(slot))], out);
                };
                self.for_each(slots, send, |_, token| integer("DEL", token).map(drop)).await
            }
            // They ask for nothing, or write what they need.
            RedisCommand::PingInline | RedisCommand::Ping | RedisCommand::Set | RedisCommand::Mset => Ok(()),
            // They have one structure, which was prepared above.
            RedisCommand::Lpush
            | RedisCommand::Rpush
            | RedisCommand::Lpop
            | RedisCommand::Rpop
            | RedisCommand::Sadd
            | RedisCommand::Hset
            | RedisCommand::Spop
            | RedisCommand::Zadd
            | RedisCommand::Zpopmin
            | RedisCommand::Lrange100
            | RedisCommand::Lrange300
            | RedisCommand::Lrange500
            | RedisCommand::Lrange600
            | RedisCommand::Xadd => Ok(()),
        }
    }

    async fn prepare_structure(&mut self, structure: &str) -> Result<(), Failure> {
        let plan = self.plan;
        self.number(&[b"DEL", structure.as_bytes()]).await?;
        let elements = match plan.lrange_count() {
            0 => plan.fill,
            _ => LRANGE_ELEMENTS,
        };
        self.fill(structure, elements, VERSION_MEASURED).await?;
        if let Some(twin) = plan.warm_up_structure() {
            self.number(&[b"DEL", twin.as_bytes()]).await?;
            if self.has_warm_up {
                let elements = elements.min(plan.space.keys());
                self.fill(twin, elements, VERSION_WARM_UP).await?;
            }
        }
        Ok(())
    }

    async fn fill(&mut self, structure: &str, elements: u32, version: u32) -> Result<(), Failure> {
        let plan = self.plan;
        let structure = structure.as_bytes();
        let mut value = Vec::with_capacity(plan.values.value_bytes());
        let send = |element: u32, out: &mut Vec<u8>| match plan.parameters.command {
            RedisCommand::Spop => write_command(&[b"SADD", structure, &plan.names.name(element)], out),
            RedisCommand::Zpopmin => {
                let score = element.to_string();
                write_command(&[b"ZADD", structure, score.as_bytes(), &plan.names.name(element)], out);
            }
            _ => {
                value.clear();
                plan.values.write(element, version, &mut value);
                write_command(&[b"RPUSH", structure, &value], out);
            }
        };
        let receive = |_, token: Token<'_>| integer("RPUSH, SADD or ZADD", token).map(drop);
        self.for_each(0..elements, send, receive).await
    }

    /// Verify, for this client.
    pub async fn verify(&mut self, slots: impl Iterator<Item = u32> + Clone) -> Result<(), Failure> {
        let is_first = self.session.client() == 0;
        let plan = self.plan;
        let structure = plan.structure().unwrap_or_default();
        let key = structure.as_bytes();
        let (new, added) = (plan.totals.new.load(Ordering::Relaxed), plan.totals.added.load(Ordering::Relaxed));
        match plan.parameters.command {
            RedisCommand::Set | RedisCommand::Get | RedisCommand::Mixed | RedisCommand::Mset => {
                self.read_back(slots, &[b"GET"]).await?;
            }
            RedisCommand::Incr => self.read_back(slots, &[b"GET"]).await?,
            RedisCommand::Sadd => {
                self.read_back(slots, &[b"SISMEMBER", key]).await?;
                if is_first {
                    self.size("SCARD", structure, new).await?;
                }
            }
            RedisCommand::Hset => {
                self.read_back(slots, &[b"HGET", key]).await?;
                if is_first {
                    self.size("HLEN", structure, new).await?;
                }
            }
            RedisCommand::Zadd => {
                self.read_back(slots, &[b"ZSCORE", key]).await?;
                if is_first {
                    self.size("ZCARD", structure, new).await?;
                }
            }
            RedisCommand::Lpush | RedisCommand::Rpush => {
                if is_first {
                    self.size("LLEN", structure, added).await?;
                    self.read_back_list(structure, added).await?;
                    self.number(&[b"DEL", key]).await?;
                }
            }
            RedisCommand::Xadd => {
                if is_first {
                    self.size("XLEN", structure, added).await?;
                    self.read_back_stream(structure, added).await?;
                    self.number(&[b"DEL", key]).await?;
                }
            }
            RedisCommand::Lpop | RedisCommand::Rpop => {
                if is_first {
                    self.rest("LLEN", structure).await?;
                }
            }
            RedisCommand::Spop => {
                if is_first {
                    self.rest("SCARD", structure).await?;
                }
            }
            RedisCommand::Zpopmin => {
                if is_first {
                    self.rest("ZCARD", structure).await?;
                }
            }
            // Each reply was compared when it came.
            RedisCommand::PingInline
            | RedisCommand::Ping
            | RedisCommand::Lrange100
            | RedisCommand::Lrange300
            | RedisCommand::Lrange500
            | RedisCommand::Lrange600 => {}
        }
        Ok(())
    }

    /// Reads each key or element that was sent by a command of its own, and compares.
    async fn read_back(&mut self, slots: impl Iterator<Item = u32> + Clone, command: &[&[u8]]) -> Result<(), Failure> {
        let (plan, ledger, doubts, session) = (self.plan, self.ledger, self.doubts, self.session);
        if doubts.is_some() {
            session.count(LOST_WRITES, 0);
        }
        let sent = slots.filter(|slot| ledger.sent(*slot) != 0);
        let send = |slot: u32, out: &mut Vec<u8>| {
            let name = plan.names.name(ledger.keys().key(slot));
            let arguments: Vec<&[u8]> = command.iter().copied().chain([name.as_slice()]).collect();
            write_command(&arguments, out);
        };
        let receive = |slot: u32, token: Token<'_>| {
            let Some(detail) = wrong_read_back(plan, ledger, slot, token)? else {
                session.verified(1);
                return Ok(());
            };
            let found = if let Token::Bulk(found) = token { Some(found) } else { None };
            let judged = match doubts {
                Some(doubts) => doubts.judge(ledger, &plan.values, (slot, doubts.may_miss(slot)), found, detail),
                None => Err(detail),
            };
            match judged {
                Ok(excuse) => {
                    session.verified(1);
                    session.count(LOST_WRITES, u64::from(excuse == Excuse::MayBeLost));
                }
                Err(detail) => session.wrong(plan.names.text(ledger.keys().key(slot)), detail),
            }
            Ok(())
        };
        self.for_each(sent, send, receive).await
    }

    /// Compares a size with what was counted.
    async fn size(&mut self, command: &str, structure: &str, expected: u64) -> Result<(), Failure> {
        let found = self.number(&[command.as_bytes(), structure.as_bytes()]).await?;
        if u64::try_from(found) == Ok(expected) {
            self.session.verified(1);
        } else {
            let detail = format!("expected {command} {expected}, found {found}");
            self.session.wrong(structure, detail);
        }
        Ok(())
    }

    /// Elements were taken away: those that are left and those that were taken are all there were, and nobody was told
    /// that there are none while there were some.
    async fn rest(&mut self, command: &str, structure: &str) -> Result<(), Failure> {
        let totals = &self.plan.totals;
        let taken = totals.taken.load(Ordering::Relaxed);
        let found_nothing = totals.found_nothing.load(Ordering::Relaxed);
        let left = u64::from(self.plan.fill).saturating_sub(taken);
        self.size(command, structure, left).await?;
        if found_nothing > 0 && left > 0 {
            let detail = format!("{found_nothing} requests found nothing, but {left} elements are left");
            self.session.wrong(structure, detail);
        }
        self.number(&[b"DEL", structure.as_bytes()]).await?;
        if let Some(twin) = self.plan.warm_up_structure() {
            self.number(&[b"DEL", twin.as_bytes()]).await?;
        }
        Ok(())
    }

    /// The first elements of the list are ones that some client sent.
    async fn read_back_list(&mut self, structure: &str, length: u64) -> Result<(), Failure> {
        let (plan, session) = (self.plan, self.session);
        let end = length.min(u64::from(plan.space.keys()));
        let mut from = 0;
        while from < end {
            let to = (from + READ_BACK_CHUNK).min(end);
            let (first, last) = (from.to_string(), (to - 1).to_string());
            let mut found = 0;
            self.whole(&[b"LRANGE", structure.as_bytes(), first.as_bytes(), last.as_bytes()], |token| {
                match token {
                    Token::Array(_) => {}
                    Token::Bulk(value) => {
                        found += 1;
                        check_sent(plan, session, structure, value, length);
                    }
                    token => return Err(unexpected("LRANGE", &token)),
                }
                Ok(())
            })
            .await?;
            if found != to - from {
                let detail = format!("expected elements {from} to {last}, found {found} elements");
                session.wrong(structure, detail);
                return Ok(());
            }
            from = to;
        }
        Ok(())
    }

    /// The first entries of the stream are ones that some client sent.
    async fn read_back_stream(&mut self, structure: &str, length: u64) -> Result<(), Failure> {
        let (plan, session) = (self.plan, self.session);
        let count = length.min(STREAM_ENTRIES_MAX);
        let text = count.to_string();
        // An entry is its identifier and an array of field and value: three strings.
        let mut strings = 0u64;
        self.whole(&[b"XRANGE", structure.as_bytes(), b"-", b"+", b"COUNT", text.as_bytes()], |token| {
            if let Token::Bulk(text) = token {
                strings += 1;
                if strings.is_multiple_of(3) {
                    check_sent(plan, session, structure, text, length);
                }
            }
            Ok(())
        })
        .await?;
        if strings != 3 * count {
            let detail = format!("expected {count} entries of three strings, found {strings} strings");
            session.wrong(structure, detail);
        }
        Ok(())
    }

    /// One command whose answer is an integer.
    async fn number(&mut self, arguments: &[&[u8]]) -> Result<i64, Failure> {
        let name = String::from_utf8_lossy(arguments[0]).into_owned();
        let mut number = 0;
        self.whole(arguments, |token| {
            number = integer(&name, token)?;
            Ok(())
        })
        .await?;
        Ok(number)
    }

    async fn whole(
        &mut self,
        arguments: &[&[u8]],
        take: impl FnMut(Token<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut dialogue = Whole { arguments, missing: 1, take };
        let batch = self.session.begin(1);
        self.connection.exchange(&mut dialogue, self.session, batch).await
    }

    async fn for_each(
        &mut self,
        items: impl Iterator<Item = u32> + Clone,
        send: impl FnMut(u32, &mut Vec<u8>),
        receive: impl FnMut(u32, Token<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let window = (WINDOW_BYTES / self.plan.values.value_bytes()).clamp(1, WINDOW_MAX);
        let mut ahead = items.clone();
        let mut dialogue = Items { to_send: items.clone(), to_receive: items, send, receive };
        loop {
            let count = ahead.by_ref().take(window).count();
            if count == 0 {
                return Ok(());
            }
            let batch = self.session.begin(count as u32);
            self.connection.exchange(&mut dialogue, self.session, batch).await?;
        }
    }
}

/// What is wrong with what was read back, if anything.
fn wrong_read_back(plan: &Plan, ledger: &Ledger, slot: u32, token: Token<'_>) -> Result<Option<String>, Failure> {
    // Every write was acknowledged, or the workload would have ended.
    let sent = ledger.sent(slot);
    let is_shared = plan.space.is_shared();
    let expected = |right: bool, what: String| (!right).then_some(what);
    Ok(match (plan.parameters.command, token) {
        (RedisCommand::Incr, Token::Bulk(text)) => {
            let right = *text == *sent.to_string().as_bytes();
            expected(right, format!("expected the count {sent}, found {}", text.escape_ascii()))
        }
        (RedisCommand::Sadd, Token::Integer(found)) => expected(found == 1, "expected a member, found none".into()),
        (RedisCommand::Zadd, token @ (Token::Bulk(_) | Token::Double(_))) => {
            let found = score(token).ok_or_else(|| unexpected("ZSCORE", &token))?;
            // Of a shared element any score that was sent may be the last.
            let right = found == f64::from(sent) || is_shared && found >= 1.0 && found <= f64::from(sent);
            expected(right, format!("expected the score {sent}, found {found}"))
        }
        (RedisCommand::Incr | RedisCommand::Zadd, Token::Null) => Some(format!("expected {sent}, found nothing")),
        (_, Token::Bulk(found)) => mismatch(plan, ledger, slot, Some(found)),
        (_, Token::Null) => mismatch(plan, ledger, slot, None),
        (_, token) => return Err(unexpected("reading back", &token)),
    })
}

fn mismatch(plan: &Plan, ledger: &Ledger, slot: u32, found: Option<&[u8]>) -> Option<String> {
    let checked = ledger.check(&plan.values, slot, ledger.floor(slot), found);
    checked.err().map(|mismatch| mismatch.detail)
}

/// A pushed value is one that a client sent: of `length` in all.
fn check_sent(plan: &Plan, session: &Session, structure: &str, found: &[u8], length: u64) {
    let values = &plan.values;
    let right = match values.read_back(found) {
        Some((client, number)) => client < plan.space.clients() && number >= 1 && u64::from(number) <= length,
        None => values.value_bytes() < HEADER_BYTES && found.len() == values.value_bytes(),
    };
    if right {
        session.verified(1);
    } else {
        let found = values.describe(found);
        session.wrong(structure, format!("expected a value that was sent, found {found}"));
    }
}

fn integer(command: &str, token: Token<'_>) -> Result<i64, Failure> {
    match token {
        Token::Integer(number) => Ok(number),
        token => Err(unexpected(command, &token)),
    }
}
