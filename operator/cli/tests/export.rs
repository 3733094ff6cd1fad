//! Saved runs are copied to an object store, to a branch in Git, to a receiver of metrics: against versitygw, git, and a listener that looks at
//! what it is sent.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod finished;
mod kept;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use finished::Finished;
use kept::keep;
use serde_json::{Value, json};

/// A folder in which programs run that know nobody.
struct Desk {
    folder: harness::TempDir,
}

impl Desk {
    fn new() -> Self {
        Self { folder: harness::folder() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn keep(&self, day: u32, factor: f64) -> PathBuf {
        keep(&self.path().join("runs"), "nightly", day, factor)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = harness::command(program);
        command.current_dir(self.path()).stdin(Stdio::null()).env("HOME", self.path()).env("GIT_CONFIG_NOSYSTEM", "1");
        for name in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{name}_NAME"), "a").env(format!("GIT_{name}_EMAIL"), "a@b");
        }
        command
    }

    fn storebench(&self, arguments: &[&str]) -> Finished {
        let mut command = self.command(env!("CARGO_BIN_EXE_storebench"));
        command.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET);
        Finished::of(command.args(arguments).output().unwrap())
    }

    #[track_caller]
    fn git(&self, arguments: &[&str]) -> String {
        harness::output(self.command("git").args(arguments)).trim_end().to_owned()
    }
}

#[track_caller]
fn ok(finished: &Finished) -> &str {
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{}", finished.stdout);
    &finished.stdout
}

const KEY: &str = "export-test";
const SECRET: &str = "export-secret";

struct Gateway {
    _process: harness::Process,
    endpoint: String,
    folder: harness::TempDir,
}

/// versitygw with a bucket `bucket`.
fn gateway() -> Gateway {
    let folder = harness::folder();
    // Metadata lie beside the files: not every file system has extended attributes.
    let (data, metadata) = (folder.path().join("data"), folder.path().join("metadata"));
    std::fs::create_dir_all(data.join("bucket")).unwrap();
    std::fs::create_dir(&metadata).unwrap();
    let address = harness::free_address();
    let mut command = harness::command(harness::peer("versitygw", "versitygw"));
    command.args(["--access", KEY, "--secret", SECRET, "--region", "us-east-1", "--port", &address.to_string()]);
    command.args(["posix", "--sidecar"]).args([metadata, data]).stdout(Stdio::null()).stderr(Stdio::null());
    let process = harness::Process::start(&mut command);
    harness::until("the gateway", || TcpStream::connect(address).is_ok());
    Gateway { _process: process, endpoint: format!("http://{address}"), folder }
}

#[test]
fn a_run_is_copied_to_s3_once_and_nothing_there_is_written_over() {
    let (gateway, desk) = (gateway(), Desk::new());
    let folder = desk.keep(1, 1.0);
    let export = |runs: &str| {
        desk.storebench(&["export", runs, "--to", "s3://bucket/some/prefix", "--endpoint", &gateway.endpoint])
    };
    let there = "s3://bucket/some/prefix/nightly/20270101T010000Z-Passed/";
    let name = "nightly/20270101T010000Z-Passed";
    assert_eq!(ok(&export("runs")), format!("{name} copied to {there}\n"));
    let objects = gateway.folder.path().join("data/bucket/some/prefix").join(name);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&objects).unwrap().flatten() {
        let file = entry.file_name().into_string().unwrap();
        assert_eq!(std::fs::read(entry.path()).unwrap(), std::fs::read(folder.join(&file)).unwrap(), "{file}");
        names.push(file);
    }
    names.sort();
    assert_eq!(names, ["report.html", "report.json", "report.md", "run.yaml", "services.json"]);
    assert_eq!(ok(&export("runs/nightly/latest")), format!("{name} is at {there} already\n"));
    std::fs::write(folder.join("report.md"), "another").unwrap();
    export("runs").error(&["report.md: is there with other content", "export to another prefix"]);
    assert_ne!(std::fs::read(objects.join("report.md")).unwrap(), b"another");
    desk.storebench(&["export", "runs", "--to", "s3://nowhere", "--endpoint", &gateway.endpoint]).error(&[
        "s3://nowhere/nightly/",
        "NoSuchBucket",
        "check the bucket",
    ]);
}

