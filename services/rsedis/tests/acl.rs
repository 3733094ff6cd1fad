//! Users and what they may do, beside Redis 7.0.15, and their file.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::os::unix::fs::PermissionsExt as _;

use support::{Client, redis_program, rsedis_program, start};

/// Every reply is that of Redis, byte for byte.
fn compare(ours: &mut Client, theirs: &mut Client, lines: &[&str]) {
    for line in lines {
        assert_eq!(ours.call(line), theirs.call(line), "{line}");
    }
}

/// A bracket within an open one begins the selector anew, and is the one that is told of.
#[test]
fn of_two_open_brackets_the_last_one_counts() {
    let directories = [harness::folder(), harness::folder()];
    let ours = start(rsedis_program(), directories[0].path(), &[]);
    let theirs = start(&redis_program("redis-server"), directories[1].path(), &[]);
    compare(
        &mut ours.client(),
        &mut theirs.client(),
        &[
            "ACL SETUSER someone (+get",
            "ACL SETUSER someone on (+get",
            "ACL SETUSER someone on nopass (+get",
            "ACL SETUSER someone on nopass ~a (+get",
            "ACL SETUSER someone on nopass ~a (+get ~b +@all (+set",
            "ACL GETUSER someone",
            "ACL SETUSER someone (+get on (+set ~x)",
            "ACL SETUSER someone (+get (+@foo )",
            "ACL SETUSER someone ( +get ~y )",
            "ACL GETUSER someone",
        ],
    );
}

#[test]
fn users_rules_and_refusals_are_those_of_redis() {
    let directories = [harness::folder(), harness::folder()];
    let ours = start(rsedis_program(), directories[0].path(), &[]);
    let theirs = start(&redis_program("redis-server"), directories[1].path(), &[]);
    let (mut ours, mut theirs) = (ours.client(), theirs.client());
    compare(
        &mut ours,
        &mut theirs,
        &[
            "ACL WHOAMI",
            "ACL USERS",
            "ACL LIST",
            "ACL GETUSER default",
            "ACL GETUSER nobody",
            "ACL CAT",
            "ACL CAT nothing",
            "ACL SETUSER reader on >secret ~data:* %R~shared:* %W~out:* &news:* resetchannels &news:* +@read +select|0",
            "ACL SETUSER reader +nosuch",
            "ACL SETUSER reader +@nosuch",
            "ACL SETUSER reader ~*",
            "ACL SETUSER reader ~more",
            "ACL SETUSER reader resetkeys ~data:* %R~shared:* %W~out:* %X~foo",
            "ACL SETUSER reader resetkeys ~data:* %R~shared:* %W~out:*",
            "ACL SETUSER reader #123",
            "ACL SETUSER reader <wrong",
            "ACL SETUSER reader (+get",
            "ACL SETUSER reader (~sel:* +set) (~other:* +lpush &c)",
            "ACL SETUSER reader +config|get|maxmemory",
            "ACL SETUSER reader +config|nosuch",
            "ACL SETUSER reader nonsense",
            "ACL DELUSER default",
            "ACL DRYRUN nobody GET x",
            "ACL DRYRUN reader NOSUCH x",
            "ACL DRYRUN reader GET",
            "ACL DRYRUN reader GET data:1",
            "ACL DRYRUN reader GET other",
            "ACL DRYRUN reader SET sel:1 x",
            "ACL DRYRUN reader SET data:1 x",
            "ACL DRYRUN reader LPUSH other:1 x",
            "ACL DRYRUN reader PUBLISH news:1 x",
            "ACL DRYRUN reader SELECT 0",
            "ACL DRYRUN reader SELECT 1",
            "ACL GENPASS 0",
            "ACL GENPASS 4097",
            "ACL LOAD",
            "ACL SAVE",
            "AUTH reader wrong",
            "AUTH nobody wrong",
            "AUTH reader secret",
            "ACL WHOAMI",
            "GET data:1",
            "GET shared:1",
            "GET none",
            "MGET data:1 none",
            "SET data:1 x",
            "SET sel:1 x",
            "LPUSH other:1 x",
            "SELECT 0",
            "SELECT 1",
            "COPY data:1 out:1",
            "PUBLISH news:1 x",
            "CONFIG GET maxmemory",
            "SORT data:1 BY w* GET shared:*",
            "EVAL return_1 0",
            "PING",
            "AUTH default any",
            "ACL SETUSER reader +publish +subscribe +psubscribe +eval +multi +exec",
            "AUTH reader secret",
            "PUBLISH news:1 x",
            "PUBLISH old:1 x",
            "SUBSCRIBE old:1",
            "PSUBSCRIBE news:1",
            "MULTI",
            "GET data:1",
            "GET none",
            "EXEC",
            "AUTH default any",
            "ACL LOG 0",
            "ACL LOG RESET",
            "ACL LOG",
            "CONFIG SET requirepass secret",
            "ACL WHOAMI",
            "AUTH wrong",
            "AUTH secret",
            "CONFIG SET requirepass ",
            "AUTH secret",
            "ACL DELUSER reader nobody",
            "ACL USERS",
            "ACL SETUSER empty",
            "ACL GETUSER empty",
            "ACL LIST",
            "CLIENT KILL USER nobody",
        ],
    );
    for (bits, length) in [("5", 2), ("64", 16), ("256", 64)] {
        assert_eq!(ours.call(&format!("ACL GENPASS {bits}")).len(), theirs.call(&format!("ACL GENPASS {bits}")).len());
        assert!(ours.call(&format!("ACL GENPASS {bits}")).starts_with(&format!("${length}\r\n")));
    }
    assert_ne!(ours.call("ACL GENPASS"), ours.call("ACL GENPASS"));
}

