//! A server, put together: log, store, worker threads, sockets; and how it stops.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use replog::Membership;
use replog::runtime::identity::{Begun, Founding};
use replog::runtime::tcp::{Tcp, TcpOptions};
use replog::runtime::{Limits, Member, MemberError, Origin, Start};
use service_kit::directory::make_private;
use service_kit::listen::Group as Sockets;
use service_kit::probes::Readiness;
use service_kit::server::{self as kit, Bound, StartError};
use service_kit::tls::{Tls, TlsError};
use service_kit::{grpc, socket};
use tokio::time::{sleep, timeout};
use wal::files::RealDirectory;

use crate::api::Api;
use crate::api::calls::Calls;
use crate::aside::Aside;
use crate::compactor;
use crate::copies::Copies;
use crate::corruption::{self, Inconsistent};
use crate::etcd_file::database_in;
use crate::events;
use crate::group::{Door, Group, Identity, IdentityError, peer_address};
use crate::hashes::Hashes;
use crate::http::Served;
use crate::jwt::JwtError;
use crate::lessor::Lessor;
use crate::measured::{Measured, Timed};
use crate::metrics;
use crate::node::{CLUSTER_VERSION, Node};
use crate::proto::etcdserverpb as pb;
use crate::settings::{Settings, hex};
use crate::space::Space;
use crate::store::command::{self, Kind};
use crate::store::spill::{self, Spill, SpillError};
use crate::store::{Caller, Reply, State, Store, snapshot, watch};
use crate::tls;
use crate::tokens::Tokens;
use crate::watches::{Signal, Watches};

/// What calls under way may take, on a connection and on all of them, and bodies as JSON besides: see [`grpc::Memory`].
const CONNECTION_BYTES_MAX: usize = 64 << 20;
const CONNECTIONS_BYTES_MAX: usize = 192 << 20;
const GATEWAY_BYTES_MAX: usize = 64 << 20;

/// How often the leader looks for leases that have ended, and how many it revokes then: 1,000 a second, as etcd.
const LEASE_ROUND: Duration = Duration::from_millis(500);
const LEASES_A_ROUND: usize = 500;

