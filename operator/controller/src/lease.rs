//! Leader election by Lease: of several replicas one acts. (kube has none; the crates that do lag behind its releases.)
//!
//! As client-go does it: a Lease that was not renewed for its duration, by the clock of the one who looks, may be taken;
//! writes carry the version that was read, so that two cannot take it at once. A leader that cannot renew in time stops the
//! process: whatever it was doing, another may be doing now. What it may do is counted from before the request that renewed, by a
//! clock that nobody sets, and ends a margin before others may begin, however long a request hangs. A replica that is told to stop lets go of the
//! Lease after the last write that it has sent: one that came behind would hold it for nobody, and whoever is stopped within its duration each time,
//! as on a node that is drained, would never lead.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

const NAME: &str = "storebench-operator";
const DURATION: Duration = Duration::from_secs(15);
const RENEW_INTERVAL: Duration = Duration::from_secs(4);
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// A leader that has not renewed for this long stops. The rest of [`DURATION`] is for what it has sent and was not answered yet.
const ACT_AT_MOST: Duration = Duration::from_secs(11);
/// For how long a replica that was told to stop tries to let go of the Lease: less than the pod has (manifests/install/operator.yaml).
const RELEASE_AT_MOST: Duration = Duration::from_secs(6);

/// The Lease, as one replica sees it.
pub struct LeaderElection {
    api: Api<Lease>,
    identity: String,
    /// What the Lease said last, and since when it says so, by this replica's own clock.
    seen: Option<(Option<MicroTime>, Instant)>,
    /// When the request was sent by which this replica leads.
    renewed: Instant,
    /// A write that was sent and is not answered yet. It goes on when nobody waits for it any more.
    writing: Option<JoinHandle<Result<bool, kube::Error>>>,
}

impl LeaderElection {
    /// The Lease in this namespace; `identity` is the replica's name.
    pub fn new(client: Client, namespace: &str, identity: &str) -> Self {
        let api = Api::namespaced(client, namespace);
        Self { api, identity: identity.into(), seen: None, renewed: Instant::now(), writing: None }
    }

    /// Returns when this replica leads.
    pub async fn acquire(&mut self) {
        loop {
            self.renewed = Instant::now();
            match self.try_acquire().await {
                // An answer that took so long may come when the others have begun.
                Ok(true) if self.renewed.elapsed() < ACT_AT_MOST => return,
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "the leader's Lease cannot be read or written"),
            }
            sleep(RETRY_INTERVAL).await;
        }
    }

    /// Renews for as long as that works. Returns when this replica must no longer act.
    pub async fn keep(&mut self) {
        keep(Tenure::new(self.renewed, Instant::now()), async || self.try_acquire().await).await;
    }

    /// Lets another replica begin at once, if the Lease is this one's.
    pub async fn release(&mut self) -> anyhow::Result<()> {
        let released = timeout(RELEASE_AT_MOST, self.release_after_writing()).await;
        released.context("the API server did not answer in time")?.context("the API server refused it")
    }

    async fn release_after_writing(&mut self) -> Result<(), kube::Error> {
        if let Some(writing) = self.writing.take() {
            // Whatever became of it is read below.
            let _ = writing.await;
        }
        let Some(mut lease) = self.api.get_opt(NAME).await? else { return Ok(()) };
        let Some(spec) = lease.spec.as_mut().filter(|spec| spec.holder_identity.as_ref() == Some(&self.identity))
        else {
            return Ok(());
        };
        spec.holder_identity = None;
        self.api.replace(NAME, &PostParams::default(), &lease).await.map(|_| ())
    }

    async fn try_acquire(&mut self) -> Result<bool, kube::Error> {
        let now = MicroTime(Timestamp::now());
        let Some(mut lease) = self.api.get_opt(NAME).await? else {
            let mut lease = Lease::default();
            lease.metadata.name = Some(NAME.into());
            lease.spec = Some(self.held(None, now));
            return self.write(lease).await;
        };
        let spec = lease.spec.take().unwrap_or_default();
        if !self.may_take(&spec) {
            return Ok(false);
        }
        lease.spec = Some(self.held(Some(&spec), now));
        self.write(lease).await
    }

    /// Makes the Lease, or writes it over what was read; whether nobody was quicker.
    async fn write(&mut self, lease: Lease) -> Result<bool, kube::Error> {
        let api = self.api.clone();
        let writing = self.writing.insert(tokio::spawn(async move {
            let parameters = PostParams::default();
            written(match lease.metadata.resource_version {
                None => api.create(&parameters, &lease).await,
                Some(_) => api.replace(NAME, &parameters, &lease).await,
            })
        }));
        let answer = writing.await;
        self.writing = None;
        // It panicked: nobody knows whether the Lease is this replica's, so it is not.
        answer.unwrap_or(Ok(false))
    }

    /// Whether the Lease is this replica's, free, or not renewed for its duration.
    fn may_take(&mut self, spec: &LeaseSpec) -> bool {
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        if holder.is_empty() || holder == self.identity {
            return true;
        }
        match &self.seen {
            Some((renewed, since)) if *renewed == spec.renew_time => since.elapsed() > DURATION,
            _ => {
                self.seen = Some((spec.renew_time.clone(), Instant::now()));
                false
            }
        }
    }

    fn held(&self, before: Option<&LeaseSpec>, now: MicroTime) -> LeaseSpec {
        let own = before.filter(|before| before.holder_identity.as_ref() == Some(&self.identity));
        let transitions = before.and_then(|before| before.lease_transitions).unwrap_or_default();
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(DURATION.as_secs() as i32),
            acquire_time: own.map_or_else(|| Some(now.clone()), |own| own.acquire_time.clone()),
            lease_transitions: Some(if own.is_some() { transitions } else { transitions.saturating_add(1) }),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }
    }
}