/// What a key is for is told apart: to read it, or to write it.
#[test]
fn keys_and_what_is_done_with_them_are_those_of_redis() {
    let directories = [harness::folder(), harness::folder()];
    let ours = start(rsedis_program(), directories[0].path(), &[]);
    let theirs = start(&redis_program("redis-server"), directories[1].path(), &[]);
    let (mut ours, mut theirs) = (ours.client(), theirs.client());
    for line in [
        "SET a b",
        "SET a b GET",
        "GET a",
        "MSET a 1 b 2",
        "SORT a BY w* STORE b STORE c",
        "SORT_RO a",
        "BITFIELD a GET u8 0",
        "BITFIELD a SET u8 0 1",
        "XREAD COUNT 1 STREAMS a b 0 0",
        "XREADGROUP GROUP g c STREAMS a 0",
        "EVAL x 2 a b c",
        "EVAL x 0",
        "EVAL x 9 a",
        "FCALL f 1 a",
        "ZUNIONSTORE d 2 a b",
        "ZINTER 2 a b",
        "GEORADIUS a 1 1 1 m STORE b",
        "GEORADIUS a 1 1 1 m",
        "LMOVE a b LEFT LEFT",
        "BLPOP a b 0",
        "OBJECT ENCODING a",
        "PFCOUNT a b",
        "PING",
        "NOSUCH a",
        "GET",
        "SUBSCRIBE a",
        "LMPOP 2 a b LEFT",
        "ZMPOP x a b MIN",
        "RENAME a b",
        "BITOP AND d a b",
        "MEMORY USAGE a",
        "SORT a STORE b BY STORE",
        "SORT a LIMIT 0 1 ALPHA",
        "XREAD STREAMS a b 0",
        "XREAD COUNT 1 a",
        "XREADGROUP GROUP STREAMS c STREAMS a 0",
        "EVAL x -1 a",
        "EVAL x y a",
        "ZUNIONSTORE d 0 a",
        "GEORADIUSBYMEMBER a b 1 m STOREDIST b",
    ] {
        for question in ["COMMAND GETKEYS", "COMMAND GETKEYSANDFLAGS"] {
            let line = format!("{question} {line}");
            assert_eq!(ours.call(&line), theirs.call(&line), "{line}");
        }
    }
}