/// Why a server cannot start, or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// It is etcd's.
    #[error(
        "--data-dir: {0} was written by etcd or etcdutl; start once with --import-in-place, which keeps what etcd wrote beside it, or take \
         it over with rusd import {0} --data-dir=NEW, and start with that"
    )]
    Foreign(PathBuf),
    /// It is rusd's, and etcd's are beside it.
    #[error(
        "--data-dir: {0} has data of rusd, and an etcd was started in it as well: nothing of rusd's is lost; remove {1}, which that etcd left, \
         and start again"
    )]
    ForeignBeside(PathBuf, PathBuf),
    /// The data directory.
    #[error("--data-dir: {0}")]
    Data(io::Error),
    /// The log's directory.
    #[error("--wal-dir: {0}: {1}")]
    Log(PathBuf, io::Error),
    /// The log.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// The log, later.
    #[error("{0}")]
    Ended(Arc<MemberError>),
    /// Certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Who it is.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Its flags, or its data.
    #[error(
        "the log in --data-dir has no member {0:x}: it is of another member, or was made with another --name, --initial-cluster \
         or --initial-cluster-token, or this member was removed from the group"
    )]
    NotInLog(u64),
    /// It is no member any more.
    #[error(
        "this member was removed from the group for good; to come back, add it as a new one, with an empty --data-dir"
    )]
    Removed,
    /// Its data.
    #[error(transparent)]
    Inconsistent(#[from] Inconsistent),
    /// Sockets and threads.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Keys of tokens.
    #[error(transparent)]
    Tokens(#[from] JwtError),
}

/// A running server.
pub struct Server {
    member: Member<Reply>,
    node: Arc<Node>,
    founding: Option<Founding>,
    kit: kit::Server,
}

impl Server {
    /// Opens the data, founds a group where there are none, and listens; nothing is accepted before [`Server::run`].
    pub fn start(settings: Settings) -> Result<Self, ServerError> {
        let open = |files| Tls::open_allowing(files, settings.client_names.clone());
        let tls = settings.tls.clone().map(open).transpose()?.map(Arc::new);
        let bound = Bound::bind(&[
            Sockets { urls: &settings.listen_client, grpc: true, http: settings.listen_client_http.is_empty() },
            Sockets { urls: &settings.listen_client_http, grpc: false, http: true },
            Sockets { urls: &settings.listen_metrics, grpc: false, http: true },
        ])?;
        let Joined { member, node, founding, signals } = join(settings, None)?;
        let kit = serve(bound, &node, signals, tls)?;
        Ok(Self { member, node, founding, kit })
    }

    /// The member.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Where it listens, in the order of the flags.
    pub fn addresses(&self) -> &[String] {
        self.kit.addresses()
    }

    /// Serves until `stop` is there or the log cannot go on; then ends gently. Runs on a tokio runtime.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), ServerError> {
        let addresses = self.addresses().join(" ");
        let Self { member, node, founding, mut kit } = self;
        let mut stop = pin!(stop);
        if node.settings.corruption.initially {
            let checked = tokio::select! {
                checked = corruption::check_initially(&node) => Some(checked),
                () = stop.as_mut() => None,
            };
            if checked != Some(Ok(())) {
                member.resign(node.settings.election);
                kit.stop();
                member.stop().map_err(ServerError::Ended)?;
                return checked.unwrap_or(Ok(())).map_err(ServerError::from);
            }
        }
        let mut outcome = Ok(());
        tokio::select! {
            () = stop.as_mut() => {}
            () = corruption::check(&node) => {}
            () = node.group.measure_round_trips() => {}
            () = ended(&node) => {}
            result = kit.accept() => result?,
            () = announce(&node, &addresses) => {}
            () = revoke_ended_leases(&node) => {}
            () = node.group.keep_members() => {}
            () = node.group.watch_leader(node.settings.election) => {}
            () = events::tell(&node) => {}
            () = node.group.removed() => outcome = Err(ServerError::Removed),
            by = known_to(founding.as_ref()) => outcome = Err(ServerError::Identity(emptied(&node, by))),
            () = compactor::run(&node) => {}
            () = node.watch_disk() => {}
            () = node.watch_readiness() => {}
        }
        // Others need not wait until they notice.
        member.resign(node.settings.election);
        kit.stop();
        member.stop().map_err(ServerError::Ended)?;
        outcome
    }
}

/// The member that knows this one, which begins with nothing; it never comes where there is none.
async fn known_to(founding: Option<&Founding>) -> u64 {
    match founding {
        Some(founding) => founding.known_to().await,
        None => std::future::pending().await,
    }
}

/// Why a member cannot go on that another one knows.
fn emptied(node: &Node, by: u64) -> IdentityError {
    let view = node.reader.view();
    let url = view.cluster.members.get(&by).and_then(|member| member.peer_ur_ls.first().cloned());
    let directory = node.settings.data_directory.clone();
    IdentityError::Emptied { id: node.member_id, by: url.unwrap_or_else(|| format!("{by:x}")), directory }
}

/// A member that has opened its log, who asks whether it has had another one, and what wakes its worker threads.
struct Joined {
    member: Member<Reply>,
    node: Arc<Node>,
    founding: Option<Founding>,
    signals: Vec<Arc<Signal>>,
}

/// Founds a member's group with a state that was taken over, and stops.
pub fn found(settings: Settings, taken: State) -> Result<(), ServerError> {
    join(settings, Some(taken))?.member.stop().map_err(ServerError::Ended)
}

