//! The embedded run as a user meets it: the real binary, real stores, real faults.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod finished;
#[allow(dead_code)]
mod world;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use finished::Finished;
use world::{World, one_arm, two_arms};

const REDIS_SET: &str = "redis: { command: Set, keySpace: 20000 }";
const ETCD_PUT: &str = "etcd: { operation: Put, keySpace: 20000 }";

fn two_stores() -> String {
    let workload = |name: &str, command: &str| {
        format!(
            "  - {{ name: {name}, redis: {{ command: {command} }}, load: {{ connections: 10, duration: 500ms, warmUp: 100ms }} }}"
        )
    };
    two_arms("two-stores", &[workload("set", "Set"), workload("get", "Get")].join("\n"))
}

#[test]
fn two_stores_are_compared_and_nothing_is_left() {
    let world = World::new();
    let finished = world.run(&two_stores());
    let report = finished.report();
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_eq!(report["judgement"]["verdict"], "Passed");
    let results = report["judgement"]["results"].as_array().unwrap();
    assert_eq!(results.len(), 4, "two workloads on two arms");
    for result in results {
        assert!(result["throughputMilli"].as_u64().unwrap() > 1_000_000, "{result}");
        assert_eq!(result["errors"], 0);
        assert!(result["cpuNanosPerOperation"].as_u64().unwrap() > 0, "{result}");
    }
    for resources in report["judgement"]["resources"].as_array().unwrap() {
        for field in
            ["cpuAverageMillicores", "rssIdleBytes", "rssPeakBytes", "pssPeakBytes", "diskBytes", "binaryBytes"]
        {
            assert!(resources[field].as_u64().unwrap() > 0, "{field} in {resources}");
        }
        for field in ["startupMicros", "contextSwitches", "operationsPerCpuSecond"] {
            assert!(resources[field].as_u64().unwrap() > 0, "{field} in {resources}");
        }
    }
    let facts = report["record"]["fingerprint"]["facts"].as_object().unwrap();
    assert!(facts["service redis"].as_str().unwrap().contains("7.0.15"), "{facts:?}");
}

#[test]
fn a_saved_report_reads_the_same() {
    let world = World::new();
    let file = world.write("run.yaml", &one_arm("Redis", "7.0.15", REDIS_SET, "{ total: 500, connections: 5 }"));
    let saved = world.data().with_file_name("saved");
    let ran = Finished::of(
        world.storebench().arg("run").arg(file).arg("--save").arg(&saved).args(["-o", "markdown"]).output().unwrap(),
    );
    assert_eq!(ran.code, Some(3), "one arm without gates compares nothing: {}", ran.stderr);
    for name in ["report.html", "report.md", "report.json", "run.yaml"] {
        assert!(saved.join("run/latest").join(name).is_file(), "{name}");
    }
    let latest = saved.join("run/latest");
    for source in
        [latest.join("report.json"), latest.join("run.yaml"), latest.clone(), saved.join("run"), saved.clone()]
    {
        let rendered =
            Finished::of(world.storebench().arg("report").arg(&source).args(["-o", "markdown"]).output().unwrap());
        assert_eq!(
            (rendered.code, &rendered.stdout),
            (ran.code, &ran.stdout),
            "{}: {}",
            source.display(),
            rendered.stderr
        );
    }
    let mut piped = world.storebench();
    piped.args(["report", "-", "-o", "markdown"]).stdin(std::fs::File::open(latest.join("report.json")).unwrap());
    assert_eq!(Finished::of(piped.output().unwrap()).stdout, ran.stdout);
    let again = Finished::of(world.storebench().arg("validate").arg(latest.join("run.yaml")).output().unwrap());
    assert_eq!(again.code, Some(0), "a run's own run.yaml can be run again: {}", again.stderr);
    assert!(
        again.stdout.contains("BenchmarkRun/run: valid") && again.stdout.contains("StorageService/"),
        "{}",
        again.stdout
    );
}

