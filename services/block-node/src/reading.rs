//! What several ask for at the same moment, a block or what is made of one, is fetched once for all of them.
//!
//! The first who asks for something fetches it, and the others wait for what comes of that. Where the first goes away meanwhile, or fails, the
//! next one of them fetches: nobody is told of an error that he has not met himself. What came is not kept beyond those who asked for it;
//! what stays in memory is decided in [`crate::recent`], and by who fetches.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::OnceCell;

type UnderWay<K, T> = BTreeMap<K, Weak<OnceCell<T>>>;

/// What is being fetched, by what tells it from everything else.
pub struct Reading<K: Ord, T>(Mutex<UnderWay<K, T>>);

impl<K: Ord, T> Default for Reading<K, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// One of those who ask for something. The last of them takes its entry away.
struct Asking<'a, K: Ord, T> {
    reading: &'a Reading<K, T>,
    key: &'a K,
    cell: Option<Arc<OnceCell<T>>>,
}

impl<K: Ord, T> Drop for Asking<'_, K, T> {
    fn drop(&mut self) {
        let mut under_way = self.reading.lock();
        // Within the lock: of two who leave at once one must see that it is the last.
        drop(self.cell.take());
        if under_way.get(self.key).is_some_and(|cell| cell.strong_count() == 0) {
            under_way.remove(self.key);
        }
    }
}

impl<K: Ord, T> Reading<K, T> {
    fn lock(&self) -> MutexGuard<'_, UnderWay<K, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Clone, T> Reading<K, T> {
    fn cell(&self, key: &K) -> Arc<OnceCell<T>> {
        let mut under_way = self.lock();
        let known = under_way.get(key).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let cell = Arc::default();
            under_way.insert(key.clone(), Arc::downgrade(&cell));
            cell
        })
    }
}

impl<K: Ord + Clone, T: Clone> Reading<K, T> {
    /// Fetches this, or waits for who does.
    pub async fn once<E, F>(&self, key: K, fetch: impl FnOnce() -> F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
    {
        // Nobody but this holds it: where it is dropped half-way what it has taken away is gone.
        let asking = Asking { reading: self, key: &key, cell: Some(self.cell(&key)) };
        match &asking.cell {
            Some(cell) => cell.get_or_try_init(fetch).await.cloned(),
            None => fetch().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;

    use tokio::sync::Notify;

    use super::*;
    use crate::polled::polled;

    /// A disk that counts, and reads when it is told to.
    #[derive(Default)]
    struct Disk {
        reads: Cell<u32>,
        go: Notify,
    }

    impl Disk {
        async fn read(&self, result: Result<u32, &'static str>) -> Result<u32, &'static str> {
            self.reads.set(self.reads.get() + 1);
            self.go.notified().await;
            result
        }
    }

    #[test]
    fn two_who_want_the_same_block_at_the_same_moment_read_it_once() {
        let (disk, reading) = (Disk::default(), Reading::default());
        let mut one = pin!(reading.once(5, || disk.read(Ok(50))));
        let mut two = pin!(reading.once(5, || disk.read(Ok(51))));
        let mut other = pin!(reading.once(6, || disk.read(Ok(60))));
        assert_eq!((polled(one.as_mut()), polled(two.as_mut()), disk.reads.get()), (None, None, 1));
        assert_eq!((polled(other.as_mut()), disk.reads.get()), (None, 2), "another block waits for nobody");
        disk.go.notify_waiters();
        assert_eq!((polled(one), polled(two), polled(other)), (Some(Ok(50)), Some(Ok(50)), Some(Ok(60))));
        assert_eq!((disk.reads.get(), reading.lock().len()), (2, 0), "nothing is kept");
        assert_eq!(polled(pin!(reading.once(5, || disk.read(Ok(52))))), None);
        assert_eq!(
            (disk.reads.get(), reading.lock().len()),
            (3, 0),
            "later it is read again; who goes away leaves nothing"
        );
    }

    #[test]
    fn who_waits_reads_itself_where_the_first_goes_away_or_fails() {
        let (disk, reading) = (Disk::default(), Reading::default());
        let mut gone = Box::pin(reading.once(5, || disk.read(Ok(50))));
        let mut failing = pin!(reading.once(5, || disk.read(Err("it cannot be read"))));
        let mut last = pin!(reading.once(5, || disk.read(Ok(52))));
        assert_eq!((polled(gone.as_mut()), polled(failing.as_mut()), polled(last.as_mut())), (None, None, None));
        drop(gone);
        assert_eq!((polled(last.as_mut()), polled(failing.as_mut()), disk.reads.get()), (None, None, 2));
        disk.go.notify_waiters();
        assert_eq!(polled(failing), Some(Err("it cannot be read")));
        assert_eq!((polled(last.as_mut()), disk.reads.get()), (None, 3), "an error is told to who has met it");
        disk.go.notify_waiters();
        assert_eq!((polled(last), reading.lock().len()), (Some(Ok(52)), 0));
    }
}
