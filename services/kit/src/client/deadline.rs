//! A time limit on each request that costs no timer operation per request.
//!
//! One timer per client is armed once and left alone. When it fires and the request of that moment is not yet due, it
//! is armed anew for that request's instant. So a request that is answered in time, which is nearly every one, neither
//! enters nor leaves the runtime's timer wheel.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

/// The time limit of one client's requests, one at a time.
#[derive(Debug)]
pub struct Deadline {
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

/// The limit has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl Deadline {
    /// A limit for each request.
    pub fn new(limit: Duration) -> Self {
        Self { limit, timer: None }
    }

    /// The limit.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Runs one request; drops it when the limit has passed. Needs a tokio runtime with time enabled.
    pub async fn run<F: Future>(&mut self, request: F) -> Result<F::Output, Elapsed> {
        let due = Instant::now() + self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        let mut request = pin!(request);
        poll_fn(|context| {
            if let Poll::Ready(output) = request.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            while timer.as_mut().poll(context).is_ready() {
                if timer.deadline() >= due || Instant::now() >= due {
                    return Poll::Ready(Err(Elapsed));
                }
                timer.as_mut().reset(due);
            }
            Poll::Pending
        })
        .await
    }
}

/// Runs an exchange that has a second more for so many bytes of which `came` tells.
pub(super) async fn paced<F: Future>(
    exchange: F,
    limit: Duration,
    pace: u32,
    came: &AtomicUsize,
) -> Result<F::Output, Elapsed> {
    let began = Instant::now();
    let mut exchange = pin!(exchange);
    loop {
        let before = came.load(Ordering::Relaxed);
        let due = began + limit + Duration::from_secs_f64(before as f64 / f64::from(pace.max(1)));
        match timeout_at(due, exchange.as_mut()).await {
            Ok(output) => return Ok(output),
            Err(_) if came.load(Ordering::Relaxed) > before => {}
            Err(_) => return Err(Elapsed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::sleep;

    fn block_on<F: Future>(future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(future)
    }

    #[test]
    fn each_request_has_the_whole_limit() {
        block_on(async {
            let mut deadline = Deadline::new(Duration::from_millis(200));
            // Together longer than the limit, each shorter.
            for _ in 0..4 {
                assert_eq!(deadline.run(sleep(Duration::from_millis(80))).await, Ok(()));
            }
            let start = Instant::now();
            assert_eq!(deadline.run(std::future::pending::<()>()).await, Err(Elapsed));
            let waited = start.elapsed();
            assert!(waited >= Duration::from_millis(200), "gave up after {waited:?}");
            // What comes gives an exchange more time, and only as much as it is.
            let came = AtomicUsize::new(0);
            let trickled = async {
                for _ in 0..10 {
                    sleep(Duration::from_millis(50)).await;
                    came.fetch_add(1_000, Ordering::Relaxed);
                }
            };
            assert_eq!(paced(trickled, Duration::from_millis(200), 100, &came).await, Ok(()));
            let endless = async {
                loop {
                    sleep(Duration::from_millis(20)).await;
                    came.fetch_add(1, Ordering::Relaxed);
                }
            };
            came.store(0, Ordering::Relaxed);
            assert_eq!(paced(endless, Duration::from_millis(200), 1_000, &came).await, Err::<(), _>(Elapsed));
            // And after one that ran out, the next has its whole limit again.
            assert_eq!(deadline.run(sleep(Duration::from_millis(50))).await, Ok(()));
        });
    }
}
