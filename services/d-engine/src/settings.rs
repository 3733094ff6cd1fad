//! What a server runs with: a file in TOML with the original's words, the environment (`RAFT__CLUSTER__NODE_ID=2` is `node_id` of
//! `[cluster]`), and flags, of which each overrides the one before. A word that nobody knows is refused.

mod file;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use service_kit::logs;
use service_kit::tls::{ClientTlsFiles, Protocol, TlsFiles};

use self::file::{Node, Persistence, ReadConsistency};
use crate::engine::{Address, Durability, NotLeading, Options, StateStorage, check_times};

/// What members' own ports are above their clients' ones, where the file does not say: the original has one port for both.
const PEER_PORT_ABOVE: u16 = 1000;
/// What is said of another number of a member.
const NUMBERS: &str = "numbers are from 1 to 4294967295, as the dialects have them";
/// Begin the variables of flags, of all commands.
const FLAGS_PREFIX: &str = "D_ENGINE_";

/// The variable of the members.
pub const MEMBERS: &str = "D_ENGINE_MEMBERS";

/// What is wrong with a file, the environment or flags: one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Mistake(pub String);

fn mistake<T>(text: impl Into<String>) -> Result<T, Mistake> {
    Err(Mistake(text.into()))
}

/// A member's number, or that of the member with this place in a StatefulSet.
fn node_id(text: &str) -> Result<u64, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let place = text.rsplit_once('-').and_then(|(_, place)| place.parse::<u64>().ok());
    let id = place.and_then(|place| place.checked_add(1));
    id.ok_or_else(|| "expected a number, or a name that ends in one, such as store-0".to_owned())
}

