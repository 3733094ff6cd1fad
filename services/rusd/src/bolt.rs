//! Files of bbolt, the store of etcd: read for `rusd import`, written for snapshots that `etcdutl` accepts.
//!
//! Promises: what [`Writer`] wrote, bbolt's own tools find in order; whatever bytes [`Database`] is given, it ends with the
//! records or with an error that names the page, in memory of one path of pages.
//!
//! A file is pages of equal size, all numbers in it little-endian (source: `go.etcd.io/bbolt`, internal/common). Every page begins
//! with a head; a page that needs more room has the bytes of the pages after it as well, as many as `overflow` says.
//!
//! | bytes | head | |
//! | --- | --- | --- |
//! | 8 | number | its place in the file |
//! | 2 | kind | 1 branch, 2 leaf, 4 meta, 16 free list |
//! | 2 | count | of elements |
//! | 4 | overflow | pages after this one that belong to it |
//!
//! | bytes | meta, in pages 0 and 1; the valid one with the higher transaction counts | |
//! | --- | --- | --- |
//! | 4, 4 | magic, version | `0xED0CDAED`, 2 |
//! | 4, 4 | page size, flags | |
//! | 8, 8 | page and sequence of the root bucket | its keys are the names of buckets |
//! | 8, 8 | page of the free list, pages used | |
//! | 8 | transaction | |
//! | 8 | checksum | FNV-1a of the 56 bytes before |
//!
//! | bytes | element of a branch | | bytes | element of a leaf | |
//! | --- | --- | --- | --- | --- | --- |
//! | 4 | position | of the key, from this element | 4 | flags | 1: the value is a bucket |
//! | 4 | length of the key | | 4 | position | of the key, from this element |
//! | 8 | page | its first key is this one | 4, 4 | lengths of key and value | the value is behind the key |
//!
//! The value of a bucket is its root page and its sequence, 8 bytes each; if that page is 0, a leaf page follows in the value.

mod page;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use reader::{BoltError, Bucket, Database, ReadAt};
pub use writer::Writer;
