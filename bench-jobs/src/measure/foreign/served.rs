//! Which processes of this machine serve at an address: those that have a socket which listens there.
//!
//! A store that was there already is no child of ours, and what it uses must not be held against it all the same. Whoever listens at its
//! endpoints is taken for it, with everything below, wherever it is on this machine: on loopback, or at an address of the machine's own. An
//! endpoint of another machine has nobody here. What another user has open cannot be seen, nor what listens within a container or a virtual
//! machine, be it dialled through a bridge or through a program that listens for it: the endpoint is then told as unseen, and nobody is
//! taken for it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs as _, UdpSocket};
use std::path::Path;

use procfs::net::{RouteEntry, TcpState, route, tcp, tcp6};
use procfs::process::{FDTarget, Process, all_processes};

/// The first process, which listens for others where it starts them when somebody comes.
const INIT: i32 = 1;
/// Programs that listen for others, whose work is not below them.
const LISTENING_FOR_OTHERS: [&str; 9] =
    ["conmon", "docker-proxy", "kubectl", "pasta", "rootlessport", "slirp4netns", "socat", "ssh", "systemd"];

/// Who serves at some endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// The processes, with their programs' names. Empty: none of the endpoints is on this machine, or nobody there can be seen.
    pub processes: BTreeMap<i32, String>,
    /// The endpoints on this machine of which nobody can be seen.
    pub unseen: Vec<String>,
}

/// A socket that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Listener {
    address: SocketAddr,
    inode: u64,
}

/// How closely an address at which somebody listens fits one that is dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// Any address of the newer protocol, and of the older, too, unless it was told not to.
    EitherProtocol,
    /// Any address of its protocol.
    AnyAddress,
    /// This address.
    Address,
}

impl Listener {
    /// How it fits this address; `None`: who dials that does not get to it.
    fn fit(&self, dialled: SocketAddr) -> Option<Fit> {
        if self.address.port() != dialled.port() {
            return None;
        }
        let (here, there) = (self.address.ip(), dialled.ip().to_canonical());
        // Who dials no address in particular gets to loopback.
        if here.to_canonical() == there || (there.is_unspecified() && here.to_canonical().is_loopback()) {
            return Some(Fit::Address);
        }
        match (here.is_unspecified(), here.is_ipv6(), there.is_ipv6()) {
            (true, true, false) => Some(Fit::EitherProtocol),
            (true, here, there) if here == there => Some(Fit::AnyAddress),
            _ => None,
        }
    }
}

/// Who gets a connection to this address: those whose own fits it best, as the kernel has it.
fn taking(listeners: &[Listener], dialled: SocketAddr) -> Vec<&Listener> {
    let best = listeners.iter().filter_map(|one| one.fit(dialled)).max();
    // Nobody shows of a socket of the newer protocol whether it takes the older one; where it does, nobody else can listen there.
    if best == Some(Fit::EitherProtocol) && TcpListener::bind(dialled).is_ok() {
        return Vec::new();
    }
    listeners.iter().filter(|one| best.is_some() && one.fit(dialled) == best).collect()
}

impl Served {
    /// Who serves at these endpoints (`host:port`) now. One whose name cannot be looked up is nobody's: who dials it says so.
    pub fn at(endpoints: &[String]) -> Self {
        let (mut here, mut served) = (Vec::new(), Self::default());
        for endpoint in endpoints {
            let addresses: Vec<SocketAddr> = endpoint.to_socket_addrs().into_iter().flatten().collect();
            let own: Vec<SocketAddr> = addresses.iter().copied().filter(|one| is_of_this_machine(one.ip())).collect();
            if !own.is_empty() {
                here.push((endpoint.clone(), own));
            } else if addresses.iter().any(|address| is_behind_a_bridge(address.ip())) {
                served.unseen.push(endpoint.clone());
            }
        }
        if here.is_empty() {
            return served;
        }
        let listeners = listeners();
        let holders = holders(&listeners.iter().map(|listener| listener.inode).collect());
        let above = above_this_process();
        for (endpoint, addresses) in here {
            let taking = addresses.iter().flat_map(|address| taking(&listeners, *address));
            let all: BTreeMap<i32, String> =
                taking.filter_map(|one| holders.get(&one.inode)).flatten().cloned().collect();
            // What starts this very run, or everything, serves nothing by itself; all that is below it would be taken for the store.
            let serves = |(id, program): &(i32, String)| {
                !above.contains(id) && !LISTENING_FOR_OTHERS.contains(&program.as_str())
            };
            let found: BTreeMap<i32, String> = all.into_iter().filter(serves).collect();
            if found.is_empty() {
                served.unseen.push(endpoint);
            }
            served.processes.extend(found);
        }
        served
    }

    /// The identifiers of the processes.
    pub fn ids(&self) -> BTreeSet<i32> {
        self.processes.keys().copied().collect()
    }
}

