//! `block-node import DIRECTORY`: takes blocks from files of the Java node, in order, each verified as one that a publisher sends.
//!
//! Whole batches are appended to the store, which syncs each: whenever this ends, by an error, by a signal or by a loss of power, the store
//! holds verified blocks without a gap, and the next run goes on behind the last of them.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;
use std::fs::{self, File};
use std::io::BufReader;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use wal::files::Directory;

use super::{Archive, JavaFileError, Packing, block_of, read_recent};
use crate::block::{BLOCK_NUMBERS_END, Chain, Limits, ProofRules, Verified};
use crate::console;
use crate::data_directory::{self, DATA_DIR};
use crate::settings::{MESSAGE_BYTES, SEGMENT_BYTES, record_files};
use crate::store::{self, Prepared, Store, Trainer};

/// What is appended, and synced, at once.
const BATCH_BLOCKS: usize = 1_024;
const BATCH_BYTES: usize = 8 << 20;
/// Between two lines that tell how far it is.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// What is imported, and where to.
#[derive(Clone, Debug, Args)]
pub struct ImportFlags {
    /// Directory of the Java node's files: `.blk.zstd` and `.blk` in folders, ZIP files of them; which blocks they hold is told by their
    /// names, wherever they lie
    pub directory: PathBuf,
    /// Directory of the blocks to import into; a server must not have it open
    #[arg(long, visible_alias = "data-dir", env = "FILES_RECENT_LIVE_ROOT_PATH", default_value = "block-node-data")]
    pub files_recent_live_root_path: PathBuf,
    /// First block of a new store; without it the first that is found
    #[arg(long, env = "BLOCK_NODE_EARLIEST_MANAGED_BLOCK", value_parser = clap::value_parser!(u64).range(..BLOCK_NUMBERS_END))]
    pub block_node_earliest_managed_block: Option<u64>,
    /// Accept the hash of the root hash in a signature's place, which proves no origin; for tests
    #[arg(long, env = "BLOCK_NODE_ACCEPT_DUMMY_PROOFS")]
    pub accept_dummy_proofs: bool,
    /// JSON of who signs record files, as the server has it
    #[arg(long, env = "APP_STATE_RSA_BOOTSTRAP_FILE_PATH")]
    pub rsa_address_book: Option<PathBuf>,
    /// How many of an address book's nodes must have signed a record file, percent; one in any case
    #[arg(long, env = "BLOCK_NODE_RECORD_FILE_SIGNERS_PERCENT", default_value_t = 0, requires = "rsa_address_book", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub record_file_signers_percent: u8,
    /// The largest block, bytes
    #[arg(long, env = "SERVER_MAX_MESSAGE_SIZE_BYTES", default_value_t = 131_072_000, value_parser = clap::value_parser!(u32).range(MESSAGE_BYTES))]
    pub server_max_message_size_bytes: u32,
    /// Size at which a new file for blocks is begun, bytes
    #[arg(long, env = "BLOCK_NODE_SEGMENT_BYTES", default_value_t = 67_108_864, value_parser = clap::value_parser!(u64).range(SEGMENT_BYTES))]
    pub segment_bytes: u64,
    /// How hard zstd tries to make blocks small; 3 and 9 take less room and more processor time, see the README
    #[arg(long, env = "BLOCK_NODE_COMPRESSION_LEVEL", default_value_t = store::LEVEL, value_parser = clap::value_parser!(i32).range(1..=19))]
    pub compression_level: i32,
}

/// What was imported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// How many blocks.
    pub blocks: u64,
    /// Their bytes, not compressed.
    pub bytes: u64,
    /// Files that are no blocks by their names.
    pub passed_over: usize,
}

/// Why an import stopped. What was imported before stays.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Files.
    #[error("{0}")]
    File(#[from] JavaFileError),
    /// A file that is read as a whole.
    #[error("{0}: {1}")]
    Archive(PathBuf, JavaFileError),
    /// Nothing there; which files could not be read.
    #[error("{0}: no .blk.zstd, .blk or .zip file with blocks is in it{1}")]
    Nothing(PathBuf, Unread),
    /// A hole; which files could not be read.
    #[error(
        "block {0} is missing, but later ones are there: fetch it from elsewhere, or from a peer with --backfill-peers{1}"
    )]
    Missing(u64, Unread),
    /// Later than what is wanted.
    #[error("the store continues with block {0}; the first one here is {1}")]
    TooLate(u64, u64),
    /// Earlier than what is wanted.
    #[error(
        "the store begins with block {0}; the last one here is {1}: name an earlier --block-node-earliest-managed-block"
    )]
    TooEarly(u64, u64),
    /// A block that is not what it should be, in each of the files that have it.
    #[error("block {0} is refused: {1}")]
    Refused(u64, String),
    /// What they must continue is lost.
    #[error(
        "the last block of the store, {0}, is damaged together with its root hash: start the node with --backfill-peers whom you trust, and \
         --trust-peers-with-last-block"
    )]
    LostLast(u64),
    /// The store.
    #[error(transparent)]
    Store(#[from] store::AppendError),
}

