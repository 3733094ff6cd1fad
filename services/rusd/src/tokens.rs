//! Tokens that stand for a user and a password: simple ones, which the group remembers, or JSON web tokens, which nobody has to.
//! From etcd's `server/auth/{simple_token,jwt}.go`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::flags::{Flags, Mistake};
use crate::jwt::{Claims, Jwt, JwtError, JwtSettings};
use crate::store::{Caller, Error, IssuedToken, View};

/// A simple token has that many letters that nobody can guess.
const LETTERS: usize = 16;
/// A simple token is renewed when so much of its time has gone: not with every use, each renewal is a command.
const RENEW_AFTER_PART: u64 = 10;
/// Tokens whose renewal is remembered.
const RENEWALS_MAX: usize = 10_000;

/// Which tokens are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSettings {
    /// `simple`: they live so long after their last use.
    Simple {
        /// `--auth-token-ttl`.
        ttl: Duration,
    },
    /// `jwt`.
    Jwt(JwtSettings),
}

impl TokenSettings {
    /// Reads `--auth-token` and `--auth-token-ttl`.
    pub fn of(flags: &Flags) -> Result<Self, Mistake> {
        const FLAG: &str = "auth-token";
        let mut parts = flags.given(FLAG).unwrap_or("simple").split(',');
        match parts.next() {
            Some("simple") => {
                let ttl = flags.number("auth-token-ttl", crate::store::auth::TOKEN_TTL_SECONDS)?;
                return Ok(Self::Simple { ttl: Duration::from_secs(ttl.max(1)) });
            }
            Some("jwt") => {}
            other => {
                let found = other.unwrap_or_default();
                return Err(Mistake::new(FLAG, format!("expected simple or jwt,OPTION=VALUE,..., found {found:?}")));
            }
        }
        let mut jwt = JwtSettings {
            public_key: None,
            private_key: None,
            sign_method: String::new(),
            ttl: Duration::from_secs(crate::store::auth::TOKEN_TTL_SECONDS),
        };
        for part in parts {
            let file = |value: &str| Some(PathBuf::from(value)).filter(|path| !path.as_os_str().is_empty());
            match part.split_once('=') {
                Some(("pub-key", value)) => jwt.public_key = file(value),
                Some(("priv-key", value)) => jwt.private_key = file(value),
                Some(("sign-method", value)) => jwt.sign_method = value.to_owned(),
                Some(("ttl", value)) => jwt.ttl = crate::flags::duration(FLAG, value)?,
                _ => {
                    let what = format!("expected pub-key=, priv-key=, sign-method= or ttl=, found {part:?}");
                    return Err(Mistake::new(FLAG, what));
                }
            }
        }
        Ok(Self::Jwt(jwt))
    }
}

/// The tokens of a member.
#[derive(Debug)]
pub enum Tokens {
    /// Simple ones.
    Simple(SimpleTokens),
    /// JSON web tokens.
    Jwt(Box<Jwt>),
}

/// Simple tokens.
#[derive(Debug)]
pub struct SimpleTokens {
    ttl_seconds: u64,
    /// When the renewal of a token was asked for last, by the time of the log.
    renewals: Mutex<HashMap<String, u64>>,
}

impl Tokens {
    /// Reads keys, where there are any.
    pub fn open(settings: &TokenSettings) -> Result<Self, JwtError> {
        match settings {
            TokenSettings::Simple { ttl } => {
                Ok(Self::Simple(SimpleTokens { ttl_seconds: ttl.as_secs(), renewals: Mutex::default() }))
            }
            TokenSettings::Jwt(settings) => Ok(Self::Jwt(Box::new(Jwt::open(settings)?))),
        }
    }

