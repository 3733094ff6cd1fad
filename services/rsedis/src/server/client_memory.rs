//! Memory of clients: what each takes, and which go when all together take more than `maxmemory-clients`.

use super::Server;
use crate::connection::Connection;
use crate::log;
use crate::session::Session;

/// What clients take, as it was counted when something last happened to each.
#[derive(Clone, Debug, Default)]
pub struct ClientMemory {
    /// By slot; zero where nobody is, and for replicas and the master.
    by_slot: Vec<usize>,
    total: usize,
}

impl ClientMemory {
    fn note(&mut self, slot: usize, bytes: usize) {
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, 0);
        }
        self.total = self.total - self.by_slot[slot] + bytes;
        self.by_slot[slot] = bytes;
    }
}

/// Bytes of a client: its buffers, what it has queued, and what it watches, listens to and waits for.
pub fn bytes_of(session: &Session) -> usize {
    let names = session.channels.iter().chain(&session.patterns).chain(&session.shard_channels);
    let names = names.chain(session.watched.iter().map(|(_, name)| name));
    size_of::<Session>()
        + size_of::<Connection>()
        + session.reply.bytes.capacity()
        + session.query_capacity.max(session.query_bytes)
        + session.parser_bytes
        + session.transaction_memory()
        + names.map(|name| size_of::<Vec<u8>>() + name.capacity()).sum::<usize>()
        + session.tracking.as_ref().map_or(0, |tracking| tracking.bytes())
        + session.waiting.as_ref().map_or(0, |waiting| waiting.bytes())
}

impl Server {
    /// Counts the client at a slot anew.
    pub fn count_client(&mut self, slot: usize) {
        let bytes = match self.sessions.get(slot) {
            // Who is cut off is as good as gone: nobody else goes for what it took.
            Some(Some(session)) if !session.is_killed && !session.is_replica() && !session.is_master => {
                bytes_of(session)
            }
            _ => 0,
        };
        self.client_memory.note(slot, bytes);
    }

    /// Counts all clients anew: the limit was not looked at before.
    pub fn count_clients(&mut self) {
        self.client_memory = ClientMemory::default();
        (0..self.sessions.len()).for_each(|slot| self.count_client(slot));
    }

    /// Whether clients take too much by what the one at hand has asked for.
    pub fn is_over_with(&self, client: &Session) -> bool {
        let limit = usize::try_from(self.settings.clients_max).unwrap_or(usize::MAX);
        let counted = self.client_memory.by_slot.get(client.slot).copied().unwrap_or(0);
        limit > 0 && self.client_memory.total - counted + bytes_of(client) >= limit
    }

    /// What all clients take together, as far as it is counted.
    pub fn clients_bytes(&self) -> usize {
        self.client_memory.total
    }

    /// Slots of clients that have to go, the largest first, so that the others take less than the limit. Who has said `CLIENT NO-EVICT`
    /// counts, and stays.
    pub fn clients_to_evict(&mut self) -> Vec<usize> {
        let limit = usize::try_from(self.settings.clients_max).unwrap_or(usize::MAX);
        let mut total = self.client_memory.total;
        if limit == 0 || total < limit {
            return Vec::new();
        }
        let may_go = |session: &&Session| !session.no_evict && !session.is_replica() && !session.is_master;
        let sessions = self.sessions.iter().flatten().map(|session| &**session).filter(may_go);
        let of = |slot: usize| self.client_memory.by_slot.get(slot).copied().unwrap_or(0);
        let mut candidates: Vec<(usize, &Session)> = sessions.map(|session| (of(session.slot), session)).collect();
        candidates.sort_unstable_by_key(|(bytes, session)| (std::cmp::Reverse(*bytes), session.id));
        let mut victims = Vec::new();
        for (bytes, session) in candidates {
            if total < limit {
                break;
            }
            total -= bytes;
            victims.push(session.slot);
            log::notice(format!("Evicting client: {} {}, {bytes} bytes", session.id, session.address));
        }
        self.stats.evicted_clients += victims.len() as u64;
        victims
    }
}
