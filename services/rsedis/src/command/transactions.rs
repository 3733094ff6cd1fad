//! MULTI, EXEC, DISCARD, WATCH.

use super::{Command, acl, refuse, run};
use crate::acl::{Context, Denied};
use crate::failure::{Failure, Outcome};
use crate::protocol::Args;
use crate::server::Server;
use crate::session::{Session, Transaction};

/// Whether a command runs between MULTI and EXEC instead of being queued.
#[inline]
pub(super) fn runs_at_once(command: &Command) -> bool {
    matches!(command.name, "exec" | "discard" | "multi" | "watch" | "quit" | "reset")
}

pub(super) fn multi(_: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    if client.transaction.is_some() {
        return Err(Failure::new("ERR MULTI calls can not be nested"));
    }
    client.transaction = Some(Transaction::default());
    client.reply.ok();
    Ok(())
}

pub(super) fn discard(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    if client.transaction.take().is_none() {
        return Err(Failure::new("ERR DISCARD without MULTI"));
    }
    server.unwatch(client);
    client.reply.ok();
    Ok(())
}

/// Whether a key is there, and its time has come.
pub(super) fn is_stale(server: &Server, (database, name): &(usize, Vec<u8>)) -> bool {
    let keys = &server.databases[*database];
    let place = keys.find(&crate::keyspace::Key::new(name));
    let expiry = place.and_then(|place| keys.entry(place).expiry());
    expiry.is_some_and(|expiry| expiry <= server.now)
}

/// A command was refused before it ran: EXEC will be as well, and if it was EXEC the transaction is over, also where there was none.
pub(super) fn abort(server: &mut Server, client: &mut Session, args: Args<'_>, failure: Failure) -> Failure {
    if super::find(args.at(0)).is_none_or(|command| command.name != "exec") {
        client.abort_transaction();
        return failure;
    }
    client.transaction = None;
    server.unwatch(client);
    let why = failure.0.strip_prefix(b"ERR ").unwrap_or(&failure.0);
    Failure::joined(&[b"EXECABORT Transaction discarded because of: ", why])
}

pub(super) fn exec(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    let Some(transaction) = client.transaction.take() else {
        return Err(Failure::new("ERR EXEC without MULTI"));
    };
    // A watched key whose time has come counts as changed, but where it had come when it was watched.
    let is_expired = (client.watched.iter()).any(|watched| {
        let was_stale = server.stale_watches.get(watched).is_some_and(|ids| ids.contains(&client.id));
        !was_stale && is_stale(server, watched)
    });
    let is_broken = client.is_watch_broken || is_expired;
    server.unwatch(client);
    if transaction.is_aborted {
        return Err(Failure::new("EXECABORT Transaction discarded because of previous errors."));
    }
    if is_broken {
        client.reply.null_array();
        return Ok(());
    }
    let discarded = |Failure(why)| Failure::joined(&[b"EXECABORT Transaction discarded because of: ", &why]);
    // The link may have broken since they were queued, or data are being read.
    for (command, _) in &transaction.queue {
        if server.reads_data() {
            super::check_loading(server, client, command).map_err(discarded)?;
        }
        super::check_link(server, client, command).map_err(discarded)?;
    }
    let is_write = transaction.queue.iter().any(|(command, args)| {
        command.is(super::WRITE) || super::scripts::says_it_writes(server, command, args.as_args())
    });
    if is_write {
        super::may_write_now(server, client).map_err(discarded)?;
    }
    let needs_memory = transaction.queue.iter().any(|(command, _)| command.is(super::DENYOOM));
    // What its master has taken, a replica takes.
    if needs_memory && server.is_out_of_memory && !client.is_master {
        return Err(Failure::new(
            "EXECABORT Transaction discarded because of: OOM command not allowed when used memory > 'maxmemory'.",
        ));
    }
    client.reply.array(transaction.queue.len());
    server.effects.begin_transaction();
    client.may_not_wait = true;
    for (command, args) in &transaction.queue {
        let (replied, was_closing) = (client.reply.bytes.len(), client.is_closing);
        if !client.may_all
            && let Err(denied) = acl::check(server, client, command, args.as_args(), Context::Multi)
        {
            let why = match denied {
                Denied::Command => "no permission to execute the command or subcommand",
                Denied::Key(_) => "no permission to touch the specified keys",
                Denied::Channel(_) => "no permission to access one of the channels used as arguments",
            };
            let failure = Failure::text(format!(
                "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no \
                 longer allowed for the following reason: {why}"
            ));
            refuse(server, client, &failure);
            continue;
        }
        run(server, client, command, args.as_args());
        if was_closing {
            // It has killed itself: what it asked for is done, and nobody hears of it.
            client.reply.bytes.truncate(replied);
        }
    }
    client.may_not_wait = false;
    server.effects.end_transaction();
    server.effects.say_nothing();
    Ok(())
}

pub(super) fn watch(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    if client.transaction.is_some() {
        return Err(Failure::new("ERR WATCH inside MULTI is not allowed"));
    }
    if !client.is_watch_broken {
        for name in args.from(1).iter() {
            let watched = (client.database, name.to_vec());
            if !client.watched.contains(&watched) {
                if is_stale(server, &watched) {
                    server.stale_watches.entry(watched.clone()).or_default().push(client.id);
                }
                server.watchers.entry(watched.clone()).or_default().push(client.id);
                client.watched.push(watched);
            }
        }
    }
    client.reply.ok();
    Ok(())
}

pub(super) fn unwatch(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    server.unwatch(client);
    client.reply.ok();
    Ok(())
}
