//! Conditions, as `kubectl wait`, kstatus (Flux) and Argo CD read them.
//!
//! kstatus cannot tell a failed run from one under way by `Ready=False` alone: `Reconciling=True` says that it goes on,
//! `Stalled=True` that it will not by itself. Every state here sets both, one way or the other. Transition times change only
//! when a status flips.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use storebench_crds::status::Verdict;

use crate::reason::Reason;

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Others go first.
    Queued,
    /// Trials are under way.
    Running,
    /// `spec.suspend` holds it.
    Suspended,
    /// Waits for what only the user can change, for this reason.
    Stalled(Reason),
    /// It is over.
    Complete(Verdict),
}

/// How far a service has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceState {
    /// Members are starting.
    Starting,
    /// Every member answers; whether the protocol surface that the engine claims is there, where it was probed.
    Ready {
        /// The outcome of the probe.
        protocol: Option<bool>,
    },
    /// It was there already, and whoever loads it finds out whether it answers.
    External,
    /// It cannot start, for this reason.
    Stalled(Reason),
}

/// What a condition says before it is stamped.
struct Said {
    type_: &'static str,
    status: &'static str,
    reason: String,
}

fn said(type_: &'static str, status: &'static str, reason: impl Into<String>) -> Said {
    Said { type_, status, reason: reason.into() }
}

/// Conditions of a run. `message` is one line for people.
pub fn of_run(state: RunState, message: &str, stamp: &Stamp) -> Vec<Condition> {
    const TRUE: &str = "True";
    const FALSE: &str = "False";
    const UNKNOWN: &str = "Unknown";
    let (reason, [succeeded, complete, reconciling, stalled, ready]) = match state {
        RunState::Queued => ("Queued".to_owned(), [UNKNOWN, FALSE, TRUE, FALSE, UNKNOWN]),
        RunState::Running => ("Running".into(), [UNKNOWN, FALSE, TRUE, FALSE, UNKNOWN]),
        RunState::Suspended => ("Suspended".into(), [UNKNOWN, FALSE, TRUE, FALSE, UNKNOWN]),
        RunState::Stalled(reason) => (reason.as_str().into(), [UNKNOWN, FALSE, FALSE, TRUE, FALSE]),
        RunState::Complete(Verdict::Passed) => ("Passed".into(), [TRUE, TRUE, FALSE, FALSE, TRUE]),
        RunState::Complete(verdict) => (format!("{verdict:?}"), [FALSE, TRUE, FALSE, TRUE, FALSE]),
    };
    stamp.all(
        message,
        [
            said("Succeeded", succeeded, reason.clone()),
            said("Complete", complete, reason.clone()),
            said("Reconciling", reconciling, reason.clone()),
            said("Stalled", stalled, reason.clone()),
            said("Ready", ready, reason),
        ],
    )
}

/// Whether a run is in [`RunState::Running`].
pub fn is_running(conditions: &[Condition]) -> bool {
    conditions.iter().any(|one| one.type_ == "Reconciling" && one.reason == "Running")
}

/// Conditions of a service. `message` is one line for people.
pub fn of_service(state: ServiceState, message: &str, stamp: &Stamp) -> Vec<Condition> {
    let (reason, ready, reconciling, stalled, protocol) = match state {
        ServiceState::Starting => ("Starting", "False", "True", "False", None),
        ServiceState::Ready { protocol } => ("Answers", "True", "False", "False", protocol),
        ServiceState::External => ("External", "True", "False", "False", None),
        ServiceState::Stalled(reason) => (reason.as_str(), "False", "False", "True", None),
    };
    let (protocol, protocol_reason) = match protocol {
        None => ("Unknown", "NotProbed"),
        Some(true) => ("True", "Probed"),
        Some(false) => ("False", "ProbeFailed"),
    };
    stamp.all(
        message,
        [
            said("Ready", ready, reason),
            said("Reconciling", reconciling, reason),
            said("Stalled", stalled, reason),
            said("ProtocolReady", protocol, protocol_reason),
        ],
    )
}

/// Conditions of a control plane. `message` is one line for people.
pub fn of_control_plane(state: ServiceState, message: &str, stamp: &Stamp) -> Vec<Condition> {
    let mut conditions = of_service(state, message, stamp);
    conditions.retain(|condition| condition.type_ != "ProtocolReady");
    conditions
}

/// How far a baseline has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaselineState {
    /// Its run is not over.
    Waiting,
    /// It keeps what the run measured.
    Kept,
    /// It keeps nothing, for this reason.
    Stalled(Reason),
}

