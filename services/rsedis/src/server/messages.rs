//! Messages to those who listen to channels, and keyspace events, which are such messages.

use std::collections::HashMap;

use super::Server;
use crate::events::{self, Classes};
use crate::glob;
use crate::protocol::Reply;

/// What a client gets that listens to channels.
#[derive(Clone, Debug)]
pub struct Message {
    /// The pattern that matches its channel, if it came by one.
    pub pattern: Option<Vec<u8>>,
    /// It was sent by SPUBLISH.
    pub is_of_shard: bool,
    /// Where it was sent to.
    pub channel: Vec<u8>,
    /// What was sent.
    pub text: Vec<u8>,
}

impl Message {
    /// What it takes.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.channel.len() + self.text.len() + self.pattern.as_ref().map_or(0, Vec::len)
    }

    /// Writes it to its receiver.
    pub fn push_to(&self, reply: &mut Reply) {
        match &self.pattern {
            None => {
                reply.push(3);
                reply.bulk(if self.is_of_shard { b"smessage".as_slice() } else { b"message" });
            }
            Some(pattern) => {
                reply.push(4);
                reply.bulk(b"pmessage");
                reply.bulk(pattern);
            }
        }
        reply.bulk(&self.channel);
        reply.bulk(&self.text);
    }
}

/// Messages for clients whose commands run, which are not among the sessions; by their slots.
#[derive(Debug, Default)]
pub struct OwnMessages {
    messages: Vec<(usize, Message)>,
    /// What they take, by slot; nothing: too much, and the client is to be cut off.
    bytes: HashMap<usize, Option<usize>>,
}

impl OwnMessages {
    /// Whether there is nothing to tell anybody.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What the messages take.
    pub fn bytes(&self) -> usize {
        self.bytes.values().flatten().sum()
    }

    /// A message for the client at a slot, for whom no more bytes than these may wait; 0: any number.
    fn push(&mut self, slot: usize, message: Message, most: u64) {
        let Some(bytes) = self.bytes.entry(slot).or_insert(Some(0)) else { return };
        *bytes += message.bytes();
        if most > 0 && *bytes as u64 > most {
            self.bytes.insert(slot, None);
            self.messages.retain(|(receiver, _)| *receiver != slot);
        } else {
            self.messages.push((slot, message));
        }
    }

    /// Takes those of the client at a slot, in their order; nothing: there were too many of them.
    pub fn take(&mut self, slot: usize) -> Option<Vec<Message>> {
        let bytes = self.bytes.remove(&slot).unwrap_or(Some(0));
        let (own, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.messages).into_iter().partition(|(receiver, _)| *receiver == slot);
        self.messages = others;
        bytes.map(|_| own.into_iter().map(|(_, message)| message).collect())
    }
}

impl Server {
    /// Tells of a keyspace event.
    #[inline]
    pub fn notify(&mut self, class: Classes, event: &str, database: usize, key: &[u8]) {
        self.tell_new_keys(database);
        if self.settings.events & class != 0 {
            self.tell_event(event, database, key);
        }
    }

    /// Whether keys that are new are noted while a command runs.
    #[cold]
    pub fn note_new_keys(&mut self, wanted: bool) {
        for database in 0..self.databases.len() {
            self.tell_noted_keys(database);
            self.databases[database].note_new_keys(wanted);
        }
    }

    /// Tells of keys that are new, before what else happened to them.
    #[inline]
    pub fn tell_new_keys(&mut self, database: usize) {
        if self.settings.events & events::NEW != 0 {
            self.tell_noted_keys(database);
        }
    }

    #[cold]
    fn tell_noted_keys(&mut self, database: usize) {
        for name in self.databases[database].take_new_keys() {
            self.tell_event("new", database, &name);
        }
    }

    fn tell_event(&mut self, event: &str, database: usize, key: &[u8]) {
        if self.settings.events & events::KEYSPACE != 0 {
            let channel = [format!("__keyspace@{database}__:").as_bytes(), key].concat();
            self.publish(&channel, event.as_bytes());
        }
        if self.settings.events & events::KEYEVENT != 0 {
            self.publish(format!("__keyevent@{database}__:{event}").as_bytes(), key);
        }
    }

