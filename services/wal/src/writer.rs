//! A log with a thread: whoever arrives while a batch is being synced goes into the next batch, so that one sync serves all
//! of them. Those who were just told are waited for a little, if they tend to come back: see [`Pace`]. Alone, a record is written
//! at once; who knows that it is alone may have it written on its own thread, which saves two switches of threads.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::error::CommitError;
use crate::files::Directory;
use crate::log::Log;
use crate::pace::Pace;
use crate::record::{PAYLOAD_BYTES_MAX, Record, size};
use crate::spares::Spares;
use crate::sync_times::SyncRecorder;

/// Limits of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterOptions {
    /// What may wait, in bytes on disk. More is rejected.
    pub queue_bytes_max: usize,
    /// What is written and synced at once, in bytes on disk; a larger submission is a batch of its own.
    pub batch_bytes_max: usize,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self { queue_bytes_max: 64 << 20, batch_bytes_max: 1 << 20 }
    }
}

/// Called on the writer's thread when the records are safe, or will never be. In the order of submission.
pub type Done = Box<dyn FnOnce(Result<(), CommitError>) + Send>;

/// Why records were not taken. Their `Done` is not called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// Too much is waiting already.
    #[error("the log has more to write than it may keep waiting; try again later")]
    Busy,
    /// A payload is larger than [`PAYLOAD_BYTES_MAX`].
    #[error("a payload is larger than {PAYLOAD_BYTES_MAX} bytes; split it")]
    TooLarge,
    /// The writer has been stopped.
    #[error("the log is closed")]
    Stopped,
}

struct Submission {
    records: Vec<Record>,
    bytes: usize,
    done: Done,
}

#[derive(Default)]
struct Queue {
    submissions: VecDeque<Submission>,
    bytes: usize,
    records: usize,
    /// A batch was taken and is not done: nothing else may be written, or it would overtake.
    is_writing: bool,
    is_closed: bool,
}

/// The log, for whoever has set [`Queue::is_writing`].
struct Disk<D: Directory> {
    log: Log<D>,
    spares: Spares<D>,
    failed: Option<CommitError>,
}

struct Shared<D: Directory> {
    queue: Mutex<Queue>,
    changed: Condvar,
    disk: Mutex<Disk<D>>,
    options: WriterOptions,
    /// Of all segments' files, after the last batch.
    bytes: AtomicU64,
    sync_times: Arc<SyncRecorder>,
}

impl<D: Directory> Shared<D> {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For whoever has set [`Queue::is_writing`].
    fn commit(&self, records: &[Record]) -> Result<(), CommitError> {
        debug_assert!(self.lock().is_writing, "whoever writes has said so, or two batches could overtake one another");
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        let Disk { log, spares, failed } = &mut *disk;
        if let Some(error) = failed {
            return Err(error.clone());
        }
        let (began, syncs) = (Instant::now(), log.segments.syncs);
        // Where panics unwind, who waits would wait for ever; and nobody knows what is on disk.
        let written = catch_unwind(AssertUnwindSafe(|| spares.supply(log).and_then(|()| log.commit(records))));
        let result = written.unwrap_or_else(|panic| Err(CommitError::poisoned("writing a batch", panicked(&*panic))));
        if log.segments.syncs > syncs {
            self.sync_times.record(began.elapsed());
        }
        self.bytes.store(log.bytes(), Ordering::Relaxed);
        *failed = result.clone().err();
        result
    }
}

/// What a panic said, as an error.
fn panicked(panic: &(dyn Any + Send)) -> io::Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
    io::Error::other(format!("an assertion failed, please report it: {text}"))
}

/// The only one that writes to a log. After the first batch that cannot be written it writes nothing more, also when the disk was
/// only full: what comes later must not be found behind a hole. A panic while it writes is such a failure.
pub struct Writer<D: Directory> {
    shared: Arc<Shared<D>>,
    thread: Option<JoinHandle<()>>,
}