/// Flags of a server; each overrides the file and the environment.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Flags {
    /// File in TOML, with the original's words.
    #[arg(long, env = "CONFIG_PATH", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// This member's number in the group, or a name that ends in its place, counted from 0, as names of pods do: store-0 is member 1.
    #[arg(long, env = "D_ENGINE_NODE_ID", value_name = "NUMBER", value_parser = node_id)]
    pub node_id: Option<u64>,
    /// A member of the group: number, where clients find it, and where other members do; by default 1000 ports above. Once for each;
    /// in the environment separated by spaces.
    #[arg(long = "member", env = MEMBERS, value_name = "ID=HOST:PORT[,HOST:PORT]")]
    pub members: Vec<String>,
    /// The environment has said who the members are.
    #[arg(skip)]
    pub members_of_environment: bool,
    /// Where clients are served; by default where they find this member, or, alone, on 127.0.0.1, at 9080 and its number.
    #[arg(long, env = "D_ENGINE_LISTEN_ADDRESS", value_name = "HOST:PORT")]
    pub listen_address: Option<String>,
    /// A file of `ctl snapshot save` that a new group begins with; all its founders are given the same one. Where there are data, it is
    /// not looked at.
    #[arg(long, env = "D_ENGINE_RESTORE", value_name = "FILE", conflicts_with = "join")]
    pub restore: Option<PathBuf>,
    /// Where members of a group that exists serve other members: this member was added to it (ctl member add), and joins it.
    #[arg(long, env = "D_ENGINE_JOIN", value_delimiter = ',', value_name = "HOST:PORT")]
    pub join: Vec<String>,
    /// Where other members are served; by default where they find this one. A member that says neither serves none.
    #[arg(long, env = "D_ENGINE_LISTEN_PEER_ADDRESS", value_name = "HOST:PORT")]
    pub listen_peer_address: Option<String>,
    /// Data of this member alone; made if it is not there.
    #[arg(long, alias = "data-dir", env = "D_ENGINE_DB_ROOT_DIR", value_name = "DIRECTORY")]
    pub db_root_dir: Option<PathBuf>,
    /// What an acknowledged write has been through: fsync (synced by a majority; the default), none (with the operating systems of a
    /// majority).
    #[arg(long, env = "D_ENGINE_DURABILITY", value_name = "CLASS")]
    pub durability: Option<String>,
    /// Where the data lie besides the log: memory (the default), or disk, for more than memory holds.
    #[arg(long, env = "D_ENGINE_STORAGE", value_name = "WHERE")]
    pub storage: Option<String>,
    /// With --storage disk: memory for what was read, in MiB; by default 64.
    #[arg(long, env = "D_ENGINE_STORAGE_CACHE_MIB", value_name = "MIB")]
    pub storage_cache_mib: Option<u64>,
    /// Names the group, so that two groups never mix; by default d-engine. Not with --join: who joins takes it from the group.
    #[arg(long, env = "D_ENGINE_GROUP", value_name = "NAME")]
    pub group: Option<String>,
    /// Shortest time without a leader after which another is elected, in milliseconds; the longest is twice that. By default 500.
    #[arg(long, env = "D_ENGINE_ELECTION_TIMEOUT_MS", value_name = "MILLISECONDS")]
    pub election_timeout_ms: Option<u64>,
    /// How often a leader is heard, in milliseconds; by default 100.
    #[arg(long, env = "D_ENGINE_HEARTBEAT_MS", value_name = "MILLISECONDS")]
    pub heartbeat_ms: Option<u64>,
    /// How wrong the rate of a clock may be, in millionths: lease reads are linearizable as long as that holds. By default 500.
    #[arg(long, env = "D_ENGINE_CLOCK_DRIFT_PPM", value_name = "MILLIONTHS")]
    pub clock_drift_ppm: Option<u32>,
    /// How long an answer may take, in milliseconds; by default 3000.
    #[arg(long, env = "D_ENGINE_REQUEST_TIMEOUT_MS", value_name = "MILLISECONDS")]
    pub request_timeout_ms: Option<u64>,
    /// Hand writes of the original's clients to the leader, too. Else a member that does not lead refuses them with its name, as the
    /// original does and its clients expect.
    #[arg(long, env = "D_ENGINE_FORWARD_DIALECT_WRITES")]
    pub forward_dialect_writes: bool,
    /// Certificate shown to clients, PEM; with it, nothing but TLS is served.
    #[arg(long, env = "D_ENGINE_TLS_CERTIFICATE", value_name = "FILE")]
    pub tls_certificate: Option<PathBuf>,
    /// Its key, PEM.
    #[arg(long, env = "D_ENGINE_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Who signs clients' certificates, PEM; with it, clients need one.
    #[arg(long, env = "D_ENGINE_TLS_CLIENT_AUTHORITY", value_name = "FILE")]
    pub tls_client_authority: Option<PathBuf>,
    /// Certificate shown to other members, PEM.
    #[arg(long, env = "D_ENGINE_PEER_TLS_CERTIFICATE", value_name = "FILE")]
    pub peer_tls_certificate: Option<PathBuf>,
    /// Its key, PEM.
    #[arg(long, env = "D_ENGINE_PEER_TLS_KEY", value_name = "FILE")]
    pub peer_tls_key: Option<PathBuf>,
    /// Who signs members' certificates, PEM.
    #[arg(long, env = "D_ENGINE_PEER_TLS_AUTHORITY", value_name = "FILE")]
    pub peer_tls_authority: Option<PathBuf>,
    /// What is logged: error, warn, info, debug.
    #[arg(long, env = "D_ENGINE_LOG_LEVEL", default_value = "info", value_name = "LEVEL")]
    pub log_level: String,
    /// How it is logged: text or json.
    #[arg(long, env = "D_ENGINE_LOG_FORMAT", default_value = "json", value_name = "FORMAT")]
    pub log_format: logs::Format,
}

/// Certificates of members, shown to each other and asked of each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerTls {
    /// When others connect.
    pub server: TlsFiles,
    /// When this one does.
    pub client: ClientTlsFiles,
}

/// What a server runs with.
#[derive(Clone)]
pub struct Settings {
    /// The engine.
    pub engine: Options,
    /// Where clients are served, `host:port`.
    pub listen: String,
    /// How long an answer may take.
    pub patience: Duration,
    /// What becomes of writes of the original's clients where this member does not lead.
    pub not_leading: NotLeading,
    /// Certificates for clients.
    pub tls: Option<TlsFiles>,
    /// Certificates for other members.
    pub peer_tls: Option<PeerTls>,
    /// What the user should know, each a line.
    pub warnings: Vec<String>,
}

