//! What a user meets from the first file to the history of many runs: mistakes told at once, one measurement at a time, runs compared.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod finished;
#[allow(dead_code)]
mod later;
#[allow(dead_code)]
mod world;

use std::path::{Path, PathBuf};

use finished::Finished;
use later::{later, nightly, save, until_undisturbed};
use serde_json::Value;
use world::{World, one_arm};

const REDIS_SET: &str = "redis: { command: Set, keySpace: 2000 }";
const SHORT: &str = "{ total: 300, connections: 3, warmUp: 0s }";

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn validate(world: &World, arguments: &[&str]) -> Finished {
    Finished::of(world.storebench().arg("validate").args(arguments).output().unwrap())
}

#[test]
fn every_mistake_has_its_line() {
    let world = World::new();
    let text = one_arm("redis", harness::version("redis"), REDIS_SET, SHORT).replace("min: 3, max: 3", "min: 12");
    let file = world.write("run.yaml", &(text + "  gates: [{ arm: stor, metric: ThroughputPerSecond, atLeast: 5 }]\n"));
    for command in ["validate", "run"] {
        let said = Finished::of(world.storebench().arg(command).arg(&file).output().unwrap());
        let lines: Vec<&str> = said.stderr.lines().collect();
        assert_eq!((said.code, said.stdout.as_str(), lines.len()), (Some(1), "", 3), "{}", said.stderr);
        for (line, part) in lines.iter().zip(["did you mean Redis?", "trials.max is 10", "did you mean store?"]) {
            assert!(line.starts_with(&format!("storebench: {}: ", file.display())) && line.contains(part), "{line}");
        }
    }
}

#[test]
fn a_directory_of_samples_is_valid() {
    let world = World::new();
    for directory in ["manifests/samples", "manifests/samples/reports"] {
        let said = validate(&world, &[project().join(directory).to_str().unwrap()]);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        assert!(said.stdout.matches("BenchmarkRun/").count() >= 5, "{}", said.stdout);
    }
}

