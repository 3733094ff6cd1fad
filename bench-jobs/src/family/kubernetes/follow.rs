//! Watches objects and tells whoever waits for one of them, with the instant at which the event arrived.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Debug;
use std::rc::Rc;
use std::time::Instant;

use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::spawn_local;

use super::connection::failure;
use crate::failure::Failure;

/// Events that may wait for one client. A rollout of thousands of pods has a few thousand.
const EVENTS_MAX: usize = 65_536;

/// An object as a watch delivered it.
#[derive(Debug)]
pub struct Seen<K> {
    /// Its state; the last one if it is gone.
    pub object: K,
    /// Whether it is gone.
    pub is_gone: bool,
    /// When the event arrived here.
    pub at: Instant,
}

/// Who waits for which object of one kind, on one thread.
#[derive(Debug)]
pub struct Hub<K> {
    waiting: RefCell<HashMap<String, Sender<Rc<Seen<K>>>>>,
    broken: RefCell<Option<Failure>>,
}

impl<K> Default for Hub<K> {
    fn default() -> Self {
        Self { waiting: RefCell::default(), broken: RefCell::default() }
    }
}

/// A client's interest in one object; ends when dropped.
#[derive(Debug)]
pub struct Interest<K> {
    hub: Rc<Hub<K>>,
    name: String,
    events: Receiver<Rc<Seen<K>>>,
}

impl<K> Hub<K> {
    /// Tells of all events of the object of this name from now on. Say so before the request that causes them.
    pub fn follow(self: &Rc<Self>, name: &str) -> Interest<K> {
        let (sender, events) = channel(EVENTS_MAX);
        self.waiting.borrow_mut().insert(name.into(), sender);
        Interest { hub: Rc::clone(self), name: name.into(), events }
    }

    fn tell(&self, name: &str, seen: Seen<K>) {
        let waiting = self.waiting.borrow();
        if let Some(sender) = waiting.get(name)
            && sender.try_send(Rc::new(seen)).is_err()
        {
            drop(waiting);
            self.break_off(Failure::new(format_args!("more than {EVENTS_MAX} events of {name} wait for a client")));
        }
    }

    /// Nobody will be told of anything any more.
    fn break_off(&self, failure: Failure) {
        self.broken.borrow_mut().get_or_insert(failure);
        self.waiting.borrow_mut().clear();
    }
}

impl<K> Interest<K> {
    /// The next event.
    pub async fn next(&mut self) -> Result<Rc<Seen<K>>, Failure> {
        if self.hub.broken.borrow().is_none()
            && let Some(seen) = self.events.recv().await
        {
            return Ok(seen);
        }
        let broken = self.hub.broken.borrow().clone();
        Err(broken.unwrap_or_else(|| Failure::new(format_args!("the watch of {} ended", self.name))))
    }

    /// The instant of the first event that `is_end`.
    pub async fn until(&mut self, is_end: impl Fn(&Seen<K>) -> bool) -> Result<Instant, Failure> {
        loop {
            let seen = self.next().await?;
            if is_end(&seen) {
                return Ok(seen.at);
            }
        }
    }
}

impl<K> Drop for Interest<K> {
    fn drop(&mut self) {
        self.hub.waiting.borrow_mut().remove(&self.name);
    }
}

/// Watches what `selector` finds, from now on, on a task of its own; returns when the API server has answered. `name` says
/// who waits for an object.
pub async fn watch<K>(api: Api<K>, selector: &str, name: fn(&K) -> Option<String>) -> Result<Rc<Hub<K>>, Failure>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + 'static,
{
    let hub = Rc::new(Hub::default());
    let listed = list(&api, selector).await?;
    let told = Rc::clone(&hub);
    let mut see = move |object: K, is_gone: bool, at: Instant| {
        if let Some(name) = name(&object) {
            told.tell(&name, Seen { object, is_gone, at });
        }
    };
    let (parameters, version) = (WatchParams::default().labels(selector), listed.1);
    let first =
        api.watch(&parameters, &version).await.map_err(|error| failure("watch", &K::kind(&()), &error))?.boxed_local();
    let watched = Rc::clone(&hub);
    spawn_local(async move {
        let failure = keep_watching(&api, &parameters, version, first, &mut see).await;
        watched.break_off(failure);
    });
    Ok(hub)
}

/// Everything that `selector` finds, page by page, and the version of the collection.
pub async fn list<K>(api: &Api<K>, selector: &str) -> Result<(Vec<K>, String), Failure>
where
    K: Clone + DeserializeOwned + Debug,
{
    const PAGE: u32 = 500;
    let mut objects = Vec::new();
    let mut parameters = ListParams::default().labels(selector).limit(PAGE);
    loop {
        let page = api.list(&parameters).await.map_err(|error| failure("list", selector, &error))?;
        objects.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok((objects, page.metadata.resource_version.unwrap_or_default())),
        }
    }
}

/// Hands every event to `see`; the API server ends a watch now and then, which is then continued where it ended. Returns
/// why it cannot go on.
pub async fn keep_watching<K>(
    api: &Api<K>,
    parameters: &WatchParams,
    mut version: String,
    first: futures::stream::LocalBoxStream<'static, kube::Result<WatchEvent<K>>>,
    see: &mut impl FnMut(K, bool, Instant),
) -> Failure
where
    K: kube::Resource + Clone + DeserializeOwned + Debug + 'static,
{
    let mut stream = first;
    loop {
        let ended = loop {
            let event = match stream.try_next().await {
                Ok(Some(event)) => event,
                Ok(None) => break None,
                Err(error) => break Some(failure("watch", "events", &error)),
            };
            let at = Instant::now();
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    version = object.resource_version().unwrap_or(version);
                    see(object, false, at);
                }
                WatchEvent::Deleted(object) => {
                    version = object.resource_version().unwrap_or(version);
                    see(object, true, at);
                }
                WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                WatchEvent::Error(status) => break Some(failure("watch", "events", &kube::Error::Api(status))),
            }
        };
        if let Some(failure) = ended {
            return failure;
        }
        stream = match api.watch(parameters, &version).await {
            Ok(stream) => stream.boxed_local(),
            Err(error) => return failure("watch", "again", &error),
        };
    }
}
