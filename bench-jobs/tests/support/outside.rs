//! A workload on a store that is somebody's.

use serde_json::{Value, json};
use storebench_crds::job::JobOutcome;

use super::job::{Ended, Job};

/// Runs it with a short load; `external` is more of the store's fields.
pub fn run(endpoint: &str, external: Value, family: &str, parameters: Value) -> Ended {
    let load = json!({ "connections": 3, "total": 600, "warmUp": "50ms", "timeout": "5s" });
    run_load(endpoint, external, family, parameters, load)
}

/// The same with a load of one's own.
pub fn run_load(endpoint: &str, external: Value, family: &str, parameters: Value, load: Value) -> Ended {
    let mut all = json!({ "endpoints": [endpoint] });
    all.as_object_mut().unwrap().extend(external.as_object().unwrap().clone());
    let spec = json!({
        "run": "test", "arm": "mine", "trial": 0, "seed": 42, "endpoints": [endpoint], "external": all, "isNamespaced": true,
        "workloads": [{ "name": "w", family: parameters, "load": load }],
    });
    Job::start(&spec, &[]).end()
}

/// Why the store failed.
pub fn store_failed(ended: &Ended) -> &str {
    let JobOutcome::StoreFailed { detail, .. } = &ended.summary.outcome else { panic!("{:?}", ended.summary.outcome) };
    detail
}
