//! PFADD and kin.

use super::options::is;
use crate::failure::{Failure, Outcome, WRONG_TYPE};
use crate::keyspace::Key;
use crate::protocol::Args;
use crate::server::Server;
use crate::session::Session;
use crate::value::Value;
use crate::value::hyperloglog::{self as hll, Corrupt};

const NOT_ONE: Failure = Failure::new("WRONGTYPE Key is not a valid HyperLogLog string value.");
const CORRUPT: Failure = Failure::new("INVALIDOBJ Corrupted HLL object detected");

impl From<Corrupt> for Failure {
    fn from(_: Corrupt) -> Self {
        CORRUPT
    }
}

fn sparse_max(server: &Server) -> usize {
    usize::try_from(server.settings.integer("hll-sparse-max-bytes")).unwrap_or(usize::MAX)
}

/// A key's bytes, to be read.
fn read(server: &mut Server, database: usize, name: &[u8]) -> Outcome<Option<Vec<u8>>> {
    checked(server.text(database, &Key::new(name))?.map(|text| text.to_vec()))
}

/// The same of a key that is to be changed: nobody misses it.
fn read_to_change(server: &mut Server, database: usize, key: &Key<'_>) -> Outcome<Option<Vec<u8>>> {
    let Some(place) = server.find(database, key) else { return Ok(None) };
    let text = server.databases[database].entry(place).text().ok_or(WRONG_TYPE)?;
    checked(Some(text.to_vec()))
}

fn checked(bytes: Option<Vec<u8>>) -> Outcome<Option<Vec<u8>>> {
    match bytes {
        Some(bytes) if !hll::is_one(&bytes) => Err(NOT_ONE),
        bytes => Ok(bytes),
    }
}

/// Puts bytes under a key; its expiry stays.
fn write(server: &mut Server, database: usize, key: &Key<'_>, bytes: Vec<u8>) {
    let place = server.find(database, key);
    let text = place.and_then(|place| server.databases[database].entry_mut(place).text_mut());
    match text {
        Some(text) => *text = bytes,
        // Its encoding is `raw`, however short it is.
        None => {
            server.databases[database].insert_value(key, Value::String(bytes));
        }
    }
}

pub(super) fn pfadd(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database, most) = (Key::new(args.at(1)), client.database, sparse_max(server));
    let before = read_to_change(server, database, &key)?;
    let mut is_changed = before.is_none();
    let mut bytes = before.unwrap_or_else(hll::empty);
    for element in args.from(2).iter() {
        let (register, value) = hll::place(element);
        is_changed |= hll::raise(&mut bytes, register, value, most)?;
    }
    if is_changed {
        hll::forget(&mut bytes);
        write(server, database, &key, bytes);
        server.changed_string(database, key.bytes);
    }
    client.reply.flag(is_changed);
    Ok(())
}

/// The highest of each register of several keys, and whether one of them is dense.
fn union(server: &mut Server, database: usize, names: Args<'_>) -> Outcome<(Vec<u8>, bool)> {
    let mut highest = hll::registers(&hll::empty())?;
    let mut is_dense = false;
    for name in names.iter() {
        if let Some(bytes) = read(server, database, name)? {
            is_dense |= !hll::is_sparse(&bytes);
            for (own, other) in highest.iter_mut().zip(hll::registers(&bytes)?) {
                *own = (*own).max(other);
            }
        }
    }
    Ok((highest, is_dense))
}

pub(super) fn pfcount(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database) = (Key::new(args.at(1)), client.database);
    if args.len() > 2 {
        let (registers, _) = union(server, database, args.from(1))?;
        client.reply.integer(hll::estimate(&registers) as i64);
        return Ok(());
    }
    let Some(mut bytes) = read(server, database, key.bytes)? else {
        client.reply.integer(0);
        return Ok(());
    };
    let count = match hll::cached(&bytes) {
        Some(count) => count,
        None => {
            let count = hll::estimate(&hll::registers(&bytes)?);
            hll::cache(&mut bytes, count);
            write(server, database, &key, bytes);
            server.dirty += 1;
            server.touch(database, key.bytes);
            count
        }
    };
    client.reply.integer(count as i64);
    Ok(())
}

pub(super) fn pfmerge(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database, most) = (Key::new(args.at(1)), client.database, sparse_max(server));
    let (registers, is_dense) = union(server, database, args.from(1))?;
    let mut bytes = read_to_change(server, database, &key)?.unwrap_or_else(hll::empty);
    if is_dense {
        hll::make_dense(&mut bytes)?;
    }
    for (register, value) in registers.into_iter().enumerate().filter(|(_, value)| *value > 0) {
        hll::raise(&mut bytes, register, value, most)?;
    }
    hll::forget(&mut bytes);
    write(server, database, &key, bytes);
    server.changed_string(database, key.bytes);
    client.reply.ok();
    Ok(())
}

pub(super) fn pfdebug(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (key, database, word) = (Key::new(args.at(2)), client.database, args.at(1));
    let bytes = read(server, database, key.bytes)?;
    let mut bytes = bytes.ok_or(Failure::new("ERR The specified key does not exist"))?;
    match word {
        word if is(word, "GETREG") => {
            let is_changed = hll::make_dense(&mut bytes)?;
            let registers = hll::registers(&bytes)?;
            client.reply.array(registers.len());
            registers.into_iter().for_each(|value| client.reply.integer(i64::from(value)));
            if is_changed {
                write(server, database, &key, bytes);
                server.dirty += 1;
            }
        }
        word if is(word, "DECODE") => {
            if !hll::is_sparse(&bytes) {
                return Err(Failure::new("ERR HLL encoding is not sparse"));
            }
            let words = hll::runs_as_written(&bytes).into_iter().map(|run| match (run.value, run.bytes) {
                (0, 1) => format!("z:{}", run.length),
                (0, _) => format!("Z:{}", run.length),
                (value, _) => format!("v:{value},{}", run.length),
            });
            client.reply.bulk(words.collect::<Vec<_>>().join(" ").as_bytes());
        }
        word if is(word, "ENCODING") => {
            client.reply.simple(if hll::is_sparse(&bytes) { "sparse" } else { "dense" });
        }
        word if is(word, "TODENSE") => {
            let is_changed = hll::make_dense(&mut bytes)?;
            if is_changed {
                write(server, database, &key, bytes);
                server.dirty += 1;
            }
            client.reply.flag(is_changed);
        }
        word => return Err(Failure::joined(&[b"ERR Unknown PFDEBUG subcommand '", word, b"'"])),
    }
    Ok(())
}

/// Adds as many elements as it takes to see both forms and compares their registers.
pub(super) fn pfselftest(_: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    let (mut sparse, mut dense) = (hll::empty(), hll::empty());
    hll::make_dense(&mut dense)?;
    for number in 0..50_000u32 {
        let (register, value) = hll::place(&number.to_le_bytes());
        hll::raise(&mut sparse, register, value, 3_000)?;
        hll::raise(&mut dense, register, value, 3_000)?;
    }
    let registers = hll::registers(&dense)?;
    let count = hll::estimate(&registers);
    if hll::registers(&sparse)? != registers || !(48_000..52_000).contains(&count) {
        return Err(Failure::text(format!("TESTFAILED sparse and dense registers differ, or {count} is counted")));
    }
    client.reply.ok();
    Ok(())
}
