//! What goes when memory is full: by policy, in whose order, and that it stays gone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::until;
use support::node::Node;
use support::{Client, Server, redis_program, rsedis_program, start};

const KEYS: usize = 4_000;
/// What INFO itself takes while it is told, and more.
const REPLY_BYTES: u64 = 16 << 10;

fn info(client: &mut Client, field: &str) -> u64 {
    let info = client.call("INFO all");
    let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("no {field}")).trim().parse().unwrap()
}

fn number(client: &mut Client, line: &str) -> i64 {
    let reply = client.call(line);
    reply.strip_prefix(':').unwrap_or_else(|| panic!("{line}: {reply}")).trim().parse().unwrap()
}

/// Lets the keys have so many percent of the memory that they take now, beyond what the server took when it was empty.
fn squeeze(client: &mut Client, empty: u64, percent: u64) {
    let used = info(client, "used_memory");
    let most = empty + (used - empty) * percent / 100;
    assert_eq!(client.call(&format!("CONFIG SET maxmemory {most}")), "+OK\r\n");
    until("what is left fits", || {
        assert_eq!(client.call("PING"), "+PONG\r\n");
        info(client, "used_memory") <= most + REPLY_BYTES + info(client, "mem_not_counted_for_evict")
    });
    assert_eq!(client.call("CONFIG SET maxmemory 0"), "+OK\r\n");
}

fn there(client: &mut Client, keys: impl Iterator<Item = usize>) -> usize {
    keys.filter(|key| client.call(&format!("EXISTS key:{key}")) == ":1\r\n").count()
}

fn fill(client: &mut Client, is_volatile: impl Fn(usize) -> Option<usize>) {
    let value = "v".repeat(100);
    for key in 0..KEYS {
        let expiry = is_volatile(key).map_or(String::new(), |seconds| format!(" EX {seconds}"));
        assert_eq!(client.call(&format!("SET key:{key} {value}{expiry}")), "+OK\r\n");
    }
}

fn serve(directory: &harness::TempDir, policy: &str) -> Server {
    start(rsedis_program(), directory.path(), &["--maxmemory-policy", policy])
}

#[test]
fn only_what_the_policy_may_take_goes() {
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random"] {
        let directory = harness::folder();
        let server = serve(&directory, policy);
        let mut client = server.client();
        let empty = info(&mut client, "used_memory");
        fill(&mut client, |key| (key % 2 == 0).then_some(10_000));
        squeeze(&mut client, empty, 80);
        let even = there(&mut client, (0..KEYS).step_by(2));
        let odd = there(&mut client, (1..KEYS).step_by(2));
        let evicted = info(&mut client, "evicted_keys") as usize;
        assert_eq!(even + odd + evicted, KEYS, "{policy}");
        assert!(evicted > KEYS / 10 && evicted < KEYS / 2, "{policy}: {evicted}");
        assert_eq!(odd == KEYS / 2, policy.starts_with("volatile"), "{policy}: {odd} without an expiry are left");
    }
}

#[test]
fn what_expires_first_goes_first() {
    let directory = harness::folder();
    let server = serve(&directory, "volatile-ttl");
    let mut client = server.client();
    let empty = info(&mut client, "used_memory");
    fill(&mut client, |key| Some(10_000 + (key * 7919) % KEYS));
    squeeze(&mut client, empty, 80);
    let mut left: Vec<(usize, bool)> =
        (0..KEYS).map(|key| ((key * 7919) % KEYS, client.call(&format!("EXISTS key:{key}")) == ":1\r\n")).collect();
    left.sort();
    let first = left.iter().position(|(_, is_there)| *is_there).unwrap();
    assert!(first > KEYS / 10, "{first}");
    assert!(left[first..].iter().all(|(_, is_there)| *is_there), "a later one went before an earlier one");
}

