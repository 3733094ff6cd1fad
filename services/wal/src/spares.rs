//! A thread beside the writer: it makes files of zeros and makes names safe, one of these at a time, so that the writer begins its
//! next segment without a wait.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use crate::error::CommitError;
use crate::files::Directory;
use crate::log::Log;
use crate::rotation::create_spare;

enum Work {
    /// Of so many bytes.
    Create(u64),
    /// After so many changes.
    SyncNames(u64),
}

enum Finished<F> {
    Created(io::Result<F>, u64),
    SyncedNames(io::Result<()>, u64),
}

/// The thread, and what it was asked for.
pub(crate) struct Spares<D: Directory> {
    want: Option<SyncSender<Work>>,
    finished: Receiver<Finished<D::File>>,
    thread: Option<JoinHandle<()>>,
    is_working: bool,
    /// The segment in which a file was asked for last. Where there was no room there is none a moment later.
    asked_in: u64,
}

impl<D: Directory> Spares<D> {
    pub(crate) fn start(directory: D) -> io::Result<Self> {
        let (want, wanted) = sync_channel(1);
        let (finish, finished) = sync_channel(1);
        let thread = thread::Builder::new().name("wal-spare".into()).spawn(move || {
            for work in wanted {
                let done = match work {
                    Work::Create(bytes) => Finished::Created(create_spare(&directory, bytes), bytes),
                    Work::SyncNames(renamed) => Finished::SyncedNames(directory.sync(), renamed),
                };
                if finish.send(done).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { want: Some(want), finished, thread: Some(thread), is_working: false, asked_in: 0 })
    }

    /// Hands over what was done, and has the next thing done. An error says that the log is out of service.
    pub(crate) fn supply(&mut self, log: &mut Log<D>) -> Result<(), CommitError> {
        if let Ok(finished) = self.finished.try_recv() {
            self.is_working = false;
            match finished {
                Finished::Created(Ok(file), bytes) => log.add_spare(file, bytes)?,
                // Not reported: when the file is needed the log tries again itself, and reports that.
                Finished::Created(Err(_), _) => {}
                // Reported: the second of two syncs says nothing of what the first one lost.
                Finished::SyncedNames(synced, renamed) => log.names_synced(renamed, synced)?,
            }
        }
        if self.is_working {
            return Ok(());
        }
        if let Some(renamed) = log.segments.unsafe_names() {
            self.ask(Work::SyncNames(renamed));
        } else if log.segments.wants_spare(log.end) && log.segments.number() != self.asked_in {
            self.asked_in = log.segments.number();
            self.ask(Work::Create(log.options().segment_bytes.into()));
        }
        Ok(())
    }

    fn ask(&mut self, work: Work) {
        self.is_working = self.want.as_ref().is_some_and(|want| want.try_send(work).is_ok());
    }
}

impl<D: Directory> Drop for Spares<D> {
    fn drop(&mut self) {
        self.want = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it has been reported already.
            drop(thread.join());
        }
    }
}
