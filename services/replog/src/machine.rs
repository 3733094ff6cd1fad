//! What the log is for: a state that every member computes alike.

use std::io::{self, Read, Write};

use crate::entry::Entry;

/// A snapshot that does not hold a state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the snapshot cannot be restored: {0}")]
pub struct RestoreError(pub String);

impl From<io::Error> for RestoreError {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

/// A state at some moment, that can be written as bytes, piece by piece: it may be large.
pub type SnapshotView = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send>;

/// A deterministic state machine: equal entries in equal order make equal states and replies, on every member, today and when
/// the log is replayed. No clock, no randomness, no iteration order that differs; [`Entry::time_millis`] is the only time.
pub trait StateMachine {
    /// What is told to whom proposed a command.
    type Reply;

    /// Applies a command. Only entries of kind [`crate::EntryKind::Command`] come here, each once between restores.
    fn apply(&mut self, entry: &Entry) -> Self::Reply;

    /// As [`StateMachine::apply`], where nobody waits for the reply: on members that did not propose the command, and when the log is
    /// replayed. The state becomes the same; what only the reply needs may be left out.
    fn apply_unasked(&mut self, entry: &Entry) {
        self.apply(entry);
    }

    /// Whether these commands together, each with whether somebody waits for its reply, may take longer than a few dozen
    /// milliseconds. Then they are applied on another thread, beside the protocol: a command that takes longer than an election, and
    /// of which this says that it does not, deposes a leader. Asked before they are applied, on the state before them; an estimate will do.
    fn takes_long<'a>(&self, commands: impl Iterator<Item = (&'a Entry, bool)>) -> bool {
        let _ = commands;
        false
    }

    /// Everything that was at hand has been applied, up to this index: time to show it to readers. Called after each batch of
    /// entries, commands or not, and before anybody is told that they succeeded; and after each [`StateMachine::restore`].
    fn applied(&mut self, index: u64) {
        let _ = index;
    }

    /// Up to which entry the state was kept over a restart by the machine itself; 0 if it was not. A snapshot that ends before is not
    /// restored. Entries up to here may be applied again, and must change nothing then. The machine may lag behind the log, and must
    /// never be ahead of it: what it keeps has been applied.
    fn kept(&self) -> u64 {
        0
    }

    /// What was kept is of another log, or ahead of it: the state is as before any entry from here on.
    fn forget(&mut self) -> Result<(), RestoreError> {
        Ok(())
    }

    /// Nothing is at hand: time for work that was put off and changes nothing that a reader sees. Called about once a tick while
    /// the log is idle, between other work: it should be quick.
    fn idle(&mut self) {}

    /// Everybody but this member is lost for good, and no member any more: see [`crate::runtime::Origin::Alone`].
    fn goes_on_alone(&mut self, id: u64) {
        let _ = id;
    }

    /// All of the state as it is now, to be written as bytes later and perhaps on another thread, while more is applied: this
    /// call should be quick. Equal states give equal bytes.
    fn snapshot(&self) -> SnapshotView;

    /// Replaces the state by what a [`SnapshotView`] wrote. Bytes are as they were written, or reading them fails; when this fails
    /// the member ends.
    fn restore(&mut self, snapshot: &mut dyn Read) -> Result<(), RestoreError>;

    /// What was just restored holds entries up to this time, and none that comes later has an earlier one: what ends at a time has ended
    /// by then, also where no entry comes.
    fn restored(&mut self, time_millis: u64) {
        let _ = time_millis;
    }
}
