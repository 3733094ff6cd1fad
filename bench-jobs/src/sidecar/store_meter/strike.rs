//! Strikes the store that the meter stands beside: kills it, or lets it stand still for a while, since a load in another pod can do neither and
//! is given no right to.
//!
//! Only for whoever shows the token that this meter was started with; without one it strikes for nobody. Who holds the token can do
//! nothing else, and to no other process: those that [`Watch`] found are struck, and what is below them.
//!
//! | request | answers |
//! | --- | --- |
//! | `POST /strike?kind=KIND&millis=DURATION` | a [`Struck`], as soon as it is done. `Kill`: SIGKILL, and DURATION says nothing, for others start the store again (in a pod the kubelet); `Stop`: SIGSTOP, and SIGCONT when DURATION is over |
//! | `GET /struck` | a [`Struck`], when it is over or after a second: `Kill` is when another process of the store is there |

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use ring::digest::{SHA256, digest};
use rustix::process::{Pid, Signal, kill_process};
use storebench_crds::meter::{RESTART_PATIENCE, STOP_MAX, Struck, check_token};
use storebench_crds::workload::FaultKind;

use super::watch::{Found, NoStore, Watch};
use crate::measure::meter::tree::descendants;
use crate::net::http_server::{Answer, Request};

/// How long a killed process may take to be gone.
const DEATH_PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks for a process. Bounds the error of when it was there, as for the start of a store.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// How long an answer that it is not over yet is held back.
const HELD_BACK: Duration = Duration::from_secs(1);

/// What may strike.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl FromStr for Token {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        check_token(text).map(|()| Self(text.to_owned()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("Token")
    }
}

impl Token {
    /// Whether this is it. Digests are compared, so that how long that takes says nothing of the token.
    fn is(&self, shown: &str) -> bool {
        digest(&SHA256, self.0.as_bytes()).as_ref() == digest(&SHA256, shown.as_bytes()).as_ref()
    }
}

fn over(begun: Instant, ended: Result<(), String>) -> Struck {
    Struck { is_over: true, lasted_nanos: begun.elapsed().as_nanos() as u64, problem: ended.err() }
}

/// Strikes, once at a time.
#[derive(Debug)]
pub struct Striker {
    token: Option<Token>,
    watch: Arc<Watch>,
    last: Arc<Last>,
}

/// The last strike; `None`: there was none.
#[derive(Debug, Default)]
struct Last {
    struck: Mutex<Option<Struck>>,
    changed: Condvar,
}

impl Last {
    fn lock(&self) -> MutexGuard<'_, Option<Struck>> {
        self.struck.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is(&self, struck: Struck) {
        *self.lock() = Some(struck);
        self.changed.notify_all();
    }
}

impl Striker {
    /// Strikes the processes of this store for whoever shows the token; for nobody where there is none.
    pub fn new(token: Option<Token>, watch: Arc<Watch>) -> Self {
        Self { token, watch, last: Arc::default() }
    }

    /// Answers `POST /strike`.
    pub fn strike(&self, request: &Request) -> Answer {
        if let Some(refusal) = self.refusal(request) {
            return refusal;
        }
        let (kind, duration) = match asked(request) {
            Ok(asked) => asked,
            Err(wrong) => return Answer::line("400 Bad Request", wrong),
        };
        let mut last = self.last.lock();
        if last.as_ref().is_some_and(|struck| !struck.is_over) {
            return Answer::line("409 Conflict", "the store is struck already");
        }
        let found = match self.watch.find() {
            Ok(found) => found,
            Err(reason) => return Answer::unavailable(&reason),
        };
        let begun = Instant::now();
        let processes = match kind {
            Kind::Kill => self.kill(&found).map(|()| Vec::new()),
            Kind::Stop => stop(&found),
        };
        let processes = match processes {
            Ok(processes) => processes,
            Err(problem) => return Answer::unavailable(&problem),
        };
        let (watch, ending) = (Arc::clone(&self.watch), Arc::clone(&self.last));
        let end = move || {
            let ended = match kind {
                Kind::Kill => another(&watch, &found, begun),
                Kind::Stop => go_on(&processes, begun + duration),
            };
            ending.is(over(begun, ended));
        };
        // Who stands still would do so for ever.
        if let Err(error) = thread::Builder::new().name("strike".into()).spawn(end) {
            let _ = self.watch.find().map(|found| signal(&descendants(&found.processes), Signal::CONT));
            return Answer::unavailable(&error);
        }
        let struck = Struck::default();
        *last = Some(struck.clone());
        Answer::json(&struck)
    }

