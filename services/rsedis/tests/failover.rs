//! The lead goes from one server to another (FAILOVER), and a server ends (SHUTDOWN), with nothing lost that was acknowledged; and
//! files for those who want no stream. With Redis 7.0.15 at either end.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use harness::{eventually, until};
use rustix::process::Signal;
use support::Client;
use support::node::{Node, wait_until_same};

/// No PING may come between a write and its acknowledgement.
const SILENT: &[&str] = &["--repl-ping-replica-period", "10000"];

type Start = fn(&[&str]) -> Node;
const MIXES: [(Start, Start); 3] = [(Node::ours, Node::ours), (Node::ours, Node::theirs), (Node::theirs, Node::ours)];

fn state(node: &Node) -> String {
    node.info("master_failover_state")
}

/// Its DEL would be behind what the target has acknowledged, and be lost with the lead.
#[test]
fn scan_removes_nothing_while_the_lead_is_handed_over() {
    let (master, replica) = pair(Node::ours, Node::ours);
    let mut client = master.client();
    client.call("DEBUG SET-ACTIVE-EXPIRE 0");
    replica.server.process.signal(Signal::STOP);
    client.call("SET over value PX 1");
    assert_eq!(client.call(&failover_to(&replica, "")), "+OK\r\n");
    std::thread::sleep(std::time::Duration::from_millis(20));
    let before = master.info("master_repl_offset");
    let found = client.call("SCAN 0 COUNT 1000");
    assert!(!found.contains("over"), "{found}");
    assert_eq!(master.info("master_repl_offset"), before);
    replica.server.process.signal(Signal::CONT);
}

fn failover_to(replica: &Node, rest: &str) -> String {
    format!("FAILOVER TO 127.0.0.1 {}{rest}", replica.server.port)
}

/// Two servers of which the second follows the first.
fn pair(master: Start, replica: Start) -> (Node, Node) {
    join(master(SILENT), replica(SILENT))
}

fn join(master: Node, replica: Node) -> (Node, Node) {
    assert_eq!(master.call("SET key value"), "+OK\r\n");
    replica.follow(master.server.port);
    replica.wait_for_link();
    wait_until_same(&master, &replica);
    until("the replica, online", || master.info("slave0").contains("state=online"));
    (master, replica)
}

#[test]
fn roles_are_exchanged_and_no_acknowledged_write_is_lost() {
    for (first, second) in MIXES {
        let (master, replica) = pair(first, second);
        let is_moving = AtomicBool::new(false);
        let counted = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let (mut client, mut counted) = (master.client(), 0);
                loop {
                    match client.call("INCR counter") {
                        reply if reply.starts_with(':') => counted += 1,
                        reply => {
                            assert!(reply.starts_with("-READONLY"), "{reply}");
                            assert!(is_moving.load(Ordering::Relaxed), "refused before the lead was handed over");
                            return counted;
                        }
                    }
                }
            });
            until("some writes", || master.call("GET counter").len() > "$2\r\n99\r\n".len());
            is_moving.store(true, Ordering::Relaxed);
            assert_eq!(master.call(&failover_to(&replica, "")), "+OK\r\n");
            until("the end of the failover", || state(&master) == "no-failover");
            writer.join().unwrap()
        });
        assert_eq!((master.info("role").as_str(), replica.info("role").as_str()), ("slave", "master"));
        master.wait_for_link();
        assert_eq!(replica.call("GET counter"), format!("${}\r\n{counted}\r\n", counted.to_string().len()));
        assert_eq!(replica.call("INCR counter"), format!(":{}\r\n", counted + 1));
        wait_until_same(&replica, &master);
        let syncs = (replica.info("sync_partial_ok"), replica.info("sync_full"));
        assert_eq!(syncs, ("1".to_owned(), "0".to_owned()), "the old master goes on where it was");
        // And back again.
        assert_eq!(replica.call("FAILOVER TIMEOUT 60000"), "+OK\r\n");
        until("the end of the failover", || state(&replica) == "no-failover");
        assert_eq!((master.info("role").as_str(), replica.info("role").as_str()), ("master", "slave"));
        assert_eq!(master.call("SET back again"), "+OK\r\n");
        replica.wait_for_link();
        wait_until_same(&master, &replica);
    }
}

