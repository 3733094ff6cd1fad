//! What `docs/` tells users to type is typed here: the tasks of `docs/tasks/`, and the shell steps of the examples for pipelines. Loads are
//! short, and whatever a busy machine makes of them is a verdict; what counts is that each step works and leaves what it says.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod finished;
mod kept;
#[allow(dead_code)]
mod later;
#[allow(dead_code)]
mod world;

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use finished::Finished;
use kept::keep;
use later::later_under;
use serde_json::Value;
use world::World;

fn docs() -> PathBuf {
    std::fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")).unwrap()
}

/// An empty folder, and bash in it with this storebench first on the path.
struct Desk {
    world: World,
    folder: PathBuf,
}

impl Desk {
    fn new() -> Self {
        let world = World::new();
        let folder = world.data().with_file_name("desk");
        std::fs::create_dir(&folder).unwrap();
        Self { world, folder }
    }

    fn bash(&self) -> Command {
        let storebench = Path::new(env!("CARGO_BIN_EXE_storebench")).parent().unwrap();
        let path = format!("{}:{}", storebench.display(), std::env::var("PATH").unwrap());
        let mut command = harness::command("bash");
        let storebench = self.world.storebench();
        command.envs(storebench.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
            .current_dir(&self.folder)
            .env("PATH", path)
            .env("STOREBENCH_WAIT_FOR_QUIET", "0s")
            .env("DURATION", "300ms")
            .env("TRIALS", "3");
        for (name, value) in [
            ("GIT_AUTHOR_NAME", "a"),
            ("GIT_AUTHOR_EMAIL", "a@b"),
            ("GIT_COMMITTER_NAME", "a"),
            ("GIT_COMMITTER_EMAIL", "a@b"),
        ] {
            command.env(name, value);
        }
        command
    }

    /// Bash with a script in the place of storebench.
    fn with_stand_in(&self, script: &str) -> Command {
        use std::os::unix::fs::PermissionsExt as _;
        let programs = self.world.data().with_file_name("programs");
        std::fs::create_dir_all(&programs).unwrap();
        let path = programs.join("storebench");
        std::fs::write(&path, format!("#!/usr/bin/env bash\n{script}")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = self.bash();
        command.env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap()));
        command
    }

    fn task(&self, name: &str, arguments: &[&str]) -> Finished {
        Finished::of(self.bash().arg(docs().join("tasks").join(name)).args(arguments).output().unwrap())
    }

    #[track_caller]
    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// A short run.yaml in a folder.
    fn short_run(&self, file: &str) {
        std::fs::create_dir_all(self.folder.join(file).parent().unwrap()).unwrap();
        let arguments = [
            "init",
            file,
            "-e",
            "redis",
            "-e",
            "valkey",
            "-w",
            "write",
            "--gate",
            "10%",
            "--duration",
            "300ms",
            "--trials-max",
            "3",
        ];
        let mut command = self.world.storebench();
        let made = Finished::of(command.current_dir(&self.folder).args(arguments).output().unwrap());
        assert_eq!(made.code, Some(0), "{}", made.stderr);
        let patient = self.read(file).replace("targetIntervalBasisPoints: 200", "retries: 10");
        std::fs::write(self.folder.join(file), patient).unwrap();
    }
}

/// What a measurement may come to on a machine that does other things, too.
#[track_caller]
fn is_verdict(finished: &Finished) {
    let code = finished.code;
    assert!(matches!(code, Some(0 | 2 | 3 | 4)), "{code:?}\n{}\n{}", finished.stdout, finished.stderr);
}

#[test]
fn a_first_comparison() {
    let desk = Desk::new();
    let ended = desk.task("first-comparison", &[]);
    is_verdict(&ended);
    assert!(desk.read("report.md").contains("| redis |"), "{}", ended.stderr);
    assert!(desk.folder.join("runs/first/latest/report.html").is_file());
    // runs/ is there to collect runs.
    let again = desk.task("first-comparison", &[]);
    is_verdict(&again);
    let kept = std::fs::read_dir(desk.folder.join("runs/first")).unwrap().count();
    assert_eq!(kept, 3, "two runs and latest: {}", again.stderr);
}

