//! Ranges of sorted sets: by rank, by score and by member.

use super::options::{integer, is};
use crate::failure::{Failure, Outcome, SYNTAX};
use crate::keyspace::Key;
use crate::number::double_in_c;
use crate::protocol::Args;
use crate::server::Server;
use crate::session::Session;
use crate::structure::listpack::Item;
use crate::value::{Value, Zset, clamp_range, compare_member};

/// A bound of a range of members.
#[derive(Clone, Copy)]
enum Lex<'a> {
    Lowest,
    Highest,
    Included(&'a [u8]),
    Excluded(&'a [u8]),
}

#[derive(Clone, Copy)]
struct Score {
    value: f64,
    is_excluded: bool,
}

/// Where a range begins and ends.
#[derive(Clone, Copy)]
enum Range<'a> {
    Rank(i64, i64),
    Score(Score, Score),
    Lex(Lex<'a>, Lex<'a>),
}

/// What a range is counted by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

fn score_bound(text: &[u8]) -> Outcome<Score> {
    let (digits, is_excluded) = text.strip_prefix(b"(").map_or((text, false), |rest| (rest, true));
    let value = double_in_c(digits).ok_or(Failure::new("ERR min or max is not a float"))?;
    Ok(Score { value, is_excluded })
}

fn lex_bound(text: &[u8]) -> Outcome<Lex<'_>> {
    match text {
        b"-" => Ok(Lex::Lowest),
        b"+" => Ok(Lex::Highest),
        [b'[', rest @ ..] => Ok(Lex::Included(rest)),
        [b'(', rest @ ..] => Ok(Lex::Excluded(rest)),
        _ => Err(Failure::new("ERR min or max not valid string range item")),
    }
}

impl<'a> Range<'a> {
    fn read(by: By, low: &'a [u8], high: &'a [u8]) -> Outcome<Self> {
        Ok(match by {
            By::Rank => Self::Rank(integer(low)?, integer(high)?),
            By::Score => Self::Score(score_bound(low)?, score_bound(high)?),
            By::Lex => Self::Lex(lex_bound(low)?, lex_bound(high)?),
        })
    }

    /// Ranks from (included) to (not included).
    fn ranks(&self, zset: &Zset) -> (usize, usize) {
        match self {
            Self::Rank(start, stop) => {
                clamp_range(*start, *stop, zset.len()).map_or((0, 0), |(from, to)| (from, to + 1))
            }
            Self::Score(low, high) => {
                let below = |bound: &Score, score: f64, with_bound: bool| {
                    score < bound.value || (with_bound && score == bound.value)
                };
                let from = zset.partition(|_, score| below(low, score, low.is_excluded));
                let to = zset.partition(|_, score| below(high, score, !high.is_excluded));
                (from, to.max(from))
            }
            Self::Lex(low, high) => {
                let from = zset.partition(|member, _| is_below(member, low, false));
                let to = zset.partition(|member, _| is_below(member, high, true));
                (from, to.max(from))
            }
        }
    }
}

/// Whether a member lies below a bound. The bound itself does if it is the upper end and included, or the lower and excluded.
fn is_below(member: Item<'_>, bound: &Lex<'_>, is_upper: bool) -> bool {
    match bound {
        Lex::Lowest => false,
        Lex::Highest => true,
        Lex::Included(text) => {
            let order = compare_member(member, text);
            order.is_lt() || (is_upper && order.is_eq())
        }
        Lex::Excluded(text) => {
            let order = compare_member(member, text);
            order.is_lt() || (!is_upper && order.is_eq())
        }
    }
}

/// A range command's arguments, understood.
struct Query<'a> {
    range: Range<'a>,
    is_reversed: bool,
    with_scores: bool,
    offset: i64,
    limit: i64,
}

/// `at`: where the bounds are. What is not given is read from the options.
fn query<'a>(args: Args<'a>, at: usize, by: Option<By>, reversed: Option<bool>, stores: bool) -> Outcome<Query<'a>> {
    let (mut chosen, mut is_reversed, mut with_scores) = (by, reversed, false);
    let mut limits = None;
    let mut next = at + 2;
    while let Some(word) = args.get(next) {
        if !stores && is(word, "WITHSCORES") {
            with_scores = true;
        } else if is(word, "LIMIT") && next + 2 < args.len() {
            limits = Some((integer(args.at(next + 1))?, integer(args.at(next + 2))?));
            next += 2;
        } else if is_reversed.is_none() && is(word, "REV") {
            is_reversed = Some(true);
        } else if chosen.is_none() && is(word, "BYLEX") {
            chosen = Some(By::Lex);
        } else if chosen.is_none() && is(word, "BYSCORE") {
            chosen = Some(By::Score);
        } else {
            return Err(SYNTAX);
        }
        next += 1;
    }
    let by = chosen.unwrap_or(By::Rank);
    let is_reversed = is_reversed.unwrap_or(false);
    if limits.is_some_and(|(_, limit)| limit != -1) && by == By::Rank {
        return Err(Failure::new(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ));
    }
    if with_scores && by == By::Lex {
        return Err(Failure::new("ERR syntax error, WITHSCORES not supported in combination with BYLEX"));
    }
    let (low, high) = match is_reversed && by != By::Rank {
        true => (args.at(at + 1), args.at(at)),
        false => (args.at(at), args.at(at + 1)),
    };
    let (offset, limit) = limits.unwrap_or((0, -1));
    Ok(Query { range: Range::read(by, low, high)?, is_reversed, with_scores, offset, limit })
}

