//! Messages to those who listen to channels, and keyspace events, which are such messages.

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

impl Server {
    /// Tells of a keyspace event.
    #[inline]
    pub fn notify(&mut self, class: Classes, event: &str, database: usize, key: &[u8]) {
        if self.settings.events & events::NEW != 0 {
            self.tell_new_keys(database);
        }
        if self.settings.events & class != 0 {
            self.tell_event(event, database, key);
        }
    }

    /// Whether keys that are new are noted while a command runs.
    #[cold]
    pub fn note_new_keys(&mut self, wanted: bool) {
        for database in 0..self.databases.len() {
            self.tell_new_keys(database);
            self.databases[database].note_new_keys(wanted);
        }
    }

    /// Tells of keys that are new, before what else happened to them.
    #[cold]
    fn tell_new_keys(&mut self, database: usize) {
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
            Some(Some(session)) => {
                message.push_to(&mut session.reply);
                self.woken.push(slot);
            }
            _ => self.own_messages.push((slot, message)),
        }
    }
}
