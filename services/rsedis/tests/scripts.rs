//! Scripts whose values are many: what they return, and what libraries give them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use rsedis::command;
use rsedis::protocol::OwnedArgs;
use rsedis::server::Server;
use rsedis::session::Session;
use rsedis::settings::Settings;

/// More than Lua takes on its stack.
const MANY: usize = 20_000;

fn eval(script: &str, is_resp3: bool) -> String {
    let mut server = Server::new(Settings::default(), 1_700_000_000_000, 7);
    let mut client = Session { is_authenticated: true, may_all: true, ..Session::default() };
    client.reply.is_resp3 = is_resp3;
    let args = OwnedArgs::new([b"EVAL".as_slice(), script.as_bytes(), b"0"]);
    command::execute(&mut server, &mut client, args.as_args());
    String::from_utf8(client.reply.bytes).unwrap()
}

#[test]
fn a_reply_of_many_strings_is_cut() {
    let script = format!("local t = {{}} for i = 1, {MANY} do t[i] = tostring(i) end");
    let elements: String = (1..=MANY)
        .map(|number| number.to_string())
        .fold(String::new(), |text, number| format!("{text}${}\r\n{number}\r\n", number.len()));
    let whole = format!("*{MANY}\r\n{elements}");
    for (end, expected) in
        [("return t", whole.clone()), ("return {'x', t, {}}", format!("*3\r\n$1\r\nx\r\n{whole}*0\r\n"))]
    {
        let reply = eval(&format!("{script} {end}"), false);
        assert!(reply == expected, "{end}: {} bytes, {}", reply.len(), reply.lines().next().unwrap_or_default());
    }
}

#[test]
fn a_map_or_a_set_of_many_strings_is_cut() {
    let script = format!("local t = {{}} for i = 1, {MANY} do t['k' .. i] = 'v' .. i end");
    for (kind, head, lines) in [("map", '%', 4), ("set", '~', 2)] {
        let reply = eval(&format!("redis.setresp(3) {script} return {{{kind} = t}}"), true);
        assert_eq!(reply.lines().next().unwrap(), format!("{head}{MANY}"), "{kind}");
        assert_eq!(reply.lines().count(), 1 + MANY * lines, "{kind}");
    }
    let reply = eval(&format!("redis.setresp(3) {script} return {{map = t}}"), false);
    assert_eq!(reply.lines().next().unwrap(), format!("*{}", MANY * 2));
}

#[test]
fn a_library_gives_more_values_than_lua_takes() {
    for (call, many, few) in [
        (
            "cmsgpack.unpack(string.rep('\\192', n))",
            "too many return values at once; use unpack_one or unpack_limit instead.",
            7_000,
        ),
        (
            "cmsgpack.unpack_limit(string.rep('\\192', n), n)",
            "too many return values at once; use unpack_one or unpack_limit instead.",
            7_000,
        ),
        ("struct.unpack(string.rep('b', n), string.rep('x', n))", "too many results", 7_000),
    ] {
        let script = |count: usize| format!("local n = {count} return select('#', {call})");
        let reply = eval(&script(few), false);
        assert!(reply.starts_with(":70"), "{call}: {reply}");
        let reply = eval(&script(60_000), false);
        assert!(reply.starts_with('-') && reply.contains(&format!("stack overflow ({many})")), "{call}: {reply}");
    }
}

