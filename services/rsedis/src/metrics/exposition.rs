//! What `/metrics` says, in Prometheus's text format 0.0.4, made of the text of INFO.
//!
//! Names, kinds and labels of `redis_…` are those of redis_exporter, so that dashboards and alerts that were made for that work without
//! it: `metricMapGauges` and `metricMapCounters` in exporter/exporter.go, `extractInfoMetrics` in exporter/info.go of
//! github.com/oliver006/redis_exporter. What begins with `rsedis_` is ours.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use super::{Durations, Metrics};

/// Fields of INFO that may fall, and their names behind `redis_`. That a few count up is redis_exporter's choice.
const GAUGES: &[(&str, &str)] = &[
    ("uptime_in_seconds", "uptime_in_seconds"),
    ("process_id", "process_id"),
    ("io_threads_active", "io_threads_active"),
    ("connected_clients", "connected_clients"),
    ("blocked_clients", "blocked_clients"),
    ("maxclients", "max_clients"),
    ("maxclients", "config_maxclients"),
    ("tracking_clients", "tracking_clients"),
    ("clients_in_timeout_table", "clients_in_timeout_table"),
    ("client_recent_max_output_buffer", "client_recent_max_output_buffer_bytes"),
    ("client_recent_max_input_buffer", "client_recent_max_input_buffer_bytes"),
    ("used_memory", "memory_used_bytes"),
    ("used_memory_rss", "memory_used_rss_bytes"),
    ("used_memory_peak", "memory_used_peak_bytes"),
    ("total_system_memory", "total_system_memory_bytes"),
    ("maxmemory", "memory_max_bytes"),
    ("maxmemory", "config_maxmemory"),
    ("number_of_cached_scripts", "number_of_cached_scripts"),
    ("number_of_functions", "number_of_functions"),
    ("number_of_libraries", "number_of_libraries"),
    ("mem_fragmentation_ratio", "mem_fragmentation_ratio"),
    ("mem_clients_slaves", "mem_clients_slaves"),
    ("mem_clients_normal", "mem_clients_normal"),
    ("mem_not_counted_for_evict", "mem_not_counted_for_eviction_bytes"),
    ("mem_total_replication_buffers", "mem_total_replication_buffers_bytes"),
    ("lazyfree_pending_objects", "lazyfree_pending_objects"),
    ("active_defrag_running", "active_defrag_running"),
    ("migrate_cached_sockets", "migrate_cached_sockets_total"),
    ("loading", "loading_dump_file"),
    ("async_loading", "async_loading"),
    ("rdb_changes_since_last_save", "rdb_changes_since_last_save"),
    ("rdb_bgsave_in_progress", "rdb_bgsave_in_progress"),
    ("rdb_last_save_time", "rdb_last_save_timestamp_seconds"),
    ("rdb_last_bgsave_status", "rdb_last_bgsave_status"),
    ("rdb_last_bgsave_time_sec", "rdb_last_bgsave_duration_sec"),
    ("rdb_current_bgsave_time_sec", "rdb_current_bgsave_duration_sec"),
    ("rdb_saves", "rdb_saves_total"),
    ("rdb_last_load_keys_expired", "rdb_last_load_expired_keys"),
    ("rdb_last_load_keys_loaded", "rdb_last_load_loaded_keys"),
    ("aof_enabled", "aof_enabled"),
    ("aof_rewrite_in_progress", "aof_rewrite_in_progress"),
    ("aof_rewrite_scheduled", "aof_rewrite_scheduled"),
    ("aof_current_size", "aof_current_size_bytes"),
    ("aof_base_size", "aof_base_size_bytes"),
    ("aof_pending_rewrite", "aof_pending_rewrite"),
    ("aof_buffer_length", "aof_buffer_length"),
    ("aof_last_bgrewrite_status", "aof_last_bgrewrite_status"),
    ("aof_last_write_status", "aof_last_write_status"),
    ("pubsub_channels", "pubsub_channels"),
    ("pubsub_patterns", "pubsub_patterns"),
    ("pubsubshard_channels", "pubsubshard_channels"),
    ("latest_fork_usec", "latest_fork_usec"),
    ("tracking_total_keys", "tracking_total_keys"),
    ("tracking_total_items", "tracking_total_items"),
    ("tracking_total_prefixes", "tracking_total_prefixes"),
    ("connected_slaves", "connected_slaves"),
    ("repl_backlog_size", "replication_backlog_bytes"),
    ("repl_backlog_active", "repl_backlog_is_active"),
    ("repl_backlog_first_byte_offset", "repl_backlog_first_byte_offset"),
    ("repl_backlog_histlen", "repl_backlog_history_bytes"),
    ("master_repl_offset", "master_repl_offset"),
    ("second_repl_offset", "second_repl_offset"),
    ("slave_expires_tracked_keys", "slave_expires_tracked_keys"),
    ("slave_priority", "slave_priority"),
    ("sync_full", "replica_resyncs_full"),
    ("sync_partial_ok", "replica_partial_resync_accepted"),
    ("sync_partial_err", "replica_partial_resync_denied"),
];

