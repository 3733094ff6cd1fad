//! Scripts and functions in Lua 5.1: EVAL and FUNCTION.
//!
//! A script runs between two turns of the loop, alone: its commands are one step of the one total order. What it may see is in
//! `prelude.lua`; there is no way to files, to the system or to binary chunks. One that runs for longer than
//! `busy-reply-threshold` is ended with an error, what it has written until then stays: Redis would wait for SCRIPT KILL, which
//! nobody could send here.

mod convert;
mod libraries;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::{Duration, Instant};

use mlua::{Function, HookTriggers, Lua, LuaOptions, StdLib, Table, Value, Variadic, VmState};
use sha1::{Digest as _, Sha1};

use crate::acl::{Context, Denied};
use crate::command::{self, DENYOOM, NOSCRIPT, WRITE};
use crate::failure::{Failure, Outcome};
use crate::log;
use crate::protocol::Args;
use crate::protocol::request::OwnedArgs;
use crate::server::Server;
use crate::session::Session;

/// A look at the clock every so many instructions.
const HOOK_INSTRUCTIONS: u32 = 10_000;

/// What a script says of itself: `#!lua flags=no-writes`, or the flags of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// It writes nothing.
    pub no_writes: bool,
    /// It may run where memory is short.
    pub allow_oom: bool,
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
                "allow-stale" | "no-cluster" | "allow-cross-slot-keys" | "" => {}
                other => return Err(other.to_owned()),
            }
        }
        Ok(flags)
    }
}

/// A script that was compiled.
#[derive(Clone)]
struct Script {
    function: Function,
    flags: Flags,
}

/// A function of a library.
#[derive(Clone)]
pub struct Registered {
    function: Function,
    /// What it says of itself.
    pub flags: Flags,
    /// The words of its flags.
    pub flag_names: Vec<String>,
    /// For people.
    pub description: Option<Vec<u8>>,
    /// Its library.
    pub library: String,
}

/// A library that was loaded.
#[derive(Clone, Debug)]
pub struct Library {
    /// Its text.
    pub code: Vec<u8>,
    /// Its functions' names.
    pub functions: Vec<String>,
}

/// See the module's description.
pub struct Scripts {
    lua: Lua,
    host: Table,
    script_env: Table,
    library_env: Table,
    run: Function,
    load: Function,
    scripts: HashMap<String, Script>,
    /// By name.
    pub libraries: BTreeMap<String, Library>,
    /// By name, of all libraries.
    pub functions: HashMap<String, Registered>,
    /// What runs has run for too long.
    is_over: Rc<Cell<bool>>,
}

impl std::fmt::Debug for Scripts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Scripts").field("scripts", &self.scripts.len()).finish_non_exhaustive()
    }
}

/// How a script is known: 40 hexadecimal digits.
pub fn name_of(body: &[u8]) -> String {
    Sha1::digest(body).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn told(error: &mlua::Error) -> String {
    let text = match error {
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        mlua::Error::RuntimeError(message) => message.clone(),
        other => other.to_string(),
    };
    text.lines().next().unwrap_or_default().to_owned()
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
    let mut words = line.split_whitespace();
    let mut pairs = vec![("engine".to_owned(), words.next().unwrap_or_default().to_owned())];
    for word in words {
        let (name, value) = word.split_once('=').ok_or_else(|| format!("Unknown lua shebang option: {word}"))?;
        pairs.push((name.to_owned(), value.trim_matches('"').to_owned()));
    }
    Ok((pairs, &body[end..]))
}

/// The state of Lua that a call's functions share.
struct Running<'a> {
    server: &'a mut Server,
    session: &'a mut Session,
    is_readonly: bool,
    flags: Flags,
    is_out_of_memory: bool,
    has_written: bool,
}

