//! What a client is told that no random command meets: what ends its connection, messages to itself, numbers at their ends. Beside
//! Redis 7.0.15, byte for byte.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use harness::{LONG, until};
use support::node::Node;

const BOTH: [fn(&[&str]) -> Node; 2] = [Node::ours, Node::theirs];

/// Everything that both answer to some bytes until the connection ends; the last of them ask for that.
#[track_caller]
fn compare(options: &[&str], conversations: &[&str]) {
    let nodes = BOTH.map(|start| start(options));
    for conversation in conversations {
        let answers = nodes.each_ref().map(|node| {
            let mut stream = TcpStream::connect(("127.0.0.1", node.server.port)).unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            stream.write_all(conversation.as_bytes()).unwrap();
            let mut answer = Vec::new();
            // What was not read when the other side closed is an error, too.
            if let Err(error) = stream.read_to_end(&mut answer) {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{conversation}");
            }
            String::from_utf8_lossy(&answer).into_owned()
        });
        assert_eq!(answers[0], answers[1], "{conversation}");
    }
}

#[test]
fn other_protocols_are_cut_off() {
    compare(
        &[],
        &[
            "POST / HTTP/1.1\r\nHost: here\r\n\r\nSET key value\r\nQUIT\r\n",
            "GET / HTTP/1.1\r\nhost: here\r\n\r\nSET key value\r\nQUIT\r\n",
            "MULTI\r\nSET key value\r\npost\r\nEXEC\r\nQUIT\r\n",
            "*1\r\n$5\r\nHOST:\r\nQUIT\r\n",
            "hostx: here\r\nEXISTS key\r\nQUIT\r\n",
        ],
    );
}

#[test]
fn what_is_not_allowed_at_all_is_refused_before_it_is_queued() {
    compare(
        &["--enable-debug-command", "no"],
        &[
            "SET a 1\r\nMULTI\r\nFLUSHALL\r\nDEBUG JMAP\r\nEXEC\r\nGET a\r\nQUIT\r\n",
            "MULTI\r\nFLUSHALL\r\nMODULE LOAD x\r\nEXEC\r\nGET a\r\nQUIT\r\n",
            "MULTI\r\nMODULE LIST\r\nMODULE UNLOAD x\r\nMODULE LOADEX x\r\nEXEC\r\nDEBUG\r\nMODULE\r\nMODULE LOAD\r\nQUIT\r\n",
        ],
    );
}

#[test]
fn who_has_killed_itself_in_a_transaction_hears_nothing_more() {
    compare(
        &[],
        &[
            "CLIENT SETNAME me\r\nMULTI\r\nCLIENT KILL TYPE pubsub SKIPME no\r\nSUBSCRIBE x\r\nCLIENT KILL TYPE pubsub SKIPME no\r\nSET q 2\r\n\
             PUBLISH x y\r\nEXEC\r\nPING\r\nQUIT\r\n",
            "GET q\r\nQUIT\r\n",
        ],
    );
}

#[test]
fn a_message_to_oneself_comes_before_the_answer_to_its_command() {
    compare(
        &[],
        &[
            "CLIENT REPLY SKIP\r\nHELLO 3\r\nSUBSCRIBE ch\r\nPUBLISH ch m\r\nPING\r\nQUIT\r\n",
            "CLIENT REPLY SKIP\r\nHELLO 3\r\nSSUBSCRIBE ch\r\nSPUBLISH ch m\r\nPING\r\nQUIT\r\n",
            "MULTI\r\nSUBSCRIBE ch\r\nPUBLISH ch m\r\nPING\r\nEXEC\r\nQUIT\r\n",
            "CLIENT REPLY SKIP\r\nHELLO 3\r\nPSUBSCRIBE c*\r\nMULTI\r\nPUBLISH ch m\r\nPUBLISH ch n\r\nPING\r\nEXEC\r\nQUIT\r\n",
            "CLIENT REPLY SKIP\r\nHELLO 3\r\nSUBSCRIBE ch\r\nCLIENT REPLY OFF\r\nPUBLISH ch m\r\nPING\r\nCLIENT REPLY ON\r\nQUIT\r\n",
            "CLIENT REPLY SKIP\r\nHELLO 3\r\nSUBSCRIBE ch\r\nCLIENT REPLY SKIP\r\nPUBLISH ch m\r\nPING\r\nQUIT\r\n",
            "CLIENT REPLY SKIP\r\nHELLO 3\r\nSUBSCRIBE ch\r\n\
             *3\r\n$4\r\nEVAL\r\n$45\r\nredis.call('publish', 'ch', 'm') return {1,2}\r\n$1\r\n0\r\nQUIT\r\n",
        ],
    );
}