/// ZIP files that could not be read, and why. They matter where a block is missing.
#[derive(Clone, Debug, Default)]
pub struct Unread(Vec<String>);

impl fmt::Display for Unread {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.is_empty() {
            true => Ok(()),
            false => write!(formatter, "; not read were {}", self.0.join("; ")),
        }
    }
}

/// Imports, tells on standard error how far it is, and prints what was imported.
pub fn run(flags: &ImportFlags) -> Result<(), Box<dyn Error>> {
    let record_files = record_files(flags.rsa_address_book.as_deref(), flags.record_file_signers_percent)?;
    let source = Source::scan(&flags.directory)?;
    let path = &flags.files_recent_live_root_path;
    let named = |error: &dyn std::fmt::Display| format!("{DATA_DIR}: {error}");
    let directory = data_directory::open(path).map_err(|error| named(&error))?;
    let options = store::Options {
        segment_bytes: flags.segment_bytes,
        first_block: flags.block_node_earliest_managed_block.unwrap_or(source.first),
        keep_blocks: None,
        salt: rand::random(),
        compression_level: flags.compression_level,
    };
    let mut store = Store::open(directory, options).map_err(|error| named(&error))?;
    let rules = ProofRules::published(flags.accept_dummy_proofs, record_files);
    let limits = Limits { block_bytes_max: flags.server_max_message_size_bytes as usize - 64 };
    let mut progress = Progress::new(source.last);
    let imported = import(source, &mut store, limits, &rules, |number, bytes| progress.tell(number, bytes))?;
    let chain = if store.chain().knows_all() { "compared" } else { "not known from the beginning, and not compared" };
    console::print(format_args!(
        "{} blocks imported, {} bytes; the next block is {}; {} other files passed over; tree of all root hashes: {chain}\n",
        imported.blocks,
        imported.bytes,
        store.chain().next(),
        imported.passed_over,
    ))?;
    Ok(())
}

struct Progress {
    began: Instant,
    told: Instant,
    last: u64,
    blocks: u64,
    bytes: u64,
}

impl Progress {
    fn new(last: u64) -> Self {
        Self { began: Instant::now(), told: Instant::now(), last, blocks: 0, bytes: 0 }
    }

    fn tell(&mut self, number: u64, bytes: usize) {
        self.blocks += 1;
        self.bytes += bytes as u64;
        if self.told.elapsed() < TELL_EVERY {
            return;
        }
        self.told = Instant::now();
        let seconds = self.began.elapsed().as_secs_f64();
        let rate = self.blocks as f64 / seconds;
        let left = self.last.saturating_sub(number) as f64 / rate;
        console::tell(format_args!("block {number} of {}: {rate:.0} blocks/s, about {left:.0} s to go", self.last));
    }
}

/// Files that blocks are imported from.
pub struct Source {
    /// Of each block that lies by itself, every file that has it.
    recent: BTreeMap<u64, Vec<(PathBuf, Packing)>>,
    unread: Unread,
    /// By their first block.
    archives: Vec<(RangeInclusive<u64>, PathBuf)>,
    /// So many of them end before the block that is wanted.
    passed: usize,
    open: Option<(PathBuf, Archive<BufReader<File>>)>,
    passed_over: usize,
    first: u64,
    last: u64,
}

