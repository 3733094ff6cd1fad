//! A thread that works through what it is given, in order. Blocks are compressed and framed there while those behind them are received and
//! hashed. What is short is worked on by who brings it, where nothing is before it: to wake a thread takes longer.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

struct Waiting<T> {
    items: VecDeque<T>,
    is_closed: bool,
    /// The thread waits: to wake it costs a system call, which a thread that works does not need.
    is_idle: bool,
}

struct Queue<T> {
    waiting: Mutex<Waiting<T>>,
    changed: Condvar,
}

impl<T> Queue<T> {
    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Waiting<T>)) {
        let mut waiting = self.lock();
        change(&mut waiting);
        let was_idle = std::mem::take(&mut waiting.is_idle);
        drop(waiting);
        if was_idle {
            self.changed.notify_one();
        }
    }

    /// The next one, when there is one; `None`: it is closed.
    fn next(&self) -> Option<T> {
        let mut waiting = self.lock();
        loop {
            if waiting.is_closed {
                return None;
            }
            if let Some(item) = waiting.items.pop_front() {
                return Some(item);
            }
            waiting.is_idle = true;
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The thread, and what waits for it.
pub struct Packer<T> {
    queue: Arc<Queue<T>>,
    pack: Arc<dyn Fn(T) + Send + Sync>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Packer<T> {
    /// Starts the thread; `pack` is called there, or by who hands something over.
    pub fn start(pack: impl Fn(T) + Send + Sync + 'static) -> io::Result<Self> {
        let pack: Arc<dyn Fn(T) + Send + Sync> = Arc::new(pack);
        let waiting = Waiting { items: VecDeque::new(), is_closed: false, is_idle: false };
        let queue = Arc::new(Queue { waiting: Mutex::new(waiting), changed: Condvar::new() });
        let (of_thread, packs) = (Arc::clone(&queue), Arc::clone(&pack));
        let work = move || {
            while let Some(item) = of_thread.next() {
                packs(item);
            }
        };
        let thread = thread::Builder::new().name("packer".into()).spawn(work)?;
        Ok(Self { queue, pack, thread: Some(thread) })
    }

    /// Hands something over, or works on it at once if it is short and nothing is before it. The caller bounds what waits. It is the only one
    /// at a time, so that what one has in hand is before what the next one brings.
    pub fn hand(&mut self, item: T, is_short: bool) {
        // A thread that waits has nothing in hand either.
        if is_short && self.queue.lock().is_idle {
            return (self.pack)(item);
        }
        self.queue.change(|waiting| waiting.items.push_back(item));
    }
}

impl<T> Drop for Packer<T> {
    /// Ends with what it works on. What waits behind that is dropped: at zstd's higher levels it would take minutes.
    fn drop(&mut self) {
        self.queue.change(|waiting| waiting.is_closed = true);
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has ended as well.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A packer that is as slow as told, and what it has packed.
    fn packer(of_each: impl Fn(u32) -> Duration + Send + Sync + 'static) -> (Packer<u32>, Arc<Mutex<Vec<u32>>>) {
        let packed = Arc::new(Mutex::new(Vec::new()));
        let of_thread = Arc::clone(&packed);
        let pack = move |number| {
            thread::sleep(of_each(number));
            of_thread.lock().unwrap().push(number);
        };
        (Packer::start(pack).unwrap(), packed)
    }

    #[test]
    fn what_is_handed_over_is_worked_through_in_order_whoever_is_faster() {
        let (mut packer, packed) = packer(|number| Duration::from_millis(u64::from(number < 10)));
        for number in 0..1_000 {
            packer.hand(number, false);
            if number % 100 == 99 {
                thread::sleep(Duration::from_millis(2));
            }
        }
        harness::until("all of it", || packed.lock().unwrap().len() == 1_000);
        assert_eq!(*packed.lock().unwrap(), (0..1_000).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_short_is_worked_on_at_once_and_never_before_what_came_earlier() {
        let threads = Arc::new(Mutex::new(Vec::new()));
        let of_each = Arc::clone(&threads);
        let (mut packer, packed) = packer(move |number| {
            of_each.lock().unwrap().push(thread::current().id());
            Duration::from_micros(u64::from(number % 7 == 0) * 300)
        });
        harness::until("it waits", || packer.queue.lock().is_idle);
        packer.hand(0, true);
        assert_eq!(
            (&packed.lock().unwrap()[..], &threads.lock().unwrap()[..]),
            (&[0][..], &[thread::current().id()][..])
        );
        for number in 1..2_000 {
            packer.hand(number, number % 7 != 0);
            if number % 10 == 0 {
                thread::sleep(Duration::from_micros(200));
            }
        }
        harness::until("all of it", || packed.lock().unwrap().len() == 2_000);
        assert_eq!(*packed.lock().unwrap(), (0..2_000).collect::<Vec<_>>());
        let here = threads.lock().unwrap().iter().filter(|thread| **thread == thread::current().id()).count();
        assert!((1..2_000).contains(&here), "{here} of 2000 here");
    }

    #[test]
    fn it_ends_without_what_still_waits() {
        let (mut packer, packed) = packer(|_| Duration::from_millis(5));
        (0..10_000).for_each(|number| packer.hand(number, false));
        drop(packer);
        let packed = packed.lock().unwrap();
        assert!(packed.len() < 10_000, "it has worked for {} ms", 5 * packed.len());
        assert_eq!(*packed, (0..packed.len() as u32).collect::<Vec<_>>());
    }
}
