//! What threads share is locked as it is, even if one of them panicked meanwhile: no map or count here is ever half changed.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A panic elsewhere does not make what is in it wrong.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
