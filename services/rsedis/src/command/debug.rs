//! DEBUG, as far as tests of Redis ask for it.

use std::path::Path;
use std::time::Duration;

use super::options::{integer, is};
use crate::clock::now_millis;
use crate::failure::{Failure, NO_KEY, NOT_POSITIVE, Outcome, SYNTAX};
use crate::keyspace::Key;
use crate::number::{parse_double, parse_integer};
use crate::protocol::Args;
use crate::server::{Request, Server};
use crate::session::Session;
use crate::settings::{ClockKind, Extent};
use crate::{digest, eviction, log, scripting};

const NOT_ALLOWED: Failure = Failure::new(
    "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a local connection, \
     otherwise you need to set this option in the configuration file, and then restart the server.",
);

/// What there is.
const HELP: &[&str] = &[
    "DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "AOF-FLUSH-SLEEP <microsec>, QUICKLIST-PACKED-THRESHOLD <size>, REPLYBUFFER <setting> <value>",
    "    Are taken, and have nothing here to act on.",
    "CHANGE-REPL-ID",
    "    Change the replication IDs of the instance.",
    "CONFIG-REWRITE-FORCE-ALL",
    "    As CONFIG REWRITE, with all configuration options and their defaults.",
    "DIGEST, DIGEST-VALUE <key> [<key> ...]",
    "    A hex signature of the dataset, or of keys.",
    "ERROR <string>, LOG <message>, SLEEP <seconds>",
    "    Reply with an error, write into the log, stop for a while.",
    "HTSTATS <dbid>, HTSTATS-KEY <key>, LISTPACK <key>, OBJECT <key>",
    "    How data are kept.",
    "LOADAOF, RELOAD [NOFLUSH] [MERGE] [NOSAVE]",
    "    Read the append-only file, or the RDB file, back into memory.",
    "PANIC, ASSERT, SEGFAULT",
    "    End the server as a panic does.",
    "PAUSE-CRON <0|1>, SET-ACTIVE-EXPIRE <0|1>",
    "    Stop what is done in the background.",
    "POPULATE <count> [<prefix>] [<size>]",
    "    Create <count> string keys named <prefix>:<num>.",
    "PROTOCOL <type>",
    "    Reply with a test value of the specified type.",
    "REPLICATE <arg> [<arg> ...]",
    "    Send a command to replicas.",
    "SET-DISABLE-DENY-SCRIPTS <0|1>, SET-SKIP-CHECKSUM-VALIDATION <0|1>",
    "    Allow what tests need.",
    "HELP",
    "    Print this help.",
];

/// Whether the client may use DEBUG; asked before it is queued.
pub(super) fn check_allowed(server: &Server, client: &Session) -> Outcome {
    match server.settings.text("enable-debug-command") {
        "yes" => Ok(()),
        "local" if client.is_local => Ok(()),
        _ => Err(NOT_ALLOWED),
    }
}

