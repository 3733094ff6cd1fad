//! The replication stream as commands, failovers and the loop change it: what goes into it and to whom, who follows whom.

use super::{Request, Server};
use crate::keyspace::Database;
use crate::log;
use crate::protocol::push_command;
use crate::replication::{Link, Master, Replica, Replication, Stage};
use crate::session::Session;

/// What asks all replicas how far they are.
const ASK: [&[u8]; 3] = [b"REPLCONF", b"GETACK", b"*"];

impl Server {
    /// Bytes of the stream with all that commands have changed so far.
    pub fn stream_end(&self) -> u64 {
        self.replication.applied() + self.effects.unreplicated_bytes() as u64
    }

    /// Whose effects are wanted: the append-only file's, and the replicas'.
    pub fn choose_effects(&mut self) {
        self.effects.is_replicated = self.replication.backlog.is_some() && !self.replication.is_replica();
        self.effects.is_enabled = self.effects.is_replicated || self.writes_aof;
    }

    /// Takes what commands changed into the stream.
    pub fn take_effects(&mut self) {
        if self.effects.is_replicated {
            self.replication.pending.extend_from_slice(&self.effects.unreplicated());
        }
        self.effects.mark_replicated();
    }

    /// Gives what is safe to the backlog and the replicas, and asks these how far they are, if somebody wants to know.
    pub fn replicate(&mut self) {
        // A question is a part of the stream, which stands still in a pause.
        if !self.is_paused()
            && std::mem::take(&mut self.replication.wants_acknowledgements)
            && !self.replication.is_replica()
        {
            self.ask_replicas();
        }
        if self.replication.pending.is_empty() || self.aof.failure.is_some() {
            return;
        }
        self.pin_backlog();
        let replication = &mut self.replication;
        let mut bytes = std::mem::take(&mut replication.pending);
        replication.offset += bytes.len() as u64;
        if let Some(backlog) = &mut replication.backlog {
            backlog.append(&bytes);
        }
        for &slot in &replication.replicas {
            let Some(Some(session)) = self.sessions.get_mut(slot) else { continue };
            let Session { replica: Some(replica), reply, .. } = &mut **session else { continue };
            match replica.stage {
                _ if replica.is_rdb_only => {}
                Stage::Online => {
                    reply.bytes.extend_from_slice(&bytes);
                    self.woken.push(slot);
                }
                // The backlog keeps it for them, once for all.
                Stage::Snapshot | Stage::Receiving | Stage::Loading => self.woken.push(slot),
                Stage::Introducing | Stage::Waiting => {}
            }
        }
        bytes.clear();
        bytes.shrink_to(1 << 20);
        self.replication.pending = bytes;
    }

    /// The backlog keeps what replicas are to get behind their keys, and nothing for those who have gone.
    pub fn pin_backlog(&mut self) {
        let sessions = self.replication.replicas.iter().filter_map(|slot| self.sessions.get(*slot)?.as_ref());
        let pinned = sessions.filter_map(|session| session.replica.as_ref()?.held_from).min();
        if let Some(backlog) = &mut self.replication.backlog {
            backlog.pin(pinned);
        }
    }

    /// Asks all replicas how far they are.
    pub fn ask_replicas(&mut self) {
        self.say_to_replicas(&ASK);
    }

    /// A command that is no effect goes into the stream.
    pub fn say_to_replicas(&mut self, words: &[&[u8]]) {
        // Where there never was a replica there is no stream.
        if self.replication.backlog.is_some() {
            push_command(&mut self.replication.pending, words.iter().copied());
        }
    }

    /// What follows keys that were sent is sent now. Who wanted the keys alone has all.
    pub fn put_online(replication: &Replication, session: &mut Session, now: i64) {
        let Session { replica: Some(replica), reply, is_closing, is_killed, .. } = session else { return };
        if replica.is_rdb_only {
            *is_closing = true;
            return;
        }
        replica.stage = Stage::Online;
        replica.heard_at = now;
        let Some(from) = replica.held_from.take() else { return };
        match replication.backlog.as_ref().and_then(|backlog| backlog.since(from)) {
            Some((first, second)) => {
                reply.bytes.extend_from_slice(first);
                reply.bytes.extend_from_slice(second);
            }
            // The history is another one by now.
            None => *is_killed = true,
        }
    }

