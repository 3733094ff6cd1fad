//! Status codes. Their numbers were changed twice, so that a server must know whom it speaks with.

/// The time whose numbers and framing are spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WireEra {
    /// Block node 0.25 and later.
    #[default]
    Today,
}

impl std::str::FromStr for WireEra {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "today" => Ok(Self::Today),
            "v0.13" | "v0.15" => Err("this era of the wire is not implemented yet: only `today` (0.25 and later) is"),
            _ => Err("it must be `today` (block node 0.25 and later)"),
        }
    }
}

/// `PublishStreamResponse.EndOfStream.Code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndCode {
    /// Orderly.
    Success,
    /// What was sent is none of the messages, or stands where it may not.
    InvalidRequest,
    /// Of the server.
    Error,
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
    /// On the wire.
    pub fn number(self, era: WireEra) -> i32 {
        match (era, self) {
            (WireEra::Today, Self::Success) => 1,
            (WireEra::Today, Self::InvalidRequest) => 2,
            (WireEra::Today, Self::Error) => 3,
            (WireEra::Today, Self::Timeout) => 4,
            (WireEra::Today, Self::DuplicateBlock) => 5,
            (WireEra::Today, Self::BadBlockProof) => 6,
            (WireEra::Today, Self::PersistenceFailed) => 7,
        }
    }

    /// By its number.
    pub fn of(number: i32, era: WireEra) -> Option<Self> {
        [
            Self::Success,
            Self::InvalidRequest,
            Self::Error,
            Self::Timeout,
            Self::DuplicateBlock,
            Self::BadBlockProof,
            Self::PersistenceFailed,
        ]
        .into_iter()
        .find(|code| code.number(era) == number)
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
    /// On the wire.
    pub fn number(self, era: WireEra) -> i32 {
        match (era, self) {
            (WireEra::Today, Self::Success) => 1,
            (WireEra::Today, Self::InvalidRequest) => 2,
            (WireEra::Today, Self::Error) => 3,
            (WireEra::Today, Self::InvalidStart) => 4,
            (WireEra::Today, Self::InvalidEnd) => 5,
            (WireEra::Today, Self::NotAvailable) => 6,
        }
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
    /// On the wire.
    pub fn number(self, era: WireEra) -> i32 {
        match (era, self) {
            (WireEra::Today, Self::Success) => 1,
            (WireEra::Today, Self::InvalidRequest) => 2,
            (WireEra::Today, Self::Error) => 3,
            (WireEra::Today, Self::NotFound) => 4,
            (WireEra::Today, Self::NotAvailable) => 5,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_table() {
        for (number, code) in [
            (1, EndCode::Success),
            (2, EndCode::InvalidRequest),
            (3, EndCode::Error),
            (4, EndCode::Timeout),
            (5, EndCode::DuplicateBlock),
            (6, EndCode::BadBlockProof),
            (7, EndCode::PersistenceFailed),
        ] {
            assert_eq!(code.number(WireEra::Today), number);
            assert_eq!(EndCode::of(number, WireEra::Today), Some(code));
        }
        assert_eq!(EndCode::of(8, WireEra::Today), None);
        for number in 0..5 {
            assert_eq!(EndStreamCode::of(number).number(), number as i32);
        }
        assert_eq!(EndStreamCode::of(77), EndStreamCode::Unknown);
        assert_eq!(SubscribeCode::InvalidStart.number(WireEra::Today), 4);
        assert_eq!(SubscribeCode::InvalidEnd.number(WireEra::Today), 5);
        assert_eq!(BlockCode::NotFound.number(WireEra::Today), 4);
    }

    #[test]
    fn an_era_that_is_not_there_is_refused_by_its_name() {
        assert_eq!("today".parse(), Ok(WireEra::Today));
        assert!("v0.13".parse::<WireEra>().unwrap_err().contains("not implemented"));
        assert!("yesterday".parse::<WireEra>().is_err());
    }
}
