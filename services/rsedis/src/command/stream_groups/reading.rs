//! XREAD and XREADGROUP.

use super::super::options::{deadline_millis, integer, is};
use super::super::streams::{BAD_ID, reply_entry};
use super::{consumer_is_new, has_holes, meet, say_claim, say_last};
use crate::events;
use crate::failure::{Failure, Outcome, SYNTAX, WRONG_TYPE};
use crate::keyspace::Key;
use crate::protocol::{Args, OwnedArgs, Reply};
use crate::server::Server;
use crate::session::Session;
use crate::value::{Id, Pending, Stream, Value, distance, one_more, parse_id};
use crate::waiting::{TimeoutReply, wait};

/// What XREAD and XREADGROUP are asked for.
struct Reading<'a> {
    most: usize,
    timeout: Option<Option<i64>>,
    group: Option<(&'a [u8], &'a [u8])>,
    no_acknowledge: bool,
    keys: Args<'a>,
    ids: Args<'a>,
    ids_at: usize,
}

fn reading<'a>(server: &Server, client: &Session, args: Args<'a>, of_group: bool) -> Outcome<Reading<'a>> {
    let (mut most, mut timeout, mut group, mut no_acknowledge) = (0, None, None, false);
    let mut at = 1;
    loop {
        let word = args.get(at).ok_or(SYNTAX)?;
        let more = args.len() - at - 1;
        if is(word, "BLOCK") && more > 0 {
            if client.is_script {
                let end = b" command is not allowed with BLOCK option from scripts";
                return Err(Failure::joined(&[b"ERR ", args.at(0), end]));
            }
            timeout = Some(deadline_millis(args.at(at + 1), server.now)?);
            at += 2;
        } else if is(word, "COUNT") && more > 0 {
            most = integer(args.at(at + 1))?.max(0) as usize;
            at += 2;
        } else if is(word, "GROUP") && more >= 2 {
            if !of_group {
                return Err(Failure::new(
                    "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
                ));
            }
            group = Some((args.at(at + 1), args.at(at + 2)));
            at += 3;
        } else if is(word, "NOACK") {
            if !of_group {
                return Err(Failure::new(
                    "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
                ));
            }
            no_acknowledge = true;
            at += 1;
        } else if is(word, "STREAMS") && more > 0 {
            break;
        } else {
            return Err(SYNTAX);
        }
    }
    let rest = args.from(at + 1);
    if !rest.len().is_multiple_of(2) {
        return Err(Failure::new(
            "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
        ));
    }
    if of_group && group.is_none() {
        return Err(Failure::new("ERR Missing GROUP option for XREADGROUP"));
    }
    let half = rest.len() / 2;
    let most = if most == 0 { usize::MAX } else { most };
    Ok(Reading {
        most,
        timeout,
        group,
        no_acknowledge,
        keys: rest.to(half),
        ids: rest.from(half),
        ids_at: at + 1 + half,
    })
}

impl Reading<'_> {
    /// Where the client waits, its identifiers are those of now.
    fn wait(&self, server: &mut Server, client: &mut Session, args: Args<'_>, ids: &[Id]) {
        match self.timeout {
            Some(deadline) => {
                let fixed: Vec<String> = ids.iter().map(Id::to_string).collect();
                let words = args.iter().enumerate().map(|(place, word)| match place.checked_sub(self.ids_at) {
                    Some(id) if word == b"$" => fixed[id].as_bytes(),
                    _ => word,
                });
                let args = OwnedArgs::new(words);
                let keys = self.keys.iter().map(<[u8]>::to_vec).collect();
                wait(server, client, args.as_args(), keys, deadline, TimeoutReply::NullArray);
            }
            None => client.reply.null_array(),
        }
    }
}

/// The head of a stream among those that were read.
fn begin_stream(reply: &mut Reply, key: &[u8]) {
    if !reply.is_resp3 {
        reply.array(2);
    }
    reply.bulk(key);
}

fn finish(client: &mut Session, found: usize, body: &Reply) {
    match client.reply.is_resp3 {
        true => client.reply.map(found),
        false => client.reply.array(found),
    }
    client.reply.bytes.extend_from_slice(&body.bytes);
}

