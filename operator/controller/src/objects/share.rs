//! How a busy node shares its processors out among the pods of a trial: in proportion to what they ask for (`requests.cpu`).
//!
//! Every pod of a trial asks for the same, [`POD_CPU`] in all: a member of a store with its meter, the load, a control plane. What their user
//! says of a store in `spec.resources` goes before. There are no limits but the user's: who is throttled measures the limit.
//! It is little, since services stand by while a trial runs: three of three members, a trial's three and its load must have room on a
//! node of two processors, of which a cluster's own pods have taken half (`testing/cluster/services groups`).

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use storebench_core::validate::ValidatedService;

/// What a pod of a trial asks for, all of its containers together.
pub const POD_CPU: &str = "50m";
/// Of this, the meter beside a store or control plane.
pub(super) const METER_CPU: &str = "5m";
/// And the store.
const STORE_CPU: &str = "45m";
/// Of a control plane's pod: the API server, and each of the three other processes.
pub(super) const API_SERVER_CPU: &str = "30m";
pub(super) const OTHER_PROCESS_CPU: &str = "5m";

/// The resources of a store: the user's, and its share unless they say anything of processors.
pub(super) fn of_store(of_user: Option<ResourceRequirements>) -> ResourceRequirements {
    let mut resources = of_user.unwrap_or_default();
    // A limit without a request is the request, too.
    if cpu(&resources).is_none() {
        resources.requests.get_or_insert_default().insert("cpu".into(), Quantity(STORE_CPU.into()));
    }
    resources
}

fn cpu(resources: &ResourceRequirements) -> Option<&str> {
    let requested = resources.requests.as_ref().and_then(|requests| requests.get("cpu"));
    requested.or_else(|| resources.limits.as_ref().and_then(|limits| limits.get("cpu"))).map(|cpu| cpu.0.as_str())
}

/// What a user asks for of processors for each member of a store, instead of the share that every pod has. `None`: nothing.
pub fn asked(service: &ValidatedService) -> Option<&str> {
    cpu(service.spec.resources.as_ref()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resources(text: serde_json::Value) -> ResourceRequirements {
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn a_store_has_its_share_unless_its_user_says_anything_of_processors() {
        let plain = json!({ "requests": { "cpu": "45m" } });
        assert_eq!(of_store(None), resources(plain));
        let memory = json!({ "requests": { "memory": "1Gi" }, "limits": { "memory": "1Gi" } });
        let with_share = json!({ "requests": { "memory": "1Gi", "cpu": "45m" }, "limits": { "memory": "1Gi" } });
        assert_eq!(of_store(Some(resources(memory))), resources(with_share));
        for said in [json!({ "requests": { "cpu": "2" } }), json!({ "limits": { "cpu": "2" } })] {
            assert_eq!(of_store(Some(resources(said.clone()))), resources(said));
        }
    }
}
