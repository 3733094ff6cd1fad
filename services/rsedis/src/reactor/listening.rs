//! Where clients connect: the addresses of `bind` with `port` and `tls-port`, and the file `unixsocket`. What is listened at can be
//! changed while the server runs; where that fails all is as it was.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixListener;

use crate::log;
use crate::settings::Settings;

/// An address and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    address: String,
    port: u16,
    /// TLS is spoken there.
    pub has_tls: bool,
}

/// A socket at which clients connect.
#[derive(Debug)]
pub enum Listener {
    /// At an address.
    Tcp(TcpListener, Place),
    /// A file, by its path.
    Unix(UnixListener, String),
}

impl Listener {
    /// Its descriptor.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener, _) => listener.as_fd(),
            Self::Unix(listener, _) => listener.as_fd(),
        }
    }

    fn place(&self) -> Option<&Place> {
        match self {
            Self::Tcp(_, place) => Some(place),
            Self::Unix(..) => None,
        }
    }
}

/// Listens at each address of `bind`, with one socket for each port, and at the file. Errors: one line that names the port or file.
pub fn listen(settings: &Settings) -> Result<Vec<Listener>, String> {
    let mut listeners = Vec::new();
    let path = settings.text("unixsocket");
    if !path.is_empty() {
        listeners
            .push(listen_at(path, settings).map_err(|error| format!("Failed opening Unix socket {path}: {error}"))?);
    }
    add(&mut listeners, settings)?;
    match listeners.is_empty() {
        true => Err("Configured to not listen anywhere: set port, tls-port or unixsocket".to_owned()),
        false => Ok(listeners),
    }
}

/// Listens where the settings say now, and nowhere else. Who is connected already stays. Errors: as [`listen`]; then the same places
/// are listened at as before.
pub fn change(listeners: &mut Vec<Listener>, settings: &Settings) -> Result<(), String> {
    let wanted: Vec<(Place, bool)> = places(settings).collect();
    let is_wanted = |place: &Place| wanted.iter().any(|(other, _)| other == place);
    let before: Vec<Place> = listeners.iter().filter_map(Listener::place).cloned().collect();
    let is_new = |port: u16| wanted.iter().any(|(place, _)| place.port == port && !before.contains(place));
    // All addresses of a port exclude one of them: who leaves makes room first. Whoever is on another port stays until the new ones are there.
    listeners.retain(|listener| listener.place().is_none_or(|place| is_wanted(place) || !is_new(place.port)));
    match add(listeners, settings) {
        Ok(()) => {
            listeners.retain(|listener| listener.place().is_none_or(is_wanted));
            Ok(())
        }
        Err(error) => {
            listeners.retain(|listener| listener.place().is_none_or(|place| before.contains(place)));
            for place in before {
                if listeners.iter().all(|listener| listener.place() != Some(&place)) {
                    match bind(&place, settings) {
                        Ok(listener) => listeners.push(Listener::Tcp(listener, place)),
                        Err(error) => log::warning(format_args!("listen again on port {}: {error}", place.port)),
                    }
                }
            }
            Err(error)
        }
    }
}

/// Addresses with ports that settings name, and whether each may be missing: it begins with `-`.
fn places(settings: &Settings) -> impl Iterator<Item = (Place, bool)> {
    let ports = [("port", false), ("tls-port", true)].map(|(name, has_tls)| (settings.integer(name) as u16, has_tls));
    ports.into_iter().filter(|(port, _)| *port != 0).flat_map(|(port, has_tls)| {
        settings.text("bind").split_whitespace().map(move |word| {
            let (address, may_fail) = word.strip_prefix('-').map_or((word, false), |rest| (rest, true));
            (Place { address: address.to_owned(), port, has_tls }, may_fail)
        })
    })
}

/// Adds listeners at places that have none.
fn add(listeners: &mut Vec<Listener>, settings: &Settings) -> Result<(), String> {
    for (place, may_fail) in places(settings) {
        if listeners.iter().any(|listener| listener.place() == Some(&place)) {
            continue;
        }
        match bind(&place, settings) {
            Ok(listener) => listeners.push(Listener::Tcp(listener, place)),
            Err(error) if may_fail && error.kind() == io::ErrorKind::AddrNotAvailable => {}
            Err(error) => return Err(format!("Failed listening on port {} ({}): {error}", place.port, place.address)),
        }
    }
    // Who names no address at all wants none.
    let ports: &[&str] = if settings.text("bind").trim().is_empty() { &[] } else { &["port", "tls-port"] };
    for name in ports {
        let port = settings.integer(name) as u16;
        if port != 0 && listeners.iter().filter_map(Listener::place).all(|place| place.port != port) {
            return Err(format!("Failed listening on port {port}: bind names no address"));
        }
    }
    Ok(())
}

/// A socket as a file. One that is there is from a server that has ended.
fn listen_at(path: &str, settings: &Settings) -> io::Result<Listener> {
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    let mode = settings.text("unixsocketperm");
    if mode != "0" {
        let mode = u32::from_str_radix(mode, 8)
            .map_err(|_| io::Error::other(format!("unixsocketperm {mode}: octal digits only, such as 770")))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    Ok(Listener::Unix(listener, path.to_owned()))
}

fn bind(place: &Place, settings: &Settings) -> io::Result<TcpListener> {
    let host = match place.address.as_str() {
        "*" => "0.0.0.0",
        "::*" => "::",
        address => address,
    };
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in (host, place.port).to_socket_addrs()? {
        match bind_to(address, settings.integer("tcp-backlog") as i32) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn bind_to(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, listen, socket_with, sockopt};
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    bind(&socket, &address)?;
    listen(&socket, backlog)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(port: u16, bind: &str) -> Settings {
        let mut settings = Settings::default();
        for (name, value) in [("port", port.to_string()), ("bind", bind.to_owned())] {
            settings.set(crate::settings::find(name.as_bytes()).unwrap(), &[value]).unwrap();
        }
        settings
    }

    fn ports(listeners: &[Listener]) -> Vec<u16> {
        listeners.iter().filter_map(Listener::place).map(|place| place.port).collect()
    }

    #[test]
    fn a_port_that_is_taken_leaves_all_as_it_was() {
        let (first, second) = (harness::free_port(), harness::free_port());
        let mut listeners = listen(&settings(first, "127.0.0.1")).unwrap();
        let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let taken_port = taken.local_addr().unwrap().port();
        change(&mut listeners, &settings(taken_port, "127.0.0.1")).unwrap_err();
        assert_eq!(ports(&listeners), [first]);
        change(&mut listeners, &settings(second, "127.0.0.1")).unwrap();
        assert_eq!(ports(&listeners), [second]);
        change(&mut listeners, &settings(second, "")).unwrap();
        assert_eq!(ports(&listeners), [0u16; 0], "nobody connects where no address is named");
    }

    #[test]
    fn one_address_takes_the_place_of_all_and_back_on_the_same_port() {
        let port = harness::free_port();
        let mut listeners = listen(&settings(port, "*")).unwrap();
        change(&mut listeners, &settings(port, "127.0.0.1")).unwrap();
        assert_eq!(listeners[0].place().unwrap().address, "127.0.0.1");
        change(&mut listeners, &settings(port, "192.0.2.1")).unwrap_err();
        assert_eq!(ports(&listeners), [port], "what was left is listened at again");
        change(&mut listeners, &settings(port, "*")).unwrap();
        assert_eq!((listeners.len(), ports(&listeners)), (1, vec![port]));
    }
}