/// The same of those that count up. All but the process's own begin anew with CONFIG RESETSTAT, as for redis_exporter.
const COUNTERS: &[(&str, &str)] = &[
    ("total_connections_received", "connections_received_total"),
    ("total_commands_processed", "commands_processed_total"),
    ("rejected_connections", "rejected_connections_total"),
    ("total_net_input_bytes", "net_input_bytes_total"),
    ("total_net_output_bytes", "net_output_bytes_total"),
    ("expired_keys", "expired_keys_total"),
    ("evicted_keys", "evicted_keys_total"),
    ("evicted_clients", "evicted_clients_total"),
    ("keyspace_hits", "keyspace_hits_total"),
    ("keyspace_misses", "keyspace_misses_total"),
    ("used_cpu_sys", "cpu_sys_seconds_total"),
    ("used_cpu_user", "cpu_user_seconds_total"),
    ("total_error_replies", "total_error_replies"),
];

/// Fields that a replica has, labelled with its master.
const OF_MASTER: &[(&str, &str)] = &[
    ("master_link_status", "master_link_up"),
    ("master_last_io_seconds_ago", "master_last_io_seconds_ago"),
    ("master_sync_in_progress", "master_sync_in_progress"),
    ("slave_repl_offset", "slave_repl_offset"),
];

/// Parts of a command's line, their names, and what they are divided by to be in the unit of the name.
const OF_COMMANDS: &[(&str, &str, f64)] = &[
    ("calls", "commands_total", 1.0),
    ("usec", "commands_duration_seconds_total", 1e6),
    ("rejected_calls", "commands_rejected_calls_total", 1.0),
    ("failed_calls", "commands_failed_calls_total", 1.0),
];

/// The same of a database's line.
const OF_DATABASES: &[(&str, &str, f64)] =
    &[("keys", "db_keys", 1.0), ("expires", "db_keys_expiring", 1.0), ("avg_ttl", "db_avg_ttl_seconds", 1e3)];

/// The same of a replica's line.
const OF_REPLICAS: &[(&str, &str, f64)] =
    &[("offset", "connected_slave_offset_bytes", 1.0), ("lag", "connected_slave_lag_seconds", 1.0)];

/// All that is said. Without what INFO knows, clients are not served either.
pub(super) fn page(info: Option<&str>, metrics: &Metrics) -> String {
    let mut page = Page::default();
    page.alone("redis_up", "gauge", "The executor answers.", &[], u8::from(info.is_some()));
    if let Some(info) = info {
        let fields: Fields<'_> = info.lines().filter_map(|line| line.split_once(':')).collect();
        page.know(&fields, metrics.databases);
    }
    page.histogram("rsedis_loop_turn_seconds", "Turns of the loop, without the wait for events.", &metrics.turns);
    page.histogram(
        "rsedis_aof_commit_seconds",
        "Writes to the append-only file, each for all commands of a turn; with the sync under appendfsync always.",
        &metrics.commits,
    );
    page.0
}

/// INFO's fields.
type Fields<'a> = BTreeMap<&'a str, &'a str>;

/// A sample's labels, and a line of INFO in which its value is a part.
type Row<'a> = (Vec<(&'static str, &'a str)>, &'a str);

