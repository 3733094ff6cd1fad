//! Streams: what is added, read and cut. What groups read is in `stream_groups`.

use super::options::{integer, is};
use crate::events;
use crate::failure::{Failure, NO_KEY, Outcome, SYNTAX};
use crate::keyspace::Key;
use crate::protocol::{Args, Reply};
use crate::server::Server;
use crate::session::Session;
use crate::value::{Id, Stream, StreamEntry, Trim, parse_id};

pub(super) const BAD_ID: Failure = Failure::new("ERR Invalid stream ID specified as stream command argument");
const TOO_SMALL: Failure =
    Failure::new("ERR The ID specified in XADD is equal or smaller than the target stream top item");

/// `MAXLEN` and `MINID` with what belongs to them.
#[derive(Default)]
struct Options {
    trim: Option<Trim>,
    is_approximate: bool,
    /// At most so many entries go; 0: any number.
    limit: usize,
    if_present: bool,
}

impl Options {
    /// The work that a trim may do: bounded by default where it need not be exact.
    fn most(&self, has_limit: bool, node_entries: usize) -> usize {
        match (self.is_approximate, has_limit, node_entries) {
            (false, ..) => 0,
            (true, true, _) => self.limit,
            (true, false, 0) => 10_000,
            (true, false, entries) => entries.saturating_mul(100),
        }
    }
}

/// Options from an index on, and the index behind them. XADD's end at what must be an identifier.
/// `is_told`: a master's stream or a file has them. Redis writes there what it did, exactly, beside the limit that it kept to.
fn options(
    args: Args<'_>,
    first: usize,
    is_add: bool,
    is_told: bool,
    node_entries: usize,
) -> Outcome<(Options, usize)> {
    let (mut options, mut at, mut has_limit) = (Options::default(), first, false);
    while let Some(word) = args.get(at) {
        let more = args.len() - at - 1;
        if is_add && word == b"*" {
            break;
        } else if (is(word, "MAXLEN") || is(word, "MINID")) && more > 0 {
            if options.trim.is_some() {
                return Err(Failure::new(
                    "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
                ));
            }
            options.is_approximate = args.at(at + 1) == b"~";
            let has_sign = matches!(args.at(at + 1), b"~" | b"=");
            if has_sign && more >= 2 {
                at += 1;
            }
            let value = args.at(at + 1);
            options.trim = Some(if is(word, "MAXLEN") {
                let length = integer(value)?;
                let refused = Failure::new("ERR The MAXLEN argument must be >= 0.");
                Trim::Length(usize::try_from(length).map_err(|_| refused)?)
            } else {
                Trim::From(parse_id(value, 0).ok_or(BAD_ID)?)
            });
            at += 1;
        } else if is(word, "LIMIT") && more > 0 {
            let limit = integer(args.at(at + 1))?;
            if limit < 0 {
                return Err(Failure::new("ERR The LIMIT argument must be >= 0."));
            }
            has_limit = true;
            options.limit = limit as usize;
            at += 1;
        } else if is_add && is(word, "NOMKSTREAM") {
            options.if_present = true;
        } else if is_add {
            break;
        } else {
            return Err(SYNTAX);
        }
        at += 1;
    }
    // Redis reads the identifier before it looks at what goes together.
    if is_add && let Some(text) = args.get(at) {
        Wanted::read(text)?;
    }
    if has_limit && options.limit > 0 && options.trim.is_none() {
        return Err(Failure::new("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"));
    }
    if !is_add && options.trim.is_none() {
        return Err(Failure::new("ERR syntax error, XTRIM must be called with a trimming strategy"));
    }
    if has_limit && !options.is_approximate && !is_told {
        return Err(Failure::new("ERR syntax error, LIMIT cannot be used without the special ~ option"));
    }
    options.limit = if is_told { 0 } else { options.most(has_limit, node_entries) };
    Ok((options, at))
}

/// What Redis says where a millisecond has no further number.
const NO_ROOM: Failure = Failure::new("ERR Elements are too large to be stored");

/// An identifier as XADD is given it.
enum Wanted {
    Now,
    Sequence(u64),
    Given(Id),
}

