//! SLOWLOG: commands that took long.

use std::time::Duration;

use super::Command;
use super::secrets::is_secret;
use crate::failure::{Failure, Outcome};
use crate::number::parse_integer;
use crate::protocol::Args;
use crate::server::{Server, SlowCommand};
use crate::session::Session;

const ARGUMENTS_MAX: usize = 32;
const ARGUMENT_BYTES_MAX: usize = 128;

/// A command took this long.
#[inline]
pub(super) fn note(server: &mut Server, client: &Session, command: &Command, args: Args<'_>, took: Duration) {
    let limit = server.settings.slow_micros;
    if limit >= 0 && took.as_micros() >= limit as u128 {
        keep(server, client, command, args, took);
    }
}

#[cold]
fn keep(server: &mut Server, client: &Session, command: &Command, args: Args<'_>, took: Duration) {
    let shorten = |argument: &[u8]| match argument.len().checked_sub(ARGUMENT_BYTES_MAX) {
        None | Some(0) => argument.to_vec(),
        Some(more) => {
            let kept = &argument[..ARGUMENT_BYTES_MAX];
            [kept, format!("... ({more} more bytes)").as_bytes()].concat()
        }
    };
    let shown = |(place, argument)| match is_secret(command, args, place) {
        true => b"(redacted)".to_vec(),
        false => shorten(argument),
    };
    let mut arguments: Vec<Vec<u8>> = args.iter().enumerate().take(ARGUMENTS_MAX).map(shown).collect();
    if args.len() > ARGUMENTS_MAX {
        let more = args.len() - ARGUMENTS_MAX + 1;
        arguments[ARGUMENTS_MAX - 1] = format!("... ({more} more arguments)").into_bytes();
    }
    server.slow.push_front(SlowCommand {
        id: server.next_slow,
        at: server.now / 1000,
        micros: took.as_micros() as u64,
        arguments,
        address: client.address.clone(),
        name: client.name.clone(),
    });
    server.next_slow += 1;
    let most = server.settings.integer("slowlog-max-len").max(0) as usize;
    server.slow.truncate(most);
}

pub(super) fn get(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let count = match args.get(2) {
        None => 10,
        Some(_) if args.len() > 3 => return Err(Failure::subcommand(b"GET", "SLOWLOG")),
        Some(text) => match parse_integer(text) {
            Some(-1) => server.slow.len(),
            count => {
                let count = count.and_then(|count| usize::try_from(count).ok());
                count.ok_or(Failure::new("ERR count should be greater than or equal to -1"))?
            }
        },
    };
    let shown = count.min(server.slow.len());
    client.reply.array(shown);
    for slow in server.slow.iter().take(shown) {
        client.reply.array(6);
        client.reply.integer(slow.id as i64);
        client.reply.integer(slow.at);
        client.reply.integer(slow.micros as i64);
        client.reply.array(slow.arguments.len());
        slow.arguments.iter().for_each(|argument| client.reply.bulk(argument));
        client.reply.bulk(slow.address.as_bytes());
        client.reply.bulk(&slow.name);
    }
    Ok(())
}

pub(super) fn len(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    client.reply.count(server.slow.len());
    Ok(())
}

pub(super) fn reset(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    server.slow.clear();
    client.reply.ok();
    Ok(())
}
