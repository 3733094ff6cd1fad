//! Looks for stale answers to linearizable reads, beside the load and not counted.
//!
//! A load that only reads would be answered rightly by a store that reads once and remembers, and one whose threads have a connection each
//! never asks the followers for what it has just written. So now and then a key is written, unless the load writes anyway, and read at
//! once from every member: each must know what was acknowledged before it was asked.

use std::time::Duration;

use storebench_crds::workload::etcd::{EtcdOperation, RangeScope};
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::failure::Failure;
use crate::family::etcd::Etcd;
use crate::family::etcd::outside::log_in;
use crate::load::session::Session;
use crate::net::etcd::messages::{PutRequest, RangeRequest};
use crate::net::etcd::store::{Store, revision_of};

/// Between two looks: a few requests, among many thousands of the load.
const INTERVAL: Duration = Duration::from_millis(50);

impl Etcd {
    /// Whether this client is the one that looks. Of a whole prefix every answer is known, and a write would change it.
    pub(super) fn looks_for_stale_answers(&self, session: &Session) -> bool {
        let operation = self.plan.operation();
        let reads = matches!(operation, EtcdOperation::Range | EtcdOperation::Mixed);
        let of_keys = operation == EtcdOperation::Mixed || self.plan.parameters.scope == RangeScope::Key;
        reads && of_keys && !self.plan.is_serializable() && self.seat.thread == 0 && session.place() == 0
    }

    /// A way to each member.
    pub(super) async fn members(&self) -> Result<Vec<Store>, Failure> {
        let context = &self.seat.context;
        let mut members = Vec::with_capacity(context.endpoints.len());
        for endpoint in &context.endpoints {
            members.push(Store::new(&log_in(endpoint, context).await?, endpoint));
        }
        Ok(members)
    }
}

/// Looks until the load has ended. Errors: a member did not answer; wrong answers go to the session.
pub async fn run(etcd: &Etcd, session: &Session, ended: &Notify) -> Result<(), Failure> {
    let mut members = etcd.members().await?;
    let mut picker = etcd.picker(session);
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for turn in 0.. {
        tokio::select! {
            biased;
            () = ended.notified() => break,
            _ = ticks.tick() => {}
        }
        // A write that is under way when the load ends is waited for, or nobody could say whether it was made.
        let patience = etcd.seat.context.timeout;
        let looked = timeout(patience, look(etcd, session, &mut members, picker.slot_to_write(), turn)).await;
        looked.map_err(|_| {
            Failure::new(format_args!("a read of a key from every member took more than {patience:?}"))
        })??;
    }
    Ok(())
}

async fn look(etcd: &Etcd, session: &Session, members: &mut [Store], slot: u32, turn: usize) -> Result<(), Failure> {
    if etcd.plan.operation() == EtcdOperation::Range {
        let mut put = PutRequest::default();
        let version = etcd.fill_put(&mut put, slot);
        let writer = turn % members.len();
        let answer = members[writer].put(&put).await?;
        etcd.ledger.acknowledge(slot, version);
        etcd.written(session, slot, revision_of(answer.header.as_ref()));
    }
    let mut range = RangeRequest::default();
    etcd.fill_key(&mut range.key, slot);
    for member in members {
        let floor = etcd.ledger.floor(slot);
        let answer = member.range(&range).await?;
        match etcd.check_key(slot, floor, &range, &answer) {
            Ok(()) => session.verified(1),
            Err(detail) => {
                let endpoint = member.endpoint();
                session.wrong(
                    etcd.name_of(slot),
                    format!("a linearizable read at {endpoint} is stale or wrong: {detail}"),
                );
            }
        }
    }
    Ok(())
}
