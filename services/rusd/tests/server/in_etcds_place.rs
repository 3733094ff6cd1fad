//! What etcd's users find where etcd was: its flags, its files, its words.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use harness::{Authority, Process, free_address, output, peer, until};
use serde_json::Value;

use crate::gateway::send;
use crate::metrics::{metrics, sum};
use crate::process::{Rusd, Starting, rusd};

fn body(address: &str, path: &str) -> Value {
    let (status, mut body) = send(address, "GET", path, "", "");
    assert_eq!(status, 200, "{path}");
    let mut text = String::new();
    body.read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn variables_for_debugging_are_those_of_etcd_but_for_gos_memory() {
    let data = harness::folder();
    let (etcd, rusd) = (harness::Etcd::start(data.path()), Rusd::start(&[]));
    let [theirs, ours] = [etcd.address(), rusd.address()].map(|address| body(address, "/debug/vars"));
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    let without_memory: BTreeSet<_> = names(&theirs).into_iter().filter(|name| name != "memstats").collect();
    assert_eq!(names(&ours), without_memory);
    let raft = |value: &Value| value["raft.status"].clone();
    let known: BTreeSet<_> =
        names(&raft(&theirs)).into_iter().filter(|name| !["vote", "leadtransferee"].contains(&&**name)).collect();
    assert_eq!(names(&raft(&ours)), known);
    assert_eq!(raft(&ours)["raftState"], raft(&theirs)["raftState"]);
    assert_eq!(ours["cmdline"][0].as_str().unwrap(), env!("CARGO_BIN_EXE_rusd"));
}

/// Whoever may scrape, without a certificate, read and wrote everything as JSON.
#[test]
fn sockets_for_monitoring_serve_what_etcds_do_and_nothing_else() {
    let data = harness::folder();
    let theirs = free_address().to_string();
    let _etcd = harness::Etcd::start_with(data.path(), &[&format!("--listen-metrics-urls=http://{theirs}")]);
    let server = Rusd::start(&["--listen-metrics-urls=http://localhost:0"]);
    let ours = server.other_addresses()[0].clone();
    let status = |address: &str, (verb, path): (&str, &str)| send(address, verb, path, "", "{}").0;
    for path in ["/metrics", "/health", "/livez", "/readyz"] {
        assert_eq!([&theirs, &ours].map(|address| status(address, ("GET", path))), [200; 2], "{path}");
    }
    for asked in [
        ("POST", "/v3/kv/range"),
        ("POST", "/v3/kv/put"),
        ("POST", "/v3/maintenance/snapshot"),
        ("POST", "/v3/auth/user/add"),
        ("POST", "/v3/cluster/member/list"),
        ("GET", "/debug/vars"),
        ("GET", "/version"),
        ("GET", "/"),
    ] {
        assert_eq!([&theirs, &ours].map(|address| status(address, asked)), [404; 2], "{asked:?}");
    }
    assert_eq!(status(server.address(), ("POST", "/v3/cluster/member/list")), 200, "clients have their own");
}

/// `etcdctl` divides by the size of the database.
#[test]
fn the_status_of_a_member_in_which_nothing_is_can_be_asked_for() {
    let server = Rusd::start(&[]);
    assert!(server.etcdctl(&["endpoint", "status", "-w", "table"]).contains("true"));
}

/// etcd's own unit has `Type=notify`.
#[test]
fn systemd_is_told_when_clients_are_served() {
    let directory = harness::folder();
    let path = directory.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(harness::LONG)).unwrap();
    let mut command = rusd();
    command.env("NOTIFY_SOCKET", &path).arg("--data-dir").arg(directory.path().join("data"));
    command.args(["--listen-client-urls=http://127.0.0.1:0", "--advertise-client-urls=http://127.0.0.1:0"]);
    let _server = Process::start(command.arg("--listen-peer-urls=http://127.0.0.1:0").stderr(Stdio::null()));
    let mut heard = [0; 16];
    let bytes = socket.recv(&mut heard).unwrap();
    assert_eq!(&heard[..bytes], b"READY=1");
}

