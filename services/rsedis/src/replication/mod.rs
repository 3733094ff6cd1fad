//! Replication as data: names, offsets, the backlog, replicas, the master that is followed. Without sockets, files and clocks: the
//! reactor moves the bytes.
//!
//! The stream is a sequence of commands ([`crate::effects`]); its *offset* is the number of its bytes so far. Its name, the *replication
//! id*, tells one history from another: two servers with the same name and offset hold the same keys. A replica that is promoted begins a
//! history of its own under a new name and keeps the old one as its second, up to where it was: who followed the old master can follow
//! it without beginning anew.
//!
//! What is not safe is not sent: while the append-only file cannot be written, the stream waits in [`Replication::pending`].

pub mod backlog;
pub mod link;
pub mod replica;

pub use backlog::Backlog;
pub use link::{Link, Master};
pub use replica::{Replica, Stage};

use crate::protocol::push_command;
use crate::server::Server;
use crate::session::Session;

/// See the module's description.
#[derive(Debug)]
pub struct Replication {
    /// The name of the history.
    pub id: String,
    /// The name of the history before, and how many bytes of it are part of this one.
    pub second: Option<(String, u64)>,
    /// Bytes of the stream that were given to the backlog and to replicas.
    pub offset: u64,
    /// There once somebody has followed, or was followed.
    pub backlog: Option<Backlog>,
    /// Of the stream, and not yet given to anybody.
    pub pending: Vec<u8>,
    /// Slots of replicas that have asked for the stream.
    pub replicas: Vec<usize>,
    /// Somebody waits for acknowledgements: replicas are to be asked for them.
    pub wants_acknowledgements: bool,
    /// Since when there have been no replicas, milliseconds since 1970.
    pub alone_since: i64,
    /// Who is followed; nobody: this is a master.
    pub master: Option<Master>,
    /// A replica has acknowledged, or gone: who waits for that may go on.
    pub has_news: bool,
}

impl Replication {
    /// Of a master without replicas.
    pub fn new(id: String, now: i64) -> Self {
        Self {
            id,
            second: None,
            offset: 0,
            backlog: None,
            pending: Vec::new(),
            replicas: Vec::new(),
            wants_acknowledgements: false,
            alone_since: now,
            master: None,
            has_news: false,
        }
    }

    /// Whether a master is followed.
    #[inline]
    pub fn is_replica(&self) -> bool {
        self.master.is_some()
    }

    /// Bytes of the stream that this server's keys hold.
    pub fn applied(&self) -> u64 {
        self.offset + self.pending.len() as u64
    }

    /// Where the stream goes on for a replica that has so many bytes of a history (PSYNC asks for the byte behind them, counted from
    /// one); nothing: it needs all keys.
    pub fn continues(&self, id: &str, wanted: i64) -> Option<u64> {
        let wanted = u64::try_from(wanted).ok()?.checked_sub(1)?;
        let is_ours = self.id.eq_ignore_ascii_case(id);
        let is_second = || {
            self.second.as_ref().is_some_and(|(second, shared)| second.eq_ignore_ascii_case(id) && wanted <= *shared)
        };
        if !is_ours && !is_second() {
            return None;
        }
        self.backlog.as_ref()?.since(wanted).map(|_| wanted)
    }

    /// Another history begins here, which shares all before with the one so far.
    pub fn shift(&mut self, id: String) {
        let before = std::mem::replace(&mut self.id, id);
        self.second = Some((before, self.applied()));
    }

    /// Another history begins here, which shares nothing with any other.
    pub fn begin_anew(&mut self, id: String) {
        self.id = id;
        self.second = None;
        self.backlog = None;
        self.offset = self.applied();
        self.pending.clear();
    }

    /// A backlog without bytes.
    pub fn begin_backlog(&mut self, size: usize) {
        self.backlog = Some(Backlog::new(self.offset, size));
    }
}

/// What asks all replicas how far they are.
const ASK: [&[u8]; 3] = [b"REPLCONF", b"GETACK", b"*"];

