//! ACL: users and what they may do. What is decided by them is [`crate::acl`].

use std::io::Read as _;

use super::options::{integer, is};
use super::{CATEGORY_NAMES, Command, client};
use crate::acl::{self, Context, DEFAULT, Denied, Entry, Selector, category_named, commands_of};
use crate::failure::{Failure, Outcome, up_to_zero};
use crate::protocol::{Args, Reply};
use crate::server::{Request, Server};
use crate::session::Session;

const GENERATED_BITS_MAX: i64 = 4096;

/// Whether a client may run a command; a refusal is logged.
#[cold]
pub fn check(
    server: &mut Server,
    client: &Session,
    command: &Command,
    args: Args<'_>,
    context: Context,
) -> Result<(), Denied> {
    let outcome = server.users.check(&client.user, command, args);
    if let Err(denied) = outcome {
        note(server, client, denied.reason(), context, denied.object(command, args), &client.user);
    }
    outcome
}

/// Logs a refusal.
pub fn note(
    server: &mut Server,
    client: &Session,
    reason: &'static str,
    context: Context,
    object: Vec<u8>,
    user: &[u8],
) {
    let most = server.settings.integer("acllog-max-len").max(0) as usize;
    let client = client::describe(client, server.now).trim_end().to_owned();
    let entry = Entry { count: 1, reason, context, object, user: user.to_vec(), at: server.now, client };
    server.acl_log.add(entry, most);
}

/// Logs a client in, which sent this command to be.
pub fn log_in(server: &mut Server, client: &mut Session, by: &[u8], user: &[u8], password: &[u8]) -> Outcome {
    if !server.users.is_login(user, password) {
        let context = if client.transaction.is_some() { Context::Multi } else { Context::TopLevel };
        note(server, client, "auth", context, by.to_vec(), user);
        return Err(Failure::new("WRONGPASS invalid username-password pair or user is disabled."));
    }
    client.is_authenticated = true;
    become_user(server, client, user);
    Ok(())
}

/// A client is this user from now on.
pub fn become_user(server: &Server, client: &mut Session, user: &[u8]) {
    client.user = user.to_vec();
    client.may_all = server.users.may_all(user);
}

/// Users have changed: clients whose user is gone go as well, as do those that listen to what their user may not listen to any more.
pub fn follow(server: &mut Server, client: Option<&mut Session>) {
    let Server { users, sessions, woken, .. } = server;
    for session in sessions.iter_mut().flatten().map(|session| &mut **session) {
        follow_one(users, session);
        if session.is_killed {
            woken.push(session.slot);
        }
    }
    if let Some(client) = client {
        follow_one(users, client);
        if std::mem::take(&mut client.is_killed) {
            // Its own reply comes first.
            client.is_closing = true;
        }
    }
}

fn follow_one(users: &acl::Users, session: &mut Session) {
    session.may_all = users.may_all(&session.user);
    let Some(user) = users.get(&session.user) else {
        session.is_killed = true;
        return;
    };
    let may_listen = session.channels.iter().chain(&session.shard_channels).all(|name| user.may_listen(name, false))
        && session.patterns.iter().all(|name| user.may_listen(name, true));
    session.is_killed |= !may_listen;
}

/// Users come from a file: clients of users that are not the default one have to log in again, as in Redis. The one at a slot, who
/// asked for it, hears what came of it first.
pub fn replace_users(server: &mut Server, users: acl::Users, asker: Option<usize>) {
    server.users = users;
    follow(server, None);
    for session in server.sessions.iter_mut().flatten().filter(|session| session.user != DEFAULT) {
        let is_asker = asker == Some(session.slot);
        session.is_killed = !is_asker;
        session.is_closing |= is_asker;
        server.woken.push(session.slot);
    }
}

pub(super) fn setuser(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let name = args.at(2);
    if !acl::is_name(name) {
        return Err(Failure::new("ERR Usernames can't contain spaces or null characters"));
    }
    let rules: Vec<&[u8]> = args.from(3).iter().collect();
    server.users.set(name, &rules).map_err(|why| Failure::joined(&[b"ERR ", &why]))?;
    follow(server, Some(client));
    client.reply.ok();
    Ok(())
}

pub(super) fn deluser(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    if args.from(2).iter().any(|name| name == DEFAULT) {
        return Err(Failure::new("ERR The 'default' user cannot be removed"));
    }
    let removed = args.from(2).iter().filter(|name| server.users.remove(name)).count();
    follow(server, Some(client));
    client.reply.count(removed);
    Ok(())
}

fn describe_selector(reply: &mut Reply, selector: &Selector) {
    reply.bulk(b"commands");
    reply.bulk(&selector.describe_commands());
    reply.bulk(b"keys");
    reply.bulk(&selector.describe_keys());
    reply.bulk(b"channels");
    reply.bulk(&selector.describe_channels());
}

pub(super) fn getuser(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let reply = &mut client.reply;
    let Some(user) = server.users.get(args.at(2)) else {
        reply.null();
        return Ok(());
    };
    reply.map(6);
    reply.bulk(b"flags");
    let flags = user.flags();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(user.passwords().len());
    user.passwords().iter().for_each(|hash| reply.bulk(hash));
    let mut selectors = user.selectors();
    if let Some(root) = selectors.next() {
        describe_selector(reply, root);
    }
    let others: Vec<&Selector> = selectors.collect();
    reply.bulk(b"selectors");
    reply.array(others.len());
    for selector in others {
        reply.map(3);
        describe_selector(reply, selector);
    }
    Ok(())
}