#[test]
fn files_of_a_directory_share_what_is_no_run_and_nothing_else() {
    let world = World::new();
    let folder = world.data().with_file_name("files");
    std::fs::create_dir(&folder).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    let text = one_arm("Redis", harness::version("redis"), REDIS_SET, SHORT);
    let (service, run) = text.split_once("---\n").unwrap();
    write("services.yaml", service);
    write("one.yaml", run);
    write("other.yaml", run);
    write("kustomization.yaml", "resources: [one.yaml]\n");
    write("notes.txt", "no YAML");
    let said = validate(&world, &[folder.to_str().unwrap()]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert_eq!(said.stdout.matches("BenchmarkRun/run: valid").count(), 2, "{}", said.stdout);
    write("bad.yaml", &run.replace("name: store }", "name: stroe }"));
    let said = validate(&world, &[folder.to_str().unwrap()]);
    assert_eq!((said.code, said.stderr.lines().count()), (Some(1), 1), "{}", said.stderr);
    assert!(
        said.stderr
            .contains("bad.yaml: BenchmarkRun/run spec.arms[0].serviceRef.name: no StorageService is named `stroe`")
    );
}

/// Whatever stands in a file of which the kind is misspelt is nothing to its neighbours.
#[test]
fn a_kind_that_is_misspelt_is_told_of_its_file_and_of_no_other() {
    let world = World::new();
    let folder = world.data().with_file_name("files");
    std::fs::create_dir(&folder).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    let text = one_arm("Redis", harness::version("redis"), REDIS_SET, SHORT);
    write("good.yaml", &text);
    let validated = || validate(&world, &[folder.to_str().unwrap()]);
    for (kind, said) in [
        ("BenchmarkRum", "bad.yaml: document 2 kind: `BenchmarkRum` is not known: did you mean BenchmarkRun?"),
        ("Deployment", "bad.yaml: document 2 kind: `Deployment` is not known: write StorageService, "),
    ] {
        write("bad.yaml", &text.replace("kind: BenchmarkRun", &format!("kind: {kind}")));
        let told = validated();
        told.error_after_output(&[said]);
        assert_eq!(told.stdout.matches("BenchmarkRun/run: valid").count(), 1, "{}", told.stdout);
    }
    // A service that was to be shared is there, whatever is wrong with it.
    let (service, run) = text.split_once("---\n").unwrap();
    write("good.yaml", run);
    write("bad.yaml", &service.replace("kind: StorageService", "kind: StorageServise"));
    validated().error_after_output(&["bad.yaml: document 1 kind: `StorageServise`", "did you mean StorageService?"]);
}

#[test]
fn a_directory_is_validated_with_all_below_it_each_folder_by_itself() {
    let world = World::new();
    let folder = world.data().with_file_name("files");
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let run = one_arm("Redis", harness::version("redis"), REDIS_SET, SHORT);
    write("one/run.yaml", &run);
    write("two/deeper/run.yaml", &run);
    write(".hidden/run.yaml", "no: [YAML");
    std::os::unix::fs::symlink(&folder, folder.join("two/loop")).unwrap();
    let said = validate(&world, &[folder.to_str().unwrap()]);
    let is_told = |file: &str| said.stdout.contains(&format!("files/{file}: BenchmarkRun/run: valid"));
    assert!(said.code == Some(0) && is_told("one/run.yaml") && is_told("two/deeper/run.yaml"), "{}", said.stdout);
    write("two/deeper/run.yaml", &run.replace("Set", "Sett"));
    validate(&world, &[folder.to_str().unwrap()]).error_after_output(&["two/deeper/run.yaml: "]);
    std::fs::create_dir(folder.join("empty")).unwrap();
    validate(&world, &[folder.join("empty").to_str().unwrap()]).error(&["empty: holds no file that ends in .yaml"]);
}

#[test]
fn arms_that_will_not_be_ranked_are_told_before_anything_is_measured() {
    let world = World::new();
    let no_baseline = world.write("no-baseline.yaml", &nightly().replace("baseline: true, ", ""));
    let told = validate(&world, &[no_baseline.to_str().unwrap()]);
    let line = "nothing will be compared: no arm is the baseline: add baseline: true to one of redis, valkey";
    assert!(told.code == Some(0) && told.stdout.contains(line), "{}{}", told.stdout, told.stderr);
    let unequal = nightly().replace("engine: Valkey", "engine: Valkey, durability: None, args: [--hz, '50']");
    let file = world.write("run.yaml", &unequal);
    let said = validate(&world, &[file.to_str().unwrap()]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let line = said.stdout.lines().find(|line| line.contains("will not be ranked")).expect(&said.stdout);
    let expected = "  warning: will not be ranked: valkey against redis, for durability None against Fsync; args --hz 50 against none: make the two";
    assert!(line.starts_with(expected), "{line}");
    let mut command = world.storebench();
    let ran = Finished::of(command.arg("run").arg(&file).args(["--wait-for-quiet", "0s"]).output().unwrap());
    let first = ran.stderr.lines().next().unwrap_or_default();
    assert!(first.starts_with("nightly: will not be ranked: valkey against redis"), "{first}");
    world.write("run.yaml", &nightly());
    assert!(!validate(&world, &[file.to_str().unwrap()]).stdout.contains("ranked"));
}

/// What is piped to `head -1`: its reader is gone after a line, or before the first.
#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let world = World::new();
    let file = world.write("run.yaml", &nightly());
    let missing = file.with_file_name("missing.yaml");
    std::fs::remove_dir_all(world.peers()).unwrap();
    let cases: [(&[&str], i32); 5] = [
        (&["engines"], 0),
        (&["man"], 0),
        (&["validate", missing.to_str().unwrap()], 1),
        (&["run", file.to_str().unwrap()], 3),
        (&["nonsense"], 1),
    ];
    for (arguments, expected) in cases {
        let closed = || {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            writer
        };
        let mut command = world.storebench();
        command.args(arguments).env("PATH", "/nonexistent").stdout(closed()).stderr(closed());
        assert_eq!(command.status().unwrap().code(), Some(expected), "{arguments:?}");
    }
}

#[test]
fn every_command_has_its_manual_page() {
    let world = World::new();
    let folder = world.data().with_file_name("man");
    let said = Finished::of(world.storebench().arg("man").arg(&folder).output().unwrap());
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stdout.contains("storebench-run.1\n"), "{}", said.stdout);
    let mut pages: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    pages.sort();
    let help = Finished::of(world.storebench().arg("--help").output().unwrap()).stdout;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let mut expected: Vec<String> = commands
        .filter_map(|line| {
            line.strip_prefix("  ")?.split(' ').next().filter(|word| !word.is_empty() && *word != "help")
        })
        .map(|name| format!("storebench-{name}.1"))
        .collect();
    assert!(expected.len() >= 10, "{help}");
    expected.push("storebench.1".into());
    expected.sort();
    assert_eq!(pages, expected);
    let page = std::fs::read_to_string(folder.join("storebench-run.1")).unwrap();
    assert!(page.contains(".TH storebench-run 1") && page.contains("wait\\-for\\-quiet"), "{page}");
    assert!(page.contains("\\fBstorebench run\\fR"), "{page}");
}

