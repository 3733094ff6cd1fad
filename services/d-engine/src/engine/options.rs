//! What an engine starts with.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The grain of elections and heartbeats.
pub(super) const TICK: Duration = Duration::from_millis(20);
/// Elections that take longer are not meant.
const ELECTION_MAX: Duration = Duration::from_secs(60);

/// What an acknowledged write has been through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// It is synced to the disks of a majority.
    #[default]
    Fsync,
    /// It is with the operating systems of a majority: a crash of processes loses nothing, a crash of a machine may cost that machine its
    /// log, and of a majority of machines acknowledged writes.
    None,
}

impl Durability {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::None => "none",
        }
    }
}

/// Where the state lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StateStorage {
    /// In memory: a start reads the last snapshot, and the log behind it.
    #[default]
    Memory,
    /// In the member's directory: more than memory holds, and a start goes on from there.
    Disk {
        /// Memory for what was read, bytes.
        cache_bytes: u64,
    },
}

impl StateStorage {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk { .. } => "disk",
        }
    }
}

/// Where a member is found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// By clients, `host:port`.
    pub client: String,
    /// By other members, `host:port`.
    pub peer: String,
}

/// Why an engine cannot elect with these times, if it cannot.
pub fn check_times(heartbeat: Duration, election: Duration) -> Result<(), String> {
    let millis = |time: Duration| time.as_millis();
    if election > ELECTION_MAX {
        return Err(format!("the election timeout is {} ms at most", millis(ELECTION_MAX)));
    }
    let least = (3 * heartbeat).max(3 * TICK);
    if election < least {
        return Err(format!(
            "the election timeout is at least {} ms, three heartbeats, of which none is sooner than {} ms after another",
            millis(least),
            millis(TICK)
        ));
    }
    Ok(())
}

/// What an engine starts with.
#[derive(Clone)]
pub struct Options {
    /// Its data, of this engine alone; made if it is not there.
    pub directory: PathBuf,
    /// Its number in the group; not 0.
    pub id: u64,
    /// All members of the group, this one among them; the same for all.
    pub members: BTreeMap<u64, Address>,
    /// Where other members are served, `host:port`, if not where they find this one. A founder that is alone serves others only where
    /// this is said; without, nobody can join it.
    pub listen_peer: Option<String>,
    /// Where members of a group that exists serve other members, `host:port`: this member was added to it, and joins. Then `members`, `group`
    /// and `backup` are not looked at: those say what they are. Where there is a log already, nobody is asked.
    pub join: Vec<String>,
    /// Names the group together with the founding members' numbers, so that two groups never mix. Who joins takes it from the group.
    pub group: String,
    /// A backup that a new group begins with; all its founders have the same one. Where there is a log already, it is not looked at.
    pub backup: Option<PathBuf>,
    /// What an acknowledged write has been through.
    pub durability: Durability,
    /// Where the state lies. It may be another one at each start, and differ among members.
    pub storage: StateStorage,
    /// How often a leader is heard.
    pub heartbeat: Duration,
    /// The shortest time without a leader after which another is elected; the same for all members. At least three heartbeats and 60 ms.
    pub election: Duration,
    /// How wrong the rate of a member's clock may be, parts per million: `Lease` reads are linearizable as long as that holds.
    pub clock_drift_ppm: u32,
    /// How long a write that was handed to the leader may take; after that its outcome is unknown.
    pub forward_timeout: Duration,
    /// TLS between members.
    pub peer_tls: Option<replog::runtime::tcp::Tls>,
}

impl Options {
    /// An engine that is alone.
    pub fn alone(directory: impl Into<PathBuf>) -> Self {
        let address = Address { client: String::new(), peer: String::new() };
        Self {
            directory: directory.into(),
            id: 1,
            members: BTreeMap::from([(1, address)]),
            listen_peer: None,
            join: Vec::new(),
            group: "d-engine".into(),
            backup: None,
            durability: Durability::Fsync,
            storage: StateStorage::Memory,
            heartbeat: Duration::from_millis(100),
            election: Duration::from_millis(500),
            clock_drift_ppm: 500,
            forward_timeout: Duration::from_secs(3),
            peer_tls: None,
        }
    }

    /// The group that its members found with these options. `restored` is the checksum of the backup that it begins with.
    pub(super) fn founded(&self, restored: Option<u32>) -> Group {
        // FNV-1a: it keeps accidents apart, not enemies. It stands in directories: it must not change with a release.
        let numbers = self.members.keys().flat_map(|id| id.to_le_bytes());
        // Founders with different states must never meet.
        let checksum = restored.into_iter().flat_map(u32::to_le_bytes);
        let bytes = self.group.bytes().chain([0]).chain(numbers).chain(checksum);
        let number =
            bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Group { number, members: self.members.clone(), restored, is_joined: false }
    }
}

/// The group that a member is of, as it was when the member came to it: what its user, its directory and other members say, together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Of its name and of its founding members' numbers: members of groups with other numbers refuse each other.
    pub number: u64,
    /// Where the members are, this one among them.
    pub members: BTreeMap<u64, Address>,
    /// The checksum of the backup that it began with; who joins it does not ask for it.
    pub restored: Option<u32>,
    /// Others have founded it.
    pub is_joined: bool,
}

impl Group {
    /// Its number, as directories and members say it: hexadecimal.
    pub(super) fn written(&self) -> String {
        format!("{:x}", self.number)
    }
}
