//! Clients who mean harm: thousands who say nothing, or begin and never end, or ask and do not read, and names that are chosen to collide.
//! What they cost is bounded, and others are served meanwhile.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use harness::{LONG, Random, until};
use rsedis::keyspace::{Database, Entry, Key};
use support::{Client, Server, encode, rsedis_program, start};

/// What the kernel says of a server's memory, bytes: `VmRSS`, or `VmHWM` for the most so far.
fn resident_bytes(server: &Server, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.process.id())).unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    value.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn connect(server: &Server) -> TcpStream {
    let socket = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket.set_write_timeout(Some(LONG)).unwrap();
    socket
}

/// Somebody who asks for one thing after the other, and looks at every answer.
fn is_served(client: &mut Client) {
    for number in 0..200 {
        assert_eq!(client.call(&format!("SET honest:{number} {number}")), "+OK\r\n");
        let text = number.to_string();
        assert_eq!(client.call(&format!("GET honest:{number}")), format!("${}\r\n{text}\r\n", text.len()));
    }
}

#[test]
fn ten_thousand_idle_and_slow_clients_take_little_and_others_are_served() {
    const CONNECTIONS: u64 = 10_000;
    /// Of each other kind.
    const SLOW: u64 = 50;
    /// Connections besides, and files of the server and of this process.
    const OTHERS: u64 = 300;
    const UNFINISHED: &[u8] = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nv";
    /// What is received at a time, for each of those who have begun, and some for everybody.
    const EACH_BYTES_MAX: u64 = (64 << 10) / 2 + (8 << 10);
    const OUTPUT_LIMIT: u64 = 1 << 20;
    const REPLY: u64 = 64 << 10;
    service_kit::open_files::raise();
    let limit = service_kit::open_files::limit().unwrap_or(u64::MAX);
    assert!(limit >= 1_000, "the limit on open files is {limit}: ulimit -n 1000, or better 10300");
    let connections = CONNECTIONS.min(limit - OTHERS);
    if connections < CONNECTIONS {
        println!("{connections} connections alone: the limit on open files is {limit} (ulimit -n 10300)");
    }
    let folder = harness::folder();
    let mut server = start(rsedis_program(), folder.path(), &["--maxclients", &(CONNECTIONS + OTHERS).to_string()]);
    let mut honest = server.client();
    for class in ["normal", "pubsub"] {
        let limit = format!("{class} {OUTPUT_LIMIT} 0 0");
        let words: [&[u8]; 4] = [b"CONFIG", b"SET", b"client-output-buffer-limit", limit.as_bytes()];
        assert_eq!(honest.try_call(&words).unwrap(), b"+OK\r\n");
    }
    is_served(&mut honest);
    let before = resident_bytes(&server, "VmRSS");

    let mut idle: Vec<TcpStream> = (0..connections)
        .map(|number| {
            let mut socket = connect(&server);
            socket.write_all(if number % 2 == 0 { b"" } else { UNFINISHED }).unwrap();
            socket
        })
        .collect();
    let all = format!("connected_clients:{}\r\n", connections + 1);
    until("all of them", || honest.call("INFO clients").contains(&all));
    for _ in 0..3 {
        for socket in idle.iter_mut().skip(1).step_by(2) {
            socket.write_all(b"v").unwrap();
        }
        is_served(&mut honest);
    }
    let each = resident_bytes(&server, "VmRSS").saturating_sub(before) / connections;
    println!("{connections} idle and slow connections: {each} bytes each");
    assert!(each <= EACH_BYTES_MAX, "a connection takes {each} bytes");

    // Beside them those who ask on and on, or listen, and never read.
    assert_eq!(honest.call(&format!("SETRANGE large {} v", REPLY - 1)), format!(":{REPLY}\r\n"));
    let (get, subscribe) = (encode(&[b"GET", b"large"]), encode(&[b"SUBSCRIBE", b"news"]));
    let mut asking: Vec<TcpStream> = (0..SLOW).map(|_| connect(&server)).collect();
    let mut listening: Vec<TcpStream> = (0..SLOW).map(|_| connect(&server)).collect();
    listening.iter_mut().for_each(|socket| socket.write_all(&subscribe).unwrap());
    until("those who listen", || honest.call("PUBSUB NUMSUB news").ends_with(&format!(":{SLOW}\r\n")));
    until("the end of those who ask and do not read", || {
        asking.retain_mut(|socket| socket.write_all(&get).is_ok());
        is_served(&mut honest);
        asking.is_empty()
    });
    let message = vec![b'm'; REPLY as usize];
    until("the end of those who listen and do not read", || {
        honest.try_call(&[b"PUBLISH", b"news", &message]).unwrap() == b":0\r\n"
    });
    is_served(&mut honest);
    let most = before + connections * EACH_BYTES_MAX + 2 * SLOW * (OUTPUT_LIMIT + REPLY) + (64 << 20);
    let peak = resident_bytes(&server, "VmHWM");
    println!("at most {peak} bytes resident");
    assert!(peak <= most, "{peak} bytes resident, and {most} would be enough");

    // Who was idle is served as before, and nobody has ended.
    let mut pong = [0; 7];
    idle[0].write_all(b"PING\r\n").unwrap();
    idle[0].read_exact(&mut pong).unwrap();
    assert_eq!(&pong, b"+PONG\r\n");
    until("what was cut off", || honest.call("INFO clients").contains(&all));
    assert_eq!(server.process.ended(), None);
    // Before the others close: else their ports were taken for a while, and other tests need some.
    server.kill();
}

/// What a table that somebody has flooded takes, beside one of other names: much more where each name is compared with all others.
const RATIO_MAX: u32 = 5;