#[test]
fn who_is_behind_leads_by_force_alone_and_writes_wait_meanwhile() {
    for (first, second) in MIXES {
        let (master, replica) = pair(first, second);
        replica.server.process.signal(Signal::STOP);
        assert_eq!(master.call("SET key behind"), "+OK\r\n");
        assert_eq!(master.call(&failover_to(&replica, " TIMEOUT 60000")), "+OK\r\n");
        assert_eq!(state(&master), "waiting-for-sync");
        let mut writer = master.client();
        writer.send(b"SET written waits\r\n").unwrap();
        assert_eq!(master.call("GET written"), "$-1\r\n", "reads go on, and the write waits");
        assert_eq!(master.call("FAILOVER"), "-ERR FAILOVER already in progress.\r\n");
        assert_eq!(master.call("REPLICAOF NO ONE"), "-ERR REPLICAOF not allowed while failing over.\r\n");
        assert_eq!(master.call("FAILOVER ABORT"), "+OK\r\n");
        assert_eq!(writer.receive().unwrap(), b"+OK\r\n", "it runs once the failover is given up");
        assert_eq!((state(&master).as_str(), master.call("SET key goes").as_str()), ("no-failover", "+OK\r\n"));

        assert_eq!(master.call(&failover_to(&replica, " TIMEOUT 50")), "+OK\r\n");
        until("the end of the time", || state(&master) == "no-failover");
        assert_eq!(master.info("role"), "master");

        // Asked by force and not answered: nobody leads until that is given up.
        assert_eq!(master.call(&failover_to(&replica, " FORCE TIMEOUT 100")), "+OK\r\n");
        until("the end of the time", || state(&master) == "failover-in-progress");
        assert_eq!(master.info("role"), "slave");
        assert_eq!(master.call("FAILOVER ABORT"), "+OK\r\n");
        assert_eq!(master.call("SET key given-up"), "+OK\r\n");

        replica.server.process.signal(Signal::CONT);
        replica.wait_for_link();
        wait_until_same(&master, &replica);
        assert_eq!(replica.info("role"), "slave");
        // What it has on its way to it comes before it is asked.
        replica.server.process.signal(Signal::STOP);
        assert_eq!(master.call("SET key forced"), "+OK\r\n");
        assert_eq!(master.call(&failover_to(&replica, " TIMEOUT 100 FORCE")), "+OK\r\n");
        until("the end of the time", || state(&master) == "failover-in-progress");
        replica.server.process.signal(Signal::CONT);
        until("the end of the failover", || state(&master) == "no-failover");
        assert_eq!(replica.info("role"), "master");
        master.wait_for_link();
        wait_until_same(&replica, &master);
    }
}

#[test]
fn who_refuses_to_lead_stays_a_replica() {
    for (first, second) in MIXES {
        let (master, replica) = pair(first, second);
        assert_eq!(replica.call("ACL SETUSER default -psync"), "+OK\r\n");
        assert_eq!(master.call("FAILOVER"), "+OK\r\n");
        until("the end of the failover", || state(&master) == "no-failover");
        assert_eq!((master.info("role").as_str(), replica.info("role").as_str()), ("master", "slave"));
        assert_eq!(master.call("SET key after"), "+OK\r\n");
        assert_eq!(replica.call("ACL SETUSER default +psync"), "+OK\r\n");
        replica.wait_for_link();
        wait_until_same(&master, &replica);
        assert_eq!(master.info("sync_full"), "1", "it goes on where it was");
    }
}

/// Stands before a target, which says that it is here: what the master sends comes through it, or does not.
struct Relay {
    listener: TcpListener,
    port: String,
}

