//! What somebody lends for a while, keys or a token: held, and lent anew before it ends.

use crate::http::{agent, is_near};
use crate::{StoreError, retry};
use std::io::Read as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Before its end it is lent anew.
const AHEAD: Duration = Duration::from_secs(300);
/// What an answer may have.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// Tries of one request.
const TRIES: u32 = 3;

/// What is lent, in words, and what those who lend it say.
pub(crate) struct Terms {
    /// As in "lends keys".
    pub(crate) some: &'static str,
    /// As in "lends no keys".
    pub(crate) none: &'static str,
    /// As in "keys on loan are not lent anew".
    pub(crate) are_not: &'static str,
    /// For each step of a request.
    pub(crate) timeout: Duration,
    /// What an answer of failure names as its reason.
    pub(crate) code: fn(&str) -> Option<String>,
    /// Statuses that may pass, besides those of a server that fails.
    pub(crate) passing: &'static [u16],
}

/// What is asked of who lends. Where there is a form it is sent with it.
pub(crate) struct Question<'a> {
    pub(crate) method: &'static str,
    pub(crate) url: &'a str,
    /// The URL as errors tell it.
    pub(crate) place: &'a str,
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) form: &'a str,
}

/// See the module's description.
pub(crate) struct Loan<T> {
    terms: &'static Terms,
    agent: ureq::Agent,
    /// With the Unix time in milliseconds at which it ends.
    pub(crate) held: Mutex<Option<(T, i64)>>,
}

impl<T: Clone> Loan<T> {
    /// Of whoever is asked at `url`; nothing is asked yet. `is_trusted`: also without TLS, wherever that is.
    ///
    /// # Errors
    /// [`StoreError::Permanent`]: what is lent would go over a network in the clear, or there are no certificates to trust.
    pub(crate) fn new(url: &str, is_trusted: bool, terms: &'static Terms) -> Result<Self, StoreError> {
        let is_tls = url.starts_with("https://");
        if !is_tls && !is_trusted && !is_near(url) {
            let text = format!("{url} lends {}: it must begin with https://, or be on this machine", terms.some);
            return Err(StoreError::Permanent(text));
        }
        Ok(Self { terms, agent: agent(is_tls, terms.timeout, None)?, held: Mutex::default() })
    }

    /// What is held, lent anew by `lend` where its end is near; `lend` is given the Unix time in milliseconds.
    ///
    /// # Errors
    /// Whoever lends failed or refused, and what is held has ended.
    pub(crate) fn current(&self, lend: impl FnOnce(i64) -> Result<(T, i64), StoreError>) -> Result<T, StoreError> {
        let now = jiff::Timestamp::now().as_millisecond();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let ends_soon = |end: i64| end - AHEAD.as_millis() as i64 <= now;
        if let Some((lent, _)) = held.as_ref().filter(|(_, end)| !ends_soon(*end)) {
            return Ok(lent.clone());
        }
        match (lend(now), held.as_ref()) {
            (Ok(lent), _) => Ok(held.insert(lent).0.clone()),
            // It is good until it ends.
            (Err(error), Some((lent, end))) if *end > now => {
                tracing::warn!(%error, "{} not lent anew; tried again with the next request", self.terms.are_not);
                Ok(lent.clone())
            }
            (Err(error), _) => Err(error),
        }
    }

    /// The text of an answer that is no failure.
    pub(crate) fn ask(&self, question: &Question<'_>) -> Result<String, StoreError> {
        let Question { method, url, place, headers, form } = *question;
        let none = self.terms.none;
        let failed = |error: &dyn std::fmt::Display| StoreError::Transient(format!("{place} lends {none}: {error}"));
        retry(TRIES, || {
            let mut request = ureq::http::Request::builder().method(method).uri(url);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let malformed = |error: ureq::http::Error| StoreError::Permanent(format!("{place}: {error}"));
            let response = match form {
                "" => self.agent.run(request.body(()).map_err(malformed)?),
                form => {
                    let request = request.header("content-type", "application/x-www-form-urlencoded");
                    self.agent.run(request.body(form).map_err(malformed)?)
                }
            };
            let response = response.map_err(|error| failed(&error))?;
            let status = response.status();
            let mut text = String::new();
            let mut body = response.into_body().into_reader().take(ANSWER_BYTES_MAX);
            body.read_to_string(&mut text).map_err(|error| failed(&error))?;
            if status.is_success() {
                return Ok(text);
            }
            let code = (self.terms.code)(&text).map_or(String::new(), |code| format!(" {code}"));
            let why = format!("{place} lends {none}: it answered {}{code}", status.as_u16());
            let may_pass = status.is_server_error() || self.terms.passing.contains(&status.as_u16());
            Err(if may_pass { StoreError::Transient(why) } else { StoreError::Permanent(why) })
        })
    }
}
