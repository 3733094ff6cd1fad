//! A state in a storage of one's own: `cargo run -p d-engine --example storage -- /tmp/somewhere`. This one keeps rows in a map and
//! copies it for readers at every commit: good for little data.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use d_engine::state::{EachRow, Rows, Storage, StorageError, Table};
use d_engine::{Engine, Options};

#[derive(Clone, Default)]
struct Map(BTreeMap<(Table, Bytes), Bytes>);

#[derive(Default)]
struct Maps {
    now: Map,
    committed: Arc<Map>,
}

impl Rows for Map {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        Ok(self.0.get(&(table, Bytes::copy_from_slice(key))).cloned())
    }

    fn scan(&self, table: Table, start: &[u8], end: Option<&[u8]>, each: &mut EachRow<'_>) -> Result<(), StorageError> {
        let rows = self.0.range((table, Bytes::copy_from_slice(start))..);
        let wanted = rows.take_while(|((of, key), _)| *of == table && end.is_none_or(|end| **key < *end));
        for ((_, key), value) in wanted {
            if each(key, value) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }
}

impl Rows for Maps {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        self.now.get(table, key)
    }

    fn scan(&self, table: Table, start: &[u8], end: Option<&[u8]>, each: &mut EachRow<'_>) -> Result<(), StorageError> {
        self.now.scan(table, start, end, each)
    }
}

impl Storage for Maps {
    fn put(&mut self, table: Table, key: Bytes, value: Bytes) -> Result<(), StorageError> {
        self.now.0.insert((table, key), value);
        Ok(())
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), StorageError> {
        self.now.0.remove(&(table, Bytes::copy_from_slice(key)));
        Ok(())
    }

    fn commit(&mut self, _: u64) -> Result<(), StorageError> {
        self.committed = Arc::new(self.now.clone());
        Ok(())
    }

    fn applied(&self) -> u64 {
        // Nothing is kept over a restart: everything comes from the log.
        0
    }

    fn view(&self) -> Arc<dyn Rows + Send + Sync> {
        Arc::clone(&self.committed) as _
    }

    fn clear(&mut self) -> Result<(), StorageError> {
        self.now = Map::default();
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).ok_or("say where the data shall be")?;
    let engine = Engine::start_with(Options::alone(directory), Maps::default())?;
    engine.wait_ready(Duration::from_secs(5)).await?;
    println!("visits: {}", engine.client().add("visits", 1).await?);
    engine.stop()?;
    Ok(())
}
