//! The server as a whole.

use super::options::is;
use crate::failure::{Failure, Outcome, SYNTAX};
use crate::protocol::Args;
use crate::server::{Request, Server, Shutdown};
use crate::session::Session;
use crate::waiting::{self, TimeoutReply};

pub(super) fn dbsize(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    client.reply.count(server.databases[client.database].len());
    Ok(())
}

/// Whether keys may be freed later: `ASYNC`, `SYNC`, or as `lazyfree-lazy-user-flush` says.
fn flushes_lazily(server: &Server, args: Args<'_>) -> Outcome<bool> {
    match args.get(1) {
        None => Ok(server.settings.lazily.flushes),
        Some(word) if args.len() == 2 && is(word, "ASYNC") => Ok(true),
        Some(word) if args.len() == 2 && is(word, "SYNC") => Ok(false),
        Some(_) => Err(SYNTAX),
    }
}

pub(super) fn flushdb(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let lazily = flushes_lazily(server, args)?;
    // A flush is always an effect, as in Redis.
    server.dirty += server.flush_database(client.database, lazily) as u64 + 1;
    client.reply.ok();
    Ok(())
}

pub(super) fn flushall(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let lazily = flushes_lazily(server, args)?;
    server.dirty += server.flush_databases(lazily) as u64 + 1;
    server.save.is_pointless = true;
    // As in Redis: else the keys would be back after a restart.
    if !server.settings.text("save").is_empty() && !server.is_loading {
        server.requests.push(Request::Save(None));
    }
    client.reply.ok();
    Ok(())
}

pub(super) fn time(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    client.reply.array(2);
    client.reply.bulk_integer(server.now / 1000);
    client.reply.bulk_integer(server.now % 1000 * 1000);
    Ok(())
}

pub(super) fn bgrewriteaof(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    if server.save.rewrites {
        return Err(Failure::new("ERR Background append only file rewriting already in progress"));
    }
    if server.save.saves {
        server.save.is_rewrite_due = true;
        client.reply.simple("Background append only file rewriting scheduled");
        return Ok(());
    }
    server.requests.push(Request::RewriteAof);
    client.reply.simple("Background append only file rewriting started");
    Ok(())
}

const SAVES_ALREADY: Failure = Failure::new("ERR Background save already in progress");

pub(super) fn save(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    if server.save.saves {
        return Err(SAVES_ALREADY);
    }
    let asker = super::answered_later(client, "SAVE")?;
    server.requests.push(Request::Save(asker));
    Ok(())
}

pub(super) fn bgsave(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let is_schedule = match args.get(1) {
        None => false,
        Some(word) if args.len() == 2 && is(word, "SCHEDULE") => true,
        Some(_) => return Err(SYNTAX),
    };
    if server.save.saves {
        return Err(SAVES_ALREADY);
    }
    if server.save.rewrites {
        if !is_schedule {
            return Err(Failure::new(
                "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order to \
                 schedule a BGSAVE whenever possible.",
            ));
        }
        server.save.is_save_due = true;
        client.reply.simple("Background saving scheduled");
        return Ok(());
    }
    server.requests.push(Request::BackgroundSave);
    client.reply.simple("Background saving started");
    Ok(())
}

pub(super) fn lastsave(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    client.reply.integer(server.save.last / 1000);
    Ok(())
}

pub(super) fn shutdown(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (mut shutdown, mut aborts) = (Shutdown::default(), false);
    for word in args.from(1).iter() {
        match (is(word, "SAVE"), is(word, "NOSAVE"), shutdown.saves) {
            (true, _, None | Some(true)) => shutdown.saves = Some(true),
            (_, true, None | Some(false)) => shutdown.saves = Some(false),
            _ if is(word, "FORCE") => shutdown.is_forced = true,
            _ if is(word, "NOW") => shutdown.is_now = true,
            _ if is(word, "ABORT") => aborts = true,
            _ => return Err(SYNTAX),
        }
    }
    if aborts {
        if shutdown != Shutdown::default() {
            return Err(SYNTAX);
        }
        if !server.abort_shutdown() {
            return Err(Failure::new("ERR No shutdown in progress."));
        }
        client.reply.ok();
        return Ok(());
    }
    if client.may_not_wait && !shutdown.is_now {
        return Err(Failure::new("ERR SHUTDOWN without NOW or ABORT isn't allowed for DENY BLOCKING client"));
    }
    if let Some(busy) = server.busy().filter(|_| shutdown.saves != Some(false)) {
        return Err(busy);
    }
    server.requests.push(Request::Shutdown(shutdown));
    waiting::wait(server, client, args, Vec::new(), None, TimeoutReply::Shutdown);
    Ok(())
}
