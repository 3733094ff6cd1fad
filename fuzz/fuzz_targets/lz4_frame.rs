//! An LZ4 frame of any bytes is read to its end or refused, in bounded memory, and comes to no more than its blocks can hold. The fuzzer cannot
//! make the checksum of a header: it is one that is right, with blocks of the fuzzer's, stored or compressed, linked to each other or not.
#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::type_complexity, clippy::unwrap_used)]

use libfuzzer_sys::fuzz_target;
use ltx::Lz4Frame;
use std::io::Read;

/// Headers that are right, with blocks of 64 KiB at most: independent of each other, and linked.
const HEADERS: [&[u8; 7]; 2] = [b"\x04\x22\x4d\x18\x60\x40\x82", b"\x04\x22\x4d\x18\x40\x40\xc0"];
const BLOCK_BYTES_MAX: usize = 1 << 16;

fn read(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    Lz4Frame::new(bytes).ok()?.read_to_end(&mut content).ok()?;
    Some(content)
}

fuzz_target!(|parts: (bool, Vec<(bool, Vec<u8>)>, Vec<u8>)| {
    let (is_linked, blocks, any) = parts;
    // A header that says so may have blocks of 4 MiB.
    assert!(read(&any).is_none_or(|content| content.len() <= any.len() * 256));
    let mut frame = HEADERS[usize::from(is_linked)].to_vec();
    assert!(Lz4Frame::new(&frame[..]).is_ok(), "a header that is right");
    let blocks: Vec<_> = blocks.into_iter().filter(|(_, block)| !block.is_empty()).collect();
    for (is_stored, block) in &blocks {
        frame.extend((block.len() as u32 | u32::from(*is_stored) << 31).to_le_bytes());
        frame.extend(block);
    }
    frame.extend([0; 4]);
    let content = read(&frame);
    assert!(content.as_ref().is_none_or(|content| content.len() <= blocks.len() * BLOCK_BYTES_MAX));
    if blocks.iter().all(|(is_stored, block)| *is_stored && block.len() <= BLOCK_BYTES_MAX) {
        let stored: Vec<u8> = blocks.iter().flat_map(|(_, block)| block.clone()).collect();
        assert_eq!(content, Some(stored));
    }
    frame.push(0);
    assert_eq!(read(&frame), None, "bytes follow its end");
});
