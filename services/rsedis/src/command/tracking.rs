//! Client-side caching: who has read which key, and who is told that a key has changed.

use std::collections::{BTreeSet, HashMap};

use super::key_specs::keys_of;
use super::options::{integer, is};
use super::{Command, READONLY};
use crate::failure::{Failure, Outcome, SYNTAX};
use crate::protocol::{Args, Reply};
use crate::server::Server;
use crate::session::Session;

/// How a client is told.
#[derive(Debug, Default)]
pub struct Tracking {
    /// Another client is told in its place; its identifier.
    redirect: Option<u64>,
    /// It is told of every key with one of its prefixes, whether it has read it or not.
    is_broadcast: bool,
    only_if_asked: bool,
    unless_asked: bool,
    not_of_own: bool,
    prefixes: BTreeSet<Vec<u8>>,
    /// `CLIENT CACHING` was given for the next command.
    is_asked: bool,
    is_broken: bool,
}

impl Tracking {
    /// The letters of CLIENT LIST.
    pub fn flags(&self) -> String {
        let mut flags = "t".to_owned();
        if self.is_broken {
            flags.push('R');
        }
        if self.is_broadcast {
            flags.push('B');
        }
        flags
    }

    /// What it takes, nearly.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.prefixes.iter().map(|prefix| size_of::<Vec<u8>>() + prefix.capacity()).sum::<usize>()
    }

    /// Who is told in its place; 0: nobody.
    pub fn redirect(&self) -> u64 {
        self.redirect.unwrap_or(0)
    }
}

/// A key that has changed, before those who had read it are told.
#[derive(Debug)]
struct Invalidation {
    name: Vec<u8>,
    /// The identifier of who changed it; 0: nobody.
    changer: u64,
    /// Slots and identifiers of those who had read it by then. Who reads it afterwards has the new value.
    readers: Vec<(usize, u64)>,
}

/// Whom the server tells of keys that change, and what is yet to be told.
#[derive(Debug, Default)]
pub struct Trackers {
    clients: usize,
    /// Who has read which key: slots and identifiers.
    readers: HashMap<Vec<u8>, Vec<(usize, u64)>>,
    invalidated: Vec<Invalidation>,
    /// Keys that have changed, and the identifier of who changed them, for broadcasts.
    changed: Vec<(Vec<u8>, u64)>,
    /// All keys have changed.
    is_flushed: bool,
}

impl Trackers {
    /// Whether there is anybody to tell.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.clients > 0
    }

    /// How many clients are told.
    pub fn count(&self) -> usize {
        self.clients
    }

    /// Keys that somebody has read.
    pub fn keys(&self) -> usize {
        self.readers.len()
    }

    /// The same, one for each who has.
    pub fn readings(&self) -> usize {
        self.readers.values().map(Vec::len).sum()
    }
}

/// A key has changed.
#[cold]
pub fn note_change(server: &mut Server, name: &[u8], changer: u64) {
    let readers = server.trackers.readers.remove(name).unwrap_or_default();
    server.trackers.invalidated.push(Invalidation { name: name.to_vec(), changer, readers });
}

/// All keys of a database have gone.
pub fn note_flush(server: &mut Server) {
    if server.trackers.is_any() {
        server.trackers.is_flushed = true;
        server.trackers.readers.clear();
    }
}

/// The client stops tracking.
pub fn end(server: &mut Server, client: &mut Session) {
    if client.tracking.take().is_some() {
        server.trackers.clients -= 1;
        if server.trackers.clients == 0 {
            server.trackers = Trackers::default();
        }
    }
}

/// A key with fewer readers than this is not looked through for those who have gone.
const READERS_LOOKED_AT: usize = 16;

/// Whether a client is still connected.
fn is_there(sessions: &[Option<Box<Session>>], (slot, id): (usize, u64)) -> bool {
    matches!(sessions.get(slot), Some(Some(session)) if session.id == id)
}

