//! Who belongs to a group.

use crate::codec::{Malformed, Reader, put_all};

/// Members of a group. While a change of several members is under way (joint consensus), a majority of `voters` *and* a
/// majority of `outgoing` is needed for anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// The members that vote.
    pub voters: Vec<u64>,
    /// Who gets the log and does not vote.
    pub learners: Vec<u64>,
    /// Who voted before the change that is under way.
    pub outgoing: Vec<u64>,
    /// Outgoing voters that will be learners.
    pub learners_next: Vec<u64>,
    /// The change that is under way ends by itself.
    pub leaves_by_itself: bool,
}

/// One change. Several together are made as one, by joint consensus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds a node that gets the log and does not vote; a voter becomes one.
    AddLearner(u64),
    /// Lets a learner vote. It must have caught up: [`crate::Rejected::NotCaughtUp`].
    Promote(u64),
    /// Removes a member.
    Remove(u64),
}

/// A member's number in lines of the log and in messages: hexadecimal, as etcd and its `raft` write it.
pub(crate) fn hex(id: u64) -> String {
    format!("{id:x}")
}

impl Membership {
    /// Members that vote from the beginning.
    pub fn of(voters: impl IntoIterator<Item = u64>) -> Self {
        let mut voters: Vec<u64> = voters.into_iter().collect();
        voters.sort_unstable();
        Self { voters, ..Self::default() }
    }

    /// All voters and learners, each once.
    pub fn all(&self) -> Vec<u64> {
        let mut all: Vec<u64> = [&self.voters, &self.learners, &self.outgoing, &self.learners_next]
            .into_iter()
            .flatten()
            .copied()
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether nobody else belongs to the group.
    pub fn is_only(&self, id: u64) -> bool {
        let others = [&self.learners, &self.outgoing, &self.learners_next];
        self.voters == [id] && others.iter().all(|others| others.is_empty())
    }

    /// Whether a change is under way.
    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Whether these are enough to decide.
    pub fn is_quorum(&self, has: impl Fn(u64) -> bool) -> bool {
        let majority = |voters: &[u64]| voters.iter().filter(|id| has(**id)).count() > voters.len() / 2;
        majority(&self.voters) && (self.outgoing.is_empty() || majority(&self.outgoing))
    }

    /// Whether it could have come of changes that were allowed.
    pub(crate) fn is_consistent(&self) -> bool {
        let has = |ids: &[u64], id: &u64| ids.contains(id);
        let is_sorted = |ids: &[u64]| ids.windows(2).all(|pair| pair[0] < pair[1]) && !ids.contains(&0);
        [&self.voters, &self.learners, &self.outgoing, &self.learners_next].into_iter().all(|ids| is_sorted(ids))
            && !self.voters.is_empty()
            && !self.learners.iter().any(|id| has(&self.voters, id) || has(&self.outgoing, id))
            && self.learners_next.iter().all(|id| has(&self.outgoing, id) && !has(&self.voters, id))
            && (self.is_joint() || !self.leaves_by_itself)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let Self { voters, learners, outgoing, learners_next, leaves_by_itself } = self;
        [voters, learners, outgoing, learners_next].into_iter().for_each(|ids| put_all(out, ids));
        out.push(u8::from(*leaves_by_itself));
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            voters: reader.all()?,
            learners: reader.all()?,
            outgoing: reader.all()?,
            learners_next: reader.all()?,
            leaves_by_itself: reader.flag()?,
        })
    }
}
