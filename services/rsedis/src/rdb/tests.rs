//! What is written is read; damage is not.

use super::*;
use crate::keyspace::{Entry, Key};
use crate::server::Server;
use crate::session::Session;
use crate::settings::Settings;
use crate::structure::table::Element as _;

fn server() -> Server {
    Server::new(Settings::default(), 1_700_000_000_000, 7)
}

fn run(server: &mut Server, line: &str) {
    let mut client = Session { is_authenticated: true, may_all: true, ..Session::default() };
    let args = crate::protocol::OwnedArgs::new(line.split(' ').map(str::as_bytes));
    crate::command::execute(server, &mut client, args.as_args());
    assert_ne!(client.reply.bytes.first(), Some(&b'-'), "{line}: {}", client.reply.bytes.escape_ascii());
}

/// Keys of every type and encoding.
fn filled() -> Server {
    let mut server = server();
    let long = "x".repeat(5_000);
    for line in [
        "SET a hello".to_owned(),
        "SET number 12345".to_owned(),
        "SET large 123456789012".to_owned(),
        format!("SET long {long}"),
        "SET timed v PXAT 1800000000000".to_owned(),
        format!("RPUSH list a 1 2 3 {long} b"),
        "SADD ints 1 2 70000 -5".to_owned(),
        "SADD set a b c".to_owned(),
        "HSET hash f v g 5".to_owned(),
        format!("HSET table f {long}"),
        "ZADD zset 1 a 2.5 b -inf c".to_owned(),
        format!("ZADD tree 1 {long} 2 b"),
        "XADD stream 1-1 f v g w".to_owned(),
        "XADD stream 1-2 f v g w".to_owned(),
        "XADD stream 2-0 other value".to_owned(),
        "XDEL stream 1-2".to_owned(),
        "XGROUP CREATE stream group 0".to_owned(),
        "XREADGROUP GROUP group alice COUNT 1 STREAMS stream >".to_owned(),
        "SELECT 0".to_owned(),
    ] {
        run(&mut server, &line);
    }
    server
}

#[test]
fn a_file_comes_back_whole() {
    let filled = filled();
    let bytes = write(&filled, false);
    let mut copy = server();
    assert_eq!(read(&mut copy, &bytes), Ok(bytes.len()));
    assert_eq!(crate::digest::of_databases(&copy.databases), crate::digest::of_databases(&filled.databases));
    let streams = [&filled, &copy].map(|server| {
        let database = &server.databases[0];
        format!("{:?}", database.entry(database.find(&Key::new(b"stream")).unwrap()).value())
    });
    assert_eq!(streams[0], streams[1], "groups and all");
}