/// They are looked at one after the other.
/// Of values that Rust holds Lua has room for some thousands.
#[test]
fn scripts_and_functions_may_be_more_than_lua_takes() {
    let mut server = Server::new(Settings::default(), 1_700_000_000_000, 7);
    let mut call = |words: &[&[u8]]| {
        let mut client = Session { is_authenticated: true, may_all: true, ..Session::default() };
        command::execute(&mut server, &mut client, OwnedArgs::new(words.iter().copied()).as_args());
        String::from_utf8(client.reply.bytes).unwrap()
    };
    for number in 0..MANY {
        let reply = call(&[b"EVAL", format!("return {number}").as_bytes(), b"0"]);
        assert_eq!(reply, format!(":{number}\r\n"));
    }
    let code =
        format!("#!lua name=many\nfor i = 1, {MANY} do redis.register_function('F' .. i, function() return i end) end");
    assert_eq!(call(&[b"FUNCTION", b"LOAD", code.as_bytes()]), "$4\r\nmany\r\n");
    assert_eq!(call(&[b"FCALL", format!("f{MANY}").as_bytes(), b"0"]), format!(":{MANY}\r\n"));
    for number in 0..100 {
        let code = format!("#!lua name=l{number}\nredis.register_function('g{number}', function() return 1 end)");
        assert_eq!(call(&[b"FUNCTION", b"LOAD", code.as_bytes()]).lines().count(), 2);
    }
    assert_eq!(call(&[b"FCALL", b"g1", b"0"]), ":1\r\n");
    assert_eq!(call(&[b"EVAL", b"return 0", b"0"]), ":0\r\n");
    let replaced = b"#!lua name=many\nredis.register_function('f1', function() return 'new' end)";
    assert_eq!(call(&[b"FUNCTION", b"LOAD", b"REPLACE", replaced]), "$4\r\nmany\r\n");
    assert_eq!(call(&[b"FCALL", b"F1", b"0"]), "$3\r\nnew\r\n");
    assert_eq!(call(&[b"FCALL", b"f2", b"0"]), "-ERR Function not found\r\n");
    assert_eq!(call(&[b"SCRIPT", b"FLUSH"]), "+OK\r\n");
    assert_eq!(call(&[b"FUNCTION", b"DELETE", b"many"]), "+OK\r\n");
    assert_eq!(call(&[b"FCALL", b"f1", b"0"]), "-ERR Function not found\r\n");
    assert!(call(&[b"EVALSHA", b"06d3d9b2060dd51343d5f19f0e531f15c507e3d1", b"0"]).starts_with("-NOSCRIPT"));
}

#[test]
fn a_format_may_have_millions_of_fields() {
    let reply = eval("return struct.size(string.rep('x', 3000000))", false);
    assert_eq!(reply, ":3000000\r\n");
    let reply = eval("return #struct.pack(string.rep('x', 3000000))", false);
    assert_eq!(reply, ":3000000\r\n");
}

/// As on x86, where Redis's cast leaves the least of all numbers of what has no place among them.
#[test]
fn a_number_is_what_redis_makes_of_it() {
    for (script, expected) in [
        ("return {double = 3}", "$1\r\n3\r\n"),
        ("return {double = 3.5}", "$3\r\n3.5\r\n"),
        ("return {double = 2^70}", "$22\r\n1.1805916207174113e+21\r\n"),
        ("redis.call('zadd', 'z', 3, 'm') redis.setresp(3) return redis.call('zscore', 'z', 'm')", "$1\r\n3\r\n"),
        ("return 2^63", ":-9223372036854775808\r\n"),
        ("return -2^63", ":-9223372036854775808\r\n"),
        ("return 1e300", ":-9223372036854775808\r\n"),
        ("return 0/0", ":-9223372036854775808\r\n"),
        ("return math.huge", ":-9223372036854775808\r\n"),
        ("return cjson.decode('[NaN]')[1]", ":-9223372036854775808\r\n"),
        ("return -1.99", ":-1\r\n"),
        ("return redis.call('echo', 1e16)", "$17\r\n10000000000000000\r\n"),
        ("return redis.call('echo', 1e17)", "$5\r\n1e+17\r\n"),
        ("return redis.call('echo', -123456789012345678)", "$23\r\n-1.2345678901234568e+17\r\n"),
        ("return redis.call('echo', 2^63)", "$22\r\n9.2233720368547758e+18\r\n"),
        ("return redis.call('echo', 0/0)", "$4\r\n-nan\r\n"),
        (
            "return {bit.tobit(1e300), bit.tobit(1.5), bit.tobit(2.5), bit.lshift(1, 33.5)}",
            "*4\r\n:-2013235812\r\n:2\r\n:2\r\n:4\r\n",
        ),
    ] {
        assert_eq!(eval(script, false), expected, "{script}");
    }
    assert_eq!(eval("return {double = 3}", true), ",3\r\n");
    let score = "redis.call('zadd', 'z', 3, 'm') redis.setresp(3) return redis.call('zscore', 'z', 'm')";
    assert_eq!(eval(score, true), ",3\r\n");
}

