//! What comes of a run whose stores do as they should: results, reports, and what is not ranked.

use crate::finished::Finished;
use crate::later::until_undisturbed;
use crate::world::{World, one_arm, two_arms};
use crate::{ETCD_PUT, REDIS_SET, two_stores};

#[test]
fn two_stores_are_compared_and_nothing_is_left() {
    let world = World::new();
    let finished = until_undisturbed(|| world.run(&two_stores()));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let report = finished.report();
    assert_eq!(report["judgement"]["verdict"], "Passed");
    let results = report["judgement"]["results"].as_array().unwrap();
    assert_eq!(results.len(), 4, "two workloads on two arms");
    for result in results {
        assert!(result["throughputMilli"].as_u64().unwrap() > 10_000, "{result}");
        assert_eq!(result["errors"], 0);
        assert!(result["cpuNanosPerOperation"].as_u64().unwrap() > 0, "{result}");
    }
    for resources in report["judgement"]["resources"].as_array().unwrap() {
        for field in
            ["cpuAverageMillicores", "rssIdleBytes", "rssPeakBytes", "pssPeakBytes", "diskBytes", "binaryBytes"]
        {
            assert!(resources[field].as_u64().unwrap() > 0, "{field} in {resources}");
        }
        for field in ["startupMicros", "contextSwitches", "operationsPerCpuSecond"] {
            assert!(resources[field].as_u64().unwrap() > 0, "{field} in {resources}");
        }
    }
    let facts = report["record"]["fingerprint"]["facts"].as_object().unwrap();
    assert!(facts["service redis"].as_str().unwrap().contains(harness::version("redis")), "{facts:?}");
}

#[test]
fn a_saved_run_has_the_workload_of_its_template_and_can_be_run_again_as_it_stands() {
    let world = World::new();
    let text = one_arm("Redis", harness::version("redis"), REDIS_SET, "{ total: 500, connections: 5 }");
    let (before, after) = text.split_once("  workloads:\n").unwrap();
    let (_, trials) = after.split_once("  trials:").unwrap();
    let template = format!(
        "---\napiVersion: storebench.dev/v1alpha1\nkind: WorkloadTemplate\nmetadata: {{ name: agreed }}\n\
         spec: {{ {REDIS_SET}, load: {{ total: 500, connections: 5 }} }}\n"
    );
    let by_template = format!("{before}  workloadRefs: [{{ name: agreed }}]\n  trials:{trials}{template}");
    let file = world.write("run.yaml", &by_template);
    let saved = world.data().with_file_name("saved");
    let ran = Finished::of(world.storebench().arg("run").arg(file).arg("--save").arg(&saved).output().unwrap());
    assert_eq!(ran.code, Some(3), "one arm without gates compares nothing: {}", ran.stderr);
    let kept = saved.join("run/latest/run.yaml");
    let written = std::fs::read_to_string(&kept).unwrap();
    assert!(written.contains("name: agreed") && written.contains("total: 500"), "{written}");
    assert!(!written.contains("workloadRefs") && !written.contains("WorkloadTemplate"), "{written}");
    let again = Finished::of(world.storebench().arg("validate").arg(kept).output().unwrap());
    assert_eq!(again.code, Some(0), "{}", again.stderr);
}

#[test]
fn a_saved_report_reads_the_same() {
    let world = World::new();
    let file = world
        .write("run.yaml", &one_arm("Redis", harness::version("redis"), REDIS_SET, "{ total: 500, connections: 5 }"));
    let saved = world.data().with_file_name("saved");
    let ran = Finished::of(
        world.storebench().arg("run").arg(file).arg("--save").arg(&saved).args(["-o", "markdown"]).output().unwrap(),
    );
    assert_eq!(ran.code, Some(3), "one arm without gates compares nothing: {}", ran.stderr);
    for name in ["report.html", "report.md", "report.json", "run.yaml"] {
        assert!(saved.join("run/latest").join(name).is_file(), "{name}");
    }
    let latest = saved.join("run/latest");
    for source in
        [latest.join("report.json"), latest.join("run.yaml"), latest.clone(), saved.join("run"), saved.clone()]
    {
        let rendered =
            Finished::of(world.storebench().arg("report").arg(&source).args(["-o", "markdown"]).output().unwrap());
        assert_eq!(
            (rendered.code, &rendered.stdout),
            (ran.code, &ran.stdout),
            "{}: {}",
            source.display(),
            rendered.stderr
        );
    }
    let mut piped = world.storebench();
    piped.args(["report", "-", "-o", "markdown"]).stdin(std::fs::File::open(latest.join("report.json")).unwrap());
    assert_eq!(Finished::of(piped.output().unwrap()).stdout, ran.stdout);
    let kept = std::fs::read_to_string(latest.join("run.yaml")).unwrap();
    let services = kept.split("---").filter(|object| object.contains("kind: StorageService"));
    services.for_each(|service| assert!(service.contains("version: "), "the version that was measured: {kept}"));
    let again = Finished::of(world.storebench().arg("validate").arg(latest.join("run.yaml")).output().unwrap());
    assert_eq!(again.code, Some(0), "a run's own run.yaml can be run again: {}", again.stderr);
    assert!(
        again.stdout.contains("BenchmarkRun/run: valid") && again.stdout.contains("StorageService/"),
        "{}",
        again.stdout
    );
}

