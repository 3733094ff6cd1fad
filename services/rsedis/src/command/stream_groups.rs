//! Streams read by many: XREAD, and groups whose consumers share a stream's entries.
//!
//! What a group does is kept as what came of it: XCLAIM with all that is known of an entry that was given, XGROUP for the rest.

use super::options::{deadline_millis, integer, is};
use super::streams::{BAD_ID, bound, reply_entry};
use crate::events;
use crate::failure::{Failure, NO_KEY, Outcome, SYNTAX};
use crate::keyspace::Key;
use crate::number::{integer_text, parse_integer};
use crate::protocol::request::OwnedArgs;
use crate::protocol::{Args, Reply};
use crate::server::Server;
use crate::session::Session;
use crate::value::{Consumer, Group, Id, Pending, Stream, parse_id};
use crate::waiting::{InVain, wait};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn no_group(key: &[u8], group: &[u8]) -> Failure {
    Failure::text(format!("NOGROUP No such key '{}' or consumer group '{}'", text(key), text(group)))
}

fn no_such_group(key: &[u8], group: &[u8]) -> Failure {
    Failure::text(format!("NOGROUP No such consumer group '{}' for key name '{}'", text(group), text(key)))
}

/// A stream's group.
fn group_mut<'a>(server: &'a mut Server, database: usize, key: &Key<'_>, name: &[u8]) -> Outcome<&'a mut Group> {
    let stream = server.typed_mut::<Stream>(database, key)?;
    stream.and_then(|stream| stream.groups.get_mut(name)).ok_or_else(|| no_group(key.bytes, name))
}

/// How many of the entries that were ever added come up to this one, if that can be told.
fn distance(stream: &Stream, id: Id) -> Option<u64> {
    if stream.added == 0 {
        return Some(0);
    }
    if stream.is_empty() && id <= stream.last {
        return Some(stream.added);
    }
    if id != Id::MIN && id < stream.max_deleted {
        return None;
    }
    if id >= stream.last {
        return (id == stream.last).then_some(stream.added);
    }
    let first = stream.first().unwrap_or_default();
    if stream.max_deleted == Id::MIN || stream.max_deleted < first {
        let before = stream.added.saturating_sub(stream.len() as u64);
        if id < first {
            return Some(before);
        } else if id == first {
            return Some(before + 1);
        }
    }
    None
}

/// Whether something was deleted from an identifier on.
fn has_holes(stream: &Stream, from: Id) -> bool {
    let first = stream.first().unwrap_or_default();
    !stream.is_empty() && stream.max_deleted != Id::MIN && first <= stream.max_deleted && from <= stream.max_deleted
}

/// Entries that a group has yet to read, if that can be told.
fn lag(stream: &Stream, group: &Group) -> Option<u64> {
    if stream.added == 0 {
        return Some(0);
    }
    match group.read {
        Some(read) if !has_holes(stream, group.last) => Some(stream.added.saturating_sub(read)),
        _ => distance(stream, group.last).map(|read| stream.added.saturating_sub(read)),
    }
}

