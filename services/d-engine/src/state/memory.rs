//! Tables in memory: ordered trees whose clones cost a reference, so that readers never wait for the writer.

use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use persistent_tree::{Entry, Tree};

use super::storage::{EachRow, Rows, Storage, StorageError, Table};

/// A row, shared by all trees that have it. With the first bytes of its key beside: a search looks at a dozen rows, and each step to a key
/// elsewhere in the memory takes as long as all the rest.
#[derive(Clone, Debug)]
struct Row {
    first: u64,
    row: Arc<(Bytes, Bytes)>,
}

/// The first eight bytes of a key, as a number that is in order as they are; of equal ones the keys decide.
fn first(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => key.iter().rev().fold(0, |number, byte| number >> 8 | u64::from(*byte) << 56),
    }
}

impl Entry for Row {
    fn order(&self, other: &Self) -> Ordering {
        self.first.cmp(&other.first).then_with(|| self.row.0.cmp(&other.row.0))
    }
}

/// Tables of one moment.
#[derive(Clone, Debug, Default)]
struct Tables([Tree<Row>; Table::ALL.len()]);

impl Tables {
    fn of(&self, table: Table) -> &Tree<Row> {
        &self.0[table.number()]
    }
}

fn at(key: &[u8]) -> impl Fn(&Row) -> Ordering {
    let begins = first(key);
    move |row| row.first.cmp(&begins).then_with(|| (*row.row.0).cmp(key))
}

impl Rows for Tables {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        Ok(self.of(table).get(at(key)).map(|row| row.row.1.clone()))
    }

    fn scan(&self, table: Table, start: &[u8], end: Option<&[u8]>, each: &mut EachRow<'_>) -> Result<(), StorageError> {
        for Row { row, .. } in self.of(table).iter_from(at(start)) {
            if end.is_some_and(|end| *row.0 >= *end) || each(&row.0, &row.1) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }
}

/// Tables in memory. Nothing is kept over a restart: the log and its snapshots are.
#[derive(Debug, Default)]
pub struct Memory {
    tables: Tables,
    committed: Arc<Tables>,
}

impl Rows for Memory {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        self.tables.get(table, key)
    }

    fn scan(&self, table: Table, start: &[u8], end: Option<&[u8]>, each: &mut EachRow<'_>) -> Result<(), StorageError> {
        self.tables.scan(table, start, end, each)
    }
}

impl Storage for Memory {
    fn put(&mut self, table: Table, key: Bytes, value: Bytes) -> Result<(), StorageError> {
        self.tables.0[table.number()].insert(Row { first: first(&key), row: Arc::new((key, value)) });
        Ok(())
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), StorageError> {
        self.tables.0[table.number()].remove(at(key));
        Ok(())
    }

    fn commit(&mut self, _: u64) -> Result<(), StorageError> {
        self.committed = Arc::new(self.tables.clone());
        Ok(())
    }

    fn applied(&self) -> u64 {
        0
    }

    fn view(&self) -> Arc<dyn Rows + Send + Sync> {
        Arc::clone(&self.committed) as _
    }

    fn clear(&mut self) -> Result<(), StorageError> {
        self.tables = Tables::default();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(key: &[u8]) -> Row {
        Row { first: first(key), row: Arc::new((Bytes::copy_from_slice(key), Bytes::new())) }
    }

    proptest! {
        /// Zeros, keys that begin with one another, and keys that differ behind what stands beside.
        #[test]
        fn rows_are_in_the_order_of_their_keys(
            one in prop::collection::vec(0_u8..3, 0..12), other in prop::collection::vec(0_u8..3, 0..12),
        ) {
            prop_assert_eq!(row(&one).order(&row(&other)), one.cmp(&other));
            prop_assert_eq!(at(&other)(&row(&one)), one.cmp(&other));
        }
    }
}
