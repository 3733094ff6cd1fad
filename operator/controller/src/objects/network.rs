//! The parts that the network policies of stores, control planes and load are made of.

use k8s_openapi::api::networking::v1::{NetworkPolicyEgressRule, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Labels, selector};

const DNS_PORT: u16 = 53;

/// A single label.
pub(super) fn label(name: &str, value: &str) -> Labels {
    [(name.to_owned(), value.to_owned())].into()
}

/// Pods of the policy's own namespace.
pub(super) fn pods(labels: &Labels) -> NetworkPolicyPeer {
    NetworkPolicyPeer { pod_selector: Some(selector(labels)), ..NetworkPolicyPeer::default() }
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

/// Asking the cluster's DNS.
pub(super) fn dns() -> NetworkPolicyEgressRule {
    NetworkPolicyEgressRule {
        to: Some(vec![namespace("kube-system")]),
        ports: Some(vec![protocol("UDP", DNS_PORT), tcp(DNS_PORT)]),
    }
}

fn protocol(protocol: &str, port: u16) -> NetworkPolicyPort {
    NetworkPolicyPort {
        port: Some(IntOrString::Int(i32::from(port))),
        protocol: Some(protocol.into()),
        ..NetworkPolicyPort::default()
    }
}