/// One of them removes a directory.
#[test]
fn what_storebench_calls_itself_with_is_offered_to_nobody() {
    let world = World::new();
    let said = |arguments: &[&str]| Finished::of(world.storebench().args(arguments).output().unwrap());
    let misspelt = said(&["rn"]);
    assert!(misspelt.code == Some(1) && !misspelt.stderr.contains("orphaned"), "{}", misspelt.stderr);
    for shell in ["bash", "zsh", "fish"] {
        let completion = said(&["completion", shell]).stdout;
        assert!(completion.contains("validate"), "{completion}");
        assert!(!completion.contains("orphaned") && !completion.contains("exec-guarded"), "{shell}");
    }
}

/// Without --baseline, too: who writes it means something by it.
#[test]
fn a_tolerance_that_tolerates_anything_is_refused_before_anything_is_measured() {
    let world = World::new();
    let file = world.write("run.yaml", &nightly());
    let ran = world.storebench().arg("run").arg(&file).args(["--tolerance", "5"]).output().unwrap();
    Finished::of(ran).error(&["--tolerance: 5 would tolerate anything"]);
}

/// Nobody knows else whether to wait for it or to have dinner.
#[test]
fn how_long_a_run_measures_is_told_by_validate() {
    let world = World::new();
    let text = nightly().replace("total: 50, warmUp: 0s", "duration: 9s").replace("max: 3", "max: 20");
    let file = world.write("run.yaml", &text);
    let ran = Finished::of(world.storebench().arg("validate").arg(&file).output().unwrap());
    let told = ran.stdout.lines().find(|line| line.starts_with("  loads its stores for "));
    let told = told.unwrap_or_else(|| panic!("{} {text}", ran.stdout));
    // Ten seconds with warming up, for each of two stores.
    assert_eq!(told, "  loads its stores for 60 s to 7 min; starting, filling and checking them comes on top");
}

#[test]
fn of_a_run_that_ends_by_what_is_done_validate_says_how_much_that_is() {
    let world = World::new();
    let file = world.write("run.yaml", &nightly());
    let told = Finished::of(world.storebench().arg("validate").arg(&file).output().unwrap()).stdout;
    assert!(told.contains(", 3 trials\n"), "{told}");
    let expected = "  ends when set is done, 6 times in all: how long that takes depends on the stores\n";
    assert!(told.contains(expected), "{told}");
}

#[test]
fn a_directory_for_data_that_is_not_there_is_not_made() {
    let world = World::new();
    let file = world.write("run.yaml", &nightly());
    let missing = world.data().with_file_name("not-mounted");
    let mut command = world.storebench();
    let said = Finished::of(command.arg("run").arg(&file).arg("--data-dir").arg(&missing).output().unwrap());
    said.error(&["not-mounted: there is no such directory: create it", "--data-dir"]);
    assert!(!missing.exists());
}

#[test]
fn what_cannot_be_run_here_is_told_and_refused_with_here() {
    let world = World::new();
    let file = world.write("run.yaml", &one_arm("Redis", "1.2.3", REDIS_SET, SHORT));
    let path = file.to_str().unwrap();
    let told = validate(&world, &[path]);
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    let pinned = harness::version("redis");
    let missing = format!("spec.version: redis 1.2.3 is not installed here (there is {pinned})");
    let told_of = format!("not on this machine as it is: StorageService/store {missing}");
    assert!(told.stdout.contains(&told_of), "{}", told.stdout);
    // No command brings that version: neither is one named that brings another.
    assert!(
        told.stdout.contains(&format!("redis/1.2.3, or ask for a version that a command brings: {pinned} (")),
        "{}",
        told.stdout
    );
    let refused = validate(&world, &[path, "--here"]);
    assert!(refused.code == Some(1) && !refused.stdout.contains(": valid"), "{}", refused.stdout);
    assert!(refused.stderr.contains("spec.version: redis 1.2.3 is not installed here"), "{}", refused.stderr);
    // What no driver honours is a mistake in any case, and so is at a run what an embedded one does not.
    world.write(
        "run.yaml",
        &one_arm("Redis", &format!("{}, tls: {{ secretName: x }}", harness::version("redis")), REDIS_SET, SHORT),
    );
    validate(&world, &[path]).error(&["run.yaml: ", "spec.tls: is not available"]);
    world.write(
        "run.yaml",
        &one_arm("Redis", &format!("{}, image: redis:7", harness::version("redis")), REDIS_SET, SHORT),
    );
    let run = Finished::of(world.storebench().arg("run").arg(&file).output().unwrap());
    run.error(&["StorageService/store spec.image: has no effect in an embedded run"]);
    assert_eq!(validate(&world, &[path]).code, Some(0));
}

