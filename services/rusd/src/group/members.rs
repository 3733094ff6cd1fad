//! Makes the log's membership follow what the store says. The store's list of members is what the group has decided; the leader
//! carries it out, step by step, and a new leader goes on where the last one stopped. A new voter first gets the log as a learner,
//! so that the group never depends on who has nothing yet.

use std::sync::Arc;
use std::time::Duration;

use replog::runtime::RequestError;
use replog::{Change, Membership, Rejected};
use tokio::time::{sleep, timeout};

use super::Group;
use super::safety::Safety;
use crate::flags;
use crate::proto::etcdserverpb::Member;
use crate::settings::{Settings, hex};
use crate::store::{Cluster, Error};

/// How often it is looked at.
const ROUND: Duration = Duration::from_millis(50);
/// Without a leader for so many election timeouts, clients are told to look elsewhere.
const ELECTIONS_WITHOUT_LEADER: u32 = 3;

/// What brings the log's membership nearer to the store's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Change(Change),
    /// This member leads and shall go: another one must lead first.
    Resign,
}

/// All that is to be done, one after the other; what cannot be done yet does not hinder the rest.
fn steps(cluster: &Cluster, membership: &Membership, own: u64) -> Vec<Step> {
    let in_log = membership.all();
    let gone = in_log.iter().filter(|id| cluster.removed.contains(id));
    let leave = gone.map(|id| if *id == own { Step::Resign } else { Step::Change(Change::Remove(*id)) });
    let come = cluster.members.values().filter_map(|member| {
        if !in_log.contains(&member.id) {
            return Some(Step::Change(Change::AddLearner(member.id)));
        }
        let may_vote = !member.is_learner && membership.learners.contains(&member.id);
        may_vote.then_some(Step::Change(Change::Promote(member.id)))
    });
    leave.chain(come).collect()
}

/// What a change is, and of whom, as etcd's lines have it.
fn described(change: Change) -> (&'static str, String) {
    let (kind, id) = match change {
        Change::AddLearner(id) => ("ConfChangeAddLearnerNode", id),
        Change::Promote(id) => ("ConfChangeAddNode", id),
        Change::Remove(id) => ("ConfChangeRemoveNode", id),
    };
    (kind, hex(id))
}

/// Where other members reach one, `host:port`.
pub fn peer_address(member: &Member) -> Option<String> {
    let url = member.peer_ur_ls.iter().find_map(|url| flags::url("", url).ok())?;
    Some(format!("{}:{}", url.host, url.port))
}

impl Group {
    /// Keeps membership and addresses as the store has them, for as long as the member runs.
    pub async fn keep_members(&self) {
        let mut told: Option<Arc<Cluster>> = None;
        loop {
            let view = self.reader.view();
            let status = self.handle.status();
            if !told.as_ref().is_some_and(|told| Arc::ptr_eq(told, &view.cluster)) {
                told = self.tell_addresses(&view.cluster).then(|| Arc::clone(&view.cluster));
            }
            self.hang_up(&view.cluster, &status.membership);
            if self.leadership.borrow().is_ready_leader && !status.membership.is_joint() {
                self.carry_out(steps(&view.cluster, &status.membership, self.id)).await;
            }
            sleep(ROUND).await;
        }
    }

    /// Tells the transport where members are; false: not of all of them, to be tried again.
    fn tell_addresses(&self, cluster: &Cluster) -> bool {
        let mut is_complete = true;
        for member in cluster.members.values().filter(|member| member.id != self.id) {
            let Some(address) = peer_address(member) else { continue };
            if let Err(problem) = self.peers.set(member.id, Some(&address)) {
                is_complete = false;
                tracing::warn!(%problem, "remote-peer-id" = hex(member.id), "cannot be sent to");
            }
        }
        is_complete
    }

    /// Who was removed is reached until the log has let it go; also one that only the flags still name.
    fn hang_up(&self, cluster: &Cluster, membership: &Membership) {
        let in_log = membership.all();
        let is_gone = |id: &u64| cluster.removed.contains(id) && !in_log.contains(id);
        for id in self.peers.known().into_iter().filter(is_gone) {
            // It cannot fail: nothing is started.
            let _ = self.peers.set(id, None);
        }
    }