pub(super) fn debug(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let word = String::from_utf8_lossy(args.at(1)).to_ascii_lowercase();
    let flag = |at: usize| args.get(at).ok_or(SYNTAX).map(|flag| flag != b"0");
    match (word.as_str(), args.len()) {
        ("help", 2) => {
            client.reply.array(HELP.len());
            HELP.iter().for_each(|line| client.reply.simple(line));
            return Ok(());
        }
        ("sleep", 3) => {
            let seconds = parse_double(args.at(2)).filter(|seconds| (0.0..=3600.0).contains(seconds)).unwrap_or(0.0);
            std::thread::sleep(Duration::from_secs_f64(seconds));
            // Who waits, and is served behind this, is served at the time that it is then. In a script time stands still.
            if !client.is_script {
                server.set_time(now_millis());
            }
        }
        ("set-active-expire", 3) => server.expires_actively = flag(2)?,
        ("log", 3) => log::notice(format_args!("DEBUG LOG: {}", String::from_utf8_lossy(args.at(2)))),
        ("error", 3) => return Err(Failure(args.at(2).to_vec().into())),
        // On a thread of its own, as the worst of places: nobody waits for it.
        ("panic" | "assert" | "segfault", 2) => {
            #[expect(clippy::panic, reason = "it was asked for")]
            let panics = || std::panic::panic_any("DEBUG PANIC asked for it");
            drop(std::thread::spawn(panics).join());
        }
        ("digest", 2) => {
            let digest = digest::of_databases(&server.databases);
            client.reply.simple(&digest);
            return Ok(());
        }
        ("digest-value", 2..) => {
            client.reply.array(args.len() - 2);
            for name in args.from(2).iter() {
                let digest = match server.find(client.database, &Key::new(name)) {
                    Some(place) => digest::of_value(server.databases[client.database].entry(place)),
                    None => digest::NOTHING.to_owned(),
                };
                client.reply.simple(&digest);
            }
            return Ok(());
        }
        ("object", 3 | 4) => {
            // Also of a key that has expired, and is still there.
            let place = server.databases[client.database].find(&Key::new(args.at(2))).ok_or(NO_KEY)?;
            let idle_seconds = match server.eviction.clock() {
                Some(ClockKind::LastUse) => eviction::idle_seconds(server, client.database, place).unwrap_or(0),
                _ => 0,
            };
            let entry = server.databases[client.database].entry(place);
            let text = format!(
                "Value at:0x0 refcount:1 encoding:{} serializedlength:{} lru:0 lru_seconds_idle:{idle_seconds}{}",
                entry.encoding(),
                crate::rdb::dump_body(entry).len(),
                object_details(entry)
            );
            client.reply.simple(&text);
            return Ok(());
        }
        ("listpack", 3) => {
            let place = server.find(client.database, &Key::new(args.at(2))).ok_or(NO_KEY)?;
            if server.databases[client.database].entry(place).encoding() != "listpack" {
                return Err(Failure::new("ERR Not a listpack encoded object."));
            }
            client.reply.simple("Listpack structure printed on stdout");
            return Ok(());
        }
        ("protocol", 3) => return protocol(client, args.at(2)),
        ("populate", 3..=5) => populate(server, client, args)?,
        ("reload", _) => {
            let (mut flushes, mut merges, mut reads_file) = (true, false, false);
            for word in args.from(2).iter() {
                match word {
                    word if is(word, "MERGE") => merges = true,
                    word if is(word, "NOFLUSH") => flushes = false,
                    word if is(word, "NOSAVE") => reads_file = true,
                    _ => {
                        return Err(Failure::new(
                            "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.",
                        ));
                    }
                }
            }
            let path = Path::new(server.settings.text("dir")).join(server.settings.text("dbfilename"));
            let bytes = match reads_file {
                true => std::fs::read(path),
                false => {
                    // Another reload may read it without writing it again.
                    let bytes = crate::rdb::write(server, false);
                    let beside = path.with_extension(format!("reload-{}", std::process::id()));
                    std::fs::write(&beside, &bytes).and_then(|()| std::fs::rename(&beside, &path)).map(|()| bytes)
                }
            };
            let bytes = bytes.map_err(|error| Failure::text(format!("{CANNOT_LOAD}{error}")))?;
            reload(server, &bytes, flushes, merges)?;
        }
        ("replicate", 3..) => {
            let words: Vec<&[u8]> = args.from(2).iter().collect();
            server.say_to_replicas(&words);
        }
        ("config-rewrite-force-all", 2) => {
            let asker = super::answered_later(client, "DEBUG CONFIG-REWRITE-FORCE-ALL")?;
            server.requests.push(Request::RewriteConfig(asker, Extent::All));
            return Ok(());
        }
        // Nothing of ours is written while others are served.
        ("aof-flush-sleep", 3) => {
            integer(args.at(2))?;
        }
        // Our buffers of replies grow as they are filled, and have no peak to be forgotten.
        ("replybuffer", 4) => {}
        ("loadaof", 2) => {
            let asker = super::answered_later(client, "DEBUG LOADAOF")?;
            server.requests.push(Request::ReloadAof(asker));
            return Ok(());
        }
        ("quicklist-packed-threshold", 3) => {
            // No list of ours has nodes of one plain element: any number of bytes is as good as another.
            let text = args.at(2).to_ascii_lowercase();
            let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits == 0 || !matches!(&text[digits..], b"" | b"b" | b"k" | b"kb" | b"m" | b"mb" | b"g" | b"gb") {
                return Err(Failure::new("ERR argument must be a memory value bigger than 1 and smaller than 4gb"));
            }
        }
        ("set-skip-checksum-validation", 3) => server.skips_checksums = flag(2)?,
        ("set-disable-deny-scripts", 3) => server.allows_all_in_scripts = flag(2)?,
        ("pause-cron", 3) => {
            server.is_tick_paused = flag(2)?;
            server.heed_signals();
        }
        ("htstats-key", 3) => {
            let place = server.find(client.database, &Key::new(args.at(2))).ok_or(NO_KEY)?;
            let encoding = server.databases[client.database].entry(place).encoding();
            if !matches!(encoding, "hashtable" | "skiplist") {
                return Err(Failure::new(
                    "ERR The value stored at the specified key is not represented using an hash table",
                ));
            }
            client.reply.verbatim("Hash table 0 stats (main hash table):\n");
            return Ok(());
        }
        ("htstats", 3) => {
            let number = usize::try_from(integer(args.at(2))?).ok();
            let keys = number.and_then(|number| server.databases.get(number));
            let keys = keys.ok_or(Failure::new("ERR Out of range database"))?.len();
            let text = format!("[Dictionary HT]\nkeys: {keys}\n");
            client.reply.verbatim(&text);
            return Ok(());
        }
        ("change-repl-id", 2) => {
            let id = server.random.name();
            server.replication.id = id;
            server.replication.second = None;
        }
        _ => {
            return Err(Failure::subcommand(args.at(1), "DEBUG"));
        }
    }
    client.reply.ok();
    Ok(())
}

