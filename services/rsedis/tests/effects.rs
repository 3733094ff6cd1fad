//! What commands say they changed makes the same keys again, on another server, which draws other lots.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::Random;
use rsedis::command;
use rsedis::protocol::OwnedArgs;
use rsedis::protocol::{Limits, Parser};
use rsedis::server::Server;
use rsedis::session::Session;
use rsedis::settings::Settings;
use support::elements;
use support::templates::{TEMPLATES, fill};

const NOW: i64 = 1_700_000_000_000;
const COMMANDS: usize = 3_000;

fn server(seed: u64) -> (Server, Session) {
    (
        Server::new(Settings::default(), NOW, seed),
        Session { is_authenticated: true, may_all: true, ..Session::default() },
    )
}

fn call(server: &mut Server, session: &mut Session, words: &[&[u8]]) -> Vec<u8> {
    let args = OwnedArgs::new(words.iter().copied());
    command::execute(server, session, args.as_args());
    std::mem::take(&mut session.reply.bytes)
}

/// Everything in all databases.
fn dump(server: &mut Server) -> Vec<String> {
    let mut session = Session { is_authenticated: true, may_all: true, ..Session::default() };
    let mut found = Vec::new();
    for database in 0..16 {
        call(server, &mut session, &[b"SELECT", database.to_string().as_bytes()]);
        let keys = call(server, &mut session, &[b"KEYS", b"*"]);
        let text =
            |bulk: &[u8]| bulk.splitn(2, |byte| *byte == b'\n').nth(1).unwrap().strip_suffix(b"\r\n").unwrap().to_vec();
        for name in elements(&keys).into_iter().map(text) {
            let kind = call(server, &mut session, &[b"TYPE", &name]);
            let read: Vec<&[u8]> = match kind.trim_ascii() {
                b"+string" => vec![b"GET", &name],
                b"+list" => vec![b"LRANGE", &name, b"0", b"-1"],
                b"+set" => vec![b"SMEMBERS", &name],
                b"+hash" => vec![b"HGETALL", &name],
                b"+zset" => vec![b"ZRANGE", &name, b"0", b"-1", b"WITHSCORES"],
                _ => vec![b"XRANGE", &name, b"-", b"+"],
            };
            let value = call(server, &mut session, &read);
            let mut parts: Vec<Vec<u8>> = elements(&value).into_iter().map(<[u8]>::to_vec).collect();
            if kind.starts_with(b"+set") {
                parts.sort();
            } else if parts.is_empty() {
                parts.push(value);
            }
            let expiry = call(server, &mut session, &[b"PEXPIRETIME", &name]);
            found.push(format!(
                "{database} {} {} {}",
                name.escape_ascii(),
                parts.concat().escape_ascii(),
                expiry.escape_ascii()
            ));
        }
    }
    found.sort();
    found
}

/// What a server holds to which these effects are told.
fn told(effects: &[u8], seed: u64, now: i64) -> (Server, usize) {
    let (mut replayed, mut loader) = server(seed);
    replayed.is_loading = true;
    // Who brings data while they are read is not refused.
    loader.is_master = true;
    let (mut parser, mut at, mut commands) = (Parser::default(), 0, 0);
    while let Some(length) = parser.next(&effects[at..], Limits { bulk_max: 1 << 30, is_stranger: false }).unwrap() {
        command::execute(&mut replayed, &mut loader, parser.args(&effects[at..]));
        at += length;
        commands += 1;
    }
    assert_eq!(at, effects.len());
    replayed.is_loading = false;
    replayed.now = now;
    (replayed, commands)
}

/// Redis answers so as well, and keeps to itself that the string is longer.
#[test]
fn a_bit_field_that_fails_and_lengthens_its_string_tells_of_it() {
    let (mut original, mut session) = server(1);
    original.effects.is_enabled = true;
    let lines: [(&[&str], &str); 4] = [
        (&["SET", "s", "1"], "+OK\r\n"),
        (&["BITFIELD", "s", "OVERFLOW", "FAIL", "SET", "i1", "23", "-9"], "*1\r\n$-1\r\n"),
        (&["BITFIELD", "new", "OVERFLOW", "FAIL", "SET", "i1", "23", "-9"], "*1\r\n$-1\r\n"),
        (&["STRLEN", "s"], ":3\r\n"),
    ];
    for (words, expected) in lines {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        assert_eq!(String::from_utf8(call(&mut original, &mut session, &words)).unwrap(), expected);
    }
    let (mut replayed, commands) = told(&std::mem::take(&mut original.effects.bytes), 2, NOW);
    assert_eq!(commands, 4, "SELECT and what changed something");
    assert_eq!(dump(&mut replayed), dump(&mut original));
}

#[test]
fn effects_make_the_same_keys_again() {
    // What is random, and what others would be told relative to now.
    let more = [
        "SPOP E",
        "SPOP E N",
        "EXPIRE K 100",
        "PEXPIRE K 5000",
        "SET S V EX 10",
        "SET S V PX 10000 GET",
        "GETEX S EX 7",
        "XADD Q * M V",
        "XADD Q MAXLEN ~ 1 * M V",
        "EXPIRE K -1",
        "SELECT 2",
        "SELECT 0",
        "MULTI",
        "EXEC",
    ];
    for seed in 0..6 {
        let (mut original, mut session) = server(seed);
        original.effects.is_enabled = true;
        let mut random = Random::new(seed);
        for number in 0..COMMANDS {
            let (_, templates) = random.pick(TEMPLATES);
            let template = match random.index(4) {
                0 => random.pick(&more),
                _ => random.pick(templates),
            };
            // One that closes, and those that empty everything too often to learn anything.
            if template.starts_with("FLUSH") && !number.is_multiple_of(50) {
                continue;
            }
            let words: Vec<Vec<u8>> = template.split(' ').map(|word| fill(&mut random, word)).collect();
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            call(&mut original, &mut session, &words);
            // Time goes on, so that keys expire.
            original.now += 20;
        }
        let effects = std::mem::take(&mut original.effects.bytes);
        let (mut replayed, commands) = told(&effects, seed + 1_000, original.now);
        assert!(commands > COMMANDS / 10, "{commands}");
        let (expected, found) = (dump(&mut original), dump(&mut replayed));
        assert!(expected.len() > 5, "{}", expected.len());
        for (expected, found) in expected.iter().zip(&found) {
            assert_eq!(expected, found, "seed {seed}");
        }
        assert_eq!(expected.len(), found.len(), "seed {seed}");
    }
}
