//! The same random commands to rsedis and to Redis 7.0.15, replies compared byte for byte.
//!
//! What has no order (members of a set, fields of a hash) is sorted first. What is random by its nature is only asked for whole.
//! `RSEDIS_SEEDS=200 cargo test -p rsedis --test differential` tries more.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::Random;
use support::templates::{TEMPLATES, fill};
use support::{Client, elements, redis_program, rsedis_program, start};

const COMMANDS_EACH: usize = 1_000;

const UNORDERED: &[&str] =
    &["KEYS", "SMEMBERS", "SUNION", "SINTER", "SDIFF", "SPOP", "SRANDMEMBER", "HKEYS", "HVALS", "HRANDFIELD", "CONFIG"];

/// A reply in a form in which order does not count where there is none.
fn comparable(template: &str, reply: &[u8]) -> Vec<Vec<u8>> {
    let command = template.split(' ').next().unwrap();
    let parts = elements(reply);
    let is_paired = command == "HGETALL" || template.contains(" 1000 WITH");
    let size = if is_paired { 2 } else { 1 };
    let is_scan = command.ends_with("SCAN");
    if parts.is_empty() || !(size == 2 || UNORDERED.contains(&command) || is_scan) {
        return vec![reply.to_vec()];
    }
    if is_scan {
        let inner = elements(parts[1]);
        let mut found: Vec<Vec<u8>> =
            inner.chunks(if command == "SSCAN" { 1 } else { 2 }).map(<[&[u8]]>::concat).collect();
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

fn compare(ours: &mut Client, theirs: &mut Client, group: &str, templates: &[&str], seed: u64) -> usize {
    let mut random = Random::new(seed);
    let mut history: Vec<String> = Vec::new();
    for setup in ["FLUSHALL", if seed % 3 == 2 { "HELLO 3" } else { "HELLO 2" }] {
        let words: Vec<&[u8]> = setup.split(' ').map(str::as_bytes).collect();
        ours.try_call(&words).unwrap();
        theirs.try_call(&words).unwrap();
    }
    // Small tables, so that both encodings of everything are met.
    if seed % 2 == 1 {
        for name in ["hash-max-listpack-entries", "zset-max-listpack-entries", "set-max-intset-entries"] {
            assert_eq!(ours.call(&format!("CONFIG SET {name} 4")), theirs.call(&format!("CONFIG SET {name} 4")));
        }
    }
    for _ in 0..COMMANDS_EACH {
        let template = random.pick(templates);
        let words: Vec<Vec<u8>> = template.split(' ').map(|word| fill(&mut random, word)).collect();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let shown: Vec<String> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
        history.push(shown.join(" "));
        let (mine, other) = (ours.try_call(&words).unwrap(), theirs.try_call(&words).unwrap());
        if comparable(template, &mine) != comparable(template, &other) {
            let last = history.split_off(history.len().saturating_sub(15));
            panic!(
                "{group}, seed {seed}:\n{}\nrsedis: {}\nredis:  {}",
                last.join("\n"),
                mine.escape_ascii(),
                other.escape_ascii()
            );
        }
    }
    for client in [ours, theirs] {
        client.call("DISCARD");
        for (name, value) in
            [("hash-max-listpack-entries", 512), ("zset-max-listpack-entries", 128), ("set-max-intset-entries", 512)]
        {
            assert_eq!(client.call(&format!("CONFIG SET {name} {value}")), "+OK\r\n");
        }
    }
    COMMANDS_EACH
}

#[test]
fn random_commands_have_the_replies_of_redis() {
    let seeds: u64 = std::env::var("RSEDIS_SEEDS").map_or(2, |text| text.parse().unwrap());
    let directories = [harness::folder(), harness::folder()];
    let options = ["--enable-debug-command", "yes"];
    let ours = start(rsedis_program(), directories[0].path(), &options);
    let theirs = start(&redis_program("redis-server"), directories[1].path(), &options);
    let mut compared = 0;
    let mut failures = Vec::new();
    for (group, templates) in TEMPLATES {
        for seed in 0..seeds {
            let run = std::panic::catch_unwind(|| {
                compare(&mut ours.client(), &mut theirs.client(), group, templates, seed + 1)
            });
            match run {
                Ok(count) => compared += count,
                Err(error) => {
                    failures.push(error.downcast_ref::<String>().cloned().unwrap_or_default());
                    break;
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} groups differ:\n\n{}", failures.len(), failures.join("\n\n"));
    assert_eq!(compared, TEMPLATES.len() * seeds as usize * COMMANDS_EACH);
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
            let words: Vec<Vec<u8>> = template.split(' ').map(|word| fill(&mut random, word)).collect();
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            ours.try_call(&words).unwrap();
        }
        theirs.call("FLUSHALL");
        // Compressed strings may be the same in several ways.
        for client in [&mut ours, &mut theirs] {
            assert_eq!(client.call("CONFIG SET rdbcompression no"), "+OK\r\n");
        }
        let keys = ours.try_call(&[b"KEYS", b"*"]).unwrap();
        let bulk =
            |reply: &[u8]| reply.splitn(2, |byte| *byte == b'\n').nth(1).map(|rest| rest[..rest.len() - 2].to_vec());
        for key in elements(&keys) {
            let key = bulk(key).unwrap();
            let payload = bulk(&ours.try_call(&[b"DUMP", &key]).unwrap()).unwrap();
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
            let back = bulk(&theirs.try_call(&[b"DUMP", &key]).unwrap()).unwrap();
            // What has an order is the same byte for byte.
            let encoding = theirs.try_call(&[b"OBJECT", b"ENCODING", &key]).unwrap();
            if !encoding.ends_with(b"hashtable\r\n") {
                assert_eq!(back.escape_ascii().to_string(), payload.escape_ascii().to_string(), "{group}");
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
