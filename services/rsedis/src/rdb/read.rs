//! Reads values and files. Bytes may be anything: what is wrong is told with its place, and nothing is taken of a value that is
//! not whole.

use std::time::{Duration, Instant};

use super::{CRC, Digest, VERSION_MAX, checksum, kind, lzf, old, opcode};
use crate::keyspace::{Entry, Key};
use crate::number::{parse_double, parse_integer};
use crate::server::Server;
use crate::structure::listpack::Listpack;
use crate::value::{
    COUNT_MAX, Consumer, End, Group, Hash, Id, List, Packing, Pending, Set, Stream, Value, Zset, distance,
};

/// Why bytes are no RDB file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("RDB, byte {offset}: {what}: restore the file from a backup")]
pub struct RdbError {
    /// Where.
    pub offset: usize,
    /// What is wrong there.
    pub what: String,
}

/// A value that was read.
enum Read {
    Text(Vec<u8>),
    Value(Value),
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    packing: Packing,
    /// How many bytes there would have to be for what was asked for last and was not there; 0: all was there.
    lacks: usize,
}

/// A length, or the code of a special string.
enum Length {
    Plain(u64),
    Special(u8),
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], packing: Packing) -> Self {
        Self { bytes, at: 0, packing, lacks: 0 }
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let Some(piece) = self.bytes.get(self.at..end) else {
            self.lacks = end;
            return None;
        };
        self.at = end;
        Some(piece)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn any_length(&mut self) -> Option<Length> {
        let head = self.byte()?;
        Some(match head >> 6 {
            0 => Length::Plain(u64::from(head)),
            1 => Length::Plain(u64::from(head & 0x3F) << 8 | u64::from(self.byte()?)),
            2 if head == 0x80 => Length::Plain(u64::from(u32::from_be_bytes(self.array()?))),
            2 if head == 0x81 => Length::Plain(u64::from_be_bytes(self.array()?)),
            3 => Length::Special(head & 0x3F),
            _ => return None,
        })
    }

    fn length(&mut self) -> Option<u64> {
        match self.any_length()? {
            Length::Plain(length) => Some(length),
            Length::Special(_) => None,
        }
    }

    /// A number of things of at least one byte each.
    fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.length()?).ok()?;
        let end = self.at.checked_add(count)?;
        if end > self.bytes.len() {
            self.lacks = end;
            return None;
        }
        Some(count)
    }

    fn string(&mut self) -> Option<Vec<u8>> {
        let integer = |number: i64| Some(crate::number::integer_text(number));
        match self.any_length()? {
            Length::Plain(length) => self.take(usize::try_from(length).ok()?).map(<[u8]>::to_vec),
            Length::Special(0) => integer(i64::from(self.byte()? as i8)),
            Length::Special(1) => integer(i64::from(i16::from_le_bytes(self.array()?))),
            Length::Special(2) => integer(i64::from(i32::from_le_bytes(self.array()?))),
            Length::Special(3) => {
                let (small, length) = (self.length()?, self.length()?);
                let small = self.take(usize::try_from(small).ok()?)?;
                lzf::decompress(small, usize::try_from(length).ok()?)
            }
            Length::Special(_) => None,
        }
    }

    /// A double as text: its length, 253 for NaN, 254 and 255 for the infinities.
    fn text_double(&mut self) -> Option<f64> {
        match self.byte()? {
            253 => None,
            254 => Some(f64::INFINITY),
            255 => Some(f64::NEG_INFINITY),
            length => parse_double(self.take(usize::from(length))?),
        }
    }

    fn listpack(&mut self) -> Option<Listpack> {
        Listpack::from_bytes(self.string()?)
    }

    fn packed_strings(&mut self) -> Option<Vec<Vec<u8>>> {
        Some(self.listpack()?.iter().map(|item| item.to_vec()).collect())
    }

    /// A value of a type; nothing if it is none, or has nothing in it.
    fn value(&mut self, kind: u8) -> Option<Read> {
        let value = match kind {
            kind::STRING => return self.string().map(Read::Text),
            kind::LIST => {
                let mut list = List::default();
                for _ in 0..self.count()? {
                    list.push(End::Back, &self.string()?, self.packing.list_size);
                }
                Value::List(list.into())
            }
            kind::LIST_ZIPLIST => {
                let mut list = List::default();
                for text in old::ziplist(&self.string()?)? {
                    list.push(End::Back, &text, self.packing.list_size);
                }
                Value::List(list.into())
            }
            kind::LIST_QUICKLIST | kind::LIST_QUICKLIST_2 => self.quicklist(kind == kind::LIST_QUICKLIST_2)?,
            kind::SET | kind::SET_LISTPACK => {
                let members = match kind {
                    kind::SET_LISTPACK => self.packed_strings()?,
                    _ => (0..self.count()?).map(|_| self.string()).collect::<Option<_>>()?,
                };
                let mut set = Set::default();
                for member in members {
                    if !set.insert(&member, self.packing.intset_entries) {
                        return None;
                    }
                }
                Value::Set(set)
            }
            kind::SET_INTSET => self.intset()?,
            kind::HASH => {
                let count = self.count()?;
                let strings = (0..count.checked_mul(2)?).map(|_| self.string()).collect::<Option<Vec<_>>>()?;
                self.hash(&strings)?
            }
            kind::HASH_LISTPACK => {
                let strings = self.packed_strings()?;
                self.hash(&strings)?
            }
            kind::HASH_ZIPLIST => {
                let strings = old::ziplist(&self.string()?)?;
                self.hash(&strings)?
            }
            kind::HASH_ZIPMAP => {
                let strings = old::zipmap(&self.string()?)?;
                self.hash(&strings)?
            }
            kind::ZSET | kind::ZSET_TEXT => {
                let mut zset = Zset::default();
                for _ in 0..self.count()? {
                    let member = self.string()?;
                    let score = match kind {
                        kind::ZSET => f64::from_le_bytes(self.array()?),
                        _ => self.text_double()?,
                    };
                    self.add_member(&mut zset, &member, score)?;
                }
                Value::Zset(zset)
            }
            kind::ZSET_LISTPACK => {
                let strings = self.packed_strings()?;
                self.zset(&strings)?
            }
            kind::ZSET_ZIPLIST => {
                let strings = old::ziplist(&self.string()?)?;
                self.zset(&strings)?
            }
            kind::STREAM | kind::STREAM_2 | kind::STREAM_3 => Value::Stream(self.stream(kind)?.into()),
            _ => return None,
        };
        (!value.is_empty()).then_some(Read::Value(value))
    }

    fn quicklist(&mut self, has_containers: bool) -> Option<Value> {
        const PLAIN: u64 = 1;
        let mut list = List::default();
        for _ in 0..self.count()? {
            let container = if has_containers { self.length()? } else { 0 };
            let bytes = self.string()?;
            match (has_containers, container) {
                (true, PLAIN) => list.push(End::Back, &bytes, self.packing.list_size),
                (true, _) => {
                    if !list.push_node(Listpack::from_bytes(bytes)?) {
                        return None;
                    }
                }
                (false, _) => {
                    for text in old::ziplist(&bytes)? {
                        list.push(End::Back, &text, self.packing.list_size);
                    }
                }
            }
        }
        Some(Value::List(list.into()))
    }

    fn intset(&mut self) -> Option<Value> {
        let bytes = self.string()?;
        let (head, body) = bytes.split_at_checked(8)?;
        let width = u32::from_le_bytes(head[..4].try_into().ok()?) as usize;
        let count = u32::from_le_bytes(head[4..].try_into().ok()?) as usize;
        if !matches!(width, 2 | 4 | 8) || count.checked_mul(width)? != body.len() {
            return None;
        }
        let (mut set, mut before) = (Set::default(), None);
        for piece in body.chunks_exact(width) {
            let number = match width {
                2 => i64::from(i16::from_le_bytes(piece.try_into().ok()?)),
                4 => i64::from(i32::from_le_bytes(piece.try_into().ok()?)),
                _ => i64::from_le_bytes(piece.try_into().ok()?),
            };
            if before.is_some_and(|before| before >= number) {
                return None;
            }
            before = Some(number);
            set.insert(&crate::number::integer_text(number), self.packing.intset_entries);
        }
        Some(Value::Set(set))
    }

    fn hash(&self, strings: &[Vec<u8>]) -> Option<Value> {
        let mut hash = Hash::default();
        if !strings.len().is_multiple_of(2) {
            return None;
        }
        for pair in strings.chunks_exact(2) {
            if !hash.set(&pair[0], &pair[1], &self.packing) {
                return None;
            }
        }
        Some(Value::Hash(hash))
    }

    fn add_member(&self, zset: &mut Zset, member: &[u8], score: f64) -> Option<()> {
        if score.is_nan() || zset.score(member).is_some() {
            return None;
        }
        zset.insert(member, score, &self.packing);
        Some(())
    }

    fn zset(&self, strings: &[Vec<u8>]) -> Option<Value> {
        let mut zset = Zset::default();
        if !strings.len().is_multiple_of(2) {
            return None;
        }
        for pair in strings.chunks_exact(2) {
            self.add_member(&mut zset, &pair[0], parse_double(&pair[1])?)?;
        }
        Some(Value::Zset(zset))
    }

    /// Milliseconds since 1970, in a stream.
    fn time(&mut self) -> Option<i64> {
        Some(i64::from_le_bytes(self.array()?)).filter(|millis| *millis >= 0)
    }

    fn id(&mut self) -> Option<Id> {
        Some(Id { millis: self.length()?, sequence: self.length()? })
    }

    fn stream(&mut self, kind: u8) -> Option<Stream> {
        let mut stream = Stream::default();
        for _ in 0..self.count()? {
            let base = Id::from_bytes(self.string()?.try_into().ok()?);
            if !stream.push_node(base, self.listpack()?) {
                return None;
            }
        }
        let length = self.length()?;
        if length != stream.len() as u64 {
            return None;
        }
        stream.last = self.id()?;
        if kind >= kind::STREAM_2 {
            // The first entry's identifier follows from the entries.
            self.id()?;
            stream.max_deleted = self.id()?;
            stream.added = self.length()?.min(COUNT_MAX);
        } else {
            stream.added = length;
        }
        for _ in 0..self.count()? {
            let name = self.string()?;
            let mut group = Group { last: self.id()?, ..Group::default() };
            if kind >= kind::STREAM_2 {
                group.read = Some(self.length()?).filter(|read| *read != u64::MAX).map(|read| read.min(COUNT_MAX));
            } else {
                group.read = distance(&stream, group.last);
            }
            let mut pending = std::collections::BTreeMap::new();
            for _ in 0..self.count()? {
                let id = Id::from_bytes(self.array()?);
                let delivered = self.time()?;
                pending
                    .insert(id, Pending { consumer: Vec::new(), delivered, deliveries: self.length()?.min(COUNT_MAX) });
            }
            for _ in 0..self.count()? {
                let consumer = self.string()?;
                let seen = self.time()?;
                if kind >= kind::STREAM_3 {
                    // When it was active last, which 7.0 does not know.
                    self.take(8)?;
                }
                if group.consumers.insert(consumer.clone(), Consumer { seen, ..Consumer::default() }).is_some() {
                    return None;
                }
                for _ in 0..self.count()? {
                    let id = Id::from_bytes(self.array()?);
                    let given = pending.remove(&id)?;
                    group.give(id, Pending { consumer: consumer.clone(), ..given });
                }
            }
            if !pending.is_empty() || stream.groups.insert(name, group).is_some() {
                return None;
            }
        }
        Some(stream)
    }
}

