//! XGROUP: groups and consumers made, moved and removed.

use super::super::options::{integer, is};
use super::super::streams::BAD_ID;
use super::{consumer_is_new, meet, no_such_group, subcommand_syntax};
use crate::events;
use crate::failure::{Failure, Outcome};
use crate::keyspace::Key;
use crate::protocol::Args;
use crate::server::Server;
use crate::session::Session;
use crate::value::{Group, Id, Stream, parse_id};

const KEY_NEEDED: Failure = Failure::new(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create \
     an empty stream automatically.",
);

/// `MKSTREAM` and `ENTRIESREAD`.
fn group_options(args: Args<'_>, is_create: bool) -> Outcome<(bool, Option<u64>)> {
    let (mut makes, mut read) = (false, None);
    let mut at = 5;
    while let Some(word) = args.get(at) {
        match args.get(at + 1) {
            _ if is_create && is(word, "MKSTREAM") => {
                makes = true;
                at += 1;
            }
            Some(value) if is(word, "ENTRIESREAD") => {
                let number = integer(value)?;
                if number < -1 {
                    return Err(Failure::new("ERR value for ENTRIESREAD must be positive or -1"));
                }
                read = u64::try_from(number).ok();
                at += 2;
            }
            _ => return Err(subcommand_syntax(args)),
        }
    }
    Ok((makes, read))
}

fn group_id(text: &[u8], stream: Option<&Stream>) -> Outcome<Id> {
    match text {
        b"$" => Ok(stream.map_or(Id::MIN, |stream| stream.last)),
        text => parse_id(text, 0).ok_or(BAD_ID),
    }
}

pub(in crate::command) fn create(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database, name) = (Key::new(args.at(2)), client.database, args.at(3));
    let (makes, read) = group_options(args, true)?;
    let stream = server.typed_mut::<Stream>(database, &key)?;
    let is_there = stream.is_some();
    if !is_there && !makes {
        return Err(KEY_NEEDED);
    }
    let last = group_id(args.at(4), stream.as_deref())?;
    let stream: &mut Stream = server.typed_or_new(database, &key)?;
    if stream.groups.contains_key(name) {
        return Err(Failure::new("BUSYGROUP Consumer Group name already exists"));
    }
    stream.groups.insert(name.to_vec(), Group { last, read, ..Group::default() });
    if !is_there {
        server.touch(database, key.bytes);
    }
    server.dirty += 1;
    server.notify(events::STREAM, "xgroup-create", database, key.bytes);
    client.reply.ok();
    Ok(())
}

/// The stream of a group that must be there.
fn stream_of<'a>(server: &'a mut Server, database: usize, key: &Key<'_>, name: &[u8]) -> Outcome<&'a mut Stream> {
    let stream = server.typed_mut::<Stream>(database, key)?.ok_or(KEY_NEEDED)?;
    if !stream.groups.contains_key(name) {
        return Err(no_such_group(key.bytes, name));
    }
    Ok(stream)
}

pub(in crate::command) fn setid(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database, name) = (Key::new(args.at(2)), client.database, args.at(3));
    let (_, read) = group_options(args, false)?;
    let stream = stream_of(server, database, &key, name)?;
    let last = match args.at(4) {
        // Here alone, as in Redis.
        b"-" => Id::MIN,
        b"+" => Id::MAX,
        text => group_id(text, Some(stream))?,
    };
    if let Some(group) = stream.groups.get_mut(name) {
        (group.last, group.read) = (last, read);
    }
    server.dirty += 1;
    server.notify(events::STREAM, "xgroup-setid", database, key.bytes);
    client.reply.ok();
    Ok(())
}

pub(in crate::command) fn destroy(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database) = (Key::new(args.at(2)), client.database);
    let stream = server.typed_mut::<Stream>(database, &key)?.ok_or(KEY_NEEDED)?;
    let is_removed = stream.groups.remove(args.at(3)).is_some();
    if is_removed {
        server.dirty += 1;
        // Who waits for it must hear of it.
        server.touch(database, key.bytes);
        server.notify(events::STREAM, "xgroup-destroy", database, key.bytes);
    }
    client.reply.flag(is_removed);
    Ok(())
}

pub(in crate::command) fn createconsumer(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database, now) = (Key::new(args.at(2)), client.database, server.now);
    let stream = stream_of(server, database, &key, args.at(3))?;
    let group = stream.groups.get_mut(args.at(3));
    let is_new = group.is_some_and(|group| !group.consumers.contains_key(args.at(4)) && meet(group, args.at(4), now));
    if is_new {
        consumer_is_new(server, database, key.bytes, args.at(3), args.at(4));
    }
    client.reply.flag(is_new);
    Ok(())
}

pub(in crate::command) fn delconsumer(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database) = (Key::new(args.at(2)), client.database);
    let stream = stream_of(server, database, &key, args.at(3))?;
    let removed = stream.groups.get_mut(args.at(3)).and_then(|group| group.remove_consumer(args.at(4)));
    if removed.is_some() {
        server.dirty += 1;
        server.notify(events::STREAM, "xgroup-delconsumer", database, key.bytes);
    }
    client.reply.count(removed.unwrap_or(0));
    Ok(())
}
