//! What somebody lends for a while, keys or a token: held, and lent anew before it ends.

use crate::http::{NAME, TRIES, agent, is_near, without_secrets};
use crate::{StoreError, retry};
use std::io::Read as _;
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Before its end it is lent anew.
const AHEAD: Duration = Duration::from_secs(300);
/// After a failure nobody is asked again for so long, while what is held is good.
const PAUSE: Duration = Duration::from_secs(30);
/// What an answer may have.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

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
    /// Held by who asks for another, which may take long; with the last failure, and when that was.
    failure: Mutex<Option<(Instant, StoreError)>>,
}

impl<T: Clone> Loan<T> {
    /// Of whoever is asked at `url`; nothing is asked yet. `is_trusted`: also without TLS, wherever that is.
    ///
    /// # Errors
    /// [`StoreError::Permanent`]: what is lent would go over a network in the clear, or there are no certificates to trust.
    pub(crate) fn new(url: &str, is_trusted: bool, terms: &'static Terms) -> Result<Self, StoreError> {
        let is_tls = url.starts_with("https://");
        if !is_tls && !is_trusted && !is_near(url) {
            let text = format!(
                "{} lends {}: it must begin with https://, or be on this machine",
                without_secrets(url),
                terms.some
            );
            return Err(StoreError::Permanent(text));
        }
        let agent = agent(NAME, is_tls, terms.timeout, None)?;
        Ok(Self { terms, agent, held: Mutex::default(), failure: Mutex::default() })
    }

    /// What is held, lent anew by `lend` where its end is near; `lend` is given the Unix time in milliseconds. While it is good one caller at a
    /// time waits for another, and the rest have what is held.
    ///
    /// # Errors
    /// Whoever lends failed or refused, and what is held has ended.
    pub(crate) fn current(&self, lend: impl FnOnce(i64) -> Result<(T, i64), StoreError>) -> Result<T, StoreError> {
        let (began, now) = (Instant::now(), jiff::Timestamp::now().as_millisecond());
        let Some((lent, end)) = self.good_at(now) else {
            let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            // What was said to somebody else while this one waited holds for both.
            return match (self.good_at(now), &*failure) {
                (Some((lent, _)), _) => Ok(lent),
                (None, Some((at, error))) if *at > began => Err(error.clone()),
                _ => self.lend_anew(&mut failure, || lend(now)),
            };
        };
        if end - AHEAD.as_millis() as i64 > now {
            return Ok(lent);
        }
        let mut failure = match self.failure.try_lock() {
            Ok(failure) => failure,
            Err(TryLockError::Poisoned(failure)) => failure.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(lent),
        };
        if failure.as_ref().is_some_and(|(at, _)| at.elapsed() < PAUSE) {
            return Ok(lent);
        }
        self.lend_anew(&mut failure, || lend(now)).or_else(|error| {
            tracing::warn!(%error, "{} not lent anew; tried again in {PAUSE:?}", self.terms.are_not);
            Ok(lent)
        })
    }

    /// What is held, where it is good at this time.
    fn good_at(&self, now: i64) -> Option<(T, i64)> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().filter(|(_, end)| *end > now).cloned()
    }

    fn lend_anew(
        &self,
        failure: &mut Option<(Instant, StoreError)>,
        lend: impl FnOnce() -> Result<(T, i64), StoreError>,
    ) -> Result<T, StoreError> {
        let answer = lend();
        *failure = answer.as_ref().err().map(|error| (Instant::now(), error.clone()));
        let (lent, end) = answer?;
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some((lent.clone(), end));
        Ok(lent)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, mpsc};

    const TERMS: Terms = Terms {
        some: "words",
        none: "no words",
        are_not: "words on loan are",
        timeout: Duration::from_secs(1),
        code: |_| None,
        passing: &[],
    };
    type Lent = Result<(&'static str, i64), StoreError>;

    type Answer = Result<&'static str, StoreError>;

    /// Two threads ask, the first of them a lender who hangs, and fails in the end. What both have, and whether the second one had it before.
    fn both_ask(loan: &Arc<Loan<&'static str>>) -> (Answer, Answer, bool) {
        let (asked, is_asked) = mpsc::channel();
        let (fail, fails) = mpsc::channel::<()>();
        let [of_first, of_second] = [loan.clone(), loan.clone()];
        let hang = move |_| {
            asked.send(()).unwrap();
            let _ = fails.recv();
            Err(StoreError::Transient("he hangs".into()))
        };
        let first = std::thread::spawn(move || of_first.current(hang));
        is_asked.recv().unwrap();
        let second = std::thread::spawn(move || of_second.current(nobody));
        let began = Instant::now();
        while !second.is_finished() && began.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_before = second.is_finished();
        drop(fail);
        (first.join().unwrap(), second.join().unwrap(), is_before)
    }

    fn loan() -> Arc<Loan<&'static str>> {
        Arc::new(Loan::new("http://127.0.0.1:1", false, &TERMS).unwrap())
    }

    fn nobody(_: i64) -> Lent {
        panic!("he is asked once")
    }

    #[test]
    fn while_what_is_held_is_good_one_waits_for_a_lender_who_hangs_and_nobody_asks_again_at_once() {
        let loan = loan();
        let soon = jiff::Timestamp::now().as_millisecond() + 60_000;
        *loan.held.lock().unwrap() = Some(("good", soon));
        let (first, second, is_before) = both_ask(&loan);
        assert_eq!((first.unwrap(), second.unwrap(), is_before), ("good", "good", true));
        assert_eq!(loan.current(nobody).unwrap(), "good");
    }

    #[test]
    fn who_has_nothing_and_waited_for_anothers_failure_does_not_wait_for_his_own() {
        let loan = loan();
        let (first, second, is_before) = both_ask(&loan);
        let said = [first, second].map(|answer| answer.unwrap_err().to_string());
        assert_eq!((said, is_before), (["he hangs", "he hangs"].map(str::to_owned), false));
        assert_eq!(loan.current(|_| Ok(("good", i64::MAX))).unwrap(), "good", "the next one asks");
    }
}