impl Wanted {
    fn read(text: &[u8]) -> Outcome<Self> {
        match (text, text.strip_suffix(b"-*")) {
            (b"*", _) => Ok(Self::Now),
            (_, Some(millis)) => {
                let id = parse_id(millis, 0).filter(|_| !millis.contains(&b'-'));
                id.map(|id| Self::Sequence(id.millis)).ok_or(BAD_ID)
            }
            _ => parse_id(text, 0).map(Self::Given).ok_or(BAD_ID),
        }
    }
}

pub(super) fn xadd(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database) = (Key::new(args.at(1)), client.database);
    let limits = server.packing().stream;
    let (options, at) = options(args, 2, true, server.is_told(), limits.entries)?;
    let wanted = Wanted::read(args.get(at).ok_or_else(|| Failure::arity("xadd"))?)?;
    let strings = args.from(at + 1);
    if strings.len() < 2 || !strings.len().is_multiple_of(2) {
        return Err(Failure::arity("xadd"));
    }
    if matches!(wanted, Wanted::Given(id) if id == Id::default()) {
        return Err(Failure::new("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let now = server.now.max(0) as u64;
    let last = match server.typed_mut::<Stream>(database, &key)? {
        Some(stream) => stream.last,
        None if options.if_present => {
            client.reply.null();
            return Ok(());
        }
        None => Id::default(),
    };
    if last == Id::MAX {
        return Err(Failure::new("ERR The stream has exhausted the last possible ID, unable to add more items"));
    }
    let id = match wanted {
        Wanted::Now if now > last.millis => Some(Id { millis: now, sequence: 0 }),
        Wanted::Now => last.next(),
        Wanted::Sequence(millis) if millis == last.millis && last.sequence == u64::MAX => return Err(NO_ROOM),
        Wanted::Sequence(millis) if millis == last.millis => last.next(),
        Wanted::Sequence(millis) => Some(Id { millis, sequence: 0 }),
        Wanted::Given(id) => Some(id),
    };
    let id = id.filter(|id| *id > last).ok_or(TOO_SMALL)?;
    let stream: &mut Stream = server.typed_or_new(database, &key)?;
    stream.push(id, strings.iter(), limits);
    let trimmed = options.trim.map_or(0, |trim| stream.trim(trim, options.is_approximate, options.limit));
    let (length, id) = (stream.len().to_string(), id.to_string());
    let mut effect: Vec<&[u8]> = vec![b"XADD", key.bytes];
    if options.trim.is_some() {
        effect.extend([b"MAXLEN", b"=".as_slice(), length.as_bytes()]);
    }
    effect.push(id.as_bytes());
    effect.extend(strings.iter());
    server.effects.say(database, &effect);
    server.changed_string(database, key.bytes);
    if trimmed > 0 {
        server.notify(events::STREAM, "xtrim", database, key.bytes);
    }
    client.reply.bulk(id.as_bytes());
    Ok(())
}

pub(super) fn xlen(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let stream = server.typed::<Stream>(client.database, &Key::new(args.at(1)))?;
    client.reply.count(stream.map_or(0, Stream::len));
    Ok(())
}

pub(super) fn xdel(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database) = (Key::new(args.at(1)), client.database);
    let present = server.typed_mut::<Stream>(database, &key)?.is_some();
    let ids: Option<Vec<Id>> = args.from(2).iter().map(|text| parse_id(text, 0)).collect();
    if !present {
        client.reply.integer(0);
        return Ok(());
    }
    let ids = ids.ok_or(BAD_ID)?;
    let removed = match server.typed_mut::<Stream>(database, &key)? {
        Some(stream) => ids.into_iter().filter(|id| stream.remove(*id)).count(),
        None => 0,
    };
    server.changed(database, &key, removed);
    client.reply.count(removed);
    Ok(())
}

pub(super) fn xtrim(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database) = (Key::new(args.at(1)), client.database);
    let (options, _) = options(args, 2, false, server.is_told(), server.packing().stream.entries)?;
    let trim = options.trim.ok_or(SYNTAX)?;
    let Some(stream) = server.typed_mut::<Stream>(database, &key)? else {
        client.reply.integer(0);
        return Ok(());
    };
    let removed = stream.trim(trim, options.is_approximate, options.limit);
    let length = stream.len().to_string();
    if removed > 0 {
        server.effects.say(database, &[b"XTRIM", key.bytes, b"MAXLEN", b"=", length.as_bytes()]);
    }
    server.changed(database, &key, removed);
    client.reply.count(removed);
    Ok(())
}

