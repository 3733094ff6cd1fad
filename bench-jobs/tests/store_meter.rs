//! `store-meter` beside real stores, asked as a kubelet, a person and `bench-job` ask it.
//!
//! Needs redis-server and etcd in the peers folder; `peers/fetch` puts them there.

// Helpers of a test fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use harness::{Process, TempDir, command, free_port, peer, until};
use procfs::process::Process as OwnProcess;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use storebench_crds::job::{JobLine, Phase, StoreReading, Usage};
use storebench_crds::meter::{Check, MemberReading, Reading};

use support::etcd::Etcd;
use support::job::{Ended, Job};
use support::meter::Meter;
use support::redis::Redis;

fn beside_redis(redis: &Redis) -> Meter {
    let (pid, data) = (redis.pid().to_string(), redis.folder.path().display().to_string());
    Meter::start("redis", &redis.endpoint(), &["--pid", &pid, "--data", &data])
}

fn beside_etcd(etcd: &Etcd) -> Meter {
    let (pid, data) = (etcd.pid().to_string(), etcd.folder.path().display().to_string());
    Meter::start("etcd", &etcd.endpoint, &["--pid", &pid, "--data", &data])
}

/// What the start of a store that was just spawned has shown.
fn check_member(member: &MemberReading, version: &str, program: &std::path::Path) {
    let footprint = member.footprint.unwrap();
    assert_eq!(footprint.binary_bytes, fs::metadata(program).unwrap().len());
    assert!((1_000..20_000_000).contains(&footprint.startup_micros), "{footprint:?}");
    assert!(footprint.idle_rss_bytes > 1_000_000, "{footprint:?}");
    assert_eq!(member.version.as_deref(), Some(version));
    assert_eq!(member.problem, None);
    assert!(member.disk_bytes.is_some());
    for name in ["architecture", "cores", "file system", "kernel", "memory"] {
        assert!(member.facts.contains_key(name), "{name}: {:?}", member.facts);
    }
}

fn check_protocol(meter: &Meter, expected: &[&str]) {
    let checks: Vec<Check> = meter.read("/protocol");
    let names: Vec<&str> = checks.iter().map(|check| check.name.as_str()).collect();
    assert_eq!(names, expected);
    assert!(checks.iter().all(|check| check.ok), "{checks:?}");
}

#[test]
fn a_redis_is_weighed_from_its_start_and_tried_out() {
    let redis = Redis::spawn_on(free_port(), &[]);
    let meter = beside_redis(&redis);
    check_member(&meter.member(), harness::version("redis"), &peer("redis", "redis-server"));
    meter.ask("/readyz").unwrap();
    check_protocol(&meter, &["PING", "SET", "GET", "DEL", "INFO"]);
    assert_eq!(redis.command("DBSIZE"), ":0\r\n", "nothing stays behind");
}

#[test]
fn an_etcd_is_weighed_from_its_start_and_tried_out() {
    let etcd = Etcd::spawn();
    let meter = beside_etcd(&etcd);
    let member = meter.member();
    let program = peer("etcd", "etcd");
    let version = program.parent().unwrap().file_name().unwrap().to_str().unwrap();
    check_member(&member, version, &program);
    assert!(member.disk_bytes.unwrap() > 10_000, "{member:?}");
    meter.ask("/readyz").unwrap();
    check_protocol(&meter, &["Put", "Range", "Txn", "Watch", "LeaseGrant", "LeaseRevoke", "DeleteRange"]);
    assert_eq!(etcd.count("storebench-probe/"), 0, "nothing stays behind");
}

#[test]
fn readings_grow_and_hold_what_was_asked_for() {
    let redis = Redis::start(&[]);
    let meter = beside_redis(&redis);
    let before: Reading = meter.read("/reading?pss=true");
    assert!(before.pss_bytes.unwrap() > 100_000 && before.rss_bytes > 1_000_000, "{before:?}");
    // Four million bits, counted many times: some tens of milliseconds of processor time.
    redis.command("SETBIT key 40000000 1");
    (0..50).for_each(|_| drop(redis.command("BITCOUNT key")));
    let after: Reading = meter.read("/reading");
    assert!(after.cpu_nanos > before.cpu_nanos && after.monotonic_nanos > before.monotonic_nanos, "{after:?}");
    assert!(after.switches.unwrap().voluntary > before.switches.unwrap().voluntary, "{after:?}");
    assert_eq!((after.pss_bytes, after.restarts), (None, 0));
    assert_eq!(meter.read::<Reading>("/reading?switches=false").switches, None);
}

