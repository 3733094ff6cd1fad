//! The values of a request's body, as messages, one after the other, as they come.
//!
//! Where a value ends is found byte by byte, each looked at once; only then is it parsed. What is kept of bodies takes room from a
//! memory that all requests share. A value that is not whole makes room for others, and does not stand still for ever.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use serde_json::Value;
use service_kit::grpc::{Arriving, Code, Memory, Status};
use service_kit::http::Incoming;
use tokio::time::{Sleep, sleep};

use super::schema::Call;
use super::to_wire;

/// How long nothing may come of a value that was begun, as of messages of gRPC.
const PATIENCE: Duration = Duration::from_secs(60);

/// The values of a body, as messages.
pub(super) struct Messages {
    body: Incoming,
    /// What has come, of which the first `read` bytes are done with.
    buffer: Vec<u8>,
    read: usize,
    room: Arriving,
    patience: Duration,
    scan: Scan,
    is_over: bool,
    bytes_max: usize,
    pub(super) call: &'static Call,
}

impl Messages {
    /// Of no value more than `bytes_max` is kept. The body comes from this [origin](service_kit::grpc::Peer::origin).
    pub(super) fn new(
        body: Incoming,
        bytes_max: usize,
        call: &'static Call,
        (memory, origin): (&Memory, &str),
    ) -> Self {
        let (buffer, room, scan) = (Vec::new(), memory.arriving(origin), Scan::default());
        Self { body, buffer, read: 0, room, patience: PATIENCE, scan, is_over: false, bytes_max, call }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            let unread = &self.buffer[self.read..];
            match self.scan.end(unread) {
                Some(end) => {
                    self.room.has_come();
                    let message = message(self.call, &unread[..end]);
                    self.read += end;
                    self.scan = Scan::default();
                    return message.map(Some);
                }
                None if self.is_over && self.scan.has_begun() => {
                    self.room.has_come();
                    return message(self.call, unread).map(Some);
                }
                None if self.is_over => return Ok(None),
                None => self.receive().await?,
            }
        }
    }

    async fn receive(&mut self) -> Result<(), Status> {
        self.forget();
        let mut still = None;
        let next = poll_fn(|context| self.poll_piece(&mut still, context)).await?;
        match next {
            Some(chunk) if self.buffer.len() + chunk.len() > self.bytes_max => {
                Err(Status::new(Code::InvalidArgument, "etcdserver: request is too large"))
            }
            Some(chunk) if !self.make_room(chunk.len()) => {
                Err(Status::new(Code::ResourceExhausted, "too many requests as JSON are under way, try again"))
            }
            Some(chunk) => {
                self.buffer.extend_from_slice(&chunk);
                Ok(())
            }
            None => {
                self.is_over = true;
                Ok(())
            }
        }
    }

    /// Makes the buffer longer, if there is room: all that it has counts, also where nothing is yet.
    fn make_room(&mut self, bytes: usize) -> bool {
        let (before, needed) = (self.buffer.capacity(), self.buffer.len() + bytes);
        if needed <= before {
            return true;
        }
        // By doubling, so that each byte is copied once or twice, and as much as is needed where there is no room for that.
        let doubled = needed.max((2 * before).min(self.bytes_max));
        let Some(after) = [doubled, needed].into_iter().find(|after| self.room.grow(after - before)) else {
            return false;
        };
        self.buffer.reserve_exact(after - self.buffer.len());
        true
    }

    /// What comes next. An error: nothing has come of a value for too long, or it makes room.
    fn poll_piece(
        &mut self,
        still: &mut Option<Pin<Box<Sleep>>>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, Status>> {
        if self.room.poll_must_go(context).is_ready() {
            let message = "a request as JSON that was not whole made room for others, try again";
            return Poll::Ready(Err(Status::new(Code::ResourceExhausted, message)));
        }
        if let Poll::Ready(piece) = self.body.poll_next_unpin(context) {
            let piece = piece.transpose().map_err(|_| Status::new(Code::Canceled, "context canceled"));
            return Poll::Ready(piece);
        }
        if !self.scan.has_begun() {
            return Poll::Pending;
        }
        let patience = self.patience;
        ready!(still.get_or_insert_with(|| Box::pin(sleep(patience))).as_mut().poll(context));
        let message = format!("nothing came of a request as JSON that was begun for {patience:?}");
        Poll::Ready(Err(Status::new(Code::DeadlineExceeded, message)))
    }

    /// Lets go of what is done with: values, and the space between them.
    fn forget(&mut self) {
        if !self.scan.has_begun() {
            self.read = self.buffer.len();
            self.scan = Scan::default();
        }
        if self.read > 0 {
            let before = self.buffer.capacity();
            // What is left has begun, so that it may have to make room, and keeps no more than it needs.
            self.buffer = self.buffer[self.read..].to_vec();
            self.room.shrink(before.saturating_sub(self.buffer.capacity()));
            self.read = 0;
        }
    }
}

