//! Who reaches whom, by the policies that are made, and whom Services and policies select. Labels that anybody may give a pod decide nothing;
//! those that `manifests/policies/pods.yaml` keeps for the operator do.

#![allow(clippy::unwrap_used, clippy::panic)]

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;
use storebench_core::archive::{COMPONENT_LABEL, RUN_LABEL};
use storebench_core::control_plane::{self as core, ValidatedControlPlane};
use storebench_core::validate::ValidatedService;
use storebench_crds::ControlPlane;

use super::control_plane::{self, ControlPlaneObjects, ControlPlaneRequest};
use super::fixture::{self, settings, with_object_store};
use super::load::{self, LoadObjects, LoadRequest};
use super::store::{self, METER_PORT, RoleObjects, StoreObjects};
use super::*;

const ETCD: u16 = 2379;
const ETCD_PEER: u16 = 2380;
const OBJECT_STORE: u16 = 7070;
const API: u16 = control_plane::PORT;

fn owner(label: &str, name: &str) -> Owner {
    Owner {
        namespace: "benchmarks".into(),
        reference: OwnerReference { name: name.into(), ..OwnerReference::default() },
        labels: labels(&[(MANAGED_BY_LABEL, MANAGED_BY), (label, name)]),
    }
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Three members of an etcd that needs an object store.
fn service() -> ValidatedService {
    with_object_store(&json!({ "engine": "Etcd", "replicas": 3 }))
}

fn plane() -> ValidatedControlPlane {
    let spec = json!({ "serviceRef": { "name": "store" }, "nodes": 1 });
    core::validate(&ControlPlane::new("plane", serde_json::from_value(spec).unwrap()), &[service()]).unwrap()
}

/// What is made of one store: for a trial of that name, or for a service that stands by itself.
fn store(owner: &Owner, name: &str) -> StoreObjects {
    fixture::store(&service(), owner, name, store::build)
}

fn hosted(owner: &Owner, name: &str, store: &str, instance: &str) -> ControlPlaneObjects {
    control_plane::build(&ControlPlaneRequest {
        control_plane: &plane(),
        name,
        store,
        instance,
        owner,
        labels: &Labels::new(),
        operator_namespace: "storebench-system",
        images: &settings().images,
        place: &Place::default(),
    })
}

fn load_of(run: &str, trial: &str, shared: Vec<Labels>) -> LoadObjects {
    let spec = json!({
        "run": run, "arm": "arm", "trial": 0, "seed": 1, "endpoints": ["s:1"], "workloads": [], "parallelism": 2,
    });
    let owner = owner(RUN_LABEL, run);
    fixture::load(spec, &owner, trial, |request| load::build(LoadRequest { shared, ..request })).unwrap()
}

/// A pod and the policy that the operator made for it; of a stranger there is none.
struct Party {
    labels: Labels,
    policy: Option<NetworkPolicy>,
}

fn party(template: &PodTemplateSpec, policy: &NetworkPolicy) -> Party {
    let labels = template.metadata.as_ref().unwrap().labels.clone().unwrap();
    assert!(selects(policy.spec.as_ref().unwrap().pod_selector.as_ref().unwrap(), &labels), "{labels:?}");
    Party { labels, policy: Some(policy.clone()) }
}

fn role(objects: &RoleObjects) -> Party {
    party(&objects.stateful_set.spec.as_ref().unwrap().template, &objects.network_policy)
}

fn plane_of(objects: &ControlPlaneObjects) -> Party {
    party(&objects.stateful_set.spec.as_ref().unwrap().template, &objects.network_policy)
}

fn load_pod(objects: &LoadObjects) -> Party {
    party(&objects.job.spec.as_ref().unwrap().template, &objects.network_policy)
}

fn stranger(pairs: &[(&str, &str)]) -> Party {
    Party { labels: labels(pairs), policy: None }
}

fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    let equal = selector.match_labels.iter().flatten().all(|(name, value)| labels.get(name) == Some(value));
    let mut expressions =
        selector.match_expressions.iter().flatten().inspect(|one| assert_eq!(one.operator, "Exists", "{one:?}"));
    equal && expressions.all(|one| labels.contains_key(&one.key))
}

/// Whether both policies let one reach the other at a port.
fn reaches(from: &Party, to: &Party, port: u16) -> bool {
    let is_named = |peers: &Option<Vec<NetworkPolicyPeer>>, pod: &Party| {
        let selector = |peer: &NetworkPolicyPeer| {
            peer.namespace_selector.is_none() && peer.pod_selector.as_ref().is_some_and(|one| selects(one, &pod.labels))
        };
        peers.as_ref().is_none_or(|peers| peers.iter().any(selector))
    };
    let has = |ports: &Option<Vec<k8s_openapi::api::networking::v1::NetworkPolicyPort>>| {
        let wanted = IntOrString::Int(i32::from(port));
        ports.as_ref().is_none_or(|ports| ports.iter().any(|one| one.port.as_ref() == Some(&wanted)))
    };
    let out = from.policy.as_ref().is_none_or(|policy| {
        policy
            .spec
            .iter()
            .flat_map(|spec| spec.egress.iter().flatten())
            .any(|rule| is_named(&rule.to, to) && has(&rule.ports))
    });
    let inward = to.policy.as_ref().is_none_or(|policy| {
        policy
            .spec
            .iter()
            .flat_map(|spec| spec.ingress.iter().flatten())
            .any(|rule| is_named(&rule.from, from) && has(&rule.ports))
    });
    out && inward
}

