//! Addresses of what users name: where pods may be sent, and where not.

// The type alone: nothing here asks anybody.
use core::net::IpAddr;

/// Whether something may be there that pods reach. Nothing is on a pod's own machine, or where clouds tell machines their secrets.
pub fn is_for_pods(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        // fd00:ec2::254 is where one cloud tells machines their secrets.
        IpAddr::V6(address) => address.is_unicast_link_local() || address.segments()[..2] == [0xfd00, 0x0ec2],
    };
    !(is_link_local || address.is_loopback() || address.is_unspecified() || address.is_multicast())
}
