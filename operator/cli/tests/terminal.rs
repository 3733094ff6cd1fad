//! What a terminal shows, through one that `script` of util-linux makes.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod finished;
#[allow(dead_code)]
mod world;

use std::process::{Command, Stdio};

use finished::Finished;
use storebench_core::engine::ENGINES;
use world::{World, one_arm, two_arms};

/// Runs storebench with these arguments on a terminal of this kind, of which one output is both of its.
fn on_a_terminal(world: &World, kind: &str, arguments: &[&str]) -> Finished {
    let storebench = world.storebench();
    let command = std::iter::once(storebench.get_program()).chain(storebench.get_args());
    let words = command.map(|word| word.to_str().unwrap()).chain(arguments.iter().copied());
    let quoted: Vec<String> = words.map(|word| format!("'{word}'")).collect();
    let mut script = Command::new("script");
    script.args(["-qec", &quoted.join(" "), "/dev/null"]).stdin(Stdio::null());
    for (name, value) in storebench.get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    Finished::of(script.env("TERM", kind).output().unwrap())
}

/// It cannot go back in a line, so that nothing can be drawn; that is no reason to show nothing.
#[test]
fn a_dumb_terminal_is_told_line_by_line_what_goes_on() {
    let world = World::new();
    let text = one_arm(
        "Redis",
        harness::version("redis"),
        "redis: { command: Set, keySpace: 500 }",
        "{ total: 200, connections: 4, warmUp: 0s }",
    );
    let file = world.write("run.yaml", &text);
    let run = |kind: &str| {
        let arguments = ["run", file.to_str().unwrap(), "--wait-for-quiet", "0s"];
        let ran = on_a_terminal(&world, kind, &arguments);
        world.assert_nothing_is_left();
        ran.stdout
    };
    let told = run("dumb");
    assert!(told.contains("run: trial 1 of at most 3, store: load "), "{told}");
    assert!(!told.contains('\u{1b}'), "{told:?}");
    let drawn = run("xterm");
    assert!(drawn.contains('\u{1b}') && !drawn.contains("trial 1 of at most 3"), "{drawn:?}");
}

/// A search that lasts for minutes was silent wherever there is no bar.
#[test]
fn each_rate_of_a_search_has_a_line_where_there_is_no_bar() {
    let world = World::new();
    let load = "{ connections: 8, mode: OpenLoop, rate: 200, duration: 300ms, warmUp: 100ms, \
                highestRate: { percentile: P50, atMost: 1s, toleranceBasisPoints: 5000, stepDuration: 300ms } }";
    let text = one_arm("Redis", harness::version("redis"), "redis: { command: Set, keySpace: 500 }", load);
    let file = world.write("run.yaml", &text.replace("min: 3, max: 3", "min: 1, max: 1").replace("20s", "2m"));
    let mut command = world.storebench();
    let ran = Finished::of(command.arg("run").arg(&file).args(["--wait-for-quiet", "0s"]).output().unwrap());
    world.assert_nothing_is_left();
    // Long before any rate misses.
    let held: Vec<&str> = ran.stderr.lines().filter(|line| line.contains("/s holds, p99 ")).collect();
    assert!(held.len() >= 2 && held[0].starts_with("run: store: load: "), "{}", ran.stderr);
    let announced =
        ran.stderr.lines().any(|line| line.contains("the highest rate of load is looked for in each trial"));
    assert!(announced, "{}", ran.stderr);
}

/// A narrow terminal breaks a line that is not wrapped within a word.
#[test]
fn help_fits_a_narrow_terminal() {
    let world = World::new();
    for command in ["run", "validate", "report", "compare", "history", "export", "wait", "init", "explain"] {
        let help = world.storebench().args([command, "--help"]).env("COLUMNS", "60").output().unwrap();
        let help = Finished::of(help).stdout;
        let too_long: Vec<&str> = help.lines().filter(|line| line.chars().count() > 60).collect();
        assert_eq!(too_long, [""; 0], "{command}");
    }
}

/// They ran over, and a terminal broke them within words. Paths stay whole.
#[test]
fn what_engines_and_validate_list_fits_a_narrow_terminal_and_names_every_one() {
    let world = World::new();
    let long = |of: &str| format!("{of}-whose-name-is-very-long");
    let workload = "  - { name: set, redis: { command: Set }, load: { connections: 2, total: 50 } }";
    let text = two_arms("narrow", workload);
    let text = ["redis", "valkey"]
        .into_iter()
        .fold(text, |text, arm| text.replace(&format!("- {{ name: {arm},"), &format!("- {{ name: {},", long(arm))));
    let file = world.write("narrow.yaml", &text);
    let checkout = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let listed = |arguments: &[&str], columns: Option<&str>| {
        let mut command = world.storebench();
        command.args(arguments).current_dir(&checkout).env_remove("COLUMNS");
        command.envs(columns.map(|columns| ("COLUMNS", columns)));
        let listed = Finished::of(command.output().unwrap());
        assert_eq!(listed.code, Some(0), "{}", listed.stderr);
        listed.stdout
    };
    for arguments in [&["engines"][..], &["validate", file.to_str().unwrap()]] {
        let [narrow, log] = [Some("60"), None].map(|columns| listed(arguments, columns));
        let is_too_long = |line: &&str| line.chars().count() > 60 && line.split_whitespace().count() > 1;
        assert_eq!(narrow.lines().find(is_too_long), None, "{narrow}");
        assert!(log.lines().any(|line| is_too_long(&line)), "where scripts look a line stays one: {log}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&narrow), words(&log), "nothing is lost");
    }
    let narrow = listed(&["engines"], Some("60"));
    for engine in ENGINES {
        assert!(narrow.lines().any(|line| line.starts_with(&format!("{} ", engine.name))), "{}: {narrow}", engine.name);
    }
    let narrow = listed(&["validate", file.to_str().unwrap()], Some("60"));
    for arm in ["redis", "valkey"].map(long) {
        assert!(narrow.contains(&arm), "{arm}: {narrow}");
    }
}