/// Conditions of a baseline. `message` is one line for people.
pub fn of_baseline(state: BaselineState, message: &str, stamp: &Stamp) -> Vec<Condition> {
    let (reason, ready, reconciling, stalled) = match state {
        BaselineState::Waiting => ("RunNotComplete", "False", "True", "False"),
        BaselineState::Kept => ("Kept", "True", "False", "False"),
        BaselineState::Stalled(reason) => (reason.as_str(), "False", "False", "True"),
    };
    stamp.all(
        message,
        [said("Ready", ready, reason), said("Reconciling", reconciling, reason), said("Stalled", stalled, reason)],
    )
}

/// What a schedule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleState {
    /// It makes what is due.
    Scheduled,
    /// `spec.suspend` holds it.
    Suspended,
    /// It makes nothing, for this reason.
    Stalled(Reason),
}

/// Conditions of a schedule: it is there for long, and current as soon as it was understood. `message` is one line for people.
pub fn of_schedule(state: ScheduleState, message: &str, stamp: &Stamp) -> Vec<Condition> {
    let (reason, ready, stalled) = match state {
        ScheduleState::Scheduled => ("Scheduled", "True", "False"),
        ScheduleState::Suspended => ("Suspended", "True", "False"),
        ScheduleState::Stalled(reason) => (reason.as_str(), "False", "True"),
    };
    stamp.all(
        message,
        [said("Ready", ready, reason), said("Reconciling", "False", reason), said("Stalled", stalled, reason)],
    )
}

/// What conditions are stamped with.
#[derive(Clone, Debug)]
pub struct Stamp {
    /// Now.
    pub now: Time,
    /// The generation of the spec that was looked at.
    pub generation: Option<i64>,
    /// The conditions as they were, whose transition times are kept where nothing flips.
    pub previous: Vec<Condition>,
}

impl Stamp {
    fn all<const COUNT: usize>(&self, message: &str, said: [Said; COUNT]) -> Vec<Condition> {
        said.into_iter().map(|said| self.one(message, said)).collect()
    }

    fn one(&self, message: &str, said: Said) -> Condition {
        let earlier = self.previous.iter().find(|condition| condition.type_ == said.type_);
        let unchanged = earlier.filter(|earlier| earlier.status == said.status);
        Condition {
            last_transition_time: unchanged.map_or_else(|| self.now.clone(), |kept| kept.last_transition_time.clone()),
            message: message.into(),
            observed_generation: self.generation,
            reason: said.reason,
            status: said.status.into(),
            type_: said.type_.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(seconds: i64, previous: Vec<Condition>) -> Stamp {
        let now = k8s_openapi::jiff::Timestamp::from_second(seconds).unwrap();
        Stamp { now: Time(now), generation: Some(3), previous }
    }

    fn status<'a>(conditions: &'a [Condition], type_: &str) -> &'a str {
        &conditions.iter().find(|condition| condition.type_ == type_).unwrap().status
    }

    #[test]
    fn transition_times_change_only_when_a_status_flips() {
        let queued = of_run(RunState::Queued, "1 run goes first", &stamp(10, Vec::new()));
        let running = of_run(RunState::Running, "trial 0", &stamp(20, queued.clone()));
        assert!(running.iter().all(|condition| condition.last_transition_time.0.as_second() == 10));
        let passed = of_run(RunState::Complete(Verdict::Passed), "", &stamp(30, running));
        for condition in &passed {
            let flipped = condition.type_ != "Stalled";
            assert_eq!(condition.last_transition_time.0.as_second(), if flipped { 30 } else { 10 }, "{condition:?}");
        }
    }

    #[test]
    fn a_run_is_either_going_on_or_over_or_stalled() {
        let states = [
            RunState::Queued,
            RunState::Running,
            RunState::Suspended,
            RunState::Stalled(Reason::InvalidSpec),
            RunState::Complete(Verdict::Passed),
            RunState::Complete(Verdict::Regressed),
        ];
        for state in states {
            let conditions = of_run(state, "", &stamp(0, Vec::new()));
            let is = |type_: &str| status(&conditions, type_) == "True";
            assert_eq!(u8::from(is("Reconciling")) + u8::from(is("Stalled")) + u8::from(is("Ready")), 1, "{state:?}");
            assert_eq!(is("Complete"), matches!(state, RunState::Complete(_)), "{state:?}");
        }
    }
}