#[test]
fn what_was_not_used_for_long_goes_first() {
    for policy in ["allkeys-lru", "volatile-lru"] {
        let directory = harness::folder();
        let server = serve(&directory, policy);
        let mut client = server.client();
        let empty = info(&mut client, "used_memory");
        fill(&mut client, |_| Some(10_000));
        until("they are idle", || number(&mut client, &format!("OBJECT IDLETIME key:{}", KEYS - 1)) >= 1);
        for key in (0..KEYS).step_by(2) {
            client.call(&format!("GET key:{key}"));
        }
        assert!(number(&mut client, "OBJECT IDLETIME key:1") >= 1, "asking is no use");
        assert_eq!(number(&mut client, "OBJECT IDLETIME key:0"), 0);
        squeeze(&mut client, empty, 70);
        let used = there(&mut client, (0..KEYS).step_by(2));
        let idle = there(&mut client, (1..KEYS).step_by(2));
        assert!(idle < KEYS * 3 / 8, "{policy}: {idle} idle keys are left");
        assert!(used > KEYS * 49 / 100, "{policy}: {used} used keys are left");
    }
}

#[test]
fn what_is_used_seldom_goes_first() {
    for policy in ["allkeys-lfu", "volatile-lfu"] {
        let directory = harness::folder();
        // A frequency sinks when a minute of the wall clock ends, which may be at any time of this test.
        let server =
            start(rsedis_program(), directory.path(), &["--maxmemory-policy", policy, "--lfu-decay-time", "0"]);
        let mut client = server.client();
        let empty = info(&mut client, "used_memory");
        fill(&mut client, |_| Some(10_000));
        for _ in 0..10 {
            for key in (0..KEYS).step_by(2) {
                client.call(&format!("GET key:{key}"));
            }
        }
        assert!(number(&mut client, "OBJECT FREQ key:0") > number(&mut client, "OBJECT FREQ key:1"));
        assert_eq!(number(&mut client, "OBJECT FREQ key:1"), 5, "what is new is not the first to go");
        squeeze(&mut client, empty, 70);
        let used = there(&mut client, (0..KEYS).step_by(2));
        let seldom = there(&mut client, (1..KEYS).step_by(2));
        assert!(seldom < KEYS * 3 / 8 && used > KEYS * 49 / 100, "{policy}: {seldom} and {used} are left");
    }
}

#[test]
fn what_went_does_not_come_back_from_the_file() {
    let directory = harness::folder();
    let options = ["--maxmemory-policy", "allkeys-lru", "--appendonly", "yes", "--appendfsync", "always"];
    let server = start(rsedis_program(), directory.path(), &options);
    let mut client = server.client();
    let empty = info(&mut client, "used_memory");
    fill(&mut client, |_| None);
    squeeze(&mut client, empty, 70);
    let left = client.call("DBSIZE");
    assert_ne!(left, format!(":{KEYS}\r\n"));
    assert_eq!(server.terminate(), Some(0));
    let server = start(rsedis_program(), directory.path(), &options);
    assert_eq!(server.client().call("DBSIZE"), left);
}

/// Where nothing may go, commands that need memory are refused, as ever; all others run.
#[test]
fn where_nothing_may_go_writes_are_refused() {
    for policy in ["noeviction", "volatile-lru", "volatile-ttl", "volatile-random"] {
        let directory = harness::folder();
        let server = serve(&directory, policy);
        let mut client = server.client();
        assert_eq!(client.call("SET stays here"), "+OK\r\n");
        assert_eq!(client.call("CONFIG SET maxmemory 1"), "+OK\r\n");
        assert_eq!(client.call("SET key value"), "-OOM command not allowed when used memory > 'maxmemory'.\r\n");
        assert_eq!(client.call("GET stays"), "$4\r\nhere\r\n", "{policy}");
    }
}

/// One command never waits for all that has to go.
#[test]
fn a_command_waits_for_a_bounded_number_of_evictions() {
    let directory = harness::folder();
    let options = ["--maxmemory-policy", "allkeys-random", "--maxmemory-eviction-tenacity", "0"];
    let server =
        start(rsedis_program(), directory.path(), &[&options[..], &["--enable-debug-command", "yes"]].concat());
    let mut client = server.client();
    client.call("DEBUG POPULATE 20000 key 100");
    // Sent together: they run in one turn, one after the other.
    client
        .send(b"CONFIG SET maxmemory 1\r\nDBSIZE\r\nDBSIZE\r\n")
        .and_then(|()| client.receive())
        .map(|reply| assert_eq!(reply, b"+OK\r\n"))
        .unwrap();
    for _ in 0..2 {
        let left: usize = String::from_utf8(client.receive().unwrap()).unwrap()[1..].trim().parse().unwrap();
        assert!(left > 19_000 && left < 20_000, "{left}");
    }
    until("all have gone", || client.call("DBSIZE") == ":0\r\n");
}

