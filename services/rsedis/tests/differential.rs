//! The same random commands to rsedis and to Redis 7.0.15, replies compared byte for byte.
//!
//! What has no order (members of a set, fields of a hash) is sorted first. What is random by its nature is only asked for whole. At the end
//! of each seed all that both servers hold is compared as well: digests, and what DUMP says of each value that has an order.
//! `RSEDIS_SEEDS=1000 cargo test --release -p rsedis --test differential random_commands -- --nocapture` tries more, and says how many,
//! `RSEDIS_SEEDS=1001-2000` others; `RSEDIS_GROUPS=users,scripts` tries these groups alone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::Random;
use support::edges::{self, NOT_COMPARED};
use support::programs::{self, fill};
use support::templates::TEMPLATES;
use support::{Client, elements, encode, redis_program, rsedis_program, start};

const COMMANDS_EACH: usize = 1_000;

const UNORDERED: &[&str] = &[
    "KEYS",
    "SMEMBERS",
    "SUNION",
    "SINTER",
    "SDIFF",
    "SPOP",
    "SRANDMEMBER",
    "HKEYS",
    "HVALS",
    "HRANDFIELD",
    "ZRANDMEMBER",
    "CONFIG",
];

/// Where each server has times, numbers or words of its own: what is compared is of which kinds the parts are, and what is below zero.
const SHAPED: &[&str] = &[
    "CLIENT ID",
    "HELLO",
    "LASTSAVE",
    "MEMORY USAGE",
    "OBJECT IDLETIME",
    "PTTL",
    "RANDOMKEY",
    "ROLE",
    "SLOWLOG LEN",
    "TIME",
    "TTL",
    "XINFO CONSUMERS",
    "XINFO STREAM",
    "XPENDING",
];

/// Where they have as many parts as they like.
const KINDS: &[&str] = &[
    "ACL GENPASS",
    "ACL LOG",
    "CLIENT INFO",
    "CLIENT LIST",
    "FUNCTION DUMP",
    "INFO",
    "MEMORY DOCTOR",
    "MEMORY MALLOC-STATS",
    "MEMORY STATS",
    "SLOWLOG GET",
];

/// How DUMP calls a sorted set, as a tree and packed.
const ZSET: u8 = 5;
const ZSET_LISTPACK: u8 = 17;

/// How many differences of a group are told.
const TOLD_MAX: usize = 3;

/// A reply's kinds all the way down. Errors are as they are.
fn shape(reply: &[u8]) -> Vec<u8> {
    match reply {
        [b':', rest @ ..] if !rest.starts_with(b"-") => b":".to_vec(),
        [kind @ (b'$' | b'=' | b','), rest @ ..] if !rest.starts_with(b"-") => vec![*kind],
        [b'*' | b'~' | b'%' | b'>', ..] => {
            let parts = elements(reply);
            let head = reply.split(|byte| *byte == b'\n').next().unwrap_or_default();
            [head.to_vec(), parts.into_iter().flat_map(shape).collect()].concat()
        }
        _ => reply.to_vec(),
    }
}