impl Running<'_> {
    /// One command of a script; the reply is in the session afterwards.
    fn call(&mut self, args: Args<'_>) {
        self.session.reply.bytes.clear();
        if let Err(failure) = self.try_call(args) {
            command::refuse(self.server, self.session, &failure);
        }
    }

    fn try_call(&mut self, args: Args<'_>) -> Outcome {
        let command = command::resolve(args).map_err(|failure| match failure.0.starts_with("ERR wrong number") {
            true => Failure::new("ERR Wrong number of args calling Redis command from script"),
            false => Failure::new("ERR Unknown Redis command called from script"),
        })?;
        if command.is(NOSCRIPT) && !self.server.allows_all_in_scripts {
            return Err(Failure::new("ERR This Redis command is not allowed from script"));
        }
        if !self.session.may_all {
            command::acl::check(self.server, self.session, command, args, Context::Script).map_err(|denied| match denied {
                Denied::Command => Failure::new("ERR The user executing the script can't run this command or subcommand"),
                Denied::Key(_) => Failure::new(
                    "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments",
                ),
                Denied::Channel(_) => Failure::new(
                    "ERR The user executing the script can't publish to the channel mentioned in the command",
                ),
            })?;
        }
        let writes = command::may_write(command);
        if writes && (self.is_readonly || self.flags.no_writes) {
            return Err(Failure::new("ERR Write commands are not allowed from read-only scripts."));
        }
        if command.is(WRITE) {
            command::may_write_now(self.server)?;
        }
        if command.is(DENYOOM) && self.is_out_of_memory && !self.flags.allow_oom && !self.has_written {
            return Err(Failure::new("OOM command not allowed when used memory > 'maxmemory'."));
        }
        self.has_written |= command.is(WRITE);
        command::run(self.server, self.session, command, args);
        Ok(())
    }
}

impl Scripts {
    /// An engine without scripts. Errors: Lua's own, if there is no memory.
    pub fn new() -> Result<Self, String> {
        Self::try_new().map_err(|error| format!("Lua: {}", told(&error)))
    }

