//! A run that is killed at any instant and goes on measures nothing twice, loses nothing, and ends as one that nobody has touched.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod finished;
#[allow(dead_code)]
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use finished::Finished;
use harness::Random;
use serde_json::{Value, json};
use world::{World, two_arms};

/// Longer than two trials of an arm take, so that some pairs are whole; shorter than the run.
const LIFE_MILLIS_MAX: u64 = 1_800;

/// So short that it is killed more often than it has trials.
fn text() -> String {
    let workload =
        "  - { name: set, redis: { command: Set, keySpace: 1000 }, load: { connections: 2, total: 300, warmUp: 0s } }";
    two_arms("short", workload).replace("min: 3, max: 3", "min: 4, max: 4")
}

struct Run<'a> {
    world: &'a World,
    file: &'a Path,
    saved: PathBuf,
}

impl Run<'_> {
    fn command(&self, flag: &str) -> Command {
        let mut command = self.world.storebench();
        command.arg("run").arg(self.file).arg(flag).arg(&self.saved).args(["--wait-for-quiet", "0s", "--quiet"]);
        command
    }

    fn to_its_end(&self, flag: &str) -> Value {
        let ended = Finished::of(self.command(flag).args(["-o", "json"]).output().unwrap());
        self.world.assert_nothing_is_left();
        ended.report()
    }

    /// The record as it is on disk; `None`: there is none. Of a run that was killed there is never more than one, but for what other programs
    /// disturbed too often, which goes on in a folder of its own.
    fn record(&self) -> Option<Value> {
        let entries = std::fs::read_dir(self.saved.join("short")).ok()?.flatten().map(|entry| entry.path());
        let mut folders: Vec<PathBuf> = entries.filter(|folder| folder.is_dir() && !folder.is_symlink()).collect();
        folders.sort();
        let read = |folder: PathBuf| {
            // One whose making was cut short holds neither.
            let text = [folder.join("report.json"), folder.join("record.json")]
                .iter()
                .find_map(|path| std::fs::read(path).ok());
            let read: Value = serde_json::from_slice(&text?).expect("what is on disk is whole");
            Some((folder, read.get("record").cloned().unwrap_or(read)))
        };
        let mut records: Vec<(PathBuf, Value)> = folders.into_iter().filter_map(read).collect();
        let last = records.pop();
        let is_invalid = |(folder, _): &(PathBuf, Value)| folder.to_string_lossy().ends_with("-Invalid");
        assert!(records.iter().all(is_invalid), "the run was begun anew");
        last.map(|(_, record)| record)
    }
}

