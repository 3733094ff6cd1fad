//! A keyspace as one would explain it: a list of everything that ever happened. Slow, and plainly right.

use std::collections::BTreeMap;

use super::super::keys::Keys;
use super::super::record::Revision;
use crate::proto::mvccpb::KeyValue;

/// What a transaction changes: keys, and value and lease or `None` to delete them.
pub type Changes = Vec<(Vec<u8>, Option<(Vec<u8>, i64)>)>;

/// Everything that ever happened.
#[derive(Clone, Debug)]
pub struct Model {
    pub changes: Vec<Happened>,
    pub revision: i64,
    pub compacted: i64,
}

/// A put, or with `None` a deletion.
#[derive(Clone, Debug, PartialEq)]
pub struct Happened {
    pub at: Revision,
    pub key: Vec<u8>,
    pub put: Option<KeyValue>,
}

impl Default for Model {
    fn default() -> Self {
        Self { changes: Vec::new(), revision: 1, compacted: super::NEVER }
    }
}

impl Model {
    pub fn write(&mut self, changes: &Changes) {
        let (main, mut sub) = (self.revision + 1, 0);
        for (key, put) in changes {
            let old = self.exists(key, i64::MAX);
            let put = match put {
                None if old.is_none() => continue,
                None => None,
                Some((value, lease)) => Some(KeyValue {
                    key: key.clone().into(),
                    create_revision: old.as_ref().map_or(main, |old| old.create_revision),
                    mod_revision: main,
                    version: old.map_or(0, |old| old.version) + 1,
                    value: value.clone().into(),
                    lease: *lease,
                }),
            };
            self.changes.push(Happened { at: Revision { main, sub }, key: key.clone(), put });
            self.revision = main;
            sub += 1;
        }
    }

    pub fn exists(&self, key: &[u8], revision: i64) -> Option<KeyValue> {
        let last = self.changes.iter().rfind(|change| change.key == key && change.at.main <= revision)?;
        last.put.clone()
    }

    pub fn range(&self, keys: Keys<'_>, revision: i64) -> Vec<KeyValue> {
        let mut all = BTreeMap::new();
        for change in self.changes.iter().filter(|change| change.at.main <= revision) {
            if keys.contains(&change.key) {
                all.insert(&change.key, change.put.clone());
            }
        }
        all.into_values().flatten().collect()
    }

    pub fn happened(&self, from: i64) -> Vec<Happened> {
        self.changes.iter().filter(|change| change.at.main >= from).cloned().collect()
    }
}
