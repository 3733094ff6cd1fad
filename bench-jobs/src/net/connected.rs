//! Which connections over IPv4 a process of this machine has: by their ends, as the kernel lists them.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use procfs::net::tcp;
use procfs::process::{FDTarget, Process};

/// The ends of each connection of a process, its own first. Empty where the process is gone, or another user's.
pub fn connections_of(process: u32) -> BTreeSet<(SocketAddr, SocketAddr)> {
    let open = Process::new(process.cast_signed()).and_then(|process| process.fd());
    let sockets = open.into_iter().flatten().flatten().filter_map(|open| match open.target {
        FDTarget::Socket(inode) => Some(inode),
        _ => None,
    });
    let sockets: BTreeSet<u64> = sockets.collect();
    let all = tcp().into_iter().flatten().filter(|entry| sockets.contains(&entry.inode));
    all.map(|entry| (entry.local_address, entry.remote_address)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn who_dialled_is_found_and_nobody_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let ends = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        assert!(connections_of(std::process::id()).contains(&ends));
        assert!(!connections_of(std::os::unix::process::parent_id()).contains(&ends));
        drop(stream);
        assert!(!connections_of(std::process::id()).contains(&ends));
    }
}
