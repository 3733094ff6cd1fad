//! Strings and counters.

use super::options::{TimeUnit, expiry, integer, is, time_unit};
use crate::events;
use crate::failure::{Failure, NOT_INTEGER, Outcome, SYNTAX, WRONG_TYPE};
use crate::keyspace::{Entry, Key, Place, WARM_AT_ONCE};
use crate::long_double;
use crate::number::{integer_text, parse_integer};
use crate::protocol::Args;
use crate::server::Server;
use crate::session::Session;
use crate::structure::listpack::Item;

const TOO_LONG: Failure = Failure::new("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
const OVERFLOW: Failure = Failure::new("ERR increment or decrement would overflow");

fn reply_text(client: &mut Session, text: Option<Item<'_>>) {
    match text {
        Some(item) => client.reply.item(item),
        None => client.reply.null(),
    }
}

pub(super) fn get(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let text = server.text(client.database, &Key::new(args.at(1)))?;
    reply_text(client, text);
    Ok(())
}

#[derive(Default)]
struct SetOptions {
    if_absent: bool,
    if_present: bool,
    gets: bool,
    keeps: bool,
    expiry: Option<(usize, TimeUnit)>,
}

fn set_options(args: Args<'_>) -> Outcome<SetOptions> {
    let mut options = SetOptions::default();
    let mut at = 3;
    while let Some(word) = args.get(at) {
        // The last one counts, of as many as are given in the same way.
        let is_other = |unit: TimeUnit| options.keeps || options.expiry.is_some_and(|(_, known)| known != unit);
        if is(word, "NX") && !options.if_present {
            options.if_absent = true;
        } else if is(word, "XX") && !options.if_absent {
            options.if_present = true;
        } else if is(word, "GET") {
            options.gets = true;
        } else if is(word, "KEEPTTL") && options.expiry.is_none() {
            options.keeps = true;
        } else if let Some(unit) = time_unit(word)
            && !is_other(unit)
            && at + 1 < args.len()
        {
            options.expiry = Some((at + 1, unit));
            at += 1;
        } else {
            return Err(SYNTAX);
        }
        at += 1;
    }
    Ok(options)
}

pub(super) fn set(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (name, value, database) = (args.at(1), args.at(2), client.database);
    let key = Key::new(name);
    if args.len() == 3 {
        let place = server.find(database, &key);
        server.databases[database].set_string(&key, place, value, None);
        server.changed_string(database, name);
        client.reply.ok();
        return Ok(());
    }
    let options = set_options(args)?;
    let expires = match options.expiry {
        Some((at, unit)) => Some(expiry(args.at(at), unit, server.now, "set")?),
        None => None,
    };
    if options.gets {
        let text = server.text(database, &key)?;
        reply_text(client, text);
    }
    let place = server.find(database, &key);
    if (options.if_absent && place.is_some()) || (options.if_present && place.is_none()) {
        if !options.gets {
            client.reply.null();
        }
        return Ok(());
    }
    let kept = place.filter(|_| options.keeps).and_then(|place| server.databases[database].entry(place).expiry());
    server.databases[database].set_string(&key, place, value, expires.or(kept));
    match expires {
        Some(at) => server.effects.say(database, &[b"SET", name, value, b"PXAT", &integer_text(at)]),
        None if options.keeps => server.effects.say(database, &[b"SET", name, value, b"KEEPTTL"]),
        None => server.effects.say(database, &[b"SET", name, value]),
    }
    server.changed_string(database, name);
    if expires.is_some() {
        server.notify(events::GENERIC, "expire", database, name);
    }
    if !options.gets {
        client.reply.ok();
    }
    Ok(())
}

fn set_with_expiry(server: &mut Server, client: &mut Session, args: Args<'_>, unit: TimeUnit, word: &str) -> Outcome {
    let (name, value, database) = (args.at(1), args.at(3), client.database);
    let at = expiry(args.at(2), unit, server.now, word)?;
    let key = Key::new(name);
    let place = server.find(database, &key);
    server.databases[database].set_string(&key, place, value, Some(at));
    server.effects.say(database, &[b"SET", name, value, b"PXAT", &integer_text(at)]);
    server.changed_string(database, name);
    server.notify(events::GENERIC, "expire", database, name);
    client.reply.ok();
    Ok(())
}

pub(super) fn setex(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    set_with_expiry(server, client, args, TimeUnit { is_seconds: true, is_relative: true }, "setex")
}

pub(super) fn psetex(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    set_with_expiry(server, client, args, TimeUnit { is_seconds: false, is_relative: true }, "psetex")
}

pub(super) fn setnx(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (name, database) = (args.at(1), client.database);
    let key = Key::new(name);
    let is_absent = server.find(database, &key).is_none();
    if is_absent {
        server.databases[database].set_string(&key, None, args.at(2), None);
        server.effects.say(database, &[b"SET", name, args.at(2)]);
        server.changed_string(database, name);
    }
    client.reply.flag(is_absent);
    Ok(())
}

pub(super) fn getset(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (name, value, database) = (args.at(1), args.at(2), client.database);
    let key = Key::new(name);
    let text = server.text(database, &key)?;
    reply_text(client, text);
    let place = server.find(database, &key);
    server.databases[database].set_string(&key, place, value, None);
    server.effects.say(database, &[b"SET", name, value]);
    server.changed_string(database, name);
    Ok(())
}

pub(super) fn getdel(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let key = Key::new(args.at(1));
    let text = server.text(client.database, &key)?;
    reply_text(client, text);
    if server.delete(client.database, &key, false) {
        server.effects.say(client.database, &[b"DEL", key.bytes]);
    }
    Ok(())
}

pub(super) fn getex(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (database, key) = (client.database, Key::new(args.at(1)));
    let (mut persists, mut expires) = (false, None::<(usize, TimeUnit)>);
    let mut at = 2;
    while let Some(word) = args.get(at) {
        if is(word, "PERSIST") && expires.is_none() {
            persists = true;
        } else if let Some(unit) = time_unit(word)
            && !persists
            && expires.is_none_or(|(_, known)| known == unit)
            && at + 1 < args.len()
        {
            expires = Some((at + 1, unit));
            at += 1;
        } else {
            return Err(SYNTAX);
        }
        at += 1;
    }
    let Some(place) = server.find_to_read(database, &key) else {
        client.reply.null();
        return Ok(());
    };
    let text = server.databases[database].entry(place).text().ok_or(WRONG_TYPE)?;
    let expires = match expires {
        Some((at, unit)) => Some((expiry(args.at(at), unit, server.now, "getex")?, unit)),
        None => None,
    };
    client.reply.item(text);
    match expires {
        Some((at, unit)) if !unit.is_relative && server.is_over_at_once(at) => {
            server.delete(database, &key, false);
            server.effects.say(database, &[b"DEL", key.bytes]);
        }
        Some((at, _)) => {
            server.expire_at(database, &key, place, at);
            server.notify(events::GENERIC, "expire", database, key.bytes);
        }
        None if persists && server.databases[database].entry(place).expiry().is_some() => {
            server.databases[database].set_expiry(place, None);
            server.effects.say(database, &[b"PERSIST", key.bytes]);
            server.changed_string(database, key.bytes);
            server.notify(events::GENERIC, "persist", database, key.bytes);
        }
        None => {}
    }
    Ok(())
}

pub(super) fn mget(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    client.reply.array(args.len() - 1);
    for (index, name) in args.from(1).iter().enumerate() {
        if index.is_multiple_of(WARM_AT_ONCE) {
            server.databases[client.database].warm(args.from(1 + index).iter());
        }
        let text = server.entry(client.database, &Key::new(name)).and_then(Entry::text);
        reply_text(client, text);
    }
    Ok(())
}

fn set_many(server: &mut Server, client: &Session, args: Args<'_>) {
    for at in (1..args.len()).step_by(2) {
        if (at / 2).is_multiple_of(WARM_AT_ONCE) {
            server.databases[client.database].warm(args.from(at).iter().step_by(2));
        }
        let key = Key::new(args.at(at));
        let place = server.find(client.database, &key);
        server.databases[client.database].set_string(&key, place, args.at(at + 1), None);
        server.changed_string(client.database, key.bytes);
    }
}

pub(super) fn mset(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    if args.len().is_multiple_of(2) {
        return Err(Failure::arity("mset"));
    }
    set_many(server, client, args);
    client.reply.ok();
    Ok(())
}

pub(super) fn msetnx(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    if args.len().is_multiple_of(2) {
        return Err(Failure::arity("msetnx"));
    }
    let mut names = (1..args.len()).step_by(2).map(|at| args.at(at));
    let any = names.any(|name| server.find(client.database, &Key::new(name)).is_some());
    if !any {
        set_many(server, client, args);
    }
    client.reply.flag(!any);
    Ok(())
}

pub(super) fn strlen(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let length = match server.text(client.database, &Key::new(args.at(1)))? {
        None => 0,
        Some(Item::Bytes(bytes)) => bytes.len(),
        Some(item) => item.to_vec().len(),
    };
    client.reply.count(length);
    Ok(())
}

pub(super) fn append(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, more, database) = (Key::new(args.at(1)), args.at(2), client.database);
    let limit = server.string_bytes_max() as usize;
    let length = match server.find(database, &key) {
        None => {
            server.databases[database].set_string(&key, None, more, None);
            more.len()
        }
        Some(place) => {
            let entry = server.databases[database].entry_mut(place);
            let length = entry.text().ok_or(WRONG_TYPE)?.to_vec().len();
            if length + more.len() > limit {
                return Err(TOO_LONG);
            }
            let text = entry.text_mut().ok_or(WRONG_TYPE)?;
            text.extend_from_slice(more);
            text.len()
        }
    };
    server.changed_string(database, key.bytes);
    client.reply.count(length);
    Ok(())
}

