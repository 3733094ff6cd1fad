//! A thread that works through what it is given, in order. Blocks are compressed and framed there while those behind them are received and
//! hashed.

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
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Packer<T> {
    /// Starts the thread; `pack` is called there.
    pub fn start(pack: impl Fn(T) + Send + 'static) -> io::Result<Self> {
        let waiting = Waiting { items: VecDeque::new(), is_closed: false, is_idle: false };
        let queue = Arc::new(Queue { waiting: Mutex::new(waiting), changed: Condvar::new() });
        let of_thread = Arc::clone(&queue);
        let work = move || {
            while let Some(item) = of_thread.next() {
                pack(item);
            }
        };
        let thread = thread::Builder::new().name("packer".into()).spawn(work)?;
        Ok(Self { queue, thread: Some(thread) })
    }

    /// Hands something over. The caller bounds what waits.
    pub fn hand(&self, item: T) {
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
    fn packer(of_each: impl Fn(u32) -> Duration + Send + 'static) -> (Packer<u32>, Arc<Mutex<Vec<u32>>>) {
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
        let (packer, packed) = packer(|number| Duration::from_millis(u64::from(number < 10)));
        for number in 0..1_000 {
            packer.hand(number);
            if number % 100 == 99 {
                thread::sleep(Duration::from_millis(2));
            }
        }
        harness::until("all of it", || packed.lock().unwrap().len() == 1_000);
        assert_eq!(*packed.lock().unwrap(), (0..1_000).collect::<Vec<_>>());
    }

    #[test]
    fn it_ends_without_what_still_waits() {
        let (packer, packed) = packer(|_| Duration::from_millis(5));
        (0..10_000).for_each(|number| packer.hand(number));
        drop(packer);
        let packed = packed.lock().unwrap();
        assert!(packed.len() < 10_000, "it has worked for {} ms", 5 * packed.len());
        assert_eq!(*packed, (0..packed.len() as u32).collect::<Vec<_>>());
    }
}
