//! `/livez` and `/readyz`, as Kubernetes asks them: whether to start a server again, and whether to send it clients.
//!
//! Each is a list of named checks. `/readyz/NAME` asks one of them, `?exclude=NAME` leaves one out, `?verbose` lists all of them; one that
//! fails is always named, with the reason. In the words of etcd and of Kubernetes' own servers.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use http::{Response, StatusCode};
use tokio::sync::watch;

use crate::http::{Body, not_found, text, values};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// `/livez`.
    Live,
    /// `/readyz`.
    Ready,
}

impl Probe {
    /// What a path asks for, and the one check that it names, or nothing.
    pub fn of(path: &str) -> Option<(Self, &str)> {
        let find = |root: &str| {
            let rest = path.strip_prefix(root)?;
            if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
        };
        find("/livez").map(|name| (Self::Live, name)).or_else(|| find("/readyz").map(|name| (Self::Ready, name)))
    }
}

/// Answers a probe: runs those of `checks` that are asked for. `name` is that of the only one, or empty.
pub async fn answer(
    checks: &[&str],
    name: &str,
    query: &str,
    run: impl AsyncFn(&str) -> Result<(), String>,
) -> Response<Body> {
    if !name.is_empty() && !checks.contains(&name) {
        return not_found();
    }
    let is_wanted = |check: &&&str| {
        if name.is_empty() { !values(query, "exclude").any(|excluded| excluded == **check) } else { **check == name }
    };
    let mut has_failed = false;
    let mut lines = String::new();
    for check in checks.iter().filter(is_wanted) {
        match run(check).await {
            Ok(()) => lines.push_str(&format!("[+]{check} ok\n")),
            Err(error) => {
                lines.push_str(&format!("[-]{check} failed: {error}\n"));
                has_failed = true;
            }
        }
    }
    let is_verbose = query.split('&').any(|part| part == "verbose" || part.starts_with("verbose="));
    match (has_failed, is_verbose) {
        (false, false) => text(StatusCode::OK, "ok\n".into()),
        (false, true) => text(StatusCode::OK, lines + "ok\n"),
        (true, _) => text(StatusCode::SERVICE_UNAVAILABLE, lines),
    }
}

