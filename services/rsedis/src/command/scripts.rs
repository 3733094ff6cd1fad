//! EVAL and SCRIPT.

use std::time::{Duration, Instant};

use super::options::is;
use crate::failure::{Failure, Outcome};
use crate::number::parse_integer;
use crate::protocol::Args;
use crate::scripting::{self, NO_SCRIPT};
use crate::server::{Request, RunningScript, Server};
use crate::session::{Debugging, Session};
use crate::waiting::{self, TimeoutReply};

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

/// Whether a script or function has said what it does, and may write.
pub(super) fn says_it_writes(server: &Server, command: &super::Command, args: Args<'_>) -> bool {
    let name = || String::from_utf8_lossy(args.at(1)).into_owned();
    let scripts = server.scripts.as_deref();
    let says = match command.name {
        "eval" => args.at(1).starts_with(b"#!"),
        "evalsha" => {
            scripts.and_then(|scripts| scripts.flags(&name().to_ascii_lowercase())).is_some_and(|is| is.has_shebang)
        }
        "fcall" => scripts.and_then(|scripts| scripts.function(&name())).is_some(),
        _ => false,
    };
    says && !writes_nothing(server, command, args)
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
    let Some(mut scripts) = server.scripts.take() else { return Err(NO_SCRIPT) };
    let is_outermost = server.effects.begin_group();
    server.running_script = Some(Box::new(RunningScript {
        name: name.to_owned(),
        words: args.iter().map(<[u8]>::to_vec).collect(),
        is_function,
        is_masters: client.is_master,
        began: Instant::now(),
        has_written: false,
        is_busy: false,
        is_debugged: client.debugging == Debugging::Underway,
        is_killed: false,
        loaded: (scripts.libraries.len(), scripts.functions.len()),
    }));
    let outcome = scripts.call(server, client, name, is_function, keys, arguments, is_readonly);
    if is_outermost {
        server.effects.end_transaction();
    }
    server.effects.say_nothing();
    server.running_script = None;
    scripts.tidy();
    server.scripts = Some(scripts);
    outcome
}

/// No fork, no copy of the keys that could be thrown away.
const NOT_TAKEN_BACK: Failure = Failure::new(
    "ERR SCRIPT DEBUG YES would take back what a script changes, and this server cannot: use SCRIPT DEBUG SYNC, where it stays, or \
     SCRIPT DEBUG NO",
);

/// A script of a client that debugs: once all that was done before it is safe, the loop runs it, and talks to the client meanwhile.
fn evaluate_debugged(server: &mut Server, client: &mut Session, args: Args<'_>, is_readonly: bool) -> Outcome {
    if client.debugging == Debugging::Refused {
        return Err(NOT_TAKEN_BACK);
    }
    if client.may_not_wait {
        return Err(Failure::new("ERR a script cannot be debugged in a transaction: EXEC answers at once"));
    }
    if !client.is_retrying {
        server.requests.push(Request::DebugScript(client.slot));
        waiting::wait(server, client, args, Vec::new(), None, TimeoutReply::Runs);
        return Ok(());
    }
    client.debugging = Debugging::Underway;
    scripting::engine(server)?.begin_debugging(args.at(1));
    let outcome = evaluate(server, client, args, is_readonly);
    // Nothing is left of one that ran.
    let last = scripting::engine(server)?.end_debugging();
    client.reply.bytes.extend(last);
    // As in Redis: a session is over when its connection is.
    client.is_closing = true;
    outcome
}

fn evaluate(server: &mut Server, client: &mut Session, args: Args<'_>, is_readonly: bool) -> Outcome {
    if matches!(client.debugging, Debugging::Sync | Debugging::Refused) {
        return evaluate_debugged(server, client, args, is_readonly);
    }
    split(args)?;
    let name = scripting::engine(server)?.compile(args.at(1))?;
    call(server, client, &name, false, args, is_readonly)
}

fn evaluate_known(server: &mut Server, client: &mut Session, args: Args<'_>, is_readonly: bool) -> Outcome {
    let name = String::from_utf8_lossy(args.at(1)).to_ascii_lowercase();
    if client.debugging != Debugging::Off && name.len() == scripting::NAME_LENGTH {
        return Err(Failure::new("ERR Please use EVAL instead of EVALSHA for debugging"));
    }
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

pub(super) fn debug(_: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    if client.waiting_bytes() > 0 {
        return Err(Failure::new("ERR SCRIPT DEBUG must be called outside a pipeline"));
    }
    client.debugging = match args.at(2) {
        word if is(word, "NO") => Debugging::Off,
        word if is(word, "SYNC") => Debugging::Sync,
        word if is(word, "YES") => {
            // `redis-cli --ldb` does not look at the answer: its script must not run all the same.
            client.debugging = Debugging::Refused;
            return Err(NOT_TAKEN_BACK);
        }
        _ => return Err(Failure::new("ERR Use SCRIPT DEBUG YES/SYNC/NO")),
    };
    client.reply.ok();
    Ok(())
}
