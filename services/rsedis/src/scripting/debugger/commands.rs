//! What the client of the debugger may ask, in Redis's words.
//!
//! Local variables cannot be shown: what the binding to Lua has for that is not safe.

use std::time::Instant;

use mlua::{Lua, MultiValue, Value};

use super::hook::Hook;
use super::{BREAKPOINTS_MAX, SHOWN_BYTES_MIN, show};
use crate::number::parse_integer;
use crate::scripting::problem::told;
use crate::scripting::refuse_binary;
use crate::scripting::watch::KILLED;
use crate::server::Heard;

/// Lines around the one that is asked for.
const CONTEXT: usize = 5;

const HELP: [&str; 30] = [
    "Redis Lua debugger help:",
    "[h]elp               Show this help.",
    "[s]tep               Run current line and stop again.",
    "[n]ext               Alias for step.",
    "[c]ontinue           Run till next breakpoint.",
    "[l]ist               List source code around current line.",
    "[l]ist [line]        List source code around [line].",
    "                     line = 0 means: current position.",
    "[l]ist [line] [ctx]  In this form [ctx] specifies how many lines",
    "                     to show before/after [line].",
    "[w]hole              List all source code. Alias for 'list 1 1000000'.",
    "[p]rint              Show all the local variables.",
    "[p]rint <var>        Show the value of the specified variable.",
    "                     Can also show global vars KEYS and ARGV.",
    "[b]reak              Show all breakpoints.",
    "[b]reak <line>       Add a breakpoint to the specified line.",
    "[b]reak -<line>      Remove breakpoint from the specified line.",
    "[b]reak 0            Remove all breakpoints.",
    "[t]race              Show a backtrace.",
    "[e]val <code>        Execute some Lua code (in a different callframe).",
    "[r]edis <cmd>        Execute a Redis command.",
    "[m]axlen [len]       Trim logged Redis replies and Lua var dumps to len.",
    "                     Specifying zero as <len> means unlimited.",
    "[a]bort              Stop the execution of the script. In sync",
    "                     mode dataset changes will be retained.",
    "",
    "Debugger functions you can call from Lua scripts:",
    "redis.debug()        Produce logs in the debugger console.",
    "redis.breakpoint()   Stop execution like if there was a breakpoint in the",
    "                     next line of code.",
];