impl Settings {
    /// Of a file, its name and its text, the environment and flags.
    pub fn of(
        file: Option<(&str, &str)>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        flags: Flags,
    ) -> Result<Self, Mistake> {
        let file = file::read(file, environment)?;
        // A variable that is there and empty says nothing.
        let join = flags.join.iter().map(|address| address.trim().to_owned()).filter(|address| !address.is_empty());
        let flags = Flags { join: join.collect(), ..flags };
        let mut warnings = Vec::new();
        let said = if flags.members_of_environment { MEMBERS } else { "--member" };
        let members = members(&file.cluster.initial_cluster, &flags.members, said)?;
        roles(&file.cluster.initial_cluster, &mut warnings)?;
        let Some(id) = flags.node_id.or(file.cluster.node_id) else {
            return mistake("--node-id, or node_id of [cluster]: say which member this is");
        };
        let is_number = |id: u64| id > 0 && u32::try_from(id).is_ok();
        if !is_number(id) {
            return mistake(format!("--node-id, or node_id of [cluster]: {id}: {NUMBERS}"));
        }
        let are_given = !members.is_empty();
        if !flags.join.is_empty() && !are_given {
            return mistake("--join: say with --member ID=HOST:PORT where this member itself is, as it was added");
        }
        if let (Some(group), false) = (&flags.group, flags.join.is_empty()) {
            return mistake(format!(
                "--group {group}, or D_ENGINE_GROUP, beside --join: who joins a group takes its name from the members there: leave --group out, and check that --join names that group's members"
            ));
        }
        if file.cluster.group.is_some() && !flags.join.is_empty() {
            warnings
                .push("group of [cluster] has no effect beside --join: the members there say which group it is".into());
        }
        let listen = flags.listen_address.or(file.cluster.listen_address);
        let of_flag =
            |what: &str, address: &str| split(address).map(drop).map_err(|error| Mistake(format!("{what}: {error}")));
        for address in &flags.join {
            of_flag("--join", address)?;
        }
        if let Some(address) = &listen {
            of_flag("--listen-address, or listen_address of [cluster]", address)?;
        }
        if let Some(address) = &flags.listen_peer_address {
            of_flag("--listen-peer-address", address)?;
        }
        let members = match members.is_empty() {
            true => BTreeMap::from([(id, own_address(id, listen.as_deref(), flags.listen_peer_address.as_deref())?)]),
            false => members,
        };
        let Some(own) = members.get(&id).cloned() else {
            return mistake(format!("member {id} is not among the members {:?}", members.keys().collect::<Vec<_>>()));
        };
        if let Some(other) = members.keys().find(|id| !is_number(**id)) {
            return mistake(format!("member {other}: {NUMBERS}"));
        }
        let Some(directory) = flags.db_root_dir.or(file.cluster.db_root_dir) else {
            return mistake("--db-root-dir, or db_root_dir of [cluster]: say where the data are");
        };
        let raft = &file.raft;
        // What the file alone can say, with its name.
        let by_file = |mistake: Mistake| Mistake(format!("{}{mistake}", file.said_by));
        let durability = durability(flags.durability.as_deref(), &raft.persistence, &mut warnings, by_file)?;
        let storage = storage(
            flags.storage.as_deref().or(raft.state_machine.storage.as_deref()),
            flags.storage_cache_mib.or(raft.state_machine.cache_mib),
        )?;
        read_consistency(&raft.read_consistency, &mut warnings).map_err(by_file)?;
        let millis =
            |flag: Option<u64>, file: Option<u64>, default| Duration::from_millis(flag.or(file).unwrap_or(default));
        let election = millis(flags.election_timeout_ms, raft.election.election_timeout_min, 500);
        let heartbeat = millis(flags.heartbeat_ms, raft.replication.rpc_append_entries_clock_in_ms, 100);
        if heartbeat.is_zero() {
            return mistake(
                "--heartbeat-ms, or rpc_append_entries_clock_in_ms of [raft.replication]: 0 is no time, say 1 or more",
            );
        }
        if let Some(longest) = raft.election.election_timeout_max {
            if Duration::from_millis(longest) < election {
                return Err(by_file(Mistake(format!(
                    "election_timeout_max of [raft.election], {longest}: it is less than the shortest election timeout (--election-timeout-ms, or election_timeout_min), {}: leave it out, the longest is twice that",
                    election.as_millis()
                ))));
            }
            if Duration::from_millis(longest) != 2 * election {
                let kept = 2 * election.as_millis();
                warnings.push(format!(
                    "election_timeout_max = {longest} has no effect: the longest is twice the shortest, {kept} ms"
                ));
            }
        }
        check_times(heartbeat, election).map_err(|why| {
            Mistake(format!(
                "--election-timeout-ms, or election_timeout_min of [raft.election], {}, with --heartbeat-ms, or rpc_append_entries_clock_in_ms of [raft.replication], {}: {why}",
                election.as_millis(),
                heartbeat.as_millis()
            ))
        })?;
        let patience = millis(flags.request_timeout_ms, raft.general_raft_timeout_duration_in_ms, 3000);
        if patience.is_zero() {
            return mistake(
                "--request-timeout-ms, or general_raft_timeout_duration_in_ms of [raft]: an answer takes some time",
            );
        }
        let clock_drift_ppm = flags.clock_drift_ppm.or(raft.clock_drift_ppm).unwrap_or(500);
        if clock_drift_ppm > 200_000 {
            return mistake(format!(
                "--clock-drift-ppm, or clock_drift_ppm of [raft], {clock_drift_ppm}: at most 200000, a fifth"
            ));
        }
        let tls = tls(
            flags.tls_certificate.or(file.tls.certificate),
            flags.tls_key.or(file.tls.key),
            flags.tls_client_authority.or(file.tls.client_authority),
        )?;
        let peer_tls = peer_tls(
            flags.peer_tls_certificate.or(file.tls.peer_certificate),
            flags.peer_tls_key.or(file.tls.peer_key),
            flags.peer_tls_authority.or(file.tls.peer_authority),
        )?;
        let own_client = own.client;
        let forwards = flags.forward_dialect_writes || raft.forward_dialect_writes == Some(true);
        let not_leading = if forwards { NotLeading::Forward } else { NotLeading::Refuse };
        let engine = Options {
            id,
            members,
            // Who says where it is can be joined, also while it is alone.
            listen_peer: flags.listen_peer_address.or(are_given.then_some(own.peer)),
            join: flags.join,
            backup: flags.restore,
            group: flags.group.or(file.cluster.group).unwrap_or_else(|| "d-engine".into()),
            durability,
            storage,
            heartbeat,
            election,
            clock_drift_ppm,
            forward_timeout: patience,
            ..Options::alone(directory)
        };
        let listen = listen.unwrap_or(own_client);
        Ok(Self { engine, listen, patience, not_leading, tls, peer_tls, warnings })
    }

