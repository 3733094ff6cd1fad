//! What the object store holds of a database: LTX files, as Litestream lays them out. Of walsync's code only the `ltx` crate is
//! shared, which reads the format and its names and is tested against Litestream; what makes a restore right or wrong (which
//! files, in which order, whether one is missing) is decided here by code of our own.

use std::fs::File;
use std::io::{Read, sink};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ltx::{Decoder, FileName, Layout, SNAPSHOT_LEVEL};
use object_store_client::credentials::Credentials;
use object_store_client::s3::{S3Settings, S3Store};
use object_store_client::{Store, StoreError, retry};
use storebench_crds::engine::object_store::{ACCESS_KEY, BUCKET, PREFIX, REGION, SECRET_KEY};

use super::application::Mark;
use super::tool::PlainRead;
use crate::failure::Failure;
use crate::measure::network::{received_bytes, received_since};

/// Tries of one request.
const TRIES: u32 = 4;
/// How often a restore begins anew where a file is gone: replicators replace files by merged ones.
const RESTORES: u32 = 3;

/// The object store.
#[derive(Clone)]
pub(super) struct Replicas(Arc<S3Store>);

/// The replica of one database.
#[derive(Clone)]
pub(super) struct Replica {
    store: Arc<S3Store>,
    prefix: String,
}

/// One file of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RemoteFile {
    key: String,
    level: u8,
    name: FileName,
    bytes: u64,
}

impl RemoteFile {
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Its first and last transaction ID.
    pub(super) fn transactions(&self) -> (u64, u64) {
        (self.name.min_txid, self.name.max_txid)
    }
}

/// Why nothing was restored.
pub(super) enum Damage {
    /// The replica is not whole: what is wrong.
    Replica(String),
    /// The store did not answer as it must.
    Store(Failure),
}

fn failed(error: &StoreError) -> Failure {
    Failure::new(format_args!("object store: {error}"))
}

impl Replicas {
    /// At `host:port`.
    pub(super) fn new(address: &str, timeout: Duration) -> Result<Self, Failure> {
        let settings = S3Settings {
            bucket: BUCKET.into(),
            endpoint: format!("http://{address}"),
            region: REGION.into(),
            path_style: true,
            timeout,
            certificates: None,
        };
        let credentials =
            Credentials { access_key_id: ACCESS_KEY.into(), secret_access_key: SECRET_KEY.into(), session_token: None };
        Ok(Self(Arc::new(S3Store::new(settings, credentials).map_err(|error| failed(&error))?)))
    }

    pub(super) fn of(&self, database: &str) -> Replica {
        Replica { store: Arc::clone(&self.0), prefix: format!("{PREFIX}/{database}/") }
    }
}

impl Replica {
    fn list(&self, prefix: &str, after: &str) -> Result<Vec<RemoteFile>, StoreError> {
        let objects = self.store.list_after(prefix, after)?;
        let file = |object: object_store_client::Object| {
            let (level, name) = Layout::Objects.parse(object.key.strip_prefix(&self.prefix)?)?;
            Some(RemoteFile { key: object.key, level, name, bytes: object.size })
        };
        Ok(objects.into_iter().filter_map(file).collect())
    }

    fn files(&self) -> Result<Vec<RemoteFile>, Failure> {
        retry(TRIES, || self.list(&self.prefix, "")).map_err(|error| failed(&error))
    }

    /// How many objects, and how many bytes.
    pub(super) fn size(&self) -> Result<(u64, u64), Failure> {
        let files = self.files()?;
        Ok((files.len() as u64, files.iter().map(|file| file.bytes).sum()))
    }

    /// What came from the WAL after the file with this key, which may be empty, in order.
    pub(super) fn arrived(&self, after: &str) -> Result<Vec<RemoteFile>, StoreError> {
        self.list(&format!("{}{}", self.prefix, Layout::Objects.level(0)), after)
    }

    /// The mark in a file, if it changes the page that has it.
    pub(super) fn mark_in(&self, key: &str, mark: &Mark) -> Result<Option<u64>, StoreError> {
        let damaged = |error: ltx::Error| StoreError::Transient(format!("{key}: {error}"));
        let mut decoder = Decoder::new(self.store.get(key, None)?).map_err(damaged)?;
        let mut page = vec![0; decoder.header().page_size as usize];
        let mut newest = None;
        while decoder.page(&mut page).map_err(damaged)?.is_some() {
            newest = newest.max(mark.find(&page));
        }
        Ok(newest)
    }

    /// The newest mark in the whole replica; `None`: there is none yet.
    pub(super) fn newest_mark(&self, mark: &Mark) -> Result<Option<u64>, Failure> {
        let mut files = self.files()?;
        files.sort_by_key(|file| std::cmp::Reverse((file.name.max_txid, file.name.min_txid)));
        for file in files {
            match retry(TRIES, || self.mark_in(&file.key, mark)) {
                Ok(None) | Err(StoreError::NotFound(_)) => {}
                Ok(found) => return Ok(found),
                Err(error) => return Err(failed(&error)),
            }
        }
        Ok(None)
    }