#[test]
fn what_struct_packs_is_aligned_and_refused_as_by_redis() {
    let hexadecimal = "local function hex(text) \
                       return (text:gsub('.', function(c) return ('%02x'):format(c:byte()) end)) end ";
    for (script, expected) in [
        ("return hex(struct.pack('!4bi', 1, 2))", "$16\r\n0100000002000000\r\n"),
        ("return hex(struct.pack('>!bd', 1, 1))", "$32\r\n01000000000000003ff0000000000000\r\n"),
        ("return hex(struct.pack('bi', 1, '2'))", "$10\r\n0102000000\r\n"),
        ("return hex(struct.pack('i16', -1))", "$32\r\nffffffffffffffff0000000000000000\r\n"),
        ("return hex(struct.pack('L', 2^63))", "$16\r\n0000000000000080\r\n"),
        ("return hex(struct.pack('L', 2^64))", "$16\r\n0000000000000000\r\n"),
        ("return hex(struct.pack('l', 0/0))", "$16\r\n0000000000000080\r\n"),
        ("return hex(struct.pack('s', 12))", "$6\r\n313200\r\n"),
        ("return {struct.unpack('!4bi', struct.pack('!4bi', 1, 2))}", "*3\r\n:1\r\n:2\r\n:9\r\n"),
        ("return {struct.unpack('!bs>h', struct.pack('!bs>h', 1, 'ab', -3))}", "*4\r\n:1\r\n$2\r\nab\r\n:-3\r\n:7\r\n"),
        ("return {struct.unpack('bc0', string.char(3) .. 'abcd')}", "*2\r\n$3\r\nabc\r\n:5\r\n"),
        ("return {struct.unpack('i16', struct.pack('i16', -7))}", "*2\r\n:-7\r\n:17\r\n"),
        ("return {struct.unpack('i9', '123456789')}", "*2\r\n:-79\r\n:10\r\n"),
        ("return {struct.unpack('>fd', struct.pack('>fd', 1.5, -2))}", "*3\r\n:1\r\n:-2\r\n:13\r\n"),
        ("return struct.size('!bl')", ":16\r\n"),
        ("return struct.size('!8ihl')", ":16\r\n"),
        ("return struct.size('b4')", ":1\r\n"),
        ("return struct.size('=i')", "bad argument #1 to 'size' (invalid format option '=')"),
        ("return struct.size('s')", "bad argument #1 to 'size' (option 's' has no fixed size)"),
        ("return struct.size('c0')", "bad argument #1 to 'size' (option 'c0' has no fixed size)"),
        ("return struct.size('!3i')", "alignment 3 is not a power of 2"),
        ("return struct.size('i33')", "integral size 33 is larger than limit of 32"),
        ("return struct.size('c99999999999')", "integral size overflow"),
        ("return struct.size()", "bad argument #1 to 'size' (string expected, got no value)"),
        ("return struct.pack('i', 'x')", "bad argument #2 to 'pack' (number expected, got string)"),
        ("return struct.pack('ii', 1)", "bad argument #3 to 'pack' (number expected, got nil)"),
        ("return struct.pack('s', {})", "bad argument #2 to 'pack' (string expected, got table)"),
        ("return struct.pack('c4', 'abc')", "bad argument #3 to 'pack' (string too short)"),
        ("return struct.unpack('i', 'abc')", "bad argument #2 to 'unpack' (data string too short)"),
        ("return struct.unpack('i', 'abcd', 0)", "bad argument #3 to 'unpack' (offset must be 1 or greater)"),
        ("return struct.unpack('c0', 'abcd')", "format 'c0' needs a previous size"),
        ("return struct.unpack('s', 'abcd')", "unfinished string in data"),
    ] {
        let reply = eval(&format!("{hexadecimal}{script}"), false);
        match reply.strip_prefix("-ERR user_script:1: ") {
            Some(problem) => assert!(problem.starts_with(&format!("{expected} script: ")), "{script}: {reply}"),
            None => assert_eq!(reply, expected, "{script}"),
        }
    }
}

#[test]
fn random_numbers_are_those_of_redis() {
    for (script, expected) in [
        (
            "math.randomseed(5) return {math.random(100), math.random(100), math.random(100)}",
            "*3\r\n:53\r\n:28\r\n:79\r\n",
        ),
        ("math.randomseed(5) return tostring(math.random())", "$16\r\n0.52483957937213\r\n"),
        ("math.randomseed(-5) return math.random(1, 1000)", ":817\r\n"),
        ("math.randomseed(2^40) return math.random(1, 1000)", ":171\r\n"),
        ("math.randomseed('7') return math.random(-5, 1000)", ":263\r\n"),
        ("return math.random(0)", "bad argument #1 to 'random' (interval is empty)"),
        ("return math.random(5, 1)", "bad argument #2 to 'random' (interval is empty)"),
        ("return math.random('a')", "bad argument #1 to 'random' (number expected, got string)"),
        ("return math.randomseed()", "bad argument #1 to 'randomseed' (number expected, got no value)"),
        ("return math.random(1, 2, 3)", "wrong number of arguments"),
    ] {
        let reply = eval(script, false);
        match reply.strip_prefix("-ERR user_script:1: ") {
            Some(problem) => assert!(problem.starts_with(&format!("{expected} script: ")), "{script}: {reply}"),
            None => assert_eq!(reply, expected, "{script}"),
        }
    }
}

