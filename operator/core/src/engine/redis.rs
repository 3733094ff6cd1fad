//! Redis, and what takes the same settings. Settings: the servers' own redis.conf / valkey.conf.
//!
//! Snapshots (`save`) are off: they are another kind of durability, would start in the middle of a trial, and are not what
//! any of the classes promises. The append-only file gives `Fsync` (`always`) and `Interval` (`everysec`). Of a store that serves metrics itself,
//! which is rsedis, the address of these is a setting, too.

use std::collections::BTreeMap;

use storebench_crds::engine::DurabilityClass;

use super::{CLIENT, Launch, METRICS, Start};

/// The setting that an argument gives a value. Redis puts all arguments into one text, in which each `--` begins a line of redis.conf, and
/// splits lines at white space, with quotes and escapes (`main` in server.c, `sdssplitargs` in sds.c of 7.0.15): so `-- appendfsync no` sets
/// appendfsync, and so does `"appendfs\x79nc"` in quotes. What is not plainly the name of a setting is refused; an argument without dashes belongs to the
/// setting before it.
pub(super) fn directive(argument: &str, is_first: bool) -> Result<Option<&str>, String> {
    if !argument.starts_with("--") && !is_first {
        return Ok(None);
    }
    let line = argument.strip_prefix("--").unwrap_or_default();
    let name = line.split([' ', '\t']).next().unwrap_or_default();
    let is_plain = name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(|character| character.is_ascii_alphanumeric() || character == '-');
    match is_plain {
        true => Ok(Some(name)),
        false => {
            Err("must be the name of a setting, with or without its value: --NAME VALUE, such as `--maxmemory 100mb`"
                .into())
        }
    }
}

/// What `CONFIG GET` must answer: `--name value` of the durability class.
pub(super) fn stated_settings(class: &DurabilityClass) -> BTreeMap<String, String> {
    let pairs = class.flags.chunks_exact(2);
    pairs.map(|pair| (pair[0].trim_start_matches('-').to_owned(), pair[1].to_owned())).collect()
}

pub(super) fn launch(start: &Start) -> Launch {
    let Start { service, member, .. } = start;
    let port = member.port(CLIENT).to_string();
    let fixed = ["--port", &port, "--bind", &member.bind, "--dir", &member.data_directory, "--save", ""];
    let quiet = ["--daemonize", "no", "--protected-mode", "no", "--loglevel", "warning"];
    let metrics =
        member.ports.get(METRICS).map(|port| ["--metrics-listen".to_owned(), format!("{}:{port}", member.bind)]);
    let arguments = fixed.iter().chain(service.durability_class.flags).chain(&quiet).map(ToString::to_string);
    Launch { arguments: arguments.chain(metrics.into_iter().flatten()).collect(), ..Launch::default() }
}
