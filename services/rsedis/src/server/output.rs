//! How much may wait for a client that does not take it, and what happens to one for whom more comes while nothing can be sent: in the
//! middle of a script, a transaction or a turn of the loop.

use super::Server;
use crate::log;
use crate::session::Session;
use crate::settings::OutputLimit;

/// Who has not logged in, and need to, is cut off with more replies than this: what they send costs them nothing.
const STRANGER_LIMIT: OutputLimit = OutputLimit { hard: 16 << 10, soft: 0, seconds: 0 };

/// Says why a client is cut off.
pub fn tell_of_limit(session: &Session) {
    log::warning(format_args!(
        "Client {} {} closed for overcoming of output buffer limits: it does not take its replies",
        session.id, session.address
    ));
}

impl Server {
    /// How many replies may wait for a client.
    pub fn output_limit(&self, session: &Session) -> OutputLimit {
        let settings = &self.settings;
        match session {
            session if session.is_replica() => settings.replica_limit,
            session if session.is_master => OutputLimit::default(),
            session if !session.is_authenticated && !self.users.is_open() => STRANGER_LIMIT,
            session if session.subscriptions() > 0 => settings.pubsub_limit,
            _ => settings.normal_limit,
        }
    }

    /// Something was written to the client at a slot, which has not asked for it: if more waits now than may, it is cut off at once, and
    /// nothing is kept for it. Replicas are judged by what they leave of the stream.
    pub fn bound_output(&mut self, slot: usize) {
        let Some(Some(session)) = self.sessions.get(slot) else { return };
        let hard = self.output_limit(session).hard;
        if hard == 0 || session.waiting_bytes() as u64 <= hard || session.is_replica() || session.is_killed {
            return;
        }
        tell_of_limit(session);
        if let (Some(Some(session)), Some(connection)) = (self.sessions.get_mut(slot), self.connections.get_mut(slot)) {
            session.is_killed = true;
            session.reply.bytes = Vec::new();
            session.sent_bytes = 0;
            if let Some(connection) = connection {
                (connection.sent, connection.safe) = (0, 0);
            }
            self.woken.push(slot);
        }
    }
}
