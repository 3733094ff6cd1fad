//! Random commands that are about more than keys: scripts, functions, users.

use harness::Random;

use super::edges::edges;
use super::surroundings::SURROUNDINGS;
use super::templates::{self, TEMPLATES};

/// All groups; the last one is every command with whatever arguments. Further words: `U` a user, `R` a rule, `A` a library, and scripts, which begin with `@`.
pub fn groups() -> Vec<(&'static str, Vec<String>)> {
    let within: Vec<String> = ["@call", "@pcall", "@resp3"]
        .iter()
        .flat_map(|script| {
            let groups = TEMPLATES.iter().filter(|(group, _)| *group != "transactions");
            // Ranges of members have a meaning among equal scores alone; and what has expired counts until it is looked at. Any score may
            // be a place here, as 0 and 2^53 are, at longitudes -180 and 180: that these are near each other Redis does not find.
            let is_meant = |text: &&&str| {
                let around_a_member = text.contains(" FROMMEMBER M ") || text.starts_with("GEORADIUSBYMEMBER");
                !text.starts_with("ZADD Y N") && !text.starts_with("DBSIZE") && !around_a_member
            };
            let templates = groups.flat_map(|(_, templates)| *templates).filter(is_meant);
            templates.map(move |template| format!("EVAL {script} 0 {template}"))
        })
        .collect();
    let mut groups = vec![("scripts", within)];
    let lists = [OTHERS, TEMPLATES, SURROUNDINGS].concat();
    groups.extend(lists.iter().map(|(group, templates)| (*group, templates.iter().map(|&text| text.into()).collect())));
    groups.push(("edges", edges()));
    groups
}