/// The lines on stderr of a server with these arguments that are about requests, as objects, once it has been given some.
fn slow_requests(mut command: Command, endpoint: &str) -> Vec<Value> {
    let mut process = Process::start(command.stderr(Stdio::piped()).stdout(Stdio::null()));
    let lines = BufReader::new(process.child().stderr.take().unwrap()).lines();
    let (found, seen) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok).filter(|line| line.contains("request stats")) {
            if found.send(line).is_err() {
                return;
            }
        }
    });
    let ctl = |arguments: &[&str]| {
        let mut command = Command::new(peer("etcd", "etcdctl"));
        command.args(["--endpoints", endpoint]).args(arguments).output().unwrap().status.success()
    };
    until("an answer", || ctl(&["put", "key", "value"]));
    assert!(ctl(&["get", "", "--prefix"]) && ctl(&["del", "key"]));
    let mut found = Vec::new();
    let wanted = ["Put", "Range", "DeleteRange"];
    let path = |line: &Value| line["response type"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    while !wanted.iter().all(|method| found.iter().any(|line| path(line) == *method)) {
        found.push(serde_json::from_str(&seen.recv_timeout(harness::LONG).unwrap()).unwrap());
    }
    wanted.iter().map(|method| found.iter().rfind(|line| path(line) == *method).unwrap().clone()).collect()
}

/// A text with `0` for each digit.
fn shape(value: &Value) -> String {
    value.as_str().unwrap().replace(|c: char| c.is_ascii_digit(), "0")
}

#[test]
fn slow_requests_are_logged_with_etcds_words() {
    let said = |program: Command, data: &std::path::Path| {
        let [endpoint, members] = [(); 2].map(|()| format!("http://{}", free_address()));
        let mut command = program;
        command.env("TZ", "UTC").arg("--data-dir").arg(data).args(["--warning-unary-request-duration=1ns"]);
        command.args(["--listen-client-urls", &endpoint, "--advertise-client-urls", &endpoint]);
        command.args(["--listen-peer-urls", &members]);
        slow_requests(command, &endpoint)
    };
    let folder = harness::folder();
    let theirs = said(harness::command(peer("etcd", "etcd")), &folder.path().join("etcd"));
    let ours = said(rusd(), &folder.path().join("rusd"));
    for (theirs, ours) in theirs.iter().zip(&ours) {
        for (name, value) in theirs.as_object().unwrap() {
            let same = ["level", "msg", "response type", "request count", "request size", "response count"];
            match name.as_str() {
                "ts" => assert_eq!(shape(&ours[name]), shape(value), "{ours}"),
                name if same.contains(&name) => assert_eq!(&ours[name], value, "{name} in {ours}"),
                name => assert!(!ours[name].is_null(), "{name} in {ours}"),
            }
        }
        assert!(!ours["request content"].as_str().unwrap().contains("value\""), "{ours}");
    }
}