    /// Who shows this token, and the command that lets it live on, if it is time for one. `leader_millis` is what a command would be stamped
    /// with now, if this member leads.
    pub fn caller(
        &self,
        token: &str,
        view: &View,
        leader_millis: Option<u64>,
        now_millis: u64,
    ) -> Result<(Caller, Option<IssuedToken>), Error> {
        match self {
            Self::Simple(simple) => {
                // By the time of the log, which made it: no two clocks are compared. While nobody wrote, and nobody was there, only the leader
                // knows of the time that has passed.
                let now_millis = view.log_millis().max(leader_millis.unwrap_or(0));
                let known = view.auth.token(token, now_millis).ok_or(Error::InvalidAuthToken)?;
                let renewal = simple.renewal(token, &known.user, known.expires_millis, now_millis);
                Ok((Caller::Client { user: known.user.clone(), auth_revision: view.auth.revision() }, renewal))
            }
            Self::Jwt(jwt) => {
                let Claims { user, auth_revision } = jwt.check(token, now_millis).ok_or(Error::InvalidAuthToken)?;
                Ok((Caller::Client { user, auth_revision }, None))
            }
        }
    }
}

impl SimpleTokens {
    /// A new token of a user whose password was checked: letters that nobody can guess, and the index at the time, as in etcd.
    pub fn issue(&self, user: String, auth_revision: u64, applied_index: u64) -> IssuedToken {
        let letter = |_| char::from(b'a' + rand::random_range(0..26_u8));
        let letters = (0..LETTERS).map(letter).collect::<String>();
        let token = format!("{letters}.{applied_index}");
        IssuedToken { user, token, ttl_seconds: self.ttl_seconds, auth_revision }
    }

    fn renewal(&self, token: &str, user: &str, expires_millis: u64, now_millis: u64) -> Option<IssuedToken> {
        let ttl_millis = self.ttl_seconds * 1000;
        let pause_millis = ttl_millis / RENEW_AFTER_PART;
        if now_millis + ttl_millis < expires_millis + pause_millis {
            return None;
        }
        let mut renewals = self.renewals.lock().unwrap_or_else(PoisonError::into_inner);
        if renewals.get(token).is_some_and(|asked| now_millis < asked + pause_millis) {
            return None;
        }
        if renewals.len() >= RENEWALS_MAX {
            renewals.retain(|_, asked| now_millis < *asked + pause_millis);
        }
        renewals.insert(token.to_owned(), now_millis);
        let (user, token) = (user.to_owned(), token.to_owned());
        Some(IssuedToken { user, token, ttl_seconds: self.ttl_seconds, auth_revision: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(arguments: &[&str]) -> Result<TokenSettings, String> {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        let flags = Flags::parse(arguments, [], |_| Ok(String::new())).unwrap();
        TokenSettings::of(&flags).map_err(|mistake| mistake.to_string())
    }

    #[test]
    fn the_options_are_those_of_etcd() {
        assert_eq!(settings(&[]), Ok(TokenSettings::Simple { ttl: Duration::from_secs(300) }));
        assert_eq!(settings(&["--auth-token-ttl=7"]), Ok(TokenSettings::Simple { ttl: Duration::from_secs(7) }));
        let jwt = settings(&["--auth-token=jwt,pub-key=/a,priv-key=/b,sign-method=RS256,ttl=1m"]);
        let expected = JwtSettings {
            public_key: Some("/a".into()),
            private_key: Some("/b".into()),
            sign_method: "RS256".into(),
            ttl: Duration::from_secs(60),
        };
        assert_eq!(jwt, Ok(TokenSettings::Jwt(expected)));
        assert!(settings(&["--auth-token=jwt,key=/a"]).unwrap_err().contains("found \"key=/a\""));
        assert!(settings(&["--auth-token=complex"]).unwrap_err().contains("found \"complex\""));
    }

    #[test]
    fn a_simple_token_is_renewed_by_use_but_not_by_every_use() {
        let simple = SimpleTokens { ttl_seconds: 100, renewals: Mutex::default() };
        let expires = 200_000;
        let mut asked = Vec::new();
        for now in (100_000..200_000).step_by(1000) {
            // The renewals are lost: it is asked for again.
            asked.extend(simple.renewal("t", "ann", expires, now).map(|_| now));
        }
        assert_eq!(asked, (1..10).map(|part| 100_000 + part * 10_000).collect::<Vec<_>>());
        assert_eq!(simple.renewal("t", "ann", 300_000, 205_000), None);
    }
}