pub(super) fn list(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    client.reply.array(server.users.len());
    server.users.iter().for_each(|(name, user)| client.reply.bulk(&acl::line(name, user)));
    Ok(())
}

pub(super) fn users(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    client.reply.array(server.users.len());
    server.users.iter().for_each(|(name, _)| client.reply.bulk(name));
    Ok(())
}

pub(super) fn whoami(_: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    client.reply.bulk(&client.user);
    Ok(())
}

fn check_has_file(server: &Server) -> Outcome {
    match server.settings.text("aclfile").is_empty() {
        true => Err(Failure::new(
            "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command \
             and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the \
             Redis configuration.",
        )),
        false => Ok(()),
    }
}

pub(super) fn load(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    check_has_file(server)?;
    let asker = super::answered_later(client, "ACL LOAD")?;
    server.requests.push(Request::LoadUsers(asker));
    Ok(())
}

pub(super) fn save(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    check_has_file(server)?;
    let asker = super::answered_later(client, "ACL SAVE")?;
    server.requests.push(Request::SaveUsers(asker));
    Ok(())
}

pub(super) fn cat(_: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let names: Vec<&str> = match args.get(2) {
        None => CATEGORY_NAMES.iter().map(|(_, name)| &name[1..]).collect(),
        Some(name) if args.len() == 3 => {
            let unknown = || Failure::joined(&[b"ERR Unknown category '", &name[..name.len().min(128)], b"'"]);
            let category = category_named(name).ok_or_else(unknown)?;
            commands_of(category).map(|command| command.name).collect()
        }
        Some(_) => return Err(unknown_arguments(args)),
    };
    client.reply.array(names.len());
    names.iter().for_each(|name| client.reply.bulk(name.as_bytes()));
    Ok(())
}

fn unknown_arguments(args: Args<'_>) -> Failure {
    Failure::subcommand(args.at(1), "ACL")
}

pub(super) fn genpass(_: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    if args.len() > 3 {
        return Err(unknown_arguments(args));
    }
    let bits = args.get(2).map_or(Ok(256), integer)?;
    if !(1..=GENERATED_BITS_MAX).contains(&bits) {
        return Err(Failure::text(format!(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to {GENERATED_BITS_MAX}"
        )));
    }
    let characters = (bits as usize).div_ceil(4);
    let mut bytes = vec![0; characters.div_ceil(2)];
    // Passwords are secrets: the system's own source, not the server's quick numbers.
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|error| Failure::text(format!("ERR no random bytes for a password: /dev/urandom: {error}")))?;
    let mut text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    text.truncate(characters);
    client.reply.bulk(text.as_bytes());
    Ok(())
}

pub(super) fn log(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let count = match args.get(2) {
        Some(_) if args.len() > 3 => return Err(unknown_arguments(args)),
        Some(word) if is(word, "RESET") => {
            server.acl_log.clear();
            client.reply.ok();
            return Ok(());
        }
        Some(text) => integer(text)?.max(0) as usize,
        None => 10,
    };
    let reply = &mut client.reply;
    reply.array(count.min(server.acl_log.iter().len()));
    for entry in server.acl_log.iter().take(count) {
        reply.map(7);
        reply.bulk(b"count");
        reply.integer(entry.count as i64);
        reply.bulk(b"reason");
        reply.bulk(entry.reason.as_bytes());
        reply.bulk(b"context");
        reply.bulk(entry.context.name().as_bytes());
        reply.bulk(b"object");
        reply.bulk(&entry.object);
        reply.bulk(b"username");
        reply.bulk(&entry.user);
        reply.bulk(b"age-seconds");
        reply.double((server.now - entry.at) as f64 / 1000.0);
        reply.bulk(b"client-info");
        reply.bulk(entry.client.as_bytes());
    }
    Ok(())
}

pub(super) fn dryrun(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let user = server.users.get(args.at(2));
    let user = user.ok_or_else(|| Failure::joined(&[b"ERR User '", args.at(2), b"' not found"]))?;
    let tried = args.from(3);
    let command = super::resolve(tried).map_err(|failure| match failure.0.starts_with(b"ERR wrong number") {
        true => failure,
        false => Failure::joined(&[b"ERR Command '", tried.at(0), b"' not found"]),
    })?;
    let text = match user.check(command, tried) {
        Ok(()) => {
            client.reply.ok();
            return Ok(());
        }
        Err(Denied::Command) => {
            format!("This user has no permissions to run the '{}' command", command.name).into_bytes()
        }
        Err(Denied::Key(place)) => {
            [b"This user has no permissions to access the '".as_slice(), up_to_zero(tried.at(place)), b"' key"].concat()
        }
        Err(Denied::Channel(place)) => {
            [b"This user has no permissions to access the '".as_slice(), up_to_zero(tried.at(place)), b"' channel"]
                .concat()
        }
    };
    client.reply.bulk(&text);
    Ok(())
}