    /// Of flags, and the file and the environment that they name.
    pub fn load(flags: Flags) -> Result<Self, Mistake> {
        let file = flags.config.as_deref().map(load).transpose()?;
        let file = file.as_ref().map(|(name, text)| (name.as_str(), text.as_str()));
        Self::of(file, std::env::vars_os(), flags)
    }
}

fn load(path: &Path) -> Result<(String, String), Mistake> {
    let name = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok((name, text)),
        Err(error) => mistake(format!("--config {name}: {error}")),
    }
}

/// Refuses variables that begin as those of flags do, and that no command knows: what was misspelt would be without effect. Kubernetes
/// brings some of a service that is called d-engine.
pub fn check_variables(
    names: impl IntoIterator<Item = OsString>,
    is_known: impl Fn(&str) -> bool,
) -> Result<(), Mistake> {
    for name in names {
        let Some(name) = name.to_str().filter(|name| name.starts_with(FLAGS_PREFIX)) else { continue };
        let is_of_a_service = ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT_"].iter().any(|word| name.contains(word));
        if !is_known(name) && !is_of_a_service && !name.ends_with("_PORT") {
            return mistake(format!(
                "{name}: there is no such variable (the --help of serve, ctl and bench names those that there are)"
            ));
        }
    }
    Ok(())
}

/// Where a member is found that nobody has named: where it listens.
fn own_address(id: u64, listen: Option<&str>, listen_peer: Option<&str>) -> Result<Address, Mistake> {
    let default = format!("127.0.0.1:{}", 9080_u64.saturating_add(id));
    let listen = listen.unwrap_or(&default);
    let (host, port) = split(listen)?;
    if let Some(peer) = listen_peer {
        for (flag, address) in [("--listen-peer-address", peer), ("--listen-address", listen)] {
            if is_anywhere(split(address)?.0) {
                return mistake(format!(
                    "{flag} {address}: other members cannot find this one there: say with --member {id}=HOST:PORT,HOST:PORT where they do"
                ));
            }
        }
        return address_of(listen, Some(peer));
    }
    // Nobody joins it, and its clients are on this machine if it does not say where else they find it.
    let client = if is_anywhere(host) { format!("127.0.0.1:{port}") } else { listen.to_owned() };
    let peer = port.checked_add(PEER_PORT_ABOVE).map(|above| format!("127.0.0.1:{above}"));
    Ok(Address { peer: peer.unwrap_or_else(|| client.clone()), client })
}

