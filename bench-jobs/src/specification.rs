//! Reads the job file, and refuses one that cannot be run, in one line that names the field.
//!
//! The rules are those of the API's schema. They are checked again here because a job file can come from anywhere, and
//! because nothing behind this module may stumble over a value: families rely on every bound below.

use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;
use storebench_crds::DurationText;
use storebench_crds::job::JobSpec;
use storebench_crds::workload::etcd::{EtcdOperation, EtcdWorkload, RangeScope};
use storebench_crds::workload::key_value::{KeyValueOperation, KeyValueWorkload};
use storebench_crds::workload::kubernetes::{KubernetesOperation, KubernetesWorkload};
use storebench_crds::workload::redis::{RedisCommand, RedisWorkload};
use storebench_crds::workload::{Family, Load, LoadMode, Parameters, Workload};

use crate::failure::one_line;
use crate::load::Context;
use crate::seeds::{mix, mix_text};
use crate::share::Share;

/// The most load processes of a trial, as in the schema of spec.parallelism.
const PROCESSES_MAX: u64 = 64;

/// Why a job file is refused: one line that starts with the file's name or the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(String);

type Checked = Result<(), SpecError>;

/// Reads and checks a job file.
pub fn read(path: &Path) -> Result<JobSpec, SpecError> {
    let text = fs::read_to_string(path).map_err(|error| SpecError(format!("{}: {error}", path.display())))?;
    parse(&text)
}

/// Parses and checks the text of a job file.
pub fn parse(text: &str) -> Result<JobSpec, SpecError> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| SpecError(one_line(&format!("the job is not JSON: {error}"))))?;
    let spec: JobSpec = from_value(&value)?;
    check(&spec)?;
    Ok(spec)
}

/// What the `index`-th workload of a checked job runs with, in the process that has this share of it.
pub fn context(spec: &JobSpec, index: usize, share: Share) -> Result<Context, SpecError> {
    let workload = spec.workloads.get(index).ok_or_else(|| SpecError(format!("workloads[{index}]: there is none")))?;
    let load = &workload.load;
    let connections = share.of_count(load.connections);
    // Connections of all processes together are spread over the members as those of one would be.
    let mut endpoints = spec.endpoints.clone();
    endpoints.rotate_left(share.slice(load.connections).start as usize % spec.endpoints.len().max(1));
    Ok(Context {
        workload: workload.name.clone(),
        // The same trial gives two workloads different values, so that a lost write is not hidden by an equal older one.
        seed: mix(mix_text(spec.seed, &workload.name), index as u64),
        share,
        endpoints,
        connections,
        clients: share.of_count(load.clients()),
        threads: load.threads.min(connections),
        total: load.total,
        duration: load.duration.as_ref().map(DurationText::duration),
        warm_up: load.warm_up.duration(),
        rate: load.rate,
        timeout: load.timeout.duration(),
    })
}

/// Deserialises, and on failure finds the path of the field: the value is written out one field a line and read again,
/// so that the line of the error is the line of the field.
fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, SpecError> {
    let pretty = serde_json::to_string_pretty(value).map_err(|error| SpecError(error.to_string()))?;
    serde_json::from_str(&pretty).map_err(|error| {
        let path = path_at_line(&pretty, error.line());
        let text = error.to_string();
        let said = text.split(" at line ").next().unwrap_or_default();
        SpecError(one_line(&format!("{path}: {said}")))
    })
}

