//! Unions, intersections and differences of sorted sets, and of sets, whose members have the score 1.

use super::options::{count, integer, is};
use super::zranges::store;
use crate::failure::{Failure, Outcome, SYNTAX, WRONG_TYPE};
use crate::keyspace::{Entry, Key};
use crate::number::parse_double;
use crate::protocol::Args;
use crate::server::Server;
use crate::session::Session;
use crate::value::{Packing, Set, Value, Zset};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

enum Source<'a> {
    Zset(&'a Zset),
    Set(&'a Set),
    None,
}

impl Source<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Zset(zset) => zset.len(),
            Self::Set(set) => set.len(),
            Self::None => 0,
        }
    }

    fn score(&self, member: &[u8]) -> Option<f64> {
        match self {
            Self::Zset(zset) => zset.score(member),
            Self::Set(set) => set.contains(member).then_some(1.0),
            Self::None => None,
        }
    }

    fn each(&self, mut call: impl FnMut(Vec<u8>, f64)) {
        match self {
            Self::Zset(zset) => zset.range(0, zset.len(), |member, score| call(member.to_vec(), score)),
            Self::Set(set) => set.iter().for_each(|member| call(member.to_vec(), 1.0)),
            Self::None => {}
        }
    }
}

impl Aggregate {
    fn of(self, one: f64, other: f64) -> f64 {
        let value = match self {
            Self::Sum => one + other,
            Self::Min => one.min(other),
            Self::Max => one.max(other),
        };
        // Infinity less infinity counts as nothing.
        if value.is_nan() { 0.0 } else { value }
    }
}

fn weighted(weight: f64, score: f64) -> f64 {
    let value = weight * score;
    if value.is_nan() { 0.0 } else { value }
}

struct Query<'a> {
    keys: Args<'a>,
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
    limit: usize,
}

/// What a command's options may be.
#[derive(Clone, Copy)]
struct Allowed {
    weights: bool,
    scores: bool,
    limit: bool,
}

fn query<'a>(
    server: &Server,
    database: usize,
    args: Args<'a>,
    at: usize,
    name: &str,
    allowed: Allowed,
) -> Outcome<Query<'a>> {
    let number = integer(args.at(at))?;
    if number < 1 {
        return Err(Failure::text(format!("ERR at least 1 input key is needed for '{name}' command")));
    }
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    if number > args.len() - at - 1 {
        return Err(SYNTAX);
    }
    let keys = args.from(at + 1).to(number);
    let is_wrong = |name| {
        let entry = server.entry_if_there(database, &Key::new(name));
        entry.is_some_and(|entry| !matches!(entry.value(), Some(Value::Zset(_) | Value::Set(_))))
    };
    if keys.iter().any(is_wrong) {
        return Err(WRONG_TYPE);
    }
    let mut query =
        Query { keys, weights: vec![1.0; number], aggregate: Aggregate::Sum, with_scores: false, limit: usize::MAX };
    let rest = args.from(at + 1 + number);
    let mut next = 0;
    while let Some(word) = rest.get(next) {
        if allowed.weights && is(word, "WEIGHTS") && rest.len() - next > number {
            for (place, weight) in query.weights.iter_mut().enumerate() {
                let text = rest.at(next + 1 + place);
                *weight = parse_double(text).ok_or(Failure::new("ERR weight value is not a float"))?;
            }
            next += number;
        } else if allowed.weights && is(word, "AGGREGATE") && next + 1 < rest.len() {
            query.aggregate = match rest.at(next + 1) {
                word if is(word, "SUM") => Aggregate::Sum,
                word if is(word, "MIN") => Aggregate::Min,
                word if is(word, "MAX") => Aggregate::Max,
                _ => return Err(SYNTAX),
            };
            next += 1;
        } else if allowed.scores && is(word, "WITHSCORES") {
            query.with_scores = true;
        } else if allowed.limit && is(word, "LIMIT") && next + 1 < rest.len() {
            let limit = count(rest.at(next + 1)).map_err(|_| Failure::new("ERR LIMIT can't be negative"))?;
            query.limit = if limit == 0 { usize::MAX } else { limit };
            next += 1;
        } else {
            return Err(SYNTAX);
        }
        next += 1;
    }
    Ok(query)
}

