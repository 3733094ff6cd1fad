//! Runs what a client has sent, command by command; for a turn of the loop, and for while a script runs.

use super::sending;
use crate::command;
use crate::connection::Connection;
use crate::keyspace::WARM_AT_ONCE;
use crate::protocol::Limits;
use crate::server::Server;
use crate::session::Session;

/// How far the commands of a client came.
pub(super) struct Run {
    /// So many bytes need not be looked at again.
    pub(super) bytes: usize,
    /// The loop has something to do before the next command of this client.
    pub(super) is_interrupted: bool,
}

/// Runs all complete commands, as far as that may be done now. `evicts`: whoever calls closes clients that take too much, and does so
/// before the next command. While a command runs its client is not among the others.
pub(super) fn run(
    server: &mut Server,
    connection: &mut Connection,
    session: &mut Session,
    bytes: &[u8],
    evicts: bool,
) -> Run {
    session.query_bytes = bytes.len();
    sending::limit_replies(server, session, connection);
    let mut run = Run { bytes: 0, is_interrupted: false };
    while run.bytes < bytes.len() && !session.is_closing && !session.is_killed && session.waiting.is_none() {
        if !server.requests.is_empty() {
            // They are done before anything else.
            run.is_interrupted = true;
            break;
        }
        if sending::pauses(connection, session) {
            break;
        }
        let limits = Limits { bulk_max: server.settings.bulk_max, is_stranger: !session.is_authenticated };
        let rest = &bytes[run.bytes..];
        if run.bytes > 0 && connection.parser.is_drained() {
            // There is more than one command: what the next ones look for is fetched from memory at the same time.
            let ahead = connection.parser.look_ahead(rest, limits, WARM_AT_ONCE);
            server.databases[session.database].warm_commands(ahead);
        }
        match connection.parser.next(rest, limits) {
            Ok(Some(length)) => {
                command::execute(server, session, connection.parser.args(rest));
                run.bytes += length;
                if sending::cuts_off(session) {
                    break;
                }
                if evicts && server.settings.clients_max > 0 && server.is_over_with(session) {
                    // Clients go before the next command, which keys may have to go for.
                    run.is_interrupted = true;
                    break;
                }
            }
            Ok(None) => break,
            Err(error) => {
                session.reply.error(format!("ERR Protocol error: {error}"));
                session.is_closing = true;
            }
        }
    }
    if session.is_closing {
        run.bytes = bytes.len();
    }
    let kept = bytes.len() - run.bytes;
    session.is_killed |= kept > server.settings.query_max;
    let (read, argument_bytes) = connection.parser.progress();
    (session.query_bytes, session.argument_bytes) = (kept.saturating_sub(read), argument_bytes);
    session.parser_bytes = connection.parser.memory();
    run
}