/// Keys are looked for as the command itself looks for them, however its other arguments are called.
#[test]
fn keys_hide_behind_words_that_look_like_options() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &[]);
    let (mut client, mut limited) = (server.client(), server.client());
    client.call("ACL SETUSER limited on nopass +@all ~mine* ~STORE ~STREAMS");
    client.call("RPUSH mine 1 2");
    client.call("RPUSH secret 1 2");
    client.call("XGROUP CREATE secretstream STREAMS $ MKSTREAM");
    client.call("XGROUP CREATE secretstream g $");
    client.call("XGROUP CREATE minestream STREAMS $ MKSTREAM");
    client.call("GEOADD minegeo 1 1 a");
    assert_eq!(limited.call("AUTH limited x"), "+OK\r\n");
    for line in [
        "SORT mine STORE secret BY STORE",
        "SORT mine STORE secret BY nosort STORE mine2 GET STORE STORE secret",
        "SORT mine STORE secret GET STORE ASC",
        "SORT mine BY STORE STORE secret",
        "SORT mine LIMIT STORE 1 STORE secret",
        "GEORADIUS minegeo 1 1 1 m STORE mine2 STORE secret",
        "GEORADIUS minegeo 1 1 1 m STORE secret STORE mine2",
        "GEORADIUS minegeo 1 1 1 m STORE STORE STORE secret",
        "GEORADIUS minegeo 1 1 1 m STORE mine2 STOREDIST mine2 STORE secret",
        "GEORADIUSBYMEMBER minegeo a 1 m STOREDIST mine2 STOREDIST secret",
        "GEORADIUSBYMEMBER minegeo a 1 m STORE mine2 STOREDIST secret",
        "XREADGROUP COUNT 1 GROUP STREAMS STREAMS STREAMS secretstream >",
        "XREADGROUP NOACK GROUP g STREAMS STREAMS secretstream >",
        "XREADGROUP COUNT 1 GROUP STREAMS mine STREAMS secretstream >",
        "XREAD COUNT 1 STREAMS minestream secretstream 0 0",
        "PFMERGE secret",
        // What cannot be told is not allowed.
        "ZUNION 9 secret",
    ] {
        assert!(limited.call(line).starts_with("-NOPERM"), "{line}: {}", limited.call(line));
    }
    for (line, reply) in [
        ("SORT mine STORE mine2 BY nosort", ":2"),
        ("SORT mine", "*2"),
        ("GEORADIUS minegeo 1 1 1 m STORE mine2", ":1"),
        ("GEORADIUSBYMEMBER minegeo a 1 m", "*1"),
        ("XREADGROUP COUNT 1 GROUP STREAMS STREAMS STREAMS minestream >", "*-1"),
        ("XREAD BLOCK 1 STREAMS minestream 0", "*-1"),
        ("PFMERGE mine4", "+OK"),
        ("EVAL return{KEYS[1]} 0", "*0"),
        // As Redis has it: the command itself refuses this, and looks at no key.
        ("EVAL return{KEYS[1]} 9 secret", "-ERR Number of keys can't be greater than number of args"),
        ("PING", "+PONG"),
    ] {
        assert!(limited.call(line).starts_with(reply), "{line}: {}", limited.call(line));
    }
}

/// A script asks what the user who runs it may do.
#[test]
fn scripts_hear_that_everything_is_allowed() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &[]);
    let (mut client, mut limited) = (server.client(), server.client());
    client.call("ACL SETUSER limited on nopass +@all -set ~mine");
    assert_eq!(limited.call("AUTH limited x"), "+OK\r\n");
    for (words, full, restricted) in [
        ("'GET','mine'", ":1\r\n", ":1\r\n"),
        ("'GET','yours'", ":1\r\n", "$-1\r\n"),
        ("'SET','mine','x'", ":1\r\n", "$-1\r\n"),
    ] {
        let line = format!("EVAL return(redis.acl_check_cmd({words})) 0");
        assert_eq!((client.call(&line), limited.call(&line)), (full.to_owned(), restricted.to_owned()), "{words}");
    }
    for client in [&mut client, &mut limited] {
        let refused = client.call("EVAL return(redis.acl_check_cmd('NOSUCH')) 0");
        assert!(refused.starts_with("-ERR Invalid command passed to redis.acl_check_cmd()"), "{refused}");
    }
}

#[test]
fn a_refusal_is_logged_once_a_minute_and_counted() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &[]);
    let (mut client, mut limited) = (server.client(), server.client());
    assert_eq!(client.call("ACL SETUSER limited on nopass +get ~mine"), "+OK\r\n");
    assert_eq!(limited.call("AUTH limited x"), "+OK\r\n");
    for _ in 0..3 {
        assert!(limited.call("GET yours").starts_with("-NOPERM"));
    }
    assert!(limited.call("SET mine x").starts_with("-NOPERM"));
    let log = client.call("ACL LOG");
    assert!(log.starts_with("*2\r\n"), "{log}");
    assert!(log.contains("count\r\n:3\r\n") && log.contains("yours") && log.contains("user=limited"), "{log}");
    assert!(
        log.contains("$3\r\nset\r\n") && log.contains("$7\r\ncommand\r\n") && log.contains("$3\r\nkey\r\n"),
        "{log}"
    );
}

/// Who asks for the file to be read again hears of it, and has to log in again.
#[test]
fn whoever_reloads_the_users_hears_of_it() {
    let directory = harness::folder();
    std::fs::write(directory.path().join("users.acl"), "user one on nopass +@all ~* &*\n").unwrap();
    let server = start(rsedis_program(), directory.path(), &["--aclfile", "users.acl"]);
    let (mut asker, mut other, mut default) = (server.client(), server.client(), server.client());
    for client in [&mut asker, &mut other] {
        assert_eq!(client.call("AUTH one x"), "+OK\r\n");
    }
    assert_eq!(asker.call("ACL LOAD"), "+OK\r\n");
    assert!(asker.is_closed() && other.is_closed());
    assert_eq!(default.call("PING"), "+PONG\r\n");
}