fn entry(key: &[u8], read: Read, expiry: Option<i64>) -> Entry {
    match read {
        Read::Text(text) => Entry::string(key, &text, expiry),
        Read::Value(value) => Entry::object(key, value, expiry),
    }
}

/// Whether a value of DUMP has a version that can be read, and its checksum: a file may say that it has none, and such a value may not.
pub fn is_whole(payload: &[u8], skips_checksum: bool) -> bool {
    let Some((body, check)) = payload.len().checked_sub(8).map(|at| payload.split_at(at)) else { return false };
    let Some(version) = body.last_chunk::<2>() else { return false };
    let sum = u64::from_le_bytes(check.try_into().unwrap_or_default());
    u16::from_le_bytes(*version) <= VERSION_MAX && (skips_checksum || sum == checksum(body))
}

/// The entry that RESTORE makes; nothing if the value cannot be read.
pub fn restore(key: &[u8], payload: &[u8], expiry: Option<i64>, packing: Packing) -> Option<Entry> {
    let body = payload.get(..payload.len().checked_sub(10)?)?;
    let mut reader = Reader::new(body, packing);
    let kind = reader.byte()?;
    let read = reader.value(kind)?;
    (reader.at == body.len()).then(|| entry(key, read, expiry))
}

/// The texts of the libraries of FUNCTION DUMP; nothing if it is none.
pub fn restore_libraries(payload: &[u8]) -> Option<Vec<Vec<u8>>> {
    let body = payload.get(..payload.len().checked_sub(10)?)?;
    let mut reader = Reader::new(body, Packing::default());
    let mut codes = Vec::new();
    while reader.at < body.len() {
        (reader.byte()? == opcode::FUNCTION).then_some(())?;
        codes.push(reader.string()?);
    }
    Some(codes)
}