/// What is served runs in the turn of who has served it.
#[test]
fn a_message_is_not_lost_where_somebody_else_is_served() {
    let node = Node::ours(&[]);
    let (mut listens, mut waits) = (node.client(), node.client());
    listens.call("CONFIG SET notify-keyspace-events KEA");
    assert!(listens.call("HELLO 3").starts_with('%'));
    listens.call("SUBSCRIBE __keyevent@0__:lpop");
    waits.send(b"BLPOP list 0\r\n").unwrap();
    until("somebody who waits", || node.info("blocked_clients") == "1");
    listens.send(b"RPUSH list x\r\n").unwrap();
    let said = [listens.receive().unwrap(), listens.receive().unwrap()].concat();
    assert!(String::from_utf8_lossy(&said).contains("$4\r\nlist\r\n"), "{}", said.escape_ascii());
}

#[test]
fn nothing_is_taken_for_a_client_that_was_killed() {
    for start in BOTH {
        let node = start(&[]);
        let (mut waits, mut other) = (node.client(), node.client());
        let id = waits.call("CLIENT ID");
        waits.send(b"BLPOP list 0\r\n").unwrap();
        until("somebody who waits", || node.info("blocked_clients") == "1");
        other.send(format!("CLIENT KILL ID {}\r\nRPUSH list a\r\n", id[1..].trim()).as_bytes()).unwrap();
        assert_eq!(other.receive().unwrap(), b":1\r\n");
        assert_eq!(other.receive().unwrap(), b":1\r\n");
        assert_eq!(other.call("LRANGE list 0 -1"), "*1\r\n$1\r\na\r\n");
    }
}

#[test]
fn who_has_moved_an_element_before_waits_on_behind_another_type() {
    for start in BOTH {
        let node = start(&[]);
        let (mut waits, mut other) = (node.client(), node.client());
        for line in ["RPUSH a x", "LMOVE a b LEFT LEFT"] {
            waits.call(line);
        }
        waits.send(b"BLMOVE none b LEFT LEFT 0\r\n").unwrap();
        until("somebody who waits", || node.info("blocked_clients") == "1");
        for line in ["SET none x", "DEL none", "RPUSH none y"] {
            assert!(!other.call(line).starts_with('-'));
        }
        assert_eq!(waits.receive().unwrap(), b"$1\r\ny\r\n");
    }
}