/// A client's own command may be what evicts the key that it watches: while it is admitted, or only queued.
#[test]
fn exec_runs_although_its_own_admission_evicted_a_watched_key() {
    let directory = harness::folder();
    // Each command evicts one key, the one that expires first.
    let options = ["--maxmemory-policy", "volatile-ttl", "--maxmemory-eviction-tenacity", "0"];
    let server = start(rsedis_program(), directory.path(), &options);
    let mut client = server.client();
    // WATCH evicts key 0, MULTI 1, SET 2, EXEC 3.
    for (watched, is_broken) in [(0, false), (1, true), (2, true), (3, true), (4, false)] {
        (0..20).for_each(|key| drop(client.call(&format!("SET key:{key} v EX {}", 1_000 + key))));
        let lines = format!(
            "CONFIG SET maxmemory 1\r\nWATCH key:{watched}\r\nMULTI\r\nSET other v\r\nEXEC\r\nCONFIG SET maxmemory 0\r\n"
        );
        // Sent together: they run in one turn, one after the other.
        client.send(lines.as_bytes()).unwrap();
        let replies: Vec<Vec<u8>> = (0..6).map(|_| client.receive().unwrap()).collect();
        let expected: &[u8] = if is_broken { b"*-1\r\n" } else { b"*1\r\n+OK\r\n" };
        assert_eq!(replies[4].escape_ascii().to_string(), expected.escape_ascii().to_string(), "key {watched}");
        assert_eq!(client.call("WATCH key:19"), "+OK\r\n");
        assert_eq!(client.call("MULTI"), "+OK\r\n");
        assert_eq!(client.call("SET other v"), "+QUEUED\r\n");
        assert_eq!(client.call("EXEC"), "*1\r\n+OK\r\n", "key {watched}: the next EXEC heard of it, too");
    }
}

/// Nobody needs to send another command for keys to go.
#[test]
fn a_lower_limit_evicts_at_once_and_says_so() {
    let directory = harness::folder();
    let server = serve(&directory, "allkeys-lru");
    let (mut client, mut listener) = (server.client(), server.client());
    assert_eq!(client.call("CONFIG SET notify-keyspace-events Ee"), "+OK\r\n");
    assert!(listener.call("SUBSCRIBE __keyevent@0__:evicted").starts_with("*3"));
    assert_eq!(client.call("SET foo bar"), "+OK\r\n");
    assert_eq!(client.call("CONFIG SET maxmemory 1"), "+OK\r\n");
    let message = String::from_utf8(listener.receive().unwrap()).unwrap();
    assert!(message.ends_with("$3\r\nfoo\r\n"), "{message}");
}

/// What those who track keys are told of evicted ones takes memory, which must not make more keys go.
#[test]
fn telling_trackers_does_not_evict_the_rest() {
    const TRACKED: usize = 300;
    let directory = harness::folder();
    let options = ["--maxmemory-policy", "allkeys-lru", "--maxmemory-eviction-tenacity", "100"];
    let server = start(rsedis_program(), directory.path(), &options);
    let mut client = server.client();
    let mut trackers: Vec<Client> = (0..10).map(|_| server.client()).collect();
    for tracker in &mut trackers {
        tracker.call("HELLO 3");
        assert_eq!(tracker.call("CLIENT TRACKING ON"), "+OK\r\n");
    }
    for key in 0..TRACKED {
        let name = format!("{key}{}", "x".repeat(1000));
        client.call(&format!("SET {name} x"));
        trackers.iter_mut().for_each(|tracker| drop(tracker.call(&format!("GET {name}"))));
    }
    let most = info(&mut client, "used_memory") - 40_000;
    assert_eq!(client.call(&format!("CONFIG SET maxmemory {most}")), "+OK\r\n");
    assert_eq!(client.call("PING"), "+PONG\r\n");
    let left = number(&mut client, "DBSIZE") as usize;
    assert!(left < TRACKED && left > TRACKED * 2 / 3, "{left}");
}

