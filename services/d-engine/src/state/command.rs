//! What stands in an entry of the log.
//!
//! Integers are little-endian; a string is its length (4 bytes) and its bytes, a list its number of items (4 bytes) and these.
//!
//! | offset | bytes | field | |
//! | --- | --- | --- | --- |
//! | 0 | 1 | version | 1, or 2 where an operation is of leases, or 3 where users matter, or 4 of kind 11 and of change 7, or 5 of kind 12; a member that meets another one ends, for it cannot know what others made of it |
//! | 1 | 1 | kind | 1 write, 2 write in a session, 3 open a session, 4 close a session, 5 expire, 6 members have been seen,
//! | | | | 7 a member is at an address, 8 a member was removed, 9 on behalf of somebody, 10 a change of users, 11 leases begin anew, 12 the group's serial number |
//! | 2 | 24 | stamp | of kind 2: session, sequence, awaited from (8 each) |
//! | | | transaction | of kinds 1 and 2: compares, then, otherwise: three lists |
//! | 2 | 8 | session | of kind 4 |
//! | 2 | | principal | of kinds 9 and 10: 0 nobody (10 only), 1 the process, 2 a user: name (string), since (8) |
//! | | | command | of kind 9: one of kinds 1 to 4 (string); of kind 10 a change: 1 add: name, hash (strings), whether it administers (1); 2 password: name, hash; 3 remove: name, of earlier releases; 4 grant: name, prefix, 1 to read, 2 to write, 3 both (1); 5 revoke: name, prefix; 6 users are asked for from now on, or not (1); 7 remove, with what it has: name |
//! | 2 | 8 | since | of kind 11, milliseconds |
//! | 2 | 8 | serial number | of kind 12; not 0 |
//! | 2 | | members | of kind 6: a list of numbers (8 each) |
//! | 2 | 8 | member | of kinds 7 and 8; of 7 then its addresses for clients and for members (strings) |
//!
//! A compare is: condition (1 byte: 1 value is, 2 exists, 3 does not exist, 4 revision is, 5 below, 6 above), key (string), and for 1
//! the value (string), for 4 to 6 the revision (8). An operation is: 1 put: key, value (strings), time to live (8, milliseconds,
//! 0 for none); 2 delete: key; 3 get: key; 4 add: key, delta (8). Of version 2 also: 5 attach: key, lease (8); 6 grant: time to live (8);
//! 7 keep alive, 8 revoke: lease (8).

use bytes::Bytes;
pub use d_engine_client::KEY_BYTES_MAX;
use d_engine_client::{Compare, Condition, Operation, Stamp, Transaction};

use super::codec::{Malformed, Reader, put_list, put_number, put_string};
use super::users::{Access, Principal, UserChange};

const VERSION: u8 = 1;
const VERSION_LEASES: u8 = 2;
const VERSION_USERS: u8 = 3;
const VERSION_OWNERS: u8 = 4;
const VERSION_SERIAL: u8 = 5;
const WHAT: &str = "a command";

/// The longest time to live of a lease: what nobody keeps alive shall end some day.
const LEASE_MILLIS_MAX: u64 = 365 * 24 * 3_600_000;

/// The largest value, bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// Most compares and operations of a transaction, together.
const OPERATIONS_MAX: usize = 1024;

/// All keys and values of a transaction, bytes.
const TRANSACTION_BYTES_MAX: usize = 4 << 20;

/// What one entry does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A transaction, once if it has a stamp.
    Write(Transaction, Option<Stamp>),
    /// Opens a session, whose number is the entry's index.
    OpenSession,
    /// Ends a session.
    CloseSession(u64),
    /// Ends what is to end by the time of this entry: at most [`EXPIRED_MAX`] keys, and as many sessions that nobody has used for long.
    Expire,
    /// These members have acknowledged entries: should one of them come with nothing, it has lost what it had.
    Seen(Vec<u64>),
    /// A member is found there.
    Place(u64, Place),
    /// A member was removed for good: its number is never used again.
    Leave(u64),
    /// A write, or something with a session, on behalf of somebody.
    As(Principal, Box<Command>),
    /// A change of users, on behalf of somebody.
    Users(Principal, UserChange),
    /// All leases begin anew as of this time of the log, milliseconds, and sessions are as if they were used then.
    Renew(u64),
    /// Of all groups of this name and these founders this is the one with this serial number, unless an earlier entry has said another one.
    Serial(u64),
}