/// A neighbour's pod that said it was load, or a client, could say CONFIG SET to the arm that he likes.
#[test]
fn a_trials_store_lets_in_its_own_trial_and_nobody_who_looks_like_load_or_a_client() {
    let run = owner(RUN_LABEL, "run");
    let objects = store(&run, "run-0-a");
    let (member, companion) = (role(objects.store.as_ref().unwrap()), role(&objects.companions[0]));
    let plane = plane_of(&hosted(&run, "run-0-a-k8s", "run-0-a", "run-0-a"));
    let load = load_pod(&load_of("run", "run-0-a", Vec::new()));
    for (from, to, port) in [
        (&load, &member, ETCD),
        (&load, &member, METER_PORT),
        (&load, &companion, OBJECT_STORE),
        (&load, &companion, METER_PORT),
        (&load, &plane, API),
        (&load, &plane, METER_PORT),
        (&load, &load, 9466),
        (&plane, &member, ETCD),
        (&member, &companion, OBJECT_STORE),
        (&member, &member, ETCD),
        (&member, &member, ETCD_PEER),
    ] {
        assert!(reaches(from, to, port), "{:?} does not reach {:?} at {port}", from.labels, to.labels);
    }
    let as_load = [(COMPONENT_LABEL, LOAD), (INSTANCE_LABEL, "run-0-a"), (MANAGED_BY_LABEL, MANAGED_BY)];
    let as_plane = [(COMPONENT_LABEL, CONTROL_PLANE), (INSTANCE_LABEL, "run-0-a"), (CLIENT_LABEL, "true")];
    let as_member = [(COMPONENT_LABEL, STORE), (INSTANCE_LABEL, "run-0-a"), (ROLE_LABEL, "object-store")];
    for other in [
        stranger(&as_load),
        stranger(&as_plane),
        stranger(&as_member),
        stranger(&[(CLIENT_LABEL, "true")]),
        load_pod(&load_of("run", "run-0-b", Vec::new())),
        load_pod(&load_of("another", "another-0-a", Vec::new())),
        plane_of(&hosted(&owner(CONTROL_PLANE_LABEL, "plane"), "plane-k8s", "store", "plane-k8s")),
        role(store(&run, "run-0-b").store.as_ref().unwrap()),
    ] {
        for (to, ports) in [
            (&member, [ETCD, ETCD_PEER, METER_PORT].as_slice()),
            (&companion, &[OBJECT_STORE, METER_PORT]),
            (&plane, &[API, METER_PORT]),
            (&load, &[9466]),
        ] {
            let reached: Vec<_> = ports.iter().filter(|port| reaches(&other, to, **port)).collect();
            assert!(reached.is_empty(), "{:?} reaches {:?} at {reached:?}", other.labels, to.labels);
        }
    }
}

/// Prometheus is in a namespace that the operator does not know.
#[test]
fn whoever_scrapes_reaches_the_figures_of_a_load_and_nothing_else_of_a_trial() {
    let objects = store(&owner(RUN_LABEL, "run"), "run-0-a");
    let (member, load) = (role(objects.store.as_ref().unwrap()), load_pod(&load_of("run", "run-0-a", Vec::new())));
    let prometheus = stranger(&[]);
    assert!(reaches(&prometheus, &load, load::METRICS_PORT));
    for (to, port) in [(&load, 9466), (&member, ETCD), (&member, METER_PORT)] {
        assert!(!reaches(&prometheus, to, port), "reaches {:?} at {port}", to.labels);
    }
}

#[test]
fn a_service_that_stands_by_itself_lets_in_clients_and_the_load_of_a_run_that_names_it() {
    let objects = store(&owner(SERVICE_LABEL, "store"), "store");
    let (member, companion) = (role(objects.store.as_ref().unwrap()), role(&objects.companions[0]));
    let plane = plane_of(&hosted(&owner(CONTROL_PLANE_LABEL, "plane"), "plane-k8s", "store", "plane-k8s"));
    let of_both = vec![labels(&[(SERVICE_LABEL, "store")]), labels(&[(CONTROL_PLANE_LABEL, "plane")])];
    let load = load_pod(&load_of("run", "run-0-a", of_both));
    let client = stranger(&[(CLIENT_LABEL, "true")]);
    for (from, to, port) in [
        (&load, &member, ETCD),
        (&load, &member, METER_PORT),
        (&load, &companion, OBJECT_STORE),
        (&load, &plane, API),
        (&load, &plane, METER_PORT),
        (&client, &member, ETCD),
        (&client, &companion, OBJECT_STORE),
        (&client, &plane, API),
        (&plane, &member, ETCD),
        (&member, &companion, OBJECT_STORE),
        (&member, &member, ETCD_PEER),
    ] {
        assert!(reaches(from, to, port), "{:?} does not reach {:?} at {port}", from.labels, to.labels);
    }
    // A load with a store of its own has no business here, and who only looks like load or members has none either.
    let own = load_pod(&load_of("run", "run-0-a", Vec::new()));
    let as_load = stranger(&[(COMPONENT_LABEL, LOAD), (INSTANCE_LABEL, "run-0-a"), (MANAGED_BY_LABEL, MANAGED_BY)]);
    let as_member = stranger(&[(COMPONENT_LABEL, STORE), (INSTANCE_LABEL, "store"), (MANAGED_BY_LABEL, MANAGED_BY)]);
    for other in [own, as_load, as_member, stranger(&[])] {
        let ports =
            [(&member, ETCD), (&member, ETCD_PEER), (&member, METER_PORT), (&companion, OBJECT_STORE), (&plane, API)];
        for (to, port) in ports {
            assert!(!reaches(&other, to, port), "{:?} reaches {:?} at {port}", other.labels, to.labels);
        }
    }
    assert!(!reaches(&client, &member, METER_PORT) && !reaches(&client, &plane, METER_PORT));
}

