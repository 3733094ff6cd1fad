//! What blocks would take on disk with other levels and dictionaries of zstd, or several in a frame: bytes a block, beside the Java node's
//! `.blk.zstd` (level 1, rounded up to 4 KiB); what compressing costs, and what reading one block does.
//!
//! usage: cargo bench --profile published -p block-node --bench levels

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark")]

use std::time::Instant;

use block_node::craft::{Crafter, Shape, Traffic};
use zstd::bulk::{Compressor, Decompressor};

/// Head of a record, the digest in it, its entry in the index, and the digest beside that.
const RECORD_BYTES: usize = 88 + 44 + 16 + 36;
const FILE_SYSTEM_BLOCK: usize = 4_096;

/// Compresses groups of so many blocks, those behind the samples.
struct Way {
    level: i32,
    dictionary_bytes: usize,
    group: usize,
    window_log: u32,
}

fn measure(what: &str, blocks: &[Vec<u8>], way: &Way) {
    let (samples, others) = blocks.split_at(blocks.len() / 2);
    let dictionary = match way.dictionary_bytes {
        0 => Vec::new(),
        bytes => {
            // As the store does: the beginnings of blocks, of three megabytes of them.
            let samples: Vec<&[u8]> = samples.iter().map(|block| &block[..block.len().min(128 << 10)]).collect();
            zstd::dict::from_samples(&samples, bytes).unwrap_or_default()
        }
    };
    let mut compressor = Compressor::with_dictionary(way.level, &dictionary).unwrap();
    if way.window_log > 0 {
        compressor.set_parameter(zstd::zstd_safe::CParameter::EnableLongDistanceMatching(true)).unwrap();
        compressor.set_parameter(zstd::zstd_safe::CParameter::WindowLog(way.window_log)).unwrap();
    }
    let mut decompressor = Decompressor::with_dictionary(&dictionary).unwrap();
    let plain: usize = others.iter().map(Vec::len).sum();
    let groups: Vec<Vec<u8>> = others.chunks(way.group).map(<[_]>::concat).collect();
    let began = Instant::now();
    let frames: Vec<Vec<u8>> = groups.iter().map(|group| compressor.compress(group).unwrap()).collect();
    let compressing = began.elapsed();
    let began = Instant::now();
    for (frame, group) in frames.iter().zip(&groups) {
        assert_eq!(decompressor.decompress(frame, group.len()).unwrap().len(), group.len());
    }
    // One block is asked for: its whole frame is read.
    let reading = began.elapsed() / frames.len() as u32;
    let packed = frames.iter().map(Vec::len).sum::<usize>() / others.len() + RECORD_BYTES;
    let java = |block: &Vec<u8>| zstd::bulk::compress(block, 1).unwrap().len().next_multiple_of(FILE_SYSTEM_BLOCK);
    let java = others.iter().map(java).sum::<usize>() / others.len();
    println!(
        "| {what} | {} | {} KiB | {} | {} | {packed} | {:.2} | {:.0} MB/s | {:.0} µs |",
        way.level,
        way.dictionary_bytes >> 10,
        way.group,
        if way.window_log > 0 { "yes" } else { "" },
        packed as f64 / java as f64,
        plain as f64 / compressing.as_secs_f64() / 1e6,
        reading.as_secs_f64() * 1e6,
    );
}

fn main() {
    println!(
        "| blocks | level | dictionary | blocks a frame | long matches | bytes a block | of `.blk.zstd` | compressing | reading one |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let way = |level, dictionary_kib: usize, group| Way {
        level,
        dictionary_bytes: dictionary_kib << 10,
        group,
        window_log: 0,
    };
    let ways = [
        way(1, 0, 1),
        way(1, 64, 1),
        way(1, 256, 1),
        way(3, 64, 1),
        way(3, 256, 1),
        way(9, 64, 1),
        way(9, 256, 1),
        way(19, 256, 1),
        way(1, 0, 16),
        way(3, 0, 16),
        way(9, 0, 16),
        way(9, 256, 16),
        Way { window_log: 27, ..way(3, 0, 64) },
    ];
    let mut all = Vec::new();
    for (transactions, blocks) in [(13, 512), (50, 384), (500, 96)] {
        let (mut crafter, mut traffic) = (Crafter::new(1, 0), Traffic::new(1));
        let made: Vec<_> = (0..blocks).map(|_| crafter.next_of(traffic.items(transactions)).bytes).collect();
        all.push((format!("{transactions} transactions"), made));
    }
    for (bytes, blocks) in [(13_000, 512), (50_000, 256)] {
        let mut crafter = Crafter::new(1, 0);
        let made: Vec<_> = (0..blocks).map(|_| crafter.next(Shape::of_bytes(bytes)).bytes).collect();
        all.push((format!("half random, {bytes} bytes"), made));
    }
    for (what, blocks) in &all {
        ways.iter().for_each(|way| measure(what, blocks, way));
    }
}