pub(super) fn setrange(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, value, database) = (Key::new(args.at(1)), args.at(3), client.database);
    let offset = integer(args.at(2))?;
    let offset = usize::try_from(offset).map_err(|_| Failure::new("ERR offset is out of range"))?;
    let limit = server.string_bytes_max() as usize;
    let place = server.find(database, &key);
    let length = match place {
        Some(place) => server.databases[database].entry(place).text().ok_or(WRONG_TYPE)?.to_vec().len(),
        None => 0,
    };
    if value.is_empty() {
        client.reply.count(length);
        return Ok(());
    }
    if offset.saturating_add(value.len()) > limit {
        return Err(TOO_LONG);
    }
    let place = match place {
        Some(place) => place,
        None => server.databases[database]
            .insert(&key, Entry::object(key.bytes, crate::value::Value::String(Vec::new()), None)),
    };
    let text = server.databases[database].entry_mut(place).text_mut().ok_or(WRONG_TYPE)?;
    let end = offset + value.len();
    if text.len() < end {
        text.resize(end, 0);
    }
    text[offset..end].copy_from_slice(value);
    client.reply.count(text.len());
    server.changed_string(database, key.bytes);
    Ok(())
}

pub(super) fn getrange(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (start, end) = (integer(args.at(2))?, integer(args.at(3))?);
    let Some(item) = server.text(client.database, &Key::new(args.at(1)))? else {
        client.reply.bulk(b"");
        return Ok(());
    };
    let owned;
    let text = match item {
        Item::Bytes(bytes) => bytes,
        item => {
            owned = item.to_vec();
            &owned
        }
    };
    let length = text.len() as i64;
    let is_backwards = start < 0 && end < 0 && start > end;
    let start = if start < 0 { (start + length).max(0) } else { start };
    let end = if end < 0 { (end + length).max(0) } else { end }.min(length - 1);
    match is_backwards || start > end || length == 0 {
        true => client.reply.bulk(b""),
        false => client.reply.bulk(&text[start as usize..=end as usize]),
    }
    Ok(())
}

