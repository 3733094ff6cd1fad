//! Scripts and functions in Lua 5.1: EVAL and FUNCTION.
//!
//! A script runs between two turns of the loop, alone: its commands are one step of the one total order. What it may see is in
//! `prelude.lua`; there is no way to files, to the system or to binary chunks. While one runs for longer than `busy-reply-threshold`,
//! others are answered with BUSY, and may end it.

mod call;
mod convert;
mod debugger;
mod libraries;
mod library;
mod memory;
mod problem;
mod watch;

pub use library::{Library, Registered, library_codes};

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::{Duration, Instant};

use mlua::{Function, HookTriggers, Lua, LuaOptions, LuaString, RegistryKey, StdLib, Table, Value, Variadic, VmState};
use sha1::{Digest as _, Sha1};

use crate::command;
use crate::failure::{Failure, Outcome};
use crate::log;
use crate::protocol::OwnedArgs;
use crate::server::Server;
use memory::Limit;
use problem::told;
use watch::Watch;

/// A look at the clock every so many instructions.
const HOOK_INSTRUCTIONS: u32 = 10_000;

/// What a script says of itself: `#!lua flags=no-writes`, or the flags of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// It writes nothing.
    pub no_writes: bool,
    /// It may run where memory is short.
    pub allow_oom: bool,
    /// It may run on a replica that has lost its master and shall not answer then.
    pub allow_stale: bool,
    /// It said flags at all; else it is looked at command by command.
    pub has_shebang: bool,
}

impl Flags {
    fn parse(words: impl Iterator<Item = impl AsRef<str>>) -> Result<Self, String> {
        let mut flags = Self { has_shebang: true, ..Self::default() };
        for word in words {
            match word.as_ref() {
                "no-writes" => flags.no_writes = true,
                "allow-oom" => flags.allow_oom = true,
                "allow-stale" => flags.allow_stale = true,
                "no-cluster" | "allow-cross-slot-keys" => {}
                other => return Err(other.to_owned()),
            }
        }
        Ok(flags)
    }
}

/// A script that was compiled.
struct Script {
    function: Kept,
    flags: Flags,
    /// Its text.
    body: Box<[u8]>,
}

/// A function that stays. Of values that Rust holds as such, Lua has room for some thousands: of these, for as many as there is memory for.
type Kept = Rc<RegistryKey>;

/// See the module's description.
pub struct Scripts {
    lua: Lua,
    host: Table,
    script_env: Table,
    library_env: Table,
    compile: Function,
    run: Function,
    load: Function,
    /// Lets go of the last script's keys and arguments.
    forget: Function,
    has_deprecated: bool,
    /// More than this in Lua between two calls is looked at.
    tidy_bytes: usize,
    scripts: HashMap<String, Script>,
    /// By name.
    pub libraries: BTreeMap<String, Library>,
    /// By name in small letters, of all libraries.
    pub functions: HashMap<String, Registered>,
    /// What runs has run for too long.
    is_over: Rc<Cell<bool>>,
    /// Looks at the clock while it runs.
    watch: watch::Watched,
    /// What the script that runs asks for.
    asked: problem::Asked,
    /// Stops the script that runs.
    debugger: debugger::Debugger,
}

impl std::fmt::Debug for Scripts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Scripts").field("scripts", &self.scripts.len()).finish_non_exhaustive()
    }
}

/// Hexadecimal digits of a script's name.
pub const NAME_LENGTH: usize = 40;

