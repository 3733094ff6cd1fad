//! Simple tokens, by name and by the end of their lives. A clone costs two references, and a token what a walk down a tree costs:
//! however many there are, a login is as cheap as a put.

use std::cmp::Ordering;
use std::sync::Arc;

use persistent_tree::{Entry, Tree};

/// A simple token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The user who may show it.
    pub user: String,
    /// Milliseconds since 1970, by the time of the log's entries.
    pub expires_millis: u64,
}

#[derive(Clone, Debug)]
struct Named {
    name: Arc<str>,
    token: Arc<Token>,
}

impl Entry for Named {
    fn order(&self, other: &Self) -> Ordering {
        self.name.cmp(&other.name)
    }
}

#[derive(Clone, Debug)]
struct Expiry {
    millis: u64,
    name: Arc<str>,
}

impl Entry for Expiry {
    fn order(&self, other: &Self) -> Ordering {
        self.millis.cmp(&other.millis).then_with(|| self.name.cmp(&other.name))
    }
}

/// Tokens.
#[derive(Clone, Debug, Default)]
pub(super) struct Tokens {
    by_name: Tree<Named>,
    by_expiry: Tree<Expiry>,
}

impl PartialEq for Tokens {
    fn eq(&self, other: &Self) -> bool {
        self.by_name.len() == other.by_name.len() && self.iter().eq(other.iter())
    }
}

impl FromIterator<(String, Token)> for Tokens {
    fn from_iter<I: IntoIterator<Item = (String, Token)>>(tokens: I) -> Self {
        let mut all = Self::default();
        tokens.into_iter().for_each(|(name, token)| all.insert(name.into(), token));
        all
    }
}

impl Tokens {
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Token> {
        self.by_name.get(|named| (*named.name).cmp(name)).map(|named| &*named.token)
    }

    /// In the order of their names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Token)> {
        self.by_name.iter().map(|named| (&*named.name, &*named.token))
    }

    pub(super) fn insert(&mut self, name: Arc<str>, token: Token) {
        self.remove(&name);
        self.by_expiry.insert(Expiry { millis: token.expires_millis, name: Arc::clone(&name) });
        self.by_name.insert(Named { name, token: Arc::new(token) });
    }

    pub(super) fn remove(&mut self, name: &str) {
        let Some(Named { name, token }) = self.by_name.remove(|named| (*named.name).cmp(name)) else { return };
        self.by_expiry.remove(|expiry| expiry.millis.cmp(&token.expires_millis).then_with(|| expiry.name.cmp(&name)));
    }

    /// Those that no longer live go.
    pub(super) fn expire(&mut self, now_millis: u64) {
        while self.by_expiry.first().is_some_and(|first| first.millis <= now_millis) {
            self.remove_first();
        }
    }

    /// The one that would end next goes.
    pub(super) fn remove_first(&mut self) {
        if let Some(Expiry { name, .. }) = self.by_expiry.first().cloned() {
            self.remove(&name);
        }
    }

    /// All that a user has go.
    pub(super) fn remove_all_of(&mut self, user: &str) {
        let names: Vec<Arc<str>> =
            self.by_name.iter().filter(|named| named.token.user == user).map(|named| Arc::clone(&named.name)).collect();
        names.iter().for_each(|name| self.remove(name));
    }
}