pub(super) fn substr(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    getrange(server, client, args)
}

fn add(server: &mut Server, client: &mut Session, name: &[u8], by: i64) -> Outcome {
    let (key, database) = (Key::new(name), client.database);
    let place: Option<Place> = server.find(database, &key);
    let before = match place {
        None => 0,
        Some(place) => match server.databases[database].entry(place).text().ok_or(WRONG_TYPE)? {
            Item::Integer(number) => number,
            Item::Bytes(text) => parse_integer(text).ok_or(NOT_INTEGER)?,
        },
    };
    let after = before.checked_add(by).ok_or(OVERFLOW)?;
    match place {
        Some(place) => server.databases[database].entry_mut(place).set_integer(after),
        None => {
            server.databases[database].insert(&key, Entry::integer(name, after, None));
        }
    }
    server.changed_string(database, name);
    client.reply.integer(after);
    Ok(())
}

pub(super) fn incr(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    add(server, client, args.at(1), 1)
}

pub(super) fn decr(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    add(server, client, args.at(1), -1)
}

pub(super) fn incrby(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    add(server, client, args.at(1), integer(args.at(2))?)
}

pub(super) fn decrby(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let by = integer(args.at(2))?.checked_neg().ok_or(Failure::new("ERR decrement would overflow"))?;
    add(server, client, args.at(1), by)
}

/// The sum of what is there and an increment, both as text.
pub(super) fn float_sum(before: &[u8], by: &[u8], not_float: Failure) -> Outcome<Vec<u8>> {
    let is_infinite = |text: &[u8]| crate::number::parse_double(text).is_some_and(f64::is_infinite);
    let is_number = |text: &[u8]| long_double::is_number(text) || is_infinite(text);
    if !is_number(before) {
        return Err(not_float);
    }
    if !is_number(by) {
        return Err(crate::failure::NOT_FLOAT);
    }
    long_double::sum(before, by).ok_or(Failure::new("ERR increment would produce NaN or Infinity"))
}

pub(super) fn incrbyfloat(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database) = (Key::new(args.at(1)), client.database);
    let place = server.find(database, &key);
    let before = match place {
        Some(place) => server.databases[database].entry(place).text().ok_or(WRONG_TYPE)?.to_vec(),
        None => b"0".to_vec(),
    };
    let after = float_sum(&before, args.at(2), crate::failure::NOT_FLOAT)?;
    match place {
        Some(place) => {
            let entry = server.databases[database].entry_mut(place);
            *entry = Entry::plain(key.bytes, &after, entry.expiry());
        }
        None => {
            server.databases[database].insert(&key, Entry::plain(key.bytes, &after, None));
        }
    }
    server.effects.say(database, &[b"SET", key.bytes, &after, b"KEEPTTL"]);
    server.changed_string(database, key.bytes);
    client.reply.bulk(&after);
    Ok(())
}
