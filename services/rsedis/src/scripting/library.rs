//! Libraries of functions: FUNCTION LOAD and what `redis.register_function` takes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use mlua::{Lua, Value, Variadic};

use super::{Flags, Kept, Scripts, keep, problem_text, refuse_binary, shebang, told};
use crate::failure::Failure;
use crate::server::Server;

/// A function of a library.
#[derive(Debug, Clone)]
pub struct Registered {
    /// Its name, as it was written.
    pub name: String,
    pub(super) function: Kept,
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

impl Scripts {
    /// Loads a library; its name.
    pub fn load_library(&mut self, code: &[u8], replaces: bool, limit: Option<Duration>) -> Result<String, Failure> {
        let wrong = |text: &str| Failure::text(format!("ERR {text}"));
        let (pairs, text) =
            shebang(code).map_err(|error| match error.strip_prefix("Unknown lua shebang option: ") {
                Some(word) => wrong(&format!("Invalid metadata value given: {word}")),
                None => wrong("Invalid library metadata"),
            })?;
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
        let is_taken = |key: &&String| self.functions.get(*key).is_some_and(|registered| registered.library != name);
        if let Some(taken) = functions.keys().find(is_taken).and_then(|key| functions.get(key)) {
            return Err(Failure::text(format!("ERR Function {} already exists", taken.name)));
        }
        self.remove_library(&name);
        let mut names: Vec<String> = functions.values().map(|function| function.name.clone()).collect();
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

    /// A function by its name, whatever its case.
    pub fn function(&self, name: &str) -> Option<&Registered> {
        self.functions.get(&name.to_ascii_lowercase())
    }

    /// Removes all libraries.
    pub fn flush_libraries(&mut self) {
        self.functions.clear();
        self.libraries.clear();
        self.expire();
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
        let function = self
            .compile_text(text, "@user_function", &self.library_env)
            .map_err(|why| Failure::joined(&[b"ERR Error compiling function: ", &why]))?;
        let found: RefCell<HashMap<String, Registered>> = RefCell::default();
        let outcome: mlua::Result<(bool, Value)> = self.lua.scope(|scope| {
            // What is wrong is raised in Lua: an error that is a table does not pass through here.
            let register = scope.create_function(|lua, arguments: Variadic<Value>| {
                Ok(register(lua, &arguments, library, &mut found.borrow_mut()).err())
            })?;
            self.host.raw_set("register", register)?;
            self.set_limit(limit, None)?;
            self.limited(|| self.load.call(function))
        });
        self.end_limit();
        match outcome {
            Ok((true, _)) => Ok(found.into_inner()),
            Ok((false, problem)) => {
                Err(Failure::joined(&[b"ERR Error registering functions: ", &problem_text(&problem)]))
            }
            Err(error) => Err(wrong(format!("Error registering functions: {}", told(&error)))),
        }
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// `redis.register_function(name, callback)`, or one table with both, description and flags.
fn register(
    lua: &Lua,
    arguments: &[Value],
    library: &str,
    found: &mut HashMap<String, Registered>,
) -> Result<(), String> {
    let (mut name, mut callback, mut description, mut flags) = (None, None, None, None);
    match arguments {
        [Value::Table(table)] => {
            for pair in table.pairs::<Value, Value>() {
                let (key, value) = pair.map_err(|_| "unknown argument given to redis.register_function".to_owned())?;
                let Value::String(key) = key else {
                    return Err("named argument key given to redis.register_function is not a string".to_owned());
                };
                match (key.to_string_lossy().as_str(), value) {
                    ("function_name", value @ Value::String(_)) => name = Some(value),
                    ("function_name", _) => {
                        return Err("function_name argument given to redis.register_function must be a string".to_owned());
                    }
                    ("callback", value @ Value::Function(_)) => callback = Some(value),
                    ("callback", _) => {
                        return Err("callback argument given to redis.register_function must be a function".to_owned());
                    }
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
    let key = name.to_ascii_lowercase();
    if found.contains_key(&key) {
        return Err("Function already exists in the library".to_owned());
    }
    let function = keep(lua, function).map_err(|error| told(&error))?;
    found.insert(key, Registered { name, function, flags, flag_names, description, library: library.to_owned() });
    Ok(())
}

/// The texts of all libraries.
pub fn library_codes(server: &Server) -> impl Iterator<Item = &[u8]> {
    server.scripts.iter().flat_map(|scripts| scripts.libraries.values().map(|library| library.code.as_slice()))
}