/// Whether packets to this address stay here: only then can a socket be bound to it.
fn is_of_this_machine(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

/// Whether packets to this address leave for a container or a virtual machine on this one: by a device that is a bridge or a tap.
fn is_behind_a_bridge(address: IpAddr) -> bool {
    let IpAddr::V4(address) = address else { return false };
    let goes = |route: &RouteEntry| address & route.mask == route.destination & route.mask;
    let routes = route().into_iter().flatten().filter(goes);
    routes.max_by_key(|route| u32::from(route.mask)).is_some_and(|route| {
        let device = Path::new("/sys/class/net").join(route.iface);
        device.join("bridge").exists() || device.join("tun_flags").exists()
    })
}

fn listeners() -> Vec<Listener> {
    let all = tcp().into_iter().chain(tcp6()).flatten();
    all.filter(|entry| entry.state == TcpState::Listen)
        .map(|entry| Listener { address: entry.local_address, inode: entry.inode })
        .collect()
}

/// Who has these sockets open: process and program, by socket. What others may not see is missing.
fn holders(sockets: &BTreeSet<u64>) -> BTreeMap<u64, Vec<(i32, String)>> {
    let mut holders: BTreeMap<u64, Vec<(i32, String)>> = BTreeMap::new();
    for process in all_processes().into_iter().flatten().flatten() {
        let open = process.fd().into_iter().flatten().flatten().filter_map(|open| match open.target {
            FDTarget::Socket(inode) if sockets.contains(&inode) => Some(inode),
            _ => None,
        });
        let open: BTreeSet<u64> = open.collect();
        if open.is_empty() {
            continue;
        }
        let visible = |character: char| if character.is_control() { '?' } else { character };
        let Ok(stat) = process.stat() else { continue };
        let program: String = stat.comm.chars().map(visible).collect();
        for inode in open {
            holders.entry(inode).or_default().push((stat.pid, program.clone()));
        }
    }
    holders
}

/// The first process, and those that started this one.
fn above_this_process() -> BTreeSet<i32> {
    let mut above = BTreeSet::from([INIT]);
    let mut next = std::os::unix::process::parent_id().cast_signed();
    // A ring cannot be, but could be read while processes end.
    while next > INIT && above.insert(next) {
        next = Process::new(next).and_then(|process| process.stat()).map_or(INIT, |stat| stat.ppid);
    }
    above
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};

    fn listener(address: &str) -> Listener {
        Listener { address: address.parse().unwrap(), inode: 1 }
    }

    fn takes(listening: &str, dialled: &str) -> bool {
        listener(listening).fit(dialled.parse().unwrap()).is_some()
    }

    #[test]
    fn who_listens_everywhere_gets_nothing_that_somebody_listens_for_more_closely() {
        let all = ["[::]:6379", "0.0.0.0:6379", "127.0.0.1:6379", "[::1]:6379"].map(listener);
        for (dialled, expected) in [
            ("127.0.0.1:6379", "127.0.0.1:6379"),
            ("127.0.0.2:6379", "0.0.0.0:6379"),
            ("[::1]:6379", "[::1]:6379"),
            ("[::2]:6379", "[::]:6379"),
        ] {
            assert_eq!(taking(&all, dialled.parse().unwrap()), [&listener(expected)], "{dialled}");
        }
    }

    /// Whoever was told to take the newer protocol alone serves nobody at an address of the older.
    #[test]
    fn who_takes_the_newer_protocol_alone_is_not_who_is_dialled_by_the_older() {
        for takes_both in [true, false] {
            let port = harness::free_port();
            let Ok(listening) = socket(AddressFamily::INET6, SocketType::STREAM, None) else { return };
            sockopt::set_ipv6_v6only(&listening, !takes_both).unwrap();
            let address: SocketAddr = format!("[::]:{port}").parse().unwrap();
            // A machine may have no IPv6.
            if bind(&listening, &address).is_err() {
                return;
            }
            listen(&listening, 1).unwrap();
            let served = Served::at(&[format!("127.0.0.1:{port}")]);
            assert_eq!(served.processes.is_empty(), !takes_both, "{served:?}");
            assert_eq!(served.unseen.is_empty(), takes_both, "{served:?}");
        }
    }

    #[test]
    fn who_listens_where_somebody_dials_is_told_from_who_listens_elsewhere() {
        for (listening, dialled) in [
            ("127.0.0.1:6379", "127.0.0.1:6379"),
            ("0.0.0.0:6379", "127.0.0.1:6379"),
            ("0.0.0.0:6379", "10.0.0.7:6379"),
            ("[::]:6379", "127.0.0.1:6379"),
            ("[::]:6379", "[::1]:6379"),
            ("[::1]:6379", "[::1]:6379"),
            ("[::ffff:127.0.0.1]:6379", "127.0.0.1:6379"),
            ("127.0.0.1:6379", "0.0.0.0:6379"),
        ] {
            assert!(takes(listening, dialled), "{listening} {dialled}");
        }
        for (listening, dialled) in [
            ("127.0.0.1:6379", "127.0.0.1:6380"),
            ("127.0.0.2:6379", "127.0.0.1:6379"),
            ("0.0.0.0:6379", "[::1]:6379"),
            ("[::1]:6379", "127.0.0.1:6379"),
            ("10.0.0.7:6379", "127.0.0.1:6379"),
        ] {
            assert!(!takes(listening, dialled), "{listening} {dialled}");
        }
    }

    #[test]
    fn a_process_is_found_by_what_it_listens_on_in_either_protocol() {
        let own = std::process::id().cast_signed();
        for bound in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
            // A machine may have no IPv6.
            let Ok(listener) = TcpListener::bind(bound) else { continue };
            let port = listener.local_addr().unwrap().port();
            let dialled = bound.replace(":0", &format!(":{port}")).replace("0.0.0.0", "127.0.0.1");
            let served = Served::at(std::slice::from_ref(&dialled));
            assert_eq!(served.ids(), BTreeSet::from([own]), "{dialled}: {served:?}");
            assert!(served.unseen.is_empty(), "{dialled}: {served:?}");
        }
    }

    #[test]
    fn where_nobody_is_seen_it_is_said_and_elsewhere_there_is_nobody_to_see() {
        let nobody = harness::free_port();
        let here = format!("127.0.0.1:{nobody}");
        // Of a net that is for documents only (RFC 5737).
        let served = Served::at(&["192.0.2.1:6379".into(), here.clone()]);
        assert_eq!(served, Served { processes: BTreeMap::new(), unseen: vec![here] });
    }
}