#[test]
fn outside_of_a_checkout_nobody_is_sent_to_its_scripts() {
    let world = World::new();
    let file = world.write("run.yaml", &one_arm("Redis", "1.2.3", REDIS_SET, SHORT));
    let elsewhere = file.with_file_name("storebench");
    std::fs::copy(env!("CARGO_BIN_EXE_storebench"), &elsewhere).unwrap();
    let mut command = harness::command(&elsewhere);
    command.arg("validate").arg(&file).env("STOREBENCH_PEERS", world.peers()).current_dir(file.parent().unwrap());
    let said = Finished::of(command.output().unwrap());
    let place = world.peers().join("redis/1.2.3");
    assert!(
        said.stdout.contains(&format!("put redis-server 1.2.3 on PATH, or into {}", place.display())),
        "{}",
        said.stdout
    );
    assert!(!said.stdout.contains("peers/fetch"), "{}", said.stdout);
}

#[test]
fn a_second_run_waits_for_the_first_or_is_refused_with_its_name() {
    let world = World::new();
    let long = world.write(
        "long.yaml",
        &one_arm("Redis", harness::version("redis"), REDIS_SET, "{ duration: 10s, connections: 1 }")
            .replace("name: run }", "name: nightly }"),
    );
    let mut command = world.storebench();
    command.arg("run").arg(long).args(["--wait-for-quiet", "0s", "--quiet"]);
    let mut first = harness::Process::start(&mut command);
    harness::until("the first run", || world.processes().iter().any(|line| line.contains("bench-job")));
    let file = world.write("run.yaml", &one_arm("Redis", harness::version("redis"), REDIS_SET, SHORT));
    let said = format!("another storebench, run nightly (pid {}),", first.id());
    let refused = Finished::of(world.storebench().arg("run").arg(&file).arg("--no-wait").output().unwrap());
    refused.error(&["run: ", &said]);
    let saved = file.with_file_name("saved");
    let mut command = world.storebench();
    let refused =
        Finished::of(command.arg("run").arg(&file).arg("--no-wait").arg("--save").arg(&saved).output().unwrap());
    assert!(refused.code == Some(1) && !saved.exists(), "who is refused leaves nothing: {}", refused.stderr);
    let waiting = file.with_file_name("waiting");
    let mut command = world.storebench();
    command.arg("run").arg(&file).args(["--wait-for-quiet", "0s"]);
    command.stdout(std::process::Stdio::null()).stderr(std::fs::File::create(&waiting).unwrap());
    let mut second = harness::Process::start(&mut command);
    harness::until("the second to wait", || std::fs::read_to_string(&waiting).unwrap().contains(&said));
    assert_eq!(second.ended(), None, "it waits");
    // However the first ends, its lock does, too.
    first.kill();
    assert!(second.wait().code().is_some_and(|code| code != 1), "{}", std::fs::read_to_string(&waiting).unwrap());
    world.assert_nothing_is_left();
}

