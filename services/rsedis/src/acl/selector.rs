//! Commands, keys and channels that go together: what is allowed must be allowed by one selector as a whole.

use std::collections::BTreeMap;

use super::{Denied, RuleError, has_spaces};
use crate::command::key_specs::{ACCESS, DELETE, INSERT, UPDATE, keys_of};
use crate::command::{self, CATEGORY_NAMES, Command, Flags, NO_AUTH, NO_MANDATORY_KEYS};
use crate::failure::up_to_zero;
use crate::glob;
use crate::protocol::Args;

/// Commands by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CommandSet(Vec<bool>);

impl CommandSet {
    fn new(all: bool) -> Self {
        Self(vec![all; command::all().len()])
    }

    fn has(&self, command: &Command) -> bool {
        self.0[command::number_of(command)]
    }

    /// A command, and its subcommands.
    fn set(&mut self, command: &Command, is_in: bool) {
        self.0[command::number_of(command)] = is_in;
        for sub in command.subcommands {
            self.0[command::number_of(sub)] = is_in;
        }
    }

    fn set_category(&mut self, category: Flags, is_in: bool) {
        for command in commands_of(category) {
            self.set(command, is_in);
        }
    }

    /// How many commands of a category are in, and how many are not.
    fn count(&self, category: Flags) -> (usize, usize) {
        let all = commands_of(category).count();
        let is_in = commands_of(category).filter(|command| self.has(command)).count();
        (is_in, all - is_in)
    }
}

/// A category by its name, without `@`.
pub fn category_named(name: &[u8]) -> Option<Flags> {
    let is_it = |known: &str| known.as_bytes()[1..].eq_ignore_ascii_case(name);
    CATEGORY_NAMES.iter().find(|(_, known)| is_it(known)).map(|(category, _)| *category)
}

/// All commands of a category.
pub fn commands_of(category: Flags) -> impl Iterator<Item = &'static Command> {
    command::all().iter().copied().filter(move |command| command.categories() & category != 0)
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyPattern {
    pattern: Vec<u8>,
    reads: bool,
    writes: bool,
}

impl KeyPattern {
    fn describe(&self) -> Vec<u8> {
        let head: &[u8] = match (self.reads, self.writes) {
            (true, false) => b"%R~",
            (false, true) => b"%W~",
            _ => b"~",
        };
        [head, &self.pattern].concat()
    }
}

/// See the module's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// Also commands that are added later: `+@all` came last.
    has_future: bool,
    commands: CommandSet,
    /// Commands that are only allowed with one of these as first argument.
    first_arguments: BTreeMap<usize, Vec<Vec<u8>>>,
    has_all_keys: bool,
    keys: Vec<KeyPattern>,
    has_all_channels: bool,
    channels: Vec<Vec<u8>>,
}

fn lookup(name: &[u8]) -> Result<&'static Command, RuleError> {
    command::named(name).ok_or(RuleError::Unknown)
}

impl Selector {
    /// Nothing.
    pub(super) fn new(has_all_channels: bool) -> Self {
        Self {
            has_future: false,
            commands: CommandSet::new(false),
            first_arguments: BTreeMap::new(),
            has_all_keys: false,
            keys: Vec::new(),
            has_all_channels,
            channels: Vec::new(),
        }
    }

    /// Everything.
    pub(super) fn all() -> Self {
        Self { has_future: true, commands: CommandSet::new(true), has_all_keys: true, ..Self::new(true) }
    }

    /// Whether it allows everything.
    pub(super) fn may_all(&self) -> bool {
        self.has_all_keys && self.has_all_channels && self.commands.0.iter().all(|is_in| *is_in)
    }