    /// Answers `GET /struck`.
    pub fn struck(&self, request: &Request) -> Answer {
        if let Some(refusal) = self.refusal(request) {
            return refusal;
        }
        let is_under_way = |last: &mut Option<Struck>| last.as_ref().is_some_and(|struck| !struck.is_over);
        let waited = self.last.changed.wait_timeout_while(self.last.lock(), HELD_BACK, is_under_way);
        let (last, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some(struck) => Answer::json(struck),
            None => Answer::not_found("the store was not struck, or this meter has started since"),
        }
    }

    fn refusal(&self, request: &Request) -> Option<Answer> {
        let Some(token) = &self.token else {
            return Some(Answer::line("403 Forbidden", "this meter strikes for nobody: it has no --strike-token"));
        };
        let is_shown = request.token.as_deref().is_some_and(|shown| token.is(shown));
        (!is_shown)
            .then(|| Answer::line("401 Unauthorized", "show the token of this trial: Authorization: Bearer TOKEN"))
    }

    /// Kills the store, and returns when it is dead.
    fn kill(&self, found: &Found) -> Result<(), String> {
        let processes = descendants(&found.processes);
        if signal(&processes, Signal::KILL) == 0 {
            return Err("the store's process cannot be killed: it ended just now".into());
        }
        let begun = Instant::now();
        while !self.watch.has_ended() {
            if begun.elapsed() > DEATH_PATIENCE {
                return Err(format!("the store's process was killed, and is still there {DEATH_PATIENCE:?} later"));
            }
            sleep(LOOK_INTERVAL);
        }
        Ok(())
    }
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Kill,
    Stop,
}

/// What a request asks for. Errors: what it should.
fn asked(request: &Request) -> Result<(Kind, Duration), &'static str> {
    let names = [(FaultKind::Kill, Kind::Kill), (FaultKind::Stop, Kind::Stop)];
    let named = request.get("kind").unwrap_or_default();
    let kind = names.into_iter().find(|(name, _)| format!("{name:?}") == named);
    let (_, kind) = kind.ok_or("kind must be Kill or Stop: a meter does nothing else to a store")?;
    let millis = request.get("millis").and_then(|millis| millis.parse().ok());
    let duration = millis.map(Duration::from_millis).filter(|duration| *duration <= STOP_MAX);
    Ok((kind, duration.ok_or("millis must be a number of at most 3600000")?))
}

/// Lets the store stand still: what was stopped.
fn stop(found: &Found) -> Result<Vec<i32>, String> {
    let processes = descendants(&found.processes);
    match signal(&processes, Signal::STOP) {
        0 => Err("the store's process cannot be stopped: it ended just now".into()),
        _ => Ok(processes),
    }
}

/// Lets go on what was stopped, when it is due.
fn go_on(processes: &[i32], due: Instant) -> Result<(), String> {
    sleep(due.saturating_duration_since(Instant::now()));
    match signal(processes, Signal::CONT) {
        0 => Err("the store's process ended while it stood still".into()),
        _ => Ok(()),
    }
}

/// Returns when another process of the store is there than was found.
fn another(watch: &Watch, found: &Found, begun: Instant) -> Result<(), String> {
    loop {
        let last = match watch.find() {
            Ok(now) if now.restarts > found.restarts => return Ok(()),
            // It was seen to have ended.
            Ok(_) => NoStore::Absent,
            Err(why) => why,
        };
        if begun.elapsed() > RESTART_PATIENCE {
            return Err(format!("the store was not started again within {RESTART_PATIENCE:?}: {last}"));
        }
        sleep(LOOK_INTERVAL);
    }
}

