//! What is written is read back, what is damaged is refused, and a merge equals applying files one after another.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use ltx::{Decoder, Encoder, Error, Header, NO_CHECKSUM, merge};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::Cursor;

/// Pages by number, and the size of the database after them.
type Step = (BTreeMap<u32, Vec<u8>>, u32);

const PAGE: usize = 512;

fn header(txid: (u64, u64), commit: u32, page_size: usize) -> Header {
    let (min_txid, max_txid) = txid;
    let page_size = page_size as u32;
    let timestamp_millis = 1_790_000_000_000 + max_txid as i64;
    Header { flags: NO_CHECKSUM, page_size, commit, min_txid, max_txid, timestamp_millis, ..Header::default() }
}

fn encode(header: Header, pages: &BTreeMap<u32, Vec<u8>>) -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::new(), header).unwrap();
    for (number, page) in pages {
        encoder.page(*number, page).unwrap();
    }
    encoder.finish().unwrap().0
}

fn decode(bytes: &[u8]) -> Result<(Header, BTreeMap<u32, Vec<u8>>), Error> {
    let mut decoder = Decoder::new(Cursor::new(bytes))?;
    let mut page = vec![0; decoder.header().page_size as usize];
    let mut pages = BTreeMap::new();
    while let Some(number) = decoder.page(&mut page)? {
        pages.insert(number, page.clone());
    }
    Ok((decoder.finish()?.0, pages))
}

/// Pages that compress well, a little, or not at all.
fn page(size: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![any::<u8>().prop_map(move |byte| vec![byte; size]), vec(any::<u8>(), size), vec(0..4u8, size),]
}

fn snapshot() -> impl Strategy<Value = Step> {
    vec(page(PAGE), 1..12).prop_map(|pages| {
        let size = pages.len() as u32;
        ((1..).zip(pages).collect(), size)
    })
}

