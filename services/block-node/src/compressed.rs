//! Answers that are compressed: for whom, and how.
//!
//! Clients say what they take with every call, and most never mean it: gRPC's libraries accept gzip by themselves. So a client asks by
//! compressing its own messages, as servers in Go have it; or it is enough to accept, where the flag says so.

use std::io::{self, Write};

use clap::ValueEnum;
use http::HeaderMap;
use service_kit::grpc::{Compression, accepts, gzip};

/// Whose answers are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompressAnswers {
    /// Nobody's.
    Never,
    /// Of clients that compress what they send themselves (grpc-encoding), and accept the same.
    Asked,
    /// Of all clients that accept it (grpc-accept-encoding).
    Accepted,
}

/// What answers are compressed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContentCoding {
    /// The one that costs less.
    Zstd,
    /// The one that every client knows.
    Gzip,
}

impl ContentCoding {
    /// Both, in the order in which they are chosen.
    pub const ALL: [Self; 2] = [Self::Zstd, Self::Gzip];

    /// Of the answers to a client with these headers; `None`: they go as they are.
    pub fn of(headers: &HeaderMap, compress: CompressAnswers) -> Option<Self> {
        let is_chosen = |encoding: &Self| {
            let name = encoding.compression().encoding;
            let is_wanted = match compress {
                CompressAnswers::Never => false,
                CompressAnswers::Asked => headers.get("grpc-encoding").is_some_and(|asked| asked == name),
                CompressAnswers::Accepted => true,
            };
            is_wanted && accepts(headers, name)
        };
        Self::ALL.into_iter().find(is_chosen)
    }

    /// How it is done.
    pub fn compression(self) -> Compression {
        match self {
            Self::Zstd => Compression { encoding: "zstd", compress: zstd },
            Self::Gzip => Compression { encoding: "gzip", compress: gzip },
        }
    }
}

/// With the length in its head, as whoever has to make room likes it.
fn zstd(message: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let mut encoder = zstd::Encoder::new(out, 1)?;
    encoder.set_pledged_src_size(Some(message.len() as u64))?;
    encoder.include_contentsize(true)?;
    encoder.write_all(message)?;
    encoder.finish().map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decompress;

    #[test]
    fn who_asks_for_it_is_answered_compressed_and_who_only_accepts_it_where_that_is_enough() {
        use CompressAnswers::{Accepted, Asked, Never};
        use ContentCoding::{Gzip, Zstd};
        for (sent, accepted, asked, at_all) in [
            (None, None, None, None),
            (None, Some("identity, deflate, gzip"), None, Some(Gzip)),
            (Some("gzip"), Some("identity, deflate, gzip"), Some(Gzip), Some(Gzip)),
            (Some("gzip"), Some("gzip,zstd"), Some(Gzip), Some(Zstd)),
            (Some("zstd"), Some("gzip,zstd"), Some(Zstd), Some(Zstd)),
            (Some("zstd"), Some("gzip"), None, Some(Gzip)),
            (Some("gzip"), None, None, None),
            (Some("identity"), Some("identity"), None, None),
        ] {
            let mut headers = HeaderMap::new();
            let named = [("grpc-encoding", sent), ("grpc-accept-encoding", accepted)];
            for (name, value) in named {
                headers.extend(value.map(|value| (http::HeaderName::from_static(name), value.parse().unwrap())));
            }
            assert_eq!(ContentCoding::of(&headers, Asked), asked, "{headers:?}");
            assert_eq!(ContentCoding::of(&headers, Accepted), at_all, "{headers:?}");
            assert_eq!(ContentCoding::of(&headers, Never), None, "{headers:?}");
        }
    }

    #[test]
    fn what_is_compressed_is_what_publishers_may_send() {
        let message: Vec<u8> = (0..300_000_u32).map(|number| (number % 1_000 / 4) as u8).collect();
        for encoding in ContentCoding::ALL {
            let Compression { encoding, compress } = encoding.compression();
            let mut compressed = Vec::new();
            compress(&message, &mut compressed).unwrap();
            assert!(compressed.len() < message.len() / 10, "{encoding}");
            let decompress = decompress::of(encoding).unwrap();
            assert_eq!(decompress(&compressed, message.len(), &mut |_| Ok(())).unwrap(), message, "{encoding}");
        }
    }
}
