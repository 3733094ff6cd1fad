//! Clients that wait for keys (BLPOP and kin), with or without an end.
//!
//! A client that waits keeps its command. Each change of a key that somebody waits for makes the key ready; once the command that
//! changed it is done, those who wait for it run their commands again, of that key only, in the order in which they began to wait.
//! Whose command still cannot be done goes on waiting and keeps its place; who wants what the key does not hold is passed over.

use std::rc::Rc;

use crate::command::Command;
use crate::failure::Failure;
use crate::keyspace::Key;
use crate::protocol::{Args, OwnedArgs};
use crate::server::Server;
use crate::session::Session;
use crate::value::Value;

/// What a client hears when its time is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutReply {
    /// No array.
    NullArray,
    /// No array, but no value where it cannot wait.
    Null,
    /// Nothing: its command runs now.
    Runs,
    /// Nothing: it waits for the end of the server.
    Shutdown,
    /// How many replicas have a part of the stream.
    Acknowledgements {
        /// Up to here.
        offset: u64,
        /// So many are waited for.
        wanted: usize,
    },
}

/// What a client needs a key to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    List,
    Zset,
    Stream,
    /// It hears also that its group is gone.
    Group,
}

impl Wanted {
    fn of(command: &Command) -> Self {
        match command.name {
            "xreadgroup" => Self::Group,
            "xread" => Self::Stream,
            name if name.starts_with("bz") => Self::Zset,
            _ => Self::List,
        }
    }

    fn is_met(self, held: Option<&Value>) -> bool {
        match self {
            Self::List => matches!(held, Some(Value::List(_))),
            Self::Zset => matches!(held, Some(Value::Zset(_))),
            Self::Stream => matches!(held, Some(Value::Stream(_))),
            Self::Group => true,
        }
    }
}

/// Who waits for a key, kept with the key: thousands are passed over at every change of it.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    slot: usize,
    wanted: Wanted,
}

/// A client waits.
#[derive(Debug)]
pub struct Waiting {
    /// The database of its keys.
    pub database: usize,
    /// What it waits for.
    pub keys: Vec<Vec<u8>>,
    /// Milliseconds since 1970.
    pub deadline: Option<i64>,
    timeout_reply: TimeoutReply,
    command: &'static Command,
    args: OwnedArgs,
}

impl Waiting {
    /// Whether its command has yet to run: it was postponed.
    fn is_postponed(&self) -> bool {
        self.timeout_reply == TimeoutReply::Runs
    }

    /// What it takes, nearly.
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.args.memory()
            + self.keys.iter().map(|key| size_of::<Vec<u8>>() + key.capacity()).sum::<usize>()
    }
}

/// Lets a client wait for one of its keys to change; the command runs again then. `deadline`: milliseconds since 1970.
pub fn wait(
    server: &mut Server,
    client: &mut Session,
    args: Args<'_>,
    keys: Vec<Vec<u8>>,
    deadline: Option<i64>,
    timeout_reply: TimeoutReply,
) {
    if client.is_retrying {
        client.still_waits = true;
        return;
    }
    if client.may_not_wait {
        return match timeout_reply {
            TimeoutReply::Null => client.reply.null(),
            _ => answer_timeout(server, client, timeout_reply),
        };
    }
    let Some(command) = server.running else { return };
    for key in &keys {
        let slots = server.waiters.entry((client.database, key.clone())).or_default();
        // A key may be named twice.
        if slots.last().is_none_or(|last| last.slot != client.slot) {
            slots.push(Waiter { slot: client.slot, wanted: Wanted::of(command) });
        }
    }
    if let Some(deadline) = deadline {
        server.deadlines.insert((deadline, client.slot));
    }
    let args = args.to_owned();
    client.waiting =
        Some(Box::new(Waiting { database: client.database, keys, deadline, timeout_reply, command, args }));
}

fn answer_timeout(server: &Server, client: &mut Session, timeout_reply: TimeoutReply) {
    match timeout_reply {
        TimeoutReply::NullArray | TimeoutReply::Null => client.reply.null_array(),
        TimeoutReply::Runs | TimeoutReply::Shutdown => {}
        TimeoutReply::Acknowledgements { offset, .. } => client.reply.count(server.acknowledgements(offset)),
    }
}

