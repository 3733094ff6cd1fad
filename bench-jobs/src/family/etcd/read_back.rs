//! After the measurement: everything between the process's borders is read back in pages and compared with what was
//! acknowledged.
//!
//! Each thread reads all pages and checks the keys whose versions it knows; the first thread also reports keys that
//! nobody wrote. A thread with watchers compares what these saw of every key.

use crate::failure::Failure;
use crate::family::etcd::Etcd;
use crate::family::etcd::answers::wrong_counter;
use crate::family::etcd::prepare::key_after;
use crate::load::session::Session;
use crate::net::etcd::messages::{KeyValue, RangeRequest};
use crate::net::etcd::store::Store;

/// The most bytes of values in a page, and the most keys.
const PAGE_BYTES: usize = 4 << 20;
const PAGE_KEYS: usize = 5_000;

/// Reads back and compares. Errors: the store did not answer; wrong answers go to the session.
pub async fn run(etcd: &Etcd, store: &mut Store, session: &Session) -> Result<(), Failure> {
    let page_keys = (PAGE_BYTES / etcd.values.value_bytes()).clamp(1, PAGE_KEYS);
    let (start, end) = etcd.plan.borders.clone();
    let mut request = RangeRequest { key: start, range_end: end, limit: page_keys as i64, ..RangeRequest::default() };
    let keys = etcd.plan.space.range();
    let mut next = keys.start;
    loop {
        let mut batch = session.begin(1);
        let page = store.range(&request).await?;
        session.answered_uncounted(&mut batch, 1);
        for found in &page.kvs {
            if *found.key < *request.key {
                session.wrong(found.key.escape_ascii().to_string(), "returned out of order or twice");
                return Ok(());
            }
            request.key = key_after(&found.key);
            match etcd.names.read_back(&found.key).filter(|key| keys.contains(key)) {
                Some(key) => {
                    etcd.expect_missing(session, next..key);
                    etcd.expect_found(session, key, found);
                    next = key + 1;
                }
                None if etcd.seat.thread == 0 => {
                    session.wrong(found.key.escape_ascii().to_string(), "nobody wrote this key");
                }
                None => {}
            }
        }
        if !page.more || page.kvs.is_empty() {
            break;
        }
    }
    etcd.expect_missing(session, next..keys.end);
    Ok(())
}

impl Etcd {
    /// The slot of a key that is for this thread to verify: its own; where the space is shared, the first thread's.
    fn slot_to_verify(&self, key: u32) -> Option<u32> {
        let is_mine = self.seat.thread == 0 || !self.plan.space.is_shared();
        is_mine.then(|| self.keys.slot_of(key)).flatten()
    }

    /// The store has none of these keys.
    fn expect_missing(&self, session: &Session, keys: std::ops::Range<u32>) {
        for key in keys {
            self.expect_watched(session, key, 0);
            let Some(slot) = self.slot_to_verify(key) else {
                continue;
            };
            match self.deletions.is_deleted(slot) {
                Ok(true) => session.verified(1),
                Err(detail) => session.wrong(self.names.text(key), detail),
                Ok(false) => {
                    // A key that was never written is missing rightly, and there are many; nothing was compared.
                    if self.ledger.sent(slot) == 0 {
                        continue;
                    }
                    match self.ledger.check(&self.values, slot, self.ledger.floor(slot), None) {
                        Ok(()) => session.verified(1),
                        Err(mismatch) => session.wrong(self.names.text(key), mismatch.detail),
                    }
                }
            }
        }
    }

    /// The store has this key.
    fn expect_found(&self, session: &Session, key: u32, found: &KeyValue) {
        self.expect_watched(session, key, found.version);
        let Some(slot) = self.slot_to_verify(key) else {
            return;
        };
        let checked = match self.deletions.is_deleted(slot) {
            Ok(true) => Err("expected no such key after its deletion was acknowledged, found it".into()),
            Ok(false) => self.check_final(slot, found),
            Err(detail) => Err(detail),
        };
        match checked {
            Ok(()) => session.verified(1),
            Err(detail) => session.wrong(self.names.text(key), detail),
        }
    }

    fn check_final(&self, slot: u32, found: &KeyValue) -> Result<(), String> {
        self.check_pair(slot, self.ledger.floor(slot), false, found)?;
        // Where the space is shared the floor is not the last version; but every write was answered, for a failed one
        // ends the workload, and so every version was applied.
        let sent = i64::from(self.ledger.sent(slot));
        match found.version == sent {
            true => Ok(()),
            false => Err(wrong_counter(sent, sent, found.version)),
        }
    }

    /// The watchers of this thread saw as many puts of a key as the store counts.
    fn expect_watched(&self, session: &Session, key: u32, counted: i64) {
        if let Err(detail) = self.watch.check_final(key, counted) {
            session.wrong(self.names.text(key), detail);
        }
    }
}
