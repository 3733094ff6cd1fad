//! The cheating suite: ways to look faster, or equal, without being so. Each is refused before a run, makes it Invalid, or is not ranked,
//! with a reason; a test for each. Those that are tested nearer to what finds them:
//!
//! | way | what becomes of it | test |
//! | --- | --- | --- |
//! | a write is acknowledged and never made | Invalid | `embedded/failures.rs`, `a_lost_write_voids_the_run_and_names_the_key` |
//! | an answer is made up | Invalid | `embedded/failures.rs`, `a_flipped_byte_voids_the_run_and_names_the_key` |
//! | the store ends in mid-trial and is started again | Invalid | `embedded/failures.rs`, `a_server_killed_mid_trial_is_named` |
//! | the store stands still, and nobody asks meanwhile | counted | `embedded/failures.rs`, `a_stall_is_seen_from_the_due_instant` |
//! | the loader is the limit of both arms | undecided | `judgement/tests/limit.rs`, `two_stores_that_one_busy_loader_thread_holds_back_…` |
//! | an open loop's loader is late and blames the store, or the other way round | Invalid | `load/audit.rs`, `each_hindrance_is_found_just_above_its_bound` |
//! | the store takes the processor from everybody, so that only its best trials count | no trial is lost | `fairness.rs` |
//! | the store works in forks that nobody counts | counted | `measure/meter/tree.rs`, `what_a_fork_used_that_came_and_went_is_its_parents` |
//! | a follower answers from what it has | Invalid | bench-jobs `tests/etcd.rs`, `a_stale_follower_is_found_…` |
//! | linearizable reads trust a clock | not ranked | `equality.rs`, `a_read_that_trusts_a_clock_is_no_read_that_asks_a_majority` |
//! | arms are unequal without a gate | not ranked | `judgement/tests/unequal.rs`, `an_arm_with_other_arguments_is_not_ranked_…` |
//! | a replica's files overtake one another | counted late | `sqlite_replication/watcher.rs`, `a_file_that_overtook_another_…` |
//! | a dashboard shows the ratio of an invalid run | it has none | operator `telemetry/results.rs`, `a_comparison_that_ranks_nobody_…` |
//! | something keeps the cores busy while the other arm is measured | Invalid | `embedded/disturbances.rs`, `other_processes_that_keep_the_cores_busy_are_named` |
//! | whole pipelines are acknowledged, and none is synced | Invalid | bench-jobs `tests/rsedis.rs`, `a_store_that_acknowledges_whole_pipelines_…` |
//! | events are left out, told twice, or out of order | Invalid | bench-jobs `family/etcd/watch/sequence.rs` |

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod finished;
#[allow(dead_code)]
mod world;

use std::process::Command;

use finished::Finished;
use world::{World, one_arm, one_store};

/// Of a script in place of a store.
const UNLESS_ASKED_FOR_ITS_VERSION: &str = "case \"$*\" in *--version*) exec $REAL \"$@\" ;; esac";

