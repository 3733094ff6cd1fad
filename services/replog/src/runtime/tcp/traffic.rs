//! What went over the connections to and from each member, counted for monitoring.

use std::sync::atomic::{AtomicU64, Ordering};

/// What went to and came from a member since this one started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes that were sent to it.
    pub sent_bytes: u64,
    /// Bytes that came from it.
    pub received_bytes: u64,
    /// How often it could not be connected to, or a connection to it broke.
    pub send_failures: u64,
    /// Messages to it that were lost before they were sent: too many waited, there was no connection, or nobody has said where it is.
    pub lost_messages: u64,
    /// How often a connection from it broke.
    pub receive_failures: u64,
}

/// Where that is counted.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) sent_bytes: AtomicU64,
    pub(super) received_bytes: AtomicU64,
    pub(super) send_failures: AtomicU64,
    pub(super) lost_messages: AtomicU64,
    pub(super) receive_failures: AtomicU64,
}

impl Counted {
    pub(super) fn read(&self) -> Traffic {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Traffic {
            sent_bytes: read(&self.sent_bytes),
            received_bytes: read(&self.received_bytes),
            send_failures: read(&self.send_failures),
            lost_messages: read(&self.lost_messages),
            receive_failures: read(&self.receive_failures),
        }
    }
}

pub(super) fn add(count: &AtomicU64, more: usize) {
    count.fetch_add(more as u64, Ordering::Relaxed);
}
