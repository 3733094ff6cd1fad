//! A store with a thread: blocks that arrive while a batch is being synced go into the next, so that one sync serves all of them.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use wal::files::Directory;

use super::AppendError;
use super::compress::Prepared;
use super::open::Store;

/// What is written and synced at once, bytes as stored; a larger block is a batch of its own.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// With so many blocks under way batches begin no sooner than …
const CROWD_BLOCKS: usize = 16;
/// … so long after one another. On a disk that syncs in some tenths of a millisecond each would have few blocks otherwise, and syncs, wake-ups
/// and acknowledgements would take the processors that hash and compress. Who has fewer under way waits for none of that.
const BATCHES_APART: Duration = Duration::from_millis(1);

/// A repair waits for so many batches at most: under load there is always another one.
const BATCHES_BEFORE_REPAIR: u32 = 16;

/// What became of a batch; told in order, on the writer's thread.
#[derive(Clone, Debug)]
pub enum Appended {
    /// All blocks up to this one are safe.
    Safe {
        /// The last block of the batch.
        last: u64,
        /// How long write and sync took.
        took: Duration,
    },
    /// There is no block yet, and this one is the first of all.
    Begun(u64),
    /// A block that was damaged is whole again.
    Repaired(u64),
    /// Nothing more will ever be safe.
    Failed(AppendError),
}

#[derive(Default)]
struct Queue {
    /// The first block of all, before there is one.
    first: Option<u64>,
    blocks: VecDeque<Prepared>,
    /// Earlier blocks, which are written once more.
    repairs: VecDeque<Prepared>,
    /// Batches that were written while one waited.
    batches_before_repair: u32,
    is_closed: bool,
    /// Nothing is written any more, and nothing taken.
    has_failed: bool,
    /// The thread waits: to wake it costs a system call, which a thread that syncs does not need.
    is_idle: bool,
}

enum Work {
    Begin(u64),
    Append(Vec<Prepared>),
    Repair(Prepared),
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `false`: nothing is taken any more.
    fn change(&self, change: impl FnOnce(&mut Queue)) -> bool {
        let mut queue = self.lock();
        if queue.has_failed {
            return false;
        }
        change(&mut queue);
        let was_idle = std::mem::take(&mut queue.is_idle);
        drop(queue);
        if was_idle {
            self.changed.notify_one();
        }
        true
    }

