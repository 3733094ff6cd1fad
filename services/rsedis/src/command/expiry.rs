//! Keys that expire: relative and absolute, seconds and milliseconds.

use super::options::{integer, is};
use crate::failure::{Failure, Outcome};
use crate::keyspace::Key;
use crate::protocol::Args;
use crate::server::Server;
use crate::session::Session;

#[derive(Default)]
struct Conditions {
    if_none: bool,
    if_some: bool,
    if_greater: bool,
    if_less: bool,
}

fn conditions(args: Args<'_>) -> Outcome<Conditions> {
    let mut found = Conditions::default();
    for word in args.iter() {
        if is(word, "NX") {
            found.if_none = true;
        } else if is(word, "XX") {
            found.if_some = true;
        } else if is(word, "GT") {
            found.if_greater = true;
        } else if is(word, "LT") {
            found.if_less = true;
        } else {
            return Err(Failure::joined(&[b"ERR Unsupported option ", word]));
        }
    }
    if found.if_none && (found.if_some || found.if_greater || found.if_less) {
        return Err(Failure::new("ERR NX and XX, GT or LT options at the same time are not compatible"));
    }
    if found.if_greater && found.if_less {
        return Err(Failure::new("ERR GT and LT options at the same time are not compatible"));
    }
    Ok(found)
}

fn set_expiry(
    server: &mut Server,
    client: &mut Session,
    args: Args<'_>,
    is_seconds: bool,
    is_relative: bool,
    name: &str,
) -> Outcome {
    let (database, key) = (client.database, Key::new(args.at(1)));
    let conditions = conditions(args.from(3))?;
    let number = integer(args.at(2))?;
    let refused = || Failure::expire_time(name);
    let millis = if is_seconds { number.checked_mul(1000).ok_or_else(refused)? } else { number };
    let base = if is_relative { server.now } else { 0 };
    let at = millis.checked_add(base).ok_or_else(refused)?;
    let Some(place) = server.find(database, &key) else {
        client.reply.integer(0);
        return Ok(());
    };
    let before = server.databases[database].entry(place).expiry();
    let is_met = match before {
        Some(_) if conditions.if_none => false,
        None if conditions.if_some || conditions.if_greater => false,
        Some(before) if conditions.if_greater => at > before,
        Some(before) if conditions.if_less => at < before,
        _ => true,
    };
    if !is_met {
        client.reply.integer(0);
        return Ok(());
    }
    if server.is_over_at_once(at) {
        let lazily = server.settings.lazily.expires;
        server.delete(database, &key, lazily);
        server.effects.say(database, &[b"DEL", key.bytes]);
    } else {
        server.expire_at(database, &key, place, at);
    }
    client.reply.integer(1);
    Ok(())
}

pub(super) fn expire(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    set_expiry(server, client, args, true, true, "expire")
}

pub(super) fn pexpire(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    set_expiry(server, client, args, false, true, "pexpire")
}

pub(super) fn expireat(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    set_expiry(server, client, args, true, false, "expireat")
}

pub(super) fn pexpireat(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    set_expiry(server, client, args, false, false, "pexpireat")
}

pub(super) fn persist(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (database, key) = (client.database, Key::new(args.at(1)));
    let place = server.find(database, &key);
    let place = place.filter(|place| server.databases[database].entry(*place).expiry().is_some());
    if let Some(place) = place {
        server.databases[database].set_expiry(place, None);
        server.changed_string(database, key.bytes);
    }
    client.reply.flag(place.is_some());
    Ok(())
}

/// -2: no such key; -1: it does not expire.
fn tell(server: &mut Server, client: &mut Session, args: Args<'_>, say: impl Fn(i64, i64) -> i64) -> Outcome {
    let now = server.now;
    let answer = match server.entry(client.database, &Key::new(args.at(1))) {
        None => -2,
        Some(entry) => entry.expiry().map_or(-1, |at| say(at, now)),
    };
    client.reply.integer(answer);
    Ok(())
}

pub(super) fn ttl(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    tell(server, client, args, |at, now| ((at - now).max(0) + 500) / 1000)
}

pub(super) fn pttl(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    tell(server, client, args, |at, now| (at - now).max(0))
}

pub(super) fn expiretime(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    // No time is negative, and the last one is rounded up, as in Redis.
    tell(server, client, args, |at, _| ((at as u64).wrapping_add(500) / 1000) as i64)
}

pub(super) fn pexpiretime(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    tell(server, client, args, |at, _| at)
}