/// See [`LeaderElection::keep`]: `renew` says whether the Lease is still this replica's.
async fn keep<E: std::fmt::Display>(mut tenure: Tenure, mut renew: impl AsyncFnMut() -> Result<bool, E>) {
    while let Some(at) = tenure.asks_at() {
        sleep_until(at).await;
        let asked = Instant::now();
        let answer = match timeout_at(tenure.waits_until(asked), renew()).await {
            Ok(Ok(true)) => Answer::Renewed,
            Ok(Ok(false)) => return,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the leader's Lease cannot be renewed");
                Answer::Failed
            }
            Err(_) => {
                tracing::warn!("the leader's Lease cannot be renewed in time");
                Answer::Failed
            }
        };
        tenure.answered(asked, Instant::now(), answer);
    }
    sleep_until(tenure.ends()).await;
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    /// The Lease is still this replica's.
    Renewed,
    /// An error, or nothing in time.
    Failed,
}

/// When a leader asks for its Lease, how long it waits for the answer, and until when it may act. Pure: instants come in.
#[derive(Debug)]
struct Tenure {
    /// When the request was sent by which this replica leads.
    renewed: Instant,
    next: Instant,
}

impl Tenure {
    fn new(renewed: Instant, now: Instant) -> Self {
        Self { renewed, next: now + RENEW_INTERVAL }
    }

    fn ends(&self) -> Instant {
        self.renewed + ACT_AT_MOST
    }

    /// When it asks next; `None`: its time ends before.
    fn asks_at(&self) -> Option<Instant> {
        (self.next < self.ends()).then_some(self.next)
    }

    fn waits_until(&self, asked: Instant) -> Instant {
        (asked + RENEW_INTERVAL).min(self.ends())
    }

    fn answered(&mut self, asked: Instant, now: Instant, answer: Answer) {
        self.next = match answer {
            Answer::Renewed => {
                self.renewed = asked;
                now + RENEW_INTERVAL
            }
            Answer::Failed => now + RETRY_INTERVAL,
        };
    }
}

