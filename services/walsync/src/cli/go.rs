//! Flags as Go's package `flag` takes them, which Litestream's users have in their scripts: `-config FILE`, `-o=FILE`, `--o FILE`,
//! `-if-replica-exists=true`.

use clap::{ArgAction, Command};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// What Go takes for a truth, and for the other one.
const TRUE: [&[u8]; 6] = [b"1", b"t", b"T", b"true", b"TRUE", b"True"];
const FALSE: [&[u8]; 6] = [b"0", b"f", b"F", b"false", b"FALSE", b"False"];

/// The words of a command line, with flags as clap takes them for `command`. What stands behind `--` is left as it is.
pub fn long_flags(command: &Command, arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let words: Vec<OsString> = arguments.collect();
    let verb = words.get(1).and_then(|verb| command.find_subcommand(verb));
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let flags = words[..end].iter().filter_map(|word| flag(word, verb));
    flags.chain(words[end..].iter().cloned()).collect()
}

/// One word; `None`: it says that a flag is not set.
fn flag(word: &OsStr, verb: Option<&Command>) -> Option<OsString> {
    let bytes = word.as_bytes();
    let bare = bytes.strip_prefix(b"--").or_else(|| bytes.strip_prefix(b"-"));
    let is_short = bytes.len() == 2;
    let Some(bare) = bare.filter(|bare| !is_short && bare.first().is_some_and(u8::is_ascii_lowercase)) else {
        return Some(word.into());
    };
    let (name, value) = match bare.iter().position(|byte| *byte == b'=') {
        Some(at) => (&bare[..at], Some(&bare[at + 1..])),
        None => (bare, None),
    };
    let argument = verb.and_then(|verb| {
        let is_meant = |argument: &&clap::Arg| match (name, argument.get_short()) {
            ([letter], Some(short)) => char::from(*letter) == short,
            _ => argument.get_long().is_some_and(|long| long.as_bytes() == name),
        };
        verb.get_arguments().find(is_meant)
    });
    // One letter is a short flag, with however many dashes.
    let name = match argument.and_then(clap::Arg::get_long) {
        Some(long) if name.len() == 1 => long.as_bytes(),
        _ => name,
    };
    let joined = |value: Option<&[u8]>| {
        let value = value.map(|value| [b"=", value].concat()).unwrap_or_default();
        OsString::from_vec([b"--", name, &value].concat())
    };
    match (argument.map(clap::Arg::get_action), value) {
        (Some(ArgAction::SetTrue), Some(value)) if TRUE.contains(&value) => Some(joined(None)),
        (Some(ArgAction::SetTrue), Some(value)) if FALSE.contains(&value) => None,
        (_, value) => Some(joined(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn flags_are_taken_as_go_takes_them() {
        for (given, expected) in [
            ("restore -config c.yml -o x /a.db", "restore --config c.yml -o x /a.db"),
            ("restore -o=x --o=y --o z", "restore --output=x --output=y --output z"),
            (
                "restore -if-replica-exists=true --if-db-not-exists=T -f=1",
                "restore --if-replica-exists --if-db-not-exists --follow",
            ),
            ("restore -if-replica-exists=false -dry-run=0 -txid=1", "restore --txid=1"),
            ("replicate -once=true -exec=true", "replicate --once --exec=true"),
            ("watch --exec=app -- -config x=true", "watch --exec=app -- -config x=true"),
            ("list -level=9 -json=maybe -5 - /x=y", "list --level=9 --json=maybe -5 - /x=y"),
            ("wrong -x=true", "wrong --x=true"),
        ] {
            let words = std::iter::once("walsync").chain(given.split(' ')).map(OsString::from);
            let command = crate::cli::Walsync::command();
            let taken = long_flags(&command, words)
                .into_iter()
                .skip(1)
                .map(|word| word.into_string().unwrap())
                .collect::<Vec<_>>();
            assert_eq!(taken.join(" "), expected);
        }
    }
}
