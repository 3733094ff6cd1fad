//! Addresses for servers that must be told their own.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Ports that the system gives to no connection, and faulty-store to no store.
const BEGIN: u32 = 10_000;
const COUNT: u32 = 10_000;

/// An address on loopback where nobody listens. The system gives its port to no connection, as it might with a port that it
/// chose itself, between here and the server's start. Given once by this process.
#[track_caller]
pub fn free_address() -> SocketAddr {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    // Other processes begin elsewhere.
    let begin = std::process::id().wrapping_mul(797);
    loop {
        let number = GIVEN.fetch_add(1, Ordering::Relaxed);
        assert!(number < COUNT, "no port from {BEGIN} to {} is free", BEGIN + COUNT);
        let port = BEGIN + begin.wrapping_add(number) % COUNT;
        let address = SocketAddr::from(([127, 0, 0, 1], u16::try_from(port).unwrap()));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// The port of a [`free_address`].
#[track_caller]
pub fn free_port() -> u16 {
    free_address().port()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_given_once_and_to_nobody_who_listens() {
        let first = free_address();
        let _listener = TcpListener::bind(first).unwrap();
        let next: Vec<SocketAddr> = (0..100).map(|_| free_address()).collect();
        assert!(!next.contains(&first), "{first}");
        assert!(next.iter().all(|address| address.ip().is_loopback() && (10_000..20_000).contains(&address.port())));
    }
}
