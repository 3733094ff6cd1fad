//! Writes values and files.

use super::{VERSION, checksum, kind, lzf, opcode};
use crate::keyspace::Entry;
use crate::server::Server;
use crate::structure::listpack::Item;
use crate::structure::table::Element as _;
use crate::value::{Hash, Id, Set, Stream, Value, Zset};

/// A string of fewer bytes is never compressed.
const COMPRESSED_BYTES_MIN: usize = 21;
/// The container of a list's node that holds several elements.
const NODE_PACKED: u64 = 2;

fn push_length(out: &mut Vec<u8>, length: u64) {
    match length {
        0..64 => out.push(length as u8),
        64..16_384 => out.extend_from_slice(&[0x40 | (length >> 8) as u8, length as u8]),
        16_384..=0xFFFF_FFFF => {
            out.push(0x80);
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
        _ => {
            out.push(0x81);
            out.extend_from_slice(&length.to_be_bytes());
        }
    }
}

/// An integer in its short form, if it has one.
fn push_small_integer(out: &mut Vec<u8>, number: i64) -> bool {
    if let Ok(byte) = i8::try_from(number) {
        out.extend_from_slice(&[0xC0, byte as u8]);
    } else if let Ok(word) = i16::try_from(number) {
        out.push(0xC1);
        out.extend_from_slice(&word.to_le_bytes());
    } else if let Ok(word) = i32::try_from(number) {
        out.push(0xC2);
        out.extend_from_slice(&word.to_le_bytes());
    } else {
        return false;
    }
    true
}

/// How strings are written.
#[derive(Clone, Copy)]
struct Format {
    compresses: bool,
}

impl Format {
    fn push_string(self, out: &mut Vec<u8>, text: &[u8]) {
        if text.len() <= 11
            && let Some(number) = crate::number::parse_integer(text)
            && push_small_integer(out, number)
        {
            return;
        }
        if self.compresses
            && text.len() >= COMPRESSED_BYTES_MIN
            && let Some(small) = lzf::compress(text)
        {
            out.push(0xC3);
            push_length(out, small.len() as u64);
            push_length(out, text.len() as u64);
            out.extend_from_slice(&small);
            return;
        }
        push_length(out, text.len() as u64);
        out.extend_from_slice(text);
    }

    fn push_item(self, out: &mut Vec<u8>, item: Item<'_>) {
        match item {
            Item::Integer(number) if push_small_integer(out, number) => {}
            item => self.push_string(out, &item.to_vec()),
        }
    }

    /// A value's type and bytes.
    fn value(self, entry: &Entry) -> (u8, Vec<u8>) {
        let mut out = Vec::new();
        if let Some(text) = entry.text() {
            self.push_item(&mut out, text);
            return (kind::STRING, out);
        }
        let kind = match entry.value() {
            None | Some(Value::String(_)) => kind::STRING,
            Some(Value::List(list)) => {
                push_length(&mut out, list.nodes().count() as u64);
                for node in list.nodes() {
                    push_length(&mut out, NODE_PACKED);
                    self.push_string(&mut out, node.as_bytes());
                }
                kind::LIST_QUICKLIST_2
            }
            Some(Value::Set(Set::Integers(set))) => {
                self.push_string(&mut out, set.as_bytes());
                kind::SET_INTSET
            }
            Some(Value::Set(set)) => {
                push_length(&mut out, set.len() as u64);
                set.iter().for_each(|member| self.push_string(&mut out, &member.to_vec()));
                kind::SET
            }
            Some(Value::Hash(Hash::Packed(pack))) => {
                self.push_string(&mut out, pack.as_bytes());
                kind::HASH_LISTPACK
            }
            Some(Value::Hash(hash)) => {
                push_length(&mut out, hash.len() as u64);
                hash.each(|field, value| {
                    self.push_string(&mut out, &field.to_vec());
                    self.push_string(&mut out, &value.to_vec());
                });
                kind::HASH
            }
            Some(Value::Zset(Zset::Packed(pack))) => {
                self.push_string(&mut out, pack.as_bytes());
                kind::ZSET_LISTPACK
            }
            Some(Value::Zset(zset)) => {
                push_length(&mut out, zset.len() as u64);
                // Backwards, so that a skip list is built quickly.
                zset.range_reversed(0, zset.len(), |member, score| {
                    self.push_string(&mut out, &member.to_vec());
                    out.extend_from_slice(&score.to_le_bytes());
                });
                kind::ZSET
            }
            Some(Value::Stream(stream)) => {
                self.push_stream(&mut out, stream);
                kind::STREAM_2
            }
        };
        (kind, out)
    }

    fn push_stream(self, out: &mut Vec<u8>, stream: &Stream) {
        let push_id = |out: &mut Vec<u8>, id: Id| {
            push_length(out, id.millis);
            push_length(out, id.sequence);
        };
        push_length(out, stream.nodes().len() as u64);
        for (base, pack) in stream.nodes() {
            self.push_string(out, &base.to_bytes());
            self.push_string(out, pack.as_bytes());
        }
        push_length(out, stream.len() as u64);
        push_id(out, stream.last);
        push_id(out, stream.first().unwrap_or_default());
        push_id(out, stream.max_deleted);
        push_length(out, stream.added);
        push_length(out, stream.groups.len() as u64);
        for (name, group) in &stream.groups {
            self.push_string(out, name);
            push_id(out, group.last);
            push_length(out, group.read.unwrap_or(u64::MAX));
            push_length(out, group.pending.len() as u64);
            for (id, pending) in &group.pending {
                out.extend_from_slice(&id.to_bytes());
                out.extend_from_slice(&pending.delivered.to_le_bytes());
                push_length(out, pending.deliveries);
            }
            push_length(out, group.consumers.len() as u64);
            for (name, consumer) in &group.consumers {
                self.push_string(out, name);
                out.extend_from_slice(&consumer.seen.to_le_bytes());
                push_length(out, consumer.pending.len() as u64);
                consumer.pending.iter().for_each(|id| out.extend_from_slice(&id.to_bytes()));
            }
        }
    }
}

const COMPRESSED: Format = Format { compresses: true };

/// A value without type, version and checksum.
pub fn dump_body(entry: &Entry) -> Vec<u8> {
    COMPRESSED.value(entry).1
}

/// What DUMP gives.
pub fn dump(entry: &Entry, compresses: bool) -> Vec<u8> {
    let (kind, body) = Format { compresses }.value(entry);
    let mut out = Vec::with_capacity(body.len() + 11);
    out.push(kind);
    out.extend_from_slice(&body);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&checksum(&out).to_le_bytes());
    out
}

