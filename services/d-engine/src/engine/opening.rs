//! What an engine opens at its start: a backup, the port of members, the log and the state; and what the log is told of the options.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use service_kit::directory::make_private;
use wal::files::RealDirectory;

use super::options::TICK;
use super::{EngineError, Group, Options, STATE, StateStorage, check_times, identity};
use crate::state::{self, Disk, Storage};

/// A group that begins with a backup numbers its entries from so far behind it: what the old group wrote after the backup was taken has
/// lower revisions, and no fencing token is given twice.
const REVISIONS_AFTER_BACKUP: u64 = 1_000_000_000;

/// The file of a backup that a group begins with, and the index behind which its log begins.
pub(super) type Begin = (PathBuf, u64);

/// What a group begins with, where there is no log yet; in front the checksum of the backup, or of the one that the group once began with.
pub(super) fn backup_of(options: &Options) -> Result<(Option<u32>, Option<Begin>), EngineError> {
    if let Some(restored) = identity::restored(&options.directory)? {
        if let Some(path) = &options.backup {
            tell_of_unused(path, restored, &options.directory);
        }
        return Ok((restored, None));
    }
    let Some(path) = options.backup.clone() else { return Ok((None, None)) };
    let backup = state::verify_backup(&path);
    let backup = backup.map_err(|error| EngineError::Backup(path.display().to_string(), error))?;
    Ok((Some(backup.checksum), Some((path, backup.index.saturating_add(REVISIONS_AFTER_BACKUP)))))
}

/// Whoever names a backup believes that its data will be there. That the group has begun with this very one, at an earlier start, is nothing to be
/// told of: the flag may stay.
fn tell_of_unused(backup: &Path, restored: Option<u32>, directory: &Path) {
    if restored.is_some() && state::told_checksum(backup).ok() == restored {
        return;
    }
    tracing::warn!(
        backup = %backup.display(),
        directory = %directory.display(),
        "the backup (--restore) is not looked at: the directory has a log already, and the member goes on with that. To begin a new group with the \
         backup, start all its founders with empty directories (--db-root-dir)"
    );
}

pub(super) fn peers(group: &Group) -> BTreeMap<u64, String> {
    group.members.iter().map(|(id, address)| (*id, address.peer.clone())).collect()
}

/// Where other members reach this one; nowhere if it is alone.
pub(super) fn listen(options: &Options, group: &Group) -> Result<Vec<TcpListener>, EngineError> {
    match group.members.get(&options.id) {
        Some(own) if group.members.len() > 1 || options.listen_peer.is_some() => {
            let address = options.listen_peer.as_ref().unwrap_or(&own.peer);
            let listener = TcpListener::bind(address);
            Ok(vec![listener.map_err(|error| EngineError::Listen(address.clone(), error))?])
        }
        _ => Ok(Vec::new()),
    }
}

/// Whether somebody on another machine may speak as a member.
pub(super) fn is_open(mut addresses: impl Iterator<Item = SocketAddr>, has_tls: bool) -> bool {
    !has_tls && addresses.any(|address| !address.ip().to_canonical().is_loopback())
}

pub(super) fn settings(options: &Options) -> Result<replog::Settings, EngineError> {
    check_times(options.heartbeat, options.election).map_err(EngineError::Options)?;
    let ticks = |time: Duration| (time.as_micros() / TICK.as_micros()).max(1) as u32;
    let (heartbeat_ticks, election_ticks) = (ticks(options.heartbeat), ticks(options.election));
    let clock_drift_ppm = options.clock_drift_ppm;
    Ok(replog::Settings {
        tick_micros: TICK.as_micros() as u64,
        heartbeat_ticks,
        election_ticks,
        clock_drift_ppm,
        ..replog::Settings::default()
    })
}

pub(super) fn open_storage(options: &Options) -> Result<Box<dyn Storage>, EngineError> {
    match options.storage {
        StateStorage::Memory => Ok(Box::new(state::Memory::default())),
        StateStorage::Disk { cache_bytes } => {
            let directory = options.directory.join(STATE);
            make_private(&directory).map_err(|error| EngineError::Directory(directory.display().to_string(), error))?;
            Ok(Box::new(Disk::open(&directory, cache_bytes)?))
        }
    }
}

pub(super) fn open(path: &Path) -> Result<RealDirectory, EngineError> {
    let said = |error| EngineError::Directory(path.display().to_string(), error);
    make_private(path).map_err(said)?;
    RealDirectory::open(path).map_err(said)
}
