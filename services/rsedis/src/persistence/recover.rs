//! Brings the server back to where its files say it was.

use std::io;
use std::time::Duration;

use wal::files::{Directory, File};

use super::{Aof, Loaded, OpenError, Piece, beginning, io_error};
use crate::rdb;
use crate::server::Server;
use crate::session::Session;

/// What is read of an RDB file before those are served who ask.
const TURN: Duration = Duration::from_millis(50);
/// The same in commands of an append-only file.
const TURN_COMMANDS: u64 = 1_000;

/// Reads an RDB file, and serves those who ask meanwhile; how many bytes it has.
fn read_rdb(server: &mut Server, loader: &mut rdb::Loader, bytes: &[u8]) -> Result<usize, rdb::RdbError> {
    while !loader.step(server, &bytes[loader.at()..], false, TURN)? {
        server.serve_while_loading();
    }
    Ok(loader.at())
}

/// Bytes of the files of an append-only file, for who wants to know how far the reading is. What is wrong with them is found by who
/// reads them.
fn bytes_of<D: Directory>(directory: &D, name: &str) -> u64 {
    let names = directory.names().unwrap_or_default();
    let files = names.iter().filter(|file| file.starts_with(name));
    files.filter_map(|file| directory.open(file).and_then(|file| file.bytes()).ok()).sum()
}

/// The first base, and whether it is an RDB file.
fn rdb_of_nothing(server: &Server) -> (Vec<u8>, bool) {
    if !server.settings.is_yes("aof-use-rdb-preamble") {
        return (Vec::new(), false);
    }
    let mut bytes = rdb::header(server, true, false);
    bytes.push(rdb::END);
    let sum = rdb::CRC.checksum(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    (bytes, true)
}

/// Replays the append-only file into a server without keys.
pub fn replay<D: Directory>(server: &mut Server, directory: D) -> Result<(Aof<D>, Loaded), OpenError> {
    let name = server.settings.text("appendfilename").to_owned();
    let cuts = server.settings.is_yes("aof-load-truncated");
    let was_enabled = std::mem::take(&mut server.effects.is_enabled);
    server.begin_loading(bytes_of(&directory, &name));
    let mut loader =
        Session { is_authenticated: true, may_all: true, may_not_wait: true, slot: usize::MAX, ..Session::default() };
    let mut replayed = 0;
    let (base, is_rdb) = rdb_of_nothing(server);
    beginning::begin_with(&directory, &name, &base, is_rdb).map_err(io_error("begin the append-only file"))?;
    let opened = Aof::open(directory, &name, cuts, |piece| match piece {
        // What was changed behind the base was changed in keys that had not expired then: none goes before its commands have run.
        Piece::Rdb(bytes) => read_rdb(server, &mut rdb::Loader::new(true), bytes).map_err(|error| error.to_string()),
        Piece::Command(args) => {
            replayed += 1;
            // Nearly: the length of each argument stands before it.
            server.load.bytes += args.iter().map(|argument| argument.len() as u64 + 6).sum::<u64>();
            if replayed % TURN_COMMANDS == 0 {
                server.serve_while_loading();
            }
            let command =
                crate::command::resolve(args).map_err(|failure| match crate::command::is_known(args.at(0)) {
                    true => failure.to_string(),
                    false => {
                        let name = String::from_utf8_lossy(args.at(0)).into_owned();
                        format!("Unknown command '{name}' reading the append only file")
                    }
                })?;
            crate::command::run(server, &mut loader, command, args);
            // Who wrote it had done it: what cannot be done again is missing from here on.
            match std::mem::take(&mut loader.reply.bytes) {
                reply if reply.starts_with(b"-") => {
                    Err(format!("{} is answered with {}", command.name, String::from_utf8_lossy(&reply).trim_end()))
                }
                _ => Ok(0),
            }
        }
    });
    server.is_loading = false;
    server.effects.is_enabled = was_enabled;
    opened
}

/// Reads the RDB file into a server without keys, if there is one; how many bytes it has.
pub fn load_rdb<D: Directory>(server: &mut Server, directory: &D, name: &str) -> Result<Option<u64>, String> {
    let told = |error: io::Error| format!("{name}: {error}");
    if !directory.names().map_err(told)?.iter().any(|known| known == name) {
        return Ok(None);
    }
    let bytes = directory.open(name).and_then(|file| file.read()).map_err(told)?;
    server.begin_loading(bytes.len() as u64);
    let mut loader = rdb::Loader::new(server.replication.is_replica());
    let read = read_rdb(server, &mut loader, &bytes);
    server.is_loading = false;
    if read.is_ok()
        && let (Some(id), Some(offset)) = loader.history
    {
        go_on(server, id, offset, loader.stream_database.unwrap_or(0));
        // Who goes on there has them still.
        for (database, name) in loader.expired {
            server.effects.add(database, &[b"DEL", &name]);
        }
    }
    match read.map_err(|error| format!("{name}: {error}"))? {
        length if length == bytes.len() => Ok(Some(length as u64)),
        length => Err(format!("{name}, byte {length}: more behind the end of the RDB file: restore it from a backup")),
    }
}

/// The keys that were read are a state of a replication history: who followed it, or was followed, can go on there.
fn go_on(server: &mut Server, id: String, offset: u64, database: usize) {
    let size = server.settings.backlog_bytes;
    let replication = &mut server.replication;
    replication.offset = offset;
    match &mut replication.master {
        Some(master) => {
            master.database = database;
            replication.id = id;
        }
        None => replication.second = Some((id, offset)),
    }
    replication.begin_backlog(size);
    server.choose_effects();
}