/// Remembers which keys a client has read.
pub(super) fn remember(server: &mut Server, client: &mut Session, command: &Command, args: Args<'_>) {
    if client.is_script {
        // The script's own keys count, if it reads anything.
        client.has_read |= command.is(READONLY);
        return;
    }
    let is_script = matches!(command.name, "eval" | "evalsha" | "fcall" | "eval_ro" | "evalsha_ro" | "fcall_ro");
    let has_read = std::mem::take(&mut client.has_read);
    let reads = if is_script { has_read } else { command.is(READONLY) };
    let Some(tracking) = &client.tracking else { return };
    if !reads
        || tracking.is_broadcast
        || (tracking.only_if_asked && !tracking.is_asked)
        || (tracking.unless_asked && tracking.is_asked)
    {
        return;
    }
    let reader = (client.slot, client.id);
    for key in keys_of(command, args).unwrap_or_default() {
        let Server { trackers, sessions, .. } = server;
        let readers = trackers.readers.entry(args.at(key.place).to_vec()).or_default();
        if let Err(place) = readers.binary_search(&reader) {
            readers.insert(place, reader);
            // Who has gone is told nothing: once for each doubling, so that it costs little.
            if readers.len() >= READERS_LOOKED_AT && readers.len().is_power_of_two() {
                readers.retain(|one| *one == reader || is_there(sessions, *one));
            }
        }
    }
}

/// A command is over, whether it was refused or ran. CLIENT CACHING is for the one behind it, unless that is one of CLIENT's again.
pub(super) fn end_caching(client: &mut Session, command: &str) {
    if let Some(tracking) = &mut client.tracking
        && !command.starts_with("client|")
        && client.transaction.is_none()
    {
        tracking.is_asked = false;
    }
}

/// What is left to do when a command is done.
pub(super) fn settle(server: &mut Server, client: &mut Session, command: &'static str) {
    end_caching(client, command);
    let most = server.settings.tracked_max;
    while most > 0
        && server.trackers.readers.len() > most
        && let Some(name) = server.trackers.readers.keys().next().cloned()
    {
        note_change(server, &name, 0);
    }
    tell(server, Some(client));
}

/// Tells those who read the keys that have changed. `client`: who is not among the sessions, since its command runs.
pub fn tell(server: &mut Server, mut client: Option<&mut Session>) {
    if std::mem::take(&mut server.trackers.is_flushed) {
        let slots: Vec<usize> = server.sessions.iter().flatten().map(|session| session.slot).collect();
        let own = client.as_ref().map(|client| client.slot);
        for slot in slots.into_iter().chain(own) {
            send(server, client.as_deref_mut(), (slot, None), None);
        }
    }
    if server.trackers.invalidated.is_empty() {
        return;
    }
    let has_broadcasts = reader_exists(server, client.as_deref());
    for Invalidation { name, changer, readers } in std::mem::take(&mut server.trackers.invalidated) {
        for (slot, id) in readers {
            // Who wants broadcasts by now is told by them.
            let is_meant = |one: &Tracking| !(one.is_broadcast || one.not_of_own && changer == id);
            if reader(server, client.as_deref(), slot).is_some_and(is_meant) {
                send(server, client.as_deref_mut(), (slot, Some(id)), Some(&[&name]));
            }
        }
        if has_broadcasts {
            server.trackers.changed.push((name, changer));
        }
    }
}

fn reader<'a>(server: &'a Server, client: Option<&'a Session>, slot: usize) -> Option<&'a Tracking> {
    match client {
        Some(client) if client.slot == slot => client.tracking.as_deref(),
        _ => server.sessions.get(slot)?.as_ref()?.tracking.as_deref(),
    }
}

/// Prefixes that somebody wants broadcasts of. `client`: who asks, and is not among the sessions.
pub(super) fn prefixes(server: &Server, client: &Session) -> usize {
    let all = server.sessions.iter().flatten().map(|session| &**session).chain([client]);
    let wanted = all.filter_map(|session| session.tracking.as_deref()).flat_map(|tracking| &tracking.prefixes);
    wanted.collect::<BTreeSet<_>>().len()
}

/// Whether somebody wants broadcasts.
fn reader_exists(server: &Server, client: Option<&Session>) -> bool {
    let all = server.sessions.iter().flatten().map(|session| &**session).chain(client);
    all.filter_map(|session| session.tracking.as_deref()).any(|tracking| tracking.is_broadcast)
}