/// Reads a file's keys into the server; how many bytes it is long. Keys that have expired are left out.
pub fn read(server: &mut Server, bytes: &[u8]) -> Result<usize, RdbError> {
    let mut loader = Loader::default();
    while !loader.step(server, &bytes[loader.at()..], false, Duration::MAX)? {}
    Ok(loader.at())
}

fn failed(offset: usize, what: &str) -> RdbError {
    RdbError { offset, what: what.to_owned() }
}

/// Reads a file a little at a time, also one that comes while it is read. A value is read once all of it is there.
#[derive(Default)]
pub struct Loader {
    at: usize,
    /// How many bytes there must be behind these before it is worth a try.
    wanted: usize,
    /// Nothing: not read yet.
    version: Option<i64>,
    database: usize,
    expiry: Option<i64>,
    idle_seconds: Option<i64>,
    frequency: Option<u8>,
    digest: Option<Digest>,
    /// Before this nothing is read (`key-load-delay`).
    next: Option<Instant>,
    keeps_expired: bool,
    /// Keys that were left out, and that whoever goes on with the file's history must be told of.
    pub expired: Vec<(usize, Vec<u8>)>,
    /// The database that the replication stream behind the file has selected (`repl-stream-db`).
    pub stream_database: Option<usize>,
    /// The replication history that the keys are a state of (`repl-id`), and how many bytes of it (`repl-offset`).
    pub history: (Option<String>, Option<u64>),
}

