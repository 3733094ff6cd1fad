//! Keys whatever they hold.

use super::options::{database_number, is};
use crate::events;
use crate::eviction;
use crate::failure::{Failure, NO_KEY, Outcome, SYNTAX};
use crate::glob;
use crate::keyspace::{Entry, Key, Place};
use crate::protocol::Args;
use crate::server::Server;
use crate::session::Session;
use crate::settings::Settings;
use crate::structure::listpack::Item;
use crate::structure::table::Element as _;

pub(super) fn del(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let lazily = server.settings.lazily.deletes;
    delete_all(server, client, args, lazily)
}

pub(super) fn unlink(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    delete_all(server, client, args, true)
}

fn delete_all(server: &mut Server, client: &mut Session, args: Args<'_>, lazily: bool) -> Outcome {
    let deleted = args.from(1).iter().filter(|name| server.delete(client.database, &Key::new(name), lazily)).count();
    client.reply.count(deleted);
    Ok(())
}

pub(super) fn exists(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let names = args.from(1).iter();
    let found = names.filter(|name| server.find_to_read(client.database, &Key::new(name)).is_some()).count();
    client.reply.count(found);
    Ok(())
}

pub(super) fn touch(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    exists(server, client, args)
}

pub(super) fn type_of(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let place = server.find_to_read(client.database, &Key::new(args.at(1)));
    let name = place.map_or("none", |place| server.databases[client.database].entry(place).type_name());
    client.reply.simple(name);
    Ok(())
}

pub(super) fn keys(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (pattern, now) = (args.at(1), server.now);
    let is_wanted = |entry: &&Entry| {
        entry.expiry().is_none_or(|expiry| expiry > now) && (pattern == b"*" || glob::matches(pattern, entry.key()))
    };
    let names: Vec<&[u8]> =
        server.databases[client.database].iter().filter(is_wanted).map(|entry| entry.key()).collect();
    client.reply.array(names.len());
    for name in names {
        client.reply.bulk(name);
        if client.reply.is_over() {
            break;
        }
    }
    Ok(())
}

pub(super) fn randomkey(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    // Where keys whose time has come are kept, there may be no others: as often as Redis looks for another one.
    let attempts = if server.may_remove_expired() { usize::MAX } else { 100 };
    for attempt in 1.. {
        let Server { databases, random, .. } = server;
        let keys = &databases[client.database];
        let Some(place) = keys.random(random) else {
            client.reply.null();
            return Ok(());
        };
        let name = keys.entry(place).key().to_vec();
        let key = Key::new(&name);
        if attempt == attempts || server.find(client.database, &key).is_some() {
            client.reply.bulk(&name);
            return Ok(());
        }
    }
    Ok(())
}

/// A key that was put somewhere else goes on with the clock that it had.
fn carry_clock(server: &mut Server, database: usize, place: Place, clock: Option<u32>) {
    if let Some(clock) = clock {
        server.databases[database].set_clock(place, clock);
    }
}

/// Whether the key was renamed; where `if_absent`, only if the new name is free.
fn rename_key(server: &mut Server, client: &mut Session, args: Args<'_>, if_absent: bool) -> Outcome<bool> {
    let database = client.database;
    let (from, to) = (Key::new(args.at(1)), Key::new(args.at(2)));
    let place = server.find(database, &from).ok_or(NO_KEY)?;
    let clock = server.databases[database].clock(place);
    if from.bytes == to.bytes {
        return Ok(!if_absent);
    }
    if server.find(database, &to).is_some() {
        if if_absent {
            return Ok(false);
        }
        server.databases[database].remove(&to);
    }
    if let Some(entry) = server.databases[database].remove(&from) {
        let place = server.databases[database].insert(&to, entry.rename(to.bytes));
        carry_clock(server, database, place, clock);
    }
    server.changed_string(database, from.bytes);
    server.touch(database, to.bytes);
    server.notify(events::GENERIC, "rename_from", database, from.bytes);
    server.notify(events::GENERIC, "rename_to", database, to.bytes);
    Ok(true)
}

pub(super) fn rename(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    rename_key(server, client, args, false)?;
    client.reply.ok();
    Ok(())
}

pub(super) fn renamenx(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let is_renamed = rename_key(server, client, args, true)?;
    client.reply.flag(is_renamed);
    Ok(())
}

/// Everybody who selected one of the two databases finds the other's keys in it.
pub(super) fn swapdb(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let number = |at: usize, which: &str| {
        let refused = || Failure::text(format!("ERR invalid {which} DB index"));
        crate::number::parse_integer(args.at(at)).filter(|number| i32::try_from(*number).is_ok()).ok_or_else(refused)
    };
    let (one, other) = (number(1, "first")?, number(2, "second")?);
    let place = |number: i64| usize::try_from(number).ok().filter(|number| *number < server.databases.len());
    let (Some(one), Some(other)) = (place(one), place(other)) else {
        return Err(Failure::new("ERR DB index is out of range"));
    };
    let is_meant = |database: usize| database == one || database == other;
    let watched: Vec<_> = server.watchers.keys().filter(|(database, _)| is_meant(*database)).cloned().collect();
    let waited: Vec<_> = server.waiters.keys().filter(|(database, _)| is_meant(*database)).cloned().collect();
    let is_there = |server: &Server, (database, name): &(usize, Vec<u8>)| {
        server.databases[*database].find(&Key::new(name)).is_some()
    };
    let missing: Vec<_> = watched.iter().filter(|place| !is_there(server, place)).cloned().collect();
    server.databases.swap(one, other);
    server.own_expiries.swap(one, other);
    server.dirty += 1;
    for place in missing {
        // What was not there, and is over now, did not change either.
        if super::transactions::is_stale(server, &place)
            && let Some(ids) = server.watchers.get(&place).cloned()
        {
            server.stale_watches.insert(place, ids);
        }
    }
    for (database, name) in watched {
        // A key that is on neither side did not change.
        let key = Key::new(&name);
        if [one, other].iter().any(|side| server.databases[*side].find(&key).is_some()) {
            server.touch(database, &name);
        }
    }
    for (database, name) in waited {
        server.touch(database, &name);
    }
    client.reply.ok();
    Ok(())
}

