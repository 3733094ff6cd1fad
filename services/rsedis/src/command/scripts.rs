//! EVAL and SCRIPT.

use std::time::{Duration, Instant};

use super::options::is;
use crate::failure::{Failure, Outcome, SYNTAX};
use crate::number::parse_integer;
use crate::protocol::Args;
use crate::scripting::{self, NO_SCRIPT};
use crate::server::{RunningScript, Server};
use crate::session::Session;

/// The keys and what follows them.
pub(super) fn split(args: Args<'_>) -> Outcome<(Args<'_>, Args<'_>)> {
    let number = parse_integer(args.at(2)).ok_or(crate::failure::NOT_INTEGER)?;
    if number < 0 {
        return Err(Failure::new("ERR Number of keys can't be negative"));
    }
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    if number > args.len() - 3 {
        return Err(Failure::new("ERR Number of keys can't be greater than number of args"));
    }
    Ok((args.from(3).to(number), args.from(3 + number)))
}

/// Whether a script or function has said that it writes nothing.
pub(super) fn writes_nothing(server: &Server, command: &super::Command, args: Args<'_>) -> bool {
    let name = || String::from_utf8_lossy(args.at(1)).into_owned();
    let scripts = server.scripts.as_deref();
    let flags = match command.name {
        "eval" => {
            let line = args.at(1).split(|byte| *byte == b'\n').next().unwrap_or_default();
            return line.starts_with(b"#!") && line.windows(9).any(|word| word == b"no-writes");
        }
        "evalsha" => scripts.and_then(|scripts| scripts.flags(&name().to_ascii_lowercase())),
        "fcall" => scripts.and_then(|scripts| scripts.function(&name())).map(|function| function.flags),
        _ => None,
    };
    flags.is_some_and(|flags| flags.no_writes)
}

/// How long a script may run.
pub fn limit(server: &Server) -> Option<Duration> {
    let millis = server.settings.integer("busy-reply-threshold");
    u64::try_from(millis).ok().filter(|millis| *millis > 0).map(Duration::from_millis)
}

/// Runs a script or function, with its effects between MULTI and EXEC.
pub(super) fn call(
    server: &mut Server,
    client: &mut Session,
    name: &str,
    is_function: bool,
    args: Args<'_>,
    is_readonly: bool,
) -> Outcome {
    let (keys, arguments) = split(args)?;
    let Some(scripts) = server.scripts.take() else { return Err(NO_SCRIPT) };
    let is_outermost = server.effects.begin_group();
    server.running_script = Some(Box::new(RunningScript {
        name: name.to_owned(),
        words: args.iter().map(<[u8]>::to_vec).collect(),
        is_function,
        is_masters: client.is_master,
        began: Instant::now(),
        has_written: false,
        is_busy: false,
        is_killed: false,
        loaded: (scripts.libraries.len(), scripts.functions.len()),
    }));
    let outcome = scripts.call(server, client, name, is_function, keys, arguments, is_readonly);
    if is_outermost {
        server.effects.end_transaction();
    }
    server.effects.say_nothing();
    server.running_script = None;
    server.scripts = Some(scripts);
    outcome
}

fn evaluate(server: &mut Server, client: &mut Session, args: Args<'_>, is_readonly: bool) -> Outcome {
    split(args)?;
    let name = scripting::engine(server)?.compile(args.at(1))?;
    call(server, client, &name, false, args, is_readonly)
}

fn evaluate_known(server: &mut Server, client: &mut Session, args: Args<'_>, is_readonly: bool) -> Outcome {
    let name = String::from_utf8_lossy(args.at(1)).to_ascii_lowercase();
    if !server.scripts.as_ref().is_some_and(|scripts| scripts.has(&name)) {
        return Err(NO_SCRIPT);
    }
    call(server, client, &name, false, args, is_readonly)
}

pub(super) fn eval(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    evaluate(server, client, args, false)
}

pub(super) fn eval_ro(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    evaluate(server, client, args, true)
}

pub(super) fn evalsha(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    evaluate_known(server, client, args, false)
}

pub(super) fn evalsha_ro(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    evaluate_known(server, client, args, true)
}

pub(super) fn load(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let name = scripting::engine(server)?.compile(args.at(2))?;
    client.reply.bulk(name.as_bytes());
    Ok(())
}

pub(super) fn exists(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    client.reply.array(args.len() - 2);
    for name in args.from(2).iter() {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        client.reply.flag(server.scripts.as_ref().is_some_and(|scripts| scripts.has(&name)));
    }
    Ok(())
}

pub(super) fn flush(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    match args.get(2) {
        None => {}
        Some(word) if args.len() == 3 && (is(word, "SYNC") || is(word, "ASYNC")) => {}
        Some(_) => return Err(Failure::new("ERR SCRIPT FLUSH only support SYNC|ASYNC option")),
    }
    if let Some(scripts) = &mut server.scripts {
        scripts.flush();
    }
    client.reply.ok();
    Ok(())
}

pub(super) fn kill(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    server.kill_script(false)?;
    client.reply.ok();
    Ok(())
}

/// Only NO: there is no debugger.
pub(super) fn debug(_: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    match args.at(2) {
        word if is(word, "NO") => {
            client.reply.ok();
            Ok(())
        }
        word if is(word, "YES") || is(word, "SYNC") => Err(Failure::new("ERR there is no script debugger")),
        _ => Err(SYNTAX),
    }
}
