//! What members know of each other besides keys: names and addresses, alarms, the version that all of them speak.
//!
//! Who is a member is said here; who votes in the log follows from it: see [`crate::group`].

use std::collections::{BTreeMap, BTreeSet};

use super::command::MemberRemoval;
use super::error::Error;
use crate::proto::etcdserverpb::alarm_request::AlarmAction;
use crate::proto::etcdserverpb::{AlarmMember, AlarmRequest, AlarmType, DowngradeInfo, Member};

/// How many alarms there may be before clients can raise none but those that this release knows, about members.
const ALARMS_MAX: usize = 64;

/// What members know of each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cluster {
    /// Members by id.
    pub members: BTreeMap<u64, Member>,
    /// Who was a member and never will be again.
    pub removed: BTreeSet<u64>,
    /// The version that all members speak, such as `3.7.0`; empty before it was agreed on.
    pub version: String,
    /// A downgrade that is under way.
    pub downgrade: DowngradeInfo,
    /// Alarms that are raised: kind, and the member it is about.
    alarms: BTreeSet<(i32, u64)>,
}

impl Cluster {
    /// A group with these members.
    pub fn of(members: impl IntoIterator<Item = Member>) -> Self {
        let members = members.into_iter().map(|member| (member.id, member)).collect();
        Self { members, ..Self::default() }
    }

    fn member(&mut self, id: u64) -> Result<&mut Member, Error> {
        self.members.get_mut(&id).ok_or(Error::MemberNotFound)
    }

    /// Whether another member than this one is to be found at one of these URLs.
    pub fn has_peer_url(&self, urls: &[String], but_for: u64) -> bool {
        let others = self.members.values().filter(|other| other.id != but_for);
        others.flat_map(|other| &other.peer_ur_ls).any(|url| urls.contains(url))
    }

    /// A member tells its name and where clients find it.
    pub(super) fn publish(&mut self, published: &Member) -> Result<(), Error> {
        let member = self.member(published.id)?;
        member.name.clone_from(&published.name);
        member.client_ur_ls.clone_from(&published.client_ur_ls);
        Ok(())
    }

    pub(super) fn add(&mut self, member: Member) -> Result<(), Error> {
        if self.removed.contains(&member.id) {
            return Err(Error::MemberNotFound);
        }
        if self.members.contains_key(&member.id) {
            return Err(Error::MemberExists);
        }
        if self.has_peer_url(&member.peer_ur_ls, member.id) {
            return Err(Error::PeerUrlExists);
        }
        self.members.insert(member.id, member);
        Ok(())
    }

    pub(super) fn promote(&mut self, id: u64) -> Result<(), Error> {
        let member = self.member(id)?;
        if !std::mem::take(&mut member.is_learner) {
            return Err(Error::MemberNotLearner);
        }
        Ok(())
    }

    pub(super) fn update(&mut self, id: u64, peer_urls: Vec<String>) -> Result<(), Error> {
        if self.has_peer_url(&peer_urls, id) {
            return Err(Error::PeerUrlExists);
        }
        self.member(id)?.peer_ur_ls = peer_urls;
        Ok(())
    }

    /// The last voter stays: each of two that are removed at the same moment through the other was told that the other is left.
    pub(super) fn remove(&mut self, removal: &MemberRemoval) -> Result<(), Error> {
        let MemberRemoval { id, keeps_a_voter } = *removal;
        let leaves = self.members.get(&id).ok_or(Error::MemberNotFound)?;
        let mut others = self.members.values().filter(|other| other.id != id && !other.is_learner);
        if keeps_a_voter && !leaves.is_learner && others.next().is_none() {
            return Err(Error::MemberNotEnoughStarted);
        }
        self.members.remove(&id);
        self.removed.insert(id);
        Ok(())
    }

    /// Removes everybody else; this one is a voter then, whatever was decided about it, and alarms of others are no more.
    pub(super) fn keep_only(&mut self, id: u64) {
        let others = self.members.keys().copied().filter(|other| *other != id).collect::<Vec<_>>();
        for other in others {
            self.members.remove(&other);
            self.removed.insert(other);
        }
        self.removed.remove(&id);
        self.members.entry(id).or_insert_with(|| Member { id, ..Member::default() }).is_learner = false;
        self.alarms.retain(|(_, member)| *member == id);
    }

    /// Whether an alarm is raised for any member. Every put asks.
    pub fn has_alarm(&self, alarm: AlarmType) -> bool {
        let kind = alarm as i32;
        self.alarms.range((kind, 0)..=(kind, u64::MAX)).next().is_some()
    }

    /// Whether a client may raise this alarm. etcd takes any, of whatever kind and about whomever, and so does this, but not in any number.
    pub fn takes_alarm(&self, request: &AlarmRequest) -> bool {
        let is_known = AlarmType::try_from(request.alarm).is_ok() && self.members.contains_key(&request.member_id);
        is_known || self.alarms.len() < ALARMS_MAX
    }

    /// Alarms of a kind that are raised; all for [`AlarmType::None`].
    pub fn alarms(&self, alarm: i32) -> Vec<AlarmMember> {
        let wanted = self.alarms.iter().filter(|(kind, _)| alarm == AlarmType::None as i32 || alarm == *kind);
        wanted.map(|(kind, member)| AlarmMember { alarm: *kind, member_id: *member }).collect()
    }