impl Server {
    /// Bytes of the stream with all that commands have changed so far.
    pub fn stream_end(&self) -> u64 {
        self.replication.applied() + self.effects.unreplicated().len() as u64
    }

    /// Whose effects are wanted: the append-only file's, and the replicas'.
    pub fn choose_effects(&mut self) {
        self.effects.is_replicated = self.replication.backlog.is_some() && !self.replication.is_replica();
        self.effects.is_enabled = self.effects.is_replicated || self.writes_aof;
    }

    /// Takes what commands changed into the stream.
    pub fn take_effects(&mut self) {
        if self.effects.is_replicated {
            self.replication.pending.extend_from_slice(self.effects.unreplicated());
        }
        self.effects.mark_replicated();
    }

    /// Gives what is safe to the backlog and the replicas, and asks these how far they are, if somebody wants to know.
    pub fn replicate(&mut self) {
        let replication = &mut self.replication;
        if std::mem::take(&mut replication.wants_acknowledgements) && !replication.is_replica() {
            push_command(&mut replication.pending, ASK.into_iter());
        }
        if replication.pending.is_empty() || self.aof.failure.is_some() {
            return;
        }
        let mut bytes = std::mem::take(&mut replication.pending);
        replication.offset += bytes.len() as u64;
        if let Some(backlog) = &mut replication.backlog {
            backlog.append(&bytes);
        }
        for &slot in &replication.replicas {
            let Some(Some(session)) = self.sessions.get_mut(slot) else { continue };
            let Session { replica: Some(replica), reply, .. } = &mut **session else { continue };
            match replica.stage {
                Stage::Online => {
                    reply.bytes.extend_from_slice(&bytes);
                    self.woken.push(slot);
                }
                Stage::Snapshot | Stage::Receiving | Stage::Loading => {
                    replica.held.extend_from_slice(&bytes);
                    self.woken.push(slot);
                }
                Stage::Introducing | Stage::Waiting => {}
            }
        }
        bytes.clear();
        bytes.shrink_to(1 << 20);
        self.replication.pending = bytes;
    }

    /// A command that is no effect goes into the stream.
    pub fn say_to_replicas(&mut self, words: &[&[u8]]) {
        push_command(&mut self.replication.pending, words.iter().copied());
    }

    /// What follows keys that were sent is sent now.
    pub fn put_online(session: &mut Session, now: i64) {
        let Session { replica: Some(replica), reply, .. } = session else { return };
        replica.stage = Stage::Online;
        replica.heard_at = now;
        reply.bytes.append(&mut replica.held);
    }

    /// Replicas that get the stream, whose slots are not the one whose command runs.
    fn online(&self) -> impl Iterator<Item = &Replica> {
        let sessions = self.replication.replicas.iter().filter_map(|slot| self.sessions.get(*slot)?.as_ref());
        sessions.filter_map(|session| session.replica.as_deref()).filter(|replica| replica.stage == Stage::Online)
    }

    /// How many replicas have acknowledged so many bytes of the stream.
    pub fn acknowledgements(&self, offset: u64) -> usize {
        self.online().filter(|replica| replica.acknowledged >= offset).count()
    }

    /// How many replicas have been heard within so many seconds.
    pub fn good_replicas(&self, lag_seconds: i64) -> usize {
        self.online().filter(|replica| replica.lag_seconds(self.now) <= lag_seconds).count()
    }

    /// A client becomes a replica, if it is none yet.
    pub fn enlist(&mut self, client: &Session) {
        if !self.replication.replicas.contains(&client.slot) {
            self.replication.replicas.push(client.slot);
        }
    }

    /// All replicas are to come again: the history has another name.
    pub fn dismiss_replicas(&mut self) {
        for &slot in &self.replication.replicas {
            if let Some(Some(session)) = self.sessions.get_mut(slot) {
                session.is_killed = true;
                self.woken.push(slot);
            }
        }
    }

