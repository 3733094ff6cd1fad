//! Writes: every one is a transaction, most of them of one operation.

use bytes::Bytes;

/// The longest key, bytes.
pub const KEY_BYTES_MAX: usize = 4096;

/// Compares, then one of two lists of operations: one entry of the log, all of it or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// All must be true for `then`; without any, they are.
    pub compares: Vec<Compare>,
    /// What is done.
    pub then: Vec<Operation>,
    /// What is done if not.
    pub otherwise: Vec<Operation>,
}

/// A condition on a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// The key.
    pub key: Bytes,
    /// What must be true of it.
    pub condition: Condition,
}

/// What must be true of a key. The revision of a key is the index in the log at which it was last written; 0: it does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It has this value.
    ValueIs(Bytes),
    /// It exists, or does not.
    Exists(bool),
    /// Its revision is this.
    RevisionIs(u64),
    /// Its revision is less.
    RevisionBelow(u64),
    /// Its revision is greater.
    RevisionAbove(u64),
}

/// Something that is done to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Gives it a value, and a time to live or none; what it had of that before is gone.
    Put {
        /// The key.
        key: Bytes,
        /// Its value, at most a mebibyte.
        value: Bytes,
        /// Milliseconds from the time of the entry in the log; 0: it stays.
        ttl_millis: u64,
    },
    /// Deletes it.
    Delete {
        /// The key.
        key: Bytes,
    },
    /// Reads it, as the operations before left it.
    Get {
        /// The key.
        key: Bytes,
    },
    /// Has a key that exists end with a lease. It is written anew, with the value and the time to live that it has.
    Attach {
        /// The key.
        key: Bytes,
        /// The lease; the transaction is refused if there is no such one.
        lease: u64,
    },
    /// Begins a lease, whose number is the revision of the transaction: one for each transaction.
    Grant {
        /// Milliseconds from the time of the entry in the log; not 0.
        ttl_millis: u64,
    },
    /// Has a lease begin anew, as long as it was granted for.
    KeepAlive {
        /// The lease.
        lease: u64,
    },
    /// Ends a lease, and deletes the keys that are attached to it.
    Revoke {
        /// The lease.
        lease: u64,
    },
    /// Adds to a counter: decimal digits, with a sign if it is negative. A missing key counts as 0.
    Add {
        /// The key.
        key: Bytes,
        /// What is added.
        delta: i64,
    },
}

/// What an operation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationResult {
    /// It was put.
    Put,
    /// It was deleted, if it was there.
    Deleted(bool),
    /// What it was.
    Got(Option<crate::KeyValue>),
    /// The counter is this now.
    Sum(i64),
    /// It was attached, if it was there.
    Attached(bool),
    /// The lease is there, until then; `None`: there is no such lease.
    Lease(Option<Lease>),
    /// It was ended, if it was there.
    Revoked(bool),
}

/// A lease, as of the entry that it was granted or kept alive by. It ends by an entry of the log, some time after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its number: the revision of the transaction that granted it.
    pub number: u64,
    /// How long it lasts without being kept alive.
    pub ttl_millis: u64,
    /// When it ends, milliseconds since 1970 by the clock of the log.
    pub expires_millis: u64,
}

/// What a transaction came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Whether the compares were true.
    pub succeeded: bool,
    /// One for each operation that was carried out.
    pub results: Vec<OperationResult>,
}

/// A transaction that was applied, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its index in the log: the revision of what it wrote. Never given twice, always rising: a fencing token.
    pub revision: u64,
    /// The term in which it was committed.
    pub term: u64,
    /// What it came to.
    pub applied: Applied,
}

/// Names a write within a session, so that it is done once however often it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The session, as it was opened.
    pub session: u64,
    /// Counts its writes from 1.
    pub sequence: u64,
    /// Nobody waits for replies to lower ones any more.
    pub awaited_from: u64,
}

impl Transaction {
    /// One operation, whatever is there.
    pub fn of(operation: Operation) -> Self {
        Self { then: vec![operation], ..Self::default() }
    }

    /// Gives a key a value.
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self::of(Operation::Put { key: key.into(), value: value.into(), ttl_millis: 0 })
    }

    /// Deletes a key.
    pub fn delete(key: impl Into<Bytes>) -> Self {
        Self::of(Operation::Delete { key: key.into() })
    }

    /// Gives a key a value if it has the expected one; `None`: if it does not exist.
    pub fn compare_and_swap(key: impl Into<Bytes>, expected: Option<Bytes>, value: impl Into<Bytes>) -> Self {
        let key = key.into();
        let condition = expected.map_or(Condition::Exists(false), Condition::ValueIs);
        let compares = vec![Compare { key: key.clone(), condition }];
        Self { compares, ..Self::put(key, value) }
    }
}