fn trials(record: &Value) -> &[Value] {
    record["trials"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// What was measured is kept as it was, in its place: but for half a pair, which says that it is discarded.
fn assert_goes_on(before: &[Value], after: &[Value]) {
    assert!(after.len() >= before.len(), "{} trials were lost", before.len() - after.len());
    let without = |trial: &Value, names: &[&str]| {
        let mut trial = trial.clone();
        trial.as_object_mut().unwrap().retain(|name, _| !names.contains(&name.as_str()));
        trial
    };
    for (then, now) in before.iter().zip(after) {
        let is_discarded = now["failure"]["detail"].as_str().is_some_and(|why| why.contains("was interrupted before"));
        let changes: &[&str] = if is_discarded { &["state", "failure", "waitedMillis"] } else { &["waitedMillis"] };
        assert_eq!(without(now, changes), without(then, changes));
    }
    let begun: Vec<u64> = after.iter().map(|trial| trial["startedMillis"].as_u64().unwrap()).collect();
    assert!(begun.is_sorted(), "the run's clock goes back: {begun:?}");
    let places: BTreeSet<_> = after.iter().map(|trial| (trial["index"].as_u64(), trial["arm"].as_str())).collect();
    assert_eq!(places.len(), after.len(), "a trial was measured twice");
}

/// Of a report, what does not depend on time: what was asked, what ran, how much of it counts.
fn timeless(report: &Value) -> Value {
    let (record, judgement) = (&report["record"], &report["judgement"]);
    let of = |list: &Value, names: &[&str]| {
        let pick =
            |one: &Value| names.iter().map(|name| ((*name).to_owned(), one[*name].clone())).collect::<BTreeMap<_, _>>();
        json!(list.as_array().unwrap().iter().map(pick).collect::<Vec<_>>())
    };
    // Of other metrics there is no comparison where one was 0, such as of syncs.
    let comparisons = judgement["comparisons"].as_array().unwrap().iter();
    let throughput: Value = comparisons.filter(|one| one["metric"] == "ThroughputPerSecond").cloned().collect();
    let mut counted = BTreeMap::new();
    // What was measured beside a trial that was disturbed is valid, and no pair of anything.
    let is_lost = |trial: &&Value| trial["state"] != "Valid";
    let lost: Vec<&Value> = trials(record).iter().filter(is_lost).map(|trial| &trial["index"]).collect();
    for trial in trials(record).iter().filter(|trial| !lost.contains(&&trial["index"])) {
        let workloads = trial["workloads"].as_array().unwrap().iter();
        let did = workloads
            .map(|one| json!([one["summary"]["name"], one["summary"]["operations"], one["summary"]["errors"]]));
        let of_arm: &mut Vec<Value> = counted.entry(trial["arm"].to_string()).or_default();
        of_arm.push(did.collect());
    }
    json!({
        "name": record["name"], "spec": record["spec"], "fingerprint": record["fingerprint"], "aborted": record["aborted"],
        "arms": of(&record["arms"], &["name", "baseline", "engine", "version", "durabilitySetting", "replicas", "fields"]),
        "counted": counted,
        "results": of(&judgement["results"], &["workload", "arm", "trials", "operations", "errors"]),
        "throughput": of(&throughput, &["workload", "arm", "baseline", "trials", "notRanked"]),
    })
}

/// Returns how many runs were compared with one that nobody touched.
fn is_killed(kills: usize, seed: u64) -> usize {
    let world = World::new();
    let file = world.write("run.yaml", &text());
    let at = |name: &str| Run { world: &world, file: &file, saved: world.data().with_file_name(name) };
    let begun = std::time::Instant::now();
    let whole = at("whole").to_its_end("--save");
    // Where a run takes longer, so does each of its trials: lives that are too short for one say nothing.
    let life_millis_max = LIFE_MILLIS_MAX.max(begun.elapsed().as_millis() as u64 / 2);
    let mut random = Random::new(seed);
    let (mut killed, mut amid, mut compared) = (0, 0, 0);
    for round in 0.. {
        if killed >= kills {
            break;
        }
        let run = at(&format!("killed-{round}"));
        let mut before = Vec::new();
        loop {
            let mut command = run.command("--resume");
            let mut process = harness::Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
            std::thread::sleep(Duration::from_millis(random.below(life_millis_max)));
            let has_ended = process.ended().is_some();
            process.kill();
            world.assert_nothing_is_left();
            let after = run.record().map_or(Vec::new(), |record| trials(&record).to_vec());
            assert_goes_on(&before, &after);
            before = after;
            if has_ended {
                break;
            }
            killed += 1;
            amid += usize::from(!before.is_empty());
            if killed >= kills {
                break;
            }
        }
        let report = run.to_its_end("--resume");
        assert_goes_on(&before, trials(&report["record"]));
        assert_eq!(run.record().as_ref(), Some(&report["record"]));
        // What other programs disturbed too often is Invalid in both, and says so: then there is nothing to compare.
        let is_valid = |report: &Value| report["judgement"]["verdict"] != "Invalid";
        if is_valid(&whole) && is_valid(&report) {
            assert_eq!(timeless(&report), timeless(&whole), "seed {seed}, round {round}");
            compared += 1;
        } else {
            let message = format!("{}{}", whole["judgement"]["message"], report["judgement"]["message"]);
            assert!(message.contains("trials.retries"), "{message}");
        }
        let latest = std::fs::canonicalize(run.saved.join("short/latest")).unwrap();
        assert!(latest.join("report.json").is_file() && !latest.join("record.json").exists(), "{}", latest.display());
    }
    println!(
        "killed {killed} times, {amid} of them after a first trial; {compared} runs were as the one that nobody touched"
    );
    assert!(amid * 4 >= kills, "killed {amid} times amid a run: too seldom to say anything");
    compared
}

#[test]
fn a_run_that_is_killed_at_any_instant_ends_as_one_that_nobody_touched() {
    is_killed(12, 1);
}

#[test]
#[ignore = "takes three minutes of a quiet machine: the same for longer, with other instants"]
fn a_run_that_is_killed_a_hundred_times_ends_as_one_that_nobody_touched() {
    assert!(is_killed(100, 2) > 0, "this machine is too busy: no run was compared");
}