/// Who looks into the log for what has become of a member found nothing of it.
#[test]
fn what_happens_to_a_member_is_logged_with_etcds_words() {
    let (server, mut log) = Rusd::spawn(harness::folder(), vec!["--quota-backend-bytes=65536".into()]).ready_with_log();
    let ready = log.line("ready to serve client requests");
    let id = ready["local-member-id"].as_str().unwrap().to_owned();
    assert!(u64::from_str_radix(&id, 16).is_ok() && ready["cluster-id"].is_string(), "{ready}");
    let elected = format!("raft.node: {id} elected leader {id} at term ");
    until("who leads", || log.find(|said| said.starts_with(&elected)).is_some());

    let refusal = server.refused(&["put", "large", &"v".repeat(100_000)]);
    assert!(refusal.contains("database space exceeded"), "{refusal}");
    let raised = log.line("alarm raised");
    assert_eq!([&raised["level"], &raised["alarm"], &raised["from"]], ["warn", "NOSPACE", &id]);
    server.etcdctl(&["alarm", "disarm"]);
    let lowered = log.line("alarm disarmed");
    assert_eq!([&lowered["alarm"], &lowered["from"]], ["NOSPACE", &id]);

    for value in ["1", "2"] {
        server.etcdctl(&["put", "k", value]);
    }
    server.etcdctl(&["compaction", "3"]);
    let compacted = log.line("finished scheduled compaction");
    assert_eq!(compacted["level"], "info");
    assert_eq!(compacted["compact-revision"], 3);
    assert!(compacted["took"].as_str().unwrap().ends_with('s'), "{compacted}");

    // A start reads all of it from the log again.
    let (directory, flags) = server.kill();
    let (server, mut log) = Rusd::spawn(directory, flags).ready_with_log();
    server.etcdctl(&["put", "k", "3"]);
    server.etcdctl(&["compaction", "4"]);
    assert_eq!(log.line("finished scheduled compaction")["compact-revision"], 4);
    assert_eq!(log.find(|said| said.starts_with("alarm ")), None);

    server.etcdctl(&["defrag"]);
    log.line("starting defragment");
    let defragmented = log.line("finished defragmenting directory");
    assert!(defragmented["took"].as_str().unwrap().ends_with('s'), "{defragmented}");

    let file = server.directory().join("snapshot");
    server.etcdctl(&["snapshot", "save", file.to_str().unwrap()]);
    let sending = log.line("sending database snapshot to client");
    let sent = log.line("successfully sent database snapshot to client");
    // What the client has is that and a checksum.
    let bytes = std::fs::metadata(&file).unwrap().len() - 32;
    assert_eq!([&sending, &sent].map(|line| line["total-bytes"].as_u64()), [Some(bytes); 2]);
    assert!(sent["took"].is_string() && sent["size"].is_string(), "{sent}");
}

