//! What a server runs with: the flags, understood and checked against each other.

mod features;
mod founders;
mod one_of;
mod retention;
mod tls;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use replog::ReadLevel;
use service_kit::tls::{AllowedNames, TlsFiles};

use crate::flags::{Flags, Mistake, Url};
use crate::tokens::TokenSettings;

pub use features::Features;
pub use founders::{Founder, cluster_id, hex, member_id};
pub use one_of::OneOf;
pub use retention::Retention;
pub use tls::PeerTlsFiles;

/// Which checks are made of whether all members keep the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// At the start.
    pub initially: bool,
    /// So often; zero: never.
    pub every: Duration,
    /// Of what was compacted, so often.
    pub compactions_every: Option<Duration>,
}

/// What a server runs with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its name.
    pub name: String,
    /// Where its data are.
    pub data_directory: PathBuf,
    /// Where its log is, if not in there.
    pub wal_directory: Option<PathBuf>,
    /// Whether what is acknowledged is on the disk.
    pub syncs: bool,
    /// Whether what an etcd left in `data_directory` is taken over at the start.
    pub imports_in_place: bool,
    /// Where clients are served.
    pub listen_client: Vec<Url>,
    /// Where only HTTP is served to clients; if there is any, it is not served on the others.
    pub listen_client_http: Vec<Url>,
    /// Where health and metrics are served.
    pub listen_metrics: Vec<Url>,
    /// Where clients find it.
    pub advertise_client: Vec<Url>,
    /// Where other members are served.
    pub listen_peer: Vec<Url>,
    /// Who founds the group, or belongs to the one that exists already. Means nothing where there are data, and may lack this member there.
    pub founders: Vec<Founder>,
    /// Where other members find this one, if a flag of its own says so.
    pub advertise_peer: Option<Vec<Url>>,
    /// Whether the group exists already, and has this member among those it has added.
    pub joins: bool,
    /// Whether this member goes on with its data as the only one: the others are lost for good.
    pub force_new_cluster: bool,
    /// Whether changes of the membership are refused that could cost the group its majority.
    pub strict_reconfig_check: bool,
    /// Learners in the group, at most.
    pub learners_max: usize,
    /// What distinguishes groups of the same members.
    pub token: String,
    /// Certificates, where a URL begins with `https`.
    pub tls: Option<TlsFiles>,
    /// Whether the name in a client's certificate is that of a user.
    pub client_cert_auth: bool,
    /// Whose certificates are taken of clients.
    pub client_names: AllowedNames,
    /// Hosts that requests as HTTP without TLS may be for.
    pub host_whitelist: OneOf,
    /// Origins whose pages may ask, as HTTP.
    pub cors: OneOf,
    /// Whether the API is served as JSON, too.
    pub gateway: bool,
    /// Certificates between members, if they use TLS.
    pub peer_tls: Option<PeerTlsFiles>,
    /// What compaction without being asked keeps; `None`: there is none.
    pub compaction: Option<Retention>,
    /// What stands for a user and a password.
    pub tokens: TokenSettings,
    /// How dear it is to guess passwords: see bcrypt.
    pub bcrypt_cost: u32,
    /// What is tried out.
    pub features: Features,
    /// Whether members are compared, and when.
    pub corruption: Checks,
    /// Whether `/metrics` has how long calls took.
    pub has_extensive_metrics: bool,
    /// Commands that take longer are logged.
    pub warning_apply_duration: Duration,
    /// Unary calls that take longer are logged.
    pub warning_unary_duration: Duration,
    /// A leader is heard at least this often.
    pub heartbeat: Duration,
    /// Without a leader for so long, a member asks for votes.
    pub election: Duration,
    /// Whether linearizable reads, and what is asked of leases, may stand on the leader's lease; else each takes a round to a majority.
    pub reads_by_lease: bool,
    /// A snapshot is made after so many entries.
    pub snapshot_entries: u64,
    /// Entries kept behind a snapshot.
    pub snapshot_keep_entries: u64,
    /// Values in memory, bytes; what is more is in scratch files in the data directory.
    pub values_memory_bytes: u64,
    /// Above this, the store takes no more; `None`: it always does.
    pub quota_bytes: Option<u64>,
    /// Operations in a transaction.
    pub transaction_operations_max: usize,
    /// The longest request, bytes.
    pub request_bytes_max: usize,
    /// How often a silent client is asked whether it is there; `None`: never.
    pub ping_interval: Option<Duration>,
    /// How long it may take to answer.
    pub ping_timeout: Duration,
    /// Calls of a connection at a time.
    pub streams_max: u32,
    /// How often watches that asked for it are told that nothing happened.
    pub watch_progress_interval: Duration,
    /// What is logged: debug, info, warn or error.
    pub log_level: String,
    /// Whether headers of requests are, too: what `GODEBUG=http2debug=2` asks of etcd. No flag says so.
    pub logs_headers: bool,
}