#[test]
fn saved_runs_are_compared_and_followed() {
    let world = World::new();
    let saved = world.data().with_file_name("saved");
    let first = save(&world, &saved);
    let same = later(&first, 1, 1.0);
    let compare = |arguments: &[&str]| {
        Finished::of(world.storebench().arg("compare").args(arguments).env("COLUMNS", "100").output().unwrap())
    };
    let [base, slow] = [&same, &later(&first, 2, 3.0)].map(|path| path.to_str().unwrap().to_owned());
    let worse = compare(&[&base, &slow]);
    assert_eq!(worse.code, Some(2), "{}{}", worse.stdout, worse.stderr);
    assert!(
        worse.stdout.contains("worse by more than 5 %, beyond noise: throughput of valkey in set"),
        "{}",
        worse.stdout
    );
    assert!(worse.stdout.contains("as ratio to redis"), "{}", worse.stdout);
    let json: Value = serde_json::from_str(&compare(&[&base, &slow, "-o", "json"]).stdout).unwrap();
    assert_eq!((json[0]["verdict"].as_str(), json[0]["differences"].as_array().unwrap().len()), (Some("Regressed"), 0));
    assert!(compare(&[&base, &slow, "-o", "html"]).stdout.starts_with("<!DOCTYPE html>"));
    assert!(compare(&[&base, &slow, "-o", "markdown"]).stdout.contains("| arm | metric |"));
    assert_ne!(compare(&[&base, &base]).code, Some(2));
    assert_ne!(compare(&[&base, &slow, "--tolerance", "90%"]).code, Some(2));
    compare(&[&base, &slow, "--tolerance", "2"]).error(&["--tolerance: 2 would tolerate anything"]);
    // Another machine.
    let report = std::fs::read_to_string(slow.clone() + "/report.json").unwrap();
    let mut moved: Value = serde_json::from_str(&report).unwrap();
    moved["record"]["fingerprint"]["facts"]["processor"] = "another".into();
    let moved = world.write("moved.json", &moved.to_string());
    compare(&[&base, moved.to_str().unwrap()])
        .nothing_to_compare(&["measured on unlike machines (processor: ", "--allow-different-machine"]);
    let allowed = compare(&[&base, moved.to_str().unwrap(), "--allow-different-machine"]);
    assert_eq!(allowed.code, Some(2), "{}", allowed.stderr);
    assert!(allowed.stdout.contains("UNLIKE MACHINES"), "{}", allowed.stdout);
    // Another run.
    let mut renamed: Value = serde_json::from_str(&report).unwrap();
    renamed["record"]["name"] = "weekly".into();
    renamed["record"]["spec"]["workloads"][0]["name"] = "other".into();
    let renamed = world.write("renamed.json", &renamed.to_string());
    compare(&[&base, renamed.to_str().unwrap()]).nothing_to_compare(&["nothing in common that could be compared"]);
    // A history of a month, in which it became slower.
    std::fs::remove_dir_all(&slow).unwrap();
    std::fs::remove_dir_all(&first).unwrap();
    let history = || Finished::of(world.storebench().arg("history").arg(&saved).output().unwrap());
    let first = same;
    for day in 2..24 {
        later(&first, day, 1.0);
    }
    let quiet = history();
    assert_eq!(quiet.code, Some(0), "{}{}", quiet.stdout, quiet.stderr);
    for day in 24..28 {
        later(&first, day, 1.2);
    }
    let alarm = history();
    assert_eq!(alarm.code, Some(2), "{}{}", alarm.stdout, alarm.stderr);
    assert!(alarm.stdout.contains("throughput of valkey in set since 2027-01-24T01:00:00Z"), "{}", alarm.stdout);
}

#[test]
fn whoever_ends_before_the_first_trial_leaves_no_folder() {
    let world = World::new();
    let file = world.write("run.yaml", &one_arm("Redis", harness::version("redis"), REDIS_SET, SHORT));
    let saved = world.data().with_file_name("saved");
    let command = || {
        let mut command = world.storebench();
        command.arg("run").arg(&file).arg("--save").arg(&saved).args(["--wait-for-quiet", "0s"]);
        command
    };
    let mut without_lock = command();
    without_lock.arg("--quiet").env("TMPDIR", world.data().join("none"));
    Finished::of(without_lock.output().unwrap())
        .error(&["none/storebench.lock: the lock of this machine cannot be opened: No such file", "with TMPDIR"]);
    assert!(!saved.join("run").exists());
    let without_data = Finished::of(command().args(["--quiet", "--data-dir", "/proc"]).output().unwrap());
    without_data.error(&["/proc/run-", "cannot be created: choose another with --data-dir"]);
    assert!(!saved.join("run").exists());
    // Whoever is told to stop while somebody else measures.
    let lock = std::fs::File::create(world.data().with_file_name("storebench.lock")).unwrap();
    lock.lock().unwrap();
    let said = world.data().with_file_name("said");
    let mut waiting = command();
    waiting.stdout(std::process::Stdio::null()).stderr(std::fs::File::create(&said).unwrap());
    let mut waiting = harness::Process::start(&mut waiting);
    harness::until("the run to wait", || std::fs::read_to_string(&said).unwrap().contains("waiting for another"));
    let id = waiting.id().to_string();
    drop(harness::output(harness::command("kill").args(["-INT", &id])));
    assert_eq!(waiting.wait().code(), Some(130));
    assert!(!saved.join("run").exists());
}

