//! Events, for `kubectl describe`. They may get lost and nothing depends on them: a failure to write one is logged.

use kube::Resource;
use kube::runtime::events::{Event, EventType};
use storebench_core::reason::Reason;
use storebench_crds::status::Verdict;
use storebench_crds::{BenchmarkRun, BenchmarkSchedule, BenchmarkSuite};

use crate::context::Context;

/// The API's own limit is 1 kB.
const NOTE_CHARACTERS_MAX: usize = 900;

async fn publish<K: Resource<DynamicType = ()>>(
    context: &Context,
    object: &K,
    type_: EventType,
    reason: &str,
    action: &str,
    note: &str,
) {
    let event = Event {
        type_,
        reason: reason.into(),
        note: Some(note.chars().take(NOTE_CHARACTERS_MAX).collect()),
        action: action.into(),
        secondary: None,
    };
    if let Err(error) = context.recorder.publish(&event, &object.object_ref(&())).await {
        tracing::debug!(reason, %error, "event not written");
    }
}

/// A run or service waits for its user.
pub async fn stalled<K: Resource<DynamicType = ()>>(context: &Context, object: &K, reason: Reason, message: &str) {
    publish(context, object, EventType::Warning, reason.as_str(), "Validate", message).await;
}

/// A run has begun.
pub async fn started(context: &Context, run: &BenchmarkRun) {
    publish(context, run, EventType::Normal, "Started", "Run", "the first trial begins").await;
}

/// A trial does not count. `number` counts from 1, as reports do.
pub async fn trial_failed(context: &Context, run: &BenchmarkRun, arm: &str, number: u32, why: &str) {
    publish(context, run, EventType::Warning, "TrialInvalid", "Run", &format!("trial {number} of {arm}: {why}")).await;
}

/// A run is over.
pub async fn completed(context: &Context, run: &BenchmarkRun, verdict: Verdict, message: &str) {
    let type_ = if verdict == Verdict::Passed { EventType::Normal } else { EventType::Warning };
    publish(context, run, type_, &format!("{verdict:?}"), "Judge", message).await;
}

/// A service or control plane answers.
pub async fn ready<K: Resource<DynamicType = ()>>(context: &Context, object: &K, message: &str) {
    publish(context, object, EventType::Normal, "Ready", "Deploy", message).await;
}

/// A suite is over.
pub async fn suite_completed(context: &Context, suite: &BenchmarkSuite, verdict: Verdict, message: &str) {
    let type_ = if verdict == Verdict::Passed { EventType::Normal } else { EventType::Warning };
    publish(context, suite, type_, &format!("{verdict:?}"), "Judge", message).await;
}

/// A schedule has made something.
pub async fn made(context: &Context, schedule: &BenchmarkSchedule, name: &str) {
    publish(context, schedule, EventType::Normal, "Made", "Schedule", &format!("made {name}")).await;
}