/// Where a member is found, `host:port` each; empty: that is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// By clients.
    pub client: Bytes,
    /// By other members.
    pub peer: Bytes,
}

/// Why bytes are no command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// A later release wrote it.
    #[error("a command of version {0}, which this release does not know: start the release that the other members run")]
    Version(u8),
    /// Nobody wrote it.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

impl Command {
    /// As it stands in an entry.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.bytes_about());
        out.push(self.version());
        match self {
            Self::Write(transaction, None) => {
                out.push(1);
                put_transaction(&mut out, transaction);
            }
            Self::Write(transaction, Some(Stamp { session, sequence, awaited_from })) => {
                out.push(2);
                [*session, *sequence, *awaited_from].into_iter().for_each(|number| put_number(&mut out, number));
                put_transaction(&mut out, transaction);
            }
            Self::OpenSession => out.push(3),
            Self::CloseSession(session) => {
                out.push(4);
                put_number(&mut out, *session);
            }
            Self::Expire => out.push(5),
            Self::Seen(members) => {
                out.push(6);
                put_list(&mut out, members, |out, member| put_number(out, *member));
            }
            Self::Place(member, Place { client, peer }) => {
                out.push(7);
                put_number(&mut out, *member);
                put_string(&mut out, client);
                put_string(&mut out, peer);
            }
            Self::Leave(member) => {
                out.push(8);
                put_number(&mut out, *member);
            }
            Self::As(who, command) => {
                out.push(9);
                put_principal(&mut out, who);
                put_string(&mut out, &command.encode());
            }
            Self::Users(who, change) => {
                out.push(10);
                put_principal(&mut out, who);
                put_change(&mut out, change);
            }
            Self::Renew(since_millis) => {
                out.push(11);
                put_number(&mut out, *since_millis);
            }
            Self::Serial(serial) => {
                out.push(12);
                put_number(&mut out, *serial);
            }
        }
        out.into()
    }

    /// Members of release 1 must end where they meet what they do not know, and go on where they do not.
    fn version(&self) -> u8 {
        let (then, otherwise) = match self {
            Self::Write(Transaction { then, otherwise, .. }, _) => (then, otherwise),
            Self::Users(_, UserChange::Remove { .. }) | Self::Renew(_) => return VERSION_OWNERS,
            Self::As(..) | Self::Users(..) => return VERSION_USERS,
            Self::Serial(_) => return VERSION_SERIAL,
            _ => return VERSION,
        };
        let has_leases = then.iter().chain(otherwise).any(is_of_leases);
        if has_leases { VERSION_LEASES } else { VERSION }
    }

    /// How many operations a write has that compares nothing, is of no session, and knows nothing of leases and users; `None`: it is another
    /// command.
    pub(super) fn operations(bytes: &[u8]) -> Option<usize> {
        let [VERSION, 1, lists @ ..] = bytes else { return None };
        let (compares, rest) = lists.split_first_chunk::<4>()?;
        let (then, _) = rest.split_first_chunk::<4>()?;
        (*compares == [0; 4]).then_some(u32::from_le_bytes(*then) as usize)
    }

    /// Whether parts of what begins so stay in memory: names of users do.
    pub(super) fn stays(bytes: &[u8]) -> bool {
        matches!(bytes, [VERSION_USERS, 10, ..])
    }

    fn bytes_about(&self) -> usize {
        match self {
            Self::Write(transaction, _) => 64 + bytes_of(transaction),
            Self::As(_, command) => 64 + command.bytes_about(),
            _ => 64,
        }
    }

    /// What an entry says.
    pub fn decode(bytes: Bytes) -> Result<Self, CommandError> {
        let mut reader = Reader::new(bytes, WHAT);
        let version = reader.byte()?;
        if ![VERSION, VERSION_LEASES, VERSION_USERS, VERSION_OWNERS, VERSION_SERIAL].contains(&version) {
            return Err(CommandError::Version(version));
        }
        let command = decode(&mut reader)?;
        reader.end()?;
        if command.version() == version { Ok(command) } else { Ok(reader.fail()?) }
    }
}

