//! What publishers send and are told.

use std::ops::Range;

use prost::Message as _;

use super::proto::{self, publish_stream_response::Response};
use super::{EndCode, EndStreamCode, WireEra};
use crate::hash::Hash;
use crate::wire::{Fields, WireError};

/// A `PublishStreamRequest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishRequest {
    /// Where in the message the `BlockItemSet` stands.
    Items(Range<usize>),
    /// The publisher ends the stream.
    EndStream {
        /// Why.
        code: EndStreamCode,
        /// What it has, at least.
        earliest: u64,
        /// What it has, at most.
        latest: u64,
    },
    /// All items of this block were sent.
    EndOfBlock(u64),
}

/// Bytes that are no `PublishStreamRequest`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Not protobuf.
    #[error("a PublishStreamRequest is not protobuf: {0}")]
    Wire(#[from] WireError),
    /// Nothing, or several things.
    #[error("a PublishStreamRequest must have exactly one of block_items (1), end_stream (2), end_of_block (3)")]
    NotOne,
    /// An end that says more than there is to say: it is read while others wait.
    #[error("an end_stream (2) or end_of_block (3) of {0} bytes: it may have {END_BYTES_MAX}")]
    LongEnd(usize),
}

/// Three numbers, and what later versions may say besides.
const END_BYTES_MAX: usize = 4 << 10;

impl PublishRequest {
    /// Reads a request.
    pub fn of(message: &[u8]) -> Result<Self, RequestError> {
        let mut fields = Fields::of(message);
        let field = fields.next().transpose()?.ok_or(RequestError::NotOne)?;
        if let Some(second) = fields.next() {
            second?;
            return Err(RequestError::NotOne);
        }
        let content = field.bytes("PublishStreamRequest")?;
        match field.number {
            1 => Ok(Self::Items(content)),
            2 | 3 if content.len() > END_BYTES_MAX => Err(RequestError::LongEnd(content.len())),
            2 => end_stream(&message[content]),
            3 => Ok(Self::EndOfBlock(numbers(&message[content], "BlockEnd")?[0])),
            _ => Err(RequestError::NotOne),
        }
    }
}

fn end_stream(message: &[u8]) -> Result<PublishRequest, RequestError> {
    let [code, earliest, latest] = numbers(message, "EndStream")?;
    Ok(PublishRequest::EndStream { code: EndStreamCode::of(code), earliest, latest })
}

/// Fields 1 to 3, integers; of one that occurs twice the last counts, as in protobuf.
fn numbers(message: &[u8], name: &'static str) -> Result<[u64; 3], WireError> {
    let mut numbers = [0; 3];
    for field in Fields::of(message) {
        let field = field?;
        if let Some(number) = numbers.get_mut(field.number as usize - 1) {
            *number = field.varint(name)?;
        }
    }
    Ok(numbers)
}

/// A `PublishStreamResponse`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishResponse {
    /// The block is verified and safe on disk.
    Acknowledgement(u64),
    /// Somebody else sends this block; it must be kept until it is acknowledged.
    Skip(u64),
    /// This block is wanted again.
    Resend(u64),
    /// The last block that is stored, since a later one than the next was offered; [`super::NO_BLOCK`]: none.
    Behind(u64),
    /// The stream ends.
    EndOfStream {
        /// Why.
        code: EndCode,
        /// The last block that is stored; [`super::NO_BLOCK`]: none.
        last: u64,
    },
}

impl PublishResponse {
    /// Whether nothing comes behind it.
    pub fn ends_stream(self, era: WireEra) -> bool {
        match self {
            Self::EndOfStream { .. } => true,
            Self::Behind(_) => !era.has_behind(),
            Self::Acknowledgement(_) | Self::Skip(_) | Self::Resend(_) => false,
        }
    }

