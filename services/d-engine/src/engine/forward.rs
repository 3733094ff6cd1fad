//! Writes that are given to a member that does not lead: it hands them to the leader, once, and says what came of them.

use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use d_engine_client::{Error, Written};
use replog::runtime::identity::CaughtUp;
use replog::runtime::tcp::Host;
use replog::runtime::{Committed, Leading, SubmitError};
use service_kit::grpc::Room;
use tokio::time::timeout;

use super::identity::{Introduction, Serial};
use super::{Inner, Node};
use crate::machine::{Broken, Reply, Shown};
use crate::state::{Applied, Known, Principal};

/// In front of a reply on its way: the member's state cannot go on, or what the command came to follows.
const BROKEN: u8 = 0;
const APPLIED: u8 = 1;

/// What commands that wait for a leader or for its answer may take at a member, bytes: beyond, nobody is kept waiting.
pub(super) const FORWARDING_BYTES_MAX: usize = 64 << 20;
/// What such a command costs besides its bytes, about.
const COMMAND_BYTES: usize = 1 << 10;

/// What this store brings along so that commands can be given to any member.
pub(super) struct Leader;

impl Leading for Leader {
    type Reply = Reply;

    fn encode(reply: &Reply) -> Bytes {
        match reply {
            Err(Broken) => vec![BROKEN].into(),
            Ok(applied) => [&[APPLIED][..], &applied.encode()].concat().into(),
        }
    }

    fn decode(mut reply: Bytes) -> Option<Reply> {
        let kind = reply.first().copied()?;
        match kind {
            BROKEN if reply.len() == 1 => Some(Err(Broken)),
            APPLIED => Applied::decode(reply.split_off(1)).ok().map(Ok),
            _ => None,
        }
    }

    /// Leaders are asked nothing.
    fn answer(&self, _: &Bytes) -> Option<Bytes> {
        None
    }
}

/// What a member is to the others, on the connections of the log.
pub(super) struct Neighbour {
    shown: Shown,
    serial: Arc<Serial>,
    /// Weak: the member owns the connections that own this.
    node: OnceLock<Weak<Inner>>,
    caught_up: CaughtUp,
}

impl Neighbour {
    pub(super) fn new(shown: Shown, serial: Arc<Serial>) -> Self {
        Self { shown, serial, node: OnceLock::new(), caught_up: CaughtUp::default() }
    }

    /// From now on this one hears what others send; what came earlier is lost, and its sender is told by the next change of leaders.
    pub(super) fn hears(&self, node: &Node) {
        // There is one; a second one would not be listened to.
        let _ = self.node.set(Arc::downgrade(&node.0));
    }

    fn node(&self) -> Option<Node> {
        self.node.get()?.upgrade().map(|inner| Node(inner, Principal::Process))
    }
}

impl Host for Neighbour {
    fn note(&self, from: u64, note: Bytes) {
        let Some(node) = self.node() else { return };
        // Entries are taken of whoever leads, who may have become a member while this one was away; what is handed on comes of members that this one
        // knows, or is answered to it by them.
        if !node.members().contains_key(&from) {
            tracing::warn!(from, "what a member sent that is not known here is not handed on");
            return;
        }
        node.0.forwarder.note(from, &note);
    }

    /// Tells newcomers who has been seen, and whom they join; nothing if it cannot tell, so that they ask another. Who was told that nobody
    /// was seen would begin anew.
    fn introduction(&self) -> Vec<u8> {
        // Before it looks at the state.
        let node = self.node().filter(|node| self.caught_up.has(|| node.status()));
        let Some(known) = self.shown.known() else {
            tracing::warn!("a newcomer is not told who the members are: the state of this one has ended");
            return Vec::new();
        };
        let those =
            |is: fn(&Known) -> bool| known.members.iter().filter(|(_, known)| is(known)).map(|(id, _)| *id).collect();
        let (seen, removed) = (those(|known| known.is_seen), those(|known| known.is_removed));
        let (group, member, members) = match node {
            Some(node) => (node.group().written(), node.id(), (*node.members()).clone()),
            None => Default::default(),
        };
        let serial = self.serial.told();
        serde_json::to_vec(&Introduction { seen, group, serial, member, members, removed }).unwrap_or_default()
    }

