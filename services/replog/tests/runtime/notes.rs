//! What servers say to each other on the connections of the log.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use replog::runtime::Transport;
use replog::runtime::tcp::{self, Host, Peers, Tcp, TcpOptions};

use crate::group::LONG;

struct Server {
    notes: Mutex<Sender<(u64, Bytes)>>,
    gate: Arc<Mutex<()>>,
    removed: u64,
}

impl Host for Server {
    fn note(&self, from: u64, note: Bytes) {
        drop(self.gate.lock());
        let _ = self.notes.lock().unwrap().send((from, note));
    }

    fn introduction(&self) -> Vec<u8> {
        b"we are two".to_vec()
    }

    fn is_removed(&self, member: u64) -> bool {
        member == self.removed
    }

    fn log(&self) -> u64 {
        0
    }
}

struct Side {
    tcp: Tcp,
    peers: Peers,
    notes: Receiver<(u64, Bytes)>,
    /// While it is held, nothing is received.
    gate: Arc<Mutex<()>>,
}

/// A transport without a log behind it, which does not let a removed member in.
fn side(id: u64, listener: TcpListener, addresses: &BTreeMap<u64, String>, removed: u64) -> Side {
    let (notes, received) = channel();
    let gate = Arc::new(Mutex::new(()));
    let host = Server { notes: Mutex::new(notes), gate: Arc::clone(&gate), removed };
    let options = TcpOptions::new(id, 7, vec![listener], addresses.clone());
    let mut tcp = Tcp::new(TcpOptions { host: Some(Arc::new(host)), ..options });
    let peers = tcp.peers();
    tcp.start(Arc::new(|_| {}), Arc::new(|_| {})).unwrap();
    Side { tcp, peers, notes: received, gate }
}

fn two() -> (Vec<TcpListener>, BTreeMap<u64, String>) {
    let listeners: Vec<_> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
    let addresses = (1..).zip(listeners.iter().map(address)).collect();
    (listeners, addresses)
}

#[test]
fn servers_send_each_other_notes_in_order() {
    let (listeners, addresses) = two();
    let mut listeners = listeners.into_iter();
    let one = side(1, listeners.next().unwrap(), &addresses, 0);
    let two = side(2, listeners.next().unwrap(), &addresses, 0);
    harness::until("members to connect without being asked", || two.peers.here_since(1).is_some());
    for number in 0..100_u8 {
        one.peers.send(2, Bytes::from(vec![number; 1000]));
    }
    for number in 0..100_u8 {
        assert_eq!(two.notes.recv_timeout(LONG).unwrap(), (1, Bytes::from(vec![number; 1000])));
    }
    drop(one.tcp);
    harness::until("who has gone to be seen to have", || two.peers.here_since(1).is_none());
}

/// Who sends writes itself what the socket takes; the rest, and what comes after, must follow in order.
#[test]
fn notes_to_a_member_that_does_not_read_for_a_while_arrive_whole_and_in_order() {
    const NOTES: u32 = 3_000;
    let (listeners, addresses) = two();
    let mut listeners = listeners.into_iter();
    let one = side(1, listeners.next().unwrap(), &addresses, 0);
    let two = side(2, listeners.next().unwrap(), &addresses, 0);
    harness::until("members to connect without being asked", || two.peers.here_since(1).is_some());
    let note = |number: u32| Bytes::from(number.to_le_bytes().repeat(2_000));
    {
        // Of a sender that works ahead, receivers come to a stop here.
        let _gate = two.gate.lock().unwrap();
        (0..NOTES).for_each(|number| one.peers.send(2, note(number)));
    }
    for number in 0..NOTES {
        assert_eq!(two.notes.recv_timeout(LONG).unwrap(), (1, note(number)), "note {number}");
    }
}

#[test]
fn a_newcomer_is_told_whom_it_joins() {
    let (mut listeners, addresses) = two();
    let _one = side(1, listeners.remove(0), &addresses, 0);
    assert_eq!(tcp::ask(&addresses[&1], None).unwrap(), b"we are two");
}

#[test]
fn a_removed_member_is_told_so() {
    let (listeners, addresses) = two();
    let mut listeners = listeners.into_iter();
    let _one = side(1, listeners.next().unwrap(), &addresses, 2);
    let two = side(2, listeners.next().unwrap(), &addresses, 0);
    harness::until("member 1 to say that member 2 was removed", || two.peers.is_removed());
}

/// The connection to a member that was killed takes one more message before it says that nobody is there: the first answer to
/// who has just come back was lost.
#[test]
fn the_first_note_to_a_member_that_came_back_arrives() {
    let (listeners, addresses) = two();
    let mut listeners = listeners.into_iter();
    let one = side(1, listeners.next().unwrap(), &addresses, 0);
    let before = side(2, listeners.next().unwrap(), &addresses, 0);
    harness::until("2 to connect", || one.peers.here_since(2).is_some() && before.peers.here_since(1).is_some());
    drop(before.tcp);
    harness::until("2 to go", || one.peers.here_since(2).is_none());
    let again = side(2, TcpListener::bind(&addresses[&2]).unwrap(), &addresses, 0);
    harness::until("2 to be back", || one.peers.here_since(2).is_some() && again.peers.here_since(1).is_some());
    one.peers.send(2, Bytes::from_static(b"welcome"));
    assert_eq!(again.notes.recv_timeout(LONG).unwrap(), (1, Bytes::from_static(b"welcome")));
}
