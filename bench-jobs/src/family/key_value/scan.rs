//! Scan: reads all keys with a common prefix. Nothing is written meanwhile, so that exactly the first version of each must be found.

use std::time::Instant;

use bytes::Bytes;

use crate::content::expect::Mismatch;
use crate::content::keys::KeyNames;
use crate::content::values::Values;
use crate::failure::Failure;
use crate::load::session::Session;

use super::KeyValue;

/// What was written before the load.
const VERSION: u32 = 1;

pub(super) async fn load(key_value: &KeyValue, session: &Session) -> Result<(), Failure> {
    let count = key_value.plan.parameters.scanned_keys();
    // The last digits of the names that differ.
    let digits = count.ilog10() as usize;
    let blocks = (key_value.plan.space.keys() / count).max(1);
    let mut store = key_value.store(session);
    let mut picker = key_value.picker(session);
    let mut prefix = Vec::new();
    while let Some(mut batch) = session.next().await {
        let first = key_value.keys.key(picker.slot_to_read()) / count % blocks * count;
        prefix.clear();
        key_value.names.write(first, &mut prefix);
        prefix.truncate(prefix.len() - digits);
        let found = store.scan(&prefix).await?;
        session.answered(&mut batch, 1, Instant::now());
        match check(&key_value.names, &key_value.values, first, count, &found) {
            Ok(()) => session.verified(1),
            Err(mismatch) => session.wrong(key_value.names.text(mismatch.key), mismatch.detail),
        }
    }
    Ok(())
}

/// Compares what was found with the keys that there are: all of them, in order, and no others.
fn check(names: &KeyNames, values: &Values, first: u32, count: u32, found: &[(Bytes, Bytes)]) -> Result<(), Mismatch> {
    let mut name = Vec::new();
    for (key, (found_key, found_value)) in (first..first + count).zip(found) {
        name.clear();
        names.write(key, &mut name);
        if *found_key != name {
            let detail = format!("a scan found key {} in its place", found_key.escape_ascii());
            return Err(Mismatch { key, detail });
        }
        if !values.matches(key, VERSION, found_value) {
            let found = values.describe(found_value);
            return Err(Mismatch { key, detail: format!("a scan expected version {VERSION}, found {found}") });
        }
    }
    match found.len() == count as usize {
        true => Ok(()),
        false => {
            let detail = format!("a scan from here expected {count} keys, found {}", found.len());
            Err(Mismatch { key: first, detail })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(names: &KeyNames, values: &Values, keys: impl Iterator<Item = u32>) -> Vec<(Bytes, Bytes)> {
        let pair = |key| {
            let mut value = Vec::new();
            values.write(key, VERSION, &mut value);
            (names.name(key).into(), value.into())
        };
        keys.map(pair).collect()
    }

    #[test]
    fn exactly_the_keys_with_the_prefix_are_right() {
        let (names, values) = (KeyNames::with_digits("k", 8, 7), Values::new(3, 100));
        let said = |found: &[(Bytes, Bytes)]| check(&names, &values, 20, 10, found).map_err(|wrong| wrong.detail);
        assert_eq!(said(&block(&names, &values, 20..30)), Ok(()));
        assert!(said(&block(&names, &values, 20..29)).unwrap_err().contains("expected 10 keys, found 9"));
        assert!(said(&block(&names, &values, 20..31)).unwrap_err().contains("found 11"));
        assert!(said(&block(&names, &values, (20..30).rev())).unwrap_err().contains("k0000029 in its place"));
        let mut stale = block(&names, &values, 20..30);
        stale[4].1 = stale[5].1.clone();
        assert!(said(&stale).unwrap_err().contains("expected version 1"));
    }
}