#[test]
fn two_runs_in_a_file_are_one_document_for_machines() {
    let world = World::new();
    let first = one_arm("Redis", harness::version("redis"), REDIS_SET, "{ total: 200, connections: 2 }");
    let run = first.split("---\n").find(|object| object.contains("kind: BenchmarkRun")).unwrap();
    let second = run.replacen("name: run", "name: second", 1);
    let file = world.write("runs.yaml", &format!("{first}\n---\n{second}"));
    let print = |output: &str| {
        let mut command = world.storebench();
        command.arg("run").arg(&file).args(["--wait-for-quiet", "0s", "-q", "-o", output]);
        Finished::of(command.output().unwrap())
    };
    let json = print("json");
    let reports: Vec<serde_json::Value> =
        serde_json::from_str(&json.stdout).unwrap_or_else(|_| panic!("{}", json.stderr));
    let names: Vec<_> = reports.iter().map(|report| report["record"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["run", "second"]);
    let list = world.write("list.json", &json.stdout);
    for (output, expected) in
        [("json", "[\n"), ("html", "<article id=\"run-1\">"), ("yaml", "\n---\n"), ("text", "second")]
    {
        let mut command = world.storebench();
        let printed = Finished::of(command.arg("report").arg(&list).args(["-o", output]).output().unwrap());
        assert!(printed.stdout.contains(expected), "{output}: {} {}", printed.stdout, printed.stderr);
    }
    assert!(print("yaml").stdout.contains("\n---\n"));
}

#[test]
fn shared_isolation_keeps_one_store_per_arm() {
    let world = World::new();
    for (engine, version, workload) in
        [("Redis", harness::version("redis"), REDIS_SET), ("Etcd", harness::version("etcd"), ETCD_PUT)]
    {
        let text = one_arm(engine, version, workload, "{ total: 500, connections: 5, warmUp: 100ms }")
            + "  isolation: Shared\n";
        let finished = world.run(&text);
        let report = finished.report();
        assert_eq!(finished.code, Some(3), "{}", report["judgement"]["message"]);
        let trials = report["record"]["trials"].as_array().unwrap();
        let is_right =
            |trial: &serde_json::Value| trial["state"] == "Valid" || trial["failure"]["cause"] == "Disturbed";
        assert!(trials.iter().all(is_right), "{trials:?}");
        assert!(trials.iter().filter(|trial| trial["state"] == "Valid").count() >= 3, "{trials:?}");
    }
}

#[test]
fn unequal_durability_is_labelled_and_not_ranked() {
    let world = World::new();
    let finished = world.run(&two_stores().replace("engine: Valkey", "engine: Valkey, durability: None"));
    let report = finished.report();
    for comparison in report["judgement"]["comparisons"].as_array().unwrap() {
        assert_eq!(comparison["notRanked"], "durability None against Fsync");
    }
}

#[test]
fn the_baseline_is_run_twice_where_the_noise_floor_is_asked_for() {
    let world = World::new();
    let workloads = "  - name: set\n    redis: { command: Set }\n    load: { total: 2000, connections: 4, warmUp: 0s }";
    let text = two_arms("floor", workloads).replace("  workloads:\n", "  noiseFloor: true\n  workloads:\n");
    let report = world.run(&text).report();
    let names = |list: &serde_json::Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&report["record"]["arms"]), ["redis", "valkey", "noise-floor"]);
    // What was asked is kept as it was asked, and can be run again.
    assert_eq!(names(&report["record"]["spec"]["arms"]), ["redis", "valkey"]);
    let trials = report["record"]["trials"].as_array().unwrap();
    let of_floor = trials.iter().filter(|trial| trial["arm"] == "noise-floor" && trial["state"] == "Valid").count();
    assert!(of_floor >= 3, "{trials:?}");
    for one in report["judgement"]["comparisons"].as_array().unwrap() {
        assert_eq!(one["baseline"], "redis");
        assert_eq!(one["noiseFloor"].is_object(), one["arm"] == "valkey", "{one}");
    }
}
