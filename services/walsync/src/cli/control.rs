//! What a replicator at work answers besides metrics and probes: how each database stands (`/status`), and when what is committed in one is
//! durable (`/sync`). Who asks is [`super::ask`].

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::watch::SILENCE;
use bytes::Bytes;
use http::{Method, Response, StatusCode, request};
use service_kit::console::OneLine;
use service_kit::grpc::{Caller, HttpAnswer, Peer, Requests, Responses, Service, Stream, Unary};
use service_kit::http::{Body, Incoming, only_get, text, values};
use service_kit::operations::Operations;
use service_kit::percent;
use tokio::sync::Semaphore;
use walsync::replicator::{Observer, Phase, Status};

/// Between two looks at whether a transaction is durable.
const LOOK: Duration = Duration::from_millis(10);
/// What is waited for longest, seconds.
pub(super) const TIMEOUT_SECONDS_MAX: u64 = 86_400;
/// Who waits for `sync` at once: each looks a hundred times a second.
const WAITERS_MAX: usize = 100;
/// Looks at file systems at once, each with a thread of its own.
const LOOKS_MAX: usize = 4;

/// Metrics, probes, status and sync.
#[derive(Clone)]
pub struct Control {
    operations: Operations,
    observer: Observer,
    patterns: Patterns,
    looks: Looks,
    waiters: Arc<Semaphore>,
}

impl Control {
    pub fn new(operations: Operations, observer: Observer, patterns: Patterns) -> Control {
        let waiters = Arc::new(Semaphore::new(WAITERS_MAX));
        Control { operations, observer, patterns, looks: Looks::default(), waiters }
    }
}

/// Looks at file systems, each of which may be silent for as long as it likes: the thread that answers probes waits for none.
#[derive(Clone)]
struct Looks(Arc<Semaphore>);

impl Default for Looks {
    fn default() -> Looks {
        Looks(Arc::new(Semaphore::new(LOOKS_MAX)))
    }
}

impl Looks {
    /// What a look finds; `None`: nothing within that time. One that hangs keeps its place, so that no number of questions makes more threads.
    async fn look<T: Send + 'static>(&self, within: Duration, look: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let looked = async {
            let place = self.0.clone().acquire_owned().await.ok()?;
            let look = move || {
                let found = look();
                drop(place);
                found
            };
            tokio::task::spawn_blocking(look).await.ok()
        };
        tokio::time::timeout(within, looked).await.ok().flatten()
    }
}

/// Patterns that no file matches, and why: new files may.
#[derive(Clone, Default)]
pub struct Patterns(Arc<Mutex<BTreeMap<PathBuf, &'static str>>>);

impl Patterns {
    /// Those of now. Each that comes or goes is told in one line.
    pub fn set(&self, empty: BTreeMap<PathBuf, &'static str>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (pattern, why) in empty.iter().filter(|(pattern, why)| known.get(*pattern) != Some(*why)) {
            tracing::warn!(path = %pattern.display(), why, "waiting");
        }
        for pattern in known.keys().filter(|pattern| !empty.contains_key(*pattern)) {
            tracing::info!(path = %pattern.display(), "files match now");
        }
        *known = empty;
    }

    fn lines(&self) -> String {
        let empty = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line = |(pattern, why): (&PathBuf, &&str)| {
            format!("{}\twaiting: {why}\t0\t-\t0.000\n", OneLine(pattern.display()))
        };
        empty.iter().map(line).collect()
    }
}

impl Service for Control {
    type Method = Infallible;

    fn method(&self, _: &str) -> Option<(Infallible, bool)> {
        None
    }

    fn unary(&self, method: Infallible, _: Caller, _: Bytes) -> Unary {
        match method {}
    }

    fn stream(&self, method: Infallible, _: Caller, _: Requests, _: Responses) -> Stream {
        match method {}
    }

    fn http(&self, head: request::Parts, _: Incoming, _: Rc<Peer>) -> Option<HttpAnswer> {
        let path = head.uri.path();
        if !["/status", "/sync"].contains(&path) {
            return self.operations.answer(&head);
        }
        if head.method != Method::GET {
            return Some(Box::pin(async { only_get() }));
        }
        if path == "/status" {
            let lines: String = self.observer.status().iter().map(|status| line(status) + "\n").collect();
            let patterns = self.patterns.lines();
            return Some(Box::pin(async move { text(StatusCode::OK, format!("{HEAD}\n{lines}{patterns}")) }));
        }
        let wanted = Wanted::of(head.uri.query().unwrap_or_default());
        let (observer, looks) = (self.observer.clone(), self.looks.clone());
        let place = self.waiters.clone().try_acquire_owned();
        Some(Box::pin(async move {
            let Ok(_place) = place else {
                let said = format!("{WAITERS_MAX} others wait already: try again later\n");
                return text(StatusCode::SERVICE_UNAVAILABLE, said);
            };
            match wanted {
                Ok(wanted) => wanted.answer(&observer, &looks).await,
                Err(wrong) => text(StatusCode::BAD_REQUEST, format!("{wrong}\n")),
            }
        }))
    }
}

pub(super) const HEAD: &str = "database\tstate\tdurable_txid\tcommitted\tat_risk_seconds";

