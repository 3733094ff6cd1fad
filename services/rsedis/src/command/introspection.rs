//! COMMAND: the table of commands tells of itself.

use super::docs;
use super::hints::hints;
use super::key_specs::{self, ACCESS_NAMES, Access, Begin, Find, KeyPlace, KeySpec, NOT_KEY, keys_of};
use super::names::{callable, called};
use super::options::is;
use super::{CATEGORY_NAMES, Command, FLAG_NAMES, NO_MANDATORY_KEYS};
use crate::failure::{Failure, Outcome, SYNTAX};
use crate::glob;
use crate::protocol::{Args, Reply};
use crate::server::Server;
use crate::session::Session;

fn names(all: &[(u32, &'static str)], wanted: u32) -> Vec<&'static str> {
    all.iter().filter(|(bit, _)| wanted & bit != 0).map(|(_, name)| *name).collect()
}

/// One command as COMMAND INFO shows it.
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
    let hints = hints(command.name);
    reply.set(hints.len());
    hints.iter().for_each(|hint| reply.bulk(hint.as_bytes()));
    let specs = key_specs::specs_of(command);
    reply.set(specs.len());
    for (number, spec) in specs.iter().enumerate() {
        describe_spec(reply, spec, key_specs::note(command.name, number));
    }
    // As Redis has it: only where there are none they are a set.
    match command.subcommands.len() {
        0 => reply.set(0),
        count => reply.array(count),
    }
    command.subcommands.iter().for_each(|sub| describe(reply, sub));
}

pub(super) fn all(_: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    client.reply.array(callable().count());
    callable().for_each(|command| describe(&mut client.reply, command));
    Ok(())
}

pub(super) fn count(_: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    client.reply.count(callable().count());
    Ok(())
}

pub(super) fn command_info(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    if args.len() == 2 {
        return all(server, client, args);
    }
    client.reply.array(args.len() - 2);
    for name in args.from(2).iter() {
        match called(name) {
            Some(command) => describe(&mut client.reply, command),
            None => client.reply.null(),
        }
    }
    Ok(())
}

pub(super) fn command_docs(_: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let wanted: Vec<&Command> = match args.len() {
        2 => callable().collect(),
        _ => args.from(2).iter().filter_map(called).collect(),
    };
    client.reply.map(wanted.len());
    for command in wanted {
        client.reply.bulk(command.name.as_bytes());
        docs::describe(&mut client.reply, command);
    }
    Ok(())
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
    let flat = callable().flat_map(|command| [command].into_iter().chain(command.subcommands));
    let wanted: Vec<&str> = flat.filter(|command| is_wanted(command)).map(|command| command.name).collect();
    client.reply.array(wanted.len());
    wanted.iter().for_each(|name| client.reply.bulk(name.as_bytes()));
    Ok(())
}

/// The command that COMMAND GETKEYS is asked about, and its keys.
fn asked_keys(wanted: Args<'_>) -> Outcome<Vec<KeyPlace>> {
    let command = super::meant(wanted).ok_or(Failure::new("ERR Invalid command specified"))?;
    if key_specs::specs_of(command).iter().all(|spec| spec.access & NOT_KEY != 0) {
        return Err(Failure::new("ERR The command has no key arguments"));
    }
    if super::resolve(wanted).is_err() {
        return Err(Failure::new("ERR Invalid number of arguments specified for command"));
    }
    let keys = keys_of(command, wanted).unwrap_or_default();
    if keys.is_empty() && !command.is(NO_MANDATORY_KEYS) {
        return Err(Failure::new("ERR Invalid arguments specified for command"));
    }
    Ok(keys)
}

pub(super) fn getkeys(_: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let wanted = args.from(2);
    let keys = asked_keys(wanted)?;
    client.reply.array(keys.len());
    keys.iter().for_each(|key| client.reply.bulk(wanted.at(key.place)));
    Ok(())
}

pub(super) fn getkeysandflags(_: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let wanted = args.from(2);
    let keys = asked_keys(wanted)?;
    client.reply.array(keys.len());
    for key in keys {
        client.reply.array(2);
        client.reply.bulk(wanted.at(key.place));
        client.reply.set_of_simple(&access_names(key.access));
    }
    Ok(())
}

fn access_names(access: Access) -> Vec<&'static str> {
    ACCESS_NAMES.iter().filter(|(bit, _)| access & bit != 0).map(|(_, name)| *name).collect()
}

/// A specification as COMMAND INFO shows it.
fn describe_spec(reply: &mut Reply, spec: &KeySpec, note: Option<&str>) {
    let kind = |reply: &mut Reply, name: &str, fields: &[(&str, i64)]| {
        reply.map(2);
        reply.bulk(b"type");
        reply.bulk(name.as_bytes());
        reply.bulk(b"spec");
        reply.map(fields.len());
        for (field, value) in fields {
            reply.bulk(field.as_bytes());
            reply.integer(*value);
        }
    };
    reply.map(3 + usize::from(note.is_some()));
    if let Some(note) = note {
        reply.bulk(b"notes");
        reply.bulk(note.as_bytes());
    }
    reply.bulk(b"flags");
    reply.set_of_simple(&access_names(spec.access));
    reply.bulk(b"begin_search");
    match spec.begin {
        Begin::Index(place) => kind(reply, "index", &[("index", place as i64)]),
        Begin::Keyword(word, from) => {
            reply.map(2);
            reply.bulk(b"type");
            reply.bulk(b"keyword");
            reply.bulk(b"spec");
            reply.map(2);
            reply.bulk(b"keyword");
            reply.bulk(word.as_bytes());
            reply.bulk(b"startfrom");
            reply.integer(i64::from(from));
        }
        Begin::Unknown => kind(reply, "unknown", &[]),
    }
    reply.bulk(b"find_keys");
    match spec.find {
        Find::Range(last, step, limit) => {
            let fields = [("lastkey", i64::from(last)), ("keystep", step as i64), ("limit", limit as i64)];
            kind(reply, "range", &fields);
        }
        Find::Count(number, first, step) => {
            let fields = [("keynumidx", number as i64), ("firstkey", first as i64), ("keystep", step as i64)];
            kind(reply, "keynum", &fields);
        }
        Find::Unknown => kind(reply, "unknown", &[]),
    }
}