/// The path of the field that stands in a line (from 1) of pretty-printed JSON, such as `workloads[0].load.total`.
fn path_at_line(pretty: &str, line: usize) -> String {
    let mut path: Vec<(usize, String)> = Vec::new();
    let mut indexes: Vec<(usize, usize)> = Vec::new();
    for text in pretty.lines().take(line) {
        let depth = text.len() - text.trim_start().len();
        path.retain(|(other, _)| *other < depth);
        indexes.retain(|(other, _)| *other <= depth);
        let item = text.trim();
        if item.starts_with(['}', ']']) {
            // The end of an object: an error here is about the object itself.
            if let Some((_, last)) = indexes.iter().find(|(other, _)| *other == depth) {
                path.push((depth, format!("[{last}]")));
            }
            continue;
        }
        match item.split_once("\": ").and_then(|(name, _)| name.strip_prefix('"')) {
            Some(name) => path.push((depth, name.to_owned())),
            None if depth > 0 => {
                match indexes.iter_mut().find(|(other, _)| *other == depth) {
                    Some((_, index)) => *index += 1,
                    None => indexes.push((depth, 0)),
                }
                let index = indexes.last().map_or(0, |(_, index)| *index);
                path.push((depth, format!("[{index}]")));
            }
            None => {}
        }
    }
    let mut text = String::new();
    for (_, part) in path {
        if !part.starts_with('[') && !text.is_empty() {
            text.push('.');
        }
        text.push_str(&part);
    }
    if text.is_empty() { "job".into() } else { text }
}

fn check(spec: &JobSpec) -> Checked {
    ensure(!spec.endpoints.is_empty(), "endpoints", "give at least one host:port")?;
    for (field, addresses) in [("endpoints", &spec.endpoints), ("meters", &spec.meters)] {
        for (index, address) in addresses.iter().enumerate() {
            check_address(&format!("{field}[{index}]"), address)?;
        }
    }
    if let Some(address) = &spec.control_plane_meter {
        check_address("controlPlaneMeter", address)?;
    }
    range("processes", spec.processes, 1, PROCESSES_MAX)?;
    match &spec.barrier {
        Some(address) => check_address("barrier", address)?,
        None => ensure(spec.processes == 1, "barrier", "several processes need it: give host:port of the first")?,
    }
    ensure(!spec.workloads.is_empty(), "workloads", "give at least one")?;
    for (index, workload) in spec.workloads.iter().enumerate() {
        let at = format!("workloads[{index}]");
        check_workload(&at, workload)?;
        check_shares(&at, workload, spec.processes)?;
        let is_kubernetes = workload.family() == Family::Kubernetes;
        ensure(!is_kubernetes || spec.kubeconfig.is_some(), "kubeconfig", "kubernetes workloads need it: give a path")?;
        ensure(!is_kubernetes || spec.processes == 1, "processes", "must be 1 for kubernetes workloads")?;
    }
    Ok(())
}

fn check_address(at: &str, address: &str) -> Checked {
    let port = address.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    ensure(matches!(port, Some(Ok(_))), at, "must be host:port")
}

/// Every load process must have something of everything that is shared out.
fn check_shares(at: &str, workload: &Workload, processes: u32) -> Checked {
    let enough = |field: &str, there_are: u64| {
        let rule = format!("must be at least processes, {processes}: each load process takes its share");
        ensure(there_are >= u64::from(processes), &format!("{at}.{field}"), &rule)
    };
    enough("load.connections", workload.load.connections.into())?;
    enough("load.total", workload.load.total.unwrap_or(u64::MAX))?;
    if let Parameters::Redis(redis) = &workload.parameters {
        enough("redis.keySpace", redis.key_space.into())?;
    }
    if let Parameters::Etcd(etcd) = &workload.parameters {
        enough("etcd.keySpace", etcd.key_space.into())?;
        let slice_keys = etcd.key_space / processes;
        let rule = format!("must not exceed keySpace / processes, {slice_keys}: each load process has keys of its own");
        let fits = etcd.operations_per_transaction.unwrap_or(1) <= slice_keys;
        ensure(fits, &format!("{at}.etcd.operationsPerTransaction"), &rule)?;
        let watches = matches!(etcd.operation, EtcdOperation::WatchLatency | EtcdOperation::WatchThroughput);
        let rule = "a watcher is told of every put, of which a load process knows only its own: set processes to 1";
        ensure(processes == 1 || !watches, &format!("{at}.etcd.operation"), rule)?;
    }
    Ok(())
}