/// Forgets that a client waits.
pub fn forget(server: &mut Server, client: &mut Session) -> Option<Box<Waiting>> {
    let waiting = client.waiting.take()?;
    for key in &waiting.keys {
        let place = (waiting.database, key.clone());
        if let Some(slots) = server.waiters.get_mut(&place) {
            if let Some(at) = slots.iter().position(|waiter| waiter.slot == client.slot) {
                slots.remove(at);
            }
            if slots.is_empty() {
                server.waiters.remove(&place);
            }
        }
    }
    if let Some(deadline) = waiting.deadline {
        server.deadlines.remove(&(deadline, client.slot));
    }
    Some(waiting)
}

/// Runs the commands of those who wait for keys that are ready.
pub fn serve(server: &mut Server) {
    while !server.ready.is_empty() {
        for place in std::mem::take(&mut server.ready) {
            let waiters = server.waiters.get(&place).cloned().unwrap_or_default();
            let (database, name) = (place.0, Rc::<[u8]>::from(place.1));
            if !waiters.is_empty() && server.entry_if_there(database, &Key::new(&name)).is_none() {
                // What has expired goes, as for whoever looks for it.
                server.find(database, &Key::new(&name));
            }
            let mut left = waiters.as_slice();
            while let Some(at) = next_met(server, database, &name, left) {
                retry_for(server, left[at].slot, Some(Rc::clone(&name)));
                left = &left[at + 1..];
            }
        }
    }
}

/// The first of those who wait for a key that it has something for.
fn next_met(server: &Server, database: usize, name: &[u8], waiters: &[Waiter]) -> Option<usize> {
    let held = server.entry_if_there(database, &Key::new(name)).and_then(|entry| entry.value());
    waiters.iter().position(|waiter| waiter.wanted.is_met(held))
}

/// Runs the command of the client at a slot again.
pub fn retry(server: &mut Server, slot: usize) {
    retry_for(server, slot, None);
}

/// The same, for a key that became ready.
fn retry_for(server: &mut Server, slot: usize, key: Option<Rc<[u8]>>) {
    let Some(mut session) = server.sessions.get_mut(slot).and_then(Option::take) else { return };
    if session.is_killed {
        // Its connection is over: nothing is taken for it.
        forget(server, &mut session);
    } else if let Some(waiting) = session.waiting.take() {
        session.is_retrying = true;
        session.served_key = key;
        let database = std::mem::replace(&mut session.database, waiting.database);
        let args = waiting.args.as_args();
        crate::command::run_again(server, &mut session, waiting.command, args);
        session.database = database;
        session.is_retrying = false;
        session.served_key = None;
        let still_waits = std::mem::take(&mut session.still_waits);
        session.waiting = Some(waiting);
        if !still_waits {
            forget(server, &mut session);
            resume(server, &mut session);
        }
    }
    server.sessions[slot] = Some(session);
}

/// A client goes on.
fn resume(server: &mut Server, client: &mut Session) {
    server.woken.push(client.slot);
    server.resumed.push(client.slot);
}

/// Whether a client's command was postponed.
fn is_postponed(session: &Session) -> bool {
    session.waiting.as_ref().is_some_and(|waiting| waiting.is_postponed())
}

/// Answers those whose time is up.
pub fn time_out(server: &mut Server) {
    while let Some(&(deadline, slot)) = server.deadlines.first()
        && deadline <= server.now
    {
        let session = server.sessions.get(slot).and_then(Option::as_deref);
        if !server.requests.is_empty() && session.is_some_and(is_postponed) {
            // What the reactor was asked for is done before any other command: the rest runs in the next turn.
            return;
        }
        server.deadlines.pop_first();
        let Some(mut session) = server.sessions.get_mut(slot).and_then(Option::take) else { continue };
        if let Some(waiting) = forget(server, &mut session) {
            let replied = session.reply.bytes.len();
            answer_timeout(server, &mut session, waiting.timeout_reply);
            resume(server, &mut session);
            match waiting.is_postponed() {
                true => crate::command::execute(server, &mut session, waiting.args.as_args()),
                false => crate::command::settle(&mut session, replied),
            }
        }
        server.sessions[slot] = Some(session);
    }
}