/// Opens the log and the store of a member. `taken` is what its group is founded with, if not with nothing.
fn join(settings: Settings, taken: Option<State>) -> Result<Joined, ServerError> {
    if database_in(&settings.data_directory).exists() {
        refuse_beside_own(&settings.data_directory)?;
        return Err(ServerError::Foreign(settings.data_directory));
    }
    let peer_tls = settings.peer_tls.clone().filter(|_| settings.listen_peer.iter().any(|url| url.is_tls));
    let peer_tls = peer_tls.map(tls::open_peer).transpose()?;
    let checksum = taken.as_ref().map(snapshot::checksum);
    let known = Identity::find(&settings, peer_tls.as_ref(), checksum)?;
    let (cluster_id, member_id) = (known.identity.cluster_id(), known.identity.member_id());
    let (origin, mut store) = match known.identity.is_founder {
        true => {
            let voters = known.members.iter().map(|member| member.id);
            (Origin::Found(Membership::of(voters)), Store::of_group(known.members.iter().cloned()))
        }
        false => (Origin::Join, Store::default()),
    };
    // As in etcd, it means nothing where there is nothing yet.
    let is_forced = settings.force_new_cluster && known.was_here;
    let origin = if is_forced { Origin::Alone } else { known.kept.origin(origin) };
    if is_forced {
        tracing::warn!("--force-new-cluster: all other members are removed; start without it the next time");
    }
    if let Some(taken) = taken {
        store.take_over(taken);
    }
    let door = Arc::new(Door::default());
    let founding = known.founding.filter(|_| !is_forced);
    let transport =
        transport(&settings, (cluster_id, member_id), &known.members, peer_tls, (Arc::clone(&door), founding.clone()))?;
    let peers = transport.peers();
    let snapshots = open(&settings.data_directory.join("member").join("snap")).map_err(ServerError::Data)?;
    let log = settings.log_directory();
    let wal = open(&log).map_err(|error| ServerError::Log(log.clone(), error))?;
    let tick_micros = 20_000;
    let ticks = |duration: Duration| (duration.as_micros() as u64 / tick_micros).max(1) as u32;
    let defaults = replog::Settings::default();
    let group = replog::Settings {
        tick_micros,
        heartbeat_ticks: ticks(settings.heartbeat),
        election_ticks: ticks(settings.election),
        snapshot_entries: settings.snapshot_entries.max(SNAPSHOT_ENTRIES_MIN),
        snapshot_keep_entries: settings.snapshot_keep_entries,
        // What the server itself asks for is none of the flag's business.
        command_bytes_max: defaults.command_bytes_max.max(settings.request_bytes_max + command::HEAD_BYTES_MAX),
        ..defaults
    };
    let tokens = Tokens::open(&settings.tokens)?;
    let hashes = Hashes::default();
    store.on_compaction({
        let hashes = hashes.clone();
        move |before, revision| hashes.begin(before, revision)
    });
    store.spill_to(values_on_disk(&settings)?);
    let reader = store.reader();
    let measured = Arc::new(Measured::default());
    let signals = (0..kit::threads()).map(|_| Arc::new(Signal::default())).collect::<Vec<_>>();
    let raised = signals.clone();
    store.on_publish(move || raised.iter().for_each(|signal| signal.raise()));
    let wal_options = wal::Options { sync: settings.syncs, ..wal::Options::default() };
    let space = Space::new(&settings.data_directory, &log, wal_options.segment_bytes);
    let member = Member::start(Start {
        id: member_id,
        settings: group,
        limits: Limits::default(),
        wal_options,
        machine: Timed::new(store, Arc::clone(&measured), settings.warning_apply_duration),
        wal,
        snapshots,
        origin,
        begun: if founding.is_some() { Begun::unwritten() } else { known.kept.begun() },
        transport: Box::new(transport),
    });
    let member = member.map_err(|error| match error {
        MemberError::LogLost => ServerError::Identity(IdentityError::LogLost(log.clone())),
        MemberError::Identity(error) => ServerError::Identity(error.into()),
        error => error.into(),
    })?;
    let lessor = Arc::new(Lessor::new(settings.election));
    let handle = member.handle();
    // Who joins may have a log of before it was added; who founded is in it from the first entry on.
    let shown = handle.wait_for(|status| status.id != 0, settings.election);
    if known.identity.is_founder && shown.is_ok_and(|status| !status.membership.all().contains(&member_id)) {
        return Err(ServerError::NotInLog(member_id));
    }
    let group = Arc::new(Group::new(
        (cluster_id, member_id),
        handle.clone(),
        reader.clone(),
        Arc::clone(&lessor),
        hashes.clone(),
        peers,
        settings.strong_level(),
    ));
    door.open(Arc::clone(&group));
    let signals_of_node = signals.clone();
    let readiness = Readiness::default();
    readiness.wait_for("leader", "it is about to start");
    let node = Node {
        cluster_id,
        member_id,
        handle,
        reader,
        lessor,
        group,
        tokens,
        passwords: Aside::on_half_of_the_processors("password"),
        long_reads: Aside::on_half_of_the_processors("long-read"),
        copies: Copies::default(),
        hashes,
        measured,
        signals: signals_of_node,
        space,
        readiness,
        settings,
    };
    Ok(Joined { member, node: Arc::new(node), founding, signals })
}