#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (place, (label, value)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"{}\"", if place == 0 { '{' } else { ',' }, escaped(value));
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// A family of one.
    fn alone(&mut self, name: &str, kind: &str, help: &str, labels: &[(&str, &str)], value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, labels, value);
    }

    /// A field of INFO, if it is there.
    fn field(&mut self, fields: &Fields<'_>, field: &str, name: &str, kind: &str, labels: &[(&str, &str)]) {
        if let Some(value) = fields.get(field).and_then(|value| number(value)) {
            self.alone(name, kind, &format!("INFO's {field}."), labels, value);
        }
    }

    /// Families whose values are parts of the same lines.
    fn parts(&mut self, rows: &[Row<'_>], families: &[(&str, &str, f64)], kind: &str) {
        for (part, name, divisor) in families {
            let name = format!("redis_{name}");
            let values = rows.iter().filter_map(|(labels, line)| Some((labels, part_of(line, part)?)));
            for (place, (labels, value)) in values.enumerate() {
                if place == 0 {
                    self.family(&name, kind, &format!("INFO's {part}."));
                }
                self.sample(&name, labels, value / divisor);
            }
        }
    }

    /// All that INFO knows.
    fn know(&mut self, fields: &Fields<'_>, databases: usize) {
        let text = |field: &str| fields.get(field).copied().unwrap_or_default();
        for (families, kind) in [(GAUGES, "gauge"), (COUNTERS, "counter")] {
            for (field, name) in families {
                self.field(fields, field, &format!("redis_{name}"), kind, &[]);
            }
        }
        self.field(fields, "aof_syncs", "rsedis_aof_syncs_total", "counter", &[]);
        let version = [("version", text("rsedis_version"))];
        self.alone("rsedis_build_info", "gauge", "The program's version.", &version, 1);
        let of_instance = [
            "role",
            "redis_version",
            "redis_build_id",
            "redis_mode",
            "os",
            "maxmemory_policy",
            "tcp_port",
            "run_id",
            "process_id",
        ];
        let of_instance = of_instance.map(|field| (field, text(field)));
        self.alone("redis_instance_info", "gauge", "What describes the server.", &of_instance, 1);
        if let (Ok(now), Ok(uptime)) =
            (text("server_time_usec").parse::<u64>(), text("uptime_in_seconds").parse::<u64>())
        {
            let began = (now / 1_000_000).saturating_sub(uptime);
            self.alone("redis_start_time_seconds", "gauge", "Since 1970.", &[], began);
        }
        let of_master = [("master_host", text("master_host")), ("master_port", text("master_port"))];
        for (field, name) in OF_MASTER {
            self.field(fields, field, &format!("redis_{name}"), "gauge", &of_master);
        }
        if text("role") == "slave" {
            let [host, port] = of_master;
            let labels = [host, port, ("read_only", text("slave_read_only"))];
            self.alone("redis_slave_info", "gauge", "What describes a replica.", &labels, 1);
        }
        self.parts(&rows(fields, "cmdstat_", "cmd"), OF_COMMANDS, "counter");
        self.parts(&rows(fields, "errorstat_", "err"), &[("count", "errors_total", 1.0)], "counter");
        let names: Vec<String> = (0..databases).map(|database| format!("db{database}")).collect();
        // INFO leaves out those without keys.
        let line_of = |name: &str| fields.get(name).copied().unwrap_or("keys=0,expires=0");
        let of_databases: Vec<Row<'_>> =
            names.iter().map(|name| (vec![("db", name.as_str())], line_of(name))).collect();
        self.parts(&of_databases, OF_DATABASES, "gauge");
        let of_replica = |line| {
            let [ip, port, state] = ["ip", "port", "state"].map(|name| word_of(line, name));
            Some((vec![("slave_ip", ip?), ("slave_port", port?), ("slave_state", state?)], line))
        };
        let replicas = fields.iter().filter(|(field, _)| field.starts_with("slave"));
        let of_replicas: Vec<Row<'_>> = replicas.filter_map(|(_, line)| of_replica(*line)).collect();
        self.parts(&of_replicas, OF_REPLICAS, "gauge");
    }

    fn histogram(&mut self, name: &str, help: &str, durations: &Durations) {
        self.family(name, "histogram", help);
        let mut all = 0;
        for (bound, count) in durations.cumulative() {
            let bound = bound.map_or_else(|| "+Inf".to_owned(), |seconds| seconds.to_string());
            self.sample(&format!("{name}_bucket"), &[("le", bound.as_str())], count);
            all = count;
        }
        self.sample(&format!("{name}_sum"), &[], durations.seconds());
        self.sample(&format!("{name}_count"), &[], all);
    }
}

/// A row for each field of a prefix, labelled with the rest of its name.
fn rows<'a>(fields: &Fields<'a>, prefix: &str, label: &'static str) -> Vec<Row<'a>> {
    let found = fields.iter().filter_map(|(field, line)| Some((field.strip_prefix(prefix)?, *line)));
    found.map(|(name, line)| (vec![(label, name)], line)).collect()
}

/// A number as it stands, or 1 and 0 for INFO's words of what goes well and does not; nothing if it is none.
fn number(value: &str) -> Option<&str> {
    match value {
        "ok" | "up" => Some("1"),
        "err" | "down" => Some("0"),
        _ => value.parse::<f64>().is_ok_and(f64::is_finite).then_some(value),
    }
}

/// The word of a name in `a=1,b=2`.
fn word_of<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