/// A reply in a form in which order does not count where there is none.
fn comparable(template: &str, reply: &[u8]) -> Vec<Vec<u8>> {
    // What a script answers with is what its command said.
    let template =
        template.strip_prefix("EVAL @").and_then(|rest| rest.split_once(" 0 ")).map_or(template, |(_, rest)| rest);
    let command = template.split(' ').next().unwrap();
    if matches!(template, "ACL LIST" | "ACL GETUSER U") {
        // Rules that do not touch each other have no order, nor have those within brackets.
        let is_between = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'(' | b')');
        let mut words: Vec<Vec<u8>> = reply.split(is_between).map(<[u8]>::to_vec).collect();
        words.sort();
        return words;
    }
    let is_one_of = |commands: &[&str]| {
        commands.iter().any(|command| {
            template.strip_prefix(command).is_some_and(|rest| matches!(rest.as_bytes(), [] | [b' ', ..]))
        })
    };
    if is_one_of(SHAPED) {
        return vec![shape(reply)];
    }
    if is_one_of(KINDS) && !reply.starts_with(b"-") {
        return vec![reply[..1].to_vec()];
    }
    if command == "DUMP" && matches!(payload_kind(reply), Some(2 | 4)) {
        // A table has no order.
        return vec![reply.split(|byte| *byte == b'\n').next().unwrap_or_default().to_vec()];
    }
    let parts = elements(reply);
    let is_paired = command == "HGETALL" || template.contains(" 1000 WITH");
    let size = if is_paired { 2 } else { 1 };
    let is_scan = command.ends_with("SCAN");
    // Places that are equally far have no order; which are near is in Redis's own tests.
    let is_near = command.starts_with("GEOSEARCH") || command.starts_with("GEORADIUS");
    let is_listed = template.starts_with("COMMAND LIST") || template.starts_with("PUBSUB");
    if parts.is_empty() || !(size == 2 || UNORDERED.contains(&command) || is_scan || is_near || is_listed) {
        return vec![reply.to_vec()];
    }
    if is_scan {
        let inner = elements(parts[1]);
        let mut found: Vec<Vec<u8>> =
            inner.chunks(if matches!(command, "SCAN" | "SSCAN") { 1 } else { 2 }).map(<[&[u8]]>::concat).collect();
        found.sort();
        found.insert(0, parts[0].to_vec());
        return found;
    }
    // In RESP3 pairs are arrays or a map already.
    let size = if reply[0] == b'*' && parts.iter().all(|part| part[0] == b'*') { 1 } else { size };
    let mut sorted: Vec<Vec<u8>> = parts.chunks(size).map(<[&[u8]]>::concat).collect();
    sorted.sort();
    sorted.insert(0, reply[..1].to_vec());
    sorted
}

/// The first byte of what DUMP says.
fn payload_kind(reply: &[u8]) -> Option<u8> {
    reply.iter().position(|byte| *byte == b'\n').and_then(|end| reply.get(end + 1)).copied()
}

/// A command of a template, filled in.
fn command(random: &mut Random, template: &str) -> Vec<Vec<u8>> {
    template.split(' ').map(|word| fill(random, word)).collect()
}

fn shown(words: &[Vec<u8>]) -> String {
    words.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
}

/// The replies of both to commands that are sent at once.
fn replies(clients: [&mut Client; 2], commands: &[Vec<Vec<u8>>]) -> [Vec<Vec<u8>>; 2] {
    let bytes: Vec<u8> =
        commands.iter().flat_map(|words| encode(&words.iter().map(Vec::as_slice).collect::<Vec<_>>())).collect();
    let clients = clients.map(|client| {
        client.send(&bytes).unwrap();
        client
    });
    clients.map(|client| commands.iter().map(|_| client.receive().unwrap()).collect())
}

