//! Who a member is, and whether it has lost its log: what every store writes down beside the log, and looks at before it opens it.
//!
//! A member that comes back without what it has acknowledged may not vote: it would help to elect somebody who lacks it too. So a store writes
//! down who its member is before there is a log ([`Known::begin`]), and the member writes into the same file that there is something in its
//! log before anybody is told of that ([`Known::begun`]). At the next start:
//!
//! | the file | files of a log | what follows |
//! | --- | --- | --- |
//! | says that there was something in a log | yes | the member goes on with it, and is refused if nothing is in it any more ([`Known::origin`]) |
//! | the same | no | [`IdentityError::LogLost`] |
//! | says that there was nothing | yes | it was ended meanwhile, and goes on with what there is |
//! | the same, or there is none | no | it is new, or has lost everything: the others are asked ([`who_knows`]), and it begins |
//! | there is none | yes | nobody says whose the log is ([`Standing::Unnamed`]) |
//!
//! Whoever knows a member that has lost everything may not answer at its start. So one that founds its group with others, and of which nothing says
//! that there was something in its log, asks again before it speaks to any of them, over restarts as well: see [`Founding`].
//!
//! What is in the file besides is the store's own: see [`Identity`]. Not covered: whoever knows a member whose directory is lost cannot be reached
//! before enough others are there that do not know it; an old copy of the directory is put in its place; a directory that is emptied of a member
//! that is alone.

mod founding;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use service_kit::directory::{file_in_place_of, make_private, write_whole};

use super::Status;
use super::member::Origin;

pub use founding::Founding;

/// The file that says it.
const FILE: &str = "identity.json";
/// Between questions of one who joins.
const JOIN_PAUSE: Duration = Duration::from_millis(100);

/// What a store writes down of a member.
pub trait Identity: Clone + Send + 'static {
    /// From the file's content, or what is wrong with that.
    fn decode(bytes: &[u8]) -> Result<Self, String>;

    /// As the file has it.
    fn encode(&self) -> io::Result<Vec<u8>>;

    /// Whether there has been something in the log.
    fn has_log(&self) -> bool;

    /// From now on there has been.
    fn set_has_log(&mut self);
}

/// Why a member does not know who it is, or must not go on.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file stands where the directory should be.
    #[error("{0} is a file: name a directory, or remove it")]
    NoDirectory(PathBuf),
    /// Something cannot be read or written.
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    /// The file was changed by somebody else.
    #[error("{0}: {1}")]
    Content(PathBuf, String),
    /// There was something in the log, which is gone.
    #[error("{0} had a log, and it is gone: this member would forget what it has acknowledged")]
    LogLost(PathBuf),
}

/// Where a member's data lie.
#[derive(Clone, Debug)]
pub struct Place {
    /// The directory with the file that says who it is.
    pub folder: PathBuf,
    /// The directory of its log.
    pub log: PathBuf,
}

/// Whether a member's state has what its log had decided when it was started: before that it would not know members that it knows, and may tell
/// nobody whom it knows.
#[derive(Debug, Default)]
pub struct CaughtUp(AtomicBool);

impl CaughtUp {
    /// Looks at the status until it has once.
    pub fn has(&self, status: impl FnOnce() -> Status) -> bool {
        if !self.0.load(Ordering::Relaxed) {
            let Status { id, applied, commit, .. } = status();
            self.0.store(id != 0 && applied >= commit, Ordering::Relaxed);
        }
        self.0.load(Ordering::Relaxed)
    }
}

/// What a directory makes of a member that starts.
pub enum Standing<I> {
    /// It has a log and goes on with it.
    Member(Known<I>),
    /// It has a log, and nobody says whose.
    Unnamed,
    /// There is nothing that it could have acknowledged: it begins, after the others were asked. With what a start wrote that was ended before
    /// there was a log.
    New(Option<I>),
}

