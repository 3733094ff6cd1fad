//! Commands for people and tools, beside Redis 7.0.15.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::{redis_program, rsedis_program, start};

#[test]
fn help_and_what_is_absent_are_told_as_by_redis() {
    let directories = [harness::folder(), harness::folder()];
    let ours = start(rsedis_program(), directories[0].path(), &[]);
    let theirs = start(&redis_program("redis-server"), directories[1].path(), &[]);
    let (mut ours, mut theirs) = (ours.client(), theirs.client());
    for line in [
        "ACL HELP",
        "CLIENT HELP",
        "COMMAND HELP",
        "CONFIG HELP",
        "FUNCTION HELP",
        "MODULE HELP",
        "OBJECT HELP",
        "PUBSUB HELP",
        "SCRIPT HELP",
        "SLOWLOG HELP",
        "XGROUP HELP",
        "XINFO HELP",
        "MODULE LIST",
        "MODULE LOAD /nowhere",
        "MODULE UNLOAD nothing",
        "LOLWUT",
        "LOLWUT VERSION 9",
        "READONLY",
        "READWRITE",
        "ASKING",
        "PUBSUB SHARDCHANNELS",
        "MEMORY DOCTOR",
        "MEMORY USAGE nothing",
        "SSUBSCRIBE one",
        "SET x y",
        "SUNSUBSCRIBE",
        "SUNSUBSCRIBE one",
        "PUBSUB SHARDNUMSUB one two",
    ] {
        assert_eq!(ours.call(line), theirs.call(line), "{line}");
    }
}

#[test]
fn messages_of_shards_are_those_of_redis() {
    let mut transcripts = Vec::new();
    for program in [rsedis_program().to_path_buf(), redis_program("redis-server")] {
        let directory = harness::folder();
        let server = start(&program, directory.path(), &[]);
        let (mut listener, mut other) = (server.client(), server.client());
        let mut transcript = vec![listener.call("SSUBSCRIBE one two one")];
        for _ in 0..2 {
            transcript.push(String::from_utf8(listener.receive().unwrap()).unwrap());
        }
        for line in ["SPUBLISH one hello", "PUBLISH one hello", "PUBSUB SHARDNUMSUB one", "PUBSUB CHANNELS"] {
            transcript.push(other.call(line));
        }
        transcript.push(String::from_utf8(listener.receive().unwrap()).unwrap());
        transcript.push(listener.call("SUNSUBSCRIBE one"));
        transcript.push(other.call("SPUBLISH one hello"));
        transcripts.push(transcript);
    }
    assert_eq!(transcripts[0], transcripts[1]);
}

/// The time and the address are the only difference.
#[test]
fn monitors_see_what_redis_shows_them() {
    let mut transcripts = Vec::new();
    for program in [rsedis_program().to_path_buf(), redis_program("redis-server")] {
        let directory = harness::folder();
        let server = start(&program, directory.path(), &[]);
        let (mut monitor, mut client, mut waiting) = (server.client(), server.client(), server.client());
        assert_eq!(monitor.call("MONITOR"), "+OK\r\n");
        let binary: [&[u8]; 3] = [b"SET", b"k", b"\"\\\n\x00\xff"];
        client.try_call(&binary).unwrap();
        waiting.send(b"BLPOP list 0\r\n").unwrap();
        harness::until("it waits", || client.call("CLIENT LIST").contains("cmd=blpop"));
        for line in [
            "SELECT 3",
            "GET k extra",
            "AUTH wrong words",
            "CONFIG GET port",
            "MULTI",
            "INCR n",
            "EXEC",
            "EVAL redis.call('set','a','b') 0",
            "RPUSH list x",
            "SELECT 0",
            "RPUSH list x",
            "ECHO end",
        ] {
            client.call(line);
        }
        let mut lines = Vec::new();
        loop {
            let line = String::from_utf8(monitor.receive().unwrap()).unwrap();
            let (_, rest) = line.split_once(" [").unwrap();
            let (head, words) = rest.split_once("] ").unwrap();
            let database = head.split(' ').next().unwrap();
            let who = if head.ends_with("lua") { "lua" } else { "client" };
            lines.push(format!("{database} {who} {}", words.trim_end()));
            if words.contains("\"end\"") {
                break;
            }
        }
        transcripts.push(lines);
    }
    assert_eq!(transcripts[0], transcripts[1]);
}

#[test]
fn what_is_set_is_there_after_config_rewrite() {
    let directory = harness::folder();
    let file = directory.path().join("redis.conf");
    std::fs::write(&file, "# by hand\nmaxmemory 1gb\nuser default on nopass ~* &* +@all\n").unwrap();
    let start_with_file = || {
        let mut command = harness::command(rsedis_program());
        command.arg(&file);
        support::start_command(&mut command, directory.path(), &[])
    };
    let server = start_with_file();
    let mut client = server.client();
    assert_eq!(client.call("CONFIG SET maxmemory 2gb maxmemory-policy allkeys-lfu"), "+OK\r\n");
    assert_eq!(client.call("ACL SETUSER someone on >secret ~a:* +get"), "+OK\r\n");
    assert_eq!(client.call("CONFIG REWRITE"), "+OK\r\n");
    let users = client.call("ACL LIST");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("# by hand\nmaxmemory 2147483648\nuser default "), "{text}");
    assert_eq!(server.terminate(), Some(0));
    let server = start_with_file();
    let mut client = server.client();
    assert!(client.call("CONFIG GET maxmemory-policy").contains("allkeys-lfu"));
    assert_eq!(client.call("ACL LIST"), users);
    let elsewhere = harness::folder();
    let server = start(rsedis_program(), elsewhere.path(), &[]);
    assert_eq!(server.client().call("CONFIG REWRITE"), "-ERR The server is running without a config file\r\n");
}