impl Settings {
    /// Where connections to other members begin, if that is chosen: at the first address that is advertised to them and is not of
    /// loopback. As etcd's `InferLocalAddr`.
    pub fn local_address(&self) -> Option<IpAddr> {
        let own = self.founders.iter().find(|founder| founder.name == self.name);
        let urls = self.advertise_peer.as_ref().or(own.map(|own| &own.peer_urls))?;
        let addresses = urls.iter().filter_map(|url| url.host.trim_matches(['[', ']']).parse::<IpAddr>().ok());
        let is_suitable = |address: &IpAddr| !address.is_loopback() && !address.is_unspecified();
        addresses.into_iter().find(is_suitable).filter(|_| self.features.is_open("SetMemberLocalAddr"))
    }

    /// This member among the founders, where it begins: what the flags say of it must not contradict each other. `is_one_place` says whether
    /// two lists of URLs that are not written alike mean the same; who joins says only where it was added.
    pub fn founder(&self, is_one_place: impl FnOnce(&[Url], &[Url]) -> bool) -> Result<&Founder, Mistake> {
        let missing = || {
            let what = format!("has no member {:?}, which is the --name of this one", self.name);
            Mistake::new("initial-cluster", what)
        };
        let own = self.founders.iter().find(|founder| founder.name == self.name).ok_or_else(missing)?;
        let mut known = BTreeSet::new();
        let mut urls = self.founders.iter().flat_map(|founder| &founder.peer_urls).map(Url::to_string);
        if let Some(twice) = urls.find(|url| !known.insert(url.clone())) {
            return Err(Mistake::new("initial-cluster", format!("has {twice} twice: each member has URLs of its own")));
        }
        match self.advertise_peer.as_ref().filter(|_| !self.joins) {
            Some(urls) if !founders::has_same(urls, &own.peer_urls) && !is_one_place(urls, &own.peer_urls) => {
                let [advertised, named] = [urls, &own.peer_urls].map(|urls| founders::with_commas(urls));
                let what = format!(
                    "is {advertised}, and --initial-cluster has {:?} at {named}: give both the same",
                    self.name
                );
                Err(Mistake::new("initial-advertise-peer-urls", what))
            }
            _ => Ok(own),
        }
    }

    /// Where its log is.
    pub fn log_directory(&self) -> PathBuf {
        self.wal_directory.clone().unwrap_or_else(|| self.data_directory.join("member").join("wal"))
    }

    /// How many sockets are for clients: those come first. URLs that differ in nothing but the scheme share one.
    pub fn client_sockets(&self) -> usize {
        let urls = self.listen_client.iter().chain(&self.listen_client_http);
        urls.map(|url| (&url.host, url.port)).collect::<BTreeSet<_>>().len()
    }