/// Where there is a database of etcd: whether it is beside rusd's own data. An etcd that is started on these, as on the way back, ends, and leaves one in
/// which nothing is.
pub(crate) fn refuse_beside_own(data_directory: &Path) -> Result<(), ServerError> {
    match Identity::is_in(data_directory) {
        true => Err(ServerError::ForeignBeside(data_directory.to_owned(), database_in(data_directory))),
        false => Ok(()),
    }
}

/// Where values go that are too many for the memory, as long as the disk has more room than the log and snapshots may want.
fn values_on_disk(settings: &Settings) -> Result<Spill, ServerError> {
    let limits = spill::Limits { memory_bytes: settings.values_memory_bytes, ..spill::Limits::default() };
    let directory = settings.data_directory.join("member");
    // Each by itself: one that was there before may be open to others.
    make_private(&settings.data_directory).map_err(ServerError::Data)?;
    make_private(&directory).map_err(ServerError::Data)?;
    let space = Space::new(&settings.data_directory, &settings.log_directory(), wal::Options::default().segment_bytes);
    let create = move || match space.spares(4 * u64::from(limits.file_bytes)) {
        true => tempfile::tempfile_in(&directory),
        false => Err(io::Error::new(io::ErrorKind::StorageFull, "what is free is kept for the log and for snapshots")),
    };
    Ok(Spill::new(limits, create, stop_at_once))
}

/// No thread can go on without a value that is lost, and no answer is right without it. What was acknowledged is on disk.
fn stop_at_once(error: SpillError) -> ! {
    eprintln!("rusd: {error}");
    std::process::exit(1);
}

/// What members talk over.
fn transport(
    settings: &Settings,
    (cluster_id, member_id): (u64, u64),
    members: &[pb::Member],
    tls: Option<replog::runtime::tcp::Tls>,
    (door, founding): (Arc<Door>, Option<Founding>),
) -> Result<Tcp, ServerError> {
    let mut listeners = Vec::new();
    for url in &settings.listen_peer {
        let listener = socket::bind_tcp(url).map_err(|error| {
            StartError::Listen(io::Error::new(error.kind(), format!("{url} (--listen-peer-urls): {error}")))
        })?;
        listeners.push(listener);
    }
    let place = |member: &pb::Member| Some((member.id, peer_address(member)?));
    let options = TcpOptions::new(member_id, cluster_id, listeners, members.iter().filter_map(place).collect());
    Ok(Tcp::new(TcpOptions { tls, local_address: settings.local_address(), host: Some(door), founding, ..options }))
}

/// A snapshot writes everything; etcd's default of 10,000 is for snapshots that write nearly nothing.
const SNAPSHOT_ENTRIES_MIN: u64 = 100_000;

fn open(path: &Path) -> io::Result<RealDirectory> {
    make_private(path)?;
    RealDirectory::open(path)
}

