//! FUNCTION and FCALL.

use super::options::is;
use super::scripts;
use crate::failure::{Failure, Outcome};
use crate::glob;
use crate::protocol::Args;
use crate::rdb;
use crate::scripting;
use crate::server::Server;
use crate::session::Session;

fn call(server: &mut Server, client: &mut Session, args: Args<'_>, is_readonly: bool) -> Outcome {
    let name = String::from_utf8_lossy(args.at(1)).into_owned();
    let function = scripting::engine(server)?.function(&name);
    let function = function.ok_or(Failure::new("ERR Function not found"))?;
    if is_readonly && !function.flags.no_writes {
        return Err(Failure::new("ERR Can not execute a script with write flag using *_ro command."));
    }
    let is_number = crate::number::parse_integer(args.at(2)).is_some();
    if !is_number {
        return Err(Failure::new("ERR Bad number of keys provided"));
    }
    scripts::call(server, client, &name, true, args, is_readonly)
}

pub(super) fn fcall(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    call(server, client, args, false)
}

pub(super) fn fcall_ro(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    call(server, client, args, true)
}

pub(super) fn load(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let mut replaces = false;
    for word in args.to(args.len() - 1).from(2).iter() {
        if !is(word, "REPLACE") {
            return Err(Failure::joined(&[b"ERR Unknown option given: ", word]));
        }
        replaces = true;
    }
    let limit = scripts::limit(server);
    let code = args.at(args.len() - 1);
    let name = scripting::engine(server)?.load_library(code, replaces, limit)?;
    server.dirty += 1;
    client.reply.bulk(name.as_bytes());
    Ok(())
}

pub(super) fn delete(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let name = String::from_utf8_lossy(args.at(2)).into_owned();
    if !scripting::engine(server)?.remove_library(&name) {
        return Err(Failure::new("ERR Library not found"));
    }
    server.dirty += 1;
    client.reply.ok();
    Ok(())
}

fn wrong_count(name: &[u8]) -> Failure {
    Failure::subcommand(name, "FUNCTION")
}

pub(super) fn flush(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    if args.len() > 3 {
        return Err(wrong_count(args.at(1)));
    }
    let is_understood = match args.get(2) {
        None => true,
        Some(word) => args.len() == 3 && (is(word, "SYNC") || is(word, "ASYNC")),
    };
    if !is_understood {
        return Err(Failure::new("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
    }
    if let Some(scripts) = &mut server.scripts {
        scripts.flush_libraries();
    }
    server.dirty += 1;
    client.reply.ok();
    Ok(())
}

pub(super) fn list(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (mut pattern, mut with_code) = (None, false);
    let mut at = 2;
    while let Some(word) = args.get(at) {
        if !with_code && is(word, "WITHCODE") {
            with_code = true;
        } else if pattern.is_none() && is(word, "LIBRARYNAME") {
            at += 1;
            let given = args.get(at).ok_or(Failure::new("ERR library name argument was not given"))?;
            pattern = Some(given);
        } else {
            return Err(Failure::joined(&[b"ERR Unknown argument ", word]));
        }
        at += 1;
    }
    let scripts = scripting::engine(server)?;
    let reply = &mut client.reply;
    let is_wanted = |name: &str| pattern.is_none_or(|pattern| glob::matches_with(pattern, name.as_bytes(), true));
    let wanted: Vec<_> = scripts.libraries.iter().filter(|(name, _)| is_wanted(name)).collect();
    reply.array(wanted.len());
    for (name, library) in wanted {
        reply.map(if with_code { 4 } else { 3 });
        reply.bulk(b"library_name");
        reply.bulk(name.as_bytes());
        reply.bulk(b"engine");
        reply.bulk(b"LUA");
        reply.bulk(b"functions");
        reply.array(library.functions.len());
        for function in library.functions.iter().filter_map(|name| Some((name, scripts.function(name)?))) {
            let (name, function) = function;
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(name.as_bytes());
            reply.bulk(b"description");
            match &function.description {
                Some(text) => reply.bulk(text),
                None => reply.null(),
            }
            reply.bulk(b"flags");
            reply.set(function.flag_names.len());
            function.flag_names.iter().for_each(|flag| reply.simple(flag));
        }
        if with_code {
            reply.bulk(b"library_code");
            reply.bulk(&library.code);
        }
    }
    Ok(())
}

pub(super) fn stats(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    let running = server.running_script.take();
    let (libraries, functions) = match &running {
        Some(script) => script.loaded,
        None => scripting::engine(server).map(|scripts| (scripts.libraries.len(), scripts.functions.len()))?,
    };
    let reply = &mut client.reply;
    reply.map(2);
    reply.bulk(b"running_script");
    match &running {
        None => reply.null(),
        Some(script) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(script.name.as_bytes());
            reply.bulk(b"command");
            reply.array(script.words.len());
            script.words.iter().for_each(|word| reply.bulk(word));
            reply.bulk(b"duration_ms");
            reply.integer(script.began.elapsed().as_millis() as i64);
        }
    }
    server.running_script = running;
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.count(libraries);
    reply.bulk(b"functions_count");
    reply.count(functions);
    Ok(())
}

pub(super) fn kill(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    server.kill_script(true)?;
    client.reply.ok();
    Ok(())
}

pub(super) fn dump(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    client.reply.bulk(&rdb::dump_libraries(server));
    Ok(())
}

pub(super) fn restore(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    if args.len() > 4 {
        return Err(wrong_count(args.at(1)));
    }
    let (flushes, replaces) = match args.get(3) {
        None => (false, false),
        Some(word) if args.len() == 4 && is(word, "FLUSH") => (true, false),
        Some(word) if args.len() == 4 && is(word, "APPEND") => (false, false),
        Some(word) if args.len() == 4 && is(word, "REPLACE") => (false, true),
        Some(_) => {
            return Err(Failure::new(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ));
        }
    };
    let payload = args.at(2);
    if !rdb::is_whole(payload, false) {
        return Err(Failure::new("ERR DUMP payload version or checksum are wrong"));
    }
    let codes = rdb::restore_libraries(payload).ok_or(Failure::new("ERR can not read data type"))?;
    let scripts = scripting::engine(server)?;
    // All or nothing.
    let before = (scripts.libraries.clone(), scripts.functions.clone());
    if flushes {
        scripts.flush_libraries();
    }
    for code in codes {
        if let Err(failure) = scripts.load_library(&code, replaces, None) {
            (scripts.libraries, scripts.functions) = before;
            // The words of RESTORE are other than those of LOAD.
            return Err(match failure.0.starts_with(b"ERR Library '") {
                true => Failure::text(failure.to_string().replace('\'', "")),
                false => failure,
            });
        }
    }
    server.dirty += 1;
    client.reply.ok();
    Ok(())
}
