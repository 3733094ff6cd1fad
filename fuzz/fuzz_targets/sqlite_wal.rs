//! Any WAL has an end: what is read lies within the file, within the size of the last commit, and is read the same in two
//! pieces. Any index is taken or refused.
#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use libfuzzer_sys::fuzz_target;
use walsync::wal_index::WalIndex;
use walsync::wal_reader::{WalHeader, WalPosition, checksum, read_changes};

fuzz_target!(|bytes: &[u8]| {
    if let Some(index) = bytes.first_chunk() {
        let _ = WalIndex::decode(index);
    }
    let mut wal = bytes.to_vec();
    if let Some(header) = wal.get_mut(..32) {
        // A valid header, or the fuzzer would never come further.
        header[..8].copy_from_slice(&[0x37, 0x7f, 0x06, 0x82, 0, 0x2d, 0xe2, 0x18]);
        let sums = checksum(false, [0, 0], &header[..24]);
        header[24..28].copy_from_slice(&sums[0].to_be_bytes());
        header[28..32].copy_from_slice(&sums[1].to_be_bytes());
    }
    let Ok(Some(header)) = WalHeader::read(wal.as_slice()) else { return };
    let start = WalPosition::start(header);
    let Ok(all) = read_changes(wal.as_slice(), start, None) else { return };
    assert!(all.pages.iter().all(|(page, frame)| *page <= all.size && *frame <= all.end.frames));
    let half = read_changes(wal.as_slice(), start, Some(all.end.frames / 2));
    let rest = half.and_then(|half| read_changes(wal.as_slice(), half.end, None));
    assert_eq!(rest.map(|rest| rest.end).ok(), Some(all.end));
});
