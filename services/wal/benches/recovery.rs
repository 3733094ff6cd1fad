//! How long a log of 1 GiB takes to open, its files in the page cache and (as root) out of it.
//!
//! usage: cargo bench -p wal --bench recovery   Works where `group_commit` does; takes 1.1 GiB there.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark")]

use std::time::Instant;

use bytes::Bytes;
use wal::files::RealDirectory;
use wal::{Kind, Log, Options, Record};

const LOG_BYTES: u64 = 1 << 30;
const PAYLOAD_BYTES: usize = 256;
const BATCH_RECORDS: u64 = 4_096;

fn main() {
    let place = std::env::var("WAL_BENCH_DIR").unwrap_or_else(|_| env!("CARGO_TARGET_TMPDIR").into());
    let scratch = tempfile::tempdir_in(&place).unwrap();
    let mut log = Log::open(RealDirectory::open(scratch.path()).unwrap(), Options::default(), |_| ()).unwrap();
    let payload = Bytes::from(vec![7; PAYLOAD_BYTES]);
    let mut index = 0;
    while log.bytes() < LOG_BYTES {
        let records: Vec<Record> = (0..BATCH_RECORDS)
            .map(|_| {
                index += 1;
                Record { kind: Kind::Entry, group: 0, term: 1, index, payload: payload.clone() }
            })
            .collect();
        log.commit(&records).unwrap();
    }
    drop(log);
    println!("{index} entries of {PAYLOAD_BYTES} bytes");
    for cached in [true, false] {
        if !cached && std::fs::write("/proc/sys/vm/drop_caches", "1").is_err() {
            println!("not cached: not measured, which takes root");
            continue;
        }
        let mut times = Vec::new();
        for _ in 0..3 {
            if !cached {
                std::fs::write("/proc/sys/vm/drop_caches", "1").unwrap();
            }
            let began = Instant::now();
            let mut found = 0;
            let log =
                Log::open(RealDirectory::open(scratch.path()).unwrap(), Options::default(), |_| found += 1).unwrap();
            times.push(began.elapsed());
            assert_eq!(found, index);
            assert!(log.bytes() >= LOG_BYTES);
        }
        times.sort();
        println!("{}: opened in {:?} (median of 3)", if cached { "cached" } else { "not cached" }, times[1]);
    }
}
