//! Answers on their way to a client that may not take them: what waits for it counts, and it has so long for each piece.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use tokio::time::{Instant, sleep, sleep_until};

use crate::grpc::call::Sender;
use crate::grpc::memory::Share;
use crate::grpc::requests::Coming;
use crate::grpc::status::{Code, Status};
use crate::http::Body;

/// Answers up to this size are handed over without asking whether the client has room; it is less than any window.
pub(crate) const SMALL_ANSWER_BYTES: usize = 32 << 10;

/// See [`Limits::answer_patience`](super::Limits::answer_patience).
pub(crate) const ANSWER_PIECE_BYTES: usize = 256 << 10;

/// Hands a message over, as the client takes it. An error: it takes too long for that; of one that has gone nothing is said.
pub(crate) async fn send(sender: &RefCell<Sender>, mut message: Bytes, patience: Duration) -> Result<(), Status> {
    let (mut still, mut left) = (pin!(sleep(patience)), message.len());
    poll_fn(|context| {
        // Whoever runs this sees when the client has gone. That is no success: a body without end would be made on for nobody.
        if let Poll::Ready(Ok(())) = sender.borrow_mut().poll_send(&mut message, context) {
            return Poll::Ready(Ok(()));
        }
        if left - message.len() >= ANSWER_PIECE_BYTES {
            left = message.len();
            still.as_mut().reset(Instant::now() + patience);
        }
        let late = || format!("grpc: {ANSWER_PIECE_BYTES} bytes of the answer were not taken within {patience:?}");
        still.as_mut().poll(context).map(|()| Err(Status::new(Code::DeadlineExceeded, late())))
    })
    .await
}

/// Answers a request that is no gRPC.
pub(crate) async fn answer_http(answer: Response<Body>, sender: &RefCell<Sender>, patience: Duration) {
    let (head, mut body) = answer.into_parts();
    let memory = sender.borrow().memory().clone();
    if let Body::Full(bytes) = body {
        let bytes = bytes.unwrap_or_default();
        let waiting = memory.take_answer(bytes.len());
        if waiting.is_err() && bytes.len() > SMALL_ANSWER_BYTES {
            return sender.borrow_mut().refuse(StatusCode::TOO_MANY_REQUESTS);
        }
        if sender.borrow_mut().begin_http(head).is_err() {
            return;
        }
        // Probes are small, and are answered whatever others do not take.
        let may_go = waiting.is_ok() || sender.borrow_mut().has_room(bytes.len());
        let is_whole = may_go && send(sender, bytes, patience).await.is_ok();
        return sender.borrow_mut().finish_http(is_whole);
    }
    if sender.borrow_mut().begin_http(head).is_err() {
        return;
    }
    while let Some(piece) = next_piece(&mut body, &memory).await {
        let Ok(_waiting) = memory.take_streamed(piece.len()) else {
            return sender.borrow_mut().finish_http(false);
        };
        if send(sender, piece, patience).await.is_err() {
            return sender.borrow_mut().finish_http(false);
        }
    }
    sender.borrow_mut().finish_http(true);
}

/// The next piece, which is not made before there is room for it.
async fn next_piece(body: &mut Body, memory: &Share) -> Option<Bytes> {
    in_turn(async || memory.stream_turn().await, |context| memory.may_stream().then(|| body.poll_piece(context))).await
}

/// What `poll` has to say when it is its turn then; `None`: others have taken that meanwhile, and it waits for the next.
pub(crate) async fn in_turn<T>(turn: impl AsyncFn(), mut poll: impl FnMut(&mut Context<'_>) -> Option<Poll<T>>) -> T {
    loop {
        turn().await;
        let said = poll_fn(|context| poll(context).map_or(Poll::Ready(None), |polled| polled.map(Some)));
        if let Some(said) = said.await {
            return said;
        }
    }
}

/// Sends an answer when it is there.
pub(crate) async fn answer_later(
    answer: impl Future<Output = Result<Bytes, Status>>,
    sender: Sender,
    (deadline, patience): (Option<Instant>, Duration),
    coming: Option<Coming>,
) {
    let sender = RefCell::new(sender);
    match run(answer, &sender, deadline, coming).await {
        Some(Ok(message)) if message.len() <= SMALL_ANSWER_BYTES && sender.borrow_mut().has_room(message.len()) => {
            let _ = sender.borrow_mut().answer(message);
        }
        Some(Ok(message)) => {
            if let Some(answer) = answer_long(message, sender, (deadline, patience)) {
                answer.await;
            }
        }
        Some(Err(status)) => sender.borrow_mut().finish(Err(status)),
        None => {}
    }
}

/// Takes room for an answer that waits for the client, and sends it; `None`: there is no room, which the client is told.
pub(crate) fn answer_long(
    message: Bytes,
    sender: RefCell<Sender>,
    (deadline, patience): (Option<Instant>, Duration),
) -> Option<impl Future<Output = ()>> {
    let waiting = sender.borrow().memory().take_answer(message.len());
    match waiting {
        Ok(waiting) => Some(async move {
            let _waiting = waiting;
            if let Some(result) = run(send(&sender, message, patience), &sender, deadline, None).await {
                sender.borrow_mut().finish(result);
            }
        }),
        Err(status) => {
            sender.borrow_mut().finish(Err(status));
            None
        }
    }
}

/// Runs what answers until the client waits no longer, or what comes of it must make room; `None`: it has gone.
pub(crate) async fn run<T>(
    answer: impl Future<Output = Result<T, Status>>,
    sender: &RefCell<Sender>,
    deadline: Option<Instant>,
    coming: Option<Coming>,
) -> Option<Result<T, Status>> {
    let answer = async {
        match deadline {
            None => answer.await,
            Some(deadline) => tokio::select! {
                biased;
                result = answer => result,
                () = sleep_until(deadline) => Err(Status::deadline()),
            },
        }
    };
    let mut answer = pin!(answer);
    poll_fn(|context| {
        if let Poll::Ready(result) = answer.as_mut().poll(context) {
            return Poll::Ready(Some(result));
        }
        if let Some(Poll::Ready(status)) = coming.as_ref().map(|coming| coming.poll_must_go(context)) {
            return Poll::Ready(Some(Err(status)));
        }
        sender.borrow_mut().poll_gone(context).map(|()| None)
    })
    .await
}
