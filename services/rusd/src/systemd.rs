//! Tells systemd that the server is ready, as etcd does: its unit has `Type=notify`, and is ended where nothing is told. See sd_notify(3).

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Whoever waits for it is named by `NOTIFY_SOCKET`; without that nobody does.
pub(crate) fn tell_ready() {
    let Some(socket) = env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) else { return };
    if let Err(error) = tell(&socket, b"READY=1") {
        tracing::warn!(%error, socket = %socket.display(), "NOTIFY_SOCKET cannot be told that this member is ready");
    }
}

fn tell(socket: &OsStr, what: &[u8]) -> io::Result<()> {
    let address = match socket.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(what, &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_comes_at_a_path_and_at_an_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("@rusd-test-{}", std::process::id());
        let named = SocketAddr::from_abstract_name(&name.as_bytes()[1..]).unwrap();
        let sockets = [
            (UnixDatagram::bind(&path).unwrap(), path.as_os_str()),
            (UnixDatagram::bind_addr(&named).unwrap(), OsStr::new(&name)),
        ];
        for (socket, address) in sockets {
            tell(address, b"READY=1").unwrap();
            let mut heard = [0; 16];
            let bytes = socket.recv(&mut heard).unwrap();
            assert_eq!(&heard[..bytes], b"READY=1");
        }
        assert!(tell(OsStr::new("/no/such/socket"), b"READY=1").is_err());
    }
}
