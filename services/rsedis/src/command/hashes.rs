//! Hashes.

use super::options::{double, integer, is};
use super::sets::{draw, draw_count};
use super::strings::float_sum;
use crate::failure::{Failure, Outcome, SYNTAX};
use crate::keyspace::Key;
use crate::number::{integer_text, parse_integer};
use crate::protocol::Args;
use crate::server::Server;
use crate::session::Session;
use crate::structure::listpack::Item;
use crate::value::Hash;

/// Sets fields; how many are new.
fn set_fields(server: &mut Server, client: &mut Session, args: Args<'_>, name: &str) -> Outcome<usize> {
    if !args.len().is_multiple_of(2) {
        return Err(Failure::arity(name));
    }
    let (key, database, packing) = (Key::new(args.at(1)), client.database, server.packing());
    let hash: &mut Hash = server.typed_or_new(database, &key)?;
    let mut added = 0;
    for at in (2..args.len()).step_by(2) {
        added += usize::from(hash.set(args.at(at), args.at(at + 1), &packing));
    }
    server.changed_string(database, key.bytes);
    Ok(added)
}

pub(super) fn hset(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let added = set_fields(server, client, args, "hset")?;
    client.reply.count(added);
    Ok(())
}

pub(super) fn hmset(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    set_fields(server, client, args, "hmset")?;
    client.reply.ok();
    Ok(())
}

pub(super) fn hsetnx(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database, packing) = (Key::new(args.at(1)), client.database, server.packing());
    let hash: &mut Hash = server.typed_or_new(database, &key)?;
    let is_absent = hash.get(args.at(2)).is_none();
    if is_absent {
        hash.set(args.at(2), args.at(3), &packing);
        server.changed_string(database, key.bytes);
    }
    client.reply.flag(is_absent);
    Ok(())
}

fn reply_value(client: &mut Session, value: Option<Item<'_>>) {
    match value {
        Some(item) => client.reply.item(item),
        None => client.reply.null(),
    }
}

pub(super) fn hget(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let hash = server.typed::<Hash>(client.database, &Key::new(args.at(1)))?;
    reply_value(client, hash.and_then(|hash| hash.get(args.at(2))));
    Ok(())
}

pub(super) fn hmget(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let hash = server.typed::<Hash>(client.database, &Key::new(args.at(1)))?;
    client.reply.array(args.len() - 2);
    args.from(2).iter().for_each(|field| reply_value(client, hash.and_then(|hash| hash.get(field))));
    Ok(())
}

pub(super) fn hexists(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let hash = server.typed::<Hash>(client.database, &Key::new(args.at(1)))?;
    client.reply.flag(hash.is_some_and(|hash| hash.get(args.at(2)).is_some()));
    Ok(())
}

pub(super) fn hstrlen(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let hash = server.typed::<Hash>(client.database, &Key::new(args.at(1)))?;
    let length = match hash.and_then(|hash| hash.get(args.at(2))) {
        None => 0,
        Some(Item::Bytes(bytes)) => bytes.len(),
        Some(Item::Integer(number)) => integer_text(number).len(),
    };
    client.reply.count(length);
    Ok(())
}

pub(super) fn hlen(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let hash = server.typed::<Hash>(client.database, &Key::new(args.at(1)))?;
    client.reply.count(hash.map_or(0, Hash::len));
    Ok(())
}

pub(super) fn hdel(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database) = (Key::new(args.at(1)), client.database);
    let removed = match server.typed_mut::<Hash>(database, &key)? {
        Some(hash) => args.from(2).iter().filter(|field| hash.remove(field)).count(),
        None => 0,
    };
    server.changed(database, &key, removed);
    client.reply.count(removed);
    Ok(())
}

pub(super) fn hgetall(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let hash = server.typed::<Hash>(client.database, &Key::new(args.at(1)))?;
    client.reply.map(hash.map_or(0, Hash::len));
    if let Some(hash) = hash {
        hash.each(|field, value| {
            client.reply.item(field);
            client.reply.item(value);
        });
    }
    Ok(())
}