#[test]
fn two_runs_in_a_file_are_one_document_for_machines() {
    let world = World::new();
    let first = one_arm("Redis", "7.0.15", REDIS_SET, "{ total: 200, connections: 2 }");
    let run = first.split("---\n").find(|object| object.contains("kind: BenchmarkRun")).unwrap();
    let second = run.replacen("name: run", "name: second", 1);
    let file = world.write("runs.yaml", &format!("{first}\n---\n{second}"));
    let print = |output: &str| {
        let mut command = world.storebench();
        command.arg("run").arg(&file).args(["--wait-for-quiet", "0s", "-q", "-o", output]);
        Finished::of(command.output().unwrap())
    };
    let json = print("json");
    let reports: Vec<serde_json::Value> =
        serde_json::from_str(&json.stdout).unwrap_or_else(|_| panic!("{}", json.stderr));
    let names: Vec<_> = reports.iter().map(|report| report["record"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["run", "second"]);
    let list = world.write("list.json", &json.stdout);
    for (output, expected) in
        [("json", "[\n"), ("html", "<article id=\"run-1\">"), ("yaml", "\n---\n"), ("text", "second")]
    {
        let mut command = world.storebench();
        let printed = Finished::of(command.arg("report").arg(&list).args(["-o", output]).output().unwrap());
        assert!(printed.stdout.contains(expected), "{output}: {} {}", printed.stdout, printed.stderr);
    }
    assert!(print("yaml").stdout.contains("\n---\n"));
}

#[test]
fn a_killed_run_goes_on_where_it_was_and_measures_nothing_twice() {
    let world = World::new();
    let text = one_arm("Redis", "7.0.15", REDIS_SET, "{ duration: 300ms, connections: 2, warmUp: 0s }");
    let file = world.write("run.yaml", &text.replace("min: 3, max: 3", "min: 5, max: 5"));
    let saved = world.data().with_file_name("saved");
    let unfinished = || {
        let entries = std::fs::read_dir(saved.join("run")).ok()?.flatten();
        entries.map(|entry| entry.path()).find(|path| path.to_string_lossy().ends_with("-unfinished"))
    };
    let measured = || {
        let record = std::fs::read(unfinished()?.join("record.json")).ok()?;
        let record: serde_json::Value = serde_json::from_slice(&record).ok()?;
        Some(record["trials"].as_array()?.clone())
    };
    // Killed twice: in its first trial or its second, and later.
    let mut before = Vec::new();
    for (flag, trials) in [("--save", 1), ("--resume", 2)] {
        let mut command = world.storebench();
        command.arg("run").arg(&file).arg(flag).arg(&saved).args(["--wait-for-quiet", "0s", "--quiet"]);
        let mut run = harness::Process::start(&mut command);
        harness::until("trials", || measured().is_some_and(|measured| measured.len() >= trials));
        run.kill();
        world.assert_nothing_is_left();
        before = measured().unwrap();
    }
    let ran = Finished::of(
        world
            .storebench()
            .arg("run")
            .arg(&file)
            .arg("--resume")
            .arg(&saved)
            .args(["--wait-for-quiet", "0s", "-o", "json"])
            .output()
            .unwrap(),
    );
    assert_eq!(unfinished(), None, "{}", ran.stderr);
    let report = ran.report();
    let trials = report["record"]["trials"].as_array().unwrap();
    assert_eq!(trials[..before.len()], before, "what was measured is kept as it was");
    let mut valid: Vec<_> =
        trials.iter().filter(|trial| trial["state"] == "Valid").map(|trial| &trial["index"]).collect();
    valid.dedup();
    assert!(valid.len() == 5 || report["judgement"]["verdict"] == "Invalid", "{}", ran.stderr);
    let caveats = report["record"]["caveats"].to_string();
    assert_eq!(caveats.matches("and resumed at").count(), 2, "{caveats}");
    // What has come to its end is not measured again; another run is.
    let again = || {
        let mut command = world.storebench();
        command.arg("run").arg(&file).arg("--resume").arg(&saved).args(["--wait-for-quiet", "0s", "-o", "json"]);
        Finished::of(command.output().unwrap())
    };
    // But for what other programs disturbed too often, as on a machine that is busy with something else.
    if report["judgement"]["verdict"] != "Invalid" {
        assert_eq!(again().report()["record"], report["record"]);
        world.write("run.yaml", &text);
        assert_ne!(again().report()["record"]["startedAt"], report["record"]["startedAt"]);
        assert_eq!(std::fs::read_dir(saved.join("run")).unwrap().count(), 3, "two runs, and what leads to the newest");
    }
}

/// A run that was disturbed too often is Invalid. Resumed, it repeats what did not count, in a folder of its own, and nothing else.
#[test]
fn a_run_that_was_disturbed_too_often_goes_on_with_what_counted() {
    let world = World::new();
    let text = one_arm("Redis", "7.0.15", REDIS_SET, "{ duration: 2s, connections: 1 }");
    let file = world.write("run.yaml", &text.replace("retries: 5", "retries: 0"));
    let saved = world.data().with_file_name("saved");
    let run = |flag: &str| {
        let mut command = world.storebench();
        command.arg("run").arg(&file).arg(flag).arg(&saved).args(["--wait-for-quiet", "0s", "-o", "json"]);
        Finished::of(command.output().unwrap())
    };
    let busy = Busy::all_cores(&world);
    let first = run("--save");
    drop(busy);
    first.invalid();
    let last = first.stderr.lines().last().unwrap_or_default();
    assert!(
        last.ends_with(&format!("; then go on: storebench run {} --resume {}", file.display(), saved.display())),
        "{last}"
    );
    let second = run("--resume");
    assert!(
        second.stderr.starts_with("run: was disturbed too often: what did not count is repeated: "),
        "{}",
        second.stderr
    );
    let trials = |finished: &Finished| finished.report()["record"]["trials"].as_array().unwrap().clone();
    let (before, after) = (trials(&first), trials(&second));
    assert!(after.len() > before.len(), "it measures: {}", second.stderr);
    for (kept, then) in after.iter().zip(&before) {
        assert_eq!((&kept["startedMillis"], &kept["state"]), (&then["startedMillis"], &then["state"]));
    }
    let caveats = second.report()["record"]["caveats"].to_string();
    assert!(caveats.contains("disturbed too often after 1 trials of an arm, and resumed at"), "{caveats}");
    assert_eq!(std::fs::read_dir(saved.join("run")).unwrap().count(), 3, "two folders, and what leads to the newest");
}

/// What a store did is what was measured.
#[test]
fn a_run_that_its_store_ended_is_shown_again_and_not_repeated() {
    let world = World::new();
    world.install_faulty("redis", &["refuse"]);
    let file = world.write("run.yaml", &one_arm("Redis", "faulty", REDIS_SET, "{ total: 100 }"));
    let saved = world.data().with_file_name("saved");
    let run = |flag: &str| {
        let mut command = world.storebench();
        command.arg("run").arg(&file).arg(flag).arg(&saved).args(["--wait-for-quiet", "0s", "-o", "json"]);
        Finished::of(command.output().unwrap())
    };
    let first = run("--save");
    let second = run("--resume");
    assert_eq!(second.invalid(), first.invalid());
    assert_eq!(second.report()["record"], first.report()["record"]);
    let last = second.stderr.lines().last().unwrap_or_default();
    assert!(last.ends_with("begin anew with --save: --resume does not repeat what a store did"), "{}", second.stderr);
}

#[test]
fn what_cannot_be_saved_is_told_before_anything_is_measured() {
    let world = World::new();
    let file = world.write("run.yaml", &one_arm("Redis", "7.0.15", REDIS_SET, "{ duration: 5s, connections: 2 }"));
    let refused = world.storebench().arg("run").arg(&file).arg("--save").arg(&file).output().unwrap();
    let refused = Finished::of(refused);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("run.yaml/run: cannot be written to: Not a directory"), "{}", refused.stderr);
}