    fn try_new() -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::OS;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let host = lua.create_table()?;
        libraries::add(&lua, &host)?;
        host.raw_set("version", command::REDIS_VERSION)?;
        host.raw_set("version_number", 0x0007_000F)?;
        host.raw_set("sha1hex", lua.create_function(|_, text: mlua::LuaString| Ok(name_of(&text.as_bytes())))?)?;
        let is_command = lua.create_function(|_, words: Variadic<Value>| {
            let words: Option<Vec<Vec<u8>>> = words.iter().map(convert::to_argument).collect();
            let words = words.unwrap_or_default();
            let args = OwnedArgs::new(words.iter().map(Vec::as_slice));
            Ok(!words.is_empty() && command::resolve(args.as_args()).is_ok())
        })?;
        host.raw_set("is_command", is_command)?;
        let log = lua.create_function(|_, (level, text): (f64, mlua::LuaString)| {
            let text = text.to_string_lossy();
            if level >= 3.0 {
                log::warning(text)
            } else {
                log::notice(text)
            }
            Ok(())
        })?;
        host.raw_set("log", log)?;
        let is_over = Rc::new(Cell::new(false));
        let asked = Rc::clone(&is_over);
        host.raw_set("is_over", lua.create_function(move |_, ()| Ok(asked.get()))?)?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name("=prelude");
        let parts: Table = prelude.call((host.clone(), ()))?;
        Ok(Self {
            script_env: parts.raw_get("script_env")?,
            library_env: parts.raw_get("library_env")?,
            run: parts.raw_get("run")?,
            load: parts.raw_get("load")?,
            host,
            lua,
            scripts: HashMap::new(),
            libraries: BTreeMap::new(),
            functions: HashMap::new(),
            is_over,
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
    }

    /// Compiles a script; its name.
    pub fn compile(&mut self, body: &[u8]) -> Result<String, Failure> {
        let name = name_of(body);
        if self.has(&name) {
            return Ok(name);
        }
        let wrong = |text: String| Failure::text(format!("ERR {text}"));
        let (pairs, text) = shebang(body).map_err(wrong)?;
        let mut flags = Flags::default();
        for (key, value) in pairs {
            match key.as_str() {
                "engine" if value == "lua" => flags.has_shebang = true,
                "engine" => return Err(wrong("Unexpected engine in script shebang: ".to_owned() + &value)),
                "flags" => {
                    flags = Flags::parse(value.split(','))
                        .map_err(|flag| wrong(format!("Unexpected flag in script shebang: {flag}")))?;
                }
                _ => return Err(wrong(format!("Unknown lua shebang option: {key}={value}"))),
            }
        }
        refuse_binary(text)?;
        let chunk = self.lua.load(text).set_name("@user_script").set_environment(self.script_env.clone());
        let function = chunk
            .into_function()
            .map_err(|error| wrong(format!("Error compiling script (new function): {}", told(&error))))?;
        self.scripts.insert(name.clone(), Script { function, flags });
        Ok(name)
    }

    /// Loads a library; its name.
    pub fn load_library(&mut self, code: &[u8], replaces: bool, limit: Option<Duration>) -> Result<String, Failure> {
        let wrong = |text: &str| Failure::text(format!("ERR {text}"));
        let (pairs, text) = shebang(code).map_err(|_| wrong("Invalid library metadata"))?;
        if pairs.is_empty() {
            return Err(wrong("Missing library metadata"));
        }
        let mut name = None;
        for (key, value) in &pairs {
            match key.as_str() {
                "engine" if value.eq_ignore_ascii_case("lua") => {}
                "engine" => return Err(Failure::text(format!("ERR Engine '{value}' not found"))),
                "name" if name.is_some() => {
                    return Err(wrong("Invalid metadata value, name argument was given multiple times"));
                }
                "name" => name = Some(value.clone()),
                _ => return Err(Failure::text(format!("ERR Invalid metadata value given: {key}={value}"))),
            }
        }
        let name = name.ok_or_else(|| wrong("Library name was not given"))?;
        if !is_name(&name) {
            return Err(wrong(
                "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long",
            ));
        }
        if self.libraries.contains_key(&name) && !replaces {
            return Err(Failure::text(format!("ERR Library '{name}' already exists")));
        }
        let functions = self.register_all(text, &name, limit)?;
        if functions.is_empty() {
            return Err(wrong("No functions registered"));
        }
        if let Some(taken) = functions
            .keys()
            .find(|function| self.functions.get(*function).is_some_and(|registered| registered.library != name))
        {
            return Err(Failure::text(format!("ERR Function {taken} already exists")));
        }
        self.remove_library(&name);
        let mut names: Vec<String> = functions.keys().cloned().collect();
        names.sort();
        self.functions.extend(functions);
        self.libraries.insert(name.clone(), Library { code: code.to_vec(), functions: names });
        Ok(name)
    }

    /// Removes a library; whether it was there.
    pub fn remove_library(&mut self, name: &str) -> bool {
        self.functions.retain(|_, function| function.library != name);
        self.libraries.remove(name).is_some()
    }

    /// Removes all libraries.
    pub fn flush_libraries(&mut self) {
        self.functions.clear();
        self.libraries.clear();
    }

    /// Runs a library's text, which registers its functions.
    fn register_all(
        &self,
        text: &[u8],
        library: &str,
        limit: Option<Duration>,
    ) -> Result<HashMap<String, Registered>, Failure> {
        let wrong = |text: String| Failure::text(format!("ERR {text}"));
        refuse_binary(text)?;
        let chunk = self.lua.load(text).set_name("@user_function").set_environment(self.library_env.clone());
        let function =
            chunk.into_function().map_err(|error| wrong(format!("Error compiling function: {}", told(&error))))?;
        let found: RefCell<HashMap<String, Registered>> = RefCell::default();
        let outcome: mlua::Result<(bool, Value)> = self.lua.scope(|scope| {
            let register = scope.create_function(|lua, arguments: Variadic<Value>| {
                register(&arguments, library, &mut found.borrow_mut()).or_else(|text| {
                    let problem = lua.create_table()?;
                    problem.raw_set("err", format!("ERR {text}"))?;
                    lua.load("error(..., 0)").call::<()>(problem)
                })
            })?;
            self.host.raw_set("register", register)?;
            self.set_limit(limit)?;
            self.load.call(function)
        });
        self.lua.remove_hook();
        match outcome {
            Ok((true, _)) => Ok(found.into_inner()),
            Ok((false, problem)) => Err(wrong(format!(
                "Error registering functions: {}",
                problem_text(&problem).trim_start_matches("ERR ")
            ))),
            Err(error) => Err(wrong(format!("Error registering functions: {}", told(&error)))),
        }
    }

    /// Ends what runs for longer than this.
    fn set_limit(&self, limit: Option<Duration>) -> mlua::Result<()> {
        self.is_over.set(false);
        let Some(limit) = limit else { return Ok(()) };
        let is_over = Rc::clone(&self.is_over);
        let began = Instant::now();
        let triggers = HookTriggers::new().every_nth_instruction(HOOK_INSTRUCTIONS);
        self.lua.set_hook(triggers, move |_, _| match began.elapsed() > limit {
            true => {
                is_over.set(true);
                Err(mlua::Error::runtime("the script ran for longer than busy-reply-threshold and was ended"))
            }
            false => Ok(VmState::Continue),
        })
    }

    /// Runs a script that was compiled, or a function; its reply goes to the client.
    #[expect(clippy::too_many_arguments, reason = "a call has as many sides")]
    pub fn call(
        &self,
        server: &mut Server,
        client: &mut Session,
        name: &str,
        is_function: bool,
        keys: Args<'_>,
        arguments: Args<'_>,
        is_readonly: bool,
    ) -> Outcome {
        let (function, flags) = match is_function {
            true => {
                let registered = self.functions.get(name).ok_or(Failure::new("ERR Function not found"))?;
                (registered.function.clone(), registered.flags)
            }
            false => {
                let script = self.scripts.get(name).ok_or(NO_SCRIPT)?;
                (script.function.clone(), script.flags)
            }
        };
        let limit = server.settings.integer("busy-reply-threshold");
        let limit = u64::try_from(limit).ok().filter(|millis| *millis > 0).map(Duration::from_millis);
        let is_out_of_memory = server.is_out_of_memory;
        if is_out_of_memory && flags.has_shebang && !flags.allow_oom && !flags.no_writes {
            return Err(Failure::new(
                "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
            ));
        }
        let mut session = Session {
            id: client.id,
            slot: client.slot,
            address: client.address.clone(),
            database: client.database,
            is_authenticated: true,
            user: client.user.clone(),
            may_all: client.may_all,
            is_script: true,
            may_not_wait: true,
            tracking: client.tracking.take(),
            last_command: "eval",
            ..Session::default()
        };
        let is_resp3 = Rc::new(Cell::new(false));
        let running = RefCell::new(Running {
            server,
            session: &mut session,
            is_readonly,
            flags,
            is_out_of_memory,
            has_written: false,
        });
        let outcome: mlua::Result<(bool, Value)> = self.lua.scope(|scope| {
            let setresp = {
                let is_resp3 = Rc::clone(&is_resp3);
                scope.create_function(move |_, version: f64| {
                    is_resp3.set(version == 3.0);
                    Ok(())
                })?
            };
            self.host.raw_set("setresp", setresp)?;
            let set_repl = scope.create_function(|_, flags: f64| {
                running.borrow_mut().server.effects.is_silenced = flags == 0.0;
                Ok(())
            })?;
            self.host.raw_set("set_repl", set_repl)?;
            let call = scope.create_function(|lua, words: Variadic<Value>| {
                let mut running = running.borrow_mut();
                running.session.reply.is_resp3 = is_resp3.get();
                let refused = if words.is_empty() {
                    Some("ERR Please specify at least one argument for this redis.call()")
                } else {
                    None
                };
                let arguments: Option<Vec<Vec<u8>>> = words.iter().map(convert::to_argument).collect();
                match (refused, arguments) {
                    (Some(text), _) => running.session.reply.error(text),
                    (None, None) => {
                        running.session.reply.bytes.clear();
                        running.session.reply.error("ERR Lua redis lib command arguments must be strings or integers");
                    }
                    (None, Some(arguments)) => {
                        let args = OwnedArgs::new(arguments.iter().map(Vec::as_slice));
                        running.call(args.as_args());
                    }
                }
                let bytes = std::mem::take(&mut running.session.reply.bytes);
                Ok(convert::to_lua(lua, &bytes, 0)?.0)
            })?;
            self.host.raw_set("call", call)?;
            let strings = |args: Args<'_>| -> mlua::Result<Table> {
                let table = self.lua.create_table()?;
                for (place, text) in args.iter().enumerate() {
                    table.raw_set(place + 1, self.lua.create_string(text)?)?;
                }
                Ok(table)
            };
            self.set_limit(limit)?;
            self.run.call((function, strings(keys)?, strings(arguments)?, is_function))
        });
        self.lua.remove_hook();
        server.effects.is_silenced = false;
        client.tracking = session.tracking.take();
        client.has_read |= session.has_read;
        client.is_watch_broken |= session.is_watch_broken;
        match outcome {
            Ok((true, value)) => {
                convert::to_reply(&value, &mut client.reply, is_resp3.get(), 0);
                Ok(())
            }
            Ok((false, problem)) => Err(Failure::text(self.failure(name, &problem))),
            Err(error) => Err(Failure::text(format!("ERR {}", told(&error)))),
        }
    }

