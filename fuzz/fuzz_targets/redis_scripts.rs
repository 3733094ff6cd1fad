//! What scripts are given: `cjson.decode`, `cmsgpack.unpack` and `struct.unpack` read any bytes or say that they cannot, and a text of
//! any content is a script, or none; never a panic, and the server answers the next command.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use libfuzzer_sys::fuzz_target;
use rsedis::command;
use rsedis::protocol::{Limits, Parser};
use rsedis::server::Server;
use rsedis::session::Session;
use rsedis::settings::Settings;

const LIBRARIES: [&str; 3] = [
    "return cjson.encode(cjson.decode(ARGV[1]))",
    "return cmsgpack.pack(cmsgpack.unpack(ARGV[1]))",
    "return struct.unpack(ARGV[1]:sub(1, 8), ARGV[1]:sub(9))",
];

fn run(server: &mut Server, arguments: &[&[u8]]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        request.extend(format!("${}\r\n", argument.len()).into_bytes());
        request.extend_from_slice(argument);
        request.extend_from_slice(b"\r\n");
    }
    let limits = Limits { bulk_max: 1 << 20, is_stranger: false };
    let (mut parser, mut session) =
        (Parser::default(), Session { is_authenticated: true, may_all: true, ..Session::default() });
    assert!(matches!(parser.next(&request, limits), Ok(Some(_))));
    command::execute(server, &mut session, parser.args(&request));
    std::mem::take(&mut session.reply.bytes)
}

// Not run as a script: a loop without an end is none's fault, and ends only when somebody kills it.
fuzz_target!(|bytes: &[u8]| {
    let [choice, bytes @ ..] = bytes else { return };
    let mut server = Server::new(Settings::default(), 1_700_000_000_000, 1);
    match LIBRARIES.get(usize::from(choice % 4)) {
        Some(script) => run(&mut server, &[b"EVAL", script.as_bytes(), b"0", bytes]),
        None => run(&mut server, &[b"SCRIPT", b"LOAD", bytes]),
    };
    assert_eq!(run(&mut server, &[b"EVAL", b"return 1", b"0"]), b":1\r\n");
});
