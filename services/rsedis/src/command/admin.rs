//! The server as a whole.

use super::options::{integer, is};
use crate::failure::{Failure, Outcome, SYNTAX};
use crate::keyspace::Key;
use crate::protocol::Args;
use crate::server::{Request, Server};
use crate::session::Session;

pub(super) fn dbsize(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    client.reply.count(server.databases[client.database].len());
    Ok(())
}

/// `ASYNC` and `SYNC` are understood; both free at once.
fn check_flush_options(args: Args<'_>) -> Outcome {
    match args.get(1) {
        None => Ok(()),
        Some(word) if args.len() == 2 && (is(word, "ASYNC") || is(word, "SYNC")) => Ok(()),
        Some(_) => Err(SYNTAX),
    }
}

fn flush(server: &mut Server, database: usize) {
    let keys = std::mem::take(&mut server.databases[database]);
    server.dirty += keys.len() as u64;
    if !server.watchers.is_empty() {
        let names: Vec<Vec<u8>> = server
            .watchers
            .keys()
            .filter(|(watched, name)| *watched == database && keys.find(&Key::new(name)).is_some())
            .map(|(_, name)| name.clone())
            .collect();
        names.iter().for_each(|name| server.touch(database, name));
    }
}

pub(super) fn flushdb(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    check_flush_options(args)?;
    flush(server, client.database);
    // A flush is always an effect, as in Redis.
    server.dirty += 1;
    client.reply.ok();
    Ok(())
}

pub(super) fn flushall(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    check_flush_options(args)?;
    for database in 0..server.databases.len() {
        flush(server, database);
    }
    server.dirty += 1;
    client.reply.ok();
    Ok(())
}

pub(super) fn time(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    client.reply.array(2);
    client.reply.bulk_integer(server.now / 1000);
    client.reply.bulk_integer(server.now % 1000 * 1000);
    Ok(())
}

pub(super) fn role(_: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    client.reply.array(3);
    client.reply.bulk(b"master");
    client.reply.integer(0);
    client.reply.array(0);
    Ok(())
}

/// There are no replicas: none has what was written.
pub(super) fn wait(_: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    integer(args.at(1))?;
    if integer(args.at(2)).map_err(|_| Failure::new("ERR timeout is not an integer or out of range"))? < 0 {
        return Err(Failure::new("ERR timeout is negative"));
    }
    client.reply.integer(0);
    Ok(())
}

pub(super) fn memory_usage(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let is_understood = match args.get(3) {
        None => true,
        Some(word) => is(word, "SAMPLES") && args.len() == 5 && integer(args.at(4))? >= 0,
    };
    if !is_understood {
        return Err(SYNTAX);
    }
    match server.entry(client.database, &Key::new(args.at(2))) {
        Some(entry) => client.reply.count(entry.memory()),
        None => client.reply.null(),
    }
    Ok(())
}

/// The file cannot be rewritten while the server runs yet; see the README.
pub(super) fn bgrewriteaof(_: &mut Server, _: &mut Session, _: Args<'_>) -> Outcome {
    Err(Failure::new("ERR BGREWRITEAOF is not supported yet: the append only file grows until it is rewritten offline"))
}

pub(super) fn shutdown(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    for word in args.from(1).iter() {
        if is(word, "SAVE") {
            return Err(Failure::new("ERR Errors trying to SHUTDOWN. Check logs."));
        }
        if !["NOSAVE", "NOW", "FORCE"].iter().any(|known| is(word, known)) {
            return Err(SYNTAX);
        }
    }
    server.requests.push(Request::Shutdown);
    client.is_closing = true;
    Ok(())
}