/// Tells all who want broadcasts of all keys that have changed, once a turn of the loop. Nobody's command is running.
pub fn broadcast(server: &mut Server) {
    let changed = std::mem::take(&mut server.trackers.changed);
    let slots: Vec<usize> = server
        .sessions
        .iter()
        .flatten()
        .filter(|session| session.tracking.as_ref().is_some_and(|tracking| tracking.is_broadcast))
        .map(|session| session.slot)
        .collect();
    for slot in slots {
        let Some(Some(session)) = server.sessions.get(slot) else { continue };
        let (Some(tracking), id) = (&session.tracking, session.id) else { continue };
        // One message a prefix.
        let mut messages: Vec<BTreeSet<&[u8]>> = Vec::new();
        for prefix in &tracking.prefixes {
            let is_meant = |(name, changer): &&(Vec<u8>, u64)| {
                name.starts_with(prefix) && !(tracking.not_of_own && *changer == id)
            };
            messages.push(changed.iter().filter(is_meant).map(|(name, _)| name.as_slice()).collect());
        }
        for names in messages.into_iter().filter(|names| !names.is_empty()) {
            let names: Vec<&[u8]> = names.into_iter().collect();
            send(server, None, (slot, Some(id)), Some(&names));
        }
    }
}

fn push_names(reply: &mut Reply, names: Option<&[&[u8]]>) {
    match names {
        Some(names) => {
            reply.array(names.len());
            names.iter().for_each(|name| reply.bulk(name));
        }
        None => reply.null_array(),
    }
}

/// Tells the client at a slot, or whom it names, of keys, or of all of them.
fn send(server: &mut Server, client: Option<&mut Session>, (slot, id): (usize, Option<u64>), names: Option<&[&[u8]]>) {
    let own_slot = client.as_ref().map(|client| client.slot);
    let mut own = client;
    let mut with = |server: &mut Server, slot: usize, act: &mut dyn FnMut(&mut Session)| {
        if own_slot == Some(slot) {
            if let Some(session) = own.as_deref_mut() {
                act(session);
            }
        } else if let Some(Some(session)) = server.sessions.get_mut(slot)
            && !session.is_killed
        {
            act(session);
            server.woken.push(slot);
        }
    };
    let (mut redirect, mut is_tracking, mut own_id) = (None, false, 0);
    with(server, slot, &mut |session| {
        is_tracking = session.tracking.is_some() && id.is_none_or(|id| id == session.id);
        redirect = session.tracking.as_ref().and_then(|tracking| tracking.redirect);
        own_id = session.id;
    });
    if !is_tracking {
        return;
    }
    let target = match redirect {
        None => Some(slot),
        Some(id) if id == own_id => Some(slot),
        Some(id) => {
            let found = server.sessions.iter().flatten().find(|session| session.id == id && !session.is_killed);
            found.map(|session| session.slot)
        }
    };
    let Some(target) = target else {
        with(server, slot, &mut |session| {
            if let Some(tracking) = &mut session.tracking {
                tracking.is_broken = true;
            }
            if session.reply.is_resp3 {
                session.reply.push(2);
                session.reply.bulk(b"tracking-redir-broken");
                session.reply.integer(redirect.unwrap_or(0) as i64);
            }
        });
        return;
    };
    with(server, target, &mut |session| {
        if session.reply.is_resp3 {
            session.reply.push(2);
            session.reply.bulk(b"invalidate");
            push_names(&mut session.reply, names);
        } else if redirect.is_some() && session.subscriptions() > 0 {
            session.reply.push(3);
            session.reply.bulk(b"message");
            session.reply.bulk(b"__redis__:invalidate");
            push_names(&mut session.reply, names);
        }
    });
    server.bound_output(target);
}

fn collide(one: &[u8], other: &[u8]) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

pub(super) fn tracking(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let mut wanted = Tracking::default();
    let mut prefixes: Vec<&[u8]> = Vec::new();
    let mut at = 3;
    while let Some(word) = args.get(at) {
        match (word, args.get(at + 1)) {
            (word, Some(id)) if is(word, "REDIRECT") => {
                if wanted.redirect.is_some() {
                    return Err(Failure::new("ERR A client can only redirect to a single other client"));
                }
                let id = integer(id)? as u64;
                let is_there = id == client.id || server.sessions.iter().flatten().any(|session| session.id == id);
                if !is_there {
                    return Err(Failure::new("ERR The client ID you want redirect to does not exist"));
                }
                wanted.redirect = Some(id);
                at += 1;
            }
            (word, Some(prefix)) if is(word, "PREFIX") => {
                prefixes.push(prefix);
                at += 1;
            }
            (word, _) if is(word, "BCAST") => wanted.is_broadcast = true,
            (word, _) if is(word, "OPTIN") => wanted.only_if_asked = true,
            (word, _) if is(word, "OPTOUT") => wanted.unless_asked = true,
            (word, _) if is(word, "NOLOOP") => wanted.not_of_own = true,
            _ => return Err(SYNTAX),
        }
        at += 1;
    }
    match args.at(2) {
        word if is(word, "ON") => begin(server, client, wanted, &prefixes)?,
        word if is(word, "OFF") => end(server, client),
        _ => return Err(SYNTAX),
    }
    client.reply.ok();
    Ok(())
}