    /// The same, with what is the last block by now.
    pub fn with_last(self, last: u64) -> Self {
        match self {
            Self::Behind(_) => Self::Behind(last),
            Self::EndOfStream { code, .. } => Self::EndOfStream { code, last },
            Self::Acknowledgement(_) | Self::Skip(_) | Self::Resend(_) => self,
        }
    }

    /// As bytes. `root` is that of an acknowledged block, for eras that tell it.
    pub fn encode(self, era: WireEra, root: Option<Hash>) -> Vec<u8> {
        let of = |block_number| proto::BlockNumber { block_number };
        let end = |status, last| {
            Response::EndStream(proto::EndOfStream { status, block_number: last, proximate_block_number: 0 })
        };
        let response = match self {
            Self::Acknowledgement(block_number) => {
                let root = root.filter(|_| era.acknowledges_root());
                let block_root_hash = root.map(|root| root.to_vec().into()).unwrap_or_default();
                Response::Acknowledgement(proto::BlockAcknowledgement { block_number, block_root_hash })
            }
            Self::Skip(number) => Response::SkipBlock(of(number)),
            Self::Resend(number) => Response::ResendBlock(of(number)),
            Self::Behind(last) => match era.behind() {
                None => Response::NodeBehindPublisher(of(last)),
                Some(status) => end(status, last),
            },
            Self::EndOfStream { code, last } => end(code.number(era), last),
        };
        proto::PublishStreamResponse { response: Some(response) }.encode_to_vec()
    }