#[test]
fn shared_isolation_keeps_one_store_per_arm() {
    let world = World::new();
    for (engine, version, workload) in [("Redis", "7.0.15", REDIS_SET), ("Etcd", "3.7.3", ETCD_PUT)] {
        let text = one_arm(engine, version, workload, "{ total: 500, connections: 5, warmUp: 100ms }")
            + "  isolation: Shared\n";
        let finished = world.run(&text);
        let report = finished.report();
        assert_eq!(finished.code, Some(3), "{}", report["judgement"]["message"]);
        let trials = report["record"]["trials"].as_array().unwrap();
        assert!(trials.iter().all(|trial| trial["state"] == "Valid"), "{trials:?}");
    }
}

#[test]
fn a_lost_write_voids_the_run_and_names_the_key() {
    for (engine, version, workload) in [("redis", "Redis", REDIS_SET), ("etcd", "Etcd", ETCD_PUT)] {
        let world = World::new();
        world.install_faulty(engine, &["drop-write-every=10000"]);
        let load = "{ total: 20000, connections: 10, warmUp: 0s }";
        let message = world.run(&one_arm(version, "faulty", workload, load)).invalid();
        assert!(message.contains("wrong answer") && message.contains("key "), "{engine}: {message}");
    }
}

#[test]
fn a_flipped_byte_voids_the_run_and_names_the_key() {
    let redis = "redis: { command: Get, keySpace: 1000 }";
    let etcd = "etcd: { operation: Range, keySpace: 1000 }";
    for (engine, version, workload) in [("redis", "Redis", redis), ("etcd", "Etcd", etcd)] {
        let world = World::new();
        world.install_faulty(engine, &["flip-value-every=10000"]);
        let load = "{ total: 20000, connections: 10, warmUp: 0s }";
        let message = world.run(&one_arm(version, "faulty", workload, load)).invalid();
        assert!(message.contains("wrong answer") && message.contains("key "), "{engine}: {message}");
    }
}

