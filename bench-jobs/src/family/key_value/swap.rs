//! CompareAndSwap: each client replaces the values of its own keys, of which it knows what they are: every swap must succeed.

use std::time::Instant;

use crate::failure::Failure;
use crate::load::session::Session;

use super::KeyValue;

pub(super) async fn load(key_value: &KeyValue, session: &Session) -> Result<(), Failure> {
    let mut store = key_value.writer(session);
    let mut picker = key_value.picker(session);
    let (mut key, mut before, mut value) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(mut batch) = session.next().await {
        let slot = picker.slot_to_write();
        let known = key_value.ledger.floor(slot);
        before.clear();
        key_value.values.write(key_value.keys.key(slot), known, &mut before);
        let version = key_value.next_version(slot, &mut key, &mut value);
        let swapped = store.swap(&key, &before, &value).await?;
        session.answered(&mut batch, 1, Instant::now());
        if swapped {
            key_value.ledger.acknowledge(slot, version);
            session.verified(1);
        } else {
            let detail =
                format!("a swap expected version {known}, which was acknowledged, and the store found another");
            session.wrong(key_value.names.text(key_value.keys.key(slot)), detail);
        }
    }
    Ok(())
}
