//! A ZIP file of the Java node of any bytes: `block-node import` reads blocks of it or refuses it, in bounded memory. The fuzzer cannot make
//! checksums and directories: what it changes, in triples of an offset and a byte, is a file that is right, made of the first bytes.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use std::io::{Cursor, Write as _};

use block_node::java_files::{Archive, file_name};
use libfuzzer_sys::fuzz_target;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

const BLOCK_BYTES_MAX: usize = 1 << 16;

fn file(contents: &[u8]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for (number, content) in (0..).zip(contents.chunks(40)) {
        let name = if content[0] % 4 == 0 { file_name(number).replace(".zstd", "") } else { file_name(number) };
        writer.start_file(name, options).expect("memory");
        writer.write_all(content).expect("memory");
    }
    writer.finish().expect("memory").into_inner()
}

fn read(bytes: Vec<u8>) {
    let Ok(mut archive) = Archive::open(Cursor::new(bytes)) else { return };
    let numbers: Vec<u64> = archive.numbers().collect();
    for number in numbers {
        if let Ok(block) = archive.read(number, BLOCK_BYTES_MAX) {
            assert!(block.len() <= BLOCK_BYTES_MAX);
        }
    }
}

fuzz_target!(|data: &[u8]| {
    read(data.to_vec());
    let [count, data @ ..] = data else { return };
    let (contents, changes) = data.split_at(data.len().min(usize::from(*count)));
    let mut file = file(contents);
    for change in changes.chunks_exact(3) {
        let offset = usize::from(u16::from_le_bytes([change[0], change[1]])) % file.len();
        file[offset] = change[2];
    }
    read(file);
});
