//! A database of etcd of any bytes: `rusd import` takes it or refuses it. The fuzzer cannot make the checksum of a meta page: what it
//! changes, in triples of an offset and a byte, is a file that is right, made of the first bytes.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use rusd::bolt::Writer;
use rusd::etcd_file::{self, EtcdFileError};
use rusd::store::import::Import;

/// In the order of their names, as they must be.
const BUCKETS: [&[u8]; 9] =
    [b"alarm", b"auth", b"authRoles", b"authUsers", b"cluster", b"key", b"lease", b"members", b"meta"];

/// For each bucket how many records, each of a length and so many bytes, of which the first half is the key.
fn file(data: &mut &[u8]) -> Option<Vec<u8>> {
    let mut take = |count: usize| {
        let (taken, rest) = data.split_at(count.min(data.len()));
        *data = rest;
        taken.to_vec()
    };
    let mut writer = Writer::begin(Cursor::new(Vec::new())).ok()?;
    for name in BUCKETS {
        let count = take(1).first().map_or(0, |count| count % 8);
        let mut records = (0_u64..u64::from(count))
            .map(|number| {
                let length = take(1).first().map_or(0, |length| usize::from(*length));
                let bytes = take(length);
                let (key, value) = bytes.split_at(length.min(bytes.len()) / 2);
                // A revision is what most keys are.
                let revision =
                    [&(number + 1).to_be_bytes()[..], b"_", &[0; 8], if key.is_empty() { b"t" } else { b"" }].concat();
                (if name == b"key" { revision } else { key.to_vec() }, value.to_vec())
            })
            .collect::<Vec<_>>();
        records.sort();
        records.dedup_by(|a, b| a.0 == b.0);
        records.retain(|(key, _)| !key.is_empty());
        writer.bucket(name, records).ok()?;
    }
    Some(writer.finish().ok()?.into_inner())
}

fuzz_target!(|data: &[u8]| {
    let mut data = data;
    let Some(mut file) = file(&mut data) else { return };
    for change in data.chunks_exact(4) {
        let offset = u32::from_le_bytes([change[0], change[1], change[2], 0]) as usize % file.len();
        file[offset] = change[3];
    }
    let mut import = Import::default();
    let read =
        etcd_file::read(file.as_slice(), |change| import.take(change).map_err(|_| EtcdFileError::NotEtcd("key")));
    if let Ok(metadata) = read {
        let _ = import.finish(metadata);
    }
});