/// A pod that took a member's labels, hostname and subdomain was found by the member's name.
#[test]
fn no_service_or_policy_selects_by_labels_that_anybody_may_give_a_pod() {
    let guarded = [RUN_LABEL, SERVICE_LABEL, CONTROL_PLANE_LABEL];
    let check = |selector: &Labels| {
        assert!(guarded.iter().any(|label| selector.contains_key(*label)), "{selector:?}");
    };
    let check_policy = |policy: &NetworkPolicy| {
        check(policy.spec.as_ref().unwrap().pod_selector.as_ref().unwrap().match_labels.as_ref().unwrap());
    };
    for (owner, name) in [(owner(RUN_LABEL, "run"), "run-0-a"), (owner(SERVICE_LABEL, "store"), "store")] {
        let StoreObjects { companions, store } = store(&owner, name);
        for objects in companions.iter().chain(&store) {
            check(objects.service.spec.as_ref().unwrap().selector.as_ref().unwrap());
            check_policy(&objects.network_policy);
            if let Some(budget) = &objects.disruption_budget {
                check(budget.spec.as_ref().unwrap().selector.as_ref().unwrap().match_labels.as_ref().unwrap());
            }
        }
    }
    let load = load_of("run", "run-0-a", Vec::new());
    check(load.service.as_ref().unwrap().spec.as_ref().unwrap().selector.as_ref().unwrap());
    check_policy(&load.network_policy);
    for plane in [
        hosted(&owner(RUN_LABEL, "run"), "run-0-a-k8s", "run-0-a", "run-0-a"),
        hosted(&owner(CONTROL_PLANE_LABEL, "plane"), "plane-k8s", "store", "plane-k8s"),
    ] {
        check(plane.service.spec.as_ref().unwrap().selector.as_ref().unwrap());
        check_policy(&plane.network_policy);
    }
}

/// The API server refuses another selector, so that every service of an operator before would be Stalled; and with other labels of its pods their
/// stores would be started anew.
#[test]
fn what_stands_by_itself_keeps_its_selectors_and_labels_when_the_operator_is_replaced() {
    let objects = store(&owner(SERVICE_LABEL, "store"), "store");
    let plane = hosted(&owner(CONTROL_PLANE_LABEL, "plane"), "plane-k8s", "store", "plane-k8s");
    let member = &objects.store.as_ref().unwrap().stateful_set;
    let companion = &objects.companions[0].stateful_set;
    let mesh = [
        ("istio.io/dataplane-mode", "none"),
        ("kuma.io/sidecar-injection", "disabled"),
        ("sidecar.istio.io/inject", "false"),
    ];
    let own = (MANAGED_BY_LABEL, MANAGED_BY);
    for (set, selected, more) in [
        (
            member,
            vec![(COMPONENT_LABEL, STORE), (INSTANCE_LABEL, "store")],
            vec![own, (SERVICE_LABEL, "store"), ("app.kubernetes.io/name", "etcd")],
        ),
        (
            companion,
            vec![(COMPONENT_LABEL, COMPANION), (INSTANCE_LABEL, "store"), (ROLE_LABEL, "object-store")],
            vec![own, (SERVICE_LABEL, "store"), ("app.kubernetes.io/name", "versitygw")],
        ),
        (
            &plane.stateful_set,
            vec![(COMPONENT_LABEL, CONTROL_PLANE), (INSTANCE_LABEL, "plane-k8s")],
            vec![own, (CONTROL_PLANE_LABEL, "plane"), ("app.kubernetes.io/name", "kubernetes"), (CLIENT_LABEL, "true")],
        ),
    ] {
        let spec = set.spec.as_ref().unwrap();
        assert_eq!(spec.selector.match_labels.as_ref().unwrap(), &labels(&selected));
        let all = [selected, more, mesh.to_vec()].concat();
        assert_eq!(spec.template.metadata.as_ref().unwrap().labels.as_ref().unwrap(), &labels(&all));
    }
}
