//! What members know of each other besides keys: names and addresses, alarms, the version that all of them speak.

use std::collections::{BTreeMap, BTreeSet};

use crate::proto::etcdserverpb::alarm_request::AlarmAction;
use crate::proto::etcdserverpb::{AlarmMember, AlarmRequest, AlarmType, DowngradeInfo, Member};

/// What members know of each other. Who votes is the business of the log; this says who they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cluster {
    /// Members by id.
    pub members: BTreeMap<u64, Member>,
    /// The version that all members speak, such as `3.7.0`; empty before it was agreed on.
    pub version: String,
    /// A downgrade that is under way.
    pub downgrade: DowngradeInfo,
    /// Alarms that are raised: kind, and the member it is about.
    alarms: BTreeSet<(i32, u64)>,
}

impl Cluster {
    /// Whether an alarm is raised for any member.
    pub fn has_alarm(&self, alarm: AlarmType) -> bool {
        self.alarms.iter().any(|(kind, _)| *kind == alarm as i32)
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
