//! A stream to a member: what waits together is sent in one frame, and whoever waits hears when the stream is over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use crate::Error;
use crate::grpc::{Answers, Channel, GrpcError, Questions};
use crate::pulse::Pulse;
use crate::wire::{self, request::Body};

const OPERATE: &str = "/storebench.dengine.v1.Store/Operate";

/// How long the reason may take why nothing can be sent any more.
const LAST_WORD: Duration = Duration::from_millis(200);
/// Requests that wait to be sent on a stream.
const WAITING_MAX: usize = 4096;
/// Requests of one frame.
const FRAME_REQUESTS_MAX: usize = 1024;
/// So many may have been given up before it is looked who has.
const GIVEN_UP_MAX: usize = 1024;

type Waiter = oneshot::Sender<Result<wire::Reply, Error>>;

/// A stream to a member.
pub(crate) struct Link {
    requests: mpsc::Sender<(Body, Waiter)>,
    waiting: Arc<Mutex<Waiting>>,
    pulse: Arc<Pulse>,
}

/// Who waits for replies.
struct Waiting {
    waiters: HashMap<u64, Waiter>,
    is_closed: bool,
    /// When there are so many, those are taken out who have given up.
    sweep_at: usize,
    pulse: Arc<Pulse>,
}

impl Waiting {
    fn new(pulse: Arc<Pulse>) -> Self {
        Self { waiters: HashMap::new(), is_closed: false, sweep_at: GIVEN_UP_MAX, pulse }
    }

    fn insert(&mut self, id: u64, waiter: Waiter) {
        if self.waiters.len() >= self.sweep_at {
            let before = self.waiters.len();
            self.waiters.retain(|_, waiter| !waiter.is_closed());
            self.pulse.answered(before - self.waiters.len());
            self.sweep_at = 2 * self.waiters.len() + GIVEN_UP_MAX;
        }
        self.waiters.insert(id, waiter);
        self.pulse.asked(1);
    }

    fn remove(&mut self, id: u64) -> Option<Waiter> {
        let waiter = self.waiters.remove(&id)?;
        self.pulse.answered(1);
        Some(waiter)
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells everybody that nobody knows.
fn close(waiting: &Mutex<Waiting>, why: Error) {
    let mut waiting = lock(waiting);
    waiting.is_closed = true;
    for (_, waiter) in waiting.waiters.drain() {
        // Who waits no longer does not want to know.
        let _ = waiter.send(Err(why.clone()));
    }
}

fn lost(error: &GrpcError) -> Error {
    Error::UnknownOutcome(error.to_string())
}

impl Link {
    pub(crate) async fn open(channel: Channel) -> Result<Self, GrpcError> {
        let (questions, answers) = channel.stream(OPERATE, &wire::Requests::default(), false).await?;
        let pulse = Arc::clone(channel.pulse());
        let waiting = Arc::new(Mutex::new(Waiting::new(Arc::clone(&pulse))));
        let (requests, receiver) = mpsc::channel(WAITING_MAX);
        tokio::spawn(write(receiver, questions, Arc::clone(&waiting)));
        tokio::spawn(read(answers, Arc::clone(&waiting)));
        Ok(Self { requests, waiting, pulse })
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.waiting).is_closed
    }

    /// Whether the member has not answered for a while.
    pub(crate) fn is_quiet(&self) -> bool {
        self.pulse.is_quiet()
    }

    pub(crate) async fn call(&self, body: Body) -> Result<wire::Reply, Error> {
        let (waiter, reply) = oneshot::channel();
        let sent = self.requests.send((body, waiter)).await;
        sent.map_err(|_| Error::Unreachable("the connection has ended".into()))?;
        reply.await.unwrap_or_else(|_| Err(Error::UnknownOutcome("the connection has ended".into())))
    }
}

async fn write(
    mut requests: mpsc::Receiver<(Body, Waiter)>,
    mut questions: Questions<wire::Requests>,
    waiting: Arc<Mutex<Waiting>>,
) {
    let mut next_id = 0;
    let mut taken = Vec::with_capacity(FRAME_REQUESTS_MAX);
    while requests.recv_many(&mut taken, FRAME_REQUESTS_MAX).await > 0 {
        let mut frame = wire::Requests::default();
        {
            let mut waiting = lock(&waiting);
            if waiting.is_closed {
                for (_, waiter) in taken.drain(..) {
                    let _ = waiter.send(Err(Error::Unreachable("the connection has ended".into())));
                }
                return;
            }
            for (body, waiter) in taken.drain(..) {
                next_id += 1;
                waiting.insert(next_id, waiter);
                frame.requests.push(wire::Request { id: next_id, body: Some(body) });
            }
        }
        if let Err(error) = questions.send(&frame).await {
            // Who reads hears why, most of the time.
            sleep(LAST_WORD).await;
            return close(&waiting, lost(&error));
        }
    }
    // The client was dropped: nobody waits.
}

async fn read(mut answers: Answers<wire::Replies>, waiting: Arc<Mutex<Waiting>>) {
    loop {
        match answers.next().await {
            Ok(Some(frame)) => {
                let mut waiting = lock(&waiting);
                for reply in frame.replies {
                    if let Some(waiter) = waiting.remove(reply.id) {
                        let _ = waiter.send(Ok(reply));
                    }
                }
            }
            Ok(None) => return close(&waiting, Error::UnknownOutcome("the member has ended the stream".into())),
            Err(error) => return close(&waiting, error.denied().unwrap_or_else(|| lost(&error))),
        }
    }
}