fn check_workload(at: &str, workload: &Workload) -> Checked {
    let name = &workload.name;
    ensure(
        (1..=40).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'),
        &format!("{at}.name"),
        "must be 1 to 40 letters, digits or dashes",
    )?;
    check_load(&format!("{at}.load"), &workload.load)?;
    let load = &workload.load;
    match &workload.parameters {
        Parameters::Redis(redis) => {
            let field = format!("{at}.load.clients");
            ensure(load.clients() == load.connections, &field, "must equal load.connections for redis")?;
            check_redis(&format!("{at}.redis"), redis)
        }
        Parameters::Etcd(etcd) => {
            let field = format!("{at}.load.clients");
            ensure(load.clients() >= load.connections, &field, "must be at least load.connections")?;
            check_etcd(&format!("{at}.etcd"), etcd)
        }
        Parameters::KeyValue(key_value) => {
            let field = format!("{at}.load.clients");
            ensure(load.clients() >= load.connections, &field, "must be at least load.connections")?;
            check_key_value(&format!("{at}.keyValue"), key_value)
        }
        Parameters::Kubernetes(kubernetes) => check_kubernetes(at, kubernetes, load),
    }
}

fn check_load(at: &str, load: &Load) -> Checked {
    let field = |name: &str| format!("{at}.{name}");
    range(&field("connections"), load.connections, 1, 10_000)?;
    range(&field("clients"), load.clients(), 1, 100_000)?;
    range(&field("threads"), load.threads, 1, 256)?;
    ensure(load.threads <= load.connections, &field("threads"), "must not exceed connections")?;
    match (load.total, &load.duration) {
        (Some(total), None) => range(&field("total"), total, 1, 1_000_000_000)?,
        (None, Some(text)) => positive(&field("duration"), text)?,
        _ => return Err(SpecError(format!("{at}: give exactly one of total or duration"))),
    }
    positive(&field("timeout"), &load.timeout)?;
    match (load.mode, load.rate) {
        (LoadMode::OpenLoop, Some(rate)) => range(&field("rate"), rate, 1, 10_000_000),
        (LoadMode::ClosedLoop, None) => Ok(()),
        _ => Err(SpecError(format!("{at}.rate: belongs with mode: OpenLoop; set both or neither"))),
    }
}

fn check_redis(at: &str, redis: &RedisWorkload) -> Checked {
    let field = |name: &str| format!("{at}.{name}");
    range(&field("pipeline"), redis.pipeline, 1, 1_000)?;
    range(&field("valueBytes"), redis.value_bytes, 1, 1_048_576)?;
    range(&field("keySpace"), redis.key_space, 1, 10_000_000)?;
    let is_mixed = redis.command == RedisCommand::Mixed;
    check_read_percent(&field("readPercent"), redis.read_percent, is_mixed, "command: Mixed")
}

fn check_etcd(at: &str, etcd: &EtcdWorkload) -> Checked {
    let field = |name: &str| format!("{at}.{name}");
    range(&field("keyBytes"), etcd.key_bytes, 24, 1_024)?;
    range(&field("valueBytes"), etcd.value_bytes, 8, 1_048_576)?;
    range(&field("keySpace"), etcd.key_space, 1, 10_000_000)?;
    range(&field("limit"), etcd.limit.unwrap_or(1), 1, 100_000)?;
    range(&field("streams"), etcd.streams.unwrap_or(1), 1, 10_000)?;
    range(&field("watchers"), etcd.watchers.unwrap_or(1), 1, 100_000)?;
    let field_operations = field("operationsPerTransaction");
    let operations = etcd.operations_per_transaction.unwrap_or(1);
    range(&field_operations, operations, 1, 128)?;
    ensure(operations <= etcd.key_space, &field_operations, "must not exceed keySpace")?;
    range(&field("compactKeepRevisions"), etcd.compact_keep_revisions, 0, 100_000_000)?;
    if let Some(text) = &etcd.compact_interval {
        positive(&field("compactInterval"), text)?;
    }
    let is_range = etcd.operation == EtcdOperation::Range;
    let is_prefix = etcd.scope == RangeScope::Prefix;
    ensure(is_range || !is_prefix, &field("scope"), "Prefix needs operation: Range")?;
    let is_mixed = etcd.operation == EtcdOperation::Mixed;
    check_read_percent(&field("readPercent"), etcd.read_percent, is_mixed, "operation: Mixed")
}

