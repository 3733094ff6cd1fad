//! A digest of what keys hold, the same as that of Redis: two servers with equal digests hold the same. For tests.

use sha1::{Digest as _, Sha1};

use crate::keyspace::{Database, Entry};
use crate::number::double_text;
use crate::structure::listpack::Item;
use crate::structure::table::Element as _;
use crate::value::{Id, Value};

/// The digest of nothing.
pub const NOTHING: &str = "0000000000000000000000000000000000000000";

#[derive(Clone, Copy, Default)]
struct Mixed([u8; 20]);

impl Mixed {
    /// Adds what has no order.
    fn xor(&mut self, bytes: &[u8]) {
        for (own, other) in self.0.iter_mut().zip(Sha1::digest(bytes)) {
            *own ^= other;
        }
    }

    /// Adds what has an order.
    fn mix(&mut self, bytes: &[u8]) {
        self.xor(bytes);
        self.0 = Sha1::digest(self.0).into();
    }

    fn text(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn pair(first: Item<'_>, second: &[u8]) -> [u8; 20] {
    let mut mixed = Mixed::default();
    mixed.mix(&first.to_vec());
    mixed.mix(second);
    mixed.0
}

fn add(mixed: &mut Mixed, entry: &Entry) {
    let kind = match entry.type_name() {
        "string" => 0u32,
        "list" => 1,
        "set" => 2,
        "zset" => 3,
        "hash" => 4,
        _ => 6,
    };
    mixed.mix(&kind.to_be_bytes());
    if let Some(text) = entry.text() {
        mixed.mix(&text.to_vec());
    }
    match entry.value() {
        None | Some(Value::String(_)) => {}
        Some(Value::List(list)) => list.iter().for_each(|item| mixed.mix(&item.to_vec())),
        Some(Value::Set(set)) => set.iter().for_each(|item| mixed.xor(&item.to_vec())),
        Some(Value::Hash(hash)) => hash.each(|field, value| mixed.xor(&pair(field, &value.to_vec()))),
        Some(Value::Zset(zset)) => {
            zset.range(0, zset.len(), |member, score| mixed.xor(&pair(member, &double_text(score))));
        }
        Some(Value::Stream(stream)) => {
            for entry in stream.range(Id::MIN, Id::MAX, usize::MAX, false) {
                mixed.mix(format!("{}.{}", entry.id.millis, entry.id.sequence).as_bytes());
                entry.iter().for_each(|item| mixed.mix(&item.to_vec()));
            }
        }
    }
    if entry.expiry().is_some() {
        mixed.xor(b"!!expire!!");
    }
}

/// Of one key's value.
pub fn of_value(entry: &Entry) -> String {
    let mut mixed = Mixed::default();
    add(&mut mixed, entry);
    mixed.text()
}

/// Of all keys.
pub fn of_databases(databases: &[Database]) -> String {
    let mut all = Mixed::default();
    for (number, database) in databases.iter().enumerate().filter(|(_, database)| !database.is_empty()) {
        all.mix(&(number as u32).to_be_bytes());
        for entry in database.iter() {
            let mut mixed = Mixed::default();
            mixed.mix(entry.key());
            add(&mut mixed, entry);
            all.xor(&mixed.0);
        }
    }
    all.text()
}
