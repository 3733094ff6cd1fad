//! ListAndWatch: many watchers of the same objects, each on a connection of its own, and clients that change them.
//!
//! Each watcher must be told of each change exactly once, in the order of the object's versions. A client makes its next
//! change when every watcher has seen its last, so that nothing waits here and a slow watcher is seen in the latencies.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, WatchParams};
use tokio::sync::oneshot;
use tokio::task::spawn_local;

use super::{Kubernetes, Plan, answered, aside, connection, content, create_prepared, follow, manifests};
use crate::failure::Failure;
use crate::load::session::Session;

/// The changes that are under way, by the object's name.
#[derive(Debug, Default)]
pub struct FanOut {
    changes: Rc<RefCell<HashMap<String, Change>>>,
    broken: Rc<RefCell<Option<Failure>>>,
}

/// A change that some watchers have not seen yet.
#[derive(Debug)]
struct Change {
    version: u64,
    sent: Instant,
    due: Option<Instant>,
    session: Rc<Session>,
    watchers_left: u32,
    seen_by_all: oneshot::Sender<()>,
}

/// The first client creates all objects and then opens all watches: an object that came later would not be in the lists.
pub async fn prepare(kubernetes: &Rc<Kubernetes>, session: &Session) -> Result<(), Failure> {
    if session.client() != 0 {
        return Ok(());
    }
    let plan = &kubernetes.plan;
    let api = kubernetes.api::<ConfigMap>(session);
    for number in 0..plan.parameters.objects() {
        let name = Plan::prepared(number);
        let object = manifests::config_map(&plan.scope, &name, kubernetes.content(&name, 0));
        create_prepared(session, &api, &object).await?;
        plan.expected.set(&name, 0);
    }
    for _ in 0..plan.parameters.watchers() {
        aside(session, watch(kubernetes, session)).await?;
    }
    Ok(())
}

/// Lists and then watches, on a connection and a task of its own.
async fn watch(kubernetes: &Rc<Kubernetes>, session: &Session) -> Result<(), Failure> {
    let (plan, context) = (&kubernetes.plan, &kubernetes.seat.context);
    let client = connection::connect(&plan.kubeconfig, context.timeout).await?;
    let api = Api::<ConfigMap>::namespaced(client, &plan.scope.namespace());
    let selector = plan.scope.selector();
    let (listed, version) = follow::list(&api, &selector).await?;
    let mut versions: HashMap<String, u64> = HashMap::new();
    for object in &listed {
        let name = object.metadata.name.clone().unwrap_or_default();
        match kubernetes.mismatch(&name, 0, manifests::data_of(object)) {
            None => session.verified(1),
            Some(detail) => session.wrong(name.clone(), detail),
        }
        versions.insert(name, 0);
    }
    let parameters = WatchParams::default().labels(&selector);
    let first = answered(api.watch(&parameters, &version).await, "watch", "ConfigMaps")?.boxed_local();
    let (kubernetes, changes) = (Rc::clone(kubernetes), Rc::clone(&kubernetes.fan_out.changes));
    spawn_local(async move {
        let mut see = |object: ConfigMap, is_gone: bool, at: Instant| {
            arrived(&kubernetes, &mut versions, &object, is_gone, at);
        };
        let failure = follow::keep_watching(&api, &parameters, version, first, &mut see).await;
        kubernetes.fan_out.broken.borrow_mut().get_or_insert(failure);
        // Whoever waits for this watcher hears that it is gone.
        changes.borrow_mut().clear();
    });
    Ok(())
}

/// An event arrived at a watcher that has seen these versions so far.
fn arrived(
    kubernetes: &Kubernetes,
    versions: &mut HashMap<String, u64>,
    object: &ConfigMap,
    is_gone: bool,
    at: Instant,
) {
    let name = object.metadata.name.clone().unwrap_or_default();
    let mut changes = kubernetes.fan_out.changes.borrow_mut();
    // Without a change under way it is the clean-up's, or another's, which the read-back finds.
    let Some(change) = changes.get_mut(&name).filter(|_| !is_gone) else { return };
    let found = manifests::data_of(object).and_then(content::version);
    let last = versions.get(&name).copied();
    if found != Some(change.version) || last.map(|last| last + 1) != found {
        let detail =
            format!("expected the event of version {} after that of {last:?}, found that of {found:?}", change.version);
        // It counts as seen all the same, so that the client goes on and the answer is what the trial is about.
        change.session.wrong(name.clone(), detail);
    } else {
        change.session.verified(1);
    }
    versions.insert(name.clone(), change.version);
    change.session.delivered(change.due, change.sent, at);
    change.watchers_left = change.watchers_left.saturating_sub(1);
    if change.watchers_left == 0
        && let Some(change) = changes.remove(&name)
    {
        // Nobody waits where the phase was stopped.
        let _ = change.seen_by_all.send(());
    }
}

/// Changes the client's objects one after another.
pub async fn load(kubernetes: &Kubernetes, session: &Rc<Session>) -> Result<(), Failure> {
    let (plan, fan_out) = (&kubernetes.plan, &kubernetes.fan_out);
    let api = kubernetes.api::<ConfigMap>(session);
    let own: Vec<String> = kubernetes.own_objects(session).map(Plan::prepared).collect();
    for name in own.iter().cycle() {
        let Some(mut batch) = session.next().await else { break };
        let version = plan.expected.version(name).unwrap_or_default() + 1;
        let (seen_by_all, all_saw) = oneshot::channel();
        let change = Change {
            version,
            sent: batch.sent(),
            due: session.due(&batch),
            session: Rc::clone(session),
            watchers_left: plan.parameters.watchers(),
            seen_by_all,
        };
        fan_out.changes.borrow_mut().insert(name.clone(), change);
        let patch = Patch::Merge(manifests::config_map_change(&kubernetes.content(name, version)));
        answered(api.patch(name, &PatchParams::default(), &patch).await, "patch ConfigMap", name)?;
        plan.expected.set(name, version);
        if all_saw.await.is_err() {
            let broken = fan_out.broken.borrow().clone();
            return Err(broken.unwrap_or_else(|| Failure::new("a watch ended")));
        }
        session.answered_uncounted(&mut batch, 1);
    }
    Ok(())
}