impl Loader {
    /// `keeps_expired`: keys that have expired stay, since who sent them says when they go.
    pub fn new(keeps_expired: bool) -> Self {
        Self { keeps_expired, ..Self::default() }
    }

    /// Whether it is to read nothing yet.
    pub fn is_waiting(&self) -> bool {
        self.next.is_some_and(|next| Instant::now() < next)
    }

    /// How many bytes were read.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Whether it can go on with so many bytes behind those that were read.
    pub fn is_content_with(&self, count: usize) -> bool {
        count >= self.wanted
    }

    /// Goes on for about so long; whether all was read. `bytes`: what is there of the file behind what was read; `may_grow`: more comes,
    /// so that an end in the middle of something is none.
    pub fn step(
        &mut self,
        server: &mut Server,
        bytes: &[u8],
        may_grow: bool,
        most: Duration,
    ) -> Result<bool, RdbError> {
        if may_grow && !self.is_content_with(bytes.len()) {
            return Ok(false);
        }
        let began = Instant::now();
        let mut reader = Reader::new(bytes, server.packing());
        // Where the last piece that is whole ends.
        let (mut is_whole, mut end, delay) = (false, 0, server.settings.load_delay);
        self.wanted = 0;
        while !is_whole && !self.is_waiting() {
            reader.lacks = 0;
            match self.piece(server, &mut reader) {
                Ok(is_last) => (is_whole, end) = (is_last, reader.at),
                Err(_) if may_grow && reader.lacks > 0 => {
                    // Who tries a large value again with each packet reads it thousands of times.
                    let there = bytes.len() - end;
                    self.wanted = (reader.lacks - end).max(there + there / 4);
                    break;
                }
                Err(error) if reader.lacks > 0 && self.version.is_some() => {
                    return Err(failed(
                        error.offset,
                        "the file ends early, in the middle of this, or a length is wrong",
                    ));
                }
                Err(error) => return Err(error),
            }
            self.next = (!delay.is_zero()).then(|| Instant::now() + delay);
            if began.elapsed() >= most {
                break;
            }
        }
        let has_sum = is_whole && self.version >= Some(5);
        let (read, sum) = bytes[..end].split_at(end - if has_sum { size_of::<u64>() } else { 0 });
        self.digest.get_or_insert_with(|| CRC.digest()).update(read);
        self.at += end;
        server.load.bytes = self.at as u64;
        if has_sum && !server.skips_checksums {
            let sum = u64::from_le_bytes(sum.try_into().unwrap_or_default());
            let found = self.digest.take().map_or(0, Digest::finalize);
            if sum != 0 && sum != found {
                return Err(failed(self.at - size_of::<u64>(), "wrong checksum (CRC error)"));
            }
        }
        Ok(is_whole)
    }

