//! Lists.

use super::options::{count, deadline, integer, is};
use crate::events;
use crate::failure::{Failure, NO_KEY, OUT_OF_RANGE, Outcome, SYNTAX};
use crate::keyspace::Key;
use crate::protocol::Args;
use crate::server::Server;
use crate::session::Session;
use crate::value::{End, List, clamp_range};
use crate::waiting::{TimeoutReply, wait};

fn push(server: &mut Server, client: &mut Session, args: Args<'_>, end: End, only_existing: bool) -> Outcome {
    let (key, database, size) = (Key::new(args.at(1)), client.database, server.packing().list_size);
    if only_existing && server.find(database, &key).is_none() {
        client.reply.integer(0);
        return Ok(());
    }
    let list: &mut List = server.typed_or_new(database, &key)?;
    args.from(2).iter().for_each(|text| list.push(end, text, size));
    client.reply.count(list.len());
    server.changed_string(database, key.bytes);
    Ok(())
}

pub(super) fn lpush(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    push(server, client, args, End::Front, false)
}

pub(super) fn rpush(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    push(server, client, args, End::Back, false)
}

pub(super) fn lpushx(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    push(server, client, args, End::Front, true)
}

pub(super) fn rpushx(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    push(server, client, args, End::Back, true)
}

fn pop(server: &mut Server, client: &mut Session, args: Args<'_>, end: End, name: &str) -> Outcome {
    let (key, database) = (Key::new(args.at(1)), client.database);
    if args.len() > 3 {
        return Err(Failure::arity(name));
    }
    let most = match args.get(2) {
        Some(text) => Some(count(text)?),
        None => None,
    };
    let Some(list) = server.typed_mut::<List>(database, &key)? else {
        match most {
            Some(_) => client.reply.null_array(),
            None => client.reply.null(),
        }
        return Ok(());
    };
    let taken = most.unwrap_or(1).min(list.len());
    if most.is_some() {
        client.reply.array(taken);
    }
    for _ in 0..taken {
        list.pop(end, |item| client.reply.item(item));
    }
    server.changed(database, &key, taken);
    Ok(())
}

pub(super) fn lpop(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    pop(server, client, args, End::Front, "lpop")
}

pub(super) fn rpop(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    pop(server, client, args, End::Back, "rpop")
}

pub(super) fn llen(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let list = server.typed::<List>(client.database, &Key::new(args.at(1)))?;
    client.reply.count(list.map_or(0, List::len));
    Ok(())
}

pub(super) fn lrange(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (start, stop) = (integer(args.at(2))?, integer(args.at(3))?);
    let list = server.typed::<List>(client.database, &Key::new(args.at(1)))?;
    let Some((list, (from, to))) = list.and_then(|list| Some((list, clamp_range(start, stop, list.len())?))) else {
        client.reply.array(0);
        return Ok(());
    };
    client.reply.array(to - from + 1);
    list.iter_from(from).take(to - from + 1).for_each(|item| client.reply.item(item));
    Ok(())
}

pub(super) fn lindex(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let list = server.typed::<List>(client.database, &Key::new(args.at(1)))?;
    let Some(list) = list else {
        client.reply.null();
        return Ok(());
    };
    match list.index(integer(args.at(2))?).and_then(|index| list.get(index)) {
        Some(item) => client.reply.item(item),
        None => client.reply.null(),
    }
    Ok(())
}

pub(super) fn lset(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database) = (Key::new(args.at(1)), client.database);
    let list = server.typed_mut::<List>(database, &key)?.ok_or(NO_KEY)?;
    let index = list.index(integer(args.at(2))?).ok_or(OUT_OF_RANGE)?;
    list.set(index, args.at(3));
    server.changed_string(database, key.bytes);
    client.reply.ok();
    Ok(())
}

pub(super) fn linsert(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database, size) = (Key::new(args.at(1)), client.database, server.packing().list_size);
    let is_after = match args.at(2) {
        word if is(word, "AFTER") => true,
        word if is(word, "BEFORE") => false,
        _ => return Err(SYNTAX),
    };
    let Some(list) = server.typed_mut::<List>(database, &key)? else {
        client.reply.integer(0);
        return Ok(());
    };
    let Some(index) = list.iter().position(|item| item.is(args.at(3))) else {
        client.reply.integer(-1);
        return Ok(());
    };
    list.insert(index + usize::from(is_after), args.at(4), size);
    client.reply.count(list.len());
    server.changed_string(database, key.bytes);
    Ok(())
}

pub(super) fn lrem(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database) = (Key::new(args.at(1)), client.database);
    let most = integer(args.at(2))?;
    let removed = server.typed_mut::<List>(database, &key)?.map_or(0, |list| list.remove(most, args.at(3)));
    server.changed(database, &key, removed);
    client.reply.count(removed);
    Ok(())
}