#[test]
fn numbers_at_their_ends_are_answered_as_by_redis() {
    let [mut ours, mut theirs] = BOTH.map(|start| start(&[]));
    let (mut mine, mut other) = (ours.client(), theirs.client());
    for line in [
        "SET n 1.1e4932",
        "INCRBYFLOAT n 1.1e4932",
        "INCRBYFLOAT n 1.19e4932",
        "GET n",
        "SET n -1.18e4932",
        "INCRBYFLOAT n -1.1e4932",
        "SET n 1",
        "INCRBYFLOAT n 1e-5000",
        "INCRBYFLOAT n 1e-4951",
        "INCRBYFLOAT n 1e-4950",
        "INCRBYFLOAT n 0x1p-16446",
        "INCRBYFLOAT n 0x1p-16445",
        "INCRBYFLOAT n 0x1p16384",
        "HSET h f 1.1e4932 g 1e4933",
        "HINCRBYFLOAT h f 1.1e4932",
        "HINCRBYFLOAT h g 1",
        "WAIT -1 0",
        "WAIT -9223372036854775808 0",
        "SET a 1",
        "COPY a b DB 99999999999",
        "COPY a b DB -2147483649",
        "COPY a b DB 2147483647",
        "MOVE a 99999999999",
        "MOVE a x",
        "SELECT 99999999999",
        "SELECT 2147483647",
        "SELECT x",
        "SWAPDB 0 2147483648",
        "SWAPDB 2147483647 0",
        "SADD s a",
        "HSET i a 1",
        "ZADD z 1 a",
        "SRANDMEMBER s -9223372036854775808",
        "SRANDMEMBER s 9223372036854775807",
        "SRANDMEMBER s 9223372036854775808",
        "HRANDFIELD i -9223372036854775808",
        "HRANDFIELD i 9223372036854775807",
        "HRANDFIELD i -4611686018427387904 WITHVALUES",
        "HRANDFIELD i 4611686018427387903 WITHVALUES",
        "ZRANDMEMBER z -9223372036854775808 WITHSCORES",
        "ZRANDMEMBER z 9223372036854775807 WITHSCORES",
        "BLPOP k inf",
        "BLPOP k -inf",
        "BLPOP k 1e300",
        "BLPOP k 9223372036854775807",
        "BZPOPMIN k 9223372036854776",
        "CLIENT PAUSE 9223372036854775807",
        "CLIENT PAUSE -1",
        "XADD x 1-1 a b",
        "XGROUP CREATE x g 0",
        "XREADGROUP GROUP g c STREAMS x 18446744073709551615-18446744073709551614",
        "XREADGROUP GROUP g c STREAMS x 18446744073709551615-18446744073709551615",
        "XREADGROUP GROUP g c STREAMS x 18446744073709551615-18446744073709551615",
        "XREAD BLOCK 9223372036854775807 STREAMS x 0",
        "XREAD BLOCK -1 STREAMS x 0",
        "COMMAND INFO nope",
        "CONFIG SET maxmemory-clients -5",
        "CONFIG SET maxmemory-clients -5%",
        "CONFIG SET maxmemory-clients 101%",
        "CONFIG SET maxmemory -1",
        "CONFIG SET maxmemory +1",
        "CONFIG SET repl-backlog-size -1",
    ] {
        assert_eq!(mine.call(line), other.call(line), "{line}");
    }
    for limits in ["normal -1 0 0", "normal 0 -1 0", "normal 0 0 -1", "normal 0 0", "normal 1kx 0 0", "normal 1kb 5 7"]
    {
        let words: [&[u8]; 4] = [b"CONFIG", b"SET", b"client-output-buffer-limit", limits.as_bytes()];
        let [mine, other] = [&mut mine, &mut other].map(|client| client.try_call(&words).unwrap());
        assert_eq!(mine.escape_ascii().to_string(), other.escape_ascii().to_string(), "{limits}");
    }
    for node in [&mut ours, &mut theirs] {
        assert_eq!(node.server.process.ended(), None);
    }
}

/// In Redis its clock comes round: the key looks fresh.
#[test]
fn a_key_that_was_idle_for_ages_stays_so() {
    let node = Node::ours(&["--maxmemory-policy", "allkeys-lru"]);
    let mut client = node.client();
    client.call("SET key value");
    let dumped = client.try_call(&[b"DUMP", b"key"]).unwrap();
    let payload = &dumped[dumped.iter().position(|byte| *byte == b'\n').unwrap() + 1..dumped.len() - 2];
    for seconds in ["100", "4294967296", "9223372036854775807"] {
        let words: [&[u8]; 7] = [b"RESTORE", b"key", b"0", payload, b"REPLACE", b"IDLETIME", seconds.as_bytes()];
        assert_eq!(client.try_call(&words).unwrap(), b"+OK\r\n");
        let idle: u64 = client.call("OBJECT IDLETIME key")[1..].trim().parse().unwrap();
        let expected = seconds.parse::<u64>().unwrap().min(200_000_000);
        assert!((expected..expected + 20_000_000).contains(&idle), "{seconds}: {idle}");
    }
}

