//! Keeps pods on given nodes, besides what their user says of that.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    Affinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Toleration, TopologySpreadConstraint,
};
use storebench_core::placement::Pins;

use super::{Labels, NODE_POOL_LABEL, selector};

/// Where pods may be.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// On nodes of this pool; `None`: on any.
    pub pool: Option<String>,
    /// On these nodes of them, by group of pods.
    pub pins: Pins,
}

impl Place {
    /// On which nodes the pods of a group are to stay; `None`: it may go anywhere in the pool.
    pub fn nodes(&self, group: &str) -> Option<&BTreeSet<String>> {
        self.pins.get(group)
    }

    /// The user's own selector of nodes, within the pool.
    pub fn node_selector(&self, mut of_user: BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
        of_user.extend(self.pool.iter().map(|pool| (NODE_POOL_LABEL.to_owned(), pool.clone())));
        (!of_user.is_empty()).then_some(of_user)
    }

    /// The user's own tolerations, and of the pool's taint, whatever its effect.
    pub fn tolerations(&self, mut of_user: Vec<Toleration>) -> Option<Vec<Toleration>> {
        of_user.extend(self.pool.iter().map(|pool| Toleration {
            key: Some(NODE_POOL_LABEL.into()),
            operator: Some("Equal".into()),
            value: Some(pool.clone()),
            ..Toleration::default()
        }));
        (!of_user.is_empty()).then_some(of_user)
    }
}

/// An affinity by which a pod stays on one of these nodes; none of them leaves the user's own as it is.
///
/// Terms are alternatives, and one that names a node names no second, so that each of the user's terms is there once for each node.
pub fn affinity(of_user: Option<Affinity>, nodes: Option<&BTreeSet<String>>) -> Option<Affinity> {
    let Some(nodes) = nodes.filter(|nodes| !nodes.is_empty()) else { return of_user };
    let mut affinity = of_user.unwrap_or_default();
    let node_affinity = affinity.node_affinity.get_or_insert_default();
    let required = node_affinity.required_during_scheduling_ignored_during_execution.get_or_insert_with(|| {
        // An empty term matches nothing.
        NodeSelector { node_selector_terms: Vec::new() }
    });
    let of_user = match required.node_selector_terms.as_slice() {
        [] => vec![NodeSelectorTerm::default()],
        terms => terms.to_vec(),
    };
    required.node_selector_terms =
        nodes.iter().flat_map(|node| of_user.iter().map(move |term| on(term, node))).collect();
    Some(affinity)
}

fn on(term: &NodeSelectorTerm, node: &str) -> NodeSelectorTerm {
    let mut term = term.clone();
    term.match_fields.get_or_insert_default().push(NodeSelectorRequirement {
        key: "metadata.name".into(),
        operator: "In".into(),
        values: Some(vec![node.to_owned()]),
    });
    term
}

/// How several pods are spread over as many nodes, one on each; none for fewer nodes, where the scheduler decides.
pub fn spread(
    nodes: Option<&BTreeSet<String>>,
    pods: usize,
    of_pods: &Labels,
) -> Option<Vec<TopologySpreadConstraint>> {
    nodes.filter(|nodes| pods > 1 && nodes.len() == pods).map(|_| {
        vec![TopologySpreadConstraint {
            max_skew: 1,
            topology_key: "kubernetes.io/hostname".into(),
            when_unsatisfiable: "DoNotSchedule".into(),
            label_selector: Some(selector(of_pods)),
            ..TopologySpreadConstraint::default()
        }]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn nodes(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn terms(affinity: Option<Affinity>) -> serde_json::Value {
        let text = serde_json::to_value(affinity.unwrap()).unwrap();
        text["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"].clone()
    }

    fn field(node: &str) -> serde_json::Value {
        json!([{ "key": "metadata.name", "operator": "In", "values": [node] }])
    }

    #[test]
    fn a_pod_stays_on_its_nodes_and_within_what_its_user_says() {
        assert_eq!(affinity(None, None), None);
        assert_eq!(affinity(None, Some(&nodes(&[]))), None);
        let one = terms(affinity(None, Some(&nodes(&["n1", "n2"]))));
        assert_eq!(one, json!([{ "matchFields": field("n1") }, { "matchFields": field("n2") }]));
        let fast = json!([{ "key": "disk", "operator": "In", "values": ["fast"] }]);
        let of_user: Affinity = serde_json::from_value(json!({ "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [{ "matchExpressions": fast }] },
        } }))
        .unwrap();
        let both = terms(affinity(Some(of_user), Some(&nodes(&["n1"]))));
        assert_eq!(both, json!([{ "matchExpressions": fast, "matchFields": field("n1") }]));
    }

    #[test]
    fn pods_of_a_pool_stay_within_it_and_tolerate_its_taint() {
        let none = Place::default();
        assert_eq!((none.node_selector(BTreeMap::new()), none.tolerations(Vec::new())), (None, None));
        let fast = Place { pool: Some("fast".into()), pins: Pins::new() };
        let of_user = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
        let selected = serde_json::to_value(fast.node_selector(of_user)).unwrap();
        assert_eq!(selected, json!({ "zone": "a", "storebench.dev/node-pool": "fast" }));
        let tolerated = serde_json::to_value(fast.tolerations(vec![Toleration::default()])).unwrap();
        let of_pool = json!({ "key": "storebench.dev/node-pool", "operator": "Equal", "value": "fast" });
        assert_eq!(tolerated, json!([{}, of_pool]));
        // Nobody leaves the pool by naming another one.
        let of_user = BTreeMap::from([(NODE_POOL_LABEL.to_owned(), "slow".to_owned())]);
        assert_eq!(fast.node_selector(of_user).unwrap()[NODE_POOL_LABEL], "fast");
    }

    #[test]
    fn as_many_pods_as_nodes_have_one_each() {
        let labels = Labels::from([("a".to_owned(), "b".to_owned())]);
        assert_eq!(spread(Some(&nodes(&["n1"])), 3, &labels), None);
        assert_eq!(spread(Some(&nodes(&["n1"])), 1, &labels), None);
        assert_eq!(spread(None, 3, &labels), None);
        let three = spread(Some(&nodes(&["n1", "n2", "n3"])), 3, &labels).unwrap();
        assert_eq!((three[0].max_skew, three[0].when_unsatisfiable.as_str()), (1, "DoNotSchedule"));
    }
}
