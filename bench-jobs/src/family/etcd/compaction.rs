//! Compacts the store's history now and then while the load runs, as `compact-interval` of etcd's benchmark tool does.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::failure::Failure;
use crate::family::etcd::Etcd;
use crate::load::session::Session;
use crate::net::etcd::messages::CompactionRequest;

/// Runs until it fails or is dropped. The revision counted from is the newest that a client of this thread was given.
pub async fn run(etcd: &Etcd, session: &Session, every: Duration) -> Failure {
    match compact(etcd, session, every).await {
        Ok(never) => match never {},
        Err(failure) => failure,
    }
}

async fn compact(etcd: &Etcd, session: &Session, every: Duration) -> Result<Infallible, Failure> {
    let mut store = etcd.store(session);
    let keep = i64::from(etcd.plan.parameters.compact_keep_revisions);
    let mut compacted = 0;
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let revision = etcd.revisions.borrow().newest() - keep;
        // etcd refuses to compact the same revision twice; nothing was written since.
        if revision > compacted {
            let request = CompactionRequest { revision, physical: false };
            store.compact(&request).await?;
            compacted = revision;
        }
    }
}
