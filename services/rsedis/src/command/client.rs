//! CLIENT: who is connected.

use super::options::{deadline_millis, integer, is};
use crate::failure::{Failure, Outcome, SYNTAX};
use crate::protocol::Args;
use crate::server::{Pause, PausePurpose, Server};
use crate::session::{ReplyMode, Session};

pub(super) fn id(_: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    client.reply.integer(client.id as i64);
    Ok(())
}

/// Errors: a name that would break the lines of CLIENT LIST.
pub(super) fn check_name(name: &[u8]) -> Outcome {
    match name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        true => Ok(()),
        false => Err(Failure::new("ERR Client names cannot contain spaces, newlines or special characters.")),
    }
}

pub(super) fn setname(_: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    check_name(args.at(2))?;
    client.name = args.at(2).to_vec();
    client.reply.ok();
    Ok(())
}

pub(super) fn getname(_: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    match client.name.is_empty() {
        true => client.reply.null(),
        false => client.reply.bulk(&client.name),
    }
    Ok(())
}

pub(super) fn reply_mode(_: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    match args.at(2) {
        word if is(word, "ON") => {
            client.reply_mode = ReplyMode::On;
            client.reply.ok();
        }
        word if is(word, "OFF") => client.reply_mode = ReplyMode::Off,
        word if is(word, "SKIP") => {
            if client.reply_mode != ReplyMode::Off {
                client.reply_mode = ReplyMode::SkipNext;
            }
        }
        _ => return Err(SYNTAX),
    }
    Ok(())
}

pub(super) fn no_evict(_: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    client.no_evict = match args.at(2) {
        word if is(word, "ON") => true,
        word if is(word, "OFF") => false,
        _ => return Err(SYNTAX),
    };
    client.reply.ok();
    Ok(())
}

fn is_listener(session: &Session) -> bool {
    session.subscriptions() > 0
}

pub(super) fn describe(session: &Session, now: i64) -> String {
    let mut flags = String::new();
    for (is_set, letter) in [
        (is_listener(session), 'P'),
        (session.is_monitor, 'O'),
        (session.transaction.is_some(), 'x'),
        (session.waiting.is_some(), 'b'),
        (session.is_closing, 'c'),
        (session.is_watch_broken, 'd'),
        (session.no_evict, 'e'),
        (session.address.starts_with('/'), 'U'),
    ] {
        if is_set {
            flags.push(letter);
        }
    }
    if session.is_replica() {
        flags.push('S');
    }
    if session.is_master {
        flags.push('M');
    }
    if let Some(tracking) = &session.tracking {
        flags.push_str(&tracking.flags());
    }
    if flags.is_empty() {
        flags.push('N');
    }
    let queued = session.transaction.as_ref().map_or(-1, |transaction| transaction.queue.len() as i64);
    // One buffer holds them all: there is no list behind it.
    let (output, capacity) = (session.waiting_bytes(), session.reply.bytes.capacity());
    format!(
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={flags} db={} sub={} psub={} ssub={} multi={queued} qbuf={} \
         qbuf-free={} argv-mem={} multi-mem={} rbs={capacity} rbp={capacity} obl={output} oll=0 omem={output} tot-mem={} events={} \
         cmd={} user={} redir={} resp={}\n",
        session.id,
        session.address,
        session.local_address,
        session.slot,
        String::from_utf8_lossy(&session.name),
        (now - session.created) / 1000,
        (now - session.last_active) / 1000,
        session.database,
        session.channels.len(),
        session.patterns.len(),
        session.shard_channels.len(),
        session.query_bytes,
        session.query_capacity.saturating_sub(session.query_bytes),
        session.argument_bytes,
        session.transaction_memory(),
        crate::server::bytes_of(session),
        if output > 0 { "rw" } else { "r" },
        session.last_command,
        String::from_utf8_lossy(&session.user),
        session.tracking.as_ref().map_or(-1, |tracking| tracking.redirect() as i64),
        if session.reply.is_resp3 { 3 } else { 2 },
    )
}

pub(super) fn info(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    let text = describe(client, server.now);
    client.reply.verbatim(&text);
    Ok(())
}

/// `normal`, `master`, `replica`, `pubsub`.
fn type_filter(word: &[u8]) -> Outcome<fn(&Session) -> bool> {
    match word {
        word if is(word, "normal") => {
            Ok(|session| !is_listener(session) && !session.is_replica() && !session.is_master)
        }
        word if is(word, "pubsub") => Ok(|session| is_listener(session) && !session.is_replica()),
        word if is(word, "master") => Ok(|session| session.is_master),
        word if is(word, "replica") || is(word, "slave") => Ok(Session::is_replica),
        _ => Err(Failure::joined(&[b"ERR Unknown client type '", word, b"'"])),
    }
}

