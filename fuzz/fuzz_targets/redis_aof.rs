//! A manifest and an append-only file of any content: replayed or refused with a line that says why, never a panic.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use std::io;

use libfuzzer_sys::fuzz_target;
use rsedis::persistence::{Manifest, recover};
use rsedis::server::Server;
use rsedis::settings::Settings;
use wal::files::{Directory as _, File as _, SimulatedDirectory};

const NOW: i64 = 1_700_000_000_000;
const MANIFEST: &str = "appendonly.aof.manifest";
const FILES: [&str; 2] = ["appendonly.aof.1.base.rdb", "appendonly.aof.1.incr.aof"];

fn put(directory: &SimulatedDirectory, name: &str, bytes: &[u8]) -> io::Result<()> {
    directory.create_zeroed(name, bytes.len() as u64)?.write_at(bytes, 0)
}

// The first byte says what follows: a manifest, or a base and what came after it, with a zero between them.
fuzz_target!(|data: &[u8]| {
    let [choice, data @ ..] = data else { return };
    let directory = SimulatedDirectory::default();
    let manifest = format!("file {} seq 1 type b\nfile {} seq 1 type i\n", FILES[0], FILES[1]);
    let at = data.iter().position(|byte| *byte == 0).unwrap_or(0);
    let (base, increment) = data.split_at(at);
    let (manifest, base, increment) = match choice % 2 {
        0 => (data, &b""[..], &b""[..]),
        _ => (manifest.as_bytes(), base, increment.get(1..).unwrap_or_default()),
    };
    let _ = Manifest::parse("appendonly.aof", manifest);
    for (name, bytes) in [(MANIFEST, manifest), (FILES[0], base), (FILES[1], increment)] {
        put(&directory, name, bytes).expect("nothing fails");
    }
    let mut server = Server::new(Settings::default(), NOW, 1);
    server.skips_checksums = true;
    if let Err(error) = recover::replay(&mut server, directory) {
        assert!(!error.to_string().contains('\n'), "{error}");
    }
});
