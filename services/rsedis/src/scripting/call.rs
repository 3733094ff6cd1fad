//! One run of a script or function: what it asks of the server, and what the client hears of it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use mlua::{Function, LuaString, Table, Value, Variadic};

use super::debugger::{Debugger, Hook};
use super::problem::{told, was_counted, without_dashes};
use super::{Flags, NO_SCRIPT, Scripts, convert, problem_text};
use crate::acl::{Context, Denied};
use crate::command::{self, Command, DENYOOM, NOSCRIPT, STALE, WRITE};
use crate::effects::Reach;
use crate::failure::{Failure, Outcome};
use crate::protocol::{Args, OwnedArgs};
use crate::server::Server;
use crate::session::Session;

/// The state of Lua that a call's functions share.
struct Running<'a> {
    server: &'a mut Server,
    session: &'a mut Session,
    is_readonly: bool,
    flags: Flags,
    is_out_of_memory: bool,
    /// Who asked for the script.
    client: &'a mut Session,
    debugger: Debugger,
}

impl Running<'_> {
    /// One command of a script; the reply is in the session afterwards.
    fn call(&mut self, args: Args<'_>) {
        self.session.reply.bytes.clear();
        if let Err(failure) = self.try_call(args) {
            if self.debugger.tells() {
                self.debugger.note_refusal(&failure.0);
            }
            command::refuse(self.server, self.session, &failure);
        } else if self.debugger.tells() {
            self.debugger.note_reply(&self.session.reply.bytes);
        }
    }

    /// Tells the client of the debugger what there is, and waits for what it says.
    fn hear(&mut self) {
        let notes = self.debugger.take_notes();
        let heard = self.server.hear_debugger(self.client, &notes);
        self.debugger.hear(heard);
    }

    /// There is no command.
    fn refuse(&mut self, text: &'static str) {
        self.session.reply.bytes.clear();
        command::refuse(self.server, self.session, &Failure::new(text));
    }

    /// Whether the user who runs the script may run a command. Asking is not logged.
    fn is_allowed(&self, args: Args<'_>) -> bool {
        let Self { server, session, .. } = self;
        command::resolve(args)
            .is_ok_and(|command| session.may_all || server.users.check(&session.user, command, args).is_ok())
    }

    fn try_call(&mut self, args: Args<'_>) -> Outcome {
        let command = command::resolve(args).map_err(|failure| match failure.0.starts_with(b"ERR wrong number") {
            true => Failure::new("ERR Wrong number of args calling Redis command from script"),
            false => Failure::new("ERR Unknown Redis command called from script"),
        })?;
        if let Err(failure) = self.admit(command, args) {
            self.server.stats.note_rejection(command::number_of(command));
            return Err(failure);
        }
        command::run(self.server, self.session, command, args);
        Ok(())
    }

    /// Whether the script may run a command now.
    fn admit(&mut self, command: &'static Command, args: Args<'_>) -> Outcome {
        if command.is(NOSCRIPT) && !self.server.allows_all_in_scripts {
            return Err(Failure::new("ERR This Redis command is not allowed from script"));
        }
        if !command.is(STALE) && !self.session.is_master && command::is_stale(self.server) {
            return Err(Failure::new("ERR Can not execute the command on a stale replica"));
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
        let has_written = self.server.running_script.as_ref().is_some_and(|script| script.has_written);
        // Half of what a script does is no better than all of it: what comes between its writes does not end it.
        if command.is(WRITE) && !has_written {
            command::may_write_now(self.server, self.session)?;
        }
        if command.is(DENYOOM) && self.is_out_of_memory && !self.flags.allow_oom && !has_written {
            return Err(Failure::new("OOM command not allowed when used memory > 'maxmemory'."));
        }
        if let Some(script) = &mut self.server.running_script {
            script.has_written |= command.is(WRITE);
        }
        Ok(())
    }
}

/// Answers with an error of a script. One that was counted when its command ran is not counted once more.
fn fail(server: &mut Server, client: &mut Session, text: Vec<u8>, was_counted: bool) -> Outcome {
    if !was_counted {
        return Err(Failure::joined(&[&text]));
    }
    client.reply.error(&text);
    if let Some(command) = server.running {
        server.stats.note_failure(command::number_of(command));
    }
    Ok(())
}

/// The error that a script returns, if it does, and whether it was counted.
fn returned_error(value: &Value) -> Option<(Vec<u8>, bool)> {
    let Value::Table(table) = value else { return None };
    let Ok(Value::String(text)) = table.raw_get::<Value>("err") else { return None };
    Some((without_dashes(&text.as_bytes()).to_vec(), was_counted(table)))
}