    /// Changes it by one rule.
    pub(super) fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let word = up_to_zero(rule).to_ascii_lowercase();
        match (word.as_slice(), rule) {
            (b"allkeys" | b"~*", _) => {
                self.has_all_keys = true;
                self.keys.clear();
            }
            (b"resetkeys", _) => {
                self.has_all_keys = false;
                self.keys.clear();
            }
            (b"allchannels" | b"&*", _) => {
                self.has_all_channels = true;
                self.channels.clear();
            }
            (b"resetchannels", _) => {
                self.has_all_channels = false;
                self.channels.clear();
            }
            (b"allcommands" | b"+@all", _) => self.allow_all(true),
            (b"nocommands" | b"-@all", _) => self.allow_all(false),
            (_, [b'~' | b'%', ..]) => self.add_keys(rule)?,
            (_, [b'&', pattern @ ..]) => {
                if self.has_all_channels {
                    return Err(RuleError::AllChannels);
                }
                if has_spaces(pattern) {
                    return Err(RuleError::Syntax);
                }
                if !self.channels.iter().any(|known| known == pattern) {
                    self.channels.push(pattern.to_vec());
                }
            }
            (_, [sign @ (b'+' | b'-'), b'@', category @ ..]) => {
                let category = category_named(up_to_zero(category)).ok_or(RuleError::Unknown)?;
                let allows = *sign == b'+';
                self.commands.set_category(category, allows);
                for command in commands_of(category) {
                    self.first_arguments.remove(&command::number_of(command));
                }
            }
            (_, [b'-', name @ ..]) => self.set_command(lookup(up_to_zero(name))?, false),
            (_, [b'+', name @ ..]) => {
                let name = up_to_zero(name);
                match name.iter().rposition(|byte| *byte == b'|') {
                    None => self.set_command(lookup(name)?, true),
                    // It would break the line of a file.
                    Some(_) if has_spaces(rule) || rule.iter().any(|byte| matches!(byte, b'"' | b'\'')) => {
                        return Err(RuleError::Syntax);
                    }
                    Some(at) => self.allow_part(name, &name[..at], &name[at + 1..])?,
                }
            }
            _ => return Err(RuleError::Syntax),
        }
        Ok(())
    }

    fn allow_all(&mut self, is_allowed: bool) {
        self.commands = CommandSet::new(is_allowed);
        self.has_future = is_allowed;
        self.first_arguments.clear();
    }

    fn set_command(&mut self, command: &Command, is_allowed: bool) {
        self.commands.set(command, is_allowed);
        self.first_arguments.remove(&command::number_of(command));
    }

    /// `+config|get`, or `+select|0`, which is a first argument and no subcommand.
    fn allow_part(&mut self, whole: &[u8], name: &[u8], part: &[u8]) -> Result<(), RuleError> {
        let command = lookup(name)?;
        if command.name.contains('|') {
            return Err(RuleError::FirstArgument);
        }
        if part.is_empty() {
            return Err(RuleError::Syntax);
        }
        if !command.subcommands.is_empty() {
            self.set_command(lookup(whole)?, true);
            return Ok(());
        }
        if self.commands.has(command) {
            // All first arguments are allowed already.
            return Ok(());
        }
        let known = self.first_arguments.entry(command::number_of(command)).or_default();
        if !known.iter().any(|known| known.eq_ignore_ascii_case(part)) {
            known.push(part.to_vec());
        }
        Ok(())
    }

    /// `~pattern`, `%R~pattern`, `%W~pattern`, `%RW~pattern`.
    fn add_keys(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        if self.has_all_keys {
            return Err(RuleError::AllKeys);
        }
        let (mut reads, mut writes) = (rule[0] == b'~', rule[0] == b'~');
        let mut at = 1;
        if rule[0] == b'%' {
            loop {
                match rule.get(at).map(u8::to_ascii_uppercase) {
                    Some(b'R') if !reads => reads = true,
                    Some(b'W') if !writes => writes = true,
                    // As in Redis, the end of the rule may stand for the tilde.
                    Some(b'~') | None if reads || writes => {
                        at += 1;
                        break;
                    }
                    _ => return Err(RuleError::Syntax),
                }
                at += 1;
            }
        }
        let pattern = rule.get(at..).unwrap_or_default();
        if has_spaces(pattern) {
            return Err(RuleError::Syntax);
        }
        match self.keys.iter_mut().find(|known| known.pattern == pattern) {
            Some(known) => {
                known.reads |= reads;
                known.writes |= writes;
            }
            None => self.keys.push(KeyPattern { pattern: pattern.to_vec(), reads, writes }),
        }
        Ok(())
    }

    /// Whether it allows a command with these arguments.
    pub(super) fn check(&self, command: &Command, args: Args<'_>) -> Result<(), Denied> {
        if !command.is(NO_AUTH) && !self.commands.has(command) {
            let first = self.first_arguments.get(&command::number_of(command));
            let is_first = |known: &Vec<u8>| args.get(1).is_some_and(|word| word.eq_ignore_ascii_case(known));
            if !first.is_some_and(|known| known.iter().any(is_first)) {
                return Err(Denied::Command);
            }
        }
        if !self.has_all_keys {
            // A script with a wrong number of keys is refused by EVAL itself, and has none.
            let keys = match keys_of(command, args) {
                None if command.is(NO_MANDATORY_KEYS) && has_wrong_count(args) => Vec::new(),
                keys => keys.ok_or(Denied::Key(0))?,
            };
            for key in keys {
                let reads = key.access & ACCESS != 0;
                let writes = key.access & (INSERT | DELETE | UPDATE) != 0;
                if !self.has_key(args.at(key.place), reads, writes) {
                    return Err(Denied::Key(key.place));
                }
            }
        }
        if !self.has_all_channels {
            let (places, is_pattern) = match command.name {
                "publish" | "spublish" => (1..2, false),
                "subscribe" | "ssubscribe" => (1..args.len(), false),
                "psubscribe" => (1..args.len(), true),
                _ => (0..0, false),
            };
            for place in places {
                if !self.may_listen(args.at(place), is_pattern) {
                    return Err(Denied::Channel(place));
                }
            }
        }
        Ok(())
    }

    fn has_key(&self, key: &[u8], reads: bool, writes: bool) -> bool {
        let is_enough = |known: &&KeyPattern| (known.reads || !reads) && (known.writes || !writes);
        self.keys.iter().filter(is_enough).any(|known| glob::matches(&known.pattern, key))
    }

    pub(super) fn may_read_all_keys(&self) -> bool {
        self.has_all_keys || self.keys.iter().any(|known| known.reads && known.pattern == b"*")
    }

    /// Patterns are compared as they are, channels are matched.
    pub(super) fn may_listen(&self, channel: &[u8], is_pattern: bool) -> bool {
        let is_it = |known: &Vec<u8>| if is_pattern { known == channel } else { glob::matches(known, channel) };
        self.has_all_channels || self.channels.iter().any(is_it)
    }

    /// The rules for keys.
    pub fn describe_keys(&self) -> Vec<u8> {
        match self.has_all_keys {
            true => b"~*".to_vec(),
            false => self.keys.iter().map(KeyPattern::describe).collect::<Vec<_>>().join(&b' '),
        }
    }

    /// The rules for channels.
    pub fn describe_channels(&self) -> Vec<u8> {
        match self.has_all_channels {
            true => b"&*".to_vec(),
            false => {
                self.channels.iter().map(|known| [b"&", known.as_slice()].concat()).collect::<Vec<_>>().join(&b' ')
            }
        }
    }

    /// The rules for commands: the categories that come nearest, then what they have too much or too little.
    pub fn describe_commands(&self) -> Vec<u8> {
        let adds = !self.has_future;
        let sign = |is_allowed: bool| if is_allowed { '+' } else { '-' };
        let mut text = format!("{}@all", sign(!adds)).into_bytes();
        let (mut described, mut left) = (CommandSet::new(!adds), self.commands.clone());
        let mut applied = 0;
        loop {
            let mut best: Option<(usize, usize, Flags, &str)> = None;
            for (category, name) in CATEGORY_NAMES.iter().filter(|(category, _)| applied & category == 0) {
                let (is_in, is_out) = left.count(*category);
                let (same, differs) = if adds { (is_in, is_out) } else { (is_out, is_in) };
                let is_better =
                    best.is_none_or(|(known_differs, known_same, ..)| (differs, known_same) < (known_differs, same));
                if same > differs && is_better {
                    best = Some((differs, same, *category, name));
                }
            }
            let Some((_, _, category, name)) = best else { break };
            described.set_category(category, adds);
            left.set_category(category, !adds);
            text.extend(format!(" {}{name}", sign(adds)).bytes());
            applied |= category;
        }
        for command in command::all() {
            let is_in = self.commands.has(command);
            if is_in != described.has(command) {
                text.extend(format!(" {}{}", sign(is_in), command.name).bytes());
                described.set(command, is_in);
            }
            for first in self.first_arguments.get(&command::number_of(command)).filter(|_| !is_in).into_iter().flatten()
            {
                text.extend([b" +", command.name.as_bytes(), b"|", first].concat());
            }
        }
        text
    }

    /// All rules that make it.
    pub(super) fn describe(&self) -> Vec<u8> {
        let mut parts = Vec::new();
        let keys = self.describe_keys();
        if !keys.is_empty() {
            parts.push(keys);
        }
        if !self.has_all_channels {
            parts.push(b"resetchannels".to_vec());
        }
        let channels = self.describe_channels();
        if !channels.is_empty() {
            parts.push(channels);
        }
        parts.push(self.describe_commands());
        parts.join(&b' ')
    }
}

/// Whether EVAL and kin are given fewer keys than they are told of, or told of a negative number.
fn has_wrong_count(args: Args<'_>) -> bool {
    let count = args.get(2).and_then(crate::number::parse_integer);
    count.is_some_and(|count| count < 0 || count > args.len() as i64 - 3)
}