/// Somebody else was quicker: not an error.
fn written(result: Result<Lease, kube::Error>) -> Result<bool, kube::Error> {
    match result {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::Router;
    use axum::extract::State;
    use axum::http::StatusCode;
    use axum::routing::get;
    use serde_json::{Value, json};
    use tokio::net::TcpListener;
    use tokio::sync::Mutex;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    /// How long the API server below takes to write.
    const WRITES: Duration = Duration::from_millis(300);

    type Stored = Arc<Mutex<Value>>;

    /// An API server that has one Lease, and carries out what it was sent although nobody waits for the answer any more.
    async fn api_server(lease: Value) -> (LeaderElection, Stored) {
        async fn read(State(stored): State<Stored>) -> String {
            stored.lock().await.to_string()
        }
        async fn write(State(stored): State<Stored>, lease: String) -> (StatusCode, String) {
            let write = async move {
                sleep(WRITES).await;
                let mut lease: Value = serde_json::from_str(&lease).unwrap();
                let mut stored = stored.lock().await;
                if lease["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"] {
                    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409 });
                    return (StatusCode::CONFLICT, status.to_string());
                }
                let version: u32 = lease["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
                lease["metadata"]["resourceVersion"] = json!((version + 1).to_string());
                stored.clone_from(&lease);
                (StatusCode::OK, lease.to_string())
            };
            tokio::spawn(write).await.unwrap()
        }
        let stored = Stored::new(Mutex::new(lease));
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/system/leases/{NAME}");
        let router = Router::new().route(&path, get(read).put(write)).with_state(Arc::clone(&stored));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let client = Client::try_from(kube::Config::new(format!("http://{address}").parse().unwrap())).unwrap();
        (LeaderElection::new(client, "system", "this"), stored)
    }

    fn lease_of(holder: Option<&str>) -> Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": NAME, "namespace": "system", "resourceVersion": "1" },
            "spec": { "holderIdentity": holder },
        })
    }

    /// Who has the Lease after a replica was told to stop while its write was under way.
    async fn holder_after_stopping(lease: Value) -> Value {
        let (mut election, stored) = api_server(lease).await;
        let stopped = timeout(WRITES / 3, election.acquire()).await;
        assert!(stopped.is_err(), "it was to be stopped before it was answered");
        election.release().await.unwrap();
        // For what may still be on its way.
        sleep(2 * WRITES).await;
        let stored = stored.lock().await;
        assert_eq!(stored["metadata"]["resourceVersion"], "3", "one write, and one that lets go");
        stored["spec"]["holderIdentity"].clone()
    }

    #[tokio::test]
    async fn one_that_is_stopped_while_it_renews_lets_go_of_the_lease() {
        assert_eq!(holder_after_stopping(lease_of(Some("this"))).await, Value::Null);
    }

    #[tokio::test]
    async fn one_that_is_stopped_while_it_takes_the_lease_lets_go_of_it() {
        assert_eq!(holder_after_stopping(lease_of(None)).await, Value::Null);
    }

    #[tokio::test]
    async fn one_that_is_stopped_leaves_the_lease_of_another_alone() {
        let (mut election, stored) = api_server(lease_of(Some("other"))).await;
        election.release().await.unwrap();
        assert_eq!(*stored.lock().await, lease_of(Some("other")));
    }

    /// For how long a leader acts that is answered so, by the count of what it asked before: when, and what. `None`: never. Time passes as it is told.
    fn acts(mut answer: impl FnMut(u32) -> Option<(Duration, Answer)>) -> Duration {
        let begun = Instant::now();
        let mut tenure = Tenure::new(begun, begun);
        for count in 0..100 {
            let Some(asked) = tenure.asks_at() else { break };
            let patience = tenure.waits_until(asked) - asked;
            let answered = answer(count).filter(|(after, _)| *after <= patience);
            let (after, answer) = answered.unwrap_or((patience, Answer::Failed));
            tenure.answered(asked, asked + after, answer);
        }
        tenure.ends() - begun
    }

    #[test]
    fn a_leader_stops_before_its_lease_ends_however_the_api_server_fails() {
        assert!(DURATION - ACT_AT_MOST >= 3 * SECOND);
        assert_eq!(acts(|_| None), ACT_AT_MOST, "no answer");
        assert_eq!(acts(|_| Some((Duration::ZERO, Answer::Failed))), ACT_AT_MOST, "errors");
        assert_eq!(acts(|_| Some((Duration::from_millis(3_900), Answer::Failed))), ACT_AT_MOST, "slow errors");
    }

    #[test]
    fn an_answer_counts_from_when_it_was_asked_for() {
        // Asked after 4 s, answered after 7.
        let acted = acts(|count| (count == 0).then_some((3 * SECOND, Answer::Renewed)));
        assert_eq!(acted, RENEW_INTERVAL + ACT_AT_MOST);
    }

    #[test]
    fn an_answer_that_comes_when_the_lease_has_ended_renews_nothing() {
        let begun = Instant::now();
        let mut tenure = Tenure::new(begun, begun);
        let asked = begun + RENEW_INTERVAL;
        // The process stood still.
        tenure.answered(asked, begun + 60 * SECOND, Answer::Renewed);
        assert_eq!((tenure.asks_at(), tenure.ends()), (None, asked + ACT_AT_MOST));
    }

    #[test]
    fn a_leader_that_renews_goes_on() {
        assert_eq!(acts(|_| Some((Duration::ZERO, Answer::Renewed))), RENEW_INTERVAL * 100 + ACT_AT_MOST);
    }

    #[tokio::test]
    async fn one_that_was_replaced_stops_at_once() {
        let mut count = 0;
        let begun = Instant::now();
        let replaced = async || {
            count += 1;
            Ok::<_, &str>(false)
        };
        keep(Tenure { renewed: begun, next: begun }, replaced).await;
        assert_eq!(count, 1);
        assert!(begun.elapsed() < ACT_AT_MOST, "{:?}", begun.elapsed());
    }
}