fn check_key_value(at: &str, key_value: &KeyValueWorkload) -> Checked {
    let field = |name: &str| format!("{at}.{name}");
    range(&field("keyBytes"), key_value.key_bytes, 8, 1_024)?;
    range(&field("valueBytes"), key_value.value_bytes, 8, 1_048_576)?;
    range(&field("keySpace"), key_value.key_space, 1, 10_000_000)?;
    let is_mixed = key_value.operation == KeyValueOperation::Mixed;
    check_read_percent(&field("readPercent"), key_value.read_percent, is_mixed, "operation: Mixed")
}

fn check_kubernetes(at: &str, kubernetes: &KubernetesWorkload, load: &Load) -> Checked {
    use KubernetesOperation::{DeleteNamespaces, ListAndWatch, MixedChurn, NodeHeartbeats};
    let field = |name: &str| format!("{at}.kubernetes.{name}");
    let operation = kubernetes.operation;
    ensure(
        load.clients() == load.connections,
        &format!("{at}.load.clients"),
        "must equal load.connections for kubernetes",
    )?;
    range(&field("objectBytes"), kubernetes.object_bytes, 8, 500_000)?;
    range(&field("replicas"), kubernetes.replicas(), 1, 5_000)?;
    range(&field("watchers"), kubernetes.watchers(), 1, 10_000)?;
    range(&field("objects"), kubernetes.objects(), 0, 100_000)?;
    if matches!(operation, ListAndWatch | NodeHeartbeats | MixedChurn) {
        ensure(kubernetes.objects() >= load.connections, &field("objects"), "must be at least load.connections")?;
    }
    let has_total = operation != DeleteNamespaces || load.total.is_some();
    ensure(has_total, &format!("{at}.load.total"), "operation: DeleteNamespaces needs it")?;
    let one_thread = operation != ListAndWatch || load.threads == 1;
    ensure(one_thread, &format!("{at}.load.threads"), "must be 1 for operation: ListAndWatch")?;
    let is_mixed = operation == MixedChurn;
    check_read_percent(&field("readPercent"), kubernetes.read_percent, is_mixed, "operation: MixedChurn")
}

fn check_read_percent(at: &str, percent: Option<u32>, is_mixed: bool, mixed: &str) -> Checked {
    match percent {
        Some(percent) if is_mixed => range(at, percent, 0, 100),
        None if !is_mixed => Ok(()),
        Some(_) => Err(SpecError(format!("{at}: needs {mixed}; remove it"))),
        None => Err(SpecError(format!("{at}: {mixed} needs it"))),
    }
}

fn ensure(holds: bool, at: &str, rule: &str) -> Checked {
    match holds {
        true => Ok(()),
        false => Err(SpecError(format!("{at}: {rule}"))),
    }
}

fn range(at: &str, value: impl Into<u64>, least: u64, most: u64) -> Checked {
    let value = value.into();
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err(SpecError(format!("{at}: must be {least} to {most}, not {value}"))),
    }
}