fn compare(clients: [&mut Client; 2], group: &str, templates: &[String], seed: u64) -> Result<usize, String> {
    let [ours, theirs] = clients;
    let mut random = Random::new(seed);
    let entries = ["hash-max-listpack-entries", "zset-max-listpack-entries", "set-max-intset-entries"];
    // Small tables, so that both encodings of everything are met.
    let is_small = seed % 2 == 1;
    let has_sort = matches!(group, "sort and restore" | "scripts" | "edges");
    let resp = if seed % 3 == 2 { "HELLO 3" } else { "HELLO 2" };
    let mut history = vec![resp.to_owned()];
    for client in [&mut *ours, &mut *theirs] {
        for setup in ["FLUSHALL", "FUNCTION FLUSH", "ACL DELUSER u:1 u:2 u:3", resp] {
            client.call(setup);
        }
        for (name, usual) in entries.iter().zip([512, 128, 512]) {
            let set = format!("CONFIG SET {name} {}", if is_small { 4 } else { usual });
            assert_eq!(client.call(&set), "+OK\r\n");
        }
    }
    let differ = |history: &[String], mine: &[u8], other: &[u8]| {
        let last = history[history.len().saturating_sub(25)..].join("\n");
        format!("{group}, seed {seed}:\n{last}\nrsedis: {}\nredis:  {}", mine.escape_ascii(), other.escape_ascii())
    };
    let mut compared = 0;
    while compared < COMMANDS_EACH {
        // Pipelines too: what is read ahead must not be seen.
        let picked: Vec<&str> = (0..1 + random.index(32)).map(|_| &*templates[random.index(templates.len())]).collect();
        let commands: Vec<_> = picked.iter().map(|template| command(&mut random, template)).collect();
        let [mine, other] = replies([&mut *ours, &mut *theirs], &commands);
        for (index, template) in picked.iter().enumerate() {
            history.push(shown(&commands[index]));
            // SORT unpacks a sorted set in Redis.
            let is_unpacked = |reply: &[u8]| matches!(reply, b"$8\r\nlistpack\r\n" | b"$8\r\nskiplist\r\n");
            if has_sort && is_unpacked(&mine[index]) && is_unpacked(&other[index]) {
                continue;
            }
            let is_packing = |reply: &[u8]| matches!(payload_kind(reply), Some(ZSET | ZSET_LISTPACK));
            if has_sort && template.contains("DUMP ") && is_packing(&mine[index]) && is_packing(&other[index]) {
                continue;
            }
            // Redis's SORT asks whether a number was out of range, and that may have been one of a command before it.
            let is_remembered = other[index].starts_with(b"-ERR One or more scores can't be converted into double");
            if is_remembered && template.contains("SORT") && !template.contains("STORE") {
                continue;
            }
            if comparable(template, &mine[index]) != comparable(template, &other[index]) {
                return Err(differ(&history, &mine[index], &other[index]));
            }
        }
        compared += picked.len();
    }
    for client in [&mut *ours, &mut *theirs] {
        assert_eq!(client.call("RESET"), "+RESET\r\n");
    }
    for client in [&mut *ours, &mut *theirs] {
        // What has expired goes when it is looked at, and counts until then.
        client.call("SCAN 0 COUNT 1000000");
    }
    let (mine, other) = (ours.call("DEBUG DIGEST"), theirs.call("DEBUG DIGEST"));
    let keys = theirs.try_call(&[b"KEYS", b"*"]).unwrap();
    for key in elements(&keys).into_iter().map(bulk) {
        // An error where it is no stream.
        let has_groups = theirs.try_call(&[b"XINFO", b"GROUPS", &key]).unwrap() != b"*0\r\n";
        let is_sorted_set = theirs.try_call(&[b"TYPE", &key]).unwrap() == b"+zset\r\n";
        for about in [[b"TYPE".as_slice(), b""], [b"DEBUG", b"DIGEST-VALUE"], [b"OBJECT", b"ENCODING"], [b"DUMP", b""]]
        {
            let words: Vec<&[u8]> = about.into_iter().chain([key.as_slice()]).filter(|word| !word.is_empty()).collect();
            let (mine, other) = (ours.try_call(&words).unwrap(), theirs.try_call(&words).unwrap());
            if mine != other {
                history.push(words.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" "));
                return Err(differ(&history, &mine, &other));
            }
            // Tables have no order, streams with groups remember times, and SORT unpacks a sorted set in Redis.
            let is_over = match about[0] {
                b"OBJECT" => other.ends_with(b"hashtable\r\n") || other.ends_with(b"stream\r\n") && has_groups,
                b"DEBUG" => has_sort && is_sorted_set,
                _ => false,
            };
            if is_over {
                break;
            }
        }
    }
    if mine != other {
        history.push("DEBUG DIGEST".to_owned());
        return Err(differ(&history, mine.as_bytes(), other.as_bytes()));
    }
    Ok(compared)
}

/// What a bulk string holds.
fn bulk(reply: &[u8]) -> Vec<u8> {
    let text = reply.splitn(2, |byte| *byte == b'\n').nth(1).unwrap();
    text[..text.len() - 2].to_vec()
}