/// Lets those go on who wait for replicas and have enough of them.
pub fn serve_acknowledged(server: &mut Server) {
    let has_enough = |session: &Session| match session.waiting.as_ref().map(|waiting| waiting.timeout_reply) {
        Some(TimeoutReply::Acknowledgements { offset, wanted }) => server.acknowledgements(offset) >= wanted,
        _ => false,
    };
    for slot in slots_of(server, has_enough) {
        end(server, slot, false);
    }
}

/// Whether a client waits for something that it may stop to wait for.
fn may_be_ended(session: &Session) -> bool {
    let reply = session.waiting.as_ref().map(|waiting| waiting.timeout_reply);
    reply.is_some_and(|reply| !matches!(reply, TimeoutReply::Runs | TimeoutReply::Shutdown))
}

fn slots_of(server: &Server, is_meant: impl Fn(&Session) -> bool) -> Vec<usize> {
    let sessions = server.sessions.iter().flatten().filter(|session| is_meant(session));
    sessions.map(|session| session.slot).collect()
}

/// Answers those who wait for the end of the server: it goes on.
pub fn end_shutdown(server: &mut Server) {
    let is_meant = |session: &Session| {
        session.waiting.as_ref().is_some_and(|waiting| waiting.timeout_reply == TimeoutReply::Shutdown)
    };
    for slot in slots_of(server, is_meant) {
        end_with(server, slot, Some("ERR Errors trying to SHUTDOWN. Check logs."));
    }
}

/// Ends all waiting for keys: this server follows another one now, and whether there is something to wait for is not its business.
pub fn end_all(server: &mut Server) {
    for slot in slots_of(server, may_be_ended) {
        end_with(
            server,
            slot,
            Some("UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"),
        );
    }
}

/// Ends the waiting of the client at a slot (`CLIENT UNBLOCK`): as if its time were up, or with an error. Whether it waited for keys.
pub fn end(server: &mut Server, slot: usize, is_error: bool) -> bool {
    let is_waiting = server.sessions.get(slot).and_then(Option::as_deref).is_some_and(may_be_ended);
    if is_waiting {
        end_with(server, slot, is_error.then_some("UNBLOCKED client unblocked via CLIENT UNBLOCK"));
    }
    is_waiting
}

fn end_with(server: &mut Server, slot: usize, error: Option<&'static str>) {
    let Some(mut session) = server.sessions.get_mut(slot).and_then(Option::take) else { return };
    if let Some(waiting) = forget(server, &mut session) {
        let replied = session.reply.bytes.len();
        match error {
            Some(text) => {
                server.stats.note_failure(crate::command::number_of(waiting.command));
                crate::command::refuse(server, &mut session, &Failure::new(text));
            }
            None => answer_timeout(server, &mut session, waiting.timeout_reply),
        }
        crate::command::settle(&mut session, replied);
        resume(server, &mut session);
    }
    server.sessions[slot] = Some(session);
}

/// Postpones a command until the pause is over (`CLIENT PAUSE`).
pub fn postpone(server: &mut Server, client: &mut Session, args: Args<'_>, command: &'static Command, until: i64) {
    server.deadlines.insert((until, client.slot));
    client.waiting = Some(Box::new(Waiting {
        database: client.database,
        keys: Vec::new(),
        deadline: Some(until),
        timeout_reply: TimeoutReply::Runs,
        command,
        args: args.to_owned(),
    }));
}

/// Runs all commands that were postponed.
pub fn end_pause(server: &mut Server) {
    let now = server.now;
    let mut changed = Vec::new();
    for session in server.sessions.iter_mut().flatten().filter(|session| is_postponed(session)) {
        let slot = session.slot;
        if let Some(waiting) = &mut session.waiting
            && let Some(deadline) = waiting.deadline.replace(now)
        {
            changed.push((deadline, slot));
        }
    }
    for (deadline, slot) in changed {
        server.deadlines.remove(&(deadline, slot));
        server.deadlines.insert((now, slot));
    }
}
