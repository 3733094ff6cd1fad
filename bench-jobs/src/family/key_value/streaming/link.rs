//! A stream that the clients of one connection share: what they ask in the same moment leaves in one frame, and each answer goes to who asked
//! for it, in whatever order they come.
//!
//! Promises: every request ends in its own answer or in a failure, also when the stream ends; a failure says that the request has not
//! happened only where it was never sent. Nothing is sent twice.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use prost::Message as _;
use service_kit::client::{Channel, GrpcError, StreamReceiver, StreamSender};
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_local;

use super::messages::{Answer, Asked, Replies, Reply, Request, Requests};
use crate::failure::Failure;

const OPERATE: &str = "/storebench.dengine.v1.Store/Operate";
/// Requests that wait to leave; who has more to ask waits until there is room. Also the most in a frame.
const WAITING_MAX: usize = 1024;
/// A frame is closed when it has so many bytes: d-engine ends a stream that sends it 8 MiB in one, and the largest value has one.
const FRAME_BYTES_MAX: usize = 1 << 20;
/// Requests without an answer, those included whose clients gave up and went on. A store that leaves more is not waited for.
const UNANSWERED_MAX: usize = 65_536;

/// The index of the log that an answer is of, and the answer.
pub(super) type Answered = Result<(u64, Answer), Failure>;
type Waiter = oneshot::Sender<Answered>;

/// A stream of a connection. Clones are the same one; it ends with the last of them.
#[derive(Clone, Debug)]
pub(in super::super) struct Link {
    requests: mpsc::Sender<(Asked, Waiter)>,
    endpoint: Rc<str>,
}

impl Link {
    /// A stream on a connection to `endpoint`, opened with the first request. Needs a runtime of one thread.
    pub(in super::super) fn new(channel: &Channel, endpoint: &Rc<str>) -> Self {
        let (requests, receiver) = mpsc::channel(WAITING_MAX);
        spawn_local(drive(channel.clone(), Rc::clone(endpoint), receiver));
        Self { requests, endpoint: Rc::clone(endpoint) }
    }

    /// Asks, and waits for the answer without a limit.
    pub(super) async fn ask(&self, asked: Asked) -> Answered {
        let (waiter, answer) = oneshot::channel();
        let over = || failure(&self.endpoint, &"the stream has ended");
        self.requests.send((asked, waiter)).await.map_err(|_| over().without_effect())?;
        answer.await.unwrap_or_else(|_| Err(over()))
    }
}

/// What went wrong, and where.
pub(super) fn failure(endpoint: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(format_args!("streaming RPC at {endpoint}: {error}"))
}

/// Whoever was sent and has no answer, by the number of the request.
#[derive(Default)]
struct Waiting {
    waiters: HashMap<u64, Waiter>,
    last_id: u64,
}

impl Waiting {
    /// A frame of the first of these requests, which wait from now on.
    fn frame(&mut self, taken: &mut VecDeque<(Asked, Waiter)>) -> Requests {
        let (mut frame, mut bytes) = (Requests::default(), 0);
        while bytes < FRAME_BYTES_MAX
            && let Some((asked, waiter)) = taken.pop_front()
        {
            self.last_id += 1;
            self.waiters.insert(self.last_id, waiter);
            let request = Request { id: self.last_id, body: Some(asked) };
            bytes += request.encoded_len();
            frame.requests.push(request);
        }
        frame
    }

    /// Hands an answer to who waits for it, if anybody still does.
    fn answer(&mut self, Reply { id, index, body }: Reply) -> Result<(), String> {
        if id == 0 || id > self.last_id {
            return Err(format!("an answer to request {id}, which was not sent"));
        }
        let body = body.ok_or_else(|| format!("an empty answer to request {id}"))?;
        if let Some(waiter) = self.waiters.remove(&id) {
            // Who has given up does not want to know.
            let _ = waiter.send(Ok((index, body)));
        }
        Ok(())
    }
}

/// Drives the stream until nobody can ask any more, or it breaks.
async fn drive(mut channel: Channel, endpoint: Rc<str>, mut requests: mpsc::Receiver<(Asked, Waiter)>) {
    let mut waiting = Waiting::default();
    let Err(error) = exchange(&mut channel, &mut requests, &mut waiting).await else { return };
    let broken = failure(&endpoint, &error);
    for (_, waiter) in waiting.waiters {
        let _ = waiter.send(Err(broken.clone()));
    }
    requests.close();
    while let Ok((_, waiter)) = requests.try_recv() {
        let _ = waiter.send(Err(broken.clone().without_effect()));
    }
}

