//! What was given and not acknowledged: XACK, XPENDING, XCLAIM, XAUTOCLAIM.

use super::super::options::{integer, is};
use super::super::streams::{BAD_ID, bound, reply_entry};
use super::{group_mut, meet, no_group, say_claim, say_last};
use crate::events;
use crate::failure::{Failure, Outcome, SYNTAX};
use crate::keyspace::Key;
use crate::number::parse_integer;
use crate::protocol::{Args, Reply};
use crate::server::Server;
use crate::session::Session;
use crate::value::{Id, Pending, Stream, one_more, parse_id};

pub(in crate::command) fn xack(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database) = (Key::new(args.at(1)), client.database);
    server.find_to_read(database, &key);
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

pub(in crate::command) fn xpending(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
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
            None if self.just_id => pending.deliveries,
            None => one_more(pending.deliveries),
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

pub(in crate::command) fn xclaim(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database, now) = (Key::new(args.at(1)), client.database, server.now);
    server.find_to_read(database, &key);
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
            return Err(Failure::joined(&[b"ERR Unrecognized XCLAIM option '", word, b"'"]));
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
    let mut given = 0;
    for id in ids {
        if let Claimed::Given(_) = claim_one(server, &mut body, database, (key.bytes, args.at(2)), id, &claim)? {
            given += 1;
        }
    }
    // What is said of an entry that was given says it as well.
    if is_ahead && given == 0 {
        say_last(server, database, key.bytes, args.at(2), last, read);
        server.dirty += 1;
    }
    client.reply.array(given);
    client.reply.bytes.extend_from_slice(&body.bytes);
    Ok(())
}

pub(in crate::command) fn xautoclaim(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
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
    server.find_to_read(database, &key);
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
        let exists = server.typed_mut::<Stream>(database, &key)?.is_some_and(|stream| stream.get(id).is_some());
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
