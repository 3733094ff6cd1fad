//! What all controllers do alike: count and time a reconciliation, name and find an object, report how far it has come, and say of
//! one that this version cannot read that it is so.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::error_boundary::DeserializeGuard;
use kube::core::object::HasStatus;
use kube::runtime::controller::Action;
use kube::{Api, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use storebench_core::conditions::Stamp;
use storebench_core::reason::Reason;
use storebench_crds::line::short_line;
use storebench_crds::{GROUP, VERSION};

use crate::context::Context;
use crate::error::{Error, Tried as _};
use crate::events;
use crate::health::Trouble;
use crate::objects::FIELD_MANAGER;

/// What conditions a state has, with a message and a stamp.
pub type Conditions<S> = fn(S, &str, &Stamp) -> Vec<Condition>;

/// A kind that users write and that has a controller.
pub trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + HasStatus<Status: Clone + Default + PartialEq + Serialize>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// How far one has come.
    type State: Copy;
    /// Its name.
    const NAME: &'static str;
    /// The state of one that only its user can help on.
    const STALLED: fn(Reason) -> Self::State;
    /// The conditions of a state.
    const CONDITIONS: Conditions<Self::State>;
    /// A message is kept below this, bytes: it stands in every condition.
    const MESSAGE_BYTES_MAX: usize;

    /// Brings one object a step further, or to what its spec says.
    fn advance(&self, context: &Context) -> impl Future<Output = Result<Action, Error>> + Send;

    /// Says of one object that the API server refuses for good what it needs. It must hold up nobody else.
    fn refused(&self, error: &Error, context: &Context) -> impl Future<Output = Result<Action, Error>> + Send;

    /// The conditions in its status.
    fn conditions(status: &Self::Status) -> &[Condition];

    /// Where its status has what every status has.
    fn said(status: &mut Self::Status) -> Said<'_>;

    /// Leaves out of a status what does not fit.
    fn fit(status: Self::Status) -> Self::Status {
        status
    }

    /// Counts the state that one is in, where metrics tell it.
    fn count(&self, _state: Self::State, _context: &Context) {}
}

/// What every status has.
#[derive(Debug)]
pub struct Said<'a> {
    /// The generation of the spec that it describes.
    pub observed_generation: &'a mut i64,
    /// Its conditions.
    pub conditions: &'a mut Vec<Condition>,
    /// Their message once more, where it has that.
    pub message: Option<&'a mut String>,
}

/// What keeps an object from going on.
#[derive(Debug)]
pub enum Waits {
    /// Another one is not so far yet; in one line.
    ForAnother(String),
    /// Only its user can help it on.
    ForUser(Trouble),
}

/// A kind that others name. It need not have a controller.
pub trait Named: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned {
    /// The reason of whoever names one that is not there.
    const MISSING: Reason;
    /// The reason of whoever names one that is wrong in itself.
    const INVALID: Reason;
}

/// An object that may be one this version cannot read.
pub type Guarded<K> = DeserializeGuard<K>;

/// Reconciles one object; an unreadable one is said to be so and does not hold up others.
pub async fn reconcile<K: Kind>(guarded: Arc<Guarded<K>>, context: Arc<Context>) -> Result<Action, Error> {
    let started = Instant::now();
    let result = match &guarded.0 {
        Ok(object) => match object.advance(&context).await {
            Err(error) if error.is_final(context.failures.count(&key(&*guarded))) => {
                tracing::warn!(
                    kind = K::NAME,
                    object = key(&*guarded),
                    reason = error.reason().as_str(),
                    "{}",
                    error.for_user()
                );
                object.refused(&error, &context).await
            }
            result => result,
        },
        Err(invalid) => unreadable(&guarded, &invalid.error, &context).await.map(|()| Action::await_change()),
    };
    context.metrics.reconciled(K::NAME, &result, started.elapsed());
    if result.is_ok() {
        context.failures.clear(&key(&*guarded));
    }
    result
}

/// What was refused is tried again after this: somebody may have raised a quota or deleted what was in the way.
pub const REFUSED_INTERVAL: Duration = Duration::from_secs(60);

/// The object's name among all others, for counting failures.
pub fn key<K: Kind>(object: &Guarded<K>) -> String {
    format!("{} {}/{}", K::NAME, object.namespace().unwrap_or_default(), object.name_any())
}

/// The same of an object that could be read.
pub fn key_of<K: Kind>(object: &K) -> String {
    format!("{} {}/{}", K::NAME, object.namespace().unwrap_or_default(), object.name_any())
}

