//! The frame around each gRPC message.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 1 | compressed: 0, or 1 where the service understands the client's `grpc-encoding` |
//! | 1 | 4 | length, big endian |
//! | 5 | | the message |
//!
//! Source: grpc/grpc `doc/PROTOCOL-HTTP2.md`, "Length-Prefixed-Message". Memory grows only with bytes that really came.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;

use crate::grpc::status::{Code, Status};

/// Length of the frame's head, bytes.
pub(crate) const HEAD_BYTES: usize = 5;

/// Bytes that are not a frame that is accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The flag is set, or is none.
    #[error("grpc: Decompressor is not installed for grpc-encoding \"\" (compressed flag {0})")]
    Compressed(u8),
    /// The message claims to be longer than is accepted.
    #[error("grpc: received message larger than max ({length} vs. {length_max})")]
    TooLong {
        /// As claimed.
        length: usize,
        /// As accepted.
        length_max: usize,
    },
    /// The request ended within a frame.
    #[error("unexpected EOF")]
    Truncated,
    /// The answer is longer than any client takes; a longer one would not even fit the frame's head.
    #[error("grpc: trying to send message larger than max ({0} vs. {ANSWER_BYTES_MAX})")]
    AnswerTooLong(usize),
}

/// The longest answer, bytes, as grpc-go has it.
const ANSWER_BYTES_MAX: usize = i32::MAX as usize;

/// Refuses an answer that is too long, before it takes any memory.
pub fn check_answer(length: usize) -> Result<(), FrameError> {
    if length > ANSWER_BYTES_MAX { Err(FrameError::AnswerTooLong(length)) } else { Ok(()) }
}

