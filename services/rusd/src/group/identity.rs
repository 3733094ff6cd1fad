//! Who a member is: founded with numbers that follow from the flags, or learned from the group that it joins. Written down before
//! anything else, with whom it began with, so that flags no longer matter once there are data.
//!
//! What a directory that lost its log is told by, and why it is refused, is in [`replog::runtime::identity`]. Another member says that this one has
//! served already, as etcd asks its peers at bootstrap (`server/etcdserver/bootstrap.go`, `isMemberBootstrapped`); who founds the group asks on,
//! which etcd does not, before it speaks to any.

use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use prost::Message;
use replog::runtime::identity::{self, Founding, Known as Kept, Place, Said, Standing, Welcome};
use replog::runtime::tcp::{self, Tls};
use serde::{Deserialize, Serialize};
use service_kit::url::Url;

use crate::flags::Mistake;
use crate::proto::etcdserverpb as pb;
use crate::settings::{Founder, Settings, cluster_id, hex};

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
    File(PathBuf, io::Error),
    /// The content of its file.
    #[error("{0}: {1}; it was changed by somebody else: restore it, or remove this member and add a new one")]
    Content(PathBuf, String),
    /// What the flags say of a member that begins.
    #[error(transparent)]
    Flags(#[from] Mistake),
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
        "member {id:x} has already been bootstrapped, says {by}, and {directory} has nothing of that: it would forget what it has acknowledged. \
         Restore the directory, or remove this member from the group and add a new one (etcdctl member remove, member add)"
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
pub struct Identity {
    /// The group's number, hexadecimal.
    cluster_id: String,
    /// Its own.
    member_id: String,
    /// It is among those that founded the group.
    pub is_founder: bool,
    /// How many found the group with it, by the flags of its first start. Beside whom it began with for earlier releases, which read this alone.
    #[serde(default, skip_serializing_if = "is_zero")]
    other_founders: usize,
    /// Whom it began with, itself included: the founders, or who belonged to the group that it joined. Earlier releases did not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    began_with: Vec<Companion>,
    /// There has been a log. Where nothing is said, an earlier release wrote it, and had one.
    #[serde(default = "yes")]
    has_log: bool,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A member as it was when another one began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Companion {
    /// Its number, hexadecimal.
    id: String,
    #[serde(default)]
    name: String,
    peer_urls: Vec<String>,
}

impl Companion {
    fn of(member: &pb::Member) -> Self {
        Self { id: hex(member.id), name: member.name.clone(), peer_urls: member.peer_ur_ls.clone() }
    }

    /// `None`: it was written by somebody else.
    fn member(&self) -> Option<pb::Member> {
        let (name, peer_ur_ls) = (self.name.clone(), self.peer_urls.clone());
        Some(pb::Member { id: number(&self.id)?, name, peer_ur_ls, ..Default::default() })
    }
}

/// A number that is written down.
fn number(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok().filter(|number| *number != 0)
}

fn yes() -> bool {
    true
}

impl identity::Identity for Identity {
    fn decode(bytes: &[u8]) -> Result<Self, String> {
        let identity: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        identity.numbers().and(identity.members()).ok_or("a number is not hexadecimal")?;
        Ok(identity)
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

/// An identity, and where others are as far as flags or the group said.
pub struct Known {
    /// Who it is.
    pub identity: Identity,
    /// Where that is written down.
    pub kept: Kept<Identity>,
    /// The members, to begin with.
    pub members: Vec<pb::Member>,
    /// It has a log, of an earlier start.
    pub was_here: bool,
    /// Who asks the others before it speaks to them.
    pub founding: Option<Founding>,
}

impl Identity {
    fn new(cluster_id: u64, member_id: u64, is_founder: bool) -> Self {
        let [cluster_id, member_id] = [cluster_id, member_id].map(hex);
        Self { cluster_id, member_id, is_founder, other_founders: 0, began_with: Vec::new(), has_log: false }
    }

    /// The group's number and its own; `None`: it was written by somebody else.
    fn numbers(&self) -> Option<(u64, u64)> {
        Some((number(&self.cluster_id)?, number(&self.member_id)?))
    }

    /// Whom it began with; `None`: that was written by somebody else.
    fn members(&self) -> Option<Vec<pb::Member>> {
        self.began_with.iter().map(Companion::member).collect()
    }

    /// The group's number.
    pub fn cluster_id(&self) -> u64 {
        self.numbers().unwrap_or_default().0
    }

    /// Its own number.
    pub fn member_id(&self) -> u64 {
        self.numbers().unwrap_or_default().1
    }

    /// Whether a member has written down here who it is.
    pub fn is_in(data_directory: &Path) -> bool {
        place(data_directory).is_written()
    }

    /// What was written down, or what follows from the flags, which is written down then, and from what is taken over, if anything is.
    pub fn find(settings: &Settings, tls: Option<&Tls>, taken: Option<u32>) -> Result<Known, IdentityError> {
        let place = Place { log: settings.log_directory(), ..place(&settings.data_directory) };
        place.make()?;
        let founders = settings.founders.iter().map(|founder| member(founder, &settings.token));
        let founders = founders.collect::<Vec<_>>();
        let is_new = match place.standing(place.read::<Self>()?)? {
            Standing::Member(kept) => {
                let founding = founding(&kept);
                let identity = kept.identity();
                let members = identity.members().filter(|members| !members.is_empty());
                // What an earlier release wrote does not say with whom it began. There the flags do, unless the log knows and they are of
                // another member, whose number is another. That of one which joined follows from no flags.
                let is_other = identity.is_founder
                    && identity.has_log
                    && founders.iter().all(|founder| founder.id != identity.member_id());
                let members = members.unwrap_or_else(|| if is_other { Vec::new() } else { founders });
                return Ok(Known { identity, kept, members, was_here: true, founding });
            }
            Standing::Unnamed => false,
            Standing::New(_) => true,
        };
        // One that was killed before it had a log begins again; and whose a log is that says nothing, shows when it is opened.
        let own = settings.founder(is_one_place)?;
        let (mut identity, members) =
            if settings.joins { join(settings, own, tls)? } else { found_group(settings, own, founders, taken) };
        identity.began_with = members.iter().map(Companion::of).collect();
        let id = identity.member_id();
        if is_new && let Some(by) = who_knows(settings, id, tls) {
            return Err(IdentityError::Emptied { id, by, directory: settings.data_directory.clone() });
        }
        let kept = Kept::begin(&place, identity.clone())?;
        // What is taken over is not of before.
        let founding = (is_new && taken.is_none()).then(|| founding(&kept)).flatten();
        Ok(Known { identity, kept, members, was_here: false, founding })
    }
}

/// Who asks the others on, if nobody has said yet that this member begins: who was started while none was there that knows it may be started
/// again, too.
fn founding(kept: &Kept<Identity>) -> Option<Founding> {
    let identity = kept.identity();
    let numbers = (identity.cluster_id(), identity.member_id());
    let read = move |introduction: &[u8]| match decode(introduction) {
        Ok((of, _)) if of != numbers.0 => None,
        Ok((_, members)) => Some(said_by(&members, numbers.1)),
        Err(error) => Some(Said::CannotTell(error.to_string())),
    };
    identity.is_founder.then(|| kept.founding(identity.other_founders, read)).flatten()
}

/// What others say of a member who have these: that its clients know where it is was in the log.
fn said_by(members: &[pb::Member], id: u64) -> Said {
    let has_served = members.iter().any(|member| member.id == id && !member.client_ur_ls.is_empty());
    if has_served { Said::HasAcknowledged } else { Said::Nothing }
}

/// The member, by its URL, that says that this one has served.
fn who_knows(settings: &Settings, id: u64, tls: Option<&Tls>) -> Option<String> {
    let others = settings.founders.iter().filter(|founder| founder.name != settings.name);
    let urls: Vec<_> = others.flat_map(|founder| &founder.peer_urls).collect();
    // Who is not there, or begins as well, knows nothing.
    let says = |url: &&Url| {
        let (_, members) = introduction(&address(url), tls).ok()?;
        Some(said_by(&members, id))
    };
    // None of them says that it cannot tell.
    identity::who_knows(&urls, says).ok().flatten().map(ToString::to_string)
}

fn address(url: &Url) -> String {
    format!("{}:{}", url.host, url.port)
}

fn member(founder: &Founder, token: &str) -> pb::Member {
    let peer_ur_ls = founder.peer_urls.iter().map(ToString::to_string).collect();
    pb::Member { id: founder.id(token), name: founder.name.clone(), peer_ur_ls, ..Default::default() }
}

/// Whether the same sockets are meant: names are looked up, as etcd does at bootstrap. One that is not known is no other's.
fn is_one_place(one: &[Url], other: &[Url]) -> bool {
    let places = |urls: &[Url]| urls.iter().map(addresses).collect::<Option<Vec<_>>>();
    let (Some(one), Some(other)) = (places(one), places(other)) else { return false };
    // A name may have addresses of both families.
    let is_in = |place: &BTreeSet<_>, places: &[BTreeSet<_>]| places.iter().any(|other| !place.is_disjoint(other));
    one.iter().all(|place| is_in(place, &other)) && other.iter().all(|place| is_in(place, &one))
}

/// Where a URL leads to; `None`: nobody knows its name.
fn addresses(url: &Url) -> Option<BTreeSet<(bool, SocketAddr)>> {
    let addresses = (url.host.trim_matches(['[', ']']), url.port).to_socket_addrs().ok()?;
    Some(addresses.map(|address| (url.is_tls, address)).collect())
}

fn found_group(
    settings: &Settings,
    own: &Founder,
    members: Vec<pb::Member>,
    taken: Option<u32>,
) -> (Identity, Vec<pb::Member>) {
    let cluster_id = cluster_id(&settings.founders, &settings.token, taken);
    let mut identity = Identity::new(cluster_id, own.id(&settings.token), true);
    identity.other_founders = members.len() - 1;
    (identity, members)
}

/// Asks the members that the flags name, until one of them knows this one.
fn join(settings: &Settings, own: &Founder, tls: Option<&Tls>) -> Result<(Identity, Vec<pb::Member>), IdentityError> {
    let others = settings.founders.iter().filter(|founder| founder.name != own.name).collect::<Vec<_>>();
    let own = own.peer_urls.iter().map(ToString::to_string).collect::<Vec<_>>();
    if others.is_empty() {
        return Err(IdentityError::Join("--initial-cluster names no other member to ask".into()));
    }
    let urls: Vec<_> = others.iter().flat_map(|founder| &founder.peer_urls).collect();
    let ask = |url: &&Url| match introduction(&address(url), tls) {
        Ok((cluster_id, members)) => {
            match members.iter().find(|member| member.peer_ur_ls.iter().any(|url| own.contains(url))) {
                Some(itself) => Welcome::Known((Identity::new(cluster_id, itself.id, false), members)),
                None => Welcome::NotYet(format!(
                    "{url} knows no member at {}: add it first, with etcdctl member add",
                    own.join(",")
                )),
            }
        }
        Err(error) => Welcome::NotYet(format!("{url}: {error}")),
    };
    identity::join(&urls, PATIENCE, ask).map_err(IdentityError::Join)
}

fn introduction(address: &str, tls: Option<&Tls>) -> io::Result<(u64, Vec<pb::Member>)> {
    decode(&tcp::ask(address, tls)?)
}

/// The group's number, and its members.
fn decode(introduction: &[u8]) -> io::Result<(u64, Vec<pb::Member>)> {
    let list = pb::MemberListResponse::decode(introduction).map_err(io::Error::other)?;
    match list.header {
        Some(header) if header.cluster_id != 0 => Ok((header.cluster_id, list.members)),
        _ => Err(io::Error::other("it does not know its group yet")),
    }
}

/// Where a member's data lie whose log is with them.
fn place(data_directory: &Path) -> Place {
    let folder = data_directory.join("member");
    Place { log: folder.join("wal"), folder }
}

#[cfg(test)]
mod tests {
    use replog::runtime::identity::Identity as _;

    use super::*;

    /// It had a log, and is refused without.
    #[test]
    fn what_earlier_releases_wrote_is_read() {
        let first = br#"{"cluster_id": "a", "member_id": "b", "is_founder": true}"#;
        let identity = Identity::decode(first).unwrap();
        assert_eq!((identity.cluster_id(), identity.member_id(), identity.has_log()), (10, 11, true));
        let before =
            b"{\n  \"cluster_id\": \"a\",\n  \"member_id\": \"b\",\n  \"is_founder\": true,\n  \"has_log\": true\n}";
        assert_eq!(Identity::decode(before).unwrap(), identity);
        assert_eq!(identity.encode().unwrap(), before, "an earlier release reads it");
        let other =
            pb::Member { id: 12, name: "m".into(), peer_ur_ls: vec!["http://a:1".into()], ..Default::default() };
        let founder = Identity { other_founders: 1, began_with: vec![Companion::of(&other)], ..identity };
        let read = Identity::decode(&founder.encode().unwrap()).unwrap();
        assert_eq!((read.members(), read), (Some(vec![other]), founder));
        let wrong = br#"{"cluster_id": "a", "member_id": "b", "is_founder": true, "began_with": [{"id": "x", "peer_urls": []}]}"#;
        assert_eq!(Identity::decode(wrong).unwrap_err(), "a number is not hexadecimal");
        assert_eq!(
            Identity::decode(br#"{"cluster_id": "a", "member_id": "x", "is_founder": true}"#).unwrap_err(),
            "a number is not hexadecimal"
        );
    }
}