pub(super) fn list(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let mut filter: Box<dyn Fn(&Session) -> bool> = Box::new(|_| true);
    match args.get(2) {
        None => {}
        Some(word) if is(word, "TYPE") && args.len() == 4 => filter = Box::new(type_filter(args.at(3))?),
        Some(word) if is(word, "ID") && args.len() > 3 => {
            let ids = args.from(3).iter().map(|text| integer(text).ok());
            let ids: Option<Vec<i64>> = ids.collect();
            let ids = ids.ok_or(Failure::new("ERR Invalid client ID"))?;
            filter = Box::new(move |session| ids.contains(&(session.id as i64)));
        }
        Some(_) => return Err(SYNTAX),
    }
    let now = server.now;
    let mut sessions: Vec<&Session> = server
        .sessions
        .iter()
        .flatten()
        .map(|session| &**session)
        .chain([&*client])
        .filter(|one| filter(one))
        .collect();
    sessions.sort_by_key(|session| session.id);
    let text: String = sessions.into_iter().map(|session| describe(session, now)).collect();
    client.reply.verbatim(&text);
    Ok(())
}

pub(super) fn pause(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let is_all = match args.get(3) {
        None => true,
        Some(word) if is(word, "ALL") => true,
        Some(word) if is(word, "WRITE") => false,
        Some(_) => return Err(Failure::new("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let until = deadline_millis(args.at(2), server.now)?.unwrap_or(server.now);
    server.pauses.begin(PausePurpose::Client, Pause { until, is_all }, server.now);
    client.reply.ok();
    Ok(())
}

pub(super) fn unpause(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    server.end_pause(PausePurpose::Client);
    client.reply.ok();
    Ok(())
}

pub(super) fn unblock(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let id = integer(args.at(2))?;
    let is_error = match args.get(3) {
        None => false,
        Some(word) if is(word, "TIMEOUT") => false,
        Some(word) if is(word, "ERROR") => true,
        Some(_) => return Err(Failure::new("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
    };
    let slot = server.sessions.iter().flatten().find(|session| session.id as i64 == id).map(|session| session.slot);
    client.reply.flag(slot.is_some_and(|slot| crate::waiting::end(server, slot, is_error)));
    Ok(())
}

/// Chooses clients.
type Filter = Box<dyn Fn(&Session) -> bool>;

pub(super) fn kill(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let is_old = args.len() == 3;
    let mut filters: Vec<Filter> = Vec::new();
    let mut skips_me = true;
    if is_old {
        let address = String::from_utf8_lossy(args.at(2)).into_owned();
        filters.push(Box::new(move |session| session.address == address));
        skips_me = false;
    } else {
        for at in (2..args.len()).step_by(2) {
            let (word, Some(value)) = (args.at(at), args.get(at + 1)) else { return Err(SYNTAX) };
            let text = String::from_utf8_lossy(value).into_owned();
            match word {
                word if is(word, "ID") => {
                    let id = integer(value).ok().filter(|id| *id > 0);
                    let id = id.ok_or(Failure::new("ERR client-id should be greater than 0"))?;
                    filters.push(Box::new(move |session| session.id as i64 == id));
                }
                word if is(word, "ADDR") => filters.push(Box::new(move |session| session.address == text)),
                word if is(word, "LADDR") => filters.push(Box::new(move |session| session.local_address == text)),
                word if is(word, "TYPE") => filters.push(Box::new(type_filter(value)?)),
                word if is(word, "USER") => {
                    if server.users.get(value).is_none() {
                        return Err(Failure::joined(&[b"ERR No such user '", value, b"'"]));
                    }
                    let user = value.to_vec();
                    filters.push(Box::new(move |session| session.user == user));
                }
                word if is(word, "SKIPME") => match value {
                    value if is(value, "yes") => skips_me = true,
                    value if is(value, "no") => skips_me = false,
                    _ => return Err(SYNTAX),
                },
                _ => return Err(SYNTAX),
            }
        }
    }
    let is_meant = |session: &Session| filters.iter().all(|filter| filter(session));
    let mut killed = 0;
    let Server { sessions, woken, .. } = server;
    for session in sessions.iter_mut().flatten().filter(|session| is_meant(session)) {
        session.is_killed = true;
        woken.push(session.slot);
        killed += 1;
    }
    if !skips_me && is_meant(client) {
        client.is_closing = true;
        killed += 1;
    }
    match (is_old, killed) {
        (true, 0) => return Err(Failure::new("ERR No such client")),
        (true, _) => client.reply.ok(),
        (false, killed) => client.reply.count(killed),
    }
    Ok(())
}
