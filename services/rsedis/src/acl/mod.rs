//! Who may do what: users with their passwords, and what they may run, on which keys and channels.
//!
//! A session knows its user by name, and besides whether that user may do everything ([`Users::may_all`]), so that nothing is looked
//! up for those who do; what changes users calls [`crate::command::acl::follow`], which tells the sessions.

mod log;
mod selector;
mod user;

pub use log::{Context, Entry, Log};
pub use selector::{Selector, category_named, commands_of};
pub use user::{User, hash_password};

use std::collections::BTreeMap;

use crate::command::Command;
use crate::failure::{Failure, up_to_zero};
use crate::protocol::{Args, quoted_word};
use crate::settings::ConfiguredUser;

/// The user that everybody is who has not logged in.
pub const DEFAULT: &[u8] = b"default";

/// Why something is not allowed. The greater one is told if several selectors refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    /// The command.
    Command,
    /// The key at this argument; 0, the command itself: nobody can tell where its keys are.
    Key(usize),
    /// The channel at this argument.
    Channel(usize),
}

impl Denied {
    /// What the client is told.
    pub fn failure(self, command: &Command) -> Failure {
        match self {
            Self::Command => {
                Failure::text(format!("NOPERM this user has no permissions to run the '{}' command", command.name))
            }
            Self::Key(_) => {
                Failure::new("NOPERM this user has no permissions to access one of the keys used as arguments")
            }
            Self::Channel(_) => {
                Failure::new("NOPERM this user has no permissions to access one of the channels used as arguments")
            }
        }
    }

    /// The word in ACL LOG.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Key(_) => "key",
            Self::Channel(_) => "channel",
        }
    }

    /// What was refused, for ACL LOG.
    pub fn object(self, command: &Command, args: Args<'_>) -> Vec<u8> {
        match self {
            Self::Command => command.name.as_bytes().to_vec(),
            Self::Key(place) | Self::Channel(place) => args.at(place).to_vec(),
        }
    }
}

/// A rule that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// `+` or `-` with something that is not known.
    #[error("Unknown command or category name in ACL")]
    Unknown,
    /// Not a rule at all.
    #[error("Syntax error")]
    Syntax,
    /// A key pattern that changes nothing.
    #[error(
        "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try 'resetkeys' to \
         start with an empty list of patterns"
    )]
    AllKeys,
    /// A channel pattern that changes nothing.
    #[error(
        "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try \
         'resetchannels' to start with an empty list of channels"
    )]
    AllChannels,
    /// `<` or `!` with a password that is none.
    #[error("The password you are trying to remove from the user does not exist")]
    NoPassword,
    /// `#` or `!` with something that is no hash.
    #[error("The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters")]
    Hash,
    /// `+config|get|x`.
    #[error("Allowing first-arg of a subcommand is not supported")]
    FirstArgument,
}

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Users {
    by_name: BTreeMap<Vec<u8>, User>,
    /// `acl-pubsub-default`: new users may use all channels.
    pub allows_channels: bool,
}

impl Default for Users {
    fn default() -> Self {
        Self { by_name: BTreeMap::from([(DEFAULT.to_vec(), User::all_powerful())]), allows_channels: false }
    }
}

/// Spaces and zeros would break the lines of files.
fn has_spaces(text: &[u8]) -> bool {
    text.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0 || *byte == 0x0B)
}

/// Whether a user may be called this.
pub fn is_name(name: &[u8]) -> bool {
    !has_spaces(name)
}

/// Looks at a line of redis.conf about a user for mistakes. Errors: what is wrong, in one line.
pub fn check_user(name: &[u8], rules: &[&[u8]]) -> Result<(), String> {
    if !is_name(name) {
        return Err("Spaces not allowed in ACL usernames".to_owned());
    }
    Users::default().set(b"someone", rules).map_err(|why| String::from_utf8_lossy(&why).into_owned())
}

/// A selector may come in several words. One that begins within another takes its place, as in Redis 7.0. Errors: where one begins that
/// never ends.
fn merge_selectors(words: &[&[u8]]) -> Result<Vec<Vec<u8>>, usize> {
    let mut merged = Vec::new();
    let mut open: Option<(usize, Vec<u8>)> = None;
    for (place, word) in words.iter().enumerate() {
        match &mut open {
            _ if word.starts_with(b"(") && !word.ends_with(b")") => open = Some((place, word.to_vec())),
            Some((_, text)) => {
                text.push(b' ');
                text.extend_from_slice(up_to_zero(word));
                if word.ends_with(b")") {
                    merged.extend(open.take().map(|(_, text)| text));
                }
            }
            None => merged.push(word.to_vec()),
        }
    }
    match open {
        Some((place, _)) => Err(place),
        None => Ok(merged),
    }
}

