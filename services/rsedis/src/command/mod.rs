//! Commands: which there are, how they are found, and what is checked before one runs.

mod absent;
pub mod acl;
mod admin;
mod bits;
mod client;
mod config;
mod connection;
mod debug;
mod docs;
mod expiry;
mod facts;
mod failover;
mod functions;
mod geo;
mod geo_area;
mod hashes;
mod help;
mod hints;
mod hyperloglogs;
mod info;
mod introspection;
pub mod key_specs;
mod keys;
mod latency;
mod lcs;
mod lists;
mod memory;
mod migrate;
pub mod monitor;
mod names;
mod options;
pub mod pubsub;
mod replication;
mod replication_info;
mod restore;
mod scan;
mod scripts;
mod secrets;
mod sets;
mod slowlog;
mod sort;
mod stream_groups;
mod streams;
mod strings;
mod table;
pub mod tracking;
mod transactions;
mod zalgebra;
mod zranges;
mod zsets;

use std::time::{Duration, Instant};

use crate::acl::Context;
use crate::failure::{Failure, Outcome, WRONG_TYPE};
use crate::log;
use crate::protocol::Args;
use crate::server::{Server, output};
use crate::session::{ReplyMode, Session};
use crate::waiting;
use crate::{events, eviction};
pub use config::go_back;
pub use facts::*;
pub use info::tell_metrics;
pub use names::{all, find, is_known, is_own_name, named, number_of, rename, resolve};
use names::{meant, shown};
pub use scripts::limit as script_limit;
pub use table::COMMANDS;

