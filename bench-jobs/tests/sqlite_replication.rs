//! `bench-job` beside real replicators of SQLite: every database is compared with what arrived in the object store, and what is
//! missing there is noticed.
//!
//! Needs litestream and versitygw in the peers folder (`peers/fetch litestream versitygw`). A run may end as hindered by a busy machine,
//! which says nothing about the replica.

// Helpers of a test fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use harness::{Process, TempDir, command, free_port, peer, until};
use serde_json::{Value, json};
use storebench_crds::engine::object_store::{ACCESS_KEY, BUCKET, PREFIX, REGION, ROLE, SECRET_KEY};
use storebench_crds::job::{JobLine, JobOutcome, Phase};
use storebench_crds::measure::Reading;

use support::job::{Ended, Job};

/// Litestream on a directory, and the object store that it fills.
struct Replicator {
    folder: TempDir,
    store_port: u16,
    _store: Process,
    _litestream: Process,
}

impl Replicator {
    fn start() -> Self {
        let (versitygw, litestream) = (peer("versitygw", "versitygw"), peer("litestream", "litestream"));
        let folder = harness::folder_on_disk();
        let place = |name: &str| folder.path().join(name);
        for name in ["shared", "data", &format!("objects/{BUCKET}")] {
            std::fs::create_dir_all(place(name)).unwrap();
        }
        let (store_port, metrics_port) = (free_port(), free_port());
        let mut store = command(versitygw);
        store.args(["--port", &format!("127.0.0.1:{store_port}"), "--health", "/healthz", "--quiet", "posix"]);
        store.arg(place("objects")).env("ROOT_ACCESS_KEY", ACCESS_KEY).env("ROOT_SECRET_KEY", SECRET_KEY);
        store.stdout(Stdio::null()).stderr(Stdio::null());
        let store = Process::start(&mut store);
        until("versitygw", || std::net::TcpStream::connect(("127.0.0.1", store_port)).is_ok());
        // By default files are merged at each full half minute: what a test takes away or damages then might have been read already.
        let settings = format!(
            "addr: 127.0.0.1:{metrics_port}
access-key-id: {ACCESS_KEY}
secret-access-key: {SECRET_KEY}
logging: {{ level: warn }}
levels: [{{ interval: 1h }}]
dbs:
- dir: {shared}
  pattern: \"*.db\"
  watch: true
  monitor-interval: 100ms
  meta-path: {data}
  replica: {{ type: s3, endpoint: \"http://127.0.0.1:{store_port}\", bucket: {BUCKET}, path: {PREFIX}, region: {REGION}, force-path-style: true, sync-interval: 100ms }}
",
            shared = place("shared").display(),
            data = place("data").display(),
        );
        std::fs::write(place("litestream.yml"), settings).unwrap();
        let mut litestream = command(litestream);
        litestream.args(["replicate", "-config"]).arg(place("litestream.yml")).env_remove("AWS_CA_BUNDLE");
        // It complains when the directory is removed under it, at the end of the test.
        litestream.stdout(Stdio::null()).stderr(Stdio::null());
        let litestream = Process::start(&mut litestream);
        until("litestream", || std::net::TcpStream::connect(("127.0.0.1", metrics_port)).is_ok());
        Self { folder, store_port, _store: store, _litestream: litestream }
    }

    fn job(&self, parameters: Value, load: Value) -> Job {
        self.job_with_tool(parameters, load, &[])
    }

    /// With Litestream's tool, which is told more.
    fn job_with_tool(&self, parameters: Value, load: Value, more: &[&str]) -> Job {
        let url = self.url();
        let arguments = [&["restore"], more, &["-o", "{output}", &url]].concat();
        self.job_with(parameters, load, &peer("litestream", "litestream"), &arguments)
    }

    /// Where the replica of a database is.
    fn url(&self) -> String {
        format!(
            "s3://{BUCKET}/{PREFIX}/{{database}}?endpoint=http://127.0.0.1:{}&region={REGION}&forcePathStyle=true",
            self.store_port
        )
    }

    /// With a tool of any kind.
    fn job_with(&self, parameters: Value, load: Value, program: &Path, arguments: &[&str]) -> Job {
        Job::start(
            &json!({
                "restoreTool": {
                    "name": "litestream", "program": program, "arguments": arguments,
                    "environment": {
                        "LITESTREAM_ACCESS_KEY_ID": ACCESS_KEY, "LITESTREAM_SECRET_ACCESS_KEY": SECRET_KEY,
                    },
                },
                "run": "test", "arm": "litestream", "trial": 0, "seed": 42,
                "endpoints": ["127.0.0.1:1"],
                "sharedDirectory": self.folder.path().join("shared"),
                "companions": { ROLE: format!("127.0.0.1:{}", self.store_port) },
                "faultProxy": format!("127.0.0.1:{}", free_port()),
                "workloads": [{ "name": "w", "sqliteReplication": parameters, "load": load }],
            }),
            &[],
        )
    }

    /// The files of a replica that came from its WAL, in order.
    fn files(&self, database: &str) -> Vec<PathBuf> {
        let folder = self.folder.path().join("objects").join(BUCKET).join(PREFIX).join(database).join("0000");
        let files = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
        let mut files: Vec<PathBuf> = files.filter(|path| path.is_file()).collect();
        files.sort();
        files
    }
}

fn reading(ended: &Ended, wanted: &str) -> Option<Reading> {
    ended.lines.iter().find_map(|line| match line {
        JobLine::Measure { measure, reading, .. } if measure == wanted => Some(reading.clone()),
        _ => None,
    })
}

/// What is wrong with the first database, for which the job ended.
fn wrong_answer(ended: &Ended) -> &str {
    let JobOutcome::WrongAnswer { key, detail, .. } = &ended.summary.outcome else { panic!("{:?}", ended.summary) };
    assert_eq!(key, "0000.db");
    detail
}

fn left_behind(shared: &Path) -> Vec<String> {
    let names = std::fs::read_dir(shared).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.contains(".db")).collect()
}

#[test]
fn every_row_of_every_database_is_found_in_the_object_store() {
    let replicator = Replicator::start();
    let parameters = json!({ "operation": "Write", "databases": 3, "rows": 300, "rowsPerTransaction": 3 });
    let load = json!({ "connections": 2, "threads": 2, "mode": "OpenLoop", "rate": 60, "duration": "1500ms", "warmUp": "100ms" });
    let ended = replicator.job(parameters, load).end();
    let measured = ended.measured();
    assert_eq!((measured.operations, measured.errors, measured.verified), (90, 0, 900));
    let Some(Reading::Durations(lags)) = reading(&ended, "replicationLag") else { panic!("{:?}", ended.lines) };
    // Of three databases that are all watched; of commits within a millisecond, as of a loader that is late, the first is waited for.
    let lags_count = lags.decode().unwrap().len();
    assert!((60..=90).contains(&lags_count), "one for each commit: {lags_count}");
    assert!(lags.summary.max_nanos > 1_000_000, "an upload follows a commit: {:?}", lags.summary);
    let Some(Reading::Total(objects)) = reading(&ended, "replicaObjects") else { panic!("{:?}", ended.lines) };
    let files: usize = (0..3).map(|number| replicator.files(&format!("{number:04}.db")).len()).sum();
    assert!(objects >= files as u64 && files >= 6, "{objects} objects, {files} files");
    assert_eq!(left_behind(&replicator.folder.path().join("shared")), Vec::<String>::new());
}

#[test]
fn idle_databases_are_compared_as_well() {
    let replicator = Replicator::start();
    let parameters = json!({ "operation": "Idle", "databases": 5, "rows": 50 });
    let ended = replicator.job(parameters, json!({ "duration": "500ms", "warmUp": "0s" })).end();
    let measured = ended.measured();
    assert!((3..=6).contains(&measured.operations), "a read each 100 ms: {}", measured.operations);
    assert_eq!((measured.errors, measured.verified), (0, 250));
}

#[test]
fn a_replica_with_a_hole_is_a_wrong_answer() {
    let replicator = Replicator::start();
    let parameters = json!({ "operation": "Write", "rows": 100 });
    let load = json!({ "mode": "OpenLoop", "rate": 50, "duration": "2s", "warmUp": "0s" });
    let mut job = replicator.job(parameters, load);
    job.until(Phase::Measure);
    until("some files", || replicator.files("0000.db").len() >= 5);
    std::fs::remove_file(&replicator.files("0000.db")[2]).unwrap();
    let ended = job.end();
    let detail = wrong_answer(&ended);
    assert!(detail.starts_with("its replica has a hole: TXID 3 is missing of "), "{detail}");
}

#[test]
fn a_replica_that_holds_other_pages_is_a_wrong_answer() {
    let replicator = Replicator::start();
    let load = json!({ "mode": "OpenLoop", "rate": 50, "duration": "2s", "warmUp": "0s" });
    let mut job = replicator.job(json!({ "operation": "Write", "rows": 100 }), load);
    job.until(Phase::Measure);
    until("some files", || replicator.files("0000.db").len() >= 5);
    let file = &replicator.files("0000.db")[2];
    let mut content = std::fs::read(file).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    std::fs::write(file, content).unwrap();
    let ended = job.end();
    let detail = wrong_answer(&ended);
    assert!(detail.contains("0000000000000003-0000000000000003.ltx: "), "{detail}");
}

/// The outage is one that nobody notices, for the replicator goes past the proxy: what counts is a tool that brings back less than was acknowledged.
#[test]
fn what_a_restore_after_an_outage_lacks_is_counted_as_lost_and_is_not_wrong() {
    let replicator = Replicator::start();
    let outage = json!({ "kind": "BlackHole", "after": "200ms", "duration": "500ms" });
    let parameters = json!({ "operation": "Outage", "rows": 100, "rowsPerTransaction": 4, "outage": outage });
    let load = json!({ "mode": "OpenLoop", "rate": 50, "duration": "2s", "warmUp": "0s" });
    let ended = replicator.job_with_tool(parameters, load, &["-txid", "0000000000000003"]).end();
    let measured = ended.measured();
    assert_eq!((measured.operations, measured.verified), (100, 100), "as it was at an earlier commit: {measured:?}");
    let Some(Reading::Total(transactions)) = reading(&ended, "lostTransactions") else { panic!("{:?}", ended.lines) };
    let Some(Reading::Total(rows)) = reading(&ended, "lostRows") else { panic!("{:?}", ended.lines) };
    assert!((50..=100).contains(&transactions), "{transactions}");
    assert!((50..=100).contains(&rows), "{rows} of 100 rows");
}

#[test]
fn a_tool_that_restores_an_older_state_is_a_wrong_answer() {
    let replicator = Replicator::start();
    let parameters = json!({ "operation": "Restore", "rows": 100, "increments": 3 });
    let load = json!({ "total": 2, "warmUp": "0s", "timeout": "1m" });
    let ended = replicator.job_with_tool(parameters, load, &["-txid", "0000000000000002"]).end();
    let detail = wrong_answer(&ended);
    assert!(detail.starts_with("expected transaction 4 as the last, found "), "{detail}");
}

/// What it restores is right, and is nothing that a lost machine could have restored.
#[test]
fn a_tool_that_restores_without_the_object_store_is_a_wrong_answer() {
    let replicator = Replicator::start();
    let (litestream, kept) = (peer("litestream", "litestream"), replicator.folder.path().join("kept"));
    let script = "[ -f $3 ] || $4 restore -o $3 $2; cp $3 $1";
    let arguments =
        ["-c", script, "sh", "{output}", &replicator.url(), kept.to_str().unwrap(), litestream.to_str().unwrap()];
    let parameters = json!({ "operation": "Restore", "rows": 5_000, "rowBytes": 4_000, "increments": 1 });
    let load = json!({ "total": 10, "warmUp": "0s", "timeout": "1m" });
    let ended = replicator.job_with(parameters, load, Path::new("/bin/sh"), &arguments).end();
    let detail = wrong_answer(&ended);
    assert!(detail.starts_with("was restored from elsewhere than the object store: its snapshot has "), "{detail}");
}

/// Who reads the objects is none of these.
#[test]
fn a_tool_that_restores_from_the_object_store_is_believed() {
    let replicator = Replicator::start();
    let parameters = json!({ "operation": "Restore", "rows": 5_000, "rowBytes": 4_000, "increments": 1 });
    let ended = replicator.job(parameters, json!({ "total": 2, "warmUp": "0s", "timeout": "1m" })).end();
    assert_eq!(ended.measured().operations, 2);
}

#[test]
fn a_job_whose_outage_nobody_makes_is_refused() {
    let outage = |kind: &str| {
        let outage = json!({ "kind": kind, "after": "200ms", "duration": "500ms" });
        let parameters = json!({ "operation": "Outage", "outage": outage });
        let spec = json!({
            "run": "test", "arm": "litestream", "trial": 0, "seed": 42, "endpoints": ["127.0.0.1:1"], "sharedDirectory": "/tmp",
            "companions": { ROLE: "127.0.0.1:1" },
            "restoreTool": { "name": "none", "program": "/bin/true", "arguments": [] },
            "workloads": [{ "name": "w", "sqliteReplication": parameters, "load": { "duration": "1s" } }],
        });
        let (status, said) = Job::start(&spec, &[]).fail();
        assert!(!status.success());
        said
    };
    assert!(outage("Kill").contains("strikesMembers: is missing"));
    assert!(outage("BlackHole").contains("faultProxy: is missing"));
}

#[test]
fn a_job_without_a_directory_or_an_object_store_is_refused() {
    let job = |directory: Option<&str>| {
        let spec = json!({
            "run": "test", "arm": "litestream", "trial": 0, "seed": 42, "endpoints": ["127.0.0.1:1"],
            "sharedDirectory": directory,
            "workloads": [{ "name": "w", "sqliteReplication": { "operation": "Write" }, "load": { "total": 1 } }],
        });
        let mut spec = spec;
        if directory.is_none() {
            spec.as_object_mut().unwrap().remove("sharedDirectory");
        }
        let (status, said) = Job::start(&spec, &[]).fail();
        assert!(!status.success());
        said
    };
    assert!(job(None).contains("sharedDirectory: is missing"));
    assert!(job(Some("/tmp")).contains("companions.object-store: is missing"));
}