    /// What a message says; `None`: nothing that is known.
    pub fn of(message: proto::PublishStreamResponse, era: WireEra) -> Option<Self> {
        Some(match message.response? {
            Response::Acknowledgement(of) => Self::Acknowledgement(of.block_number),
            Response::SkipBlock(of) => Self::Skip(of.block_number),
            Response::ResendBlock(of) => Self::Resend(of.block_number),
            Response::NodeBehindPublisher(of) => Self::Behind(of.block_number),
            Response::EndStream(end) if era.behind() == Some(end.status) => Self::Behind(end.block_number),
            Response::EndStream(end) => {
                Self::EndOfStream { code: EndCode::of(end.status, era)?, last: end.block_number }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_byte_by_byte() {
        let read = |bytes: &[u8]| PublishRequest::of(bytes).unwrap();
        assert_eq!(read(&[0x0a, 3, 0x0a, 1, 9]), PublishRequest::Items(2..5));
        assert_eq!(read(&[0x1a, 2, 0x08, 7]), PublishRequest::EndOfBlock(7));
        assert_eq!(read(&[0x1a, 0]), PublishRequest::EndOfBlock(0));
        let end = PublishRequest::EndStream { code: EndStreamCode::TooFarBehind, earliest: 5, latest: 300 };
        assert_eq!(read(&[0x12, 7, 0x08, 4, 0x10, 5, 0x18, 0xac, 0x02]), end);
        for refused in [&[][..], &[0x22, 0], &[0x1a, 0, 0x1a, 0], &[0x0a, 0, 0x12, 0]] {
            assert_eq!(PublishRequest::of(refused), Err(RequestError::NotOne), "{refused:?}");
        }
        assert!(matches!(PublishRequest::of(&[0x08, 1]), Err(RequestError::Wire(_))));
        assert!(matches!(PublishRequest::of(&[0x0a, 3, 1]), Err(RequestError::Wire(_))));
    }

    /// Sixty million fields of two bytes kept all clients of a thread waiting.
    #[test]
    fn an_end_that_says_more_than_three_numbers_and_a_little_is_not_read() {
        for (field, bytes) in [(2, END_BYTES_MAX), (3, END_BYTES_MAX), (2, END_BYTES_MAX + 2), (3, END_BYTES_MAX + 2)] {
            let mut message = Vec::new();
            crate::wire::put_bytes(&mut message, field, &[0x20, 0].repeat(bytes / 2));
            let refused = PublishRequest::of(&message).err();
            assert_eq!(refused, (bytes > END_BYTES_MAX).then_some(RequestError::LongEnd(bytes)), "{field}");
        }
    }

    #[test]
    fn responses_are_written_byte_by_byte() {
        let end = PublishResponse::EndOfStream { code: EndCode::DuplicateBlock, last: 9 };
        for (response, bytes) in [
            (PublishResponse::Acknowledgement(1), &[0x0a, 2, 0x08, 1][..]),
            (PublishResponse::Acknowledgement(0), &[0x0a, 0]),
            (end, &[0x12, 4, 0x08, 5, 0x10, 9]),
            (PublishResponse::Skip(2), &[0x1a, 2, 0x08, 2]),
            (PublishResponse::Resend(3), &[0x22, 2, 0x08, 3]),
            (PublishResponse::Behind(300), &[0x2a, 3, 0x08, 0xac, 0x02]),
        ] {
            assert_eq!(response.encode(WireEra::Today, Some([7; 48])), bytes, "{response:?}");
            let message = proto::PublishStreamResponse::decode(bytes).unwrap();
            assert_eq!(PublishResponse::of(message, WireEra::Today), Some(response));
        }
    }

    #[test]
    fn responses_of_older_eras_are_written_byte_by_byte() {
        use PublishResponse::{Acknowledgement, Behind, EndOfStream, Resend, Skip};
        use WireEra::{V013, V015, V020};
        let with_root = [&[0x0a, 52, 0x08, 1, 0x12, 48][..], &[7; 48]].concat();
        let end = |code| EndOfStream { code, last: 9 };
        for (era, response, bytes) in [
            (V013, Acknowledgement(1), &with_root[..]),
            (V015, Acknowledgement(1), &with_root),
            (V020, Acknowledgement(1), &[0x0a, 2, 0x08, 1]),
            (V013, Skip(2), &[0x1a, 2, 0x08, 2]),
            (V015, Skip(2), &[0x1a, 2, 0x08, 2]),
            (V020, Resend(3), &[0x22, 2, 0x08, 3]),
            // BEHIND ends the stream.
            (V013, Behind(300), &[0x12, 5, 0x08, 5, 0x10, 0xac, 0x02]),
            (V015, Behind(300), &[0x12, 5, 0x08, 7, 0x10, 0xac, 0x02]),
            (V020, Behind(300), &[0x12, 5, 0x08, 7, 0x10, 0xac, 0x02]),
            (V013, end(EndCode::Success), &[0x12, 4, 0x08, 1, 0x10, 9]),
            (V013, end(EndCode::Timeout), &[0x12, 4, 0x08, 2, 0x10, 9]),
            (V013, end(EndCode::DuplicateBlock), &[0x12, 4, 0x08, 3, 0x10, 9]),
            (V013, end(EndCode::BadBlockProof), &[0x12, 4, 0x08, 4, 0x10, 9]),
            (V013, end(EndCode::Error), &[0x12, 4, 0x08, 6, 0x10, 9]),
            (V013, end(EndCode::PersistenceFailed), &[0x12, 4, 0x08, 7, 0x10, 9]),
            (V015, end(EndCode::InvalidRequest), &[0x12, 4, 0x08, 2, 0x10, 9]),
            (V015, end(EndCode::Timeout), &[0x12, 4, 0x08, 4, 0x10, 9]),
            (V020, end(EndCode::BadBlockProof), &[0x12, 4, 0x08, 6, 0x10, 9]),
            (V020, end(EndCode::PersistenceFailed), &[0x12, 4, 0x08, 8, 0x10, 9]),
        ] {
            assert_eq!(response.encode(era, Some([7; 48])), bytes, "{era:?} {response:?}");
            let message = proto::PublishStreamResponse::decode(bytes).unwrap();
            assert_eq!(PublishResponse::of(message, era), Some(response), "{era:?}");
            let is_last = matches!(response, Behind(_) | EndOfStream { .. });
            assert_eq!(response.ends_stream(era), is_last, "{era:?} {response:?}");
        }
        assert!(!Behind(1).ends_stream(WireEra::Today));
    }
}