    /// Reads what one opcode says, or what stands before all of them; whether that was the end.
    fn piece(&mut self, server: &mut Server, reader: &mut Reader<'_>) -> Result<bool, RdbError> {
        let Some(version) = self.version else {
            self.version = Some(version(reader)?);
            (server.load.keys, server.load.expired_keys) = (0, 0);
            return Ok(false);
        };
        let offset = self.at + reader.at;
        let cut = || failed(offset, "not what an RDB file has here");
        match reader.byte().ok_or_else(cut)? {
            opcode::END if version >= 5 => {
                let sum = reader.take(size_of::<u64>());
                return sum.map(|_| true).ok_or_else(|| failed(offset + 1, "the file ends before its checksum"));
            }
            opcode::END => return Ok(true),
            opcode::DATABASE => {
                let number = reader.length().and_then(|number| usize::try_from(number).ok());
                self.database = number
                    .filter(|number| *number < server.databases.len())
                    .ok_or_else(|| failed(offset, "a database with a number above the setting `databases`"))?;
            }
            opcode::EXPIRY_SECONDS => {
                self.expiry = Some(i64::from(i32::from_le_bytes(reader.array().ok_or_else(cut)?)) * 1000);
            }
            opcode::EXPIRY_MILLIS => self.expiry = Some(i64::from_le_bytes(reader.array().ok_or_else(cut)?)),
            opcode::SIZES => {
                reader.length().and_then(|_| reader.length()).ok_or_else(cut)?;
            }
            opcode::AUX => {
                let name = reader.string().ok_or_else(cut)?;
                let value = reader.string().ok_or_else(cut)?;
                self.note(server, &name, &value);
            }
            opcode::IDLE => {
                self.idle_seconds = Some(reader.length().ok_or_else(cut)? as i64);
            }
            opcode::FREQUENCY => {
                self.frequency = Some(reader.byte().ok_or_else(cut)?);
            }
            opcode::FUNCTION => {
                let code = reader.string().ok_or_else(cut)?;
                let loaded =
                    crate::scripting::engine(server).and_then(|scripts| scripts.load_library(&code, true, None));
                loaded.map_err(|failure| failed(offset, &format!("a library of functions: {failure}")))?;
            }
            opcode::MODULE_AUX => return Err(failed(offset, "data of a module")),
            kind => {
                let key = reader.string().ok_or_else(cut)?;
                let value = reader
                    .value(kind)
                    .ok_or_else(|| failed(offset, &format!("a value of type {kind} that cannot be read")))?;
                let expiry = self.expiry.take();
                let (idle_seconds, frequency) = (self.idle_seconds.take(), self.frequency.take());
                let key_of = Key::new(&key);
                let keys = &mut server.databases[self.database];
                keys.remove(&key_of);
                if self.keeps_expired || expiry.is_none_or(|expiry| expiry > server.now) {
                    let place = keys.insert(&key_of, entry(&key, value, expiry));
                    crate::eviction::restore(server, self.database, place, idle_seconds, frequency);
                    server.load.keys += 1;
                } else {
                    server.load.expired_keys += 1;
                    if self.history.0.is_some() {
                        self.expired.push((self.database, key));
                    }
                }
            }
        }
        Ok(false)
    }

    /// What the file says of itself.
    fn note(&mut self, server: &Server, name: &[u8], value: &[u8]) {
        let text = || std::str::from_utf8(value).ok();
        match name {
            b"repl-stream-db" => {
                let number = text().and_then(|text| text.parse().ok());
                self.stream_database = number.filter(|number| *number < server.databases.len());
            }
            b"repl-id" => self.history.0 = text().filter(|id| id.len() == 40).map(str::to_owned),
            b"repl-offset" => self.history.1 = text().and_then(|text| text.parse().ok()),
            _ => {}
        }
    }
}

/// The version that a file's first bytes tell.
fn version(reader: &mut Reader<'_>) -> Result<i64, RdbError> {
    let head = reader.take(9).filter(|head| head.starts_with(b"REDIS")).ok_or(failed(0, "not an RDB file"))?;
    let version =
        parse_integer(head[5..].trim_ascii_start()).or_else(|| std::str::from_utf8(&head[5..]).ok()?.parse().ok());
    let version = version.filter(|version| (1..=i64::from(VERSION_MAX)).contains(version) || *version == 80);
    version.ok_or_else(|| failed(5, "a version that cannot be read"))
}
