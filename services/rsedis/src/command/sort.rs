//! SORT: the elements of a list, set or sorted set in an order, by themselves or by other keys.

use std::cmp::Ordering;

use super::options::{integer, is};
use crate::failure::{Failure, Outcome, SYNTAX, WRONG_TYPE, up_to_zero};
use crate::keyspace::Key;
use crate::number::{behind_spaces, parse_double};
use crate::protocol::Args;
use crate::server::Server;
use crate::session::Session;
use crate::value::{End, Hash, List, Value, Zset};

#[derive(Default)]
struct Options<'a> {
    is_descending: bool,
    is_alphabetic: bool,
    limit: Option<(i64, i64)>,
    by: Option<&'a [u8]>,
    get: Vec<&'a [u8]>,
    store: Option<&'a [u8]>,
}

fn options<'a>(args: Args<'a>, may_store: bool) -> Outcome<Options<'a>> {
    let mut options = Options::default();
    let mut at = 2;
    while let Some(word) = args.get(at) {
        match (args.get(at + 1), args.get(at + 2)) {
            _ if is(word, "ASC") => options.is_descending = false,
            _ if is(word, "DESC") => options.is_descending = true,
            _ if is(word, "ALPHA") => options.is_alphabetic = true,
            (Some(start), Some(count)) if is(word, "LIMIT") => {
                options.limit = Some((integer(start)?, integer(count)?));
                at += 2;
            }
            (Some(name), _) if may_store && is(word, "STORE") => {
                options.store = Some(name);
                at += 1;
            }
            (Some(pattern), _) if is(word, "BY") => {
                options.by = Some(pattern);
                at += 1;
            }
            (Some(pattern), _) if is(word, "GET") => {
                options.get.push(pattern);
                at += 1;
            }
            _ => return Err(SYNTAX),
        }
        at += 1;
    }
    Ok(options)
}

/// What a pattern's key holds, with `*` replaced by the element, and `->field` for a field of a hash.
fn look_up(server: &mut Server, database: usize, pattern: &[u8], element: &[u8]) -> Option<Vec<u8>> {
    if pattern == b"#" {
        return Some(element.to_vec());
    }
    let star = memchr::memchr(b'*', pattern)?;
    let (head, tail) = (&pattern[..star], &pattern[star + 1..]);
    let arrow = tail.windows(2).position(|pair| pair == b"->").filter(|at| at + 2 < tail.len());
    let name = [head, element, arrow.map_or(tail, |at| &tail[..at])].concat();
    let key = Key::new(&name);
    match arrow {
        Some(at) => {
            let hash = server.typed::<Hash>(database, &key).ok()??;
            hash.get(&tail[at + 2..]).map(|value| value.to_vec())
        }
        None => server.text(database, &key).ok()?.map(|text| text.to_vec()),
    }
}

/// The elements, and whether they have an order of their own.
fn elements(server: &mut Server, database: usize, key: &Key<'_>) -> Outcome<(Vec<Vec<u8>>, bool)> {
    let Some(place) = server.find_to_read(database, key) else { return Ok((Vec::new(), true)) };
    let keys = &mut server.databases[database];
    if matches!(keys.entry(place).value(), Some(Value::Zset(Zset::Packed(_))))
        && let Some(Value::Zset(zset)) = keys.entry_mut(place).value_mut()
    {
        // As in Redis, where it stays so: it has another encoding then, and keeps the sign of a zero.
        zset.unpack();
    }
    match keys.entry(place).value() {
        Some(Value::List(list)) => Ok((list.iter().map(|item| item.to_vec()).collect(), true)),
        Some(Value::Set(set)) => Ok((set.iter().map(|item| item.to_vec()).collect(), false)),
        Some(Value::Zset(zset)) => {
            let mut members = Vec::with_capacity(zset.len());
            zset.range(0, zset.len(), |member, _| members.push(member.to_vec()));
            Ok((members, true))
        }
        _ => Err(WRONG_TYPE),
    }
}