/// What it loads has the names of its script, and no others.
#[test]
fn a_script_finds_what_redis_has_and_nothing_else() {
    for (script, expected) in [
        ("return {load(function() end)() == nil, type(gcinfo())}", "*2\r\n:1\r\n$6\r\nnumber\r\n"),
        ("local i = 0 return load(function() i = i + 1 return ({'return ', '5'})[i] end)()", ":5\r\n"),
        ("return select('#', load(function() return string.char(27) end))", ":2\r\n"),
        ("return select('#', load(function() return {} end))", ":2\r\n"),
        ("return getmetatable('').__index == string", ":1\r\n"),
        ("return loadstring('return KEYS == nil')()", "$-1\r\n"),
        ("return redis.call('migrate', '127.0.0.1', 7, 'nokey', 0, 100)", "+NOKEY\r\n"),
    ] {
        assert_eq!(eval(script, false), expected, "{script}");
    }
    let missing = |source: &str, name: &str| {
        format!("-ERR {source}:1: Script attempted to access nonexistent global variable '{name}' script: ")
    };
    for (script, expected) in [
        ("return os", missing("user_script", "os")),
        ("return loadstring('return os.execute')()", missing("[string \"return os.execute\"]", "os")),
        (
            "local i = 0 return load(function() i = i + 1 return ({'return io'})[i] end, 'n')()",
            missing("[string \"n\"]", "io"),
        ),
        (
            "return loadstring('x = 1')()",
            "-ERR [string \"x = 1\"]:1: Attempt to modify a readonly table script: ".to_owned(),
        ),
        ("getmetatable('').__index = 1", "-ERR user_script:1: Attempt to modify a readonly table script: ".to_owned()),
        (
            "getmetatable('').__index.x = 1",
            "-ERR user_script:1: Attempt to modify a readonly table script: ".to_owned(),
        ),
        (
            "local callback = load('x') return callback",
            "-ERR user_script:1: bad argument #1 to 'load' (function expected, got string)".to_owned(),
        ),
    ] {
        let reply = eval(script, false);
        assert!(reply.starts_with(&expected), "{script}: {reply}");
    }
}

