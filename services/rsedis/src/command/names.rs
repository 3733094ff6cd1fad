//! How commands are found: by their names, as `rename-command` has them, and by their numbers.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

use super::{COMMANDS, Command};
use crate::failure::{Failure, Outcome, up_to_zero};
use crate::protocol::Args;

static BY_NAME: LazyLock<HashMap<&'static [u8], &'static Command, ahash::RandomState>> = LazyLock::new(|| {
    let mut by_name = HashMap::with_hasher(ahash::RandomState::with_seeds(5, 6, 7, 8));
    let renames = RENAMES.get_or_init(Vec::new);
    for command in COMMANDS {
        let renamed = renames.iter().find(|(name, _)| name == command.name);
        by_name.insert(renamed.map_or(command.name, |(_, name)| name).as_bytes(), command);
    }
    // Who is called nothing is not found.
    by_name.remove(b"".as_slice());
    by_name
});

/// `rename-command`: of the process, since it cannot change while it runs.
static RENAMES: OnceLock<Vec<(String, String)>> = OnceLock::new();

/// Commands are found by these names from now on; before any is looked for.
pub fn rename(renames: Vec<(String, String)>) {
    // Who comes second finds that it was done.
    drop(RENAMES.set(renames));
}

/// Every command: subcommands behind their commands. Their numbers are their places here.
static ALL: LazyLock<Vec<&'static Command>> =
    LazyLock::new(|| COMMANDS.iter().flat_map(|command| [command].into_iter().chain(command.subcommands)).collect());

/// The places in [`ALL`] of those in [`COMMANDS`].
static OWN_NUMBERS: LazyLock<Vec<usize>> = LazyLock::new(|| {
    let next = |number: &mut usize, command: &Command| {
        let own = *number;
        *number += 1 + command.subcommands.len();
        Some(own)
    };
    COMMANDS.iter().scan(0, next).collect()
});

/// Subcommands' by where they are in memory: there is one of each.
static NUMBERS: LazyLock<HashMap<usize, usize, ahash::RandomState>> = LazyLock::new(|| {
    let mut numbers = HashMap::with_hasher(ahash::RandomState::with_seeds(5, 6, 7, 8));
    numbers.extend(ALL.iter().enumerate().map(|(number, command)| (address(command), number)));
    numbers
});

fn address(command: &Command) -> usize {
    std::ptr::from_ref(command).addr()
}

/// Every command: subcommands behind their commands.
pub fn all() -> &'static [&'static Command] {
    &ALL
}

/// The place of a command in [`all`].
#[inline]
pub fn number_of(command: &Command) -> usize {
    let place = address(command).wrapping_sub(COMMANDS.as_ptr().addr()) / size_of::<Command>();
    match OWN_NUMBERS.get(place) {
        Some(number) => *number,
        None => NUMBERS[&address(command)],
    }
}

/// A command by its name, a subcommand as `config|get`, whatever its case.
pub fn named(name: &[u8]) -> Option<&'static Command> {
    all().iter().find(|command| command.name.as_bytes().eq_ignore_ascii_case(name)).copied()
}

/// A command by the name that clients have for it, a subcommand as `config|get`, whatever its case.
pub(super) fn called(name: &[u8]) -> Option<&'static Command> {
    match memchr::memchr(b'|', name) {
        None => find(name),
        Some(at) => subcommand(find(&name[..at])?, &name[at + 1..]),
    }
}

/// Commands that clients can call.
pub(super) fn callable() -> impl Iterator<Item = &'static Command> {
    let removed = RENAMES.get_or_init(Vec::new).iter().filter(|(_, name)| name.is_empty());
    let removed: Vec<&str> = removed.map(|(name, _)| name.as_str()).collect();
    COMMANDS.iter().filter(move |command| !removed.contains(&command.name))
}

/// The longest name of a command is shorter than this.
const NAME_BYTES_MAX: usize = 64;

/// A command by its name, whatever its case.
#[inline]
pub fn find(name: &[u8]) -> Option<&'static Command> {
    let mut small = [0; NAME_BYTES_MAX];
    let small = small.get_mut(..name.len())?;
    small.copy_from_slice(name);
    small.make_ascii_lowercase();
    BY_NAME.get(&*small).copied()
}

/// A command's subcommand by its own word, whatever its case.
#[inline]
fn subcommand(command: &'static Command, word: &[u8]) -> Option<&'static Command> {
    command.subcommands.iter().find(|sub| sub.name.as_bytes()[command.name.len() + 1..].eq_ignore_ascii_case(word))
}

/// The command or subcommand that these arguments are for. Errors as Redis has them.
#[inline]
pub fn resolve(args: Args<'_>) -> Outcome<&'static Command> {
    let name = args.at(0);
    let Some(command) = find(name) else { return Err(unknown(args)) };
    if command.subcommands.is_empty() || args.len() < 2 {
        return if command.takes(args.len()) { Ok(command) } else { Err(Failure::arity(command.name)) };
    }
    let wanted = args.at(1);
    match subcommand(command, wanted) {
        Some(sub) if sub.takes(args.len()) => Ok(sub),
        Some(sub) => Err(Failure::arity(sub.name)),
        None => {
            let end = format!("'. Try {} HELP.", command.name.to_ascii_uppercase());
            Err(Failure::joined(&[b"ERR unknown subcommand '", beginning(wanted), end.as_bytes()]))
        }
    }
}

/// The command that arguments were for which it does not take.
#[cold]
pub(super) fn meant(args: Args<'_>) -> Option<&'static Command> {
    let command = find(args.at(0))?;
    match args.get(1) {
        Some(word) if !command.subcommands.is_empty() => subcommand(command, word),
        _ => Some(command),
    }
}

/// Whether a command has this name, whatever `rename-command` says: that can be asked before anything is renamed.
pub fn is_own_name(name: &str) -> bool {
    COMMANDS.iter().any(|command| command.name == name)
}

/// Whether there is a command of this name.
pub fn is_known(name: &[u8]) -> bool {
    find(name).is_some()
}

pub(super) fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(beginning(bytes)).into_owned()
}

/// As much of a word as an error shows.
fn beginning(bytes: &[u8]) -> &[u8] {
    let text = up_to_zero(bytes);
    &text[..text.len().min(128)]
}

#[cold]
fn unknown(args: Args<'_>) -> Failure {
    let mut text =
        [b"ERR unknown command '".as_slice(), beginning(args.at(0)), b"', with args beginning with: "].concat();
    let mut listed = 0;
    for argument in args.from(1).iter() {
        if listed >= 128 {
            break;
        }
        let argument = up_to_zero(argument);
        let argument = &argument[..argument.len().min(128 - listed)];
        let argument = [b"'".as_slice(), argument, b"' "].concat();
        listed += argument.len();
        text.extend_from_slice(&argument);
    }
    Failure::joined(&[&text])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commands_number_is_its_place() {
        for (place, command) in all().iter().enumerate() {
            assert_eq!(number_of(command), place, "{}", command.name);
        }
    }
}