impl From<FrameError> for Status {
    fn from(error: FrameError) -> Self {
        let code = match error {
            FrameError::Compressed(_) => Code::Unimplemented,
            FrameError::TooLong { .. } | FrameError::AnswerTooLong(_) => Code::ResourceExhausted,
            FrameError::Truncated => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}

/// A message in its frame, in one allocation.
pub fn encode(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(HEAD_BYTES + length);
    bytes.put_u8(0);
    bytes.put_u32(length as u32);
    message.encode_raw(&mut bytes);
    bytes.freeze()
}

/// What `write` writes, in a frame; about so many bytes.
pub fn encode_with(write: impl FnOnce(&mut BytesMut), bytes_about: usize) -> Bytes {
    let mut frame = BytesMut::new();
    append_with(&mut frame, write, bytes_about);
    frame.freeze()
}

/// Appends what `write` appends, in a frame of its own; about so many bytes.
pub fn append_with(frames: &mut BytesMut, write: impl FnOnce(&mut BytesMut), bytes_about: usize) {
    frames.reserve(HEAD_BYTES + bytes_about);
    let begin = frames.len();
    frames.put_bytes(0, HEAD_BYTES);
    write(frames);
    let length = (frames.len() - begin - HEAD_BYTES) as u32;
    frames[begin + 1..begin + HEAD_BYTES].copy_from_slice(&length.to_be_bytes());
}

/// Takes the first of the frames that were made here.
#[cfg(feature = "server")]
pub(crate) fn split_first(frames: &mut Bytes) -> Option<Bytes> {
    let head = frames.first_chunk::<HEAD_BYTES>()?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    Some(frames.split_to((HEAD_BYTES + length).min(frames.len())))
}

/// The message in a frame that [`encode`] made.
pub fn content(frame: Bytes) -> Bytes {
    frame.slice(HEAD_BYTES.min(frame.len())..)
}

/// Takes frames off what was received. A message that came in one piece is not copied.
#[derive(Debug)]
pub struct Deframer {
    length_max: usize,
    takes_compressed: bool,
    /// The flag of the last message.
    is_compressed: bool,
    partial: BytesMut,
    chunk: Bytes,
}

impl Deframer {
    /// For messages up to so many bytes.
    pub fn new(length_max: usize) -> Self {
        let (takes_compressed, is_compressed) = (false, false);
        Self { length_max, takes_compressed, is_compressed, partial: BytesMut::new(), chunk: Bytes::new() }
    }

    /// Takes messages whose flag says that they are compressed.
    #[cfg(feature = "server")]
    pub(crate) fn taking_compressed(self) -> Self {
        Self { takes_compressed: true, ..self }
    }

    /// Whether the last message is compressed.
    #[cfg(feature = "server")]
    pub(crate) fn is_compressed(&self) -> bool {
        self.is_compressed
    }

    /// The longest message.
    #[cfg(feature = "server")]
    pub(crate) fn length_max(&self) -> usize {
        self.length_max
    }

    /// Takes what was received. [`Deframer::message`] must have been asked until it had no more.
    pub fn push(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty());
        self.chunk = chunk;
    }

    /// The next whole message; `None` until more is received.
    pub fn message(&mut self) -> Result<Option<Bytes>, FrameError> {
        if self.partial.is_empty() {
            if let Some(length) = self.length_in(&self.chunk)?
                && self.chunk.len() - HEAD_BYTES >= length
            {
                self.is_compressed = self.chunk[0] != 0;
                self.chunk.advance(HEAD_BYTES);
                return Ok(Some(self.chunk.split_to(length)));
            }
            self.fill(usize::MAX);
            return Ok(None);
        }
        self.fill(HEAD_BYTES);
        let Some(length) = self.length_in(&self.partial)? else { return Ok(None) };
        self.fill(HEAD_BYTES + length);
        if self.partial.len() < HEAD_BYTES + length {
            return Ok(None);
        }
        let mut frame = self.partial.split_to(HEAD_BYTES + length);
        self.is_compressed = frame[0] != 0;
        frame.advance(HEAD_BYTES);
        Ok(Some(frame.freeze()))
    }

    /// What is here of the message whose end has not come yet, bytes.
    pub fn begun(&self) -> usize {
        self.partial.len()
    }

    /// The request has ended.
    pub fn finish(&self) -> Result<(), FrameError> {
        match self.partial.is_empty() && self.chunk.is_empty() {
            true => Ok(()),
            false => Err(FrameError::Truncated),
        }
    }

    /// Moves what was received into `partial` until that has `target` bytes.
    fn fill(&mut self, target: usize) {
        let wanted = target.saturating_sub(self.partial.len()).min(self.chunk.len());
        self.partial.extend_from_slice(&self.chunk[..wanted]);
        self.chunk.advance(wanted);
    }

    fn length_in(&self, bytes: &[u8]) -> Result<Option<usize>, FrameError> {
        let Some((&flag, rest)) = bytes.split_first() else { return Ok(None) };
        if flag != 0 && !(flag == 1 && self.takes_compressed) {
            return Err(FrameError::Compressed(flag));
        }
        let Some(length) = rest.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        match length > self.length_max {
            true => Err(FrameError::TooLong { length, length_max: self.length_max }),
            false => Ok(Some(length)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn framed(messages: &[Vec<u8>]) -> Vec<u8> {
        let frame = |message: &Vec<u8>| [&[0], &(message.len() as u32).to_be_bytes()[..], message].concat();
        messages.iter().flat_map(frame).collect()
    }

    /// Feeds the bytes in chunks that end at the given places.
    fn deframe(bytes: &[u8], cuts: &[usize]) -> Result<Vec<Vec<u8>>, FrameError> {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let mut deframer = Deframer::new(1000);
        let mut messages = Vec::new();
        for pair in cuts.windows(2) {
            deframer.push(Bytes::copy_from_slice(&bytes[pair[0]..pair[1]]));
            while let Some(message) = deframer.message()? {
                messages.push(message.to_vec());
            }
        }
        deframer.finish()?;
        Ok(messages)
    }

    proptest! {
        #[test]
        fn what_was_framed_comes_back_however_it_is_cut(
            messages in vec(vec(any::<u8>(), 0..40), 0..6),
            cuts in vec(any::<usize>(), 0..12),
        ) {
            prop_assert_eq!(deframe(&framed(&messages), &cuts), Ok(messages));
        }

        #[test]
        fn frames_that_were_put_together_come_apart(messages in vec(vec(any::<u8>(), 0..40), 0..6)) {
            let mut together = BytesMut::new();
            for message in &messages {
                append_with(&mut together, |out| out.extend_from_slice(message), message.len() / 2);
            }
            prop_assert_eq!(&together[..], framed(&messages));
            let mut together = together.freeze();
            let apart: Vec<_> = std::iter::from_fn(|| split_first(&mut together)).map(content).collect();
            prop_assert_eq!(apart, messages);
            prop_assert!(together.is_empty());
        }

        #[test]
        fn a_shortened_request_is_an_error(messages in vec(vec(any::<u8>(), 0..40), 1..4), lost in 1_usize..5) {
            let bytes = framed(&messages);
            prop_assert_eq!(deframe(&bytes[..bytes.len() - lost], &[]), Err(FrameError::Truncated));
        }

        #[test]
        fn any_bytes_give_messages_or_an_error(bytes in vec(any::<u8>(), 0..200), cuts in vec(any::<usize>(), 0..8)) {
            if let Ok(messages) = deframe(&bytes, &cuts) {
                prop_assert_eq!(framed(&messages), bytes);
            }
        }
    }

    #[test]
    fn an_answer_that_no_frame_can_hold_is_refused_as_grpc_go_does() {
        assert_eq!(check_answer(i32::MAX as usize), Ok(()));
        let status = Status::from(check_answer(5 << 30).unwrap_err());
        let said = "grpc: trying to send message larger than max (5368709120 vs. 2147483647)";
        assert_eq!((status.code, &*status.message), (Code::ResourceExhausted, said));
    }

    #[test]
    fn both_ways_to_encode_give_the_same() {
        let message = String::from("k");
        assert_eq!(encode_with(|out| message.encode_raw(out), 0), encode(&message));
        assert_eq!(&encode(&message)[..], b"\0\0\0\0\x03\x0a\x01k");
    }

    #[test]
    fn hostile_heads_are_refused_before_anything_is_allocated() {
        assert_eq!(deframe(&[1, 0, 0, 0, 1, 9], &[]), Err(FrameError::Compressed(1)));
        let oversize = [0, 0xff, 0xff, 0xff, 0xff];
        let error = deframe(&oversize, &[2]).unwrap_err();
        assert_eq!(error.to_string(), "grpc: received message larger than max (4294967295 vs. 1000)");
        assert_eq!(Status::from(error).code, Code::ResourceExhausted);
    }
}