impl Place {
    /// What the file says; `None`: there is none, or no directory. It makes nothing.
    pub fn read<I: Identity>(&self) -> Result<Option<I>, IdentityError> {
        self.refuse_file()?;
        let path = self.file();
        match fs::read(&path) {
            Ok(bytes) => I::decode(&bytes).map(Some).map_err(|error| IdentityError::Content(path, error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(IdentityError::File(path, error)),
        }
    }

    /// Whether there is such a file.
    pub fn is_written(&self) -> bool {
        self.file().exists()
    }

    /// Whether the log has files; what they have in them shows when it is opened.
    pub fn has_log_files(&self) -> Result<bool, IdentityError> {
        wal::is_begun(&self.log).map_err(|error| IdentityError::File(self.log.clone(), error))
    }

    /// Makes the directory for its user alone, if there is none.
    pub fn make(&self) -> Result<(), IdentityError> {
        self.refuse_file()?;
        make_private(&self.folder).map_err(|error| IdentityError::File(self.folder.clone(), error))
    }

    /// What a member starts as whose file says this, as [`Place::read`] has it.
    pub fn standing<I: Identity>(&self, found: Option<I>) -> Result<Standing<I>, IdentityError> {
        match (found, self.has_log_files()?) {
            (Some(identity), true) => Ok(Standing::Member(Known::new(self, identity))),
            (Some(identity), false) if identity.has_log() => Err(IdentityError::LogLost(self.log.clone())),
            (found, false) => Ok(Standing::New(found)),
            (None, true) => Ok(Standing::Unnamed),
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    fn refuse_file(&self) -> Result<(), IdentityError> {
        file_in_place_of(&self.folder).map_or(Ok(()), |found: &Path| Err(IdentityError::NoDirectory(found.to_owned())))
    }

    fn write(&self, identity: &impl Identity) -> Result<(), IdentityError> {
        let path = self.file();
        // All of it or nothing, and safe when this returns.
        let written = identity.encode().and_then(|bytes| write_whole(&path, &bytes));
        written.map_err(|error| IdentityError::File(path, error))
    }
}

struct Written<I> {
    place: Place,
    identity: I,
}

/// Who a member is, and where that is written down. Clones are the same one.
pub struct Known<I>(Arc<Mutex<Written<I>>>);

impl<I> Clone for Known<I> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<I: Identity> Known<I> {
    fn new(place: &Place, identity: I) -> Self {
        Self(Arc::new(Mutex::new(Written { place: place.clone(), identity })))
    }

    /// Writes down who a member is that begins.
    pub fn begin(place: &Place, identity: I) -> Result<Self, IdentityError> {
        place.write(&identity)?;
        Ok(Self::new(place, identity))
    }

    fn lock(&self) -> MutexGuard<'_, Written<I>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As it is written down.
    pub fn identity(&self) -> I {
        self.lock().identity.clone()
    }

    /// Changes it, and writes it down; it stays as it was if that fails.
    pub fn change(&self, change: impl FnOnce(&mut I)) -> Result<(), IdentityError> {
        let mut written = self.lock();
        let mut identity = written.identity.clone();
        change(&mut identity);
        written.place.write(&identity)?;
        written.identity = identity;
        Ok(())
    }

    /// How the member starts: with its log if there has been something in it, and else like this.
    pub fn origin(&self, first: Origin) -> Origin {
        if self.lock().identity.has_log() { Origin::GoOn } else { first }
    }

    /// For a member that founds its group with so many others, unless there has been something in its log: who asks them, and writes down that it
    /// begins. The member itself then starts with [`Begun::unwritten`]. `read` says what another one's introduction says of it; `None`: that is of
    /// another group.
    pub fn founding(
        &self,
        others: usize,
        read: impl Fn(&[u8]) -> Option<Said> + Send + Sync + 'static,
    ) -> Option<Founding> {
        if others == 0 || self.lock().identity.has_log() {
            return None;
        }
        let known = self.clone();
        Some(Founding::new(others, Box::new(read), Box::new(move || known.change(I::set_has_log))))
    }

    /// Writes down that there is something in the log, once the member says so.
    pub fn begun(&self) -> Begun {
        let known = self.clone();
        Begun(Box::new(move || {
            let is_written = known.lock().identity.has_log();
            if is_written { Ok(()) } else { known.change(I::set_has_log) }
        }))
    }
}

/// Told once that there is something in a member's log, before anybody is told of that.
pub struct Begun(Box<dyn FnOnce() -> Result<(), IdentityError> + Send>);

impl Begun {
    /// For a member whose directory nobody looks at before it starts: one that is never started again; and for one of which [`Founding`] writes it.
    pub fn unwritten() -> Self {
        Self(Box::new(|| Ok(())))
    }

    pub(crate) fn write(self) -> Result<(), IdentityError> {
        (self.0)()
    }
}

/// What another member says of one that has nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// It has acknowledged something, and so has lost it.
    HasAcknowledged,
    /// Not that anybody knows.
    Nothing,
    /// It should know, and cannot tell now.
    CannotTell(String),
}

/// Who of the other members says that one which has nothing has acknowledged something; an error if somebody is there, and nobody who is can
/// tell. `ask` says `None` of one that is not there, or begins as well, and of one of another group: these cannot know.
pub fn who_knows<A: Sync>(others: &[A], ask: impl Fn(&A) -> Option<Said> + Sync) -> Result<Option<&A>, String> {
    let (mut is_told, mut why) = (false, None);
    for (other, said) in others.iter().zip(ask_all(others, ask)) {
        match said {
            Some(Some(Said::HasAcknowledged)) => return Ok(Some(other)),
            Some(Some(Said::Nothing)) => is_told = true,
            Some(Some(Said::CannotTell(problem))) => why = Some(problem),
            Some(None) | None => {}
        }
    }
    why.filter(|_| !is_told).map_or(Ok(None), Err)
}

/// What a member says to one that joins its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Welcome<T> {
    /// It knows it; and who it is, or who the others are.
    Known(T),
    /// It does not know it yet, or does not answer.
    NotYet(String),
    /// It never will.
    Never(String),
}

/// Asks members until one of them knows this one. They may learn later than this one starts that it was added: they are asked again for so long.
pub fn join<A: Sync, T: Send>(
    members: &[A],
    patience: Duration,
    ask: impl Fn(&A) -> Welcome<T> + Sync,
) -> Result<T, String> {
    let deadline = Instant::now() + patience;
    loop {
        let (mut known, mut problem) = (None, "no member was named".to_owned());
        for welcome in ask_all(members, &ask).into_iter().flatten() {
            match welcome {
                Welcome::Known(said) => known = known.or(Some(said)),
                Welcome::NotYet(why) => problem = why,
                Welcome::Never(why) => return Err(why),
            }
        }
        match known {
            Some(known) => return Ok(known),
            None if Instant::now() >= deadline => return Err(problem),
            None => thread::sleep(JOIN_PAUSE),
        }
    }
}

/// Asks all at the same time, because one that hangs takes seconds; answers are in the order of those who are asked. `None`: asking has panicked.
fn ask_all<A: Sync, T: Send>(asked: &[A], ask: impl Fn(&A) -> T + Sync) -> Vec<Option<T>> {
    let ask = &ask;
    thread::scope(|scope| {
        let threads: Vec<_> = asked.iter().map(|one| scope.spawn(move || ask(one))).collect();
        threads.into_iter().map(|thread| thread.join().ok()).collect()
    })
}

#[cfg(test)]
mod tests;