/// Who is removed, or loses a channel that it listens to, is cut off.
#[test]
fn clients_follow_their_users() {
    let directory = harness::folder();
    let server = start(rsedis_program(), directory.path(), &[]);
    let mut admin = server.client();
    assert_eq!(admin.call("ACL SETUSER one on nopass +@all ~* &a &b"), "+OK\r\n");
    let (mut listener, mut other) = (server.client(), server.client());
    for client in [&mut listener, &mut other] {
        assert_eq!(client.call("AUTH one x"), "+OK\r\n");
    }
    assert!(listener.call("SUBSCRIBE a").starts_with("*3"));
    assert_eq!(admin.call("ACL SETUSER one resetchannels &a &c"), "+OK\r\n");
    assert!(listener.call("PING").contains("pong"), "what it listens to is still allowed");
    assert_eq!(admin.call("ACL SETUSER one resetchannels &b"), "+OK\r\n");
    assert!(listener.is_closed());
    assert_eq!(other.call("PING"), "+PONG\r\n");
    assert_eq!(admin.call("ACL SETUSER one -ping"), "+OK\r\n");
    assert!(other.call("PING").starts_with("-NOPERM"));
    assert_eq!(admin.call("ACL DELUSER one"), ":1\r\n");
    assert!(other.is_closed());
}

#[test]
fn users_come_back_from_their_file() {
    let directory = harness::folder();
    let file = directory.path().join("users.acl");
    std::fs::write(&file, "user default on nopass ~* &* +@all\nuser alice on >secret ~a:* +@read\n").unwrap();
    let options = ["--aclfile", "users.acl"];
    let server = start(rsedis_program(), directory.path(), &options);
    let mut client = server.client();
    assert_eq!(client.call("ACL USERS"), "*2\r\n$5\r\nalice\r\n$7\r\ndefault\r\n");
    assert_eq!(client.call("ACL SETUSER bob on >other ~b:* +get"), "+OK\r\n");
    assert_eq!(client.call("ACL SAVE"), "+OK\r\n");
    let users = client.call("ACL LIST");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(server.terminate(), Some(0));
    let server = start(rsedis_program(), directory.path(), &options);
    let mut client = server.client();
    assert_eq!(client.call("ACL LIST"), users);
    // A file that is wrong changes nothing.
    std::fs::write(&file, "user eve on\nuser eve off\n").unwrap();
    let refused = client.call("ACL LOAD");
    assert!(refused.starts_with("-ERR WARNING: Duplicate user 'eve' found on line 2."), "{refused}");
    assert_eq!(client.call("ACL LIST"), users);
    std::fs::write(&file, "user eve on\n").unwrap();
    assert_eq!(client.call("ACL LOAD"), "+OK\r\n");
    assert_eq!(client.call("ACL USERS"), "*2\r\n$7\r\ndefault\r\n$3\r\neve\r\n");
    // Redis reads what we write.
    assert_eq!(client.call("ACL SETUSER carol on >x %R~r:* (+set ~w:*) +select|0"), "+OK\r\n");
    assert_eq!(client.call("ACL SAVE"), "+OK\r\n");
    let elsewhere = harness::folder();
    std::fs::copy(&file, elsewhere.path().join("users.acl")).unwrap();
    let theirs = start(&redis_program("redis-server"), elsewhere.path(), &options);
    assert_eq!(theirs.client().call("ACL GETUSER carol"), client.call("ACL GETUSER carol"));
}

#[test]
fn users_come_from_the_configuration() {
    let directory = harness::folder();
    let file = directory.path().join("redis.conf");
    std::fs::write(&file, "user default on nopass ~* &* +@all -flushdb\nuser dan on >secret (~x +get)\n").unwrap();
    let mut command = harness::command(rsedis_program());
    command.arg(&file);
    let server = support::start_command(&mut command, directory.path(), &[]);
    let mut client = server.client();
    assert!(client.call("FLUSHDB").starts_with("-NOPERM"));
    assert_eq!(client.call("AUTH dan secret"), "+OK\r\n");
    assert_eq!(client.call("GET x"), "$-1\r\n");
    assert!(client.call("GET y").starts_with("-NOPERM"));
    std::fs::write(&file, "user dan +nosuch\n").unwrap();
    let output = std::process::Command::new(rsedis_program()).arg(&file).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    assert!(text.contains("'+nosuch': Unknown command or category name in ACL"), "{text}");
}
