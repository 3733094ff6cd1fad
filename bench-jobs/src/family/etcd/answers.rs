//! Whether the answer to a read can be right.

use crate::family::etcd::Etcd;
use crate::net::etcd::messages::{KeyValue, RangeRequest, RangeResponse};

impl Etcd {
    /// Checks the answer to a read of the key in `slot`, which was written before; `floor` was taken before the read was
    /// sent. Errors: what was expected and found, in one line.
    pub(super) fn check_key(
        &self,
        slot: u32,
        floor: u32,
        request: &RangeRequest,
        answer: &RangeResponse,
    ) -> Result<(), String> {
        let keys = if request.count_only { 0 } else { 1 };
        if answer.count != 1 || answer.kvs.len() != keys || answer.more {
            if answer.count == 0 && answer.kvs.is_empty() {
                return self.check_value(slot, floor, None);
            }
            return Err(format!(
                "expected count 1 and {keys} keys, found count {} and {} keys",
                answer.count,
                answer.kvs.len()
            ));
        }
        let Some(found) = answer.kvs.first() else {
            return Ok(());
        };
        if found.key != request.key {
            return Err(format!("found key {} in its place", found.key.escape_ascii()));
        }
        self.check_pair(slot, floor, request.keys_only, found)
    }

    /// Checks a key that was found: its value, and its counter of puts.
    pub(super) fn check_pair(&self, slot: u32, floor: u32, keys_only: bool, found: &KeyValue) -> Result<(), String> {
        if !keys_only {
            self.check_value(slot, floor, Some(&found.value))?;
        } else if !found.value.is_empty() {
            return Err(format!("expected no value with keys_only, found {} bytes", found.value.len()));
        }
        // Versions and puts are both counted from 1 since this workload cleared the prefix.
        let (least, most) = (i64::from(floor), i64::from(self.ledger.sent(slot)));
        match (least..=most).contains(&found.version) {
            true => Ok(()),
            false => Err(wrong_counter(least, most, found.version)),
        }
    }

    fn check_value(&self, slot: u32, floor: u32, found: Option<&[u8]>) -> Result<(), String> {
        let checked = self.ledger.check(&self.values, slot, floor, found);
        checked.map_err(|mismatch| mismatch.detail)
    }

    /// Checks the answer to a read of the whole key space, in which every key has been written exactly once, by whichever
    /// load process owns it. Errors: the key, and what was expected and found, in one line.
    pub(super) fn check_prefix(&self, request: &RangeRequest, answer: &RangeResponse) -> Result<(), (String, String)> {
        let keys = self.plan.parameters.key_space;
        let returned = match (request.count_only, request.limit) {
            (true, _) => 0,
            (false, 0) => keys,
            (false, limit) => keys.min(limit as u32),
        };
        let more = !request.count_only && returned < keys;
        // A wrong key says more than a wrong count.
        for (number, found) in (0..returned).zip(&answer.kvs) {
            self.check_first_version(number, request.keys_only, found)
                .map_err(|detail| (self.names.text(number), detail))?;
        }
        if answer.count != i64::from(keys) || answer.kvs.len() != returned as usize || answer.more != more {
            let detail = format!(
                "expected count {keys}, {returned} keys and more {more}, found count {}, {} keys and more {}",
                answer.count,
                answer.kvs.len(),
                answer.more
            );
            let first_missing = self.names.text(answer.kvs.len() as u32);
            let key = if request.count_only { self.plan.prefix.first.clone() } else { first_missing };
            return Err((key, detail));
        }
        Ok(())
    }

    fn check_first_version(&self, number: u32, keys_only: bool, found: &KeyValue) -> Result<(), String> {
        if self.names.read_back(&found.key) != Some(number) {
            return Err(format!("found key {} in its place", found.key.escape_ascii()));
        }
        if found.version != 1 {
            return Err(wrong_counter(1, 1, found.version));
        }
        if keys_only {
            return match found.value.is_empty() {
                true => Ok(()),
                false => Err(format!("expected no value with keys_only, found {} bytes", found.value.len())),
            };
        }
        match self.values.matches(number, 1, &found.value) {
            true => Ok(()),
            false => Err(format!("expected version 1, found {}", self.values.describe(&found.value))),
        }
    }
}

/// What to say about a key's counter of puts.
pub fn wrong_counter(least: i64, most: i64, found: i64) -> String {
    let expected = match least == most {
        true => format!("{most}"),
        false => format!("from {least} to {most}"),
    };
    format!("expected put count {expected} since the key was created, found {found}")
}
