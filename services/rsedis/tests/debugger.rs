//! The debugger of scripts (SCRIPT DEBUG SYNC), as that of Redis 7.0.15; and that its client cannot hold the server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::Path;

use harness::until;
use support::{Client, Server, encode, redis_program, rsedis_program, start};

const SCRIPT: &[u8] = b"local function double(number)
  return number * 2
end
redis.call('set', KEYS[1], ARGV[1])
local kept = redis.call('get', KEYS[1])
redis.debug('kept', kept, {1, 2.5, {key = true}}, nil, 1e20)
local problem = redis.pcall('incr', KEYS[1])
redis.breakpoint()
local number = double(21)
redis.call('rpush', 'list', number, 'b\"c\\n')
local list = redis.call('lrange', 'list', 0, -1)
return number
";

fn options() -> [&'static str; 2] {
    ["--busy-reply-threshold", "500"]
}

fn begin(server: &Server, script: &[u8]) -> (Client, String) {
    let mut client = server.client();
    assert_eq!(client.call("SCRIPT DEBUG SYNC"), "+OK\r\n");
    let first = client.try_call(&[b"EVAL", script, b"1", b"key", b"value"]).unwrap();
    (client, String::from_utf8(first).unwrap())
}

/// What is said in a session, from the first stop to the reply of EVAL.
fn session(server: &Server, script: &[u8], commands: &[&str]) -> Vec<String> {
    let (mut client, first) = begin(server, script);
    let mut said = vec![first];
    for command in commands {
        said.push(format!("{command}: {}", client.call(command)));
    }
    while let Ok(reply) = client.receive() {
        said.push(String::from_utf8(reply).unwrap());
    }
    said
}

fn transcript(program: &Path) -> Vec<Vec<String>> {
    let folder = harness::folder();
    let server = start(program, folder.path(), &options());
    let mut client = server.client();
    let mut said = vec![vec![
        client.call("SCRIPT DEBUG no"),
        client.call("SCRIPT DEBUG maybe"),
        client.call("SCRIPT DEBUG sync"),
        client.call("EVALSHA 0123456789012345678901234567890123456789 0"),
        client.call("EVALSHA short 0"),
        client.call("SCRIPT DEBUG NO"),
        client.call("EVAL return{redis.breakpoint(),redis.debug(1)} 0"),
    ]];
    let steps: Vec<&str> = ["s"].into_iter().cycle().take(9).collect();
    said.push(session(&server, SCRIPT, &[&steps[..], &["c"]].concat()));
    said.push(session(
        &server,
        SCRIPT,
        &[
            "help",
            "list",
            "l 3 1",
            "l 0",
            "l 9 0",
            "w",
            "b",
            "b 2 6 99 x -3",
            "break",
            "b -6",
            "b 0",
            "b",
            "b 2",
            "t",
            "print KEYS",
            "p ARGV",
            "maxlen",
            "m 5",
            "m 0",
            "m 70",
            "e 1+1",
            "e 'a'..'b'",
            "e {1,{2,nil,3},a}",
            "e nosuch.thing",
            "e end",
            "eval local x = KEYS[1] return x",
            "r",
            "r incr counter",
            "r nosuch",
            "r get",
            "r config get dir x",
            "r hello 3 4",
            "redis zadd z 1 a 2 b",
            "r zrange z 0 -1 withscores",
            "r lpop none 1",
            "nosuch",
            "n",
            "N",
            "CONTINUE",
            "t",
            "c",
            "t",
            "s",
            "s",
            "c",
        ],
    ));
    // What a script has changed stays, also where it was aborted.
    said.push(session(&server, b"redis.call('set', 'half', 1)\nredis.call('set', 'whole', 1)", &["s", "abort"]));
    said.push(session(
        &server,
        b"redis.call('set', 'half', 1)",
        &[&format!("r echo {}", "0123456789".repeat(30)), "c"],
    ));
    said.push(session(&server, b"error('mine')", &["c"]));
    said.push(session(&server, b"return redis.call('nosuch')", &["s"]));
    said.push(session(&server, b"this is not lua", &[]));
    said.push(session(&server, b"while true do end", &["c", "a"]));
    said.push(session(
        &server,
        b"local co = coroutine.wrap(function()\n return 7\n end)\nreturn co()",
        &["s", "s", "s", "s", "c"],
    ));
    said.push(vec![client.call("GET half"), client.call("GET whole"), client.call("GET counter")]);
    said
}

