//! How messages get from member to member. A transport may lose, repeat, delay and reorder them; it must not change them, and must
//! carry them between members of one group only.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::message::Message;

/// Takes a message that came for this member. Never waits.
pub type Deliver = Arc<dyn Fn(Message) + Send + Sync>;

/// Told that another member's connection to this one has closed, and no other has taken its place: its process has ended, most of
/// the time. What came on it was delivered before. Never waits.
pub type Closed = Arc<dyn Fn(u64) + Send + Sync>;

/// One member's side of a network.
pub trait Transport: Send + 'static {
    /// Begins. What comes for this member is given to `deliver`, on whatever thread; `closed` may be told never, where nobody can know.
    fn start(&mut self, deliver: Deliver, closed: Closed) -> io::Result<()>;

    /// Sends messages, or loses them. Must not wait for the network.
    fn send(&mut self, messages: Vec<Message>);

    /// Ends. Nothing is delivered any more when this returns.
    fn stop(&mut self);
}

/// A network within one process: for tests, and for groups of one.
#[derive(Clone, Default)]
pub struct LocalNetwork {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    members: BTreeMap<u64, Deliver>,
    cut: BTreeSet<(u64, u64)>,
}

impl LocalNetwork {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A member's side of it.
    pub fn join(&self, id: u64) -> Box<dyn Transport> {
        Box::new(LocalTransport { id, network: self.clone() })
    }

    /// Messages from one member to another are lost from now on, or no longer.
    pub fn cut(&self, from: u64, to: u64, is_cut: bool) {
        let mut state = self.lock();
        if is_cut {
            state.cut.insert((from, to))
        } else {
            state.cut.remove(&(from, to))
        };
    }
}

struct LocalTransport {
    id: u64,
    network: LocalNetwork,
}

impl Transport for LocalTransport {
    fn start(&mut self, deliver: Deliver, _: Closed) -> io::Result<()> {
        self.network.lock().members.insert(self.id, deliver);
        Ok(())
    }

    fn send(&mut self, messages: Vec<Message>) {
        for message in messages {
            let state = self.network.lock();
            let is_cut = state.cut.contains(&(message.from(), message.to()));
            let deliver = state.members.get(&message.to()).filter(|_| !is_cut).cloned();
            drop(state);
            if let Some(deliver) = deliver {
                deliver(message);
            }
        }
    }

    fn stop(&mut self) {
        self.network.lock().members.remove(&self.id);
    }
}
