//! What can go wrong, and whether a write may have happened all the same.

/// Who leads, as far as is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leader {
    /// Its number.
    pub id: u64,
    /// Where clients find it, `host:port`; empty if that is not known.
    pub address: String,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing has happened: the member that was asked does not lead.
    #[error("{}", .0.as_ref().map_or("no leader is known: is a majority running?".to_owned(), |leader| format!("not the leader, which is member {} at {}", leader.id, leader.address)))]
    NotLeader(Option<Leader>),
    /// Nothing has happened: too much is waiting.
    #[error("busy, try again")]
    Busy,
    /// Nothing has happened: it cannot be done now, and may be later.
    #[error("{0}")]
    NotNow(String),
    /// Nothing has happened: the member cannot do it any more, and another one may.
    #[error("{0}")]
    Failed(String),
    /// Nothing has happened, and nothing will with this request.
    #[error("{0}")]
    Invalid(String),
    /// The session has ended, or never was: what this attempt asked for has not happened, but what an earlier one asked for may have.
    #[error("the session has ended: {0}")]
    NoSession(String),
    /// The session's client has said that it has the answer to this write: it has not happened again.
    #[error("{0}")]
    Forgotten(String),
    /// Nothing has happened: the user may not do so, or is not known.
    #[error("{0}")]
    Denied(String),
    /// It may have happened, or may yet happen.
    #[error("the outcome is not known: {0}")]
    UnknownOutcome(String),
    /// A read has found no quorum in time.
    #[error("no quorum was found in time: is a majority running?")]
    NoQuorum,
    /// The events from there on are not kept any more.
    #[error("events before revision {0} are not kept any more: read, and watch from what was read")]
    TooOld(u64),
    /// Nothing has happened: nobody could be asked.
    #[error("no member can be reached: {0}")]
    Unreachable(String),
    /// Nothing has happened: the member is ending, or has ended.
    #[error("the member has ended")]
    Stopped,
}

impl Error {
    /// Whether a write that was answered so may have happened, or may yet happen.
    pub fn may_have_happened(&self) -> bool {
        matches!(self, Self::UnknownOutcome(_))
    }

    /// Whether the same request may succeed if it is sent again, perhaps to another member.
    pub fn is_temporary(&self) -> bool {
        !matches!(self, Self::Invalid(_) | Self::NoSession(_) | Self::Forgotten(_) | Self::TooOld(_) | Self::Denied(_))
    }
}