fn begin(server: &mut Server, client: &mut Session, mut wanted: Tracking, prefixes: &[&[u8]]) -> Outcome {
    if !wanted.is_broadcast && !prefixes.is_empty() {
        return Err(Failure::new("ERR PREFIX option requires BCAST mode to be enabled"));
    }
    if client.tracking.as_ref().is_some_and(|before| before.is_broadcast != wanted.is_broadcast) {
        return Err(Failure::new(
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a \
             different mode.",
        ));
    }
    if wanted.is_broadcast && (wanted.only_if_asked || wanted.unless_asked) {
        return Err(Failure::new("ERR OPTIN and OPTOUT are not compatible with BCAST"));
    }
    if wanted.only_if_asked && wanted.unless_asked {
        return Err(Failure::new("ERR You can't specify both OPTIN mode and OPTOUT mode"));
    }
    if let Some(before) = &client.tracking
        && ((wanted.only_if_asked && before.unless_asked) || (wanted.unless_asked && before.only_if_asked))
    {
        return Err(Failure::new(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a \
             different mode.",
        ));
    }
    let before = client.tracking.as_ref().map(|tracking| tracking.prefixes.clone()).unwrap_or_default();
    for (place, prefix) in prefixes.iter().enumerate() {
        let overlap = |other: &[u8], with: &[u8]| {
            let end = b"'. Prefixes for a single client must not overlap.";
            Failure::joined(&[b"ERR Prefix '", prefix, b"' overlaps with ", with, b" prefix '", other, end])
        };
        if let Some(other) = before.iter().find(|other| collide(prefix, other)) {
            return Err(overlap(other, b"an existing"));
        }
        if let Some(other) = prefixes[place + 1..].iter().find(|other| collide(prefix, other)) {
            return Err(overlap(other, b"another provided"));
        }
    }
    wanted.is_asked = client.tracking.as_ref().is_some_and(|before| before.is_asked);
    wanted.prefixes = before;
    wanted.prefixes.extend(prefixes.iter().map(|prefix| prefix.to_vec()));
    if wanted.is_broadcast && wanted.prefixes.is_empty() {
        wanted.prefixes.insert(Vec::new());
    }
    if client.tracking.replace(Box::new(wanted)).is_none() {
        server.trackers.clients += 1;
    }
    Ok(())
}

pub(super) fn caching(_: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let Some(tracking) = &mut client.tracking else {
        return Err(Failure::new(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        ));
    };
    match args.at(2) {
        word if is(word, "YES") => {
            if !tracking.only_if_asked {
                return Err(Failure::new(
                    "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
                ));
            }
        }
        word if is(word, "NO") => {
            if !tracking.unless_asked {
                return Err(Failure::new(
                    "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
                ));
            }
        }
        _ => return Err(SYNTAX),
    }
    tracking.is_asked = true;
    client.reply.ok();
    Ok(())
}

pub(super) fn getredir(_: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    client.reply.integer(client.tracking.as_ref().map_or(-1, |tracking| tracking.redirect() as i64));
    Ok(())
}

pub(super) fn trackinginfo(_: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    let Session { tracking, reply, .. } = client;
    let none = Tracking::default();
    let (is_on, known) = (tracking.is_some(), tracking.as_deref().unwrap_or(&none));
    let flags: Vec<&str> = [
        (is_on, "on"),
        (!is_on, "off"),
        (known.is_broadcast, "bcast"),
        (known.only_if_asked, "optin"),
        (known.only_if_asked && known.is_asked, "caching-yes"),
        (known.unless_asked, "optout"),
        (known.unless_asked && known.is_asked, "caching-no"),
        (known.not_of_own, "noloop"),
        (known.is_broken, "broken_redirect"),
    ]
    .into_iter()
    .filter(|(is_set, _)| *is_set)
    .map(|(_, name)| name)
    .collect();
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"redirect");
    reply.integer(if is_on { known.redirect() as i64 } else { -1 });
    reply.bulk(b"prefixes");
    reply.array(known.prefixes.len());
    known.prefixes.iter().for_each(|prefix| reply.bulk(prefix));
    Ok(())
}