impl Query<'_> {
    /// Ranks from (included) to (not included), with the limit, of the members in the order of the set.
    fn ranks(&self, zset: &Zset) -> (usize, usize) {
        let len = zset.len();
        let (from, to) = self.range.ranks(zset);
        // A rank counted from the end is the rank of the reversed set.
        let (from, to) = match (self.is_reversed, &self.range) {
            (true, Range::Rank(..)) => (len - to, len - from),
            _ => (from, to),
        };
        if matches!(self.range, Range::Rank(..)) {
            return (from, to);
        }
        let count = to - from;
        let skipped = usize::try_from(self.offset).map_or(count, |offset| offset.min(count));
        let taken = usize::try_from(self.limit).map_or(count - skipped, |limit| limit.min(count - skipped));
        match self.is_reversed {
            false => (from + skipped, from + skipped + taken),
            true => (to - skipped - taken, to - skipped),
        }
    }
}

fn range(server: &mut Server, client: &mut Session, args: Args<'_>, by: Option<By>, reversed: Option<bool>) -> Outcome {
    let query = query(args, 2, by, reversed, false)?;
    let Some(zset) = server.typed::<Zset>(client.database, &Key::new(args.at(1)))? else {
        client.reply.array(0);
        return Ok(());
    };
    let (from, to) = query.ranks(zset);
    let reply = &mut client.reply;
    let is_nested = query.with_scores && reply.is_resp3;
    reply.array((to - from) * if query.with_scores && !is_nested { 2 } else { 1 });
    let say = |member: Item<'_>, score: f64| {
        if is_nested {
            reply.array(2);
        }
        reply.item(member);
        if query.with_scores {
            reply.double(score);
        }
    };
    match query.is_reversed {
        false => zset.range(from, to, say),
        true => zset.range_reversed(from, to, say),
    }
    Ok(())
}

pub(super) fn zrange(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    range(server, client, args, None, None)
}

pub(super) fn zrevrange(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    range(server, client, args, Some(By::Rank), Some(true))
}

pub(super) fn zrangebyscore(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    range(server, client, args, Some(By::Score), Some(false))
}

pub(super) fn zrevrangebyscore(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    range(server, client, args, Some(By::Score), Some(true))
}

pub(super) fn zrangebylex(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    range(server, client, args, Some(By::Lex), Some(false))
}

pub(super) fn zrevrangebylex(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    range(server, client, args, Some(By::Lex), Some(true))
}

pub(super) fn zrangestore(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let query = query(args, 3, None, None, true)?;
    let packing = server.packing();
    let mut kept = Zset::default();
    if let Some(zset) = server.typed::<Zset>(client.database, &Key::new(args.at(2)))? {
        let (from, to) = query.ranks(zset);
        zset.range(from, to, |member, score| kept.insert(&member.to_vec(), score, &packing));
    }
    store(server, client, args.at(1), kept);
    Ok(())
}

/// Gives a key a sorted set, or nothing if that is empty; replies with its size.
pub(super) fn store(server: &mut Server, client: &mut Session, name: &[u8], zset: Zset) {
    let (key, database) = (Key::new(name), client.database);
    let count = zset.len();
    let was_there = server.put(database, &key, Value::Zset(zset));
    client.reply.count(count);
    if count > 0 {
        server.changed_string(database, name);
    } else if was_there {
        server.replaced_by_nothing(database, name);
    }
}

fn count_range(server: &mut Server, client: &mut Session, args: Args<'_>, by: By) -> Outcome {
    let range = Range::read(by, args.at(2), args.at(3))?;
    let zset = server.typed::<Zset>(client.database, &Key::new(args.at(1)))?;
    let (from, to) = zset.map_or((0, 0), |zset| range.ranks(zset));
    client.reply.count(to - from);
    Ok(())
}

pub(super) fn zcount(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    count_range(server, client, args, By::Score)
}

pub(super) fn zlexcount(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    count_range(server, client, args, By::Lex)
}

fn remove_range(server: &mut Server, client: &mut Session, args: Args<'_>, by: By) -> Outcome {
    let (key, database) = (Key::new(args.at(1)), client.database);
    let range = Range::read(by, args.at(2), args.at(3))?;
    let removed = match server.typed_mut::<Zset>(database, &key)? {
        Some(zset) => {
            let (from, to) = range.ranks(zset);
            zset.remove_range(from, to)
        }
        None => 0,
    };
    server.changed(database, &key, removed);
    client.reply.count(removed);
    Ok(())
}

pub(super) fn zremrangebyrank(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    remove_range(server, client, args, By::Rank)
}

pub(super) fn zremrangebyscore(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    remove_range(server, client, args, By::Score)
}

pub(super) fn zremrangebylex(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    remove_range(server, client, args, By::Lex)
}