/// Writes a status, with how far the object has come, if that says anything new. Returns whether it did.
pub async fn report<K: Kind>(
    object: &K,
    status: K::Status,
    state: K::State,
    message: &str,
    context: &Context,
) -> Result<bool, Error> {
    object.count(state, context);
    let status = stamped(object, status, state, message, Timestamp::now());
    if object.status() == Some(&status) {
        return Ok(false);
    }
    write_status::<K>(&object.name_any(), &object.namespace().unwrap_or_default(), status, context).await
}

/// Reports of an object that only its user can help it on, and where that is new tells it by an event, too.
pub async fn stall<K: Kind>(object: &K, status: K::Status, trouble: &Trouble, context: &Context) -> Result<(), Error> {
    let Trouble { reason, message } = trouble;
    if report(object, status, K::STALLED(*reason), message, context).await? {
        events::stalled(context, object, *reason, message).await;
    }
    Ok(())
}

/// A status as it is written.
fn stamped<K: Kind>(object: &K, mut status: K::Status, state: K::State, message: &str, now: Timestamp) -> K::Status {
    let message = short_line(message, K::MESSAGE_BYTES_MAX);
    let generation = object.meta().generation;
    let previous = object.status().map(K::conditions).unwrap_or_default().to_vec();
    let stamp = Stamp { now: Time(now), generation, previous };
    let said = K::said(&mut status);
    *said.observed_generation = generation.unwrap_or(-1);
    *said.conditions = K::CONDITIONS(state, &message, &stamp);
    if let Some(place) = said.message {
        *place = message;
    }
    K::fit(status)
}

/// Writes the status of an object. Returns whether it is still there.
pub async fn write_status<K: Kind>(
    name: &str,
    namespace: &str,
    status: impl Serialize,
    context: &Context,
) -> Result<bool, Error> {
    let object = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": K::NAME, "metadata": { "name": name }, "status": status,
    });
    // What comes back may be an object that this version cannot read.
    let api = Api::<Guarded<K>>::namespaced(context.client.clone(), namespace);
    match api.patch_status(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(object)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(false),
        result => drop(result.tried(|| format!("write the status of {} {name}", K::NAME))?),
    }
    context.metrics.status_patched(K::NAME);
    Ok(true)
}

/// An object as the API server has it now: what a watch has seen may be older than what was written last. `None`: it is gone or going, or
/// another one has its name, or it cannot be read; each of these is an event of its own.
pub async fn latest<K: Kind>(seen: &K, context: &Context) -> Result<Option<K>, Error> {
    let (name, namespace) = (seen.name_any(), seen.namespace().unwrap_or_default());
    let api = Api::<Guarded<K>>::namespaced(context.client.clone(), &namespace);
    let latest = api.get_opt(&name).await.tried(|| format!("get {} {name}", K::NAME))?;
    let Some(DeserializeGuard(Ok(latest))) = latest else { return Ok(None) };
    Ok((latest.uid() == seen.uid() && latest.meta().deletion_timestamp.is_none()).then_some(latest))
}

/// An object that another one names: it is there, nobody is deleting it, and it can be read. The inner error is the user's to mend.
pub async fn find<K: Named>(name: &str, namespace: &str, context: &Context) -> Result<Result<K, Trouble>, Error> {
    let api = Api::<Guarded<K>>::namespaced(context.client.clone(), namespace);
    let kind = K::kind(&());
    Ok(match api.get_opt(name).await.tried(|| format!("get {kind} {name}"))? {
        Some(DeserializeGuard(Ok(object))) if object.meta().deletion_timestamp.is_none() => Ok(object),
        Some(DeserializeGuard(Err(invalid))) => Err(Trouble {
            reason: K::INVALID,
            message: format!("{kind}/{name} cannot be read by this version: {}", invalid.error),
        }),
        _ => Err(Trouble {
            reason: K::MISSING,
            message: format!("there is no {kind}/{name} in namespace {namespace}: create it"),
        }),
    })
}

async fn unreadable<K: Kind>(object: &Guarded<K>, error: &str, context: &Context) -> Result<(), Error> {
    let name = object.name_any();
    let message = format!("cannot be read by storebench {}: {error}", env!("CARGO_PKG_VERSION"));
    tracing::warn!(kind = K::NAME, name, message);
    let status = stamped_unreadable::<K>(object.meta().generation, &message, Timestamp::now());
    write_status::<K>(&name, &object.namespace().unwrap_or_default(), status, context).await.map(drop)
}

