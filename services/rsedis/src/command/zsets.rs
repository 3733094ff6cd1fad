//! Sorted sets, member by member.

use super::lists::{most_of, numbered_keys, wait_for_any};
use super::options::{count, deadline, double, is};
use super::sets::{draw, draw_count};
use crate::events;
use crate::failure::{Failure, Outcome, SYNTAX};
use crate::keyspace::Key;
use crate::protocol::Args;
use crate::server::Server;
use crate::session::Session;
use crate::structure::listpack::Item;
use crate::value::Zset;
use crate::waiting::{TimeoutReply, wait};

#[derive(Default)]
struct AddOptions {
    if_absent: bool,
    if_present: bool,
    if_greater: bool,
    if_less: bool,
    counts_changed: bool,
    increments: bool,
}

const NOT_A_NUMBER: Failure = Failure::new("ERR resulting score is not a number (NaN)");

/// What one pair of ZADD did.
enum Added {
    Nothing,
    Same(f64),
    Changed(f64),
    New(f64),
}

fn add_one(
    zset: &mut Zset,
    member: &[u8],
    score: f64,
    options: &AddOptions,
    packing: &crate::value::Packing,
) -> Outcome<Added> {
    let Some(before) = zset.score(member) else {
        if options.if_present {
            return Ok(Added::Nothing);
        }
        zset.insert(member, score, packing);
        return Ok(Added::New(score));
    };
    if options.if_absent {
        return Ok(Added::Nothing);
    }
    let score = if options.increments { before + score } else { score };
    if score.is_nan() {
        return Err(NOT_A_NUMBER);
    }
    if (options.if_less && score >= before) || (options.if_greater && score <= before) {
        return Ok(Added::Nothing);
    }
    if score == before {
        return Ok(Added::Same(score));
    }
    zset.insert(member, score, packing);
    Ok(Added::Changed(score))
}

fn add(server: &mut Server, client: &mut Session, key: &Key<'_>, pairs: Args<'_>, options: &AddOptions) -> Outcome {
    let (database, packing) = (client.database, server.packing());
    // Nearly always there is one: what is collected of the others takes no memory then.
    let first = double(pairs.at(0))?;
    let others: Vec<f64> = pairs.iter().step_by(2).skip(1).map(double).collect::<Outcome<_>>()?;
    if options.if_present && server.typed_mut::<Zset>(database, key)?.is_none() {
        match options.increments {
            true => client.reply.null(),
            false => client.reply.integer(0),
        }
        return Ok(());
    }
    let zset: &mut Zset = server.typed_or_new(database, key)?;
    let (mut added, mut changed, mut last) = (0, 0, None);
    let mut failure = None;
    for (at, score) in std::iter::once(first).chain(others).enumerate() {
        match add_one(zset, pairs.at(at * 2 + 1), score, options, &packing) {
            Ok(Added::New(score)) => {
                added += 1;
                last = Some(score);
            }
            Ok(Added::Changed(score)) => {
                changed += 1;
                last = Some(score);
            }
            Ok(Added::Same(score)) => last = Some(score),
            Ok(Added::Nothing) => {}
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    server.changed(database, key, added + changed);
    if added + changed > 0 {
        server.notify(events::ZSET, if options.increments { "zincr" } else { "zadd" }, database, key.bytes);
    }
    match (failure, last) {
        (Some(failure), _) => return Err(failure),
        (None, Some(score)) if options.increments => client.reply.double(score),
        (None, None) if options.increments => client.reply.null(),
        _ => client.reply.count(if options.counts_changed { added + changed } else { added }),
    }
    Ok(())
}

pub(super) fn zadd(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    add_with(server, client, args, AddOptions::default())
}

/// As in Redis an increment that is a word of ZADD's is taken for that.
pub(super) fn zincrby(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    add_with(server, client, args, AddOptions { increments: true, ..AddOptions::default() })
}

fn add_with(server: &mut Server, client: &mut Session, args: Args<'_>, mut options: AddOptions) -> Outcome {
    let mut at = 2;
    while let Some(word) = args.get(at) {
        match word {
            _ if is(word, "NX") => options.if_absent = true,
            _ if is(word, "XX") => options.if_present = true,
            _ if is(word, "GT") => options.if_greater = true,
            _ if is(word, "LT") => options.if_less = true,
            _ if is(word, "CH") => options.counts_changed = true,
            _ if is(word, "INCR") => options.increments = true,
            _ => break,
        }
        at += 1;
    }
    let pairs = args.from(at);
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(SYNTAX);
    }
    let AddOptions { if_absent, if_present, if_greater, if_less, increments, .. } = options;
    if if_absent && if_present {
        return Err(Failure::new("ERR XX and NX options at the same time are not compatible"));
    }
    if [if_greater, if_less, if_absent].into_iter().filter(|is_set| *is_set).count() > 1 {
        return Err(Failure::new("ERR GT, LT, and/or NX options at the same time are not compatible"));
    }
    if increments && pairs.len() > 2 {
        return Err(Failure::new("ERR INCR option supports a single increment-element pair"));
    }
    add(server, client, &Key::new(args.at(1)), pairs, &options)
}

pub(super) fn zrem(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database) = (Key::new(args.at(1)), client.database);
    let removed = match server.typed_mut::<Zset>(database, &key)? {
        Some(zset) => args.from(2).iter().filter(|member| zset.remove(member).is_some()).count(),
        None => 0,
    };
    server.changed(database, &key, removed);
    client.reply.count(removed);
    Ok(())
}

