//! Copies of the state for clients, as etcd's own database file: on the disk from before they are written until nobody takes them any more.
//!
//! Promises: one is written at a time, by a thread that comes after everything else. Who asks while one is written shares the next one with all who
//! wait for it, so that however many ask at once, two are written; and in it is all that this member had acknowledged before it was asked for. One
//! that nobody waits for any more is not written to its end. All give way when writes want their room.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use service_kit::grpc::{Code, Status};
use tokio::sync::watch;

use crate::aside::Aside;
use crate::backup;
use crate::space::{Reserved, Space};
use crate::store::View;

/// One of them. It has no name in the directory, and is gone when it is dropped.
#[derive(Debug)]
pub struct DatabaseCopy {
    file: File,
    room: Reserved,
    bytes: u64,
}

/// Where they are made.
#[derive(Debug)]
pub struct Copies(Shared<Result<Arc<DatabaseCopy>, Status>>);

impl Default for Copies {
    fn default() -> Self {
        Self(Shared::new("snapshot"))
    }
}

impl Copies {
    /// The copy that this writes, of what there is when it is its turn, or that of somebody who waits already.
    pub async fn copy(
        &self,
        write: impl FnOnce(&IsWanted<'_>) -> Result<DatabaseCopy, Status> + Send + 'static,
    ) -> Result<Arc<DatabaseCopy>, Status> {
        self.0.share(move |is_wanted| write(is_wanted).map(Arc::new)).await?
    }
}

impl DatabaseCopy {
    /// Writes a view into a directory that has room for it; `index` and `term` are those of the last entry of the log that is in it, about. Takes time.
    pub fn write(
        (view, index, term): (&View, u64, u64),
        space: &Space,
        directory: &Path,
        is_wanted: &IsWanted<'_>,
    ) -> Result<Self, Status> {
        let Some(mut room) = space.reserve(view.bytes()) else {
            let full = "rusd: snapshot: the disk of --data-dir has no room for it beside what is kept free for the log; make room, or ask \
                        another member";
            return Err(Status::new(Code::ResourceExhausted, full));
        };
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::StorageFull => given_up(),
            _ => Status::new(Code::Internal, format!("rusd: snapshot: {error}")),
        };
        let mut file = tempfile::tempfile_in(directory).map_err(failed)?;
        backup::write(CopyFile { file: &mut file, room: &mut room, is_wanted }, view, index, term).map_err(failed)?;
        room.finish();
        let bytes = file.metadata().map_err(failed)?.len();
        Ok(Self { file, room, bytes })
    }

    /// How long it is.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// So many bytes of it from an offset; it must have them.
    pub async fn read(self: &Arc<Self>, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let this = Arc::clone(self);
        let read = move || {
            let mut read = vec![0; bytes];
            this.file.read_exact_at(&mut read, offset).map(|()| read)
        };
        tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
    }

    /// Comes when writes want its room: it is to be dropped.
    pub async fn wanted_back(&self) -> Status {
        self.room.wanted_back().await;
        given_up()
    }
}

fn given_up() -> Status {
    let why = "rusd: snapshot: it was given up, since writes want its room on the disk of --data-dir; make room, or ask another member";
    Status::new(Code::ResourceExhausted, why)
}

/// The file of a copy while it is written. It is full when its room is wanted back, and ends when nobody wants it any more.
struct CopyFile<'a> {
    file: &'a mut File,
    room: &'a mut Reserved,
    is_wanted: &'a IsWanted<'a>,
}

impl Write for CopyFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.room.is_wanted_back() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if !(self.is_wanted)() {
            return Err(io::Error::other("nobody waits for it any more"));
        }
        let written = self.file.write(bytes)?;
        self.room.wrote(written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for CopyFile<'_> {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.file.seek(position)
    }
}

/// Work whose result does for all who asked before it was begun.
#[derive(Debug)]
struct Shared<T> {
    aside: Aside,
    next: Arc<Mutex<Option<Awaited<T>>>>,
}

type Awaited<T> = watch::Receiver<Option<T>>;

/// Whether somebody waits for it still.
pub type IsWanted<'a> = dyn Fn() -> bool + 'a;

