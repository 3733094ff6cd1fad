//! Who a member is: founded with numbers that follow from the flags, or learned from the group that it joins. Written down before
//! anything else, so that flags no longer matter once there are data.
//!
//! A member that comes back without what it has acknowledged may not vote: it would help to elect somebody who lacks it too. So
//! it does not begin anew where its file says that there was a log, and there is none; nor where its directory is empty and another member
//! says that this one has served already. etcd asks its peers the same at bootstrap (`server/etcdserver/bootstrap.go`,
//! `isMemberBootstrapped`).
//!
//! Not covered: no other member answers when it starts; an old copy of the directory is put in its place.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use prost::Message;
use replog::runtime::tcp::{self, Tls};
use serde::{Deserialize, Serialize};
use service_kit::directory::{file_in_place_of, make_private, write_whole};
use service_kit::url::Url;

use crate::proto::etcdserverpb as pb;
use crate::settings::{Founder, Settings, cluster_id};

const FILE: &str = "identity.json";
/// How long the group that is joined may take to know of this member.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why a member does not know who it is.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file stands where its directory should be.
    #[error("--data-dir: {0} is a file: name a directory, or remove it")]
    NoDirectory(PathBuf),
    /// Its file.
    #[error("{0}: {1}")]
    File(String, io::Error),
    /// The content of its file.
    #[error("{0}: {1}; it was changed by somebody else: restore it, or remove this member and add a new one")]
    Content(String, serde_json::Error),
    /// The group that it shall join.
    #[error("--initial-cluster-state=existing: {0}")]
    Join(String),
    /// Its log is gone.
    #[error(
        "{0} had a log, and it is gone: this member would forget what it has acknowledged. Restore the directory, or remove this member \
         from the group and add a new one; a member that was alone is restored from a snapshot, with etcdutl snapshot restore and rusd import"
    )]
    LogLost(PathBuf),
    /// Its directory is empty, and should not be.
    #[error(
        "member {id:x} has already been bootstrapped, says {by}, and {directory} is empty: it would forget what it has acknowledged. Restore \
         the directory, or remove this member from the group and add a new one (etcdctl member remove, member add)"
    )]
    Emptied {
        /// Its number.
        id: u64,
        /// Who says so.
        by: String,
        /// Where its data should be.
        directory: PathBuf,
    },
}

/// Who a member is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The group's number, hexadecimal.
    cluster_id: String,
    /// Its own.
    member_id: String,
    /// It is among those that founded the group.
    pub is_founder: bool,
    /// There has been a log. Where nothing is said, an earlier release wrote it, and had one.
    #[serde(default = "yes")]
    has_log: bool,
}

fn yes() -> bool {
    true
}

/// An identity, and where others are as far as flags or the group said.
pub struct Known {
    /// Who it is.
    pub identity: Identity,
    /// The members, to begin with.
    pub members: Vec<pb::Member>,
    /// It has a log, of an earlier start.
    pub was_here: bool,
    /// There has been something in that log.
    pub has_written: bool,
}

impl Identity {
    fn new(cluster_id: u64, member_id: u64, is_founder: bool) -> Self {
        Self { cluster_id: format!("{cluster_id:x}"), member_id: format!("{member_id:x}"), is_founder, has_log: false }
    }

    /// The group's number and its own; `None`: it was written by somebody else.
    fn numbers(&self) -> Option<(u64, u64)> {
        let number = |text: &str| u64::from_str_radix(text, 16).ok().filter(|number| *number != 0);
        Some((number(&self.cluster_id)?, number(&self.member_id)?))
    }

    /// The group's number.
    pub fn cluster_id(&self) -> u64 {
        self.numbers().unwrap_or_default().0
    }

    /// Its own number.
    pub fn member_id(&self) -> u64 {
        self.numbers().unwrap_or_default().1
    }

