//! Redis commands, run on a server without sockets: nothing panics, and what commands say they changed makes the same keys again.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use libfuzzer_sys::fuzz_target;
use rsedis::command;
use rsedis::protocol::{Limits, Parser};
use rsedis::server::Server;
use rsedis::session::Session;
use rsedis::settings::Settings;

fn run(server: &mut Server, bytes: &[u8]) {
    let limits = Limits { bulk_max: 1 << 20, is_stranger: false };
    let (mut parser, mut session) =
        (Parser::default(), Session { is_authenticated: true, may_all: true, ..Session::default() });
    let mut at = 0;
    while let Ok(Some(length)) = parser.next(&bytes[at..], limits) {
        command::execute(server, &mut session, parser.args(&bytes[at..]));
        session.reply.bytes.clear();
        at += length;
    }
}

fuzz_target!(|bytes: &[u8]| {
    const NOW: i64 = 1_700_000_000_000;
    let mut server = Server::new(Settings::default(), NOW, 1);
    server.effects.is_enabled = true;
    run(&mut server, bytes);
    let effects = std::mem::take(&mut server.effects.bytes);
    let mut replayed = Server::new(Settings::default(), NOW, 2);
    run(&mut replayed, &effects);
    let sizes = |server: &Server| server.databases.iter().map(|database| database.len()).collect::<Vec<_>>();
    assert_eq!(sizes(&replayed), sizes(&server));
});
