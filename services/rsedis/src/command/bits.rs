//! Strings as arrays of bits: the first bit is the highest of the first byte.

use super::options::{integer, is};
use crate::events;
use crate::failure::{Failure, Outcome, SYNTAX, WRONG_TYPE};
use crate::keyspace::Key;
use crate::number::parse_integer;
use crate::protocol::Args;
use crate::server::Server;
use crate::session::Session;
use crate::value::Value;

const BAD_OFFSET: Failure = Failure::new("ERR bit offset is not an integer or out of range");
const BAD_BIT: Failure = Failure::new("ERR bit is not an integer or out of range");

/// An offset; `#n` is n times the width of a field.
fn offset(server: &Server, text: &[u8], width: Option<usize>) -> Outcome<usize> {
    let (digits, factor) = match (text.strip_prefix(b"#"), width) {
        (Some(digits), Some(width)) => (digits, width as i64),
        _ => (text, 1),
    };
    let offset = parse_integer(digits).and_then(|number| number.checked_mul(factor));
    let is_allowed = |offset: &i64| *offset >= 0 && (offset >> 3) < server.string_bytes_max();
    offset.filter(is_allowed).and_then(|offset| usize::try_from(offset).ok()).ok_or(BAD_OFFSET)
}

fn bit(text: &[u8]) -> Outcome<bool> {
    match text {
        b"0" => Ok(false),
        b"1" => Ok(true),
        _ => Err(BAD_BIT),
    }
}

/// A key's string as bytes; nothing if it is not there.
fn bytes(server: &mut Server, client: &Session, name: &[u8]) -> Outcome<Option<Vec<u8>>> {
    Ok(server.text(client.database, &Key::new(name))?.map(|text| text.to_vec()))
}

/// The string to be changed, made long enough for a bit; and whether that changed it.
fn room<'a>(
    server: &'a mut Server,
    client: &Session,
    key: &Key<'_>,
    last_bit: usize,
) -> Outcome<(&'a mut Vec<u8>, bool)> {
    let database = client.database;
    let place = match server.find(database, key) {
        Some(place) => place,
        None => {
            server.databases[database].set_string(key, None, b"", None);
            server.find(database, key).ok_or(WRONG_TYPE)?
        }
    };
    let text = server.databases[database].entry_mut(place).text_mut().ok_or(WRONG_TYPE)?;
    let wanted = last_bit / 8 + 1;
    let grows = text.len() < wanted;
    if grows {
        text.resize(wanted, 0);
    }
    Ok((text, grows))
}

pub(super) fn setbit(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let key = Key::new(args.at(1));
    let (at, is_set) = (offset(server, args.at(2), None)?, bit(args.at(3))?);
    let (text, grows) = room(server, client, &key, at)?;
    let mask = 128 >> (at % 8);
    let was_set = text[at / 8] & mask != 0;
    if was_set != is_set {
        text[at / 8] ^= mask;
    }
    if grows || was_set != is_set {
        server.changed_string(client.database, key.bytes);
    }
    client.reply.flag(was_set);
    Ok(())
}

pub(super) fn getbit(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let at = offset(server, args.at(2), None)?;
    let text = bytes(server, client, args.at(1))?.unwrap_or_default();
    client.reply.flag(text.get(at / 8).is_some_and(|byte| byte & 128 >> (at % 8) != 0));
    Ok(())
}

/// `start end [BYTE|BIT]`: the first bit and the one behind the last; nothing if there are none.
fn span(start: i64, end: i64, is_bits: bool, len: usize) -> Option<(usize, usize)> {
    let unit = if is_bits { 1 } else { 8 };
    let total = (len * 8 / unit) as i64;
    let from = if start < 0 { start.saturating_add(total).max(0) } else { start };
    let to = if end < 0 { end.saturating_add(total).max(0) } else { end }.min(total - 1);
    (from <= to).then(|| (from as usize * unit, (to as usize + 1) * unit))
}

fn is_bit_unit(word: Option<&[u8]>) -> Outcome<bool> {
    match word {
        None => Ok(false),
        Some(word) if is(word, "BIT") => Ok(true),
        Some(word) if is(word, "BYTE") => Ok(false),
        Some(_) => Err(SYNTAX),
    }
}

/// Bits that are set in a span.
fn count_ones(text: &[u8], from: usize, to: usize) -> usize {
    let (first, last) = (from / 8, (to - 1) / 8);
    let (head, tail) = (0xFF >> (from % 8), 0xFFu8 << ((8 - to % 8) % 8));
    if first == last {
        return (text[first] & head & tail).count_ones() as usize;
    }
    let (words, rest) = text[first + 1..last].as_chunks::<8>();
    let whole: u32 = words.iter().map(|word| u64::from_le_bytes(*word).count_ones()).sum();
    let rest: u32 = rest.iter().map(|byte| byte.count_ones()).sum();
    (whole + rest + (text[first] & head).count_ones() + (text[last] & tail).count_ones()) as usize
}