fn is_of_leases(operation: &Operation) -> bool {
    match operation {
        Operation::Attach { .. } | Operation::Grant { .. } | Operation::KeepAlive { .. } | Operation::Revoke { .. } => {
            true
        }
        Operation::Put { .. } | Operation::Delete { .. } | Operation::Get { .. } | Operation::Add { .. } => false,
    }
}

fn decode(reader: &mut Reader) -> Result<Command, Malformed> {
    match reader.byte()? {
        1 => Ok(Command::Write(transaction(reader)?, None)),
        2 => {
            let (session, sequence, awaited_from) = (reader.number()?, reader.number()?, reader.number()?);
            Ok(Command::Write(transaction(reader)?, Some(Stamp { session, sequence, awaited_from })))
        }
        3 => Ok(Command::OpenSession),
        4 => Ok(Command::CloseSession(reader.number()?)),
        5 => Ok(Command::Expire),
        6 => Ok(Command::Seen(reader.list(Reader::number)?)),
        7 => Ok(Command::Place(reader.number()?, Place { client: reader.string()?, peer: reader.string()? })),
        8 => Ok(Command::Leave(reader.number()?)),
        9 => {
            let (who, command) = (principal(reader)?, reader.string()?);
            // Nothing is on behalf of somebody twice, or ten thousand times.
            if !matches!(command.get(1), Some(1..=4)) {
                return reader.fail();
            }
            // One that says what is no command is none itself, whatever its version.
            let command = Command::decode(command).or_else(|_| reader.fail())?;
            match (&who, &command) {
                (Principal::Nobody, _) => reader.fail(),
                (_, Command::Write(..) | Command::OpenSession | Command::CloseSession(_)) => {
                    Ok(Command::As(who, Box::new(command)))
                }
                _ => reader.fail(),
            }
        }
        10 => Ok(Command::Users(principal(reader)?, change(reader)?)),
        11 => Ok(Command::Renew(reader.number()?)),
        12 => match reader.number()? {
            0 => reader.fail(),
            serial => Ok(Command::Serial(serial)),
        },
        _ => reader.fail(),
    }
}

fn principal(reader: &mut Reader) -> Result<Principal, Malformed> {
    match reader.byte()? {
        0 => Ok(Principal::Nobody),
        1 => Ok(Principal::Process),
        2 => Ok(Principal::User { name: reader.string()?, since: reader.number()? }),
        _ => reader.fail(),
    }
}

fn put_principal(out: &mut Vec<u8>, who: &Principal) {
    match who {
        Principal::Nobody => out.push(0),
        Principal::Process => out.push(1),
        Principal::User { name, since } => {
            out.push(2);
            put_string(out, name);
            put_number(out, *since);
        }
    }
}

fn change(reader: &mut Reader) -> Result<UserChange, Malformed> {
    Ok(match reader.byte()? {
        1 => UserChange::Add { name: reader.string()?, hash: reader.string()?, is_admin: reader.flag()? },
        2 => UserChange::Password { name: reader.string()?, hash: reader.string()? },
        3 => UserChange::RemoveAlone { name: reader.string()? },
        4 => {
            let (name, prefix) = (reader.string()?, reader.string()?);
            match Access::of(reader.byte()?) {
                Some(access) => UserChange::Grant { name, prefix, access },
                None => return reader.fail(),
            }
        }
        5 => UserChange::Revoke { name: reader.string()?, prefix: reader.string()? },
        6 => UserChange::Enable(reader.flag()?),
        7 => UserChange::Remove { name: reader.string()? },
        _ => return reader.fail(),
    })
}

fn put_change(out: &mut Vec<u8>, change: &UserChange) {
    match change {
        UserChange::Add { name, hash, is_admin } => {
            out.push(1);
            put_string(out, name);
            put_string(out, hash);
            out.push(u8::from(*is_admin));
        }
        UserChange::Password { name, hash } => {
            out.push(2);
            put_string(out, name);
            put_string(out, hash);
        }
        UserChange::RemoveAlone { name } => {
            out.push(3);
            put_string(out, name);
        }
        UserChange::Remove { name } => {
            out.push(7);
            put_string(out, name);
        }
        UserChange::Grant { name, prefix, access } => {
            out.push(4);
            put_string(out, name);
            put_string(out, prefix);
            out.push(access.number());
        }
        UserChange::Revoke { name, prefix } => {
            out.push(5);
            put_string(out, name);
            put_string(out, prefix);
        }
        UserChange::Enable(is_enabled) => out.extend([6, u8::from(*is_enabled)]),
    }
}

