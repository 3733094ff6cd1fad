//! MONITOR: clients that see every command as it was run, but for those of administrators, and without passwords.

use std::fmt::Write as _;

use super::secrets;
use super::{ADMIN, Command};
use crate::failure::{Failure, Outcome};
use crate::protocol::Args;
use crate::server::Server;
use crate::session::Session;

pub(super) fn monitor(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    if client.may_not_wait {
        return Err(Failure::new("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    if !client.is_monitor {
        client.is_monitor = true;
        server.monitors.push(client.slot);
    }
    client.reply.ok();
    Ok(())
}

/// A client monitors no longer.
pub fn end(server: &mut Server, client: &mut Session) {
    if std::mem::take(&mut client.is_monitor) {
        server.monitors.retain(|slot| *slot != client.slot);
    }
}

/// As Redis writes strings for people.
pub fn push_quoted(text: &mut String, bytes: &[u8]) {
    text.push('"');
    for byte in bytes {
        match byte {
            b'\\' | b'"' => {
                text.push('\\');
                text.push(char::from(*byte));
            }
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            0x07 => text.push_str("\\a"),
            0x08 => text.push_str("\\b"),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => {
                // Writing to a string cannot fail.
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
    }
    text.push('"');
}

/// Shows a command to all who monitor.
#[cold]
pub(super) fn show(server: &mut Server, client: &Session, command: &Command, args: Args<'_>) {
    if command.is(ADMIN) || server.is_loading {
        return;
    }
    let address = if client.is_script { "lua" } else { &client.address };
    let (seconds, micros) = (server.now / 1000, server.now % 1000 * 1000);
    let mut line = format!("{seconds}.{micros:06} [{} {address}]", client.database);
    for (place, argument) in args.iter().enumerate() {
        line.push(' ');
        push_quoted(&mut line, if secrets::is_secret(command, args, place) { b"(redacted)" } else { argument });
    }
    for slot in server.monitors.clone() {
        if let Some(Some(session)) = server.sessions.get_mut(slot)
            && !session.is_killed
        {
            session.reply.simple(&line);
            server.woken.push(slot);
            server.bound_output(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_written_as_redis_writes_them() {
        let mut text = String::new();
        push_quoted(&mut text, b"a \"b\"\\\n\r\t\x07\x08\x00\xff");
        assert_eq!(text, r#""a \"b\"\\\n\r\t\a\b\x00\xff""#);
    }
}