pub(super) fn bitcount(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let Some(text) = bytes(server, client, args.at(1))? else {
        client.reply.integer(0);
        return Ok(());
    };
    let span = match args.len() {
        2 => span(0, -1, false, text.len()),
        4 | 5 => {
            let (start, end) = (integer(args.at(2))?, integer(args.at(3))?);
            if start < 0 && end < 0 && start > end {
                None
            } else {
                span(start, end, is_bit_unit(args.get(4))?, text.len())
            }
        }
        _ => return Err(SYNTAX),
    };
    client.reply.count(span.map_or(0, |(from, to)| count_ones(&text, from, to)));
    Ok(())
}

/// The first bit of a span that is as wanted.
fn find(text: &[u8], from: usize, to: usize, wanted: bool) -> Option<usize> {
    let uninteresting = if wanted { 0 } else { 0xFF };
    let mut at = from;
    while at < to {
        if at.is_multiple_of(8) && to - at >= 8 && text[at / 8] == uninteresting {
            at += 8;
            continue;
        }
        if (text[at / 8] & 128 >> (at % 8) != 0) == wanted {
            return Some(at);
        }
        at += 1;
    }
    None
}

pub(super) fn bitpos(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let wanted = match integer(args.at(2))? {
        0 => false,
        1 => true,
        _ => return Err(Failure::new("ERR The bit argument must be 1 or 0.")),
    };
    let Some(text) = bytes(server, client, args.at(1))? else {
        client.reply.integer(if wanted { -1 } else { 0 });
        return Ok(());
    };
    if args.len() > 6 {
        return Err(SYNTAX);
    }
    let start = args.get(3).map_or(Ok(0), integer)?;
    let is_bits = is_bit_unit(args.get(5))?;
    let end = args.get(4).map_or(Ok(-1), integer)?;
    let position = match span(start, end, is_bits, text.len()) {
        None => -1,
        Some((from, to)) => match find(&text, from, to, wanted) {
            Some(at) => at as i64,
            // Without an end the string goes on with zeros.
            None if !wanted && args.len() < 5 => text.len() as i64 * 8,
            None => -1,
        },
    };
    client.reply.integer(position);
    Ok(())
}

