//! A directory in memory that behaves as badly as a disk may: what was not synced may be lost, sector by sector and in any
//! order; names that were not synced may be the old ones; operations fail when told to; bits rot.
//!
//! Deterministic: every choice is made by the function that is given to [`SimulatedDirectory::crash`].

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Directory, File};

/// A write of this many bytes, aligned, arrives whole or not at all.
const SECTOR_BYTES: usize = 512;

/// What can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A write fails after its first half (`EIO`).
    Write,
    /// A sync of data fails, and what it should have made safe never will be, whatever later syncs say (as on Linux).
    DataSync,
    /// A sync of names fails.
    NameSync,
    /// A file cannot be created for lack of space.
    Create,
    /// From this operation on, of whatever kind, nothing happens any more, and [`SimulatedDirectory::crash`] must follow.
    Power,
}

#[derive(Debug, Default)]
struct Content {
    /// What a reader sees.
    current: Vec<u8>,
    /// What survives for sure.
    safe: Vec<u8>,
    /// Changes since the last sync.
    pending: Vec<Pending>,
}

#[derive(Debug)]
enum Pending {
    Write(usize, Vec<u8>),
    Length(usize),
}

#[derive(Debug)]
enum NameChange {
    Create(String, u64),
    Rename(String, String),
    Remove(String),
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<u64, Content>,
    next_file: u64,
    names: BTreeMap<String, u64>,
    safe_names: BTreeMap<String, u64>,
    pending_names: Vec<NameChange>,
    faults: Vec<(Fault, u64)>,
    /// Places of files that cannot be read, and with which error of the operating system.
    unreadable: Vec<(u64, Range<usize>, i32)>,
    has_power: bool,
    /// Files that were opened before a crash are of no use after it.
    epoch: u64,
    operations: u64,
}

/// A directory in memory. Clones are handles of the same one.
#[derive(Clone, Debug)]
pub struct SimulatedDirectory {
    state: Arc<Mutex<State>>,
}

/// A file in memory.
#[derive(Debug)]
pub struct SimulatedFile {
    state: Arc<Mutex<State>>,
    file: u64,
    epoch: u64,
}

