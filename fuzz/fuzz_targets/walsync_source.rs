//! Any three files are a database, its WAL and its index, or are refused: what is staged of them is a file that decodes, with no page
//! beyond its size, and of a database that is changed under us nothing is staged twice in two ways.
#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use libfuzzer_sys::fuzz_target;
use ltx::Decoder;
use std::io::{self, Seek, SeekFrom};
use walsync::arena::Arena;
use walsync::position::Position;
use walsync::source::{Since, Source, Staged, Stamp, stage_changes, stage_image};
use walsync::wal_index::{WAL_INDEX_BYTES, WalIndex};
use walsync::wal_reader::{ReadAt, checksum};

struct Bytes(Vec<u8>);

impl ReadAt for Bytes {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.as_slice().read_at(offset, buffer)
    }
}

struct Files {
    database: Bytes,
    wal: Bytes,
    index: Option<WalIndex>,
}

impl Source for Files {
    fn is_current(&self) -> io::Result<bool> {
        Ok(true)
    }

    fn database(&self) -> &dyn ReadAt {
        &self.database
    }

    fn database_state(&self) -> io::Result<(u64, i64, i64)> {
        Ok((self.database.0.len() as u64, 0, 0))
    }

    fn wal(&self) -> Option<&dyn ReadAt> {
        Some(&self.wal)
    }

    fn wal_index(&self) -> io::Result<Option<WalIndex>> {
        Ok(self.index)
    }
}

fn decodes(staged: &mut Staged) {
    let content = &mut staged.file.content;
    content.seek(SeekFrom::Start(0)).expect("it is in memory");
    let mut decoder = Decoder::new(content).expect("what is staged has a header");
    let commit = decoder.header().commit;
    let mut page = vec![0; decoder.header().page_size as usize];
    while let Some(number) = decoder.page(&mut page).expect("what is staged has its pages") {
        assert!(number <= commit);
    }
    decoder.finish().expect("what is staged has its checksum");
}

/// Both checksums of a WAL's header, over what it says.
fn with_wal_header(mut wal: Vec<u8>) -> Vec<u8> {
    if let Some(header) = wal.get_mut(..32) {
        header[..8].copy_from_slice(&[0x37, 0x7f, 0x06, 0x82, 0, 0x2d, 0xe2, 0x18]);
        header[8..12].copy_from_slice(&512u32.to_be_bytes());
        let sums = checksum(false, [0, 0], &header[..24]);
        header[24..28].copy_from_slice(&sums[0].to_be_bytes());
        header[28..32].copy_from_slice(&sums[1].to_be_bytes());
    }
    wal
}

fuzz_target!(|parts: (Vec<u8>, Vec<u8>, Vec<u8>)| {
    let (mut database, wal, mut index) = parts;
    // So much of a header that what follows is looked at.
    if let Some(header) = database.get_mut(..100) {
        header[..20].copy_from_slice(b"SQLite format 3\0\x02\0\x02\x02");
    }
    if let Some(bytes) = index.first_chunk_mut::<WAL_INDEX_BYTES>() {
        bytes[..4].copy_from_slice(&3_007_000u32.to_ne_bytes());
        bytes[12] = 1;
        let sums = checksum(cfg!(target_endian = "big"), [0, 0], &bytes[..40]);
        bytes[40..44].copy_from_slice(&sums[0].to_ne_bytes());
        bytes[44..48].copy_from_slice(&sums[1].to_ne_bytes());
        bytes.copy_within(..48, 48);
    }
    let index = index.first_chunk().and_then(WalIndex::decode);
    let source = Files { database: Bytes(database), wal: Bytes(with_wal_header(wal)), index };
    let arena = Arena::new(16 << 20, std::env::temp_dir());
    let stamp = |min_txid, max_txid| Stamp { min_txid, max_txid, timestamp_millis: 0, node_id: 0, follows: 0 };
    // The index may tell of a database of terabytes, of which every page is zero.
    let is_small = source.index.is_none_or(|index| index.pages < 4096);
    let Some(Ok(mut image)) = is_small.then(|| stage_image(&source, stamp(2, 2), None, None, &arena, || Ok(None)))
    else {
        return;
    };
    if image.staged.position.size >= 4096 {
        return;
    }
    decodes(&mut image.staged);
    let without_wal = Position { size: image.staged.position.size, ..Position::default() };
    for position in [image.staged.position, without_wal] {
        if let Ok(Since::Staged(mut staged)) = stage_changes(&source, &position, stamp(3, 3), &arena) {
            decodes(&mut staged);
        }
    }
});
