//! Writes a file of bbolt from sorted records, leaves first, in memory of one key for each page.

use std::io::{self, Seek, SeekFrom, Write};

use super::page::{BUCKET_BYTES, ELEMENT_BYTES, HEAD_BYTES, Head, IS_BUCKET, Kind, Meta};

const PAGE_BYTES: usize = 4096;
/// A page counts its elements in 16 bits, and 0xFFFF has a meaning of its own.
const ELEMENTS_MAX: usize = 0xFFFE;
const FREE_LIST: u64 = 2;

/// Writes a database. Until [`Writer::finish`], bbolt does not take it for one.
#[derive(Debug)]
pub struct Writer<W> {
    file: W,
    next: u64,
    /// Names of buckets and their root pages.
    buckets: Vec<(Vec<u8>, u64)>,
}

/// A page that is being filled.
#[derive(Debug, Default)]
struct Filling {
    elements: Vec<u8>,
    data: Vec<u8>,
    count: usize,
    first: Vec<u8>,
}

impl Filling {
    fn has_room(&self, bytes: usize) -> bool {
        let used = HEAD_BYTES + self.elements.len() + self.data.len();
        self.count == 0 || (self.count < ELEMENTS_MAX && used + ELEMENT_BYTES + bytes <= PAGE_BYTES)
    }

    /// Positions are from the element to the key, and are known when the page is full.
    fn push(&mut self, element: [u8; ELEMENT_BYTES], key: &[u8], value: &[u8]) {
        if self.count == 0 {
            self.first = key.to_vec();
        }
        self.elements.extend(element);
        self.data.extend(key);
        self.data.extend(value);
        self.count += 1;
    }
}

impl<W: Write + Seek> Writer<W> {
    /// Begins a database at the beginning of a file.
    pub fn begin(mut file: W) -> io::Result<Self> {
        // The metas are written last, the free list is empty.
        file.write_all(&vec![0; 2 * PAGE_BYTES])?;
        let mut writer = Self { file, next: FREE_LIST, buckets: Vec::new() };
        writer.write_page(Kind::FreeList, Filling::default())?;
        Ok(writer)
    }

    /// Writes a bucket. Names must come in ascending order, and so must keys.
    pub fn bucket<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        name: &[u8],
        records: impl IntoIterator<Item = (K, V)>,
    ) -> io::Result<()> {
        check_order(self.buckets.last().map(|(last, _)| last.as_slice()), name)?;
        let root = self.tree(records.into_iter().map(|(key, value)| (key, value, 0)))?;
        self.buckets.push((name.to_vec(), root));
        Ok(())
    }

    /// Writes what makes it a database, and hands the file back. It is not synced.
    pub fn finish(mut self) -> io::Result<W> {
        let buckets = std::mem::take(&mut self.buckets);
        let names = buckets.into_iter().map(|(name, root)| {
            let mut value = root.to_le_bytes().to_vec();
            value.resize(BUCKET_BYTES, 0);
            (name, value, IS_BUCKET)
        });
        let root = self.tree(names)?;
        let mut metas = Vec::with_capacity(2 * PAGE_BYTES);
        for number in 0..2 {
            Head { number, flags: Kind::Meta as u16, count: 0, overflow: 0 }.encode(&mut metas);
            let page_bytes = PAGE_BYTES as u32;
            Meta { page_bytes, root, free_list: FREE_LIST, pages: self.next, transaction: number }.encode(&mut metas);
            metas.resize((number as usize + 1) * PAGE_BYTES, 0);
        }
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&metas)?;
        self.file.flush()?;
        Ok(self.file)
    }

    /// Writes leaves, then the branches above them, and returns the root.
    fn tree<K: AsRef<[u8]>, V: AsRef<[u8]>>(&mut self, records: impl Iterator<Item = (K, V, u32)>) -> io::Result<u64> {
        let mut level = Vec::new();
        let mut page = Filling::default();
        let mut last: Option<Vec<u8>> = None;
        for (key, value, flags) in records {
            let (key, value) = (key.as_ref(), value.as_ref());
            check_order(last.as_deref(), key)?;
            last = Some(key.to_vec());
            if !page.has_room(key.len() + value.len()) {
                level.push(self.write_page(Kind::Leaf, std::mem::take(&mut page))?);
            }
            let lengths = [length(key)?, length(value)?];
            page.push(element([flags, 0, lengths[0], lengths[1]]), key, value);
        }
        level.push(self.write_page(Kind::Leaf, page)?);
        while level.len() > 1 {
            level = self.branches(level)?;
        }
        Ok(level[0].1)
    }

    fn branches(&mut self, children: Vec<(Vec<u8>, u64)>) -> io::Result<Vec<(Vec<u8>, u64)>> {
        let mut level = Vec::new();
        let mut page = Filling::default();
        for (key, number) in children {
            // bbolt expects two children at least.
            if page.count >= 2 && !page.has_room(key.len()) {
                level.push(self.write_page(Kind::Branch, std::mem::take(&mut page))?);
            }
            page.push(element([0, length(&key)?, number as u32, (number >> 32) as u32]), &key, &[]);
        }
        level.push(self.write_page(Kind::Branch, page)?);
        Ok(level)
    }

    /// Returns its first key and its number.
    fn write_page(&mut self, kind: Kind, page: Filling) -> io::Result<(Vec<u8>, u64)> {
        let Filling { mut elements, data, count, first } = page;
        set_positions(kind, &mut elements);
        let bytes = HEAD_BYTES + elements.len() + data.len();
        let span = bytes.div_ceil(PAGE_BYTES);
        let overflow = length_of(span - 1)?;
        let head = Head { number: self.next, flags: kind as u16, count: count as u16, overflow };
        let mut out = Vec::with_capacity(span * PAGE_BYTES);
        head.encode(&mut out);
        out.extend(elements);
        out.extend(data);
        out.resize(span * PAGE_BYTES, 0);
        self.file.write_all(&out)?;
        self.next += span as u64;
        Ok((first, head.number))
    }
}

/// Each key stands behind all elements and the data of those before it.
fn set_positions(kind: Kind, elements: &mut [u8]) {
    let all = elements.len();
    let mut data = 0;
    for (index, element) in elements.chunks_exact_mut(ELEMENT_BYTES).enumerate() {
        let position = (all - index * ELEMENT_BYTES + data) as u32;
        let number = |offset: usize| element.get(offset..offset + 4).map_or(0, little_endian) as usize;
        let (offset, length) = match kind {
            Kind::Branch => (0, number(4)),
            _ => (4, number(8) + number(12)),
        };
        data += length;
        element[offset..offset + 4].copy_from_slice(&position.to_le_bytes());
    }
}

fn little_endian(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn element(numbers: [u32; 4]) -> [u8; ELEMENT_BYTES] {
    let mut bytes = [0; ELEMENT_BYTES];
    bytes.chunks_exact_mut(4).zip(numbers).for_each(|(place, number)| place.copy_from_slice(&number.to_le_bytes()));
    bytes
}

fn length(bytes: &[u8]) -> io::Result<u32> {
    length_of(bytes.len())
}

fn length_of(length: usize) -> io::Result<u32> {
    u32::try_from(length).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a record of 4 GiB or more"))
}

fn check_order(last: Option<&[u8]>, next: &[u8]) -> io::Result<()> {
    if last.is_some_and(|last| last >= next) || next.is_empty() {
        let what = format!("keys and names must be ascending and not empty: {next:?} after {last:?}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(())
}