/// Each as Redis 7.0.15 answers.
#[test]
fn json_is_read_and_refused_as_by_lua_cjson() {
    for (text, expected) in [
        (r#"'"a\1\tb"'"#, "a\u{1}\tb"),
        (r"'[1]\0rest'", "table"),
        ("'0X1p3'", "8"),
        ("'[5.,1e400]'", "table"),
        (r#"[["\ud83d\ude00"]]"#, "\u{1f600}"),
        (r#"'{"a":1,}'"#, "Expected object key string but found T_OBJ_END at character 8"),
        ("'[1,]'", "Expected value but found T_ARR_END at character 4"),
        ("'[1 2]'", "Expected comma or array end but found T_NUMBER at character 4"),
        ("'1 2'", "Expected the end but found T_NUMBER at character 3"),
        ("'0x'", "Expected the end but found invalid token at character 2"),
        (r#"'"a'"#, "Expected value but found unexpected end of string at character 3"),
        (r#"'"a\0b"'"#, "Expected value but found unexpected end of string at character 3"),
        (r#"[["\x"]]"#, "Expected value but found invalid escape code at character 2"),
        (r#"[["\ud83d"]]"#, "Expected value but found invalid unicode escape code at character 2"),
        (r"'\0'", "Expected value but found T_END at character 1"),
    ] {
        let script = format!(
            "local _, found = pcall(cjson.decode, {text}) return type(found) == 'table' and 'table' or tostring(found)"
        );
        assert_eq!(eval(&script, false), format!("${}\r\n{expected}\r\n", expected.len()), "{text}");
    }
    for script in ["cjson.encode()", "cjson.encode(1, 2)"] {
        let reply = eval(script, false);
        assert!(reply.starts_with("-ERR user_script:1: bad argument #1 to 'encode' (expected 1 argument)"), "{reply}");
    }
}

/// With what Redis 7.0.15 lists, but for its own handler of errors, and `server`, which it does not have.
#[test]
fn what_cannot_be_written_is_listed() {
    let list = |name: &str| {
        let script = format!(
            "local t = {{}} for k in pairs({name}) do t[#t + 1] = k end table.sort(t) return table.concat(t, ' ')"
        );
        eval(&script, false).lines().nth(1).unwrap().to_owned()
    };
    let globals = "ARGV KEYS _G _VERSION assert bit cjson cmsgpack collectgarbage coroutine error gcinfo getmetatable ipairs load \
        loadstring math next pairs pcall rawequal rawget rawset redis select server setmetatable string struct table tonumber \
        tostring type unpack xpcall";
    for (name, expected) in [
        ("_G", globals),
        ("struct", "pack size unpack"),
        ("coroutine", "create resume running status wrap yield"),
        (
            "redis",
            "LOG_DEBUG LOG_NOTICE LOG_VERBOSE LOG_WARNING REDIS_VERSION REDIS_VERSION_NUM REPL_ALL REPL_AOF REPL_NONE REPL_REPLICA \
             REPL_SLAVE acl_check_cmd breakpoint call debug error_reply log pcall replicate_commands set_repl setresp sha1hex \
             status_reply",
        ),
    ] {
        assert_eq!(list(name), expected, "{name}");
    }
    for (script, expected) in [
        ("return type(next(_G)) .. type(rawget(_G, 'KEYS'))", "$11\r\nstringtable\r\n"),
        ("local _, t = pairs(_G) return tostring(rawequal(t, _G))", "$4\r\ntrue\r\n"),
        ("local _, t = pairs(_G) t.x = 1", "-ERR user_script:1: Attempt to modify a readonly table script: "),
        ("pairs(1)", "-ERR user_script:1: bad argument #1 to 'pairs' (table expected, got number) script: "),
        ("next()", "-ERR user_script:1: bad argument #1 to 'next' (table expected, got no value) script: "),
        ("local n = 0 for _, v in pairs({1, 2, x = 3}) do n = n + v end return n", ":6\r\n"),
    ] {
        let reply = eval(script, false);
        assert!(reply.starts_with(expected), "{script}: {reply}");
    }
}

/// All scripts share one collector.
#[test]
fn no_script_stops_the_collector_for_those_behind_it() {
    let mut server = Server::new(Settings::default(), 1_700_000_000_000, 7);
    let mut eval = |script: &str| {
        let mut client = Session { is_authenticated: true, may_all: true, ..Session::default() };
        command::execute(
            &mut server,
            &mut client,
            OwnedArgs::new([b"EVAL".as_slice(), script.as_bytes(), b"0"]).as_args(),
        );
        String::from_utf8(client.reply.bytes).unwrap()
    };
    for (script, expected) in [
        ("return collectgarbage('stop')", ":0\r\n"),
        ("return collectgarbage('stop\\0')", ":0\r\n"),
        ("return collectgarbage('setpause', 1000000)", ":200\r\n"),
        ("return collectgarbage('setstepmul', 1)", ":200\r\n"),
        ("return type(collectgarbage('count'))", "$6\r\nnumber\r\n"),
        ("return collectgarbage()", ":0\r\n"),
        ("return type(collectgarbage('step'))", "$7\r\nboolean\r\n"),
        (
            "local _ = collectgarbage('x')",
            "-ERR user_script:1: bad argument #1 to 'collectgarbage' (invalid option 'x') script: ",
        ),
        (
            "local _ = collectgarbage({})",
            "-ERR user_script:1: bad argument #1 to 'collectgarbage' (string expected, got table) script: ",
        ),
    ] {
        let reply = eval(script);
        assert!(reply.starts_with(expected), "{script}: {reply}");
    }
    for _ in 0..600 {
        let reply = eval("return #string.rep('x', 1000000 + math.random(9))");
        assert!(reply.starts_with(":10000"), "{reply}");
    }
    let used = eval("return collectgarbage('count')");
    assert!(used.trim_start_matches(':').trim().parse::<u64>().unwrap() < 100_000, "KiB: {used}");
}

/// Also where the call is the last of its function.
#[test]
fn what_is_refused_tells_its_script_and_line() {
    for (script, expected) in [
        ("return redis.log(1)", "redis.log() requires two arguments or more."),
        ("return redis.log('a', 'b')", "First argument must be a number (log level)."),
        ("return redis.log(9, 'b')", "Invalid debug level."),
        ("return redis.sha1hex()", "wrong number of arguments"),
        ("return redis.setresp(4)", "RESP version must be 2 or 3."),
        ("return redis.setresp()", "redis.setresp() requires one argument."),
        ("return redis.set_repl(99)", "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE."),
        ("return redis.set_repl()", "redis.set_repl() requires two arguments."),
        ("return redis.acl_check_cmd('nosuch', 'a')", "Invalid command passed to redis.acl_check_cmd()"),
        ("return redis.acl_check_cmd()", "Please specify at least one argument for this redis lib call"),
        ("return rawset(_G, 'a', 1)", "Attempt to modify a readonly table"),
        ("return rawset(redis, 'a', 1)", "Attempt to modify a readonly table"),
        ("setmetatable(_G, {})", "Attempt to modify a readonly table"),
        ("return cjson.decode('nul')", "user_script:1: Expected value but found invalid token at character 1"),
        ("return bit.band()", "user_script:1: bad argument #1 to 'band' (number expected, got no value)"),
    ] {
        let name = rsedis::scripting::name_of(script.as_bytes());
        assert_eq!(eval(script, false), format!("-ERR {expected} script: {name}, on @user_script:1.\r\n"), "{script}");
    }
    let caught = eval("return {pcall(rawset, _G, 1, 2)}", false);
    assert_eq!(caught, "*2\r\n$-1\r\n$34\r\nAttempt to modify a readonly table\r\n");
    for (script, expected) in [
        ("#!foo bar\nreturn 1", "Unexpected engine in script shebang: #!foo"),
        ("#!lua flags=allow-stale,,no-cluster\nreturn 1", "Unexpected flag in script shebang: "),
        ("#!lua flags=,\nreturn 1", "Unexpected flag in script shebang: "),
    ] {
        assert_eq!(eval(script, false), format!("-ERR {expected}\r\n"), "{script}");
    }
    assert_eq!(eval("#!lua flags=\nreturn 1", false), ":1\r\n");
}

/// A server, and what it answers a client that may do everything.
fn server() -> impl FnMut(&[&[u8]]) -> String {
    let mut server = Server::new(Settings::default(), 1_700_000_000_000, 7);
    // However slow the machine is: there is nobody who could be served meanwhile.
    let index = rsedis::settings::find(b"busy-reply-threshold").unwrap();
    server.settings.set(index, &["0".to_owned()]).unwrap();
    move |words| {
        let mut client = Session { is_authenticated: true, may_all: true, ..Session::default() };
        command::execute(&mut server, &mut client, OwnedArgs::new(words.iter().copied()).as_args());
        String::from_utf8_lossy(&client.reply.bytes).into_owned()
    }
}

/// Lua collects nothing because memory is short: what the script had would count for ever, and SCRIPT FLUSH ended the process.
#[test]
fn after_a_script_that_took_all_memory_there_is_memory_again() {
    let mut call = server();
    let known = call(&[b"SCRIPT", b"LOAD", b"return 'known'"]);
    let known = known.lines().nth(1).unwrap().to_owned();
    for (number, value) in ["string.rep('y', 1000000) .. i", "{i}"].iter().enumerate() {
        let fill = format!("local t = {{}} for i = 1, 1e9 do t[i] = {value} end");
        let reply = call(&[b"EVAL", fill.as_bytes(), b"0"]);
        assert!(reply.contains("not enough memory"), "{reply}");
        let again = format!("return {number}");
        assert_eq!(call(&[b"EVAL", again.as_bytes(), b"0"]), format!(":{number}\r\n"));
    }
    assert_eq!(call(&[b"EVALSHA", known.as_bytes(), b"0"]), "$5\r\nknown\r\n");
    assert_eq!(call(&[b"SCRIPT", b"FLUSH"]), "+OK\r\n");
    assert_eq!(call(&[b"EVAL", b"return 1", b"0"]), ":1\r\n");
}

/// What a library's own variables hold is not given back by collecting.
#[test]
fn after_a_library_that_holds_all_memory_there_is_memory_again_and_what_was_loaded() {
    let mut call = server();
    let known = call(&[b"SCRIPT", b"LOAD", b"return 'known'"]);
    let known = known.lines().nth(1).unwrap().to_owned();
    let library = "#!lua name=mine\nlocal kept = {}\n\
                   redis.register_function('fill', function() for i = 1, 1e9 do kept[i] = string.rep('y', 1000000) .. i end end)\n\
                   redis.register_function('count', function() return #kept end)";
    assert_eq!(call(&[b"FUNCTION", b"LOAD", library.as_bytes()]), "$4\r\nmine\r\n");
    let reply = call(&[b"FCALL", b"fill", b"0"]);
    assert!(reply.contains("not enough memory"), "{reply}");
    assert_eq!(call(&[b"FCALL", b"count", b"0"]), ":0\r\n");
    assert_eq!(call(&[b"EVALSHA", known.as_bytes(), b"0"]), "$5\r\nknown\r\n");
    assert_eq!(call(&[b"FUNCTION", b"FLUSH"]), "+OK\r\n");
    assert_eq!(call(&[b"EVAL", b"return 1", b"0"]), ":1\r\n");
}

/// Each such item takes a part of the stack, and there was no end to them.
#[test]
fn a_pattern_that_would_overflow_the_stack_is_refused() {
    let mut call = server();
    for item in ["a?", "a*", "a-"] {
        for script in [
            "return {string.find(text, pattern)}",
            "return {(text:match(pattern))}",
            "return (string.gsub(text, pattern, ''))",
            "for word in text:gmatch(pattern) do return word end",
        ] {
            let script =
                format!("local text, pattern = string.rep('a', 300000), string.rep('{item}', 300000) .. 'b' {script}");
            let reply = call(&[b"EVAL", script.as_bytes(), b"0"]);
            assert!(reply.contains("user_script:1: pattern too complex"), "{reply}");
        }
    }
    for (script, expected) in [
        ("return string.find(string.rep('a', 10000), string.rep('a', 9999))", ":1\r\n"),
        ("return string.find('x', string.rep('a*', 5000))", ":1\r\n"),
        ("return #string.gsub('x', string.rep('a?', 5000), 'y')", ":3\r\n"),
        ("return string.find(string.rep('*', 9999), string.rep('*', 9999), 1, true)", ":1\r\n"),
        ("return {string.gsub('hello world', 'o', '0', 1)}", "*2\r\n$11\r\nhell0 world\r\n:1\r\n"),
    ] {
        assert_eq!(call(&[b"EVAL", script.as_bytes(), b"0"]), expected, "{script}");
    }
}

/// As Lua tells it, though ours stands in between.
#[test]
fn what_strings_refuse_is_told_with_its_place_and_name() {
    let mut call = server();
    for (script, expected) in [
        ("string.find()", "user_script:1: bad argument #1 to 'find' (string expected, got no value)"),
        ("string.rep('x')", "user_script:1: bad argument #2 to 'rep' (number expected, got no value)"),
        ("table.concat({{}})", "user_script:1: invalid value (table) at index 1 in table for 'concat'"),
        ("string.match('x', '[')", "user_script:1: malformed pattern (missing ']')"),
        ("string.find('x', '(')", "user_script:1: unfinished capture"),
        ("string.gsub('x', 'x', function() error('mine', 0) end)", "mine"),
        ("string.gsub('x', 'x', function() error('mine') end)", "user_script:1: mine"),
        ("string.gsub('x', 'x', function() redis.call('nonesuch') end)", "Unknown Redis command called from script"),
    ] {
        let reply = call(&[b"EVAL", script.as_bytes(), b"0"]);
        assert!(reply.starts_with(&format!("-ERR {expected}")), "{script}: {reply}");
    }
}

#[test]
fn strings_that_memory_cannot_hold_are_refused_at_once() {
    let mut call = server();
    for text in [
        "string.rep('x', 1000000000)",
        "string.rep('xxxxxxxxxx', 60000000)",
        "table.concat({1, 2, 3, 4, 5, 6, 7}, long)",
    ] {
        // Made piece by piece each would take a second, and all of them minutes.
        let script = format!(
            "local long, failures = string.rep('x', 100000000), 0 for i = 1, 200 do if not pcall(function() return {text} end) then failures = failures + 1 end end \
             return failures"
        );
        assert_eq!(call(&[b"EVAL", script.as_bytes(), b"0"]), ":200\r\n", "{text}");
    }
}
