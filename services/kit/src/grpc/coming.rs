//! Calls of which more is to come, on all connections: where there is no room for what comes next, one of them makes it.
//!
//! It is the one that has held the most for the longest, of the origin that holds the most; who would be that himself is refused. So whoever
//! sends little or quickly is served beside any number that begin large messages and stand still, and where nobody else wants the room a slow client
//! may be as slow as it likes. Until its first message is whole, what a call holds is its headers, too: a call costs little to begin. The call
//! that goes ends at once, whatever its service is at; until it is gone its room counts as free, up to a bound.
//!
//! There may be hundreds of thousands, and who asks for room is as cheap as a header: so the one that goes is found without a look at all of them.

use std::collections::{BTreeMap, HashMap};
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
    /// Those that hold something.
    origins: HashMap<Arc<str>, Origin>,
    /// What those hold that were told to go and have not gone.
    leaving_bytes: usize,
}

/// Messages of one origin that were not told to go.
#[derive(Debug, Default)]
struct Origin {
    bytes: usize,
    messages: BTreeMap<Rank, Arc<Message>>,
}

/// Messages of about the same size are together, the oldest first: size, time, number.
type Rank = (u32, u64, u64);

/// Four for each doubling.
fn size_class(bytes: usize) -> u32 {
    let doublings = bytes.max(4).ilog2();
    doublings * 4 + (bytes >> (doublings - 2) & 3) as u32
}

/// The message that a call waits for the rest of, with what else goes when that call does. Between two messages it holds nothing.
#[derive(Debug)]
pub(crate) struct Message {
    origin: Arc<str>,
    number: u64,
    // What follows is changed under the lock of all.
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

