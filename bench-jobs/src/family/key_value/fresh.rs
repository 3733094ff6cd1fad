//! Looks for stale answers to reads that must not be stale, beside the load and not counted, as the etcd family does: now and then a key
//! is written, unless the load writes anyway, and read at once from every member that takes such reads.

use std::time::Duration;

use storebench_crds::workload::key_value::KeyValueOperation;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::KeyValue;
use super::store::Store;
use crate::failure::Failure;
use crate::load::session::Session;

/// Between two looks: a few requests, among many thousands of the load.
const INTERVAL: Duration = Duration::from_millis(50);

impl KeyValue {
    /// Whether this client is the one that looks.
    pub(super) fn looks_for_stale_answers(&self, session: &Session) -> bool {
        let parameters = &self.plan.parameters;
        let reads = matches!(parameters.operation, KeyValueOperation::Get | KeyValueOperation::Mixed);
        reads && !self.plan.may_read_stale() && self.seat.thread == 0 && session.place() == 0
    }
}

/// Looks until the load has ended. Errors: a member did not answer; wrong answers go to the session.
pub(super) async fn run(key_value: &KeyValue, session: &Session, ended: &Notify) -> Result<(), Failure> {
    let mut members: Vec<Store> = key_value.members.iter().map(super::store::Connection::store).collect();
    let mut writer = key_value.writer(session);
    let mut picker = key_value.picker(session);
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = ended.notified() => return Ok(()),
            _ = ticks.tick() => {}
        }
        // A write that is under way when the load ends is waited for, or nobody could say whether it was made.
        let patience = key_value.seat.context.timeout;
        let looked =
            timeout(patience, look(key_value, session, &mut writer, &mut members, picker.slot_to_write())).await;
        looked.map_err(|_| {
            Failure::new(format_args!("a read of a key from every member took more than {patience:?}"))
        })??;
    }
}

async fn look(
    key_value: &KeyValue,
    session: &Session,
    writer: &mut Store,
    members: &mut [Store],
    slot: u32,
) -> Result<(), Failure> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    if key_value.plan.parameters.operation == KeyValueOperation::Get {
        let version = key_value.next_version(slot, &mut key, &mut value);
        writer.put(&key, &value).await?;
        key_value.ledger.acknowledge(slot, version);
    }
    key_value.name(slot, &mut key);
    for member in members {
        let floor = key_value.ledger.floor(slot);
        let found = member.get(&key, key_value.plan.parameters.read_level).await?;
        key_value.check(session, slot, floor, found.as_deref());
    }
    Ok(())
}