fn order(
    server: &mut Server,
    database: usize,
    elements: Vec<Vec<u8>>,
    by: Option<&[u8]>,
    options: &Options<'_>,
) -> Outcome<Vec<Vec<u8>>> {
    let mut weights = |element: &[u8]| match by {
        Some(pattern) => look_up(server, database, pattern, element),
        None => Some(element.to_vec()),
    };
    let turn = |order: Ordering| if options.is_descending { order.reverse() } else { order };
    if options.is_alphabetic {
        let mut keyed: Vec<_> = elements.into_iter().map(|element| (weights(&element), element)).collect();
        // What is not stored is compared as C compares text.
        let is_whole = options.store.is_some();
        keyed.sort_by(|one, other| {
            let weights = [&one.0, &other.0].map(|weight| weight.as_deref());
            let [one, other] = weights.map(|weight| weight.map(|text| if is_whole { text } else { up_to_zero(text) }));
            turn(one.cmp(&other))
        });
        return Ok(keyed.into_iter().map(|(_, element)| element).collect());
    }
    let refused = Failure::new("ERR One or more scores can't be converted into double");
    let mut keyed = Vec::with_capacity(elements.len());
    for element in elements {
        let weight = match weights(&element) {
            Some(text) => weight(&text).ok_or(refused.clone())?,
            None => 0.0,
        };
        keyed.push((weight, element));
    }
    keyed.sort_by(|one, other| {
        turn(one.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal).then_with(|| one.1.cmp(&other.1)))
    });
    Ok(keyed.into_iter().map(|(_, element)| element).collect())
}

/// A number as C reads it: behind spaces, and up to a zero.
fn weight(text: &[u8]) -> Option<f64> {
    let text = up_to_zero(text);
    if text.is_empty() {
        return Some(0.0);
    }
    // C says of what has lost digits for being small that it is out of range; written in hexadecimal it has not.
    let is_exact = text.iter().any(|byte| matches!(byte, b'x' | b'X'));
    parse_double(behind_spaces(text)).filter(|number| is_exact || !number.is_subnormal())
}

/// Patterns name keys that nobody can tell beforehand: who may not read all keys may not use them.
fn check_patterns(server: &Server, client: &Session, args: Args<'_>, options: &Options<'_>) -> Outcome {
    let user = server.users.get(&client.user);
    if server.running.is_some_and(|command| user.is_some_and(|user| user.may_read_all_keys(command, args))) {
        return Ok(());
    }
    let denied = |option: &str| {
        Err(Failure::text(format!("ERR {option} option of SORT denied due to insufficient ACL permissions.")))
    };
    match options.by {
        Some(pattern) if pattern.contains(&b'*') => denied("BY"),
        _ if !options.get.is_empty() => denied("GET"),
        _ => Ok(()),
    }
}

fn sort_elements(server: &mut Server, client: &mut Session, args: Args<'_>, may_store: bool) -> Outcome {
    let database = client.database;
    let mut options = options(args, may_store)?;
    if !client.may_all {
        check_patterns(server, client, args, &options)?;
    }
    let (mut sorted, has_order) = elements(server, database, &Key::new(args.at(1)))?;
    let mut is_sorted_by = options.by.is_none_or(|pattern| pattern.contains(&b'*'));
    let mut by = options.by;
    if !is_sorted_by && !has_order && (options.store.is_some() || client.is_script) {
        // What has no order must not look as if it had one.
        (is_sorted_by, options.is_alphabetic, by) = (true, true, None);
    }
    if is_sorted_by {
        sorted = order(server, database, sorted, by, &options)?;
    } else if options.is_descending && has_order {
        sorted.reverse();
    }
    if let Some((start, count)) = options.limit {
        let start = usize::try_from(start.max(0)).unwrap_or(usize::MAX).min(sorted.len());
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        sorted = sorted.into_iter().skip(start).take(count).collect();
    }
    let mut output: Vec<Option<Vec<u8>>> = Vec::new();
    for element in sorted {
        if options.get.is_empty() {
            output.push(Some(element));
            continue;
        }
        for pattern in &options.get {
            output.push(look_up(server, database, pattern, &element));
        }
    }
    let Some(target) = options.store else {
        client.reply.array(output.len());
        for element in &output {
            match element {
                Some(element) => client.reply.bulk(element),
                None => client.reply.null(),
            }
        }
        return Ok(());
    };
    let (key, size) = (Key::new(target), server.packing().list_size);
    let mut list = List::default();
    output.iter().for_each(|element| list.push(End::Back, element.as_deref().unwrap_or_default(), size));
    let was_there = server.put(database, &key, Value::List(list.into()));
    if !output.is_empty() {
        server.changed_string(database, target);
        server.dirty += output.len() as u64 - 1;
    } else if was_there {
        server.replaced_by_nothing(database, target);
    }
    client.reply.count(output.len());
    Ok(())
}

pub(super) fn sort(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    sort_elements(server, client, args, true)
}

pub(super) fn sort_ro(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    sort_elements(server, client, args, false)
}
