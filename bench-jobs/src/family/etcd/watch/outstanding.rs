//! Puts whose events have not arrived at every watcher: who sent them, when, and how many watchers are left.
//!
//! Shared by all threads of a workload, because a watcher on one thread is told of the puts of all. Bounded by the room
//! that each client has.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout;

/// See the module's description.
#[derive(Debug)]
pub struct Outstanding {
    watchers: u32,
    room: u32,
    patience: Duration,
    /// By key and version.
    puts: Mutex<HashMap<(u32, u32), Put>>,
    clients: Vec<Client>,
    spoilt: AtomicBool,
}

#[derive(Debug)]
struct Put {
    client: u32,
    due: Option<Instant>,
    sent: Instant,
    /// Watchers that have not been told.
    left: u32,
}

#[derive(Debug, Default)]
struct Client {
    /// Its puts in the table.
    puts: AtomicU32,
    /// One of them left the table.
    changed: Notify,
}

/// A put of which some watchers were not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The key's number.
    pub key: u32,
    /// How many watchers were not told.
    pub watchers: u32,
}

impl Outstanding {
    /// `room`: puts that each client may have outstanding. `patience`: how long a client waits while none of its puts
    /// makes progress.
    pub fn new(clients: u32, watchers: u32, room: u32, patience: Duration) -> Self {
        let clients = if room == 0 { 0 } else { clients };
        Self {
            watchers,
            room,
            patience,
            puts: Mutex::default(),
            clients: (0..clients).map(|_| Client::default()).collect(),
            spoilt: AtomicBool::new(false),
        }
    }

    /// A put is about to be sent.
    pub fn send(&self, key: u32, version: u32, client: u32, due: Option<Instant>, sent: Instant) {
        let put = Put { client, due, sent, left: self.watchers };
        self.table().insert((key, version), put);
        if let Some(client) = self.clients.get(client as usize) {
            client.puts.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A watcher was told: when its put was due and sent. `None`: no such put is under way.
    pub fn arrived(&self, key: u32, version: u32) -> Option<(Option<Instant>, Instant)> {
        let mut table = self.table();
        let put = table.get_mut(&(key, version))?;
        let times = (put.due, put.sent);
        put.left = put.left.saturating_sub(1);
        if put.left == 0 {
            let client = put.client as usize;
            table.remove(&(key, version));
            drop(table);
            if let Some(client) = self.clients.get(client) {
                client.puts.fetch_sub(1, Ordering::Relaxed);
                client.changed.notify_one();
            }
        }
        Some(times)
    }

    /// Waits until the client may send another put.
    pub async fn wait_for_room(&self, client: u32) -> Result<(), Missing> {
        self.wait_below(client, self.room).await
    }

    /// Waits until every watcher was told of every put of the client.
    pub async fn wait_for_all(&self, client: u32) -> Result<(), Missing> {
        self.wait_below(client, 1).await
    }

    /// A watcher went wrong: nobody waits any more.
    pub fn spoil(&self) {
        if !self.spoilt.swap(true, Ordering::Relaxed) {
            for client in &self.clients {
                client.changed.notify_one();
            }
        }
    }

    /// Whether a watcher went wrong.
    pub fn is_spoilt(&self) -> bool {
        self.spoilt.load(Ordering::Relaxed)
    }

    async fn wait_below(&self, client: u32, limit: u32) -> Result<(), Missing> {
        let Some(state) = self.clients.get(client as usize) else {
            return Ok(());
        };
        while !self.is_spoilt() {
            let puts = state.puts.load(Ordering::Relaxed);
            if puts < limit {
                return Ok(());
            }
            // A notification given since the load above is kept for this wait.
            if timeout(self.patience, state.changed.notified()).await.is_err()
                && let Some(missing) = self.oldest(client)
            {
                return Err(missing);
            }
        }
        Ok(())
    }

    fn oldest(&self, client: u32) -> Option<Missing> {
        let table = self.table();
        let of_client = table.iter().filter(|(_, put)| put.client == client);
        let (&(key, _), put) = of_client.min_by_key(|(_, put)| put.sent)?;
        Some(Missing { key, watchers: put.left })
    }

    fn table(&self) -> MutexGuard<'_, HashMap<(u32, u32), Put>> {
        // Nothing panics while it is held; if it did, the table would still be whole.
        self.puts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<F: Future>(future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(future)
    }

    #[test]
    fn a_put_is_under_way_until_each_watcher_was_told_once() {
        let outstanding = Outstanding::new(2, 3, 1, Duration::from_secs(1));
        let now = Instant::now();
        outstanding.send(7, 1, 0, None, now);
        for _ in 0..3 {
            assert_eq!(outstanding.arrived(7, 1), Some((None, now)));
        }
        assert_eq!(outstanding.arrived(7, 1), None);
        assert_eq!(outstanding.arrived(7, 2), None);
        assert_eq!(block_on(outstanding.wait_for_all(0)), Ok(()));
    }

    #[test]
    fn a_client_waits_for_its_own_puts_only_and_not_forever() {
        let outstanding = Outstanding::new(2, 2, 2, Duration::from_millis(50));
        outstanding.send(7, 1, 0, None, Instant::now());
        outstanding.arrived(7, 1);
        block_on(async {
            assert_eq!(outstanding.wait_for_room(0).await, Ok(()));
            assert_eq!(outstanding.wait_for_all(1).await, Ok(()));
            assert_eq!(outstanding.wait_for_all(0).await, Err(Missing { key: 7, watchers: 1 }));
            outstanding.spoil();
            assert_eq!(outstanding.wait_for_all(0).await, Ok(()));
        });
    }

    #[test]
    fn a_waiting_client_is_woken_from_another_thread() {
        let outstanding = Outstanding::new(1, 1, 1, Duration::from_secs(60));
        outstanding.send(7, 1, 0, None, Instant::now());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                outstanding.arrived(7, 1)
            });
            assert_eq!(block_on(outstanding.wait_for_room(0)), Ok(()));
        });
    }
}