pub(super) fn zcard(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let zset = server.typed::<Zset>(client.database, &Key::new(args.at(1)))?;
    client.reply.count(zset.map_or(0, Zset::len));
    Ok(())
}

fn reply_score(client: &mut Session, score: Option<f64>) {
    match score {
        Some(score) => client.reply.double(score),
        None => client.reply.null(),
    }
}

pub(super) fn zscore(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let zset = server.typed::<Zset>(client.database, &Key::new(args.at(1)))?;
    reply_score(client, zset.and_then(|zset| zset.score(args.at(2))));
    Ok(())
}

pub(super) fn zmscore(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let zset = server.typed::<Zset>(client.database, &Key::new(args.at(1)))?;
    client.reply.array(args.len() - 2);
    args.from(2).iter().for_each(|member| reply_score(client, zset.and_then(|zset| zset.score(member))));
    Ok(())
}

fn rank(server: &mut Server, client: &mut Session, args: Args<'_>, is_reversed: bool) -> Outcome {
    let zset = server.typed::<Zset>(client.database, &Key::new(args.at(1)))?;
    match zset.and_then(|zset| Some((zset.rank(args.at(2))?, zset.len()))) {
        Some((rank, len)) => client.reply.count(if is_reversed { len - 1 - rank } else { rank }),
        None => client.reply.null(),
    }
    Ok(())
}

pub(super) fn zrank(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    rank(server, client, args, false)
}

pub(super) fn zrevrank(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    rank(server, client, args, true)
}

/// Takes so many members from an end, in order.
fn take(zset: &mut Zset, is_max: bool, most: usize) -> Vec<(Vec<u8>, f64)> {
    let len = zset.len();
    let count = most.min(len);
    let mut taken = Vec::with_capacity(count);
    let mut note = |member: Item<'_>, score| taken.push((member.to_vec(), score));
    if is_max {
        zset.range_reversed(len - count, len, &mut note);
        zset.remove_range(len - count, len);
    } else {
        zset.range(0, count, &mut note);
        zset.remove_range(0, count);
    }
    taken
}

fn pop(server: &mut Server, client: &mut Session, args: Args<'_>, is_max: bool) -> Outcome {
    let (key, database) = (Key::new(args.at(1)), client.database);
    if args.len() > 3 {
        return Err(SYNTAX);
    }
    let most = match args.get(2) {
        Some(text) => Some(count(text)?),
        None => None,
    };
    let zset = server.typed_mut::<Zset>(database, &key)?;
    let taken = zset.map_or(Vec::new(), |zset| take(zset, is_max, most.unwrap_or(1)));
    let is_nested = client.reply.is_resp3 && most.is_some();
    client.reply.array(taken.len() * if is_nested { 1 } else { 2 });
    for (member, score) in &taken {
        if is_nested {
            client.reply.array(2);
        }
        client.reply.bulk(member);
        client.reply.double(*score);
    }
    server.changed(database, &key, taken.len());
    Ok(())
}

pub(super) fn zpopmin(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    pop(server, client, args, false)
}

pub(super) fn zpopmax(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    pop(server, client, args, true)
}

