//! Sends replies to one client, and judges one that does not take them; for the end of a turn, and for while a script runs.

use super::RECEIVE_BYTES;
use super::sockets::Sockets;
use crate::connection::Connection;
use crate::replication::Stage;
use crate::server::{Server, output};
use crate::session::Session;

/// A client with more replies waiting than this is not listened to until it has taken some.
const OUTPUT_PAUSE_BYTES: usize = 64 << 20;
/// What a client without waiting replies keeps of its buffer under `maxmemory` or `maxmemory-clients`.
const IDLE_OUTPUT_BYTES: usize = 1 << 10;

/// Before commands of a client run: with how many bytes of replies it will be cut off, which ends long answers. Replicas take the stream,
/// and are judged by what they leave of it.
pub(super) fn limit_replies(server: &Server, session: &mut Session, connection: &Connection) {
    let hard = if session.is_replica() { 0 } else { server.output_limit(session).hard };
    let hard = usize::try_from(hard).unwrap_or(usize::MAX);
    session.reply.most = if hard == 0 { 0 } else { connection.sent.saturating_add(hard) };
    session.sent_bytes = connection.sent;
}

/// Whether a client has gone over its limit by what it asked for. Nothing of that is sent, as in Redis.
pub(super) fn cuts_off(session: &mut Session) -> bool {
    if session.reply.is_over() && !session.is_killed {
        output::tell_of_limit(session);
        session.is_killed = true;
    }
    session.is_killed
}

/// Whether a client is not listened to from now on, for too many replies wait; [`send`] says when it is again.
pub(super) fn pauses(connection: &mut Connection, session: &Session) -> bool {
    connection.is_paused |= session.reply.bytes.len() - connection.sent > OUTPUT_PAUSE_BYTES && !session.is_replica();
    connection.is_paused
}

/// Sends what a client takes of the replies that are safe; whether it was paused and is listened to again, so that what it had sent
/// before is to be run. `now`: milliseconds since 1970. Errors: the connection is over.
pub(super) fn send(sockets: &mut impl Sockets, server: &mut Server, slot: usize, now: i64) -> Result<bool, ()> {
    let limit = match server.sessions.get(slot) {
        Some(Some(session)) => server.output_limit(session),
        _ => return Ok(false),
    };
    let (Some(Some(connection)), Some(Some(session))) =
        (server.connections.get_mut(slot), server.sessions.get_mut(slot))
    else {
        return Ok(false);
    };
    if session.is_killed {
        return Err(());
    }
    if limit.hard > 0 && (connection.safe - connection.sent) as u64 > limit.hard && !session.is_replica() {
        output::tell_of_limit(session);
        return Err(());
    }
    let output = &mut session.reply.bytes;
    while connection.sent < connection.safe {
        match sockets.send(slot, &output[connection.sent..connection.safe]) {
            Ok(0) => break,
            Ok(count) => {
                if let Some(replica) = session.replica.as_mut().filter(|one| one.stage == Stage::Receiving) {
                    replica.heard_at = server.now;
                }
                connection.sent += count;
                session.last_active = server.now;
                server.stats.output_bytes += count as u64;
            }
            Err(_) => return Err(()),
        }
    }
    // What is not safe yet waits for us, not for the client.
    let waiting = connection.safe - connection.sent;
    let kept = output.len() - connection.sent;
    if kept == 0 {
        output.clear();
        // Where memory is short, what idle clients keep would push keys out.
        let is_short = server.settings.memory_max > 0 || server.settings.clients_max > 0;
        output.shrink_to(if is_short { IDLE_OUTPUT_BYTES } else { RECEIVE_BYTES });
        (connection.sent, connection.safe) = (0, 0);
        if session.is_closing {
            return Err(());
        }
    } else if connection.sent > RECEIVE_BYTES && connection.sent > kept {
        output.drain(..connection.sent);
        (connection.sent, connection.safe) = (0, waiting);
    }
    session.sent_bytes = connection.sent;
    let offset = server.replication.offset;
    let held = session.replica.as_ref().map_or(0, |replica| replica.held_bytes(offset));
    if connection.is_over((waiting + held) as u64, limit, now) {
        output::tell_of_limit(session);
        return Err(());
    }
    let resumes = connection.is_paused && kept < OUTPUT_PAUSE_BYTES / 2 && !session.is_master;
    connection.is_paused &= !resumes;
    let wants = (!connection.is_paused && !session.is_closing, waiting > 0);
    if wants != connection.wants {
        connection.wants = wants;
        sockets.want(slot, wants.0, wants.1).map_err(drop)?;
    }
    Ok(resumes)
}
