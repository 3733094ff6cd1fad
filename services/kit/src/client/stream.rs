//! The two halves of a bidirectional gRPC stream, free to live in two tasks.

use std::future::poll_fn;
use std::marker::PhantomData;

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use prost::Message;

use super::{GrpcError, body_of, outcome};
use crate::grpc::{Deframer, encode};

/// Sends messages on a stream. Dropping it cancels the stream unless [`StreamSender::finish`] was called.
#[derive(Debug)]
pub struct StreamSender<A> {
    body: SendStream<Bytes>,
    message: PhantomData<fn(A)>,
}

impl<A: Message> StreamSender<A> {
    pub(super) fn new(body: SendStream<Bytes>) -> Self {
        Self { body, message: PhantomData }
    }

    /// Queues a message; it leaves as soon as flow control allows. The queue is not bounded here: for callers that wait for
    /// an answer to what they sent before they send more.
    ///
    /// Errors: the stream or the connection is gone.
    pub fn queue(&mut self, message: &A) -> Result<(), GrpcError> {
        Ok(self.body.send_data(encode(message), false)?)
    }

    /// Sends a message, as fast as the server takes it; ends when there was room for the last byte.
    ///
    /// Errors: the stream or the connection is gone. What became of the message is unknown then.
    pub async fn send(&mut self, message: &A) -> Result<(), GrpcError> {
        let mut frame = encode(message);
        while !frame.is_empty() {
            self.body.reserve_capacity(frame.len());
            let room = match self.body.capacity() {
                0 => match poll_fn(|context| self.body.poll_capacity(context)).await {
                    Some(room) => room?,
                    None => return Err(GrpcError::Broken("the server has ended the stream".into())),
                },
                room => room,
            };
            let part = frame.split_to(room.min(frame.len()));
            self.body.send_data(part, false)?;
        }
        Ok(())
    }

    /// Tells the server that no message follows.
    ///
    /// Errors: the stream or the connection is gone.
    pub fn finish(&mut self) -> Result<(), GrpcError> {
        Ok(self.body.send_data(Bytes::new(), true)?)
    }
}

/// Receives messages of a stream, in the order in which they were sent.
#[derive(Debug)]
pub struct StreamReceiver<B> {
    state: State,
    deframer: Deframer,
    message: PhantomData<fn() -> B>,
}

#[derive(Debug)]
enum State {
    /// The head of the answer is still to come.
    Opening(ResponseFuture),
    Open(RecvStream),
    Over,
}

impl<B: Message + Default> StreamReceiver<B> {
    pub(super) fn new(response: ResponseFuture, message_bytes_max: usize) -> Self {
        Self { state: State::Opening(response), deframer: Deframer::new(message_bytes_max), message: PhantomData }
    }

    /// The next message; `None` when the server ended the stream with success. Waits without a limit. Nothing is lost
    /// when the returned future is dropped before it is done.
    ///
    /// Errors: the stream broke, a frame or message could not be read, or the server ended it with an error. The
    /// stream is over after each.
    pub async fn next(&mut self) -> Result<Option<B>, GrpcError> {
        let result = self.receive().await;
        if !matches!(result, Ok(Some(_))) {
            self.state = State::Over;
        }
        result
    }

    /// What has come of the next message, bytes.
    pub fn begun(&self) -> usize {
        self.deframer.begun()
    }

    async fn receive(&mut self) -> Result<Option<B>, GrpcError> {
        if let State::Opening(response) = &mut self.state {
            let response = response.await?;
            self.state = State::Open(body_of(response)?);
        }
        let State::Open(body) = &mut self.state else {
            return Ok(None);
        };
        loop {
            if let Some(bytes) = self.deframer.message()? {
                let message = B::decode(bytes).map_err(|error| GrpcError::Decode(error.to_string()))?;
                return Ok(Some(message));
            }
            let Some(chunk) = body.data().await else {
                let trailers = body.trailers().await?.unwrap_or_default();
                outcome(&trailers)?;
                self.deframer.finish()?;
                return Ok(None);
            };
            let chunk = chunk?;
            body.flow_control().release_capacity(chunk.len())?;
            self.deframer.push(chunk);
        }
    }
}