    /// Raises or lowers an alarm, or tells which are raised; says what was asked for or changed.
    pub(super) fn alarm(&mut self, request: &AlarmRequest) -> Vec<AlarmMember> {
        let AlarmRequest { action, member_id, alarm } = *request;
        let about = AlarmMember { member_id, alarm };
        match AlarmAction::try_from(action) {
            Ok(AlarmAction::Get) => self.alarms(alarm),
            Ok(AlarmAction::Activate) if alarm != AlarmType::None as i32 => {
                self.alarms.insert((alarm, member_id));
                vec![about]
            }
            Ok(AlarmAction::Deactivate) if self.alarms.remove(&(alarm, member_id)) => vec![about],
            _ => Vec::new(),
        }
    }

    pub(super) fn restore_alarm(&mut self, alarm: AlarmMember) {
        self.alarms.insert((alarm.alarm, alarm.member_id));
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::proto::etcdserverpb as pb;
    use crate::store::command::{self, Caller, Command, Kind, Request};

    fn removal(id: u64) -> MemberRemoval {
        MemberRemoval { id, keeps_a_voter: true }
    }

    fn member(id: u64, url: &str, is_learner: bool) -> Member {
        Member { id, peer_ur_ls: vec![url.into()], is_learner, ..Member::default() }
    }

    #[test]
    fn a_member_comes_is_promoted_and_goes_for_good() {
        let mut cluster = Cluster::of([member(1, "http://a:1", false)]);
        assert_eq!(cluster.add(member(1, "http://b:1", false)), Err(Error::MemberExists));
        assert_eq!(cluster.add(member(2, "http://a:1", true)), Err(Error::PeerUrlExists));
        assert_eq!(cluster.add(member(2, "http://b:1", true)), Ok(()));
        assert_eq!(cluster.promote(1), Err(Error::MemberNotLearner));
        assert_eq!(cluster.promote(3), Err(Error::MemberNotFound));
        assert_eq!(cluster.promote(2), Ok(()));
        assert!(!cluster.members[&2].is_learner);
        assert_eq!(cluster.update(2, vec!["http://a:1".into()]), Err(Error::PeerUrlExists));
        assert_eq!(cluster.update(2, vec!["http://b:2".into()]), Ok(()));
        assert_eq!((cluster.remove(&removal(2)), cluster.remove(&removal(2))), (Ok(()), Err(Error::MemberNotFound)));
        assert_eq!(cluster.add(member(2, "http://b:3", true)), Err(Error::MemberNotFound), "its number is used up");
    }

    #[test]
    fn the_last_voter_is_never_removed() {
        let mut cluster = Cluster::of([member(1, "http://a:1", false), member(2, "http://b:1", false)]);
        cluster.add(member(3, "http://c:1", true)).unwrap();
        assert_eq!(
            [cluster.remove(&removal(2)), cluster.remove(&removal(1))],
            [Ok(()), Err(Error::MemberNotEnoughStarted)]
        );
        assert_eq!(cluster.remove(&removal(3)), Ok(()), "a learner may go");
        assert_eq!(cluster.members.keys().copied().collect::<Vec<_>>(), [1]);
        // As an earlier release let it happen: --force-new-cluster then.
        cluster.members.clear();
        cluster.removed.insert(1);
        cluster.keep_only(1);
        assert!(cluster.members.contains_key(&1) && !cluster.removed.contains(&1));
    }

    /// Such a log makes the state that it made then: etcd's message is what stands in it.
    #[test]
    fn what_an_older_release_has_decided_of_its_last_voter_stays() {
        let mut cluster = Cluster::of([member(1, "http://a:1", false), member(2, "http://b:1", false)]);
        for id in [2, 1] {
            let request = pb::MemberRemoveRequest { id };
            let bytes = command::encode(&Caller::Server, Kind::MemberRemove, &request.encode_to_vec());
            let Request::MemberRemove(decided) = Command::decode(&bytes).unwrap().request else {
                panic!("another kind")
            };
            assert_eq!(cluster.remove(&decided), Ok(()));
        }
        assert_eq!((cluster.members.len(), &cluster.removed), (0, &[1, 2].into()));
    }

    /// Each put looked at all of them, twice, and each of them copied all.
    #[test]
    fn alarms_of_no_kind_or_about_nobody_are_taken_up_to_a_bound() {
        let mut cluster = Cluster::of([member(1, "http://a:1", false)]);
        let activate = |member_id, alarm| AlarmRequest { action: AlarmAction::Activate as i32, member_id, alarm };
        for number in 0..ALARMS_MAX as u64 {
            let request = activate(100 + number, if number % 2 == 0 { 99 } else { AlarmType::Corrupt as i32 });
            assert!(cluster.takes_alarm(&request));
            cluster.alarm(&request);
        }
        let refused = [activate(7, AlarmType::Nospace as i32), activate(1, 99)];
        assert_eq!(refused.map(|request| cluster.takes_alarm(&request)), [false; 2]);
        assert!(!cluster.has_alarm(AlarmType::Nospace) && cluster.has_alarm(AlarmType::Corrupt));
        let own = activate(1, AlarmType::Nospace as i32);
        assert!(cluster.takes_alarm(&own));
        cluster.alarm(&own);
        assert!(cluster.has_alarm(AlarmType::Nospace));
    }

    #[test]
    fn who_was_removed_does_not_come_back_by_telling_its_name() {
        let mut cluster = Cluster::of([member(1, "http://a:1", false), member(2, "http://b:1", false)]);
        cluster.remove(&removal(2)).unwrap();
        assert_eq!(cluster.publish(&member(2, "http://b:1", false)), Err(Error::MemberNotFound));
        let told = Member { id: 1, name: "one".into(), client_ur_ls: vec!["http://c:1".into()], ..Member::default() };
        cluster.publish(&told).unwrap();
        assert_eq!(cluster.members[&1], Member { peer_ur_ls: vec!["http://a:1".into()], ..told });
    }
}
