//! Reads the job, and works out what each of its workloads runs with. Its rules are those of a run, in the schema
//! ([`storebench_crds::document::job`]); families rely on every bound there.

use std::fs;
use std::path::Path;

use storebench_crds::DurationText;
use storebench_crds::document;
use storebench_crds::job::JobSpec;
use storebench_crds::storage_service::Durability;
use storebench_crds::workload::FaultKind;

use crate::content::seeds::{mix, mix_text};
use crate::load::Context;
use crate::load::outside::{self, Outside};
use crate::load::share::Share;

/// Why a job file is refused: one line that starts with the file's name or the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(String);

/// Reads and checks a job file.
pub fn read(path: &Path) -> Result<JobSpec, SpecError> {
    let text = fs::read_to_string(path).map_err(|error| SpecError(format!("{}: {error}", path.display())))?;
    parse(&text)
}

/// Parses and checks the text of a job file.
pub fn parse(text: &str) -> Result<JobSpec, SpecError> {
    document::job(text).map_err(|error| SpecError(error.to_string()))
}

/// What the `index`-th workload of a checked job runs with, in the process that has this share of it.
pub fn context(spec: &JobSpec, index: usize, share: Share) -> Result<Context, SpecError> {
    let workload = spec.workloads.get(index).ok_or_else(|| SpecError(format!("workloads[{index}]: there is none")))?;
    let load = &workload.load;
    let connections = share.of_count(load.connections);
    let clients = share.of_count(load.clients());
    // Connections of all processes together are spread over the members as those of one would be.
    let mut endpoints = spec.endpoints.clone();
    endpoints.rotate_left(share.slice(load.connections).start as usize % spec.endpoints.len().max(1));
    let fault = workload.fault();
    let kills = workload.strike() == Some(FaultKind::Kill);
    Ok(Context {
        workload: workload.name.clone(),
        // The same trial gives two workloads different values, so that a lost write is not hidden by an equal older one.
        seed: mix(mix_text(spec.seed, &workload.name), index as u64),
        arm_seed: mix_text(mix_text(spec.seed, &workload.name), &spec.arm),
        share,
        endpoints,
        connections,
        clients,
        threads: load.threads.min(connections),
        total: load.total,
        duration: load.duration.as_ref().map(DurationText::duration),
        warm_up: load.warm_up.duration(),
        rate: load.rate,
        arrivals: load.arrivals,
        highest_rate: load.highest_rate.clone(),
        timeout: load.timeout.duration(),
        synced_writes_percent: match spec.durability {
            Some(Durability::Fsync) => workload.parameters.certain_writes_percent(),
            Some(Durability::Interval | Durability::None) | None => 0,
        },
        in_flight_max: workload.parameters.in_flight_max(clients),
        // A member that stands still loses nothing. Nor may a group, whose others have what was acknowledged, whatever it promises of its disks and
        // whichever field asks for the fault.
        may_lose_writes: kills && spec.endpoints.len() == 1 && spec.durability != Some(Durability::Fsync),
        restarts_members: kills,
        fault,
        outside: match &spec.external {
            Some(external) => Some(Outside::of(external).map_err(|error| SpecError(error.to_string()))?),
            None => None,
        },
        namespace: spec.is_namespaced.then(outside::namespace),
        store_settings: spec.store_settings.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::time::Duration;

    fn job() -> Value {
        json!({
            "run": "r", "arm": "a", "trial": 0, "seed": 7, "endpoints": ["127.0.0.1:6379"],
            "workloads": [
                { "name": "set", "redis": { "command": "Set" }, "load": { "connections": 4, "total": 100 } },
                { "name": "get", "redis": { "command": "Get" }, "load": { "connections": 4, "duration": "2s" } },
            ],
        })
    }

    /// A family of which nobody had thought was told to go ahead.
    #[test]
    fn what_may_not_load_a_store_that_is_somebodys_does_not_say_that_it_may() {
        let mut job = job();
        job["workloads"] =
            json!([{ "name": "put", "keyValue": { "operation": "Put" }, "load": { "connections": 4, "total": 100 } }]);
        let refused = crate::job::look(&serde_json::from_value(job).unwrap()).unwrap().unwrap_err();
        assert!(
            refused.text().starts_with("keyValue workloads load no store that is somebody's"),
            "{}",
            refused.text()
        );
    }

    /// Each of its clients was taken for one request, and each SADD for a change.
    #[test]
    fn what_a_process_has_on_its_way_are_the_pipelines_of_its_own_clients() {
        let mut job = job();
        job["workloads"] = json!([
            { "name": "set", "redis": { "command": "Set", "pipeline": 16 }, "load": { "connections": 50, "duration": "1s" } },
            { "name": "sadd", "redis": { "command": "Sadd" }, "load": { "connections": 50, "duration": "1s" } },
        ]);
        let asked = |durability: &str, index: usize| {
            let mut job = job.clone();
            job["durability"] = json!(durability);
            let context = context(&serde_json::from_value(job).unwrap(), index, Share::WHOLE).unwrap();
            (context.synced_writes_percent, context.in_flight_max)
        };
        assert_eq!(asked("Fsync", 0), (100, 800));
        assert_eq!(asked("Fsync", 1), (0, 50), "it may be there already");
        assert_eq!((asked("Interval", 0), asked("None", 0)), ((0, 800), (0, 800)), "nothing was promised");
        (job["parallelism"], job["barrier"]) = (json!(2), json!("127.0.0.1:1"));
        let halved = context(&serde_json::from_value(job).unwrap(), 0, Share::new(1, 2).unwrap()).unwrap();
        assert_eq!(halved.in_flight_max, 400);
    }

    #[test]
    fn only_a_store_of_one_member_that_is_killed_and_does_not_sync_may_lose_writes_however_that_is_asked_for() {
        let failover = json!({ "operation": "Failover", "keySpace": 100, "killAfter": "1s", "restartAfter": "1s" });
        let put = json!({ "operation": "Put", "keySpace": 100 });
        let load = |fault: Value| {
            let mut load = json!({ "connections": 3, "duration": "5s" });
            if fault != Value::Null {
                load["fault"] = fault;
            }
            load
        };
        let strike =
            |kind: &str, member: &str| json!({ "kind": kind, "member": member, "after": "1s", "duration": "1s" });
        let may_lose = |key_value: &Value, load: Value, durability: &str, members: usize| {
            let mut job = job();
            let endpoints = &["a:1", "b:1", "c:1"][..members];
            job["endpoints"] = json!(endpoints);
            (job["durability"], job["strikesMembers"]) = (json!(durability), json!(true));
            job["workloads"] = json!([{ "name": "w", "keyValue": key_value, "load": load }]);
            context(&parse(&job.to_string()).unwrap(), 0, Share::WHOLE).unwrap().may_lose_writes
        };
        for durability in ["Fsync", "Interval", "None"] {
            assert!(!may_lose(&failover, load(Value::Null), durability, 3), "{durability}");
            for member in ["Leader", "Follower"] {
                assert!(!may_lose(&put, load(strike("Kill", member)), durability, 3), "{durability} {member}");
            }
            let syncs = durability == "Fsync";
            assert_eq!(may_lose(&put, load(strike("Kill", "Leader")), durability, 1), !syncs, "{durability}");
            assert_eq!(may_lose(&failover, load(Value::Null), durability, 1), !syncs, "{durability}");
            assert!(!may_lose(&put, load(strike("Stop", "Leader")), durability, 1), "it stood still");
            assert!(!may_lose(&put, load(Value::Null), durability, 1), "nothing was done to it");
        }
    }

    fn refusal(path: &str, value: Value) -> String {
        let mut job = job();
        let (parent, last) = path.rsplit_once('/').unwrap();
        job.pointer_mut(parent).unwrap()[last] = value;
        parse(&job.to_string()).unwrap_err().to_string()
    }

    #[test]
    fn a_good_job_is_read_and_its_durations_parsed() {
        let spec = parse(&job().to_string()).unwrap();
        let of = |index| context(&spec, index, Share::WHOLE);
        let (first, second) = (of(0).unwrap(), of(1).unwrap());
        assert_eq!((first.clients, first.total, first.duration), (4, Some(100), None));
        assert_eq!(second.duration, Some(Duration::from_secs(2)));
        assert_eq!((second.warm_up, second.timeout), (Duration::from_secs(1), Duration::from_secs(10)));
        assert_ne!(first.seed, second.seed);
        assert!(of(2).is_err());
    }

    #[test]
    fn refusals_name_the_field_in_one_line() {
        for (path, value, expected) in [
            ("/endpoints", json!([]), "endpoints: holds 0 items: give at least 1"),
            ("/endpoints", json!(["a:1", "b"]), "endpoints[1]: `b` does not fit"),
            ("/workloads", json!([]), "workloads: holds 0 items: give at least 1"),
            ("/meters", json!(["a:1", "b:x"]), "meters[1]: `b:x` does not fit"),
            ("/parallelism", json!(0), "parallelism: is 0: give a number from 1 to 64"),
            ("/parallelism", json!(2), "barrier: several load processes need it"),
            ("/barrier", json!("first"), "barrier: `first` does not fit"),
            ("/seed", json!("x"), "seed: must be a whole number, not the text `x`"),
            ("/workloads/1/load/threads", json!("two"), "workloads[1].load.threads: must be a whole number"),
            ("/workloads/1/redis/command", json!("Gett"), "workloads[1].redis.command: `Gett` is not allowed"),
            ("/workloads/0/load/total", json!(-1), "workloads[0].load.total: is -1"),
            ("/workloads/0/load/threads", json!(5), "workloads[0].load.threads: threads must not exceed connections"),
            ("/workloads/0/load/total", Value::Null, "workloads[0].load.total: is empty"),
            ("/workloads/0/load/rate", json!(5), "workloads[0].load.rate: rate and mode: OpenLoop belong together"),
            ("/workloads/0/load/timeout", json!("5"), "workloads[0].load.timeout: `5` does not fit"),
            ("/workloads/0/load/timeout", json!("0s"), "workloads[0].load.timeout: must be longer than 0"),
            (
                "/workloads/0/load/clients",
                json!(9),
                "workloads[0].load.clients: load.clients must equal load.connections",
            ),
            (
                "/workloads/0/redis/pipeline",
                json!(0),
                "workloads[0].redis.pipeline: is 0: give a number from 1 to 1000",
            ),
            (
                "/workloads/0/redis/readPercent",
                json!(5),
                "workloads[0].redis.readPercent: readPercent needs command: Mixed",
            ),
            (
                "/workloads/0/redis/command",
                json!("Mixed"),
                "workloads[0].redis.readPercent: command: Mixed needs readPercent",
            ),
            ("/workloads/0/etcd", json!({ "operation": "Put" }), "workloads[0]: give exactly one workload family"),
            ("/workloads/0/name", json!("a b"), "workloads[0].name: `a b` does not fit"),
            ("/sed", json!(1), "sed: is not a known field: did you mean seed?"),
        ] {
            let said = refusal(path, value);
            assert!(said.starts_with(expected) && !said.contains('\n'), "{path}: {said}");
        }
    }

    fn of_three(family: &str, parameters: Value, load: Value) -> Result<JobSpec, SpecError> {
        let mut job = job();
        (job["parallelism"], job["barrier"]) = (json!(3), json!("first:9470"));
        job["workloads"] = json!([{ "name": "w", family: parameters, "load": load }]);
        parse(&job.to_string())
    }

    #[test]
    fn each_process_gets_its_share_of_everything_but_threads() {
        let load = json!({ "connections": 5, "clients": 8, "threads": 2, "total": 10, "warmUp": "0s" });
        let spec = of_three("etcd", json!({ "operation": "Put" }), load).unwrap();
        let of = |process| context(&spec, 0, Share::new(process, 3).unwrap()).unwrap();
        let shared = |context: Context| (context.connections, context.clients, context.threads, context.own_total());
        assert_eq!(shared(of(0)), (2, 3, 2, Some(4)));
        assert_eq!(shared(of(1)), (2, 3, 2, Some(3)));
        assert_eq!(shared(of(2)), (1, 2, 1, Some(3)));
        assert_eq!(of(0).seed, of(2).seed, "values do not depend on who writes them");
    }

    #[test]
    fn connections_of_all_processes_are_spread_over_the_members() {
        let load = json!({ "connections": 4, "total": 10 });
        let mut spec = of_three("etcd", json!({ "operation": "Put" }), load).unwrap();
        spec.endpoints = ["a:1", "b:1", "c:1"].map(str::to_owned).into();
        let first = |process| context(&spec, 0, Share::new(process, 3).unwrap()).unwrap().endpoints[0].clone();
        // The first process has two connections, to a and b.
        assert_eq!([first(0), first(1), first(2)], ["a:1", "c:1", "a:1"]);
    }

    #[test]
    fn what_cannot_be_shared_is_refused() {
        let load = || json!({ "connections": 3, "total": 3 });
        of_three("redis", json!({ "command": "Lpush", "keySpace": 3 }), load()).unwrap();
        let set = json!({ "command": "Set" });
        let transaction = json!({ "operation": "TxnPut", "keySpace": 8, "operationsPerTransaction": 3 });
        for (family, parameters, load, expected) in [
            ("redis", set.clone(), json!({ "connections": 2, "total": 3 }), "must not exceed load.connections"),
            ("redis", set, json!({ "connections": 3, "total": 2 }), "must not exceed load.total or keySpace"),
            ("redis", json!({ "command": "Set", "keySpace": 2 }), load(), "must not exceed load.total or keySpace"),
            ("etcd", transaction, load(), "must leave each load pod as many keys"),
            ("etcd", json!({ "operation": "WatchLatency" }), load(), "must be 1 where etcd watches are measured"),
        ] {
            let said = of_three(family, parameters, load).unwrap_err().to_string();
            assert!(said.starts_with("parallelism: parallelism ") && said.contains(expected), "{said}");
        }
    }

    #[test]
    fn missing_fields_and_files_are_named() {
        let mut without = job();
        without["workloads"][1].as_object_mut().unwrap().remove("load");
        let said = parse(&without.to_string()).unwrap_err().to_string();
        assert!(said.starts_with("workloads[1].load: is missing"), "{said}");
        let said = parse("{").unwrap_err().to_string();
        assert!(said.starts_with("the job is not JSON"), "{said}");
        assert!(read(Path::new("/no/such")).unwrap_err().to_string().starts_with("/no/such: "));
    }
}