#[test]
fn a_server_killed_mid_trial_is_named() {
    for (engine, version, workload) in [("redis", "Redis", REDIS_SET), ("etcd", "Etcd", ETCD_PUT)] {
        let world = World::new();
        world.install_faulty(engine, &["kill-after-millis=500"]);
        let message = world.run(&one_arm(version, "faulty", workload, "{ duration: 5s, connections: 5 }")).invalid();
        assert!(message.contains("killed by signal 9"), "{engine}: {message}");
    }
}

#[test]
fn a_server_that_never_becomes_ready_is_named() {
    let world = World::new();
    world.install_faulty("redis", &["never-ready"]);
    let text = one_arm("Redis", "faulty", REDIS_SET, "{ total: 100 }").replace("timeout: 20s", "timeout: 2s");
    let message = world.run(&text).invalid();
    assert!(message.contains("never became ready"), "{message}");
}

#[test]
fn a_server_that_refuses_to_start_is_quoted() {
    let world = World::new();
    world.install_faulty("redis", &["refuse"]);
    let message = world.run(&one_arm("Redis", "faulty", REDIS_SET, "{ total: 100 }")).invalid();
    assert!(message.contains("exited with status 3"), "{message}");
}

#[test]
fn a_full_disk_is_named() {
    for (engine, version, workload) in [
        ("redis", "Redis", "redis: { command: Set, valueBytes: 10000 }"),
        ("etcd", "Etcd", "etcd: { operation: Put, valueBytes: 10000 }"),
    ] {
        let world = World::new();
        // etcd preallocates 64 MB segments; the limit must let it start.
        let bytes = if engine == "etcd" { "disk-full-after-bytes=70000000" } else { "disk-full-after-bytes=1000000" };
        world.install_faulty(engine, &[bytes]);
        let message = world.run(&one_arm(version, "faulty", workload, "{ duration: 15s, connections: 10 }")).invalid();
        assert!(message.len() > 20, "{engine}: {message}");
        eprintln!("{engine}: {message}");
    }
}

#[test]
fn a_rate_out_of_reach_is_not_reported_as_a_latency() {
    let world = World::new();
    let load = "{ duration: 1s, connections: 1, mode: OpenLoop, rate: 1000000 }";
    let message = world.run(&one_arm("Etcd", "3.7.3", ETCD_PUT, load)).invalid();
    assert!(message.contains("rate"), "{message}");
}

