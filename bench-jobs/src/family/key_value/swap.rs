//! CompareAndSwap: each client replaces the values of its own keys, of which it knows what they are: every swap must succeed.
//!
//! A store that ignores the comparison would answer all of these rightly, and sooner. So now and then, not counted, a swap expects a value
//! that the key does not have: that one must fail, and change nothing.

use std::time::Instant;

use crate::failure::Failure;
use crate::load::session::Session;

use super::KeyValue;
use super::store::Store;

/// Of a client's swaps, the first and then one of so many follows one that must fail.
const SWAPS_PER_REFUSAL: u64 = 64;

pub(super) async fn load(key_value: &KeyValue, session: &Session) -> Result<(), Failure> {
    let mut store = key_value.writer(session);
    let mut picker = key_value.picker(session);
    let (mut key, mut before, mut value) = (Vec::new(), Vec::new(), Vec::new());
    let mut swaps = 0_u64;
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
        if swaps.is_multiple_of(SWAPS_PER_REFUSAL) {
            // The key has had this value, so that only a comparison with its newest one can tell.
            refused(key_value, session, &mut store, slot, &before).await?;
        }
        swaps += 1;
    }
    Ok(())
}

/// A swap that expects a value of the past, and must fail. Its new value is that same one: were it taken, the key would go back.
async fn refused(
    key_value: &KeyValue,
    session: &Session,
    store: &mut Store,
    slot: u32,
    past: &[u8],
) -> Result<(), Failure> {
    let mut key = Vec::new();
    key_value.name(slot, &mut key);
    let mut batch = session.begin(1);
    let swapped = store.swap(&key, past, past).await?;
    session.answered_uncounted(&mut batch, 1);
    if swapped {
        let detail = "a swap that expected a value which the key no longer has succeeded: the store does not compare";
        session.wrong(key_value.names.text(key_value.keys.key(slot)), detail);
    } else {
        session.verified(1);
    }
    Ok(())
}