fn transaction(reader: &mut Reader) -> Result<Transaction, Malformed> {
    let compares = reader.list(compare)?;
    Ok(Transaction { compares, then: reader.list(operation)?, otherwise: reader.list(operation)? })
}

fn compare(reader: &mut Reader) -> Result<Compare, Malformed> {
    let (condition, key) = (reader.byte()?, reader.string()?);
    let condition = match condition {
        1 => Condition::ValueIs(reader.string()?),
        2 => Condition::Exists(true),
        3 => Condition::Exists(false),
        4 => Condition::RevisionIs(reader.number()?),
        5 => Condition::RevisionBelow(reader.number()?),
        6 => Condition::RevisionAbove(reader.number()?),
        _ => return reader.fail(),
    };
    Ok(Compare { key, condition })
}

fn operation(reader: &mut Reader) -> Result<Operation, Malformed> {
    Ok(match reader.byte()? {
        1 => Operation::Put { key: reader.string()?, value: reader.string()?, ttl_millis: reader.number()? },
        2 => Operation::Delete { key: reader.string()? },
        3 => Operation::Get { key: reader.string()? },
        4 => Operation::Add { key: reader.string()?, delta: reader.number()? as i64 },
        5 => Operation::Attach { key: reader.string()?, lease: reader.number()? },
        6 => Operation::Grant { ttl_millis: reader.number()? },
        7 => Operation::KeepAlive { lease: reader.number()? },
        8 => Operation::Revoke { lease: reader.number()? },
        _ => return reader.fail(),
    })
}

fn put_transaction(out: &mut Vec<u8>, transaction: &Transaction) {
    put_list(out, &transaction.compares, |out, Compare { key, condition }| {
        let kind = match condition {
            Condition::ValueIs(_) => 1,
            Condition::Exists(true) => 2,
            Condition::Exists(false) => 3,
            Condition::RevisionIs(_) => 4,
            Condition::RevisionBelow(_) => 5,
            Condition::RevisionAbove(_) => 6,
        };
        out.push(kind);
        put_string(out, key);
        match condition {
            Condition::ValueIs(value) => put_string(out, value),
            Condition::Exists(_) => {}
            Condition::RevisionIs(revision)
            | Condition::RevisionBelow(revision)
            | Condition::RevisionAbove(revision) => put_number(out, *revision),
        }
    });
    for operations in [&transaction.then, &transaction.otherwise] {
        put_list(out, operations, |out, operation| match operation {
            Operation::Put { key, value, ttl_millis } => {
                out.push(1);
                put_string(out, key);
                put_string(out, value);
                put_number(out, *ttl_millis);
            }
            Operation::Delete { key } => {
                out.push(2);
                put_string(out, key);
            }
            Operation::Get { key } => {
                out.push(3);
                put_string(out, key);
            }
            Operation::Add { key, delta } => {
                out.push(4);
                put_string(out, key);
                put_number(out, *delta as u64);
            }
            Operation::Attach { key, lease } => {
                out.push(5);
                put_string(out, key);
                put_number(out, *lease);
            }
            Operation::Grant { ttl_millis } => {
                out.push(6);
                put_number(out, *ttl_millis);
            }
            Operation::KeepAlive { lease } => {
                out.push(7);
                put_number(out, *lease);
            }
            Operation::Revoke { lease } => {
                out.push(8);
                put_number(out, *lease);
            }
        });
    }
}

