//! `/metrics` and `/health` (`metrics-listen`): what they say, held against INFO, and what they bear with.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::{LONG, TempDir, until};
use support::node::Node;
use support::{Server, rsedis_program, start};

/// A server, its folder, and the port of its metrics.
struct Watched {
    server: Server,
    port: u16,
    _folder: TempDir,
}

fn watched(options: &[&str]) -> Watched {
    let (folder, port) = (harness::folder(), harness::free_port());
    let address = format!("127.0.0.1:{port}");
    let server =
        start(rsedis_program(), folder.path(), &[&["--metrics-listen", address.as_str()][..], options].concat());
    Watched { server, port, _folder: folder }
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// Status line and body.
fn get(port: u16, path: &str) -> (String, String) {
    let mut stream = connect(port);
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    assert_eq!(length.parse::<usize>(), Ok(body.len()));
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

/// Samples of a server whose executor answers, on a machine however busy.
fn scrape(port: u16) -> BTreeMap<String, f64> {
    harness::eventually("an answer of the executor", || {
        Some(scrape_once(port)).filter(|found| found["redis_up"] == 1.0)
    })
}

/// Samples by their names and labels. Fails where the text is not what Prometheus reads.
fn scrape_once(port: u16) -> BTreeMap<String, f64> {
    let (status, text) = get(port, "/metrics");
    assert_eq!(status, "HTTP/1.1 200 OK");
    let mut samples = BTreeMap::new();
    let mut family = String::new();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            let (name, kind) = head.split_once(' ').unwrap();
            assert!(["gauge", "counter", "histogram"].contains(&kind), "{line}");
            family = name.to_owned();
        } else if !line.starts_with('#') {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with(&family), "{line} stands below {family}");
            assert_eq!(samples.insert(name.to_owned(), value.parse().unwrap()), None, "{line} is there twice");
        }
    }
    samples
}

fn info(server: &Server, field: &str) -> f64 {
    let text = server.client().call("INFO everything");
    let found = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    match found.unwrap_or_else(|| panic!("INFO has no {field}")) {
        "ok" => 1.0,
        number => number.parse().unwrap(),
    }
}

#[test]
fn metrics_say_what_info_says() {
    let Watched { server, port, _folder } = watched(&["--appendonly", "yes", "--appendfsync", "always"]);
    let mut client = server.client();
    let lines = ["SET a 1", "GET a", "GET b", "SELECT 3", "SET c 1 EX 1000", "SET d 1", "LPUSH d 1", "XREAD STREAMS"];
    lines.iter().for_each(|line| drop(client.call(line)));
    let samples = scrape(port);
    for (name, field) in [
        ("redis_keyspace_hits_total", "keyspace_hits"),
        ("redis_keyspace_misses_total", "keyspace_misses"),
        ("redis_max_clients", "maxclients"),
        ("redis_memory_max_bytes", "maxmemory"),
        ("redis_rdb_changes_since_last_save", "rdb_changes_since_last_save"),
        ("redis_rdb_last_save_timestamp_seconds", "rdb_last_save_time"),
        ("redis_rdb_last_bgsave_status", "rdb_last_bgsave_status"),
        ("redis_aof_enabled", "aof_enabled"),
        ("redis_aof_current_size_bytes", "aof_current_size"),
        ("redis_aof_base_size_bytes", "aof_base_size"),
        ("redis_aof_last_write_status", "aof_last_write_status"),
        ("redis_connected_slaves", "connected_slaves"),
        ("redis_master_repl_offset", "master_repl_offset"),
        ("redis_replication_backlog_bytes", "repl_backlog_size"),
        ("redis_total_error_replies", "total_error_replies"),
        ("redis_evicted_keys_total", "evicted_keys"),
        ("redis_process_id", "process_id"),
        ("rsedis_aof_syncs_total", "aof_syncs"),
    ] {
        assert_eq!(samples[name], info(&server, field), "{name}");
    }
    for (name, value) in [
        ("redis_up", 1.0),
        ("redis_db_keys{db=\"db0\"}", 1.0),
        ("redis_db_keys{db=\"db3\"}", 2.0),
        ("redis_db_keys{db=\"db15\"}", 0.0),
        ("redis_db_keys_expiring{db=\"db3\"}", 1.0),
        ("redis_commands_total{cmd=\"get\"}", 2.0),
        ("redis_commands_total{cmd=\"set\"}", 3.0),
        ("redis_commands_failed_calls_total{cmd=\"lpush\"}", 1.0),
        ("redis_commands_rejected_calls_total{cmd=\"xread\"}", 1.0),
        ("redis_errors_total{err=\"WRONGTYPE\"}", 1.0),
        ("rsedis_aof_commit_seconds_count", 3.0),
    ] {
        assert_eq!(samples[name], value, "{name}");
    }
    assert!(samples["redis_memory_used_bytes"] > 0.0 && samples["redis_connected_clients"] >= 1.0, "{samples:?}");
    let average = samples["redis_db_avg_ttl_seconds{db=\"db3\"}"];
    assert!((1.0..=1000.0).contains(&average), "{average}");
    assert!(samples["rsedis_loop_turn_seconds_count"] >= 8.0, "{samples:?}");
    // Each scrape is answered with what is so then.
    client.call("SET e 1");
    assert_eq!(scrape(port)["redis_db_keys{db=\"db3\"}"], 3.0);
}