/// What a server waits for before it is ready. Clones are the same.
#[derive(Clone)]
pub struct Readiness {
    awaited: Arc<watch::Sender<Awaited>>,
    asked: Arc<[(&'static str, Question)]>,
}

/// By name of the check: why it fails; `None`: it does not.
type Awaited = BTreeMap<&'static str, Option<String>>;

/// What a check finds out when it is made.
pub type Finding = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;
type Question = Box<dyn Fn() -> Finding + Send + Sync>;

impl Default for Readiness {
    fn default() -> Self {
        Self { awaited: Arc::new(watch::Sender::new(Awaited::new())), asked: Arc::default() }
    }
}

impl Readiness {
    /// With a check that each `/readyz` makes anew. It must end within the prober's patience. Who is told of changes, as by
    /// `grpc.health.v1`, hears only of what is waited for.
    pub fn asking(check: &'static str, question: impl Fn() -> Finding + Send + Sync + 'static) -> Self {
        Self { asked: [(check, Box::new(question) as Question)].into(), ..Self::default() }
    }

    /// From now on the server is not ready, because of this check and for this reason.
    pub fn wait_for(&self, check: &'static str, reason: impl Into<String>) {
        let reason = Some(reason.into());
        self.awaited.send_if_modified(|awaited| awaited.insert(check, reason.clone()) != Some(reason));
    }

    /// What was waited for is there.
    pub fn is_there(&self, check: &'static str) {
        self.awaited.send_if_modified(|awaited| awaited.insert(check, None) != Some(None));
    }

    /// Whether nothing is waited for.
    pub fn is_ready(&self) -> bool {
        self.awaited.borrow().values().all(Option::is_none)
    }

    /// Tells of changes.
    pub(crate) fn watch(&self) -> watch::Receiver<Awaited> {
        self.awaited.subscribe()
    }

    /// Answers `/readyz`.
    pub async fn answer(&self, name: &str, query: &str) -> Response<Body> {
        let awaited = self.awaited.borrow().clone();
        let asked = self.asked.iter().map(|(check, _)| *check);
        let checks = awaited.keys().copied().chain(asked).collect::<Vec<_>>();
        answer(&checks, name, query, async |check| {
            match (awaited.get(check), self.asked.iter().find(|(asked, _)| *asked == check)) {
                (Some(Some(reason)), _) => Err(reason.clone()),
                (_, Some((_, question))) => question().await,
                (_, None) => Ok(()),
            }
        })
        .await
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = self.asked.iter().map(|(check, _)| check).collect::<Vec<_>>();
        formatter.debug_struct("Readiness").field("awaited", &self.awaited.borrow()).field("asked", &asked).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures::executor::block_on;

    use super::*;

    fn asked(readiness: &Readiness, path: &str) -> (u16, String) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let (probe, name) = Probe::of(path).unwrap();
        assert_eq!(probe, Probe::Ready);
        let response = block_on(readiness.answer(name, query));
        let Body::Full(Some(body)) = response.body() else { panic!("no body") };
        (response.status().as_u16(), String::from_utf8(body.to_vec()).unwrap())
    }

    #[test]
    fn what_is_waited_for_is_named() {
        let readiness = Readiness::default();
        assert_eq!(asked(&readiness, "/readyz"), (200, "ok\n".into()));
        readiness.wait_for("log", "12 of 40 segments are read");
        readiness.is_there("disk");
        assert!(!readiness.is_ready());
        let failed = "[+]disk ok\n[-]log failed: 12 of 40 segments are read\n";
        assert_eq!(asked(&readiness, "/readyz"), (503, failed.into()));
        assert_eq!(asked(&readiness, "/readyz/disk"), (200, "ok\n".into()));
        assert_eq!(asked(&readiness, "/readyz/log").0, 503);
        assert_eq!(asked(&readiness, "/readyz/lag").0, 404);
        assert_eq!(asked(&readiness, "/readyz?exclude=log&verbose"), (200, "[+]disk ok\nok\n".into()));
        readiness.is_there("log");
        assert!(readiness.is_ready());
        assert_eq!(asked(&readiness, "/readyz?verbose"), (200, "[+]disk ok\n[+]log ok\nok\n".into()));
    }

    #[test]
    fn a_check_that_is_asked_is_made_each_time() {
        let is_there = Arc::new(AtomicBool::new(false));
        let of_check = Arc::clone(&is_there);
        let readiness = Readiness::asking("majority", move || {
            let is_there = of_check.load(Ordering::Relaxed);
            Box::pin(async move { if is_there { Ok(()) } else { Err("nobody answers".into()) } })
        });
        readiness.is_there("disk");
        assert_eq!(asked(&readiness, "/readyz"), (503, "[+]disk ok\n[-]majority failed: nobody answers\n".into()));
        assert!(readiness.is_ready(), "nothing is waited for");
        is_there.store(true, Ordering::Relaxed);
        assert_eq!(asked(&readiness, "/readyz/majority"), (200, "ok\n".into()));
        assert_eq!(asked(&readiness, "/readyz?exclude=majority&verbose"), (200, "[+]disk ok\nok\n".into()));
    }

    #[test]
    fn paths_of_probes_are_known() {
        assert_eq!(Probe::of("/livez"), Some((Probe::Live, "")));
        assert_eq!(Probe::of("/readyz/a"), Some((Probe::Ready, "a")));
        assert_eq!((Probe::of("/readyzz"), Probe::of("/")), (None, None));
    }

    #[test]
    fn only_changes_are_told() {
        let readiness = Readiness::default();
        readiness.wait_for("log", "it is read");
        let watch = readiness.watch();
        readiness.wait_for("log", "it is read");
        assert!(!watch.has_changed().unwrap());
        readiness.is_there("log");
        assert!(watch.has_changed().unwrap());
    }
}