    /// Sends a message to all who listen to a channel; how many.
    pub fn publish(&mut self, channel: &[u8], text: &[u8]) -> usize {
        let mut receivers: Vec<(usize, Option<Vec<u8>>)> = Vec::new();
        if let Some(slots) = self.channels.get(channel) {
            receivers.extend(slots.iter().map(|slot| (*slot, None)));
        }
        for (pattern, slots) in self.patterns.iter().filter(|(pattern, _)| glob::matches(pattern, channel)) {
            receivers.extend(slots.iter().map(|slot| (*slot, Some(pattern.clone()))));
        }
        let count = receivers.len();
        for (slot, pattern) in receivers {
            self.give(slot, Message { pattern, is_of_shard: false, channel: channel.to_vec(), text: text.to_vec() });
        }
        count
    }

    /// Sends a message to all who listen to a channel of SSUBSCRIBE; how many.
    pub fn publish_to_shard(&mut self, channel: &[u8], text: &[u8]) -> usize {
        let receivers = self.shard_channels.get(channel).cloned().unwrap_or_default();
        for slot in &receivers {
            let message = Message { pattern: None, is_of_shard: true, channel: channel.to_vec(), text: text.to_vec() };
            self.give(*slot, message);
        }
        receivers.len()
    }

    fn give(&mut self, slot: usize, message: Message) {
        match self.sessions.get_mut(slot) {
            // Nobody will read it.
            Some(Some(session)) if session.is_killed => {}
            Some(Some(session)) => {
                message.push_to(&mut session.reply);
                self.woken.push(slot);
                self.bound_output(slot);
            }
            _ => self.own_messages.push(slot, message, self.settings.pubsub_limit.hard),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Connection;
    use crate::session::Session;
    use crate::settings::OutputLimit;

    const LIMIT: u64 = 1 << 20;

    /// One client, which listens to a channel, and is there unless its own command runs.
    fn server(is_there: bool) -> (Server, Session) {
        let mut server = Server::new(crate::settings::Settings::default(), 0, 1);
        server.settings.pubsub_limit = OutputLimit { hard: LIMIT, soft: 0, seconds: 0 };
        server.channels.insert(b"channel".to_vec(), vec![0]);
        let mut session = Session::new(1, 0, "a:1".to_owned(), "b:1".to_owned(), 0);
        session.channels.insert(b"channel".to_vec());
        (session.is_authenticated, session.may_all, session.reply.is_resp3) = (true, true, true);
        server.sessions.push(None);
        server.connections.push(None);
        if is_there {
            server.sessions[0] = Some(Box::new(std::mem::take(&mut session)));
            server.connections[0] = Some(Connection::default());
        }
        (server, session)
    }

    #[test]
    fn messages_for_one_listener_grow_without_end_in_one_turn() {
        let (mut server, _) = server(true);
        for _ in 0..200 {
            assert_eq!(server.publish(b"channel", &[b'x'; 100_000]), 1);
            let session = server.sessions[0].as_ref().unwrap();
            assert!(session.reply.bytes.len() as u64 <= LIMIT + 200_000, "{}", session.reply.bytes.len());
        }
        let session = server.sessions[0].as_ref().unwrap();
        assert!(session.is_killed && session.reply.bytes.capacity() == 0);
        assert!(server.woken.contains(&0), "the loop closes it");
    }

    #[test]
    fn messages_for_the_one_whose_command_runs_grow_without_end() {
        let (mut server, mut session) = server(false);
        for line in ["PUBLISH key value", "GET key"] {
            let mut kept = 0;
            for _ in 0..200 {
                server.publish(b"channel", &[b'x'; 100_000]);
                kept = server.own_messages.bytes();
                assert!(kept as u64 <= LIMIT + 200_000, "{kept}");
            }
            assert_eq!(kept, 0, "nobody will read them");
            session.is_killed = false;
            let args = crate::protocol::OwnedArgs::new(line.split(' ').map(str::as_bytes));
            crate::command::execute(&mut server, &mut session, args.as_args());
            assert!(session.is_killed, "{line}");
        }
    }

    #[test]
    fn what_a_monitor_is_shown_grows_without_end_in_one_turn() {
        let (mut server, _) = server(true);
        server.monitors.push(0);
        let mut other = Session { is_authenticated: true, may_all: true, slot: 1, ..Session::default() };
        for _ in 0..200 {
            let args = crate::protocol::OwnedArgs::new([b"ECHO".as_slice(), &[b'x'; 100_000]]);
            crate::command::execute(&mut server, &mut other, args.as_args());
        }
        let session = server.sessions[0].as_ref().unwrap();
        assert!(session.is_killed && session.reply.bytes.capacity() == 0);
    }
}
