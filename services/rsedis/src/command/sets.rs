//! Sets.

use super::lists::numbered_keys;
use super::options::{count, integer, is};
use crate::events;
use crate::failure::{Failure, Outcome, SYNTAX};
use crate::keyspace::Key;
use crate::protocol::Args;
use crate::server::Server;
use crate::session::Session;
use crate::value::{Set, Value};

pub(super) fn sadd(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database, limit) = (Key::new(args.at(1)), client.database, server.packing().intset_entries);
    let set: &mut Set = server.typed_or_new(database, &key)?;
    let added = args.from(2).iter().filter(|member| set.insert(member, limit)).count();
    if added > 0 {
        server.changed_string(database, key.bytes);
    }
    client.reply.count(added);
    Ok(())
}

pub(super) fn srem(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database) = (Key::new(args.at(1)), client.database);
    let removed = match server.typed_mut::<Set>(database, &key)? {
        Some(set) => args.from(2).iter().filter(|member| set.remove(member)).count(),
        None => 0,
    };
    server.changed(database, &key, removed);
    client.reply.count(removed);
    Ok(())
}

pub(super) fn scard(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let set = server.typed::<Set>(client.database, &Key::new(args.at(1)))?;
    client.reply.count(set.map_or(0, Set::len));
    Ok(())
}

pub(super) fn sismember(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let set = server.typed::<Set>(client.database, &Key::new(args.at(1)))?;
    client.reply.flag(set.is_some_and(|set| set.contains(args.at(2))));
    Ok(())
}

pub(super) fn smismember(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let set = server.typed::<Set>(client.database, &Key::new(args.at(1)))?;
    client.reply.array(args.len() - 2);
    args.from(2).iter().for_each(|member| client.reply.flag(set.is_some_and(|set| set.contains(member))));
    Ok(())
}

pub(super) fn smove(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (from, to, member) = (Key::new(args.at(1)), Key::new(args.at(2)), args.at(3));
    let (database, limit) = (client.database, server.packing().intset_entries);
    if server.typed_mut::<Set>(database, &from)?.is_none() {
        client.reply.integer(0);
        return Ok(());
    }
    server.typed_mut::<Set>(database, &to)?;
    let source = server.typed_mut::<Set>(database, &from)?;
    if from.bytes == to.bytes {
        client.reply.flag(source.is_some_and(|set| set.contains(member)));
        return Ok(());
    }
    let is_moved = source.is_some_and(|set| set.remove(member));
    if is_moved {
        server.notify(events::SET, "srem", database, from.bytes);
        server.changed(database, &from, 1);
        // A set that has the member is as it was: who watches it goes on.
        if server.typed_or_new::<Set>(database, &to)?.insert(member, limit) {
            server.changed_string(database, to.bytes);
            server.notify(events::SET, "sadd", database, to.bytes);
        }
    }
    client.reply.flag(is_moved);
    Ok(())
}

pub(super) fn smembers(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let set = server.typed::<Set>(client.database, &Key::new(args.at(1)))?;
    client.reply.set(set.map_or(0, Set::len));
    set.into_iter().flat_map(Set::iter).for_each(|member| client.reply.item(member));
    Ok(())
}

pub(super) fn spop(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database) = (Key::new(args.at(1)), client.database);
    if args.len() > 3 {
        return Err(SYNTAX);
    }
    let most = match args.get(2) {
        Some(text) => Some(count(text)?),
        None => None,
    };
    let mut random = server.random.clone();
    let Some(set) = server.typed_mut::<Set>(database, &key)? else {
        match most {
            Some(_) => client.reply.set(0),
            None => client.reply.null(),
        }
        return Ok(());
    };
    // Where all are taken Redis reads them first, and counts that.
    let is_read = most.is_some_and(|most| most > 0 && most >= set.len());
    let mut taken = Vec::new();
    while taken.len() < most.unwrap_or(1)
        && let Some(place) = random.below(set.len())
    {
        let member = set.get(place).to_vec();
        set.remove(&member);
        taken.push(member);
    }
    server.random = random;
    server.stats.hits += u64::from(is_read);
    if most.is_some() {
        client.reply.set(taken.len());
    }
    taken.iter().for_each(|member| client.reply.bulk(member));
    let effect: Vec<&[u8]> = [b"SREM", key.bytes].into_iter().chain(taken.iter().map(Vec::as_slice)).collect();
    if !taken.is_empty() {
        server.effects.say(database, &effect);
    }
    server.changed(database, &key, taken.len());
    Ok(())
}

/// Places of elements drawn at random: all different if the count is positive, else any, which are as many as were asked for, and are
/// drawn one by one.
pub(super) fn draw(random: &mut crate::random::Random, len: usize, count: i64) -> Drawn<'_> {
    let wanted = count.unsigned_abs() as usize;
    if count < 0 {
        let places = Box::new((0..wanted).map_while(move |_| random.below(len)));
        return Drawn { count: wanted, places };
    }
    // A shuffle that stops early; the places that were moved are kept aside.
    let mut moved = std::collections::HashMap::new();
    let places: Vec<usize> = (0..wanted.min(len))
        .map(|at| {
            let other = at + random.below(len - at).unwrap_or(0);
            let chosen = moved.get(&other).copied().unwrap_or(other);
            let here = moved.get(&at).copied().unwrap_or(at);
            moved.insert(other, here);
            chosen
        })
        .collect();
    Drawn { count: places.len(), places: Box::new(places.into_iter()) }
}

