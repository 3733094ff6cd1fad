//! `rusd import`: takes over what an etcd had, from its data directory or from a snapshot, into a new data directory.
//!
//! As with `etcdutl snapshot restore`, the flags say who the new group is made of; numbers of members are new. Nothing is written before
//! the whole source was read. With `--bump-revision` and `--mark-compacted` it goes on from a later revision, as `etcdutl` lets it.

mod in_place;

use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::etcd_file::wal::{self, LogError};
use crate::etcd_file::{self, EtcdFileError, database_in};
use crate::flags::{Flags, Mistake, Url};
use crate::server::{self, ServerError};
use crate::settings::Settings;
use crate::store::State;
use crate::store::import::{Import, ImportError, Imported};

pub use in_place::{in_place, kept_in};

/// Pages of a database, to which a snapshot adds a checksum.
const PAGE_BYTES_MIN: u64 = 512;
const CHECKSUM_BYTES: u64 = 32;

/// Why nothing is taken over.
#[derive(Debug, thiserror::Error)]
pub enum CannotImport {
    /// The command line.
    #[error(transparent)]
    Usage(#[from] Mistake),
    /// Nothing to read.
    #[error("{0}: {1}; name a data directory of etcd, or a file that etcdctl snapshot save has written")]
    Source(PathBuf, String),
    /// The file.
    #[error("{0}: {1}")]
    File(PathBuf, EtcdFileError),
    /// What is in it.
    #[error("{0}: {1}")]
    Content(PathBuf, ImportError),
    /// The database lags behind the log.
    #[error(
        "{0}: the log has commands up to entry {1}, and the database has them up to {2}: etcd was killed, or runs, or others of its group \
         wrote when it was stopped; start it there once and stop it gently (a group: all of it, without clients), or take a snapshot and \
         import that"
    )]
    Killed(PathBuf, u64, u64),
    /// The log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The log shall be elsewhere.
    #[error(
        "--import-in-place: what etcd left in {0} is taken over with its log in member/wal only: move etcd's log there, if it is in {1}, \
         start once without --wal-dir, stop, and move member/wal to {1}"
    )]
    LogElsewhere(PathBuf, PathBuf),
    /// There is something already.
    #[error("--data-dir: {0} is there already; name a new one")]
    Exists(PathBuf),
    /// A folder.
    #[error(
        "{0}: {1}; nothing was changed that a next start does not go on with; rusd import SOURCE --data-dir=NEW needs a new folder only"
    )]
    Place(PathBuf, io::Error),
    /// The new data.
    #[error(transparent)]
    Server(#[from] ServerError),
}

/// Why a change is not taken.
enum Refused {
    File(EtcdFileError),
    Content(ImportError),
}

impl From<EtcdFileError> for Refused {
    fn from(error: EtcdFileError) -> Self {
        Self::File(error)
    }
}

/// What `rusd import` comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was asked for its usage: this.
    Help(String),
    /// It has taken a source over.
    Imported(Imported),
}

/// The command line behind `import`: a source among flags.
pub fn run(arguments: &[String]) -> Result<Outcome, CannotImport> {
    let (source, flags) = match arguments.split_first() {
        Some((source, flags)) if !source.starts_with('-') => (Some(source), flags),
        _ => (None, arguments),
    };
    let usage =
        || Mistake::new("import", "expected rusd import SOURCE --data-dir=NEW [FLAGS]; rusd import --help has all");
    let flags = Flags::parse_import(flags.iter().cloned(), |path| std::fs::read_to_string(path));
    // Where no source is in front, that is what is wrong first.
    let flags = flags.map_err(|mistake| if source.is_some() { mistake } else { usage() })?;
    if let Some(help) = flags.help_of_import() {
        return Ok(Outcome::Help(help));
    }
    let (Some(source), Some(_)) = (source, flags.given("data-dir")) else {
        return Err(usage().into());
    };
    for given in flags.without_effect() {
        eprintln!("rusd: {given} has no effect in rusd");
    }
    let bump = bump(&flags)?;
    let settings = Settings::of(&flags)?;
    if settings.joins {
        return Err(Mistake::new("initial-cluster-state", "must be new: a group is founded").into());
    }
    if settings.data_directory.join("member").exists() {
        return Err(CannotImport::Exists(settings.data_directory));
    }
    let (state, imported) = read(Path::new(source), bump)?;
    found(&settings, state)?;
    Ok(Outcome::Imported(imported))
}

/// By how much the revision is bumped. `--mark-compacted` says nothing more, and as with etcdutl neither flag is without the other: clients
/// would go on from revisions that there never were, with nothing told.
fn bump(flags: &Flags) -> Result<Option<NonZeroU64>, Mistake> {
    let bump = NonZeroU64::new(flags.number("bump-revision", 0)?);
    match (bump, flags.boolean("mark-compacted", false)?) {
        (Some(_), false) => Err(Mistake::new("mark-compacted", "is required with --bump-revision above 0; add it")),
        (None, true) => {
            Err(Mistake::new("bump-revision", "must be above 0 with --mark-compacted; give both, or neither"))
        }
        (bump, _) => Ok(bump),
    }
}

