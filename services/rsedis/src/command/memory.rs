//! MEMORY: what takes how much.

use super::options::{integer, is};
use crate::failure::{Failure, Outcome, SYNTAX};
use crate::keyspace::Key;
use crate::protocol::{Args, Reply};
use crate::server::Server;
use crate::session::Session;

/// Below this there is nothing to find.
const LITTLE_BYTES: u64 = 5 << 20;
/// Less than this is not worth a remark.
const WASTE_BYTES: u64 = 10 << 20;

pub(super) fn usage(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let is_understood = match args.get(3) {
        None => true,
        Some(word) => is(word, "SAMPLES") && args.len() == 5 && integer(args.at(4))? >= 0,
    };
    if !is_understood {
        return Err(SYNTAX);
    }
    match server.entry_if_there(client.database, &Key::new(args.at(2))) {
        Some(entry) => client.reply.count(entry.memory()),
        None => client.reply.null(),
    }
    Ok(())
}

/// What is wrong with memory, in Redis's words where nothing is.
pub(super) fn doctor(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    let used = server.memory.used();
    let resident = service_kit::resources::resident_bytes();
    if used < LITTLE_BYTES {
        client.reply.verbatim(
            "Hi Sam, this instance is empty or is using very little memory, my issues detector can't be used in these conditions. \
             Please, leave for your mission on Earth and fill it with some data. The new Sam and I will be back to our programming \
             as soon as I finished rebooting.\n",
        );
        return Ok(());
    }
    let mut issues = String::new();
    if server.memory.peak > used / 2 * 3 {
        issues += " * Peak memory: more than 150% of what is used now was used in the past. The allocator gives it back by and by.\n";
    }
    if resident > used / 5 * 7 && resident - used > WASTE_BYTES {
        issues += " * Fragmentation: the process has more than 140% of what is used. A restart packs it.\n";
    }
    match issues.is_empty() {
        true => client.reply.verbatim(
            "Hi Sam, I can't find any memory issue in your instance. I can only account for what occurs on this base.\n",
        ),
        false => client.reply.verbatim(&format!("Sam, I detected a few issues in this instance:\n\n{issues}")),
    }
    Ok(())
}

pub(super) fn purge(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    match server.memory.purge() {
        true => client.reply.ok(),
        false => return Err(Failure::new("ERR Error purging dirty pages")),
    }
    Ok(())
}

pub(super) fn malloc_stats(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    client.reply.verbatim(&server.memory.report());
    Ok(())
}

fn field(reply: &mut Reply, name: &str, number: u64) {
    reply.bulk(name.as_bytes());
    reply.integer(number as i64);
}

/// The fields of Redis's that are known here.
pub(super) fn stats(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    let used = server.memory.used();
    let peak = server.memory.peak.max(used);
    let resident = service_kit::resources::resident_bytes();
    let databases: Vec<(usize, usize, usize, usize)> = (server.databases.iter().enumerate())
        .filter(|(_, database)| !database.is_empty())
        .map(|(number, database)| (number, database.len(), database.table_bytes(), database.expiry_bytes()))
        .collect();
    let buffers = |is_replica: bool| {
        let sessions = server.sessions.iter().flatten().filter(|session| session.is_replica() == is_replica);
        sessions.map(|session| session.reply.bytes.capacity() + session.query_bytes).sum::<usize>() as u64
    };
    let (replicas, clients) = (buffers(true), buffers(false));
    let effects = server.effects.bytes.capacity() as u64;
    let tables: usize = databases.iter().map(|(.., table, expiries)| table + expiries).sum();
    let overhead = server.memory.at_start + replicas + clients + effects + tables as u64;
    let keys: usize = databases.iter().map(|(_, keys, ..)| keys).sum();
    let dataset = used.saturating_sub(overhead);
    let reply = &mut client.reply;
    reply.map(15 + databases.len());
    field(reply, "peak.allocated", peak);
    field(reply, "total.allocated", used);
    field(reply, "startup.allocated", server.memory.at_start);
    field(reply, "clients.slaves", replicas);
    field(reply, "clients.normal", clients);
    field(reply, "aof.buffer", effects);
    for (number, _, table, expiries) in &databases {
        reply.bulk(format!("db.{number}").as_bytes());
        reply.map(2);
        field(reply, "overhead.hashtable.main", *table as u64);
        field(reply, "overhead.hashtable.expires", *expiries as u64);
    }
    field(reply, "overhead.total", overhead);
    field(reply, "keys.count", keys as u64);
    let beyond_start = used.saturating_sub(server.memory.at_start);
    field(reply, "keys.bytes-per-key", beyond_start.checked_div(keys as u64).unwrap_or(0));
    field(reply, "dataset.bytes", dataset);
    reply.bulk(b"dataset.percentage");
    reply.double(dataset as f64 * 100.0 / beyond_start.max(1) as f64);
    reply.bulk(b"peak.percentage");
    reply.double(used as f64 * 100.0 / peak.max(1) as f64);
    field(reply, "allocator.allocated", used);
    reply.bulk(b"fragmentation");
    reply.double(resident as f64 / used.max(1) as f64);
    field(reply, "fragmentation.bytes", resident.saturating_sub(used));
    Ok(())
}
