//! What others do on the machine: who disturbed a run is named, waited for, and costs no retry where it was waited out; and a quota.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::busy::Busy;
use crate::finished::Finished;
use crate::world::{World, one_arm};
use crate::{REDIS_SET, kill};

#[test]
fn other_processes_that_keep_the_cores_busy_are_named() {
    let world = World::new();
    let text = one_arm("Redis", harness::version("redis"), REDIS_SET, "{ duration: 2s, connections: 1 }");
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
        let deadline = Instant::now() + Duration::from_secs(240);
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
    let text = one_arm("Redis", harness::version("redis"), REDIS_SET, "{ total: 500, connections: 1 }")
        .replace("retries: 5", "retries: 0");
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
    let text = one_arm("Redis", harness::version("redis"), REDIS_SET, "{ total: 500, connections: 1 }");
    let run = Told::run(&world, &text, &["--wait-for-quiet", "10m"]);
    run.until("waiting for quiet");
    kill(run.child.id(), "INT");
    let finished = run.finish();
    drop(busy);
    assert_eq!(finished.code, Some(130), "{}", finished.stderr);
    assert_eq!(finished.report()["record"]["trials"].as_array().unwrap().len(), 0, "nothing was measured");
    world.assert_nothing_is_left();
}

/// It left pages of a suite that were Invalid and held nothing, and the folder of a run without a trial.
#[test]
fn a_suite_that_is_interrupted_before_its_first_trial_leaves_nothing_where_it_is_saved() {
    let suite = "
apiVersion: storebench.dev/v1alpha1
kind: StorageService
metadata: { name: redis }
spec: { engine: Redis }
---
apiVersion: storebench.dev/v1alpha1
kind: BenchmarkSuite
metadata: { name: sizes }
spec:
  parameters: [{ name: valueBytes, values: [64, 1024] }]
  template:
    spec:
      arms: [{ name: redis, serviceRef: { name: redis } }]
      workloads:
      - { name: set, redis: { command: Set, valueBytes: $(valueBytes) }, load: { total: 200, warmUp: 0s } }
      trials: { min: 1, max: 1, retries: 0 }
";
    let world = World::new();
    let saved = world.data().with_file_name("saved");
    let busy = Busy::all_cores(&world);
    let run = Told::run(&world, suite, &["--wait-for-quiet", "10m", "--save", saved.to_str().unwrap()]);
    run.until("waiting for quiet");
    kill(run.child.id(), "INT");
    let finished = run.finish();
    drop(busy);
    assert_eq!(finished.code, Some(130), "{}", finished.stderr);
    let left: Vec<_> = std::fs::read_dir(&saved).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty() && !finished.stderr.contains("saved to"), "{left:?} {}", finished.stderr);
    world.assert_nothing_is_left();
}

#[test]
#[ignore = "needs a machine that is quiet but for its own busy programs: .ci/run runs it"]
fn a_neighbour_is_waited_out_and_costs_no_retry() {
    let world = World::new();
    let busy = Busy::cores(&world, 1);
    let text =
        one_arm("Redis", harness::version("redis"), "redis: { command: Get }", "{ duration: 4s, connections: 1 }");
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
    let file = world.write(
        "run.yaml",
        &one_arm("Redis", harness::version("redis"), "redis: { command: Get }", "{ duration: 2s, connections: 50 }"),
    );
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
