//! What readers ask of a view.

use std::ops::ControlFlow;

use bytes::Bytes;
use d_engine_client::{Answer, KeyValue, Query, Scan};

use super::codec::Malformed;
use super::rows::{Value, numbers};
use super::storage::{Rows, StorageError, Table};

/// Keys of a page, if the client does not say.
const PAGE_DEFAULT: usize = 1000;
/// Keys of a page at most.
const PAGE_MAX: usize = 100_000;
/// A page ends before it is larger than this, bytes; but it has one key.
const PAGE_BYTES_MAX: usize = 4 << 20;
/// What several keys have at most, bytes.
const MANY_BYTES_MAX: usize = 16 << 20;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// Where tables lie.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The answer is too large.
    #[error("the keys have more than 16 MiB: ask for fewer at a time")]
    TooLarge,
}

impl From<Malformed> for QueryError {
    fn from(error: Malformed) -> Self {
        Self::Storage(StorageError(error.to_string()))
    }
}

/// Answers of a view: those keys that exist.
pub fn answer(rows: &dyn Rows, query: &Query) -> Result<Answer, QueryError> {
    match query {
        Query::Get(key) => {
            let mut answer = Answer::default();
            if let Some(row) = rows.get(Table::Keys, key)? {
                answer.items.push(Value::decode(&row)?.of_key(key));
            }
            Ok(answer)
        }
        Query::GetMany(keys) => {
            let mut answer = Answer::default();
            let mut bytes = 0;
            for key in keys {
                if let Some(row) = rows.get(Table::Keys, key)? {
                    bytes += key.len() + row.len();
                    answer.items.push(Value::decode(&row)?.of_key(key));
                }
                if bytes > MANY_BYTES_MAX {
                    return Err(QueryError::TooLarge);
                }
            }
            Ok(answer)
        }
        Query::Scan(scan) => page(rows, scan),
    }
}

/// Bytes of keys and values.
pub fn bytes_of(items: &[KeyValue]) -> usize {
    items.iter().map(|item| item.key.len() + item.value.len()).sum()
}

/// Keys of a page at most.
pub(super) fn page_keys(scan: &Scan) -> usize {
    if scan.limit == 0 { PAGE_DEFAULT } else { (scan.limit as usize).min(PAGE_MAX) }
}

fn page(rows: &dyn Rows, scan: &Scan) -> Result<Answer, QueryError> {
    let limit = page_keys(scan);
    let Scan { start, end, after, keys_only, .. } = scan;
    // The first key behind `after` is that key and a zero.
    let behind = after.as_ref().map(|after| [after, &[0][..]].concat());
    let first = behind.as_deref().map_or(&**start, |behind| behind.max(start));
    let mut answer = Answer::default();
    let (mut bytes, mut damaged) = (0, None);
    rows.scan(Table::Keys, first, end.as_deref(), &mut |key, row| {
        bytes += key.len() + if *keys_only { 0 } else { row.len() };
        let is_full = answer.items.len() >= limit || bytes > PAGE_BYTES_MAX;
        if is_full && !answer.items.is_empty() {
            answer.has_more = true;
            return ControlFlow::Break(());
        }
        match Value::decode(row) {
            Ok(mut value) => {
                if *keys_only {
                    value.value = Bytes::new();
                }
                answer.items.push(value.of_key(key));
                ControlFlow::Continue(())
            }
            Err(error) => {
                damaged = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    damaged.map_or(Ok(answer), |error| Err(error.into()))
}

/// When the next key or lease ends, or a session may, milliseconds since 1970.
pub fn next_expiry(rows: &dyn Rows) -> Result<Option<u64>, StorageError> {
    let mut next = None::<u64>;
    let tables = [(Table::Expiries, 0), (Table::LeaseEnds, 0), (Table::Idle, super::bounds::IDLE_MILLIS + 1)];
    for (table, later) in tables {
        rows.scan(table, &[], None, &mut |row, _| {
            let time = numbers(&row[..row.len().min(8)]).0.saturating_add(later);
            next = Some(next.map_or(time, |next| next.min(time)));
            ControlFlow::Break(())
        })?;
    }
    Ok(next)
}