/// As etcd: nobody is asked for a certificate, and who is connected to shows one that the system believes.
#[test]
fn members_without_an_authority_of_their_own_believe_whom_the_system_believes() {
    let (authority, other) = (Authority::new(), Authority::new());
    authority.sign("peer");
    let addresses = [(); 2].map(|()| free_address().to_string());
    let start = |number: usize, believed: &Authority, folder: &std::path::Path| {
        let mut command = rusd();
        command.env("SSL_CERT_FILE", believed.path());
        let peer = format!("https://{}", addresses[number]);
        command.arg("--data-dir").arg(folder.join(number.to_string())).arg(format!("--name=m{number}"));
        command.args(["--listen-client-urls=http://127.0.0.1:0", "--advertise-client-urls=http://127.0.0.1:0"]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.arg(format!("--initial-cluster=m0=https://{},m1=https://{}", addresses[0], addresses[1]));
        command.arg(format!("--peer-cert-file={}", authority.file("peer.pem")));
        command.arg(format!("--peer-key-file={}", authority.file("peer.key")));
        let mut process = Process::start(command.stderr(Stdio::piped()));
        let lines = BufReader::new(process.child().stderr.take().unwrap()).lines();
        (process, lines)
    };
    let is_said = |lines: &mut dyn Iterator<Item = std::io::Result<String>>, what: &str| {
        assert!(lines.map_while(Result::ok).any(|line| line.contains(what)), "it does not say {what}");
    };
    let folder = harness::folder();
    let (_first, mut lines) = start(0, &authority, folder.path());
    let second = start(1, &other, folder.path());
    let mut unbelieving = second.1;
    is_said(&mut unbelieving, "invalid peer certificate");
    drop(second.0);
    let (_second, mut later) = start(1, &authority, folder.path());
    is_said(&mut later, "ready to serve client requests");
    is_said(&mut lines, "ready to serve client requests");
}

#[test]
fn the_log_is_where_wal_dir_says() {
    let log = harness::folder();
    let place = log.path().join("log");
    let server = Rusd::start(&[&format!("--wal-dir={}", place.display())]);
    server.etcdctl(&["put", "k", "v"]);
    assert!(!server.directory().join("data/member/wal").exists());
    assert!(place.join("00000000000000000001.wal").exists());
    let server = server.restart();
    assert_eq!(server.etcdctl(&["get", "k", "--print-value-only"]), "v\n");
    let (directory, flags) = server.kill();
    std::fs::remove_dir_all(&place).unwrap();
    let said = Rusd::spawn(directory, flags).refusal();
    assert!(said.contains("had a log, and it is gone"), "{said}");
}

#[test]
fn what_is_not_synced_is_served_all_the_same() {
    let server = Rusd::start(&["--unsafe-no-fsync"]);
    server.etcdctl(&["put", "k", "v"]);
    assert_eq!(sum(&metrics(server.address()), "rusd_log_syncs_total", &[]), Some(0.0), "the flag did nothing");
    // The system has it, though the disk may not.
    let server = server.restart();
    assert_eq!(server.etcdctl(&["get", "k", "--print-value-only"]), "v\n");
}

/// The same file, read by both: who is who in the group that they make of it.
#[test]
fn a_configuration_file_means_what_it_means_to_etcd() {
    let folder = harness::folder();
    let [client, members] = [(); 2].map(|()| format!("http://{}", free_address()));
    let file = |data: &str| {
        let path = folder.path().join(format!("{data}.yaml"));
        let text = format!(
            "name: 'one'\ndata-dir: {}\nlisten-client-urls: {client}\nadvertise-client-urls: {client}\nlisten-peer-urls: {members}\n\
             initial-advertise-peer-urls: {members}\ninitial-cluster: one={members}\ninitial-cluster-token: 'tok-1'\n\
             initial-cluster-state: 'new'\nsnapshot-count: 12345\nheartbeat-interval: 50\nelection-timeout: 500\n\
             quota-backend-bytes: 123456789\nauto-compaction-mode: periodic\nauto-compaction-retention: '1'\nlogger: zap\n\
             log-outputs: [stderr]\nlog-level: warn\nenable-grpc-gateway: true\nmax-txn-ops: 3\n\
             watch-progress-notify-interval: 5000000000\npre-vote: true\ndiscovery:\ndiscovery-fallback: 'proxy'\ndiscovery-proxy:\n\
             discovery-srv:\nproxy: 'off'\nproxy-failure-wait: 5000\n",
            folder.path().join(data).display()
        );
        std::fs::write(&path, text).unwrap();
        path
    };
    let told = |program: Command, data: &str| {
        let mut command = program;
        command.arg(format!("--config-file={}", file(data).display()));
        // What an argument says counts for nothing then.
        command.args(["--name=other", "--max-txn-ops=7"]);
        let _process = Process::start(command.stderr(Stdio::null()));
        let ctl = |arguments: &[&str]| {
            let mut command = Command::new(peer("etcd", "etcdctl"));
            command.args(["--endpoints", &client]).args(arguments);
            command
        };
        until("an answer", || ctl(&["get", "k"]).output().unwrap().status.success());
        let status: Value = serde_json::from_str(&output(&mut ctl(&["endpoint", "status", "-w", "json"]))).unwrap();
        let mut many = ctl(&["txn"]);
        many.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut many = Process::start(&mut many);
        let mut stdin = many.child().stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, b"\nput a 1\nput b 1\nput c 1\nput d 1\n\n\n").unwrap();
        drop(stdin);
        let mut refusal = String::new();
        many.child().stderr.take().unwrap().read_to_string(&mut refusal).unwrap();
        assert!(refusal.contains("too many operations"), "{refusal}");
        let status = &status[0]["Status"];
        let members = output(&mut ctl(&["member", "list"]));
        (members, status["header"]["cluster_id"].clone(), status["dbSizeQuota"].clone())
    };
    let theirs = told(harness::command(peer("etcd", "etcd")), "etcd");
    assert_eq!(told(rusd(), "rusd"), theirs);
}

