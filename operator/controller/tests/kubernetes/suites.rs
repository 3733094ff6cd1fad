//! Suites and schedules: what they make is made once, however often the operator is killed, and goes with them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::world::{World, is_true};

const GROUP: &str = "storebench.dev/v1alpha1";

/// A run whose trial is not over in time, as nothing is on simulated nodes: it ends Invalid after some seconds.
fn run_spec(total: Value) -> Value {
    json!({
        "arms": [{ "name": "store", "serviceRef": { "name": "store" } }],
        "workloads": [{ "name": "put", "etcd": { "operation": "Put" }, "load": { "total": total, "warmUp": "0s" } }],
        "trials": { "min": 3, "max": 3, "retries": 0, "timeout": "2s" },
    })
}

fn suite(world: &World, name: &str, totals: &[u32], more: &Value) {
    let mut spec = json!({
        "parameters": [{ "name": "total", "values": totals }],
        "template": { "metadata": { "labels": { "team": "storage" } }, "spec": run_spec(json!("$(total)")) },
    });
    more.as_object().into_iter().flatten().for_each(|(key, value)| spec[key] = value.clone());
    world.apply(json!({ "apiVersion": GROUP, "kind": "BenchmarkSuite", "metadata": { "name": name }, "spec": spec }));
}

fn status(world: &World, plural: &str, name: &str) -> Value {
    world.cluster.get(&world.path(GROUP, plural, name)).map(|object| object["status"].clone()).unwrap_or_default()
}

fn runs(world: &World) -> Vec<Value> {
    world.list(GROUP, "benchmarkruns")
}

/// Every run that was ever seen, by name, with the uids that it had.
#[derive(Default)]
struct Seen(BTreeMap<String, BTreeSet<String>>);

impl Seen {
    /// Looks; of runs that are not over there is one at most.
    fn look(&mut self, world: &World) {
        let runs = runs(world);
        for run in &runs {
            let text = |field: &str| run["metadata"][field].as_str().unwrap().to_owned();
            self.0.entry(text("name")).or_default().insert(text("uid"));
        }
        let going_on = runs.iter().filter(|run| !is_true(&run["status"], "Complete")).count();
        assert!(going_on <= 1, "{going_on} runs of a suite at a time");
    }

    fn twice(&self) -> Vec<&String> {
        self.0.iter().filter(|(_, uids)| uids.len() > 1).map(|(name, _)| name).collect()
    }
}