/// The status of an object that this version cannot read: nothing is said of what it is about.
fn stamped_unreadable<K: Kind>(generation: Option<i64>, message: &str, now: Timestamp) -> Value {
    let message = short_line(message, K::MESSAGE_BYTES_MAX);
    let stamp = Stamp { now: Time(now), generation, previous: Vec::new() };
    let conditions = K::CONDITIONS(K::STALLED(Reason::Unreadable), &message, &stamp);
    let mut status = json!({ "observedGeneration": generation, "conditions": conditions });
    if K::said(&mut K::Status::default()).message.is_some() {
        status["message"] = json!(message);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use storebench_crds::{
        BenchmarkBaseline, BenchmarkRun, BenchmarkSchedule, BenchmarkSuite, ControlPlane, StorageService,
    };

    /// Every message in a status, the one beside the conditions included.
    fn messages(status: &Value) -> Vec<&str> {
        let conditions = status["conditions"].as_array().unwrap().iter();
        let all = conditions.map(|one| &one["message"]).chain(status.get("message"));
        all.map(|message| message.as_str().unwrap()).collect()
    }

    /// The status of an object that waits for its user and is told this.
    fn stalled<K: Kind>(spec: &Value, message: &str) -> Value {
        let object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": K::NAME, "metadata": { "name": "o", "generation": 3 },
            "spec": spec,
        });
        let object: K = serde_json::from_value(object).unwrap();
        let state = K::STALLED(Reason::InvalidSpec);
        serde_json::to_value(stamped(&object, K::Status::default(), state, message, Timestamp::UNIX_EPOCH)).unwrap()
    }

    fn is_bounded<K: Kind>(spec: &Value, has_message: bool) {
        let long = format!("spec.pod\n{}", "ö".repeat(2_000));
        let unreadable = stamped_unreadable::<K>(Some(3), &long, Timestamp::UNIX_EPOCH);
        for (status, reason) in [(stalled::<K>(spec, &long), "InvalidSpec"), (unreadable, "Unreadable")] {
            assert_eq!(status["observedGeneration"], 3, "{status}");
            assert_eq!(status["conditions"][0]["reason"], reason, "{status}");
            assert_eq!(status.get("message").is_some(), has_message, "{}: the schema has no other field", K::NAME);
            for message in messages(&status) {
                assert!(message.len() <= K::MESSAGE_BYTES_MAX, "{} bytes in {}", message.len(), K::NAME);
                assert!(message.starts_with("spec.pod ö") && message.ends_with('…'), "{message}");
            }
        }
        for message in messages(&stalled::<K>(spec, "a line")) {
            assert_eq!(message, "a line");
        }
    }

    #[test]
    fn a_message_without_an_end_is_shortened_in_every_kind() {
        is_bounded::<StorageService>(&json!({ "engine": "Etcd" }), false);
        is_bounded::<ControlPlane>(&json!({ "serviceRef": { "name": "s" } }), false);
        is_bounded::<BenchmarkBaseline>(&json!({ "runRef": { "name": "r" } }), true);
        is_bounded::<BenchmarkRun>(&json!({ "arms": [], "workloads": [], "trials": {} }), true);
        is_bounded::<BenchmarkSuite>(&json!({ "parameters": [], "template": { "spec": {} } }), true);
        is_bounded::<BenchmarkSchedule>(&json!({ "schedule": "0 2 * * *" }), true);
    }

    #[test]
    fn a_service_keeps_the_field_and_the_remedy_of_a_long_message() {
        let message = format!("spec.extraArgs[0] {}: leave it out", "x".repeat(900));
        for said in messages(&stalled::<StorageService>(&json!({ "engine": "Etcd" }), &message)) {
            assert_eq!(said, message);
        }
    }

    #[test]
    fn a_transition_time_outlives_another_report() {
        let spec = json!({ "serviceRef": { "name": "s" } });
        let mut object: ControlPlane = serde_json::from_value(json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "ControlPlane", "metadata": { "name": "o" }, "spec": spec,
        }))
        .unwrap();
        let at = |object: &ControlPlane, seconds: i64, reason| {
            let now = Timestamp::from_second(seconds).unwrap();
            stamped(object, Default::default(), ControlPlane::STALLED(reason), "", now)
        };
        object.status = Some(at(&object, 10, Reason::ServiceTaken));
        let next = at(&object, 20, Reason::StoreUnfit);
        assert_eq!(next.conditions[0].reason, "StoreUnfit");
        assert_eq!(next.conditions[0].last_transition_time.0.as_second(), 10);
    }
}
