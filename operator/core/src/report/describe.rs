//! What was asked, in a line: a workload, a run, how to read a report.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use storebench_crds::status::Verdict;
use storebench_crds::workload::kubernetes::{KubernetesOperation, KubernetesWorkload, LatencyOf};
use storebench_crds::workload::{Consistency, EtcdOperation, EtcdWorkload, KeyOrder, Load, LoadMode, RangeScope};
use storebench_crds::workload::{RedisProtocol, RedisWorkload, Workload};

use super::Report;
use super::lookup::api_word;
use super::units;
use super::wording;

/// A workload's request and parameters, as `etcd Put, 32 B keys, 256 B values over 10.0k keys`.
pub(super) fn request(workload: &Workload) -> String {
    match (&workload.etcd, &workload.redis, &workload.kubernetes) {
        (Some(etcd), ..) => etcd_request(etcd),
        (_, Some(redis), _) => redis_request(redis),
        (.., Some(kubernetes)) => kubernetes_request(kubernetes),
        (None, None, None) => "no request".to_owned(),
    }
}

fn etcd_request(etcd: &EtcdWorkload) -> String {
    let mut parts = vec![format!("etcd {}", api_word(&etcd.operation))];
    if let Some(percent) = etcd.read_percent {
        parts.push(format!("{percent} % reads"));
    }
    if matches!(etcd.operation, EtcdOperation::Range | EtcdOperation::Mixed) {
        parts.push(match etcd.consistency {
            Consistency::Linearizable => "linearizable".to_owned(),
            Consistency::Serializable => "serializable".to_owned(),
        });
    }
    if etcd.scope == RangeScope::Prefix {
        let limit = etcd.limit.map_or_else(String::new, |limit| format!(" limited to {}", units::count(limit.into())));
        parts.push(format!("prefix{limit}"));
    }
    if etcd.count_only {
        parts.push("count only".to_owned());
    }
    if etcd.keys_only {
        parts.push("keys only".to_owned());
    }
    if let Some(operations) = etcd.operations_per_transaction {
        parts.push(format!("{operations} puts in each transaction"));
    }
    if let Some(watchers) = etcd.watchers {
        let streams = etcd.streams.unwrap_or(1);
        parts.push(format!("{} on {}", things(watchers, "watcher"), things(streams, "stream")));
    }
    if etcd.previous_value {
        parts.push("with previous values".to_owned());
    }
    if etcd.operation != EtcdOperation::LeaseKeepAlive {
        parts.push(format!("{} keys", units::bytes(etcd.key_bytes.into())));
        parts.push(value_sizes(etcd.value_bytes, etcd.key_space, etcd.key_order));
    }
    if let Some(every) = &etcd.compact_interval {
        parts.push(format!("compacted every {}", every.as_str()));
    }
    parts.join(", ")
}

fn redis_request(redis: &RedisWorkload) -> String {
    let mut parts = vec![format!("Redis {}", api_word(&redis.command))];
    if let Some(percent) = redis.read_percent {
        parts.push(format!("{percent} % reads"));
    }
    parts.push(value_sizes(redis.value_bytes, redis.key_space, redis.key_order));
    if redis.pipeline > 1 {
        parts.push(format!("pipelines of {}", redis.pipeline));
    }
    if redis.protocol == RedisProtocol::Resp3 {
        parts.push("RESP3".to_owned());
    }
    parts.join(", ")
}

fn kubernetes_request(kubernetes: &KubernetesWorkload) -> String {
    use KubernetesOperation::{
        CreateConfigMaps, CustomResourceChurn, DeleteNamespaces, DeployAndScale, ListAndWatch, MixedChurn,
        NodeHeartbeats, RollingUpdate,
    };
    let operation = kubernetes.operation;
    let mut parts = vec![format!("Kubernetes {}", api_word(&operation))];
    if matches!(operation, DeployAndScale | RollingUpdate) {
        parts.push(things(kubernetes.replicas(), "pod"));
    }
    if kubernetes.latency_of == LatencyOf::EachPod {
        parts.push("each pod's latency".to_owned());
    }
    for (what, limit) in [("surge", &kubernetes.max_surge), ("unavailable", &kubernetes.max_unavailable)] {
        if let Some(limit) = limit {
            let limit = match limit {
                IntOrString::Int(number) => number.to_string(),
                IntOrString::String(percent) => percent.clone(),
            };
            parts.push(format!("at most {limit} {what}"));
        }
    }
    match operation {
        ListAndWatch => parts.push(things(kubernetes.watchers(), "watcher")),
        MixedChurn => parts.push(format!("{} % reads", kubernetes.read_percent.unwrap_or_default())),
        _ => {}
    }
    match operation {
        NodeHeartbeats => parts.push(things(kubernetes.objects(), "node")),
        ListAndWatch | MixedChurn => parts.push(things(kubernetes.objects(), "object")),
        DeleteNamespaces => parts.push(format!("{} in each", things(kubernetes.objects(), "ConfigMap"))),
        _ => {}
    }
    if matches!(operation, CreateConfigMaps | CustomResourceChurn | ListAndWatch | MixedChurn) {
        parts.push(format!("{} each", units::bytes(kubernetes.object_bytes.into())));
    }
    parts.join(", ")
}