#[test]
fn a_baseline_in_git_is_the_newest_run_of_its_name_and_no_checkout_changes() {
    let world = World::new();
    let repository = world.data().with_file_name("repository");
    let saved = repository.join("bench/runs");
    std::fs::create_dir_all(&saved).unwrap();
    let git = |arguments: &[&str]| {
        let mut command = harness::command("git");
        command.current_dir(&repository).args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(arguments);
        harness::output(&mut command)
    };
    git(&["init", "--quiet", "--initial-branch", "main"]);
    let first = save(&world, &saved);
    // So fast that a few milliseconds of work on a busy machine are worse beyond noise.
    later(&first, 1, 1_000.0);
    later(&first, 2, 0.001);
    std::fs::remove_dir_all(&first).unwrap();
    std::fs::write(repository.join("notes.txt"), "no report").unwrap();
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "Keep runs"]);
    std::fs::remove_dir_all(repository.join("bench")).unwrap();
    let status = git(&["status", "--porcelain"]);
    let file = world.write("nightly.yaml", &nightly());
    let command = |baseline: &str| {
        let mut command = world.storebench();
        command.current_dir(&repository).arg("run").arg(&file).args(["--wait-for-quiet", "0s", "--quiet"]);
        command.args(["--baseline", baseline]);
        command
    };
    let run = |baseline: &str| Finished::of(command(baseline).output().unwrap());
    for baseline in ["git:main:bench/runs", "git:HEAD"] {
        let worse = until_undisturbed(|| run(baseline));
        assert_eq!(worse.code, Some(2), "{baseline}: {}{}", worse.stdout, worse.stderr);
        assert!(worse.stdout.contains("Regressed: nightly"), "{}", worse.stdout);
    }
    assert_eq!(git(&["status", "--porcelain"]), status);
    // What is not there ends the run before anything is measured.
    run("git:elsewhere:bench")
        .error(&["git:elsewhere:bench: ", "no revision elsewhere: fetch it (git fetch origin elsewhere)"]);
    run("git:main/bench/runs").error(&["between a revision and a folder stands a colon: write git:main:bench/runs"]);
    run("git:main:benches").error(&["git:main:benches: main has no benches: name what git ls-tree"]);
    run("git:main:notes.txt").error(&["git:main:notes.txt: ", "pass what `run` has written"]);
    run("git:--all").error(&["git:--all: names no branch, tag or commit: write git:REVISION:PATH"]);
    run("./git:main").error(&["./git:main: cannot be read"]);
    let refused = Finished::of(command("git:main").env("PATH", "/nonexistent").output().unwrap());
    refused.error(&["git:main: git is not on PATH: install it"]);
    let mut outside = command("git:main");
    outside.current_dir(world.data());
    Finished::of(outside.output().unwrap())
        .error(&["git:main: there is no Git repository around the current directory"]);
    let bare = world.data().with_file_name("empty");
    std::fs::create_dir(&bare).unwrap();
    git(&["init", "--quiet", bare.to_str().unwrap()]);
    let mut unborn = command("git:HEAD");
    unborn.current_dir(&bare);
    Finished::of(unborn.output().unwrap()).error(&["no revision HEAD"]);
}

#[test]
fn a_baseline_of_a_cluster_is_told_from_a_saved_run_before_anything_is_measured() {
    let world = World::new();
    let text = one_arm("Redis", harness::version("redis"), REDIS_SET, SHORT) + "  baselineRef: { name: last }\n";
    let kept = "---\napiVersion: storebench.dev/v1alpha1\nkind: BenchmarkBaseline\nmetadata: { name: last }\nspec: { runRef: { name: first } }\n";
    let file = world.write("run.yaml", &(text + kept));
    let said = validate(&world, &[file.to_str().unwrap()]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    for part in ["BenchmarkBaseline/last: valid", "held against BenchmarkBaseline/last of the cluster"] {
        assert!(said.stdout.contains(part), "{part}: {}", said.stdout);
    }
    let run = |more: &[&str]| Finished::of(world.storebench().arg("run").arg(&file).args(more).output().unwrap());
    let said = run(&[]);
    let lines: Vec<&str> = said.stderr.lines().collect();
    assert_eq!((said.code, said.stdout.as_str(), lines.len()), (Some(1), "", 2), "{}", said.stderr);
    for (line, field) in lines.iter().zip(["BenchmarkBaseline/last: ", "BenchmarkRun/run spec.baselineRef: "]) {
        assert!(line.contains(field) && line.contains("name a saved run here with --baseline PATH"), "{line}");
    }
    // With a saved run in its place the file is as good as any.
    run(&["--baseline", "nowhere"]).error(&["nowhere: cannot be read"]);
}
