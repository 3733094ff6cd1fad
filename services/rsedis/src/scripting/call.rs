//! One run of a script or function: what it asks of the server, and what the client hears of it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use mlua::{Table, Value, Variadic};

use super::{Flags, NO_SCRIPT, Scripts, convert, problem_text, told};
use crate::acl::{Context, Denied};
use crate::command::{self, DENYOOM, NOSCRIPT, WRITE};
use crate::failure::{Failure, Outcome};
use crate::protocol::Args;
use crate::protocol::request::OwnedArgs;
use crate::server::Server;
use crate::session::Session;

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

    /// Whether the user who runs the script may run a command. Asking is not logged.
    fn is_allowed(&self, args: Args<'_>) -> bool {
        let Self { server, session, .. } = self;
        command::resolve(args)
            .is_ok_and(|command| session.may_all || server.users.check(&session.user, command, args).is_ok())
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
            command::may_write_now(self.server, self.session)?;
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
        let is_for_readers = server.replication.is_replica() && server.settings.is_read_only && !client.is_master;
        if is_for_readers && flags.has_shebang && !flags.no_writes {
            return Err(Failure::new("READONLY Can not run script with write flag on readonly replica."));
        }
        // One that says what it does is refused before it has done anything.
        if flags.has_shebang && !flags.no_writes {
            command::may_write_now(server, client)?;
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
            is_master: client.is_master,
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
            let is_allowed = scope.create_function(|_, words: Variadic<Value>| {
                let words: Option<Vec<Vec<u8>>> = words.iter().map(convert::to_argument).collect();
                let words = words.unwrap_or_default();
                let args = OwnedArgs::new(words.iter().map(Vec::as_slice));
                Ok(running.borrow().is_allowed(args.as_args()))
            })?;
            self.host.raw_set("is_allowed", is_allowed)?;
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
