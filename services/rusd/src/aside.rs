//! Work that takes long and that clients may ask for in any number: passwords, reads of very many keys, hashes of everything.
//!
//! Promises: each kind of it has so many threads and no more, which come after everything else that the server does; who gives up while he
//! waits for his turn costs nothing. So those who ask for much slow down each other, and others little.

use std::io;
use std::sync::Arc;
use std::thread;

use futures::executor::block_on;
use service_kit::grpc::{Code, Status};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// About a third of the processor that others get who want it at the same time.
const NICE: i32 = 5;

/// Threads for one kind of work.
#[derive(Debug)]
pub struct Aside {
    name: &'static str,
    turns: Arc<Semaphore>,
}

/// Leave to work.
#[derive(Debug)]
pub struct Turn {
    name: &'static str,
    permit: OwnedSemaphorePermit,
}

impl Aside {
    /// So many threads of this name.
    pub fn new(name: &'static str, threads: usize) -> Self {
        Self { name, turns: Arc::new(Semaphore::new(threads)) }
    }

    /// As many threads of this name as half of the processors.
    pub fn on_half_of_the_processors(name: &'static str) -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self::new(name, (processors / 2).max(1))
    }

    /// Waits for a turn: who came first has it first.
    pub async fn turn(&self) -> Result<Turn, Status> {
        let permit = Arc::clone(&self.turns).acquire_owned().await;
        Ok(Turn { name: self.name, permit: permit.map_err(|_| interrupted(self.name))? })
    }

    /// Does such work when it is its turn.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
        self.turn().await?.run(work).await
    }

    /// The same, with what is taken when it is its turn and not before: who waits keeps nothing of the state from being freed.
    pub async fn run_with<S: Send + 'static, T: Send + 'static>(
        &self,
        take: impl FnOnce() -> Result<S, Status>,
        work: impl FnOnce(S) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let turn = self.turn().await?;
        let taken = take()?;
        turn.run(move || work(taken)).await
    }

    /// Does such work when it is its turn, for who waits on no runtime: a thread waits. Who calls this sees to it that there are few.
    pub fn begin(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let turns = Arc::clone(&self.turns);
        let thread = thread::Builder::new().name(self.name.into()).spawn(move || {
            be_nice();
            // Nobody takes the turns away.
            if let Ok(_turn) = block_on(turns.acquire_owned()) {
                work();
            }
        });
        thread.map(drop)
    }

    /// What who waits hears of work that has ended without a result.
    pub fn interrupted(&self) -> Status {
        interrupted(self.name)
    }

    /// What who asks hears of work that cannot be begun.
    pub fn without_thread(&self, error: &io::Error) -> Status {
        without_thread(self.name, error)
    }
}

impl Turn {
    /// Does the work; to its end, also when nobody waits for it any more.
    pub async fn run<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
        let Self { name, permit } = self;
        let (done, result) = oneshot::channel();
        // A thread of its own: one that has become nice stays so.
        let thread = thread::Builder::new().name(name.into()).spawn(move || {
            be_nice();
            // Nobody may be there to hear it.
            let _ = done.send(work());
            drop(permit);
        });
        thread.map_err(|error| without_thread(name, &error))?;
        result.await.map_err(|_| interrupted(name))
    }
}

/// Of this thread alone, on Linux. Where it cannot be had it is done without.
fn be_nice() {
    let _ = rustix::process::nice(NICE);
}

fn without_thread(name: &str, error: &io::Error) -> Status {
    Status::new(Code::Unavailable, format!("rusd: there is no thread for {name}: {error}"))
}

fn interrupted(name: &str) -> Status {
    Status::new(Code::Internal, format!("rusd: {name} was interrupted"))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::Duration;

    use futures::future::join_all;

    use super::*;

    /// Five hundred logins with a wrong password had all processors for themselves, also when the clients had gone.
    #[tokio::test]
    async fn as_many_work_as_may_and_none_for_who_has_gone() {
        let aside = Aside::new("test", 2);
        let (under_way, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let pair = Arc::new(Barrier::new(2));
        let in_pairs = (0..20).map(|_| {
            let (under_way, most, pair) = (Arc::clone(&under_way), Arc::clone(&most), Arc::clone(&pair));
            aside.run(move || {
                most.fetch_max(1 + under_way.fetch_add(1, SeqCst), SeqCst);
                pair.wait();
                under_way.fetch_sub(1, SeqCst);
            })
        });
        assert!(join_all(in_pairs).await.iter().all(Result::is_ok));
        assert_eq!(most.load(SeqCst), 2);

        let done = Arc::new(AtomicUsize::new(0));
        let slow = || {
            let done = Arc::clone(&done);
            aside.run(move || {
                thread::sleep(Duration::from_millis(5));
                done.fetch_add(1, SeqCst);
            })
        };
        let (first, others) = (join_all((0..2).map(|_| slow())), join_all((0..100).map(|_| slow())));
        tokio::select! { biased; _ = first => {} _ = others => {} }
        slow().await.unwrap();
        assert!(done.load(SeqCst) < 10, "{done:?} were done, and 100 had given up");
    }

    /// Two hundred that asked for the keys of a lease and waited kept each state that was the newest when they asked.
    #[tokio::test]
    async fn what_work_needs_is_taken_when_it_is_its_turn() {
        let aside = Aside::new("test", 1);
        let newest = AtomicUsize::new(1);
        let take = || Ok(newest.load(SeqCst));
        let turn = aside.turn().await.unwrap();
        let waits = aside.run_with(take, |taken| taken);
        let goes_on = async {
            newest.store(2, SeqCst);
            turn.run(|| {}).await
        };
        let (taken, done) = futures::join!(waits, goes_on);
        assert_eq!((taken.unwrap(), done.is_ok()), (2, true));
        let refused = aside.run_with(|| Err::<(), _>(interrupted("it")), |()| {}).await;
        assert!(refused.is_err() && aside.run(|| {}).await.is_ok(), "the turn of who is refused is another's");
    }
}