impl Relay {
    fn new() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        Self { listener, port }
    }

    /// What a target is started with.
    fn options(&self) -> Vec<&str> {
        [SILENT, &["--replica-announce-port", self.port.as_str()]].concat()
    }

    /// A master of ours, and a target.
    fn pair(&self, target: Start) -> (Node, Node) {
        join(Node::ours(SILENT), target(&self.options()))
    }

    fn begin_failover(&self, master: &Node) {
        assert_eq!(master.call(&format!("FAILOVER TO 127.0.0.1 {}", self.port)), "+OK\r\n");
    }

    /// The next connection of the master's.
    fn accept(&self) -> TcpStream {
        let (stream, _) = eventually("the master's connection", || self.listener.accept().ok());
        stream.set_nonblocking(false).unwrap();
        stream
    }

    /// Everything comes through from now on, on a connection that waits and on those to come.
    fn open(self, waiting: Option<TcpStream>, target: &Node) {
        let port = target.server.port;
        self.listener.set_nonblocking(false).unwrap();
        std::thread::spawn(move || {
            for master in waiting.into_iter().chain(self.listener.incoming().flatten()) {
                let Ok(target) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                for (from, to) in [(&master, &target), (&target, &master)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    std::thread::spawn(move || {
                        // Whichever end has gone, the other is to hear of it.
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
    }
}

/// Lets the handshake through, up to the demand to lead, which is held.
fn demand(master: &mut Client, target: &mut Client) -> Vec<u8> {
    loop {
        let command = master.receive().unwrap();
        if command.windows(5).any(|word| word == b"PSYNC") {
            assert!(command.windows(8).any(|word| word == b"FAILOVER"), "{}", command.escape_ascii());
            return command;
        }
        target.send(&command).unwrap();
        master.send(&target.receive().unwrap()).unwrap();
    }
}

/// The old master follows the new one, where it was.
fn assert_exchanged(master: &Node, replica: &Node) {
    until("the end of the failover", || state(master) == "no-failover");
    assert_eq!((master.info("role").as_str(), replica.info("role").as_str()), ("slave", "master"));
    master.wait_for_link();
    wait_until_same(replica, master);
    assert_eq!(replica.info("sync_full"), "0");
}

#[test]
fn a_target_whose_answer_is_lost_leads_alone() {
    for start in [Node::ours as Start, Node::theirs] {
        let relay = Relay::new();
        let (master, replica) = relay.pair(start);
        relay.begin_failover(&master);
        {
            let (mut first, mut target) = (Client::on(relay.accept()).unwrap(), replica.client());
            let demand = demand(&mut first, &mut target);
            target.send(&demand).unwrap();
            assert!(target.receive().unwrap().starts_with(b"+CONTINUE"));
        }
        assert_eq!(replica.info("role"), "master");
        assert_eq!(replica.call("SET key newer"), "+OK\r\n");
        let second = relay.accept();
        assert_eq!((state(&master).as_str(), master.info("role").as_str()), ("failover-in-progress", "slave"));
        relay.open(Some(second), &replica);
        assert_exchanged(&master, &replica);
    }
}

#[test]
fn a_target_that_stands_still_for_too_long_leads_alone_once_it_goes_on() {
    for start in [Node::ours as Start, Node::theirs] {
        let relay = Relay::new();
        let (master, replica) = relay.pair(start);
        relay.begin_failover(&master);
        let (mut first, mut target) = (Client::on(relay.accept()).unwrap(), replica.client());
        let demand = demand(&mut first, &mut target);
        replica.server.process.signal(Signal::STOP);
        target.send(&demand).unwrap();
        assert_eq!(master.call("CONFIG SET repl-timeout 1"), "+OK\r\n");
        assert!(first.is_closed(), "the master waits no longer");
        assert_eq!(master.call("CONFIG SET repl-timeout 60"), "+OK\r\n");
        assert_eq!((state(&master).as_str(), master.info("role").as_str()), ("failover-in-progress", "slave"));
        replica.server.process.signal(Signal::CONT);
        until("the new lead", || replica.info("role") == "master");
        assert_eq!((state(&master).as_str(), master.info("role").as_str()), ("failover-in-progress", "slave"));
        relay.open(None, &replica);
        assert_exchanged(&master, &replica);
    }
}

#[test]
fn a_target_that_has_lost_what_it_acknowledged_does_not_take_it_from_the_master() {
    // Redis takes the lead, and there is no way to keep it from that.
    for (start, said, role) in [
        (Node::ours as Start, "-ERR PSYNC FAILOVER offset ", "slave"),
        (Node::theirs as Start, "+FULLRESYNC ", "master"),
    ] {
        let relay = Relay::new();
        let (master, replica) = relay.pair(start);
        assert_eq!(replica.call("SAVE"), "+OK\r\n");
        assert_eq!(master.call("SET key newer"), "+OK\r\n");
        wait_until_same(&master, &replica);
        relay.begin_failover(&master);
        let mut first = Client::on(relay.accept()).unwrap();
        let port = master.server.port.to_string();
        let replica = replica.restart(&[&relay.options()[..], &["--replicaof", "127.0.0.1", port.as_str()]].concat());
        assert_eq!(replica.call("GET key"), "$5\r\nvalue\r\n", "it is behind");
        let mut target = replica.client();
        let demand = demand(&mut first, &mut target);
        target.send(&demand).unwrap();
        let answer = target.receive().unwrap();
        assert!(String::from_utf8_lossy(&answer).trim_start().starts_with(said), "{}", answer.escape_ascii());
        first.send(&answer).unwrap();
        until("the end of the failover", || state(&master) == "no-failover");
        assert_eq!((master.info("role").as_str(), replica.info("role").as_str()), ("master", role));
        assert_eq!(master.call("GET key"), "$5\r\nnewer\r\n");
        if role == "master" {
            replica.follow(master.server.port);
        }
        replica.wait_for_link();
        wait_until_same(&master, &replica);
        assert_eq!(replica.call("GET key"), "$5\r\nnewer\r\n");
    }
}

#[test]
fn refusals_are_those_of_redis() {
    let [ours, theirs] = [Node::ours, Node::theirs].map(|start: Start| {
        let mut said = Vec::new();
        let lone = start(SILENT);
        for line in [
            "FAILOVER",
            "FAILOVER ABORT",
            "FAILOVER ABORT ABORT",
            "FAILOVER TO host",
            "FAILOVER TO host port",
            "FAILOVER TIMEOUT",
            "FAILOVER TIMEOUT 0",
            "FAILOVER TIMEOUT x",
            "FAILOVER TIMEOUT 1 TIMEOUT 2",
            "FAILOVER FORCE FORCE",
            "FAILOVER FORCE TIMEOUT 100",
            "PSYNC ? -1 FAILOVER",
            "SHUTDOWN ABORT",
            "SHUTDOWN ABORT NOW",
            "SHUTDOWN SAVE NOSAVE",
            "REPLCONF rdb-only 2",
            "REPLCONF rdb-only x",
            "REPLCONF rdb-filter-only keys",
            "REPLCONF rdb-only 1 rdb-filter-only functions",
        ] {
            said.push((line.to_owned(), lone.call(line)));
        }
        let mut filtered = lone.client();
        filtered.call("REPLCONF rdb-filter-only functions");
        said.push(("SYNC without capa eof".to_owned(), filtered.call("SYNC")));
        let mut client = lone.client();
        for line in ["MULTI", "SAVE", "SHUTDOWN", "EXEC"] {
            said.push((line.to_owned(), client.call(line)));
        }
        let (master, replica) = pair(start, start);
        for line in ["FAILOVER", "PSYNC 0123456789012345678901234567890123456789 1 FAILOVER"] {
            said.push((line.to_owned(), replica.call(line)));
        }
        for line in ["FAILOVER FORCE", "FAILOVER FORCE TIMEOUT 1", "FAILOVER TO nobody 1", "FAILOVER TO 127.0.0.1 1"] {
            said.push((line.to_owned(), master.call(line)));
        }
        said.push(("FORCE without TIMEOUT".to_owned(), master.call(&failover_to(&replica, " FORCE"))));
        said
    });
    assert_eq!(ours, theirs);
    assert!(ours.iter().all(|(line, reply)| reply.starts_with(['-', '+']) && !line.is_empty()), "{ours:?}");
}

#[test]
fn the_end_waits_for_replicas_and_can_be_called_off() {
    for (first, second) in [MIXES[0], MIXES[1]] {
        let (master, replica) = pair(first, second);
        replica.server.process.signal(Signal::STOP);
        assert_eq!(master.call("SET key last"), "+OK\r\n");
        let mut askers = [master.client(), master.client()];
        for asker in &mut askers {
            asker.send(b"SHUTDOWN\r\n").unwrap();
        }
        until("both to wait", || master.info("blocked_clients") == "2");
        assert!(master.info("shutdown_in_milliseconds").parse::<i64>().unwrap() > 0);
        let mut writer = master.client();
        writer.send(b"SET key later\r\n").unwrap();
        assert_eq!(master.call("GET key"), "$4\r\nlast\r\n", "writes wait, reads go on");
        assert_eq!(master.call("SHUTDOWN ABORT"), "+OK\r\n");
        for asker in &mut askers {
            assert_eq!(asker.receive().unwrap(), b"-ERR Errors trying to SHUTDOWN. Check logs.\r\n");
            assert_eq!(asker.call("PING"), "+PONG\r\n");
        }
        assert_eq!(writer.receive().unwrap(), b"+OK\r\n");
        assert_eq!(master.call("SHUTDOWN ABORT"), "-ERR No shutdown in progress.\r\n");

        master.server.process.signal(Signal::TERM);
        until("the end to wait", || !master.info("shutdown_in_milliseconds").is_empty());
        replica.server.process.signal(Signal::CONT);
        let Node { server, folder: _folder, .. } = master;
        assert_eq!(server.wait(), Some(0));
        assert_eq!(replica.call("GET key"), "$5\r\nlater\r\n");
    }
}

#[test]
fn the_end_does_not_wait_for_longer_than_it_may() {
    for (timeout, command) in [("0", "SHUTDOWN"), ("1", "SHUTDOWN"), ("1000", "SHUTDOWN NOW")] {
        let (master, replica) = pair(Node::ours, Node::ours);
        assert_eq!(master.call(&format!("CONFIG SET shutdown-timeout {timeout}")), "+OK\r\n");
        replica.server.process.signal(Signal::STOP);
        assert_eq!(master.call("SET key last"), "+OK\r\n");
        let mut asker = master.client();
        asker.send(format!("{command}\r\n").as_bytes()).unwrap();
        let Node { server, folder: _folder, .. } = master;
        assert_eq!(server.wait(), Some(0));
        assert!(asker.is_closed());
    }
}

/// What comes behind these lines, until the server ends the connection.
fn everything(node: &Node, lines: &[&str]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", node.server.port)).unwrap();
    stream.set_read_timeout(Some(harness::LONG)).unwrap();
    for line in lines {
        stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        if *line != "SYNC" {
            let mut ok = [0; 5];
            stream.read_exact(&mut ok).unwrap();
            assert_eq!(&ok, b"+OK\r\n", "{line}");
        }
    }
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn who_wants_a_file_alone_gets_it_and_nothing_behind_it() {
    for diskless in ["yes", "no"] {
        let node = Node::ours(&["--repl-diskless-sync", diskless]);
        assert_eq!(node.call("SET some:key some:value"), "+OK\r\n");
        let library: &[u8] = b"#!lua name=some_library\nredis.register_function('f', function() return 1 end)";
        assert!(node.client().try_call(&[b"FUNCTION", b"LOAD", library]).unwrap().starts_with(b"$12"));
        let all = everything(&node, &["REPLCONF rdb-only 1", "SYNC"]);
        assert!(all.contains("some:value") && all.contains("some_library"), "{all}");
        let all = everything(&node, &["REPLCONF capa eof rdb-only 1", "SYNC"]);
        assert!(all.contains("some:value") && all.contains("some_library"), "{all}");
        let functions =
            everything(&node, &["REPLCONF capa eof", "REPLCONF rdb-only 1 rdb-filter-only functions", "SYNC"]);
        assert!(!functions.contains("some:") && functions.contains("some_library"), "{functions}");
        let nothing = everything(&node, &["REPLCONF capa eof rdb-only 1", "REPLCONF rdb-filter-only \"\"", "SYNC"]);
        assert!(!nothing.contains("some"), "{nothing}");
        until("their end", || node.info("connected_slaves") == "0");
        for (option, has_keys) in [("--rdb", true), ("--functions-rdb", false)] {
            let file = node.folder.path().join("taken.rdb");
            let port = node.server.port.to_string();
            let mut command = harness::command(support::redis_program("redis-cli"));
            harness::output(command.args(["-p", &port, option]).arg(&file));
            let bytes = std::fs::read(&file).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            assert!(bytes.starts_with(b"REDIS0010") && text.contains("some_library"), "{text}");
            assert_eq!(text.contains("some:value"), has_keys, "{option}");
        }
    }
}