    /// Reads them from the flags.
    pub fn of(flags: &Flags) -> Result<Self, Mistake> {
        let name = flags.given("name").unwrap_or("default").to_owned();
        let peer_default = "http://localhost:2380";
        let advertise_peer = flags.urls("initial-advertise-peer-urls", peer_default)?;
        let founders = founders::of(flags, &name, &advertise_peer)?;
        if flags.given("listen-client-urls").is_some() && flags.given("advertise-client-urls").is_none() {
            return Err(Mistake::new("advertise-client-urls", "is required when --listen-client-urls is set"));
        }
        let joins = match flags.given("initial-cluster-state") {
            None | Some("new") => false,
            Some("existing") => true,
            Some(other) => {
                let what = format!("expected new or existing, found {other:?}");
                return Err(Mistake::new("initial-cluster-state", what));
            }
        };
        let client_default = "http://localhost:2379";
        let data_directory = flags.given("data-dir").map_or_else(|| format!("{name}.etcd").into(), PathBuf::from);
        let listen_client = flags.client_urls("listen-client-urls", client_default)?;
        let listen_client_http = flags.client_urls("listen-client-http-urls", "")?;
        let listen_peer = flags.urls("listen-peer-urls", peer_default)?;
        let clients = listen_client.iter().chain(&listen_client_http);
        let (tls, client_cert_auth) = tls::of_clients(flags, &data_directory, clients)?;
        let features = Features::of(flags)?;
        let compactions_every = flags.duration("compact-hash-check-time", Duration::from_secs(60))?;
        let settings = Self {
            corruption: Checks {
                initially: features.is_open("InitialCorruptCheck"),
                every: flags.duration("corrupt-check-time", Duration::ZERO)?,
                compactions_every: features.is_open("CompactHashCheck").then_some(compactions_every),
            },
            features,
            has_extensive_metrics: match flags.given("metrics") {
                None | Some("basic") => false,
                Some("extensive") => true,
                Some(other) => {
                    return Err(Mistake::new("metrics", format!("expected basic or extensive, found {other:?}")));
                }
            },
            warning_apply_duration: flags.duration("warning-apply-duration", Duration::from_millis(100))?,
            warning_unary_duration: flags.duration("warning-unary-request-duration", Duration::from_millis(300))?,
            tls,
            client_cert_auth,
            client_names: tls::allowed_names(flags, "client-")?,
            host_whitelist: OneOf::new(flags.given("host-whitelist")),
            cors: OneOf::new(flags.given("cors")),
            peer_tls: tls::of_peers(flags, &data_directory, &listen_peer)?,
            wal_directory: flags.given("wal-dir").map(PathBuf::from),
            syncs: !flags.boolean("unsafe-no-fsync", false)?,
            imports_in_place: flags.boolean("import-in-place", false)?,
            data_directory,
            name,
            listen_client,
            listen_client_http,
            listen_metrics: flags.client_urls("listen-metrics-urls", "")?,
            advertise_client: flags.client_urls("advertise-client-urls", client_default)?,
            listen_peer,
            founders,
            advertise_peer: flags.given("initial-advertise-peer-urls").map(|_| advertise_peer),
            joins,
            force_new_cluster: flags.boolean("force-new-cluster", false)?,
            strict_reconfig_check: flags.boolean("strict-reconfig-check", true)?,
            learners_max: flags.number("max-learners", 1)? as usize,
            token: flags.given("initial-cluster-token").unwrap_or("etcd-cluster").to_owned(),
            gateway: flags.boolean("enable-grpc-gateway", true)?,
            compaction: Retention::of(flags)?,
            tokens: TokenSettings::of(flags)?,
            bcrypt_cost: bcrypt_cost(flags)?,
            heartbeat: Duration::from_millis(flags.number("heartbeat-interval", 100)?),
            election: Duration::from_millis(flags.number("election-timeout", 1000)?),
            reads_by_lease: match flags.given("linearizable-reads") {
                None | Some("lease") => true,
                Some("round") => false,
                Some(other) => {
                    let what = format!("expected lease or round, found {other:?}");
                    return Err(Mistake::new("linearizable-reads", what));
                }
            },
            snapshot_entries: flags.number("snapshot-count", 10_000)?.max(1),
            snapshot_keep_entries: flags.number("snapshot-catchup-entries", 5000)?,
            values_memory_bytes: flags.number("values-memory-bytes", 64 << 20)?,
            quota_bytes: quota(flags)?,
            transaction_operations_max: flags.number("max-txn-ops", 128)? as usize,
            request_bytes_max: flags.number("max-request-bytes", 3 << 19)? as usize,
            ping_interval: Some(flags.duration("grpc-keepalive-interval", Duration::from_secs(7200))?)
                .filter(|interval| !interval.is_zero()),
            ping_timeout: flags.duration("grpc-keepalive-timeout", Duration::from_secs(20))?,
            streams_max: u32::try_from(flags.number("max-concurrent-streams", u64::from(u32::MAX))?)
                .map_err(|_| Mistake::new("max-concurrent-streams", "is more than 4294967295"))?,
            watch_progress_interval: flags.duration("watch-progress-notify-interval", Duration::from_secs(600))?,
            log_level: flags.given("log-level").unwrap_or("info").to_owned(),
            logs_headers: false,
        };
        settings.check()?;
        Ok(settings)
    }

