//! One look at a future, for tests of who waits for whom.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// What it comes to, if it is ready now.
pub fn polled<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