/// A pair of key and value as it stands in a file.
fn push_pair(format: Format, entry: &Entry, out: &mut Vec<u8>) {
    if let Some(expiry) = entry.expiry() {
        out.push(opcode::EXPIRY_MILLIS);
        out.extend_from_slice(&expiry.to_le_bytes());
    }
    let (kind, body) = format.value(entry);
    out.push(kind);
    format.push_string(out, entry.key());
    out.extend_from_slice(&body);
}

/// A pair for a file, with long strings compressed.
pub fn encode_compressed(entry: &Entry, out: &mut Vec<u8>) {
    push_pair(COMPRESSED, entry, out);
}

/// The same with strings as they are.
pub fn encode_plain(entry: &Entry, out: &mut Vec<u8>) {
    push_pair(Format { compresses: false }, entry, out);
}

/// Where in the replication stream the keys are; nothing, where nobody can go on from there.
fn replication_notes(server: &Server) -> Vec<(&'static str, String)> {
    let replication = &server.replication;
    // What is not safe is in the keys, and not in the stream.
    if replication.backlog.is_none() || !replication.pending.is_empty() {
        return Vec::new();
    }
    let database = match &replication.master {
        Some(master) => master.database,
        None => server.effects.selected_database(),
    };
    vec![
        ("repl-stream-db", database.to_string()),
        ("repl-id", replication.id.clone()),
        ("repl-offset", replication.offset.to_string()),
    ]
}

/// The beginning of a file, with the libraries of functions or without. `is_base`: it is the base of an append-only file.
pub fn header(server: &Server, is_base: bool, has_functions: bool) -> Vec<u8> {
    let mut bytes = format!("REDIS{VERSION:04}").into_bytes();
    let mut notes = vec![
        ("redis-ver", crate::REDIS_VERSION.to_owned()),
        ("redis-bits", "64".to_owned()),
        ("ctime", (server.now / 1000).to_string()),
        ("used-mem", server.memory.used().to_string()),
    ];
    if !is_base {
        notes.extend(replication_notes(server));
    }
    notes.push(("aof-base", u8::from(is_base).to_string()));
    for (name, value) in notes {
        bytes.push(opcode::AUX);
        COMPRESSED.push_string(&mut bytes, name.as_bytes());
        COMPRESSED.push_string(&mut bytes, value.as_bytes());
    }
    if has_functions {
        for code in crate::scripting::library_codes(server) {
            bytes.push(opcode::FUNCTION);
            COMPRESSED.push_string(&mut bytes, code);
        }
    }
    bytes
}

/// What FUNCTION DUMP gives.
pub fn dump_libraries(server: &Server) -> Vec<u8> {
    let mut out = Vec::new();
    for code in crate::scripting::library_codes(server) {
        out.push(opcode::FUNCTION);
        COMPRESSED.push_string(&mut out, code);
    }
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&checksum(&out).to_le_bytes());
    out
}

/// What comes next is of this database.
pub fn push_database(out: &mut Vec<u8>, number: usize) {
    out.push(opcode::DATABASE);
    push_length(out, number as u64);
}

/// All keys as a file.
pub fn write(server: &Server, is_base: bool) -> Vec<u8> {
    let mut out = header(server, is_base, true);
    for (number, database) in server.databases.iter().enumerate().filter(|(_, database)| !database.is_empty()) {
        push_database(&mut out, number);
        database.iter().for_each(|entry| encode_compressed(entry, &mut out));
    }
    out.push(opcode::END);
    let checksum = checksum(&out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}
