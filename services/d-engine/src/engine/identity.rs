//! Who a data directory belongs to, and whether it has lost its log.
//!
//! What a directory that lost its log is told by, and why it is refused, is in [`replog::runtime::identity`]. Besides:
//!
//! - `identity.json` is of this member of this group, or there is none;
//! - where there is neither that nor a log, there is no state on disk either: it would be of another log;
//! - a leader writes into the log who has acknowledged entries, so that any of the other members knows whether this one had some;
//! - a founder asks them again before it speaks to any: who knows may not have answered at its start.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use replog::runtime::identity::{self, Founding, Known, Place, Said, Standing, Welcome};
use replog::runtime::tcp;
use serde::{Deserialize, Serialize};

use super::options::{Address, Group, Options};
use super::{SNAPSHOTS, STATE, WAL};

/// Why a directory is not used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file stands where the directory should be.
    #[error("{0} is a file: name a directory as db_root_dir, or remove it")]
    NoDirectory(PathBuf),
    /// It cannot be read or written.
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    /// Its file was changed by somebody else.
    #[error("{0}: {1}; restore it, or start with an empty directory as a new member")]
    Content(PathBuf, String),
    /// It is of somebody else.
    #[error(
        "{path} is of member {found} of group {found_group}, not of member {wanted} of group {wanted_group}: check node_id, initial_cluster and group"
    )]
    Other {
        /// Which directory.
        path: String,
        /// Whose it is.
        found: u64,
        /// Of which group.
        found_group: String,
        /// Who asks.
        wanted: u64,
        /// Of which group.
        wanted_group: String,
    },
    /// It is of somebody else, and who it was given to joins.
    #[error(
        "{0} is of member {1} of group {2}, and this is member {3}: each member has a directory of its own, check --node-id and --db-root-dir"
    )]
    OtherMember(String, u64, String, u64),
    /// It founded its group, and is told to join one.
    #[error("{0} is of a member that did not join its group, but founded it: start it without --join, as before")]
    Founder(String),
    /// It joined a group, and is not told so.
    #[error("{0} is of a member that joined its group: start it with --join, as before")]
    Joined(String),
    /// Its log is gone.
    #[error(
        "{0} had a log, and it is gone: this member would forget what it acknowledged. Restore the directory, or replace the member by a new one \
         (ctl member remove, member add); a member that was alone begins anew with a backup, in an empty directory (serve --restore)"
    )]
    LogLost(PathBuf),
    /// It has a state and no log.
    #[error(
        "{0} is the state of a log that is gone: it would be mixed with another one. Restore the member's directory as it was, or move {0} away to begin without it"
    )]
    StateAlone(String),
    /// It has a log and does not say whose.
    #[error("{0} has a log and no identity.json: restore the file")]
    Unnamed(String),
    /// It is empty, and should not be.
    #[error(
        "{0} was empty, but member {1} has acknowledged entries, says the member at {2}: it has lost its log. Restore the directory, or replace the member by a new one"
    )]
    Emptied(String, u64, String),
    /// It is empty, and nobody could say whether it should be.
    #[error(
        "{0} is empty, and who was asked could not tell whether it has lost its log: {1}. Start it again when it can"
    )]
    Untold(String, String),
    /// It joins a group that does not know it.
    #[error("member {0} cannot join: {1}")]
    Join(u64, String),
}

impl From<identity::IdentityError> for IdentityError {
    fn from(error: identity::IdentityError) -> Self {
        use identity::IdentityError as Found;
        match error {
            Found::NoDirectory(path) => Self::NoDirectory(path),
            Found::File(path, error) => Self::File(path, error),
            Found::Content(path, error) => Self::Content(path, error),
            Found::LogLost(log) => Self::LogLost(log),
        }
    }
}

/// Who a member is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Hexadecimal.
    group: String,
    member: u64,
    /// Which group it is, of all of that number: see [`Serial`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    serial: Option<u64>,
    /// There has been a log.
    has_log: bool,
    /// The checksum of the backup that the group began with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    restored: Option<u32>,
    /// Where the members were when this one joined them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    joined: BTreeMap<u64, Address>,
}

impl identity::Identity for Identity {
    fn decode(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }

    fn encode(&self) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec_pretty(self)?)
    }

    fn has_log(&self) -> bool {
        self.has_log
    }

    fn set_has_log(&mut self) {
        self.has_log = true;
    }
}

impl Identity {
    /// Which group it is, of all of its number.
    pub fn serial(&self) -> Option<u64> {
        self.serial
    }

    /// It is known from now on which group it is.
    pub fn is_of(&mut self, serial: u64) {
        self.serial = Some(serial);
    }
}

/// What members tell of each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduction {
    /// Members that have acknowledged entries, as far as it knows.
    pub seen: Vec<u64>,
    /// The group's number, hexadecimal.
    #[serde(default)]
    pub group: String,
    /// Which group of that number it is: see [`Serial`].
    #[serde(default)]
    pub serial: Option<u64>,
    /// Who says this; 0: a member of an earlier release, which does not say it.
    #[serde(default)]
    pub member: u64,
    /// Where the members are.
    #[serde(default)]
    pub members: BTreeMap<u64, Address>,
    /// Members that were removed for good.
    #[serde(default)]
    pub removed: Vec<u64>,
}