fn value_sizes(value_bytes: u32, key_space: u32, order: KeyOrder) -> String {
    let order = match order {
        KeyOrder::Random => "",
        KeyOrder::Sequential => " in sequence",
    };
    format!("{} values over {}{order}", units::bytes(value_bytes.into()), things(key_space, "key"))
}

/// How hard and how long, as `closed loop, 64 clients on 8 connections, 10s after 1s of warm-up`.
pub(super) fn load(load: &Load) -> String {
    let mode = match (load.mode, load.rate) {
        (LoadMode::OpenLoop, Some(rate)) => format!("open loop at {}/s", units::count(rate)),
        (LoadMode::OpenLoop, None) => "open loop".to_owned(),
        (LoadMode::ClosedLoop, _) => "closed loop".to_owned(),
    };
    let mut parts =
        vec![mode, format!("{} on {}", things(load.clients(), "client"), things(load.connections, "connection"))];
    if load.threads > 1 {
        parts.push(format!("{} threads", load.threads));
    }
    let amount = match (&load.duration, load.total) {
        (Some(duration), _) => duration.as_str().to_owned(),
        (None, Some(total)) => format!("{} requests", units::count(total)),
        (None, None) => "no end".to_owned(),
    };
    parts.push(format!("{amount} after {} of warm-up", load.warm_up.as_str()));
    parts.join(", ")
}

fn things(number: u32, thing: &str) -> String {
    format!("{} {thing}{}", units::count(number.into()), if number == 1 { "" } else { "s" })
}

/// The judgement's message, or what the verdict means if there is none. What an invalid run is worth is said in any case.
pub(super) fn message(report: &Report) -> (String, Option<&'static str>) {
    let meaning = wording::verdict_meaning(report.judgement.verdict);
    match report.judgement.message.trim() {
        "" => (meaning.to_owned(), None),
        message => (message.to_owned(), (report.judgement.verdict == Verdict::Invalid).then_some(meaning)),
    }
}

/// Where, when, how long and by what, in parts.
pub(super) fn circumstances(report: &Report) -> Vec<String> {
    let record = &report.record;
    vec![
        wording::driver(record.driver).to_owned(),
        instant(&record.started_at),
        format!("took {}", units::run_duration(record.duration_millis)),
        format!("storebench {}", record.storebench_version),
    ]
}

/// `2026-03-01T12:00:00.123Z` as `2026-03-01 12:00:00 UTC`; anything else as it is.
fn instant(rfc3339: &str) -> String {
    let is_utc_second =
        rfc3339.is_ascii() && rfc3339.len() >= 20 && rfc3339.ends_with('Z') && rfc3339.as_bytes()[10] == b'T';
    if is_utc_second { format!("{} {} UTC", &rfc3339[..10], &rfc3339[11..19]) } else { rfc3339.to_owned() }
}

/// How the numbers were made and what the signs mean, for a first reader. One statement each.
pub(super) fn reading_guide(report: &Report) -> Vec<&'static str> {
    let mut guide = vec![
        "Throughput is the median over trials; ± is its 95 % interval. Latency percentiles are over all requests of all valid trials, merged, never averaged.",
        "A ratio is the arm divided by the baseline, paired trial by trial, with its 95 % interval. If the interval contains 1, neither is called better.",
        "Where a table says what it detects: the smallest change that so many pairs of trials would find four times in five. A smaller one may have gone unseen.",
        "—: not measured, or too few requests for that percentile.",
    ];
    if report.record.spec.workloads.iter().any(super::lookup::is_open_loop) {
        guide.insert(
            1,
            "Open loop: intended latency runs from the instant a request was due, whether or not it could be sent then; service latency from its send. Users feel the intended one.",
        );
    }
    guide
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_readable_and_never_guessed() {
        assert_eq!(instant("2026-03-01T12:00:00Z"), "2026-03-01 12:00:00 UTC");
        assert_eq!(instant("2026-03-01T12:00:00.123456Z"), "2026-03-01 12:00:00 UTC");
        assert_eq!(instant("2026-03-01T12:00:00+02:00"), "2026-03-01T12:00:00+02:00");
        assert_eq!(instant("yesterday"), "yesterday");
    }
}
