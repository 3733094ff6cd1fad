//! DUMP and RESTORE: one value as bytes.

use super::options::{integer, is};
use crate::eviction;
use crate::failure::{Failure, Outcome, SYNTAX};
use crate::keyspace::Key;
use crate::number::integer_text;
use crate::protocol::Args;
use crate::rdb;
use crate::server::Server;
use crate::session::Session;

pub(super) fn dump(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let compresses = server.settings.is_yes("rdbcompression");
    match server.entry(client.database, &Key::new(args.at(1))) {
        Some(entry) => client.reply.bulk(&rdb::dump(entry, compresses)),
        None => client.reply.null(),
    }
    Ok(())
}

pub(super) fn restore(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database) = (Key::new(args.at(1)), client.database);
    let (mut replaces, mut is_absolute) = (false, false);
    let (mut idle_seconds, mut frequency) = (None, None);
    let mut at = 4;
    while let Some(word) = args.get(at) {
        if is(word, "REPLACE") {
            replaces = true;
        } else if is(word, "ABSTTL") {
            is_absolute = true;
        } else if is(word, "IDLETIME") && at + 1 < args.len() && frequency.is_none() {
            let seconds = integer(args.at(at + 1))?;
            if seconds < 0 {
                return Err(Failure::new("ERR Invalid IDLETIME value, must be >= 0"));
            }
            idle_seconds = Some(seconds);
            at += 1;
        } else if is(word, "FREQ") && at + 1 < args.len() && idle_seconds.is_none() {
            let count = u8::try_from(integer(args.at(at + 1))?);
            frequency = Some(count.map_err(|_| Failure::new("ERR Invalid FREQ value, must be >= 0 and <= 255"))?);
            at += 1;
        } else {
            return Err(SYNTAX);
        }
        at += 1;
    }
    if !replaces && server.find(database, &key).is_some() {
        return Err(Failure::new("BUSYKEY Target key name already exists."));
    }
    let expiry = integer(args.at(2))?;
    if expiry < 0 {
        return Err(Failure::new("ERR Invalid TTL value, must be >= 0"));
    }
    // As in Redis, a time beyond all times has passed.
    let expiry = (expiry > 0).then(|| if is_absolute { expiry } else { expiry.wrapping_add(server.now) });
    let payload = args.at(3);
    if !rdb::is_whole(payload, server.skips_checksums) {
        return Err(Failure::new("ERR DUMP payload version or checksum are wrong"));
    }
    let restored = rdb::restore(key.bytes, payload, expiry, server.packing());
    let restored = restored.ok_or(Failure::new("ERR Bad data format"))?;
    let was_there = server.databases[database].remove(&key).is_some();
    if expiry.is_some_and(|expiry| server.is_over_at_once(expiry)) {
        if was_there {
            server.effects.say(database, &[b"DEL", key.bytes]);
            server.changed_string(database, key.bytes);
        }
        client.reply.ok();
        return Ok(());
    }
    let place = server.databases[database].insert(&key, restored);
    eviction::restore(server, database, place, idle_seconds, frequency);
    let at = integer_text(expiry.unwrap_or(0));
    let mut effect: Vec<&[u8]> = vec![b"RESTORE", key.bytes, &at, payload];
    effect.extend(args.from(4).iter());
    if !is_absolute {
        effect.push(b"ABSTTL");
    }
    server.effects.say(database, &effect);
    server.changed_string(database, key.bytes);
    client.reply.ok();
    Ok(())
}
