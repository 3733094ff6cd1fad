//! One transaction that is larger than the memory that walsync may take.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::folder_on_disk;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use support::{Application, Walsync, walsync};

/// Of all memory that is resident, at any time.
const PEAK_BYTES_MAX: u64 = 64 << 20;
/// Rows of which each fills two pages with noise, so that nothing of them is saved by compression.
const ROWS: u64 = 131_072;

#[test]
#[ignore = "the application of other tests"]
fn application_process() {
    support::application_process();
}

#[test]
#[ignore = "takes 5 GB of disk and half a minute"]
fn a_transaction_of_1_gb_goes_through_64_mb() {
    let folder = folder_on_disk();
    let (path, store) = (folder.path().join("app.db"), folder.path().join("store"));
    let mut application = Application::start(&path, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)");
    let mut replicator = Walsync::watch_each(1000, &[&path], &store, &folder.path().join("log"));
    replicator.wait_durable(1);
    let numbers = format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})");
    application.run(&format!("BEGIN; {numbers} INSERT INTO t SELECT i, randomblob(8000) FROM n; COMMIT"));
    replicator.wait_durable(2);
    let peak = replicator.peak_bytes();
    replicator.stop();
    application.close();
    let bytes = fs::metadata(&path).unwrap().len();
    println!("database {bytes} bytes, replica {} bytes, peak of walsync {peak} bytes", size(&store));
    assert!(bytes > 1_000_000_000, "{bytes}");
    let restored = folder.path().join("restored.db");
    harness::output(walsync().arg("restore").arg(store.join("app.db")).arg("-o").arg(&restored));
    assert!(are_equal(&path, &restored));
    assert!(peak <= PEAK_BYTES_MAX, "{peak} bytes");
}

fn size(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else { return fs::metadata(path).unwrap().len() };
    entries.map(|entry| size(&entry.unwrap().path())).sum()
}

/// Without having either in memory.
fn are_equal(one: &Path, other: &Path) -> bool {
    let (mut one, mut other) = (File::open(one).unwrap(), File::open(other).unwrap());
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut same = one.metadata().unwrap().len() == other.metadata().unwrap().len();
    loop {
        let read = one.read(&mut left).unwrap();
        if read == 0 || !same {
            return same;
        }
        other.read_exact(&mut right[..read]).unwrap();
        same = left[..read] == right[..read];
    }
}
