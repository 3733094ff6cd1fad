//! MixedChurn: reads, changes, deletions and creations of ConfigMaps, each answer of a read checked.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use super::{Kubernetes, Plan, answered, create_prepared, manifests, now};
use crate::content::seeds::mix;
use crate::failure::Failure;
use crate::load::session::{Batch, Session};

/// Of ten requests that write and find their object, so many delete it; another creates it again later.
const DELETIONS_OF_TEN: u32 = 3;

/// An object of a client's own: whether it is there, and the last version that it had.
struct Object {
    name: String,
    version: u64,
    is_there: bool,
}

/// Creates the client's objects.
pub async fn prepare(kubernetes: &Kubernetes, session: &Session) -> Result<(), Failure> {
    let plan = &kubernetes.plan;
    let api = kubernetes.api::<ConfigMap>(session);
    for number in kubernetes.own_objects(session) {
        let name = Plan::prepared(number);
        let object = manifests::config_map(&plan.scope, &name, kubernetes.content(&name, 0));
        create_prepared(session, &api, &object).await?;
        plan.expected.set(&name, 0);
    }
    Ok(())
}

/// The load. Where an object is not there it is created, whatever was drawn.
pub async fn load(kubernetes: &Kubernetes, session: &Session) -> Result<(), Failure> {
    let plan = &kubernetes.plan;
    let read_percent = plan.parameters.read_percent.unwrap_or_default();
    let api = kubernetes.api::<ConfigMap>(session);
    let seed = mix(kubernetes.seat.context.seed, u64::from(session.client()));
    // The same requests in both phases would make the measured phase a repetition of the warm-up.
    let mut random = SmallRng::seed_from_u64(mix(seed, session.phase() as u64));
    let mut objects: Vec<Object> = (kubernetes.own_objects(session).map(Plan::prepared))
        .map(|name| {
            let version = plan.expected.version(&name);
            Object { version: version.unwrap_or_default(), is_there: version.is_some(), name }
        })
        .collect();
    // A warm-up may have deleted an object whose version nobody remembers; a higher one than any is as good.
    if let Some(highest) = objects.iter().map(|object| object.version).max() {
        objects.iter_mut().filter(|object| !object.is_there).for_each(|object| object.version = highest + 1);
    }
    while let Some(mut batch) = session.next().await {
        let at = random.random_range(0..objects.len());
        let object = &mut objects[at];
        if !object.is_there {
            create(kubernetes, session, &api, object, &mut batch).await?;
        } else if random.random_range(0..100) < read_percent {
            read(kubernetes, session, &api, object, &mut batch).await?;
        } else if random.random_range(0..10) < DELETIONS_OF_TEN {
            answered(api.delete(&object.name, &DeleteParams::default()).await, "delete ConfigMap", &object.name)?;
            session.answered(&mut batch, 1, now());
            object.is_there = false;
            plan.expected.remove(&object.name);
        } else {
            change(kubernetes, session, &api, object, &mut batch).await?;
        }
    }
    Ok(())
}

async fn create(
    kubernetes: &Kubernetes,
    session: &Session,
    api: &Api<ConfigMap>,
    object: &mut Object,
    batch: &mut Batch,
) -> Result<(), Failure> {
    let (name, version) = (&object.name, object.version + 1);
    let made = manifests::config_map(&kubernetes.plan.scope, name, kubernetes.content(name, version));
    answered(api.create(&PostParams::default(), &made).await, "create ConfigMap", name)?;
    session.answered(batch, 1, now());
    kubernetes.plan.expected.set(name, version);
    (object.version, object.is_there) = (version, true);
    Ok(())
}

/// A read must find the version that was last acknowledged: this client alone writes the object.
async fn read(
    kubernetes: &Kubernetes,
    session: &Session,
    api: &Api<ConfigMap>,
    object: &Object,
    batch: &mut Batch,
) -> Result<(), Failure> {
    let found = answered(api.get_opt(&object.name).await, "get ConfigMap", &object.name)?;
    session.answered(batch, 1, now());
    let data = found.as_ref().and_then(manifests::data_of);
    match kubernetes.mismatch(&object.name, object.version, data) {
        None => session.verified(1),
        Some(detail) => session.wrong(object.name.clone(), detail),
    }
    Ok(())
}

async fn change(
    kubernetes: &Kubernetes,
    session: &Session,
    api: &Api<ConfigMap>,
    object: &mut Object,
    batch: &mut Batch,
) -> Result<(), Failure> {
    let (name, version) = (&object.name, object.version + 1);
    let patch = Patch::Merge(manifests::config_map_change(&kubernetes.content(name, version)));
    answered(api.patch(name, &PatchParams::default(), &patch).await, "patch ConfigMap", name)?;
    session.answered(batch, 1, now());
    kubernetes.plan.expected.set(name, version);
    object.version = version;
    Ok(())
}
