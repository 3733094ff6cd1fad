//! Reads a file of bbolt, one path of pages in memory at a time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::page::{self, BUCKET_BYTES, HEAD_BYTES, Head, IS_BUCKET, Kind, META_BYTES, Meta};

/// A tree is never deeper than this: a page has at least two children, and there are fewer than 2^64 pages.
const DEPTH_MAX: usize = 64;

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BoltError {
    /// The system said no.
    #[error("reading byte {offset}: {source}")]
    Read {
        /// The byte of the file at which the read began.
        offset: u64,
        /// What it said.
        source: io::Error,
    },
    /// It is another kind of file, or was not written to its end.
    #[error(
        "this is not a database of bbolt: neither of its first two pages is a whole meta page; take the snapshot again"
    )]
    NotADatabase,
    /// It is damaged.
    #[error("page {page} is damaged: {what}; take the snapshot again")]
    Damaged {
        /// The page.
        page: u64,
        /// What of the page is not as it must be.
        what: &'static str,
    },
}

/// Bytes that can be read at any place.
pub trait ReadAt {
    /// Fills `buffer` from `offset` on, or fails.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// How many bytes there are.
    fn size(&self) -> io::Result<u64>;
}

impl ReadAt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

impl ReadAt for [u8] {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).ok();
        let from = start.and_then(|start| self.get(start..)?.get(..buffer.len()));
        buffer.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

/// A database: buckets by name.
#[derive(Debug)]
pub struct Database<'a, R: ReadAt + ?Sized> {
    file: &'a R,
    meta: Meta,
    pages: u64,
}

/// A bucket: values by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bucket {
    /// A tree of its own, with its root in this page.
    Tree(u64),
    /// So small that it stands in the value of its name.
    Inline {
        /// The page that the name stands in.
        page: u64,
        /// A leaf page.
        bytes: Vec<u8>,
    },
}

impl<'a, R: ReadAt + ?Sized> Database<'a, R> {
    /// A database that somebody wrote to its end.
    pub fn open(file: &'a R) -> Result<Self, BoltError> {
        let size = file.size().map_err(|source| BoltError::Read { offset: 0, source })?;
        let meta = newest_meta(file, size)?.ok_or(BoltError::NotADatabase)?;
        Ok(Self { file, meta, pages: size / u64::from(meta.page_bytes) })
    }

