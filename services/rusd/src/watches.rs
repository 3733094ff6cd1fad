//! The watch streams of one worker thread: brings what was published to the thread's [`Hub`], and wakes who has something to say.
//!
//! The thread that applies only raises a flag, and only on threads that have watches; everything else happens where the
//! connections live.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::task::{Poll, Waker};

use tokio::sync::Notify;

use crate::store::Reader;
use crate::store::watch::{Hub, Limits, Response, StreamId};

/// Raised when something was published.
#[derive(Debug, Default)]
pub struct Signal {
    has_streams: AtomicBool,
    published: Notify,
    streams: AtomicUsize,
    watchers: AtomicUsize,
}

impl Signal {
    /// Streams and watchers of the thread that this is for.
    pub fn watched(&self) -> (usize, usize) {
        (self.streams.load(Ordering::Relaxed), self.watchers.load(Ordering::Relaxed))
    }

    /// Something was published. Cheap where nobody watches.
    pub fn raise(&self) {
        // Either this sees that there are streams, or they see what was published: see `Watches::open`.
        fence(Ordering::SeqCst);
        if self.has_streams.load(Ordering::SeqCst) {
            self.published.notify_one();
        }
    }
}

/// The watch streams of one worker thread. Clones are the same.
#[derive(Clone)]
pub struct Watches(Rc<Inner>);

struct Inner {
    reader: Reader,
    limits: Limits,
    signal: Arc<Signal>,
    live: RefCell<Live>,
}

#[derive(Default)]
struct Live {
    /// Only while there are streams: a hub that looks at nothing would hold history back.
    hub: Option<Hub>,
    streams: HashMap<StreamId, Place>,
    has_courier: bool,
}

#[derive(Debug, Default)]
struct Place {
    is_ready: bool,
    waker: Option<Waker>,
}

impl Watches {
    /// Of a thread that is woken by `signal`.
    pub fn new(reader: Reader, limits: Limits, signal: Arc<Signal>) -> Self {
        Self(Rc::new(Inner { reader, limits, signal, live: RefCell::default() }))
    }

    /// A new stream, which ends when it is dropped. Must be called within the thread's `LocalSet`.
    pub fn open(&self) -> Watching {
        self.0.signal.has_streams.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let mut live = self.0.live.borrow_mut();
        let hub = live.hub.get_or_insert_with(|| self.0.reader.hub(self.0.limits));
        let id = hub.open();
        live.streams.insert(id, Place::default());
        self.0.signal.streams.store(live.streams.len(), Ordering::Relaxed);
        if !std::mem::replace(&mut live.has_courier, true) {
            tokio::task::spawn_local(self.clone().carry());
        }
        Watching { watches: self.clone(), id }
    }

    /// Brings what was published, for as long as the thread lives.
    async fn carry(self) {
        loop {
            self.0.signal.published.notified().await;
            self.with(|hub| hub.published(self.0.reader.view()));
        }
    }

    /// Does something with the hub, and wakes the streams that have something to say then.
    fn with<T>(&self, act: impl FnOnce(&mut Hub) -> T) -> Option<T> {
        let mut live = self.0.live.borrow_mut();
        let live = &mut *live;
        let hub = live.hub.as_mut()?;
        let result = act(hub);
        self.0.signal.watchers.store(hub.watchers(), Ordering::Relaxed);
        for id in hub.take_ready() {
            if let Some(place) = live.streams.get_mut(&id) {
                place.is_ready = true;
                if let Some(waker) = place.waker.take() {
                    waker.wake();
                }
            }
        }
        Some(result)
    }
}

/// A stream of watches.
pub struct Watching {
    watches: Watches,
    id: StreamId,
}

impl Watching {
    /// Does something with this stream, in a hub that knows everything that was published before.
    pub fn ask(&self, act: impl FnOnce(&mut Hub, StreamId)) {
        let reader = &self.watches.0.reader;
        self.watches.with(|hub| {
            hub.published(reader.view());
            act(hub, self.id);
        });
    }

    /// Whether the client's next request may be looked at.
    pub fn wants_requests(&self) -> bool {
        self.watches.with(|hub| hub.wants_requests(self.id)).unwrap_or(false)
    }

    /// How much memory its watchers take, about.
    pub fn bytes(&self) -> usize {
        self.watches.with(|hub| hub.watchers_bytes(self.id)).unwrap_or_default()
    }

    /// What is to be said next.
    pub fn next(&self) -> Option<Response> {
        self.watches.with(|hub| hub.next(self.id)).flatten()
    }

    /// Waits until [`Watching::next`] may have something.
    pub async fn ready(&self) {
        poll_fn(|context| {
            let mut live = self.watches.0.live.borrow_mut();
            let Some(place) = live.streams.get_mut(&self.id) else { return Poll::Ready(()) };
            if std::mem::take(&mut place.is_ready) {
                return Poll::Ready(());
            }
            place.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut live = self.watches.0.live.borrow_mut();
        live.streams.remove(&self.id);
        if let Some(hub) = &mut live.hub {
            hub.close(self.id);
        }
        let signal = &self.watches.0.signal;
        signal.streams.store(live.streams.len(), Ordering::Relaxed);
        signal.watchers.store(live.hub.as_ref().map_or(0, Hub::watchers), Ordering::Relaxed);
        if live.streams.is_empty() {
            live.hub = None;
            self.watches.0.signal.has_streams.store(false, Ordering::SeqCst);
        }
    }
}
