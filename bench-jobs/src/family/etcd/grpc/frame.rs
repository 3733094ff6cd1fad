//! The frame around each gRPC message: written before a request, taken off an answer.
//!
//! ```text
//! byte  0      compressed flag, 0 or 1; this client offers no compression, so 1 is an error
//! bytes 1..5   length of the message, unsigned, big endian
//! bytes 5..    the message
//! ```
//! Source: grpc/grpc `doc/PROTOCOL-HTTP2.md`, "Length-Prefixed-Message". Pure: no I/O. Whatever bytes come in, out come
//! messages or a [`FrameError`], and memory grows only with bytes that were really received.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;

/// Length of the frame's head, bytes.
const HEAD_BYTES: usize = 5;

/// The longest message that is accepted, bytes. etcd's own client accepts 2 GiB - 1; no answer to this loader's
/// requests comes near this bound, and a server that claims more is broken.
pub const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// Bytes that are not a gRPC message frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The compressed flag is set although no compression was offered, or is no flag at all.
    #[error("compressed flag is {0}, but no compression was offered")]
    Compressed(u8),
    /// The message claims to be longer than [`MESSAGE_BYTES_MAX`].
    #[error("message of {length} bytes, more than {MESSAGE_BYTES_MAX} are not accepted")]
    Oversize {
        /// The claimed length, bytes.
        length: usize,
    },
    /// The answer ended in the middle of a frame.
    #[error("the answer ended {missing} bytes before the end of its frame")]
    Truncated {
        /// How many bytes are missing; at least.
        missing: usize,
    },
}

/// A message in its frame, ready to send. One allocation.
pub fn encode(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(HEAD_BYTES + length);
    bytes.put_u8(0);
    // Requests are bounded by validation far below 4 GiB: 128 puts of 1 MiB and their keys.
    bytes.put_u32(length as u32);
    // Encoding fails only for want of room, and BytesMut grows.
    message.encode_raw(&mut bytes);
    bytes.freeze()
}

/// Takes the frames off received bytes. A message that lies within one received chunk is not copied.
#[derive(Debug, Default)]
pub struct Deframer {
    /// The start of a frame whose end is still to come; empty most of the time.
    partial: BytesMut,
    /// Received and not yet looked at.
    chunk: Bytes,
}

impl Deframer {
    /// Takes received bytes. Call [`Deframer::next`] until it has no more before the next.
    pub fn push(&mut self, chunk: Bytes) {
        if self.chunk.is_empty() {
            self.chunk = chunk;
        } else {
            self.partial.extend_from_slice(&self.chunk);
            self.chunk = chunk;
        }
    }

    /// The next complete message without its frame; `None` until more bytes come.
    ///
    /// Errors: a frame head that cannot be accepted. The stream is useless after that.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Bytes>, FrameError> {
        if self.partial.is_empty() {
            if let Some(length) = message_length(&self.chunk)?
                && self.chunk.len() - HEAD_BYTES >= length
            {
                self.chunk.advance(HEAD_BYTES);
                return Ok(Some(self.chunk.split_to(length)));
            }
            self.fill(usize::MAX);
            return Ok(None);
        }
        self.fill(HEAD_BYTES);
        let Some(length) = message_length(&self.partial)? else {
            return Ok(None);
        };
        self.fill(HEAD_BYTES + length);
        if self.partial.len() < HEAD_BYTES + length {
            return Ok(None);
        }
        let mut frame = self.partial.split_to(HEAD_BYTES + length);
        frame.advance(HEAD_BYTES);
        Ok(Some(frame.freeze()))
    }

    /// Errors if the bytes end within a frame.
    pub fn finish(&self) -> Result<(), FrameError> {
        let have = self.partial.len() + self.chunk.len();
        if have == 0 {
            return Ok(());
        }
        let length = message_length(&self.partial)?.unwrap_or(0);
        Err(FrameError::Truncated { missing: (HEAD_BYTES + length).saturating_sub(have).max(1) })
    }

    /// Moves received bytes into `partial` until that has `target` bytes.
    fn fill(&mut self, target: usize) {
        let wanted = target.saturating_sub(self.partial.len()).min(self.chunk.len());
        self.partial.extend_from_slice(&self.chunk[..wanted]);
        self.chunk.advance(wanted);
    }
}

/// The length in a frame's head; `None` while the head is incomplete.
fn message_length(bytes: &[u8]) -> Result<Option<usize>, FrameError> {
    let Some((&flag, rest)) = bytes.split_first() else {
        return Ok(None);
    };
    if flag != 0 {
        return Err(FrameError::Compressed(flag));
    }
    let Some(length) = rest.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*length) as usize;
    if length > MESSAGE_BYTES_MAX {
        return Err(FrameError::Oversize { length });
    }
    Ok(Some(length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn framed(messages: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for message in messages {
            bytes.push(0);
            bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
            bytes.extend_from_slice(message);
        }
        bytes
    }

    /// Feeds the bytes in chunks that end at the given places.
    fn deframe(bytes: &[u8], cuts: &[usize]) -> Result<Vec<Vec<u8>>, FrameError> {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let mut deframer = Deframer::default();
        let mut messages = Vec::new();
        for pair in cuts.windows(2) {
            deframer.push(Bytes::copy_from_slice(&bytes[pair[0]..pair[1]]));
            while let Some(message) = deframer.next()? {
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
        fn a_shortened_stream_is_an_error_not_a_message(
            messages in vec(vec(any::<u8>(), 0..40), 1..4),
            lost in 1_usize..5,
        ) {
            let bytes = framed(&messages);
            let lost = lost.min(messages[messages.len() - 1].len() + HEAD_BYTES - 1);
            let result = deframe(&bytes[..bytes.len() - lost], &[]);
            prop_assert!(matches!(result, Err(FrameError::Truncated { .. })), "{:?}", result);
        }

        #[test]
        fn any_bytes_give_messages_or_an_error(bytes in vec(any::<u8>(), 0..200), cuts in vec(any::<usize>(), 0..8)) {
            if let Ok(messages) = deframe(&bytes, &cuts) {
                prop_assert_eq!(framed(&messages), bytes);
            }
        }
    }

    #[test]
    fn hostile_heads_are_refused_before_anything_is_allocated() {
        assert_eq!(deframe(&[1, 0, 0, 0, 1, 9], &[]), Err(FrameError::Compressed(1)));
        assert_eq!(deframe(&[7], &[]), Err(FrameError::Compressed(7)));
        let oversize = [0, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(deframe(&oversize, &[]), Err(FrameError::Oversize { length: 0xffff_ffff }));
        assert_eq!(deframe(&oversize, &[2]), Err(FrameError::Oversize { length: 0xffff_ffff }));
    }

    #[test]
    fn encode_writes_what_the_deframer_reads() {
        let message = crate::family::etcd::messages::CompactionRequest { revision: 300, physical: true };
        let bytes = encode(&message);
        assert_eq!(&bytes[..5], &[0, 0, 0, 0, 5]);
        assert_eq!(deframe(&bytes, &[3]).unwrap(), vec![message.encode_to_vec()]);
    }
}