/// The number at the beginning of a word, as C's `atoi` takes it.
fn leading_number(word: &[u8]) -> i64 {
    let word = word.trim_ascii_start();
    let (sign, digits) = match word.first() {
        Some(b'-') => (-1, &word[1..]),
        Some(b'+') => (1, &word[1..]),
        _ => (1, word),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    sign * digits.fold(0i64, |number, digit| number.saturating_mul(10).saturating_add(i64::from(digit - b'0')))
}

impl Hook {
    /// Does what the client says until the script may go on. Errors: it ends.
    pub(super) fn converse(&self, lua: &Lua) -> mlua::Result<()> {
        loop {
            self.hear.call::<()>(())?;
            let heard = self.debugger.with(|session| std::mem::replace(&mut session.heard, Heard::Gone));
            let words = match heard.unwrap_or(Heard::Gone) {
                Heard::Words(words) => words,
                Heard::Killed => return self.end(KILLED),
                Heard::Wrong(why) => return self.end(why),
                Heard::Gone => {
                    self.debugger.with(|session| {
                        session.is_alone = true;
                        session.steps = false;
                        session.breakpoints.clear();
                    });
                    return Ok(());
                }
            };
            let [name, rest @ ..] = words.as_slice() else { continue };
            match name.to_ascii_lowercase().as_slice() {
                b"h" | b"help" => HELP.iter().for_each(|line| self.debugger.note(line)),
                b"s" | b"step" | b"n" | b"next" => {
                    self.debugger.with(|session| session.steps = true);
                    return Ok(());
                }
                b"c" | b"continue" => return Ok(()),
                b"a" | b"abort" => return self.end("script aborted for user request"),
                b"t" | b"trace" => self.trace(lua),
                b"m" | b"maxlen" => self.cut(rest),
                b"b" | b"break" => self.mark(rest),
                b"e" | b"eval" => self.evaluate(lua, rest)?,
                b"r" | b"redis" if !rest.is_empty() => self.command(rest)?,
                b"p" | b"print" => self.print(rest)?,
                b"l" | b"list" => self.list(rest),
                b"w" | b"whole" => {
                    self.debugger.with(|session| session.note_lines(1, usize::MAX));
                }
                _ => self.debugger.note("<error> Unknown Redis Lua debugger command or wrong number of arguments."),
            }
        }
    }

    fn trace(&self, lua: &Lua) {
        let mut is_first = true;
        for level in 0.. {
            let frame = lua.inspect_stack(level, |frame| {
                let is_script = frame.source().short_src.is_some_and(|name| name.contains("user_script"));
                is_script.then(|| (frame.names().name.map(|name| name.into_owned()), frame.current_line().unwrap_or(0)))
            });
            let Some(frame) = frame else { break };
            let Some((name, line)) = frame else { continue };
            let name = name.unwrap_or_else(|| "top level".to_owned());
            let prefix = if std::mem::take(&mut is_first) { "In" } else { "From" };
            self.debugger.note(format!("{prefix} {name}:"));
            self.debugger.with(|session| session.note_line(line));
        }
        if is_first {
            self.debugger.note("<error> Can't retrieve Lua stack.");
        }
    }

    fn cut(&self, words: &[Vec<u8>]) {
        self.debugger.with(|session| {
            if let [number] = words {
                session.is_cut_known = true;
                session.shown_bytes = match leading_number(number) {
                    0 => 0,
                    number => usize::try_from(number).unwrap_or(0).max(SHOWN_BYTES_MIN),
                };
            }
            session.note(match session.shown_bytes {
                0 => "<value> replies are unlimited.".to_owned(),
                bytes => format!("<value> replies are truncated at {bytes} bytes."),
            });
        });
    }

    fn mark(&self, words: &[Vec<u8>]) {
        self.debugger.with(|session| {
            if words.is_empty() && session.breakpoints.is_empty() {
                session.note("No breakpoints set. Use 'b <line>' to add one.");
            } else if words.is_empty() {
                session.note(format!("{} breakpoints set:", session.breakpoints.len()));
                session.breakpoints.clone().into_iter().for_each(|line| session.note_line(line));
            }
            for word in words {
                let Some(number) = parse_integer(word) else {
                    session.note([b"Invalid argument:'", word.as_slice(), b"'"].concat());
                    continue;
                };
                let line = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
                let place = session.breakpoints.iter().position(|marked| *marked == line);
                match (number, place) {
                    (0, _) => {
                        session.breakpoints.clear();
                        session.note("All breakpoints removed.");
                    }
                    (..0, Some(place)) => {
                        session.breakpoints.remove(place);
                        session.note("Breakpoint removed.");
                    }
                    (..0, None) => session.note("No breakpoint in the specified line."),
                    _ if session.breakpoints.len() == BREAKPOINTS_MAX => session.note("Too many breakpoints set."),
                    // As in Redis, also where the line is marked already.
                    (_, Some(_)) => session.note("Wrong line number."),
                    _ if line > session.lines.len() => session.note("Wrong line number."),
                    _ => {
                        session.breakpoints.push(line);
                        session.note_lines(line, 1);
                    }
                }
            }
        });
    }

    fn list(&self, words: &[Vec<u8>]) {
        self.debugger.with(|session| {
            let around = words.first().and_then(|word| usize::try_from(leading_number(word)).ok());
            let around = around.filter(|line| *line > 0).unwrap_or(session.line);
            match words.get(1).map(|word| leading_number(word)) {
                None => session.note_lines(around, CONTEXT),
                // Fewer than none.
                Some(..0) => {}
                Some(context) => session.note_lines(around, usize::try_from(context).unwrap_or(usize::MAX)),
            }
        });
    }

    fn print(&self, words: &[Vec<u8>]) -> mlua::Result<()> {
        match words {
            [name] if matches!(name.as_slice(), b"KEYS" | b"ARGV") => {
                let value: Value = self.env.get(String::from_utf8_lossy(name).as_ref())?;
                self.note_value(b"<value> ", &value);
            }
            _ => self
                .debugger
                .note("<error> Local variables cannot be shown here. Have the script show them: redis.debug(name)"),
        }
        Ok(())
    }

    fn note_value(&self, prefix: &[u8], value: &Value) {
        self.debugger.with(|session| session.note_cut(prefix, |text| show::push_value(text, value, 0)));
    }

    fn command(&self, words: &[Vec<u8>]) -> mlua::Result<()> {
        self.asked.replace(Some(words.to_vec()));
        self.debugger.with(|session| session.steps = true);
        let outcome = self.run.call::<Value>(());
        self.debugger.with(|session| session.steps = false);
        outcome.map(drop)
    }

    /// Runs the client's own code, in a thread of Lua's, where it can be ended: within a hook there is no other.
    fn evaluate(&self, lua: &Lua, words: &[Vec<u8>]) -> mlua::Result<()> {
        let code = words.join(b" ".as_slice());
        if refuse_binary(&code).is_err() {
            self.debugger.note("<error> attempt to load a binary chunk");
            return Ok(());
        }
        let compile =
            |text: &[u8]| lua.load(text).set_name("@ldb_eval").set_environment(self.env.clone()).into_function();
        let function = match compile(&[b"return ", code.as_slice()].concat()).or_else(|_| compile(&code)) {
            Ok(function) => function,
            Err(error) => {
                self.debugger.note(format!("<error> {}", told(&error)));
                return Ok(());
            }
        };
        let thread = lua.create_thread(function)?;
        self.debugger.with(|session| session.evaluates_until = Some(Instant::now() + self.limit()));
        let outcome = thread.resume::<MultiValue>(());
        self.debugger.with(|session| session.evaluates_until = None);
        self.is_over.set(false);
        match outcome {
            Ok(values) => self.note_value(b"<retval> ", values.front().unwrap_or(&Value::Nil)),
            Err(error) => self.debugger.note(format!("<error> {}", told(&error))),
        }
        Ok(())
    }
}