fn message(call: &Call, text: &[u8]) -> Result<Bytes, Status> {
    let invalid = |wrong: String| Status::new(Code::InvalidArgument, format!("proto: {wrong}"));
    let value: Value = serde_json::from_slice(text).map_err(|wrong| invalid(format!("syntax error: {wrong}")))?;
    let mut message = Vec::new();
    to_wire::encode(call.request, &value, &mut message).map_err(|wrong| invalid(wrong.to_string()))?;
    Ok(message.into())
}

/// Looks for the end of a value; of one that is none, for a place where that can be told.
#[derive(Debug, Default)]
struct Scan {
    /// Bytes that were looked at.
    seen: usize,
    depth: usize,
    is_in_string: bool,
    is_escaped: bool,
    /// Something else than space was seen.
    has_begun: bool,
}

impl Scan {
    fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Where the value ends that begins here; goes on where it was when it was asked last.
    fn end(&mut self, text: &[u8]) -> Option<usize> {
        while let Some(&byte) = text.get(self.seen) {
            self.seen += 1;
            if self.is_in_string {
                match byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => {
                        self.is_in_string = false;
                        if self.depth == 0 {
                            return Some(self.seen);
                        }
                    }
                    _ => {}
                }
                continue;
            }
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' => {
                    if self.has_begun && self.depth == 0 {
                        return Some(self.seen);
                    }
                    continue;
                }
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(self.seen);
                    }
                }
                b'"' => self.is_in_string = true,
                _ => {}
            }
            self.has_begun = true;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::stream;
    use proptest::prelude::*;
    use service_kit::http::CutOff;
    use tokio::time::timeout;

    use super::*;
    use crate::gateway::schema;

    fn messages(body: &[u8], piece: usize, memory: &Memory) -> Vec<Result<Bytes, Code>> {
        let pieces: Vec<_> = body.chunks(piece).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let call = schema::call("/etcdserverpb.KV/Put").unwrap();
        let mut messages = Messages::new(Box::pin(stream::iter(pieces)), 4 << 20, call, (memory, "messages"));
        let mut all = Vec::new();
        loop {
            match messages.next().now_or_never().unwrap() {
                Ok(Some(message)) => all.push(Ok(message)),
                Ok(None) => return all,
                Err(status) => {
                    all.push(Err(status.code));
                    return all;
                }
            }
        }
    }

    /// In steps of a byte, what was parsed anew for each of them took days.
    #[test]
    fn a_large_body_in_small_pieces_is_looked_at_once() {
        let memory = Memory::new(8 << 20);
        let body = format!("{{\"value\":\"{}\"}}", "A".repeat(2 << 20));
        let all = messages(body.as_bytes(), 1, &memory);
        assert_eq!(all.len(), 1);
        assert!(all[0].as_ref().unwrap().len() > 1 << 20);
        let many = "{} ".repeat(500_000);
        assert_eq!(messages(many.as_bytes(), many.len(), &memory).len(), 500_000);
        assert!(messages(" ".repeat(3 << 20).as_bytes(), 1, &memory).is_empty());
        assert_eq!(memory.taken(), 0);
    }

    /// A buffer that grows by doubling had twice what was counted.
    #[tokio::test]
    async fn what_a_buffer_has_counts_and_not_what_is_in_it() {
        let memory = Memory::new(16 << 20);
        for bytes in [1 << 10, (1 << 20) + 1, (2 << 20) + 1] {
            let text = format!("{{\"value\":\"{}", "A".repeat(bytes));
            let pieces: Vec<_> =
                text.as_bytes().chunks(16 << 10).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
            let body = stream::iter(pieces).chain(stream::pending::<Result<_, CutOff>>());
            let call = schema::call("/etcdserverpb.KV/Put").unwrap();
            let mut half = Messages::new(Box::pin(body), 3 << 20, call, (&memory, "a"));
            assert!(half.next().now_or_never().is_none());
            assert_eq!(memory.taken(), half.buffer.capacity(), "{bytes}");
            assert!(half.buffer.capacity() <= 3 << 20, "{bytes}: no more than may come");
        }
        assert_eq!(memory.taken(), 0);
    }

    #[test]
    fn bodies_take_no_more_than_there_is() {
        let memory = Memory::new(1_000);
        let body = format!("{{\"value\":\"{}\"}}", "A".repeat(2_000));
        assert_eq!(messages(body.as_bytes(), 100, &memory), [Err(Code::ResourceExhausted)]);
        // What is done with is given back.
        let body = format!("{{\"value\":\"{}\"}}\n", "A".repeat(400)).repeat(20);
        assert_eq!(messages(body.as_bytes(), 100, &memory).len(), 20);
    }

    /// Of which this has come, and no more comes.
    fn begun(text: &str, (memory, origin): (&Memory, &str)) -> Messages {
        let body = stream::iter([Ok::<_, CutOff>(Bytes::copy_from_slice(text.as_bytes()))]).chain(stream::pending());
        let call = schema::call("/etcdserverpb.KV/Put").unwrap();
        Messages::new(Box::pin(body), 4 << 20, call, (memory, origin))
    }

    /// Two dozen halves kept all clients of the gateway out for as long as they liked.
    #[tokio::test]
    async fn a_value_that_stands_still_makes_room_for_others() {
        let memory = Memory::new(10_000);
        let mut still = begun(&format!("{{\"value\":\"{}", "A".repeat(9_000)), (&memory, "another"));
        assert!(still.next().now_or_never().is_none());
        let body = format!("{{\"value\":\"{}\"}}", "A".repeat(2_000));
        assert!(matches!(messages(body.as_bytes(), 100, &memory)[..], [Ok(_)]));
        assert_eq!(still.next().await.unwrap_err().code, Code::ResourceExhausted);
        drop(still);
        assert_eq!(memory.taken(), 0);
    }

    /// It came behind another of the same body, which had made all the room that it needed.
    #[tokio::test]
    async fn a_value_that_stands_still_behind_another_makes_room_for_others() {
        let memory = Memory::new(20_000);
        let text = format!("{{\"value\":\"{}\"}}{{\"value\":\"{}", "A".repeat(2_000), "A".repeat(12_000));
        let mut still = begun(&text, (&memory, "another"));
        assert!(still.next().await.unwrap().is_some());
        assert!(still.next().now_or_never().is_none());
        assert_eq!(memory.taken(), still.buffer.capacity());
        assert_eq!(still.buffer.capacity(), still.buffer.len(), "it keeps nothing of the first one");
        let body = format!("{{\"value\":\"{}\"}}", "A".repeat(10_000));
        assert!(matches!(messages(body.as_bytes(), 100, &memory)[..], [Ok(_)]));
        assert_eq!(still.next().await.unwrap_err().code, Code::ResourceExhausted);
        drop(still);
        assert_eq!(memory.taken(), 0);
    }

    #[tokio::test]
    async fn a_value_that_stands_still_is_ended_and_a_pause_between_values_is_none() {
        let memory = Memory::new(1_000);
        let mut half = begun(r#"{"key":"#, (&memory, "a"));
        half.patience = Duration::from_millis(20);
        let ended = timeout(Duration::from_secs(60), half.next()).await.unwrap();
        assert_eq!(ended.unwrap_err().code, Code::DeadlineExceeded);
        let mut whole = begun(r#"{"key":"YQ=="} "#, (&memory, "a"));
        whole.patience = Duration::from_millis(20);
        assert!(whole.next().await.unwrap().is_some());
        assert!(timeout(Duration::from_millis(200), whole.next()).await.is_err());
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(body in r#"([{}" \[\]a:,\\]|\{"key":"YQ=="\}| |\n){0,20}"#, piece in 1..9_usize) {
            let memory = Memory::new(1 << 20);
            let whole = messages(body.as_bytes(), body.len().max(1), &memory);
            prop_assert_eq!(messages(body.as_bytes(), piece, &memory), whole);
            prop_assert_eq!(memory.taken(), 0);
        }

        #[test]
        fn values_are_what_a_parser_of_streams_says(values in proptest::collection::vec(r#"\{"key":"YQ=="\}|\{\}|\{"value":"YWI="\}"#, 0..5), space in " {0,2}\n?") {
            let body = values.iter().map(|value| format!("{space}{value}")).collect::<String>() + &space;
            let memory = Memory::new(1 << 20);
            let parsed = serde_json::Deserializer::from_slice(body.as_bytes()).into_iter::<Value>();
            let call = schema::call("/etcdserverpb.KV/Put").unwrap();
            let expected: Vec<_> = parsed
                .map(|value| {
                    let mut message = Vec::new();
                    to_wire::encode(call.request, &value.unwrap(), &mut message).unwrap();
                    Ok(Bytes::from(message))
                })
                .collect();
            prop_assert_eq!(messages(body.as_bytes(), 3, &memory), expected);
        }
    }
}
