//! What a command says of itself, and to whoever mistypes it: examples that can be typed as they stand, what is written where, and what to type next.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod finished;
#[allow(dead_code)]
mod world;

use finished::Finished;
use world::{World, two_arms};

/// The examples in the help of a command, without the comment behind them.
fn examples(world: &World, command: &str) -> Vec<Vec<String>> {
    let help = Finished::of(world.storebench().args([command, "--help"]).output().unwrap()).stdout;
    let (_, examples) = help.split_once("\nExamples:\n").unwrap_or_else(|| panic!("{command} has no examples: {help}"));
    let lines = examples.lines().take_while(|line| line.starts_with("  storebench "));
    let words = |line: &str| {
        let typed = line.split(" #").next().unwrap_or_default();
        typed.split_whitespace().skip(1).map(str::to_owned).collect()
    };
    lines.map(words).collect()
}

#[test]
fn the_examples_of_init_and_explain_do_what_they_say() {
    let world = World::new();
    let folder = harness::folder();
    for command in ["init", "explain"] {
        let examples = examples(&world, command);
        assert!(examples.len() >= 2, "{command}: {examples:?}");
        for words in examples.iter().filter(|words| words[0] == command) {
            let ended = world.storebench().args(words).current_dir(folder.path()).output().unwrap();
            let ended = Finished::of(ended);
            assert_eq!(ended.code, Some(0), "{words:?}: {}", ended.stderr);
            assert!(command != "init" || ended.stdout.contains("next: storebench validate "), "{}", ended.stdout);
        }
    }
    let written = std::fs::read_dir(folder.path()).unwrap().count();
    assert!(written >= 2, "init writes files where it is: {written}");
}

#[test]
fn the_help_of_report_says_what_it_reads_and_where_that_was_written() {
    let world = World::new();
    let examples = examples(&world, "report");
    let sources: Vec<&str> = examples.iter().map(|words| words[1].as_str()).collect();
    for source in ["runs/first/latest", "benchmarkrun/first"] {
        assert!(sources.contains(&source), "{sources:?}");
    }
    let help = Finished::of(world.storebench().args(["report", "--help"]).output().unwrap()).stdout;
    assert!(help.contains("DIRECTORY/RUN/TIME-VERDICT/"), "{help}");
    for form in
        ["report.json", "standard input", "git:REVISION[:PATH]", "benchmarkrun/NAME", "directory of `run --save`"]
    {
        assert!(help.split_whitespace().collect::<Vec<_>>().join(" ").contains(form), "{form}: {help}");
    }
}

/// kubectl runs a plugin by another name, and its users type that.
#[test]
fn a_plugin_s_examples_are_typed_as_the_plugin_is() {
    let folder = harness::folder();
    let plugin = folder.path().join("kubectl-storebench");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_storebench"), &plugin).unwrap();
    let help = Finished::of(harness::command(&plugin).args(["explain", "--help"]).output().unwrap()).stdout;
    assert!(help.contains("\n  kubectl storebench explain "), "{help}");
}

#[test]
fn what_is_mistyped_is_told_once_with_what_was_probably_meant() {
    let world = World::new();
    let said =
        |words: &[&str], parts: &[&str]| Finished::of(world.storebench().args(words).output().unwrap()).error(parts);
    let rn = Finished::of(world.storebench().arg("rn").output().unwrap()).stderr;
    assert!(rn.contains("a similar subcommand exists: 'run'"), "{rn}");
    said(&["init"], &["--engine: name the stores to compare", "on a terminal init asks"]);
    said(&["init", "-", "-e", "reddis"], &["--engine reddis: ", "did you mean redis?"]);
    said(&["explain", "benchmarkrun.spec.trails"], &["did you mean trials?"]);
    said(&["schema", "BenchmarkRunn"], &["did you mean BenchmarkRun?"]);
    said(
        &["init", "-", "-e", "redis", "--duration", "5"],
        &["--duration: `5` is not a duration: ", "500ms, 5s, 2m or 1h"],
    );
    said(&["init", "-", "-e", "redis", "-e", "valkey", "--gate", "most"], &["--gate: `most` is not a ratio: "]);
}