fn combine(server: &mut Server, database: usize, query: &Query<'_>, operation: Operation) -> Outcome<Zset> {
    // As a tree, whatever its size: it is packed only when it is stored.
    let packing = Packing { zset_entries: 0, ..server.packing() };
    for name in query.keys.iter() {
        server.find_to_read(database, &Key::new(name));
    }
    let source = |name| match server.entry_if_there(database, &Key::new(name)).map(Entry::value) {
        None => Ok(Source::None),
        Some(Some(Value::Zset(zset))) => Ok(Source::Zset(zset)),
        Some(Some(Value::Set(set))) => Ok(Source::Set(set)),
        Some(_) => Err(WRONG_TYPE),
    };
    let sources: Vec<Source<'_>> = query.keys.iter().map(source).collect::<Outcome<_>>()?;
    let mut sources: Vec<(Source<'_>, f64)> = sources.into_iter().zip(query.weights.iter().copied()).collect();
    if operation != Operation::Difference {
        // Sums of doubles depend on their order: that of Redis is by size.
        sources.sort_by_key(|(source, _)| source.len());
    }
    let mut result = Zset::default();
    match operation {
        Operation::Union => {
            for (source, weight) in &sources {
                source.each(|member, score| {
                    let score = weighted(*weight, score);
                    let score = result.score(&member).map_or(score, |before| query.aggregate.of(before, score));
                    result.insert(&member, score, &packing);
                });
            }
        }
        Operation::Intersection => {
            let ((first, weight), others) = (&sources[0], &sources[1..]);
            first.each(|member, score| {
                let start = Some(weighted(*weight, score));
                let score = others.iter().fold(start, |sum, (source, weight)| {
                    Some(query.aggregate.of(sum?, weighted(*weight, source.score(&member)?)))
                });
                if let Some(score) = score
                    && result.len() < query.limit
                {
                    result.insert(&member, score, &packing);
                }
            });
        }
        Operation::Difference => {
            let ((first, _), others) = (&sources[0], &sources[1..]);
            first.each(|member, score| {
                if !others.iter().any(|(source, _)| source.score(&member).is_some()) {
                    result.insert(&member, score, &packing);
                }
            });
        }
    }
    Ok(result)
}

fn reply_combined(
    server: &mut Server,
    client: &mut Session,
    args: Args<'_>,
    operation: Operation,
    name: &str,
) -> Outcome {
    let allowed = Allowed { weights: operation != Operation::Difference, scores: true, limit: false };
    let query = query(server, client.database, args, 1, name, allowed)?;
    let result = combine(server, client.database, &query, operation)?;
    let reply = &mut client.reply;
    let is_nested = query.with_scores && reply.is_resp3;
    reply.array(result.len() * if query.with_scores && !is_nested { 2 } else { 1 });
    result.range(0, result.len(), |member, score| {
        if is_nested {
            reply.array(2);
        }
        reply.item(member);
        if query.with_scores {
            reply.double(score);
        }
    });
    Ok(())
}

fn store_combined(
    server: &mut Server,
    client: &mut Session,
    args: Args<'_>,
    operation: Operation,
    name: &str,
) -> Outcome {
    let allowed = Allowed { weights: operation != Operation::Difference, scores: false, limit: false };
    let query = query(server, client.database, args, 2, name, allowed)?;
    let result = combine(server, client.database, &query, operation)?;
    let packing = server.packing();
    store(server, client, args.at(1), result.into_packed(&packing));
    Ok(())
}

pub(super) fn zunion(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    reply_combined(server, client, args, Operation::Union, "zunion")
}

pub(super) fn zinter(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    reply_combined(server, client, args, Operation::Intersection, "zinter")
}

pub(super) fn zdiff(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    reply_combined(server, client, args, Operation::Difference, "zdiff")
}

pub(super) fn zunionstore(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    store_combined(server, client, args, Operation::Union, "zunionstore")
}

pub(super) fn zinterstore(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    store_combined(server, client, args, Operation::Intersection, "zinterstore")
}

pub(super) fn zdiffstore(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    store_combined(server, client, args, Operation::Difference, "zdiffstore")
}

pub(super) fn zintercard(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let query =
        query(server, client.database, args, 1, "zintercard", Allowed { weights: false, scores: false, limit: true })?;
    let result = combine(server, client.database, &query, Operation::Intersection)?;
    client.reply.count(result.len());
    Ok(())
}