    /// How this member makes sure that it leads, or that nobody knows more than it does.
    pub fn strong_level(&self) -> ReadLevel {
        if self.reads_by_lease { ReadLevel::Lease } else { ReadLevel::Linearizable }
    }

    fn check(&self) -> Result<(), Mistake> {
        if self.heartbeat.is_zero() || self.election < 5 * self.heartbeat {
            let what = "must be at least five times --heartbeat-interval, which must not be 0";
            return Err(Mistake::new("election-timeout", what));
        }
        if self.peer_tls.is_none() && self.listen_peer.iter().any(|url| url.is_tls) {
            let what = "has an https URL: give --peer-cert-file and --peer-key-file, or --peer-auto-tls";
            return Err(Mistake::new("listen-peer-urls", what));
        }
        if self.listen_peer.iter().any(|url| url.is_tls != self.listen_peer[0].is_tls) {
            return Err(Mistake::new("listen-peer-urls", "has http and https URLs: members use one of them"));
        }
        if self.request_bytes_max > 10 << 20 {
            return Err(Mistake::new("max-request-bytes", "must be at most 10485760"));
        }
        let secured = [
            ("listen-client-urls", &self.listen_client),
            ("listen-client-http-urls", &self.listen_client_http),
            ("listen-metrics-urls", &self.listen_metrics),
        ];
        // As in etcd, which cannot bind it twice; and what it serves to clients is more than metrics. A socket of port 0 is one of many.
        let serves_clients = |url: &&Url| {
            let mut clients = self.listen_client.iter().chain(&self.listen_client_http);
            (url.is_unix || url.port != 0) && clients.any(|of| (&of.host, of.port) == (&url.host, url.port))
        };
        if let Some(url) = self.listen_metrics.iter().find(serves_clients) {
            let what = format!(
                "{url} is for clients already, who find metrics and health there: leave it out, or give another"
            );
            return Err(Mistake::new("listen-metrics-urls", what));
        }
        for (flag, urls) in secured {
            if self.tls.is_none() && urls.iter().any(|url| url.is_tls) {
                return Err(Mistake::new(flag, "has an https URL: give --cert-file and --key-file, or --auto-tls"));
            }
        }
        match self.log_level.as_str() {
            "debug" | "info" | "warn" | "error" | "panic" | "fatal" => Ok(()),
            other => Err(Mistake::new(
                "log-level",
                format!("expected debug, info, warn, error, panic or fatal, found {other:?}"),
            )),
        }
    }
}

/// Where bcrypt knows no such cost, etcd takes its default.
fn bcrypt_cost(flags: &Flags) -> Result<u32, Mistake> {
    let given = flags.number("bcrypt-cost", 10)?;
    Ok(u32::try_from(given).ok().filter(|cost| (4..=31).contains(cost)).unwrap_or(10))
}

