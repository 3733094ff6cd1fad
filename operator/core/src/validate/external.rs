//! What a run must be that loads a store which is there already.

// The type alone: nothing here asks anybody.
use core::net::IpAddr;

use storebench_crds::benchmark_run::{BenchmarkRunSpec, Isolation};
use storebench_crds::external::External;
use storebench_crds::workload::{Family, Parameters};

use super::{Problem, ValidatedArm};
use crate::address::is_for_pods;

/// All that is wrong with a run for the external stores that it loads: field and problem.
pub(super) fn problems(arms: &[ValidatedArm], spec: &BenchmarkRunSpec) -> Vec<(String, String)> {
    let Some(arm) = arms.iter().find(|arm| arm.external().is_some()) else { return Vec::new() };
    let mut problems = Vec::new();
    if spec.isolation != Isolation::Shared {
        let text = format!(
            "is Fresh, but the store of arm {} is there already and cannot be new for every trial: set Shared, for all arms alike",
            arm.name
        );
        problems.push(("spec.isolation".into(), text));
    }
    if spec.parallelism != 1 {
        let text = format!(
            "must be 1 for arm {}, an external store: each load process would take the keys of another for somebody else's",
            arm.name
        );
        problems.push(("spec.parallelism".into(), text));
    }
    for (index, workload) in spec.workloads.iter().enumerate() {
        let (field, text) = match &workload.parameters {
            Parameters::Etcd(etcd) if etcd.compact_interval.is_some() => {
                let text = "would take the history of all keys, also of those that are not this run's: remove it";
                ("etcd.compactInterval", text.to_owned())
            }
            parameters if parameters.family().facts().loads_what_is_somebodys => continue,
            _ => {
                let may_load = Family::ALL.iter().filter(|family| family.facts().loads_what_is_somebodys);
                let may_load: Vec<&str> = may_load.map(|family| family.field()).collect();
                let text = "loads a store with keys that are not told apart from those of others";
                ("", format!("{text}: use {} workloads", may_load.join(" or ")))
            }
        };
        let place = format!("spec.workloads[{index}]");
        let field = if field.is_empty() { place } else { format!("{place}.{field}") };
        problems.push((field, format!("{text} (arm {} is external)", arm.name)));
    }
    problems
}

/// What of an external store an embedded run has not: field and problem.
pub(super) fn for_embedded(external: &External) -> Vec<(&'static str, &'static str)> {
    let mut problems = Vec::new();
    if external.password_from.as_ref().is_some_and(|from| from.file.is_none() && from.environment.is_none()) {
        let text =
            "names a Secret, which an embedded run has not: add file or environment, or apply the run in a cluster";
        problems.push(("spec.external.passwordFrom", text));
    }
    if external.tls.as_ref().is_some_and(|tls| tls.ca_file.is_none()) {
        let text = "names a Secret, which an embedded run has not: add caFile, or apply the run in a cluster";
        problems.push(("spec.external.tls", text));
    }
    problems
}

/// What of an external store a cluster has not: files and variables are of the machine where a run was started, and so are some addresses.
pub(super) fn for_kubernetes(name: &str, external: &External) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut problem = |field: String, text: String| {
        let object = format!("StorageService/{name}");
        problems.push(Problem { object, field: format!("spec.external.{field}"), text });
    };
    for (index, endpoint) in external.endpoints.iter().enumerate() {
        let host = endpoint.rsplit_once(':').map_or(endpoint.as_str(), |(host, _)| host);
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>().ok();
        // Resolvers take 2852039166, 0xa9fea9fe and 127.1 for addresses.
        let last_label = host.rsplit('.').next().unwrap_or_default();
        if address.is_none() && last_label.starts_with(|first: char| first.is_ascii_digit()) {
            let text = format!("{host}: is neither a name nor an address: write four numbers from 0 to 255, or a name");
            problem(format!("endpoints[{index}]"), text);
        }
        if address.is_some_and(|address| !is_for_pods(address)) {
            let text =
                format!("{host}: pods reach no store there: name an address that they reach, or run it embedded");
            problem(format!("endpoints[{index}]"), text);
        }
    }
    if external.password_from.as_ref().is_some_and(|from| from.secret_key_ref.is_none()) {
        let text = "has no secretKeyRef, and pods have neither your files nor your environment: add one for a cluster";
        problem("passwordFrom".into(), text.into());
    }
    if external.tls.as_ref().is_some_and(|tls| tls.secret_name.is_none()) {
        let text = "has no secretName, and pods have not your files: add one for a cluster";
        problem("tls".into(), text.into());
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn external(fields: serde_json::Value) -> External {
        let mut all = json!({ "endpoints": ["10.0.0.7:6379"] });
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn each_driver_takes_what_it_has_and_refuses_what_it_has_not() {
        let secret = json!({ "name": "s", "key": "password" });
        let cases = [
            (json!({}), None, None),
            (json!({ "passwordFrom": { "file": "p" } }), None, Some("spec.external.passwordFrom")),
            (json!({ "passwordFrom": { "environment": "P" } }), None, Some("spec.external.passwordFrom")),
            (json!({ "passwordFrom": { "secretKeyRef": secret } }), Some("spec.external.passwordFrom"), None),
            (json!({ "passwordFrom": { "file": "p", "secretKeyRef": secret } }), None, None),
            (json!({ "tls": { "caFile": "ca" } }), None, Some("spec.external.tls")),
            (json!({ "tls": { "secretName": "s" } }), Some("spec.external.tls"), None),
            (json!({ "tls": { "caFile": "ca", "secretName": "s" } }), None, None),
        ];
        for (fields, embedded, cluster) in cases {
            let external = external(fields.clone());
            let refused = for_embedded(&external);
            assert_eq!(refused.first().map(|(field, _)| *field), embedded, "{fields}");
            let refused = for_kubernetes("mine", &external);
            assert_eq!(refused.first().map(|problem| problem.field.as_str()), cluster, "{fields}");
        }
    }

    #[test]
    fn a_pod_is_not_sent_to_its_own_machine() {
        for host in ["127.0.0.1", "169.254.169.254", "[::1]", "0.0.0.0"] {
            let endpoints = json!({ "endpoints": ["10.0.0.7:6379", format!("{host}:6379")] });
            let problems = for_kubernetes("mine", &external(endpoints));
            assert_eq!(problems[0].field, "spec.external.endpoints[1]");
            assert!(problems[0].text.starts_with(host), "{problems:?}");
        }
        let names = json!({ "endpoints": ["redis.store.svc:6379", "[fd00:10::1]:6379"] });
        assert!(for_kubernetes("mine", &external(names)).is_empty());
    }

    /// Whoever mended one was told the next.
    #[test]
    fn all_that_a_cluster_has_not_is_told_at_once() {
        let fields =
            json!({ "endpoints": ["127.0.0.1:1"], "passwordFrom": { "file": "p" }, "tls": { "caFile": "ca" } });
        let problems = for_kubernetes("mine", &external(fields));
        let fields: Vec<&str> = problems.iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(fields, ["spec.external.endpoints[0]", "spec.external.passwordFrom", "spec.external.tls"]);
    }
}
