//! Messages of which more is to come, on all connections: where there is no room for what comes next, one of them makes it.
//!
//! It is the one that has held the most for the longest, of the origin that holds the most; who would be that himself is refused. So whoever
//! sends little or quickly is served beside any number that begin large messages and stand still, and where nobody else wants the room a slow client
//! may be as slow as it likes. The call of the message that goes ends at once, whatever its service is at; until it is gone its room counts as
//! free, up to a bound.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use futures::task::AtomicWaker;

/// What messages count their time from.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

fn now_micros() -> u64 {
    EPOCH.elapsed().as_micros() as u64
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Coming(Mutex<Messages>);

#[derive(Debug, Default)]
struct Messages {
    last: u64,
    all: BTreeMap<u64, Arc<Message>>,
}

/// The message that a call waits for the rest of; between two of them it holds nothing.
#[derive(Debug)]
pub(crate) struct Message {
    origin: Arc<str>,
    since_micros: AtomicU64,
    bytes: AtomicUsize,
    must_go: AtomicBool,
    waker: AtomicWaker,
}

impl Message {
    /// What of it is here, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// So much of it is here; 0: none has begun. One that became whole as it was told to go stays, and the next one of its stream was not meant.
    pub(crate) fn holds(&self, bytes: usize) {
        let is_another = self.bytes.swap(bytes, Ordering::Relaxed) == 0;
        if bytes == 0 || is_another {
            self.must_go.store(false, Ordering::Release);
        }
        if bytes > 0 && is_another {
            self.since_micros.store(now_micros(), Ordering::Relaxed);
        }
    }

    /// Ready when it must make room.
    pub(crate) fn poll_must_go(&self, context: &Context<'_>) -> Poll<()> {
        self.waker.register(context.waker());
        if self.must_go() && self.bytes() > 0 { Poll::Ready(()) } else { Poll::Pending }
    }

    fn must_go(&self) -> bool {
        self.must_go.load(Ordering::Acquire)
    }

    fn go(&self) {
        self.must_go.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// How much it holds, times how long, if it held so many bytes more.
    fn weight(&self, more: usize, now_micros: u64) -> u128 {
        let since = now_micros.saturating_sub(self.since_micros.load(Ordering::Relaxed));
        (self.bytes() + more) as u128 * u128::from(since)
    }
}

/// Who wants room: where it comes from, and its message if that has a place.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) origin: &'a str,
    pub(crate) message: Option<&'a Message>,
}

impl Coming {
    fn lock(&self) -> MutexGuard<'_, Messages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call that has none yet.
    pub(crate) fn begin(&self, origin: &Arc<str>) -> (u64, Arc<Message>) {
        let message = Arc::new(Message {
            origin: Arc::clone(origin),
            since_micros: AtomicU64::new(0),
            bytes: AtomicUsize::new(0),
            must_go: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        let mut messages = self.lock();
        messages.last += 1;
        let number = messages.last;
        messages.all.insert(number, Arc::clone(&message));
        (number, message)
    }

    /// It is over, and what it held given back.
    pub(crate) fn end(&self, number: u64) {
        self.lock().all.remove(&number);
    }

    /// Tells messages to go until there is room for so many bytes. `missing` says how many bytes there are too few, at the moment, and `take` takes them
    /// where so many more than usual may be taken. No more than `leaving_max` is taken before it was given back.
    pub(crate) fn make_room(
        &self,
        asker: Asker<'_>,
        bytes: usize,
        leaving_max: usize,
        missing: impl Fn() -> usize,
        take: impl Fn(usize) -> bool,
    ) -> bool {
        let messages = self.lock();
        let mut leaving: usize =
            messages.all.values().filter(|message| message.must_go()).map(|message| message.bytes()).sum();
        loop {
            let missing = missing();
            // Nobody goes in vain.
            if missing > leaving_max {
                return false;
            }
            if missing <= leaving && take(leaving.min(leaving_max)) {
                return true;
            }
            let Some(next) = messages.next_to_go(asker, bytes) else { return false };
            leaving += next.bytes();
            next.go();
        }
    }
}

impl Messages {
    /// The one that has held most for longest, of the origin that holds the most; `None`: that is who asks.
    fn next_to_go(&self, asker: Asker<'_>, bytes: usize) -> Option<&Message> {
        let staying =
            || self.all.values().map(|message| &**message).filter(|message| !message.must_go() && message.bytes() > 0);
        let mut held = BTreeMap::from([(asker.origin, bytes)]);
        for message in staying() {
            *held.entry(&message.origin).or_default() += message.bytes();
        }
        let (fullest, _) = held.into_iter().max_by_key(|(_, bytes)| *bytes)?;
        let now_micros = now_micros();
        let own = asker.message.map_or(0, |message| message.weight(bytes, now_micros));
        let others = staying().filter(|message| {
            *message.origin == *fullest && !asker.message.is_some_and(|own| std::ptr::eq(own, *message))
        });
        let heaviest = others.max_by_key(|message| message.weight(0, now_micros))?;
        (fullest != asker.origin || heaviest.weight(0, now_micros) > own).then_some(heaviest)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Duration;

    use super::*;

    fn begun(coming: &Coming, origin: &str, bytes: usize) -> Arc<Message> {
        let (_, message) = coming.begin(&origin.into());
        message.holds(bytes);
        message
    }

    /// Who goes for so many bytes more of this one.
    fn who_goes<'a>(
        coming: &Coming,
        asker: &Message,
        bytes: usize,
        all: &[(&'a str, &Arc<Message>)],
    ) -> Option<&'a str> {
        let asker = Asker { origin: &asker.origin, message: Some(asker) };
        let goes = coming.lock().next_to_go(asker, bytes)? as *const Message;
        all.iter().find(|(_, message)| Arc::as_ptr(message) == goes).map(|(name, _)| *name)
    }

    #[test]
    fn who_holds_most_for_longest_makes_room_and_who_would_be_that_himself_is_refused() {
        let coming = Coming::default();
        let (older, old) = (begun(&coming, "a", 60), begun(&coming, "a", 50));
        let new = begun(&coming, "a", 0);
        std::thread::sleep(Duration::from_millis(5));
        new.holds(40);
        let all = [("old", &old), ("older", &older), ("new", &new)];
        assert_eq!(who_goes(&coming, &new, 10, &all), Some("older"));
        assert_eq!(who_goes(&coming, &old, 1, &all), Some("older"));
        assert_eq!(who_goes(&coming, &older, 1, &all), None, "it is the largest itself");
        // Of an origin that holds less than another anybody may ask, and that one makes room however new it is.
        let other = begun(&coming, "b", 100);
        let all = [("old", &old), ("older", &older), ("new", &new), ("other", &other)];
        assert_eq!(who_goes(&coming, &other, 10, &all), Some("older"));
        let another = begun(&coming, "b", 80);
        assert_eq!(who_goes(&coming, &older, 1, &all), Some("other"));
        drop(another);
    }

    /// A stream of JSON ended at its next value.
    #[test]
    fn who_was_told_to_go_as_it_became_whole_stays_and_so_does_what_follows_it() {
        let coming = Coming::default();
        let message = begun(&coming, "a", 100);
        let must_go = || message.poll_must_go(&Context::from_waker(Waker::noop())).is_ready();
        let make_room = || coming.make_room(Asker { origin: "b", message: None }, 10, 1_000, || 10, |_| true);
        assert!(make_room() && must_go());
        message.holds(0);
        assert!(!must_go() && !make_room(), "nothing of it waits for anything");
        // Told too late.
        message.go();
        assert!(!must_go());
        message.holds(100);
        assert!(!must_go());
        assert!(make_room() && must_go());
    }

    #[test]
    fn messages_go_until_there_is_room_and_none_goes_in_vain() {
        let coming = Coming::default();
        let all = [50, 60, 70].map(|bytes| begun(&coming, "a", bytes));
        std::thread::sleep(Duration::from_millis(5));
        let asker = Asker { origin: "b", message: None };
        let gone = || {
            all.iter().filter(|message| message.poll_must_go(&Context::from_waker(Waker::noop())).is_ready()).count()
        };
        assert!(!coming.make_room(asker, 10, 99, || 100, |_| true), "it would take more than may be taken ahead");
        assert_eq!(gone(), 0);
        assert!(coming.make_room(asker, 10, 1_000, || 100, |leaving| leaving >= 100));
        assert_eq!(gone(), 2);
        // What leaves is room until it is gone.
        assert!(coming.make_room(asker, 10, 1_000, || 130, |leaving| leaving == 130));
        assert_eq!(gone(), 2);
    }
}