/// Whether this is every address of a machine, and none to be found at.
fn is_anywhere(host: &str) -> bool {
    host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.is_unspecified())
}

fn split(address: &str) -> Result<(&str, u16), Mistake> {
    let parsed = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    match parsed {
        Some((host, port)) if !host.is_empty() && !host.contains('/') => Ok((host, port)),
        _ => mistake(format!("{address:?} is not an address: expected host:port")),
    }
}

/// Where a member is found whose clients find it there: other members 1000 ports above, where nothing else is said.
pub fn address_of(client: &str, peer: Option<&str>) -> Result<Address, Mistake> {
    let (host, port) = split(client)?;
    let peer = match peer {
        Some(peer) => split(peer).map(|_| peer.to_owned())?,
        None => match port.checked_add(PEER_PORT_ABOVE) {
            Some(above) => format!("{host}:{above}"),
            None => {
                return mistake(format!(
                    "{client}: there is no port {PEER_PORT_ABOVE} above it: say where other members find it, too (HOST:PORT,HOST:PORT, or peer_address)"
                ));
            }
        },
    };
    if let Some(address) = [client, &peer].into_iter().find(|address| !is_to_be_found(address)) {
        return mistake(format!(
            "{address}: nobody on another machine finds the member there: name the address where others do (what it listens on is --listen-address and --listen-peer-address)"
        ));
    }
    Ok(Address { client: client.to_owned(), peer })
}

/// Whether this is `host:port` of one machine: whoever is told the address of all is told its own.
fn is_to_be_found(address: &str) -> bool {
    split(address).is_ok_and(|(host, _)| !is_anywhere(host))
}

/// Flags replace the file's list; `said` is what has them: flags, or a variable. That may have several, over lines too, and none where it is
/// empty.
fn members(nodes: &[Node], flags: &[String], said: &str) -> Result<BTreeMap<u64, Address>, Mistake> {
    let mut members: BTreeMap<u64, Address> = BTreeMap::new();
    let mut add = |id, address: Address| {
        let is_there = |other: &Address| other.client == address.client || other.peer == address.peer;
        if members.contains_key(&id) {
            return mistake(format!("member {id} is named twice"));
        }
        if let Some((other, _)) = members.iter().find(|(_, other)| is_there(other)) {
            return mistake(format!(
                "members {other} and {id} are at one address, {}: each has its own",
                address.client
            ));
        }
        members.insert(id, address);
        Ok(())
    };
    let flags: Vec<&str> = flags.iter().flat_map(|flag| flag.split_whitespace()).collect();
    if flags.is_empty() {
        for node in nodes {
            let address = address_of(&node.address, node.peer_address.as_deref());
            let said = |error: Mistake| Mistake(format!("member {} of initial_cluster of [cluster]: {error}", node.id));
            add(node.id, address.map_err(said)?)?;
        }
    }
    for flag in flags {
        let parsed = flag.split_once('=').and_then(|(id, addresses)| Some((id.parse().ok()?, addresses)));
        let Some((id, addresses)) = parsed else {
            return mistake(format!("{said} {flag}: expected ID=HOST:PORT or ID=HOST:PORT,HOST:PORT"));
        };
        let (client, peer) = addresses.split_once(',').map_or((addresses, None), |(client, peer)| (client, Some(peer)));
        let of_flag = |text: &dyn std::fmt::Display| Mistake(format!("{said} {flag}: {text}"));
        if addresses.contains('=') {
            return Err(of_flag(
                &"each member has a --member of its own; in D_ENGINE_MEMBERS they are separated by spaces",
            ));
        }
        add(id, address_of(client, peer).map_err(|error| of_flag(&error))?).map_err(|error| of_flag(&error))?;
    }
    Ok(members)
}

/// A learner in release 0.2.4 of the original; 0.1.4 has no such number.
const LEARNER: i64 = 4;

/// What the original's file says of members besides; numbers differ between its releases.
fn roles(nodes: &[Node], warnings: &mut Vec<String>) -> Result<(), Mistake> {
    if let Some(learner) = nodes.iter().find(|node| node.role == Some(LEARNER)) {
        let id = learner.id;
        return mistake(format!(
            "member {id} of initial_cluster: role {LEARNER}: a learner is added to a group that works (ctl member add)"
        ));
    }
    if nodes.iter().any(|node| node.role.is_some() || node.status.is_some()) {
        warnings
            .push("role and status of members have no effect: all in initial_cluster vote, and elect who leads".into());
    }
    Ok(())
}

