//! What engines on disk cost the state, by its own access pattern: batches of puts with an index, each visible at once and synced
//! by nobody; rows that readers look up meanwhile; a scan; a start after `kill -9`. Both get the same keys in the same order.
//!
//! `cargo bench -p d-engine --bench storage -- 1000000` keys of 64 bytes with values of 256; by default 100,000. Prints a line for each of
//! fjall (the state's) and redb.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use d_engine::state::{Disk, EachRow, Rows, Storage, StorageError, Table};
use harness::Random;
use redb::{Database, Durability, ReadTransaction, ReadableDatabase, TableDefinition};

/// Puts that are committed together: what a busy log hands out.
const BATCH: u64 = 100;
const VALUE_BYTES: usize = 256;
const CACHE_BYTES: usize = 64 << 20;
/// redb keeps nothing of a commit that is not synced, so that it must sync now and then, or a start applies everything anew.
const SYNC_EVERY: u64 = 1000;

const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");

struct InRedb {
    database: Database,
    pending: BTreeMap<Vec<u8>, Bytes>,
    commits: u64,
    view: Arc<Committed>,
}

struct Committed(ReadTransaction);

fn failed(error: impl std::fmt::Display) -> StorageError {
    StorageError(error.to_string())
}

fn key_of(table: Table, key: &[u8]) -> Vec<u8> {
    [&[table.number() as u8], key].concat()
}

impl Rows for Committed {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        let rows = self.0.open_table(ROWS).map_err(failed)?;
        let found = rows.get(&*key_of(table, key)).map_err(failed)?;
        Ok(found.map(|value| Bytes::copy_from_slice(value.value())))
    }

    fn scan(&self, table: Table, start: &[u8], _: Option<&[u8]>, each: &mut EachRow<'_>) -> Result<(), StorageError> {
        let rows = self.0.open_table(ROWS).map_err(failed)?;
        let (start, end) = (key_of(table, start), [table.number() as u8 + 1]);
        for row in rows.range(&*start..&end[..]).map_err(failed)? {
            let (key, value) = row.map_err(failed)?;
            let (key, value) = (Bytes::copy_from_slice(&key.value()[1..]), Bytes::copy_from_slice(value.value()));
            if each(&key, &value) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }
}

impl InRedb {
    fn open(directory: &Path) -> Self {
        let database = Database::builder().set_cache_size(CACHE_BYTES).create(directory.join("rows")).unwrap();
        let write = database.begin_write().unwrap();
        write.open_table(ROWS).unwrap();
        write.commit().unwrap();
        let view = Arc::new(Committed(database.begin_read().unwrap()));
        Self { database, pending: BTreeMap::new(), commits: 0, view }
    }
}

/// What is measured of an engine.
trait Measured {
    fn put(&mut self, key: Bytes, value: Bytes);
    fn commit(&mut self, applied: u64);
    fn applied(&self) -> u64;
    fn view(&self) -> Arc<dyn Rows + Send + Sync>;
}

impl Measured for Disk {
    fn put(&mut self, key: Bytes, value: Bytes) {
        Storage::put(self, Table::Keys, key, value).unwrap();
    }

    fn commit(&mut self, applied: u64) {
        Storage::commit(self, applied).unwrap();
    }

    fn applied(&self) -> u64 {
        Storage::applied(self)
    }

    fn view(&self) -> Arc<dyn Rows + Send + Sync> {
        Storage::view(self)
    }
}

impl Measured for InRedb {
    fn put(&mut self, key: Bytes, value: Bytes) {
        self.pending.insert(key_of(Table::Keys, &key), value);
    }

    fn commit(&mut self, applied: u64) {
        let mut write = self.database.begin_write().unwrap();
        self.commits += 1;
        let is_synced = self.commits.is_multiple_of(SYNC_EVERY);
        write.set_durability(if is_synced { Durability::Immediate } else { Durability::None }).unwrap();
        // What makes a start after a kill quick: else it walks over everything.
        write.set_quick_repair(is_synced);
        {
            let mut rows = write.open_table(ROWS).unwrap();
            for (key, value) in std::mem::take(&mut self.pending) {
                rows.insert(&*key, &*value).unwrap();
            }
            rows.insert(&[u8::MAX][..], &applied.to_le_bytes()[..]).unwrap();
        }
        write.commit().unwrap();
        self.view = Arc::new(Committed(self.database.begin_read().unwrap()));
    }