/// A count that is missing, or begins anew, can be held against nothing that was acknowledged.
#[test]
fn syncs_are_counted_on_when_the_append_only_file_begins_anew_and_without_one_there_are_none() {
    let Watched { server, port, _folder } = watched(&["--appendonly", "no", "--appendfsync", "always"]);
    let mut client = server.client();
    client.call("SET a 1");
    let syncs = || scrape(port)["rsedis_aof_syncs_total"];
    assert_eq!(syncs(), 0.0);
    let mut known = 0.0;
    for value in 2..4 {
        assert_eq!(client.call("CONFIG SET appendonly yes"), "+OK\r\n");
        // Heard once the base is there and the command is safe.
        assert_eq!(client.call(&format!("SET a {value}")), "+OK\r\n");
        let now = syncs();
        assert!(now > known, "{now} after {known}");
        known = now;
        // At once, before anybody else has asked how many there were.
        for _ in 0..20 {
            client.call("INCR b");
        }
        assert_eq!(client.call("CONFIG SET appendonly no"), "+OK\r\n");
        let left = syncs();
        assert!(left >= known + 20.0, "{left} after {known} and twenty writes");
        known = left;
    }
    assert_eq!(syncs(), known);
}

#[test]
fn a_scrape_is_no_client() {
    let Watched { server, port, _folder } = watched(&[]);
    let client = server.client();
    until("one client", || scrape(port)["redis_connected_clients"] == 1.0);
    drop(client);
    until("none", || scrape(port)["redis_connected_clients"] == 0.0);
}

#[test]
fn a_replica_names_its_master_and_a_master_its_replicas() {
    let master = watched(&["--repl-diskless-sync-delay", "0"]);
    let replica = watched(&[]);
    let line = format!("REPLICAOF 127.0.0.1 {}", master.server.port);
    assert_eq!(replica.server.client().call(&line), "+OK\r\n");
    let link = format!("redis_master_link_up{{master_host=\"127.0.0.1\",master_port=\"{}\"}}", master.server.port);
    until("the link", || scrape(replica.port).get(&link) == Some(&1.0));
    until("the replica", || {
        let samples = scrape(master.port);
        let lag =
            samples.keys().any(|name| name.starts_with("redis_connected_slave_lag_seconds{slave_ip=\"127.0.0.1\""));
        samples["redis_connected_slaves"] == 1.0 && lag
    });
}

