//! What a server is started with: flags and the environment, in the Java node's words where it has them.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use service_kit::logs;
use service_kit::tls::{ClientTlsFiles, Protocol, TlsFiles};
use service_kit::url::Url;

use crate::block::{AddressBooks, BLOCK_NUMBERS_END, RecordFileRule};
use crate::budget;
use crate::compressed::CompressAnswers;
use crate::connect;
use crate::messages::WireEra;
use crate::publish;
use crate::scrub;
use crate::store;

/// What the longest message may be, and so the largest block, bytes.
pub const MESSAGE_BYTES: RangeInclusive<i64> = 65_536..=1_073_741_824;
/// At which size a new file for blocks may be begun, bytes.
pub const SEGMENT_BYTES: RangeInclusive<u64> = 65_536..=1_073_741_824;

/// How to serve.
#[derive(Clone, Debug, Args)]
pub struct Flags {
    /// File in TOML with these flags as words (`server-port = 40840`); the environment overrides it, and flags override both
    #[arg(long, env = "BLOCK_NODE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory of the blocks; it is created where it does not exist, for this user alone
    #[arg(long, visible_alias = "data-dir", env = "FILES_RECENT_LIVE_ROOT_PATH", default_value = "block-node-data")]
    pub files_recent_live_root_path: PathBuf,
    /// Address to listen on; the Java node listens on all (0.0.0.0)
    #[arg(long, env = "SERVER_HOST", default_value = "127.0.0.1")]
    pub server_host: String,
    /// Port of all services, of health and of metrics; 0: any
    #[arg(long, env = "SERVER_PORT", default_value_t = 40_840)]
    pub server_port: u16,
    /// A port of its own for health and metrics besides
    #[arg(long, env = "HEALTH_PORT")]
    pub health_port: Option<u16>,
    /// Certificate shown to clients, PEM; with it, nothing but TLS is spoken but on --health-port. Read anew when it changes
    #[arg(long, env = "BLOCK_NODE_TLS_CERTIFICATE", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, env = "BLOCK_NODE_TLS_KEY", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// Who signs clients' certificates, PEM; with it, clients need one
    #[arg(long, env = "BLOCK_NODE_TLS_CLIENT_AUTHORITY", requires = "tls_certificate")]
    pub tls_client_authority: Option<PathBuf>,
    /// File in TOML of who may call, with tokens and quotas: the README has its format. Without it everybody may
    #[arg(long, env = "BLOCK_NODE_CLIENTS", value_name = "FILE")]
    pub clients: Option<PathBuf>,
    /// The longest message, and so the largest block, bytes
    #[arg(long, env = "SERVER_MAX_MESSAGE_SIZE_BYTES", default_value_t = 131_072_000, value_parser = clap::value_parser!(u32).range(MESSAGE_BYTES))]
    pub server_max_message_size_bytes: u32,
    /// Calls of a connection at a time
    #[arg(long, env = "SERVER_HTTP2_MAX_CONCURRENT_STREAMS", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub server_http2_max_concurrent_streams: u32,
    /// What a client may send ahead on a stream, bytes
    #[arg(long, env = "SERVER_HTTP2_INITIAL_WINDOW_SIZE", default_value_t = 1_048_576, value_parser = clap::value_parser!(u32).range(65_535..=2_147_483_647))]
    pub server_http2_initial_window_size: u32,
    /// How long streams are given to end when the server stops, milliseconds
    #[arg(long, env = "SERVER_SHUTDOWN_DELAY_MILLIS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(0..=4_000))]
    pub server_shutdown_delay_millis: u64,
    /// First block of a new store; without block 0 the tree of all previous root hashes cannot be compared
    #[arg(long, env = "BLOCK_NODE_EARLIEST_MANAGED_BLOCK", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..BLOCK_NUMBERS_END))]
    pub block_node_earliest_managed_block: u64,
    /// How far behind the last block a header is answered with SkipBlock, and not with the end of the stream
    #[arg(long, env = "PRODUCER_DUPLICATE_BLOCK_SKIP_WINDOW", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=10))]
    pub producer_duplicate_block_skip_window: u64,
    /// Messages of a publisher that are taken in an interval; the Java node's default is 100. Without it there is no budget
    #[arg(long, env = "PRODUCER_PER_HANDLER_MESSAGE_BUDGET", value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub producer_per_handler_message_budget: Option<u32>,
    /// Messages of all publishers that are
    #[arg(long, env = "PRODUCER_TOTAL_MESSAGE_BUDGET_PER_INTERVAL", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(10..))]
    pub producer_total_message_budget_per_interval: u32,
    /// How long an interval is, nanoseconds
    #[arg(long, env = "PRODUCER_FLOW_CONTROL_REFRESH_INTERVAL_NANOS", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(100_000..=100_000_000))]
    pub producer_flow_control_refresh_interval_nanos: u64,
    /// Intervals in a row in which a publisher has used up its budget before it is paused
    #[arg(long, env = "PRODUCER_CONSECUTIVE_FULL_BUDGET_INTERVALS_FOR_PENALTY", default_value_t = 15, value_parser = clap::value_parser!(u32).range(10..))]
    pub producer_consecutive_full_budget_intervals_for_penalty: u32,
    /// How long it is paused, seconds; the second time twice as long, and so on
    #[arg(long, env = "PRODUCER_PENALTY_DURATION_SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(2..=600))]
    pub producer_penalty_duration_seconds: u64,
    /// After how long the first time comes again, seconds
    #[arg(long, env = "PRODUCER_PENALTY_RESET_INTERVAL_SECONDS", default_value_t = 3_600, value_parser = clap::value_parser!(u64).range(600..=86_400))]
    pub producer_penalty_reset_interval_seconds: u64,
    /// How far in the future a subscription may begin, blocks
    #[arg(long, env = "SUBSCRIBER_MAXIMUM_FUTURE_REQUEST", default_value_t = 4_000, value_parser = clap::value_parser!(u64).range(10..))]
    pub subscriber_maximum_future_request: u64,
    /// Accept the hash of the root hash in a signature's place, which proves no origin; for tests
    #[arg(long, env = "BLOCK_NODE_ACCEPT_DUMMY_PROOFS")]
    pub accept_dummy_proofs: bool,
    /// JSON of who signs record files, as the Java node has it: a NodeAddressBook (rsa-bootstrap-roster.json), or a
    /// RangedAddressBookHistory. Without it blocks that hold record files are refused
    #[arg(long, env = "APP_STATE_RSA_BOOTSTRAP_FILE_PATH")]
    pub rsa_address_book: Option<PathBuf>,
    /// How many of an address book's nodes must have signed a record file, percent; one in any case, which is enough for the Java node
    #[arg(long, env = "BLOCK_NODE_RECORD_FILE_SIGNERS_PERCENT", default_value_t = 0, requires = "rsa_address_book", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub record_file_signers_percent: u8,
    /// Whose status codes and framing are spoken, with clients and peers: v0.13 (block node 0.13 and 0.14), v0.15 (to 0.19), v0.20 (to
    /// 0.24), today (0.25 and later)
    #[arg(long, env = "BLOCK_NODE_WIRE_ERA", default_value = "today")]
    pub wire_era: WireEra,
    /// Whose blocks are sent compressed, by gzip or zstd: never, asked (of clients that compress what they send, and accept the same),
    /// accepted (of all clients that accept it)
    #[arg(long, env = "BLOCK_NODE_COMPRESS_ANSWERS", default_value = "asked", hide_possible_values = true)]
    pub compress_answers: CompressAnswers,
    /// Publishers at a time
    #[arg(long, env = "BLOCK_NODE_PUBLISHERS_MAX", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub publishers_max: u32,
    /// Blocks that may be under way, from their first item to the sync
    #[arg(long, env = "BLOCK_NODE_PUBLISH_WINDOW_BLOCKS", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub publish_window_blocks: u32,
    /// What blocks under way may take, bytes; the one that all others wait for may take more
    #[arg(long, env = "BLOCK_NODE_PUBLISH_MEMORY_BYTES", default_value_t = 268_435_456)]
    pub publish_memory_bytes: usize,
    /// What messages may take that have not come whole, bytes; of one connection half of it
    #[arg(long, env = "BLOCK_NODE_MESSAGES_MEMORY_BYTES", default_value_t = 536_870_912)]
    pub messages_memory_bytes: usize,
    /// What is kept in memory of the newest blocks, and of others as much again, bytes
    #[arg(long, env = "BLOCK_NODE_CACHE_BYTES", default_value_t = 16_777_216)]
    pub cache_bytes: usize,
    /// What large blocks may take that are being sent to subscribers, bytes, each once; one that is larger is sent alone
    #[arg(long, env = "BLOCK_NODE_READERS_MEMORY_BYTES", default_value_t = 536_870_912)]
    pub readers_memory_bytes: usize,
    /// How long a subscriber may take for 256 KiB, and a publisher for an answer, before its stream is ended, milliseconds
    #[arg(long, env = "BLOCK_NODE_SUBSCRIBER_TIMEOUT_MILLIS", default_value_t = 60_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub subscriber_timeout_millis: u64,
    /// Size at which a new file for blocks is begun, bytes
    #[arg(long, env = "BLOCK_NODE_SEGMENT_BYTES", default_value_t = 67_108_864, value_parser = clap::value_parser!(u64).range(SEGMENT_BYTES))]
    pub segment_bytes: u64,
    /// How hard zstd tries to make blocks small; 3 and 9 take less room and more processor time, see the README
    #[arg(long, env = "BLOCK_NODE_COMPRESSION_LEVEL", default_value_t = store::LEVEL, value_parser = clap::value_parser!(i32).range(1..=19))]
    pub compression_level: i32,
    /// How many of the newest blocks are kept at least; older ones go with their files. Without it all are kept
    #[arg(long, env = "BLOCK_NODE_KEEP_BLOCKS", value_parser = clap::value_parser!(u64).range(1..))]
    pub keep_blocks: Option<u64>,
    /// How often all blocks are read through to look for damage, seconds; 0: never. What is found is quarantined, and fetched again from
    /// --backfill-peers
    #[arg(long, env = "BLOCK_NODE_SCRUB_INTERVAL_SECONDS", default_value_t = 7 * 24 * 60 * 60, value_parser = clap::value_parser!(u64).range(0..=315_360_000))]
    pub scrub_interval_seconds: u64,
    /// How fast, bytes of blocks as they came a second; a pass that takes longer than the interval is followed by the next at once
    #[arg(long, env = "BLOCK_NODE_SCRUB_BYTES_PER_SECOND", default_value_t = 8_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub scrub_bytes_per_second: u64,
    /// HOST:PORT of block nodes to fetch from what this one is behind by and what is damaged here, or https://HOST:PORT, separated by
    /// commas
    #[arg(long, env = "BLOCK_NODE_BACKFILL_PEERS", value_delimiter = ',', value_parser = connect::address)]
    pub backfill_peers: Vec<Url>,
    /// Begin an empty node with the first block that a peer still has, where none has --block-node-earliest-managed-block any more. What a
    /// node is behind by it fetches in any case
    #[arg(long, env = "BACKFILL_GREEDY")]
    pub backfill_greedy: bool,
    /// Take from peers whatever continues the block before it for a last block that is damaged together with its root hash, so that nothing here
    /// tells which it was. For one start, with peers whom you trust
    #[arg(long, env = "BLOCK_NODE_TRUST_PEERS_WITH_LAST_BLOCK", requires = "backfill_peers")]
    pub trust_peers_with_last_block: bool,
    /// File of the token that is shown to peers
    #[arg(long, env = "BLOCK_NODE_BACKFILL_TOKEN_FILE", value_name = "FILE")]
    pub backfill_token_file: Option<PathBuf>,
    /// Who signs the certificates of peers whose address begins with https, PEM. Read anew when it changes
    #[arg(long, env = "BLOCK_NODE_BACKFILL_TLS_AUTHORITY")]
    pub backfill_tls_authority: Option<PathBuf>,
    /// Certificate shown to such peers, PEM
    #[arg(long, env = "BLOCK_NODE_BACKFILL_TLS_CERTIFICATE", requires_all = ["backfill_tls_key", "backfill_tls_authority"])]
    pub backfill_tls_certificate: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, env = "BLOCK_NODE_BACKFILL_TLS_KEY", requires = "backfill_tls_certificate")]
    pub backfill_tls_key: Option<PathBuf>,
    /// What is logged: error, warn, info, debug
    #[arg(long, env = "BLOCK_NODE_LOG_LEVEL", default_value = "info")]
    pub log_level: tracing::Level,
    /// How log lines are written: text, json
    #[arg(long, env = "BLOCK_NODE_LOG_FORMAT", default_value = "text")]
    pub log_format: logs::Format,
}

