//! Leader election by Lease: of several replicas one acts. (kube has none; the crates that do lag behind its releases.)
//!
//! As client-go does it: a Lease that was not renewed for its duration, by the clock of the one who looks, may be taken;
//! writes carry the version that was read, so that two cannot take it at once. A leader that cannot renew in time stops the
//! process: whatever it was doing, another may be doing now.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};

const NAME: &str = "storebench-operator";
const DURATION: Duration = Duration::from_secs(15);
const RENEW_INTERVAL: Duration = Duration::from_secs(4);
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// A leader that has not renewed for this long stops before the others may begin.
const RENEW_DEADLINE: Duration = Duration::from_secs(11);

/// The Lease, as one replica sees it.
pub struct LeaderElection {
    api: Api<Lease>,
    identity: String,
    /// What the Lease said last, and since when it says so, by this replica's own clock.
    seen: Option<(Option<MicroTime>, Instant)>,
}

impl LeaderElection {
    /// The Lease in this namespace; `identity` is the replica's name.
    pub fn new(client: Client, namespace: &str, identity: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), identity: identity.into(), seen: None }
    }

    /// Returns when this replica leads.
    pub async fn acquire(&mut self) {
        loop {
            match self.try_acquire().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "the leader's Lease cannot be read or written"),
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Renews for as long as that works. Returns when this replica must no longer act.
    pub async fn keep(&mut self) {
        let mut renewed = Instant::now();
        while renewed.elapsed() < RENEW_DEADLINE {
            tokio::time::sleep(RENEW_INTERVAL).await;
            match tokio::time::timeout(RENEW_INTERVAL, self.try_acquire()).await {
                Ok(Ok(true)) => renewed = Instant::now(),
                Ok(Ok(false)) => return,
                Ok(Err(error)) => tracing::warn!(%error, "the leader's Lease cannot be renewed"),
                Err(_) => tracing::warn!("the leader's Lease cannot be renewed in time"),
            }
        }
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

/// Somebody else was quicker: not an error.
fn written(result: Result<Lease, kube::Error>) -> Result<bool, kube::Error> {
    match result {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}