/// What runs a command. It writes its reply, or returns an error that is written as the reply.
pub type Handler = fn(&mut Server, &mut Session, Args<'_>) -> Outcome;

/// Never runs: a container's subcommands do.
fn container(_: &mut Server, _: &mut Session, _: Args<'_>) -> Outcome {
    Err(Failure::new("ERR this command has subcommands only"))
}

const NO_AUTHENTICATION: Failure = Failure::new("NOAUTH Authentication required.");
const NO_MEMORY: Failure = Failure::new("OOM command not allowed when used memory > 'maxmemory'.");

/// Runs a client's command, or queues it, or refuses it; the reply is in the session afterwards.
pub fn execute(server: &mut Server, client: &mut Session, args: Args<'_>) {
    if args.is_empty() {
        // An empty line: who sends it is still there.
        if let Some(replica) = &mut client.replica {
            replica.heard_at = server.now;
        }
        return;
    }
    client.last_active = server.now;
    let replied = client.reply.bytes.len();
    let was_replica = client.is_replica();
    let admitted = match resolve(args) {
        Ok(command) => admit(server, client, command, args).map(|()| command).inspect_err(|_| {
            server.stats.note_rejection(number_of(command));
        }),
        Err(failure) => {
            if let Some(command) = meant(args) {
                server.stats.note_rejection(number_of(command));
            }
            Err(failure)
        }
    };
    let command = match admitted {
        Ok(command) => command,
        Err(_) if is_of_another_protocol(args.at(0)) => {
            log::warning(format_args!(
                "Possible SECURITY ATTACK detected. It looks like somebody is sending POST or Host: commands to Redis. This is likely \
                 due to an attacker attempting to use Cross Protocol Scripting to compromise your Redis instance. Connection from {} \
                 aborted.",
                client.address
            ));
            client.is_killed = true;
            return;
        }
        Err(failure) => {
            let failure = transactions::abort(server, client, args, failure);
            tracking::end_caching(client, meant(args).map_or("", |command| command.name));
            refuse(server, client, &failure);
            if was_replica {
                check_silence(client, args, replied);
            }
            return settle(client, replied);
        }
    };
    client.last_command = command.name;
    if !server.pauses.is_empty()
        && let Some(until) = postponed_until(server, client, command, args)
    {
        return waiting::postpone(server, client, args, command, until);
    }
    server.current = client.id;
    let is_queued = client.transaction.is_some() && !transactions::runs_at_once(command);
    if is_queued {
        client.queue(command, args, server.settings.query_max);
        client.reply.simple("QUEUED");
    } else {
        run(server, client, command, args);
        if !server.ready.is_empty() && server.running_script.is_none() {
            waiting::serve(server);
            hear_of_broken_watches(server, client);
        }
    }
    // Who waits is answered later, and it counts then. What is pushed is not a reply, and counts as one.
    if client.waiting.is_none() {
        settle(client, if command.name.ends_with("subscribe") { usize::MAX } else { replied });
    }
    if was_replica {
        check_silence(client, args, replied);
    }
    if !server.own_messages.is_empty() {
        tell_own(server, client);
    }
    if server.trackers.is_any() {
        tracking::settle(server, client, command.name);
    }
    server.current = 0;
}

/// What a browser says first: no line of its request may be run.
#[cold]
fn is_of_another_protocol(name: &[u8]) -> bool {
    [b"POST".as_slice(), b"Host:"].iter().any(|word| name.eq_ignore_ascii_case(word))
}

/// A replica takes the stream and nothing else: one that asks for something would take the answer for a part of it.
#[cold]
fn check_silence(client: &mut Session, args: Args<'_>, replied: usize) {
    // What was held back comes with the first acknowledgement, which has no reply.
    if args.at(0).eq_ignore_ascii_case(b"replconf") && args.get(1).is_some_and(|word| word.eq_ignore_ascii_case(b"ack"))
    {
        return;
    }
    let reply = client.reply.bytes.get(replied..).unwrap_or_default();
    if reply.is_empty() || client.is_monitor {
        return;
    }
    let text = String::from_utf8_lossy(reply).trim_end().replace(['\r', '\n'], " ");
    let name = resolve(args).map_or_else(|_| shown(args.at(0)), |command| command.name.to_owned());
    if let Some(text) = text.strip_prefix('-') {
        log::warning(format_args!(
            "== CRITICAL == This master is sending an error to its replica: '{text}' after processing the command '{name}'"
        ));
    }
    log::warning(format_args!("Replica generated a reply to command '{name}', disconnecting it: {text}"));
    client.reply.bytes.truncate(replied);
    client.is_killed = true;
}

/// Whether a command may change something, here or on a replica: COMMAND does not show all of it as a flag.
pub fn may_write(command: &Command) -> bool {
    command.is(WRITE) || matches!(command.name, "publish" | "spublish" | "pfcount" | "eval" | "evalsha" | "fcall")
}

/// Until when a pause holds a command back, if one does; milliseconds since 1970.
#[cold]
fn postponed_until(server: &mut Server, client: &Session, command: &Command, args: Args<'_>) -> Option<i64> {
    let Some(pause) = server.pauses.strictest(server.now) else {
        server.pauses.clear();
        return None;
    };
    let queue = client.transaction.iter().flat_map(|transaction| &transaction.queue);
    let writes = may_write(command) && !scripts::writes_nothing(server, command, args)
        || (command.name == "exec"
            && queue
                .into_iter()
                .any(|(queued, args)| may_write(queued) && !scripts::writes_nothing(server, queued, args.as_args())));
    let may_end_it = command.name.starts_with("client|");
    let is_held = !may_end_it && !client.is_replica() && !client.is_master && (pause.is_all || writes);
    is_held.then_some(pause.until)
}

/// Gives the client the messages that came for it while its command ran. Others whose command has led to this one get theirs later.
fn tell_own(server: &mut Server, client: &mut Session) {
    match server.own_messages.take(client.slot) {
        Some(messages) => messages.iter().for_each(|message| message.push_to(&mut client.reply)),
        None => {
            output::tell_of_limit(client);
            client.is_killed = true;
        }
    }
}

/// The same in the middle of its replies, if it wants all of them: what is pushed has its place among them.
#[inline]
pub fn tell_own_now(server: &mut Server, client: &mut Session) {
    if !server.own_messages.is_empty() && !client.is_script && client.reply_mode == ReplyMode::On {
        tell_own(server, client);
    }
}

/// Who is answered once a request is done, if anybody wants an answer. Errors: the answer has its place in that of a transaction or a
/// script, which does not wait.
fn answered_later(client: &Session, what: &str) -> Outcome<Option<usize>> {
    match client.may_not_wait {
        true => Err(Failure::text(format!("ERR {what} is answered later: not in a transaction or a script"))),
        false => Ok((client.reply_mode == ReplyMode::On).then_some(client.slot)),
    }
}

/// Takes replies back that the client does not want: what was written behind so many bytes.
#[inline]
pub fn settle(client: &mut Session, replied: usize) {
    match client.reply_mode {
        ReplyMode::On => {}
        ReplyMode::SkipNext => client.reply_mode = ReplyMode::Skip,
        ReplyMode::Skip => {
            client.reply.bytes.truncate(replied);
            client.reply_mode = ReplyMode::On;
        }
        ReplyMode::Off => client.reply.bytes.truncate(replied),
    }
}

/// Codes of errors that are counted one by one.
const ERROR_CODES_MAX: usize = 128;

/// Answers with an error.
pub fn refuse(server: &mut Server, client: &mut Session, failure: &Failure) {
    server.stats.errors += 1;
    let code = String::from_utf8_lossy(failure.0.split(|byte| *byte == b' ').next().unwrap_or(b"ERR"));
    let by_code = &mut server.stats.errors_by_code;
    // Scripts make codes of their own: those beyond the bound are counted among all errors only (as in Redis 7.2).
    if by_code.len() < ERROR_CODES_MAX || by_code.contains_key(code.as_ref()) {
        *by_code.entry(code.into_owned()).or_default() += 1;
    }
    client.reply.error(&failure.0);
}

/// Whether anything may be written now: what could not be made safe, or would have too few replicas, is refused.
pub fn may_write_now(server: &Server, client: &Session) -> Outcome {
    if client.is_master {
        return Ok(());
    }
    if server.replication.is_replica() && server.settings.is_read_only {
        return Err(Failure::new("READONLY You can't write against a read only replica."));
    }
    if let Some(failure) = &server.aof.failure {
        return Err(Failure::text(format!("MISCONF Errors writing to the AOF file: {failure}")));
    }
    let settings = &server.settings;
    if !server.save.is_saved_well && !settings.text("save").is_empty() && settings.is_yes("stop-writes-on-bgsave-error")
    {
        return Err(Failure::new(
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify \
             the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails \
             (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error.",
        ));
    }
    let is_lonely = settings.replicas_min > 0
        && !server.replication.is_replica()
        && server.good_replicas(settings.replica_lag_max) < settings.replicas_min;
    match is_lonely {
        true => Err(Failure::new("NOREPLICAS Not enough good replicas to write.")),
        false => Ok(()),
    }
}

/// Whether the client may run the command now.
#[inline]
fn admit(server: &mut Server, client: &mut Session, command: &Command, args: Args<'_>) -> Outcome {
    if !client.is_authenticated && !command.is(NO_AUTH) && !server.users.is_open() {
        return Err(NO_AUTHENTICATION);
    }
    if client.transaction.is_some() && command.is(NO_MULTI) {
        return Err(Failure::new("ERR Command not allowed inside a transaction"));
    }
    if !client.may_all {
        let context = if client.transaction.is_some() { Context::Multi } else { Context::TopLevel };
        acl::check(server, client, command, args, context).map_err(|denied| denied.failure(command))?;
    }
    if let Some(busy) = server.busy()
        && !command.is(ALLOW_BUSY)
    {
        return Err(busy);
    }
    if server.settings.memory_max > 0 || server.is_out_of_memory {
        server.is_out_of_memory = !eviction::make_room(server);
        hear_of_broken_watches(server, client);
        if server.trackers.is_any() {
            // Before the reply: what the command itself reads is not what went.
            tracking::tell(server, Some(client));
        }
        if server.is_out_of_memory && command.is(DENYOOM) && !client.is_master {
            return Err(NO_MEMORY);
        }
    }
    if command.is(WRITE) {
        may_write_now(server, client)?;
    }
    if client.subscriptions() > 0 && !client.reply.is_resp3 && !pubsub::is_allowed(command) {
        return Err(Failure::text(format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
            command.name
        )));
    }
    if command.is(ADMIN) {
        match command.name {
            "debug" => debug::check_allowed(server, client)?,
            "module|load" | "module|loadex" | "module|unload" => return Err(absent::NO_MODULES),
            _ => {}
        }
    }
    if client.is_replica() && (may_write(command) || command.is(READONLY)) {
        return Err(Failure::new("ERR Replica can't interact with the keyspace"));
    }
    if server.reads_data() {
        check_loading(server, client, command)?;
    }
    if server.replication.is_replica() {
        check_link(server, client, command)?;
    }
    Ok(())
}

/// What is refused while data are read; where the keys of before answer meanwhile, that is little.
#[cold]
fn check_loading(server: &Server, client: &Session, command: &Command) -> Outcome {
    let may_run = if server.is_loading { command.is(LOADING) } else { !command.is(NO_ASYNC_LOADING) };
    match client.is_master || may_run {
        true => Ok(()),
        false => Err(Failure::new("LOADING Redis is loading the dataset in memory")),
    }
}

/// What a replica refuses for the state of its link.
fn check_link(server: &Server, client: &Session, command: &Command) -> Outcome {
    match is_stale(server) && !client.is_master && !command.is(STALE) {
        true => Err(MASTER_DOWN),
        false => Ok(()),
    }
}

/// Refused by a replica that has lost its master, and shall not answer then.
pub const MASTER_DOWN: Failure =
    Failure::new("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.");

/// Whether this is such a replica.
pub fn is_stale(server: &Server) -> bool {
    !server.settings.serves_stale && server.replication.master.as_ref().is_some_and(|master| !master.is_up())
}

/// Tells the client whose command is at hand that its watches broke: it is not among the sessions, where others are told.
#[inline]
fn hear_of_broken_watches(server: &mut Server, client: &mut Session) {
    if !server.broken_watches.is_empty() {
        client.is_watch_broken |= server.broken_watches.contains(&client.id);
        server.broken_watches.clear();
    }
}

/// What may give a key of the selected database a time to go.
const SETS_EXPIRY: [&str; 12] = [
    "set",
    "setex",
    "psetex",
    "getex",
    "expire",
    "pexpire",
    "expireat",
    "pexpireat",
    "restore",
    "restore-asking",
    "rename",
    "renamenx",
];

/// A client has changed something on a replica: when the keys go that it has given a time is for this server to know, and what has become
/// of those that it had given one before.
#[cold]
fn note_own_keys(server: &mut Server, database: usize, command: &Command, args: Args<'_>) {
    let sets_expiry = SETS_EXPIRY.contains(&command.name);
    if !sets_expiry && server.own_expiries.is_empty() {
        return;
    }
    for key_specs::KeyPlace { place, access } in key_specs::keys_of(command, args).unwrap_or_default() {
        let name = args.at(place);
        if access & key_specs::RO == 0 && (sets_expiry || server.own_expiries.has(database, name)) {
            server.note_own_expiry(database, name);
        }
    }
}

/// Calls a command's function, and notes what it has changed.
fn handle(server: &mut Server, client: &mut Session, command: &'static Command, args: Args<'_>) -> Outcome {
    let (dirty, database) = (server.dirty, client.database);
    server.effects.begin();
    let running = server.running.replace(command);
    let notes_new = server.settings.events & events::NEW != 0 && may_write(command);
    if notes_new {
        server.note_new_keys(true);
    }
    let outcome = (command.handler)(server, client, args);
    if notes_new {
        server.note_new_keys(false);
    }
    server.running = running;
    if server.dirty != dirty {
        server.effects.end(database, args);
        client.has_written = true;
        client.written_until = server.stream_end();
        if server.is_own_change() && command.is(WRITE) {
            note_own_keys(server, database, command, args);
        }
    }
    outcome
}

/// Of commands that are quick by their nature one in so many is timed: a look at the clock costs as much as a GET.
const SAMPLE: u64 = 16;

/// Runs a command that was admitted, and notes its effects.
pub fn run(server: &mut Server, client: &mut Session, command: &'static Command, args: Args<'_>) {
    let number = number_of(command);
    let calls = server.stats.note_call(number);
    let is_timed = !command.is(FAST) || server.settings.times_all || calls % SAMPLE == 1;
    let began = (is_timed && !client.is_script).then(Instant::now);
    // What a script does comes behind it.
    let shows_first = !server.monitors.is_empty() && command.is(SKIP_MONITOR);
    if shows_first {
        monitor::show(server, client, command, args);
    }
    let outcome = handle(server, client, command, args);
    if !server.monitors.is_empty() && !shows_first {
        monitor::show(server, client, command, args);
    }
    hear_of_broken_watches(server, client);
    if server.trackers.is_any() {
        tracking::remember(server, client, command, args);
    }
    if let Err(failure) = outcome {
        server.stats.note_failure(number);
        refuse(server, client, &failure);
    }
    tell_own_now(server, client);
    // Who waits now is timed when its command is done.
    if let Some(began) = began
        && client.waiting.is_none()
    {
        note_time(server, client, command, args, began.elapsed());
    }
}

/// A command took this long.
fn note_time(server: &mut Server, client: &Session, command: &Command, args: Args<'_>, took: Duration) {
    server.stats.note_time(number_of(command), took, server.settings.tracks_latency);
    if !command.is(SKIP_SLOWLOG) {
        slowlog::note(server, client, command, args, took);
    }
    server.note_latency(if command.is(FAST) { "fast-command" } else { "command" }, took);
}

/// Runs the command of a client that has waited. Its effects stand on their own.
pub fn run_again(server: &mut Server, client: &mut Session, command: &'static Command, args: Args<'_>) {
    let current = std::mem::replace(&mut server.current, client.id);
    let (began, replied) = (Instant::now(), client.reply.bytes.len());
    let outcome = handle(server, client, command, args);
    match outcome {
        Ok(()) => {}
        Err(failure) if failure == WRONG_TYPE && !client.answers_wrong_type => client.still_waits = true,
        Err(failure) => {
            server.stats.note_failure(number_of(command));
            refuse(server, client, &failure);
        }
    }
    if !client.still_waits {
        settle(client, replied);
        note_time(server, client, command, args, began.elapsed());
    }
    server.current = current;
    client.answers_wrong_type = false;
    tell_own(server, client);
}
