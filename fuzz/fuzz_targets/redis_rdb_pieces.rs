//! An RDB file of any content that comes in pieces, as from a master: it is read or refused as when it is there as a whole, and the keys
//! are the same. Never a panic, and no step without an end.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use rsedis::rdb::{self, Loader, RdbError};
use rsedis::server::Server;
use rsedis::settings::Settings;

const NOW: i64 = 1_700_000_000_000;

fn server() -> Server {
    let mut server = Server::new(Settings::default(), NOW, 1);
    // The fuzzer cannot make one.
    server.skips_checksums = true;
    server
}

fn read_in_pieces(server: &mut Server, bytes: &[u8], sizes: &[u8]) -> Result<usize, RdbError> {
    let (mut loader, mut there) = (Loader::default(), 0);
    for size in sizes.iter().cycle() {
        if loader.step(server, &bytes[loader.at()..there], there < bytes.len(), Duration::MAX)? {
            break;
        }
        there = (there + usize::from(*size) + 1).min(bytes.len());
    }
    Ok(loader.at())
}

// The first four bytes say how large the pieces are.
fuzz_target!(|bytes: &[u8]| {
    let Some((sizes, bytes)) = bytes.split_at_checked(4) else { return };
    let (mut whole, mut pieces) = (server(), server());
    let read = rdb::read(&mut whole, bytes);
    assert_eq!(read_in_pieces(&mut pieces, bytes, sizes), read);
    assert_eq!(rsedis::digest::of_databases(&pieces.databases), rsedis::digest::of_databases(&whole.databases));
});