/// 0 is etcd's default of 2 GiB, a negative number is no quota.
fn quota(flags: &Flags) -> Result<Option<u64>, Mistake> {
    const FLAG: &str = "quota-backend-bytes";
    let text = flags.given(FLAG).unwrap_or("0");
    match text.parse::<i64>() {
        Ok(0) => Ok(Some(2 << 30)),
        Ok(bytes) => Ok(u64::try_from(bytes).ok()),
        Err(_) => Err(Mistake::new(FLAG, format!("expected a number, found {text:?}"))),
    }
}

#[cfg(test)]
pub(in crate::settings) mod tests {
    use super::*;

    pub(in crate::settings) fn settings(arguments: &[&str]) -> Result<Settings, String> {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        let flags = Flags::parse(arguments, [], |_| Ok(String::new())).unwrap();
        Settings::of(&flags).map_err(|mistake| mistake.to_string())
    }

    #[test]
    fn the_defaults_are_those_of_etcd() {
        let settings = settings(&[]).unwrap();
        assert_eq!(settings.data_directory, PathBuf::from("default.etcd"));
        assert_eq!(settings.listen_client[0].to_string(), "http://localhost:2379");
        assert_eq!(settings.founders[0].peer_urls[0].to_string(), "http://localhost:2380");
        assert_eq!((settings.request_bytes_max, settings.transaction_operations_max), (1_572_864, 128));
        assert_eq!(settings.quota_bytes, Some(2_147_483_648));
    }

    #[test]
    fn connections_to_members_begin_at_an_address_that_is_advertised_to_them() {
        let from = |urls: &str, gates: &str| {
            let urls = format!("--initial-advertise-peer-urls={urls}");
            settings(&[&urls, &format!("--feature-gates={gates}")]).unwrap().local_address().map(|it| it.to_string())
        };
        let gate = "SetMemberLocalAddr=true";
        assert_eq!(from("http://127.0.0.1:1,http://name:1,http://10.0.0.7:1", gate).as_deref(), Some("10.0.0.7"));
        assert_eq!(from("http://[fd00::7]:1", gate).as_deref(), Some("fd00::7"));
        assert_eq!((from("http://127.0.0.1:1", gate), from("http://10.0.0.7:1", "")), (None, None));
    }

    #[test]
    fn what_kubeadm_passes_is_taken() {
        let settings = settings(&[
            "--advertise-client-urls=https://172.18.0.2:2379",
            "--cert-file=/pki/server.crt",
            "--client-cert-auth=true",
            "--data-dir=/var/lib/etcd",
            "--feature-gates=InitialCorruptCheck=true",
            "--initial-advertise-peer-urls=https://172.18.0.2:2380",
            "--initial-cluster=node=https://172.18.0.2:2380",
            "--key-file=/pki/server.key",
            "--listen-client-urls=https://127.0.0.1:2379,https://172.18.0.2:2379",
            "--listen-metrics-urls=http://127.0.0.1:2381",
            "--listen-peer-urls=https://172.18.0.2:2380",
            "--name=node",
            "--peer-cert-file=/pki/peer.crt",
            "--peer-client-cert-auth=true",
            "--peer-key-file=/pki/peer.key",
            "--peer-trusted-ca-file=/pki/ca.crt",
            "--snapshot-count=10000",
            "--trusted-ca-file=/pki/ca.crt",
            "--watch-progress-notify-interval=5s",
        ])
        .unwrap();
        assert_eq!(settings.listen_client.len(), 2);
        assert_eq!(settings.watch_progress_interval, Duration::from_secs(5));
    }