#[test]
fn a_store_that_does_not_answer_is_not_ready_and_one_that_is_gone_has_no_reading() {
    let redis = Redis::start(&[]);
    let meter = beside_redis(&redis);
    meter.member();
    redis.signal(Signal::STOP);
    let said = meter.ask("/readyz").unwrap_err().to_string();
    assert_eq!(said, "HTTP status 503: PING: no answer within 500ms");
    meter.ask("/livez").unwrap();
    meter.ask("/reading").unwrap();
    let checks: Vec<Check> = meter.read("/protocol");
    assert!(checks.iter().all(|check| !check.ok && check.detail.contains("no answer")), "{checks:?}");
    redis.signal(Signal::KILL);
    meter.until(|| meter.ask("/reading").is_err());
    let said = meter.ask("/reading").unwrap_err().to_string();
    assert!(said.starts_with("HTTP status 503: no process of a store is there"), "{said}");
    meter.until(|| meter.ask("/readyz").is_err_and(|error| error.to_string().contains("Connection refused")));
    assert!(meter.ask("/else").unwrap_err().to_string().contains("404"));
}

#[test]
fn a_store_that_started_long_before_has_no_footprint_rather_than_a_wrong_one() {
    let redis = Redis::start(&[]);
    sleep(Duration::from_millis(2_200));
    let meter = beside_redis(&redis);
    let problem = || meter.read::<MemberReading>("/store").problem.unwrap_or_default();
    meter.until(|| problem().contains("started long before store-meter"));
    assert_eq!(meter.read::<MemberReading>("/store").footprint, None);
}

/// How often the threads of a process have been put to sleep.
fn switches(pid: u32) -> u64 {
    let tasks = OwnProcess::new(pid.cast_signed()).unwrap().tasks().unwrap();
    tasks.map(|task| task.unwrap().status().unwrap().voluntary_ctxt_switches.unwrap()).sum()
}

#[test]
fn a_meter_that_nobody_asks_does_not_wake_up() {
    let redis = Redis::start(&[]);
    let meter = beside_redis(&redis);
    meter.member();
    // The last thread may still have to notice that its client is gone; after that, no second has a switch.
    let is_quiet = (0..20).any(|_| {
        let before = switches(meter.pid());
        sleep(Duration::from_secs(1));
        switches(meter.pid()) == before
    });
    assert!(is_quiet);
}

// --- a job that asks it ------------------------------------------------------

fn job(endpoint: &str, meters: &[&str], workloads: Value) -> Job {
    let spec = json!({
        "run": "test", "arm": "a", "trial": 0, "seed": 42, "endpoints": [endpoint], "meters": meters,
        "workloads": workloads,
    });
    Job::start(&spec, &[])
}

fn usages(ended: &Ended) -> Vec<(&str, Usage)> {
    let usage = |line| match line {
        &JobLine::Usage { ref workload, usage } => Some((workload.as_str(), usage)),
        _ => None,
    };
    ended.lines.iter().filter_map(usage).collect()
}

fn store(ended: &Ended) -> Option<&StoreReading> {
    ended.lines.iter().find_map(|line| match line {
        JobLine::Store { reading } => Some(reading),
        _ => None,
    })
}

