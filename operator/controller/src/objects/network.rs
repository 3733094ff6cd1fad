//! The parts that the network policies of stores, control planes and load are made of.

use k8s_openapi::api::networking::v1::{IPBlock, NetworkPolicyEgressRule, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use storebench_core::archive::{COMPONENT_LABEL, RUN_LABEL};

use super::{CLIENT_LABEL, CONTROL_PLANE, LOAD, Labels, Owner, instance, selector};

const DNS_PORTS: [u16; 2] = [53, 5353];

/// A single label.
pub(super) fn label(name: &str, value: &str) -> Labels {
    [(name.to_owned(), value.to_owned())].into()
}

/// Pods of the policy's own namespace.
pub(super) fn pods(labels: &Labels) -> NetworkPolicyPeer {
    NetworkPolicyPeer { pod_selector: Some(selector(labels)), ..NetworkPolicyPeer::default() }
}

/// Who loads what an owner has: of a trial its own load, of what stands by itself that of any run, which is told by the run's label.
pub(super) fn load(owner: &Owner, trial: &str) -> NetworkPolicyPeer {
    if owner.is_run() {
        return pods(&owner.labels(&instance(LOAD, trial)));
    }
    let of_a_run = LabelSelectorRequirement { key: RUN_LABEL.into(), operator: "Exists".into(), values: None };
    let any = selector(&label(COMPONENT_LABEL, LOAD));
    let any = LabelSelector { match_expressions: Some(vec![of_a_run]), ..any };
    NetworkPolicyPeer { pod_selector: Some(any), ..NetworkPolicyPeer::default() }
}

/// Who else uses a store: of a trial its control plane, of what stands by itself whoever says that it is a client.
pub(super) fn users(owner: &Owner, trial: &str) -> NetworkPolicyPeer {
    match owner.is_run() {
        true => pods(&owner.labels(&instance(CONTROL_PLANE, trial))),
        false => pods(&label(CLIENT_LABEL, "true")),
    }
}

/// All pods of a namespace.
pub(super) fn namespace(name: &str) -> NetworkPolicyPeer {
    NetworkPolicyPeer {
        namespace_selector: Some(selector(&label("kubernetes.io/metadata.name", name))),
        ..NetworkPolicyPeer::default()
    }
}

/// A TCP port.
pub(super) fn tcp(port: u16) -> NetworkPolicyPort {
    protocol("TCP", port)
}

/// Asking the cluster's DNS: in kube-system, on OpenShift in its own namespace and behind another port, and with NodeLocal
/// DNSCache on an address of the node.
pub(super) fn dns() -> NetworkPolicyEgressRule {
    let node_local = IPBlock { cidr: "169.254.0.0/16".into(), except: None };
    NetworkPolicyEgressRule {
        to: Some(vec![
            namespace("kube-system"),
            namespace("openshift-dns"),
            NetworkPolicyPeer { ip_block: Some(node_local), ..NetworkPolicyPeer::default() },
        ]),
        ports: Some(DNS_PORTS.into_iter().flat_map(|port| [protocol("UDP", port), tcp(port)]).collect()),
    }
}

fn protocol(protocol: &str, port: u16) -> NetworkPolicyPort {
    NetworkPolicyPort {
        port: Some(IntOrString::Int(i32::from(port))),
        protocol: Some(protocol.into()),
        ..NetworkPolicyPort::default()
    }
}
