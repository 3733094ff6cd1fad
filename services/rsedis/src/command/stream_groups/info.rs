//! XINFO: what is known of streams, groups and consumers.

use super::super::options::{integer, is};
use super::super::streams::reply_entry;
use super::{lag, no_such_group, subcommand_syntax};
use crate::failure::{NO_KEY, Outcome};
use crate::keyspace::Key;
use crate::protocol::{Args, Reply};
use crate::server::Server;
use crate::session::Session;
use crate::value::{Group, Id, Stream};

fn reply_optional(reply: &mut Reply, number: Option<i64>) {
    match number {
        Some(number) => reply.integer(number),
        None => reply.null(),
    }
}

/// How far a group has read, and how much is left to it.
fn reply_progress(reply: &mut Reply, stream: &Stream, group: &Group) {
    reply.bulk(b"last-delivered-id");
    reply.bulk(group.last.to_string().as_bytes());
    reply.bulk(b"entries-read");
    reply_optional(reply, group.read.map(|read| read as i64));
    reply.bulk(b"lag");
    reply_optional(reply, lag(stream, group));
}

pub(in crate::command) fn info_consumers(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, now) = (Key::new(args.at(2)), server.now);
    let stream = server.typed::<Stream>(client.database, &key)?.ok_or(NO_KEY)?;
    let group = stream.groups.get(args.at(3)).ok_or_else(|| no_such_group(key.bytes, args.at(3)))?;
    let reply = &mut client.reply;
    reply.array(group.consumers.len());
    for (name, consumer) in &group.consumers {
        reply.map(3);
        reply.bulk(b"name");
        reply.bulk(name);
        reply.bulk(b"pending");
        reply.count(consumer.pending.len());
        reply.bulk(b"idle");
        reply.integer((now - consumer.seen).max(0));
    }
    Ok(())
}

pub(in crate::command) fn info_groups(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let stream = server.typed::<Stream>(client.database, &Key::new(args.at(2)))?.ok_or(NO_KEY)?;
    let reply = &mut client.reply;
    reply.array(stream.groups.len());
    for (name, group) in &stream.groups {
        reply.map(6);
        reply.bulk(b"name");
        reply.bulk(name);
        reply.bulk(b"consumers");
        reply.count(group.consumers.len());
        reply.bulk(b"pending");
        reply.count(group.pending.len());
        reply_progress(reply, stream, group);
    }
    Ok(())
}

pub(in crate::command) fn info_stream(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let stream = server.typed::<Stream>(client.database, &Key::new(args.at(2)))?.ok_or(NO_KEY)?;
    let mut full = None;
    match (args.get(3), args.get(4), args.get(5)) {
        (None, ..) => {}
        (Some(word), None, _) if is(word, "FULL") => full = Some(10),
        (Some(word), Some(count), Some(value)) if is(word, "FULL") && is(count, "COUNT") && args.len() == 6 => {
            let count = integer(value)?;
            full = Some(if count < 0 { 10 } else { count as usize });
        }
        _ => return Err(subcommand_syntax(args)),
    }
    let reply = &mut client.reply;
    reply.map(if full.is_some() { 9 } else { 10 });
    reply.bulk(b"length");
    reply.count(stream.len());
    reply.bulk(b"radix-tree-keys");
    reply.count(stream.nodes().len());
    // A map has no nodes to speak of: what a radix tree of as many keys has at least.
    reply.bulk(b"radix-tree-nodes");
    reply.count(stream.nodes().len() + 1);
    for (name, id) in [("last-generated-id", stream.last), ("max-deleted-entry-id", stream.max_deleted)] {
        reply.bulk(name.as_bytes());
        reply.bulk(id.to_string().as_bytes());
    }
    reply.bulk(b"entries-added");
    reply.integer(stream.added as i64);
    reply.bulk(b"recorded-first-entry-id");
    reply.bulk(stream.first().unwrap_or_default().to_string().as_bytes());
    let Some(count) = full else {
        reply.bulk(b"groups");
        reply.count(stream.groups.len());
        for (name, is_last) in [("first-entry", false), ("last-entry", true)] {
            reply.bulk(name.as_bytes());
            match stream.range(Id::MIN, Id::MAX, 1, is_last).first() {
                Some(entry) => reply_entry(reply, entry),
                None => reply.null(),
            }
        }
        return Ok(());
    };
    let most = if count == 0 { usize::MAX } else { count };
    reply.bulk(b"entries");
    let entries = stream.range(Id::MIN, Id::MAX, most, false);
    reply.array(entries.len());
    entries.iter().for_each(|entry| reply_entry(reply, entry));
    reply.bulk(b"groups");
    reply.array(stream.groups.len());
    for (name, group) in &stream.groups {
        reply.map(7);
        reply.bulk(b"name");
        reply.bulk(name);
        reply_progress(reply, stream, group);
        reply.bulk(b"pel-count");
        reply.count(group.pending.len());
        reply.bulk(b"pending");
        reply.array(group.pending.len().min(most));
        for (id, pending) in group.pending.iter().take(most) {
            reply.array(4);
            reply.bulk(id.to_string().as_bytes());
            reply.bulk(&pending.consumer);
            reply.integer(pending.delivered);
            reply.integer(pending.deliveries as i64);
        }
        reply.bulk(b"consumers");
        reply.array(group.consumers.len());
        for (name, consumer) in &group.consumers {
            reply.map(4);
            reply.bulk(b"name");
            reply.bulk(name);
            reply.bulk(b"seen-time");
            reply.integer(consumer.seen);
            reply.bulk(b"pel-count");
            reply.count(consumer.pending.len());
            reply.bulk(b"pending");
            reply.array(consumer.pending.len().min(most));
            for id in consumer.pending.iter().take(most) {
                let pending = group.pending.get(id);
                reply.array(3);
                reply.bulk(id.to_string().as_bytes());
                reply.integer(pending.map_or(0, |pending| pending.delivered));
                reply.integer(pending.map_or(0, |pending| pending.deliveries as i64));
            }
        }
    }
    Ok(())
}
