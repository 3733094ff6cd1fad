//! The connection itself: login, protocol, database.

use super::acl::{become_user, log_in};
use super::options::{database_number, is};
use crate::REDIS_VERSION;
use crate::acl;
use crate::failure::{Failure, Outcome};
use crate::number::parse_integer;
use crate::protocol::Args;
use crate::server::Server;
use crate::session::Session;

pub(super) fn auth(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    match args.len() {
        2 if server.users.get(acl::DEFAULT).is_some_and(acl::User::needs_no_password) => {
            return Err(Failure::new(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                 configuration is correct?",
            ));
        }
        2 => log_in(server, client, args.at(0), acl::DEFAULT, args.at(1))?,
        3 => log_in(server, client, args.at(0), args.at(1), args.at(2))?,
        _ => return Err(crate::failure::SYNTAX),
    }
    client.reply.ok();
    Ok(())
}

pub(super) fn hello(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let mut version = None;
    if let Some(text) = args.get(1) {
        let number =
            parse_integer(text).ok_or(Failure::new("ERR Protocol version is not an integer or out of range"))?;
        if !(2..=3).contains(&number) {
            return Err(Failure::new("NOPROTO unsupported protocol version"));
        }
        version = Some(number);
    }
    let mut name = None;
    let mut at = 2;
    while let Some(word) = args.get(at) {
        let more = args.len() - 1 - at;
        if is(word, "AUTH") && more >= 2 {
            log_in(server, client, args.at(0), args.at(at + 1), args.at(at + 2))?;
            at += 3;
        } else if is(word, "SETNAME") && more >= 1 {
            super::client::check_name(args.at(at + 1))?;
            name = Some(args.at(at + 1));
            at += 2;
        } else {
            return Err(Failure::joined(&[b"ERR Syntax error in HELLO option '", word, b"'"]));
        }
    }
    if !client.is_authenticated && !server.users.is_open() {
        return Err(Failure::new(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> \
             <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        client.name = name.to_vec();
    }
    if let Some(version) = version {
        client.reply.is_resp3 = version == 3;
    }
    let reply = &mut client.reply;
    reply.map(7);
    reply.bulk(b"server");
    reply.bulk(b"redis");
    reply.bulk(b"version");
    reply.bulk(REDIS_VERSION.as_bytes());
    reply.bulk(b"proto");
    reply.integer(if reply.is_resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.integer(client.id as i64);
    reply.bulk(b"mode");
    reply.bulk(b"standalone");
    reply.bulk(b"role");
    reply.bulk(if server.replication.is_replica() { b"replica".as_slice() } else { b"master" });
    reply.bulk(b"modules");
    reply.array(0);
    Ok(())
}

pub(super) fn ping(_: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    if args.len() > 2 {
        return Err(Failure::arity("ping"));
    }
    let listens = client.subscriptions() > 0 && !client.reply.is_resp3;
    match (args.get(1), listens) {
        (message, true) => {
            client.reply.array(2);
            client.reply.bulk(b"pong");
            client.reply.bulk(message.unwrap_or_default());
        }
        (Some(message), false) => client.reply.bulk(message),
        (None, false) => client.reply.simple("PONG"),
    }
    Ok(())
}

pub(super) fn echo(_: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    client.reply.bulk(args.at(1));
    Ok(())
}

pub(super) fn quit(_: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    client.reply.ok();
    client.is_closing = true;
    Ok(())
}

pub(super) fn select(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    client.database = database_number(args.at(1), server.databases.len())?;
    client.reply.ok();
    Ok(())
}

pub(super) fn reset(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    client.transaction = None;
    server.forget(client);
    client.database = 0;
    client.name.clear();
    client.reply.is_resp3 = false;
    client.reply_mode = Default::default();
    client.no_evict = false;
    client.is_authenticated = server.users.is_open();
    become_user(server, client, acl::DEFAULT);
    client.reply.simple("RESET");
    Ok(())
}
