//! What commands hold of values that lie on a disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use d_engine_client::WatchOptions;
use replog::{Entry, EntryKind, StateMachine as _};

use super::rows::numbered;
use super::*;
use crate::machine::Machine;

const VALUE_BYTES: usize = 1 << 20;

/// Bytes of values that are held, and the most of them.
#[derive(Default)]
struct Held {
    now: AtomicUsize,
    at_most: AtomicUsize,
}

/// A row that was read.
struct Row(Vec<u8>, Arc<Held>);

impl Row {
    fn read(held: &Arc<Held>) -> Bytes {
        let now = VALUE_BYTES + held.now.fetch_add(VALUE_BYTES, Ordering::Relaxed);
        held.at_most.fetch_max(now, Ordering::Relaxed);
        // Revision and end, and the value.
        Bytes::from_owner(Self(vec![0; 16 + VALUE_BYTES], Arc::clone(held)))
    }
}

impl AsRef<[u8]> for Row {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        self.1.now.fetch_sub(VALUE_BYTES, Ordering::Relaxed);
    }
}

/// A storage in which every key that begins with `large` has a value of a mebibyte, of which every look makes a copy.
#[derive(Default)]
struct Large {
    rows: Memory,
    held: Arc<Held>,
    committed: u64,
}

impl Rows for Large {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        match table == Table::Keys && key.starts_with(b"large") {
            true => Ok(Some(Row::read(&self.held))),
            false => self.rows.get(table, key),
        }
    }

    fn scan(&self, table: Table, start: &[u8], end: Option<&[u8]>, each: &mut EachRow<'_>) -> Result<(), StorageError> {
        self.rows.scan(table, start, end, each)
    }
}

impl Storage for Large {
    fn put(&mut self, table: Table, key: Bytes, value: Bytes) -> Result<(), StorageError> {
        self.rows.put(table, key, value)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), StorageError> {
        self.rows.delete(table, key)
    }

    fn commit(&mut self, applied: u64) -> Result<(), StorageError> {
        self.committed = applied;
        self.rows.commit(applied)
    }

    fn applied(&self) -> u64 {
        self.committed
    }

    fn view(&self) -> Arc<dyn Rows + Send + Sync> {
        self.rows.view()
    }

    fn clear(&mut self) -> Result<(), StorageError> {
        self.rows.clear()
    }
}

fn large(number: usize) -> Bytes {
    format!("large{number}").into()
}

fn entry(index: u64, data: Bytes) -> Entry {
    Entry { index, term: 1, kind: EntryKind::Command, time_millis: 10, data }
}

/// Those who watch may be told what was there; one transaction, and all commands of a batch, held it of all that they changed: a gibibyte and
/// more.
#[test]
fn what_was_there_before_is_not_held_where_the_history_would_not_keep_it() {
    let mut storage = Large::default();
    let held = Arc::clone(&storage.held);
    for number in 0..EXPIRED_MAX {
        storage.put(Table::Expiries, numbered(1, &large(number)), Bytes::new()).unwrap();
    }
    let mut machine = Machine::new(storage).unwrap();
    let history = machine.shown().history;
    let all = WatchOptions { end: Some("m".into()), with_previous: true, ..WatchOptions::default() };
    let mut watcher = history.watch(all).unwrap();
    let deletes = write((0..1_024).map(|number| Operation::Delete { key: large(number) }).collect());
    let each = (0..100).map(|number| write(vec![Operation::Delete { key: large(number) }]));
    let mut index = 0;
    for batch in [vec![deletes], each.collect(), vec![Command::Expire.encode()]] {
        for data in batch {
            index += 1;
            assert!(machine.apply(&entry(index, data)).unwrap().outcome.is_ok());
        }
        machine.applied(index);
        let at_most = held.at_most.swap(0, Ordering::Relaxed) / VALUE_BYTES;
        assert!((30..36).contains(&at_most), "{at_most} MiB up to entry {index}");
        assert_eq!(held.now.load(Ordering::Relaxed), 0, "the history keeps nothing of it");
        // Nobody is told of it without what was there.
        assert_eq!(watcher.step().unwrap_err().0, index + 1);
        watcher = history.watch(watcher.options().clone()).unwrap();
    }
    index += 1;
    machine.apply(&entry(index, write(vec![Operation::Delete { key: large(0) }]))).unwrap();
    machine.applied(index);
    let events = watcher.step().unwrap().events;
    assert_eq!(events[0].previous.as_ref().map(Bytes::len), Some(VALUE_BYTES));
}

/// Few bytes in the log wrote a gibibyte.
#[test]
fn a_transaction_attaches_values_of_so_many_bytes_and_a_batch_is_committed_before_it_is_too_large() {
    let mut state = State::new(Large::default()).unwrap();
    let attach = |count| {
        let attaches = (0..count).map(|number| Operation::Attach { key: large(number), lease: 1 });
        write(attaches.collect())
    };
    let grant = write(vec![Operation::Grant { ttl_millis: 1_000 }]);
    let mut indexes = 1..;
    let [granted, refused, first, second] = [grant, attach(65), attach(64), attach(1)]
        .map(|data| state.apply(indexes.next().unwrap(), 1, 0, data).unwrap().outcome);
    assert!(granted.is_ok() && first.is_ok() && second.is_ok());
    assert_eq!(refused, Err(Refusal::AnswerTooLarge));
    assert_eq!(state.committed(), 3);
}

#[test]
fn a_member_that_nobody_asked_reads_nothing_for_a_reply() {
    let storage = Large::default();
    let held = Arc::clone(&storage.held);
    let mut machine = Machine::new(storage).unwrap();
    let gets = entry(1, write((0..3).map(|number| Operation::Get { key: large(number) }).collect()));
    machine.apply_unasked(&gets);
    assert_eq!(held.at_most.load(Ordering::Relaxed), 0);
    assert_eq!(machine.apply(&gets).unwrap().outcome.unwrap().results.len(), 3);
}

proptest! {
    #[test]
    fn a_member_that_nobody_asked_has_the_same_state(commands in vec((command(), 0_u64..30), 0..40)) {
        let (mut asked, mut unasked) = (state(), state());
        let mut time = 0;
        for (index, (command, passed)) in (1..).zip(commands) {
            time += passed;
            let data = command.encode();
            asked.apply(index, 1, time, data.clone()).unwrap();
            unasked.apply_unasked(index, 1, time, data).unwrap();
            for state in [&mut asked, &mut unasked] {
                state.commit(index).unwrap();
            }
        }
        prop_assert_eq!(asked.take_changes(), unasked.take_changes());
        prop_assert_eq!(bytes_of(&asked), bytes_of(&unasked));
    }
}