#[test]
fn an_executor_that_is_busy_is_not_waited_for() {
    let Watched { server, port, _folder } = watched(&["--enable-debug-command", "yes"]);
    until("health", || get(port, "/health") == ("HTTP/1.1 200 OK".to_owned(), "ok\n".to_owned()));
    let mut client = server.client();
    client.send(b"DEBUG SLEEP 6\r\n").unwrap();
    let began = Instant::now();
    until("it sleeps", || scrape_once(port)["redis_up"] == 0.0);
    let (status, why) = get(port, "/health");
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
    assert!(why.contains("the executor has said nothing for 800 ms"), "{why}");
    assert!(began.elapsed() < Duration::from_secs(6), "who asked has waited for the executor");
    assert_eq!(client.receive().unwrap(), b"+OK\r\n");
    until("it is well again", || get(port, "/health").0 == "HTTP/1.1 200 OK");
}

#[test]
fn a_head_that_does_not_end_is_cut_off() {
    let Watched { server, port, _folder } = watched(&[]);
    let mut stream = connect(port);
    // The other side may be gone before all of it is sent.
    drop(stream.write_all(b"GET /metrics HTTP/1.1\r\n"));
    drop(stream.write_all(&b"X-Long: x\r\n".repeat(10_000)));
    let mut answer = Vec::new();
    let ended = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() && ended.is_err() || answer.starts_with(b"HTTP/1.1 431 "), "{ended:?}");
    until("health", || get(port, "/health").0 == "HTTP/1.1 200 OK");
    assert_eq!(server.client().call("PING"), "+PONG\r\n");
}

/// What a request for `/health` is answered with, if it is.
fn ask(port: u16) -> Vec<u8> {
    let (mut stream, mut answer) = (connect(port), Vec::new());
    // Who is closed at once may hear of that here or there.
    drop(stream.write_all(b"GET /health HTTP/1.1\r\n\r\n"));
    drop(stream.read_to_end(&mut answer));
    answer
}

#[test]
fn slow_clients_keep_others_out_for_three_seconds_and_no_longer() {
    let Watched { server, port, _folder } = watched(&[]);
    harness::again_if_late(Duration::from_millis(100), || {
        let mut slow: Vec<TcpStream> = (0..8).map(|_| connect(port)).collect();
        slow.iter_mut().for_each(|stream| stream.write_all(b"GET /met").unwrap());
        let beyond = ask(port);
        assert_eq!(server.client().call("PING"), "+PONG\r\n");
        for stream in &mut slow {
            let mut rest = Vec::new();
            assert!(stream.read_to_end(&mut rest).is_ok() && rest.is_empty(), "it was answered");
        }
        match beyond.is_empty() {
            true => Ok(()),
            false => Err(format!("beyond eight: {}", String::from_utf8_lossy(&beyond))),
        }
    });
    until("a place", || ask(port).starts_with(b"HTTP/1.1 200 "));
}

#[test]
fn other_paths_and_methods_are_refused() {
    let Watched { server: _server, port, _folder } = watched(&[]);
    assert_eq!(get(port, "/").0, "HTTP/1.1 404 Not Found");
    until("health", || get(port, "/health?verbose").0 == "HTTP/1.1 200 OK");
    let mut stream = connect(port);
    stream.write_all(b"POST /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"), "{answer}");
}