#[test]
fn clocks_are_told_as_redis_tells_them() {
    let directories = [harness::folder(), harness::folder()];
    let ours = start(rsedis_program(), directories[0].path(), &[]);
    let theirs = start(&redis_program("redis-server"), directories[1].path(), &[]);
    let (mut ours, mut theirs) = (ours.client(), theirs.client());
    for line in [
        "SET key value",
        "OBJECT IDLETIME key",
        "OBJECT IDLETIME none",
        "OBJECT FREQ key",
        "OBJECT FREQ none",
        "CONFIG SET maxmemory-policy allkeys-lfu",
        "CONFIG GET maxmemory-policy",
        "SET new value",
        "OBJECT FREQ new",
        "OBJECT IDLETIME new",
        "TYPE new",
        "TTL new",
        "EXISTS new",
        "OBJECT FREQ new",
        "CONFIG SET maxmemory-policy volatile-lru",
        "SET new value",
        "OBJECT IDLETIME new",
        "OBJECT FREQ new",
        "CONFIG SET maxmemory-policy everything",
        "SET small 7",
        "OBJECT REFCOUNT small",
        "CONFIG SET maxmemory 1gb",
        "SET small 7",
        "OBJECT REFCOUNT small",
        "CONFIG SET maxmemory-policy allkeys-random",
        "SET small 7",
        "OBJECT REFCOUNT small",
        "SET large 10000",
        "OBJECT REFCOUNT large",
    ] {
        assert_eq!(ours.call(line), theirs.call(line), "{line}");
    }
}

/// Restores the key `k` with a clock, as the words behind RESTORE's other ones say; the reply.
fn restore(client: &mut Client, fill: &str, clock: &str) -> String {
    client.call("FLUSHALL");
    client.call(fill);
    let dump = client.try_call(&[b"DUMP", b"k"]).unwrap();
    let start = dump.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let payload = &dump[start..dump.len() - 2];
    let words: Vec<&[u8]> = [b"RESTORE".as_slice(), b"k", b"0", payload, b"REPLACE"]
        .into_iter()
        .chain(clock.split(' ').map(str::as_bytes))
        .collect();
    String::from_utf8(client.try_call(&words).unwrap()).unwrap()
}

/// Whether both say the same. The clock of last use may have gone on in between, and one command counts as as many uses as it looks its
/// key up, which is its own affair.
#[track_caller]
fn assert_told_alike(ours: &str, theirs: &str, context: &str) {
    let number = |reply: &str| reply.strip_prefix(':').map(|text| text.trim().parse::<i64>().unwrap());
    match (number(ours), number(theirs)) {
        (Some(one), Some(other)) => assert!((one - other).abs() <= 3, "{context}: {one} and not {other}"),
        _ => assert_eq!(ours, theirs, "{context}"),
    }
}

const POLICIES: [&str; 8] = [
    "noeviction",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
];

