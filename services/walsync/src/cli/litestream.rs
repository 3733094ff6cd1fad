//! Litestream's verbs that walsync has no use for: most ask its daemon over a control socket, which walsync does not have. Each says what to do
//! instead, with exit code 2: scripts must not take it for done.

use clap::{Args, Subcommand};
use std::ffi::OsString;
use walsync::config::ConfigError;

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
        };
        ConfigError::Value { field: verb.into(), problem: problem.into() }
    }
}