pub(super) fn ltrim(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database) = (Key::new(args.at(1)), client.database);
    let (start, stop) = (integer(args.at(2))?, integer(args.at(3))?);
    if let Some(list) = server.typed_mut::<List>(database, &key)? {
        list.trim(clamp_range(start, stop, list.len()));
        server.changed(database, &key, 1);
    }
    client.reply.ok();
    Ok(())
}

pub(super) fn lpos(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (mut rank, mut wanted, mut most) = (1, None, 0);
    let mut at = 3;
    while let Some(word) = args.get(at) {
        let Some(value) = args.get(at + 1) else { return Err(SYNTAX) };
        if is(word, "RANK") {
            rank = integer(value)?;
            if rank == 0 {
                return Err(Failure::new(
                    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to \
                     start from the end of the list",
                ));
            }
        } else if is(word, "COUNT") {
            wanted = Some(count(value).map_err(|_| Failure::new("ERR COUNT can't be negative"))?);
        } else if is(word, "MAXLEN") {
            most = count(value).map_err(|_| Failure::new("ERR MAXLEN can't be negative"))?;
        } else {
            return Err(SYNTAX);
        }
        at += 2;
    }
    let Some(list) = server.typed::<List>(client.database, &Key::new(args.at(1)))? else {
        match wanted {
            Some(_) => client.reply.array(0),
            None => client.reply.null(),
        }
        return Ok(());
    };
    let looked_at = if most == 0 { list.len() } else { most.min(list.len()) };
    // The least has no opposite, and counts as -1 in Redis.
    let skipped = rank.checked_abs().unwrap_or(1) as usize - 1;
    let limit = wanted.map_or(1, |wanted| if wanted == 0 { usize::MAX } else { wanted });
    let is_it = |(_, item): &(usize, crate::structure::listpack::Item<'_>)| item.is(args.at(2));
    let found: Vec<usize> = if rank > 0 {
        let places = list.iter().enumerate().take(looked_at).filter(is_it).map(|(place, _)| place);
        places.skip(skipped).take(limit).collect()
    } else {
        let first = list.len() - looked_at;
        let places = list.iter_from(first).enumerate().filter(is_it).map(|(place, _)| place + first);
        let places: Vec<usize> = places.collect();
        places.into_iter().rev().skip(skipped).take(limit).collect()
    };
    match (wanted, found.first()) {
        (Some(_), _) => {
            client.reply.array(found.len());
            found.iter().for_each(|place| client.reply.count(*place));
        }
        (None, Some(place)) => client.reply.count(*place),
        (None, None) => client.reply.null(),
    }
    Ok(())
}

fn end(word: &[u8]) -> Outcome<End> {
    match word {
        word if is(word, "LEFT") => Ok(End::Front),
        word if is(word, "RIGHT") => Ok(End::Back),
        _ => Err(SYNTAX),
    }
}

/// Moves an element; false if there is none.
fn move_element(server: &mut Server, client: &mut Session, args: Args<'_>, from: End, to: End) -> Outcome<bool> {
    let (source, target) = (Key::new(args.at(1)), Key::new(args.at(2)));
    let (database, size) = (client.database, server.packing().list_size);
    if server.typed_mut::<List>(database, &source)?.is_none() {
        return Ok(false);
    }
    // The target's type is checked before anything moves.
    client.answers_wrong_type = client.is_retrying;
    server.typed_mut::<List>(database, &target)?;
    let mut taken = Vec::new();
    if let Some(list) = server.typed_mut::<List>(database, &source)? {
        list.pop(from, |item| item.push_to(&mut taken));
    }
    server.typed_or_new::<List>(database, &target)?.push(to, &taken, size);
    server.changed_string(database, source.bytes);
    server.touch(database, target.bytes);
    server.notify(events::LIST, if to == End::Front { "lpush" } else { "rpush" }, database, target.bytes);
    server.notify(events::LIST, if from == End::Front { "lpop" } else { "rpop" }, database, source.bytes);
    server.drop_empty(database, &source);
    let word = |end| if end == End::Front { b"LEFT".as_slice() } else { b"RIGHT" };
    match server.running.is_some_and(|command| command.name.ends_with("rpoplpush")) {
        true => server.effects.say(database, &[b"RPOPLPUSH", source.bytes, target.bytes]),
        false => server.effects.say(database, &[b"LMOVE", source.bytes, target.bytes, word(from), word(to)]),
    }
    client.reply.bulk(&taken);
    Ok(true)
}

fn move_or_null(server: &mut Server, client: &mut Session, args: Args<'_>, from: End, to: End) -> Outcome {
    if !move_element(server, client, args, from, to)? {
        client.reply.null();
    }
    Ok(())
}

pub(super) fn lmove(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (from, to) = (end(args.at(3))?, end(args.at(4))?);
    move_or_null(server, client, args, from, to)
}

pub(super) fn rpoplpush(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    move_or_null(server, client, args, End::Back, End::Front)
}

fn move_or_wait(
    server: &mut Server,
    client: &mut Session,
    args: Args<'_>,
    ends: (End, End),
    timeout: &[u8],
) -> Outcome {
    let deadline = deadline(timeout, server.now)?;
    if !move_element(server, client, args, ends.0, ends.1)? {
        wait(server, client, args, vec![args.at(1).to_vec()], deadline, TimeoutReply::Null);
    }
    Ok(())
}

pub(super) fn blmove(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let ends = (end(args.at(3))?, end(args.at(4))?);
    move_or_wait(server, client, args, ends, args.at(5))
}

pub(super) fn brpoplpush(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    move_or_wait(server, client, args, (End::Back, End::Front), args.at(3))
}

fn pop_or_wait(server: &mut Server, client: &mut Session, args: Args<'_>, end: End) -> Outcome {
    let database = client.database;
    let deadline = deadline(args.at(args.len() - 1), server.now)?;
    let names = args.to(args.len() - 1).from(1);
    for name in names.iter() {
        if !client.is_served(name) {
            continue;
        }
        let key = Key::new(name);
        let list = match server.typed_mut::<List>(database, &key) {
            Ok(Some(list)) => list,
            Err(failure) if !client.is_retrying => return Err(failure),
            _ => continue,
        };
        client.reply.array(2);
        client.reply.bulk(name);
        list.pop(end, |item| client.reply.item(item));
        let (word, event) = if end == End::Front { (b"LPOP", "lpop") } else { (b"RPOP", "rpop") };
        server.changed_string(database, name);
        server.notify(events::LIST, event, database, name);
        server.drop_empty(database, &key);
        server.effects.say(database, &[word, name]);
        return Ok(());
    }
    wait(server, client, args, names.iter().map(<[u8]>::to_vec).collect(), deadline, TimeoutReply::NullArray);
    Ok(())
}

pub(super) fn blpop(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    pop_or_wait(server, client, args, End::Front)
}

pub(super) fn brpop(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    pop_or_wait(server, client, args, End::Back)
}

/// `numkeys key …`: the keys, and what follows them.
pub(super) fn numbered_keys<'a>(args: Args<'a>, at: usize) -> Outcome<(Args<'a>, Args<'a>, usize)> {
    let refused = Failure::new("ERR numkeys should be greater than 0");
    let number = crate::number::parse_integer(args.at(at)).filter(|number| *number > 0).ok_or(refused)?;
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    if number > args.len() - at - 1 {
        return Err(SYNTAX);
    }
    Ok((args.from(at + 1), args.from(at + 1 + number), number))
}

