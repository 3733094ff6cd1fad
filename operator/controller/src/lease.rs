//! Leader election by Lease: of several replicas one acts. (kube has none; the crates that do lag behind its releases.)
//!
//! As client-go does it: a Lease that was not renewed for its duration, by the clock of the one who looks, may be taken;
//! writes carry the version that was read, so that two cannot take it at once. A leader that cannot renew in time stops the
//! process: whatever it was doing, another may be doing now. What it may do is counted from before the request that renewed, by a
//! clock that nobody sets, and ends a margin before others may begin, however long a request hangs.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

const NAME: &str = "storebench-operator";
const DURATION: Duration = Duration::from_secs(15);
const RENEW_INTERVAL: Duration = Duration::from_secs(4);
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// A leader that has not renewed for this long stops. The rest of [`DURATION`] is for what it has sent and was not answered yet.
const ACT_AT_MOST: Duration = Duration::from_secs(11);

/// The Lease, as one replica sees it.
pub struct LeaderElection {
    api: Api<Lease>,
    identity: String,
    /// What the Lease said last, and since when it says so, by this replica's own clock.
    seen: Option<(Option<MicroTime>, Instant)>,
    /// When the request was sent by which this replica leads.
    renewed: Instant,
}

impl LeaderElection {
    /// The Lease in this namespace; `identity` is the replica's name.
    pub fn new(client: Client, namespace: &str, identity: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), identity: identity.into(), seen: None, renewed: Instant::now() }
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

    /// Lets another replica begin at once.
    pub async fn release(&self) -> Result<(), kube::Error> {
        let mut lease = self.api.get(NAME).await?;
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
            return written(self.api.create(&PostParams::default(), &lease).await);
        };
        let spec = lease.spec.take().unwrap_or_default();
        if !self.may_take(&spec) {
            return Ok(false);
        }
        lease.spec = Some(self.held(Some(&spec), now));
        written(self.api.replace(NAME, &PostParams::default(), &lease).await)
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
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

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