    /// Reads everything that a restore to the newest state needs, and keeps nothing: what that takes, once it is known what to read.
    pub(super) fn read_plainly(&self) -> Result<PlainRead, Failure> {
        let plan = plan(self.files()?).map_err(Failure::new)?;
        let (begun, received_before, mut bytes) = (Instant::now(), received_bytes(), Vec::new());
        for file in &plan {
            let read = || Ok(std::io::copy(&mut self.store.get(&file.key, None)?, &mut sink())?);
            bytes.push(retry(TRIES, read).map_err(|error| failed(&error))?);
        }
        let time = begun.elapsed();
        // The snapshot comes first.
        let snapshot_bytes = bytes.first().copied().unwrap_or_default();
        Ok(PlainRead { time, snapshot_bytes, received_bytes: received_since(received_before) })
    }

    /// Makes a database of the replica's newest state.
    pub(super) fn restore(&self, path: &Path) -> Result<(), Damage> {
        let mut gone = String::new();
        for _ in 0..RESTORES {
            let plan = plan(self.files().map_err(Damage::Store)?).map_err(Damage::Replica)?;
            match self.apply(&plan, path) {
                Err(Damage::Replica(what)) if what.is_empty() => gone = "files of it vanish while they are read".into(),
                result => return result,
            }
        }
        Err(Damage::Replica(gone))
    }

    /// Applies files in order. An error without words: one of them is gone.
    fn apply(&self, plan: &[RemoteFile], path: &Path) -> Result<(), Damage> {
        let write =
            |error: std::io::Error| Damage::Store(Failure::io(format_args!("write {}", path.display()), &error));
        let output = File::options().create(true).truncate(true).read(true).write(true).open(path).map_err(write)?;
        for file in plan {
            let content = match retry(TRIES, || self.store.get(&file.key, None)) {
                Ok(content) => content,
                Err(StoreError::NotFound(_)) => return Err(Damage::Replica(String::new())),
                Err(error) => return Err(Damage::Store(failed(&error))),
            };
            let commit = apply(content, &output, &file.key)?;
            output.set_len(commit).map_err(write)?;
        }
        Ok(())
    }
}

/// Writes the pages of a file; bytes of the database afterwards.
fn apply(content: impl Read, output: &File, key: &str) -> Result<u64, Damage> {
    let damaged = |error: ltx::Error| Damage::Replica(format!("{key}: {error}"));
    let mut decoder = Decoder::new(content).map_err(damaged)?;
    let size = decoder.header().page_size;
    let mut page = vec![0; size as usize];
    while let Some(number) = decoder.page(&mut page).map_err(damaged)? {
        let place = u64::from(number - 1) * u64::from(size);
        let written = output.write_all_at(&page, place);
        written.map_err(|error| Damage::Store(Failure::io("write a restored page", &error)))?;
    }
    let (header, _) = decoder.finish().map_err(damaged)?;
    Ok(u64::from(header.commit) * u64::from(size))
}

/// The files that lead to the newest state, in their order: a snapshot, then always the one that leads furthest. Errors: what is
/// missing.
fn plan(mut files: Vec<RemoteFile>) -> Result<Vec<RemoteFile>, String> {
    // A file of a higher level has what those below it have.
    files.sort_by_key(|file| (file.name.max_txid, std::cmp::Reverse(file.name.min_txid), file.level));
    let newest = files.last().map(|file| file.name.max_txid).ok_or("its replica has no file")?;
    let snapshot = files.iter().rfind(|file| file.name.min_txid == 1 && file.level <= SNAPSHOT_LEVEL);
    let mut plan = vec![snapshot.ok_or("its replica has no snapshot")?.clone()];
    let mut point = plan[0].name.max_txid;
    while point < newest {
        let next = files.iter().rfind(|file| file.name.min_txid <= point + 1 && file.name.max_txid > point);
        let next = next.ok_or_else(|| format!("its replica has a hole: TXID {} is missing of {newest}", point + 1))?;
        point = next.name.max_txid;
        plan.push(next.clone());
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(level: u8, min_txid: u64, max_txid: u64) -> RemoteFile {
        RemoteFile {
            key: format!("{level}/{min_txid}-{max_txid}"),
            level,
            name: FileName { min_txid, max_txid },
            bytes: 1,
        }
    }

    fn keys(files: &[(u8, u64, u64)]) -> Result<String, String> {
        let files = files.iter().map(|(level, min, max)| file(*level, *min, *max)).collect();
        plan(files).map(|plan| plan.iter().map(|file| file.key.clone()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_restore_takes_the_newest_snapshot_and_the_fewest_files_after_it() {
        assert_eq!(keys(&[(0, 1, 1), (0, 2, 2), (0, 3, 3)]).unwrap(), "0/1-1 0/2-2 0/3-3");
        let merged = [(9, 1, 2), (0, 1, 1), (0, 2, 2), (0, 3, 3), (0, 4, 4), (1, 2, 4), (0, 5, 5)];
        assert_eq!(keys(&merged).unwrap(), "9/1-2 1/2-4 0/5-5");
    }

    #[test]
    fn a_hole_is_named() {
        assert!(keys(&[]).unwrap_err().contains("no file"));
        assert!(keys(&[(0, 2, 2)]).unwrap_err().contains("no snapshot"));
        assert!(keys(&[(9, 1, 2), (0, 4, 4)]).unwrap_err().contains("TXID 3 is missing of 4"));
    }
}