/// What makes a key `k`, and commands that look at it, change it, or put something in its place.
const USES: [(&str, &str); 7] = [
    (
        "SET k 12345",
        "GET k|TYPE k|TTL k|EXISTS k|EXPIRETIME k|DUMP k|STRLEN k|EXPIRE k 1000|PERSIST k|TOUCH k|RENAME k k2|RENAMENX k k2|COPY \
         k k2|MOVE k 1|SET k v|SET k v KEEPTTL|SET k v NX|SET k v GET|GETSET k v|INCR k|INCRBYFLOAT k 1|APPEND k x|SETRANGE k 0 x|\
         GETEX k EX 100|MGET k|MSET k v|OBJECT ENCODING k|OBJECT REFCOUNT k|MEMORY USAGE k|KEYS *|SCAN 0 TYPE string|RANDOMKEY|\
         BITCOUNT k|SETBIT k 1 1|BITFIELD k GET u8 0|BITOP NOT k2 k|BITOP NOT k k|LPUSH k x|HGET k x|LCS k k|PFCOUNT k|\
         SETEX k 100 v|DEBUG OBJECT k",
    ),
    (
        "RPUSH k a b c",
        "LLEN k|LRANGE k 0 -1|LPUSH k x|RPOP k|LSET k 0 x|LPOS k a|LMOVE k k2 LEFT RIGHT|RPOPLPUSH k k|SORT k ALPHA|\
         SORT k ALPHA STORE k|SORT k ALPHA STORE k2|LMPOP 1 k LEFT|BLPOP k 1|GET k",
    ),
    ("HSET k f 1 g 2", "HGET k f|HGETALL k|HSET k f 2|HDEL k f|HLEN k|HSCAN k 0|HRANDFIELD k"),
    (
        "ZADD k 1 a 2 b",
        "ZSCORE k a|ZADD k 3 c|ZRANGE k 0 -1|ZREM k a|ZUNIONSTORE k2 1 k|ZUNIONSTORE k 1 k|ZINTER 1 k|ZPOPMIN k|ZMPOP 1 k MIN|\
         ZRANGESTORE k2 k 0 -1|ZRANGESTORE k k 0 -1|GEOPOS k a|GEOSEARCHSTORE k k FROMLONLAT 0 0 BYRADIUS 20000 km",
    ),
    (
        "SADD k a b c",
        "SADD k z|SREM k a|SCARD k|SPOP k|SINTER k|SINTERSTORE k k|SUNIONSTORE k2 k|SDIFFSTORE k k none|SMOVE k k2 a|SINTERCARD 1 k",
    ),
    ("XADD k 1-1 f v", "XADD k * f v|XLEN k|XRANGE k - +|XDEL k 1-1|XTRIM k MAXLEN 0|XINFO STREAM k|XREAD STREAMS k 0"),
    ("PFADD k a", "PFADD k b|PFCOUNT k|PFMERGE k k|PFMERGE k2 k"),
];

#[test]
fn a_use_bears_on_a_keys_clock_otherwise_than_in_redis() {
    let directories = [harness::folder(), harness::folder()];
    let options = ["--lfu-log-factor", "0", "--lfu-decay-time", "0", "--enable-debug-command", "yes"];
    let ours = start(rsedis_program(), directories[0].path(), &options);
    let theirs = start(&redis_program("redis-server"), directories[1].path(), &options);
    let mut clients = [ours.client(), theirs.client()];
    for policy in POLICIES {
        let (word, clock) = if policy.ends_with("lfu") { ("FREQ", "FREQ 100") } else { ("IDLETIME", "IDLETIME 1000") };
        for client in &mut clients {
            assert_eq!(client.call(&format!("CONFIG SET maxmemory-policy {policy}")), "+OK\r\n");
        }
        for (fill, uses) in USES {
            for used in uses.split('|') {
                let told = clients.each_mut().map(|client| {
                    assert_eq!(restore(client, fill, clock), "+OK\r\n");
                    client.call(used);
                    let mut told = [0, 1].map(|database| {
                        client.call(&format!("SELECT {database}"));
                        ["k", "k2"].map(|key| client.call(&format!("OBJECT {word} {key}")))
                    });
                    client.call("SELECT 0");
                    told.as_flattened_mut().to_vec()
                });
                for (one, other) in told[0].iter().zip(&told[1]) {
                    assert_told_alike(one, other, &format!("{policy}: OBJECT {word} after {used}"));
                }
            }
        }
    }
}