#[test]
fn a_place_that_is_taken_is_refused_by_the_parameters_name() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (folder, port) = (harness::folder(), harness::free_port().to_string());
    let options = ["--bind", "127.0.0.1", "--port", &port, "--metrics-listen", &address];
    let output = Command::new(rsedis_program()).args(options).arg("--dir").arg(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with(&format!("rsedis: Failed listening on metrics-listen {address}: ")), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

/// Redis's tests, and other tools, set all that `CONFIG GET *` shows.
#[test]
fn the_parameter_is_shown_to_who_asks_by_name_and_kept_by_rewrite() {
    let Watched { server, port, _folder } = watched(&[]);
    let mut client = server.client();
    let address = format!("127.0.0.1:{port}");
    let expected = format!("*2\r\n$14\r\nmetrics-listen\r\n${}\r\n{address}\r\n", address.len());
    assert_eq!(client.call("CONFIG GET metrics-listen"), expected);
    assert!(!client.call("CONFIG GET *").contains("metrics-listen"));
    let refused = client.call("CONFIG SET metrics-listen 127.0.0.1:1");
    assert!(refused.contains("'metrics-listen') - can't set immutable config"), "{refused}");

    let folder = harness::folder();
    let file = folder.path().join("redis.conf");
    std::fs::write(&file, "maxclients 100\n").unwrap();
    let (port, metrics) = (harness::free_port().to_string(), format!("127.0.0.1:{}", harness::free_port()));
    let options = ["--bind", "127.0.0.1", "--port", &port, "--metrics-listen", &metrics, "--dir"];
    let mut command = harness::command(rsedis_program());
    command.arg(&file).args(options).arg(folder.path()).stdout(Stdio::null());
    let _process = harness::Process::start(&mut command);
    let mut client = harness::eventually("a client", || support::Client::connect(port.parse().ok()?).ok());
    assert_eq!(client.call("CONFIG REWRITE"), "+OK\r\n");
    assert!(std::fs::read_to_string(&file).unwrap().contains(&format!("\nmetrics-listen {metrics}\n")));
}

#[test]
fn without_the_parameter_nothing_is_told() {
    let node = Node::ours(&[]);
    assert_eq!(node.call("CONFIG GET metrics-listen"), "*2\r\n$14\r\nmetrics-listen\r\n$0\r\n\r\n");
}

/// In both directions for what is ours; of what has the names of others, all that is asked for is said.
#[test]
fn the_dashboard_and_the_alerts_ask_for_what_is_said() {
    let master = watched(&["--repl-diskless-sync-delay", "0"]);
    let replica = watched(&["--appendonly", "yes", "--replicaof", &format!("127.0.0.1 {}", master.server.port)]);
    let is_whole =
        |text: &str| text.contains("redis_master_link_up{") && text.contains("redis_connected_slave_lag_seconds{");
    master.server.client().call("SET k v EX 1000");
    master.server.client().call("LPUSH k v");
    let both = || get(replica.port, "/metrics").1 + &get(master.port, "/metrics").1;
    until("both ends of the link", || is_whole(&both()));
    let text = both();
    harness::dashboard::check("services/rsedis.json", "rsedis_", &text);
    harness::dashboard::check_rules("services/rsedis.json", "redis_", &text);
    harness::dashboard::check_rules("services/rsedis-rules.yaml", "redis_", &text);
}

/// Each turn spent a millisecond on it, before it answered: of fifty clients with one request each the server answered a fifth of what it can.
#[test]
fn a_snapshot_takes_no_more_of_a_turn_than_clients_do() {
    let Watched { server, port, _folder } = watched(&["--enable-debug-command", "yes"]);
    let mut client = server.client();
    assert_eq!(client.call("DEBUG POPULATE 500000 key 64"), "+OK\r\n");
    let turns = |found: &BTreeMap<String, f64>| {
        let all = found["rsedis_loop_turn_seconds_count"];
        (all, all - found["rsedis_loop_turn_seconds_bucket{le=\"0.000512\"}"])
    };
    let (all_before, long_before) = turns(&scrape(port));
    assert!(client.call("BGSAVE").starts_with("+Background"));
    let mut asked = 0;
    while client.call("INFO persistence").contains("rdb_bgsave_in_progress:1") {
        for _ in 0..100 {
            assert_eq!(client.call("PING"), "+PONG\r\n");
        }
        asked += 100;
    }
    let (all, long) = turns(&scrape(port));
    let (all, long) = (all - all_before, long - long_before);
    assert!(asked >= 500, "{asked}: it was over too soon to tell");
    // Some turns are long because somebody else has the processor.
    assert!(long < all / 4.0, "{long} of {all} turns took more than half a millisecond");
}
