//! Status codes and framing. Both were changed twice, so that a server must know whom it speaks with.
//!
//! | era | block nodes | codes | a block ends with | who is ahead is told | an acknowledgement has the root hash |
//! | --- | --- | --- | --- | --- | --- |
//! | `v0.13` | 0.13 and 0.14 | the first | its proof | EndOfStream(BEHIND) | yes |
//! | `v0.15` | 0.15 to 0.19 | the second | its proof | EndOfStream(BEHIND) | yes (until 0.18; later clients skip it) |
//! | `v0.20` | 0.20 to 0.24 | the second | end_of_block | EndOfStream(BEHIND) | no |
//! | `today` | 0.25 and later | the third | end_of_block | node_behind_publisher | no |
//!
//! What an era has no code for is told with the nearest one it has: each function says which.

use std::fmt;

/// The time whose numbers and framing are spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WireEra {
    /// Block node 0.13 and 0.14.
    V013,
    /// Block node 0.15 to 0.19.
    V015,
    /// Block node 0.20 to 0.24.
    V020,
    /// Block node 0.25 and later.
    #[default]
    Today,
}

impl WireEra {
    /// All of them, the oldest first.
    pub const ALL: [Self; 4] = [Self::V013, Self::V015, Self::V020, Self::Today];

    /// Whether a block ends with `end_of_block`; otherwise it ends with its proof.
    pub fn has_end_of_block(self) -> bool {
        matches!(self, Self::V020 | Self::Today)
    }

    /// Whether a publisher that is ahead goes on with its stream; otherwise it is ended with the code BEHIND.
    pub fn has_behind(self) -> bool {
        self == Self::Today
    }

    /// Whether an acknowledgement has the block's root hash.
    pub fn acknowledges_root(self) -> bool {
        matches!(self, Self::V013 | Self::V015)
    }

    /// `EndOfStream.Code.BEHIND`; `None`: there is none.
    pub(super) fn behind(self) -> Option<i32> {
        match self {
            Self::V013 => Some(5),
            Self::V015 | Self::V020 => Some(7),
            Self::Today => None,
        }
    }

    /// One of the numbers in the columns of a table: the first era, and all later ones.
    fn of_two(self, first: i32, later: i32) -> i32 {
        if self == Self::V013 { first } else { later }
    }
}

impl std::str::FromStr for WireEra {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "today" => Ok(Self::Today),
            "v0.20" => Ok(Self::V020),
            "v0.15" => Ok(Self::V015),
            "v0.13" => Ok(Self::V013),
            _ => Err(
                "it must be `today` (block node 0.25 and later), `v0.20` (to 0.24), `v0.15` (to 0.19) or `v0.13` (to 0.14)",
            ),
        }
    }
}

/// `PublishStreamResponse.EndOfStream.Code`, but for BEHIND, which is a [`super::PublishResponse`] of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndCode {
    /// Orderly.
    Success,
    /// Of the server.
    Error,
    /// What was sent is none of the messages, or stands where it may not.
    InvalidRequest,
    /// A block took too long.
    Timeout,
    /// The block is stored, and was for a while.
    DuplicateBlock,
    /// The block is not what its proof says.
    BadBlockProof,
    /// The block cannot be stored.
    PersistenceFailed,
}

impl EndCode {
    /// All of them; of two with the same number in an era the first is what it says.
    const ALL: [Self; 7] = [
        Self::Success,
        Self::Error,
        Self::InvalidRequest,
        Self::Timeout,
        Self::DuplicateBlock,
        Self::BadBlockProof,
        Self::PersistenceFailed,
    ];

    /// On the wire. In `v0.13` an invalid request is INTERNAL_ERROR.
    pub fn number(self, era: WireEra) -> i32 {
        match self {
            Self::Success => 1,
            Self::InvalidRequest => era.of_two(6, 2),
            Self::Error => era.of_two(6, 3),
            Self::Timeout => era.of_two(2, 4),
            Self::DuplicateBlock => era.of_two(3, 5),
            Self::BadBlockProof => era.of_two(4, 6),
            Self::PersistenceFailed => match era {
                WireEra::V013 | WireEra::Today => 7,
                WireEra::V015 | WireEra::V020 => 8,
            },
        }
    }