#[test]
fn a_job_says_what_the_store_used_while_it_was_measured() {
    let etcd = Etcd::spawn();
    let meter = beside_etcd(&etcd);
    let load = json!({ "connections": 2, "clients": 20, "duration": "1s", "warmUp": "100ms" });
    let workloads = json!([
        { "name": "put", "etcd": { "operation": "Put", "keySpace": 100 }, "load": load },
        { "name": "idle", "etcd": { "operation": "Put" },
          "load": { "duration": "500ms", "warmUp": "0s", "mode": "OpenLoop", "rate": 4 } },
    ]);
    let ended = job(&etcd.endpoint, &[&meter.address], workloads).end();
    ended.measured();
    let usages = usages(&ended);
    let [("put", put), ("idle", idle)] = usages.as_slice() else { panic!("{usages:?}: {}", ended.errors) };
    assert!((900_000_000..30_000_000_000).contains(&put.elapsed_nanos), "{put:?}");
    assert!(put.cpu_nanos > 20_000_000 && put.cpu_nanos > 3 * idle.cpu_nanos, "{put:?} {idle:?}");
    assert!(put.machine_cpu_nanos >= put.cpu_nanos && put.voluntary_switches > 0, "{put:?}");
    assert!(put.rss_peak_bytes >= put.rss_average_bytes && put.pss_peak_bytes > 1_000_000, "{put:?}");
    let store = store(&ended).unwrap();
    assert!(store.version.is_some() && store.disk_bytes.unwrap() > 10_000, "{store:?}");
    assert!(store.footprint.startup_micros > 0 && store.idle.elapsed_nanos >= 300_000_000, "{store:?}");
    assert!(store.idle.cpu_nanos < put.cpu_nanos, "{store:?}");
}

#[test]
fn a_job_that_ends_early_says_what_the_store_cost_all_the_same() {
    let redis = Redis::start(&[]);
    let meter = beside_redis(&redis);
    let workloads =
        json!([{ "name": "w", "redis": { "command": "Set" }, "load": { "duration": "20s", "warmUp": "0s" } }]);
    let mut job = job(&redis.endpoint(), &[&meter.address], workloads);
    job.until(Phase::Measure);
    redis.signal(Signal::KILL);
    let ended = job.end();
    ended.store_failed();
    assert_eq!(usages(&ended), []);
    assert!(store(&ended).unwrap().idle.rss_average_bytes > 1_000_000, "{:?}", ended.lines);
}

#[test]
fn a_meter_that_dies_costs_its_figures_and_not_the_trial() {
    let redis = Redis::start(&[]);
    let meter = beside_redis(&redis);
    let workloads =
        json!([{ "name": "w", "redis": { "command": "Set" }, "load": { "duration": "1s", "warmUp": "0s" } }]);
    let mut job = job(&redis.endpoint(), &[&meter.address], workloads);
    job.until(Phase::Measure);
    meter.signal(Signal::KILL);
    let ended = job.end();
    assert!(ended.measured().operations > 0);
    assert_eq!(usages(&ended), [], "nothing rather than zeros");
    let store = store(&ended).unwrap();
    assert!(store.idle.elapsed_nanos > 0 && store.disk_bytes.is_none(), "{store:?}");
    let expected = format!("bench-job: w: what the store used is not known: the meter at {}", meter.address);
    assert!(ended.errors.lines().any(|line| line.starts_with(&expected)), "{}", ended.errors);
}

// --- a job that has it strike ------------------------------------------------

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A job of one workload, whose store's meter is asked to do this to it.
fn striking(endpoint: &str, meter: &Meter, workload: &Value, fault: &Value, token: &str) -> Job {
    let (name, parameters) = workload.as_object().unwrap().iter().next().unwrap();
    let load = json!({ "connections": 2, "duration": "5s", "warmUp": "100ms", "timeout": "1s", "fault": fault });
    let spec = json!({
        "run": "test", "arm": "a", "trial": 0, "seed": 42, "endpoints": [endpoint], "meters": [meter.address],
        "durability": "Fsync", "metersStrike": true, "workloads": [{ "name": "w", name: parameters, "load": load }],
    });
    Job::start(&spec, &["--strike-token", token])
}