impl<D: Directory> Writer<D> {
    /// Gives a log its threads: one that writes, one that makes files ahead.
    pub fn start(log: Log<D>, options: WriterOptions) -> io::Result<Self> {
        let bytes = AtomicU64::new(log.bytes());
        let spares = Spares::start(log.directory().clone())?;
        let disk = Mutex::new(Disk { log, spares, failed: None });
        let (queue, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { queue, changed, disk, options, bytes, sync_times: Arc::default() });
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("wal".into()).spawn(move || write(&of_thread))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Hands records over. They become safe together, after all that were submitted before.
    pub fn submit(&self, records: Vec<Record>, done: Done) -> Result<(), Rejected> {
        if records.iter().any(|record| record.payload.len() > PAYLOAD_BYTES_MAX) {
            return Err(Rejected::TooLarge);
        }
        let bytes = records.iter().map(|record| size(record.payload.len())).sum();
        let mut queue = self.shared.lock();
        if queue.is_closed {
            return Err(Rejected::Stopped);
        }
        // Something larger than the whole queue must get in at some time.
        if !queue.submissions.is_empty() && queue.bytes + bytes > self.shared.options.queue_bytes_max {
            return Err(Rejected::Busy);
        }
        queue.bytes += bytes;
        queue.records += records.len();
        queue.submissions.push_back(Submission { records, bytes, done });
        drop(queue);
        self.shared.changed.notify_one();
        Ok(())
    }

    /// Writes and syncs records on the caller's thread. `None`: other records wait or are being written, or the writer has been
    /// stopped; [`Writer::submit`] them.
    pub fn commit_here(&self, records: &[Record]) -> Option<Result<(), CommitError>> {
        let mut queue = self.shared.lock();
        if !queue.submissions.is_empty() || queue.is_writing || queue.is_closed {
            return None;
        }
        queue.is_writing = true;
        drop(queue);
        let result = self.shared.commit(records);
        let mut queue = self.shared.lock();
        queue.is_writing = false;
        let is_waited_for = !queue.submissions.is_empty() || queue.is_closed;
        drop(queue);
        if is_waited_for {
            self.shared.changed.notify_one();
        }
        Some(result)
    }

    /// How long batches took to become safe on disk; counts on while the writer lives.
    pub fn sync_times(&self) -> Arc<SyncRecorder> {
        Arc::clone(&self.shared.sync_times)
    }

    /// Bytes of all segments' files, as of the last batch.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }
}

impl<D: Directory> Drop for Writer<D> {
    /// Writes what was submitted, and [seals](Log::seal) the log, then ends.
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // It ends by itself; a panic in it has been reported already.
            drop(thread.join());
        }
    }
}

fn write<D: Directory>(shared: &Shared<D>) {
    let mut records = Vec::new();
    let (mut pace, mut told) = (Pace::default(), Instant::now());
    while let Some(batch) = next_batch(shared, &mut pace, told) {
        let mut waiting = Vec::with_capacity(batch.len());
        for submission in batch {
            records.extend(submission.records);
            waiting.push(submission.done);
        }
        let began = Instant::now();
        let result = shared.commit(&records);
        let (took, count) = (began.elapsed(), records.len());
        records.clear();
        for done in waiting {
            done(result.clone());
        }
        let mut queue = shared.lock();
        queue.is_writing = false;
        pace.committed(count, took, queue.records);
        drop(queue);
        told = Instant::now();
    }
    let mut disk = shared.disk.lock().unwrap_or_else(PoisonError::into_inner);
    if disk.failed.is_none() {
        // Without it a damaged byte of the last batch could not be told from a crash; nothing else is lost.
        let _ = disk.log.seal();
    }
}

/// Waits for work. `None` when there will be none any more.
fn next_batch<D: Directory>(shared: &Shared<D>, pace: &mut Pace, told: Instant) -> Option<Vec<Submission>> {
    let mut queue = shared.lock();
    while queue.submissions.is_empty() || queue.is_writing {
        if queue.is_closed && !queue.is_writing {
            return None;
        }
        queue = shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
    if let Some((wish, patience)) = pace.wish() {
        let left = patience.saturating_sub(told.elapsed());
        let must_wait = |queue: &mut Queue| queue.records < wish && !queue.is_closed;
        let waited = shared.changed.wait_timeout_while(queue, left, must_wait);
        queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        pace.waited(queue.records);
    }
    let mut bytes = 0;
    let mut count = 0;
    for submission in &queue.submissions {
        if count > 0 && bytes + submission.bytes > shared.options.batch_bytes_max {
            break;
        }
        bytes += submission.bytes;
        count += 1;
    }
    assert!(!queue.is_writing && count > 0, "one batch at a time, and none without records");
    queue.records -= queue.submissions.iter().take(count).map(|submission| submission.records.len()).sum::<usize>();
    queue.bytes -= bytes;
    queue.is_writing = true;
    Some(queue.submissions.drain(..count).collect())
}