/// `storebench validate` refuses it in one line, in which these words stand.
#[track_caller]
fn refused(text: &str, words: &[&str]) {
    let folder = harness::folder();
    let file = folder.path().join("run.yaml");
    std::fs::write(&file, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_storebench")).arg("validate").arg(&file).output().unwrap();
    Finished::of(output).error(words);
}

fn service(spec: &str) -> String {
    format!("apiVersion: storebench.dev/v1alpha1\nkind: StorageService\nmetadata: {{ name: store }}\nspec: {spec}\n")
}

/// Two arms and a gate on their ratio; the second has this spec.
fn gate_against(plain: &str, cheat: &str, run: &str) -> String {
    format!(
        "{}---\n{}---
apiVersion: storebench.dev/v1alpha1
kind: BenchmarkRun
metadata: {{ name: run }}
spec:
  {run}
  arms:
  - {{ name: plain, baseline: true, serviceRef: {{ name: plain }} }}
  - {{ name: cheat, serviceRef: {{ name: cheat }} }}
  workloads:
  - name: put
    etcd: {{ operation: Put }}
    load: {{ duration: 1s }}
  gates:
  - {{ arm: cheat, metric: ThroughputPerSecond, ratioAtLeastBasisPoints: 9500 }}
",
        service(plain).replace("name: store }", "name: plain }"),
        service(cheat).replace("name: store }", "name: cheat }"),
    )
}

#[test]
fn durability_taken_back_by_an_argument_is_refused() {
    refused(&service("{ engine: Etcd, args: [--unsafe-no-fsync] }"), &["spec.args[0]", "remove it"]);
    refused(&service("{ engine: Redis, args: [\"--appendfsync no\"] }"), &["spec.args[0]", "remove it"]);
}

#[test]
fn durability_taken_back_by_an_argument_that_only_the_engine_reads_so_is_refused() {
    refused(&service("{ engine: Redis, args: [\"-- appendfsync no\"] }"), &["spec.args[0]", "--NAME VALUE"]);
}

#[test]
fn durability_taken_back_by_a_variable_is_refused() {
    refused(
        &service("{ engine: Etcd, env: [{ name: ETCD_UNSAFE_NO_FSYNC, value: \"true\" }] }"),
        &["spec.env[0].name"],
    );
    refused(&service("{ engine: Rusd, env: [{ name: ETCD_DATA_DIR, value: /dev/shm }] }"), &["spec.env[0].name"]);
}

#[test]
fn durability_taken_back_by_a_library_that_is_loaded_before_all_others_is_refused() {
    for variable in ["LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH"] {
        let service = format!("{{ engine: Redis, env: [{{ name: {variable}, value: /tmp/without-syncs.so }}] }}");
        refused(&self::service(&service), &["spec.env[0].name", "puts other code into the store"]);
    }
}

#[test]
fn durability_taken_back_by_a_configuration_file_is_refused() {
    refused(&service("{ engine: Etcd, args: [--config-file=/tmp/fast.yaml] }"), &["spec.args[0]"]);
    refused(
        &service("{ engine: Etcd, env: [{ name: ETCD_CONFIG_FILE, value: /tmp/fast.yaml }] }"),
        &["spec.env[0].name"],
    );
}

#[test]
fn data_moved_into_memory_by_an_argument_are_refused() {
    refused(&service("{ engine: Etcd, args: [--data-dir=/dev/shm/etcd] }"), &["spec.args[0]"]);
    refused(&service("{ engine: Redis, args: [--dir, /dev/shm] }"), &["spec.args[0]"]);
}

#[test]
fn an_image_that_may_be_another_tomorrow_is_refused() {
    refused(&service("{ engine: Etcd, image: \"example.org/etcd:latest\" }"), &["spec.image", "pinned"]);
}

#[test]
fn a_gate_across_durability_is_refused_and_no_permission_helps() {
    let text = |run: &str| gate_against("{ engine: Etcd }", "{ engine: Etcd, durability: None }", run);
    refused(&text("trials: { min: 3 }"), &["spec.gates[0]", "durability None against Fsync"]);
    refused(&text("allowUnequal: [durability]"), &["spec.allowUnequal[0]", "use one of args"]);
}

#[test]
fn a_gate_across_members_is_refused() {
    refused(
        &gate_against("{ engine: Etcd, replicas: 3 }", "{ engine: Etcd }", "trials: { min: 3 }"),
        &["1 replicas against 3"],
    );
}

#[test]
fn a_gate_across_arguments_is_refused_until_they_are_what_is_compared() {
    let text = |run: &str| gate_against("{ engine: Etcd }", "{ engine: Etcd, args: [--snapshot-count=9] }", run);
    refused(&text("trials: { min: 3 }"), &["args --snapshot-count=9 against none", "spec.allowUnequal"]);
    let folder = harness::folder();
    let file = folder.path().join("run.yaml");
    std::fs::write(&file, text("allowUnequal: [args]")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_storebench")).arg("validate").arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_gate_across_disks_is_refused() {
    let of_class = |class: &str| format!("{{ engine: Etcd, storage: {{ size: 1Gi, storageClassName: {class} }} }}");
    refused(
        &gate_against(&of_class("disk"), &of_class("memory"), "trials: { min: 3 }"),
        &["memory against", "allowUnequal"],
    );
    refused(
        &gate_against(&of_class("disk"), "{ engine: Etcd }", "trials: { min: 3 }"),
        &["storage an emptyDir against a claim"],
    );
}

#[test]
fn a_gate_across_resources_is_refused() {
    let cheat = "{ engine: Etcd, resources: { requests: { cpu: \"8\" } } }";
    refused(&gate_against("{ engine: Etcd }", cheat, "trials: { min: 3 }"), &["resources", "against none"]);
}

#[test]
fn a_gate_across_nodes_is_refused() {
    let cheat = "{ engine: Etcd, pod: { nodeSelector: { disk: nvme } } }";
    refused(&gate_against("{ engine: Etcd }", cheat, "trials: { min: 3 }"), &["pod", "nvme", "against none"]);
}

#[test]
fn a_gate_across_variables_is_refused() {
    let cheat = "{ engine: Etcd, env: [{ name: GOGC, value: \"off\" }] }";
    refused(&gate_against("{ engine: Etcd }", cheat, "trials: { min: 3 }"), &["env", "GOGC", "against none"]);
}

/// What a validation cannot see: the executable does something else than it is told.
#[test]
fn a_wrapped_etcd_that_syncs_nothing_is_counted_and_invalid() {
    let world = World::new();
    world.install_wrapper("etcd", "etcd", "exec $REAL --unsafe-no-fsync \"$@\"");
    let load = "{ total: 3000, connections: 10, warmUp: 0s }";
    let message = world.run(&one_arm("Etcd", "faulty", "etcd: { operation: Put }", load)).invalid();
    assert!(message.contains("durability Fsync is not kept"), "{message}");
}

/// The one that does makes up for the others in a sum.
#[test]
fn a_group_of_which_one_member_alone_syncs_is_counted_and_invalid() {
    let world = World::new();
    let script = r#"
for argument in "$@"; do
    case $argument in --name=*0) exec $REAL "$@" ;; esac
done
exec $REAL --unsafe-no-fsync "$@""#;
    world.install_wrapper("etcd", "etcd", script);
    let run = one_store(
        "engine: Etcd, version: faulty, replicas: 3",
        "  - name: load\n    etcd: { operation: Put }\n    load: { total: 5000, connections: 10, warmUp: 0s }",
        "min: 3, max: 3, retries: 5, timeout: 60s",
    );
    let message = world.run(&run).invalid();
    assert!(message.contains("durability Fsync is not kept"), "{message}");
    assert!(message.contains("of each of 2 of 3 members"), "{message}");
}

#[test]
fn a_wrapped_redis_that_does_not_sync_is_asked_and_invalid() {
    let world = World::new();
    world.install_wrapper("redis", "redis-server", "exec $REAL \"$@\" --appendfsync no");
    let load = "{ total: 3000, connections: 10, warmUp: 0s }";
    let message = world.run(&one_arm("Redis", "faulty", "redis: { command: Set }", load)).invalid();
    assert!(message.contains("appendfsync"), "{message}");
}

/// What a count of syncs cannot see: each is asked for, counted, and done by nobody.
#[test]
fn a_store_whose_syncs_write_nothing_is_weighed_and_invalid() {
    let world = World::new();
    let pretends = "exec strace -D -f --seccomp-bpf -qq -o /dev/null -e trace=fsync,fdatasync \
                    -e inject=fsync,fdatasync:retval=0 $REAL \"$@\"";
    let load = "{ total: 4000, connections: 10, warmUp: 0s }";
    for (engine, name, binary, workload) in [
        ("Etcd", "etcd", "etcd", "etcd: { operation: Put, valueBytes: 65536 }"),
        ("Redis", "redis", "redis-server", "redis: { command: Set, valueBytes: 65536 }"),
    ] {
        world.install_wrapper(name, binary, pretends);
        let message = world.run(&one_arm(engine, "faulty", workload, load)).invalid();
        assert!(
            message.contains("durability Fsync is not kept: 250 MiB of values were acknowledged, and "),
            "{message}"
        );
    }
}

/// What a syncing store does with data of which nobody is told where they are.
#[test]
fn a_store_that_keeps_its_data_in_memory_is_weighed_and_invalid() {
    let world = World::new();
    let memory = harness::TempDir::new_in("/dev/shm").unwrap();
    // More than other tests write to the disk meanwhile, which counts, too.
    let load = "{ total: 4000, connections: 10, warmUp: 0s }";
    for (engine, name, binary, flag, workload) in [
        ("Etcd", "etcd", "etcd", "--data-dir", "etcd: { operation: Put, valueBytes: 65536 }"),
        ("Redis", "redis", "redis-server", "--dir", "redis: { command: Set, valueBytes: 65536 }"),
    ] {
        let folder = memory.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        // Each trial has a store without data.
        let script = format!("rm -rf {0}/*; exec $REAL \"$@\" {flag} {0}", folder.display());
        world.install_wrapper(name, binary, &script);
        let message = world.run(&one_arm(engine, "faulty", workload, load)).invalid();
        let said = "durability Fsync is not kept: 250 MiB of values were acknowledged, and ";
        assert!(message.contains(said), "{message}");
    }
}

/// Beside whoever is measured next it would take what it likes below what disturbs.
#[test]
fn what_a_store_leaves_behind_is_gone_before_the_other_arm_is_measured() {
    let world = World::new();
    let leaves = format!("{UNLESS_ASKED_FOR_ITS_VERSION}\n( setsid sh -c 'sleep 90; :' $PWD & )\nexec $REAL \"$@\"");
    world.install_wrapper("redis", "redis-server", &leaves);
    // Ends with a look for processes that name the data directory.
    let ran = world.run(&one_arm("Redis", "faulty", "redis: { command: Set }", "{ total: 500, warmUp: 0s }"));
    assert!(!ran.report()["record"]["trials"].as_array().unwrap().is_empty(), "{}", ran.stderr);
}

/// Its use would be nobody's, or a stranger's.
#[test]
fn what_a_store_does_in_a_process_that_it_has_let_go_of_is_its_own_use() {
    let world = World::new();
    let hides = format!("{UNLESS_ASKED_FOR_ITS_VERSION}\n( setsid $REAL \"$@\" & )\nexec sleep 90");
    world.install_wrapper("redis", "redis-server", &hides);
    let load = "{ duration: 1s, connections: 5, warmUp: 0s }";
    let ran = world.run(&one_arm("Redis", "faulty", "redis: { command: Get }", load));
    let report = ran.report();
    let trials = report["record"]["trials"].as_array().unwrap();
    assert!(!trials.is_empty(), "{}", ran.stderr);
    for trial in trials {
        // Others may disturb it, but the store is no stranger.
        let why = trial["failure"]["detail"].as_str().unwrap_or_default();
        assert!(!why.contains("redis-server"), "{why}");
        let usage = &trial["workloads"][0]["usage"];
        assert!(usage["cpuNanos"].as_u64().unwrap() > 50_000_000, "{trial}");
        assert!(usage["rssAverageBytes"].as_u64().unwrap() > 4 << 20, "{trial}");
    }
}

#[test]
fn a_store_that_answers_reads_from_memory_is_invalid_although_the_load_only_reads() {
    let world = World::new();
    world.install_faulty("etcd", &["stale-read-millis=60000"]);
    let load = "{ duration: 1s, connections: 5, warmUp: 0s }";
    let workload = "etcd: { operation: Range, keySpace: 100 }";
    let message = world.run(&one_arm("Etcd", "faulty", workload, load)).invalid();
    assert!(message.contains("wrong answer"), "{message}");
}

#[test]
fn a_store_that_compares_nothing_before_it_swaps_is_invalid() {
    let world = World::new();
    world.install_faulty("etcd", &["ignore-compares"]);
    let load = "{ total: 1000, connections: 5, warmUp: 0s }";
    let workload = "keyValue: { operation: CompareAndSwap, keySpace: 100 }";
    let message = world.run(&one_arm("Etcd", "faulty", workload, load)).invalid();
    assert!(message.contains("the store does not compare"), "{message}");
}

#[test]
fn a_report_whose_verdict_was_written_by_hand_is_judged_by_its_trials() {
    let world = World::new();
    world.install_faulty("redis", &["drop-write-every=100"]);
    let finished = world.run(&one_arm(
        "Redis",
        "faulty",
        "redis: { command: Set, keySpace: 1000 }",
        "{ total: 2000, warmUp: 0s }",
    ));
    let mut report = finished.report();
    assert_eq!(report["judgement"]["verdict"], "Invalid");
    report["judgement"]["verdict"] = "Passed".into();
    report["judgement"]["message"] = "all gates were met".into();
    let file = world.write("report.json", &report.to_string());
    let judged = world.storebench().arg("report").arg(file).args(["-o", "json"]).output().unwrap();
    let message = Finished::of(judged).invalid();
    assert!(message.contains("wrong answer"), "{message}");
}
