//! Simulated nodes: what is created for each, and when it can take pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Pods that a simulated node takes: so many that the scheduler never looks for room.
const PODS_MAX: &str = "10000";

/// The simulated node of this number. kwok, told to manage all nodes, makes it Ready and its pods too.
pub fn node(number: u32) -> Node {
    let quantity = |amount: &str| Quantity(amount.into());
    let capacity: BTreeMap<String, Quantity> = [("cpu", "1000"), ("memory", "4Ti"), ("pods", PODS_MAX)]
        .map(|(name, amount)| (name.into(), quantity(amount)))
        .into();
    let name = format!("simulated-{number}");
    Node {
        metadata: ObjectMeta {
            labels: Some([("kubernetes.io/hostname".into(), name.clone())].into()),
            name: Some(name),
            ..ObjectMeta::default()
        },
        status: Some(NodeStatus {
            allocatable: Some(capacity.clone()),
            capacity: Some(capacity),
            ..NodeStatus::default()
        }),
        ..Node::default()
    }
}

/// Whether pods can be scheduled to it: it is Ready, and no taint says otherwise.
pub fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.is_empty() && conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{NodeCondition, NodeSpec, Taint};

    #[test]
    fn a_node_takes_pods_when_it_is_ready_and_its_taint_is_gone() {
        let mut node = node(0);
        assert!(!is_ready(&node), "nobody has looked at it yet");
        let ready = NodeCondition { type_: "Ready".into(), status: "True".into(), ..NodeCondition::default() };
        node.status.as_mut().unwrap().conditions = Some(vec![ready]);
        assert!(is_ready(&node));
        let taint =
            Taint { key: "node.kubernetes.io/not-ready".into(), effect: "NoSchedule".into(), ..Taint::default() };
        node.spec = Some(NodeSpec { taints: Some(vec![taint]), ..NodeSpec::default() });
        assert!(!is_ready(&node));
    }
}
