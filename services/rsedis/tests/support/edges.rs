//! Every command with whatever arguments, and which commands are left out of that, or are not compared at all.

use rsedis::command::{self, Command};

/// Commands that no random command is, and why.
pub const NOT_COMPARED: &[(&str, &str)] = &[
    ("bgrewriteaof", "what it says depends on how far the one before it is"),
    ("bgsave", "what it says depends on how far the one before it is"),
    ("command", "all of it has no order: the_command_table_is_that_of_redis asks for each of them"),
    ("monitor", "makes the connection one that only listens: tests/compatibility.rs compares what it hears"),
    ("pfselftest", "takes seconds, and has one answer"),
    ("psync", "makes the connection a replica's: tests/replication.rs has it"),
    ("quit", "ends the connection"),
    ("sync", "makes the connection a replica's: tests/replication.rs has it"),
];

/// Commands that do not get whatever arguments: theirs are in groups of their own. And why.
const OWN_ARGUMENTS: &[(&str, &str)] = &[
    ("acl", "changes who may do what"),
    ("blmove", "waits"),
    ("blmpop", "waits"),
    ("blpop", "waits"),
    ("brpop", "waits"),
    ("brpoplpush", "waits"),
    ("bzmpop", "waits"),
    ("bzpopmax", "waits"),
    ("bzpopmin", "waits"),
    ("client", "ends or pauses connections"),
    ("command", "has no order as a whole"),
    ("debug", "has its own words"),
    ("expire", "seconds pass"),
    ("failover", "changes who follows whom"),
    ("georadius", "what is far finds more here (README)"),
    ("georadius_ro", "what is far finds more here (README)"),
    ("georadiusbymember", "what is far finds more here (README)"),
    ("georadiusbymember_ro", "what is far finds more here (README)"),
    ("geosearch", "what is far finds more here (README)"),
    ("geosearchstore", "what is far finds more here (README)"),
    ("hello", "tells the connection's number"),
    ("hrandfield", "by chance"),
    ("hscan", "cursors are each server's own"),
    ("latency", "without a name it tells the times of all commands"),
    ("migrate", "connects to somewhere"),
    ("multi", "what it queues is answered together"),
    ("pexpire", "milliseconds pass"),
    ("psetex", "milliseconds pass"),
    ("psubscribe", "one reply for each word"),
    ("punsubscribe", "one reply for each word"),
    ("replicaof", "changes who follows whom"),
    ("reset", "goes back to RESP2"),
    ("scan", "cursors are each server's own"),
    ("setex", "seconds pass"),
    ("shutdown", "ends the server"),
    ("slaveof", "changes who follows whom"),
    ("sort", "in Redis it may fail because another command's number was out of range"),
    ("sort_ro", "in Redis it may fail because another command's number was out of range"),
    ("spop", "by chance"),
    ("srandmember", "by chance"),
    ("sscan", "cursors are each server's own"),
    ("ssubscribe", "one reply for each word"),
    ("subscribe", "one reply for each word"),
    ("sunsubscribe", "one reply for each word"),
    ("unsubscribe", "one reply for each word"),
    ("wait", "waits"),
    ("zrandmember", "by chance"),
    ("zscan", "cursors are each server's own"),
];

/// Keys of every type, so that there is something to meet.
const MAKES_KEYS: &[&str] = &[
    "SET S V",
    "SET S I",
    "INCRBYFLOAT S F",
    "RPUSH L V I V",
    "SADD E M M I",
    "SADD E I I",
    "HSET H M V M I",
    "ZADD Z F M F M",
    "XADD Q D M V",
    "SETRANGE S N V",
];

/// A command's words.
fn words(command: &Command) -> String {
    command.name.to_ascii_uppercase().replace('|', " ")
}

/// Whether a command is one that is called: most that have subcommands are not.
pub fn is_called(command: &Command) -> bool {
    command.subcommands.is_empty() || command.name == "command"
}

fn has_own_arguments(command: &Command) -> bool {
    let name = command.name.split('|').next().unwrap_or(command.name);
    OWN_ARGUMENTS.iter().chain(NOT_COMPARED).any(|(own, _)| *own == name)
}

/// Every command with as few arguments as it takes, one less, and up to two more; and keys for them.
pub fn edges() -> Vec<String> {
    let mut templates: Vec<String> = Vec::new();
    let commands = command::all().iter().filter(|command| is_called(command) && !has_own_arguments(command));
    for (number, command) in commands.enumerate() {
        let words = words(command);
        let own = words.split(' ').count();
        let fewest = (command.arity.unsigned_abs() as usize).saturating_sub(own);
        let key = if words.starts_with('X') { "Q" } else { "K" };
        for count in fewest.saturating_sub(1)..=fewest + 2 {
            let anything = vec!["W"; count];
            // Where a key has its place it is one, mostly.
            let with_key = anything.iter().enumerate().map(|(place, word)| if place == 0 { key } else { *word });
            templates.push(std::iter::once(words.as_str()).chain(with_key).collect::<Vec<_>>().join(" "));
            templates
                .push(std::iter::once(words.as_str()).chain(anything.iter().copied()).collect::<Vec<_>>().join(" "));
        }
        templates.extend((0..2).map(|next| MAKES_KEYS[(2 * number + next) % MAKES_KEYS.len()].to_owned()));
    }
    templates
}

/// Every command with too few arguments, and with too many where there may be too many.
pub fn wrong_counts() -> Vec<String> {
    let mut lines = Vec::new();
    for command in command::all() {
        let words = words(command);
        let fewest = command.arity.unsigned_abs() as usize;
        if fewest > words.split(' ').count() {
            lines.push(words.clone());
        }
        if command.arity > 0 {
            lines.push(format!("{words}{}", " x".repeat(fewest)));
        }
    }
    lines
}

/// Whether a template is this command.
pub fn is_of(template: &str, command: &Command) -> bool {
    let name = template.to_ascii_lowercase();
    let mut words = name.split(' ');
    let is_it = command.name.split('|').all(|part| words.next() == Some(part));
    is_it && (command.subcommands.is_empty() || words.next().is_none())
}
