//! Who is at the other end of a connection, and where he comes from.

use std::net::{Ipv6Addr, SocketAddr};

/// The other end of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// The common name of its certificate, if it showed one that was verified.
    pub common_name: Option<String>,
    /// Whether it came by TLS.
    pub is_tls: bool,
    /// Where it comes from, as logs say it; empty where nobody knows.
    pub address: String,
    /// On which socket it came, in the order of [`crate::server::Bound::addresses`].
    pub listener: usize,
}

impl Peer {
    /// The host that it comes from; of IPv6 the network, of which whoever has one has all addresses.
    pub fn origin(&self) -> String {
        match self.address.parse() {
            Ok(SocketAddr::V4(address)) => address.ip().to_string(),
            Ok(SocketAddr::V6(address)) => match address.ip().to_ipv4_mapped() {
                Some(ip) => ip.to_string(),
                None => Ipv6Addr::from(u128::from(*address.ip()) >> 64 << 64).to_string(),
            },
            Err(_) => self.address.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_of_a_network_of_ipv6_are_one_origin_and_so_are_all_ports() {
        for (address, origin) in [
            ("10.1.2.3:40000", "10.1.2.3"),
            ("[::ffff:10.1.2.3]:40000", "10.1.2.3"),
            ("[2001:db8:1:2:3:4:5:6]:1", "2001:db8:1:2::"),
            ("this machine", "this machine"),
        ] {
            assert_eq!(Peer { address: address.into(), ..Peer::default() }.origin(), origin);
        }
    }
}