/// An end of a range: `-`, `+`, `ms`, `ms-sequence`, with `(` not included.
pub(super) fn bound(text: &[u8], is_end: bool) -> Outcome<Id> {
    let (digits, is_excluded) = text.strip_prefix(b"(").map_or((text, false), |rest| (rest, true));
    let id = match digits {
        b"-" if !is_excluded => return Ok(Id::MIN),
        b"+" if !is_excluded => return Ok(Id::MAX),
        _ => parse_id(digits, if is_end { u64::MAX } else { 0 }).ok_or(BAD_ID)?,
    };
    match (is_excluded, is_end) {
        (false, _) => Ok(id),
        (true, false) => id.next().ok_or(Failure::new("ERR invalid start ID for the interval")),
        (true, true) => id.previous().ok_or(Failure::new("ERR invalid end ID for the interval")),
    }
}

/// An entry as all commands show it.
pub(super) fn reply_entry(reply: &mut Reply, entry: &StreamEntry<'_>) {
    reply.array(2);
    reply.bulk(entry.id.to_string().as_bytes());
    reply.array(entry.strings());
    entry.iter().for_each(|item| reply.item(item));
}

fn range(server: &mut Server, client: &mut Session, args: Args<'_>, is_reversed: bool) -> Outcome {
    let (low, high) = if is_reversed { (3, 2) } else { (2, 3) };
    let (from, to) = (bound(args.at(low), false)?, bound(args.at(high), true)?);
    let mut most = None;
    let mut at = 4;
    while let Some(word) = args.get(at) {
        match args.get(at + 1) {
            Some(value) if is(word, "COUNT") => most = Some(integer(value)?.max(0) as usize),
            _ => return Err(SYNTAX),
        }
        at += 2;
    }
    let Some(stream) = server.typed::<Stream>(client.database, &Key::new(args.at(1)))? else {
        client.reply.array(0);
        return Ok(());
    };
    if most == Some(0) {
        client.reply.null_array();
        return Ok(());
    }
    let entries = stream.range(from, to, most.unwrap_or(usize::MAX), is_reversed);
    client.reply.array(entries.len());
    entries.iter().for_each(|entry| reply_entry(&mut client.reply, entry));
    Ok(())
}

pub(super) fn xrange(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    range(server, client, args, false)
}

pub(super) fn xrevrange(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    range(server, client, args, true)
}

pub(super) fn xsetid(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database) = (Key::new(args.at(1)), client.database);
    let id = parse_id(args.at(2), 0).ok_or(BAD_ID)?;
    let (mut added, mut deleted) = (None, Id::MIN);
    let mut at = 3;
    while let Some(word) = args.get(at) {
        let value = args.get(at + 1).ok_or(SYNTAX)?;
        if is(word, "ENTRIESADDED") {
            let count = integer(value)?;
            added = Some(u64::try_from(count).map_err(|_| Failure::new("ERR entries_added must be positive"))?);
        } else if is(word, "MAXDELETEDID") {
            deleted = parse_id(value, 0).ok_or(BAD_ID)?;
            if id < deleted {
                return Err(Failure::new(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                ));
            }
        } else {
            return Err(SYNTAX);
        }
        at += 2;
    }
    let stream = server.typed_mut::<Stream>(database, &key)?.ok_or(NO_KEY)?;
    if let Some(top) = stream.range(Id::MIN, Id::MAX, 1, true).first().map(|entry| entry.id) {
        if id < top {
            return Err(Failure::new("ERR The ID specified in XSETID is smaller than the target stream top item"));
        }
        if added.is_some_and(|added| added < stream.len() as u64) {
            return Err(Failure::new(
                "ERR The entries_added specified in XSETID is smaller than the target stream length",
            ));
        }
    }
    stream.last = id;
    stream.added = added.unwrap_or(stream.added);
    if deleted != Id::MIN {
        stream.max_deleted = deleted;
    }
    // Redis does not count it as a change for those who watch.
    server.dirty += 1;
    server.notify(events::STREAM, "xsetid", database, key.bytes);
    client.reply.ok();
    Ok(())
}