/// Which group this is, of all that have one name and the same founders' numbers, and one group's number with it. The first leader draws it
/// and writes it into the log; whoever has applied that knows it from then on, writes it into its directory, and does not talk to members
/// that say another one. 0: nobody has said so yet. None: a group that an earlier release has founded, which has none.
pub struct Serial(Option<AtomicU64>);

impl Serial {
    /// As a directory has it.
    pub fn of(number: Option<u64>) -> Self {
        Self(number.map(AtomicU64::new))
    }

    /// As a directory has it.
    pub fn told(&self) -> Option<u64> {
        self.0.as_ref().map(|number| number.load(Ordering::Acquire))
    }

    /// 0: it is not known.
    pub fn get(&self) -> u64 {
        self.told().unwrap_or_default()
    }

    /// From now on it is known.
    pub fn set(&self, number: u64) {
        if let Some(own) = &self.0 {
            own.store(number, Ordering::Release);
        }
    }
}

/// Where a member's data lie that are in this directory.
fn place(folder: &Path) -> Place {
    Place { folder: folder.to_owned(), log: folder.join(WAL) }
}

/// The group that a member joins, and its serial number, as its members or the member's own directory say; `None`: it joins none. Members may
/// learn later than this one starts that it was added: they are asked again for so long.
pub fn join(
    options: &Options,
    patience: Duration,
    ask: impl Fn(&str) -> io::Result<Vec<u8>> + Sync,
) -> Result<Option<(Group, Option<u64>)>, IdentityError> {
    if options.join.is_empty() {
        return Ok(None);
    }
    let refuse = |why: String| IdentityError::Join(options.id, why);
    let shown = options.directory.display().to_string();
    let known = match place(&options.directory).read()? {
        Some(Identity { group, member, .. }) if member != options.id => {
            return Err(IdentityError::OtherMember(shown, member, group, options.id));
        }
        Some(Identity { joined, .. }) if joined.is_empty() => return Err(IdentityError::Founder(shown)),
        Some(Identity { group, serial, joined: members, .. }) => {
            Introduction { group, serial, members, ..Introduction::default() }
        }
        None => {
            identity::join(&options.join, patience, |address| welcome(options.id, address, &ask)).map_err(refuse)?
        }
    };
    let Ok(number) = u64::from_str_radix(&known.group, 16) else {
        return Err(refuse(format!("its group's number is {:?}, which is none", known.group)));
    };
    Ok(Some((Group { number, members: known.members, restored: None, is_joined: true }, known.serial)))
}

/// What the member at an address says to this one, which joins.
fn welcome(member: u64, address: &str, ask: &impl Fn(&str) -> io::Result<Vec<u8>>) -> Welcome<Introduction> {
    match introduced(address, ask) {
        Ok(answer) if answer.removed.contains(&member) => {
            Welcome::Never("a member with this number was removed: take a number that was never used".into())
        }
        Ok(answer) if answer.members.contains_key(&member) => Welcome::Known(answer),
        Ok(_) => Welcome::NotYet(format!(
            "the member at {address} does not know it: let it be added first (d-engine ctl member add)"
        )),
        Err(error) => {
            // What came is no frame of ours.
            let is_other = matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof);
            let hint = ": is this its port for members, by default 1000 above that for clients?";
            Welcome::NotYet(format!("{address}: {error}{}", if is_other { hint } else { "" }))
        }
    }
}

/// Why a member of this group, of this serial number (0: that is not known), is not at an address; `Ok`: it is, as far as who is there says.
pub fn is_at(
    address: &str,
    (group, serial): (&str, u64),
    member: u64,
    ask: impl Fn(&str) -> io::Result<Vec<u8>>,
) -> Result<(), String> {
    let there = introduced(address, &ask).map_err(|error| error.to_string())?;
    if there.group != group {
        return Err(format!("who is there belongs to group {:?}, not to {group}", there.group));
    }
    let said = there.serial.unwrap_or_default();
    if tcp::are_different(said, serial) {
        return Err(format!(
            "who is there belongs to another group with the same name and founders: of serial number {said:016x}, and this one's is {serial:016x}"
        ));
    }
    match there.member {
        0 => Ok(()),
        other if other == member => Ok(()),
        other => Err(format!("there is member {other}")),
    }
}

fn introduced(address: &str, ask: &impl Fn(&str) -> io::Result<Vec<u8>>) -> io::Result<Introduction> {
    understood(&ask(address)?)
}

/// What a member said.
fn understood(said: &[u8]) -> io::Result<Introduction> {
    match said.is_empty() {
        true => Err(io::Error::other("it cannot read its own state now")),
        false => Ok(serde_json::from_slice(said)?),
    }
}

