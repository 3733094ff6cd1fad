//! Runs that are kept: one that was killed or disturbed goes on, one that its store ended is shown again.

use crate::REDIS_SET;
use crate::busy::Busy;
use crate::finished::Finished;
use crate::world::{World, one_arm};

#[test]
fn a_killed_run_goes_on_where_it_was_and_measures_nothing_twice() {
    let world = World::new();
    let text =
        one_arm("Redis", harness::version("redis"), REDIS_SET, "{ duration: 300ms, connections: 2, warmUp: 0s }");
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
    let text = one_arm("Redis", harness::version("redis"), REDIS_SET, "{ duration: 2s, connections: 1 }");
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
    assert!(caveats.contains("disturbed too often after 1 trial, and resumed at"), "{caveats}");
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
    let file = world
        .write("run.yaml", &one_arm("Redis", harness::version("redis"), REDIS_SET, "{ duration: 5s, connections: 2 }"));
    let refused = world.storebench().arg("run").arg(&file).arg("--save").arg(&file).output().unwrap();
    let refused = Finished::of(refused);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("run.yaml/run: cannot be written to: Not a directory"), "{}", refused.stderr);
}
