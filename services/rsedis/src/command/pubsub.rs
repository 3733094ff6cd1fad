//! Channels and patterns.

use std::collections::BTreeMap;

use super::Command;
use crate::failure::Outcome;
use crate::glob;
use crate::protocol::Args;
use crate::server::Server;
use crate::session::Session;

/// Whether a RESP2 client that listens may send this.
pub(super) fn is_allowed(command: &Command) -> bool {
    matches!(command.name, "subscribe" | "unsubscribe" | "psubscribe" | "punsubscribe" | "ping" | "quit" | "reset")
}

/// Which of both a command is about.
#[derive(Clone, Copy)]
enum Kind {
    Channel,
    Pattern,
}

fn registry(server: &mut Server, kind: Kind) -> &mut BTreeMap<Vec<u8>, Vec<usize>> {
    match kind {
        Kind::Channel => &mut server.channels,
        Kind::Pattern => &mut server.patterns,
    }
}

fn confirm(client: &mut Session, word: &[u8], name: Option<&[u8]>) {
    let count = client.subscriptions();
    client.reply.push(3);
    client.reply.bulk(word);
    match name {
        Some(name) => client.reply.bulk(name),
        None => client.reply.null(),
    }
    client.reply.count(count);
}

fn add(server: &mut Server, client: &mut Session, args: Args<'_>, kind: Kind, word: &[u8]) -> Outcome {
    for name in args.from(1).iter() {
        let names = match kind {
            Kind::Channel => &mut client.channels,
            Kind::Pattern => &mut client.patterns,
        };
        if names.insert(name.to_vec()) {
            registry(server, kind).entry(name.to_vec()).or_default().push(client.slot);
        }
        confirm(client, word, Some(name));
    }
    Ok(())
}

fn leave(server: &mut Server, client: &mut Session, name: &[u8], kind: Kind) {
    let names = match kind {
        Kind::Channel => &mut client.channels,
        Kind::Pattern => &mut client.patterns,
    };
    if names.remove(name) {
        let registry = registry(server, kind);
        if let Some(slots) = registry.get_mut(name) {
            slots.retain(|slot| *slot != client.slot);
            if slots.is_empty() {
                registry.remove(name);
            }
        }
    }
}

fn remove(server: &mut Server, client: &mut Session, args: Args<'_>, kind: Kind, word: &[u8]) -> Outcome {
    let names: Vec<Vec<u8>> = match (args.len(), kind) {
        (1, Kind::Channel) => client.channels.iter().cloned().collect(),
        (1, Kind::Pattern) => client.patterns.iter().cloned().collect(),
        _ => args.from(1).iter().map(<[u8]>::to_vec).collect(),
    };
    for name in &names {
        leave(server, client, name, kind);
        confirm(client, word, Some(name));
    }
    if names.is_empty() {
        confirm(client, word, None);
    }
    Ok(())
}

/// A client goes: it listens to nothing any more.
pub fn unsubscribe_all(server: &mut Server, client: &mut Session) {
    for name in client.channels.clone() {
        leave(server, client, &name, Kind::Channel);
    }
    for name in client.patterns.clone() {
        leave(server, client, &name, Kind::Pattern);
    }
}

pub(super) fn subscribe(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    add(server, client, args, Kind::Channel, b"subscribe")
}

pub(super) fn psubscribe(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    add(server, client, args, Kind::Pattern, b"psubscribe")
}

pub(super) fn unsubscribe(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    remove(server, client, args, Kind::Channel, b"unsubscribe")
}

pub(super) fn punsubscribe(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    remove(server, client, args, Kind::Pattern, b"punsubscribe")
}

pub(super) fn publish(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let receivers = server.publish(args.at(1), args.at(2));
    client.reply.count(receivers);
    Ok(())
}

pub(super) fn channels(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    if args.len() > 3 {
        return Err(crate::failure::SYNTAX);
    }
    let is_wanted = |name: &&Vec<u8>| args.get(2).is_none_or(|pattern| glob::matches(pattern, name));
    let names: Vec<&Vec<u8>> = server.channels.keys().filter(is_wanted).collect();
    client.reply.array(names.len());
    names.iter().for_each(|name| client.reply.bulk(name));
    Ok(())
}

pub(super) fn numsub(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    client.reply.array((args.len() - 2) * 2);
    for name in args.from(2).iter() {
        client.reply.bulk(name);
        client.reply.count(server.channels.get(name).map_or(0, Vec::len));
    }
    Ok(())
}

pub(super) fn numpat(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    client.reply.count(server.patterns.len());
    Ok(())
}