#[test]
fn a_first_comparison_of_your_own_store() {
    let desk = Desk::new();
    let folder = harness::folder();
    let redis = format!("127.0.0.1:{}", harness::free_port());
    let (_, port) = redis.split_once(':').unwrap();
    let mut own = harness::command(harness::peer("redis", "redis-server"));
    own.current_dir(folder.path()).args(["--bind", "127.0.0.1", "--save", "", "--port", port]);
    let _redis = harness::Process::start(own.stdout(Stdio::null()).stderr(Stdio::null()));
    harness::until("redis-server to listen", || TcpStream::connect(&redis).is_ok());
    let etcd = harness::Etcd::start(&folder.path().join("etcd"));
    for (protocol, place) in [("redis", redis.as_str()), ("etcd", etcd.address())] {
        let ended = desk.task("your-own-store", &[place, protocol]);
        is_verdict(&ended);
        let page = desk.read("runs/your-own-store/latest/report.md");
        assert!(
            page.contains(&format!("mine is a store that was there already, at {place}")),
            "{page}{}",
            ended.stderr
        );
        std::fs::remove_file(desk.folder.join("run.yaml")).unwrap();
    }
    let refused = desk.task("your-own-store", &["127.0.0.1:1", "postgres"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{}", refused.stderr);
    assert!(refused.stderr.contains("postgres: is no protocol"), "{}", refused.stderr);
}

/// The first mistake stayed in run.yaml, and its error was all that a better address brought.
#[test]
fn a_task_keeps_nothing_that_was_refused_and_says_where_arguments_are_not_looked_at() {
    let desk = Desk::new();
    let file = desk.folder.join("run.yaml");
    let refused = desk.task("your-own-store", &["http://127.0.0.1:1"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(!file.exists(), "{}", refused.stderr);
    std::fs::write(&file, "kind: Mine\n").unwrap();
    for (task, arguments) in [("your-own-store", ["127.0.0.1:1", "redis"]), ("first-comparison", ["redis", "etcd"])] {
        let told = desk.task(task, &arguments);
        assert_eq!(told.code, Some(1), "{}", told.stderr);
        assert!(
            told.stderr.contains(&format!("{task}: run.yaml is there and is run as it stands: ")),
            "{}",
            told.stderr
        );
        assert!(file.exists(), "what somebody wrote is not removed");
    }
}

#[test]
fn the_highest_load_within_a_target() {
    let desk = Desk::new();
    // As `init` writes it, but for the number of trials, each of which is a search of many seconds.
    let once = format!(
        "{} \"$@\" || exit\n[ \"$1\" != init ] || sed -i 's/min: 3, max: 3/min: 1, max: 1/' highest-load.yaml\n",
        env!("CARGO_BIN_EXE_storebench")
    );
    let mut command = desk.with_stand_in(&once);
    // A target that any machine keeps to at some rate.
    command.arg(docs().join("tasks/highest-load")).arg("500ms").env("DURATION", "200ms");
    let ended = Finished::of(command.output().unwrap());
    is_verdict(&ended);
    assert!(desk.read("highest-load.yaml").contains("min: 1, max: 1"), "{}", desk.read("highest-load.yaml"));
    let page = desk.read("runs/highest-load/latest/report.md");
    assert!(page.contains("p99 at most 500ms"), "{page}{}", ended.stderr);
}

#[test]
fn every_task_says_what_it_is_for() {
    let desk = Desk::new();
    let tasks = std::fs::read_dir(docs().join("tasks")).unwrap();
    let tasks: Vec<String> = tasks.map(|task| task.unwrap().file_name().into_string().unwrap()).collect();
    assert!(tasks.len() >= 6, "{tasks:?}");
    for task in &tasks {
        for flag in ["-h", "--help"] {
            let help = desk.task(task, &[flag]);
            assert!(help.code == Some(0) && help.stdout.contains(task), "{}{}", help.stdout, help.stderr);
            assert!(help.stdout.lines().count() < 8 && !help.stdout.contains("pipefail"), "{}", help.stdout);
        }
    }
    assert_eq!(std::fs::read_dir(&desk.folder).unwrap().count(), 0, "nothing ran");
}

#[test]
fn a_nightly_gate_measures_nothing_where_it_could_keep_nothing() {
    let desk = Desk::new();
    desk.short_run("nightly.yaml");
    let refused = desk.task("nightly-gate", &["nightly.yaml"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{}", refused.stderr);
    assert!(refused.stderr.contains("is in no Git checkout"), "{}", refused.stderr);
    assert!(!desk.folder.join("nights").exists());
}

/// Any first night passed, and was the baseline of all others, whatever the machine did meanwhile.
#[test]
fn a_nightly_gate_without_gates_is_refused_before_anything_is_measured() {
    let desk = Desk::new();
    assert!(desk.bash().args(["-c", "git init --quiet ."]).status().unwrap().success());
    desk.short_run("nightly.yaml");
    let text = desk.read("nightly.yaml");
    let (gateless, _) = text.split_once("  gates:").unwrap_or_else(|| panic!("{text}"));
    let (services, run) = gateless.rsplit_once("---\n").unwrap();
    let second = run.replacen("name: first", "name: second", 1);
    assert_ne!(run, second);
    let with_gate = text.rsplit_once("---\n").unwrap().1;
    std::fs::write(desk.folder.join("nightly.yaml"), format!("{services}---\n{with_gate}\n---\n{second}")).unwrap();
    let refused = desk.task("nightly-gate", &["nightly.yaml"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{}", refused.stderr);
    assert!(refused.stderr.contains("nightly.yaml has no gates in second, so that"), "{}", refused.stderr);
    assert!(!desk.folder.join("nights").exists());
}

#[test]
fn a_nightly_gate_with_a_baseline_in_git() {
    let desk = Desk::new();
    desk.short_run("nightly.yaml");
    assert!(desk.bash().args(["-c", "git init --quiet . && git add nightly.yaml"]).status().unwrap().success());
    let first = desk.task("nightly-gate", &["nightly.yaml"]);
    is_verdict(&first);
    if first.code != Some(0) {
        // A machine that is too busy to measure a baseline has none.
        let branches = Finished::of(desk.bash().args(["-c", "git branch --list"]).output().unwrap());
        assert_eq!(branches.stdout, "", "{}", first.stdout);
        return;
    }
    let log = Finished::of(desk.bash().args(["-c", "git log --format=%s storebench-baseline"]).output().unwrap());
    assert!(log.stdout.starts_with("Keep run first/") && log.stdout.lines().count() == 1, "{}", log.stderr);
    let night = desk.task("nightly-gate", &["nightly.yaml"]);
    is_verdict(&night);
    assert!(desk.read("junit.xml").contains("<testsuite name=\"first\""));
    assert!(
        night.code == Some(4) || desk.read("comment.md").contains("| arm | metric |"),
        "{}",
        desk.read("comment.md")
    );
}

/// The branch was there, from another file: no baseline was ever kept of this one.
#[test]
fn a_second_file_has_its_own_first_night_and_no_results_of_another() {
    let desk = Desk::new();
    let git = "git init --quiet . && mkdir first && touch first/report.json && git add . && git commit -qm a && git branch storebench-baseline";
    assert!(desk.bash().args(["-c", git]).status().unwrap().success());
    let night = |name: &str, code: u32| {
        let script = format!(
            "case $1 in validate) printf 'f.yaml: BenchmarkRun/{name}: valid: 1 workload\\n  gate: a\\n';; *) echo \"$@\" >>calls;; esac\n\
             [ \"$1\" != run ] || {{ mkdir -p nights/{name}/at-{code} && cd nights/{name}/at-{code} && touch report.json report.md; exit {code}; }}\n"
        );
        let mut command = desk.with_stand_in(&script);
        Finished::of(command.arg(docs().join("tasks/nightly-gate")).arg("f.yaml").output().unwrap())
    };
    assert_eq!(night("second", 3).code, Some(3));
    assert!(!desk.read("calls").contains("export"), "what has not passed is no baseline: {}", desk.read("calls"));
    assert_eq!(night("second", 0).code, Some(0));
    let calls = desk.read("calls");
    assert!(calls.ends_with("export nights/second/at-0 --to git:storebench-baseline\n"), "{calls}");
    assert!(!calls.contains("--baseline"), "{calls}");
    std::fs::write(desk.folder.join("junit.xml"), "of another night").unwrap();
    // Nothing but the call is printed, and that not to standard output.
    assert_eq!(night("first", 1).code, Some(1));
    assert!(desk.read("calls").contains("--baseline git:storebench-baseline"), "{}", desk.read("calls"));
    assert!(!desk.folder.join("junit.xml").exists());
}

/// From the second night on nothing was measured: one of two runs, and of a suite the first alone, was given a baseline.
#[test]
fn every_run_of_a_file_and_of_a_suite_has_a_baseline_after_the_first_night() {
    let desk = Desk::new();
    let git = "git init --quiet . && mkdir one && touch one/report.json && git add . && git commit -qm a && git branch storebench-baseline";
    assert!(desk.bash().args(["-c", git]).status().unwrap().success());
    let night = |told: &[&str], measured: &str| {
        let told: Vec<String> =
            told.iter().map(|name| format!("printf 'BenchmarkRun/{name}: valid: 1 workload\\n  gate: a\\n'")).collect();
        let script = format!(
            "if [ $1 = validate ]; then {}; else echo \"$@\" >>calls; fi\n\
             [ $1 != run ] || for run in {measured}; do mkdir -p nights/$run/now && touch nights/$run/now/report.json; done\n",
            told.join("; ")
        );
        let mut command = desk.with_stand_in(&script);
        let ended = Finished::of(command.arg(docs().join("tasks/nightly-gate")).arg("f.yaml").output().unwrap());
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        desk.read("calls")
    };
    let of_file = night(&["one", "two", "three"], "one two three");
    assert!(!of_file.contains("--baseline"), "{of_file}");
    // What was the baseline of `one` already is not replaced.
    let exported = "export nights/three/now nights/two/now --to git:storebench-baseline\n";
    assert!(of_file.ends_with(exported), "{of_file}");
    let of_suite = night(&["sizes-1"], "sizes-1 sizes-2");
    assert!(
        of_suite.ends_with("export nights/sizes-1/now nights/sizes-2/now --to git:storebench-baseline\n"),
        "{of_suite}"
    );
}

/// The comment of a night that measured nothing was that of the night before, and where there was none the exit code was 1.
#[test]
fn a_night_that_was_interrupted_before_its_first_trial_has_no_comment() {
    let desk = Desk::new();
    let git = "git init --quiet . && mkdir one && touch one/report.json && git add . && git commit -qm a && git branch storebench-baseline";
    assert!(desk.bash().args(["-c", git]).status().unwrap().success());
    let script = "case $1 in validate) printf 'BenchmarkRun/one: valid: 1 workload\\n  gate: a\\n';; run) echo '<testsuites/>'; exit 130;; esac\n";
    let night = || {
        let mut command = desk.with_stand_in(script);
        let ended = Finished::of(command.arg(docs().join("tasks/nightly-gate")).arg("f.yaml").output().unwrap());
        assert_eq!(ended.code, Some(130), "{}", ended.stderr);
        assert!(!desk.folder.join("comment.md").exists(), "{}", desk.read("comment.md"));
        assert_eq!(desk.read("junit.xml"), "<testsuites/>\n");
    };
    night();
    let before = "mkdir -p nights/one/before && cd nights/one && ln -s before latest && touch before/report.json && echo Passed >before/report.md";
    assert!(desk.bash().args(["-c", before]).status().unwrap().success());
    night();
}

#[test]
fn a_matrix_of_value_sizes() {
    let desk = Desk::new();
    let mut command = desk.bash();
    command.arg(docs().join("tasks/matrix")).envs([("SIZES", "64, 1024"), ("CLIENTS", "1, 4"), ("TRIALS", "1")]);
    let ended = Finished::of(command.output().unwrap());
    is_verdict(&ended);
    assert!(ended.stdout.contains("4 runs of valueBytes × clients"), "{}", ended.stdout);
    let pages = Finished::of(desk.bash().args(["-c", "cat runs/sizes/*/suite.html"]).output().unwrap());
    assert!(pages.stdout.contains("<h1>sizes-1024-4</h1>"));
}

#[test]
fn what_made_last_weeks_run_slower() {
    let desk = Desk::new();
    desk.short_run("nightly.yaml");
    let ran =
        Finished::of(desk.bash().args(["-c", "storebench run nightly.yaml --save runs --quiet"]).output().unwrap());
    is_verdict(&ran);
    let kept = std::fs::canonicalize(desk.folder.join("runs/first/latest")).unwrap();
    (1..9).for_each(|day| drop(later_under(&kept, day, 1.0, "appendfsync always")));
    std::fs::remove_dir_all(&kept).unwrap();
    let latest = desk.folder.join("runs/first/latest");
    let point_to = |day: u32| {
        std::fs::remove_file(&latest).unwrap();
        std::os::unix::fs::symlink(format!("202701{day:02}T010000Z-Passed"), &latest).unwrap();
    };
    point_to(8);
    let quiet = desk.task("slower-since", &["runs", "first"]);
    assert_eq!(quiet.code, Some(0), "{}{}", quiet.stdout, quiet.stderr);
    let day = desk.folder.join("runs/first/20270101T010000Z-Passed");
    (9..13).for_each(|night| drop(later_under(&day, night, 1.3, "appendfsync everysec")));
    point_to(12);
    let found = desk.task("slower-since", &["runs", "first"]);
    assert_eq!(found.code, Some(2), "{}{}", found.stdout, found.stderr);
    let line = "slower since 2027-01-09T01:00:00Z: against 20270108T010000Z-Passed, the run before";
    assert!(found.stdout.contains(line), "{}", found.stdout);
    assert!(found.stdout.contains("appendfsync always, then appendfsync everysec"), "{}", found.stdout);
}

#[test]
fn an_improvement_behind_a_slow_down_is_not_what_made_it_slower() {
    let desk = Desk::new();
    let runs = desk.folder.join("runs");
    let nights =
        [(8, 1.0), (4, 1.5), (4, 1.3)].into_iter().flat_map(|(nights, factor)| std::iter::repeat_n(factor, nights));
    nights.zip(1..).for_each(|(factor, day)| drop(keep(&runs, "first", day, factor)));
    let found = desk.task("slower-since", &["runs", "first"]);
    assert_eq!(found.code, Some(2), "{}{}", found.stdout, found.stderr);
    assert!(found.stdout.contains("slower since 2027-01-09T01:00:00Z: against 20270108T010000Z-"), "{}", found.stdout);
    // What one night looks like does not take back what all of them say.
    let latest = runs.join("first/latest");
    let lucky = keep(&runs, "first", 8, 1.0);
    assert_eq!(std::fs::canonicalize(&latest).unwrap(), std::fs::canonicalize(lucky).unwrap());
    let found = desk.task("slower-since", &["runs", "first"]);
    assert_eq!(found.code, Some(2), "{}{}", found.stdout, found.stderr);
}

fn yaml(name: &str) -> Value {
    let options = serde_yaml::options! { emit_comments: false };
    let text = std::fs::read_to_string(docs().join("ci").join(name)).unwrap();
    serde_yaml::from_str_with_options(&text, options).unwrap()
}

/// Steps one after the other, as a runner does: with `-e`, up to the first that fails.
fn steps(desk: &Desk, steps: &[&str]) -> Finished {
    let mut last = Finished { code: Some(0), stdout: String::new(), stderr: String::new() };
    for step in steps {
        let ran = Finished::of(desk.bash().args(["-e", "-o", "pipefail", "-c", step]).output().unwrap());
        last = Finished { code: ran.code, stdout: last.stdout + &ran.stdout, stderr: last.stderr + &ran.stderr };
        if last.code != Some(0) {
            break;
        }
    }
    last
}

#[test]
fn the_shell_steps_of_github_actions_run() {
    let desk = Desk::new();
    desk.short_run("bench/run.yaml");
    let workflow = yaml("github-actions.yml");
    let all = workflow["jobs"]["benchmark"]["steps"].as_array().unwrap().clone();
    let named =
        |name: &str| all.iter().find(|step| step["name"] == name).and_then(|step| step["run"].as_str()).unwrap();
    let measured = steps(&desk, &[named("Check the file"), named("Measure")]);
    is_verdict(&measured);
    assert!(desk.read("comment.md").contains("first"), "{}", measured.stderr);
    assert!(desk.read("junit.xml").contains("<testcase classname=\"first\""), "{}", measured.stderr);
    std::fs::create_dir_all(desk.folder.join("bench")).unwrap();
    let copied = steps(&desk, &["cp -r results bench/baseline", named("Compare with the baseline in Git")]);
    // A run against itself; what is Invalid is not compared.
    assert!(
        matches!((measured.code, copied.code), (_, Some(0 | 3)) | (Some(4), _)),
        "{}{}",
        copied.stdout,
        copied.stderr
    );
    assert!(named("Comment on the pull request").contains("--body-file comment.md"));
}

/// The comment on the pull request was empty where the file had been refused.
#[test]
fn in_github_actions_a_refused_file_is_neither_compared_nor_commented_on() {
    let workflow = yaml("github-actions.yml");
    let steps = workflow["jobs"]["benchmark"]["steps"].as_array().unwrap();
    for name in ["Compare with the baseline in Git", "Comment on the pull request"] {
        let step = steps.iter().find(|step| step["name"] == name).unwrap();
        let condition = step["if"].as_str().unwrap();
        assert!(condition.contains("&& steps.measure.outcome != 'skipped'"), "{name}: {condition}");
    }
    assert!(steps.iter().any(|step| step["name"] == "Measure" && step["id"] == "measure"), "{steps:?}");
}

#[test]
fn the_script_of_gitlab_runs() {
    let desk = Desk::new();
    desk.short_run("bench/run.yaml");
    let pipeline = yaml("gitlab-ci.yml");
    let script: Vec<String> = pipeline["benchmark"]["script"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line.as_str().unwrap().to_owned())
        .collect();
    let lines: Vec<&str> = script.iter().map(String::as_str).collect();
    let ran = steps(&desk, &lines);
    is_verdict(&ran);
    let artifacts = &pipeline["benchmark"]["artifacts"];
    let mut kept: Vec<&str> = artifacts["paths"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    kept.push(artifacts["reports"]["junit"].as_str().unwrap());
    for name in kept {
        assert!(desk.folder.join(name).exists(), "{name} is not left: {}", ran.stderr);
    }
}

/// A run that did not pass was not compared, and one that could not tell was let pass.
#[test]
fn in_gitlab_the_graver_of_the_run_and_its_comparison_decides() {
    let desk = Desk::new();
    std::fs::create_dir_all(desk.folder.join("bench/baseline")).unwrap();
    let pipeline = yaml("gitlab-ci.yml");
    let script = pipeline["benchmark"]["script"].as_array().unwrap().last().unwrap().as_str().unwrap().to_owned();
    let ends = [(3, 2, 2), (0, 2, 2), (2, 3, 2), (0, 3, 3), (4, 2, 4), (0, 0, 0)];
    // Killed, or stopped by a mistake of its own: a comparison that could not tell let it pass.
    let unlisted = [(137, 3, 137), (101, 3, 101), (3, 137, 137), (0, 101, 101)];
    for (run, compared, expected) in ends.into_iter().chain(unlisted) {
        let stand_in = format!("case $1 in run) exit {run};; compare) echo compared; exit {compared};; esac\n");
        let mut command = desk.with_stand_in(&stand_in);
        let ended = Finished::of(command.args(["-e", "-o", "pipefail", "-c", &script]).output().unwrap());
        assert_eq!(ended.code, Some(expected), "{run} and {compared}: {}", ended.stderr);
        assert!(desk.read("comment.md").contains("compared"), "the comment says what came of it");
    }
}