/// The class; of the original's words those that promise no more than is kept.
fn durability(
    flag: Option<&str>,
    file: &Persistence,
    warnings: &mut Vec<String>,
    by_file: impl Fn(Mistake) -> Mistake,
) -> Result<Durability, Mistake> {
    if file.flush_policy.is_some() {
        warnings.push("flush_policy has no effect: writes are synced in groups, or never".into());
    }
    match (flag, file.strategy.as_deref()) {
        (Some("fsync"), _) | (None, Some("DiskFirst") | None) => Ok(Durability::Fsync),
        (Some("none"), _) => Ok(Durability::None),
        (None, Some("MemFirst")) => {
            warnings.push("strategy MemFirst is durability class none: acknowledged writes are not synced".into());
            Ok(Durability::None)
        }
        (Some("interval"), _) => {
            mistake("--durability interval: the log does not sync by the clock; use fsync or none")
        }
        (Some(other), _) => mistake(format!("--durability {other}: expected fsync or none")),
        (None, Some(other)) => {
            Err(by_file(Mistake(format!("strategy of [raft.persistence], {other:?}: expected DiskFirst or MemFirst"))))
        }
    }
}

/// Memory for what was read from disk, if nothing is said, in MiB.
const CACHE_MIB: u64 = 64;

fn storage(word: Option<&str>, cache_mib: Option<u64>) -> Result<StateStorage, Mistake> {
    match (word.unwrap_or("memory"), cache_mib) {
        ("memory", None) => Ok(StateStorage::Memory),
        ("memory", Some(_)) => {
            mistake("--storage-cache-mib, or cache_mib of [raft.state_machine]: only with storage disk")
        }
        ("disk", cache_mib) => match cache_mib.unwrap_or(CACHE_MIB) {
            mib @ 1..=1_048_576 => Ok(StateStorage::Disk { cache_bytes: mib << 20 }),
            mib => {
                mistake(format!("--storage-cache-mib, or cache_mib of [raft.state_machine], {mib}: from 1 to 1048576"))
            }
        },
        (word, _) => mistake(format!("--storage, or storage of [raft.state_machine], {word}: expected memory or disk")),
    }
}

fn read_consistency(file: &ReadConsistency, warnings: &mut Vec<String>) -> Result<(), Mistake> {
    if file.lease_duration_ms.is_some() {
        warnings
            .push("lease_duration_ms has no effect: the lease follows from the election timeout and the drift".into());
    }
    if file.allow_client_override == Some(false) {
        return mistake(
            "allow_client_override = false of [raft.read_consistency]: not offered, each request says how it reads: leave it out",
        );
    }
    match file.default_policy.as_deref() {
        None | Some("LinearizableRead") => Ok(()),
        Some(other) => mistake(format!(
            "default_policy of [raft.read_consistency], {other:?}: not offered, requests that do not say read linearizably: leave it out, or say LinearizableRead"
        )),
    }
}

fn tls(
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    client_authority: Option<PathBuf>,
) -> Result<Option<TlsFiles>, Mistake> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some(TlsFiles {
            certificate,
            key,
            client_authority,
            revocations: None,
            self_signed: None,
            protocol: Protocol::default(),
        })),
        (None, None) if client_authority.is_none() => Ok(None),
        _ => mistake(
            "TLS needs both a certificate and its key: --tls-certificate and --tls-key, or certificate and key of [tls]",
        ),
    }
}

fn peer_tls(
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    authority: Option<PathBuf>,
) -> Result<Option<PeerTls>, Mistake> {
    match (certificate, key, authority) {
        (None, None, None) => Ok(None),
        (Some(certificate), Some(key), Some(authority)) => {
            let client = ClientTlsFiles {
                authority: Some(authority.clone()),
                certificate: Some((certificate.clone(), key.clone())),
                protocol: Protocol::default(),
            };
            let server = tls(Some(certificate), Some(key), Some(authority))?;
            Ok(server.map(|server| PeerTls { server, client }))
        }
        _ => mistake(
            "TLS between members needs a certificate, its key and the authority: --peer-tls-certificate, --peer-tls-key and --peer-tls-authority, or peer_certificate, peer_key and peer_authority of [tls]",
        ),
    }
}

#[cfg(test)]
mod tests;