#[test]
fn text_that_is_no_text_is_refused_and_not_changed() {
    let node = Node::ours(&[]);
    let mut client = node.client();
    for words in [
        [b"CONFIG".as_slice(), b"SET", b"requirepass", b"gr\xfcn"].as_slice(),
        &[b"REPLICAOF", b"h\xfcst", b"6379"],
        &[b"MIGRATE", b"h\xfcst", b"6379", b"key", b"0", b"100"],
    ] {
        client.call("SET key value");
        let reply = client.try_call(words).unwrap();
        assert!(String::from_utf8_lossy(&reply).contains("is no UTF-8: send text"), "{}", reply.escape_ascii());
    }
    assert_eq!(node.info("role"), "master");
}

#[test]
fn who_asks_for_more_than_may_wait_is_cut_off_and_sent_nothing_of_it() {
    compare(
        &[],
        &[
            "SETRANGE big 200000 v\r\nQUIT\r\n",
            "CONFIG SET client-output-buffer-limit \"normal 100000 0 0\"\r\nQUIT\r\n",
            "GET big\r\nSET behind 1\r\nQUIT\r\n",
            "MULTI\r\nGET big\r\nSET within 1\r\nEXEC\r\nQUIT\r\n",
            "SADD set a\r\nSRANDMEMBER set -99999999\r\nQUIT\r\n",
            "MGET behind within\r\nQUIT\r\n",
        ],
    );
}

#[test]
fn a_command_is_found_by_its_new_name_alone() {
    compare(
        &["--rename-command", "FLUSHDB", "badger", "--rename-command", "KEYS", ""],
        &["SET a 1\r\nFLUSHDB\r\nGET a\r\nbadger\r\nGET a\r\nKEYS *\r\nflushdb|x\r\nQUIT\r\n"],
    );
}

#[test]
fn what_is_refused_for_its_arguments_counts_for_its_command() {
    let asks = "CONFIG RESETSTAT\r\nSET a\r\nCONFIG GET\r\nMULTI\r\nGET\r\nEXEC\r\nQUIT\r\n";
    let nodes = BOTH.map(|start| start(&[]));
    let counted = nodes.each_ref().map(|node| {
        let mut stream = TcpStream::connect(("127.0.0.1", node.server.port)).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(asks.as_bytes()).unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
        ["set", "config|get", "get", "exec"].map(|name| {
            let counts = node.info(&format!("cmdstat_{name}"));
            counts.split_once("rejected_calls").map(|(_, counts)| counts.to_owned()).unwrap_or_default()
        })
    });
    assert_eq!(counted[0], counted[1]);
    assert!(counted[0].iter().all(|counts| !counts.is_empty()), "{counted:?}");
}

/// It is over its own limit: what it takes is given back with it.
#[test]
fn nobody_goes_for_the_memory_of_who_is_cut_off() {
    const LIMIT: usize = 10 << 20;
    const REPLY: usize = 4 << 20;
    for node in BOTH.map(|start| start(&[])) {
        let mut client = node.client();
        client.call(&format!("SETRANGE k {} v", REPLY - 1));
        client.call(&format!("CONFIG SET maxmemory-clients {LIMIT}"));
        let limit: [&[u8]; 4] = [b"CONFIG", b"SET", b"client-output-buffer-limit", b"normal 3145728 0 0"];
        assert_eq!(client.try_call(&limit).unwrap(), b"+OK\r\n");
        let (mut holder, mut greedy) = (node.client(), node.client());
        holder.call("CLIENT SETNAME holder");
        let taken = LIMIT - REPLY;
        holder.send(format!("*1\r\n${taken}\r\n").as_bytes()).unwrap();
        holder.send(&vec![b'v'; taken]).unwrap();
        let is_there = format!(" qbuf={taken} ");
        until("what it has sent", || client.call("CLIENT LIST").contains(&is_there));
        assert!(greedy.try_call(&[b"GET", b"k"]).is_err(), "its reply is over the limit");
        assert!(client.call("CLIENT LIST").contains("name=holder"));
    }
}
