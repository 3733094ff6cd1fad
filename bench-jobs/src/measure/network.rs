//! How much has come in over the network, as this process and its children see it: in a pod what is the pod's, else what is the machine's.

use std::fs;

/// Bytes of all IP packets that came in since the network namespace began, those over loopback as well. `None`: the kernel does not say.
pub fn received_bytes() -> Option<u64> {
    let fourth = in_netstat(&fs::read_to_string("/proc/self/net/netstat").ok()?)?;
    // A kernel without version 6 has none of its packets.
    let sixth = fs::read_to_string("/proc/self/net/snmp6").ok().and_then(|text| in_snmp6(&text)).unwrap_or_default();
    Some(fourth + sixth)
}

/// How many more they are now.
pub fn received_since(before: Option<u64>) -> Option<u64> {
    received_bytes()?.checked_sub(before?)
}

/// `InOctets` of `IpExt`: a line of names, and one of values.
fn in_netstat(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("IpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let (_, value) = names.split_whitespace().zip(values.split_whitespace()).find(|(name, _)| *name == "InOctets")?;
    value.parse().ok()
}

/// A name and a value in each line.
fn in_snmp6(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(char::is_whitespace));
    lines.find(|(name, _)| *name == "Ip6InOctets")?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn names_and_values_are_found_beside_others() {
        let netstat = "TcpExt: InOctets Other\nTcpExt: 1 2\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 3 4 5\n";
        assert_eq!(in_netstat(netstat), Some(4));
        assert_eq!(in_netstat("TcpExt: InOctets\nTcpExt: 1\n"), None);
        assert_eq!(in_snmp6("Ip6InReceives \t 9\nIp6InOctets                     \t4060\n"), Some(4_060));
    }

    #[test]
    fn what_comes_over_loopback_counts() {
        const BYTES: u64 = 3_000_000;
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // A machine without version 6 has nothing of it to count.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let before = received_bytes().unwrap();
            let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut receiver, _) = listener.accept().unwrap();
            let sent = std::thread::spawn(move || sender.write_all(&vec![7; BYTES as usize]));
            let mut all = Vec::new();
            receiver.read_to_end(&mut all).unwrap();
            sent.join().unwrap().unwrap();
            assert!(received_bytes().unwrap() - before >= BYTES, "{address}");
        }
    }
}