/// A stream, to be read. Who is served after a wait was counted before it.
fn look<'a>(server: &'a mut Server, client: &Session, key: &Key<'_>) -> Outcome<Option<&'a Stream>> {
    let place = match client.is_retrying {
        true => server.find(client.database, key),
        false => server.find_to_read(client.database, key),
    };
    let Some(place) = place else { return Ok(None) };
    match server.databases[client.database].entry(place).value() {
        Some(Value::Stream(stream)) => Ok(Some(stream)),
        _ => Err(WRONG_TYPE),
    }
}

pub(in crate::command) fn xread(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let reading = reading(server, client, args, false)?;
    let mut ids = Vec::with_capacity(reading.ids.len());
    for (name, id) in reading.keys.iter().zip(reading.ids.iter()) {
        let stream = match look(server, client, &Key::new(name)) {
            Err(_) if client.is_retrying => None,
            stream => stream?,
        };
        ids.push(match id {
            b"$" => stream.map_or(Id::MIN, |stream| stream.last),
            b">" => {
                return Err(Failure::new(
                    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
                ));
            }
            id => parse_id(id, 0).ok_or(BAD_ID)?,
        });
    }
    let mut body = Reply { is_resp3: client.reply.is_resp3, ..Reply::default() };
    let mut found = 0;
    for (name, id) in reading.keys.iter().zip(&ids).filter(|(name, _)| client.is_served(name)) {
        let Ok(Some(stream)) = look(server, client, &Key::new(name)) else { continue };
        let Some(from) = id.next() else { continue };
        let entries = stream.range(from, Id::MAX, reading.most, false);
        if !entries.is_empty() {
            found += 1;
            begin_stream(&mut body, name);
            body.array(entries.len());
            entries.iter().for_each(|entry| reply_entry(&mut body, entry));
        }
    }
    match found {
        0 => reading.wait(server, client, args, &ids),
        found => finish(client, found, &body),
    }
    Ok(())
}

pub(in crate::command) fn xreadgroup(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (reading, database) = (reading(server, client, args, true)?, client.database);
    let Some((group_name, consumer)) = reading.group else { return Err(SYNTAX) };
    let mut ids = Vec::with_capacity(reading.ids.len());
    for (name, id) in reading.keys.iter().zip(reading.ids.iter()).filter(|(name, _)| client.is_served(name)) {
        let key = Key::new(name);
        let stream = match look(server, client, &key) {
            Ok(None) | Err(_) if client.is_retrying => {
                return Err(Failure::new("UNBLOCKED the stream key no longer exists"));
            }
            stream => stream?,
        };
        if stream.is_none_or(|stream| !stream.groups.contains_key(group_name)) {
            return Err(match client.is_retrying {
                true => Failure::new("NOGROUP the consumer group this client was blocked on no longer exists"),
                false => Failure::joined(&[
                    b"NOGROUP No such key '",
                    name,
                    b"' or consumer group '",
                    group_name,
                    b"' in XREADGROUP with GROUP option",
                ]),
            });
        }
        ids.push(match id {
            b"$" => {
                return Err(Failure::new(
                    "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer \
                     by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty \
                     result set.",
                ));
            }
            b">" => None,
            // In Redis the last of all means the same as `>`.
            id => Some(parse_id(id, 0).ok_or(BAD_ID)?).filter(|id| *id != Id::MAX),
        });
    }
    let mut body = Reply { is_resp3: client.reply.is_resp3, ..Reply::default() };
    let mut found = 0;
    for (name, id) in reading.keys.iter().filter(|name| client.is_served(name)).zip(&ids) {
        if !client.is_retrying {
            server.find_counted(database, &Key::new(name));
        }
        let is_read = match id {
            Some(id) => {
                read_history(server, &mut body, database, name, (group_name, consumer), *id, reading.most)?;
                true
            }
            None => read_new(server, &mut body, database, name, (group_name, consumer), &reading)?,
        };
        found += usize::from(is_read);
    }
    match found {
        0 => reading.wait(server, client, args, &[]),
        found => finish(client, found, &body),
    }
    Ok(())
}