/// How a script is known: [`NAME_LENGTH`] hexadecimal digits.
pub fn name_of(body: &[u8]) -> String {
    Sha1::digest(body).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Names and values.
type Pairs = Vec<(String, String)>;

/// `#!lua name=x flags=a,b`: the pairs; and the rest of the text, with the line left in its place.
fn shebang(body: &[u8]) -> Result<(Pairs, &[u8]), String> {
    if !body.starts_with(b"#!") {
        return Ok((Vec::new(), body));
    }
    let end = memchr::memchr(b'\n', body).ok_or("Invalid script shebang")?;
    let line = String::from_utf8_lossy(&body[2..end]).into_owned();
    let (engine, options) = line.split_once(' ').unwrap_or((line.as_str(), ""));
    let mut pairs = vec![("engine".to_owned(), engine.trim().to_owned())];
    for word in options.split_whitespace() {
        let (name, value) = word.split_once('=').ok_or_else(|| format!("Unknown lua shebang option: {word}"))?;
        pairs.push((name.to_owned(), value.trim_matches('"').to_owned()));
    }
    Ok((pairs, &body[end..]))
}

impl Scripts {
    /// An engine without scripts. `has_deprecated`: they find `getfenv`, `setfenv` and `newproxy`, which lead out of the sandbox
    /// (`lua-enable-deprecated-api`). Errors: Lua's own, if there is no memory.
    pub fn new(has_deprecated: bool) -> Result<Self, String> {
        Self::try_new(has_deprecated).map_err(|error| format!("Lua: {}", told(&error)))
    }

    fn try_new(has_deprecated: bool) -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        memory::limit(&lua, Limit::Own)?;
        let host = lua.create_table()?;
        libraries::add(&lua, &host)?;
        host.raw_set("has_deprecated", has_deprecated)?;
        host.raw_set("version", crate::REDIS_VERSION)?;
        host.raw_set("version_number", 0x0007_000F)?;
        host.raw_set("sha1hex", lua.create_function(|_, text: LuaString| Ok(name_of(&text.as_bytes())))?)?;
        let is_command = lua.create_function(|_, words: Variadic<Value>| {
            let words: Option<Vec<Vec<u8>>> = words.iter().map(convert::to_argument).collect();
            let words = words.unwrap_or_default();
            let args = OwnedArgs::new(words.iter().map(Vec::as_slice));
            Ok(!words.is_empty() && command::resolve(args.as_args()).is_ok())
        })?;
        host.raw_set("is_command", is_command)?;
        let log = lua.create_function(|_, (level, text): (f64, LuaString)| {
            let text = text.to_string_lossy();
            log::at(level.clamp(0.0, 3.0) as usize, text);
            Ok(())
        })?;
        host.raw_set("log", log)?;
        let is_over = Rc::new(Cell::new(false));
        let ends = Rc::clone(&is_over);
        host.raw_set("is_over", lua.create_function(move |_, ()| Ok(ends.get()))?)?;
        let watch = watch::Watched::default();
        host.raw_set("look", watch::looking(&lua, &watch)?)?;
        host.raw_set("memory_bytes_max", memory::MEMORY_BYTES_MAX)?;
        let asked = problem::Asked::default();
        host.raw_set("call", problem::caller(&lua, &host, &asked, true)?)?;
        host.raw_set("pcall", problem::caller(&lua, &host, &asked, false)?)?;
        host.raw_set("plain", lua.create_function(problem::plain)?)?;
        host.raw_set("origin", lua.create_function(problem::origin)?)?;
        host.raw_set("raising", lua.create_function(problem::raising)?)?;
        let debugger = debugger::Debugger::default();
        let stops = debugger.clone();
        host.raw_set("breakpoint", lua.create_function(move |_, ()| Ok(stops.ask_for_break()))?)?;
        let shows = debugger.clone();
        let debug = lua.create_function(move |_, values: Variadic<Value>| {
            shows.note_values(&values);
            Ok(())
        })?;
        host.raw_set("debug", debug)?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name("=prelude");
        let parts: Table = prelude.call((host.clone(), ()))?;
        Ok(Self {
            script_env: parts.raw_get("script_env")?,
            library_env: parts.raw_get("library_env")?,
            compile: parts.raw_get("compile")?,
            run: parts.raw_get("run")?,
            load: parts.raw_get("load")?,
            forget: parts.raw_get("forget")?,
            has_deprecated,
            tidy_bytes: memory::TIDY_BYTES,
            host,
            lua,
            scripts: HashMap::new(),
            libraries: BTreeMap::new(),
            functions: HashMap::new(),
            is_over,
            watch,
            asked,
            debugger,
        })
    }

    /// Scripts that were compiled.
    pub fn len(&self) -> usize {
        self.scripts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.scripts.is_empty()
    }

    /// Whether a script is known by its name.
    pub fn has(&self, name: &str) -> bool {
        self.scripts.contains_key(name)
    }

    /// What a script says of itself.
    pub fn flags(&self, name: &str) -> Option<Flags> {
        self.scripts.get(name).map(|script| script.flags)
    }

    /// Forgets all scripts.
    pub fn flush(&mut self) {
        self.scripts.clear();
        self.expire();
    }

    /// Compiles a script; its name.
    pub fn compile(&mut self, body: &[u8]) -> Result<String, Failure> {
        let name = name_of(body);
        if self.has(&name) {
            return Ok(name);
        }
        let wrong = |text: String| Failure::text(format!("ERR {text}"));
        let engine = body.strip_prefix(b"#!").and_then(|rest| rest.split(u8::is_ascii_whitespace).next());
        if let Some(engine) = engine.filter(|engine| *engine != b"lua" && body.contains(&b'\n')) {
            return Err(Failure::joined(&[b"ERR Unexpected engine in script shebang: #!", engine]));
        }
        let (pairs, text) = shebang(body).map_err(wrong)?;
        let mut flags = Flags::default();
        for (key, value) in pairs {
            match key.as_str() {
                "engine" => flags.has_shebang = true,
                "flags" => {
                    let words = value.split(',').filter(|_| !value.is_empty());
                    flags = Flags::parse(words)
                        .map_err(|flag| wrong(format!("Unexpected flag in script shebang: {flag}")))?;
                }
                _ => return Err(wrong(format!("Unknown lua shebang option: {key}={value}"))),
            }
        }
        refuse_binary(text)?;
        let function = self
            .compile_text(text, "@user_script", &self.script_env)
            .map_err(|why| Failure::joined(&[b"ERR Error compiling script (new function): ", &why]))?;
        let function = keep(&self.lua, function).map_err(|error| wrong(told(&error)))?;
        self.scripts.insert(name.clone(), Script { function, flags, body: body.into() });
        Ok(name)
    }

    /// Compiles a text that sees `env`. Errors: what Lua says, byte for byte.
    fn compile_text(&self, text: &[u8], name: &str, env: &Table) -> Result<Function, Vec<u8>> {
        let outcome: mlua::Result<(Option<Function>, Option<LuaString>)> =
            self.lua.create_string(text).and_then(|text| self.compile.call((text, name, env)));
        match outcome {
            Ok((Some(function), _)) => Ok(function),
            Ok((None, why)) => Err(why.map(|why| why.as_bytes().to_vec()).unwrap_or_default()),
            Err(error) => Err(told(&error).into_bytes()),
        }
    }

    /// The next call of a script is debugged.
    pub fn begin_debugging(&self, script: &[u8]) {
        self.debugger.begin(script);
    }

    /// It is over: what its client is told at the end.
    pub fn end_debugging(&self) -> Vec<u8> {
        self.debugger.end()
    }

    /// After so long, `interlude` is called again and again, and tells whether what runs is to end. Nothing: it ends at once.
    fn set_limit(&self, limit: Option<Duration>, interlude: Option<Function>) -> mlua::Result<()> {
        self.is_over.set(false);
        let Some(limit) = limit else { return Ok(()) };
        let watch = Rc::new(Watch { began: Instant::now(), limit, interlude, is_over: Rc::clone(&self.is_over) });
        self.watch.replace(Some(Rc::clone(&watch)));
        let triggers = HookTriggers::new().every_nth_instruction(HOOK_INSTRUCTIONS);
        // Coroutines have this hook as well: nothing runs on in one.
        self.lua.set_global_hook(triggers, move |lua, _| watch.look(lua).map(|()| VmState::Continue))
    }

    /// What ran has ended.
    fn end_limit(&self) {
        self.lua.remove_global_hook();
        self.watch.take();
    }
}

