//! Scripts in the debugger: the loop stands still while their client thinks, and the others hear BUSY meanwhile.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use wal::files::Directory;

use super::sockets::{Event, Sockets};
use super::{Reactor, interlude};
use crate::clock::now_millis;
use crate::protocol::Limits;
use crate::server::{Heard, Request, Server};
use crate::{log, waiting};

/// What a command of the debugger may be at most, as in Redis: words, bytes of a word, bytes that wait.
const WORDS_MAX: usize = 1024;
const WORD_BYTES_MAX: usize = 1024;
const QUERY_BYTES_MAX: usize = 1 << 20;

impl<S: Sockets, D: Directory> Reactor<S, D> {
    /// Runs the script of a client that waits for that. All that was done before is in the files, and may be told.
    pub(super) fn debug_script(&mut self, slot: usize) {
        if let Some(aof) = &mut self.aof {
            // It may be minutes until the loop looks after that again.
            aof.tend(self.server.settings.fsync, true);
        }
        log::warning("Redis synchronous debugging eval session started");
        waiting::retry(&mut self.server, slot);
        log::warning("Redis synchronous debugging eval session ended");
        self.server.set_time(now_millis());
        self.touched.push(slot);
        self.commit();
    }
}

/// Sends the client at a slot what there is for it, and waits for the next command of the debugger, for so long; the others are served.
pub(super) fn hear<S: Sockets>(sockets: &RefCell<S>, server: &mut Server, slot: usize, patience: Duration) -> Heard {
    let (sockets, until) = (&mut *sockets.borrow_mut(), Instant::now() + patience);
    let mut events = Vec::new();
    // All that was done before the session is safe. What the debugger shows of the script's own writes is no acknowledgement of them:
    // that is the reply of EVAL.
    if let (Some(Some(connection)), Some(Some(session))) = (server.connections.get_mut(slot), server.sessions.get(slot))
    {
        connection.safe = session.reply.bytes.len();
    }
    // Replies of this turn of the loop are for its end, which is far.
    (0..server.sessions.len()).for_each(|slot| interlude::answer(sockets, server, slot));
    let heard = loop {
        if let Some(heard) = next(server, slot) {
            break heard;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            log::warning(
                "the client of the debugger is silent: its script runs on without it, and its connection is closed",
            );
            if let Some(Some(session)) = server.sessions.get_mut(slot) {
                session.is_killed = true;
            }
            break Heard::Gone;
        }
        events.clear();
        if sockets.wait(left, &mut events).is_err() {
            break Heard::Gone;
        }
        // The client comes first: others who come when it has gone find a server that is not busy any more.
        events.sort_by_key(|event| !matches!(event, Event::Readable(readable) if *readable == slot));
        for event in events.drain(..) {
            match event {
                Event::Readable(readable) if readable == slot => drop(interlude::receive(sockets, server, slot)),
                Event::Accept | Event::Readable(_) if is_gone(server, slot) => {}
                event => interlude::take(sockets, server, event),
            }
        }
        interlude::end_if_asked(sockets, server);
    };
    server.set_time(now_millis());
    heard
}

fn is_gone(server: &Server, slot: usize) -> bool {
    server.sessions.get(slot).and_then(Option::as_deref).is_none_or(|session| session.is_killed)
}

/// What there is to tell the debugger, if there is something.
fn next(server: &mut Server, slot: usize) -> Option<Heard> {
    if server.running_script.as_ref().is_some_and(|script| script.is_killed) {
        return Some(Heard::Killed);
    }
    let is_asked_to_end = server.requests.iter().any(|request| matches!(request, Request::Shutdown(_)));
    let (Some(Some(connection)), Some(Some(session))) = (server.connections.get_mut(slot), server.sessions.get(slot))
    else {
        return Some(Heard::Gone);
    };
    if session.is_killed || is_asked_to_end {
        return Some(Heard::Gone);
    }
    if connection.query.len() > QUERY_BYTES_MAX {
        return Some(Heard::Wrong("max client buffer reached"));
    }
    // Who does not take what was asked for is told no more.
    if !session.reply.bytes.is_empty() || connection.query.is_empty() {
        return None;
    }
    const WRONG: Heard = Heard::Wrong("protocol error");
    if connection.query.rest()[0] != b'*' {
        return Some(WRONG);
    }
    let limits = Limits { bulk_max: QUERY_BYTES_MAX as i64, is_stranger: false };
    match connection.parser.next(connection.query.rest(), limits) {
        Ok(None) => None,
        Err(_) => Some(WRONG),
        Ok(Some(length)) => {
            let args = connection.parser.args(connection.query.rest());
            let is_short =
                args.len() <= WORDS_MAX && args.iter().all(|word| (1..=WORD_BYTES_MAX).contains(&word.len()));
            let words = args.iter().map(<[u8]>::to_vec).collect();
            connection.query.pass(length);
            Some(if is_short { Heard::Words(words) } else { WRONG })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::TcpStream;

    use super::super::sockets::{Accepted, Received};
    use super::*;
    use crate::connection::Connection;
    use crate::session::Session;
    use crate::settings::Settings;
    use crate::tls::{Tls, TlsStream};

    /// One client, who takes all and says this, once, if it says anything.
    struct OneClient(Option<Received>);

    impl Sockets for OneClient {
        fn wait(&mut self, most: Duration, events: &mut Vec<Event>) -> io::Result<()> {
            match self.0 {
                Some(_) => events.push(Event::Readable(0)),
                None => std::thread::sleep(most),
            }
            Ok(())
        }
        fn accept(&mut self, _: u32, _: &Tls) -> io::Result<Option<Accepted>> {
            Ok(None)
        }
        fn listen(&mut self, _: &Settings) -> Result<(), String> {
            Ok(())
        }
        fn want_clients(&mut self, _: bool) -> io::Result<()> {
            Ok(())
        }
        fn receive(&mut self, _: usize, into: &mut Vec<u8>, _: usize) -> Received {
            into.extend_from_slice(b"*1\r\n$4\r\nlist\r\n*1");
            self.0.take().unwrap_or(Received::Nothing)
        }
        fn send(&mut self, _: usize, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }
        fn want(&mut self, _: usize, _: bool, _: bool) -> io::Result<()> {
            Ok(())
        }
        fn adopt(&mut self, _: TcpStream, _: u32, _: Option<TlsStream>) -> io::Result<Accepted> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn stop_listening(&mut self) {}
        fn close(&mut self, _: usize) {}
    }

    fn heard(says: Option<Received>) -> (Heard, Server) {
        let mut server = Server::new(Settings::default(), 1_700_000_000_000, 7);
        server.sessions.push(Some(Box::new(Session::new(1, 0, "a".into(), "b".into(), server.now))));
        server.connections.push(Some(Connection::default()));
        let sockets = RefCell::new(OneClient(says));
        let heard = hear(&sockets, &mut server, 0, Duration::from_millis(20));
        (heard, server)
    }

    #[test]
    fn who_says_nothing_is_asked_no_more() {
        let (heard, server) = heard(None);
        assert_eq!(heard, Heard::Gone);
        assert!(server.sessions[0].as_ref().unwrap().is_killed, "its connection is closed");
    }

    #[test]
    fn commands_and_ends_are_heard() {
        let (said, mut server) = heard(Some(Received::Bytes(16)));
        assert_eq!(said, Heard::Words(vec![b"list".to_vec()]));
        assert_eq!(next(&mut server, 0), None, "half a command");
        assert_eq!(heard(Some(Received::End)).0, Heard::Gone);
    }
}