impl Scripts {
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
                let registered = self.function(name).ok_or(Failure::new("ERR Function not found"))?;
                (&registered.function, registered.flags)
            }
            false => {
                let script = self.scripts.get(name).ok_or(NO_SCRIPT)?;
                (&script.function, script.flags)
            }
        };
        let function: Function =
            self.lua.registry_value(function).map_err(|error| Failure::text(format!("ERR {}", told(&error))))?;
        let limit = command::script_limit(server);
        let is_out_of_memory = server.is_out_of_memory;
        if is_out_of_memory && flags.has_shebang && !flags.allow_oom && !flags.no_writes {
            return Err(Failure::new(
                "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
            ));
        }
        if !flags.allow_stale && !client.is_master && command::is_stale(server) {
            return Err(command::MASTER_DOWN);
        }
        // One that says what it does is refused before it has done anything.
        if flags.has_shebang && !flags.no_writes {
            command::may_write_now(server, client)?;
        }
        let mut session = Session {
            id: client.id,
            slot: client.slot,
            address: client.address.clone(),
            is_local: client.is_local,
            database: client.database,
            is_authenticated: true,
            user: client.user.clone(),
            may_all: client.may_all,
            is_script: true,
            is_master: client.is_master,
            may_not_wait: true,
            tracking: client.tracking.take(),
            last_command: "eval",
            ..Session::default()
        };
        let is_resp3 = Rc::new(Cell::new(false));
        let debugger = self.debugger.clone();
        let running = RefCell::new(Running {
            server,
            session: &mut session,
            is_readonly,
            flags,
            is_out_of_memory,
            client,
            debugger,
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
                running.borrow_mut().server.effects.reach = match flags {
                    0.0 => Reach::Nobody,
                    1.0 => Reach::File,
                    2.0 => Reach::Replicas,
                    _ => Reach::All,
                };
                Ok(())
            })?;
            self.host.raw_set("set_repl", set_repl)?;
            let is_allowed = scope.create_function(|_, words: Variadic<Value>| {
                let words: Option<Vec<Vec<u8>>> = words.iter().map(convert::to_argument).collect();
                let words = words.unwrap_or_default();
                let args = OwnedArgs::new(words.iter().map(Vec::as_slice));
                Ok(running.borrow().is_allowed(args.as_args()))
            })?;
            self.host.raw_set("is_allowed", is_allowed)?;
            let run = scope.create_function(|lua, ()| {
                let mut running = running.borrow_mut();
                running.session.reply.is_resp3 = is_resp3.get();
                match self.asked.take() {
                    Some(words) if words.is_empty() => {
                        running.refuse("ERR Please specify at least one argument for this redis lib call");
                    }
                    Some(words) => {
                        if running.debugger.tells() {
                            running.debugger.note_command(&words);
                        }
                        let args = OwnedArgs::new(words.iter().map(Vec::as_slice));
                        running.call(args.as_args());
                    }
                    None => running.refuse("ERR Lua redis lib command arguments must be strings or integers"),
                }
                let bytes = std::mem::take(&mut running.session.reply.bytes);
                Ok(convert::to_lua(lua, &bytes, 0)?.0)
            })?;
            self.host.raw_set("run", &run)?;
            let strings = |args: Args<'_>| -> mlua::Result<Table> {
                let table = self.lua.create_table()?;
                for (place, text) in args.iter().enumerate() {
                    table.raw_set(place + 1, self.lua.create_string(text)?)?;
                }
                Ok(table)
            };
            let interlude = scope.create_function(|_, ()| {
                // Where a command of the script's is running it is no time for others.
                Ok(running.try_borrow_mut().is_ok_and(|mut running| running.server.serve_while_busy()))
            })?;
            if self.debugger.is_active() {
                let hear = scope.create_function(|_, ()| {
                    // Nothing of the script's runs while one of its commands does.
                    if let Ok(mut running) = running.try_borrow_mut() {
                        running.hear();
                    }
                    Ok(())
                })?;
                let (debugger, asked, is_over) =
                    (self.debugger.clone(), Rc::clone(&self.asked), Rc::clone(&self.is_over));
                Hook { debugger, limit, hear, run, asked, env: self.script_env.clone(), is_over }.set(&self.lua)?;
            } else {
                self.set_limit(limit, Some(interlude))?;
            }
            let what = (function, strings(keys)?, strings(arguments)?, is_function);
            self.limited(|| self.run.call(what))
        });
        self.end_limit();
        // The reply comes behind what the debugger says last.
        client.reply.bytes.extend(self.debugger.end());
        server.effects.reach = Reach::All;
        client.tracking = session.tracking.take();
        client.has_read |= session.has_read;
        client.is_watch_broken |= session.is_watch_broken;
        command::tell_own_now(server, client);
        match outcome {
            Ok((true, value)) => match returned_error(&value) {
                Some((text, was_counted)) => fail(server, client, text, was_counted),
                None => {
                    let written = convert::to_reply(&self.lua, value, &mut client.reply, is_resp3.get());
                    written.map_err(|error| Failure::text(format!("ERR {}", told(&error))))
                }
            },
            Ok((false, problem)) => {
                let was_counted = if let Value::Table(table) = &problem { was_counted(table) } else { false };
                fail(server, client, self.failure(name, &problem), was_counted)
            }
            Err(error) => Err(Failure::text(format!("ERR {}", told(&error)))),
        }
    }

    /// What the client hears of a script that failed.
    fn failure(&self, name: &str, problem: &Value) -> Vec<u8> {
        let text = problem_text(problem);
        let text = without_dashes(&text);
        let text = if text.is_empty() { b"ERR unknown error".as_slice() } else { text };
        let Value::Table(table) = problem else { return text.to_vec() };
        match (table.raw_get::<Option<LuaString>>("source"), table.raw_get::<Option<LuaString>>("line")) {
            (Ok(Some(source)), Ok(Some(line))) => {
                let name = format!(" script: {name}, on ");
                [text, name.as_bytes(), &source.as_bytes(), b":", &line.as_bytes(), b"."].concat()
            }
            _ => text.to_vec(),
        }
    }
}
