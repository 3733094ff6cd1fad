//! Channels and patterns.

use std::collections::{BTreeMap, BTreeSet};

use super::Command;
use crate::failure::{Failure, Outcome};
use crate::glob;
use crate::protocol::Args;
use crate::server::Server;
use crate::session::Session;

/// Whether a RESP2 client that listens may send this.
pub(super) fn is_allowed(command: &Command) -> bool {
    command.name.ends_with("subscribe") || matches!(command.name, "ping" | "quit" | "reset")
}

/// What a command is about.
#[derive(Clone, Copy)]
enum Kind {
    Channel,
    Pattern,
    /// A channel of SSUBSCRIBE. Without a cluster there is one shard: this server.
    ShardChannel,
}

fn registry(server: &mut Server, kind: Kind) -> &mut BTreeMap<Vec<u8>, Vec<usize>> {
    match kind {
        Kind::Channel => &mut server.channels,
        Kind::Pattern => &mut server.patterns,
        Kind::ShardChannel => &mut server.shard_channels,
    }
}

fn names(client: &mut Session, kind: Kind) -> &mut BTreeSet<Vec<u8>> {
    match kind {
        Kind::Channel => &mut client.channels,
        Kind::Pattern => &mut client.patterns,
        Kind::ShardChannel => &mut client.shard_channels,
    }
}

fn confirm(client: &mut Session, kind: Kind, word: &[u8], name: Option<&[u8]>) {
    let count = match kind {
        Kind::Channel | Kind::Pattern => client.channels.len() + client.patterns.len(),
        Kind::ShardChannel => client.shard_channels.len(),
    };
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
        if names(client, kind).insert(name.to_vec()) {
            registry(server, kind).entry(name.to_vec()).or_default().push(client.slot);
        }
        confirm(client, kind, word, Some(name));
    }
    Ok(())
}

fn leave(server: &mut Server, client: &mut Session, name: &[u8], kind: Kind) {
    if names(client, kind).remove(name) {
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
    let names: Vec<Vec<u8>> = match args.len() {
        1 => names(client, kind).iter().cloned().collect(),
        _ => args.from(1).iter().map(<[u8]>::to_vec).collect(),
    };
    for name in &names {
        leave(server, client, name, kind);
        confirm(client, kind, word, Some(name));
    }
    if names.is_empty() {
        confirm(client, kind, word, None);
    }
    Ok(())
}

/// A client goes: it listens to nothing any more.
pub fn unsubscribe_all(server: &mut Server, client: &mut Session) {
    for kind in [Kind::Channel, Kind::Pattern, Kind::ShardChannel] {
        for name in names(client, kind).clone() {
            leave(server, client, &name, kind);
        }
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

pub(super) fn ssubscribe(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    add(server, client, args, Kind::ShardChannel, b"ssubscribe")
}

pub(super) fn sunsubscribe(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    remove(server, client, args, Kind::ShardChannel, b"sunsubscribe")
}

pub(super) fn spublish(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let receivers = server.publish_to_shard(args.at(1), args.at(2));
    super::tell_own_now(server, client);
    server.effects.add_for_replicas(client.database, args);
    client.reply.count(receivers);
    Ok(())
}

pub(super) fn publish(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let receivers = server.publish(args.at(1), args.at(2));
    // Who listens itself gets the message first, and then how many did.
    super::tell_own_now(server, client);
    server.effects.add_for_replicas(client.database, args);
    client.reply.count(receivers);
    Ok(())
}

fn list(server: &mut Server, client: &mut Session, args: Args<'_>, kind: Kind) -> Outcome {
    if args.len() > 3 {
        return Err(Failure::subcommand(args.at(1), "PUBSUB"));
    }
    let is_wanted = |name: &&Vec<u8>| args.get(2).is_none_or(|pattern| glob::matches(pattern, name));
    let names: Vec<&Vec<u8>> = registry(server, kind).keys().filter(is_wanted).collect();
    client.reply.array(names.len());
    names.iter().for_each(|name| client.reply.bulk(name));
    Ok(())
}

pub(super) fn channels(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    list(server, client, args, Kind::Channel)
}

pub(super) fn shardchannels(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    list(server, client, args, Kind::ShardChannel)
}

pub(super) fn numsub(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    count(server, client, args, Kind::Channel)
}

pub(super) fn shardnumsub(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    count(server, client, args, Kind::ShardChannel)
}

fn count(server: &mut Server, client: &mut Session, args: Args<'_>, kind: Kind) -> Outcome {
    client.reply.array((args.len() - 2) * 2);
    for name in args.from(2).iter() {
        client.reply.bulk(name);
        client.reply.count(registry(server, kind).get(name).map_or(0, Vec::len));
    }
    Ok(())
}

pub(super) fn numpat(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    client.reply.count(server.patterns.len());
    Ok(())
}