    /// A bucket of this name.
    pub fn bucket(&self, name: &[u8]) -> Result<Option<Bucket>, BoltError> {
        let mut found = None;
        self.walk(self.meta.root, |page, flags, key, value| {
            if flags & IS_BUCKET != 0 && key == name {
                let root = page::u64_at(value, 0).ok_or(damaged(page, "the value of a bucket is too short"))?;
                found = Some(match root {
                    0 => Bucket::Inline { page, bytes: value.get(BUCKET_BYTES..).unwrap_or_default().to_vec() },
                    root => Bucket::Tree(root),
                });
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Gives every key and value of a bucket to `visit`, in the order of keys. Buckets inside are left out.
    pub fn for_each<E: From<BoltError>>(
        &self,
        bucket: &Bucket,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut value_only = |_, flags: u32, key: &[u8], value: &[u8]| match flags & IS_BUCKET {
            0 => visit(key, value),
            _ => Ok(()),
        };
        match bucket {
            Bucket::Tree(root) => self.walk(*root, value_only),
            Bucket::Inline { page, bytes } => {
                let head = Head::decode(bytes).ok_or(damaged(*page, "a bucket inside is too short"))?;
                (0..head.count).try_for_each(|index| visit_leaf(*page, bytes, index, &mut value_only))
            }
        }
    }

    /// Visits the leaves of a tree from left to right.
    fn walk<E: From<BoltError>>(
        &self,
        root: u64,
        mut visit: impl FnMut(u64, u32, &[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        // In a tree no page is met twice; in a damaged file there may be a circle.
        let mut left = self.pages;
        let mut path = vec![self.page(root, &mut left)?];
        while let Some(page) = path.last_mut() {
            if page.next == page.head.count {
                path.pop();
                continue;
            }
            let (number, index) = (page.head.number, page.next);
            page.next += 1;
            if page.is_leaf {
                visit_leaf(number, &page.bytes, index, &mut visit)?;
            } else {
                let child = page::child_at(&page.bytes, index.into());
                let child = child.ok_or(damaged(number, "a branch's elements reach behind its end"))?;
                if path.len() == DEPTH_MAX {
                    return Err(damaged(number, "the tree is too deep").into());
                }
                path.push(self.page(child, &mut left)?);
            }
        }
        Ok(())
    }

    /// A page of a tree; takes it and what overflows from `left`.
    fn page(&self, number: u64, left: &mut u64) -> Result<Page, BoltError> {
        let page_bytes = u64::from(self.meta.page_bytes);
        if number < 2 || number >= self.pages {
            return Err(damaged(number, "it is not in the file"));
        }
        let mut head = [0; HEAD_BYTES];
        self.read(&mut head, number * page_bytes)?;
        let head = Head::decode(&head).ok_or(damaged(number, "it has no head"))?;
        let kind = Kind::from_flags(head.flags);
        let is_leaf = match kind {
            Some(Kind::Leaf) => true,
            Some(Kind::Branch) => false,
            _ => return Err(damaged(number, "it is neither a branch nor a leaf")),
        };
        let span = u64::from(head.overflow) + 1;
        if head.number != number {
            return Err(damaged(number, "it says that it is another"));
        }
        if span > self.pages - number {
            return Err(damaged(number, "it ends behind the file"));
        }
        *left = left.checked_sub(span).ok_or(damaged(number, "it is in the tree more than once"))?;
        let mut bytes = vec![0; (span * page_bytes) as usize];
        self.read(&mut bytes, number * page_bytes)?;
        Ok(Page { head, is_leaf, bytes, next: 0 })
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), BoltError> {
        self.file.read_at(buffer, offset).map_err(|source| BoltError::Read { offset, source })
    }
}

/// A page on the path to where a walk has come.
struct Page {
    head: Head,
    is_leaf: bool,
    bytes: Vec<u8>,
    /// The element that is next.
    next: u16,
}

fn visit_leaf<E: From<BoltError>>(
    number: u64,
    page: &[u8],
    index: u16,
    visit: &mut impl FnMut(u64, u32, &[u8], &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let element = page::leaf_at(page, index.into());
    let (flags, key, value) = element.ok_or(damaged(number, "a leaf's elements reach behind its end"))?;
    visit(number, flags, &page[key], &page[value])
}

fn damaged(page: u64, what: &'static str) -> BoltError {
    BoltError::Damaged { page, what }
}

/// The second meta is a page behind the first, and how long a page is stands in them. Where the first is damaged, the second is
/// where it says that it is.
fn newest_meta<R: ReadAt + ?Sized>(file: &R, size: u64) -> Result<Option<Meta>, BoltError> {
    let first = meta_at(file, size, 0)?;
    let sizes = (page::PAGE_BYTES_MIN.ilog2()..=page::PAGE_BYTES_MAX.ilog2()).map(|bits| 1 << bits);
    let mut newest = first;
    for page_bytes in sizes.filter(|bytes| first.is_none_or(|first| first.page_bytes == *bytes)) {
        let second = meta_at(file, size, page_bytes.into())?.filter(|meta| meta.page_bytes == page_bytes);
        newest = newest.into_iter().chain(second).max_by_key(|meta| meta.transaction);
    }
    Ok(newest)
}

/// The whole and sound meta in the page that begins there.
fn meta_at<R: ReadAt + ?Sized>(file: &R, size: u64, page: u64) -> Result<Option<Meta>, BoltError> {
    let offset = page + HEAD_BYTES as u64;
    if offset + META_BYTES as u64 > size {
        return Ok(None);
    }
    let mut bytes = [0; META_BYTES];
    file.read_at(&mut bytes, offset).map_err(|source| BoltError::Read { offset, source })?;
    let is_sound = |meta: &Meta| {
        let page_bytes = meta.page_bytes as usize;
        page_bytes.is_power_of_two() && (page::PAGE_BYTES_MIN..=page::PAGE_BYTES_MAX).contains(&page_bytes)
    };
    Ok(Meta::decode(&bytes).filter(is_sound))
}