#[test]
fn random_commands_have_the_replies_of_redis() {
    let seeds = std::env::var("RSEDIS_SEEDS").map_or(1..=2, |text| {
        let (first, last) = text.split_once('-').unwrap_or(("1", &text));
        first.parse::<u64>().unwrap()..=last.parse().unwrap()
    });
    let directories = [harness::folder(), harness::folder()];
    // Compressed strings may be the same in several ways. Redis ends waits as often as it looks at its clients.
    let options = ["--enable-debug-command", "yes", "--rdbcompression", "no", "--hz", "500"];
    let ours = start(rsedis_program(), directories[0].path(), &options);
    let theirs = start(&redis_program("redis-server"), directories[1].path(), &options);
    let wanted = std::env::var("RSEDIS_GROUPS");
    let is_wanted = |group: &str| wanted.as_ref().map_or(true, |wanted| wanted.split(',').any(|one| one == group));
    let groups: Vec<_> = programs::groups().into_iter().filter(|(group, _)| is_wanted(group)).collect();
    let mut compared = 0;
    let mut failures = 0;
    for (group, templates) in &groups {
        let mut told = 0;
        for seed in seeds.clone() {
            match compare([&mut ours.client(), &mut theirs.client()], group, templates, seed) {
                Ok(count) => compared += count,
                Err(difference) => {
                    // At once: the rest may take an hour.
                    eprintln!("{difference}\n");
                    failures += 1;
                    told += 1;
                }
            }
            if told == TOLD_MAX {
                break;
            }
        }
    }
    assert_eq!(failures, 0, "differences");
    println!("{compared} commands of {} groups over seeds {seeds:?}", groups.len());
    assert!(compared >= groups.len() * seeds.count() * COMMANDS_EACH);
}

/// A command that comes to the table comes to the random commands, or says why not.
#[test]
fn every_command_of_the_table_is_generated_or_has_a_reason_not_to_be() {
    let mut groups = programs::groups();
    // Which arguments a command has there is left to chance: that alone is thin.
    assert_eq!(groups.pop().unwrap().0, "edges");
    let templates: Vec<String> = groups.into_iter().flat_map(|(_, templates)| templates).collect();
    let called: Vec<_> = rsedis::command::all().iter().filter(|command| edges::is_called(command)).collect();
    for command in &called {
        let is_generated = templates.iter().any(|template| edges::is_of(template, command));
        let has_reason = NOT_COMPARED.iter().any(|(name, _)| *name == command.name);
        assert!(is_generated != has_reason, "{}: generated: {is_generated}, an exception: {has_reason}", command.name);
    }
    println!("{} commands, {} of them exceptions, {} templates", called.len(), NOT_COMPARED.len(), templates.len());
}

#[test]
fn too_few_and_too_many_arguments_are_refused_as_by_redis() {
    let directories = [harness::folder(), harness::folder()];
    let ours = start(rsedis_program(), directories[0].path(), &["--enable-debug-command", "yes"]);
    let theirs = start(&redis_program("redis-server"), directories[1].path(), &["--enable-debug-command", "yes"]);
    let (mut ours, mut theirs) = (ours.client(), theirs.client());
    for line in edges::wrong_counts() {
        assert_eq!(ours.call(&line), theirs.call(&line), "{line}");
    }
}

/// COMMAND INFO: name, arity, flags, keys, categories, hints, key specifications.
#[test]
fn the_command_table_is_that_of_redis() {
    let directories = [harness::folder(), harness::folder()];
    let ours = start(rsedis_program(), directories[0].path(), &[]);
    let theirs = start(&redis_program("redis-server"), directories[1].path(), &[]);
    let (mut ours, mut theirs) = (ours.client(), theirs.client());
    let names = |client: &mut Client| -> Vec<String> {
        let list = client.call("COMMAND LIST");
        let mut names: Vec<String> = elements(list.as_bytes())
            .iter()
            .map(|name| String::from_utf8_lossy(name).lines().nth(1).unwrap().to_owned())
            .collect();
        names.sort_unstable();
        names
    };
    let all = names(&mut theirs);
    assert_eq!(names(&mut ours), all);
    assert_eq!(ours.call("COMMAND COUNT"), theirs.call("COMMAND COUNT"));
    for name in all {
        let question: [&[u8]; 3] = [b"COMMAND", b"INFO", name.as_bytes()];
        let (mine, other) = (ours.try_call(&question).unwrap(), theirs.try_call(&question).unwrap());
        let fields = |reply: &[u8]| -> Vec<Vec<u8>> {
            let command = elements(reply)[0].to_vec();
            elements(&command)[..9].iter().map(|field| field.to_vec()).collect()
        };
        assert_eq!(fields(&mine), fields(&other), "{name}");
    }
}