fn positive(at: &str, text: &DurationText) -> Checked {
    ensure(!text.duration().is_zero(), at, "must be longer than 0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
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
            ("/endpoints", json!([]), "endpoints: give at least one host:port"),
            ("/endpoints", json!(["a:1", "b"]), "endpoints[1]: must be host:port"),
            ("/workloads", json!([]), "workloads: give at least one"),
            ("/meters", json!(["a:1", "b:x"]), "meters[1]: must be host:port"),
            ("/processes", json!(0), "processes: must be 1 to 64, not 0"),
            ("/processes", json!(2), "barrier: several processes need it"),
            ("/barrier", json!("first"), "barrier: must be host:port"),
            ("/seed", json!("x"), "seed: invalid type: string \"x\", expected u64"),
            ("/workloads/1/load/threads", json!("two"), "workloads[1].load.threads: invalid type: string \"two\""),
            ("/workloads/1/redis/command", json!("Gett"), "workloads[1].redis.command: unknown variant `Gett`"),
            ("/workloads/0/load/total", json!(-1), "workloads[0].load.total: invalid value: integer `-1`"),
            ("/workloads/0/load/threads", json!(5), "workloads[0].load.threads: must not exceed connections"),
            ("/workloads/0/load/total", Value::Null, "workloads[0].load: give exactly one of total or duration"),
            ("/workloads/0/load/rate", json!(5), "workloads[0].load.rate: belongs with mode: OpenLoop"),
            ("/workloads/0/load/timeout", json!("5"), "workloads[0].load.timeout: `5` is not a duration"),
            ("/workloads/0/load/timeout", json!("0s"), "workloads[0].load.timeout: must be longer than 0"),
            ("/workloads/0/load/clients", json!(9), "workloads[0].load.clients: must equal load.connections"),
            ("/workloads/0/redis/pipeline", json!(0), "workloads[0].redis.pipeline: must be 1 to 1000, not 0"),
            ("/workloads/0/redis/readPercent", json!(5), "workloads[0].redis.readPercent: needs command: Mixed"),
            ("/workloads/0/redis/command", json!("Mixed"), "workloads[0].redis.readPercent: command: Mixed needs it"),
            ("/workloads/0/redis", Value::Null, "workloads[0]: give exactly one workload family"),
            ("/workloads/0/name", json!("a b"), "workloads[0].name: must be 1 to 40"),
        ] {
            let said = refusal(path, value);
            assert!(said.starts_with(expected) && !said.contains('\n'), "{path}: {said}");
        }
    }

    fn of_three(family: &str, parameters: Value, load: Value) -> Result<JobSpec, SpecError> {
        let mut job = job();
        (job["processes"], job["barrier"]) = (json!(3), json!("first:9470"));
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
    fn what_cannot_be_shared_is_refused_by_its_field() {
        let load = || json!({ "connections": 3, "total": 3 });
        of_three("redis", json!({ "command": "Lpush", "keySpace": 3 }), load()).unwrap();
        let set = json!({ "command": "Set" });
        for (family, parameters, load, expected) in [
            (
                "redis",
                set.clone(),
                json!({ "connections": 2, "total": 3 }),
                "load.connections: must be at least processes",
            ),
            ("redis", set, json!({ "connections": 3, "total": 2 }), "load.total: must be at least processes, 3"),
            ("redis", json!({ "command": "Set", "keySpace": 2 }), load(), "redis.keySpace: must be at least processes"),
            (
                "etcd",
                json!({ "operation": "TxnPut", "keySpace": 8, "operationsPerTransaction": 3 }),
                load(),
                "etcd.operationsPerTransaction: must not exceed keySpace / processes, 2",
            ),
            ("etcd", json!({ "operation": "WatchLatency" }), load(), "etcd.operation: a watcher is told of every put"),
        ] {
            let said = of_three(family, parameters, load).unwrap_err().to_string();
            assert!(said.starts_with(&format!("workloads[0].{expected}")), "{said}");
        }
    }

    #[test]
    fn missing_and_unknown_fields_are_named() {
        let mut without = job();
        without["workloads"][1].as_object_mut().unwrap().remove("load");
        let said = parse(&without.to_string()).unwrap_err().to_string();
        assert_eq!(said, "workloads[1]: missing field `load`");
        let said = refusal("/sed", json!(1));
        assert!(said.starts_with("sed: unknown field `sed`"), "{said}");
        let said = parse("{").unwrap_err().to_string();
        assert!(said.starts_with("the job is not JSON"), "{said}");
        assert!(read(Path::new("/no/such")).unwrap_err().to_string().starts_with("/no/such: "));
    }
}