pub(super) fn move_key(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (from, key) = (client.database, Key::new(args.at(1)));
    let to = database_number(args.at(2), server.databases.len())?;
    if from == to {
        return Err(Failure::new("ERR source and destination objects are the same"));
    }
    let clock = server.find(from, &key).map(|place| server.databases[from].clock(place));
    let is_moved = clock.is_some() && server.find(to, &key).is_none();
    if is_moved && let Some(entry) = server.databases[from].remove(&key) {
        let place = server.databases[to].insert(&key, entry);
        carry_clock(server, to, place, clock.flatten());
        server.tell_new_keys(to);
        if server.is_own_change() {
            server.note_own_expiry(to, key.bytes);
        }
        server.changed_string(from, key.bytes);
        server.touch(to, key.bytes);
        server.notify(events::GENERIC, "move_from", from, key.bytes);
        server.notify(events::GENERIC, "move_to", to, key.bytes);
    }
    client.reply.flag(is_moved);
    Ok(())
}

pub(super) fn copy(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (from, mut to, mut replaces) = (client.database, client.database, false);
    let mut at = 3;
    while let Some(word) = args.get(at) {
        if is(word, "REPLACE") {
            replaces = true;
        } else if is(word, "DB") && at + 1 < args.len() {
            to = database_number(args.at(at + 1), server.databases.len())?;
            at += 1;
        } else {
            return Err(SYNTAX);
        }
        at += 1;
    }
    let (source, target) = (Key::new(args.at(1)), Key::new(args.at(2)));
    if from == to && source.bytes == target.bytes {
        return Err(Failure::new("ERR source and destination objects are the same"));
    }
    let Some(place) = server.find_to_read(from, &source) else {
        client.reply.integer(0);
        return Ok(());
    };
    let entry = server.databases[from].entry(place);
    let expiry = entry.expiry();
    let copied = match (entry.value(), entry.text()) {
        (Some(value), _) => Entry::object(target.bytes, value.clone(), expiry),
        // In the form that it has: a sum with a fraction is text also where it looks like an integer.
        (None, Some(Item::Integer(number))) => Entry::integer(target.bytes, number, expiry),
        (None, Some(Item::Bytes(text))) => Entry::plain(target.bytes, text, expiry),
        (None, None) => return Err(NO_KEY),
    };
    if server.find(to, &target).is_some() {
        if !replaces {
            client.reply.integer(0);
            return Ok(());
        }
        server.databases[to].remove(&target);
    }
    server.databases[to].insert(&target, copied);
    if server.is_own_change() {
        server.note_own_expiry(to, target.bytes);
    }
    server.changed_string(to, target.bytes);
    client.reply.integer(1);
    Ok(())
}

/// The key that OBJECT is asked about.
fn object(server: &mut Server, client: &mut Session, args: Args<'_>) -> Option<Place> {
    let place = server.find_counted(client.database, &Key::new(args.at(2)));
    if place.is_none() {
        client.reply.null();
    }
    place
}

pub(super) fn encoding(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    if let Some(place) = object(server, client, args) {
        client.reply.bulk(server.databases[client.database].entry(place).encoding().as_bytes());
    }
    Ok(())
}

/// Nothing is shared here. Redis shares small integers, and says so with the greatest number, where no policy needs their clocks.
pub(super) fn refcount(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    const SHARED: std::ops::Range<i64> = 0..10_000;
    if let Some(place) = object(server, client, args) {
        let Settings { memory_max, policy, .. } = &server.settings;
        let shares = *memory_max == 0 || policy.clock().is_none();
        let is_shared = match server.databases[client.database].entry(place).text() {
            Some(Item::Integer(number)) => shares && SHARED.contains(&number),
            _ => false,
        };
        client.reply.integer(if is_shared { i64::from(i32::MAX) } else { 1 });
    }
    Ok(())
}

pub(super) fn idletime(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let Some(place) = object(server, client, args) else { return Ok(()) };
    let seconds = eviction::idle_seconds(server, client.database, place).ok_or(Failure::new(
        "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between policies at \
         runtime LRU and LFU data will take some time to adjust.",
    ))?;
    client.reply.integer(seconds);
    Ok(())
}

pub(super) fn freq(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let Some(place) = object(server, client, args) else { return Ok(()) };
    let frequency = eviction::frequency(server, client.database, place).ok_or(Failure::new(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between \
         policies at runtime LRU and LFU data will take some time to adjust.",
    ))?;
    client.reply.integer(frequency);
    Ok(())
}