pub(super) fn bitop(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (target, database) = (Key::new(args.at(2)), client.database);
    let combine: fn(u8, u8) -> u8 = match args.at(1) {
        word if is(word, "AND") => |one, other| one & other,
        word if is(word, "OR") => |one, other| one | other,
        word if is(word, "XOR") => |one, other| one ^ other,
        word if is(word, "NOT") => |one, _| !one,
        _ => return Err(SYNTAX),
    };
    let is_not = is(args.at(1), "NOT");
    if is_not && args.len() != 4 {
        return Err(Failure::new("ERR BITOP NOT must be called with a single source key."));
    }
    let mut sources = Vec::new();
    for name in args.from(3).iter() {
        sources.push(bytes(server, client, name)?.unwrap_or_default());
    }
    let len = sources.iter().map(Vec::len).max().unwrap_or(0);
    let mut result = sources.first().cloned().unwrap_or_default();
    result.resize(len, 0);
    if is_not {
        result.iter_mut().for_each(|byte| *byte = !*byte);
    }
    for source in &sources[1..] {
        let padded = source.iter().copied().chain(std::iter::repeat(0));
        result.iter_mut().zip(padded).for_each(|(byte, other)| *byte = combine(*byte, other));
    }
    if len > 0 {
        server.put(database, &target, Value::String(result));
        server.changed_string(database, target.bytes);
    } else if server.find(database, &target).is_some() {
        server.databases[database].remove(&target);
        server.dirty += 1;
        server.touch(database, target.bytes);
        server.notify(events::GENERIC, "del", database, target.bytes);
    }
    client.reply.count(len);
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Overflow {
    Wraps,
    Saturates,
    Fails,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Get,
    Set,
    Increment,
}

/// One step of BITFIELD.
struct Step {
    action: Action,
    is_signed: bool,
    width: usize,
    at: usize,
    value: i64,
    overflow: Overflow,
}

impl Step {
    /// The smallest and the largest that fit.
    fn limits(&self) -> (i128, i128) {
        match self.is_signed {
            true => (-(1 << (self.width - 1)), (1 << (self.width - 1)) - 1),
            false => (0, (1 << self.width) - 1),
        }
    }

    fn read(&self, text: &[u8]) -> i128 {
        let is_set = |at: usize| text.get(at / 8).is_some_and(|byte| byte & 128 >> (at % 8) != 0);
        let raw = (self.at..self.at + self.width).fold(0i128, |raw, at| raw << 1 | i128::from(is_set(at)));
        if self.is_signed && raw >> (self.width - 1) != 0 { raw - (1 << self.width) } else { raw }
    }

    fn write(&self, text: &mut [u8], value: i128) {
        for (place, at) in (self.at..self.at + self.width).rev().enumerate() {
            let mask = 128 >> (at % 8);
            match value >> place & 1 {
                0 => text[at / 8] &= !mask,
                _ => text[at / 8] |= mask,
            }
        }
    }

    /// What becomes of a value that may not fit; nothing if that is a failure.
    fn fit(&self, value: i128) -> Option<i128> {
        let (low, high) = self.limits();
        if (low..=high).contains(&value) {
            return Some(value);
        }
        match self.overflow {
            Overflow::Fails => None,
            Overflow::Saturates => Some(value.clamp(low, high)),
            Overflow::Wraps => {
                let raw = value & ((1 << self.width) - 1);
                Some(if self.is_signed && raw > high { raw - (1 << self.width) } else { raw })
            }
        }
    }
}

fn steps(server: &Server, args: Args<'_>) -> Outcome<Vec<Step>> {
    let (mut steps, mut overflow, mut at) = (Vec::new(), Overflow::Wraps, 2);
    while let Some(word) = args.get(at) {
        let more = args.len() - at - 1;
        let action = match word {
            word if is(word, "GET") && more >= 2 => Action::Get,
            word if is(word, "SET") && more >= 3 => Action::Set,
            word if is(word, "INCRBY") && more >= 3 => Action::Increment,
            word if is(word, "OVERFLOW") && more >= 1 => {
                overflow = match args.at(at + 1) {
                    word if is(word, "WRAP") => Overflow::Wraps,
                    word if is(word, "SAT") => Overflow::Saturates,
                    word if is(word, "FAIL") => Overflow::Fails,
                    _ => return Err(Failure::new("ERR Invalid OVERFLOW type specified")),
                };
                at += 2;
                continue;
            }
            _ => return Err(SYNTAX),
        };
        let refused = Failure::new(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
        );
        let (is_signed, digits) = match args.at(at + 1) {
            [b'i', digits @ ..] => (true, digits),
            [b'u', digits @ ..] => (false, digits),
            _ => return Err(refused),
        };
        let most = if is_signed { 64 } else { 63 };
        let width = parse_integer(digits).filter(|width| (1..=most).contains(width)).ok_or(refused)? as usize;
        let place = offset(server, args.at(at + 2), Some(width))?;
        let value = if action == Action::Get { 0 } else { integer(args.at(at + 3))? };
        steps.push(Step { action, is_signed, width, at: place, value, overflow });
        at += if action == Action::Get { 3 } else { 4 };
    }
    Ok(steps)
}

fn field(server: &mut Server, client: &mut Session, args: Args<'_>, is_readonly: bool) -> Outcome {
    let key = Key::new(args.at(1));
    let steps = steps(server, args)?;
    let last = steps.iter().filter(|step| step.action != Action::Get).map(|step| step.at + step.width - 1).max();
    let Some(last) = last else {
        let text = bytes(server, client, args.at(1))?.unwrap_or_default();
        client.reply.array(steps.len());
        steps.iter().for_each(|step| client.reply.integer(step.read(&text) as i64));
        return Ok(());
    };
    if is_readonly {
        return Err(Failure::new("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    let (text, grows) = room(server, client, &key, last)?;
    let mut changes = 0;
    client.reply.array(steps.len());
    for step in &steps {
        let before = step.read(text);
        let wanted = match step.action {
            Action::Get => {
                client.reply.integer(before as i64);
                continue;
            }
            Action::Set => i128::from(step.value),
            Action::Increment => before + i128::from(step.value),
        };
        // An unsigned field takes a negative value as what its bits say.
        let wanted = match step.action {
            Action::Set if !step.is_signed => i128::from(step.value as u64),
            _ => wanted,
        };
        match step.fit(wanted) {
            None => client.reply.null(),
            Some(value) => {
                client.reply.integer(if step.action == Action::Set { before } else { value } as i64);
                step.write(text, value);
                changes += u64::from(grows || value != before);
            }
        }
    }
    if changes > 0 {
        server.changed_string(client.database, key.bytes);
        server.dirty += changes - 1;
    } else if grows {
        // No field was set, but the string is longer: Redis keeps that to itself.
        server.touch(client.database, key.bytes);
        server.dirty += 1;
    }
    Ok(())
}

pub(super) fn bitfield(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    field(server, client, args, false)
}

pub(super) fn bitfield_ro(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    field(server, client, args, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn spans_are_counted_and_searched_bit_by_bit(
            text in prop::collection::vec(any::<u8>(), 1..40),
            from in any::<prop::sample::Index>(),
            to in any::<prop::sample::Index>(),
        ) {
            let (from, to) = (from.index(text.len() * 8), to.index(text.len() * 8));
            let (from, to) = (from.min(to), from.max(to) + 1);
            let is_set = |at: &usize| text[at / 8] & 128 >> (at % 8) != 0;
            prop_assert_eq!(count_ones(&text, from, to), (from..to).filter(is_set).count());
            prop_assert_eq!(find(&text, from, to, true), (from..to).find(is_set));
            prop_assert_eq!(find(&text, from, to, false), (from..to).find(|at| !is_set(at)));
        }
    }
}