/// The one duration that a job measured under this name, milliseconds.
fn measured_millis(ended: &Ended, name: &str) -> u64 {
    let found = ended.lines.iter().find_map(|line| match line {
        JobLine::Measure { measure, reading: storebench_crds::measure::Reading::Durations(durations), .. }
            if measure == name =>
        {
            Some(durations.decode().unwrap().max() / 1_000_000)
        }
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no {name}: {:?}", ended.lines))
}

fn striking_redis(redis: &Redis, arguments: &[&str]) -> Meter {
    let pid = redis.pid().to_string();
    let arguments: Vec<&str> = ["--pid", &pid].into_iter().chain(arguments.iter().copied()).collect();
    Meter::start("redis", &redis.endpoint(), &arguments)
}

#[test]
fn a_job_has_its_store_stand_still_by_the_meter_beside_it() {
    let redis = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let meter = striking_redis(&redis, &["--strike-token", TOKEN]);
    let set = json!({ "redis": { "command": "Set", "keySpace": 100 } });
    let fault = json!({ "kind": "Stop", "after": "1s", "duration": "700ms" });
    let ended = striking(&redis.endpoint(), &meter, &set, &fault, TOKEN).end();
    assert!(ended.measured().operations > 0);
    let pause = measured_millis(&ended, "writePause");
    assert!((650..3_000).contains(&pause), "{pause} ms");
    let recovery = measured_millis(&ended, "recovery");
    assert!(recovery < 1_000, "{recovery} ms");
    assert!(ended.lines.iter().any(|line| matches!(line, JobLine::Strike { .. })), "the log says what was done");
}

#[test]
fn a_job_that_may_not_strike_fails_by_itself_and_leaves_the_store_alone() {
    let redis = Redis::start(&[]);
    let other = TOKEN.replace('f', "e");
    let set = json!({ "redis": { "command": "Set", "keySpace": 100 } });
    let fault = json!({ "kind": "Kill", "after": "200ms", "duration": "1s" });
    for (arguments, expected) in [(["--strike-token", TOKEN].as_slice(), "HTTP status 401"), (&[], "HTTP status 403")] {
        let meter = striking_redis(&redis, arguments);
        let (status, said) = striking(&redis.endpoint(), &meter, &set, &fault, &other).fail();
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("does not strike the store beside it: POST /strike: {expected}")), "{said}");
        assert!(!said.contains(&other), "{said}");
        assert_eq!(redis.command("PING"), "+PONG\r\n");
    }
}

// --- the namespace of a pod --------------------------------------------------

/// A process namespace whose first process only holds it, as in a pod, and a folder that everybody may use.
struct Pod {
    first: String,
    _unshare: Process,
    folder: TempDir,
    port: u16,
}

impl Pod {
    /// Of a store of this peer.
    fn of(store: &std::path::Path) -> Self {
        let mut unshare = command("unshare");
        unshare.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sleep", "600"]);
        let unshare = Process::start(&mut unshare);
        let main = OwnProcess::new(unshare.id().cast_signed()).unwrap().task_main_thread().unwrap();
        until("the namespace's first process", || !main.children().unwrap().is_empty());
        let first = main.children().unwrap()[0].to_string();
        // Until it has mounted what shows the namespace's own processes.
        sleep(Duration::from_millis(300));
        let folder = harness::folder();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        for program in [store, std::path::Path::new(env!("CARGO_BIN_EXE_store-meter"))] {
            fs::copy(program, folder.path().join(program.file_name().unwrap())).unwrap();
        }
        // Libraries that a peer finds beside itself.
        for library in fs::read_dir(store.with_file_name("lib")).into_iter().flatten().map(Result::unwrap) {
            fs::create_dir_all(folder.path().join("lib")).unwrap();
            fs::copy(library.path(), folder.path().join("lib").join(library.file_name())).unwrap();
        }
        Self { first, _unshare: unshare, folder, port: free_port() }
    }

    /// Runs a program in the namespace as a container's is run: first as root, and then as nobody in particular, without
    /// any capability.
    fn enter(&self, root_for: &str, program: &str) -> Command {
        let mut command = command("nsenter");
        let become_nobody = "exec setpriv --reuid 65532 --regid 65532 --clear-groups --inh-caps=-all \
                             --bounding-set=-all --no-new-privs \"$@\"";
        command.args(["--target", &self.first, "--pid", "--mount", "sh", "-c"]);
        command.args([&format!("sleep {root_for}; {become_nobody}"), "sh"]).arg(self.folder.path().join(program));
        command
    }

    /// Starts it on the data of an earlier one.
    fn start_redis(&self) -> Process {
        let mut redis = self.enter("0.5", "redis-server");
        redis.args(["--bind", "127.0.0.1", "--port", &self.port.to_string(), "--save", ""]);
        redis.args(["--appendonly", "yes", "--appendfsync", "always", "--dir"]).arg(self.folder.path());
        Process::start(redis.stdout(Stdio::null()).stderr(Stdio::null()))
    }