/// Starts the threads that connections live on.
fn serve(
    bound: Bound,
    node: &Arc<Node>,
    signals: Vec<Arc<Signal>>,
    tls: Option<Arc<Tls>>,
) -> Result<kit::Server, StartError> {
    let settings = &node.settings;
    let limits = grpc::Limits {
        // As etcd: what a request costs besides its content.
        message_bytes_max: settings.request_bytes_max + (512 << 10),
        connection_messages_bytes_max: CONNECTION_BYTES_MAX,
        streams_max: settings.streams_max.min(grpc::STREAMS_MAX),
        ping_interval: settings.ping_interval,
        ping_timeout: settings.ping_timeout,
        logs_headers: settings.logs_headers,
        ..grpc::Limits::default()
    };
    let node = Arc::clone(node);
    let fragment_bytes = limits.message_bytes_max;
    let memory = grpc::Memory::new(CONNECTIONS_BYTES_MAX);
    let gateway_memory = grpc::Memory::new(GATEWAY_BYTES_MAX);
    let calls = Arc::new(Calls::default());
    let options = kit::Options { tls, limits, memory, threads: signals.len(), ..kit::Options::default() };
    bound.start(options, move |number| {
        let watch_limits = watch::Limits { fragment_bytes, ..watch::Limits::default() };
        let watches = Watches::new(node.reader.clone(), watch_limits, Arc::clone(&signals[number]));
        let api = Api::new(Arc::clone(&node), watches, gateway_memory.clone(), &calls);
        Served::new(api, metrics::registry(&node, &calls))
    })
}

/// Waits until the log cannot go on.
async fn ended(node: &Node) {
    while !node.handle.status().has_ended {
        sleep(Duration::from_millis(100)).await;
    }
}

/// Tells the group who this member is, until it knows; then there is a leader, and clients are welcome.
async fn announce(node: &Node, addresses: &str) {
    let client_urls = node.settings.advertise_client.iter().map(ToString::to_string).collect::<Vec<_>>();
    loop {
        let view = node.reader.view();
        // Who joins is no member, as far as it knows, before it has the log.
        if let Some(known) = view.cluster.members.get(&node.member_id) {
            let is_known = known.name == node.settings.name && known.client_ur_ls == client_urls;
            // A downgrade that is under way says another.
            let has_version = view.cluster.version == CLUSTER_VERSION || view.cluster.downgrade.enabled;
            if is_known && has_version {
                tracing::info!(
                    %addresses,
                    "cluster-id" = hex(node.cluster_id),
                    "local-member-id" = hex(node.member_id),
                    "ready to serve client requests"
                );
                crate::systemd::tell_ready();
                return std::future::pending().await;
            }
            let member = pb::Member {
                id: node.member_id,
                name: node.settings.name.clone(),
                client_ur_ls: client_urls.clone(),
                ..Default::default()
            };
            let version = pb::DowngradeVersionTestRequest { ver: CLUSTER_VERSION.to_owned() };
            let publish = Some((Kind::MemberPublish, member.encode_to_vec()));
            let version = (!has_version).then(|| (Kind::ClusterVersion, version.encode_to_vec()));
            for (kind, request) in publish.into_iter().chain(version) {
                // Without a leader there is none to tell yet.
                let _ = node.propose(&Caller::Server, kind, &request).await;
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
}

async fn revoke_ended_leases(node: &Node) {
    let mut leadership = node.group.leadership();
    let mut led_in = None;
    loop {
        let now = *leadership.borrow_and_update();
        let term = now.is_ready_leader.then_some(now.term);
        let view = node.reader.view();
        if term != led_in {
            led_in = term;
            match term {
                Some(_) => node.lessor.promote(&view.leases),
                None => node.lessor.demote(),
            }
        }
        for id in node.lessor.expired(&view, LEASES_A_ROUND) {
            Measured::add(&node.measured.leases_expired);
            let request = pb::LeaseRevokeRequest { id }.encode_to_vec();
            // If it fails, a later round tries again.
            node.handle.propose(command::encode(&Caller::Server, Kind::LeaseRevoke, &request), |_| {});
        }
        // A change of leadership is noticed at once: clients wait for it.
        let _ = timeout(LEASE_ROUND, leadership.changed()).await;
    }
}