impl<T: Clone + Send + Sync + 'static> Shared<T> {
    /// One at a time, by a thread of this name.
    fn new(name: &'static str) -> Self {
        Self { aside: Aside::new(name, 1), next: Arc::default() }
    }

    /// What such work gives that begins from now on: this, or that of somebody who waits already.
    async fn share(&self, work: impl FnOnce(&IsWanted<'_>) -> T + Send + 'static) -> Result<T, Status> {
        let mut awaited = self.join(work)?;
        let done = awaited.wait_for(Option::is_some).await.ok().and_then(|done| done.clone());
        done.ok_or_else(|| self.aside.interrupted())
    }

    fn join(&self, work: impl FnOnce(&IsWanted<'_>) -> T + Send + 'static) -> Result<Awaited<T>, Status> {
        let mut next = locked(&self.next);
        if let Some(awaited) = &*next {
            return Ok(awaited.clone());
        }
        let (done, awaited) = watch::channel(None);
        let waiting = Arc::clone(&self.next);
        let begun = self.aside.begin(move || {
            // Who comes from now on may have written something that this does not see.
            drop(locked(&waiting).take());
            if !done.is_closed() {
                let result = work(&|| !done.is_closed());
                done.send_replace(Some(result));
            }
        });
        begun.map_err(|error| self.aside.without_thread(&error))?;
        *next = Some(awaited.clone());
        Ok(awaited)
    }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

    use futures::future::join_all;

    use super::*;

    /// Sixteen calls wrote sixteen files, each as long as all data.
    #[tokio::test]
    async fn all_who_ask_while_one_is_made_share_the_next() {
        let shared = Shared::new("test");
        let (begun, newest) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(1)));
        let goes_on = Arc::new(Barrier::new(2));
        let made = |waits: bool| {
            let (begun, newest, goes_on) = (Arc::clone(&begun), Arc::clone(&newest), Arc::clone(&goes_on));
            move |_: &IsWanted<'_>| {
                let found = newest.load(SeqCst);
                begun.fetch_add(1, SeqCst);
                if waits {
                    goes_on.wait();
                }
                found
            }
        };
        let first = shared.join(made(true)).unwrap();
        while begun.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        newest.store(2, SeqCst);
        let others = join_all((0..16).map(|_| shared.share(made(false))));
        let release = async { goes_on.wait() };
        let (others, _) = futures::join!(others, release);
        assert!(others.into_iter().all(|found| found == Ok(2)), "what was there when they asked is not missing");
        assert_eq!((begun.load(SeqCst), *first.borrow()), (2, Some(1)));
        assert_eq!(shared.share(made(false)).await, Ok(2), "who comes later begins anew");
        assert_eq!(begun.load(SeqCst), 3);
    }

    #[tokio::test]
    async fn what_nobody_waits_for_is_not_begun_or_ends() {
        let shared = Shared::new("test");
        let (is_begun, has_ended) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let (begins, ends) = (Arc::clone(&is_begun), Arc::clone(&has_ended));
        let first = shared.join(move |is_wanted| {
            begins.wait();
            while is_wanted() {
                std::thread::yield_now();
            }
            ends.wait();
            1
        });
        is_begun.wait();
        // The second waits for its turn, and gives up.
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        let second = move |_: &IsWanted<'_>| {
            done.store(true, SeqCst);
            2
        };
        drop(shared.join(second).unwrap());
        drop(first);
        has_ended.wait();
        while locked(&shared.next).is_some() {
            tokio::task::yield_now().await;
        }
        assert_eq!(shared.share(|_| 3).await, Ok(3));
        assert!(!is_done.load(SeqCst));
    }

    #[tokio::test]
    async fn all_who_wait_are_told_what_went_wrong() {
        let shared = Shared::new("test");
        let goes_on = Arc::new(Barrier::new(2));
        let waits = Arc::clone(&goes_on);
        let first = shared.join(move |_| {
            waits.wait();
            waits.wait();
            Ok(())
        });
        goes_on.wait();
        let full = || shared.share(|_| Err(given_up()));
        let release = async { goes_on.wait() };
        let (one, other, _) = futures::join!(full(), full(), release);
        assert_eq!((one.unwrap(), other.unwrap()), (Err(given_up()), Err(given_up())));
        drop(first);
        let lost = shared.share(|_| std::panic::resume_unwind(Box::new("it is lost"))).await;
        assert_eq!(lost.unwrap_err().code, Code::Internal);
        assert_eq!(shared.share(|_| Ok(())).await, Ok(Ok(())), "the turn is another's");
    }

    /// What a client did not take stayed on the disk, and the whole group had the alarm for it until somebody disarmed that.
    #[tokio::test]
    async fn a_copy_ends_when_writes_want_its_room_or_nobody_waits_for_it() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("member/snap")).unwrap();
        let space = Space::new(directory.path(), directory.path(), 1);
        let is_wanted = AtomicBool::new(true);
        let ask = || is_wanted.load(SeqCst);
        let mut file = tempfile::tempfile().unwrap();
        let mut room = space.reserve(1000).unwrap();
        let mut copy = CopyFile { file: &mut file, room: &mut room, is_wanted: &ask };
        copy.write_all(&[7; 400]).unwrap();
        is_wanted.store(false, SeqCst);
        assert!(copy.write_all(&[7; 400]).is_err(), "nobody waits");
        is_wanted.store(true, SeqCst);
        assert!(space.take_back_copies(0));
        assert_eq!(copy.write_all(&[7; 400]).map_err(|error| error.kind()), Err(io::ErrorKind::StorageFull));
        assert_eq!(file.metadata().unwrap().len(), 400);
        // Who takes it hears of it, and holds no room any more when he has let it go.
        let copy = Arc::new(DatabaseCopy { file, room, bytes: 400 });
        assert_eq!(copy.wanted_back().await, given_up());
        let read = copy.read(0, 400).await.unwrap();
        assert_eq!(read, [7; 400]);
        drop(copy);
        assert!(!space.take_back_copies(0));
    }
}