#[test]
fn a_run_becomes_a_commit_on_a_branch_and_no_checkout_changes() {
    let desk = Desk::new();
    desk.git(&["init", "--quiet", "--initial-branch", "main"]);
    let write = |name: &str| std::fs::write(desk.path().join(name), name).unwrap();
    write("a");
    std::fs::write(desk.path().join(".gitignore"), "runs\n").unwrap();
    desk.git(&["add", "."]);
    desk.git(&["commit", "--quiet", "--message", "Begin"]);
    // Something is staged, and something is not.
    write("staged");
    desk.git(&["add", "staged"]);
    std::fs::write(desk.path().join("a"), "changed").unwrap();
    let state = || (desk.git(&["status", "--porcelain"]), desk.git(&["rev-parse", "main"]));
    let before = state();
    let folder = desk.keep(1, 1.0);
    let export = || desk.storebench(&["export", "runs", "--to", "git:results:bench"]);
    let exported = export();
    let commit = desk.git(&["rev-parse", "results"]);
    let name = "nightly/20270101T010000Z-Passed";
    assert_eq!(ok(&exported), format!("{name} committed to git:results:bench as {commit}\n"));
    assert_eq!(desk.git(&["log", "--format=%s", "results"]), format!("Keep run {name}"));
    let report = std::fs::read_to_string(folder.join("report.json")).unwrap();
    assert_eq!(desk.git(&["show", &format!("results:bench/{name}/report.json")]), report.trim_end());
    assert_eq!(ok(&export()), format!("{name} is on git:results:bench already\n"));
    assert_eq!(desk.git(&["rev-parse", "results"]), commit);

    // The next night, from a folder below the root: beside the first, and on top of it.
    desk.keep(2, 3.0);
    let below = desk.path().join("runs/nightly");
    let mut command = desk.command(env!("CARGO_BIN_EXE_storebench"));
    command.current_dir(below).args(["export", ".", "--to", "git:results:bench"]);
    let second = Finished::of(command.output().unwrap());
    assert_eq!(second.code, Some(0), "{}", second.stderr);
    assert!(second.stderr.contains("only the newest of each run is exported"), "{}", second.stderr);
    assert!(second.stderr.contains("the folders of the 1 older ones"), "{}", second.stderr);
    assert_eq!(desk.git(&["rev-parse", "results~1"]), commit);
    let all = desk.git(&["ls-tree", "-r", "--name-only", "results"]);
    assert_eq!((all.lines().count(), all.lines().all(|file| file.starts_with("bench/nightly/2027010"))), (10, true));

    // What is there stays, and the branch with it.
    let tip = desk.git(&["rev-parse", "results"]);
    std::fs::write(folder.join("report.md"), "another").unwrap();
    let first = folder.to_str().unwrap();
    desk.storebench(&["export", first, "--to", "git:results:bench"])
        .error(&["git:results:bench: report.md is there with other content"]);
    desk.storebench(&["export", "runs", "--to", "git:main"]).error(&["git:main: the branch is checked out in "]);
    desk.storebench(&["export", "runs", "--to", "git:results:bench/nightly/20270102T010000Z-Passed/report.md"])
        .error(&["report.md is a file there"]);
    desk.storebench(&["export", "runs", "--to", "git:a..b"]).error(&["a..b cannot be the name of a branch"]);
    // Git would make branches of these that hide what they are taken for.
    desk.storebench(&["export", "runs", "--to", "git:HEAD"])
        .error(&["HEAD cannot be the name of a branch: write git:"]);
    desk.storebench(&["export", "runs", "--to", "git:refs/heads/x"]).error(&["refs/heads/x is no name", "write git:x"]);
    desk.storebench(&["export", "runs", "--to", "git:results:../x"]).error(&["../x cannot be a folder of a branch"]);
    assert_eq!(desk.git(&["rev-parse", "results"]), tip);
    assert_eq!(state(), before);

    // And is read from there.
    let compared = desk.storebench(&["compare", "git:results~1:bench", "git:results:bench", "-o", "json"]);
    assert_eq!(compared.code, Some(2), "{}{}", compared.stdout, compared.stderr);
    let compared: Value = serde_json::from_str(&compared.stdout).unwrap();
    assert_eq!(compared[0]["verdict"], "Regressed", "{compared}");
    let reported = desk.storebench(&["report", "git:results:bench/nightly", "-o", "json"]);
    let reported: Value = serde_json::from_str(&reported.stdout).unwrap();
    assert_eq!(reported["record"]["startedAt"], "2027-01-02T01:00:00Z", "the newest");
    let checked_out = desk.path().join("results");
    desk.git(&["worktree", "add", "--quiet", checked_out.to_str().unwrap(), "results"]);
    let reported = desk.storebench(&["report", "results/bench", "-o", "json"]);
    let reported: Value = serde_json::from_str(&reported.stdout).unwrap();
    assert_eq!(
        reported[0]["record"]["startedAt"].as_str().or(reported["record"]["startedAt"].as_str()),
        Some("2027-01-02T01:00:00Z")
    );
    desk.git(&["worktree", "remove", checked_out.to_str().unwrap()]);
    // Also by who copies it on: with all that lies beside the report.
    let copied = desk.storebench(&["export", "git:results~1:bench", "--to", "git:copies:bench"]);
    assert!(ok(&copied).starts_with(&format!("{name} committed to git:copies:bench as ")), "{}", copied.stdout);
    assert_eq!(desk.git(&["rev-parse", "copies:bench"]), desk.git(&["rev-parse", "results~1:bench"]));
    let history = desk.storebench(&["history", "git:results", "-o", "json"]);
    let history: Value = serde_json::from_str(&history.stdout).unwrap();
    assert_eq!(history[0]["runs"].as_array().map(Vec::len), Some(2), "{history}");
}

