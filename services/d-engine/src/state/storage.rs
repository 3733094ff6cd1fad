//! Where tables lie. Implement [`Storage`] to keep them elsewhere; [`super::Memory`] keeps them in memory.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;

/// No row's key has more bytes: an implementor may count on it.
pub const ROW_KEY_BYTES_MAX: usize = u16::MAX as usize - 1;

/// A table: rows of a key and a value, in the order of the keys' bytes. What stands in each: see `rows`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    /// Keys of clients.
    Keys,
    /// Keys that end, by the time at which they do.
    Expiries,
    /// Sessions.
    Sessions,
    /// What was answered in sessions.
    Answers,
    /// Sessions by the time at which they were last used.
    Idle,
    /// What the group knows of its members.
    Members,
    /// Leases.
    Leases,
    /// Keys that are attached to leases, by lease.
    LeaseKeys,
    /// Leases by the time at which they end.
    LeaseEnds,
    /// Users.
    Users,
}

impl Table {
    /// All, in the order in which they stand in a snapshot.
    pub const ALL: [Self; 10] = [
        Self::Keys,
        Self::Expiries,
        Self::Sessions,
        Self::Answers,
        Self::Idle,
        Self::Members,
        Self::Leases,
        Self::LeaseKeys,
        Self::LeaseEnds,
        Self::Users,
    ];

    /// Its number in a snapshot, from 0.
    pub fn number(self) -> usize {
        self as usize
    }
}

/// A storage that cannot go on. The member ends; what was acknowledged is in the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the state's storage: {0}")]
pub struct StorageError(pub String);

/// Called with each row; breaks when it has seen enough.
pub type EachRow<'a> = dyn FnMut(&Bytes, &Bytes) -> ControlFlow<()> + 'a;

/// What files took before they were rewritten, and after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defragmented {
    /// Bytes before.
    pub before_bytes: u64,
    /// Bytes after.
    pub after_bytes: u64,
}

/// Rewrites a storage's files, beside those who read and change it. Takes long, and for that time the disk room of both.
pub type Defragmentation = Arc<dyn Fn() -> Result<Defragmented, StorageError> + Send + Sync>;

/// All rows of one moment, table by table, each in order.
pub type AllRows = Box<dyn Iterator<Item = Result<(Table, Bytes, Bytes), StorageError>> + Send>;

/// Rows as of one moment.
pub trait Rows {
    /// The value of a row.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError>;

    /// Rows in order: from `start`, inclusive, to `end`, exclusive; `None` is the end of the table.
    fn scan(&self, table: Table, start: &[u8], end: Option<&[u8]>, each: &mut EachRow<'_>) -> Result<(), StorageError>;

    /// To look at a row may take as long as to change so many in memory: its value may be large, and have to come from a disk.
    fn rows_of_a_look(&self) -> usize {
        1
    }

    /// All of them, to be read once and slowly, while the view itself may go; `None`: who reads keeps the view. For a storage whose memory
    /// grows with what is committed while a view is kept.
    fn detach(&self) -> Option<AllRows> {
        None
    }
}

/// Tables that one thread changes, and others look at.
///
/// The thread that changes sees its own changes at once, others what was there at the last [`Storage::commit`]. What was not
/// committed may be lost: the log has it. What is committed together is kept together or not at all.
pub trait Storage: Rows + Send + 'static {
    /// Puts a row in, or replaces it.
    fn put(&mut self, table: Table, key: Bytes, value: Bytes) -> Result<(), StorageError>;

    /// Takes a row out, if it is there.
    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), StorageError>;

    /// All entries up to this one have done what they do.
    fn commit(&mut self, applied: u64) -> Result<(), StorageError>;

    /// Whether the next commit may have to wait for the disk: then it is made beside the member's protocol, and not within it.
    fn is_under_pressure(&self) -> bool {
        false
    }

    /// Rewrites its files, so that they have no more than what is there; `None`: it has none that grow.
    fn defragmentation(&self) -> Option<Defragmentation> {
        None
    }

    /// The index of the last commit that is still there; 0 if there was none. Entries up to it are not applied again.
    fn applied(&self) -> u64;

    /// What was committed last, as it stays.
    fn view(&self) -> Arc<dyn Rows + Send + Sync>;

    /// Takes all rows out: [`Storage::applied`] is 0 from here on. Many rows may be put in before the next commit. Until then a restart
    /// finds what was there before, or nothing.
    fn clear(&mut self) -> Result<(), StorageError>;
}

// What works with a storage is compiled once, whichever it is.
impl Rows for Box<dyn Storage> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        (**self).get(table, key)
    }

    fn scan(&self, table: Table, start: &[u8], end: Option<&[u8]>, each: &mut EachRow<'_>) -> Result<(), StorageError> {
        (**self).scan(table, start, end, each)
    }

    fn rows_of_a_look(&self) -> usize {
        (**self).rows_of_a_look()
    }

    fn detach(&self) -> Option<AllRows> {
        (**self).detach()
    }
}

impl Storage for Box<dyn Storage> {
    fn put(&mut self, table: Table, key: Bytes, value: Bytes) -> Result<(), StorageError> {
        (**self).put(table, key, value)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), StorageError> {
        (**self).delete(table, key)
    }

    fn commit(&mut self, applied: u64) -> Result<(), StorageError> {
        (**self).commit(applied)
    }

    fn is_under_pressure(&self) -> bool {
        (**self).is_under_pressure()
    }

    fn defragmentation(&self) -> Option<Defragmentation> {
        (**self).defragmentation()
    }

    fn applied(&self) -> u64 {
        (**self).applied()
    }

    fn view(&self) -> Arc<dyn Rows + Send + Sync> {
        (**self).view()
    }

    fn clear(&mut self) -> Result<(), StorageError> {
        (**self).clear()
    }
}
