//! What goes wrong in a script, on its way through Lua. The error of a command is a table with its text and the place of the call;
//! all else is text.
//!
//! What Rust raises is an object of its own for Lua. `prelude.lua` lets [`plain`] turn it into what a script may look at, wherever
//! errors are caught.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use mlua::debug::Debug;
use mlua::{Error, Function, Lua, MultiValue, Table, Value, Variadic};

use super::convert;

/// The words of the command that a script asks for; nothing: one of them is neither a string nor a number.
pub(super) type Asked = Rc<RefCell<Option<Vec<Vec<u8>>>>>;

/// The script that called a function is looked for up to this level of Lua's stack.
const LEVEL_MAX: usize = 4;

/// The error of a command.
#[derive(Debug, thiserror::Error)]
#[error("{}", String::from_utf8_lossy(.text))]
struct CommandError {
    text: Vec<u8>,
    /// The script's name for itself and its line.
    place: Option<(String, usize)>,
    /// Errors of commands are counted where they run.
    is_counted: bool,
}

/// Where the script is that called what runs. A function of Rust leaves its caller in Lua's stack, also where it is called last.
fn place(lua: &Lua) -> Option<(String, usize)> {
    (1..=LEVEL_MAX).find_map(|level| {
        lua.inspect_stack(level, |frame| {
            let source = frame.source().source?.into_owned();
            let line = frame.current_line()?;
            source.starts_with("@user_").then_some((source, line))
        })?
    })
}

/// Where what was raised comes from, as Redis tells it: the innermost function that is neither ours nor written in C. Nothing where Lua
/// has forgotten it, since one of ours was called last. For the function of `prelude.lua` to which errors are shown.
pub(super) fn origin(lua: &Lua, (): ()) -> mlua::Result<(Option<String>, Option<usize>)> {
    const LEVELS: std::ops::Range<usize> = 2..12;
    for level in LEVELS {
        let place = lua.inspect_stack(level, |frame| {
            let source = frame.source();
            (source.what, source.source.map(Cow::into_owned), frame.current_line())
        });
        match place {
            Some(("C", ..)) => {}
            Some((_, Some(source), Some(_))) if source == "=prelude" => {}
            Some((_, Some(source), Some(line))) => return Ok((Some(source), Some(line))),
            _ => break,
        }
    }
    Ok((None, None))
}

/// `redis.call` (`raises`), or `redis.pcall`: leaves the words for `run` of the host, which knows the server, and gives the reply.
pub(super) fn caller(lua: &Lua, host: &Table, asked: &Asked, raises: bool) -> mlua::Result<Function> {
    let (host, asked) = (host.clone(), Rc::clone(asked));
    lua.create_function(move |lua, words: Variadic<Value>| {
        asked.replace(words.iter().map(convert::to_argument).collect());
        let reply: Value = host.raw_get::<Function>("run")?.call(())?;
        if raises
            && let Value::Table(table) = &reply
            && let Value::String(text) = table.raw_get::<Value>("err")?
        {
            let text = text.as_bytes().to_vec();
            return Err(Error::external(CommandError { text, place: place(lua), is_counted: true }));
        }
        Ok(reply)
    })
}

/// Where a function of Rust was called, as Lua puts it in front of what it says.
pub(super) fn call_place(lua: &Lua) -> Option<String> {
    let place = |frame: &Debug<'_>| Some(format!("{}:{}: ", frame.source().short_src?, frame.current_line()?));
    lua.inspect_stack(1, place).flatten()
}

/// What goes wrong in a function of `prelude.lua`, with the place of its call where that file's own is.
fn placed(lua: &Lua, error: Error) -> Error {
    let text = told(&error);
    let Some((_, why)) = text.strip_prefix("prelude:").and_then(|text| text.split_once(": ")) else { return error };
    Error::runtime(call_place(lua).unwrap_or_default() + why)
}

/// A function that raises what another one refuses, which then returns a mark and a text, or raises an error of its own.
pub(super) fn raising(lua: &Lua, (callback, refused): (Function, Table)) -> mlua::Result<Function> {
    lua.create_function(move |lua, arguments: MultiValue| {
        let values: MultiValue = callback.call(arguments).map_err(|error| placed(lua, error))?;
        match (values.front(), values.get(1)) {
            (Some(Value::Table(mark)), Some(Value::String(text))) if *mark == refused => {
                let text = text.as_bytes().to_vec();
                Err(Error::external(CommandError { text, place: place(lua), is_counted: false }))
            }
            _ => Ok(values),
        }
    })
}

/// An error reply as Lua has it. It was counted when the command ran.
pub(super) fn error_table(lua: &Lua, text: &[u8]) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(text)?)?;
    table.raw_set("ignore_error_stats_update", true)?;
    Ok(table)
}

/// Whether a problem, or what a script returns, is an error reply that was counted before.
pub(super) fn was_counted(table: &Table) -> bool {
    table.raw_get::<Option<bool>>("ignore_error_stats_update").ok().flatten().unwrap_or(false)
}

/// The text of an error reply, whose first byte says that it is one.
pub(super) fn without_dashes(text: &[u8]) -> &[u8] {
    let dashes = text.iter().take_while(|byte| **byte == b'-').count();
    &text[dashes..]
}

/// What was raised, as a script may see it.
pub(super) fn plain(lua: &Lua, problem: Value) -> mlua::Result<Value> {
    let Value::Error(error) = &problem else { return Ok(problem) };
    if let Some(CommandError { text, place, is_counted }) = error.downcast_ref() {
        let table = error_table(lua, text)?;
        if !is_counted {
            table.raw_remove("ignore_error_stats_update")?;
        }
        if let Some((source, line)) = place {
            table.raw_set("source", source.as_str())?;
            table.raw_set("line", line.to_string())?;
        }
        return Ok(Value::Table(table));
    }
    Ok(Value::String(lua.create_string(told(error))?))
}

/// One line of what has gone wrong, without what Lua and the library around it add.
pub(super) fn told(error: &Error) -> String {
    let mut root = error;
    while let Error::CallbackError { cause, .. } | Error::WithContext { cause, .. } = root {
        root = cause;
    }
    let text = match root {
        Error::SyntaxError { message, .. } => message.clone(),
        Error::RuntimeError(message) => message.clone(),
        other => other.to_string(),
    };
    text.lines().next().unwrap_or_default().to_owned()
}
