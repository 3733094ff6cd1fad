//! A user: passwords, and selectors of which one must allow what it does.

use sha2::{Digest as _, Sha256};

use super::{Denied, RuleError, Selector};
use crate::command::Command;
use crate::failure::up_to_zero;
use crate::protocol::{Args, in_quotes, split_words};

const HASH_CHARACTERS: usize = 64;

/// How a password is kept: SHA-256, in hexadecimal.
pub fn hash_password(password: &[u8]) -> Vec<u8> {
    let digits = b"0123456789abcdef";
    let digest = Sha256::digest(password);
    digest.iter().flat_map(|byte| [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]).collect()
}

fn check_hash(text: &[u8]) -> Result<Vec<u8>, RuleError> {
    let is_hash = text.len() == HASH_CHARACTERS && text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_hash { Ok(text.to_vec()) } else { Err(RuleError::Hash) }
}

/// Takes as long for a wrong hash as for the right one.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |sum, (one, other)| sum | (one ^ other));
    one.len() == other.len() && differences == 0
}

/// See the module's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    is_on: bool,
    needs_no_password: bool,
    /// Whether RESTORE is to look into what it is given: kept and shown only, since it always does. Nothing: nobody has said.
    is_sanitized: Option<bool>,
    /// Hashes.
    passwords: Vec<Vec<u8>>,
    /// The one that rules without parentheses are for, and those in parentheses.
    root: Selector,
    others: Vec<Selector>,
}

impl User {
    /// One who may do nothing.
    pub fn new(allows_channels: bool) -> Self {
        Self {
            is_on: false,
            needs_no_password: false,
            is_sanitized: None,
            passwords: Vec::new(),
            root: Selector::new(allows_channels),
            others: Vec::new(),
        }
    }

    /// One who may do everything without a password.
    pub fn all_powerful() -> Self {
        Self { is_on: true, needs_no_password: true, root: Selector::all(), ..Self::new(true) }
    }

    /// Whether it may do the same; how RESTORE is to look at payloads is shown alone.
    pub fn is_like(&self, other: &Self) -> bool {
        Self { is_sanitized: other.is_sanitized, ..self.clone() } == *other
    }

    /// Whether whoever connects is this user.
    pub fn needs_no_login(&self) -> bool {
        self.is_on && self.needs_no_password
    }

    /// Whether any password does.
    pub fn needs_no_password(&self) -> bool {
        self.needs_no_password
    }

    /// Whether it may do everything.
    pub fn may_all(&self) -> bool {
        self.root.may_all() || self.others.iter().any(Selector::may_all)
    }

    /// Whether it may log in with this password.
    pub fn accepts(&self, password: &[u8]) -> bool {
        if !self.is_on {
            return false;
        }
        let hashed = hash_password(password);
        // All are compared, so that time does not tell which it was.
        let is_known = self.passwords.iter().fold(false, |any, known| any | is_same(known, &hashed));
        self.needs_no_password || is_known
    }

    pub(super) fn set_password(&mut self, password: Option<&[u8]>) {
        self.needs_no_password = password.is_none();
        self.passwords = password.map(hash_password).into_iter().collect();
    }

    /// Changes it by one rule.
    pub(super) fn apply(&mut self, rule: &[u8], allows_channels: bool) -> Result<(), RuleError> {
        let word = up_to_zero(rule).to_ascii_lowercase();
        match (word.as_slice(), rule) {
            (_, b"") => {}
            (b"on", _) => self.is_on = true,
            (b"off", _) => self.is_on = false,
            (b"skip-sanitize-payload", _) => self.is_sanitized = Some(false),
            (b"sanitize-payload", _) => self.is_sanitized = Some(true),
            (b"nopass", _) => {
                self.needs_no_password = true;
                self.passwords.clear();
            }
            (b"resetpass", _) => {
                self.needs_no_password = false;
                self.passwords.clear();
            }
            (_, [sign @ (b'>' | b'#'), text @ ..]) => {
                let hash = if *sign == b'>' { hash_password(text) } else { check_hash(text)? };
                if !self.passwords.contains(&hash) {
                    self.passwords.push(hash);
                }
                self.needs_no_password = false;
            }
            (_, [sign @ (b'<' | b'!'), text @ ..]) => {
                let hash = if *sign == b'<' { hash_password(text) } else { check_hash(text)? };
                let place = self.passwords.iter().position(|known| *known == hash).ok_or(RuleError::NoPassword)?;
                self.passwords.remove(place);
            }
            (_, [b'(', rules @ .., b')']) => {
                let mut selector = Selector::new(allows_channels);
                let mut words = Vec::new();
                split_words(up_to_zero(rules), |word| words.push(word.to_vec())).ok_or(RuleError::Syntax)?;
                words.iter().try_for_each(|word| selector.apply(word))?;
                self.others.push(selector);
            }
            (b"clearselectors", _) => self.others.clear(),
            (b"reset", _) => *self = Self { is_sanitized: Some(true), ..Self::new(allows_channels) },
            _ => self.root.apply(rule)?,
        }
        Ok(())
    }

    /// Whether it may run a command with these arguments.
    pub fn check(&self, command: &Command, args: Args<'_>) -> Result<(), Denied> {
        let mut denied = Denied::Command;
        for selector in self.selectors() {
            match selector.check(command, args) {
                Ok(()) => return Ok(()),
                Err(reason) => denied = denied.max(reason),
            }
        }
        Err(denied)
    }

    /// Whether it may run a command that reads keys which nobody can tell beforehand.
    pub fn may_read_all_keys(&self, command: &Command, args: Args<'_>) -> bool {
        self.selectors().any(|selector| selector.check(command, args).is_ok() && selector.may_read_all_keys())
    }

    /// Whether it may listen to a channel, or to a pattern.
    pub fn may_listen(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.selectors().any(|selector| selector.may_listen(channel, is_pattern))
    }

    /// The root and all others.
    pub fn selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.others)
    }

    /// Its flags.
    pub fn flags(&self) -> Vec<&'static str> {
        let flags = [
            Some(if self.is_on { "on" } else { "off" }),
            self.needs_no_password.then_some("nopass"),
            self.is_sanitized.map(|is_so| if is_so { "sanitize-payload" } else { "skip-sanitize-payload" }),
        ];
        flags.into_iter().flatten().collect()
    }

    /// Hashes of its passwords.
    pub fn passwords(&self) -> &[Vec<u8>] {
        &self.passwords
    }

    /// The rules that make it.
    pub fn describe(&self) -> Vec<u8> {
        let mut text = self.flags().join(" ").into_bytes();
        for hash in &self.passwords {
            text.extend_from_slice(b" #");
            text.extend_from_slice(hash);
        }
        text.push(b' ');
        text.extend_from_slice(&self.root.describe());
        for selector in &self.others {
            // Quotes mean something between parentheses, and the second one of these ends them.
            let is_plain = |word: &[u8]| !word.iter().any(|byte| matches!(byte, b'"' | b'\'' | b')'));
            let shielded = |word: &[u8]| if is_plain(word) { word.to_vec() } else { in_quotes(word) };
            let rules = selector.describe();
            text.extend_from_slice(b" (");
            text.extend(rules.split(|byte| *byte == b' ').map(shielded).collect::<Vec<_>>().join(&b' '));
            text.push(b')');
        }
        text
    }
}