    /// They are looked at where a member begins: where it has data they mean nothing, as in etcd.
    #[test]
    fn a_member_that_begins_is_told_of_flags_that_contradict_each_other() {
        let own = |arguments: &[&str], is_one_place: bool| {
            let settings = settings(arguments).unwrap();
            settings.founder(|_, _| is_one_place).map(|own| own.name.clone()).map_err(|mistake| mistake.to_string())
        };
        let missing = "--initial-cluster: has no member \"default\", which is the --name of this one";
        assert_eq!(own(&["--initial-cluster=b=http://a:1"], true).unwrap_err(), missing);
        let flags =
            ["--initial-cluster=default=http://a:1,default=http://b:1", "--initial-advertise-peer-urls=http://c:1"];
        let contradiction = "--initial-advertise-peer-urls: is http://c:1, and --initial-cluster has \"default\" at \
                             http://a:1,http://b:1: give both the same";
        assert_eq!(own(&flags, false).unwrap_err(), contradiction);
        assert_eq!(own(&flags, true).unwrap(), "default", "names of one address");
        assert_eq!(own(&[flags[0], "--initial-advertise-peer-urls=http://b:1,http://a:1"], false).unwrap(), "default");
        assert_eq!(own(&flags[..1], false).unwrap(), "default", "what is not given contradicts nothing");
        let joins = [flags[0], flags[1], "--initial-cluster-state=existing"];
        assert_eq!(own(&joins, false).unwrap(), "default", "it was told where it is when it was added");
        let twice = own(&["--initial-cluster=default=http://a:1,b=http://a:1"], true).unwrap_err();
        assert_eq!(twice, "--initial-cluster: has http://a:1 twice: each member has URLs of its own");
    }

    #[test]
    fn mistakes_name_the_flag() {
        let mistakes = [
            (
                &["--listen-client-urls=http://a:1"][..],
                "--advertise-client-urls: is required when --listen-client-urls is set",
            ),
            (
                &["--listen-metrics-urls=http://localhost:2379"],
                "--listen-metrics-urls: http://localhost:2379 is for clients already, who find metrics and health there: leave it out, \
                 or give another",
            ),
            (&["--initial-cluster=b"], "--initial-cluster: expected NAME=URL with commas between them, found \"b\""),
            (&["--cert-file=c"], "--key-file: is required with --cert-file"),
            (&["--peer-cert-file=c"], "--peer-key-file: is required with --peer-cert-file"),
            (
                &["--listen-metrics-urls=https://a:1"],
                "--listen-metrics-urls: has an https URL: give --cert-file and --key-file, or --auto-tls",
            ),
            (
                &["--peer-cert-file=c", "--peer-key-file=k", "--peer-client-cert-auth"],
                "--peer-trusted-ca-file: is required with --peer-client-cert-auth",
            ),
            (
                &["--listen-peer-urls=https://a:1"],
                "--listen-peer-urls: has an https URL: give --peer-cert-file and --peer-key-file, or --peer-auto-tls",
            ),
            (
                &["--peer-auto-tls", "--self-signed-cert-validity=0"],
                "--self-signed-cert-validity: must be greater than 0",
            ),
            (&["--tls-max-version=TLS1.1"], "--tls-max-version: expected TLS1.2 or TLS1.3, found \"TLS1.1\""),
            (
                &["--tls-min-version=TLS1.3", "--tls-max-version=TLS1.2"],
                "--tls-min-version: is greater than --tls-max-version",
            ),
            (
                &["--auto-tls", "--cipher-suites=TLS_RSA_WITH_AES_128_CBC_SHA"],
                "--cipher-suites: \"TLS_RSA_WITH_AES_128_CBC_SHA\" is none of TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, \
                 TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, \
                 TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, \
                 TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            ),
            (
                &["--tls-min-version=TLS1.3", "--cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"],
                "--cipher-suites: cannot be chosen when only TLS1.3 is enabled",
            ),
            (&["--initial-cluster-state=old"], "--initial-cluster-state: expected new or existing, found \"old\""),
            (
                &["--election-timeout=300"],
                "--election-timeout: must be at least five times --heartbeat-interval, which must not be 0",
            ),
            (&["--quota-backend-bytes=much"], "--quota-backend-bytes: expected a number, found \"much\""),
            (&["--log-level=loud"], "--log-level: expected debug, info, warn, error, panic or fatal, found \"loud\""),
        ];
        for (arguments, expected) in mistakes {
            assert_eq!(settings(arguments).unwrap_err(), expected);
        }
        let https = ["--listen-client-urls=https://a:1", "--advertise-client-urls=https://a:1"];
        assert!(settings(&https).unwrap_err().contains("give --cert-file"));
    }
}