/// Founds a group with what was read.
fn found(settings: &Settings, state: State) -> Result<(), ServerError> {
    // Nobody is to find a member that has nothing to say yet.
    let listen_peer = vec![Url { is_tls: false, is_unix: false, host: "127.0.0.1".into(), port: 0 }];
    server::found(Settings { listen_peer, ..settings.clone() }, state)
}

/// Reads all of a source, and goes on from a revision that is so much higher, if it shall.
fn read(source: &Path, bump: Option<NonZeroU64>) -> Result<(State, Imported), CannotImport> {
    let wrong = |what: String| CannotImport::Source(source.to_owned(), what);
    let database = if source.is_dir() { database_in(source) } else { source.to_owned() };
    let file = File::open(&database).map_err(|error| wrong(format!("{}: {error}", database.display())))?;
    check_sum(&file).map_err(wrong)?;
    let mut import = Import::default();
    let metadata = etcd_file::read(&file, |change| import.take(change).map_err(Refused::Content));
    let mut metadata = metadata.map_err(|refused| match refused {
        Refused::File(error) => CannotImport::File(database.clone(), error),
        Refused::Content(error) => CannotImport::Content(database.clone(), error),
    })?;
    if source.is_dir() {
        // Whatever of it the log says was committed: a member that is alone commits all of it at its next start, and others may have
        // told who wrote that it is done.
        let log = source.join("member").join("wal");
        if let Some(index) = wal::command_after(&log, metadata.consistent_index)? {
            return Err(CannotImport::Killed(source.to_owned(), index, metadata.consistent_index));
        }
    }
    let unfit = |error| CannotImport::Content(database.clone(), error);
    if let Some(amount) = bump {
        import.bump(amount.get(), &mut metadata).map_err(unfit)?;
    }
    import.finish(metadata).map_err(unfit)
}

/// A snapshot ends with the SHA-256 of what is before; a database of a data directory does not.
fn check_sum(mut file: &File) -> Result<(), String> {
    let wrong = |error: std::io::Error| error.to_string();
    let length = file.metadata().map_err(wrong)?.len();
    if length % PAGE_BYTES_MIN != CHECKSUM_BYTES {
        return Ok(());
    }
    let mut digest = Sha256::new();
    let mut left = length - CHECKSUM_BYTES;
    let mut buffer = vec![0; 1 << 20];
    while left > 0 {
        let part = buffer.len().min(left as usize);
        file.read_exact(&mut buffer[..part]).map_err(wrong)?;
        digest.update(&buffer[..part]);
        left -= part as u64;
    }
    let mut expected = [0; CHECKSUM_BYTES as usize];
    file.read_exact(&mut expected).map_err(wrong)?;
    match digest.finalize()[..] == expected {
        true => Ok(()),
        false => Err("its checksum is wrong: the snapshot is damaged".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(arguments: &[&str]) -> Result<Outcome, String> {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect::<Vec<_>>();
        run(&arguments).map_err(|error| error.to_string())
    }

    /// It was an error.
    #[test]
    fn whoever_asks_for_help_gets_it() {
        for arguments in
            [&["--help"][..], &["-h"], &["db", "--help"], &["db", "--data-dir=new", "--help", "--mark-compacted"]]
        {
            let Ok(Outcome::Help(help)) = outcome(arguments) else { panic!("{arguments:?}") };
            assert!(help.contains("SOURCE") && help.contains("--mark-compacted"), "{help}");
        }
        for arguments in [&[][..], &["db"], &["--data-dir=new"], &["--help=false"], &["--data-dir=new", "db"]] {
            let mistake = outcome(arguments).unwrap_err();
            assert!(mistake.ends_with("rusd import --help has all"), "{mistake}");
        }
    }

    /// etcdutl refuses the same. A revision that is bumped and not compacted would leave clients with what they have, untold.
    #[test]
    fn a_bump_that_does_not_compact_is_refused_and_so_is_the_opposite() {
        let required = "--mark-compacted: is required with --bump-revision above 0; add it";
        let above = "--bump-revision: must be above 0 with --mark-compacted; give both, or neither";
        for (flags, expected) in [
            (&["--bump-revision=5"][..], required),
            (&["--bump-revision=5", "--mark-compacted=false"], required),
            (&["--mark-compacted"], above),
            (&["--mark-compacted", "--bump-revision=0"], above),
        ] {
            let arguments = [&["no-such-source", "--data-dir=no-such-folder"][..], flags].concat();
            assert_eq!(outcome(&arguments), Err(expected.to_owned()));
        }
        for flags in [&["--bump-revision=0"][..], &["--bump-revision=5", "--mark-compacted"]] {
            let arguments = [&["no-such-source", "--data-dir=no-such-folder"][..], flags].concat();
            let mistake = outcome(&arguments).unwrap_err();
            assert!(mistake.starts_with("no-such-source: "), "{mistake}");
        }
    }
}
