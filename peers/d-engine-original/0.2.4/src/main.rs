//! A server of the original d-engine, release 0.2.4, which publishes none: the crate with its file storage.
//!
//! usage: d-engine-original --node-id=ID --member=ID=HOST:PORT... --listen-address=IP:PORT --data-dir=DIRECTORY | --version
//!
//! ID counts from 1; of a name that ends in -0 it is 1, in -1 it is 2. The crate reads a file: its configuration is written into the
//! directory, and is the crate's own but for members, addresses and the time that a request may take (3 s: its default of 50 ms fails
//! requests of a busy machine, and one that fails voids a trial). Variables `RAFT__...` override it, as the crate reads them.
//!
//! It ends at SIGTERM or SIGINT. Exit codes: 0 it was told to end, 1 the crate says why it cannot go on, 2 wrong arguments.

use std::error::Error;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use d_engine::{FileStateMachine, FileStorageEngine, StandaloneEngine};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

const USAGE: &str = "usage: d-engine-original --node-id=ID --member=ID=HOST:PORT... --listen-address=IP:PORT --data-dir=DIRECTORY | --version";

#[derive(Default)]
struct Arguments {
    id: u32,
    members: Vec<(u32, String)>,
    listen: String,
    directory: PathBuf,
}

impl Arguments {
    fn read(arguments: impl Iterator<Item = String>) -> Option<Self> {
        let mut read = Self::default();
        for argument in arguments {
            match argument.split_once('=')? {
                ("--node-id", id) => read.id = number(id)?,
                ("--member", member) => {
                    let (id, address) = member.split_once('=')?;
                    read.members.push((number(id)?, address.to_owned()));
                }
                ("--listen-address", address) => read.listen = address.to_owned(),
                ("--data-dir", directory) => read.directory = directory.into(),
                _ => return None,
            }
        }
        let is_member = read.members.iter().any(|(id, _)| *id == read.id);
        (is_member && !read.listen.is_empty() && !read.directory.as_os_str().is_empty()).then_some(read)
    }

    /// What the crate reads. It knows members by IP addresses. Role 1 is a follower, status 3 an active member.
    fn configuration(&self) -> Result<String, Box<dyn Error>> {
        let mut members = Vec::new();
        for (id, address) in &self.members {
            let found = address.to_socket_addrs().map_err(|error| format!("{address}: {error}"))?;
            let address: SocketAddr = found.into_iter().next().ok_or_else(|| format!("{address} has no address"))?;
            members.push(format!("{{ id = {id}, address = \"{address}\", role = 1, status = 3 }}"));
        }
        let (id, listen, members, directory) = (self.id, &self.listen, members.join(", "), self.directory.display());
        Ok(format!(
            "[cluster]\nnode_id = {id}\nlisten_address = \"{listen}\"\ninitial_cluster = [{members}]\n\
             db_root_dir = '{directory}'\nlog_dir = '{directory}/log'\n\n\
             [raft]\ngeneral_raft_timeout_duration_in_ms = 3000\n"
        ))
    }
}

/// A number, or one more than that at the end of a name.
fn number(text: &str) -> Option<u32> {
    match text.rsplit_once('-') {
        Some((_, ordinal)) => ordinal.parse::<u32>().ok()?.checked_add(1),
        None => text.parse().ok(),
    }
}

fn main() -> ExitCode {
    if std::env::args().skip(1).eq(["--version"]) {
        println!("d-engine-original {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    let Some(arguments) = Arguments::read(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match serve(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("d-engine-original: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn serve(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let directory = &arguments.directory;
    std::fs::create_dir_all(directory)?;
    let configuration = directory.join("d-engine.toml");
    std::fs::write(&configuration, arguments.configuration()?)?;
    let (stop, stopped) = watch::channel(());
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let storage = Arc::new(FileStorageEngine::new(directory.join("storage"))?);
    let machine = Arc::new(FileStateMachine::new(directory.join("state_machine")).await?);
    let configuration = configuration.to_string_lossy();
    let server = StandaloneEngine::run_custom(storage, machine, stopped, Some(&configuration));
    tokio::pin!(server);
    tokio::select! {
        ended = &mut server => return Ok(ended?),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop.send(())?;
    Ok(server.await?)
}