async fn exchange(
    channel: &mut Channel,
    requests: &mut mpsc::Receiver<(Asked, Waiter)>,
    waiting: &mut Waiting,
) -> Result<(), String> {
    let text = |error: GrpcError| error.to_string();
    let mut come = Vec::with_capacity(WAITING_MAX);
    if requests.recv_many(&mut come, WAITING_MAX).await == 0 {
        return Ok(());
    }
    let mut taken: VecDeque<(Asked, Waiter)> = come.drain(..).collect();
    let call = channel.call(OPERATE);
    let opened = channel.stream(&call, &waiting.frame(&mut taken)).await;
    let (mut sender, mut replies): (StreamSender<Requests>, StreamReceiver<Replies>) = opened.map_err(text)?;
    loop {
        while !taken.is_empty() {
            sender.queue(&waiting.frame(&mut taken)).map_err(text)?;
        }
        if waiting.waiters.len() > UNANSWERED_MAX {
            return Err(format!("{UNANSWERED_MAX} requests are without an answer"));
        }
        tokio::select! {
            biased;
            told = replies.next() => {
                let told = told.map_err(text)?.ok_or("the store has ended the stream")?;
                told.replies.into_iter().try_for_each(|reply| waiting.answer(reply))?;
            }
            count = requests.recv_many(&mut come, WAITING_MAX) => {
                if count == 0 {
                    return Ok(());
                }
                taken.extend(come.drain(..));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::messages::{Found, What, Written};
    use super::*;

    fn asked(waiting: &mut Waiting, count: usize) -> (Requests, Vec<oneshot::Receiver<Answered>>) {
        let read = || Asked::Read(super::super::messages::Read { level: None, what: Some(What::Get("k".into())) });
        let (mut taken, answers): (VecDeque<_>, Vec<_>) =
            (0..count).map(|_| oneshot::channel()).map(|(waiter, answer)| ((read(), waiter), answer)).unzip();
        (waiting.frame(&mut taken), answers)
    }

    fn reply(id: u64, index: u64, body: Answer) -> Reply {
        Reply { id, index, body: Some(body) }
    }

    #[test]
    fn answers_go_to_who_asked_in_whatever_order_they_come() {
        let mut waiting = Waiting::default();
        let (frame, mut answers) = asked(&mut waiting, 2);
        assert_eq!(frame.requests.iter().map(|request| request.id).collect::<Vec<_>>(), [1, 2]);
        let (written, found) = (Answer::Written(Written::default()), Answer::Found(Found::default()));
        waiting.answer(reply(2, 8, found.clone())).unwrap();
        assert!(answers[0].try_recv().is_err(), "it has no answer yet");
        waiting.answer(reply(1, 9, written.clone())).unwrap();
        assert_eq!(answers[0].try_recv().unwrap(), Ok((9, written)));
        assert_eq!(answers[1].try_recv().unwrap(), Ok((8, found)));
        assert!(waiting.waiters.is_empty());
    }

    #[test]
    fn a_frame_of_large_values_is_closed_before_a_store_refuses_it() {
        let large =
            || Asked::Read(super::super::messages::Read { level: None, what: Some(What::Get(vec![0; 300 << 10])) });
        let mut taken: VecDeque<_> = (0..10).map(|_| (large(), oneshot::channel().0)).collect();
        let mut waiting = Waiting::default();
        let frames: Vec<usize> =
            std::iter::from_fn(|| (!taken.is_empty()).then(|| waiting.frame(&mut taken).requests.len())).collect();
        assert_eq!(frames, [4, 4, 2]);
        assert_eq!(waiting.waiters.len(), 10);
    }

    #[test]
    fn an_answer_that_came_too_late_is_nobodys() {
        let mut waiting = Waiting::default();
        let (_, answers) = asked(&mut waiting, 1);
        drop(answers);
        assert_eq!(waiting.answer(reply(1, 1, Answer::Found(Found::default()))), Ok(()));
        assert!(waiting.waiters.is_empty());
    }

    #[test]
    fn answers_to_what_nobody_asked_and_empty_ones_end_the_stream() {
        let mut waiting = Waiting::default();
        let (_, _answers) = asked(&mut waiting, 1);
        for id in [0, 2, u64::MAX] {
            let said = waiting.answer(reply(id, 1, Answer::Found(Found::default()))).unwrap_err();
            assert!(said.contains("which was not sent"), "{said}");
        }
        let said = waiting.answer(Reply { id: 1, index: 1, body: None }).unwrap_err();
        assert!(said.contains("an empty answer"), "{said}");
    }
}