impl Default for SimulatedDirectory {
    fn default() -> Self {
        Self { state: Arc::new(Mutex::new(State { has_power: true, ..State::default() })) }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn error(kind: io::ErrorKind, text: &str) -> io::Error {
    io::Error::new(kind, format!("simulated: {text}"))
}

fn apply(names: &mut BTreeMap<String, u64>, change: &NameChange) {
    match change {
        NameChange::Create(name, file) => {
            names.insert(name.clone(), *file);
        }
        NameChange::Rename(from, to) => {
            if let Some(file) = names.remove(from) {
                names.insert(to.clone(), file);
            }
        }
        NameChange::Remove(name) => {
            names.remove(name);
        }
    }
}

fn put(bytes: &mut Vec<u8>, offset: usize, written: &[u8]) {
    if bytes.len() < offset + written.len() {
        bytes.resize(offset + written.len(), 0);
    }
    bytes[offset..offset + written.len()].copy_from_slice(written);
}

impl State {
    /// Counts an operation, and says whether it shall fail.
    fn operate(&mut self, fault: Fault) -> io::Result<bool> {
        self.operations += 1;
        let mut fails = false;
        self.faults.retain_mut(|(armed, after)| {
            let concerns = *armed == fault || *armed == Fault::Power;
            if concerns && *after == 0 {
                match armed {
                    Fault::Power => self.has_power = false,
                    _ => fails = true,
                }
                return false;
            }
            *after -= u64::from(concerns);
            true
        });
        if self.has_power { Ok(fails) } else { Err(error(io::ErrorKind::BrokenPipe, "the power is off")) }
    }

    fn change_names(&mut self, change: NameChange) {
        apply(&mut self.names, &change);
        self.pending_names.push(change);
    }

    fn file(&mut self, name: &str) -> io::Result<u64> {
        self.names.get(name).copied().ok_or_else(|| error(io::ErrorKind::NotFound, name))
    }
}

impl SimulatedDirectory {
    /// Makes one operation fail: the first that the fault concerns after that many others.
    pub fn fail(&self, fault: Fault, after: u64) {
        lock(&self.state).faults.push((fault, after));
    }

    /// Operations so far that change something or make something safe.
    pub fn operations(&self) -> u64 {
        lock(&self.state).operations
    }

    /// The power goes and comes back. `choose` decides, by odd and even, of every sector that was written and not synced
    /// whether it arrived, and how many of the name changes did: the file system's journal keeps these in order.
    pub fn crash(&self, mut choose: impl FnMut() -> u64) {
        let state = &mut *lock(&self.state);
        state.has_power = true;
        state.faults.clear();
        state.epoch += 1;
        let changes = std::mem::take(&mut state.pending_names);
        let survive = choose() % (changes.len() as u64 + 1);
        for change in &changes[..survive as usize] {
            apply(&mut state.safe_names, change);
        }
        state.names = state.safe_names.clone();
        for content in state.files.values_mut() {
            for change in std::mem::take(&mut content.pending) {
                let (offset, written) = match change {
                    Pending::Write(offset, written) => (offset, written),
                    Pending::Length(length) => {
                        if choose() % 2 == 1 {
                            content.safe.truncate(length);
                        }
                        continue;
                    }
                };
                let mut position = 0;
                while position < written.len() {
                    let sector_end = (offset + position + 1).next_multiple_of(SECTOR_BYTES) - offset;
                    let piece = &written[position..sector_end.min(written.len())];
                    if choose() % 2 == 1 {
                        put(&mut content.safe, offset + position, piece);
                    }
                    position += piece.len();
                }
            }
            content.current = content.safe.clone();
        }
        let named: Vec<u64> = state.names.values().copied().collect();
        state.files.retain(|file, _| named.contains(file));
    }

    /// What a file holds, as a reader sees it.
    pub fn contents(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut state = lock(&self.state);
        let file = state.file(name)?;
        Ok(state.files.get(&file).map(|content| content.current.clone()).unwrap_or_default())
    }

    /// Replaces what a file holds, behind the log's back: rot, truncation, what you will.
    pub fn damage(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut state = lock(&self.state);
        let file = state.file(name)?;
        if let Some(content) = state.files.get_mut(&file) {
            change(&mut content.current);
            content.safe = content.current.clone();
        }
        Ok(())
    }

    /// Makes reads at these places of a file fail with this error of the operating system (`EIO`: a sector that the disk cannot read). Whole
    /// files are read all the same, and a copy has no such places.
    pub fn unreadable(&self, name: &str, places: Range<usize>, os_error: i32) -> io::Result<()> {
        let mut state = lock(&self.state);
        let file = state.file(name)?;
        state.unreadable.push((file, places, os_error));
        Ok(())
    }

    /// Everything can be read again.
    pub fn readable(&self) {
        lock(&self.state).unreadable.clear();
    }

    /// An independent copy of what would be found if the machine were restarted in good order.
    pub fn copy(&self) -> Self {
        let copy = Self::default();
        {
            let (state, mut to) = (lock(&self.state), lock(&copy.state));
            for (name, file) in &state.names {
                let current = state.files.get(file).map(|content| content.current.clone()).unwrap_or_default();
                to.files.insert(*file, Content { safe: current.clone(), current, pending: Vec::new() });
                to.names.insert(name.clone(), *file);
            }
            to.safe_names = to.names.clone();
            to.next_file = state.next_file;
        }
        copy
    }

    fn handle(&self, file: u64, epoch: u64) -> SimulatedFile {
        SimulatedFile { state: Arc::clone(&self.state), file, epoch }
    }
}

impl Directory for SimulatedDirectory {
    type File = SimulatedFile;

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(lock(&self.state).names.keys().cloned().collect())
    }

    fn create_zeroed(&self, name: &str, bytes: u64) -> io::Result<SimulatedFile> {
        let mut state = lock(&self.state);
        if state.operate(Fault::Create)? {
            return Err(error(io::ErrorKind::StorageFull, "the disk is full"));
        }
        let file = state.next_file;
        state.next_file += 1;
        let zeros = vec![0; bytes as usize];
        state.files.insert(file, Content { current: zeros.clone(), safe: zeros, pending: Vec::new() });
        state.change_names(NameChange::Create(name.into(), file));
        Ok(self.handle(file, state.epoch))
    }

    fn open(&self, name: &str) -> io::Result<SimulatedFile> {
        let mut state = lock(&self.state);
        let file = state.file(name)?;
        Ok(self.handle(file, state.epoch))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.operate(Fault::Power)?;
        state.file(from)?;
        state.change_names(NameChange::Rename(from.into(), to.into()));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.operate(Fault::Power)?;
        state.file(name)?;
        state.change_names(NameChange::Remove(name.into()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        if state.operate(Fault::NameSync)? {
            return Err(error(io::ErrorKind::Other, "names cannot be synced"));
        }
        state.pending_names.clear();
        state.safe_names = state.names.clone();
        Ok(())
    }
}

impl SimulatedFile {
    /// Does something to the contents, unless the file was opened before a crash.
    fn with<T>(&self, fault: Option<Fault>, act: impl FnOnce(&mut Content, bool) -> io::Result<T>) -> io::Result<T> {
        let mut state = lock(&self.state);
        if state.epoch != self.epoch {
            return Err(error(io::ErrorKind::BrokenPipe, "opened before a crash"));
        }
        let fails = fault.map_or(Ok(false), |fault| state.operate(fault))?;
        match state.files.get_mut(&self.file) {
            Some(content) => act(content, fails),
            None => Err(error(io::ErrorKind::NotFound, "removed")),
        }
    }
}

impl File for SimulatedFile {
    fn read(&self) -> io::Result<Vec<u8>> {
        self.with(None, |content, _| Ok(content.current.clone()))
    }

    fn read_first(&self, bytes: usize) -> io::Result<Vec<u8>> {
        self.with(None, |content, _| Ok(content.current[..bytes.min(content.current.len())].to_vec()))
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset as usize + into.len();
        let is_here = |(file, places, _): &&(u64, Range<usize>, i32)| {
            *file == self.file && places.start < end && offset < places.end as u64
        };
        if let Some((.., os_error)) = lock(&self.state).unreadable.iter().find(is_here) {
            return Err(io::Error::from_raw_os_error(*os_error));
        }
        self.with(None, |content, _| {
            let from = content.current.get(offset as usize..).and_then(|rest| rest.get(..into.len()));
            into.copy_from_slice(from.ok_or_else(|| error(io::ErrorKind::UnexpectedEof, "the file ends before"))?);
            Ok(())
        })
    }

    fn bytes(&self) -> io::Result<u64> {
        self.with(None, |content, _| Ok(content.current.len() as u64))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.with(Some(Fault::Write), |content, fails| {
            let written = if fails { &bytes[..bytes.len() / 2] } else { bytes };
            put(&mut content.current, offset as usize, written);
            content.pending.push(Pending::Write(offset as usize, written.to_vec()));
            if fails { Err(error(io::ErrorKind::Other, "a write failed")) } else { Ok(()) }
        })
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.with(Some(Fault::Write), |content, fails| {
            if fails {
                return Err(error(io::ErrorKind::Other, "a truncation failed"));
            }
            // The file system's journal keeps the new length before any later write, and may have it at once.
            content.current.truncate(bytes as usize);
            content.pending.push(Pending::Length(bytes as usize));
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(Some(Fault::DataSync), |content, fails| {
            let pending = std::mem::take(&mut content.pending);
            if fails {
                // The pages count as clean now: they are seen, and will never be written.
                return Err(error(io::ErrorKind::Other, "data cannot be synced"));
            }
            for change in pending {
                match change {
                    Pending::Write(offset, written) => put(&mut content.safe, offset, &written),
                    Pending::Length(length) => content.safe.truncate(length),
                }
            }
            Ok(())
        })
    }
}