    fn start_etcd(&self) -> Process {
        let (client, peer) = (format!("http://127.0.0.1:{}", self.port), format!("http://127.0.0.1:{}", free_port()));
        let mut etcd = self.enter("0.5", "etcd");
        etcd.arg("--data-dir").arg(self.folder.path().join("data").join(free_port().to_string()));
        etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        etcd.args(["--initial-cluster", &format!("default={peer}"), "--log-level", "panic"]);
        Process::start(etcd.stdout(Stdio::null()).stderr(Stdio::null()))
    }
}

#[test]
#[ignore = "makes a process namespace, which takes root: .ci/run runs it"]
fn in_a_pod_the_store_is_waited_for_and_found_and_its_restart_is_counted() {
    let pod = Pod::of(&peer("etcd", "etcd"));
    let meter = Meter::run(&mut pod.enter("0", "store-meter"), "etcd", &format!("127.0.0.1:{}", pod.port), &[]);
    let problem = || meter.read::<MemberReading>("/store").problem.unwrap_or_default();
    meter.until(|| problem().contains("shareProcessNamespace"));

    let begun = Instant::now();
    let mut etcd = pod.start_etcd();
    meter.until(|| problem().contains("has not started, or store-meter does not run as its user"));
    let footprint = meter.member().footprint.unwrap();
    let startup = Duration::from_micros(footprint.startup_micros);
    assert!(startup > Duration::from_millis(20), "{footprint:?}");
    // Half a second before it, the process was there but was not the store; idle, it was watched for 0.3 s more.
    assert!(startup < begun.elapsed() - Duration::from_millis(700), "{footprint:?} in {:?}", begun.elapsed());
    assert!(footprint.binary_bytes > 1_000_000, "{footprint:?}");
    let reading: Reading = meter.read("/reading?pss=true");
    assert!(reading.pss_bytes.unwrap() > 1_000_000 && reading.restarts == 0, "{reading:?}");

    let tasks = OwnProcess::new(etcd.id().cast_signed()).unwrap().task_main_thread().unwrap();
    let store = Pid::from_raw(tasks.children().unwrap()[0].cast_signed()).unwrap();
    kill_process(store, Signal::KILL).unwrap();
    etcd.wait();
    meter.until(|| {
        meter.ask("/reading").is_err_and(|error| error.to_string().contains("no process of a store is there"))
    });
    let mut etcd = pod.start_etcd();
    meter.until(|| meter.ask("/reading").is_ok_and(|text| text.contains("\"restarts\":1")));
    drop(pod);
    etcd.wait();
}

#[test]
#[ignore = "makes a process namespace, which takes root: .ci/run runs it"]
fn in_a_pod_a_killed_store_is_back_when_others_have_started_it_and_has_what_was_acknowledged() {
    let pod = Pod::of(&peer("redis", "redis-server"));
    let endpoint = format!("127.0.0.1:{}", pod.port);
    let mut redis = pod.start_redis();
    let meter = Meter::run(&mut pod.enter("0", "store-meter"), "redis", &endpoint, &["--strike-token", TOKEN]);
    meter.member();
    let set = json!({ "redis": { "command": "Set", "keySpace": 100 } });
    // For much longer than it is dead: others decide.
    let fault = json!({ "kind": "Kill", "after": "500ms", "duration": "4s" });
    let job = striking(&endpoint, &meter, &set, &fault, TOKEN);
    redis.wait();
    // As a kubelet does: for half a second the process is there and is not the store yet.
    let mut redis = pod.start_redis();
    let ended = job.end();
    assert!(ended.measured().verified > 0);
    let (pause, recovery) = (measured_millis(&ended, "writePause"), measured_millis(&ended, "recovery"));
    // From the moment at which the store is there, not from the kill, and not from the end of the four seconds.
    assert!(pause >= 500 && recovery + 400 < pause, "{recovery} ms of {pause} ms");
    assert_eq!(usages(&ended), [], "what it used is not measured where it was killed");
    drop(pod);
    redis.wait();
}