    /// Replicas with their addresses, except the one whose command runs.
    pub fn replicas(&self) -> Vec<(String, &Replica)> {
        self.listed().filter_map(|session| Some((session.replica_address()?, session.replica.as_deref()?))).collect()
    }

    /// Who is a replica. One that has gone while a script runs is closed later, and is none any more.
    fn listed(&self) -> impl Iterator<Item = &Session> {
        let sessions = self.replication.replicas.iter().filter_map(|slot| self.sessions.get(*slot)?.as_deref());
        sessions.filter(|session| !session.is_killed)
    }

    /// Replicas that get the stream, whose slots are not the one whose command runs.
    fn online(&self) -> impl Iterator<Item = &Replica> {
        self.listed().filter_map(|session| session.replica.as_deref()).filter(|replica| replica.stage == Stage::Online)
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
    /// Replicas stay until the history gets another name.
    pub fn follow(&mut self, host: String, port: u16) {
        // What was changed in this turn belongs to the history so far.
        if self.effects.is_in_group() {
            self.take_effects();
            let id = self.random.name();
            self.replication.begin_anew(id);
            self.dismiss_replicas();
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
        log::set_role(true);
        self.choose_effects();
    }

    /// Half of a master's keys are nobody's keys. Where those of before were kept, they are served again.
    pub fn abandon_loading(&mut self) {
        if self.replication.master.as_ref().is_some_and(|master| matches!(master.link, Link::Loading(_))) {
            self.is_loading = false;
            match self.aside {
                Some(_) => self.discard_aside(),
                None => self.forget_everything(),
            }
        }
    }

    /// Whether a master's keys are to be read while they come (`repl-diskless-load`).
    pub fn reads_while_keys_come(&self) -> bool {
        match self.settings.text("repl-diskless-load") {
            "swapdb" => true,
            "on-empty-db" => self.databases.iter().all(Database::is_empty),
            _ => false,
        }
    }

    /// Drops all keys and functions, and the history that they were a state of.
    pub fn forget_everything(&mut self) {
        // Where others take their place at once, nobody waits until these are freed.
        let lazily = self.settings.lazily.follows || self.aside.is_some();
        self.dirty += self.empty(lazily) as u64;
        self.replication.pending.clear();
        let id = self.random.name();
        self.replication.begin_anew(id);
        self.effects.clear();
        self.choose_effects();
        self.dismiss_replicas();
    }

    /// Follows nobody any more, also after a restart, and the loop ends the connection.
    pub fn stop_following(&mut self) {
        self.lead();
        self.settings.set_master(None);
        self.requests.push(Request::DropMaster);
    }

    /// Follows nobody any more: a history of its own begins.
    pub fn lead(&mut self) {
        self.abandon_loading();
        if self.replication.master.take().is_none() {
            return;
        }
        log::set_role(false);
        self.effects.split_transaction();
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

    fn replica(server: &mut Server, stage: Stage) -> usize {
        let slot = server.sessions.len();
        let mut session = Session::new(slot as u64 + 1, slot, "a:1".to_owned(), "b:1".to_owned(), 0);
        let held_from = (stage == Stage::Receiving).then_some(0);
        session.replica = Some(Box::new(Replica { stage, held_from, ..Replica::default() }));
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
            (session.reply.bytes.clone(), session.replica.as_ref().unwrap().held_bytes(server.replication.offset))
        };
        server.effects.add(0, &[b"SET", b"a", b"1"]);
        let expected = server.effects.bytes.clone();
        assert_eq!(server.stream_end(), expected.len() as u64, "a writer waits for this");
        server.take_effects();
        server.effects.clear();
        server.aof.failure = Some("no space".to_owned());
        server.replicate();
        assert_eq!(sent(&server, online), (Vec::new(), 0));
        assert_eq!((server.replication.offset, server.stream_end()), (0, expected.len() as u64));
        server.aof.failure = None;
        server.replicate();
        assert_eq!(sent(&server, online), (expected.clone(), 0));
        assert_eq!(sent(&server, receiving), (Vec::new(), expected.len()), "behind the keys");
        assert_eq!(sent(&server, waiting), (Vec::new(), 0), "it is in the keys that come");
        assert_eq!(server.replication.offset, expected.len() as u64);
        assert_eq!(server.acknowledgements(1), 0);
    }

    /// Its acknowledgement was answered with what had been held back, and that was taken for a reply.
    #[test]
    fn a_replica_that_acknowledges_its_keys_gets_what_was_held_and_stays() {
        let mut server = Server::new(crate::settings::Settings::default(), 0, 1);
        server.replication.begin_backlog(10);
        server.choose_effects();
        let slot = replica(&mut server, Stage::Receiving);
        server.effects.add(0, &[b"SET", b"longer than", b"the backlog"]);
        let expected = server.effects.bytes.clone();
        server.take_effects();
        server.replicate();
        let mut session = server.sessions[slot].take().unwrap();
        (session.is_authenticated, session.may_all) = (true, true);
        session.replica.as_mut().unwrap().stage = Stage::Loading;
        let words = crate::protocol::OwnedArgs::new([b"REPLCONF".as_slice(), b"ACK", b"0"]);
        crate::command::execute(&mut server, &mut session, words.as_args());
        assert!(!session.is_killed);
        assert_eq!(session.reply.bytes, expected);
        server.sessions[slot] = Some(session);
        server.pin_backlog();
        assert_eq!(server.replication.backlog.as_ref().unwrap().len(), 10, "nobody needs more");
    }

    /// What it asks for goes on from what it has applied, which its own file need not hold.
    #[test]
    fn a_replica_that_goes_on_where_it_was_is_trusted_before_it_has_acknowledged_anything() {
        let mut server = Server::new(crate::settings::Settings::default(), 0, 1);
        server.replication.begin_backlog(1000);
        server.choose_effects();
        server.effects.add(0, &[b"SET", b"a", b"1"]);
        server.take_effects();
        server.effects.clear();
        server.replicate();
        let end = server.replication.offset;
        let mut session = Session::new(1, 0, "a:1".to_owned(), "b:1".to_owned(), 0);
        (session.is_authenticated, session.may_all) = (true, true);
        server.sessions.push(None);
        let (id, next) = (server.replication.id.clone(), (end + 1).to_string());
        let nothing = "0".to_owned();
        for (words, trusted) in
            [(["PSYNC", &id, &next], 0), (["REPLCONF", "ACK", &nothing], 0), (["REPLCONF", "ACK", &end.to_string()], 1)]
        {
            let args = crate::protocol::OwnedArgs::new(words.iter().map(|word| word.as_bytes()));
            crate::command::execute(&mut server, &mut session, args.as_args());
            server.sessions[0] = Some(Box::new(std::mem::take(&mut session)));
            assert_eq!(server.acknowledgements(end), trusted, "{words:?}");
            session = *server.sessions[0].take().unwrap();
        }
    }

    #[test]
    fn a_promotion_in_the_middle_of_a_transaction_leaves_two_whole_ones() {
        for (before, after) in [(1, 1), (1, 2), (2, 2), (0, 1), (2, 0)] {
            let mut server = Server::new(crate::settings::Settings::default(), 0, 1);
            server.writes_aof = true;
            server.follow("host".to_owned(), 1);
            server.effects.begin_transaction();
            let change = |server: &mut Server| server.effects.add(0, &[b"SET", b"a", b"1"]);
            (0..before).for_each(|_| change(&mut server));
            server.lead();
            server.replication.begin_backlog(1000);
            server.choose_effects();
            (0..after).for_each(|_| change(&mut server));
            server.effects.end_transaction();
            let stream = String::from_utf8_lossy(&server.effects.unreplicated()).into_owned();
            let whole = usize::from(after > 1);
            assert_eq!(stream.matches("MULTI").count(), whole, "{before} before, {after} behind");
            assert_eq!(stream.matches("EXEC").count(), whole, "{before} before, {after} behind");
            assert_eq!(stream.matches("SET").count(), after, "{before} before, {after} behind");
        }
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
}
