//! All of the state as bytes: equal states give equal bytes. The log around it has a checksum over them.
//!
//! | bytes | field | |
//! | --- | --- | --- |
//! | 22 | what it is | `storebench-d-engine-3` and a line feed; where there are no users, `-2` and no table of them, so that earlier releases read it; of `-1` there are no tables of leases either |
//! | | tables | in the order of [`Table::ALL`], each its rows and then a byte 0 |
//! | | a row | a byte 1, key and value: length (4, little-endian) and bytes each |

use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::sync::Arc;

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
    write_scanned(rows, &|_| true, out)
}

/// Writes the rows of tables that are wanted; others are empty. That takes long, and the view is kept no longer than it must be.
pub(super) fn write_tables(
    rows: Arc<dyn Rows + Send + Sync>,
    is_wanted: &dyn Fn(Table) -> bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Some(all) = rows.detach() else { return write_scanned(&*rows, is_wanted, out) };
    let mut tables = Tables::begin(&*rows, out)?;
    drop(rows);
    for row in all {
        let (table, key, value) = row.map_err(io::Error::other)?;
        if is_wanted(table) {
            tables.row(table, &key, &value)?;
        }
    }
    tables.end()
}

fn write_scanned(rows: &dyn Rows, is_wanted: &dyn Fn(Table) -> bool, out: &mut dyn Write) -> io::Result<()> {
    let mut tables = Tables::begin(rows, out)?;
    for table in Table::ALL.into_iter().filter(|table| is_wanted(*table)) {
        let mut written = Ok(());
        let scanned = rows.scan(table, &[], None, &mut |key, value| {
            written = tables.row(table, key, value);
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        scanned.map_err(io::Error::other)?;
        written?;
    }
    tables.end()
}

/// Tables that are written, one behind the other.
struct Tables<'a> {
    out: &'a mut dyn Write,
    /// How many were ended, of how many.
    ended: usize,
    count: usize,
}

impl<'a> Tables<'a> {
    /// Writes the head, which depends on whether there are users.
    fn begin(rows: &dyn Rows, out: &'a mut dyn Write) -> io::Result<Self> {
        let mut has_users = false;
        let any = &mut |_: &Bytes, _: &Bytes| {
            has_users = true;
            ControlFlow::Break(())
        };
        rows.scan(Table::Users, &[], None, any).map_err(io::Error::other)?;
        let (head, count) = if has_users { (HEAD, Table::ALL.len()) } else { (HEAD_2, TABLES_2) };
        out.write_all(head)?;
        Ok(Self { out, ended: 0, count })
    }

    /// Ends tables until so many have ended.
    fn end_until(&mut self, ended: usize) -> io::Result<()> {
        while self.ended < ended {
            self.out.write_all(&[0])?;
            self.ended += 1;
        }
        Ok(())
    }

    fn row(&mut self, table: Table, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.end_until(table.number())?;
        write_row(self.out, key, value)
    }

    fn end(mut self) -> io::Result<()> {
        self.end_until(self.count)
    }
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