fn step() -> impl Strategy<Value = Step> {
    (1..16u32).prop_flat_map(|size| (btree_map(1..=size, page(PAGE), 0..6), Just(size)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_file_is_read_as_it_was_written(shift in 9..=16u32, seed in any::<u64>(), reserved in any::<[u8; 20]>()) {
        let size = 1 << shift;
        let pages: BTreeMap<u32, Vec<u8>> = [3u32, 4, 900]
            .into_iter()
            .map(|number| (number, (0..size).map(|at| ((at as u64).wrapping_mul(seed) >> (number % 9)) as u8).collect()))
            .collect();
        let header = Header { reserved, node_id: seed, ..header((7, 9), 1000, size) };
        prop_assert_eq!(decode(&encode(header.clone(), &pages)).unwrap(), (header, pages));
    }

    #[test]
    fn no_changed_byte_goes_unnoticed((pages, size) in snapshot(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let mut bytes = encode(header((1, 3), size, PAGE), &pages);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        // Bytes that no checksum covers: how a page is compressed may change while what it holds does not.
        if let Ok((_, decoded)) = decode(&bytes) {
            prop_assert_eq!(decoded, pages);
        }
    }

    #[test]
    fn no_shortened_file_is_taken((pages, size) in snapshot(), at in any::<prop::sample::Index>()) {
        let bytes = encode(header((1, 3), size, PAGE), &pages);
        prop_assert!(decode(&bytes[..at.index(bytes.len())]).is_err());
    }

    #[test]
    fn hostile_bytes_end_in_an_error(mut bytes in vec(any::<u8>(), 100..400)) {
        bytes[..4].copy_from_slice(b"LTX1");
        bytes[4..16].copy_from_slice(&[0, 0, 0, 2, 0, 0, 2, 0, 0, 0, 0, 9]);
        prop_assert!(decode(&bytes).is_err());
    }

    #[test]
    fn a_merge_equals_one_file_after_another(first in snapshot(), steps in vec(step(), 0..6), overlap in any::<bool>()) {
        let mut files = vec![encode(header((1, 2), first.1, PAGE), &first.0)];
        let mut state = first.0;
        let mut size = first.1;
        for (txid, (mut pages, next)) in (3..).zip(steps) {
            // As SQLite does: pages that the database grows by are written.
            for number in size + 1..=next {
                pages.entry(number).or_insert_with(|| vec![7; PAGE]);
            }
            let min = if overlap && txid > 3 { txid - 1 } else { txid };
            files.push(encode(header((min, txid), next, PAGE), &pages));
            state.extend(pages);
            state.retain(|number, _| *number <= next);
            size = next;
        }
        let last = files.len() as u64 + 1;
        let decoders = files.iter().map(|file| Decoder::new(Cursor::new(file)).unwrap()).collect();
        let (merged, header, _) = merge(decoders, Vec::new()).unwrap();
        prop_assert_eq!((header.min_txid, header.max_txid, header.commit), (1, last, size));
        prop_assert_eq!(decode(&merged).unwrap().1, state);
    }
}

#[test]
fn a_merge_refuses_a_hole() {
    let page = BTreeMap::from([(1, vec![1; PAGE])]);
    let files = [encode(header((1, 2), 1, PAGE), &page), encode(header((4, 4), 1, PAGE), &page)];
    let decoders = files.iter().map(|file| Decoder::new(Cursor::new(file)).unwrap()).collect();
    let error = merge(decoders, Vec::new()).unwrap_err().to_string();
    assert_eq!(error, "files cannot be merged: one ends with TXID 2, the next begins with 4");
}

#[test]
fn a_snapshot_that_lacks_a_page_is_not_written() {
    let mut encoder = Encoder::new(Vec::new(), header((1, 1), 3, PAGE)).unwrap();
    encoder.page(1, &[0; PAGE]).unwrap();
    assert!(matches!(encoder.page(3, &[0; PAGE]), Err(Error::Page { number: 3, .. })));
    assert!(matches!(encoder.finish(), Err(Error::Page { number: 2, .. })));
}

#[test]
fn the_lock_page_is_left_out_of_a_snapshot() {
    // With pages of 64 KiB the byte at 1 GiB is on page 16385.
    assert_eq!(ltx::lock_page(65_536), 16_385);
    let page = vec![0; 65_536];
    let mut encoder = Encoder::new(Vec::new(), header((1, 1), 16_386, 65_536)).unwrap();
    for number in 1..=16_384 {
        encoder.page(number, &page).unwrap();
    }
    assert!(matches!(encoder.page(16_385, &page), Err(Error::Page { number: 16_385, .. })));
    encoder.page(16_386, &page).unwrap();
    let (bytes, _) = encoder.finish().unwrap();
    let (_, trailer) = Decoder::new(Cursor::new(&bytes)).unwrap().finish().unwrap();
    assert_eq!(bytes[bytes.len() - 8..], trailer.file_checksum.to_be_bytes());
}

#[test]
fn a_key_is_taken_in_its_own_layout_alone() {
    use ltx::{FileName, Layout};
    let name = FileName { min_txid: 2, max_txid: 0xab };
    let keys = ["ltx/9/0000000000000002-00000000000000ab.ltx", "0009/0000000000000002-00000000000000ab.ltx"];
    for (layout, other, key) in [(Layout::Files, keys[1], keys[0]), (Layout::Objects, keys[0], keys[1])] {
        assert_eq!(layout.key(9, name), key);
        assert_eq!(layout.parse(key), Some((9, name)));
        assert_eq!(layout.parse(other), None);
    }
    for key in ["ltx/09/0000000000000002-00000000000000ab.ltx", "ltx/10/0000000000000002-00000000000000ab.ltx"] {
        assert_eq!(Layout::Files.parse(key), None, "{key}");
    }
}

#[test]
fn a_name_from_which_nobody_could_count_on_is_nobodys() {
    use ltx::{FileName, Layout, TXID_MAX};
    let key = |max_txid| Layout::Objects.key(0, FileName { min_txid: 1, max_txid });
    assert_eq!(Layout::Objects.parse(&key(TXID_MAX)).map(|(_, name)| name.max_txid), Some(TXID_MAX));
    for beyond in [TXID_MAX + 1, u64::MAX] {
        assert_eq!(Layout::Objects.parse(&key(beyond)), None, "{beyond}");
    }
}

#[test]
fn a_database_of_no_pages_and_a_transaction_beyond_the_last_one_are_refused() {
    let said = |header: Header| {
        let written = Encoder::new(Vec::new(), header.clone()).map(drop).unwrap_err().to_string();
        let read = Header::decode(&header.encode()).unwrap_err().to_string();
        assert_eq!(written, read);
        read
    };
    assert!(said(header((2, 2), 0, PAGE)).starts_with("header field commit: 0 is not 1 or more"));
    let beyond = Header { max_txid: ltx::TXID_MAX + 1, ..header((2, 2), 1, PAGE) };
    assert!(said(beyond).starts_with("header field max TXID: 9223372036854775808 is greater than the last one"));
}