    /// By its number.
    pub fn of(number: i32, era: WireEra) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.number(era) == number)
    }
}

/// Its name in the API of today.
impl fmt::Display for EndCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Success => "SUCCESS",
            Self::Error => "ERROR",
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::Timeout => "TIMEOUT",
            Self::DuplicateBlock => "DUPLICATE_BLOCK",
            Self::BadBlockProof => "BAD_BLOCK_PROOF",
            Self::PersistenceFailed => "PERSISTENCE_FAILED",
        })
    }
}

/// `PublishStreamRequest.EndStream.Code`; the same in all eras.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndStreamCode {
    /// The publisher goes elsewhere, as it does now and then.
    Reset,
    /// It waited too long.
    Timeout,
    /// It failed.
    Error,
    /// This node is too far behind for it.
    TooFarBehind,
    /// 0, or a number that is not known.
    Unknown,
}

impl EndStreamCode {
    /// By its number.
    pub fn of(number: u64) -> Self {
        match number {
            1 => Self::Reset,
            2 => Self::Timeout,
            3 => Self::Error,
            4 => Self::TooFarBehind,
            _ => Self::Unknown,
        }
    }

    /// On the wire.
    pub fn number(self) -> i32 {
        match self {
            Self::Unknown => 0,
            Self::Reset => 1,
            Self::Timeout => 2,
            Self::Error => 3,
            Self::TooFarBehind => 4,
        }
    }
}

/// `SubscribeStreamResponse.Code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubscribeCode {
    /// All blocks were sent, or the server stops.
    Success,
    /// The request is no message.
    InvalidRequest,
    /// Of the server.
    Error,
    /// Start.
    InvalidStart,
    /// End.
    InvalidEnd,
    /// Not here.
    NotAvailable,
}

impl SubscribeCode {
    /// All of them; of those with the same number in an era the first is what it says.
    const ALL: [Self; 6] =
        [Self::Success, Self::NotAvailable, Self::InvalidRequest, Self::Error, Self::InvalidStart, Self::InvalidEnd];

    /// By its number.
    pub fn of(number: i32, era: WireEra) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.number(era) == number)
    }

    /// On the wire. In `v0.13` an invalid request and an error are NOT_AVAILABLE.
    pub fn number(self, era: WireEra) -> i32 {
        match self {
            Self::Success => 1,
            Self::InvalidRequest => era.of_two(4, 2),
            Self::Error => era.of_two(4, 3),
            Self::InvalidStart => era.of_two(2, 4),
            Self::InvalidEnd => era.of_two(3, 5),
            Self::NotAvailable => era.of_two(4, 6),
        }
    }
}

/// Its name in the API of today.
impl fmt::Display for SubscribeCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Success => "SUCCESS",
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::Error => "ERROR",
            Self::InvalidStart => "INVALID_START_BLOCK_NUMBER",
            Self::InvalidEnd => "INVALID_END_BLOCK_NUMBER",
            Self::NotAvailable => "NOT_AVAILABLE",
        })
    }
}

/// `BlockResponse.Code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockCode {
    /// Here it is.
    Success,
    /// The request names no block.
    InvalidRequest,
    /// Of the server.
    Error,
    /// It should be here and is not.
    NotFound,
    /// Not here.
    NotAvailable,
}

impl BlockCode {
    /// On the wire. In `v0.13` an error is NOT_FOUND.
    pub fn number(self, era: WireEra) -> i32 {
        match self {
            Self::Success => 1,
            Self::InvalidRequest => 2,
            Self::Error => 3,
            Self::NotFound => era.of_two(3, 4),
            Self::NotAvailable => era.of_two(4, 5),
        }
    }
}

/// `BlockContentsProofResponse.Code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContentsProofCode {
    /// Here it is.
    Success,
    /// The request names no item.
    InvalidRequest,
    /// Of the server.
    Error,
    /// The block has no such item, or its hash is no part of the root hash.
    ItemNotFound,
    /// The block is not here, or has no proofs of this kind.
    NotAvailable,
    /// The block has several items of that hash.
    Duplicate,
}