const OTHERS: &[(&str, &[&str])] = &[
    (
        "libraries of scripts",
        &[
            "SET S V",
            "SET S F",
            "RPUSH L V I V F",
            "HSET H M V M I",
            "ZADD Z F M",
            "EVAL @json 0 GET S",
            "EVAL @json 0 LRANGE L 0 -1",
            "EVAL @json 0 ZRANGE Z 0 -1 WITHSCORES",
            "EVAL @json 0 STRLEN S",
            "EVAL @again 0 GET S",
            "EVAL @again 0 LRANGE L 0 -1",
            "EVAL @again 0 ZRANGE Z 0 -1 WITHSCORES",
            "EVAL @pack 0 GET S",
            "EVAL @pack 0 LRANGE L 0 -1",
            "EVAL @pack 0 LLEN L",
            "EVAL @unpack 0 LRANGE L 0 -1",
            "EVAL @number 0 V",
            "EVAL @number 0 F",
            "EVAL @number 0 I",
            "EVAL @packed 0 F",
            "EVAL @packed 0 I",
            "EVAL @read 0 V",
            "EVAL @read 0 F",
            "EVAL @keys 2 S L V",
            "EVAL @keys 1 S",
            "EVAL @keys N S L V",
            "EVAL @keys -1 S",
            "EVAL @keys x S",
            "EVAL @error 0 M",
            "EVAL @wrong 0",
            "EVAL_RO @call 0 SET S V",
            "EVAL_RO @call 0 GET S",
            "EVALSHA 0123456789012345678901234567890123456789 0",
            "SCRIPT EXISTS 0123456789012345678901234567890123456789",
            "EVALSHA_RO 0123456789012345678901234567890123456789 0",
            "EVALSHA x 0",
            "EVALSHA @sha 0 GET S",
            "EVALSHA @sha 0 SET S V",
            "EVALSHA_RO @sha 0 GET S",
            "EVALSHA_RO @sha 0 SET S V",
            "SCRIPT LOAD @wrong",
            "SCRIPT LOAD @call",
            "SCRIPT FLUSH",
            "SCRIPT FLUSH ASYNC",
            "SCRIPT FLUSH FOO",
            "SCRIPT KILL",
            "SCRIPT DEBUG NO",
            "SCRIPT DEBUG x",
            "SCRIPT HELP",
            "SCRIPT FOO",
        ],
    ),
    (
        "functions",
        &[
            "FUNCTION LOAD A",
            "FUNCTION LOAD REPLACE A",
            "FUNCTION LOAD FOO A",
            "FUNCTION DELETE lib1",
            "FUNCTION DELETE lib2",
            "FCALL f 1 S V",
            "FCALL g 1 S V",
            "FCALL f 1 L",
            "FCALL g N S L V",
            "FCALL h 0 M",
            "FCALL f x S",
            "FCALL f -1 S",
            "FCALL_RO f 1 S V",
            "FCALL_RO g 1 S",
            "FUNCTION LIST LIBRARYNAME lib1",
            "FUNCTION LIST WITHCODE LIBRARYNAME lib2",
            "FUNCTION LIST LIBRARYNAME nolib",
            "FUNCTION LIST FOO",
            "FUNCTION STATS",
            "FUNCTION RESTORE V",
            "FUNCTION RESTORE V FOO",
            "FUNCTION DUMP",
            "FUNCTION FLUSH FOO",
            "FUNCTION FLUSH ASYNC",
            "FUNCTION HELP",
            "FUNCTION KILL",
            "GET S",
        ],
    ),
    (
        "users",
        &[
            "ACL SETUSER U R",
            "ACL SETUSER U R R",
            "ACL SETUSER U R R R",
            "ACL SETUSER U R R R R",
            "ACL GETUSER U",
            "ACL LIST",
            "ACL USERS",
            "ACL DELUSER U",
            "ACL DELUSER default",
            "ACL DRYRUN U GET S",
            "ACL DRYRUN U SET S V",
            "ACL DRYRUN U SET S V GET",
            "ACL DRYRUN U MSET S V L V",
            "ACL DRYRUN U LMOVE L S LEFT RIGHT",
            "ACL DRYRUN U SORT L BY w* STORE S",
            "ACL DRYRUN U CONFIG GET x",
            "ACL DRYRUN U CONFIG SET x y",
            "ACL DRYRUN U SELECT 1",
            "ACL DRYRUN U PING",
            "ACL DRYRUN U PUBLISH ch:1 x",
            "ACL DRYRUN U SUBSCRIBE ch:1 dh:2",
            "ACL DRYRUN U PSUBSCRIBE ch:*",
            "ACL DRYRUN U EVAL x 1 S",
            "ACL DRYRUN U FOO",
            "ACL DRYRUN U GET",
            "ACL CAT foo",
            "ACL WHOAMI",
            "ACL GENPASS x",
            "ACL GENPASS 0",
            "ACL SAVE",
            "ACL FOO",
        ],
    ),
];

const RULES: &[&str] = &[
    "on",
    "off",
    "nopass",
    ">secret",
    ">other",
    "<secret",
    "#2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b",
    "!2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b",
    "#2bb8",
    "resetpass",
    "+@all",
    "-@all",
    "allcommands",
    "nocommands",
    "+@read",
    "-@read",
    "+@write",
    "-@write",
    "+@string",
    "-@dangerous",
    "+@pubsub",
    "+@foo",
    "+get",
    "-get",
    "+set",
    "-set",
    "+config",
    "-config",
    "+config|get",
    "-config|get",
    "+config|set",
    "+config|foo",
    "+config|get|x",
    "+select|1",
    "-select|1",
    "+select",
    "+foo",
    "~*",
    "~s:*",
    "~l:[12]",
    "%R~s:*",
    "%W~l:*",
    "%RW~s:*",
    "%WR~l:*",
    "%~s",
    "%X~s",
    "%R",
    "allkeys",
    "resetkeys",
    "&*",
    "&ch:*",
    "allchannels",
    "resetchannels",
    "(+get ~s:*)",
    "(+@all %R~*)",
    "(-@all +set %W~s:* &ch:*)",
    "()",
    "(+get",
    "(+set",
    "~s:*)",
    "(",
    "(on)",
    "clearselectors",
    "reset",
    "sanitize-payload",
    "skip-sanitize-payload",
    "foo",
    "~a\0b",
    "%R~\u{e4}",
    "+get\0",
    "",
];