pub(super) fn hkeys(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let hash = server.typed::<Hash>(client.database, &Key::new(args.at(1)))?;
    client.reply.array(hash.map_or(0, Hash::len));
    if let Some(hash) = hash {
        hash.each(|field, _| client.reply.item(field));
    }
    Ok(())
}

pub(super) fn hvals(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let hash = server.typed::<Hash>(client.database, &Key::new(args.at(1)))?;
    client.reply.array(hash.map_or(0, Hash::len));
    if let Some(hash) = hash {
        hash.each(|_, value| client.reply.item(value));
    }
    Ok(())
}

pub(super) fn hincrby(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database, packing) = (Key::new(args.at(1)), client.database, server.packing());
    let by = integer(args.at(3))?;
    let hash = server.typed_mut::<Hash>(database, &key)?;
    let before = match hash.as_ref().and_then(|hash| hash.get(args.at(2))) {
        None => 0,
        Some(Item::Integer(number)) => number,
        Some(Item::Bytes(text)) => parse_integer(text).ok_or(Failure::new("ERR hash value is not an integer"))?,
    };
    let after = before.checked_add(by).ok_or(Failure::new("ERR increment or decrement would overflow"))?;
    server.typed_or_new::<Hash>(database, &key)?.set(args.at(2), &integer_text(after), &packing);
    server.changed_string(database, key.bytes);
    client.reply.integer(after);
    Ok(())
}

pub(super) fn hincrbyfloat(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database, packing) = (Key::new(args.at(1)), client.database, server.packing());
    // The increment is looked at before the key.
    if double(args.at(3)).is_ok_and(f64::is_infinite) {
        return Err(Failure::new("ERR value is NaN or Infinity"));
    }
    float_sum(b"0", args.at(3), crate::failure::NOT_FLOAT)?;
    let hash = server.typed_mut::<Hash>(database, &key)?;
    let before = hash.and_then(|hash| hash.get(args.at(2)).map(|item| item.to_vec()));
    let before = before.unwrap_or_else(|| b"0".to_vec());
    let after = float_sum(&before, args.at(3), Failure::new("ERR hash value is not a float"))?;
    server.typed_or_new::<Hash>(database, &key)?.set(args.at(2), &after, &packing);
    server.effects.say(database, &[b"HSET", key.bytes, args.at(2), &after]);
    server.changed_string(database, key.bytes);
    client.reply.bulk(&after);
    Ok(())
}

pub(super) fn hrandfield(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let wanted = match args.get(2) {
        Some(text) => Some(draw_count(text, args.len() == 4)?),
        None => None,
    };
    let with_values = match args.get(3) {
        None => false,
        Some(word) if is(word, "WITHVALUES") && args.len() == 4 => true,
        Some(_) => return Err(SYNTAX),
    };
    let mut random = server.random.clone();
    let hash = server.typed::<Hash>(client.database, &Key::new(args.at(1)))?;
    match (hash, wanted) {
        (None, None) => client.reply.null(),
        (None, Some(_)) => client.reply.array(0),
        (Some(hash), None) => {
            let place = random.below(hash.len()).unwrap_or(0);
            client.reply.item(hash.at(place).0);
        }
        (Some(hash), Some(wanted)) => {
            let places = draw(&mut random, hash.len(), wanted);
            let is_nested = with_values && client.reply.is_resp3;
            client.reply.array(places.count * if with_values && !is_nested { 2 } else { 1 });
            for place in places.places {
                if client.reply.is_over() {
                    break;
                }
                let (field, value) = hash.at(place);
                if is_nested {
                    client.reply.array(2);
                }
                client.reply.item(field);
                if with_values {
                    client.reply.item(value);
                }
            }
        }
    }
    server.random = random;
    Ok(())
}