fn keep(lua: &Lua, function: Function) -> mlua::Result<Kept> {
    lua.create_registry_value(function).map(Rc::new)
}

/// Lua 5.1 trusts compiled chunks blindly.
fn refuse_binary(text: &[u8]) -> Outcome {
    const ESCAPE: u8 = 27;
    match text.first() {
        Some(&ESCAPE) => Err(Failure::new("ERR Error compiling script (new function): a binary chunk")),
        _ => Ok(()),
    }
}

/// No script of this name was ever sent.
pub const NO_SCRIPT: Failure = Failure::new("NOSCRIPT No matching script. Please use EVAL.");

fn problem_text(problem: &Value) -> Vec<u8> {
    match problem {
        // Also a number, as in Redis.
        Value::Table(table) => match table.raw_get::<Option<LuaString>>("err") {
            Ok(Some(text)) => text.as_bytes().to_vec(),
            _ => b"ERR unknown error".to_vec(),
        },
        Value::String(text) => text.as_bytes().to_vec(),
        _ => b"ERR unknown error".to_vec(),
    }
}

/// The engine, made when it is first needed.
pub fn engine(server: &mut Server) -> Outcome<&mut Scripts> {
    if server.scripts.is_none() {
        let has_deprecated = server.settings.is_yes("lua-enable-deprecated-api");
        let scripts = Scripts::new(has_deprecated).map_err(|error| Failure::text(format!("ERR {error}")))?;
        server.scripts = Some(Box::new(scripts));
    }
    let scripts = server.scripts.as_deref_mut().ok_or(Failure::new("ERR a script is running"))?;
    scripts.tidy();
    Ok(scripts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::session::Session;

    fn eval(server: &mut Server, words: &[&[u8]]) -> String {
        let mut client = Session { is_authenticated: true, may_all: true, ..Session::default() };
        let args = OwnedArgs::new(words.iter().copied());
        command::execute(server, &mut client, args.as_args());
        String::from_utf8_lossy(&client.reply.bytes).into_owned()
    }

    #[test]
    fn scripts_run_in_a_sandbox() {
        let mut server = Server::new(crate::settings::Settings::default(), 1_700_000_000_000, 7);
        for (script, expected) in [
            ("return redis.call('set', KEYS[1], ARGV[1])", "+OK\r\n"),
            ("return redis.call('get', 'k')", "$1\r\nv\r\n"),
            ("return {1, 2.9, 'x', false, {3}}", "*5\r\n:1\r\n:2\r\n$1\r\nx\r\n$-1\r\n*1\r\n:3\r\n"),
            ("return cjson.encode({1, 2, {a = 3}})", "$13\r\n[1,2,{\"a\":3}]\r\n"),
            ("return cmsgpack.unpack(cmsgpack.pack({7}))[1] + bit.band(6, 3)", ":9\r\n"),
            ("return {struct.unpack('>hs', struct.pack('>hs', 258, 'ab'))}", "*3\r\n:258\r\n$2\r\nab\r\n:6\r\n"),
            ("x = 1", "-ERR user_script:1: Attempt to modify a readonly table script: "),
            ("redis.call = 1", "-ERR user_script:1: Attempt to modify a readonly table script: "),
            ("return io", "-ERR user_script:1: Script attempted to access nonexistent global variable 'io' script: "),
            ("return os", "-ERR user_script:1: Script attempted to access nonexistent global variable 'os' script: "),
            (
                "return loadstring('return io')()",
                "-ERR [string \"return io\"]:1: Script attempted to access nonexistent global variable 'io' script: ",
            ),
            ("loadstring('x = 1')()", "-ERR [string \"x = 1\"]:1: Attempt to modify a readonly table script: "),
            (
                "local reply = redis.call('nosuch') return reply",
                "-ERR Unknown Redis command called from script script: ",
            ),
            ("return {big_number = '12\\r\\n+OK'}", "$7\r\n12  +OK\r\n"),
            ("return {err = 'MINE text'}", "-MINE text\r\n"),
            ("return redis.pcall('incr', 'k')['err']", "$43\r\nERR value is not an integer or out of range\r\n"),
            ("return {unpack({1, 2}, 0, 2147483647)}", "-ERR user_script:1: too many results to unpack"),
            ("return {unpack({1, 2}, -2147483648, 2147483647)}", "-ERR user_script:1: too many results to unpack"),
            ("getmetatable('').__index = 1", "-ERR user_script:1: Attempt to modify a readonly table"),
            ("setmetatable(_G, {})", "-ERR Attempt to modify a readonly table script: "),
            ("rawset(_G, 'x', 1)", "-ERR Attempt to modify a readonly table script: "),
            ("while true do pcall(function() while true do end end) end", "-ERR Script killed by user"),
            ("while true do end", "-ERR Script killed by user with SCRIPT KILL."),
        ] {
            if script.starts_with("while true do pcall") {
                eval(&mut server, &[b"CONFIG", b"SET", b"lua-time-limit", b"50"]);
            }
            let reply = eval(&mut server, &[b"EVAL", script.as_bytes(), b"1", b"k", b"v"]);
            assert!(reply.starts_with(expected), "{script}: {reply}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        /// Those that Lua cannot refuse are not called like the others.
        #[test]
        fn patterns_find_and_are_refused_as_by_lua(
            pattern in r"[\[\]()%^$*+?.ab1d\-]{0,12}", text in "[ab1%.]{0,8}", by in "[a%1]{0,2}"
        ) {
            const SCRIPT: &str = "\
                local text, pattern, by = ARGV[1], ARGV[2], ARGV[3] \
                local function told(callback, ...) \
                    local found = {pcall(function(...) return (select('#', ...) .. callback(...)) end, ...)} \
                    for at = 1, 4 do found[at] = tostring(found[at]) end \
                    return table.concat(found, ';') \
                end \
                return table.concat({told(string.match, text, pattern), told(string.gsub, text, pattern, by), \
                    told(function(...) return table.concat({string.find(...)}, ',') end, text, pattern), \
                    told(function(...) local all = '' for word in string.gmatch(...) do all = all .. word .. ',' end return all end, text, pattern)}, ' ')";
            let mut server = Server::new(crate::settings::Settings::default(), 1_700_000_000_000, 7);
            let ours = eval(&mut server, &[b"EVAL", SCRIPT.as_bytes(), b"0", text.as_bytes(), pattern.as_bytes(), by.as_bytes()]);
            let lua = Lua::new();
            lua.globals().set("ARGV", vec![text, pattern, by]).unwrap();
            let told: String = lua.load(SCRIPT).set_name("=user_script").eval().unwrap();
            prop_assert_eq!(ours, format!("${}\r\n{told}\r\n", told.len()));
        }
    }

    #[test]
    fn an_error_tells_its_line_also_of_a_call_that_is_the_last_and_is_counted_once() {
        let mut server = Server::new(crate::settings::Settings::default(), 1_700_000_000_000, 7);
        eval(&mut server, &[b"SET", b"k", b"v"]);
        let mut run = |script: &str| {
            let reply = eval(&mut server, &[b"EVAL", script.as_bytes(), b"1", b"k"]);
            (reply, server.stats.errors)
        };
        for (errors, script) in (1..).zip([
            "\nreturn redis.call('incr', KEYS[1])",
            "local ok\nok = redis.call('incr', KEYS[1])",
            "local function call(...) return redis.call(...) end\nlocal reply = call('incr', KEYS[1])\nreturn reply",
        ]) {
            let (reply, counted) = run(script);
            let line = if script.contains("function") { 1 } else { 2 };
            assert!(reply.starts_with("-ERR value is not an integer or out of range script: "), "{reply}");
            assert!(reply.ends_with(&format!(", on @user_script:{line}.\r\n")), "{script}: {reply}");
            assert_eq!(counted, errors, "{script}");
        }
        let not_integer = "ERR value is not an integer or out of range";
        assert_eq!(run("return redis.pcall('incr', KEYS[1])"), (format!("-{not_integer}\r\n"), 4));
        let caught = "local ok, problem = pcall(redis.call, 'incr', KEYS[1]) return problem";
        assert_eq!(run(caught), (format!("$43\r\n{not_integer}\r\n"), 5));
        assert_eq!(run("return redis.error_reply('MINE text')"), ("-MINE text\r\n".to_owned(), 6));
        let text = "local ok, problem = pcall(cjson.decode, '[') return {type(problem), problem}";
        assert_eq!(run(text).0, "*2\r\n$6\r\nstring\r\n$45\r\nExpected value but found T_END at character 2\r\n");
        assert_eq!(server.stats.errors_by_code["MINE"], 1);
    }

    #[test]
    fn cjson_and_cmsgpack_have_what_redis_has() {
        let mut server = Server::new(crate::settings::Settings::default(), 1_700_000_000_000, 7);
        for (script, expected) in [
            ("return {cjson.encode_max_depth(), cjson.encode_max_depth(1)}", "*2\r\n:1000\r\n:1\r\n"),
            ("return tostring(pcall(cjson.encode, {1})) .. tostring(pcall(cjson.encode, {{}}))", "$9\r\ntruefalse\r\n"),
            ("cjson.encode_max_depth(1000) return cjson.encode({{}})", "$4\r\n[{}]\r\n"),
            ("cjson.encode_number_precision(3) return cjson.encode(1/3)", "$5\r\n0.333\r\n"),
            (
                "cjson.encode_number_precision(14) return cjson.encode({2^53, 1e14, 0.1})",
                "$30\r\n[9.007199254741e+15,1e+14,0.1]\r\n",
            ),
            ("return cjson.new().encode(1/3)", "$16\r\n0.33333333333333\r\n"),
            ("return tostring(pcall(cjson.encode, 0/0))", "$5\r\nfalse\r\n"),
            ("return tostring(cjson.encode_invalid_numbers('null')) .. cjson.encode({1/0})", "$10\r\nnull[null]\r\n"),
            ("return tostring(cjson.encode_invalid_numbers(true)) .. cjson.encode({-1/0})", "$10\r\ntrue[-inf]\r\n"),
            ("return tostring(pcall(cjson.encode, {[100] = 1}))", "$5\r\nfalse\r\n"),
            ("cjson.encode_sparse_array(true) return cjson.encode({[100] = 1})", "$9\r\n{\"100\":1}\r\n"),
            ("return tostring(cjson.decode('0x10')) .. tostring(cjson.decode('-inf'))", "$6\r\n16-inf\r\n"),
            ("cjson.decode_invalid_numbers(false) return tostring(pcall(cjson.decode, '0x10'))", "$5\r\nfalse\r\n"),
            ("cjson.decode_max_depth(1) return tostring(pcall(cjson.decode, '[[1]]'))", "$5\r\nfalse\r\n"),
            (
                "return cjson.encode_max_depth(0)",
                "-ERR user_script:1: bad argument #1 to 'encode_max_depth' (expected integer between 1 and 2147483647)",
            ),
            (
                "local text = cmsgpack.pack(7, 'b') local at, one = cmsgpack.unpack_one(text) \
                 return {at, one, cmsgpack.unpack_limit(text, 1, at)}",
                "*4\r\n:1\r\n:7\r\n:-1\r\n$1\r\nb\r\n",
            ),
            ("return {cmsgpack.unpack_limit(cmsgpack.pack(7, 8), 0)}", "*2\r\n:7\r\n:8\r\n"),
            ("return cmsgpack.unpack_one('x', 2)", "-ERR user_script:1: Start offset 2 greater than input length 1."),
        ] {
            let reply = eval(&mut server, &[b"EVAL", script.as_bytes(), b"0"]);
            assert!(reply.starts_with(expected), "{script}: {reply}");
        }
    }

    #[test]
    fn exec_is_refused_with_a_script_that_may_write_where_nothing_may() {
        let mut server = Server::new(crate::settings::Settings::default(), 1_700_000_000_000, 7);
        for (script, expected) in [
            ("#!lua\nreturn 1", "-EXECABORT Transaction discarded because of: READONLY "),
            ("#!lua flags=no-writes\nreturn 1", "*1\r\n:1\r\n"),
            ("return 1", "*1\r\n:1\r\n"),
        ] {
            let mut client = Session { is_authenticated: true, may_all: true, ..Session::default() };
            let mut call = |server: &mut Server, words: &[&[u8]]| {
                client.reply.bytes.clear();
                command::execute(server, &mut client, OwnedArgs::new(words.iter().copied()).as_args());
                String::from_utf8_lossy(&client.reply.bytes).into_owned()
            };
            call(&mut server, &[b"MULTI"]);
            assert_eq!(call(&mut server, &[b"EVAL", script.as_bytes(), b"0"]), "+QUEUED\r\n");
            server.follow("127.0.0.1".to_owned(), 1);
            let reply = call(&mut server, &[b"EXEC"]);
            assert!(reply.starts_with(expected), "{script}: {reply}");
            eval(&mut server, &[b"REPLICAOF", b"NO", b"ONE"]);
        }
    }

    #[test]
    fn libraries_have_functions() {
        let mut server = Server::new(crate::settings::Settings::default(), 1_700_000_000_000, 7);
        let code = "#!lua name=mine\nredis.register_function('f', function(keys, args) return args[1] end)";
        assert_eq!(eval(&mut server, &[b"FUNCTION", b"LOAD", code.as_bytes()]), "$4\r\nmine\r\n");
        assert_eq!(eval(&mut server, &[b"FCALL", b"f", b"0", b"x"]), "$1\r\nx\r\n");
        assert_eq!(eval(&mut server, &[b"FCALL", b"F", b"0", b"x"]), "$1\r\nx\r\n");
        for (text, expected) in [
            (
                "redis.register_function()",
                "Error registering functions: ERR wrong number of arguments to redis.register_function",
            ),
            ("redis.register_function('g', 1)", "second argument to redis.register_function must be a function"),
            (
                "redis.register_function{function_name = 1}",
                "function_name argument given to redis.register_function must be a string",
            ),
        ] {
            let reply = eval(&mut server, &[b"FUNCTION", b"LOAD", format!("#!lua name=other\n{text}").as_bytes()]);
            assert!(reply.starts_with("-ERR ") && reply.contains(expected), "{text}: {reply}");
        }
        assert_eq!(eval(&mut server, &[b"FUNCTION", b"DELETE", b"mine"]), "+OK\r\n");
        assert_eq!(eval(&mut server, &[b"FCALL", b"f", b"0"]), "-ERR Function not found\r\n");
    }
}