/// COMMAND GETKEYS and GETKEYSANDFLAGS of every command, with random arguments.
#[test]
fn keys_of_all_commands_are_those_of_redis() {
    const ARGUMENTS: &[&str] = &[
        "0",
        "1",
        "2",
        "3",
        "-1",
        "9223372036854775807",
        "a",
        "b",
        "key",
        "STORE",
        "STREAMS",
        "KEYS",
        "BY",
        "GET",
        "GROUP",
        "COUNT",
        "LEFT",
        "STOREDIST",
        "LIMIT",
        "REPLACE",
        "AUTH",
        "SET",
        "",
    ];
    let directories = [harness::folder(), harness::folder()];
    let ours = start(rsedis_program(), directories[0].path(), &[]);
    let theirs = start(&redis_program("redis-server"), directories[1].path(), &[]);
    let (mut ours, mut theirs) = (ours.client(), theirs.client());
    let mut random = Random::new(5);
    for asked in rsedis::command::all() {
        // Where Redis looks for words anywhere, or gives up, ours look as the command itself does: users' rights rest on that.
        if matches!(asked.name, "migrate" | "pfmerge" | "sort" | "xread" | "xreadgroup") {
            continue;
        }
        for question in ["GETKEYS", "GETKEYSANDFLAGS"] {
            let commands: Vec<Vec<Vec<u8>>> = (0..200)
                .map(|_| {
                    let arguments = (0..random.index(9)).map(|_| random.pick(ARGUMENTS)).collect::<Vec<_>>();
                    let words = ["COMMAND", question].into_iter().chain(asked.name.split('|')).chain(arguments);
                    words.map(|word| word.as_bytes().to_vec()).collect()
                })
                .collect();
            let [mine, other] = replies([&mut ours, &mut theirs], &commands);
            for (index, words) in commands.iter().enumerate() {
                assert_eq!(
                    mine[index].escape_ascii().to_string(),
                    other[index].escape_ascii().to_string(),
                    "{}",
                    shown(words)
                );
            }
        }
    }
}

/// COMMAND DOCS but for complexity and history.
#[test]
fn commands_are_documented_as_in_redis() {
    let directories = [harness::folder(), harness::folder()];
    let ours = start(rsedis_program(), directories[0].path(), &[]);
    let theirs = start(&redis_program("redis-server"), directories[1].path(), &[]);
    let (mut ours, mut theirs) = (ours.client(), theirs.client());
    for client in [&mut ours, &mut theirs] {
        assert!(client.call("HELLO 3").starts_with('%'));
    }
    for command in rsedis::command::all() {
        let question: [&[u8]; 3] = [b"COMMAND", b"DOCS", command.name.as_bytes()];
        let fields = |reply: Vec<u8>| -> Vec<Vec<u8>> {
            let docs = elements(&reply)[1].to_vec();
            let fields = elements(&docs);
            let untold: [&[u8]; 3] = [b"$10\r\ncomplexity\r\n", b"$7\r\nhistory\r\n", b"$11\r\nsubcommands\r\n"];
            let told = fields.chunks(2).filter(|pair| !untold.contains(&pair[0]));
            told.map(|pair| pair.concat()).collect()
        };
        let (mine, other) = (ours.try_call(&question).unwrap(), theirs.try_call(&question).unwrap());
        let text = |fields: Vec<Vec<u8>>| String::from_utf8_lossy(&fields.concat()).into_owned();
        assert_eq!(text(fields(mine)), text(fields(other)), "{}", command.name);
    }
}

