//! The parts that the network policies of stores, control planes and load are made of.

use k8s_openapi::api::networking::v1::{IPBlock, NetworkPolicyEgressRule, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Labels, selector};

const DNS_PORTS: [u16; 2] = [53, 5353];

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