impl Users {
    /// The default user alone.
    pub fn new(allows_channels: bool) -> Self {
        Self { allows_channels, ..Self::default() }
    }

    /// By name.
    pub fn get(&self, name: &[u8]) -> Option<&User> {
        self.by_name.get(name)
    }

    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &User)> {
        self.by_name.iter().map(|(name, user)| (name.as_slice(), user))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there are none: never, there is always the default user.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Whether everybody who connects is the default user without more.
    pub fn is_open(&self) -> bool {
        self.get(DEFAULT).is_some_and(User::needs_no_login)
    }

    /// Whether a user may do everything.
    pub fn may_all(&self, name: &[u8]) -> bool {
        self.get(name).is_some_and(User::may_all)
    }

    /// The password of the default user; an empty one: it needs none.
    pub fn set_default_password(&mut self, password: &[u8]) {
        let user = self.by_name.entry(DEFAULT.to_vec()).or_insert_with(User::all_powerful);
        user.set_password((!password.is_empty()).then_some(password));
    }

    /// Changes a user, or makes one. All rules hold, or none. Errors: what is wrong with which.
    pub fn set(&mut self, name: &[u8], rules: &[&[u8]]) -> Result<(), Vec<u8>> {
        let unmatched = |place: usize| {
            [b"Unmatched parenthesis in acl selector starting at '".as_slice(), up_to_zero(rules[place]), b"'."]
                .concat()
        };
        let merged = merge_selectors(rules).map_err(unmatched)?;
        let mut user = self.get(name).cloned().unwrap_or_else(|| User::new(self.allows_channels));
        for rule in &merged {
            user.apply(rule, self.allows_channels).map_err(|error| {
                let why = error.to_string();
                [b"Error in ACL SETUSER modifier '".as_slice(), up_to_zero(rule), b"': ", why.as_bytes()].concat()
            })?;
        }
        self.by_name.insert(name.to_vec(), user);
        Ok(())
    }

    /// Makes the users of redis.conf. Errors: what is wrong with which.
    pub fn configure(&mut self, configured: &[ConfiguredUser]) -> Result<(), String> {
        for (name, rules) in configured {
            // What the file says of the default user is all of it.
            let reset = (name == DEFAULT).then_some(b"reset".as_slice());
            let rules: Vec<&[u8]> = reset.into_iter().chain(rules.iter().map(Vec::as_slice)).collect();
            let shown = String::from_utf8_lossy(name);
            self.set(name, &rules).map_err(|why| format!("user {shown}: {}", String::from_utf8_lossy(&why)))?;
        }
        Ok(())
    }

    /// Lines of redis.conf that make all of them.
    pub fn configuration(&self) -> Vec<Vec<u8>> {
        let words = |line: Vec<u8>| line.split(|byte| *byte == b' ').map(quoted_word).collect::<Vec<_>>().join(&b' ');
        self.iter().map(|(name, user)| words(line(name, user))).collect()
    }

    /// Removes a user; whether it was there.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        self.by_name.remove(name).is_some()
    }

    /// Whether a password is that of a user who may log in.
    pub fn is_login(&self, name: &[u8], password: &[u8]) -> bool {
        self.get(name).is_some_and(|user| user.accepts(password))
    }

    /// Whether a user may run a command with these arguments.
    pub fn check(&self, name: &[u8], command: &Command, args: Args<'_>) -> Result<(), Denied> {
        self.get(name).map_or(Err(Denied::Command), |user| user.check(command, args))
    }

    /// All users as a file has them, a line for each.
    pub fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for (name, user) in self.iter() {
            text.extend_from_slice(&line(name, user));
            text.push(b'\n');
        }
        text
    }

    /// The users of a file. Errors: everything that is wrong with it, in one line.
    pub fn read(text: &[u8], file: &str, allows_channels: bool) -> Result<Self, String> {
        let mut users = Self { by_name: BTreeMap::new(), allows_channels };
        let mut errors = String::new();
        for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let number = number + 1;
            let line = line.trim_ascii();
            let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
            let (name, rules) = match words.as_slice() {
                [b""] => continue,
                [b"user", name, rules @ ..] => (*name, rules),
                _ => {
                    errors += &format!("{file}:{number} should start with user keyword followed by the username. ");
                    continue;
                }
            };
            let shown = String::from_utf8_lossy(name);
            if !is_name(name) {
                errors += &format!("'{file}:{number}: username '{shown}' contains invalid characters. ");
                continue;
            }
            if users.get(name).is_some() {
                errors += &format!("WARNING: Duplicate user '{shown}' found on line {number}. ");
                continue;
            }
            let Ok(merged) = merge_selectors(rules) else {
                errors += &format!("{file}:{number}: Unmatched parenthesis in selector definition.");
                continue;
            };
            let mut user = User::new(allows_channels);
            let mut has_told = false;
            for rule in &merged {
                match user.apply(rule.trim_ascii(), allows_channels) {
                    Ok(()) => {}
                    // What is not known is no secret.
                    Err(error @ RuleError::Unknown) => {
                        let rule = String::from_utf8_lossy(rule);
                        errors += &format!("{file}:{number}: Error in applying operation '{rule}': {error}. ");
                    }
                    Err(error) if !has_told => {
                        errors += &format!("{file}:{number}: {error}. ");
                        has_told = true;
                    }
                    Err(_) => {}
                }
            }
            users.by_name.insert(name.to_vec(), user);
        }
        if !errors.is_empty() {
            return Err(
                errors + "WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
            );
        }
        users.by_name.entry(DEFAULT.to_vec()).or_insert_with(User::all_powerful);
        Ok(users)
    }
}