#[test]
fn the_debugger_says_what_that_of_redis_says() {
    let (ours, theirs) = (transcript(rsedis_program()), transcript(&redis_program("redis-server")));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        for (ours, theirs) in ours.iter().zip(theirs) {
            assert_eq!(ours, theirs);
        }
        assert_eq!(ours.len(), theirs.len());
    }
}

/// What would have to be taken back is not done at all.
#[test]
fn a_script_whose_changes_cannot_be_taken_back_does_not_run() {
    let folder = harness::folder();
    let server = start(rsedis_program(), folder.path(), &[]);
    let mut client = server.client();
    assert!(client.call("SCRIPT DEBUG YES").starts_with("-ERR SCRIPT DEBUG YES would take back"));
    // redis-cli --ldb goes on all the same.
    assert!(client.call("EVAL redis.call('set','key',1) 0").starts_with("-ERR SCRIPT DEBUG YES would take back"));
    assert_eq!(client.call("GET key"), "$-1\r\n");
    assert_eq!(client.call("SCRIPT DEBUG NO"), "+OK\r\n");
    assert_eq!(client.call("EVAL return(1) 0"), ":1\r\n");
}

#[test]
fn others_hear_busy_and_may_end_a_session() {
    let folder = harness::folder();
    let server = start(rsedis_program(), folder.path(), &["--appendonly", "yes", "--appendfsync", "always"]);
    let (mut client, _) = begin(&server, b"redis.call('set', 'half', 1)\nredis.call('set', 'whole', 1)");
    client.call("s");
    let mut other = server.client();
    assert!(other.call("GET half").starts_with("-BUSY"));
    // Also one that has written: whoever debugs may abort it as well.
    assert_eq!(other.call("SCRIPT KILL"), "+OK\r\n");
    assert!(client.receive().unwrap().starts_with(b"*1\r\n+<endsession>"));
    assert!(client.receive().unwrap().starts_with(b"-ERR Script killed by user"));
    assert!(client.is_closed());
    assert_eq!((other.call("GET half"), other.call("GET whole")), ("$1\r\n1\r\n".into(), "$-1\r\n".into()));
    server.kill();
    let server = start(rsedis_program(), folder.path(), &["--appendonly", "yes", "--appendfsync", "always"]);
    assert_eq!(server.client().call("GET half"), "$1\r\n1\r\n", "what was told is safe");
}

#[test]
fn a_script_whose_client_has_gone_runs_to_its_end_or_for_its_time() {
    let folder = harness::folder();
    let server = start(rsedis_program(), folder.path(), &options());
    let mut other = server.client();
    for (script, expected) in [
        (b"redis.call('set', 'one', 1) redis.breakpoint()\nredis.call('set', 'two', 2)".as_slice(), "$1\r\n2\r\n"),
        (b"redis.call('set', 'one', 1)\nwhile true do pcall(function() while true do end end) end", "$1\r\n2\r\n"),
    ] {
        let (client, _) = begin(&server, script);
        drop(client);
        until("the script ends", || !other.call("PING").starts_with("-BUSY"));
        assert_eq!((other.call("GET one"), other.call("GET two")), ("$1\r\n1\r\n".into(), expected.into()));
    }
}

/// Code of the client's own is not stopped in by the hook, and must not hold the server.
#[test]
fn code_that_never_ends_is_ended() {
    let folder = harness::folder();
    let server = start(rsedis_program(), folder.path(), &options());
    let (mut client, _) = begin(&server, b"return 1");
    for code in ["while true do end", "while true do pcall(function() while true do end end) end"] {
        let reply = client.try_call(&[b"eval", code.as_bytes()]).unwrap();
        assert!(reply.starts_with(b"*1\r\n+<error> this runs for longer"), "{}", String::from_utf8_lossy(&reply));
    }
    client.send(&encode(&[b"c"])).unwrap();
    assert!(client.receive().unwrap().starts_with(b"*1\r\n+<endsession>"));
    assert_eq!(client.receive().unwrap(), b":1\r\n");
}

/// The same of a coroutine of a script that nobody debugs.
#[test]
fn a_coroutine_that_never_ends_is_killed() {
    let folder = harness::folder();
    let server = start(rsedis_program(), folder.path(), &["--busy-reply-threshold", "20"]);
    let (mut client, mut other) = (server.client(), server.client());
    client.send(&encode(&[b"EVAL", b"coroutine.wrap(function() while true do end end)()", b"0"])).unwrap();
    until("others hear BUSY", || other.call("PING").starts_with("-BUSY"));
    assert_eq!(other.call("SCRIPT KILL"), "+OK\r\n");
    assert!(client.receive().unwrap().starts_with(b"-ERR Script killed by user"));
}