    fn applied(&self) -> u64 {
        let rows = self.view.0.open_table(ROWS).unwrap();
        let found = rows.get(&[u8::MAX][..]).unwrap();
        found.map_or(0, |value| u64::from_le_bytes(*value.value().first_chunk().unwrap()))
    }

    fn view(&self) -> Arc<dyn Rows + Send + Sync> {
        Arc::clone(&self.view) as _
    }
}

fn open(engine: &str, directory: &Path) -> Box<dyn Measured> {
    match engine {
        "fjall" => Box::new(Disk::open(directory, CACHE_BYTES as u64).unwrap()),
        "redb" => Box::new(InRedb::open(directory)),
        other => panic!("no engine is called {other}"),
    }
}

fn key(number: u64) -> Bytes {
    // No order: keys of clients have none.
    format!("{:064x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into()
}

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

fn size_mib(directory: &Path) -> u64 {
    let of = |entry: std::fs::DirEntry| match entry.metadata().unwrap() {
        metadata if metadata.is_dir() => size_mib(&entry.path()),
        // What a file takes, and not how long it is.
        metadata => (std::os::unix::fs::MetadataExt::blocks(&metadata) * 512) >> 20,
    };
    std::fs::read_dir(directory).unwrap().map(|entry| of(entry.unwrap())).sum()
}

/// In a process of its own, which ends as by `kill -9`.
fn fill(engine: &str, directory: &Path, keys: u64) {
    let mut storage = open(engine, directory);
    let begun = Instant::now();
    let mut random = Random::new(1);
    let value = |random: &mut Random| Bytes::from(random.draw().to_le_bytes().repeat(VALUE_BYTES / 8));
    for batch in 0..keys / BATCH {
        for number in batch * BATCH..(batch + 1) * BATCH {
            storage.put(key(number), value(&mut random));
        }
        storage.commit(batch + 1);
    }
    let puts = keys as f64 / begun.elapsed().as_secs_f64();
    let (begun, reads, view) = (Instant::now(), keys.min(200_000), storage.view());
    for _ in 0..reads {
        assert!(view.get(Table::Keys, &key(random.below(keys))).unwrap().is_some());
    }
    let gets = reads as f64 / begun.elapsed().as_secs_f64();
    let (begun, mut rows) = (Instant::now(), 0_u64);
    let mut each = |_: &Bytes, _: &Bytes| {
        rows += 1;
        ControlFlow::Continue(())
    };
    view.scan(Table::Keys, &[], None, &mut each).unwrap();
    let scans = rows as f64 / begun.elapsed().as_secs_f64();
    assert_eq!(rows, keys);
    print!(
        "{engine:6} puts/s {puts:>9.0}  gets/s {gets:>9.0}  scanned/s {scans:>9.0}  resident {:>4} MiB",
        resident_mib()
    );
    std::io::Write::flush(&mut std::io::stdout()).unwrap();
    // Nothing is closed in order.
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [of, engine, directory, keys] = &arguments[..]
        && of == "fill"
    {
        return fill(engine, Path::new(directory), keys.parse().unwrap());
    }
    let keys: u64 = arguments.first().map_or(100_000, |keys| keys.parse().unwrap());
    for engine in ["fjall", "redb", "redb", "fjall"] {
        let directory = harness::folder_on_disk();
        let mut fill = Command::new(std::env::current_exe().unwrap());
        fill.args(["fill", engine]).arg(directory.path()).arg(keys.to_string()).stderr(Stdio::inherit());
        fill.status().unwrap();
        let begun = Instant::now();
        let storage = open(engine, directory.path());
        let (start, lost) = (begun.elapsed().as_millis(), keys / BATCH - storage.applied());
        println!("  disk {:>5} MiB  start {start:>5} ms, {lost} commits to apply anew", size_mib(directory.path()));
    }
}
