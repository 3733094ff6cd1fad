//! Replication as data: names, offsets, the backlog, replicas, the master that is followed. Without sockets, files and clocks: the
//! reactor moves the bytes.
//!
//! The stream is a sequence of commands ([`crate::effects`]); its *offset* is the number of its bytes so far. Its name, the *replication
//! id*, tells one history from another: two servers with the same name and offset hold the same keys. A replica that is promoted begins a
//! history of its own under a new name and keeps the old one as its second, up to where it was: who followed the old master can follow
//! it without beginning anew.
//!
//! What is not safe is not sent: while the append-only file cannot be written, the stream waits in [`Replication::pending`].

pub mod backlog;
pub mod failover;
pub mod link;
pub mod replica;

pub use backlog::Backlog;
pub use failover::{Failover, Question, Verdict};
pub use link::{Link, Master};
pub use replica::{Contents, Replica, Stage};

/// See the module's description.
#[derive(Debug)]
pub struct Replication {
    /// The name of the history.
    pub id: String,
    /// The name of the history before, and how many bytes of it are part of this one.
    pub second: Option<(String, u64)>,
    /// Bytes of the stream that were given to the backlog and to replicas.
    pub offset: u64,
    /// There once somebody has followed, or was followed.
    pub backlog: Option<Backlog>,
    /// Of the stream, and not yet given to anybody.
    pub pending: Vec<u8>,
    /// Slots of replicas that have asked for the stream.
    pub replicas: Vec<usize>,
    /// Somebody waits for acknowledgements: replicas are to be asked for them.
    pub wants_acknowledgements: bool,
    /// Since when there have been no replicas, milliseconds since 1970.
    pub alone_since: i64,
    /// Who is followed; nobody: this is a master.
    pub master: Option<Master>,
    /// A replica has acknowledged, or gone: who waits for that may go on.
    pub has_news: bool,
    /// A lead that is being handed over.
    pub failover: Option<Failover>,
}

impl Replication {
    /// Of a master without replicas.
    pub fn new(id: String, now: i64) -> Self {
        Self {
            id,
            second: None,
            offset: 0,
            backlog: None,
            pending: Vec::new(),
            replicas: Vec::new(),
            wants_acknowledgements: false,
            alone_since: now,
            master: None,
            has_news: false,
            failover: None,
        }
    }

    /// Whether a master is followed.
    #[inline]
    pub fn is_replica(&self) -> bool {
        self.master.is_some()
    }

    /// Bytes of the stream that this server's keys hold.
    pub fn applied(&self) -> u64 {
        self.offset + self.pending.len() as u64
    }

    /// Where the stream goes on for a replica that has so many bytes of a history (PSYNC asks for the byte behind them, counted from
    /// one); nothing: it needs all keys.
    pub fn continues(&self, id: &str, wanted: i64) -> Option<u64> {
        let wanted = u64::try_from(wanted).ok()?.checked_sub(1)?;
        let is_ours = self.id.eq_ignore_ascii_case(id);
        let is_second = || {
            self.second.as_ref().is_some_and(|(second, shared)| second.eq_ignore_ascii_case(id) && wanted <= *shared)
        };
        if !is_ours && !is_second() {
            return None;
        }
        self.backlog.as_ref()?.since(wanted).map(|_| wanted)
    }

    /// Another history begins here, which shares all before with the one so far.
    pub fn shift(&mut self, id: String) {
        let before = std::mem::replace(&mut self.id, id);
        self.second = Some((before, self.applied()));
    }

    /// Another history begins here, which shares nothing with any other.
    pub fn begin_anew(&mut self, id: String) {
        self.id = id;
        self.second = None;
        self.backlog = None;
        self.offset = self.applied();
        self.pending.clear();
    }

    /// A backlog without bytes.
    pub fn begin_backlog(&mut self, size: usize) {
        self.backlog = Some(Backlog::new(self.offset, size));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FIRST: &str = "1111111111111111111111111111111111111111";
    const SECOND: &str = "2222222222222222222222222222222222222222";

    fn replication(before: u64, bytes: &[u8]) -> Replication {
        let mut replication = Replication::new(FIRST.to_owned(), 0);
        replication.offset = before;
        replication.begin_backlog(16);
        if let Some(backlog) = &mut replication.backlog {
            backlog.append(bytes);
        }
        replication.offset += bytes.len() as u64;
        replication
    }

    #[test]
    fn without_a_backlog_or_with_another_name_all_keys_are_needed() {
        let mut replication = replication(100, b"0123456789");
        assert_eq!(replication.continues(FIRST, 101), Some(100));
        assert_eq!(replication.continues(FIRST, 111), Some(110), "nothing is missing");
        assert_eq!(replication.continues(FIRST, 112), None, "it has more than there is");
        assert_eq!(replication.continues(FIRST, 100), None, "that is no longer there");
        assert_eq!(replication.continues("?", -1), None);
        assert_eq!(replication.continues(SECOND, 105), None);
        replication.backlog = None;
        assert_eq!(replication.continues(FIRST, 105), None);
    }

    #[test]
    fn a_promoted_replica_goes_on_with_those_who_followed_its_master_as_far_as_they_share() {
        let mut replication = replication(100, b"0123456789");
        replication.shift(SECOND.to_owned());
        if let Some(backlog) = &mut replication.backlog {
            backlog.append(b"abc");
        }
        replication.offset += 3;
        assert_eq!(replication.continues(FIRST, 111), Some(110), "it has just what is shared");
        assert_eq!(replication.continues(FIRST, 106), Some(105));
        assert_eq!(replication.continues(FIRST, 112), None, "it has what this server never had");
        assert_eq!(replication.continues(SECOND, 114), Some(113));
    }

    proptest! {
        /// Several servers: what a partial resync gives makes the stream of the one who asked that of the one who answered.
        #[test]
        fn a_partial_resync_never_mixes_histories(
            shared in proptest::collection::vec(any::<u8>(), 0..30),
            ours in proptest::collection::vec(any::<u8>(), 0..30),
            theirs in proptest::collection::vec(any::<u8>(), 0..30),
            has in 0usize..70,
            is_promoted: bool,
        ) {
            // They followed FIRST together; then we were promoted, and they went on with FIRST for a while.
            let mut replication = replication(0, &shared);
            if is_promoted {
                replication.shift(SECOND.to_owned());
            }
            if let Some(backlog) = &mut replication.backlog {
                backlog.append(&ours);
            }
            replication.offset += ours.len() as u64;
            let our_stream = [&shared[..], &ours].concat();
            let their_history = if is_promoted { [&shared[..], &theirs].concat() } else { our_stream.clone() };
            let has = has.min(their_history.len());
            if let Some(from) = replication.continues(FIRST, has as i64 + 1) {
                prop_assert_eq!(from, has as u64);
                let (first, second) = replication.backlog.as_ref().and_then(|backlog| backlog.since(from)).unwrap_or_default();
                let becomes = [&their_history[..has], first, second].concat();
                prop_assert_eq!(becomes, our_stream);
            }
        }
    }
}