/// Sends a signal to processes, and returns how many have got it. What has ended by now gets none, and what lives is the meter's own user's.
fn signal(processes: &[i32], signal: Signal) -> usize {
    let sent = processes.iter().filter_map(|pid| Pid::from_raw(*pid)).filter(|pid| kill_process(*pid, signal).is_ok());
    sent.count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    use procfs::process::Process;

    use storebench_crds::meter::STRIKE;

    use super::super::watch::Whose;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    /// A process that stands for a store; gone with the value.
    struct Store(Child);

    impl Store {
        fn new() -> Self {
            Self(Command::new("sleep").arg("60").spawn().unwrap())
        }

        fn state(&self) -> char {
            Process::new(self.0.id().cast_signed()).unwrap().stat().unwrap().state
        }

        fn striker(&self, token: Option<&str>) -> Striker {
            let token = token.map(|token| token.parse().unwrap());
            Striker::new(token, Arc::new(Watch::new(Whose::Process(self.0.id()))))
        }
    }

    impl Drop for Store {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn request(query: &str, token: Option<&str>) -> Request {
        Request { path: STRIKE.into(), query: query.into(), token: token.map(str::to_owned) }
    }

    fn asks(striker: &Striker, query: &str) -> Answer {
        striker.strike(&request(query, Some(TOKEN)))
    }

    fn struck(striker: &Striker) -> Struck {
        serde_json::from_str(striker.struck(&request("", Some(TOKEN))).body()).unwrap()
    }

    #[test]
    fn nobody_strikes_who_does_not_show_the_token() {
        let store = Store::new();
        let striker = store.striker(Some(TOKEN));
        let wrong = TOKEN.replace('f', "e");
        for token in [None, Some(""), Some("x"), Some(&TOKEN[1..]), Some(wrong.as_str())] {
            for answer in [striker.strike(&request("kind=Kill&millis=1", token)), striker.struck(&request("", token))] {
                assert!(answer.status().starts_with("401"), "{token:?}: {answer:?}");
            }
        }
        assert_ne!(store.state(), 'Z');
        assert!(striker.struck(&request("", Some(TOKEN))).status().starts_with("404"), "nothing was done");
    }

    #[test]
    fn a_meter_without_a_token_strikes_for_nobody_and_a_short_one_is_no_token() {
        let store = Store::new();
        let striker = store.striker(None);
        for token in [None, Some(""), Some(TOKEN)] {
            let answer = striker.strike(&request("kind=Kill&millis=1", token));
            assert!(answer.status().starts_with("403"), "{answer:?}");
        }
        assert_ne!(store.state(), 'Z');
        for token in ["", "0123456789", "0123456789abcdef 123456789abcdef"] {
            token.parse::<Token>().unwrap_err();
        }
        assert_eq!(format!("{:?}", TOKEN.parse::<Token>()), "Ok(Token)", "a token is in no message");
    }

    #[test]
    fn what_a_meter_cannot_do_is_refused_and_nothing_is_done() {
        let store = Store::new();
        let striker = store.striker(Some(TOKEN));
        for query in ["", "kind=Kill", "kind=Partition&millis=1", "kind=SlowDisk&millis=1", "kind=kill&millis=1"] {
            assert!(asks(&striker, query).status().starts_with("400"), "{query}");
        }
        for millis in ["-1", "x", "3600001"] {
            assert!(asks(&striker, &format!("kind=Stop&millis={millis}")).status().starts_with("400"), "{millis}");
        }
        assert!(!['Z', 'T'].contains(&store.state()));
    }

    #[test]
    fn a_store_that_stands_still_goes_on_when_its_time_is_over_and_no_other_strike_is_taken_meanwhile() {
        let store = Store::new();
        let striker = store.striker(Some(TOKEN));
        let begun = Instant::now();
        assert!(asks(&striker, "kind=Stop&millis=300").status().starts_with("200"));
        let is_stopped = || store.state() == 'T';
        while !is_stopped() {
            assert!(begun.elapsed() < Duration::from_secs(5), "it does not stand still");
        }
        assert!(asks(&striker, "kind=Kill&millis=1").status().starts_with("409"));
        let over = struck(&striker);
        assert!(over.is_over && over.problem.is_none(), "{over:?}");
        assert!(Duration::from_nanos(over.lasted_nanos) >= Duration::from_millis(300), "{over:?}");
        while is_stopped() {
            assert!(begun.elapsed() < Duration::from_secs(5), "it does not go on");
        }
        assert!(asks(&striker, "kind=Stop&millis=0").status().starts_with("200"), "another one may follow");
    }

    #[test]
    fn a_killed_store_is_dead_when_that_is_said_and_is_over_only_when_another_is_there() {
        let store = Store::new();
        let striker = store.striker(Some(TOKEN));
        assert!(asks(&striker, "kind=Kill&millis=0").status().starts_with("200"));
        assert_eq!(store.state(), 'Z', "dead, and not waited for yet");
        assert!(!struck(&striker).is_over, "nobody has started it again");
        let gone = Store::new();
        let striker = gone.striker(Some(TOKEN));
        drop(gone);
        assert!(asks(&striker, "kind=Kill&millis=0").status().starts_with("503"), "there was none to kill");
    }
}