/// A consumer, made if it is not there; whether it was made. It was heard of just now.
fn meet(group: &mut Group, name: &[u8], now: i64) -> bool {
    let is_new = !group.consumers.contains_key(name);
    group.consumers.entry(name.to_vec()).or_insert_with(Consumer::default).seen = now;
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

fn reading<'a>(server: &Server, args: Args<'a>, of_group: bool) -> Outcome<Reading<'a>> {
    let (mut most, mut timeout, mut group, mut no_acknowledge) = (0, None, None, false);
    let mut at = 1;
    loop {
        let word = args.get(at).ok_or(SYNTAX)?;
        let more = args.len() - at - 1;
        if is(word, "BLOCK") && more > 0 {
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
                wait(server, client, args.as_args(), keys, deadline, InVain::NullArray);
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

pub(super) fn xread(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (reading, database) = (reading(server, args, false)?, client.database);
    let mut ids = Vec::with_capacity(reading.ids.len());
    for (name, id) in reading.keys.iter().zip(reading.ids.iter()) {
        let stream = match server.typed::<Stream>(database, &Key::new(name)) {
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
    for (name, id) in reading.keys.iter().zip(&ids) {
        let Ok(Some(stream)) = server.typed::<Stream>(database, &Key::new(name)) else { continue };
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

pub(super) fn xreadgroup(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (reading, database) = (reading(server, args, true)?, client.database);
    let Some((group_name, consumer)) = reading.group else { return Err(SYNTAX) };
    let mut ids = Vec::with_capacity(reading.ids.len());
    for (name, id) in reading.keys.iter().zip(reading.ids.iter()) {
        let key = Key::new(name);
        let stream = match server.typed_mut::<Stream>(database, &key) {
            Ok(None) | Err(_) if client.is_retrying => {
                return Err(Failure::new("UNBLOCKED the stream key no longer exists"));
            }
            stream => stream?,
        };
        if stream.is_none_or(|stream| !stream.groups.contains_key(group_name)) {
            return Err(match client.is_retrying {
                true => Failure::new("NOGROUP the consumer group this client was blocked on no longer exists"),
                false => Failure::text(format!(
                    "NOGROUP No such key '{}' or consumer group '{}' in XREADGROUP with GROUP option",
                    text(name),
                    text(group_name)
                )),
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
            id => Some(parse_id(id, 0).ok_or(BAD_ID)?),
        });
    }
    let mut body = Reply { is_resp3: client.reply.is_resp3, ..Reply::default() };
    let mut found = 0;
    for (name, id) in reading.keys.iter().zip(&ids) {
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
                    pending.deliveries += 1;
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
            Some(read) if !holes[place] => group.read = Some(read + 1),
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

pub(super) fn xack(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database) = (Key::new(args.at(1)), client.database);
    let group = server.typed_mut::<Stream>(database, &key)?.and_then(|stream| stream.groups.get_mut(args.at(2)));
    let Some(group) = group else {
        client.reply.integer(0);
        return Ok(());
    };
    let ids: Vec<Id> = args.from(3).iter().map(|id| parse_id(id, 0).ok_or(BAD_ID)).collect::<Outcome<_>>()?;
    let acknowledged = ids.into_iter().filter(|id| group.acknowledge(*id)).count();
    server.dirty += acknowledged as u64;
    client.reply.count(acknowledged);
    Ok(())
}

pub(super) fn xpending(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database, now) = (Key::new(args.at(1)), client.database, server.now);
    if args.len() != 3 && !(6..=9).contains(&args.len()) {
        return Err(SYNTAX);
    }
    let mut range = None;
    if args.len() >= 6 {
        let (mut first, mut idle) = (3, 0);
        if is(args.at(3), "IDLE") {
            idle = integer(args.at(4))?;
            if args.len() < 8 {
                return Err(SYNTAX);
            }
            first = 5;
        }
        let most = integer(args.at(first + 2))?.max(0) as usize;
        let (from, to) = (bound(args.at(first), false)?, bound(args.at(first + 1), true)?);
        range = Some((from, to, most, idle, args.get(first + 3)));
    }
    let stream = server.typed::<Stream>(database, &key)?;
    let group = stream.and_then(|stream| stream.groups.get(args.at(2)));
    let group = group.ok_or_else(|| no_group(key.bytes, args.at(2)))?;
    let reply = &mut client.reply;
    let Some((from, to, most, idle, consumer)) = range else {
        reply.array(4);
        reply.count(group.pending.len());
        match (group.pending.first_key_value(), group.pending.last_key_value()) {
            (Some((first, _)), Some((last, _))) => {
                reply.bulk(first.to_string().as_bytes());
                reply.bulk(last.to_string().as_bytes());
                let busy: Vec<_> = group.consumers.iter().filter(|(_, one)| !one.pending.is_empty()).collect();
                reply.array(busy.len());
                for (name, consumer) in busy {
                    reply.array(2);
                    reply.bulk(name);
                    reply.bulk_integer(consumer.pending.len() as i64);
                }
            }
            _ => {
                reply.null();
                reply.null();
                reply.null_array();
            }
        }
        return Ok(());
    };
    let mut found: Vec<(Id, &Pending)> = Vec::new();
    if from <= to {
        let is_wanted = |(_, pending): &(&Id, &Pending)| {
            consumer.is_none_or(|consumer| pending.consumer == consumer)
                && (idle == 0 || now - pending.delivered >= idle)
        };
        found.extend(group.pending.range(from..=to).filter(is_wanted).take(most).map(|(id, pending)| (*id, pending)));
    }
    reply.array(found.len());
    for (id, pending) in found {
        reply.array(4);
        reply.bulk(id.to_string().as_bytes());
        reply.bulk(&pending.consumer);
        reply.integer((now - pending.delivered).max(0));
        reply.integer(pending.deliveries as i64);
    }
    Ok(())
}

/// How a claim changes what is known of an entry.
struct Claim<'a> {
    consumer: &'a [u8],
    idle: i64,
    delivered: i64,
    deliveries: Option<u64>,
    is_forced: bool,
    just_id: bool,
}

/// What became of an entry that was claimed.
enum Claimed {
    /// It stays where it is.
    Not,
    /// It is no longer in the stream, and no longer pending.
    Gone,
    /// It is the claimer's.
    Given(Pending),
}

impl Claim<'_> {
    fn one(&self, stream: &mut Stream, name: &[u8], id: Id, now: i64) -> Claimed {
        let exists = stream.get(id).is_some();
        let Some(group) = stream.groups.get_mut(name) else { return Claimed::Not };
        if !exists {
            return if group.acknowledge(id) { Claimed::Gone } else { Claimed::Not };
        }
        let pending = match group.pending.get(&id) {
            Some(pending) if self.idle > 0 && now - pending.delivered < self.idle => return Claimed::Not,
            Some(pending) => pending.clone(),
            None if self.is_forced => Pending { consumer: Vec::new(), delivered: now, deliveries: 1 },
            None => return Claimed::Not,
        };
        let deliveries = match self.deliveries {
            Some(deliveries) => deliveries,
            None => pending.deliveries + u64::from(!self.just_id),
        };
        meet(group, self.consumer, now);
        let pending = Pending { consumer: self.consumer.to_vec(), delivered: self.delivered, deliveries };
        group.give(id, pending.clone());
        Claimed::Given(pending)
    }
}

/// Claims one entry, says so, and shows it; whether it was given.
fn claim_one(
    server: &mut Server,
    body: &mut Reply,
    database: usize,
    (key, group): (&[u8], &[u8]),
    id: Id,
    claim: &Claim<'_>,
) -> Outcome<Claimed> {
    let now = server.now;
    let Some(stream) = server.typed_mut::<Stream>(database, &Key::new(key))? else { return Ok(Claimed::Not) };
    let last = stream.groups.get(group).map_or(Id::MIN, |group| group.last);
    let is_new = stream.groups.get(group).is_some_and(|group| !group.consumers.contains_key(claim.consumer));
    let claimed = claim.one(stream, group, id, now);
    match &claimed {
        Claimed::Given(pending) => {
            match claim.just_id {
                true => body.bulk(id.to_string().as_bytes()),
                false => stream.get(id).iter().for_each(|entry| reply_entry(body, entry)),
            }
            if is_new {
                server.notify(events::STREAM, "xgroup-createconsumer", database, key);
            }
            say_claim(server, database, key, group, last, id, pending);
            server.dirty += 1;
        }
        Claimed::Gone => {
            server.effects.say(database, &[b"XACK", key, group, id.to_string().as_bytes()]);
            server.dirty += 1;
        }
        Claimed::Not => {}
    }
    Ok(claimed)
}

pub(super) fn xclaim(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database, now) = (Key::new(args.at(1)), client.database, server.now);
    group_mut(server, database, &key, args.at(2))?;
    let idle = parse_integer(args.at(4)).ok_or(Failure::new("ERR Invalid min-idle-time argument for XCLAIM"))?;
    let ids: Vec<Id> = args.from(5).iter().map_while(|word| parse_id(word, 0)).collect();
    let mut claim =
        Claim { consumer: args.at(3), idle, delivered: now, deliveries: None, is_forced: false, just_id: false };
    let mut last = Id::MIN;
    let mut at = 5 + ids.len();
    while let Some(word) = args.get(at) {
        let value = args.get(at + 1);
        let number = |name: &str| {
            let refused = || Failure::text(format!("ERR Invalid {name} option argument for XCLAIM"));
            value.and_then(parse_integer).ok_or_else(refused)
        };
        let mut width = 2;
        if is(word, "FORCE") {
            (claim.is_forced, width) = (true, 1);
        } else if is(word, "JUSTID") {
            (claim.just_id, width) = (true, 1);
        } else if is(word, "IDLE") && value.is_some() {
            claim.delivered = now.saturating_sub(number("IDLE")?);
        } else if is(word, "TIME") && value.is_some() {
            claim.delivered = number("TIME")?;
        } else if is(word, "RETRYCOUNT") && value.is_some() {
            claim.deliveries = u64::try_from(number("RETRYCOUNT")?).ok();
        } else if is(word, "LASTID")
            && let Some(value) = value
        {
            last = parse_id(value, 0).ok_or(BAD_ID)?;
        } else {
            return Err(Failure::text(format!("ERR Unrecognized XCLAIM option '{}'", text(word))));
        }
        at += width;
    }
    if claim.delivered < 0 || claim.delivered > now {
        claim.delivered = now;
    }
    let group = group_mut(server, database, &key, args.at(2))?;
    let is_ahead = last > group.last;
    group.last = group.last.max(last);
    let (last, read) = (group.last, group.read);
    let mut body = Reply { is_resp3: client.reply.is_resp3, ..Reply::default() };
    let (mut given, dirty) = (0, server.dirty);
    for id in ids {
        if let Claimed::Given(_) = claim_one(server, &mut body, database, (key.bytes, args.at(2)), id, &claim)? {
            given += 1;
        }
    }
    if is_ahead && server.dirty == dirty {
        say_last(server, database, key.bytes, args.at(2), last, read);
        server.dirty += 1;
    }
    client.reply.array(given);
    client.reply.bytes.extend_from_slice(&body.bytes);
    Ok(())
}

pub(super) fn xautoclaim(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    const ATTEMPTS_PER_ENTRY: i64 = 10;
    let (key, database, now) = (Key::new(args.at(1)), client.database, server.now);
    let idle = parse_integer(args.at(4)).ok_or(Failure::new("ERR Invalid min-idle-time argument for XAUTOCLAIM"))?;
    let from = bound(args.at(5), false)?;
    let (mut most, mut just_id) = (100, false);
    let mut at = 6;
    while let Some(word) = args.get(at) {
        match args.get(at + 1) {
            Some(value) if is(word, "COUNT") => {
                let count = parse_integer(value).filter(|count| (1..=i64::MAX / 16).contains(count));
                most = count.ok_or(Failure::new("ERR COUNT must be > 0"))?;
                at += 1;
            }
            _ if is(word, "JUSTID") => just_id = true,
            _ => return Err(SYNTAX),
        }
        at += 1;
    }
    let group = group_mut(server, database, &key, args.at(2))?;
    let looked_at = usize::try_from(most * ATTEMPTS_PER_ENTRY).unwrap_or(usize::MAX);
    let candidates: Vec<(Id, i64)> =
        group.pending.range(from..).take(looked_at).map(|(id, pending)| (*id, pending.delivered)).collect();
    let claim = Claim { consumer: args.at(3), idle: 0, delivered: now, deliveries: None, is_forced: false, just_id };
    let mut body = Reply { is_resp3: client.reply.is_resp3, ..Reply::default() };
    let (mut given, mut deleted, mut reached) = (0, Vec::new(), None);
    for (id, delivered) in candidates {
        if most == 0 {
            break;
        }
        reached = Some(id);
        let exists = server.typed::<Stream>(database, &key)?.is_some_and(|stream| stream.get(id).is_some());
        if exists && idle > 0 && now - delivered < idle {
            continue;
        }
        match claim_one(server, &mut body, database, (key.bytes, args.at(2)), id, &claim)? {
            Claimed::Given(_) => given += 1,
            Claimed::Gone => deleted.push(id),
            Claimed::Not => continue,
        }
        most -= 1;
    }
    let group = group_mut(server, database, &key, args.at(2))?;
    let begin = match reached {
        Some(id) => id.next(),
        None => Some(from),
    };
    let next = begin.and_then(|from| group.pending.range(from..).next().map(|(id, _)| *id));
    client.reply.array(3);
    client.reply.bulk(next.unwrap_or_default().to_string().as_bytes());
    client.reply.array(given);
    client.reply.bytes.extend_from_slice(&body.bytes);
    client.reply.array(deleted.len());
    deleted.iter().for_each(|id| client.reply.bulk(id.to_string().as_bytes()));
    Ok(())
}

fn subcommand_syntax(args: Args<'_>) -> Failure {
    let (command, word) = (text(args.at(0)).to_uppercase(), text(args.at(1)));
    Failure::text(format!("ERR unknown subcommand or wrong number of arguments for '{word}'. Try {command} HELP."))
}

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

pub(super) fn create(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
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

pub(super) fn setid(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database, name) = (Key::new(args.at(2)), client.database, args.at(3));
    let (_, read) = group_options(args, false)?;
    let stream = stream_of(server, database, &key, name)?;
    let last = group_id(args.at(4), Some(stream))?;
    if let Some(group) = stream.groups.get_mut(name) {
        (group.last, group.read) = (last, read);
    }
    server.dirty += 1;
    server.notify(events::STREAM, "xgroup-setid", database, key.bytes);
    client.reply.ok();
    Ok(())
}

pub(super) fn destroy(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
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

pub(super) fn createconsumer(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
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

pub(super) fn delconsumer(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
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

fn reply_optional(reply: &mut Reply, number: Option<u64>) {
    match number {
        Some(number) => reply.integer(number as i64),
        None => reply.null(),
    }
}

pub(super) fn info_consumers(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
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

pub(super) fn info_groups(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
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
        reply.bulk(b"last-delivered-id");
        reply.bulk(group.last.to_string().as_bytes());
        reply.bulk(b"entries-read");
        reply_optional(reply, group.read);
        reply.bulk(b"lag");
        reply_optional(reply, lag(stream, group));
    }
    Ok(())
}

pub(super) fn info_stream(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
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
    let stream = server.typed::<Stream>(client.database, &Key::new(args.at(2)))?.ok_or(NO_KEY)?;
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
        reply.bulk(b"last-delivered-id");
        reply.bulk(group.last.to_string().as_bytes());
        reply.bulk(b"entries-read");
        reply_optional(reply, group.read);
        reply.bulk(b"lag");
        reply_optional(reply, lag(stream, group));
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
