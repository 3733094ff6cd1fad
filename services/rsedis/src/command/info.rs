//! INFO.

use crate::REDIS_VERSION;
use crate::clock::now_millis;
use crate::failure::Outcome;
use crate::protocol::Args;
use crate::server::{Sample, Server};
use crate::session::Session;

type Section = (&'static str, fn(&Server, &Session, &mut String));

/// Sections in their order; the last two only if asked for or with `all`, as in Redis.
const SECTIONS: &[Section] = &[
    ("server", about_server),
    ("clients", about_clients),
    ("memory", about_memory),
    ("persistence", about_persistence),
    ("stats", about_stats),
    ("replication", super::replication_info::about_replication),
    ("cpu", about_cpu),
    ("modules", |_, _, _| {}),
    ("errorstats", about_errors),
    ("cluster", |_, _, text| text.push_str("cluster_enabled:0\r\n")),
    ("keyspace", about_keyspace),
    ("commandstats", about_commands),
    ("latencystats", about_latencies),
];
const UNASKED: usize = 11;

/// Appends a line. Writing to a string cannot fail.
macro_rules! line {
    ($text:expr, $($argument:tt)*) => {{
        let _ = std::fmt::Write::write_fmt($text, format_args!($($argument)*));
        $text.push_str("\r\n");
    }};
}
pub(super) use line;

fn human(bytes: u64) -> String {
    let value = bytes as f64;
    match bytes {
        0..1024 => format!("{bytes}B"),
        1024..1_048_576 => format!("{:.2}K", value / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.2}M", value / 1_048_576.0),
        _ => format!("{:.2}G", value / 1_073_741_824.0),
    }
}

fn about_server(server: &Server, _: &Session, text: &mut String) {
    let system = rustix::system::uname();
    let uptime = (server.now - server.started).max(0) / 1000;
    line!(text, "redis_version:{REDIS_VERSION}");
    line!(text, "redis_git_sha1:00000000");
    line!(text, "redis_git_dirty:0");
    line!(text, "redis_build_id:0");
    line!(text, "redis_mode:standalone");
    line!(text, "server_name:rsedis");
    line!(text, "rsedis_version:{}", env!("CARGO_PKG_VERSION"));
    line!(
        text,
        "os:{} {} {}",
        system.sysname().to_string_lossy(),
        system.release().to_string_lossy(),
        system.machine().to_string_lossy()
    );
    line!(text, "arch_bits:64");
    line!(text, "multiplexing_api:epoll");
    line!(text, "process_id:{}", std::process::id());
    line!(text, "process_supervised:no");
    line!(text, "run_id:{}", server.run_id);
    let port = match server.settings.text("port") {
        "0" => server.settings.text("tls-port"),
        port => port,
    };
    line!(text, "tcp_port:{port}");
    line!(text, "server_time_usec:{}", server.now * 1000);
    line!(text, "uptime_in_seconds:{uptime}");
    line!(text, "uptime_in_days:{}", uptime / 86_400);
    line!(text, "hz:{}", server.settings.text("hz"));
    line!(text, "configured_hz:{}", server.settings.text("hz"));
    line!(text, "executable:{}", server.executable);
    line!(text, "config_file:{}", server.settings.file);
    line!(text, "io_threads_active:0");
    if let Some(pending) = server.pending_shutdown {
        line!(text, "shutdown_in_milliseconds:{}", pending.deadline - server.now);
    }
}

fn about_clients(server: &Server, client: &Session, text: &mut String) {
    let sessions = || server.sessions.iter().flatten().map(|session| &**session).chain([client]);
    let is_client = |session: &&Session| !session.is_replica() && !session.is_master;
    line!(text, "connected_clients:{}", sessions().filter(is_client).count());
    line!(text, "cluster_connections:0");
    line!(text, "maxclients:{}", server.settings.text("maxclients"));
    line!(text, "client_recent_max_input_buffer:{}", sessions().map(|session| session.query_bytes).max().unwrap_or(0));
    line!(text, "client_recent_max_output_buffer:{}", sessions().map(|one| one.reply.bytes.len()).max().unwrap_or(0));
    let waiting = server.sessions.iter().flatten().filter(|session| session.waiting.is_some()).count();
    line!(text, "blocked_clients:{waiting}");
    line!(text, "tracking_clients:{}", server.trackers.count());
    line!(text, "clients_in_timeout_table:{}", server.deadlines.len());
}

fn about_memory(server: &Server, _: &Session, text: &mut String) {
    let resident = service_kit::resources::resident_bytes();
    let used = server.memory.used();
    let peak = server.memory.peak.max(used);
    line!(text, "used_memory:{used}");
    line!(text, "used_memory_human:{}", human(used));
    line!(text, "used_memory_rss:{resident}");
    line!(text, "used_memory_rss_human:{}", human(resident));
    line!(text, "used_memory_peak:{peak}");
    line!(text, "used_memory_peak_human:{}", human(peak));
    line!(text, "used_memory_peak_perc:{:.2}%", used as f64 * 100.0 / peak.max(1) as f64);
    let system = rustix::system::sysinfo();
    let system_bytes = u64::from(system.mem_unit) * system.totalram;
    line!(text, "total_system_memory:{system_bytes}");
    line!(text, "total_system_memory_human:{}", human(system_bytes));
    line!(text, "maxmemory:{}", server.settings.memory_max);
    line!(text, "maxmemory_human:{}", human(server.settings.memory_max));
    line!(text, "maxmemory_policy:{}", server.settings.text("maxmemory-policy"));
    line!(text, "mem_not_counted_for_evict:{}", crate::eviction::not_counted(server));
    let scripts = server.scripts.as_deref();
    line!(text, "number_of_cached_scripts:{}", scripts.map_or(0, |scripts| scripts.len()));
    line!(text, "number_of_functions:{}", scripts.map_or(0, |scripts| scripts.functions.len()));
    line!(text, "number_of_libraries:{}", scripts.map_or(0, |scripts| scripts.libraries.len()));
    let backlog = server.replication.backlog.as_ref().map_or(0, |backlog| backlog.len());
    let replicas = crate::eviction::replica_buffers(server);
    line!(text, "mem_replication_backlog:{backlog}");
    line!(text, "mem_total_replication_buffers:{}", backlog + replicas);
    line!(text, "mem_clients_slaves:{replicas}");
    line!(text, "mem_clients_normal:{}", server.clients_bytes());
    line!(text, "mem_fragmentation_ratio:{:.2}", resident as f64 / used.max(1) as f64);
    line!(text, "mem_allocator:jemalloc");
    line!(text, "active_defrag_running:0");
    let (pending, freed) = server.reclaimer.counters();
    line!(text, "lazyfree_pending_objects:{pending}");
    line!(text, "lazyfreed_objects:{freed}");
}

fn about_persistence(server: &Server, _: &Session, text: &mut String) {
    let aof = &server.aof;
    let ok = |failed: bool| if failed { "err" } else { "ok" };
    let is_enabled = server.settings.is_yes("appendonly");
    line!(text, "loading:{}", u8::from(server.is_loading));
    line!(text, "async_loading:{}", u8::from(server.serves_old_keys()));
    let save = &server.save;
    line!(text, "rdb_changes_since_last_save:{}", server.dirty.saturating_sub(save.dirty));
    line!(text, "rdb_bgsave_in_progress:{}", u8::from(save.saves || save.feeds));
    line!(text, "rdb_last_save_time:{}", save.last / 1000);
    line!(text, "rdb_last_bgsave_status:{}", ok(!save.is_saved_well));
    let current = if save.saves { (server.now - save.last_begun).max(0) / 1000 } else { -1 };
    line!(text, "rdb_last_bgsave_time_sec:{}", save.last_seconds.unwrap_or(-1));
    line!(text, "rdb_current_bgsave_time_sec:{current}");
    line!(text, "rdb_saves:{}", save.saved);
    line!(text, "rdb_last_load_keys_expired:{}", server.load.expired_keys);
    line!(text, "rdb_last_load_keys_loaded:{}", server.load.keys);
    line!(text, "aof_enabled:{}", u8::from(is_enabled));
    line!(text, "aof_rewrite_in_progress:{}", u8::from(save.rewrites));
    line!(text, "aof_rewrite_scheduled:{}", u8::from(save.is_rewrite_due));
    line!(text, "aof_last_bgrewrite_status:{}", ok(!save.is_rewritten_well));
    line!(text, "aof_rewrites:{}", save.rewritten);
    line!(text, "aof_last_write_status:{}", ok(aof.failure.is_some()));
    if is_enabled {
        line!(text, "aof_current_size:{}", aof.current_bytes);
        line!(text, "aof_base_size:{}", aof.base_bytes);
        line!(text, "aof_pending_rewrite:0");
        line!(text, "aof_buffer_length:{}", server.effects.bytes.len());
    }
    // Ours. Also where there is no file now: whoever counts must not take none for not known.
    line!(text, "aof_syncs:{}", aof.syncs);
    if server.reads_data() {
        about_loading(server, text);
    }
}

/// How far it is with what is read, and when it will be done at this pace.
fn about_loading(server: &Server, text: &mut String) {
    let load = &server.load;
    // How many bytes a master will send is not always known.
    let loaded = if load.total_bytes == 0 { load.bytes } else { load.bytes.min(load.total_bytes) };
    // The clock of commands stands still while the start reads data.
    let seconds = (now_millis() - load.began).max(0) / 1000;
    let left = i128::from(load.total_bytes.saturating_sub(loaded)) * i128::from(seconds) / i128::from(loaded.max(1));
    line!(text, "loading_start_time:{}", load.began / 1000);
    line!(text, "loading_total_bytes:{}", load.total_bytes);
    line!(text, "loading_rdb_used_mem:0");
    line!(text, "loading_loaded_bytes:{loaded}");
    line!(
        text,
        "loading_loaded_perc:{:.2}",
        load.bytes.min(load.total_bytes) as f64 * 100.0 / load.total_bytes.max(1) as f64
    );
    line!(text, "loading_eta_seconds:{left}");
}

fn about_stats(server: &Server, client: &Session, text: &mut String) {
    let stats = &server.stats;
    line!(text, "total_connections_received:{}", stats.connections);
    line!(text, "total_commands_processed:{}", stats.commands);
    let kilobytes = |counter: fn(&Sample) -> u64| server.pace.per_second(counter) / 1024.0;
    line!(text, "instantaneous_ops_per_sec:{:.0}", server.pace.per_second(|sample| sample.commands));
    line!(text, "total_net_input_bytes:{}", stats.input_bytes);
    line!(text, "total_net_output_bytes:{}", stats.output_bytes);
    line!(text, "instantaneous_input_kbps:{:.2}", kilobytes(|sample| sample.input_bytes));
    line!(text, "instantaneous_output_kbps:{:.2}", kilobytes(|sample| sample.output_bytes));
    line!(text, "rejected_connections:{}", stats.rejected);
    line!(text, "sync_full:{}", stats.full_syncs);
    line!(text, "sync_partial_ok:{}", stats.partial_syncs);
    line!(text, "sync_partial_err:{}", stats.partial_syncs_refused);
    line!(text, "expired_keys:{}", stats.expired);
    line!(text, "evicted_keys:{}", server.stats.evicted);
    line!(text, "evicted_clients:{}", stats.evicted_clients);
    line!(text, "keyspace_hits:{}", stats.hits);
    line!(text, "keyspace_misses:{}", stats.misses);
    line!(text, "pubsub_channels:{}", server.channels.len());
    line!(text, "pubsub_patterns:{}", server.patterns.len());
    line!(text, "pubsubshard_channels:{}", server.shard_channels.len());
    // There are no forks, and no connections that are kept.
    line!(text, "latest_fork_usec:0");
    line!(text, "total_forks:0");
    line!(text, "migrate_cached_sockets:0");
    line!(text, "tracking_total_keys:{}", server.trackers.keys());
    line!(text, "tracking_total_items:{}", server.trackers.readings());
    line!(text, "tracking_total_prefixes:{}", super::tracking::prefixes(server, client));
    line!(text, "slave_expires_tracked_keys:{}", server.own_expiries.len());
    line!(text, "total_error_replies:{}", stats.errors);
}

fn about_cpu(_: &Server, _: &Session, text: &mut String) {
    // Clock ticks, of which there are a hundred a second on Linux; fields 14 and 15.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let seconds = |field: usize| fields.get(field).and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(0.0) / 100.0;
    line!(text, "used_cpu_sys:{:.6}", seconds(12));
    line!(text, "used_cpu_user:{:.6}", seconds(11));
}

fn about_errors(server: &Server, _: &Session, text: &mut String) {
    for (code, count) in &server.stats.errors_by_code {
        line!(text, "errorstat_{code}:count={count}");
    }
}

fn about_keyspace(server: &Server, _: &Session, text: &mut String) {
    for (number, database) in server.databases.iter().enumerate().filter(|(_, database)| !database.is_empty()) {
        line!(
            text,
            "db{number}:keys={},expires={},avg_ttl={}",
            database.len(),
            database.expiring(),
            database.mean_expiry().map_or(0, |expiry| (expiry - server.now).max(0))
        );
    }
}

fn about_commands(server: &Server, _: &Session, text: &mut String) {
    for command in super::all() {
        let Some(stats) = server.stats.of(super::number_of(command)) else { continue };
        let micros = stats.mean_micros();
        line!(
            text,
            "cmdstat_{}:calls={},usec={:.0},usec_per_call={micros:.2},rejected_calls={},failed_calls={}",
            command.name,
            stats.calls,
            micros * stats.calls as f64,
            stats.rejected,
            stats.failed
        );
    }
}

fn about_latencies(server: &Server, _: &Session, text: &mut String) {
    let percents = server.settings.latency_percents();
    for command in super::all() {
        let Some(stats) = server.stats.of(super::number_of(command)) else { continue };
        let parts: Option<Vec<String>> = (percents.iter())
            .map(|(word, percent)| Some(format!("p{word}={:.3}", stats.times.percentile(*percent)? as f64 / 1000.0)))
            .collect();
        // What was called before the times were kept has none.
        if let Some(parts) = parts.filter(|_| stats.times.percentile(100.0).is_some()) {
            line!(text, "latency_percentiles_usec_{}:{}", command.name, parts.join(","));
        }
    }
}

fn title(name: &str) -> String {
    match name {
        "cpu" => "CPU".to_owned(),
        _ => name[..1].to_ascii_uppercase() + &name[1..],
    }
}

pub(super) fn info(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let wanted: Vec<String> =
        args.from(1).iter().map(|name| String::from_utf8_lossy(name).to_ascii_lowercase()).collect();
    let wants = |name: &str| wanted.iter().any(|word| word == name);
    let wants_usual = wanted.is_empty() || wants("default");
    let wants_all = wants("all") || wants("everything");
    let text = sections(server, client, |place, name| wants_all || wants(name) || (wants_usual && place < UNASKED));
    client.reply.verbatim(&text);
    Ok(())
}

/// The sections that are wanted, of those at their places in [`SECTIONS`].
fn sections(server: &Server, client: &Session, wants: impl Fn(usize, &str) -> bool) -> String {
    let mut text = String::new();
    for (_, (name, tell)) in SECTIONS.iter().enumerate().filter(|(place, (name, _))| wants(*place, name)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        line!(&mut text, "# {}", title(name));
        tell(server, client, &mut text);
    }
    text
}

/// Tells `/metrics` what INFO knows, if somebody has asked. Nobody's command runs.
pub fn tell_metrics(server: &Server) {
    let Some(metrics) = server.metrics.as_ref().filter(|metrics| metrics.is_wanted()) else { return };
    // INFO counts who asks for it. The connection of a master is no client.
    let nobody = Session { slot: usize::MAX, is_master: true, ..Session::default() };
    // Percentiles are made of the whole of each command's histogram: too much for the executor, for what scrapes do not need.
    metrics.tell(sections(server, &nobody, |_, name| name != "latencystats"));
}
