//! Litestream's verbs. Most of those that ask its daemon walsync has no use for: there is no control socket. Each such verb, and each flag that means
//! nothing here, says what to do instead, with exit code 2: scripts must not take it for done.

use super::number::whole;
use super::{Beside, once, table, watch};
use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory, Subcommand};
use service_kit::command_line::nearest;
use service_kit::console::OneLine;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use tracing::Level;
use walsync::config::litestream::Litestream;
use walsync::config::{ConfigError, Either};

/// Where Litestream looks for its configuration.
const CONFIG: &str = "/etc/litestream.yml";

#[derive(Args)]
pub struct ReplicateArgs {
    /// Without a configuration: the database, and its replica, as in s3://bucket/prefix/app.db
    #[arg(num_args = 2, value_names = ["DATABASE", "URL"], conflicts_with = "config")]
    one: Vec<String>,
    /// Litestream's configuration, or walsync's [default: /etc/litestream.yml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Leave $VARIABLES in it as they are
    #[arg(long)]
    no_expand_env: bool,
    /// Send what is committed now, and end
    #[arg(long, conflicts_with = "exec")]
    once: bool,
    /// Send each database whole, with --once
    #[arg(long, requires = "once")]
    force_snapshot: bool,
    /// With --once: end after so long, whatever was not sent [default: when the store says that trying again will not help, or fails for a minute]
    #[arg(long, value_name = "SECONDS", requires = "once", value_parser = whole::<u64>("seconds", 0..=u64::MAX))]
    timeout: Option<u64>,
    /// Restore first what is configured and not there, where it has a replica
    #[arg(long)]
    restore_if_db_not_exists: bool,
    /// What is told in the log: trace, debug, info, warn or error [default: RUST_LOG, or info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<Level>,
    #[command(flatten)]
    beside: Beside,
}

impl ReplicateArgs {
    pub fn run(self) -> anyhow::Result<()> {
        let config = match (self.one.as_slice(), &self.config) {
            ([database, url], _) => Either::Litestream(Box::new(Litestream::of_one(database.as_ref(), url)?)),
            (_, config) => Either::read_as(config.as_deref().unwrap_or(CONFIG.as_ref()), !self.no_expand_env)?,
        };
        let Beside { exec, elsewhere } = self.beside;
        let (restores, log_level) = (self.restore_if_db_not_exists, self.log_level);
        if self.once {
            let (whole, timeout) = (self.force_snapshot, self.timeout.map(Duration::from_secs));
            return once::once(&config, &once::Once { elsewhere, whole, restores, log_level, timeout });
        }
        watch::watch(&config, watch::With { listen: None, exec, elsewhere, restores, log_level })
    }
}

#[derive(Args)]
pub struct DatabasesArgs {
    /// Litestream's configuration
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
    /// Leave $VARIABLES in it as they are
    #[arg(long)]
    no_expand_env: bool,
}

impl DatabasesArgs {
    pub fn run(&self) -> anyhow::Result<()> {
        let mut lines = String::new();
        for (path, url) in Litestream::read(&self.config, !self.no_expand_env)?.listed()? {
            lines += &format!("{}\t{}\n", OneLine(path.display()), OneLine(url));
        }
        Ok(table::print(&lines)?)
    }
}

/// Flags of Litestream's that mean nothing here, and what there is instead.
const INSTEAD: [(&str, &str); 5] = [
    (
        "--enforce-retention",
        "what is not kept goes while walsync watches; `walsync compact DATABASE --config FILE --force` removes it now",
    ),
    ("--force", "walsync restores over nothing: move the database away first, with its -wal and -shm"),
    ("--json", "this verb prints lines, and parts fields by tabs"),
    ("--replica", "a database has one replica: leave it out"),
    (
        "--socket",
        "there is no control socket: --listen URL says where the replicator serves, or --config litestream.yml with its addr",
    ),
];

/// What there is instead of a word that clap does not know.
pub fn instead(error: &clap::Error) -> Option<&'static str> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return None };
    INSTEAD.iter().find(|(flag, _)| flag == word).map(|(_, instead)| *instead)
}

/// What is said of a verb that there is not: the one that was probably meant is one of those that do something.
pub fn unknown_verb(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let command = super::Walsync::command();
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(clap::Command::get_name);
    let line = format!("there is no verb '{word}'");
    Some(match nearest(word, verbs) {
        Some(meant) => format!("{line}; did you mean '{meant}'?"),
        None => format!("{line}: walsync --help has them"),
    })
}

#[derive(Subcommand)]
pub enum Foreign {
    /// Litestream's: refused, for `status` tells
    #[command(hide = true)]
    Info(Words),
    /// Litestream's: refused, for what is configured is replicated
    #[command(hide = true)]
    Start(Words),
    /// Litestream's: refused, for what is configured is replicated
    #[command(hide = true)]
    Stop(Words),
    /// Litestream's: refused, for databases are configured
    #[command(hide = true)]
    Register(Words),
    /// Litestream's: refused, for databases are configured
    #[command(hide = true)]
    Unregister(Words),
    /// Litestream's: refused, for there is nothing to forget
    #[command(hide = true)]
    Reset(Words),
    /// Litestream 0.3's: refused, for there are no generations
    #[command(hide = true)]
    Generations(Words),
    /// Litestream 0.3's: refused, for `list` has all files
    #[command(hide = true)]
    Snapshots(Words),
    /// Litestream 0.3's: refused, for `list` has all files
    #[command(hide = true)]
    Wal(Words),
}

/// Whatever Litestream would take.
#[derive(Args)]
pub struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _words: Vec<OsString>,
}

impl Foreign {
    /// Why it is not done, and what to do.
    pub fn refuse(&self) -> ConfigError {
        let (verb, problem) = match self {
            Foreign::Info(_) => {
                ("info", "there is no control socket: `walsync status --listen URL` asks a replicator at work")
            }
            Foreign::Start(_) => {
                ("start", "walsync replicates what its configuration names: add the database there and restart it")
            }
            Foreign::Stop(_) => (
                "stop",
                "walsync replicates what its configuration names: `walsync sync` makes all durable; then remove the database there and \
                 restart it",
            ),
            Foreign::Register(_) => (
                "register",
                "add the database to the configuration and restart walsync, or put it where a pattern (path: /data/*.db) finds it \
                 within 5 s",
            ),
            Foreign::Unregister(_) => {
                ("unregister", "remove the database from the configuration, and restart walsync; its replica stays")
            }
            Foreign::Reset(_) => (
                "reset",
                "walsync keeps no state beside the database; where it stands it finds out at each start, and sends what differs",
            ),
            Foreign::Generations(_) => (
                "generations",
                "there are none since Litestream 0.5; `walsync import` takes a replica of 0.3 over, with its history",
            ),
            Foreign::Snapshots(_) => ("snapshots", "`walsync list --level 9` has them"),
            Foreign::Wal(_) => ("wal", "`walsync list` has all files of a replica"),
        };
        ConfigError::Value { field: verb.into(), problem: problem.into() }
    }
}
