//! Where a script stops: called by Lua before each line, and now and then in between.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mlua::debug::{Debug, DebugEvent};
use mlua::{Function, HookTriggers, Lua, Table, VmState};

use super::Debugger;
use crate::scripting::HOOK_INSTRUCTIONS;
use crate::scripting::watch::KILLED;

/// How long a script runs without a stop where `busy-reply-threshold` is 0 (as in Redis).
const LIMIT: Duration = Duration::from_secs(5);
/// What Redis calls a script's text; nothing else is stopped in.
const SCRIPT: &str = "user_script";

/// What the hook works with.
pub(in crate::scripting) struct Hook {
    pub(in crate::scripting) debugger: Debugger,
    /// How long a script runs without a stop.
    pub(in crate::scripting) limit: Option<Duration>,
    /// Tells the client what there is, and leaves what it says in the debugger.
    pub(in crate::scripting) hear: Function,
    /// Runs the command whose words were left for it.
    pub(in crate::scripting) run: Function,
    /// The same words.
    pub(in crate::scripting) asked: crate::scripting::problem::Asked,
    /// What scripts see.
    pub(in crate::scripting) env: Table,
    /// What runs is over: nothing in it may catch that.
    pub(in crate::scripting) is_over: Rc<Cell<bool>>,
}

impl Hook {
    /// Stops what runs from now on, also in coroutines.
    pub(in crate::scripting) fn set(self, lua: &Lua) -> mlua::Result<()> {
        self.is_over.set(false);
        let triggers = HookTriggers::new().every_line().every_nth_instruction(HOOK_INSTRUCTIONS);
        lua.set_global_hook(triggers, move |lua, frame| self.look(lua, frame).map(|()| VmState::Continue))
    }

    /// Ends the script for this reason.
    pub(super) fn end<T>(&self, why: &str) -> mlua::Result<T> {
        self.is_over.set(true);
        Err(mlua::Error::runtime(why))
    }

    pub(super) fn limit(&self) -> Duration {
        self.limit.unwrap_or(LIMIT)
    }

    fn look(&self, lua: &Lua, frame: &Debug<'_>) -> mlua::Result<()> {
        if let Some(until) = self.debugger.with(|session| session.evaluates_until).flatten() {
            // The client's own code is not stopped in, but it does not hold the server either.
            return if Instant::now() < until {
                Ok(())
            } else {
                self.end("this runs for longer than busy-reply-threshold")
            };
        }
        if self.is_over.get() {
            return self.end(KILLED);
        }
        if !frame.source().short_src.is_some_and(|name| name.contains(SCRIPT)) {
            return Ok(());
        }
        let (line, is_count) = (frame.current_line().unwrap_or(0), frame.event() == DebugEvent::Count);
        let Some((why, is_late)) = self.why(line, is_count) else { return Ok(()) };
        const LATE: &str = "timeout during Lua debugging with client closing connection";
        if self.debugger.with(|session| session.is_alone).unwrap_or(true) {
            return if is_late { self.end(LATE) } else { Ok(()) };
        }
        self.debugger.note(format!("* Stopped at {line}, stop reason = {why}"));
        self.debugger.with(|session| session.note_line(line));
        self.converse(lua)?;
        self.debugger.with(|session| session.runs_since = Instant::now());
        match self.debugger.with(|session| session.is_alone) {
            // It runs for too long, and nobody is there to say that it may.
            Some(true) if is_late => self.end(LATE),
            _ => Ok(()),
        }
    }

    /// Why it stops here, if it does; and whether that is for its time.
    fn why(&self, line: usize, is_count: bool) -> Option<(&'static str, bool)> {
        self.debugger
            .with(|session| {
                session.line = line;
                let is_marked = session.breakpoints.contains(&line);
                let is_asked = std::mem::take(&mut session.is_break_asked);
                let steps = std::mem::take(&mut session.steps);
                match (is_asked, is_marked, steps) {
                    (true, ..) => Some(("redis.breakpoint() called", false)),
                    (false, true, _) => Some(("break point", false)),
                    (false, false, true) => Some(("step over", false)),
                    _ if is_count && session.runs_since.elapsed() >= self.limit() => {
                        Some(("timeout reached, infinite loop?", true))
                    }
                    _ => None,
                }
            })
            .flatten()
    }
}