impl Source {
    /// Looks what is in a directory, by names; the directories of ZIP files are read.
    pub fn scan(directory: &Path) -> Result<Self, ImportError> {
        let mut source = Self {
            recent: BTreeMap::new(),
            unread: Unread::default(),
            archives: Vec::new(),
            passed: 0,
            open: None,
            passed_over: 0,
            first: u64::MAX,
            last: 0,
        };
        let (mut folders, mut seen) = (vec![directory.to_owned()], BTreeSet::new());
        while let Some(folder) = folders.pop() {
            let failed = |error| JavaFileError::Files(folder.clone(), error);
            // By way of a link it may be met again.
            let place = fs::metadata(&folder).map_err(failed)?;
            if !seen.insert((place.dev(), place.ino())) {
                continue;
            }
            for entry in fs::read_dir(&folder).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                // A pipe would be waited for; a link is what it leads to.
                match fs::metadata(entry.path()) {
                    Ok(found) if found.is_dir() => folders.push(entry.path()),
                    Ok(found) if found.is_file() => source.found(entry.path()),
                    _ => source.passed_over += 1,
                }
            }
        }
        source.archives.sort_by_key(|(range, _)| *range.start());
        match source.first > source.last {
            true => Err(ImportError::Nothing(directory.to_owned(), source.unread)),
            false => Ok(source),
        }
    }

    fn found(&mut self, path: PathBuf) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some((number, packing)) = block_of(name) {
            self.has(number..=number);
            self.recent.entry(number).or_default().push((path, packing));
        } else if name.ends_with(".zip") {
            match open(&path).map(|archive| archive.range()) {
                Ok(Some(range)) => {
                    self.has(range.clone());
                    self.archives.push((range, path));
                }
                Ok(None) => self.passed_over += 1,
                Err(error) => {
                    self.passed_over += 1;
                    self.unread.0.push(error.to_string());
                }
            }
        } else {
            self.passed_over += 1;
        }
    }

    fn has(&mut self, range: RangeInclusive<u64>) {
        self.first = self.first.min(*range.start());
        self.last = self.last.max(*range.end());
    }

    /// Reads a block from each file that has it, until one is right. Numbers are asked for in ascending order.
    fn verified<T>(
        &mut self,
        number: u64,
        bytes_max: usize,
        check: impl Fn(Vec<u8>) -> Result<T, String>,
    ) -> Result<T, ImportError> {
        let mut wrong = Vec::new();
        while self.archives.get(self.passed).is_some_and(|(range, _)| *range.end() < number) {
            self.passed += 1;
        }
        let archives: Vec<PathBuf> = self.archives[self.passed..]
            .iter()
            .take_while(|(range, _)| *range.start() <= number)
            .filter(|(range, _)| range.contains(&number))
            .map(|(_, path)| path.clone())
            .collect();
        for path in archives {
            let read = self.archive(&path).map_err(|error| error.to_string());
            let read = read.and_then(|archive| archive.read(number, bytes_max).map_err(|error| error.to_string()));
            match read.and_then(&check) {
                Ok(right) => return Ok(right),
                Err(why) => wrong.push(format!("{}: {why}", path.display())),
            }
        }
        for (path, packing) in self.recent.get(&number).into_iter().flatten() {
            let read = read_recent(path, number, *packing, bytes_max);
            match read.map_err(|error| error.to_string()).and_then(&check) {
                Ok(right) => return Ok(right),
                Err(why) => wrong.push(format!("{}: {why}", path.display())),
            }
        }
        match wrong.is_empty() {
            true => Err(ImportError::Missing(number, self.unread.clone())),
            false => Err(ImportError::Refused(number, wrong.join("; "))),
        }
    }

    fn archive(&mut self, path: &Path) -> Result<&mut Archive<BufReader<File>>, ImportError> {
        let known = self.open.take().filter(|(open, _)| open == path);
        let opened = match known {
            Some(known) => known,
            None => (path.to_owned(), open(path)?),
        };
        Ok(&mut self.open.insert(opened).1)
    }
}

fn open(path: &Path) -> Result<Archive<BufReader<File>>, ImportError> {
    let file = File::open(path).map_err(|error| JavaFileError::Files(path.to_owned(), error))?;
    Archive::open(BufReader::new(file)).map_err(|error| ImportError::Archive(path.to_owned(), error))
}

/// Imports what comes behind the store's last block; `tell` hears each block's number and bytes before it is safe.
pub fn import<D: Directory>(
    mut source: Source,
    store: &mut Store<D>,
    limits: Limits,
    rules: &ProofRules,
    mut tell: impl FnMut(u64, usize),
) -> Result<Imported, ImportError> {
    let mut imported = Imported { passed_over: source.passed_over, ..Imported::default() };
    if store.chain().next() < source.first {
        return Err(ImportError::TooLate(store.chain().next(), source.first));
    }
    if store.reader().last().is_none() && store.chain().next() > source.last {
        return Err(ImportError::TooEarly(store.chain().next(), source.last));
    }
    if !store.knows_last() {
        return Err(ImportError::LostLast(store.chain().next() - 1));
    }
    let mut chain = store.chain().clone();
    let mut trainer = Trainer::new(store.dictionary());
    let (mut batch, mut batch_bytes, mut stopped) = (Vec::new(), 0, None);
    while chain.next() <= source.last && stopped.is_none() {
        let number = chain.next();
        match source.verified(number, limits.block_bytes_max, |block| check(number, &block, limits, rules, &chain)) {
            Ok(verified) => {
                tell(number, verified.bytes.len());
                imported.blocks += 1;
                imported.bytes += verified.bytes.len() as u64;
                chain.extend(verified.root);
                if let Some(training) = trainer.take(&verified.bytes) {
                    training.run(store.compression_level());
                }
                let prepared = Prepared::with(&verified, trainer.dictionary(), store.compression_level());
                batch_bytes += prepared.stored.len();
                batch.push(prepared);
            }
            // What was right before it is kept.
            Err(error) => stopped = Some(error),
        }
        if batch.len() >= BATCH_BLOCKS || batch_bytes >= BATCH_BYTES || stopped.is_some() {
            store.append(&std::mem::take(&mut batch))?;
            batch_bytes = 0;
        }
    }
    store.append(&batch)?;
    stopped.map_or(Ok(imported), Err)
}

fn check(number: u64, block: &[u8], limits: Limits, rules: &ProofRules, chain: &Chain) -> Result<Verified, String> {
    let verified = Verified::of(block, limits, rules).map_err(|error| error.to_string())?;
    if verified.number != number {
        return Err(format!("its header says {}", verified.number));
    }
    chain.check(number, &verified.footer).map_err(|error| error.to_string())?;
    Ok(verified)
}
