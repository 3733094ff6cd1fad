//! `d-engine ctl user` and `ctl auth`: who may do what.

use std::io::{BufRead as _, IsTerminal as _};
use std::path::PathBuf;

use anyhow::Context as _;
use bytes::Bytes;
use d_engine_client::wire;
use d_engine_client::wire::change_users_request::Change;
use service_kit::console;

use super::access::{self, Access, Problem};

const CHANGE: &str = "/storebench.dengine.v1.Store/ChangeUsers";
const LIST: &str = "/storebench.dengine.v1.Store/ListUsers";

/// A new password.
#[derive(Debug, clap::Args)]
pub(super) struct Password {
    /// A file with the new password in its first line; without it, the first line of standard input is that, which may not be a terminal.
    #[arg(long, value_name = "FILE")]
    new_password_file: Option<PathBuf>,
}

impl Password {
    fn read(&self) -> anyhow::Result<String> {
        match &self.new_password_file {
            Some(file) => access::first_line(file),
            None => {
                // It would stand on the screen, and nothing would say that it is waited for.
                anyhow::ensure!(
                    !std::io::stdin().is_terminal(),
                    "the new password is read from standard input, which is a terminal that shows it: name --new-password-file, or pipe it in"
                );
                let mut line = String::new();
                std::io::stdin().lock().read_line(&mut line).context("no password on standard input")?;
                Ok(line.trim_end_matches(['\n', '\r']).to_owned())
            }
        }
    }
}

/// Who may do what.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Adds a user, who may do nothing yet.
    Add {
        /// Its name, without a colon.
        name: String,
        /// It may do everything, and change users and members.
        #[arg(long)]
        admin: bool,
        #[command(flatten)]
        password: Password,
    },
    /// Gives a user another password; what is open with the old one ends. One's own everybody may change.
    Passwd {
        /// Its name.
        name: String,
        #[command(flatten)]
        password: Password,
    },
    /// Removes a user.
    Remove {
        /// Its name.
        name: String,
    },
    /// Lets a user read or write all keys with a prefix, instead of what it could do with this very prefix before.
    Grant {
        /// Its name.
        name: String,
        /// read, write, or readwrite.
        #[arg(value_parser = access_of)]
        access: (bool, bool),
        /// What the keys begin with; empty for all keys.
        prefix: String,
    },
    /// Takes a prefix back.
    Revoke {
        /// Its name.
        name: String,
        /// As it was granted.
        prefix: String,
    },
    /// Says who the users are, and what they may do.
    List,
}

/// Whether users are asked for.
#[derive(Clone, Copy, Debug, clap::Subcommand)]
pub(super) enum Auth {
    /// From now on every call says a user and a password; there must be an administrator.
    Enable,
    /// From now on everybody may do everything.
    Disable,
}

fn access_of(name: &str) -> Result<(bool, bool), String> {
    match name {
        "read" => Ok((true, false)),
        "write" => Ok((false, true)),
        "readwrite" => Ok((true, true)),
        _ => Err("expected read, write or readwrite".into()),
    }
}

/// Has a member change users; the first that answers hands it to the leader.
async fn change(access: &Access, endpoints: &[String], change: Change) -> anyhow::Result<()> {
    let request = wire::ChangeUsersRequest { change: Some(change) };
    let mut problem = Problem::default();
    for endpoint in endpoints {
        let answer = async {
            let channel = access.channel(endpoint).await?;
            channel.unary::<wire::ChangeUsersReply>(CHANGE, &request).await
        };
        match answer.await {
            Ok(wire::ChangeUsersReply { error: None }) => return Ok(()),
            Ok(wire::ChangeUsersReply { error: Some(error) }) => return Err(error.parse().into()),
            Err(error) => problem.met(endpoint, &error),
        }
    }
    Err(problem.into_error())
}

pub(super) async fn run(access: &Access, endpoints: &[String], verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Add { name, admin, password } => {
            let password = password.read()?;
            change(access, endpoints, Change::Add(wire::AddUser { name, password, is_admin: admin })).await
        }
        Verb::Passwd { name, password } => {
            let password = password.read()?;
            change(access, endpoints, Change::Password(wire::SetPassword { name, password })).await
        }
        Verb::Remove { name } => change(access, endpoints, Change::Remove(name)).await,
        Verb::Grant { name, access: (read, write), prefix } => {
            let grant = wire::Grant { name, prefix: Bytes::from(prefix), read, write };
            change(access, endpoints, Change::Grant(grant)).await
        }
        Verb::Revoke { name, prefix } => {
            change(access, endpoints, Change::Revoke(wire::Revoke { name, prefix: Bytes::from(prefix) })).await
        }
        Verb::List => list(access, endpoints).await,
    }
}

pub(super) async fn enable(access: &Access, endpoints: &[String], auth: Auth) -> anyhow::Result<()> {
    change(access, endpoints, Change::Enable(matches!(auth, Auth::Enable))).await
}

async fn list(access: &Access, endpoints: &[String]) -> anyhow::Result<()> {
    let mut problem = Problem::default();
    for endpoint in endpoints {
        let answer = async {
            let channel = access.channel(endpoint).await?;
            channel.unary::<wire::ListUsersReply>(LIST, &wire::ListUsersRequest {}).await
        };
        match answer.await {
            Ok(wire::ListUsersReply { is_enabled, users }) => {
                console::print(format_args!(
                    "users are {}\n",
                    if is_enabled { "asked for" } else { "not asked for (ctl auth enable)" }
                ))?;
                for wire::User { name, is_admin, grants } in users {
                    console::print(format_args!("{name}{}\n", if is_admin { " administers" } else { "" }))?;
                    for wire::Granted { prefix, read, write } in grants {
                        let access = match (read, write) {
                            (true, true) => "readwrite",
                            (true, false) => "read",
                            _ => "write",
                        };
                        console::print(format_args!("  {access} \"{}\"\n", prefix.escape_ascii()))?;
                    }
                }
                return Ok(());
            }
            Err(error) => problem.met(endpoint, &error),
        }
    }
    Err(problem.into_error())
}