/// More than a client may ask for; nothing has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// A transaction without operations.
    #[error("there is no operation")]
    Empty,
    /// A key is too long.
    #[error("a key of {0} bytes is too long: at most {KEY_BYTES_MAX}")]
    Key(usize),
    /// A value is too large.
    #[error("a value of {0} bytes is too large: at most {VALUE_BYTES_MAX}")]
    Value(usize),
    /// Too many operations.
    #[error("{0} compares and operations are too many: at most {OPERATIONS_MAX}")]
    Operations(usize),
    /// A lease ends before it begins.
    #[error("a lease needs a time to live")]
    Lease,
    /// A lease that nobody would see the end of.
    #[error("a lease of {0} ms is too long: at most {LEASE_MILLIS_MAX}, a year; keep it alive")]
    LeaseTooLong(u64),
    /// Two leases would have one number.
    #[error("a transaction grants one lease at most")]
    Grants,
    /// Too much in all.
    #[error("a transaction of {0} bytes is too large: at most {TRANSACTION_BYTES_MAX}")]
    Transaction(usize),
}

/// Checks what a client asks for, before it enters the log.
pub fn check(transaction: &Transaction) -> Result<(), LimitError> {
    let Transaction { compares, then, otherwise } = transaction;
    if then.is_empty() && otherwise.is_empty() {
        return Err(LimitError::Empty);
    }
    let count = compares.len() + then.len() + otherwise.len();
    if count > OPERATIONS_MAX {
        return Err(LimitError::Operations(count));
    }
    let compared = compares.iter().map(|compare| match &compare.condition {
        Condition::ValueIs(value) => (&compare.key, value.len()),
        _ => (&compare.key, 0),
    });
    for operations in [then, otherwise] {
        let mut grants = operations.iter().filter_map(|operation| match operation {
            Operation::Grant { ttl_millis } => Some(*ttl_millis),
            _ => None,
        });
        match (grants.next(), grants.next()) {
            (Some(0), _) => return Err(LimitError::Lease),
            (Some(ttl_millis), _) if ttl_millis > LEASE_MILLIS_MAX => {
                return Err(LimitError::LeaseTooLong(ttl_millis));
            }
            (_, Some(_)) => return Err(LimitError::Grants),
            _ => {}
        }
    }
    let changed = then.iter().chain(otherwise).filter_map(|operation| match operation {
        Operation::Put { key, value, .. } => Some((key, value.len())),
        Operation::Delete { key }
        | Operation::Get { key }
        | Operation::Add { key, .. }
        | Operation::Attach { key, .. } => Some((key, 0)),
        Operation::Grant { .. } | Operation::KeepAlive { .. } | Operation::Revoke { .. } => None,
    });
    for (key, value) in compared.chain(changed) {
        check_key(key)?;
        if value > VALUE_BYTES_MAX {
            return Err(LimitError::Value(value));
        }
    }
    match bytes_of(transaction) {
        bytes if bytes > TRANSACTION_BYTES_MAX => Err(LimitError::Transaction(bytes)),
        _ => Ok(()),
    }
}

/// Checks a key that a client names, also where it only looks: storages take no longer ones than [`super::storage::ROW_KEY_BYTES_MAX`].
pub fn check_key(key: &[u8]) -> Result<(), LimitError> {
    if key.len() > KEY_BYTES_MAX { Err(LimitError::Key(key.len())) } else { Ok(()) }
}

/// The same of an end of a range of keys, which may stand just behind the longest key: that and a zero.
pub fn check_bound(bound: &[u8]) -> Result<(), LimitError> {
    if bound.len() > KEY_BYTES_MAX + 1 { Err(LimitError::Key(bound.len())) } else { Ok(()) }
}

/// Keys and values, and about what stands around them.
fn bytes_of(Transaction { compares, then, otherwise }: &Transaction) -> usize {
    let compared = compares.iter().map(|compare| match &compare.condition {
        Condition::ValueIs(value) => compare.key.len() + value.len() + 16,
        _ => compare.key.len() + 16,
    });
    let changed = then.iter().chain(otherwise).map(|operation| match operation {
        Operation::Put { key, value, .. } => key.len() + value.len() + 24,
        Operation::Delete { key }
        | Operation::Get { key }
        | Operation::Add { key, .. }
        | Operation::Attach { key, .. } => key.len() + 24,
        Operation::Grant { .. } | Operation::KeepAlive { .. } | Operation::Revoke { .. } => 24,
    });
    compared.sum::<usize>() + changed.sum::<usize>()
}