/// `[COUNT count]` at the end: how many elements are to be taken.
pub(super) fn most_of(rest: Args<'_>) -> Outcome<usize> {
    let Some(word) = rest.get(0) else { return Ok(1) };
    let value = rest.get(1).filter(|_| is(word, "COUNT")).ok_or(SYNTAX)?;
    let most = count(value).ok().filter(|count| *count > 0);
    let most = most.ok_or(Failure::new("ERR count should be greater than 0"))?;
    if rest.len() > 2 { Err(SYNTAX) } else { Ok(most) }
}

/// Lets a client wait for one of the keys behind its timeout: `timeout numkeys key …`.
pub(super) fn wait_for_any(
    server: &mut Server,
    client: &mut Session,
    args: Args<'_>,
    deadline: Option<i64>,
) -> Outcome {
    let (keys, _, number) = numbered_keys(args, 2)?;
    let keys = keys.to(number).iter().map(<[u8]>::to_vec).collect();
    wait(server, client, args, keys, deadline, TimeoutReply::NullArray);
    Ok(())
}

/// `numkeys key … LEFT|RIGHT [COUNT count]`; false if no list has anything.
fn pop_many(server: &mut Server, client: &mut Session, args: Args<'_>, first: usize) -> Outcome<bool> {
    let database = client.database;
    let (keys, rest, number) = numbered_keys(args, first)?;
    let end_word = rest.get(0).ok_or(SYNTAX)?;
    let end = end(end_word)?;
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
        let list = match server.typed_mut::<List>(database, &key) {
            Ok(Some(list)) => list,
            Err(failure) if !client.is_retrying => return Err(failure),
            _ => continue,
        };
        let taken = most.min(list.len());
        client.reply.array(2);
        client.reply.bulk(name);
        client.reply.array(taken);
        for _ in 0..taken {
            list.pop(end, |item| client.reply.item(item));
        }
        let (word, event) = if end == End::Front { (b"LPOP", "lpop") } else { (b"RPOP", "rpop") };
        server.changed_string(database, name);
        server.notify(events::LIST, event, database, name);
        server.drop_empty(database, &key);
        server.effects.say(database, &[word, name, taken.to_string().as_bytes()]);
        return Ok(true);
    }
    Ok(false)
}

pub(super) fn lmpop(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    if !pop_many(server, client, args, 1)? {
        client.reply.null_array();
    }
    Ok(())
}

pub(super) fn blmpop(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    if !pop_many(server, client, args, 2)? {
        let deadline = deadline(args.at(1), server.now)?;
        wait_for_any(server, client, args, deadline)?;
    }
    Ok(())
}