#[test]
fn any_damage_is_found() {
    let bytes = write(&filled(), false);
    let step = 37;
    for at in (0..bytes.len()).step_by(step) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(read(&mut server(), &damaged).is_err(), "byte {at}");
        assert!(read(&mut server(), &bytes[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn values_come_back_and_damaged_ones_do_not_hurt() {
    let filled = filled();
    let packing = filled.packing();
    for entry in filled.databases[0].iter() {
        let payload = dump(entry, true);
        assert!(is_whole(&payload, false));
        let mut without_sum = payload.clone();
        without_sum[payload.len() - 8..].fill(0);
        assert!(!is_whole(&without_sum, false), "zeros stand for no checksum in files alone");
        let back = restore(entry.key(), &payload, entry.expiry(), packing).unwrap();
        assert_eq!(crate::digest::of_value(&back), crate::digest::of_value(entry));
        for at in 0..payload.len().min(400) {
            for bit in [1, 16, 128] {
                let mut damaged = payload.clone();
                damaged[at] ^= bit;
                assert!(!is_whole(&damaged, false));
                // With the checksum left out it may be a value or none; it must be one that can be looked at.
                if let Some(entry) = restore(b"k", &damaged, None, packing) {
                    crate::digest::of_value(&entry);
                }
            }
        }
    }
}

/// What Redis 7.0.15 wrote.
#[test]
fn strings_are_those_of_redis() {
    let payload = dump(&Entry::string(b"k", b"5", None), true);
    assert_eq!(payload.escape_ascii().to_string(), "\\x00\\xc0\\x05\\n\\x00c/_f\\x83/\\xb3Q");
    assert_eq!(checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
}

#[test]
fn old_packed_values_are_read() {
    // A ziplist of "a", 5, 1000: bytes, offset of the last, count; entries.
    let mut ziplist = vec![0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 1, b'a', 3, 0xF6, 2, 0xC0, 0xE8, 0x03, 0xFF];
    assert_eq!(old::ziplist(&ziplist), Some(vec![b"a".to_vec(), b"5".to_vec(), b"1000".to_vec()]));
    ziplist.pop();
    assert_eq!(old::ziplist(&ziplist), None);
    let zipmap = [1, 1, b'f', 2, 1, b'v', b'w', 0, 0xFF];
    assert_eq!(old::zipmap(&zipmap), Some(vec![b"f".to_vec(), b"vw".to_vec()]));
    assert_eq!(old::zipmap(&zipmap[..6]), None);
}

/// Reads a file that comes in pieces of these sizes, again and again.
fn read_in_pieces(server: &mut Server, bytes: &[u8], sizes: &[usize]) -> Result<usize, RdbError> {
    let (mut loader, mut there) = (Loader::default(), 0);
    for size in sizes.iter().cycle() {
        if loader.step(server, &bytes[loader.at()..there], there < bytes.len(), std::time::Duration::MAX)? {
            break;
        }
        there = (there + size).min(bytes.len());
    }
    Ok(loader.at())
}

#[test]
fn damage_in_a_file_that_comes_is_found() {
    let bytes = write(&filled(), false);
    for at in (0..bytes.len()).step_by(37) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(read_in_pieces(&mut server(), &damaged, &[1_000]).is_err(), "byte {at}");
        assert!(read_in_pieces(&mut server(), &bytes[..at], &[1_000]).is_err(), "cut at {at}");
    }
}

/// Each packet brought another attempt at the whole value.
#[test]
fn a_large_value_that_comes_slowly_is_read_with_every_packet() {
    let mut filled = server();
    (0..2_000).for_each(|member| run(&mut filled, &format!("SADD set {member}:{}", "x".repeat(1_000))));
    let bytes = write(&filled, false);
    let (mut loader, mut attempts) = (Loader::default(), 0);
    let mut copy = server();
    for there in 0..=bytes.len() {
        let (rest, may_grow) = (&bytes[loader.at()..there], there < bytes.len());
        if loader.is_content_with(rest.len()) || !may_grow {
            attempts += 1;
            loader.step(&mut copy, rest, may_grow, std::time::Duration::MAX).unwrap();
        }
    }
    assert_eq!(crate::digest::of_databases(&copy.databases), crate::digest::of_databases(&filled.databases));
    assert!(attempts < 300, "{attempts} attempts at {} bytes", bytes.len());
}

proptest::proptest! {
    #[test]
    fn a_file_that_comes_in_any_pieces_is_read(sizes in proptest::collection::vec(1usize..3_000, 1..20)) {
        let filled = filled();
        let bytes = write(&filled, false);
        let mut copy = server();
        proptest::prop_assert_eq!(read_in_pieces(&mut copy, &bytes, &sizes), Ok(bytes.len()));
        proptest::prop_assert_eq!(crate::digest::of_databases(&copy.databases), crate::digest::of_databases(&filled.databases));
    }

    /// With the checksum left out: what is damaged may be a file all the same, or none, but the same however it comes.
    #[test]
    fn a_damaged_file_is_the_same_in_pieces_and_as_a_whole(
        sizes in proptest::collection::vec(1usize..3_000, 1..8),
        changes in proptest::collection::vec((proptest::prelude::any::<proptest::sample::Index>(), 0u8..=255), 1..4),
        kept in proptest::prelude::any::<proptest::sample::Index>(),
        cuts in proptest::bool::weighted(0.2),
    ) {
        let mut bytes = write(&filled(), false);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if cuts {
            bytes.truncate(kept.index(bytes.len()));
        }
        let [mut whole, mut pieces] = [server(), server()].map(|server| Server { skips_checksums: true, ..server });
        let expected = read(&mut whole, &bytes);
        proptest::prop_assert_eq!(read_in_pieces(&mut pieces, &bytes, &sizes), expected);
        proptest::prop_assert_eq!(crate::digest::of_databases(&pieces.databases), crate::digest::of_databases(&whole.databases));
    }
}
