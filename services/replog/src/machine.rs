//! What the log is for: a state that every member computes alike.

use bytes::Bytes;

use crate::entry::Entry;

/// A snapshot that does not hold a state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the snapshot cannot be restored: {0}")]
pub struct RestoreError(pub String);

/// A deterministic state machine: equal entries in equal order make equal states and replies, on every member, today and when
/// the log is replayed. No clock, no randomness, no iteration order that differs; [`Entry::time_millis`] is the only time.
pub trait StateMachine {
    /// What is told to whom proposed a command.
    type Reply;

    /// Applies a command. Only entries of kind [`crate::EntryKind::Command`] come here, each once between restores.
    fn apply(&mut self, entry: &Entry) -> Self::Reply;

    /// All of the state, as bytes; equal states give equal bytes.
    fn snapshot(&self) -> Bytes;

    /// Replaces the state by what [`StateMachine::snapshot`] gave.
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), RestoreError>;
}