const LIBRARIES: &[&str] = &[
    "#!lua name=lib1\nredis.register_function('f', function(k, a) return redis.call('SET', k[1], a[1]) end)",
    "#!lua name=lib1\nredis.register_function('g', function(k, a) return {#k, #a, k[1], a[1] or false, {ok = 'y'}} end)",
    "#!lua name=lib2\nredis.register_function{function_name='g', description='about', callback=function(k) \
     return redis.call('GET', k[1]) end, flags={'no-writes'}}",
    "#!lua name=lib2\nredis.register_function{function_name='h', callback=function(k, a) return redis.error_reply(a[1]) end, \
     flags={'no-writes', 'allow-oom'}}",
    "#!lua name=lib2\nredis.register_function{function_name='h', flags={'foo'}, callback=function() end}",
    "#!lua name=lib2\nredis.register_function{callback=function() end}",
    "#!lua name=lib2\nredis.register_function('f')",
    "#!lua name=lib2\nredis.register_function('a b', function() end)",
    "#!lua name=lib1\nlocal x = 1",
    "#!lua name=lib1\nfoo(",
    "#!lua name=lib1\nerror('why')",
    "#!lua name=lib1\nredis.call('SET', 'a', 'b')",
    "#!lua name=lib1\ny = 1",
    "#!lua name=li-b\nlocal x = 1",
    "#!lua name=lib1 foo=bar\nlocal x = 1",
    "#!lua foo\n",
    "#!lua\n",
    "#!js name=lib1\n",
    "return 1",
    "",
];

const SCRIPTS: &[(&str, &str)] = &[
    ("@call", "return redis.call(unpack(ARGV))"),
    ("@pcall", "return redis.pcall(unpack(ARGV))"),
    ("@resp3", "redis.setresp(3) return redis.call(unpack(ARGV))"),
    ("@json", "return cjson.encode(redis.call(unpack(ARGV)))"),
    ("@again", "return cjson.encode(cjson.decode(cjson.encode(redis.call(unpack(ARGV)))))"),
    ("@pack", "return cmsgpack.pack(redis.call(unpack(ARGV)))"),
    ("@unpack", "return cmsgpack.unpack(cmsgpack.pack(redis.call(unpack(ARGV))))"),
    ("@number", "local n = tonumber(ARGV[1]) return {tostring(n), n or false, type(n), cjson.encode({n})}"),
    ("@packed", "local n = tonumber(ARGV[1]) or 0 return {cmsgpack.pack(n), struct.pack('>d<l', n, n)}"),
    ("@read", "return {pcall(cjson.decode, ARGV[1])}"),
    ("@keys", "return {#KEYS, #ARGV, KEYS[1] or false, ARGV[1] or false}"),
    ("@error", "return redis.error_reply(ARGV[1])"),
    ("@wrong", "return redis.call('GET'"),
    // That of `@call`.
    ("@sha", "3c44b7a40779a5c68a6e3920550ff76660a813aa"),
];

/// A word of a template, filled in.
pub fn fill(random: &mut Random, word: &str) -> Vec<u8> {
    if let Some((_, script)) = SCRIPTS.iter().find(|(name, _)| *name == word) {
        return script.as_bytes().to_vec();
    }
    match word {
        "U" => format!("u:{}", 1 + random.index(3)).into_bytes(),
        "R" => random.pick(RULES).as_bytes().to_vec(),
        "A" => random.pick(LIBRARIES).as_bytes().to_vec(),
        other => templates::fill(random, other),
    }
}
