//! MIGRATE: keys go to another server. The reactor, which has sockets, sends them and has them removed.

use super::key_specs::migrated_places;
use super::options::{integer, is, text};
use crate::failure::{Failure, Outcome, SYNTAX};
use crate::keyspace::Key;
use crate::number::integer_text;
use crate::protocol::{Args, push_command};
use crate::rdb;
use crate::server::{Migration, Request, Server};
use crate::session::Session;

/// How long the other server may take where nothing is said.
const PATIENCE_MILLIS: i64 = 1_000;

pub(super) fn migrate(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let places = migrated_places(args);
    let options_end = if places.start > 6 { places.start - 1 } else { args.len() };
    let (mut copies, mut replaces, mut login) = (false, false, Vec::<Vec<u8>>::new());
    let mut at = 6;
    while at < options_end {
        let word = args.at(at);
        let taken = match word {
            word if is(word, "COPY") => {
                copies = true;
                1
            }
            word if is(word, "REPLACE") => {
                replaces = true;
                1
            }
            word if is(word, "AUTH") => 2,
            word if is(word, "AUTH2") => 3,
            word if is(word, "KEYS") => {
                return Err(Failure::new(
                    "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
                ));
            }
            _ => return Err(SYNTAX),
        };
        if at + taken > options_end {
            return Err(SYNTAX);
        }
        if taken > 1 {
            login = args.from(at + 1).to(taken - 1).iter().map(<[u8]>::to_vec).collect();
        }
        at += taken;
    }
    let millis = integer(args.at(5))?;
    let database = integer(args.at(4))?;
    let mut bytes = Vec::new();
    let mut answers_before = 1;
    if !login.is_empty() {
        login.insert(0, b"AUTH".to_vec());
        push_command(&mut bytes, login.iter().map(Vec::as_slice));
        answers_before += 1;
    }
    push_command(&mut bytes, [b"SELECT".as_slice(), &integer_text(database)].into_iter());
    let compresses = server.settings.is_yes("rdbcompression");
    let mut keys = Vec::new();
    for place in places {
        let (name, now) = (args.at(place), server.now);
        let Some(entry) = server.entry(client.database, &Key::new(name)) else { continue };
        let left = integer_text(entry.expiry().map_or(0, |expiry| (expiry - now).max(1)));
        let payload = rdb::dump(entry, compresses);
        let words = [b"RESTORE".as_slice(), name, &left, &payload, b"REPLACE"];
        push_command(&mut bytes, words[..if replaces { 5 } else { 4 }].iter().copied());
        keys.push(name.to_vec());
    }
    if keys.is_empty() {
        client.reply.simple("NOKEY");
        return Ok(());
    }
    if client.may_not_wait {
        return Err(Failure::new("ERR MIGRATE waits for another server: not in a transaction or a script"));
    }
    server.migration = Some(Box::new(Migration {
        slot: client.slot,
        host: text(args.at(1), "the host")?.to_owned(),
        port: integer(args.at(2)).ok().and_then(|port| u16::try_from(port).ok()).unwrap_or(0),
        patience_millis: if millis > 0 { millis } else { PATIENCE_MILLIS } as u64,
        bytes,
        answers_before,
        keys,
        copies,
    }));
    server.requests.push(Request::Migrate);
    Ok(())
}