/// No coordinated omission: a store that stands still for a second shows it in the latency that users feel.
#[test]
fn a_stall_is_seen_from_the_due_instant() {
    let world = World::new();
    // Two things shorten a stall as its victims feel it: the signal takes effect only when the store is next on a processor,
    // and the first request that meets it is due up to 1 ms later. 50 ms are room for both.
    world.install_faulty("redis", &["stop-after-millis=1000", "stop-for-millis=1050"]);
    let load = "{ duration: 4s, warmUp: 0s, connections: 20, mode: OpenLoop, rate: 1000 }";
    let finished = world.run(&one_arm("Redis", "faulty", REDIS_SET, load));
    let report = finished.report();
    assert_ne!(report["judgement"]["verdict"], "Invalid", "{}", report["judgement"]["message"]);
    let result = &report["judgement"]["results"][0];
    let nanos = |latency: &str, percentile: &str| result[latency][percentile].as_u64().unwrap();
    assert!(nanos("intendedLatency", "p999Nanos") > 800_000_000, "{result}");
    assert!(nanos("intendedLatency", "maxNanos") > 1_000_000_000, "{result}");
    // From the send, the stall is one slow request on each of 20 connections: less than 1 % of all. That is reported beside
    // what users felt, which is more than a tenth of all.
    assert!(nanos("serviceLatency", "p50Nanos") > 0, "{result}");
    assert!(nanos("serviceLatency", "p99Nanos") < 500_000_000, "{result}");
    assert!(nanos("intendedLatency", "p99Nanos") > 800_000_000, "{result}");
}

/// Programs of the name `busy-neighbour` that keep cores busy. They go with this value; each would go by itself after 60 s of
/// processor time.
struct Busy(Vec<Child>);

impl Busy {
    fn cores(world: &World, count: usize) -> Self {
        let program = world.data().with_file_name("busy-neighbour");
        if !program.exists() {
            std::os::unix::fs::symlink("/usr/bin/yes", &program).unwrap();
        }
        let spawn = |_| {
            let mut command = Command::new("sh");
            command.arg("-c").arg("ulimit -t 60; exec \"$0\"").arg(&program).stdout(Stdio::null()).spawn().unwrap()
        };
        Self((0..count).map(spawn).collect())
    }

    fn all_cores(world: &World) -> Self {
        Self::cores(world, std::thread::available_parallelism().unwrap().get())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

#[test]
fn other_processes_that_keep_the_cores_busy_are_named() {
    let world = World::new();
    let text = one_arm("Redis", "7.0.15", REDIS_SET, "{ duration: 2s, connections: 1 }");
    let file = world.write("run.yaml", &text.replace("retries: 5", "retries: 0"));
    let busy = Busy::all_cores(&world);
    let mut command = world.storebench();
    let finished =
        Finished::of(command.arg("run").arg(file).args(["--wait-for-quiet", "0s", "-o", "json"]).output().unwrap());
    drop(busy);
    let message = finished.invalid();
    let cores = std::thread::available_parallelism().unwrap();
    let (_, used) = message.split_once("other processes used ").unwrap_or_else(|| panic!("{message}"));
    let (used, rest) = used.split_once(' ').unwrap();
    assert!(used.parse::<f64>().unwrap() > 0.2 * cores.get() as f64, "{message}");
    assert!(rest.starts_with(&format!("of {cores} cores (")), "{message}");
    assert!(rest.contains("busy-neighbour ") && rest.ends_with(": stop them"), "{message}");
    assert!(!finished.stderr.contains("waiting for quiet"), "{}", finished.stderr);
    let last = finished.stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("run is Invalid; to do: other programs kept this machine too busy: stop those"), "{last}");
    assert_eq!(
        finished.report()["record"]["trials"].as_array().unwrap().len(),
        1,
        "the first disturbance ends the run"
    );
}

/// A run whose lines on standard error can be waited for.
struct Told {
    child: Child,
    file: std::path::PathBuf,
}

impl Told {
    fn run(world: &World, text: &str, arguments: &[&str]) -> Self {
        let run = world.write("run.yaml", text);
        let file = run.with_file_name("stderr");
        let mut command = world.storebench();
        command.arg("run").arg(run).args(arguments).args(["-o", "json"]).stdout(Stdio::piped());
        let child = command.stderr(std::fs::File::create(&file).unwrap()).spawn().unwrap();
        Self { child, file }
    }