    /// Follows a master from now on. What is known stays: where the master's history is a part of ours, or ours of its, it goes on.
    pub fn follow(&mut self, host: String, port: u16) {
        // What was changed in this turn belongs to the history so far.
        if self.effects.is_in_group() {
            self.take_effects();
            let id = self.random.name();
            self.replication.begin_anew(id);
        } else {
            self.take_effects();
        }
        self.abandon_loading();
        let mut master = Master::new(host, port, self.now);
        // Where the history goes on, it goes on in the database that it had selected.
        master.database = match &self.replication.master {
            Some(before) => before.database,
            None => self.effects.selected_database(),
        };
        self.replication.master = Some(master);
        self.choose_effects();
        self.dismiss_replicas();
    }

    /// Half of a master's keys are nobody's keys.
    pub fn abandon_loading(&mut self) {
        if self.replication.master.as_ref().is_some_and(|master| matches!(master.link, Link::Loading(_))) {
            self.is_loading = false;
            self.forget_everything();
        }
    }

    /// Drops all keys and functions, and the history that they were a state of.
    pub fn forget_everything(&mut self) {
        crate::command::flush_all(self);
        if let Some(scripts) = &mut self.scripts {
            scripts.flush_libraries();
        }
        self.replication.pending.clear();
        let id = self.random.name();
        self.replication.begin_anew(id);
        self.effects.clear();
        self.choose_effects();
        self.dismiss_replicas();
    }