/// Kills the operator every so often until a suite is over.
fn until_over(world: &mut World, name: &str, interval: Duration) -> (Seen, Value) {
    let (mut seen, begun) = (Seen::default(), Instant::now());
    let mut restarted = Instant::now();
    loop {
        seen.look(world);
        let status = status(world, "benchmarksuites", name);
        if is_true(&status, "Complete") {
            return (seen, status);
        }
        if begun.elapsed() > Duration::from_secs(240) {
            world.panic(&format!("{name} is not over: {status}"));
        }
        if restarted.elapsed() > interval {
            world.start_operator(&[]);
            restarted = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn an_operator_that_is_killed_in_the_middle_makes_no_run_of_a_suite_twice() {
    let mut world = World::new("suite");
    world.service("store", &json!({}));
    suite(&world, "totals", &[100, 200, 300, 400], &json!({}));
    let (seen, status) = until_over(&mut world, "totals", Duration::from_secs(5));
    assert_eq!(seen.twice(), Vec::<&String>::new());
    let names: Vec<&str> = seen.0.keys().map(String::as_str).collect();
    assert_eq!(names, ["totals-100", "totals-200", "totals-300", "totals-400"]);
    assert_eq!(status["verdict"], "Invalid", "{status}");
    assert_eq!(status["progress"], "4/4");
    assert_eq!(
        status["counts"],
        json!({ "total": 4, "waiting": 0, "running": 0, "passed": 0, "failed": 4, "skipped": 0 })
    );
    assert!(status["runs"].as_array().unwrap().iter().all(|run| run["state"] == "Invalid"), "{status}");
    assert!(status.to_string().len() <= 16 * 1024);
    let first = world.cluster.get(&world.path(GROUP, "benchmarkruns", "totals-100")).unwrap();
    assert_eq!(first["spec"]["workloads"][0]["load"]["total"], 100);
    let labels = &first["metadata"]["labels"];
    assert_eq!(
        (&labels["team"], &labels["storebench.dev/suite"], &labels["parameter.storebench.dev/total"]),
        (&json!("storage"), &json!("totals"), &json!("100"))
    );
    world.delete(&world.path(GROUP, "benchmarksuites", "totals"));
    world.within(60, "the end of the suite's runs", || runs(&world).is_empty().then_some(()));
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_run_of_a_suite_whose_time_to_live_is_over_is_not_made_again() {
    let mut world = World::new("suite-ttl");
    world.service("store", &json!({}));
    let mut spec = run_spec(json!("$(total)"));
    spec["ttl"] = json!({ "failure": "0s" });
    suite(&world, "brief", &[100, 200], &json!({ "template": { "spec": spec } }));
    let (seen, status) = until_over(&mut world, "brief", Duration::from_secs(4));
    assert_eq!((seen.twice(), seen.0.len()), (Vec::new(), 2));
    assert_eq!(status["counts"]["failed"], 2, "{status}");
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_suite_that_stops_at_a_failure_leaves_the_others_out() {
    let mut world = World::new("suite-stop");
    world.service("store", &json!({}));
    suite(&world, "stops", &[100, 200, 300], &json!({ "onFailure": "Stop" }));
    let (seen, status) = until_over(&mut world, "stops", Duration::from_secs(600));
    assert_eq!(seen.0.len(), 1);
    assert_eq!((&status["counts"]["failed"], &status["counts"]["skipped"]), (&json!(1), &json!(2)), "{status}");
    assert_eq!(status["message"], "Invalid: 0 of 3 runs passed, 1 did not, 2 were left out");
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn what_a_suite_cannot_make_is_told_and_makes_nothing() {
    let world = World::new("suite-wrong");
    let stalled = |name: &str| {
        world.within(30, &format!("what is wrong with {name}"), || {
            let status = status(&world, "benchmarksuites", name);
            let message = || status["message"].as_str().unwrap_or_default().to_owned();
            is_true(&status, "Stalled").then(message)
        })
    };
    let mut spec = run_spec(json!("$(total)"));
    spec["workloads"][0]["load"]["conections"] = json!(5);
    suite(&world, "misspelt", &[1, 2], &json!({ "template": { "spec": spec } }));
    let message = stalled("misspelt");
    assert!(message.contains("spec.template.spec.workloads[0].load.conections is not a known field"), "{message}");
    // Somebody's run has the name that the suite's first one needs.
    world.service("store", &json!({ "pod": { "nodeSelector": { "no": "such-node" } } }));
    world.run("taken-1", "store");
    suite(&world, "taken", &[1, 2], &json!({}));
    let message = stalled("taken");
    assert!(message.contains("BenchmarkRun taken-1 is there already"), "{message}");
    let names: Vec<Value> = runs(&world).into_iter().map(|run| run["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["taken-1"]);
    // The matrix cannot be changed under way.
    let path = world.path(GROUP, "benchmarksuites", "taken");
    let parameters = json!({ "spec": { "parameters": [{ "name": "total", "values": [3] }] } });
    let (code, message) = world.cluster.call("PATCH", &path, Some(&parameters)).unwrap_err();
    assert!(code == 422 && message.contains("spec is immutable except for suspend"), "{code}: {message}");
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn the_template_of_a_suite_is_not_changed_under_way() {
    let world = World::new("suite-changed");
    // No node takes its pods, so that the run is under way for a while.
    world.service("store", &json!({ "pod": { "nodeSelector": { "no": "such-node" } } }));
    let mut spec = run_spec(json!("$(total)"));
    spec["trials"]["timeout"] = json!("10m");
    suite(&world, "changed", &[1, 2], &json!({ "template": { "spec": spec } }));
    let first = |status: &Value| status["runs"][0]["state"] == "Running";
    world.within(30, "the first run", || first(&status(&world, "benchmarksuites", "changed")).then_some(()));
    spec["trials"]["max"] = json!(9);
    suite(&world, "changed", &[1, 2], &json!({ "template": { "spec": spec } }));
    world.within(30, "the refusal", || {
        let status = status(&world, "benchmarksuites", "changed");
        let message = status["message"].as_str().unwrap_or_default();
        (is_true(&status, "Stalled") && message.contains("the template was changed")).then_some(())
    });
}

/// Takes two minutes: cron knows nothing shorter than one.
#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_schedule_makes_one_run_for_a_time_and_waits_for_it() {
    let mut world = World::new("schedule");
    world.service("store", &json!({}));
    // Each run is there until its end, which does not come by itself: one without a node gives up after less than a minute.
    let mut spec = run_spec(json!(100));
    spec["suspend"] = json!(true);
    world.apply(json!({
        "apiVersion": GROUP, "kind": "BenchmarkSchedule", "metadata": { "name": "minutely" },
        "spec": { "schedule": "* * * * *", "timeZone": "Europe/Vienna", "runTemplate": { "spec": spec } },
    }));
    let schedule = |world: &World| status(world, "benchmarkschedules", "minutely");
    world.within(30, "the next time", || schedule(&world)["nextScheduleTime"].as_str().map(drop));
    let run = world.within(75, "the first run", || runs(&world).pop());
    let name = run["metadata"]["name"].as_str().unwrap().to_owned();
    let time = name.strip_prefix("minutely-").unwrap_or_default();
    assert!(time.len() == 12 && time.bytes().all(|byte| byte.is_ascii_digit()), "{name}");
    assert_eq!(run["metadata"]["labels"]["storebench.dev/schedule"], "minutely");
    // Killed at once, twice: whoever comes after finds what was made.
    world.start_operator(&[]);
    world.within(30, "its name in the status", || (schedule(&world)["active"] == json!([name])).then_some(()));
    world.start_operator(&[]);
    let message = world.within(75, "the next time, which is held", || {
        let message = schedule(&world)["message"].as_str().unwrap_or_default().to_owned();
        message.starts_with("due, and waits for ").then_some(message)
    });
    assert_eq!(message, format!("due, and waits for {name}"));
    let all = runs(&world);
    assert!(all.len() == 1 && all[0]["metadata"]["uid"] == run["metadata"]["uid"], "{} runs", all.len());
    world.delete(&world.path(GROUP, "benchmarkschedules", "minutely"));
    world.within(60, "the end of its run", || runs(&world).is_empty().then_some(()));
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_schedule_that_cannot_be_read_says_why() {
    let world = World::new("schedule-wrong");
    world.apply(json!({
        "apiVersion": GROUP, "kind": "BenchmarkSchedule", "metadata": { "name": "never" },
        "spec": { "schedule": "99 2 * * *", "runTemplate": { "spec": run_spec(json!(100)) } },
    }));
    world.within(30, "what is wrong", || {
        let status = status(&world, "benchmarkschedules", "never");
        let message = status["message"].as_str().unwrap_or_default();
        (is_true(&status, "Stalled") && message.contains("spec.schedule `99 2 * * *` is not cron's")).then_some(())
    });
}
