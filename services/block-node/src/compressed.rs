//! Answers that are compressed: for whom, how, and a block once for all subscribers who take it alike.
//!
//! Clients say what they take with every call, and most never mean it: gRPC's libraries accept gzip by themselves. So a client asks by
//! compressing its own messages, as servers in Go have it; or it is enough to accept, where the flag says so. A compressed block is kept
//! like one that was read from disk if it is small, and lent if it is large: see [`crate::recent`] and [`crate::lending`].

use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use clap::ValueEnum;
use http::HeaderMap;
use service_kit::grpc::{Compression, accepts, gzip};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::lending::{Loan, PIECE_BYTES};
use crate::node::Node;
use crate::reading::Reading;
use crate::recent::{Recent, Shared};
use crate::store::ReadError;

/// Blocks that are compressed for clients at a time: each takes a processor, and up to as much memory again.
const COMPRESSED_AT_A_TIME: usize = 2;
/// What is shorter is compressed where it is asked for: to hand it to another thread takes as long.
const AT_ONCE_BYTES: usize = 32 << 10;

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
    const ALL: [Self; 2] = [Self::Zstd, Self::Gzip];

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

/// Compressed blocks.
pub struct Compressed {
    /// Small ones, of each encoding.
    kept: [Recent; ContentCoding::ALL.len()],
    making: Reading<(u64, ContentCoding), Arc<Loan>>,
    places: Arc<Semaphore>,
}

impl Compressed {
    /// Keeps so many bytes of them.
    pub fn new(bytes_max: usize) -> Self {
        let kept = ContentCoding::ALL.map(|_| Recent::new(bytes_max / ContentCoding::ALL.len()));
        Self { kept, making: Reading::default(), places: Arc::new(Semaphore::new(COMPRESSED_AT_A_TIME)) }
    }

    fn kept(&self, encoding: ContentCoding) -> &Recent {
        &self.kept[encoding as usize]
    }

    /// A place among those who compress; it is given back with what was made.
    async fn place(&self) -> Option<OwnedSemaphorePermit> {
        // It is never closed.
        Arc::clone(&self.places).acquire_owned().await.ok()
    }
}

impl Node {
    /// An answer that `make` makes of a block, compressed when it is its turn.
    pub async fn compressed_answer(
        self: &Arc<Self>,
        number: u64,
        encoding: ContentCoding,
        make: impl FnOnce(&Shared) -> Bytes,
    ) -> Result<Bytes, ReadError> {
        let compression = encoding.compression();
        if let Some(block) = self.recent.get(number).filter(|block| block.block_bytes() <= AT_ONCE_BYTES) {
            return Ok(compression.frames(make(&block)));
        }
        // Before it is read: who waits for a processor keeps nobody from reading.
        let place = self.compressed.place().await;
        let plain = make(self.hold(number).await?.block());
        let of_thread = plain.clone();
        // Whoever goes away meanwhile leaves the place to the thread.
        let compressed = tokio::task::spawn_blocking(move || (compression.frames(of_thread), place)).await;
        // An error says that the server stops.
        Ok(compressed.map_or(plain, |(compressed, _)| compressed))
    }

    /// A block for a subscriber who takes it compressed, as soon as there is room for it.
    pub async fn lend_compressed(
        self: &Arc<Self>,
        number: u64,
        encoding: ContentCoding,
    ) -> Result<Arc<Loan>, ReadError> {
        if let Some(loan) = self.lent_compressed(number, encoding).await {
            return Ok(loan);
        }
        self.compressed.making.once((number, encoding), || self.make_compressed(number, encoding)).await
    }

    async fn make_compressed(self: &Arc<Self>, number: u64, encoding: ContentCoding) -> Result<Arc<Loan>, ReadError> {
        // Somebody else may have made it in the meantime.
        if let Some(loan) = self.lent_compressed(number, encoding).await {
            return Ok(loan);
        }
        let room = self.lending.room(self.bytes_to_lend(number)).await;
        // Not held, as it has its room: who waits for a processor keeps nobody from reading.
        let plain = self.read(number).await?;
        let compression = encoding.compression();
        let block = if plain.frames_bytes() <= AT_ONCE_BYTES {
            plain.compressed(&compression)
        } else {
            let place = self.compressed.place().await;
            let compress = move || (plain.compressed(&compression), place);
            let made = tokio::task::spawn_blocking(compress).await;
            made.map_err(|error| ReadError::Files { number, source: io::Error::other(error) })?.0
        };
        self.metrics.framed.inc();
        let block = match block.frames_bytes() {
            ..=PIECE_BYTES => self.compressed.kept(encoding).add_past(block),
            _ => block,
        };
        Ok(self.lending.lend(block, Some(encoding), room))
    }

    /// The same, where it is there already.
    async fn lent_compressed(&self, number: u64, encoding: ContentCoding) -> Option<Arc<Loan>> {
        if let Some(loan) = self.lending.shared(number, Some(encoding)) {
            return Some(loan);
        }
        let block: Arc<Shared> = self.compressed.kept(encoding).get(number)?;
        Some(self.lending.lend(block, Some(encoding), self.lending.room(0).await))
    }
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