/// The same of a number.
fn part_of(line: &str, name: &str) -> Option<f64> {
    word_of(line, name)?.parse().ok()
}

/// A label's value. Errors' codes and replicas' addresses are what scripts and replicas say.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nrole:slave\r\nrsedis_version:0.1.0\r\nos:Linux 6.1 x86_64\r\nuptime_in_seconds:100\r\n\
        server_time_usec:1700000100500000\r\n\r\n# Clients\r\nused_memory:1048576\r\nused_memory_human:1.00M\r\n\
        aof_last_write_status:err\r\nrdb_last_bgsave_status:ok\r\nmem_fragmentation_ratio:1.25\r\nkeyspace_hits:7\r\n\
        master_host:a.example\r\nmaster_port:6379\r\nmaster_link_status:down\r\nmaster_last_io_seconds_ago:-1\r\n\
        slave_repl_offset:90\r\nslave_priority:100\r\nslave_read_only:1\r\n\
        slave0:ip=10.0.0.1,port=7,state=online,offset=42,lag=1\r\n\
        cmdstat_config|get:calls=2,usec=3000,usec_per_call=1500.00,rejected_calls=1,failed_calls=0\r\n\
        errorstat_\"A\\:count=3\r\ndb1:keys=5,expires=2,avg_ttl=1500\r\n";

    fn said(info: Option<&str>) -> String {
        page(info, &Metrics::new(2))
    }

    #[test]
    fn fields_of_info_have_the_names_of_redis_exporter() {
        let text = said(Some(INFO));
        for line in [
            "redis_up 1",
            "redis_memory_used_bytes 1048576",
            "redis_aof_last_write_status 0",
            "redis_rdb_last_bgsave_status 1",
            "redis_mem_fragmentation_ratio 1.25",
            "redis_keyspace_hits_total 7",
            "redis_start_time_seconds 1700000000",
            "redis_master_link_up{master_host=\"a.example\",master_port=\"6379\"} 0",
            "redis_master_last_io_seconds_ago{master_host=\"a.example\",master_port=\"6379\"} -1",
            "redis_slave_repl_offset{master_host=\"a.example\",master_port=\"6379\"} 90",
            "redis_slave_info{master_host=\"a.example\",master_port=\"6379\",read_only=\"1\"} 1",
            "redis_slave_priority 100",
            "redis_connected_slave_offset_bytes{slave_ip=\"10.0.0.1\",slave_port=\"7\",slave_state=\"online\"} 42",
            "redis_connected_slave_lag_seconds{slave_ip=\"10.0.0.1\",slave_port=\"7\",slave_state=\"online\"} 1",
            "redis_commands_total{cmd=\"config|get\"} 2",
            "redis_commands_duration_seconds_total{cmd=\"config|get\"} 0.003",
            "redis_commands_rejected_calls_total{cmd=\"config|get\"} 1",
            "redis_db_keys{db=\"db0\"} 0",
            "redis_db_keys{db=\"db1\"} 5",
            "redis_db_keys_expiring{db=\"db1\"} 2",
            "redis_db_avg_ttl_seconds{db=\"db1\"} 1.5",
            "rsedis_build_info{version=\"0.1.0\"} 1",
            "rsedis_loop_turn_seconds_bucket{le=\"0.000004\"} 0",
            "rsedis_loop_turn_seconds_bucket{le=\"+Inf\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in:\n{text}");
        }
        assert!(!text.contains("db_avg_ttl_seconds{db=\"db0\"}"), "{text}");
    }

    #[test]
    fn a_code_of_an_error_ends_no_label() {
        assert!(said(Some(INFO)).contains("redis_errors_total{err=\"\\\"A\\\\\"} 3\n"));
    }

    #[test]
    fn a_family_stands_together_under_one_head() {
        let text = said(Some(INFO));
        let heads: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let mut names: Vec<&str> = heads.iter().filter_map(|head| head.split(' ').next()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{heads:?}");
        let mut head = "";
        for line in text.lines() {
            match line.strip_prefix("# TYPE ") {
                Some(found) => head = found.split(' ').next().unwrap(),
                None => assert!(line.starts_with('#') || line.starts_with(head), "{line} below {head}"),
            }
        }
    }

    #[test]
    fn without_an_executor_that_answers_old_numbers_are_not_told_as_new_ones() {
        let text = said(None);
        assert!(text.contains("redis_up 0\n") && text.contains("rsedis_loop_turn_seconds_count 0\n"), "{text}");
        assert!(!text.contains("redis_memory_used_bytes"), "{text}");
    }
}