/// As with etcd, which looks at them where there is no log yet: rusd called members of other numbers, or did not start.
#[test]
fn flags_of_the_beginning_mean_nothing_where_there_are_data() {
    let servers = crate::group::group(3, "http", &[]);
    servers[0].etcdctl(&["put", "k", "v"]);
    let members = servers[0].etcdctl(&["member", "list"]);
    let later = |(directory, mut flags): (tempfile::TempDir, Vec<String>)| {
        flags.retain(|flag| !flag.starts_with("--initial-"));
        flags.extend(
            ["cluster=stranger=http://127.0.0.1:1", "cluster-token=t", "advertise-peer-urls=http://127.0.0.1:2"]
                .map(|flag| format!("--initial-{flag}")),
        );
        Rusd::spawn(directory, flags)
    };
    let killed = servers.into_iter().map(Rusd::kill).collect::<Vec<_>>();
    let started = killed.into_iter().map(later).collect::<Vec<_>>();
    for server in &started.into_iter().map(Starting::ready).collect::<Vec<_>>() {
        assert_eq!(server.etcdctl(&["get", "k", "--print-value-only"]), "v\n");
        assert_eq!(server.etcdctl(&["member", "list"]), members);
    }
}

/// As with etcd, which compares what names mean.
#[test]
fn a_member_begins_where_its_flags_say_the_same_of_it_only() {
    let port = free_address().port();
    let flags = |host: &str| {
        let flags = ["listen-peer-urls", "initial-cluster=default", "initial-advertise-peer-urls"];
        let hosts = ["127.0.0.1", "127.0.0.1", host];
        flags.iter().zip(hosts).map(|(flag, host)| format!("--{flag}=http://{host}:{port}")).collect::<Vec<_>>()
    };
    let said = Rusd::spawn(harness::folder(), flags("127.0.0.2")).refusal();
    assert!(said.contains("--initial-advertise-peer-urls: is http://127.0.0.2:"), "{said}");
    let server = Rusd::spawn(harness::folder(), flags("localhost")).ready();
    server.etcdctl(&["put", "k", "v"]);
}

/// They are not part of rusd, and need not be.
#[test]
fn etcds_own_gateway_and_proxy_work_in_front_of_it() {
    let server = Rusd::start(&[]);
    let by = |arguments: &[&str], listen: &str| {
        let mut command = harness::command(peer("etcd", "etcd"));
        command.args(arguments).args([listen]).stdout(Stdio::null()).stderr(Stdio::null());
        Process::start(&mut command)
    };
    let ctl = |endpoint: &str, arguments: &[&str]| {
        let mut command = Command::new(peer("etcd", "etcdctl"));
        let output = command.args(["--endpoints", endpoint, "--command-timeout=2s"]).args(arguments).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    };
    let [gateway, proxy] = [(); 2].map(|()| free_address().to_string());
    let endpoints = format!("--endpoints={}", server.address());
    let _gateway = by(&["gateway", "start", &endpoints], &format!("--listen-addr={gateway}"));
    let _proxy = by(&["grpc-proxy", "start", &endpoints], &format!("--listen-addr={proxy}"));
    for (number, address) in [gateway, proxy].iter().enumerate() {
        let key = number.to_string();
        until("an answer through it", || ctl(address, &["put", &key, "value"]).is_some());
        assert_eq!(ctl(address, &["get", &key, "--print-value-only"]).unwrap(), "value\n");
        assert_eq!(server.etcdctl(&["get", &key, "--print-value-only"]), "value\n");
    }
}
