//! Which changes of the membership would cost the group its majority: etcd's `--strict-reconfig-check`. Pure.
//! From etcd's `server/etcdserver/{server,util}.go` and `api/membership/cluster.go`.

use std::time::Duration;

use crate::proto::etcdserverpb::Member;
use crate::store::{Cluster, Error};

/// A member counts as connected after this time.
const HEALTH_INTERVAL: Duration = Duration::from_secs(5);

/// What a member knows of the others before it changes anything.
pub(super) struct Safety<'a> {
    pub(super) cluster: &'a Cluster,
    /// This member.
    pub(super) own: u64,
    /// How long another has been connected; `None`: it is not.
    pub(super) connected_for: &'a dyn Fn(u64) -> Option<Duration>,
}

impl Safety<'_> {
    fn voters(&self) -> impl Iterator<Item = &Member> {
        self.cluster.members.values().filter(|member| !member.is_learner)
    }

    fn started<'a>(members: impl Iterator<Item = &'a Member>) -> (usize, usize) {
        members.fold((0, 0), |(all, started), member| (all + 1, started + usize::from(!member.name.is_empty())))
    }

    fn connected(&self) -> usize {
        let is_connected = |id| (self.connected_for)(id).is_some_and(|time| time > HEALTH_INTERVAL);
        self.voters().filter(|member| member.id == self.own || is_connected(member.id)).count()
    }

    /// Whether a majority of the voters is connected, however short a time.
    pub(super) fn has_majority(&self) -> bool {
        let is_here = |member: &&Member| member.id == self.own || (self.connected_for)(member.id).is_some();
        self.voters().filter(is_here).count() >= quorum(self.voters().count())
    }

    pub(super) fn may_add(&self, is_learner: bool) -> Result<(), Error> {
        let (voters, started) = Self::started(self.voters());
        // To a single member one that restores data may be added.
        if !is_learner && (voters, started) != (1, 1) && started < quorum(voters + 1) {
            return Err(Error::MemberNotEnoughStarted);
        }
        if voters > 1 && self.connected() < quorum(voters + 1) { Err(Error::Unhealthy) } else { Ok(()) }
    }

    pub(super) fn may_promote(&self) -> Result<(), Error> {
        let (voters, started) = Self::started(self.voters());
        if started + 1 < quorum(voters + 1) { Err(Error::MemberNotEnoughStarted) } else { Ok(()) }
    }

    pub(super) fn may_remove(&self, id: u64) -> Result<(), Error> {
        if self.cluster.members.get(&id).is_some_and(|member| member.is_learner) {
            return Ok(());
        }
        let (left, started) = Self::started(self.voters().filter(|member| member.id != id));
        if started < quorum(left) {
            return Err(Error::MemberNotEnoughStarted);
        }
        // Who is down is in no majority.
        if id != self.own && (self.connected_for)(id).is_none() {
            return Ok(());
        }
        let voters = self.voters().count();
        if self.connected().saturating_sub(1) < quorum(voters.saturating_sub(1)) {
            return Err(Error::Unhealthy);
        }
        Ok(())
    }
}

fn quorum(members: usize) -> usize {
    members / 2 + 1
}

/// Whether a learner has nine tenths of the leader's log. `progress` is the leader's: empty on others.
pub(super) fn check_caught_up(progress: &[(u64, u64)], last: u64, id: u64) -> Result<(), Error> {
    if progress.is_empty() {
        return Err(Error::NotLeader);
    }
    let (_, matched) = progress.iter().find(|(member, _)| *member == id).ok_or(Error::MemberNotFound)?;
    if matched * 10 < last * 9 { Err(Error::LearnerNotReady) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(started: &[bool]) -> Cluster {
        Cluster::of((1..).zip(started).map(|(id, is_started)| Member {
            id,
            name: if *is_started { id.to_string() } else { String::new() },
            ..Member::default()
        }))
    }

    const LONG: Option<Duration> = Some(Duration::from_secs(60));
    const SHORT: Option<Duration> = Some(Duration::from_secs(1));

    #[test]
    fn a_group_that_has_just_met_is_not_changed() {
        let cluster = cluster(&[true, true, true]);
        let safety = |connected_for| Safety { cluster: &cluster, own: 1, connected_for };
        assert_eq!(safety(&|_| SHORT).may_add(true), Err(Error::Unhealthy));
        assert_eq!(safety(&|_| SHORT).may_remove(2), Err(Error::Unhealthy));
        assert_eq!(safety(&|_| LONG).may_add(false), Ok(()));
        assert_eq!(safety(&|_| LONG).may_remove(2), Ok(()));
    }

    #[test]
    fn who_is_down_may_be_removed_and_others_may_not_while_it_is() {
        let cluster = cluster(&[true, true, true]);
        let connected_for = |id| if id == 3 { None } else { LONG };
        let safety = Safety { cluster: &cluster, own: 1, connected_for: &connected_for };
        assert_eq!((safety.may_remove(3), safety.may_remove(2)), (Ok(()), Err(Error::Unhealthy)));
        assert_eq!(safety.may_add(true), Err(Error::Unhealthy));
    }

    #[test]
    fn a_majority_counts_who_is_connected_and_votes() {
        let mut group = cluster(&[true, true, true]);
        let has_majority = |group: &Cluster, here: &[u64]| {
            Safety { cluster: group, own: 1, connected_for: &|id| SHORT.filter(|_| here.contains(&id)) }.has_majority()
        };
        assert_eq!([&[2, 3][..], &[3], &[]].map(|here| has_majority(&group, here)), [true, true, false]);
        group.members.values_mut().filter(|member| member.id == 3).for_each(|member| member.is_learner = true);
        assert_eq!([&[2][..], &[3]].map(|here| has_majority(&group, here)), [true, false]);
        assert!(has_majority(&cluster(&[true]), &[]));
    }

    #[test]
    fn the_only_member_stays_and_may_get_company() {
        let one = cluster(&[true]);
        let safety = Safety { cluster: &one, own: 1, connected_for: &|_| None };
        assert_eq!((safety.may_remove(1), safety.may_add(false)), (Err(Error::MemberNotEnoughStarted), Ok(())));
        // Until the second one has started, no third one.
        let two = cluster(&[true, false]);
        let safety = Safety { cluster: &two, own: 1, connected_for: &|_| None };
        assert_eq!(safety.may_add(false), Err(Error::MemberNotEnoughStarted));
        assert_eq!(safety.may_promote(), Ok(()));
        assert_eq!(safety.may_remove(2), Ok(()));
    }

    #[test]
    fn a_learner_has_caught_up_with_nine_tenths() {
        assert_eq!(check_caught_up(&[], 100, 2), Err(Error::NotLeader));
        assert_eq!(check_caught_up(&[(1, 100), (2, 89)], 100, 2), Err(Error::LearnerNotReady));
        assert_eq!(check_caught_up(&[(1, 100), (2, 90)], 100, 2), Ok(()));
        assert_eq!(check_caught_up(&[(1, 100)], 100, 2), Err(Error::MemberNotFound));
    }
}