    /// Follows nobody any more: a history of its own begins.
    pub fn lead(&mut self) {
        self.abandon_loading();
        if self.replication.master.take().is_none() {
            return;
        }
        self.effects.mark_replicated();
        let id = self.random.name();
        self.replication.shift(id);
        self.replication.alone_since = self.now;
        self.choose_effects();
        self.effects.forget_selected();
        self.dismiss_replicas();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FIRST: &str = "1111111111111111111111111111111111111111";
    const SECOND: &str = "2222222222222222222222222222222222222222";

    fn replication(before: u64, bytes: &[u8]) -> Replication {
        let mut replication = Replication::new(FIRST.to_owned(), 0);
        replication.offset = before;
        replication.begin_backlog(16);
        if let Some(backlog) = &mut replication.backlog {
            backlog.append(bytes);
        }
        replication.offset += bytes.len() as u64;
        replication
    }

    #[test]
    fn without_a_backlog_or_with_another_name_all_keys_are_needed() {
        let mut replication = replication(100, b"0123456789");
        assert_eq!(replication.continues(FIRST, 101), Some(100));
        assert_eq!(replication.continues(FIRST, 111), Some(110), "nothing is missing");
        assert_eq!(replication.continues(FIRST, 112), None, "it has more than there is");
        assert_eq!(replication.continues(FIRST, 100), None, "that is no longer there");
        assert_eq!(replication.continues("?", -1), None);
        assert_eq!(replication.continues(SECOND, 105), None);
        replication.backlog = None;
        assert_eq!(replication.continues(FIRST, 105), None);
    }

    #[test]
    fn a_promoted_replica_goes_on_with_those_who_followed_its_master_as_far_as_they_share() {
        let mut replication = replication(100, b"0123456789");
        replication.shift(SECOND.to_owned());
        if let Some(backlog) = &mut replication.backlog {
            backlog.append(b"abc");
        }
        replication.offset += 3;
        assert_eq!(replication.continues(FIRST, 111), Some(110), "it has just what is shared");
        assert_eq!(replication.continues(FIRST, 106), Some(105));
        assert_eq!(replication.continues(FIRST, 112), None, "it has what this server never had");
        assert_eq!(replication.continues(SECOND, 114), Some(113));
    }

    fn replica(server: &mut Server, stage: Stage) -> usize {
        let slot = server.sessions.len();
        let mut session = Session::new(slot as u64 + 1, slot, "a:1".to_owned(), "b:1".to_owned(), 0);
        session.replica = Some(Box::new(Replica { stage, ..Replica::default() }));
        server.replication.replicas.push(slot);
        server.sessions.push(Some(Box::new(session)));
        slot
    }

    #[test]
    fn what_is_not_safe_is_not_sent_and_comes_once_it_is() {
        let mut server = Server::new(crate::settings::Settings::default(), 0, 1);
        server.replication.begin_backlog(1000);
        server.choose_effects();
        let (online, receiving) = (replica(&mut server, Stage::Online), replica(&mut server, Stage::Receiving));
        let waiting = replica(&mut server, Stage::Waiting);
        let sent = |server: &Server, slot: usize| {
            let session = server.sessions[slot].as_ref().unwrap();
            (session.reply.bytes.clone(), session.replica.as_ref().unwrap().held.clone())
        };
        server.effects.add(0, &[b"SET", b"a", b"1"]);
        let expected = server.effects.bytes.clone();
        assert_eq!(server.stream_end(), expected.len() as u64, "a writer waits for this");
        server.take_effects();
        server.effects.clear();
        server.aof.failure = Some("no space".to_owned());
        server.replicate();
        assert_eq!(sent(&server, online), (Vec::new(), Vec::new()));
        assert_eq!((server.replication.offset, server.stream_end()), (0, expected.len() as u64));
        server.aof.failure = None;
        server.replicate();
        assert_eq!(sent(&server, online), (expected.clone(), Vec::new()));
        assert_eq!(sent(&server, receiving), (Vec::new(), expected.clone()), "behind the keys");
        assert_eq!(sent(&server, waiting), (Vec::new(), Vec::new()), "it is in the keys that come");
        assert_eq!(server.replication.offset, expected.len() as u64);
        assert_eq!(server.acknowledgements(1), 0);
    }

    #[test]
    fn what_was_changed_in_the_turn_of_a_promotion_is_in_the_right_history() {
        let mut server = Server::new(crate::settings::Settings::default(), 0, 1);
        server.replication.begin_backlog(1000);
        server.choose_effects();
        server.effects.add(0, &[b"SET", b"a", b"1"]);
        let ours = server.effects.bytes.len() as u64;
        server.follow("host".to_owned(), 1);
        // What a client writes on a writable replica is its own affair.
        server.writes_aof = true;
        server.choose_effects();
        server.effects.add(0, &[b"SET", b"local", b"1"]);
        server.take_effects();
        assert_eq!(server.replication.applied(), ours, "we ask for what follows our own");
        server.lead();
        let (_, shared) = server.replication.second.clone().unwrap();
        assert_eq!(shared, ours);
        server.effects.add(0, &[b"SET", b"b", b"1"]);
        server.take_effects();
        let text = String::from_utf8_lossy(&server.replication.pending).into_owned();
        assert!(!text.contains("local") && text.contains("SELECT"), "{text}");
        assert!(text.contains("\r\na\r\n") && text.contains("\r\nb\r\n"), "{text}");
    }

    proptest! {
        /// Several servers: what a partial resync gives makes the stream of the one who asked that of the one who answered.
        #[test]
        fn a_partial_resync_never_mixes_histories(
            shared in proptest::collection::vec(any::<u8>(), 0..30),
            ours in proptest::collection::vec(any::<u8>(), 0..30),
            theirs in proptest::collection::vec(any::<u8>(), 0..30),
            has in 0usize..70,
            is_promoted: bool,
        ) {
            // They followed FIRST together; then we were promoted, and they went on with FIRST for a while.
            let mut replication = replication(0, &shared);
            if is_promoted {
                replication.shift(SECOND.to_owned());
            }
            if let Some(backlog) = &mut replication.backlog {
                backlog.append(&ours);
            }
            replication.offset += ours.len() as u64;
            let our_stream = [&shared[..], &ours].concat();
            let their_history = if is_promoted { [&shared[..], &theirs].concat() } else { our_stream.clone() };
            let has = has.min(their_history.len());
            if let Some(from) = replication.continues(FIRST, has as i64 + 1) {
                prop_assert_eq!(from, has as u64);
                let (first, second) = replication.backlog.as_ref().and_then(|backlog| backlog.since(from)).unwrap_or_default();
                let becomes = [&their_history[..has], first, second].concat();
                prop_assert_eq!(becomes, our_stream);
            }
        }
    }
}
