//! Tables in memory: ordered trees whose clones cost a reference, so that readers never wait for the writer.

use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use persistent_tree::{Entry, Tree};

use super::storage::{EachRow, Rows, Storage, StorageError, Table};

/// A row, shared by all trees that have it.
#[derive(Clone, Debug)]
struct Row(Arc<(Bytes, Bytes)>);

impl Entry for Row {
    fn order(&self, other: &Self) -> Ordering {
        self.0.0.cmp(&other.0.0)
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
    move |row| (*row.0.0).cmp(key)
}

impl Rows for Tables {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        Ok(self.of(table).get(at(key)).map(|row| row.0.1.clone()))
    }

    fn scan(&self, table: Table, start: &[u8], end: Option<&[u8]>, each: &mut EachRow<'_>) -> Result<(), StorageError> {
        for Row(row) in self.of(table).iter_from(at(start)) {
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
        self.tables.0[table.number()].insert(Row(Arc::new((key, value))));
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