/// A user as files have it.
pub fn line(name: &[u8], user: &User) -> Vec<u8> {
    [b"user ", name, b" ", &user.describe()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Outside, Start, read_command_line};
    use proptest::prelude::*;
    use std::path::Path;

    /// They would break the line of a file, or take words of it for their own.
    #[test]
    fn a_first_argument_with_quotes_spaces_or_zeros_is_refused() {
        for rule in
            ["+select|0 on", "+select|0\nuser x on", "+select|0\0x", "+select|\"0", "+select|it's", "+select|0\tx"]
        {
            let mut users = Users::default();
            let wrong = users.set(b"someone", &[rule.as_bytes()]).unwrap_err();
            assert!(wrong.ends_with(b"': Syntax error"), "{}", wrong.escape_ascii());
        }
        assert_eq!(Users::default().set(b"someone", &[b"+select|0"]), Ok(()));
    }

    fn rule() -> impl Strategy<Value = Vec<u8>> {
        let word = prop::sample::select(vec![
            "on",
            "off",
            "nopass",
            "resetpass",
            ">secret",
            ">other",
            "allkeys",
            "resetkeys",
            "~key:*",
            "%R~read:*",
            "%W~write:*",
            "%RW~both:*",
            "allchannels",
            "resetchannels",
            "&news:*",
            "+@all",
            "-@all",
            "+@read",
            "-@write",
            "+@dangerous",
            "-@slow",
            "+get",
            "-get",
            "+config",
            "-config|set",
            "+config|get",
            "+select|0",
            "-client",
            "+client|id",
            "reset",
            "clearselectors",
            "(+@write ~w:* &c:*)",
            "(-@all +get %R~*)",
            "skip-sanitize-payload",
            "sanitize-payload",
            "~a\"b",
            "~it's)",
            "~\\x41#",
            "(~\"a\\\"b)\" +get)",
            "(~a) &c) +get)",
        ]);
        prop_oneof![8 => word.prop_map(|word| word.as_bytes().to_vec()), 1 => Just(b"~\xff\xfe*".to_vec())]
    }

    proptest! {
        /// Whatever a user may do, the line that describes it makes the same user again.
        #[test]
        fn a_description_makes_the_same_user(rules in prop::collection::vec(rule(), 0..25)) {
            let mut users = Users::default();
            for rule in &rules {
                // Some do not go together: those change nothing.
                drop(users.set(b"someone", &[rule.as_slice()]));
            }
            let text = users.text();
            let again = Users::read(&text, "file", false).unwrap();
            prop_assert_eq!(again.text().escape_ascii().to_string(), text.escape_ascii().to_string());
            let text = [users.configuration().join(&b'\n'), Vec::new()].concat();
            let read = |_: &Path| Ok(text.clone());
            let outside = Outside { read: &read, list: &crate::settings::list_files, check_user, is_command: crate::command::is_own_name };
            let started = read_command_line(&["file".to_owned()], "", outside);
            let Ok(Start::Serve(settings)) = started else {
                return Err(TestCaseError::fail(text.escape_ascii().to_string()));
            };
            let mut configured = Users::default();
            prop_assert_eq!(configured.configure(&settings.users), Ok(()));
            for (name, user) in users.iter() {
                prop_assert_eq!(Some(user), again.get(name));
                if name != DEFAULT {
                    prop_assert_eq!(Some(user), configured.get(name));
                }
            }
        }

        #[test]
        fn any_file_is_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..200)) {
            drop(Users::read(&text, "file", false));
            drop(Users::read(&[b"user a ", text.as_slice()].concat(), "file", true));
        }
    }
}
