//! All of the state as bytes: equal states give equal bytes. The log around it has a checksum over them.
//!
//! | bytes | field | |
//! | --- | --- | --- |
//! | 22 | what it is | `storebench-d-engine-3` and a line feed; where there are no users, `-2` and no table of them, so that earlier releases read it; of `-1` there are no tables of leases either |
//! | | tables | in the order of [`Table::ALL`], each its rows and then a byte 0 |
//! | | a row | a byte 1, key and value: length (4, little-endian) and bytes each |

use std::io::{self, Read, Write};
use std::ops::ControlFlow;

use bytes::Bytes;

use super::storage::{Rows, Storage, StorageError, Table};

const HEAD: &[u8; 22] = b"storebench-d-engine-3\n";
/// Where there are no users.
const HEAD_2: &[u8; 22] = b"storebench-d-engine-2\n";
const TABLES_2: usize = 9;
/// Before there were leases.
const HEAD_1: &[u8; 22] = b"storebench-d-engine-1\n";
const TABLES_1: usize = 6;
/// No key or value is longer: what claims to be is damaged.
const STRING_BYTES_MAX: u32 = 64 << 20;

/// Bytes that are no state.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Where tables lie.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// They cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// Another release wrote it, or somebody else.
    #[error("it is no snapshot of this release")]
    Foreign,
    /// They end early or late, or are damaged.
    #[error("it is malformed")]
    Malformed,
}

/// Writes all rows.
pub fn write(rows: &dyn Rows, out: &mut dyn Write) -> io::Result<()> {
    write_tables(rows, |_| true, out)
}

/// Writes the rows of tables that are wanted; others are empty.
pub(super) fn write_tables(rows: &dyn Rows, is_wanted: impl Fn(Table) -> bool, out: &mut dyn Write) -> io::Result<()> {
    let mut has_users = false;
    let any = &mut |_: &Bytes, _: &Bytes| {
        has_users = true;
        ControlFlow::Break(())
    };
    rows.scan(Table::Users, &[], None, any).map_err(io::Error::other)?;
    let (head, tables) = if has_users { (HEAD, Table::ALL.len()) } else { (HEAD_2, TABLES_2) };
    out.write_all(head)?;
    for table in Table::ALL.into_iter().take(tables) {
        if !is_wanted(table) {
            out.write_all(&[0])?;
            continue;
        }
        let mut written = Ok(());
        let scanned = rows.scan(table, &[], None, &mut |key, value| {
            written = write_row(out, key, value);
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        scanned.map_err(io::Error::other)?;
        written?;
        out.write_all(&[0])?;
    }
    Ok(())
}

fn write_row(out: &mut dyn Write, key: &[u8], value: &[u8]) -> io::Result<()> {
    out.write_all(&[1])?;
    for string in [key, value] {
        out.write_all(&(string.len() as u32).to_le_bytes())?;
        out.write_all(string)?;
    }
    Ok(())
}

/// Reads rows into an empty storage.
pub(super) fn read(from: &mut dyn Read, storage: &mut impl Storage) -> Result<(), SnapshotError> {
    read_each(from, |table, key, value| storage.put(table, key, value))
}

/// Hands out rows, one by one.
pub(super) fn read_each(
    from: &mut dyn Read,
    mut each: impl FnMut(Table, Bytes, Bytes) -> Result<(), StorageError>,
) -> Result<(), SnapshotError> {
    let mut head = [0; HEAD.len()];
    from.read_exact(&mut head)?;
    let tables = match &head {
        HEAD => &Table::ALL[..],
        HEAD_2 => &Table::ALL[..TABLES_2],
        HEAD_1 => &Table::ALL[..TABLES_1],
        _ => return Err(SnapshotError::Foreign),
    };
    for table in tables.iter().copied() {
        loop {
            let mut more = [0];
            from.read_exact(&mut more)?;
            match more {
                [0] => break,
                [1] => each(table, string(from)?, string(from)?)?,
                _ => return Err(SnapshotError::Malformed),
            }
        }
    }
    match from.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(SnapshotError::Malformed),
    }
}

fn string(from: &mut dyn Read) -> Result<Bytes, SnapshotError> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > STRING_BYTES_MAX {
        return Err(SnapshotError::Malformed);
    }
    // Memory grows only with bytes that really came.
    let mut bytes = Vec::new();
    match from.take(u64::from(length)).read_to_end(&mut bytes)? == length as usize {
        true => Ok(bytes.into()),
        false => Err(SnapshotError::Malformed),
    }
}