    /// What was written down, or what follows from the flags, which is written down then, and from what is taken over, if anything is.
    pub fn find(settings: &Settings, tls: Option<&Tls>, taken: Option<u32>) -> Result<Known, IdentityError> {
        let folder = folder(settings);
        let path = folder.join(FILE);
        let file = |error| IdentityError::File(path.display().to_string(), error);
        if let Some(found) = file_in_place_of(&folder) {
            return Err(IdentityError::NoDirectory(found.to_owned()));
        }
        make_private(&folder).map_err(file)?;
        let founders = settings.founders.iter().map(|founder| member(founder, &settings.token)).collect();
        let log = settings.log_directory();
        let has_log = wal::is_begun(&log).map_err(|error| IdentityError::File(log.display().to_string(), error))?;
        let found = match fs::read(&path) {
            Ok(bytes) => {
                let content = |error| IdentityError::Content(path.display().to_string(), error);
                let identity: Self = serde_json::from_slice(&bytes).map_err(content)?;
                let wrong = || content(serde::de::Error::custom("a number is not hexadecimal"));
                identity.numbers().ok_or_else(wrong)?;
                Some(identity)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(file(error)),
        };
        if let Some(identity) = found.filter(|identity| identity.has_log || has_log) {
            return match has_log {
                true => Ok(Known { has_written: identity.has_log, identity, members: founders, was_here: true }),
                false => Err(IdentityError::LogLost(log)),
            };
        }
        // One that was killed before it had a log begins again.
        let known = if settings.joins { join(settings, tls)? } else { found_group(settings, founders, taken) };
        if !has_log && let Some(by) = who_knows(settings, known.identity.member_id(), tls) {
            let id = known.identity.member_id();
            return Err(IdentityError::Emptied { id, by, directory: settings.data_directory.clone() });
        }
        known.identity.write(settings)?;
        Ok(known)
    }

    /// There is a log from now on.
    pub fn has_log(mut self, settings: &Settings) -> Result<(), IdentityError> {
        if self.has_log {
            return Ok(());
        }
        self.has_log = true;
        self.write(settings)
    }

    fn write(&self, settings: &Settings) -> Result<(), IdentityError> {
        let path = folder(settings).join(FILE);
        let written =
            serde_json::to_vec_pretty(self).map_err(io::Error::other).and_then(|text| write_whole(&path, &text));
        written.map_err(|error| IdentityError::File(path.display().to_string(), error))
    }
}

fn folder(settings: &Settings) -> PathBuf {
    settings.data_directory.join("member")
}

/// The member, by its URL, that says that this one has served: that its clients know where it is was in the log. All are asked at the
/// same time: one that hangs takes seconds.
fn who_knows(settings: &Settings, id: u64, tls: Option<&Tls>) -> Option<String> {
    let others = settings.founders.iter().filter(|founder| founder.name != settings.name);
    let urls: Vec<_> = others.flat_map(|founder| &founder.peer_urls).collect();
    // Who is not there, or begins as well, knows nothing.
    let knows = |url: &Url| {
        let (_, members) = introduction(&format!("{}:{}", url.host, url.port), tls).ok()?;
        let has_served = |member: &pb::Member| member.id == id && !member.client_ur_ls.is_empty();
        members.iter().any(has_served).then(|| url.to_string())
    };
    let knows = &knows;
    thread::scope(|scope| {
        let asked: Vec<_> = urls.into_iter().map(|url| scope.spawn(move || knows(url))).collect();
        asked.into_iter().find_map(|thread| thread.join().ok().flatten())
    })
}

fn member(founder: &Founder, token: &str) -> pb::Member {
    let peer_ur_ls = founder.peer_urls.iter().map(ToString::to_string).collect();
    pb::Member { id: founder.id(token), name: founder.name.clone(), peer_ur_ls, ..Default::default() }
}

fn found_group(settings: &Settings, members: Vec<pb::Member>, taken: Option<u32>) -> Known {
    let own = settings.founders.iter().find(|founder| founder.name == settings.name);
    let member_id = own.map_or(0, |founder| founder.id(&settings.token));
    let identity = Identity::new(cluster_id(&settings.founders, &settings.token, taken), member_id, true);
    Known { identity, members, was_here: false, has_written: false }
}

/// Asks the members that the flags name, until one of them knows this one.
fn join(settings: &Settings, tls: Option<&Tls>) -> Result<Known, IdentityError> {
    let (own, others): (Vec<_>, Vec<_>) = settings.founders.iter().partition(|founder| founder.name == settings.name);
    let own = own.iter().flat_map(|founder| &founder.peer_urls).map(ToString::to_string).collect::<Vec<_>>();
    if others.is_empty() {
        return Err(IdentityError::Join("--initial-cluster names no other member to ask".into()));
    }
    let deadline = Instant::now() + PATIENCE;
    let mut problem = String::new();
    loop {
        for url in others.iter().flat_map(|founder| &founder.peer_urls) {
            match introduction(&format!("{}:{}", url.host, url.port), tls) {
                Ok((cluster_id, members)) => {
                    let itself = members.iter().find(|member| member.peer_ur_ls.iter().any(|url| own.contains(url)));
                    if let Some(itself) = itself {
                        let identity = Identity::new(cluster_id, itself.id, false);
                        return Ok(Known { identity, members, was_here: false, has_written: false });
                    }
                    problem =
                        format!("{url} knows no member at {}: add it first, with etcdctl member add", own.join(","));
                }
                Err(error) => problem = format!("{url}: {error}"),
            }
        }
        if Instant::now() >= deadline {
            return Err(IdentityError::Join(problem));
        }
        sleep(Duration::from_millis(200));
    }
}

fn introduction(address: &str, tls: Option<&Tls>) -> io::Result<(u64, Vec<pb::Member>)> {
    let bytes = tcp::ask(address, tls)?;
    let list = pb::MemberListResponse::decode(bytes.as_slice()).map_err(io::Error::other)?;
    match list.header {
        Some(header) if header.cluster_id != 0 => Ok((header.cluster_id, list.members)),
        _ => Err(io::Error::other("it does not know its group yet")),
    }
}