/// Values of every type go to the other server by DUMP and RESTORE, both ways, and keep their digests; whole files are read by
/// the other server as well.
#[test]
fn values_and_files_are_read_by_both() {
    let directories = [harness::folder(), harness::folder()];
    let options = ["--enable-debug-command", "yes"];
    let program = redis_program("redis-server");
    let ours = start(rsedis_program(), directories[0].path(), &options);
    let theirs = start(&program, directories[1].path(), &options);
    let (mut ours, mut theirs) = (ours.client(), theirs.client());
    let mut random = Random::new(11);
    for (group, templates) in TEMPLATES.iter().filter(|(group, _)| *group != "transactions") {
        ours.call("FLUSHALL");
        for _ in 0..300 {
            let template = random.pick(templates);
            let words = command(&mut random, template);
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            ours.try_call(&words).unwrap();
        }
        theirs.call("FLUSHALL");
        // Compressed strings may be the same in several ways.
        for client in [&mut ours, &mut theirs] {
            assert_eq!(client.call("CONFIG SET rdbcompression no"), "+OK\r\n");
        }
        let keys = ours.try_call(&[b"KEYS", b"*"]).unwrap();
        for key in elements(&keys).into_iter().map(bulk) {
            let payload = bulk(&ours.try_call(&[b"DUMP", &key]).unwrap());
            let digest = ours.try_call(&[b"DEBUG", b"DIGEST-VALUE", &key]).unwrap();
            // Digests of values tell whether they expire: that does not go along.
            ours.try_call(&[b"PERSIST", &key]).unwrap();
            let digest = match ours.try_call(&[b"DEBUG", b"DIGEST-VALUE", &key]).unwrap() {
                persisted if persisted != digest => persisted,
                _ => digest,
            };
            let restored = theirs.try_call(&[b"RESTORE", &key, b"0", &payload, b"REPLACE"]).unwrap();
            assert_eq!(restored, b"+OK\r\n", "{group}: {}", key.escape_ascii());
            assert_eq!(theirs.try_call(&[b"DEBUG", b"DIGEST-VALUE", &key]).unwrap(), digest, "{group}");
            let back = bulk(&theirs.try_call(&[b"DUMP", &key]).unwrap());
            // Both pack a small value as they load it, even one that SORT unpacked.
            let loaded = ours.try_call(&[b"RESTORE", &key, b"0", &payload, b"REPLACE"]).unwrap();
            assert_eq!(loaded, b"+OK\r\n", "{group}: {}", key.escape_ascii());
            let packed = bulk(&ours.try_call(&[b"DUMP", &key]).unwrap());
            // What has an order is the same byte for byte.
            let encoding = theirs.try_call(&[b"OBJECT", b"ENCODING", &key]).unwrap();
            if !encoding.ends_with(b"hashtable\r\n") {
                assert_eq!(back.escape_ascii().to_string(), packed.escape_ascii().to_string(), "{group}");
            }
            let restored = ours.try_call(&[b"RESTORE", &key, b"0", &back, b"REPLACE"]).unwrap();
            assert_eq!(restored, b"+OK\r\n", "{group}: {}", key.escape_ascii());
            assert_eq!(ours.try_call(&[b"DEBUG", b"DIGEST-VALUE", &key]).unwrap(), digest, "{group}");
        }
        assert_eq!(ours.call("CONFIG SET rdbcompression yes"), "+OK\r\n");
        let digest = ours.call("DEBUG DIGEST");
        assert_eq!(ours.call("SAVE"), "+OK\r\n");
        let elsewhere = harness::folder();
        std::fs::copy(directories[0].path().join("dump.rdb"), elsewhere.path().join("dump.rdb")).unwrap();
        let reader = start(&program, elsewhere.path(), &options);
        assert_eq!(reader.client().call("DEBUG DIGEST"), digest, "{group}: our file");
        assert_eq!(reader.client().call("SAVE"), "+OK\r\n");
        drop(reader);
        std::fs::remove_file(elsewhere.path().join("lock")).ok();
        let reader = start(rsedis_program(), elsewhere.path(), &options);
        assert_eq!(reader.client().call("DEBUG DIGEST"), digest, "{group}: their file");
    }
}
