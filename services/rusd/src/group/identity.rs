//! Who a member is: founded with numbers that follow from the flags, or learned from the group that it joins. Written down before
//! anything else, so that flags no longer matter once there are data.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use prost::Message;
use replog::runtime::tcp::{self, Tls};
use serde::{Deserialize, Serialize};

use crate::proto::etcdserverpb as pb;
use crate::settings::{Founder, Settings, cluster_id};

const FILE: &str = "identity.json";
/// How long the group that is joined may take to know of this member.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why a member does not know who it is.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Its file.
    #[error("{0}: {1}")]
    File(String, io::Error),
    /// The content of its file.
    #[error("{0}: {1}; it was changed by somebody else: restore it, or remove this member and add a new one")]
    Content(String, serde_json::Error),
    /// The group that it shall join.
    #[error("--initial-cluster-state=existing: {0}")]
    Join(String),
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
}

/// An identity, and where others are as far as flags or the group said.
pub struct Known {
    /// Who it is.
    pub identity: Identity,
    /// The members, to begin with.
    pub members: Vec<pb::Member>,
    /// It was written down by an earlier start.
    pub was_here: bool,
}

impl Identity {
    fn new(cluster_id: u64, member_id: u64, is_founder: bool) -> Self {
        Self { cluster_id: format!("{cluster_id:x}"), member_id: format!("{member_id:x}"), is_founder }
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

    /// What was written down, or what follows from the flags, which is written down then.
    pub fn find(settings: &Settings, tls: Option<&Tls>) -> Result<Known, IdentityError> {
        let folder = settings.data_directory.join("member");
        let path = folder.join(FILE);
        let file = |error| IdentityError::File(path.display().to_string(), error);
        let founders = settings.founders.iter().map(|founder| member(founder, &settings.token)).collect();
        match fs::read(&path) {
            Ok(bytes) => {
                let content = |error| IdentityError::Content(path.display().to_string(), error);
                let identity: Self = serde_json::from_slice(&bytes).map_err(content)?;
                let wrong = || content(serde::de::Error::custom("a number is not hexadecimal"));
                identity.numbers().ok_or_else(wrong)?;
                return Ok(Known { identity, members: founders, was_here: true });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(file(error)),
        }
        let known = if settings.joins { join(settings, tls)? } else { found(settings, founders) };
        write(&folder, &known.identity).map_err(file)?;
        Ok(known)
    }
}

fn member(founder: &Founder, token: &str) -> pb::Member {
    let peer_ur_ls = founder.peer_urls.iter().map(ToString::to_string).collect();
    pb::Member { id: founder.id(token), name: founder.name.clone(), peer_ur_ls, ..Default::default() }
}

fn found(settings: &Settings, members: Vec<pb::Member>) -> Known {
    let own = settings.founders.iter().find(|founder| founder.name == settings.name);
    let member_id = own.map_or(0, |founder| founder.id(&settings.token));
    let identity = Identity::new(cluster_id(&settings.founders, &settings.token), member_id, true);
    Known { identity, members, was_here: false }
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
                        return Ok(Known { identity, members, was_here: false });
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

/// All of it or nothing, and safe when this returns.
fn write(folder: &Path, identity: &Identity) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let (next, path) = (folder.join("identity.next"), folder.join(FILE));
    let mut file = File::create(&next)?;
    file.write_all(serde_json::to_string_pretty(identity)?.as_bytes())?;
    file.sync_all()?;
    fs::rename(next, path)?;
    File::open(folder)?.sync_all()?;
    folder.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}