    /// What is to be written next, when there is something; `None`: it is closed, and all was written.
    fn work(&self) -> Option<Work> {
        let mut queue = self.lock();
        loop {
            if let Some(first) = queue.first.take() {
                return Some(Work::Begin(first));
            }
            let is_their_turn = queue.blocks.is_empty() || queue.batches_before_repair >= BATCHES_BEFORE_REPAIR;
            if is_their_turn && let Some(block) = queue.repairs.pop_front() {
                queue.batches_before_repair = 0;
                return Some(Work::Repair(block));
            }
            if !queue.blocks.is_empty() {
                break;
            }
            if queue.is_closed {
                return None;
            }
            queue.is_idle = true;
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if !queue.repairs.is_empty() {
            queue.batches_before_repair += 1;
        }
        let mut batch = Vec::new();
        let mut bytes = 0;
        while let Some(block) = queue.blocks.front() {
            bytes += block.stored.len();
            if bytes > BATCH_BYTES_MAX && !batch.is_empty() {
                break;
            }
            batch.extend(queue.blocks.pop_front());
        }
        Some(Work::Append(batch))
    }
}

/// The only one that appends to a store.
pub struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Gives a store its thread. `tell` is called there, after every batch; `under_way` says how many blocks are still to become safe then.
    pub fn start<D>(
        mut store: Store<D>,
        under_way: impl Fn() -> usize + Send + 'static,
        tell: impl Fn(Appended) + Send + 'static,
    ) -> io::Result<Self>
    where
        D: Directory + Sync,
        D::File: Sync,
    {
        let shared = Arc::new(Shared { queue: Mutex::default(), changed: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        let reader = store.reader();
        let write = move || {
            while let Some(work) = of_thread.work() {
                let began = Instant::now();
                // Whoever had no patience has handed it over once more.
                if matches!(&work, Work::Repair(block) if !reader.is_quarantined(block.number)) {
                    continue;
                }
                let written = match &work {
                    Work::Begin(first) => {
                        store.begin_at(*first);
                        Ok(())
                    }
                    Work::Append(batch) => store.append(batch),
                    Work::Repair(block) => store.repair(block),
                };
                if let Err(error) = written {
                    of_thread.change(|queue| *queue = Queue { has_failed: true, ..Queue::default() });
                    tell(Appended::Failed(error));
                    return;
                }
                match work {
                    Work::Begin(first) => tell(Appended::Begun(first)),
                    Work::Repair(block) => tell(Appended::Repaired(block.number)),
                    Work::Append(batch) => {
                        let Some(last) = batch.last().map(|block| block.number) else { continue };
                        tell(Appended::Safe { last, took: began.elapsed() });
                        store.prepare();
                        remove_old(&mut store);
                        if under_way() >= CROWD_BLOCKS {
                            thread::sleep(BATCHES_APART.saturating_sub(began.elapsed()));
                        }
                    }
                }
            }
            if let Err(error) = store.close() {
                tracing::warn!(%error, "the index is not synced; the next start writes what is missing of it again");
            }
        };
        let thread = thread::Builder::new().name("store".into()).spawn(write)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Hands a block over; its number is one more than that of the block before. The caller bounds what waits.
    pub fn append(&self, block: Prepared) {
        self.shared.change(|queue| queue.blocks.push_back(block));
    }

    /// The first block of all is this one; nothing was handed over before.
    pub fn begin_at(&self, first: u64) {
        self.shared.change(|queue| queue.first = Some(first));
    }

    /// Hands over an earlier block that was damaged; it is written when nothing else is waiting, or after some batches. The
    /// caller bounds what waits. `false`: nothing can be written any more.
    pub fn repair(&self, block: Prepared) -> bool {
        self.shared.change(|queue| match queue.repairs.iter_mut().find(|waiting| waiting.number == block.number) {
            Some(waiting) => *waiting = block,
            None => queue.repairs.push_back(block),
        })
    }
}

/// Behind the acknowledgement, which waits for nothing that it does not need.
fn remove_old<D: Directory>(store: &mut Store<D>) {
    match store.remove_old() {
        Ok(0) => {}
        Ok(segments) => tracing::info!(segments, first = store.reader().first(), "removed the oldest blocks"),
        Err(error) => tracing::warn!(%error, "old blocks cannot be removed; it is tried again with the next block"),
    }
}

impl Drop for Writer {
    /// Writes what was handed over, then ends.
    fn drop(&mut self) {
        self.shared.change(|queue| queue.is_closed = true);
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has ended as well.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::block::{Evidence, Footer, Verified};
    use crate::store::Options;
    use wal::files::{Fault, SimulatedDirectory};

    fn prepared(number: u64) -> Prepared {
        let footer = Footer { previous_root: [0; 48], all_previous_root: None, state_root: None };
        Prepared::of(&Verified {
            number,
            bytes: vec![7; 100],
            root: [0; 48],
            digest: [7; 32],
            footer,
            evidence: Evidence::Dummy,
            items: 0,
        })
    }

    #[test]
    fn what_is_handed_over_behind_a_failed_write_is_not_kept() {
        let directory = SimulatedDirectory::default();
        let store = Store::open(directory.clone(), Options::default()).unwrap();
        directory.fail(Fault::Write, 0);
        let (sender, told) = mpsc::channel();
        let writer = Writer::start(store, || 0, move |appended| sender.send(appended).unwrap()).unwrap();
        writer.append(prepared(0));
        assert!(matches!(told.recv(), Ok(Appended::Failed(_))));
        assert!(told.recv().is_err(), "the thread has ended");
        (1..50).for_each(|number| writer.append(prepared(number)));
        assert!((0..50).all(|number| !writer.repair(prepared(number))));
        let queue = writer.shared.lock();
        assert_eq!((queue.blocks.len(), queue.repairs.len()), (0, 0));
    }

    #[test]
    fn a_block_that_is_handed_over_again_for_repair_is_kept_once() {
        let shared = Shared { queue: Mutex::default(), changed: Condvar::new() };
        let writer = Writer { shared: Arc::new(shared), thread: None };
        assert!((0..9).all(|_| writer.repair(prepared(3))));
        assert_eq!(writer.shared.lock().repairs.len(), 1);
    }

    #[test]
    fn a_repair_does_not_wait_for_ever_behind_blocks_that_keep_coming() {
        let shared = Shared { queue: Mutex::default(), changed: Condvar::new() };
        shared.change(|queue| queue.repairs.extend([prepared(3), prepared(4)]));
        let mut repaired = Vec::new();
        for batch in 0..3 * u64::from(BATCHES_BEFORE_REPAIR) {
            shared.change(|queue| queue.blocks.push_back(prepared(100 + batch)));
            if let Some(Work::Repair(block)) = shared.work() {
                repaired.push((batch, block.number));
            }
        }
        let apart = u64::from(BATCHES_BEFORE_REPAIR);
        assert_eq!(repaired, [(apart, 3), (2 * apart + 1, 4)]);
        shared.change(|queue| queue.blocks.clear());
        shared.change(|queue| queue.repairs.push_back(prepared(5)));
        assert!(matches!(shared.work(), Some(Work::Repair(_))), "at once when nothing else is to be written");
    }
}
