//! WatchLatency: each client writes a key of its own and waits for the event of a watch on it. Every write must be told once, in order,
//! with its value.

use std::time::{Duration, Instant};

use futures::try_join;
use tokio::time::timeout;

use crate::failure::Failure;
use crate::load::session::Session;

use super::KeyValue;
use super::store::{Store, Watch};

/// How long an event may take before it is assumed that its watch began later.
const BEGIN_PAUSE: Duration = Duration::from_millis(200);
/// How long a watch may take to begin.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn load(key_value: &KeyValue, session: &Session) -> Result<(), Failure> {
    let Some(slot) = key_value.keys.owned_slots(session.place()).next() else { return Ok(()) };
    let number = key_value.keys.key(slot);
    let mut store = key_value.writer(session);
    let mut watch = key_value.store(session).watch(&key_value.names.name(number)).await?;
    begin(key_value, session, slot, &mut store, &mut watch).await?;
    let (mut key, mut value) = (Vec::new(), Vec::new());
    while let Some(mut batch) = session.next().await {
        let version = key_value.next_version(slot, &mut key, &mut value);
        let told = async { Ok((watch.next().await?, Instant::now())) };
        let ((), (event, done)) = try_join!(store.put(&key, &value), told)?;
        key_value.ledger.acknowledge(slot, version);
        session.answered(&mut batch, 1, done);
        if key_value.values.matches(number, version, &event) {
            session.verified(1);
        } else {
            let found = key_value.values.describe(&event);
            session
                .wrong(key_value.names.text(number), format!("a watch expected version {version}, was told {found}"));
        }
    }
    Ok(())
}

/// Writes until the watch tells the last write: from there on it misses nothing.
async fn begin(
    key_value: &KeyValue,
    session: &Session,
    slot: u32,
    store: &mut Store,
    watch: &mut Watch,
) -> Result<(), Failure> {
    let deadline = Instant::now() + BEGIN_TIMEOUT;
    let (mut key, mut value) = (Vec::new(), Vec::new());
    while !session.is_stopped() {
        let version = key_value.next_version(slot, &mut key, &mut value);
        let mut batch = session.begin(1);
        store.put(&key, &value).await?;
        session.answered_uncounted(&mut batch, 1);
        key_value.ledger.acknowledge(slot, version);
        while let Ok(event) = timeout(BEGIN_PAUSE, watch.next()).await {
            if key_value.values.matches(key_value.keys.key(slot), version, &event?) {
                return Ok(());
            }
        }
        if Instant::now() > deadline {
            let name = key_value.names.text(key_value.keys.key(slot));
            return Err(Failure::new(format!("{}: a watch on {name} tells nothing", store.endpoint())));
        }
    }
    Ok(())
}
