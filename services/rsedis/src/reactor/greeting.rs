//! Clients that connect.

use std::io;

use super::sockets::{Accepted, Sockets};
use crate::acl;
use crate::connection::Connection;
use crate::server::Server;
use crate::session::Session;

/// Connections taken in one turn.
const ACCEPT_MAX: usize = 1_000;

/// Takes those who want to connect. Errors: one could not be taken, and waits.
pub(super) fn accept(sockets: &mut impl Sockets, server: &mut Server) -> io::Result<()> {
    let keepalive_seconds = server.settings.integer("tcp-keepalive").max(0) as u32;
    for _ in 0..ACCEPT_MAX {
        match sockets.accept(keepalive_seconds, &server.tls)? {
            Some(accepted) => greet(sockets, server, accepted),
            None => break,
        }
    }
    Ok(())
}

fn greet(sockets: &mut impl Sockets, server: &mut Server, accepted: Accepted) {
    let (slot, is_local) = (accepted.slot, accepted.is_local);
    let most = server.settings.integer("maxclients").max(0) as usize;
    let is_open = server.users.is_open();
    let refusal = if server.clients >= most {
        Some("-ERR max number of clients reached\r\n")
    } else if server.settings.is_yes("protected-mode") && is_open && !is_local {
        Some(
            "-DENIED rsedis is running in protected mode because protected mode is enabled and no password is set. Connect \
             from this machine, or set requirepass, or start with --protected-mode no.\r\n",
        )
    } else {
        None
    };
    if let Some(text) = refusal {
        // Whether it hears is its own affair.
        drop(sockets.send(slot, text.as_bytes()));
        sockets.close(slot);
        server.stats.rejected += 1;
        return;
    }
    server.stats.connections += 1;
    let may_all = server.users.may_all(acl::DEFAULT);
    let session = keep(server, accepted);
    session.is_authenticated = is_open;
    session.may_all = may_all;
}

/// A connection and its session.
pub(super) fn keep(server: &mut Server, accepted: Accepted) -> &mut Session {
    let Accepted { slot, address, local_address, is_local } = accepted;
    let id = server.next_session;
    server.next_session += 1;
    if server.connections.len() <= slot {
        server.connections.resize_with(slot + 1, || None);
        server.sessions.resize_with(slot + 1, || None);
    }
    server.connections[slot] = Some(Connection::default());
    server.clients += 1;
    let session = Session::new(id, slot, address, local_address, server.now);
    let session = Box::new(Session { is_local, ..session });
    server.sessions[slot].insert(session)
}
