//! Hashes of everything that a member keeps, for whoever asks; and of what it kept before compactions. From etcd's
//! `server/storage/mvcc/hash.go`.
//!
//! Promises: one hash is made at a time, by a thread that comes after everything else, whoever asked for it. After a compaction that succeeded
//! its revision has the hash that was right before it, as in etcd: members compare them. The newest ten are remembered, until the member stops;
//! when compactions come faster than they can be hashed, only the newest are.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use service_kit::grpc::Status;
use tokio::sync::Semaphore;

use crate::aside::Aside;
use crate::store::{Error, KeyValueHash, Keyspace, Reader, hash_key_values};

/// As etcd.
const REMEMBERED_MAX: usize = 10;
/// Each keeps alive what its compaction would free.
const WAITING_MAX: usize = 2;

/// The hashes; clones are the same.
#[derive(Clone, Debug)]
pub struct Hashes(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    aside: Aside,
    clients: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What was there before compactions.
    waiting: VecDeque<(Keyspace, i64)>,
    /// A thread waits for its turn to hash that.
    is_begun: bool,
    /// Another member's question waits for its turn.
    is_asked: bool,
    known: VecDeque<KeyValueHash>,
}

impl Default for Hashes {
    fn default() -> Self {
        Self(Arc::new(Inner { aside: Aside::new("hash", 1), clients: Semaphore::new(1), state: Mutex::default() }))
    }
}

impl Hashes {
    /// The newest revision of a member, and the hash at one of its revisions, 0 for the newest. Takes time.
    pub async fn at(&self, reader: &Reader, revision: i64) -> Result<Result<(i64, KeyValueHash), Error>, Status> {
        let (this, reader) = (self.clone(), reader.clone());
        self.0.aside.run(move || this.hash(&reader, revision)).await
    }

    /// The same for a client. However many ask, members wait behind one of them at most.
    pub async fn at_for_client(
        &self,
        reader: &Reader,
        revision: i64,
    ) -> Result<Result<(i64, KeyValueHash), Error>, Status> {
        let _turn = self.0.clients.acquire().await;
        self.at(reader, revision).await
    }

    /// The same for another member, on whatever thread. One such question waits for its turn, and the next is refused meanwhile: who asks gives up
    /// after some seconds, and asks again.
    pub fn ask(
        &self,
        reader: &Reader,
        revision: i64,
        done: impl FnOnce(Result<(i64, KeyValueHash), Error>) + Send + 'static,
    ) {
        if std::mem::replace(&mut self.lock().is_asked, true) {
            return done(Err(Error::TooManyRequests));
        }
        let (this, reader) = (self.clone(), reader.clone());
        let begun = self.0.aside.begin(move || {
            this.lock().is_asked = false;
            done(this.hash(&reader, revision));
        });
        if let Err(error) = begun {
            self.lock().is_asked = false;
            tracing::warn!(%error, "no thread to hash what another member asks for: it hears nothing");
        }
    }

    /// Hashes what was there before the compaction at `revision`, soon.
    pub fn begin(&self, before: Keyspace, revision: i64) {
        let mut state = self.lock();
        if state.waiting.len() >= WAITING_MAX {
            state.waiting.pop_front();
        }
        state.waiting.push_back((before, revision));
        if state.is_begun {
            return;
        }
        let this = self.clone();
        let begun = self.0.aside.begin(move || {
            this.lock().is_begun = false;
            this.hash_waiting();
        });
        match begun {
            Ok(()) => state.is_begun = true,
            Err(error) => {
                tracing::warn!(%error, "no thread to hash a compacted revision: its hash will not be remembered");
                state.waiting.clear();
            }
        }
    }

    /// All of compactions that are remembered.
    pub fn newest_first(&self) -> Vec<KeyValueHash> {
        let mut known = self.lock().known.iter().copied().collect::<Vec<_>>();
        known.sort_by_key(|known| std::cmp::Reverse(known.hash_revision));
        known
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For who has the turn.
    fn hash(&self, reader: &Reader, revision: i64) -> Result<(i64, KeyValueHash), Error> {
        // Before it looks at what is remembered: what is compacted later is still in the view.
        let view = reader.view();
        self.hash_waiting();
        let hash = match self.remembered(revision) {
            Some(remembered) => remembered,
            None => view.hash_key_values(revision)?,
        };
        Ok((view.revision(), hash))
    }

    /// Of a compaction.
    fn remembered(&self, revision: i64) -> Option<KeyValueHash> {
        self.lock().known.iter().find(|known| known.hash_revision == revision).copied()
    }

    /// For who has the turn, whoever that is: another one would have to wait for it.
    fn hash_waiting(&self) {
        loop {
            let next = self.lock().waiting.pop_front();
            let Some((before, revision)) = next else { return };
            let hash = hash_key_values(&before, revision);
            drop(before);
            if let Ok(hash) = hash {
                let mut state = self.lock();
                state.known.push_back(hash);
                if state.known.len() > REMEMBERED_MAX {
                    state.known.pop_front();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use futures::executor::block_on;

    use super::*;
    use crate::store::Store;

    /// In its turn.
    fn of_compaction(hashes: &Hashes, revision: i64) -> Option<KeyValueHash> {
        let of = hashes.clone();
        let look = move || {
            of.hash_waiting();
            of.remembered(revision)
        };
        block_on(hashes.0.aside.run(look)).unwrap()
    }

    /// A leader gives up and asks again: threads that waited for one another piled up.
    #[test]
    fn one_question_of_another_member_waits_and_the_next_is_refused() {
        let hashes = Hashes::default();
        let reader = Store::default().reader();
        let ((has_turn, turn), (end, gate)) = (channel(), channel::<()>());
        let something_else = move || {
            has_turn.send(()).unwrap();
            let _ = gate.recv();
        };
        hashes.0.aside.begin(something_else).unwrap();
        turn.recv().unwrap();
        let ask = || {
            let (tell, told) = channel();
            hashes.ask(&reader, 0, move |hash| tell.send(hash.map(|(revision, _)| revision)).unwrap());
            told
        };
        let (first, second) = (ask(), ask());
        assert_eq!(second.recv().unwrap(), Err(Error::TooManyRequests));
        assert!(first.try_recv().is_err(), "another hash has the turn");
        drop(end);
        assert!(first.recv().unwrap().is_ok());
        assert!(ask().recv().unwrap().is_ok());
    }

    #[test]
    fn the_hash_of_a_compacted_revision_stays_what_it_was() {
        let mut space = Keyspace::default();
        let hashes = Hashes::default();
        for round in 1..=12_i64 {
            for value in ["first", "second"] {
                space.write(&mut Vec::new()).put(b"key", value.as_bytes(), 0);
            }
            let at = space.revision();
            let before = hash_key_values(&space, at).unwrap();
            let kept = space.clone();
            space.compact(at).unwrap();
            while !space.sweep(10, i64::MAX) {}
            assert_eq!(hashes.remembered(at), None);
            hashes.begin(kept, at);
            assert_eq!(of_compaction(&hashes, at), Some(before));
            assert_ne!(hash_key_values(&space, at).unwrap().hash, before.hash, "round {round}");
        }
        assert_eq!(hashes.lock().known.len(), REMEMBERED_MAX);
        assert_eq!(of_compaction(&hashes, 3), None);
    }
}
