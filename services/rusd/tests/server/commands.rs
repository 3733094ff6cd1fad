//! Every command of etcdctl and etcdutl, as their own help lists them: each is run against rusd or what comes of it, or stands in a
//! list of those that cannot be, with the reason. A command that is in neither fails the test.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::{Etcd, output, peer};

use crate::process::{Rusd, rusd};

/// What is run: the command, what follows it, what it reads, and what it prints among other things.
struct Run(&'static str, &'static [&'static str], &'static str, &'static str);

/// One after the other against one server. `LEASE` stands for the lease that was granted last, `SELF` for the member's number, `FILE`
/// for a file, `OTHER` for the member that was added last.
const RUNS: &[Run] = &[
    Run("put", &["a", "1"], "", "OK"),
    // Before any compaction as well as after one.
    Run("defrag", &[], "", "Finished defragmenting"),
    Run("put", &["--prev-kv", "--", "a"], "2", "OK\na\n1\n"),
    Run("put", &["b/1", "x"], "", "OK"),
    Run("put", &["b/2", "y"], "", "OK"),
    Run("get", &["a", "--rev=2", "--print-value-only"], "", "1\n"),
    Run("get", &["b/", "--prefix", "--keys-only", "--order=DESCEND", "--sort-by=KEY"], "", "b/2\n\nb/1\n"),
    Run("get", &["", "--from-key", "--limit=1", "--count-only", "-w=fields"], "", "\"Count\" : 3"),
    Run("get", &["b/", "--prefix", "--stream", "--consistency=s", "--print-value-only"], "", "x\ny\n"),
    Run("get", &["", "--from-key", "--min-mod-rev=4", "--max-mod-rev=4", "--print-value-only"], "", "x\n"),
    Run("get", &["", "--from-key", "--min-create-rev=5", "--max-create-rev=5", "--print-value-only"], "", "y\n"),
    Run("txn", &[], "ver(\"a\") = \"2\"\n\nput c 1\nget a\n\ndel a\n\n", "SUCCESS\n\nOK\n\na\n2\n"),
    Run("txn", &["--interactive"], "mod(\"a\") > \"99\"\n\nput c 2\n\nget c\n\n", "FAILURE\n\nc\n1\n"),
    Run("del", &["b/", "--prefix", "--prev-kv"], "", "2\nb/1\nx\nb/2\ny\n"),
    Run("compaction", &["3", "--physical"], "", "compacted revision 3"),
    Run("lease grant", &["600"], "", "granted with TTL(600s)"),
    Run("put", &["leased", "v", "--lease=LEASE"], "", "OK"),
    Run("lease list", &[], "", "LEASE"),
    Run("lease timetolive", &["LEASE", "--keys"], "", "attached keys([leased])"),
    Run("lease keep-alive", &["LEASE", "--once"], "", "keepalived with TTL(600)"),
    Run("lease revoke", &["LEASE"], "", "revoked"),
    Run("lock", &["name", "echo", "held"], "", "held\n"),
    Run("alarm list", &[], "", ""),
    Run("alarm disarm", &[], "", ""),
    Run("defrag", &[], "", "Finished defragmenting"),
    Run("endpoint health", &[], "", "is healthy"),
    Run("endpoint status", &["-w=fields"], "", "\"IsLearner\" : false"),
    Run("endpoint hashkv", &["--rev=4"], "", ", "),
    Run("downgrade validate", &["3.6.0"], "", "Downgrade validate success"),
    Run("downgrade enable", &["3.6.0"], "", "Downgrade enable success"),
    Run("downgrade cancel", &[], "", "Downgrade cancel success"),
    Run("move-leader", &["SELF"], "", "Leadership transferred"),
    Run("snapshot save", &["FILE"], "", "Snapshot saved at FILE"),
    Run("check datascale", &["--auto-compact", "--auto-defrag"], "", "PASS"),
    Run("role add", &["reader"], "", "Role reader created"),
    Run("role grant-permission", &["reader", "read", "a", "--prefix"], "", "Role reader updated"),
    Run("role get", &["reader"], "", "[a, b) (prefix a)"),
    Run("role revoke-permission", &["reader", "a", "--prefix"], "", "revoked"),
    Run("role list", &[], "", "reader"),
    Run("user add", &["root:secret"], "", "User root created"),
    Run("user add", &["alice", "--interactive=false"], "word\n", "User alice created"),
    Run("user add", &["bob", "--no-password"], "", "User bob created"),
    Run("user passwd", &["alice", "--interactive=false"], "other\n", "Password updated"),
    Run("user grant-role", &["root", "root"], "", "granted to user root"),
    Run("user grant-role", &["alice", "reader"], "", "granted to user alice"),
    Run("user get", &["alice", "--detail"], "", "reader"),
    Run("user list", &[], "", "alice\nbob\nroot\n"),
    Run("auth enable", &[], "", "Authentication Enabled"),
    Run("auth status", &["--user=alice:other"], "", "Authentication Status: true"),
    Run("user revoke-role", &["alice", "reader", "--user=root:secret"], "", "revoked"),
    Run("auth disable", &["--user=root:secret"], "", "Authentication Disabled"),
    Run("user delete", &["bob"], "", "User bob deleted"),
    Run("role delete", &["reader"], "", "Role reader deleted"),
    // A learner that never starts.
    Run("member add", &["next", "--learner", "--peer-urls=http://127.0.0.1:1"], "", "added as learner to cluster"),
    Run("member list", &["-w=fields"], "", "\"IsLearner\" : true"),
    Run("member update", &["OTHER", "--peer-urls=http://127.0.0.1:2"], "", "updated in cluster"),
    Run("member remove", &["OTHER"], "", "removed from cluster"),
];

/// Run below, since they go on until they are stopped, or want several members.
const ELSEWHERE: &[&str] = &["watch", "elect", "make-mirror", "member promote"];

/// What is not run, and why.
const NOT_RUN: &[(&str, &str)] = &[
    ("check perf", "it takes a minute, and judges the machine: 150 writes a second, none slower than half a second"),
    ("completion", "it asks no server"),
    ("help", "it asks no server"),
    ("options", "it asks no server"),
    ("version", "it asks no server"),
];

/// Commands without commands below them, as a program's help lists them.
fn listed(program: &Path, above: &str) -> BTreeSet<String> {
    let help = output(Command::new(program).args(above.split_whitespace()).arg("--help"));
    let mut found = BTreeSet::new();
    let mut lists_commands = false;
    for line in help.lines() {
        if !line.starts_with(' ') {
            let heading = line.to_lowercase();
            lists_commands = heading.trim_end_matches(':').ends_with("commands") || (lists_commands && line.is_empty());
        } else if let (true, Some(name)) = (lists_commands, line.split_whitespace().next()) {
            let full = format!("{above} {name}").trim().to_owned();
            // The commands of `completion` are shells.
            let below = if matches!(name, "help" | "completion") { BTreeSet::new() } else { listed(program, &full) };
            found.extend(if below.is_empty() { BTreeSet::from([full]) } else { below });
        }
    }
    found
}

fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    names.into_iter().map(str::to_owned).collect()
}

#[test]
fn every_command_of_etcdctl_is_tested_or_has_a_reason() {
    let tested = RUNS.iter().map(|run| run.0).chain(ELSEWHERE.iter().copied());
    let known = names(tested.chain(NOT_RUN.iter().map(|(name, _)| *name)));
    assert_eq!(listed(&peer("etcd", "etcdctl"), ""), known);
}

#[test]
fn every_command_of_etcdctl_does_what_it_does_with_etcd() {
    let server = Rusd::start(&[]);
    let file = server.directory().join("snapshot");
    let members = server.etcdctl(&["member", "list"]);
    let own = members.split(',').next().unwrap().to_owned();
    let (mut lease, mut other) = (String::new(), String::new());
    for Run(name, arguments, input, prints) in RUNS {
        let fill = |text: &str| {
            let text = text.replace("LEASE", &lease).replace("SELF", &own).replace("OTHER", &other);
            text.replace("FILE", file.to_str().unwrap())
        };
        let arguments = name.split(' ').chain(arguments.iter().copied()).map(fill).collect::<Vec<_>>();
        let arguments = arguments.iter().map(String::as_str).collect::<Vec<_>>();
        let mut client = server.command(&arguments).stdin(Stdio::piped()).spawn().unwrap();
        client.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = client.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        let said = String::from_utf8(output.stdout).unwrap();
        let expected = fill(prints);
        // etcdctl says of defragmentation and of health on either of its outputs.
        assert!(said.contains(&expected) || errors.contains(&expected), "{arguments:?}: {said}{errors}");
        match *name {
            "lease grant" => said.split(' ').nth(1).unwrap().clone_into(&mut lease),
            "member add" => said.split_whitespace().nth(1).unwrap().clone_into(&mut other),
            _ => {}
        }
    }
}

/// The first line of a client that goes on, which is stopped then.
fn first_line(client: &mut Command) -> String {
    let mut client = client.spawn().unwrap();
    let line = BufReader::new(client.stdout.take().unwrap()).lines().next();
    client.kill().unwrap();
    client.wait().unwrap();
    line.unwrap().unwrap()
}

#[test]
fn commands_of_etcdctl_that_go_on_tell_what_happens() {
    let server = Rusd::start(&[]);
    server.etcdctl(&["put", "k", "v"]);
    assert_eq!(first_line(&mut server.command(&["watch", "k", "--rev=1"])), "PUT");
    let mut candidate = server.command(&["elect", "name", "proposal"]).spawn().unwrap();
    let mut lines = BufReader::new(candidate.stdout.take().unwrap()).lines();
    let key = lines.next().unwrap().unwrap();
    assert!(key.starts_with("name/"), "{key}");
    assert_eq!(first_line(&mut server.command(&["elect", "name", "--listen"])), key);
    candidate.kill().unwrap();
    candidate.wait().unwrap();

    let mirror = Rusd::start(&[]);
    let mut mirroring =
        server.command(&["make-mirror", mirror.address(), "--prefix=k", "--dest-prefix=m"]).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    while mirror.etcdctl(&["get", "m", "--print-value-only"]) != "v\n" {
        assert!(Instant::now() < deadline, "nothing is mirrored");
    }
    mirroring.kill().unwrap();
    mirroring.wait().unwrap();
}

/// What etcdutl does with a snapshot of rusd, and with what comes of it.
#[test]
fn every_command_of_etcdutl_works_on_a_snapshot() {
    let not_run = ["completion", "help", "version"];
    let run = ["snapshot status", "snapshot restore", "hashkv", "defrag", "migrate"];
    assert_eq!(listed(&peer("etcd", "etcdutl"), ""), names(not_run.into_iter().chain(run)));

    let server = Rusd::start(&[]);
    for value in ["1", "2", "3"] {
        server.etcdctl(&["put", "k", value]);
    }
    server.etcdctl(&["compaction", "3"]);
    let field = |text: String, place: usize| text.split(", ").nth(place).unwrap().to_owned();
    let before = field(server.etcdctl(&["endpoint", "hashkv"]), 1);
    let file = server.directory().join("snapshot");
    server.etcdctl(&["snapshot", "save", file.to_str().unwrap()]);
    let utl =
        |arguments: &[&str], path: &[&Path]| output(Command::new(peer("etcd", "etcdutl")).args(arguments).args(path));
    let restored = server.directory().join("restored");
    utl(&["snapshot", "restore", "--data-dir"], &[&restored, &file]);
    // These open it to write: it is no snapshot any more.
    assert!(utl(&["snapshot", "status"], &[&file]).contains(", 4, "));
    assert_eq!(field(utl(&["hashkv"], &[&file]), 0), before);
    utl(&["defrag", "--data-dir"], &[&restored]);
    utl(&["migrate", "--target-version=3.6", "--data-dir"], &[&restored]);
    utl(&["migrate", "--target-version=3.7", "--data-dir"], &[&restored]);
    let etcd = Etcd::start(&restored);
    let ctl = |arguments: &[&str]| output(&mut etcd.ctl(arguments));
    assert_eq!(ctl(&["get", "k", "--print-value-only"]), "3\n");
    assert_eq!(field(ctl(&["endpoint", "hashkv"]), 1), before);
    etcd.stop();

    // What etcdutl does to a data directory is not for rusd's: it refuses, and changes nothing.
    let (directory, _) = server.kill();
    for arguments in [&["defrag", "--data-dir"][..], &["migrate", "--target-version=3.6", "--data-dir"]] {
        let data = directory.path().join("data");
        let output = Command::new(peer("etcd", "etcdutl")).args(arguments).arg(&data).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
    }
    assert_eq!(Rusd::start_on(directory, &[]).etcdctl(&["get", "k", "--print-value-only"]), "3\n");
}

/// Disaster recovery: all members of a new group begin with the same snapshot.
#[test]
fn a_snapshot_becomes_a_group_of_three() {
    let server = Rusd::start(&[]);
    for value in ["1", "2", "3"] {
        server.etcdctl(&["put", "k", value]);
    }
    let hash = |server: &Rusd| server.etcdctl(&["endpoint", "hashkv"]).split_once(", ").unwrap().1.to_owned();
    let before = hash(&server);
    let file = server.directory().join("snapshot");
    server.etcdctl(&["snapshot", "save", file.to_str().unwrap()]);
    let flags = crate::group::flags_of_three();
    let starting = flags.into_iter().map(|flags| {
        let directory = harness::folder();
        let mut import = rusd();
        import.arg("import").arg(&file).arg("--data-dir").arg(directory.path().join("data")).args(&flags);
        assert!(output(&mut import).contains("imported revision 4: 1 keys"));
        Rusd::spawn(directory, flags)
    });
    let group = starting.collect::<Vec<_>>().into_iter().map(crate::process::Starting::ready).collect::<Vec<_>>();
    for member in &group {
        assert_eq!(hash(member), before);
        assert_eq!(member.etcdctl(&["get", "k", "--rev=2", "--print-value-only"]), "1\n");
    }
    assert!(group[1].etcdctl(&["put", "k", "4", "-w", "json"]).contains("\"revision\":5"));
    assert_eq!(group[2].etcdctl(&["get", "k", "--print-value-only"]), "4\n");
}

/// As etcd: `--physical` returns when what was compacted is gone, here.
#[test]
fn a_physical_compaction_waits_until_it_is_done() {
    let server = Rusd::start(&[]);
    // So many changes that one step of the work that compaction leaves is not all of it.
    let puts: String = (0..100).map(|key| format!("put k{key} {}\n", "v".repeat(500))).collect();
    for _ in 0..30 {
        let mut client = server.command(&["txn"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        client.stdin.take().unwrap().write_all(format!("\n{puts}\n\n").as_bytes()).unwrap();
        assert!(client.wait().unwrap().success());
    }
    let size = |server: &Rusd| {
        let said = server.etcdctl(&["endpoint", "status", "-w", "json"]);
        let status: serde_json::Value = serde_json::from_str(&said).unwrap();
        status[0]["Status"]["dbSizeInUse"].as_u64().unwrap()
    };
    let before = size(&server);
    server.etcdctl(&["compact", "31", "--physical"]);
    assert!(size(&server) < before / 20, "{} of {before} bytes are left", size(&server));
}
