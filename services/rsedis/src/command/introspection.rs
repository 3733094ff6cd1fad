//! COMMAND: the table of commands tells of itself.

use super::options::is;
use super::{CATEGORY_NAMES, COMMANDS, Command, FLAG_NAMES, MOVABLEKEYS, find};
use crate::failure::{Failure, Outcome, SYNTAX};
use crate::glob;
use crate::number::parse_integer;
use crate::protocol::{Args, Reply};
use crate::server::Server;
use crate::session::Session;

fn names(all: &[(u32, &'static str)], wanted: u32) -> Vec<&'static str> {
    all.iter().filter(|(bit, _)| wanted & bit != 0).map(|(_, name)| *name).collect()
}

/// One command as COMMAND INFO shows it. Hints and key specifications are empty: the first seven fields are what clients use.
fn describe(reply: &mut Reply, command: &Command) {
    let (first, last, step) = command.keys;
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(i64::from(command.arity));
    reply.set_of_simple(&names(FLAG_NAMES, command.flags));
    reply.count(first);
    reply.integer(i64::from(last));
    reply.count(step);
    reply.set_of_simple(&names(CATEGORY_NAMES, command.categories()));
    reply.set(0);
    reply.set(0);
    reply.array(command.subcommands.len());
    command.subcommands.iter().for_each(|sub| describe(reply, sub));
}

/// By name; subcommands as `config|get`.
fn lookup(name: &[u8]) -> Option<&'static Command> {
    let (command, sub) = match memchr::memchr(b'|', name) {
        Some(at) => (&name[..at], Some(name)),
        None => (name, None),
    };
    let command = find(command)?;
    match sub {
        None => Some(command),
        Some(sub) => command.subcommands.iter().find(|known| known.name.as_bytes().eq_ignore_ascii_case(sub)),
    }
}

pub(super) fn all(_: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    client.reply.array(COMMANDS.len());
    COMMANDS.iter().for_each(|command| describe(&mut client.reply, command));
    Ok(())
}

pub(super) fn count(_: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    client.reply.count(COMMANDS.len());
    Ok(())
}

pub(super) fn command_info(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    if args.len() == 2 {
        return all(server, client, args);
    }
    client.reply.array(args.len() - 2);
    for name in args.from(2).iter() {
        match lookup(name) {
            Some(command) => describe(&mut client.reply, command),
            None => client.reply.null_array(),
        }
    }
    Ok(())
}

/// The name and the group of each; summaries and arguments are for `redis-cli` to look up elsewhere.
pub(super) fn docs(_: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let wanted: Vec<&Command> = match args.len() {
        2 => COMMANDS.iter().collect(),
        _ => args.from(2).iter().filter_map(lookup).collect(),
    };
    client.reply.map(wanted.len());
    for command in wanted {
        client.reply.bulk(command.name.as_bytes());
        client.reply.map(1);
        client.reply.bulk(b"group");
        client.reply.bulk(group(command).as_bytes());
    }
    Ok(())
}

fn group(command: &Command) -> &'static str {
    let groups = [
        ("@string", "string"),
        ("@list", "list"),
        ("@set", "set"),
        ("@sortedset", "sorted-set"),
        ("@hash", "hash"),
        ("@stream", "stream"),
        ("@transaction", "transactions"),
        ("@connection", "connection"),
        ("@pubsub", "pubsub"),
        ("@keyspace", "generic"),
    ];
    let categories = names(CATEGORY_NAMES, command.categories());
    groups.iter().find(|(category, _)| categories.contains(category)).map_or("server", |(_, group)| group)
}

pub(super) fn list(_: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let is_wanted: Box<dyn Fn(&Command) -> bool> = match (args.get(2), args.get(3), args.get(4)) {
        (None, ..) => Box::new(|_| true),
        (Some(filter), Some(by), Some(value)) if args.len() == 5 && is(filter, "FILTERBY") => match by {
            by if is(by, "PATTERN") => Box::new(|command| glob::matches_with(value, command.name.as_bytes(), true)),
            by if is(by, "ACLCAT") => {
                let wanted = format!("@{}", String::from_utf8_lossy(value).to_ascii_lowercase());
                Box::new(move |command| names(CATEGORY_NAMES, command.categories()).contains(&wanted.as_str()))
            }
            by if is(by, "MODULE") => Box::new(|_| false),
            _ => return Err(SYNTAX),
        },
        _ => return Err(SYNTAX),
    };
    let flat = COMMANDS.iter().flat_map(|command| [command].into_iter().chain(command.subcommands));
    let wanted: Vec<&str> = flat.filter(|command| is_wanted(command)).map(|command| command.name).collect();
    client.reply.set(wanted.len());
    wanted.iter().for_each(|name| client.reply.bulk(name.as_bytes()));
    Ok(())
}

/// The places of a command's keys among its arguments.
pub fn key_places(command: &Command, args: Args<'_>) -> Vec<usize> {
    let (first, last, step) = command.keys;
    let last = if last < 0 { args.len() as i64 + i64::from(last) } else { i64::from(last) };
    let mut places: Vec<usize> = match first {
        0 => Vec::new(),
        first => (first as i64..=last).step_by(step.max(1)).map(|place| place as usize).collect(),
    };
    let find = |word: &str| (2..args.len()).rfind(|place| is(args.at(*place), word));
    match command.name {
        "xread" | "xreadgroup" => {
            let begin = (1..args.len()).find(|place| is(args.at(*place), "STREAMS")).map_or(args.len(), |at| at + 1);
            places.extend(begin..begin + (args.len() - begin) / 2);
        }
        "sort" | "georadius" | "georadiusbymember" => {
            let store = find("STORE").max(if command.name == "sort" { None } else { find("STOREDIST") });
            places.extend(store.map(|place| place + 1));
        }
        "sort_ro" => {}
        _ if command.is(MOVABLEKEYS) => {
            let number_at = match command.name {
                "zunionstore" | "zinterstore" | "zdiffstore" | "blmpop" | "bzmpop" | "eval" | "evalsha" | "eval_ro"
                | "evalsha_ro" | "fcall" | "fcall_ro" => 2,
                _ => 1,
            };
            let number = args.get(number_at).and_then(parse_integer).unwrap_or(0).max(0) as usize;
            places.extend((number_at + 1..).take(number.min(args.len())));
        }
        _ => {}
    }
    places.retain(|place| *place < args.len());
    places
}

pub(super) fn getkeys(_: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let wanted = args.from(2);
    let command = match super::resolve(wanted) {
        Ok(command) => command,
        Err(failure) if failure.0.starts_with("ERR wrong number") => {
            return Err(Failure::new("ERR Invalid number of arguments specified for command"));
        }
        Err(_) => return Err(Failure::new("ERR Invalid command specified")),
    };
    let places = key_places(command, wanted);
    if places.is_empty() {
        return Err(Failure::new("ERR The command has no key arguments"));
    }
    client.reply.array(places.len());
    places.into_iter().for_each(|place| client.reply.bulk(wanted.at(place)));
    Ok(())
}