    /// Ready when it must make room.
    pub(crate) fn poll_must_go(&self, context: &Context<'_>) -> Poll<()> {
        self.waker.register(context.waker());
        if self.must_go() && self.bytes() > 0 { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Whether it was told to.
    pub(crate) fn must_go(&self) -> bool {
        self.must_go.load(Ordering::Acquire)
    }

    fn rank(&self) -> Rank {
        (size_class(self.bytes()), self.since_micros.load(Ordering::Relaxed), self.number)
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

    /// A call that holds nothing yet.
    pub(crate) fn begin(&self, origin: &Arc<str>) -> Arc<Message> {
        let number = {
            let mut messages = self.lock();
            messages.last += 1;
            messages.last
        };
        Arc::new(Message {
            origin: Arc::clone(origin),
            number,
            since_micros: AtomicU64::new(0),
            bytes: AtomicUsize::new(0),
            must_go: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        })
    }

    /// So much of this one is here; 0: none has begun, or it is over. One that became whole as it was told to go stays, and the next one of its stream
    /// was not meant.
    pub(crate) fn holds(&self, message: &Arc<Message>, bytes: usize) {
        // Only its own call changes it.
        let before = message.bytes();
        if before == bytes {
            return;
        }
        let mut messages = self.lock();
        messages.take_out(message);
        message.bytes.store(bytes, Ordering::Relaxed);
        if bytes == 0 || before == 0 {
            message.must_go.store(false, Ordering::Release);
        }
        if before == 0 {
            message.since_micros.store(now_micros(), Ordering::Relaxed);
        }
        messages.put_in(message);
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
        let mut messages = self.lock();
        loop {
            let missing = missing();
            // Nobody goes in vain.
            if missing > leaving_max {
                return false;
            }
            if missing <= messages.leaving_bytes && take(messages.leaving_bytes.min(leaving_max)) {
                return true;
            }
            let Some(next) = messages.next_to_go(asker, bytes) else { return false };
            messages.go(&next);
        }
    }
}

impl Messages {
    /// What it holds does not count until it is put in again.
    fn take_out(&mut self, message: &Message) {
        let bytes = message.bytes();
        if bytes == 0 {
            return;
        }
        if message.must_go() {
            self.leaving_bytes -= bytes;
            return;
        }
        let Some(origin) = self.origins.get_mut(&message.origin) else { return };
        origin.messages.remove(&message.rank());
        origin.bytes -= bytes;
        if origin.messages.is_empty() {
            self.origins.remove(&message.origin);
        }
    }

    fn put_in(&mut self, message: &Arc<Message>) {
        let bytes = message.bytes();
        if bytes == 0 {
            return;
        }
        if message.must_go() {
            self.leaving_bytes += bytes;
            return;
        }
        let origin = self.origins.entry(Arc::clone(&message.origin)).or_default();
        origin.messages.insert(message.rank(), Arc::clone(message));
        origin.bytes += bytes;
    }

    fn go(&mut self, message: &Arc<Message>) {
        self.take_out(message);
        message.must_go.store(true, Ordering::Release);
        self.put_in(message);
        message.waker.wake();
    }

    /// The one that has held most for longest, about, of the origin that holds the most; `None`: that is who asks.
    fn next_to_go(&self, asker: Asker<'_>, bytes: usize) -> Option<Arc<Message>> {
        let held =
            |(name, origin): (&Arc<str>, &Origin)| origin.bytes + if **name == *asker.origin { bytes } else { 0 };
        let (name, fullest) = self.origins.iter().max_by_key(|origin| held(*origin))?;
        let is_own = **name == *asker.origin;
        // Who asks may hold nothing yet.
        if !is_own && fullest.bytes < bytes {
            return None;
        }
        let now_micros = now_micros();
        let own = asker.message.map_or(0, |message| message.weight(bytes, now_micros));
        let heaviest = fullest.heaviest(asker.message.map(|message| message.number), now_micros)?;
        (!is_own || heaviest.weight(0, now_micros) > own).then(|| Arc::clone(heaviest))
    }
}

impl Origin {
    /// The heaviest but this one: of each size the oldest is looked at.
    fn heaviest(&self, but: Option<u64>, now_micros: u64) -> Option<&Arc<Message>> {
        let mut heaviest: Option<&Arc<Message>> = None;
        let mut class = 0;
        while let Some((&(next, ..), _)) = self.messages.range((class, 0, 0)..).next() {
            class = next + 1;
            let mut of_class = self.messages.range((next, 0, 0)..(class, 0, 0)).map(|(_, message)| message);
            let oldest = of_class.find(|message| Some(message.number) != but);
            heaviest = heaviest.into_iter().chain(oldest).max_by_key(|message| message.weight(0, now_micros));
        }
        heaviest
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Duration;

    use super::*;

    fn begun(coming: &Coming, origin: &str, bytes: usize) -> Arc<Message> {
        let message = coming.begin(&origin.into());
        coming.holds(&message, bytes);
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
        let goes = coming.lock().next_to_go(asker, bytes)?;
        all.iter().find(|(_, message)| Arc::ptr_eq(message, &goes)).map(|(name, _)| *name)
    }

    #[test]
    fn who_holds_most_for_longest_makes_room_and_who_would_be_that_himself_is_refused() {
        let coming = Coming::default();
        let (older, old) = (begun(&coming, "a", 60), begun(&coming, "a", 50));
        let new = begun(&coming, "a", 0);
        std::thread::sleep(Duration::from_millis(5));
        coming.holds(&new, 40);
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
        coming.holds(&message, 0);
        assert!(!must_go() && !make_room(), "nothing of it waits for anything");
        // Told too late.
        message.must_go.store(true, Ordering::Release);
        assert!(!must_go());
        coming.holds(&message, 100);
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

    /// Each that asked looked at all, twice for each that went: with a header for each, a client kept every thread busy.
    #[test]
    fn who_asks_for_room_looks_at_few_however_many_wait() {
        let coming = Coming::default();
        let _waiting = (0..200_000).map(|number| begun(&coming, "a", 5_000 + number % 3_000)).collect::<Vec<_>>();
        let began = Instant::now();
        for _ in 0..2_000 {
            let asker = Asker { origin: "a", message: None };
            let leaving = coming.lock().leaving_bytes;
            assert!(coming.make_room(asker, 5_000, usize::MAX, || leaving + 5_000, |_| true));
        }
        // Two thousand looks at all of them take more than that by far.
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    }
}