/// See [`draw`].
pub(super) struct Drawn<'a> {
    /// How many there are.
    pub(super) count: usize,
    pub(super) places: Box<dyn Iterator<Item = usize> + 'a>,
}

/// How many elements a command draws. In pairs, Redis refuses what would overflow when doubled.
pub(super) fn draw_count(text: &[u8], in_pairs: bool) -> Outcome<i64> {
    let count = integer(text)?;
    if count == i64::MIN {
        return Err(Failure::new(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ));
    }
    if in_pairs && !(-(i64::MAX / 2)..=i64::MAX / 2).contains(&count) {
        return Err(Failure::new("ERR value is out of range"));
    }
    Ok(count)
}

pub(super) fn srandmember(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    if args.len() > 3 {
        return Err(SYNTAX);
    }
    let wanted = match args.get(2) {
        Some(text) => Some(draw_count(text, false)?),
        None => None,
    };
    let mut random = server.random.clone();
    let set = server.typed::<Set>(client.database, &Key::new(args.at(1)))?;
    match (set, wanted) {
        (None, None) => client.reply.null(),
        (None, Some(_)) => client.reply.array(0),
        (Some(set), None) => {
            let place = random.below(set.len()).unwrap_or(0);
            client.reply.item(set.get(place));
        }
        (Some(set), Some(wanted)) => {
            let places = draw(&mut random, set.len(), wanted);
            client.reply.array(places.count);
            for place in places.places {
                client.reply.item(set.get(place));
                if client.reply.is_over() {
                    break;
                }
            }
        }
    }
    server.random = random;
    Ok(())
}

#[derive(Clone, Copy)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// Members of the result; at most so many.
fn combine(
    server: &mut Server,
    database: usize,
    keys: Args<'_>,
    operation: Operation,
    most: usize,
) -> Outcome<Vec<Vec<u8>>> {
    let sets = server.typed_all::<Set>(database, keys)?;
    let mut result = Vec::new();
    match operation {
        Operation::Union => {
            let mut seen = Set::default();
            for set in sets.into_iter().flatten() {
                for member in set.iter() {
                    let member = member.to_vec();
                    if seen.insert(&member, usize::MAX) {
                        result.push(member);
                    }
                }
            }
        }
        Operation::Difference => {
            let others = &sets[1..];
            let is_left = |member: &Vec<u8>| !others.iter().flatten().any(|set| set.contains(member));
            let first = sets[0].into_iter().flat_map(Set::iter);
            result.extend(first.map(|member| member.to_vec()).filter(is_left));
        }
        Operation::Intersection => {
            let Some(mut sets) = sets.into_iter().collect::<Option<Vec<&Set>>>() else { return Ok(result) };
            sets.sort_by_key(|set| set.len());
            let is_in_all = |member: &Vec<u8>| sets[1..].iter().all(|set| set.contains(member));
            result.extend(sets[0].iter().map(|member| member.to_vec()).filter(is_in_all).take(most));
        }
    }
    Ok(result)
}

fn reply_combined(server: &mut Server, client: &mut Session, args: Args<'_>, operation: Operation) -> Outcome {
    let members = combine(server, client.database, args.from(1), operation, usize::MAX)?;
    client.reply.set(members.len());
    members.iter().for_each(|member| client.reply.bulk(member));
    Ok(())
}

fn store_combined(server: &mut Server, client: &mut Session, args: Args<'_>, operation: Operation) -> Outcome {
    let (target, database) = (Key::new(args.at(1)), client.database);
    let members = combine(server, database, args.from(2), operation, usize::MAX)?;
    let limit = server.packing().intset_entries;
    let mut set = Set::default();
    for member in &members {
        set.insert(member, limit);
    }
    let was_there = server.put(database, &target, Value::Set(set));
    if !members.is_empty() {
        server.changed_string(database, target.bytes);
    } else if was_there {
        server.replaced_by_nothing(database, target.bytes);
    }
    client.reply.count(members.len());
    Ok(())
}

pub(super) fn sunion(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    reply_combined(server, client, args, Operation::Union)
}

pub(super) fn sinter(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    reply_combined(server, client, args, Operation::Intersection)
}

pub(super) fn sdiff(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    reply_combined(server, client, args, Operation::Difference)
}

pub(super) fn sunionstore(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    store_combined(server, client, args, Operation::Union)
}

pub(super) fn sinterstore(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    store_combined(server, client, args, Operation::Intersection)
}

pub(super) fn sdiffstore(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    store_combined(server, client, args, Operation::Difference)
}

/// `numkeys key … [LIMIT n]`: the keys and the limit.
pub(super) fn limited_keys<'a>(args: Args<'a>) -> Outcome<(Args<'a>, usize)> {
    let refused = Failure::new("ERR Number of keys can't be greater than number of args");
    let (keys, rest, number) =
        numbered_keys(args, 1).map_err(|failure| if failure == SYNTAX { refused } else { failure })?;
    let (mut limit, mut at) = (0, 0);
    // The last one counts.
    while let Some(word) = rest.get(at) {
        let value = rest.get(at + 1).filter(|_| is(word, "LIMIT")).ok_or(SYNTAX)?;
        limit = count(value).map_err(|_| Failure::new("ERR LIMIT can't be negative"))?;
        at += 2;
    }
    Ok((keys.to(number), if limit == 0 { usize::MAX } else { limit }))
}

pub(super) fn sintercard(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (keys, limit) = limited_keys(args)?;
    let members = combine(server, client.database, keys, Operation::Intersection, limit)?;
    client.reply.count(members.len());
    Ok(())
}
