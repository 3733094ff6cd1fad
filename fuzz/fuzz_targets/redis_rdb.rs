//! Values of DUMP and whole RDB files of any content: read or refused, never a panic; what was read is written so that it is read again,
//! to the same bytes.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use libfuzzer_sys::fuzz_target;
use rsedis::rdb;
use rsedis::server::Server;
use rsedis::settings::Settings;

const NOW: i64 = 1_700_000_000_000;

// The first byte says whether a file follows or a value. The fuzzer cannot make a checksum: a value's is none, a file's is not looked at.
fuzz_target!(|bytes: &[u8]| {
    let [choice, bytes @ ..] = bytes else { return };
    let mut server = Server::new(Settings::default(), NOW, 1);
    if choice % 2 == 0 {
        server.skips_checksums = true;
        if rdb::read(&mut server, bytes).is_ok() {
            let written = rdb::write(&server, false);
            let mut again = Server::new(Settings::default(), NOW, 2);
            rdb::read(&mut again, &written).expect("what was written is read");
            let sizes = |server: &Server| server.databases.iter().map(|database| database.len()).collect::<Vec<_>>();
            assert_eq!(sizes(&again), sizes(&server));
        }
        return;
    }
    let payload = [bytes, &[0; 10]].concat();
    let packing = server.packing();
    let Some(entry) = rdb::restore(b"key", &payload, None, packing) else { return };
    let dumped = rdb::dump(&entry, choice & 2 == 2);
    assert!(rdb::is_whole(&dumped, false));
    let again = rdb::restore(b"key", &dumped, None, packing).expect("what was dumped is restored");
    assert_eq!(rdb::dump(&again, choice & 2 == 2), dumped);
});
