//! The values of a request's body, as messages, one after the other, as they come.
//!
//! Where a value ends is found byte by byte, each looked at once; only then is it parsed. What is kept of bodies takes room from a
//! memory that all requests share.

use bytes::Bytes;
use futures::StreamExt;
use serde_json::Value;
use service_kit::grpc::{Code, Memory, Room, Status};
use service_kit::http::Incoming;

use super::schema::Call;
use super::to_wire;

/// The values of a body, as messages.
pub(super) struct Messages {
    body: Incoming,
    /// What has come, of which the first `read` bytes are done with.
    buffer: Vec<u8>,
    read: usize,
    room: Room,
    scan: Scan,
    is_over: bool,
    bytes_max: usize,
    pub(super) call: &'static Call,
}

impl Messages {
    /// Of no value more than `bytes_max` is kept.
    pub(super) fn new(body: Incoming, bytes_max: usize, call: &'static Call, memory: &Memory) -> Self {
        let (buffer, room, scan) = (Vec::new(), memory.room(), Scan::default());
        Self { body, buffer, read: 0, room, scan, is_over: false, bytes_max, call }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            let unread = &self.buffer[self.read..];
            match self.scan.end(unread) {
                Some(end) => {
                    let message = message(self.call, &unread[..end]);
                    self.read += end;
                    self.scan = Scan::default();
                    return message.map(Some);
                }
                None if self.is_over && self.scan.has_begun() => {
                    return message(self.call, unread).map(Some);
                }
                None if self.is_over => return Ok(None),
                None => self.receive().await?,
            }
        }
    }

    async fn receive(&mut self) -> Result<(), Status> {
        self.forget();
        match self.body.next().await {
            Some(Ok(chunk)) if self.buffer.len() + chunk.len() > self.bytes_max => {
                Err(Status::new(Code::InvalidArgument, "etcdserver: request is too large"))
            }
            Some(Ok(chunk)) if !self.room.grow(chunk.len()) => {
                Err(Status::new(Code::ResourceExhausted, "too many requests as JSON are under way, try again"))
            }
            Some(Ok(chunk)) => {
                self.buffer.extend_from_slice(&chunk);
                Ok(())
            }
            Some(Err(_)) => Err(Status::new(Code::Canceled, "context canceled")),
            None => {
                self.is_over = true;
                Ok(())
            }
        }
    }

    /// Lets go of what is done with: values, and the space between them.
    fn forget(&mut self) {
        if !self.scan.has_begun() {
            self.read = self.buffer.len();
            self.scan = Scan::default();
        }
        self.buffer.drain(..self.read);
        self.room.shrink(self.read);
        self.read = 0;
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

    use super::*;
    use crate::gateway::schema;

    fn messages(body: &[u8], piece: usize, memory: &Memory) -> Vec<Result<Bytes, Code>> {
        let pieces: Vec<_> = body.chunks(piece).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let call = schema::call("/etcdserverpb.KV/Put").unwrap();
        let mut messages = Messages::new(Box::pin(stream::iter(pieces)), 4 << 20, call, memory);
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

    #[test]
    fn bodies_take_no_more_than_there_is() {
        let memory = Memory::new(1_000);
        let body = format!("{{\"value\":\"{}\"}}", "A".repeat(2_000));
        assert_eq!(messages(body.as_bytes(), 100, &memory), [Err(Code::ResourceExhausted)]);
        // What is done with is given back.
        let body = format!("{{\"value\":\"{}\"}}\n", "A".repeat(400)).repeat(20);
        assert_eq!(messages(body.as_bytes(), 100, &memory).len(), 20);
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
