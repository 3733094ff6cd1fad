//! Scripts whose values are many: what they return, and what libraries give them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use rsedis::command;
use rsedis::protocol::request::OwnedArgs;
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