/// Makes the directory, and looks at whose it is. `serial` is what [`join`] has said, and of a new directory from now on. `ask` gets an address
/// of another member and brings what that says.
pub fn check(
    options: &Options,
    group: &Group,
    serial: Option<u64>,
    ask: impl Fn(&str) -> io::Result<Vec<u8>> + Sync,
) -> Result<Known<Identity>, IdentityError> {
    let (folder, place) = (&options.directory, place(&options.directory));
    let shown = folder.display().to_string();
    if !folder.exists() {
        // What it begins with where that is a backup is told when that was read.
        let begins = if group.restored.is_some() { "" } else { ", and the member begins with nothing" };
        tracing::info!(directory = %shown, "there is no such directory: it is made{begins}");
    }
    place.make()?;
    let wanted = Identity {
        group: group.written(),
        member: options.id,
        serial,
        has_log: false,
        restored: group.restored,
        joined: if group.is_joined { group.members.clone() } else { BTreeMap::new() },
    };
    let found: Option<Identity> = place.read()?;
    if let Some(found) = &found {
        if !found.joined.is_empty() && !group.is_joined && found.member == wanted.member {
            return Err(IdentityError::Joined(shown));
        }
        if (&found.group, found.member) != (&wanted.group, wanted.member) {
            return Err(IdentityError::Other {
                path: shown,
                found: found.member,
                found_group: found.group.clone(),
                wanted: wanted.member,
                wanted_group: wanted.group,
            });
        }
    }
    let found = match place.standing(found)? {
        Standing::Member(known) => return Ok(known),
        Standing::Unnamed => return Err(IdentityError::Unnamed(shown)),
        Standing::New(found) => found,
    };
    let state = folder.join(STATE);
    if found.is_none() && has_files(&state).map_err(|error| IdentityError::File(state.clone(), error))? {
        return Err(IdentityError::StateAlone(state.display().to_string()));
    }
    match who_knows(options.id, group, ask) {
        Ok(None) => {}
        Ok(Some(who)) => return Err(IdentityError::Emptied(shown, options.id, who)),
        Err(why) => return Err(IdentityError::Untold(shown, why)),
    }
    for name in [WAL, SNAPSHOTS] {
        // Safe with the name of the file: else each would have the directory synced again.
        let path = folder.join(name);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|error| IdentityError::File(path, error))?;
    }
    let serial = found.map_or(serial, |found| found.serial);
    Ok(Known::begin(&place, Identity { serial, ..wanted })?)
}

fn has_files(folder: &Path) -> io::Result<bool> {
    match fs::read_dir(folder) {
        Ok(mut files) => Ok(files.next().is_some()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The address of a member that says that this one has acknowledged entries; an error if somebody is there, and nobody who is can tell.
fn who_knows(
    member: u64,
    group: &Group,
    ask: impl Fn(&str) -> io::Result<Vec<u8>> + Sync,
) -> Result<Option<String>, String> {
    let others = group.members.iter().filter(|(id, _)| **id != member);
    let others: Vec<&String> = others.map(|(_, address)| &address.peer).collect();
    let own = group.written();
    let says = |address: &&String| match understood(&ask(address).ok()?) {
        // What a member of another group has seen, or not, tells nothing; who begins, too, does not say whose it is.
        Ok(introduction) if !introduction.group.is_empty() && introduction.group != own => None,
        Ok(introduction) if introduction.seen.contains(&member) => Some(Said::HasAcknowledged),
        Ok(_) => Some(Said::Nothing),
        Err(error) => Some(Said::CannotTell(format!("{address}: {error}"))),
    };
    identity::who_knows(&others, says).map(|who| who.map(|address| (*address).clone()))
}

/// Who asks the other founders on, before they are spoken to, unless something was in the log already.
pub fn founding(member: u64, group: &Group, known: &Known<Identity>) -> Option<Founding> {
    if group.is_joined {
        return None;
    }
    let own = group.written();
    let read = move |introduction: &[u8]| match understood(introduction) {
        Ok(said) if said.group.is_empty() => Some(Said::CannotTell("it begins, too".into())),
        Ok(said) if said.group != own => None,
        Ok(said) if said.seen.contains(&member) => Some(Said::HasAcknowledged),
        Ok(_) => Some(Said::Nothing),
        Err(error) => Some(Said::CannotTell(error.to_string())),
    };
    known.founding(group.members.keys().filter(|id| **id != member).count(), read)
}

/// The checksum of the backup that the group of this directory began with; `None`: there is no log yet.
pub fn restored(folder: &Path) -> Result<Option<Option<u32>>, IdentityError> {
    match place(folder).read::<Identity>()? {
        Some(identity) if has_log_files(folder)? => Ok(Some(identity.restored)),
        Some(_) | None => Ok(None),
    }
}

/// Whether there are files of a log.
pub fn has_log_files(folder: &Path) -> Result<bool, IdentityError> {
    Ok(place(folder).has_log_files()?)
}

/// Asks over TCP.
pub fn ask(address: &str, tls: Option<&tcp::Tls>) -> io::Result<Vec<u8>> {
    tcp::ask(address, tls)
}

#[cfg(test)]
mod tests;