/// How a server was started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Directory of the blocks.
    pub directory: PathBuf,
    /// Where everything is served.
    pub listen: Url,
    /// Where health and metrics are served besides.
    pub listen_health: Option<Url>,
    /// What is shown to clients; `None`: no TLS.
    pub tls: Option<TlsFiles>,
    /// Where it is told who may call; `None`: everybody may.
    pub clients: Option<PathBuf>,
    /// The longest message.
    pub message_bytes_max: usize,
    /// Calls of a connection at a time.
    pub streams_max: u32,
    /// What a client may send ahead on a stream.
    pub window_bytes: u32,
    /// How long streams are given to end.
    pub shutdown_delay: std::time::Duration,
    /// First block of a new store.
    pub first_block: u64,
    /// How blocks are taken.
    pub publish: publish::Settings,
    /// How many messages publishers may send; `None`: that is not counted.
    pub budget: Option<budget::Settings>,
    /// How far in the future a subscription may begin.
    pub future_max: u64,
    /// Whether a dummy is accepted as proof.
    pub accept_dummy_proofs: bool,
    /// Where it is told who signs record files.
    pub address_book: Option<PathBuf>,
    /// How many of them must have.
    pub signers_percent_min: u8,
    /// Whose numbers are spoken.
    pub wire_era: WireEra,
    /// Whose answers are compressed.
    pub compress_answers: CompressAnswers,
    /// Publishers at a time.
    pub publishers_max: usize,
    /// What messages may take that have not come whole.
    pub messages_memory_bytes: usize,
    /// What is kept in memory, of each kind.
    pub cache_bytes: usize,
    /// What large blocks may take that are being sent to subscribers.
    pub readers_memory_bytes: usize,
    /// How long a subscriber may take for a piece of a block.
    pub subscriber_timeout: std::time::Duration,
    /// Size at which a new file is begun.
    pub segment_bytes: u64,
    /// How hard zstd tries.
    pub compression_level: i32,
    /// Whom to ask for what this node is behind by.
    pub backfill_peers: Vec<Url>,
    /// Whether an empty node begins with the first block that one of them has.
    pub backfill_greedy: bool,
    /// Whether one of them may say which the last block was, where that is lost.
    pub trusts_peers_with_last_block: bool,
    /// Where the token stands that is shown to them.
    pub backfill_token_file: Option<PathBuf>,
    /// How peers that speak TLS are checked, and what is shown to them.
    pub backfill_tls: Option<ClientTlsFiles>,
    /// How many of the newest blocks are kept; `None`: all.
    pub keep_blocks: Option<u64>,
    /// When blocks are read through to look for damage; `None`: never.
    pub scrub: Option<scrub::Settings>,
}