#[test]
fn a_directory_with_an_unfinished_run_alone_is_not_called_empty() {
    let world = World::new();
    let saved = world.data().with_file_name("saved");
    let history = |of: &std::path::Path| Finished::of(world.storebench().arg("history").arg(of).output().unwrap());
    std::fs::create_dir_all(saved.join("run")).unwrap();
    history(&saved).error(&["no run has been saved there"]);
    let begun = saved.join("run/20260301T120000Z-unfinished");
    std::fs::create_dir(&begun).unwrap();
    std::fs::write(begun.join("record.json"), "{}").unwrap();
    for source in [saved.clone(), saved.join("run"), begun] {
        let expected = format!("go on with storebench run FILE --resume {}\n", saved.display());
        history(&source).error(&["holds only unfinished runs (", &expected]);
    }
}

/// A kept run.yaml is to run again as it stands, and was refused since there is this remark.
#[test]
fn a_gate_that_no_run_could_miss_is_told_by_validate_and_is_no_mistake() {
    let world = World::new();
    let workload = "  - { name: set, redis: { command: Set }, load: { connections: 2, total: 50 } }";
    let gate = "  gates: [{ arm: redis, metric: ThroughputPerSecond, atLeast: 0 }]\n";
    let file = world.write("kept.yaml", &(two_arms("kept", workload) + gate));
    let told = Finished::of(world.storebench().arg("validate").arg(file).output().unwrap());
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    let remark = "\n  warning: spec.gates[0].atLeast: is 0, so that no run could miss it: write what ThroughputPerSecond must come to at least\n";
    assert!(told.stdout.contains(remark), "{}", told.stdout);
}

#[test]
fn whoever_asks_for_too_few_trials_to_compare_anything_is_told_before_they_run() {
    let world = World::new();
    let workload = "  - { name: set, redis: { command: Set }, load: { connections: 2, total: 50 } }";
    let text = two_arms("few", workload);
    let validated = |text: &str| {
        let file = world.write("few.yaml", text);
        Finished::of(world.storebench().arg("validate").arg(file).output().unwrap()).stdout
    };
    let few = validated(&text.replace("min: 3, max: 3", "min: 2, max: 2"));
    assert!(
        few.contains("  warning: 2 trials give no interval: nothing will be compared; set trials.max to 3 at least\n"),
        "{few}"
    );
    assert!(!validated(&text).contains("no interval"));
}

/// Nobody saw them among the lines of what is valid, and a pipeline could not.
#[test]
fn warnings_are_marked_as_such_and_fail_where_that_is_asked_for() {
    let world = World::new();
    let workload = "  - { name: set, redis: { command: Set }, load: { connections: 2, total: 50 } }";
    let gate = "  gates: [{ arm: valkey, metric: ThroughputPerSecond, ratioAtLeast: 100%, onInconclusive: Warn }]\n";
    let text = two_arms("strict", workload) + gate;
    let validated = |text: &str, more: &[&str]| {
        let file = world.write("strict.yaml", text);
        Finished::of(world.storebench().arg("validate").arg(file).args(more).output().unwrap())
    };
    let warning = "\n  warning: spec.gates[0].ratioAtLeast: is 100 %, which equal stores could hardly be told to meet: write it like 95%\n";
    let told = validated(&text, &[]);
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    assert!(told.stdout.contains(warning), "{}", told.stdout);
    assert!(
        told.stdout.contains("at least 100 % of redis; if undecided: warns, and does not count\n"),
        "{}",
        told.stdout
    );
    let strict = validated(&text, &["--strict"]);
    assert!(strict.code == Some(1) && strict.stdout.contains(warning), "{}", strict.stdout);
    assert!(strict.stderr.starts_with("storebench: --strict: 1 warning: mend what"), "{}", strict.stderr);
    let sound = validated(&text.replace("100%", "90%"), &["--strict"]);
    assert!(sound.code == Some(0) && !sound.stdout.contains("warning:"), "{}{}", sound.stdout, sound.stderr);
    let shared = validated(&text.replace("100%", "90%").replace("  arms:", "  isolation: Shared\n  arms:"), &[]);
    assert!(shared.stdout.contains("\n  warning: spec.isolation: is Shared, so that"), "{}", shared.stdout);
}
