//! Tables that a restart finds again, as those on disk, and a crash does not find all of.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use d_engine::state::{EachRow, Memory, Rows, Storage, StorageError, Table};

/// Commits that a member's disk has, oldest first: a crash may cost the last ones, as nobody syncs them.
pub type Commits = Arc<Mutex<VecDeque<(u64, Arc<dyn Rows + Send + Sync>)>>>;
/// So many are there to be lost.
pub const COMMITS_MAX: usize = 40;

/// Tables that are there again after a restart, as those on disk.
pub struct Lasting {
    tables: Memory,
    pub applied: u64,
    commits: Commits,
}

impl Lasting {
    pub fn open(commits: &Commits) -> Self {
        let (mut tables, mut applied) = (Memory::default(), 0);
        if let Some((index, rows)) = commits.lock().unwrap().back() {
            applied = *index;
            for table in Table::ALL {
                let mut each = |key: &Bytes, value: &Bytes| {
                    tables.put(table, key.clone(), value.clone()).unwrap();
                    ControlFlow::Continue(())
                };
                rows.scan(table, &[], None, &mut each).unwrap();
            }
            tables.commit(applied).unwrap();
        }
        Self { tables, applied, commits: Arc::clone(commits) }
    }
}

impl Rows for Lasting {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        self.tables.get(table, key)
    }

    fn scan(&self, table: Table, start: &[u8], end: Option<&[u8]>, each: &mut EachRow<'_>) -> Result<(), StorageError> {
        self.tables.scan(table, start, end, each)
    }
}

impl Storage for Lasting {
    fn put(&mut self, table: Table, key: Bytes, value: Bytes) -> Result<(), StorageError> {
        self.tables.put(table, key, value)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), StorageError> {
        self.tables.delete(table, key)
    }

    fn commit(&mut self, applied: u64) -> Result<(), StorageError> {
        self.tables.commit(applied)?;
        self.applied = applied;
        let mut commits = self.commits.lock().unwrap();
        commits.push_back((applied, self.tables.view()));
        if commits.len() > COMMITS_MAX {
            commits.pop_front();
        }
        Ok(())
    }

    fn applied(&self) -> u64 {
        self.applied
    }

    fn view(&self) -> Arc<dyn Rows + Send + Sync> {
        self.tables.view()
    }

    fn clear(&mut self) -> Result<(), StorageError> {
        self.applied = 0;
        self.tables.clear()
    }
}