    fn stderr(&self) -> String {
        std::fs::read_to_string(&self.file).unwrap()
    }

    /// Waits until a line holds this.
    fn until(&self, part: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let text = self.stderr();
            if let Some(line) = text.lines().find(|line| line.contains(part)) {
                return line.to_owned();
            }
            assert!(Instant::now() < deadline, "no line with `{part}` in {text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn finish(self) -> Finished {
        let stderr = self.file;
        let mut finished = Finished::of(self.child.wait_with_output().unwrap());
        finished.stderr = std::fs::read_to_string(stderr).unwrap();
        finished
    }
}

#[test]
fn who_keeps_the_run_waiting_is_named_and_at_the_limit_it_measures_all_the_same() {
    let world = World::new();
    let busy = Busy::all_cores(&world);
    let text =
        one_arm("Redis", "7.0.15", REDIS_SET, "{ total: 500, connections: 1 }").replace("retries: 5", "retries: 0");
    let finished = Told::run(&world, &text, &["--wait-for-quiet", "2s"]).finish();
    drop(busy);
    let line = finished.stderr.lines().next().unwrap_or_default();
    assert!(line.starts_with("run: waiting for quiet: other processes use "), "{}", finished.stderr);
    assert!(line.contains("busy-neighbour ") && line.contains("; to measure at once: --wait-for-quiet 0s"), "{line}");
    assert!(finished.stderr.contains("run: other processes still use "), "{}", finished.stderr);
    let report = finished.report();
    assert!(!report["record"]["trials"].as_array().unwrap().is_empty(), "it did measure: {}", finished.stderr);
    let caveats = report["judgement"]["caveats"].to_string();
    assert!(caveats.contains("measured on a busy machine: after 2 s of waiting"), "{caveats}");
    world.assert_nothing_is_left();
}

#[test]
fn ctrl_c_in_the_waiting_room_leaves_nothing_behind() {
    let world = World::new();
    let busy = Busy::all_cores(&world);
    let text = one_arm("Redis", "7.0.15", REDIS_SET, "{ total: 500, connections: 1 }");
    let run = Told::run(&world, &text, &["--wait-for-quiet", "10m"]);
    run.until("waiting for quiet");
    kill(run.child.id(), "INT");
    let finished = run.finish();
    drop(busy);
    assert_eq!(finished.code, Some(130), "{}", finished.stderr);
    assert_eq!(finished.report()["record"]["trials"].as_array().unwrap().len(), 0, "nothing was measured");
    world.assert_nothing_is_left();
}

#[test]
#[ignore = "needs a machine that is quiet but for its own busy programs: .ci/run runs it"]
fn a_neighbour_is_waited_out_and_costs_no_retry() {
    let world = World::new();
    let busy = Busy::cores(&world, 1);
    let text = one_arm("Redis", "7.0.15", "redis: { command: Get }", "{ duration: 4s, connections: 1 }");
    let run = Told::run(&world, &text.replace("retries: 5", "retries: 0"), &["--wait-for-quiet", "5m"]);
    // Busy before the first trial, and again during it.
    let line = run.until("waiting for quiet");
    drop(busy);
    run.until("quiet after ");
    std::thread::sleep(Duration::from_secs(3));
    let busy = Busy::all_cores(&world);
    let disturbed = run.until("trial 1, ");
    // Waited for after the trial, too.
    std::thread::sleep(Duration::from_millis(1_500));
    drop(busy);
    let finished = run.finish();
    assert!(line.contains("(busy-neighbour 1.0"), "{line}");
    assert!(disturbed.contains("busy-neighbour"), "{disturbed}");
    let report = finished.report();
    assert_eq!(finished.code, Some(3), "one arm compares nothing: {}", finished.stderr);
    let trials = report["record"]["trials"].as_array().unwrap();
    let waited: Vec<_> = trials.iter().filter(|trial| trial["waitedMillis"].as_u64().is_some()).collect();
    assert_eq!((trials.len(), waited.len()), (4, 1), "three that count, and the disturbed one: {}", finished.stderr);
    assert_eq!(waited[0]["failure"]["cause"], "Disturbed");
    world.assert_nothing_is_left();
}

#[test]
fn unequal_durability_is_labelled_and_not_ranked() {
    let world = World::new();
    let finished = world.run(&two_stores().replace("engine: Valkey", "engine: Valkey, durability: None"));
    let report = finished.report();
    for comparison in report["judgement"]["comparisons"].as_array().unwrap() {
        assert_eq!(comparison["notRanked"], "durability None against Fsync");
    }
}

#[test]
fn a_missing_peer_ends_the_run_before_anything_is_measured() {
    for (missing, position) in [("valkey", 1), ("redis", 0)] {
        let world = World::new();
        std::fs::remove_dir_all(world.peers().join(missing)).unwrap();
        let file = world.write("run.yaml", &two_stores());
        let mut command = world.storebench();
        let finished = Finished::of(
            command.arg("run").arg(file).args(["-o", "json"]).env("PATH", "/nonexistent").output().unwrap(),
        );
        let report = finished.report();
        let install = report["record"]["arms"][position]["unavailable"]["install"].as_str().unwrap();
        assert!(install.ends_with(&format!("peers/fetch {missing}")), "{install}");
        assert_eq!(report["record"]["trials"].as_array().unwrap().len(), 0, "what cannot be compared is not measured");
        assert_eq!((finished.code, report["judgement"]["verdict"].as_str()), (Some(3), Some("NoBaseline")));
        let last = finished.stderr.lines().last().unwrap();
        assert_eq!(last, format!("two-stores had nothing to compare; to do: install what it lacks: {install}"));
    }
}

#[test]
fn what_is_left_of_three_is_compared() {
    let world = World::new();
    let third =
        "  - { name: valkey, serviceRef: { name: valkey } }\n  - { name: third, serviceRef: { name: third } }\n";
    let text = two_stores().replace("  - { name: valkey, serviceRef: { name: valkey } }\n", third)
        + "---\napiVersion: storebench.dev/v1alpha1\nkind: StorageService\nmetadata: { name: third }\n\
           spec: { engine: Valkey, version: 0.0.1 }\n";
    let report = world.run(&text).report();
    assert_eq!(report["judgement"]["results"].as_array().unwrap().len(), 4, "two workloads on two arms");
    let reason = report["record"]["arms"][2]["unavailable"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("valkey 0.0.1 is not installed here (there is "), "{reason}");
}

#[test]
fn a_demonstration_of_which_nothing_is_installed_ends_with_what_to_do() {
    let world = World::new();
    std::fs::remove_dir_all(world.peers()).unwrap();
    let file = world.write("run.yaml", &two_stores());
    let mut command = world.storebench();
    let finished = Finished::of(command.arg("run").arg(file).env("PATH", "/nonexistent").output().unwrap());
    assert_eq!(finished.code, Some(4), "{}", finished.stderr);
    let said = finished.stderr.trim_end();
    assert!(said.starts_with("two-stores is Invalid; to do: install what it lacks: "), "{said}");
    assert!(said.ends_with("peers/fetch redis"), "{said}");
}

#[test]
fn missing_parts_of_kubernetes_name_their_command() {
    let world = World::new();
    let text = one_arm("Etcd", "3.7.3", "kubernetes: { operation: CreateNamespaces }", "{ total: 10 }")
        .replace("serviceRef: { name: store } }\n  workloads", "controlPlaneRef: { name: plane } }\n  workloads")
        .replace(
            "kind: BenchmarkRun",
            "kind: ControlPlane
metadata: { name: plane }
spec: { serviceRef: { name: store } }
---
apiVersion: storebench.dev/v1alpha1
kind: BenchmarkRun",
        );
    let file = world.write("run.yaml", &text);
    let mut command = world.storebench();
    let finished =
        Finished::of(command.arg("run").arg(file).args(["-o", "json"]).env("PATH", "/nonexistent").output().unwrap());
    let unavailable = &finished.report()["record"]["arms"][0]["unavailable"];
    assert!(unavailable["install"].as_str().unwrap().ends_with("peers/fetch kubernetes"), "{unavailable}");
    assert_eq!(unavailable["reason"], "kube-apiserver of Kubernetes 1.34.4 is not installed here");
}

/// A run that is under way: started, and its store loaded.
fn under_way(world: &World) -> Child {
    let file = world.write("run.yaml", &one_arm("Etcd", "3.7.3", ETCD_PUT, "{ duration: 10s, connections: 2 }"));
    let mut command = world.storebench();
    command.arg("run").arg(file).args(["--wait-for-quiet", "0s"]).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !world.processes().iter().any(|line| line.contains("bench-job")) {
        assert!(Instant::now() < deadline, "the run does not get under way");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let world = World::new();
    let mut child = under_way(&world);
    kill(child.id(), "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    world.assert_nothing_is_left();
}

#[test]
fn sigkill_leaves_nothing_behind() {
    let world = World::new();
    let mut child = under_way(&world);
    kill(child.id(), "KILL");
    child.wait().unwrap();
    world.assert_nothing_is_left();
}

fn kill(process: u32, signal: &str) {
    let status = Command::new("kill").arg(format!("-{signal}")).arg(process.to_string()).status().unwrap();
    assert!(status.success());
}

/// Store and loader that use up a CPU quota lose no trial by it, or the hungrier store would lose most; the report names the quota. Needs
/// root and a CPU control group that may be created.
#[test]
#[ignore = "creates a control group, which takes root: .ci/run runs it"]
fn a_quota_that_store_and_loader_use_up_is_named_and_loses_no_trial() {
    let world = World::new();
    let group = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"]
        .into_iter()
        .find(|root| std::path::Path::new(root).join("cgroup.procs").is_file())
        .expect("no CPU control group is mounted");
    let group = std::path::Path::new(group).join(format!("storebench-test-{}", std::process::id()));
    std::fs::create_dir(&group).unwrap();
    let version_1 = group.join("cpu.cfs_quota_us").is_file();
    if version_1 {
        std::fs::write(group.join("cpu.cfs_period_us"), "100000").unwrap();
        std::fs::write(group.join("cpu.cfs_quota_us"), "30000").unwrap();
    } else {
        std::fs::write(group.join("cpu.max"), "30000 100000").unwrap();
    }
    let file = world
        .write("run.yaml", &one_arm("Redis", "7.0.15", "redis: { command: Get }", "{ duration: 2s, connections: 50 }"));
    let script = format!(
        "echo $$ > {}/cgroup.procs && exec {} run {} -o json",
        group.display(),
        env!("CARGO_BIN_EXE_storebench"),
        file.display()
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .env("STOREBENCH_PEERS", world.peers())
        .env("STOREBENCH_DATA_DIR", world.data())
        .env("STOREBENCH_WAIT_FOR_QUIET", "20s")
        .output()
        .unwrap();
    world.assert_nothing_is_left();
    std::fs::remove_dir(&group).unwrap();
    let report = Finished::of(output).report();
    assert_ne!(report["judgement"]["verdict"], "Invalid", "{}", report["judgement"]["message"]);
    let trials = report["record"]["trials"].as_array().unwrap();
    assert!(trials.len() == 3 && trials.iter().all(|trial| trial["state"] == "Valid"), "{trials:?}");
    let caveats = report["judgement"]["caveats"].as_array().unwrap();
    let named =
        |caveat: &serde_json::Value| caveat.as_str().unwrap().starts_with("a CPU quota stopped the loader for up to ");
    assert!(caveats.iter().any(named), "{caveats:?}");
}
