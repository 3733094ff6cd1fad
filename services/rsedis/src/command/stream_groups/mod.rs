//! Streams read by many: XREAD, and groups whose consumers share a stream's entries.
//!
//! What a group does is kept as what came of it: XCLAIM with all that is known of an entry that was given, XGROUP for the rest.

mod claims;
mod groups;
mod info;
mod reading;

use crate::events;
use crate::failure::{Failure, Outcome};
use crate::keyspace::Key;
use crate::number::integer_text;
use crate::protocol::Args;
use crate::server::Server;
use crate::value::{Group, Id, Pending, Stream, distance};

pub(super) use claims::{xack, xautoclaim, xclaim, xpending};
pub(super) use groups::{create, createconsumer, delconsumer, destroy, setid};
pub(super) use info::{info_consumers, info_groups, info_stream};
pub(super) use reading::{xread, xreadgroup};

fn no_group(key: &[u8], group: &[u8]) -> Failure {
    Failure::joined(&[b"NOGROUP No such key '", key, b"' or consumer group '", group, b"'"])
}

fn no_such_group(key: &[u8], group: &[u8]) -> Failure {
    Failure::joined(&[b"NOGROUP No such consumer group '", group, b"' for key name '", key, b"'"])
}

/// A stream's group.
fn group_mut<'a>(server: &'a mut Server, database: usize, key: &Key<'_>, name: &[u8]) -> Outcome<&'a mut Group> {
    let stream = server.typed_mut::<Stream>(database, key)?;
    stream.and_then(|stream| stream.groups.get_mut(name)).ok_or_else(|| no_group(key.bytes, name))
}

/// Whether something was deleted from an identifier on.
fn has_holes(stream: &Stream, from: Id) -> bool {
    let first = stream.first().unwrap_or_default();
    !stream.is_empty() && stream.max_deleted != Id::MIN && first <= stream.max_deleted && from <= stream.max_deleted
}

/// Entries that a group has yet to read, if that can be told.
fn lag(stream: &Stream, group: &Group) -> Option<i64> {
    if stream.added == 0 {
        return Some(0);
    }
    // XSETID may have set the number of entries below what was read.
    let left = |read: u64| (stream.added as i64).wrapping_sub(read as i64);
    match group.read {
        Some(read) if !has_holes(stream, group.last) => Some(left(read)),
        _ => distance(stream, group.last).map(left),
    }
}

/// A consumer, made if it is not there; whether it was made. It was heard of just now.
fn meet(group: &mut Group, name: &[u8], now: i64) -> bool {
    let is_new = !group.consumers.contains_key(name);
    group.consumers.entry(name.to_vec()).or_default().seen = now;
    is_new
}

/// Says in full how an entry stands in its group.
fn say_claim(server: &mut Server, database: usize, key: &[u8], group: &[u8], last: Id, id: Id, pending: &Pending) {
    let (id, last) = (id.to_string(), last.to_string());
    let (time, count) = (integer_text(pending.delivered), integer_text(pending.deliveries as i64));
    server.effects.say(
        database,
        &[
            b"XCLAIM",
            key,
            group,
            &pending.consumer,
            b"0",
            id.as_bytes(),
            b"TIME",
            &time,
            b"RETRYCOUNT",
            &count,
            b"FORCE",
            b"JUSTID",
            b"LASTID",
            last.as_bytes(),
        ],
    );
}

fn say_last(server: &mut Server, database: usize, key: &[u8], name: &[u8], last: Id, read: Option<u64>) {
    let read = integer_text(read.map_or(-1, |read| read as i64));
    let last = last.to_string();
    server.effects.say(database, &[b"XGROUP", b"SETID", key, name, last.as_bytes(), b"ENTRIESREAD", &read]);
}

fn consumer_is_new(server: &mut Server, database: usize, key: &[u8], group: &[u8], consumer: &[u8]) {
    server.effects.say(database, &[b"XGROUP", b"CREATECONSUMER", key, group, consumer]);
    server.notify(events::STREAM, "xgroup-createconsumer", database, key);
    server.dirty += 1;
}

fn subcommand_syntax(args: Args<'_>) -> Failure {
    Failure::subcommand(args.at(1), &String::from_utf8_lossy(args.at(0)).to_uppercase())
}
