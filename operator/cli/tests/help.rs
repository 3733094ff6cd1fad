//! What a command says of itself: examples that can be typed as they stand, what is written where, and what to type next.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod finished;
#[allow(dead_code)]
mod world;

use finished::Finished;
use world::World;

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
