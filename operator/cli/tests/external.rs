//! A store that was there already, from a file to a report: a real Redis that speaks TLS and wants a password.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod finished;
#[allow(dead_code)]
mod world;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;

use finished::Finished;
use harness::{Authority, Process, command, free_port, peer, until};
use world::World;

const PASSWORD: &str = "s3cret";

/// A Redis over TLS with a password; killed when dropped.
struct Redis {
    _process: Process,
    port: u16,
}

impl Redis {
    fn start(authority: &Authority, folder: &std::path::Path) -> Self {
        let (certificate, key) = authority.sign("redis");
        let port = free_port();
        let mut redis = command(peer("redis", "redis-server"));
        redis.args(["--bind", "127.0.0.1", "--port", "0", "--tls-port", &port.to_string(), "--save", ""]);
        redis.args(["--requirepass", PASSWORD, "--tls-auth-clients", "no"]);
        redis.arg("--tls-cert-file").arg(certificate).arg("--tls-key-file").arg(key);
        redis.arg("--tls-ca-cert-file").arg(authority.path()).arg("--dir").arg(folder);
        let process = Process::start(redis.stdout(Stdio::null()).stderr(Stdio::null()));
        until("redis-server to listen", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { _process: process, port }
    }
}

/// A run on the store alone, so short that nobody who shares this machine can disturb it; `external` is more of its fields, in YAML's flow style.
fn file(port: u16, external: &str) -> String {
    format!(
        "apiVersion: storebench.dev/v1alpha1
kind: StorageService
metadata: {{ name: mine }}
spec: {{ engine: Redis, durability: None, external: {{ endpoints: ['localhost:{port}'], {external} }} }}
---
apiVersion: storebench.dev/v1alpha1
kind: BenchmarkRun
metadata: {{ name: run }}
spec:
  arms:
  - {{ name: mine, serviceRef: {{ name: mine }} }}
  isolation: Shared
  workloads:
  - name: set
    redis: {{ command: Set, keySpace: 500 }}
    load: {{ total: 200, connections: 4, warmUp: 0s }}
  trials: {{ min: 3, max: 3, retries: 10 }}
"
    )
}

#[test]
fn a_redis_over_tls_is_measured_and_what_nobody_can_know_of_it_is_absent() {
    let (world, authority) = (World::new(), Authority::new());
    let redis = Redis::start(&authority, authority.path().parent().unwrap());
    let tls = format!("tls: {{ caFile: {} }}", authority.path().display());
    let text = file(redis.port, &format!("{tls}, passwordFrom: {{ environment: REDIS_PASSWORD }}"));
    let path = world.write("run.yaml", &text);
    let mut command = world.storebench();
    command.arg("run").arg(&path).args(["-o", "json"]).env("REDIS_PASSWORD", PASSWORD);
    let ran = Finished::of(command.output().unwrap());
    world.assert_nothing_is_left();
    let report = ran.report();
    // One arm is compared with nothing.
    assert_eq!(report["judgement"]["verdict"], "NoBaseline", "{}", report["judgement"]["message"]);
    let record = &report["record"];
    let arm = &record["arms"][0];
    assert_eq!((&arm["durabilitySetting"], &arm["engine"]), (&"as stated by the user".into(), &"Redis".into()));
    assert!(arm["version"].as_str().is_some_and(|version| version.starts_with("7.")), "{}", arm["version"]);
    let place = format!("localhost:{} over TLS", redis.port);
    assert_eq!(arm["fields"]["external"], place);
    assert_eq!(record["fingerprint"]["facts"]["service mine"], format!("external at {place}"));
    let caveats = record["caveats"].to_string();
    assert!(caveats.contains(&place) && caveats.contains("as stated by the user"), "{caveats}");
    let trials = record["trials"].as_array().unwrap();
    assert!(trials.iter().all(|trial| trial["footprint"].is_null() && trial["workloads"][0]["usage"].is_null()));
    assert!(!ran.stdout.contains(PASSWORD) && !ran.stderr.contains(PASSWORD), "the password is in the report");

    // Paths in a file are meant from where the file is, and those of standard input from where storebench was started.
    let folder = path.parent().unwrap();
    std::fs::create_dir(folder.join("secrets")).unwrap();
    std::fs::write(folder.join("secrets/password"), PASSWORD).unwrap();
    let text = file(redis.port, &format!("{tls}, passwordFrom: {{ file: secrets/password }}"));
    world.write("run.yaml", &text);
    let elsewhere = harness::folder();
    for (argument, from) in [(path.as_path(), elsewhere.path()), (Path::new("-"), folder)] {
        let mut command = world.storebench();
        command.arg("run").arg(argument).args(["-o", "json"]).current_dir(from);
        command.stdin(std::fs::File::open(&path).unwrap()).args(["--save", folder.join("saved").to_str().unwrap()]);
        let ran = Finished::of(command.output().unwrap());
        // One arm is compared with nothing.
        assert_eq!(ran.report()["judgement"]["verdict"], "NoBaseline", "{}", ran.stderr);
    }
    // What is kept has the store, too, and finds its files from where it lies.
    let kept = world.storebench().arg("validate").arg(folder.join("saved/run/latest/run.yaml")).arg("--here").output();
    let kept = Finished::of(kept.unwrap());
    assert_eq!(kept.code, Some(0), "{}", kept.stderr);
    assert!(kept.stdout.contains("StorageService/mine: valid"), "{}", kept.stdout);
}

/// All was well on this machine, it said, while nothing answered there.
#[test]
fn an_endpoint_at_which_nothing_answers_is_refused_here_and_dialled_nowhere_else() {
    let world = World::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let text = file(port, "allowData: true");
    let run = world.write("run.yaml", &text);
    let (service, _) = text.split_once("---\n").unwrap();
    let alone = world.write("service.yaml", service);
    let validate = |path: &Path, more: &[&str]| {
        Finished::of(world.storebench().arg("validate").arg(path).args(more).output().unwrap())
    };
    assert_eq!(validate(&run, &[]).code, Some(0));
    assert!(listener.accept().is_err(), "nobody was to dial it");
    let answered = validate(&run, &["--here"]);
    assert_eq!(answered.code, Some(0), "{}", answered.stderr);
    assert!(answered.stdout.contains("StorageService/mine: valid"), "{}", answered.stdout);
    assert!(listener.accept().is_ok(), "it was dialled");
    drop(listener);
    let expected = format!(
        "StorageService/mine spec.external.endpoints[0]: nothing answers at localhost:{port}: start it, or mend spec.external.endpoints"
    );
    for path in [&run, &alone] {
        let silent = validate(path, &["--here"]);
        assert_eq!(silent.code, Some(1), "{}", silent.stdout);
        assert_eq!(silent.stderr.matches(&expected).count(), 1, "{}", silent.stderr);
        assert!(silent.stdout.contains("StorageService/mine: refused on this machine"), "{}", silent.stdout);
        assert!(!silent.stdout.contains(": valid"), "{}", silent.stdout);
        assert_eq!(validate(path, &[]).code, Some(0));
    }
}

/// The password itself stood in the line that said what is wrong with it.
#[test]
fn a_password_that_is_not_utf_8_is_refused_and_not_printed() {
    use std::os::unix::ffi::OsStrExt as _;
    let world = World::new();
    let path = world.write("run.yaml", &file(free_port(), "passwordFrom: { environment: REDIS_PASSWORD }"));
    for command in [&["validate"][..], &["validate", "--here"], &["run"]] {
        let mut storebench = world.storebench();
        storebench.args(command).arg(&path).env("REDIS_PASSWORD", std::ffi::OsStr::from_bytes(b"s3cret\xff"));
        let told = Finished::of(storebench.output().unwrap());
        let all = told.stdout + &told.stderr;
        assert!(all.contains("spec.external.passwordFrom.environment: REDIS_PASSWORD: is not UTF-8"), "{all}");
        assert!(!all.contains("s3cret"), "{all}");
    }
}

/// Whoever mended one file was told of the next.
#[test]
fn all_files_that_are_missing_are_told_at_once() {
    let world = World::new();
    let tls = "tls: { caFile: /no/ca, certificateFile: /no/cert, keyFile: /no/key }";
    let path = world.write("run.yaml", &file(free_port(), &format!("{tls}, passwordFrom: {{ file: /no/password }}")));
    let told = Finished::of(world.storebench().arg("validate").arg(&path).arg("--here").output().unwrap());
    for field in ["tls.caFile: /no/ca", "tls.certificateFile: /no/cert", "tls.keyFile: /no/key"] {
        assert!(told.stderr.contains(&format!("spec.external.{field}: is not there: ")), "{field}: {}", told.stderr);
    }
    let password = "spec.external.passwordFrom.file: /no/password: is not there: name a file that is";
    assert!(told.stderr.contains(password), "{}", told.stderr);
    for field in ["passwordFrom", "tls"] {
        let line = format!("in a cluster it is refused: StorageService/mine spec.external.{field}: ");
        assert!(told.stdout.contains(&line), "{field}: {}", told.stdout);
    }
}

/// A program of this name that takes a processor, and is nobody's of storebench; killed when dropped.
fn busy(world: &World, name: &str) -> Process {
    let path = world.peers().join(name);
    std::os::unix::fs::symlink("/usr/bin/yes", &path).unwrap();
    Process::start(command(path).stdout(Stdio::null()).stderr(Stdio::null()))
}

/// A Redis that anybody may use, and the file of a run on it.
fn open_redis(folder: &Path, trials: &str, load: &str) -> (Process, String) {
    let port = free_port();
    let mut redis = command(peer("redis", "redis-server"));
    redis.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--dir"]).arg(folder);
    let process = Process::start(redis.stdout(Stdio::null()).stderr(Stdio::null()));
    until("redis-server to listen", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let text = file(port, "allowData: false").replace("min: 3, max: 3, retries: 10", trials);
    (process, text.replace("total: 200, connections: 4, warmUp: 0s", load))
}

#[test]
fn beside_busy_programs_a_store_of_this_machine_is_disturbed_as_any_other_and_never_by_itself() {
    let (world, folder) = (World::new(), harness::folder());
    // Without a pause the store takes all of a processor.
    let load = "duration: 1500ms, connections: 8, warmUp: 0s";
    let (_redis, text) = open_redis(folder.path(), "min: 3, max: 3, retries: 0", load);
    let path = world.write("run.yaml", &text);
    let run = || {
        let mut command = world.storebench();
        command.arg("run").arg(&path).args(["-o", "json", "--wait-for-quiet", "0s"]);
        Finished::of(command.output().unwrap()).report()
    };
    let disturbances = |report: &serde_json::Value| -> Vec<String> {
        let trials = report["record"]["trials"].as_array().unwrap();
        let failures = trials.iter().filter(|trial| trial["failure"]["cause"] == "Disturbed");
        failures.map(|trial| trial["failure"]["detail"].as_str().unwrap().to_owned()).collect()
    };
    let quiet = run();
    let caveats = quiet["record"]["caveats"].to_string();
    assert!(caveats.contains("mine is served on this machine by redis-server ("), "{caveats}");
    // Others may share this machine with the test: only that the store is never a stranger to its own trial is certain.
    assert!(disturbances(&quiet).iter().all(|one| !one.contains("redis-server")), "{quiet}");
    let trials = quiet["record"]["trials"].as_array().unwrap();
    assert!(trials.iter().all(|trial| trial["workloads"][0]["foreignMillicores"].is_u64()), "{quiet}");

    let _neighbours = [busy(&world, "busy-one"), busy(&world, "busy-two")];
    let disturbed = run();
    assert_eq!(disturbed["judgement"]["verdict"], "Invalid", "{}", disturbed["judgement"]["message"]);
    let said = disturbances(&disturbed);
    assert!(said.first().is_some_and(|one| one.contains("busy-")), "{disturbed}");
    assert!(said.iter().all(|one| !one.contains("redis-server")), "{said:?}");
}

/// What speaks Redis's protocol is not called Redis for that, and what nobody started is not called a process on loopback.
#[test]
fn a_valkey_is_named_as_it_names_itself() {
    let (world, folder) = (World::new(), harness::folder());
    let port = free_port();
    let mut valkey = command(peer("valkey", "valkey-server"));
    valkey.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--dir"]).arg(folder.path());
    let _valkey = Process::start(valkey.stdout(Stdio::null()).stderr(Stdio::null()));
    until("valkey-server to listen", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let path = world.write("run.yaml", &file(port, "allowData: false"));
    let ran = Finished::of(world.storebench().arg("run").arg(&path).args(["-o", "markdown"]).output().unwrap());
    let own = harness::peers::version("valkey");
    assert!(ran.stdout.contains(&format!("| speaks Redis | Valkey {own} |")), "{}", ran.stdout);
    assert!(ran.stdout.contains("loaded from this machine, stores that were there already"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("processes on loopback"), "{}", ran.stdout);
}

#[test]
fn a_wrong_authority_and_a_wrong_password_are_told_in_one_line_each() {
    let (world, authority, other) = (World::new(), Authority::new(), Authority::new());
    let redis = Redis::start(&authority, authority.path().parent().unwrap());
    for (ca, password, said) in [
        (other.path(), PASSWORD, "external.tls.caFile (ca.crt of secretName) has not signed its certificate"),
        (authority.path(), "guess", "look at external.user and external.passwordFrom"),
    ] {
        let external = format!("tls: {{ caFile: {} }}, passwordFrom: {{ environment: REDIS_PASSWORD }}", ca.display());
        let path = world.write("run.yaml", &file(redis.port, &external));
        let mut command = world.storebench();
        command.arg("run").arg(&path).args(["-o", "json"]).env("REDIS_PASSWORD", password);
        Finished::of(command.output().unwrap()).error(&["run.yaml: StorageService/mine spec.external: ", said]);
    }
}

/// Two stores, of which the second would be looked at only after the first was loaded.
#[test]
fn a_store_that_is_away_or_not_empty_is_told_before_anything_is_measured() {
    let (world, folder) = (World::new(), harness::folder());
    let (_redis, text) = open_redis(folder.path(), "min: 3, max: 3", "total: 200, connections: 2, warmUp: 0s");
    let (_taken, taken) = open_redis(folder.path(), "min: 3", "total: 1");
    let endpoint = |text: &str| text.split('\'').nth(1).unwrap().to_owned();
    ask(&endpoint(&taken), "SET somebody here\r\n");
    let away = format!("localhost:{}", free_port());
    let saved = world.data().with_file_name("saved");
    for (place, said) in [(&endpoint(&taken), "holds 1 key,"), (&away, "Connection refused")] {
        let second = format!(
            "---\napiVersion: storebench.dev/v1alpha1\nkind: StorageService\nmetadata: {{ name: other }}\n\
             spec: {{ engine: Redis, durability: None, external: {{ endpoints: ['{place}'] }} }}\n"
        );
        let arms = "  - { name: mine, serviceRef: { name: mine } }\n";
        let both = format!("{arms}  - {{ name: other, serviceRef: {{ name: other }} }}\n");
        let path = world.write("run.yaml", &(text.replace(arms, &both) + &second));
        let mut command = world.storebench();
        command.arg("run").arg(&path).arg("--save").arg(&saved).args(["--wait-for-quiet", "0s", "--quiet"]);
        let ran = Finished::of(command.output().unwrap());
        ran.error(&["run.yaml: StorageService/other spec.external: ", said]);
        let kept = std::fs::read_dir(saved.join("run")).map_or(0, Iterator::count);
        assert_eq!(kept, 0, "what did not begin leaves no folder behind");
    }
    assert_eq!(ask(&endpoint(&text), "DBSIZE\r\n"), ":0");
}

/// What a Redis answers to a line.
fn ask(endpoint: &str, line: &str) -> String {
    let mut connection = TcpStream::connect(endpoint).unwrap();
    connection.write_all(line.as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(connection).read_line(&mut answer).unwrap();
    answer.trim_end().to_owned()
}

/// Nobody else removes it, and with `--quiet` nobody would know.
#[test]
fn what_a_load_left_in_somebody_s_store_stands_in_the_report_and_is_said_however_quiet() {
    let (world, folder) = (World::new(), harness::folder());
    let endpoint = |text: &str| text.split('\'').nth(1).unwrap().to_owned();
    for (trials, is_interrupted) in [("min: 3, max: 3", true), ("min: 3, max: 3, timeout: 4s", false)] {
        // More than anybody answers within the trial's time.
        let load = "total: 1000000000, connections: 2, warmUp: 0s";
        let (_redis, text) = open_redis(folder.path(), trials, load);
        let path = world.write("run.yaml", &text);
        let saved = world.data().with_file_name("saved");
        let mut command = world.storebench();
        command.arg("run").arg(&path).args(["--quiet", "-o", "json", "--wait-for-quiet", "0s", "--save"]).arg(&saved);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until("keys in the store", || ask(&endpoint(&text), "DBSIZE\r\n") != ":0");
        if is_interrupted {
            let kill = std::process::Command::new("kill").arg("-INT").arg(child.id().to_string()).status();
            assert!(kill.unwrap().success());
        }
        let ran = Finished::of(child.wait_with_output().unwrap());
        assert_eq!(ran.code, Some(if is_interrupted { 130 } else { 4 }), "{}", ran.stderr);
        let report = ran.report();
        let left = &report["record"]["leftBehind"][0];
        assert_eq!((&left["arm"], &left["workload"]), (&"mine".into(), &"set".into()), "{}", ran.stderr);
        let (prefix, removal) = (left["prefix"].as_str().unwrap(), left["removal"].as_str().unwrap());
        assert!(prefix.starts_with("storebench:") && removal.starts_with("redis-cli -h localhost"), "{left}");
        let told = format!("keys that begin with {prefix} stay in the store; to remove them: {removal}");
        assert_eq!(ran.stderr.matches(&told).count(), 1, "{}", ran.stderr);
        let again = world.storebench().arg("report").arg(saved.join("run/latest/report.json")).output().unwrap();
        let again = Finished::of(again).stdout;
        assert!(again.contains(&format!("to remove them:  {removal}\n")), "{again}");
    }
}

#[test]
fn what_cannot_be_read_here_is_told_before_anything_is_measured() {
    let world = World::new();
    for (external, said) in [
        ("passwordFrom: { file: /no/such }", "StorageService/mine spec.external.passwordFrom.file: /no/such: "),
        ("passwordFrom: { environment: NO_SUCH }", "spec.external.passwordFrom.environment: NO_SUCH: "),
        ("tls: { caFile: /no/such }", "spec.external.tls.caFile: /no/such: "),
        ("passwordFrom: { secretKeyRef: { name: s, key: k } }", "spec.external.passwordFrom: names a Secret"),
        ("tls: { secretName: s }", "spec.external.tls: names a Secret"),
    ] {
        let path = world.write("run.yaml", &file(1, external));
        let ran = Finished::of(world.storebench().arg("run").arg(&path).output().unwrap());
        ran.error(&["run.yaml: ", said]);
        // Elsewhere it may be right.
        let valid = Finished::of(world.storebench().arg("validate").arg(&path).output().unwrap());
        assert_eq!(valid.code, Some(0), "{}", valid.stderr);
        assert!(
            valid.stdout.contains("not on this machine as it is: ") && valid.stdout.contains(said),
            "{}",
            valid.stdout
        );
        assert!(valid.stdout.contains("valid: a store that speaks redis at localhost:1"), "{}", valid.stdout);
    }
    world.assert_nothing_is_left();
}
