//! SCAN and its kin.

use super::options::{integer, is};
use crate::failure::{Failure, Outcome, SYNTAX, WRONG_TYPE, up_to_zero};
use crate::glob;
use crate::keyspace::Key;
use crate::protocol::Args;
use crate::server::Server;
use crate::session::Session;
use crate::structure::table::Element as _;
use crate::value::Value;

struct Options<'a> {
    cursor: u64,
    count: usize,
    pattern: Option<&'a [u8]>,
    kind: Option<&'a [u8]>,
}

fn cursor(text: &[u8]) -> Outcome<u64> {
    let refused = Failure::new("ERR invalid cursor");
    // As C reads one: nothing is 0, and what is negative wraps.
    let text = up_to_zero(text);
    let (digits, is_negative) = text.strip_prefix(b"-").map_or((text, false), |rest| (rest, true));
    let number = match std::str::from_utf8(digits).ok().filter(|digits| !is_negative || !digits.starts_with('+')) {
        Some("") if !is_negative => Some(0),
        digits => digits.and_then(|digits| digits.parse::<u64>().ok()),
    };
    number.map(|number| if is_negative { number.wrapping_neg() } else { number }).ok_or(refused)
}

fn options<'a>(args: Args<'a>, first: usize, is_of_keys: bool) -> Outcome<Options<'a>> {
    let mut options = Options { cursor: cursor(args.at(first - 1))?, count: 10, pattern: None, kind: None };
    let mut at = first;
    while let Some(word) = args.get(at) {
        let Some(value) = args.get(at + 1) else { return Err(SYNTAX) };
        if is(word, "COUNT") {
            let count = integer(value)?;
            options.count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or(SYNTAX)?;
        } else if is(word, "MATCH") {
            options.pattern = Some(value).filter(|pattern| *pattern != b"*");
        } else if is(word, "TYPE") && is_of_keys {
            options.kind = Some(value);
        } else {
            return Err(SYNTAX);
        }
        at += 2;
    }
    Ok(options)
}

impl Options<'_> {
    fn takes(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, name))
    }

    /// Steps until enough was found or enough was looked at; the cursor to go on with.
    fn steps(&self, mut step: impl FnMut(u64) -> (u64, usize)) -> u64 {
        let mut cursor = self.cursor;
        let mut found = 0;
        for _ in 0..self.count.saturating_mul(10) {
            let (next, more) = step(cursor);
            cursor = next;
            found += more;
            if cursor == 0 || found >= self.count {
                break;
            }
        }
        cursor
    }
}

fn reply(client: &mut Session, cursor: u64, found: &[Vec<u8>]) {
    client.reply.array(2);
    client.reply.bulk(cursor.to_string().as_bytes());
    client.reply.array(found.len());
    found.iter().for_each(|element| client.reply.bulk(element));
}

pub(super) fn scan(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let options = options(args, 2, true)?;
    let (database, now) = (client.database, server.now);
    let mut found: Vec<Vec<u8>> = Vec::new();
    let mut expired: Vec<Vec<u8>> = Vec::new();
    let cursor = options.steps(|cursor| {
        let mut visited = 0;
        let next = server.databases[database].scan(cursor, |entry| {
            visited += 1;
            let is_wanted = options.kind.is_none_or(|kind| entry.type_name().as_bytes().eq_ignore_ascii_case(kind));
            if options.takes(entry.key()) && is_wanted {
                let is_expired = entry.expiry().is_some_and(|expiry| expiry <= now);
                let names = if is_expired { &mut expired } else { &mut found };
                names.push(entry.key().to_vec());
            }
        });
        (next, visited)
    });
    if server.may_remove_expired() {
        expired.iter().for_each(|name| server.expire(database, &Key::new(name)));
    }
    reply(client, cursor, &found);
    Ok(())
}

/// The elements of a key's value. `of` tells whether the value has the right type.
fn scan_value(server: &mut Server, client: &mut Session, args: Args<'_>, of: fn(&Value) -> bool) -> Outcome {
    // Redis looks at the cursor, then at the key, then at the options.
    cursor(args.at(2))?;
    let place = server.find_to_read(client.database, &Key::new(args.at(1)));
    let value = match place.map(|place| server.databases[client.database].entry(place).value()) {
        None => {
            reply(client, 0, &[]);
            return Ok(());
        }
        Some(Some(value)) if of(value) => value,
        Some(_) => return Err(WRONG_TYPE),
    };
    let options = options(args, 3, false)?;
    let mut found: Vec<Vec<u8>> = Vec::new();
    let cursor = options.steps(|cursor| {
        let mut visited = 0;
        let next = match value {
            Value::Set(set) => set.scan(cursor, |member| {
                visited += 1;
                let member = member.to_vec();
                if options.takes(&member) {
                    found.push(member);
                }
            }),
            Value::Hash(hash) => hash.scan(cursor, |field, value| {
                visited += 1;
                let field = field.to_vec();
                if options.takes(&field) {
                    found.extend([field, value.to_vec()]);
                }
            }),
            Value::Zset(zset) => zset.scan(cursor, |member, score| {
                visited += 1;
                let member = member.to_vec();
                if options.takes(&member) {
                    found.extend([member, zset.score_text(score)]);
                }
            }),
            Value::String(_) | Value::List(_) | Value::Stream(_) => 0,
        };
        (next, visited)
    });
    reply(client, cursor, &found);
    Ok(())
}

pub(super) fn sscan(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    scan_value(server, client, args, |value| matches!(value, Value::Set(_)))
}

pub(super) fn hscan(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    scan_value(server, client, args, |value| matches!(value, Value::Hash(_)))
}

pub(super) fn zscan(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    scan_value(server, client, args, |value| matches!(value, Value::Zset(_)))
}