fn line(status: &Status) -> String {
    let (txid, at_risk) = (status.durable_txid, status.at_risk.as_secs_f64());
    let committed = if txid == 0 { "-".into() } else { super::time(status.durable_millis) };
    let late = status.snapshot_late.as_ref();
    let late = late.map_or(String::new(), |late| format!("; a snapshot is {} s late: {}", late.by.as_secs(), late.why));
    let let_go = status.let_go.map_or(String::new(), |(since, why)| {
        format!("; frames were let go of {} s ago, and are found by comparing: {why}", since.as_secs())
    });
    let silent = status.asked.filter(|asked| *asked >= SILENCE);
    let silent =
        silent.map_or(String::new(), |asked| format!("; the store has not answered for {} s", asked.as_secs()));
    let (path, phase) = (OneLine(status.path.display()), format!("{}{silent}{late}{let_go}", status.phase));
    format!("{path}\t{}\t{txid}\t{committed}\t{at_risk:.3}", OneLine(phase))
}

/// What somebody waits for.
struct Wanted {
    database: PathBuf,
    /// Absent: everything that is committed now.
    txid: Option<u64>,
    timeout: Duration,
}

impl Wanted {
    fn of(query: &str) -> Result<Wanted, &'static str> {
        let number = |name| match values(query, name).next() {
            None => Ok(None),
            Some(value) => value.parse::<u64>().map(Some).map_err(|_| "txid and timeout_seconds are whole numbers"),
        };
        let database =
            values(query, "database").next().and_then(percent::decoded).ok_or("database= is missing, or no text")?;
        let timeout = number("timeout_seconds")?.unwrap_or(60).min(TIMEOUT_SECONDS_MAX);
        Ok(Wanted { database: database.into(), txid: number("txid")?, timeout: Duration::from_secs(timeout) })
    }

    async fn answer(&self, observer: &Observer, looks: &Looks) -> Response<Body> {
        let path = OneLine(self.database.display());
        let end = Instant::now() + self.timeout;
        let mut request = observer.request_sync(&self.database);
        if request.is_none() {
            let (by, database) = (observer.clone(), self.database.clone());
            let Some(found) = looks.look(self.timeout, move || by.watched_as(&database)).await else {
                let said = format!(
                    "{path} is not watched here by that path, and file systems do not say where it leads: name it as `status` does\n"
                );
                return text(StatusCode::GATEWAY_TIMEOUT, said);
            };
            request = found.and_then(|path| observer.request_sync(&path));
        }
        let Some(request) = request else {
            return text(StatusCode::NOT_FOUND, format!("{path} is not watched here\n"));
        };
        loop {
            let status = observer.status_of(&request);
            let is_there = self.txid.is_some_and(|txid| status.durable_txid >= txid);
            // A transaction of the future is waited for.
            let is_over = if self.txid.is_some() { is_there } else { request.is_over() };
            let never = matches!(status.phase, Phase::Refused(_) | Phase::Fenced(_))
                || request.is_over() && matches!(status.phase, Phase::Waiting(_));
            if !is_there && never {
                return text(StatusCode::CONFLICT, format!("{path}: {}\n", OneLine(&status.phase)));
            }
            if is_over {
                return text(StatusCode::OK, format!("{HEAD}\n{}\n", line(&status)));
            }
            if Instant::now() >= end {
                let (txid, state) = (status.durable_txid, OneLine(&status.phase));
                let said =
                    format!("{path}: not durable after {:?}: the store has TXID {txid}; {state}\n", self.timeout);
                return text(StatusCode::GATEWAY_TIMEOUT, said);
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use service_kit::percent::encoded;
    use std::sync::mpsc;

    #[test]
    fn a_path_with_newlines_and_tabs_is_one_field_of_one_line() {
        let status = Status { path: "/a\nb\tc \u{1b}ü.db".into(), ..Status::default() };
        let line = line(&status);
        assert!(line.starts_with("/a\\nb\\tc \\u{1b}ü.db\twaiting") && !line.contains('\n'), "{line}");
        // Errors name files, too.
        let why = "/x/a\n/victim.db\trunning\t7\t-\t0.000".to_owned();
        let refused = super::line(&Status { path: "/a.db".into(), phase: Phase::Refused(why), ..Status::default() });
        assert_eq!((refused.lines().count(), refused.split('\t').count()), (1, 5), "{refused}");
    }

    #[test]
    fn any_path_survives_its_way_in_a_query() {
        for path in ["/data/app.db", "/data/a b&c=d%25+ü.db", "/x?y#z"] {
            let query = format!("timeout_seconds=5&database={}&txid=7", encoded(path));
            let wanted = Wanted::of(&query).unwrap();
            assert_eq!((wanted.database.to_str().unwrap(), wanted.txid), (path, Some(7)), "{query}");
            assert_eq!(wanted.timeout, Duration::from_secs(5));
        }
        assert!(Wanted::of("txid=7").is_err() && Wanted::of("database=%2").is_err());
        assert!(Wanted::of("database=x&txid=latest").is_err());
    }

    #[test]
    fn a_file_system_that_is_silent_keeps_nobody_waiting() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let looks = Looks::default();
        let (within, silence) = (Duration::from_millis(200), Duration::from_secs(5));
        let mut speak = Vec::new();
        runtime.block_on(async {
            for _ in 0..LOOKS_MAX {
                let (tell, told) = mpsc::channel::<()>();
                speak.push(tell);
                let began = Instant::now();
                let probe = async {
                    tokio::task::yield_now().await;
                    began.elapsed()
                };
                let (found, probed) = tokio::join!(looks.look(within, move || told.recv_timeout(silence)), probe);
                assert!(found.is_none() && probed < silence / 2, "{found:?} {probed:?}");
            }
            // All places are taken: who comes then is told so in time, and there is no thread more.
            let began = Instant::now();
            assert!(looks.look(within, || ()).await.is_none() && began.elapsed() < silence / 2);
            speak.clear();
            assert_eq!(looks.look(silence, || 7).await, Some(7));
        });
    }
}