    async fn carry_out(&self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Change(change) => {
                    let (kind, of) = described(change);
                    match self.handle.change_membership(vec![change]).await {
                        Ok(_) => tracing::info!(
                            "local-member-id" = hex(self.id),
                            "raft-conf-change" = kind,
                            "raft-conf-change-node-id" = of,
                            "applied a configuration change through raft"
                        ),
                        // It is tried again.
                        Err(RequestError::Rejected(Rejected::NotCaughtUp(_) | Rejected::Busy | Rejected::NotNow)) => {}
                        Err(error) => tracing::warn!(
                            "raft-conf-change" = kind,
                            "raft-conf-change-node-id" = of,
                            %error,
                            "the membership cannot be changed; it is tried again"
                        ),
                    }
                }
                Step::Resign => {
                    let status = self.handle.status();
                    let is_other = |id: &u64| *id != self.id && status.membership.voters.contains(id);
                    let heir = status.progress.iter().filter(|(id, _)| is_other(id)).max_by_key(|(_, has)| *has);
                    if let Some((heir, _)) = heir {
                        // Whether it led to anything shows in the next round.
                        let _ = self.handle.transfer_leader(*heir).await;
                    }
                }
            }
        }
    }

    /// Notices when there is no leader for long.
    pub async fn watch_leader(&self, election: Duration) {
        let mut leadership = self.leadership.clone();
        loop {
            let is_gone = leadership.wait_for(|now| now.leader.is_none()).await.is_ok();
            let patience = ELECTIONS_WITHOUT_LEADER * election;
            if is_gone && timeout(patience, leadership.wait_for(|now| now.leader.is_some())).await.is_err() {
                self.is_lost.send_replace(true);
            }
            if leadership.wait_for(|now| now.leader.is_some()).await.is_err() {
                return std::future::pending().await;
            }
            self.is_lost.send_replace(false);
        }
    }

    /// Comes when this member was removed from the group for good, and the group needs it no longer.
    pub async fn removed(&self) {
        loop {
            let is_out = || {
                let membership = self.handle.status().membership;
                !membership.voters.is_empty() && !membership.all().contains(&self.id)
            };
            let is_removed = self.reader.view().cluster.removed.contains(&self.id);
            if self.peers.is_removed() || (is_removed && is_out()) {
                return;
            }
            sleep(ROUND).await;
        }
    }

    /// Waits until the log's membership is as wanted.
    pub async fn membership_is(&self, is_wanted: impl Fn(&Membership) -> bool) {
        while !is_wanted(&self.handle.status().membership) {
            sleep(ROUND / 5).await;
        }
    }

    fn with_safety<T>(&self, cluster: &Cluster, look: impl FnOnce(Safety<'_>) -> T) -> T {
        let connected_for = |id| self.peers.here_since(id).map(|since| since.elapsed());
        look(Safety { cluster, own: self.id, connected_for: &connected_for })
    }

    /// Checks a change of the membership, unless the flags say that nobody does.
    fn check_safety(
        &self,
        settings: &Settings,
        check: impl FnOnce(Safety<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if !settings.strict_reconfig_check {
            return Ok(());
        }
        self.with_safety(&self.reader.view().cluster, check)
    }

    /// Whether so many members are connected to this one that it is in a majority. When others are lost, this is known before the
    /// leader's lease ends.
    pub fn has_majority(&self, cluster: &Cluster) -> bool {
        self.with_safety(cluster, |safety| safety.has_majority())
    }

    /// Whether another member may be added, as far as this one knows.
    pub fn may_add(&self, settings: &Settings, is_learner: bool) -> Result<(), Error> {
        let view = self.reader.view();
        let learners = view.cluster.members.values().filter(|member| member.is_learner).count();
        if is_learner && learners >= settings.learners_max {
            return Err(Error::TooManyLearners);
        }
        self.check_safety(settings, |safety| safety.may_add(is_learner))
    }

    /// Whether a member may be promoted.
    pub fn may_promote(&self, settings: &Settings) -> Result<(), Error> {
        self.check_safety(settings, |safety| safety.may_promote())
    }

    /// Whether a member may be removed; the last voter never may, which is asked again when it is decided.
    pub fn may_remove(&self, settings: &Settings, id: u64) -> Result<(), Error> {
        let view = self.reader.view();
        let mut left = view.cluster.members.values().filter(|member| !member.is_learner && member.id != id);
        if left.next().is_none() {
            return Err(Error::MemberNotEnoughStarted);
        }
        self.check_safety(settings, |safety| safety.may_remove(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_follows_the_store_step_by_step() {
        let member = |id, is_learner| Member { id, is_learner, ..Member::default() };
        let mut cluster = Cluster::of([member(1, false), member(2, false), member(3, true)]);
        let mut membership = Membership::of([1]);
        let add = |id| Step::Change(Change::AddLearner(id));
        assert_eq!(steps(&cluster, &membership, 1), [add(2), add(3)]);
        membership.learners = vec![2, 3];
        assert_eq!(steps(&cluster, &membership, 1), [Step::Change(Change::Promote(2))]);
        (membership.voters, membership.learners) = (vec![1, 2], vec![3]);
        assert_eq!(steps(&cluster, &membership, 1), []);
        cluster.members.remove(&1);
        cluster.removed.insert(1);
        assert_eq!(steps(&cluster, &membership, 1), [Step::Resign]);
        assert_eq!(steps(&cluster, &membership, 2), [Step::Change(Change::Remove(1))]);
        membership.voters = vec![2];
        assert_eq!(steps(&cluster, &membership, 2), []);
    }
}