#[test]
fn a_restored_clock_is_not_told_as_in_redis() {
    let directories = [harness::folder(), harness::folder()];
    // Nothing falls in between.
    let options = ["--lfu-decay-time", "0"];
    let ours = start(rsedis_program(), directories[0].path(), &options);
    let theirs = start(&redis_program("redis-server"), directories[1].path(), &options);
    let mut clients = [ours.client(), theirs.client()];
    let questions = ["OBJECT IDLETIME k", "OBJECT IDLETIME none", "OBJECT FREQ k", "OBJECT FREQ none"];
    for policy in POLICIES {
        for clock in [
            "IDLETIME 1000",
            "IDLETIME 0",
            "IDLETIME -1",
            "IDLETIME x",
            "IDLETIME",
            "IDLETIME 10000000",
            "IDLETIME 50 IDLETIME 600",
            "IDLETIME 1000 FREQ 5",
            "FREQ 5 IDLETIME 1000",
            "FREQ 100",
            "FREQ 0",
            "FREQ 255",
            "FREQ 256",
            "FREQ -1",
            "FREQ x",
            "FREQ 50 FREQ 60",
            "ABSTTL IDLETIME 1000",
        ] {
            let told = clients.each_mut().map(|client| {
                client.call(&format!("CONFIG SET maxmemory-policy {policy}"));
                let reply = restore(client, "SET k v", clock);
                // What a refused one leaves was made by SET, whose clock of uses goes by chance.
                let questions = if reply.starts_with('+') { &questions[..] } else { &questions[..2] };
                let told = questions.iter().map(|question| client.call(question));
                [reply].into_iter().chain(told).collect::<Vec<_>>()
            });
            for (at, (one, other)) in told[0].iter().zip(&told[1]).enumerate() {
                assert_told_alike(one, other, &format!("{policy}: RESTORE with {clock}: IDLETIME and FREQ, {at}"));
            }
        }
        // Idle times stay where another policy goes by them, or by none.
        for next in POLICIES.iter().filter(|_| !policy.ends_with("lfu")).filter(|next| !next.ends_with("lfu")) {
            let told = clients.each_mut().map(|client| {
                client.call(&format!("CONFIG SET maxmemory-policy {policy}"));
                restore(client, "SET k v", "IDLETIME 1000");
                client.call(&format!("CONFIG SET maxmemory-policy {next}"));
                client.call("OBJECT IDLETIME k")
            });
            assert_told_alike(&told[0], &told[1], &format!("{policy}, then {next}: IDLETIME"));
        }
    }
}

/// What clients asked for counted at the end of the turn alone: keys had to go for it until then.
#[test]
fn clients_go_before_keys_where_many_ask_for_large_values_in_one_turn() {
    let directory = harness::folder();
    let options = ["--maxmemory", "11mb", "--maxmemory-policy", "allkeys-lru", "--maxmemory-clients", "3mb"];
    let options = [&options[..], &["--enable-debug-command", "yes"]].concat();
    let server = start(rsedis_program(), directory.path(), &options);
    let mut client = server.client();
    assert_eq!(client.call("CLIENT NO-EVICT ON"), "+OK\r\n");
    for key in 0..50 {
        assert_eq!(client.call(&format!("SETRANGE {key} 100000 x")), ":100001\r\n");
    }
    let mut readers: Vec<Client> = (0..60).map(|_| server.client()).collect();
    readers.iter_mut().for_each(|reader| assert_eq!(reader.call("PING"), "+PONG\r\n"));
    // While the server sleeps all of them ask: it hears them in one turn.
    client.send(&support::encode(&[b"DEBUG", b"SLEEP", b"0.5"])).unwrap();
    readers.iter_mut().for_each(|reader| reader.send(&support::encode(&[b"MGET", b"1"])).unwrap());
    assert_eq!(client.receive().unwrap(), b"+OK\r\n");
    until("clients go", || info(&mut client, "evicted_clients") > 0);
    assert_eq!((info(&mut client, "evicted_keys"), number(&mut client, "DBSIZE")), (0, 50));
}

/// What its master has taken is taken, alone or in a transaction.
#[test]
fn a_replica_over_its_limit_drops_its_masters_transactions() {
    let master = Node::ours(&[]);
    let replica = Node::ours(&["--maxmemory", "1", "--replica-ignore-maxmemory", "no"]);
    replica.follow(master.server.port);
    replica.wait_for_link();
    let mut client = master.client();
    for line in ["SET alone 1", "MULTI", "SET one 1", "SET two 2", "EXEC", "SET last 1"] {
        client.call(line);
    }
    until("the last write", || replica.call("EXISTS last") == ":1\r\n");
    assert_eq!(replica.call("EXISTS alone one two"), ":3\r\n");
}
