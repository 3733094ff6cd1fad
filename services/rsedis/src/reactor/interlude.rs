//! While a script runs for longer than `busy-reply-threshold`: who asks is answered with BUSY, and may end the script. And while data
//! are read at the start: who asks is answered with LOADING.
//!
//! Nothing is closed and nothing is written here, so that the loop finds all as it left it.

use std::cell::RefCell;
use std::time::Duration;

use super::RECEIVE_BYTES;
use super::sockets::{Event, Received, Sockets};
use super::{greeting, running, sending, stopping};
use crate::clock::now_millis;
use crate::command;
use crate::log;
use crate::server::{Request, Server, Shutdown};
use crate::session::Debugging;

/// Looks once at who has come, or has said something. The first time, replies are sent that were to be sent at the end of the turn.
pub(super) fn serve<S: Sockets>(sockets: &RefCell<S>, server: &mut Server, is_first: bool) {
    let (mut events, sockets) = (Vec::new(), &mut *sockets.borrow_mut());
    if server.woken.len() > 2 * server.sessions.len() {
        // Who asks again and again is in it again and again.
        server.woken.sort_unstable();
        server.woken.dedup();
    }
    if is_first {
        log::warning("Slow script detected: others are told BUSY; SCRIPT KILL or FUNCTION KILL end it");
        (0..server.sessions.len()).for_each(|slot| answer(sockets, server, slot));
    }
    if sockets.wait(Duration::ZERO, &mut events).is_err() {
        return;
    }
    events.into_iter().for_each(|event| take(sockets, server, event));
    if server.is_loading {
        // Not while a script runs: INFO would be answered with BUSY, too.
        command::tell_metrics(server);
    }
    end_if_asked(sockets, server);
}

/// Does what an event asks for.
pub(super) fn take(sockets: &mut impl Sockets, server: &mut Server, event: Event) {
    match event {
        // Who cannot be taken now waits until the script has ended.
        Event::Accept => drop(greeting::accept(sockets, server)),
        Event::Readable(slot) => listen(sockets, server, slot),
        Event::Writable(slot) => answer(sockets, server, slot),
        Event::Stop(signal) => stopping::ask(server, signal),
    }
}

/// Ends the process if somebody has asked for an end that waits for nothing.
pub(super) fn end_if_asked(sockets: &mut impl Sockets, server: &Server) {
    let ends_now = |request: &Request| matches!(request, Request::Shutdown(Shutdown { saves: Some(false), .. }));
    let is_asked_to_end = || server.requests.iter().any(|request| matches!(request, Request::Shutdown(_)));
    if server.is_loading && is_asked_to_end() {
        // Nothing was changed that would have to be kept.
        log::warning("asked to end while data are read: ending");
        // The end of a process closes who is connected before who listens: whoever sees the former would still find the latter.
        sockets.stop_listening();
        std::process::exit(0);
    }
    if server.requests.iter().any(ends_now) {
        log::warning("SHUTDOWN NOSAVE while a script runs: what it has written is not kept");
        sockets.stop_listening();
        std::process::exit(0);
    }
}

/// Takes what a client has sent. The client whose script runs is not listened to, nor is the master.
fn listen(sockets: &mut impl Sockets, server: &mut Server, slot: usize) {
    if is_for_later(server, slot) || receive(sockets, server, slot).is_none() {
        return;
    }
    // The loop closes it, and sends what is left.
    server.woken.push(slot);
    run(server, slot);
    answer(sockets, server, slot);
}

/// Takes into its buffer what somebody has sent, who may have gone; nothing if nobody is there.
pub(super) fn receive(sockets: &mut impl Sockets, server: &mut Server, slot: usize) -> Option<()> {
    let (connection, session) = (server.connections.get_mut(slot)?.as_mut()?, server.sessions.get_mut(slot)?.as_mut()?);
    match sockets.receive(slot, connection.query.end(), RECEIVE_BYTES) {
        Received::Nothing => {}
        Received::End => session.is_killed = true,
        Received::Bytes(count) => server.stats.input_bytes += count as u64,
    }
    Some(())
}

fn is_for_later(server: &Server, slot: usize) -> bool {
    let session = server.sessions.get(slot).and_then(Option::as_deref);
    let connection = server.connections.get(slot).and_then(Option::as_ref);
    session.is_none_or(|session| {
        let talks_to_debugger = session.debugging == Debugging::Underway;
        let is_over = session.is_killed || session.is_closing;
        session.is_master || is_over || session.waiting.is_some() || talks_to_debugger
    }) || connection.is_none_or(|connection| connection.is_paused)
}

/// Runs what a client has sent, as far as that may be done now.
fn run(server: &mut Server, slot: usize) {
    if is_for_later(server, slot) {
        return;
    }
    let is_safe = !has_unsafe_writes(server);
    let (Some(mut connection), Some(mut session)) = (server.connections[slot].take(), server.sessions[slot].take())
    else {
        return;
    };
    // Replies that are held hold those behind them.
    let is_held = !is_safe && connection.safe < session.reply.bytes.len();
    let mut query = std::mem::take(&mut connection.query);
    let run = running::run(server, &mut connection, &mut session, query.rest(), false);
    if run.is_interrupted {
        // The loop does what was asked of it, and then goes on with what is behind.
        server.resumed.push(slot);
    }
    query.pass(run.bytes);
    connection.query = query;
    session.query_capacity = connection.query.capacity();
    if !is_held {
        // What may be asked now tells of no keys.
        connection.safe = session.reply.bytes.len();
    }
    server.connections[slot] = Some(connection);
    server.sessions[slot] = Some(session);
}

/// Whether commands of this turn, or the script, have changed what is not in the append-only file yet. A crash, or SHUTDOWN NOSAVE,
/// would undo it.
pub(super) fn has_unsafe_writes(server: &Server) -> bool {
    server.writes_aof && !server.effects.bytes.is_empty()
}

/// Sends replies that are safe, and listens again to who was paused and has taken them.
pub(super) fn answer(sockets: &mut impl Sockets, server: &mut Server, slot: usize) {
    if !has_unsafe_writes(server)
        && let (Some(Some(connection)), Some(Some(session))) =
            (server.connections.get_mut(slot), server.sessions.get(slot))
    {
        connection.safe = session.reply.bytes.len();
    }
    loop {
        match sending::send(sockets, server, slot, now_millis()) {
            Ok(false) => return,
            Ok(true) => {
                server.woken.push(slot);
                run(server, slot);
            }
            Err(()) => {
                // The loop closes it; what it did not take is let go of now.
                if let (Some(Some(connection)), Some(Some(session))) =
                    (server.connections.get_mut(slot), server.sessions.get_mut(slot))
                {
                    session.is_killed = true;
                    session.reply.bytes = Vec::new();
                    (connection.sent, connection.safe) = (0, 0);
                    server.woken.push(slot);
                }
                return;
            }
        }
    }
}