fn words(numbers: impl Iterator<Item = [u64; 2]>) -> Vec<Vec<u8>> {
    numbers.map(|pair| pair.map(u64::to_ne_bytes).concat()).collect()
}

/// Names of 16 bytes that all hash alike under the seed that stands in the source: their first word cancels a word of the key, and a
/// product with zero forgets the second.
fn of_the_source(count: usize) -> Vec<Vec<u8>> {
    // The third word of `ahash::RandomState::with_seeds(1, 2, 3, 4)`, with ahash's own constant.
    const CANCELS: u64 = 3 ^ 0xC0AC_29B7_C97C_50DD;
    let names = words((0..count as u64).map(|number| [CANCELS, number]));
    let state = ahash::RandomState::with_seeds(1, 2, 3, 4);
    let hash = |name: &[u8]| {
        let mut hasher = state.build_hasher();
        hasher.write(name);
        hasher.finish()
    };
    assert!(names.iter().all(|name| hash(name) == hash(&names[0])), "the attack fits ahash no more: find another");
    names
}

/// Names of 32 bytes that all hash alike where each byte is added to a multiple of what came before: two pairs of bytes that do, in turns.
fn of_pairs(count: usize, pairs: [[u8; 2]; 2]) -> Vec<Vec<u8>> {
    assert!(count <= 1 << 16);
    (0..count).map(|number| (0..16).flat_map(|bit| pairs[number >> bit & 1]).collect()).collect()
}

fn others(count: usize) -> Vec<Vec<u8>> {
    let mut random = Random::new(7);
    words((0..count).map(|_| [random.draw(), random.draw()]))
}

/// Of five times the least, which no busy machine makes longer than all of them.
fn least(mut time: impl FnMut() -> Duration) -> Duration {
    (0..5).map(|_| time()).min().unwrap()
}

/// How long a server takes to add names to a value, or as keys, a thousand at once.
fn added(client: &mut Client, command: &str, names: &[Vec<u8>]) -> Duration {
    let requests = names.chunks(1_000).map(|names| {
        let mut words: Vec<&[u8]> = vec![command.as_bytes()];
        if command != "MSET" {
            words.push(b"value");
        }
        for name in names {
            match command {
                "SADD" => words.push(name),
                "ZADD" => words.extend([b"1".as_slice(), name.as_slice()]),
                _ => words.extend([name.as_slice(), b"1".as_slice()]),
            }
        }
        encode(&words)
    });
    let requests: Vec<Vec<u8>> = requests.collect();
    assert_eq!(client.call("FLUSHALL"), "+OK\r\n");
    let began = Instant::now();
    for request in &requests {
        client.send(request).unwrap();
        let reply = client.receive().unwrap();
        assert!(reply == b":1000\r\n" || reply == b"+OK\r\n", "{}", reply.escape_ascii());
    }
    began.elapsed()
}

#[test]
fn names_that_are_chosen_to_collide_are_added_as_fast_as_others() {
    const NAMES: usize = 20_000;
    let folder = harness::folder();
    let server = start(rsedis_program(), folder.path(), &[]);
    let mut client = server.client();
    let attacks = [
        ("the seed of the source", of_the_source(NAMES)),
        ("multiples of 31", of_pairs(NAMES, [*b"Aa", *b"BB"])),
        ("multiples of 33", of_pairs(NAMES, [*b"Ab", *b"BA"])),
        ("zeros", (0..NAMES as u64).map(|number| number.to_ne_bytes().to_vec()).collect()),
    ];
    let others = others(NAMES);
    for command in ["HSET", "SADD", "ZADD", "MSET"] {
        for (attack, names) in &attacks {
            let [chosen, random] = [names, &others].map(|names| least(|| added(&mut client, command, names)));
            assert!(chosen <= random * RATIO_MAX, "{command}, {attack}: {chosen:?}, and {random:?} for other names");
        }
    }
}

/// While a snapshot is taken, keys that are added are kept in a table of their own.
#[test]
fn keys_that_are_chosen_to_collide_do_not_slow_a_snapshot_down() {
    const NAMES: usize = 10_000;
    rsedis::hash::seed([5, 6, 7, 8]);
    let added = |names: &[Vec<u8>]| {
        let mut database = Database::default();
        database.begin_walk(|_, _| {}, 0);
        let began = Instant::now();
        for name in names {
            let key = Key::new(name);
            database.insert(&key, Entry::string(name, b"value", None));
        }
        began.elapsed()
    };
    let (names, others) = (of_the_source(NAMES), others(NAMES));
    assert_ne!(rsedis::hash::of(&names[0]), rsedis::hash::of(&names[1]), "somebody has set another seed");
    let [chosen, random] = [&names, &others].map(|names| least(|| added(names)));
    assert!(chosen <= random * RATIO_MAX, "{chosen:?}, and {random:?} for other keys");
}

/// The order of SCAN is that of hashes.
#[test]
fn no_two_servers_hash_alike() {
    let orders = [(); 2].map(|()| {
        let folder = harness::folder();
        let server = start(rsedis_program(), folder.path(), &[]);
        let mut client = server.client();
        for number in 0..100 {
            assert_eq!(client.call(&format!("SET {number} x")), "+OK\r\n");
        }
        // Of more steps than there are buckets.
        let reply = client.call("SCAN 0 COUNT 100000");
        let keys: Vec<String> = reply.split("\r\n").skip(5).step_by(2).map(str::to_owned).collect();
        assert_eq!(keys.iter().filter(|key| !key.is_empty()).count(), 100, "{reply}");
        keys
    });
    assert_ne!(orders[0], orders[1], "the seed is not random: who knows it can choose keys that collide");
}
