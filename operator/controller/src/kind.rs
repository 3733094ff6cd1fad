//! What all controllers do alike: count and time a reconciliation, name and find an object, write its status, and say of one
//! that this version cannot read that it is so.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::error_boundary::DeserializeGuard;
use kube::runtime::controller::Action;
use kube::{Api, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use storebench_core::conditions::Stamp;
use storebench_core::reason::Reason;
use storebench_crds::{GROUP, VERSION};

use crate::context::Context;
use crate::error::{Error, Tried as _};
use crate::health::Trouble;
use crate::objects::FIELD_MANAGER;

/// A kind that users write and that has a controller.
pub trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
    /// Its name.
    const NAME: &'static str;

    /// Brings one object a step further, or to what its spec says.
    fn advance(&self, context: &Context) -> impl Future<Output = Result<Action, Error>> + Send;

    /// Says of one object that the API server refuses for good what it needs. It must hold up nobody else.
    fn refused(&self, error: &Error, context: &Context) -> impl Future<Output = Result<Action, Error>> + Send;

    /// The status of an object that this version cannot read, besides `observedGeneration`.
    fn unreadable(message: &str, stamp: &Stamp) -> Value;
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
    let generation = object.meta().generation;
    let stamp = Stamp { now: Time(Timestamp::now()), generation, previous: Vec::new() };
    let mut status = K::unreadable(&message, &stamp);
    status["observedGeneration"] = json!(generation);
    write_status::<K>(&name, &object.namespace().unwrap_or_default(), status, context).await.map(drop)
}