fn pop_or_wait(server: &mut Server, client: &mut Session, args: Args<'_>, is_max: bool) -> Outcome {
    let database = client.database;
    let deadline = deadline(args.at(args.len() - 1), server.now)?;
    let names = args.to(args.len() - 1).from(1);
    for name in names.iter() {
        if !client.is_served(name) {
            continue;
        }
        let key = Key::new(name);
        let zset = match server.typed_mut::<Zset>(database, &key) {
            Ok(Some(zset)) => zset,
            Err(failure) if !client.is_retrying => return Err(failure),
            _ => continue,
        };
        let taken = take(zset, is_max, 1);
        client.reply.array(3);
        client.reply.bulk(name);
        for (member, score) in &taken {
            client.reply.bulk(member);
            client.reply.double(*score);
        }
        server.changed(database, &key, 1);
        server.effects.say(database, &[if is_max { b"ZPOPMAX" } else { b"ZPOPMIN" }, name]);
        return Ok(());
    }
    wait(server, client, args, names.iter().map(<[u8]>::to_vec).collect(), deadline, TimeoutReply::NullArray);
    Ok(())
}

pub(super) fn bzpopmin(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    pop_or_wait(server, client, args, false)
}

pub(super) fn bzpopmax(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    pop_or_wait(server, client, args, true)
}

/// `numkeys key … MIN|MAX [COUNT count]`; false if no sorted set has anything.
fn pop_many(server: &mut Server, client: &mut Session, args: Args<'_>, first: usize) -> Outcome<bool> {
    let database = client.database;
    let (keys, rest, number) = numbered_keys(args, first)?;
    let is_max = match rest.get(0).ok_or(SYNTAX)? {
        word if is(word, "MIN") => false,
        word if is(word, "MAX") => true,
        _ => return Err(SYNTAX),
    };
    let most = most_of(rest.from(1))?;
    if first > 1 {
        // The timeout is read last.
        deadline(args.at(1), server.now)?;
    }
    for name in keys.iter().take(number) {
        if !client.is_served(name) {
            continue;
        }
        let key = Key::new(name);
        let zset = match server.typed_mut::<Zset>(database, &key) {
            Ok(Some(zset)) => zset,
            Err(failure) if !client.is_retrying => return Err(failure),
            _ => continue,
        };
        let taken = take(zset, is_max, most);
        client.reply.array(2);
        client.reply.bulk(name);
        client.reply.array(taken.len());
        for (member, score) in &taken {
            client.reply.array(2);
            client.reply.bulk(member);
            client.reply.double(*score);
        }
        server.changed_string(database, name);
        let (word, event) = if is_max { (b"ZPOPMAX", "zpopmax") } else { (b"ZPOPMIN", "zpopmin") };
        server.notify(events::ZSET, event, database, name);
        server.drop_empty(database, &key);
        server.effects.say(database, &[word, name, taken.len().to_string().as_bytes()]);
        return Ok(true);
    }
    Ok(false)
}

pub(super) fn zmpop(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    if !pop_many(server, client, args, 1)? {
        client.reply.null_array();
    }
    Ok(())
}

pub(super) fn bzmpop(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    if !pop_many(server, client, args, 2)? {
        let deadline = deadline(args.at(1), server.now)?;
        wait_for_any(server, client, args, deadline)?;
    }
    Ok(())
}

pub(super) fn zrandmember(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let wanted = match args.get(2) {
        Some(text) => Some(draw_count(text, args.len() == 4)?),
        None => None,
    };
    let with_scores = match args.get(3) {
        None => false,
        Some(word) if is(word, "WITHSCORES") && args.len() == 4 => true,
        Some(_) => return Err(SYNTAX),
    };
    let mut random = server.random.clone();
    let zset = server.typed::<Zset>(client.database, &Key::new(args.at(1)))?;
    match (zset, wanted) {
        (None, None) => client.reply.null(),
        (None, Some(_)) => client.reply.array(0),
        (Some(zset), None) => match zset.at(random.below(zset.len()).unwrap_or(0)) {
            Some((member, _)) => client.reply.bulk(&member),
            None => client.reply.null(),
        },
        (Some(zset), Some(wanted)) => {
            let places = draw(&mut random, zset.len(), wanted);
            let is_nested = with_scores && client.reply.is_resp3;
            client.reply.array(places.count * if with_scores && !is_nested { 2 } else { 1 });
            for (member, score) in places.places.filter_map(|place| zset.at(place)) {
                if client.reply.is_over() {
                    break;
                }
                if is_nested {
                    client.reply.array(2);
                }
                client.reply.bulk(&member);
                if with_scores {
                    client.reply.double(score);
                }
            }
        }
    }
    server.random = random;
    Ok(())
}