impl Flags {
    /// What they mean.
    pub fn settings(&self) -> Settings {
        let host = match self.server_host.contains(':') && !self.server_host.starts_with('[') {
            true => format!("[{}]", self.server_host),
            false => self.server_host.clone(),
        };
        let url = |port, is_tls| Url { is_tls, is_unix: false, host: host.clone(), port };
        let tls = self.tls_certificate.clone().zip(self.tls_key.clone()).map(|(certificate, key)| TlsFiles {
            certificate,
            key,
            client_authority: self.tls_client_authority.clone(),
            revocations: None,
            self_signed: None,
            protocol: Protocol::default(),
        });
        Settings {
            directory: self.files_recent_live_root_path.clone(),
            listen: url(self.server_port, tls.is_some()),
            listen_health: self.health_port.map(|port| url(port, false)),
            tls,
            clients: self.clients.clone(),
            message_bytes_max: self.server_max_message_size_bytes as usize,
            streams_max: self.server_http2_max_concurrent_streams,
            window_bytes: self.server_http2_initial_window_size,
            shutdown_delay: std::time::Duration::from_millis(self.server_shutdown_delay_millis),
            first_block: self.block_node_earliest_managed_block,
            publish: publish::Settings {
                window_blocks: self.publish_window_blocks as usize,
                duplicate_skip_window: self.producer_duplicate_block_skip_window,
                memory_bytes_max: self.publish_memory_bytes,
                behind_ends_stream: !self.wire_era.has_behind(),
                ..publish::Settings::default()
            },
            budget: self.producer_per_handler_message_budget.map(|messages_max| budget::Settings {
                messages_max,
                all_messages_max: self.producer_total_message_budget_per_interval,
                interval_micros: self.producer_flow_control_refresh_interval_nanos / 1_000,
                full_intervals: self.producer_consecutive_full_budget_intervals_for_penalty,
                pause_micros: self.producer_penalty_duration_seconds * 1_000_000,
                forgotten_micros: self.producer_penalty_reset_interval_seconds * 1_000_000,
            }),
            future_max: self.subscriber_maximum_future_request,
            accept_dummy_proofs: self.accept_dummy_proofs,
            address_book: self.rsa_address_book.clone(),
            signers_percent_min: self.record_file_signers_percent,
            wire_era: self.wire_era,
            compress_answers: self.compress_answers,
            publishers_max: self.publishers_max as usize,
            messages_memory_bytes: self.messages_memory_bytes,
            cache_bytes: self.cache_bytes,
            readers_memory_bytes: self.readers_memory_bytes,
            subscriber_timeout: std::time::Duration::from_millis(self.subscriber_timeout_millis),
            segment_bytes: self.segment_bytes,
            compression_level: self.compression_level,
            backfill_peers: self.backfill_peers.clone(),
            backfill_greedy: self.backfill_greedy,
            trusts_peers_with_last_block: self.trust_peers_with_last_block,
            backfill_token_file: self.backfill_token_file.clone(),
            backfill_tls: self.backfill_tls_authority.clone().map(|authority| ClientTlsFiles {
                authority: Some(authority),
                certificate: self.backfill_tls_certificate.clone().zip(self.backfill_tls_key.clone()),
                protocol: Protocol::default(),
            }),
            keep_blocks: self.keep_blocks,
            scrub: (self.scrub_interval_seconds > 0).then_some(scrub::Settings {
                interval: std::time::Duration::from_secs(self.scrub_interval_seconds),
                bytes_per_second: self.scrub_bytes_per_second,
            }),
        }
    }
}

/// Reads who signs record files; `None`: nobody is known to.
pub fn record_files(address_book: Option<&Path>, percent_min: u8) -> Result<RecordFileRule, String> {
    let Some(path) = address_book else { return Ok(RecordFileRule::Refuse) };
    let named = |error: &dyn std::fmt::Display| format!("--rsa-address-book: {}: {error}", path.display());
    let json = std::fs::read(path).map_err(|error| named(&error))?;
    let books = Arc::new(AddressBooks::of(&json).map_err(|error| named(&error))?);
    Ok(RecordFileRule::Signers { books, percent_min })
}