/// What a consumer was given before, after an identifier.
fn read_history(
    server: &mut Server,
    body: &mut Reply,
    database: usize,
    name: &[u8],
    (group_name, consumer): (&[u8], &[u8]),
    after: Id,
    most: usize,
) -> Outcome {
    let (key, now) = (Key::new(name), server.now);
    let Some(stream) = server.typed_mut::<Stream>(database, &key)? else { return Ok(()) };
    begin_stream(body, name);
    let Some(group) = stream.groups.get_mut(group_name) else { return Ok(()) };
    let is_new = meet(group, consumer, now);
    let ids: Vec<Id> = match (after.next(), group.consumers.get(consumer)) {
        (Some(from), Some(consumer)) => consumer.pending.range(from..).take(most).copied().collect(),
        _ => Vec::new(),
    };
    body.array(ids.len());
    for id in ids {
        match stream.get(id) {
            Some(entry) => {
                reply_entry(body, &entry);
                if let Some(pending) = stream.groups.get_mut(group_name).and_then(|group| group.pending.get_mut(&id)) {
                    pending.delivered = now;
                    pending.deliveries = one_more(pending.deliveries);
                }
            }
            None => {
                body.array(2);
                body.bulk(id.to_string().as_bytes());
                body.null_array();
            }
        }
    }
    server.effects.say_nothing();
    if is_new {
        consumer_is_new(server, database, name, group_name, consumer);
    }
    Ok(())
}

/// What nobody of the group was given yet; whether there is anything.
fn read_new(
    server: &mut Server,
    body: &mut Reply,
    database: usize,
    name: &[u8],
    (group_name, consumer): (&[u8], &[u8]),
    reading: &Reading<'_>,
) -> Outcome<bool> {
    let (key, now) = (Key::new(name), server.now);
    let Some(stream) = server.typed_mut::<Stream>(database, &key)? else { return Ok(false) };
    let Some(from) = stream.groups.get(group_name).and_then(|group| group.last.next()) else { return Ok(false) };
    let entries = stream.range(from, Id::MAX, reading.most, false);
    if entries.is_empty() {
        return Ok(false);
    }
    begin_stream(body, name);
    body.array(entries.len());
    entries.iter().for_each(|entry| reply_entry(body, entry));
    let ids: Vec<Id> = entries.iter().map(|entry| entry.id).collect();
    let holes: Vec<bool> = ids.iter().map(|id| has_holes(stream, *id)).collect();
    let distances: Vec<Option<u64>> = match stream.groups.get(group_name).and_then(|group| group.read) {
        Some(_) if !holes.contains(&true) => vec![None; ids.len()],
        _ => ids.iter().map(|id| distance(stream, *id)).collect(),
    };
    let was_added = stream.added > 0;
    let Some(group) = stream.groups.get_mut(group_name) else { return Ok(false) };
    let is_new = meet(group, consumer, now);
    for (place, id) in ids.iter().enumerate() {
        match group.read {
            Some(read) if !holes[place] => group.read = Some(one_more(read)),
            _ if was_added => group.read = distances[place],
            _ => {}
        }
        group.last = *id;
        if !reading.no_acknowledge {
            group.give(*id, Pending { consumer: consumer.to_vec(), delivered: now, deliveries: 1 });
        }
    }
    let (last, read) = (group.last, group.read);
    if is_new {
        server.notify(events::STREAM, "xgroup-createconsumer", database, name);
    }
    if reading.no_acknowledge {
        if is_new {
            server.effects.say(database, &[b"XGROUP", b"CREATECONSUMER", name, group_name, consumer]);
        }
        say_last(server, database, name, group_name, last, read);
    } else {
        let pending = Pending { consumer: consumer.to_vec(), delivered: now, deliveries: 1 };
        for id in ids {
            say_claim(server, database, name, group_name, last, id, &pending);
        }
        say_last(server, database, name, group_name, last, read);
    }
    server.dirty += 1;
    Ok(true)
}