    /// What the client hears of a script that failed.
    fn failure(&self, name: &str, problem: &Value) -> String {
        let text = problem_text(problem);
        let text = text.trim_start_matches('-');
        let text = if text.is_empty() { "ERR unknown error" } else { text };
        let Value::Table(table) = problem else { return text.to_owned() };
        match (table.raw_get::<Option<String>>("source"), table.raw_get::<Option<String>>("line")) {
            (Ok(Some(source)), Ok(Some(line))) => format!("{text} script: {name}, on {source}:{line}."),
            _ => text.to_owned(),
        }
    }
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

fn problem_text(problem: &Value) -> String {
    match problem {
        Value::Table(table) => match table.raw_get::<Value>("err") {
            Ok(Value::String(text)) => text.to_string_lossy(),
            _ => "ERR unknown error".to_owned(),
        },
        Value::String(text) => text.to_string_lossy(),
        _ => "ERR unknown error".to_owned(),
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// `redis.register_function(name, callback)`, or one table with both, description and flags.
fn register(arguments: &[Value], library: &str, found: &mut HashMap<String, Registered>) -> Result<(), String> {
    let (mut name, mut callback, mut description, mut flags) = (None, None, None, None);
    match arguments {
        [Value::Table(table)] => {
            for pair in table.pairs::<Value, Value>() {
                let (key, value) = pair.map_err(|_| "unknown argument given to redis.register_function".to_owned())?;
                let Value::String(key) = key else {
                    return Err("named argument key given to redis.register_function is not a string".to_owned());
                };
                match (key.to_string_lossy().as_str(), value) {
                    ("function_name", value) => name = Some(value),
                    ("callback", value) => callback = Some(value),
                    ("description", Value::String(text)) => description = Some(text.as_bytes().to_vec()),
                    ("description", _) => {
                        return Err("description argument given to redis.register_function must be a string".to_owned());
                    }
                    ("flags", Value::Table(table)) => flags = Some(table),
                    ("flags", _) => {
                        return Err(
                            "flags argument to redis.register_function must be a table representing function flags".to_owned()
                        );
                    }
                    _ => return Err("unknown argument given to redis.register_function".to_owned()),
                }
            }
            if name.is_none() {
                return Err("redis.register_function must get a function name argument".to_owned());
            }
            if callback.is_none() {
                return Err("redis.register_function must get a callback argument".to_owned());
            }
        }
        [_] => return Err("calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).".to_owned()),
        [first, second] => (name, callback) = (Some(first.clone()), Some(second.clone())),
        _ => return Err("wrong number of arguments to redis.register_function".to_owned()),
    }
    let Some(Value::String(name)) = name else {
        return Err("first argument to redis.register_function must be a string".to_owned());
    };
    let Some(Value::Function(function)) = callback else {
        return Err("second argument to redis.register_function must be a function".to_owned());
    };
    let name = name.to_string_lossy();
    if !is_name(&name) {
        return Err(
            "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long".to_owned()
        );
    }
    let mut flag_names = Vec::new();
    if let Some(table) = flags {
        for place in 1.. {
            match table.raw_get::<Value>(place) {
                Ok(Value::Nil) | Err(_) => break,
                Ok(Value::String(flag)) => flag_names.push(flag.to_string_lossy()),
                Ok(_) => return Err("unknown flag given".to_owned()),
            }
        }
    }
    let flags = Flags::parse(flag_names.iter()).map_err(|_| "unknown flag given".to_owned())?;
    if found.contains_key(&name) {
        return Err("Function already exists in the library".to_owned());
    }
    found.insert(name, Registered { function, flags, flag_names, description, library: library.to_owned() });
    Ok(())
}

/// The engine, made when it is first needed.
pub fn engine(server: &mut Server) -> Outcome<&mut Scripts> {
    if server.scripts.is_none() {
        let scripts = Scripts::new().map_err(|error| Failure::text(format!("ERR {error}")))?;
        server.scripts = Some(Box::new(scripts));
    }
    server.scripts.as_deref_mut().ok_or(Failure::new("ERR a script is running"))
}

/// The texts of all libraries.
pub fn library_codes(server: &Server) -> impl Iterator<Item = &[u8]> {
    server.scripts.iter().flat_map(|scripts| scripts.libraries.values().map(|library| library.code.as_slice()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("return os.execute", "$-1\r\n"),
            (
                "local reply = redis.call('nosuch') return reply",
                "-ERR Unknown Redis command called from script script: ",
            ),
            ("return {err = 'MINE text'}", "-MINE text\r\n"),
            ("return redis.pcall('incr', 'k')['err']", "$43\r\nERR value is not an integer or out of range\r\n"),
            ("return {unpack({1, 2}, 0, 2147483647)}", "-ERR user_script:1: too many results to unpack"),
            ("return {unpack({1, 2}, -2147483648, 2147483647)}", "-ERR user_script:1: too many results to unpack"),
            ("getmetatable('').__index = 1", "-ERR user_script:1: Attempt to modify a readonly table"),
            ("setmetatable(_G, {})", "-ERR user_script:1: Attempt to modify a readonly table"),
            ("rawset(_G, 'x', 1)", "-ERR user_script:1: Attempt to modify a readonly table"),
            ("while true do pcall(function() while true do end end) end", "-ERR the script ran for longer"),
            ("while true do end", "-ERR the script ran for longer than busy-reply-threshold"),
        ] {
            if script.starts_with("while true do pcall") {
                eval(&mut server, &[b"CONFIG", b"SET", b"lua-time-limit", b"50"]);
            }
            let reply = eval(&mut server, &[b"EVAL", script.as_bytes(), b"1", b"k", b"v"]);
            assert!(reply.starts_with(expected), "{script}: {reply}");
        }
    }

    #[test]
    fn libraries_have_functions() {
        let mut server = Server::new(crate::settings::Settings::default(), 1_700_000_000_000, 7);
        let code = "#!lua name=mine\nredis.register_function('f', function(keys, args) return args[1] end)";
        assert_eq!(eval(&mut server, &[b"FUNCTION", b"LOAD", code.as_bytes()]), "$4\r\nmine\r\n");
        assert_eq!(eval(&mut server, &[b"FCALL", b"f", b"0", b"x"]), "$1\r\nx\r\n");
        assert_eq!(eval(&mut server, &[b"FUNCTION", b"DELETE", b"mine"]), "+OK\r\n");
        assert_eq!(eval(&mut server, &[b"FCALL", b"f", b"0"]), "-ERR Function not found\r\n");
    }
}