impl ContentsProofCode {
    /// On the wire. In `v0.13` an invalid request is ITEM_NOT_FOUND, and an error NOT_AVAILABLE.
    pub fn number(self, era: WireEra) -> i32 {
        match self {
            Self::Success => 1,
            Self::InvalidRequest => 2,
            Self::Error => 3,
            Self::ItemNotFound => era.of_two(2, 4),
            Self::NotAvailable => era.of_two(3, 5),
            Self::Duplicate => era.of_two(4, 6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use WireEra::{Today, V013, V015, V020};

    #[test]
    fn codes_are_those_of_the_table() {
        use EndCode::{BadBlockProof, DuplicateBlock, Error, InvalidRequest, PersistenceFailed, Success, Timeout};
        for (era, numbers) in [
            (
                V013,
                [
                    (1, Success),
                    (2, Timeout),
                    (3, DuplicateBlock),
                    (4, BadBlockProof),
                    (6, Error),
                    (7, PersistenceFailed),
                ],
            ),
            (
                V015,
                [
                    (1, Success),
                    (3, Error),
                    (4, Timeout),
                    (5, DuplicateBlock),
                    (6, BadBlockProof),
                    (8, PersistenceFailed),
                ],
            ),
            (
                V020,
                [
                    (1, Success),
                    (3, Error),
                    (4, Timeout),
                    (5, DuplicateBlock),
                    (6, BadBlockProof),
                    (8, PersistenceFailed),
                ],
            ),
            (
                Today,
                [
                    (1, Success),
                    (3, Error),
                    (4, Timeout),
                    (5, DuplicateBlock),
                    (6, BadBlockProof),
                    (7, PersistenceFailed),
                ],
            ),
        ] {
            for (number, code) in numbers {
                assert_eq!(code.number(era), number, "{era:?}");
                assert_eq!(EndCode::of(number, era), Some(code), "{era:?}");
            }
            assert_eq!((EndCode::of(0, era), EndCode::of(9, era)), (None, None));
        }
        assert_eq!([V013, V015, V020, Today].map(|era| InvalidRequest.number(era)), [6, 2, 2, 2]);
        assert_eq!([V013, V015, V020, Today].map(WireEra::behind), [Some(5), Some(7), Some(7), None]);
        for number in 0..5 {
            assert_eq!(EndStreamCode::of(number).number(), number as i32);
        }
        assert_eq!(EndStreamCode::of(77), EndStreamCode::Unknown);
        use SubscribeCode as S;
        let all = [S::Success, S::InvalidRequest, S::Error, S::InvalidStart, S::InvalidEnd, S::NotAvailable];
        assert_eq!(all.map(|code| code.number(V013)), [1, 4, 4, 2, 3, 4]);
        assert_eq!(SubscribeCode::of(4, V013), Some(S::NotAvailable), "of three it says what is asked for most");
        assert_eq!(all.map(|code| SubscribeCode::of(code.number(Today), Today)), all.map(Some));
        assert_eq!((SubscribeCode::of(0, Today), SubscribeCode::of(7, Today)), (None, None));
        use BlockCode as B;
        let all_of_blocks = [B::Success, B::InvalidRequest, B::Error, B::NotFound, B::NotAvailable];
        assert_eq!(all_of_blocks.map(|code| code.number(V013)), [1, 2, 3, 3, 4]);
        use ContentsProofCode as C;
        let of_proofs = [C::Success, C::InvalidRequest, C::Error, C::ItemNotFound, C::NotAvailable, C::Duplicate];
        assert_eq!(of_proofs.map(|code| code.number(V013)), [1, 2, 3, 2, 3, 4]);
        for later in [V015, V020, Today] {
            assert_eq!(of_proofs.map(|code| code.number(later)), [1, 2, 3, 4, 5, 6]);
            assert_eq!(all.map(|code| code.number(later)), [1, 2, 3, 4, 5, 6]);
            assert_eq!(all_of_blocks.map(|code| code.number(later)), [1, 2, 3, 4, 5]);
        }
    }

    #[test]
    fn an_era_has_the_name_of_its_first_block_node() {
        assert_eq!(["v0.13", "v0.15", "v0.20", "today"].map(str::parse), WireEra::ALL.map(Ok));
        assert!("v0.14".parse::<WireEra>().unwrap_err().contains("`v0.13` (to 0.14)"));
    }
}