/// What DEBUG OBJECT says of a list's nodes.
fn object_details(entry: &crate::keyspace::Entry) -> String {
    match entry.value() {
        Some(crate::value::Value::List(list)) => {
            let nodes = list.nodes().count();
            format!(
                " ql_nodes:{nodes} ql_avg_node:{:.2} ql_listpack_max:-2 ql_compressed:0 ql_uncompressed_size:{}",
                list.len() as f64 / nodes.max(1) as f64,
                list.nodes().map(crate::structure::listpack::Listpack::bytes).sum::<usize>()
            )
        }
        _ => String::new(),
    }
}

const CANNOT_LOAD: &str = "ERR Error trying to load the RDB dump: ";

/// The keys of an RDB file in the place of those that are there. `flushes`: what is there goes before; `merges`: else what is there may be replaced.
fn reload(server: &mut Server, bytes: &[u8], flushes: bool, merges: bool) -> Outcome {
    let has_libraries = scripting::library_codes(server).next().is_some();
    if flushes {
        server.empty(false);
    } else if !merges && (has_libraries || server.databases.iter().any(|keys| !keys.is_empty())) {
        return Err(Failure::new("ERR Error trying to load the RDB dump: it holds what is there already; say MERGE"));
    }
    if let Err(error) = crate::rdb::read(server, bytes) {
        return Err(Failure::text(format!("{CANNOT_LOAD}{error}")));
    }
    Ok(())
}

/// `DEBUG POPULATE count [prefix] [size]`.
fn populate(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let number = |text| parse_integer(text).filter(|number| *number >= 0).ok_or(NOT_POSITIVE);
    let count = number(args.at(2))?;
    let prefix = args.get(3).unwrap_or(b"key");
    let size = match args.get(4) {
        Some(text) => Some(number(text)? as usize),
        None => None,
    };
    for number in 0..count {
        let name = [prefix, b":", number.to_string().as_bytes()].concat();
        let key = Key::new(&name);
        if server.find(client.database, &key).is_some() {
            continue;
        }
        let mut value = format!("value:{number}").into_bytes();
        if let Some(size) = size {
            value.resize(size, 0);
        }
        server.databases[client.database].set_string(&key, None, &value, None);
        server.touch(client.database, &name);
    }
    Ok(())
}

/// A reply of every kind.
fn protocol(client: &mut Session, kind: &[u8]) -> Outcome {
    let reply = &mut client.reply;
    match kind.to_ascii_lowercase().as_slice() {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.integer(12345),
        #[expect(clippy::approx_constant, reason = "what Redis says, digit for digit")]
        b"double" => reply.double(3.141),
        b"null" => reply.null(),
        b"array" | b"set" | b"map" => {
            let kind = kind.to_ascii_lowercase();
            match kind.as_slice() {
                b"array" => reply.array(3),
                b"set" => reply.set(3),
                _ => reply.map(3),
            }
            for number in 0..3 {
                reply.integer(number);
                if kind == b"map" {
                    reply.boolean(number == 1);
                }
            }
        }
        b"attrib" => {
            if reply.is_resp3 {
                reply.bytes.extend_from_slice(b"|1\r\n");
                reply.bulk(b"key-popularity");
                reply.array(2);
                reply.bulk(b"key:123");
                reply.integer(90);
            }
            reply.bulk(b"Some real reply following the attribute");
        }
        b"push" => {
            if !reply.is_resp3 {
                return Err(Failure::new("ERR RESP2 is not supported by this command"));
            }
            reply.push(2);
            reply.bulk(b"server-cpu-usage");
            reply.integer(42);
        }
        b"verbatim" => reply.verbatim("This is a verbatim\nstring"),
        b"true" => reply.boolean(true),
        b"false" => reply.boolean(false),
        b"bignum" => match reply.is_resp3 {
            true => reply.bytes.extend_from_slice(b"(1234567999999999999999999999999999999\r\n"),
            false => reply.bulk(b"1234567999999999999999999999999999999"),
        },
        _ => {
            return Err(Failure::new(
                "ERR Wrong protocol type name. Please use one of the following: \
                 string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    }
    Ok(())
}