/// A receiver of metrics that answers each request with the next of these, and hands over what it was sent: the head, and the body.
fn receiver(answers: &'static [(&'static str, &'static str)]) -> (String, Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1/metrics", listener.local_addr().unwrap());
    let (sender, received) = channel();
    std::thread::spawn(move || {
        for (status, answer) in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
            }
            let length =
                head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            let mut body = vec![0; length.expect("a length")];
            reader.read_exact(&mut body).unwrap();
            sender.send((head, serde_json::from_slice(&body).unwrap())).unwrap();
            let length = answer.len();
            write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{answer}")
                .unwrap();
        }
    });
    (url, received)
}

#[test]
fn a_runs_figures_are_sent_as_metrics_of_its_end() {
    let desk = Desk::new();
    desk.keep(1, 2.0);
    let (url, received) = receiver(&[
        ("200 OK", "{}"),
        ("200 OK", ""),
        ("200 OK", r#"{"partialSuccess":{"rejectedDataPoints":"2","errorMessage":"out of bounds"}}"#),
        ("400 Bad Request", "no such\ntenant"),
        ("404 Not Found", "404 page not found"),
    ]);
    let mut command = desk.command(env!("CARGO_BIN_EXE_storebench"));
    command.args(["export", "runs", "--to", &url]).env("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20secret");
    let sent = Finished::of(command.output().unwrap());
    let (head, body) = received.recv().unwrap();
    assert!(head.starts_with("POST /v1/metrics HTTP/1.1\r\n"), "{head}");
    let head = head.to_lowercase();
    assert!(
        head.contains("content-type: application/json\r\n") && head.contains("authorization: bearer secret\r\n"),
        "{head}"
    );
    let scope = &body["resourceMetrics"][0]["scopeMetrics"][0];
    let metrics = scope["metrics"].as_array().unwrap();
    let points = |name: &str| {
        let metric =
            metrics.iter().find(|metric| metric["name"] == name).unwrap_or_else(|| panic!("no {name}: {body}"));
        metric["gauge"]["dataPoints"].as_array().unwrap().clone()
    };
    let attributes = |point: &Value| {
        let all = point["attributes"].as_array().unwrap().iter();
        all.map(|one| format!("{}={}", one["key"].as_str().unwrap(), one["value"]["stringValue"].as_str().unwrap()))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let throughput = points("storebench_result_throughput_per_second");
    let of_redis = throughput.iter().find(|point| attributes(point) == "run=nightly workload=set arm=redis").unwrap();
    // 500 requests in a tenth of a second and a little more.
    let per_second = of_redis["asDouble"].as_f64().unwrap();
    assert!((4_900.0..=5_000.0).contains(&per_second), "{of_redis}");
    // A minute after one o'clock.
    assert_eq!(of_redis["timeUnixNano"], "1798765260000000000");
    let verdicts: Vec<String> = points("storebench_run_verdict").iter().map(attributes).collect();
    assert_eq!(verdicts, ["run=nightly verdict=Passed"]);
    assert_eq!(points("storebench_comparison_ratio")[0]["asDouble"].as_f64().map(|ratio| ratio < 0.6), Some(true));
    let count: usize = metrics.iter().map(|metric| metric["gauge"]["dataPoints"].as_array().unwrap().len()).sum();
    assert_eq!(ok(&sent), format!("nightly/20270101T010000Z-Passed sent to {url}: {count} data points\n"));

    let again = || desk.storebench(&["export", "runs", "--to", &url]);
    ok(&again());
    assert_eq!(received.recv().unwrap().1, body, "the same samples");
    again().error(&[&format!("{url}: 2 of {count} data points were refused: out of bounds")]);
    again().error(&[": refused with 400: no such tenant: "]);
    again().error(&["--web.enable-otlp-receiver, at /api/v1/otlp/v1/metrics"]);
    let nobody = format!("http://{}/v1/metrics", harness::free_address());
    desk.storebench(&["export", "runs", "--to", &nobody]).error(&[&nobody, "that somebody listens there"]);
    let refused = desk.storebench(&["export", "runs", "--to", &nobody.replace("://", "://me:secret@")]);
    refused.error(&[&nobody.replace("://", "://…@"), "that somebody listens there"]);
    assert!(!refused.stderr.contains("secret"), "{}", refused.stderr);
}

/// A directory took the run to which `latest` leads, also where that was interrupted, and of two runs of a second the first; and it was not
/// looked at as deep as a branch is.
#[test]
fn a_directory_is_read_as_the_same_files_in_git_are() {
    let desk = Desk::new();
    let runs = desk.path().join("runs");
    let named = |folder: PathBuf, name: &str| std::fs::rename(&folder, folder.with_file_name(name)).unwrap();
    named(desk.keep(1, 1.0), "20270101T010000Z-2-Passed");
    desk.keep(1, 3.0);
    named(desk.keep(3, 9.0), "20270103T010000Z-unfinished");
    let latest = runs.join("nightly/latest");
    std::fs::remove_file(&latest).unwrap();
    std::os::unix::fs::symlink("20270103T010000Z-unfinished", &latest).unwrap();
    keep(&runs.join("of/a/team"), "weekly", 1, 1.0);
    std::os::unix::fs::symlink("nightly", runs.join("again")).unwrap();
    desk.git(&["init", "--quiet", "--initial-branch", "main"]);
    desk.git(&["add", "."]);
    desk.git(&["commit", "--quiet", "--message", "Keep runs"]);
    let alike = |command: &[&str]| {
        let [on_disk, in_git] = ["runs", "git:main:runs"].map(|source| {
            let words: Vec<&str> = command.iter().map(|word| if *word == "RUNS" { source } else { word }).collect();
            desk.storebench(&words)
        });
        assert_eq!(
            (on_disk.code, &on_disk.stdout),
            (in_git.code, &in_git.stdout),
            "{}{}",
            on_disk.stderr,
            in_git.stderr
        );
        serde_json::from_str::<Value>(&on_disk.stdout).unwrap()
    };
    for _ in ["with latest", "without"] {
        let newest = alike(&["report", "RUNS", "-o", "json"]);
        assert_eq!(newest.as_array().map(Vec::len), Some(2));
        let valkey = &newest[0]["record"]["trials"][1]["workloads"][0]["summary"]["elapsedNanos"];
        assert!(valkey.as_u64().unwrap() < 200_000_000, "the second of its second: {valkey}");
        let history = alike(&["history", "RUNS", "-o", "json"]);
        assert_eq!(history[0]["runs"].as_array().map(Vec::len), Some(2), "{history}");
        alike(&["compare", "RUNS", "RUNS", "-o", "json"]);
        let _ = std::fs::remove_file(&latest);
    }
    // What somebody names is shown, also where it was interrupted; and what ended before is exported beside it.
    let named = desk.storebench(&["report", "runs/nightly/20270103T010000Z-unfinished", "-o", "json"]);
    assert_eq!(named.report()["record"]["startedAt"], "2027-01-03T01:00:00Z");
    let exported = desk.storebench(&["export", "runs", "--to", "git:results"]);
    assert!(exported.stdout.contains("nightly/20270101T010000Z-2-Passed committed"), "{}", exported.stdout);
    let said = "runs/nightly/20270103T010000Z-unfinished/report.json: was interrupted";
    assert!(exported.code == Some(1) && exported.stderr.contains(said), "{}", exported.stderr);
    // What ended after it makes up for it.
    desk.keep(4, 1.0);
    assert_eq!(desk.storebench(&["export", "runs", "--to", "git:results"]).code, Some(0));
}

/// One run that was interrupted kept those beside it from being exported.
#[test]
fn what_ended_is_exported_and_a_run_that_was_interrupted_beside_it_is_named() {
    let desk = Desk::new();
    desk.git(&["init", "-q"]);
    desk.keep(1, 1.0);
    let other = keep(&desk.path().join("runs"), "weekly", 1, 1.0);
    let going_on = other.with_file_name("20270103T010000Z-unfinished");
    std::fs::rename(&other, &going_on).unwrap();
    let latest = other.with_file_name("latest");
    let _ = std::fs::remove_file(&latest);
    std::os::unix::fs::symlink(going_on.file_name().unwrap(), &latest).unwrap();
    let ran = desk.storebench(&["export", "runs", "--to", "git:results"]);
    assert!(ran.stdout.starts_with("nightly/") && ran.stdout.lines().count() == 1, "{} {}", ran.stdout, ran.stderr);
    ran.error_after_output(&["runs/weekly/", "was interrupted and is not exported: go on with it first"]);
    assert!(desk.git(&["ls-tree", "-r", "--name-only", "results"]).contains("nightly/"));
}

#[test]
fn what_cannot_be_exported_is_refused_before_anything_is_sent() {
    let desk = Desk::new();
    let folder = desk.keep(1, 1.0);
    let refused = |runs: &[&str], to: &[&str], parts: &[&str]| {
        desk.storebench(&[&["export"][..], runs, &["--to"], to].concat()).error(parts);
    };
    refused(&["runs"], &["runs2"], &["runs2 is no destination: write s3://BUCKET/PREFIX, git:BRANCH, or http://"]);
    refused(&["runs"], &["http://localhost:4318"], &["an address of OTLP/HTTP ends in /v1/metrics"]);
    refused(&["runs"], &["git:b", "--endpoint", "http://x"], &["--endpoint: is of an object store"]);
    refused(&["runs"], &["s3://"], &["names no bucket"]);
    let (nobody, url) = (format!("http://{}", harness::free_address()), "http://127.0.0.1:1/v1/metrics");
    refused(&["nowhere"], &[url], &["nowhere: cannot be read"]);
    refused(&["runs", "--namespace", "x"], &[url], &["a file has no namespace"]);
    // Another machine's run of the same name, second and verdict.
    keep(&desk.path().join("elsewhere"), "nightly", 1, 2.0);
    refused(&["runs", "elsewhere"], &[url], &["two of these runs have this name and are not the same"]);
    // A run that goes on, and a report that is kept nowhere.
    let going_on = folder.with_file_name("20270103T010000Z-unfinished");
    std::fs::rename(&folder, &going_on).unwrap();
    refused(&[going_on.to_str().unwrap()], &[url], &["was interrupted and is not exported: go on with it first"]);
    std::fs::copy(going_on.join("report.json"), desk.path().join("report.json")).unwrap();
    refused(&["report.json"], &[url], &["lies in no folder of --save"]);
    // A report says its own name.
    let sly = desk.keep(2, 1.0);
    let mut report: Value = serde_json::from_slice(&std::fs::read(sly.join("report.json")).unwrap()).unwrap();
    report["record"]["name"] = json!("../../etc");
    std::fs::write(sly.join("report.json"), report.to_string()).unwrap();
    refused(&[sly.to_str().unwrap()], &["s3://b", "--endpoint", &nobody], &["`../../etc` is no name of a run"]);
}

/// It passed: a run that nobody measures any more cannot become slower.
#[test]
fn a_comparison_that_lacks_a_run_of_the_first_has_not_passed() {
    let desk = Desk::new();
    for (directory, run, day) in
        [("one", "nightly", 1), ("both", "nightly", 2), ("both", "weekly", 2), ("again", "nightly", 3)]
    {
        keep(&desk.path().join(directory), run, day, 1.0);
    }
    keep(&desk.path().join("again"), "monthly", 3, 1.0);
    let compare = |before: &str, after: &str, form: &str| desk.storebench(&["compare", before, after, "-o", form]);
    let lacking = compare("both", "again", "text");
    assert_eq!(lacking.code, Some(3), "{}", lacking.stdout);
    for said in ["in both only, so that all together has not passed: weekly", "in again only: monthly"] {
        assert!(lacking.stdout.contains(said), "{}", lacking.stdout);
    }
    let json = compare("both", "one", "json");
    assert!(json.code == Some(3) && json.stderr.contains("has not passed: weekly"), "{}", json.stderr);
    let more = compare("one", "both", "text");
    assert_eq!(more.code, Some(0), "{}", more.stdout);
    assert!(more.stdout.contains("in both only: weekly"), "{}", more.stdout);
}

#[test]
fn a_pair_that_cannot_be_compared_hides_no_regression_of_another() {
    let desk = Desk::new();
    for (directory, day, factor) in [("before", 1, 1.0), ("after", 2, 3.0)] {
        keep(&desk.path().join(directory), "nightly", day, factor);
        keep(&desk.path().join(directory), "weekly", day, 1.0);
    }
    let moved = std::fs::canonicalize(desk.path().join("after/weekly/latest/report.json")).unwrap();
    let mut report: Value = serde_json::from_str(&std::fs::read_to_string(&moved).unwrap()).unwrap();
    report["record"]["fingerprint"]["facts"]["processor"] = "another".into();
    std::fs::write(&moved, report.to_string()).unwrap();
    let compare = |run: &str, form: &str| {
        desk.storebench(&["compare", &format!("before{run}"), &format!("after{run}"), "-o", form])
    };
    let refused = "weekly: 2027-01-01T01:00:00Z and 2027-01-02T01:00:00Z were measured on unlike machines (processor: ";
    let said = format!("not compared, so that all together has not passed: {refused}");
    let markdown = compare("", "markdown");
    assert_eq!(markdown.code, Some(2), "{}{}", markdown.stdout, markdown.stderr);
    assert!(markdown.stdout.contains("Regressed") && markdown.stdout.contains("were measured on unlike machines"));
    let json = compare("", "json");
    assert!(json.code == Some(2) && json.stderr.contains(&said), "{}", json.stderr);
    compare("/weekly", "text").nothing_to_compare(&[refused]);
    // Where nothing else is worse, all together has not passed.
    keep(&desk.path().join("after"), "nightly", 2, 1.0);
    assert_eq!(compare("", "json").code, Some(3));
}