    fn log(&self) -> u64 {
        self.serial.get()
    }

    /// Only when the log has no more use for it either: to leave it needs its own voice.
    fn is_removed(&self, member: u64) -> bool {
        self.node().is_some_and(|node| node.has_removed(member))
    }
}

impl Node {
    /// Hands a command to whoever leads, waits until it was applied there and here, and says what it came to. It is sent to one leader
    /// at most. Its room is taken before this returns: a command that waits for none is not held. On a tokio runtime.
    pub(super) fn forward(self, command: Bytes) -> impl Future<Output = Result<Written, Error>> + Send + 'static {
        let room = self.room_to_wait(&command);
        // What finds no room is not held.
        let command = room.is_ok().then_some(command);
        async move {
            let committed = match command {
                Some(command) => self.hand_over(command).await,
                None => Err(Error::Busy),
            };
            drop(room);
            match committed {
                Ok(committed) => self.written(Ok(committed)),
                Err(error) => {
                    self.counters().write(false);
                    Err(error)
                }
            }
        }
    }

    /// Room for a command while something is waited for before it enters the log.
    pub(super) fn room_to_wait(&self, command: &Bytes) -> Result<Room, Error> {
        let mut room = self.0.forwarding.room();
        room.grow(COMMAND_BYTES + command.len()).then_some(room).ok_or(Error::Busy)
    }

    /// Errors are of what it has not come to, and not of what the command does.
    async fn hand_over(&self, command: Bytes) -> Result<Committed<Reply>, Error> {
        let patience = self.options().forward_timeout;
        let mut leadership = self.leadership();
        // An election takes no longer, most of the time. Who finds no leader by then has sent nothing, and says so.
        match timeout(2 * self.options().election, leadership.wait_for(|now| now.leader.is_some())).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => return Err(Error::Stopped),
            Err(_) => return Err(Error::NotLeader(None)),
        }
        self.counters().forward();
        let submitted = timeout(patience, self.0.forwarder.submit(command)).await;
        let unknown = |why: &str| Err(Error::UnknownOutcome(why.into()));
        match submitted {
            Ok(Ok(committed)) => Ok(committed),
            Ok(Err(SubmitError::Busy)) => Err(Error::Busy),
            Ok(Err(SubmitError::TooLarge(bytes))) => Err(super::door::too_large(bytes)),
            Ok(Err(SubmitError::Unknown)) => unknown("the leader was lost meanwhile"),
            Ok(Err(SubmitError::NotHere)) => {
                unknown("it was applied by the leader, but not here in time, or this member has ended")
            }
            Ok(Err(SubmitError::Stopped)) => Err(Error::Stopped),
            Err(_) => unknown("the leader did not answer in time"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::machine::Machine;
    use crate::state::{Memory, Refusal};

    #[test]
    fn a_member_that_cannot_read_its_state_does_not_say_that_nobody_was_seen() {
        let machine = Machine::new(Memory::default()).unwrap();
        let neighbour = Neighbour::new(machine.shown(), Arc::new(Serial::of(None)));
        assert!(!neighbour.introduction().is_empty());
        // Whoever asks now gets an error of the storage.
        drop(machine);
        assert!(neighbour.introduction().is_empty());
    }

    #[test]
    fn replies_arrive_as_they_were_given() {
        let refused = Applied { index: 7, term: 2, outcome: Err(Refusal::NoSession) };
        for reply in [Err(Broken), Ok(refused)] {
            assert_eq!(Leader::decode(Leader::encode(&reply)), Some(reply));
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_a_reply_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(reply) = Leader::decode(bytes.clone().into()) {
                prop_assert_eq!(Leader::encode(&reply), bytes);
            }
        }
    }
}
