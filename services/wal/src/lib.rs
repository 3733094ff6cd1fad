//! A write-ahead log: what [`Log::commit`] has returned `Ok` for is still there after a crash of the process, the system or
//! the power, in order, unchanged; and what is not there was never acknowledged.
//!
//! One log serves several *groups*, each a sequence of entries with a term and an index, as Raft has them, and a hard state.
//! An entry replaces every earlier one of its group whose index is not smaller, so that a follower's conflicting suffix is
//! cut by appending. [`Log`] is the log without threads or clocks; [`Writer`] gives it a thread and shares syncs among all
//! who wait. Both access files through [`files::Directory`] alone; [`is_begun`] looks at names in a folder that nobody has opened.
//!
//! # On disk
//!
//! A directory of segments, `00000000000000000001.wal` and up, without gaps; integers are little-endian. A segment is a
//! sequence of records, each at a multiple of 8; then zeros up to the next page, and then, up to its preallocated end, zeros or what
//! the file held when it was an earlier segment. Files whose segment is no longer needed become segments to come, so that no byte is
//! written twice: a few such files, or new ones of zeros, may follow the last segment, named as the segments that they will be.
//!
//! | offset | bytes | field | |
//! | --- | --- | --- | --- |
//! | 0 | 4 | length | of the payload |
//! | 4 | 4 | checksum | CRC-32C of: segment number (8), offset of the record (8), bytes 0 to 4, bytes 8 to 32, payload |
//! | 8 | 1 | kind | 1 segment head, 2 entry, 3 hard state, 4 compaction, 5 cut |
//! | 9 | 1 | zero | |
//! | 10 | 2 | group | |
//! | 12 | 4 | batch | offset at which the write that holds this record began |
//! | 16 | 8 | term | |
//! | 24 | 8 | index | compaction: entries up to this one are no longer needed |
//! | 32 | length | payload | |
//! | | 0 to 7 | zeros | up to a multiple of 8 |
//!
//! The first record is the segment head: index is the segment's number, term is the end of the segment before (0 in the first
//! of a log), payload is `storebench-wal-2`. After it stand, for every group, its hard state and its compaction, repeated, so
//! that older segments can go. A record of an earlier segment is not valid in a later one, since the checksum has the number: two
//! numbers differ in less than 32 bits in a row, which CRC-32C always notices.
//!
//! # What a crash can leave, and what opening makes of it
//!
//! A *batch* is one write followed by one sync, and lies in one segment. The next batch is written only when the sync has
//! returned. Hence a valid record tells, by its `batch`, that everything before that offset was once safe on disk.
//!
//! - **Killed between write and sync, or power lost**: any of the batch's sectors may be missing, in any order, and nothing of
//!   it was acknowledged. The first record that is not valid is the end. Where anything but zeros stands behind it, opening writes
//!   a *cut* there and syncs it: the end of the batch before, behind which only the beginning of another batch is valid. Nothing
//!   that is left of the torn batch begins one there, and so it can never be taken for a record again.
//! - **Killed between write and sync, or the sync failed, and the machine goes on**: the next process sees the batch in the page
//!   cache, whole. What opening shows must stay, so the last batch is written again and synced before [`Log::open`] returns.
//! - **Power lost while the cut is written**: the same, once more.
//! - **Between the naming of a segment and its first sync**: the file has no valid head, and the segment before goes on. If it holds
//!   anything but zeros it is removed, and those behind it: it may hold a torn first batch, which must not continue the next one.
//! - **Between the head of a new segment and the end of an old one**: old segments are renamed or removed oldest first, after the
//!   sync that made them dispensable; what is left goes with the next compaction. Names are synced before a file is written to under
//!   a new one.
//! - **Not a crash**: an invalid record in front of a valid one of a *later* batch, an invalid record in a segment that has a
//!   successor and does not end where that says, a missing segment, a missing head in front of a valid record. Something that was
//!   safe has been damaged: [`Log::open`] refuses, and says which file and byte.
//!
//! A failed write or sync poisons the log: the kernel may have dropped what it could not write, so that a second sync would
//! lie. Only opening it again tells what is there.
//!
//! What cannot be told: whether the last batch before a crash was damaged after its sync, or torn before it. It is taken for torn, and
//! [`Log::torn`] says where. At a gentle end the log is *sealed*: a cut in a batch of its own says that everything in front of it is safe.

mod error;
pub mod files;
mod log;
mod open;
mod options;
mod pace;
mod record;
mod rotation;
mod segment;
mod spares;
mod sync_times;
mod writer;

pub use error::{CommitError, OpenError};
pub use log::{Log, Torn};
pub use open::is_begun;
pub use options::Options;
pub use record::{Kind, PAYLOAD_BYTES_MAX, Record};
pub use sync_times::{BOUNDS_MICROS, SyncRecorder, SyncTimes};
pub use writer::{Done, Rejected, Writer, WriterOptions};
