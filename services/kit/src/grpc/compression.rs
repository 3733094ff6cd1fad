//! Messages that clients are sent compressed, where the service says how: each in a frame whose flag tells.

use std::io::{self, Write};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::HeaderMap;

use super::frame::{HEAD_BYTES, split_first};

/// Compresses a message, and ends with the error that the writer gives when the result would be no shorter.
pub type Compress = fn(&[u8], &mut dyn Write) -> io::Result<()>;

/// A shorter message fits into a packet of a network as it is.
const COMPRESSED_BYTES_MIN: usize = 1 << 10;

/// How messages of a call are compressed on their way to the client.
#[derive(Clone, Copy, Debug)]
pub struct Compression {
    /// Its `grpc-encoding`.
    pub encoding: &'static str,
    /// What does it.
    pub compress: Compress,
}

/// Whether a client says in `grpc-accept-encoding` that it takes messages of this encoding.
pub fn accepts(headers: &HeaderMap, encoding: &str) -> bool {
    let lists = headers.get_all("grpc-accept-encoding").into_iter().filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|accepted| accepted.trim() == encoding)
}

impl Compression {
    /// Appends a message in its frame: as it is, where it is short or does not become shorter. It takes no more room than the message.
    pub fn append(&self, message: &[u8], frames: &mut BytesMut) {
        frames.reserve(HEAD_BYTES + message.len());
        let begin = frames.len();
        frames.put_u8(1);
        frames.put_u32(0);
        let mut shorter = Shorter { out: frames, left: message.len().saturating_sub(1) };
        let is_compressed = message.len() >= COMPRESSED_BYTES_MIN && (self.compress)(message, &mut shorter).is_ok();
        if !is_compressed {
            frames.truncate(begin + HEAD_BYTES);
            frames[begin] = 0;
            frames.extend_from_slice(message);
        }
        // What was framed before, or has been compressed to less than that, has a length that fits.
        let length = (frames.len() - begin - HEAD_BYTES) as u32;
        frames[begin + 1..begin + HEAD_BYTES].copy_from_slice(&length.to_be_bytes());
    }

    /// The same messages as in these frames, of which none is compressed.
    pub fn frames(&self, mut plain: Bytes) -> Bytes {
        let mut frames = BytesMut::new();
        while let Some(frame) = split_first(&mut plain) {
            self.append(frame.get(HEAD_BYTES..).unwrap_or_default(), &mut frames);
        }
        // A copy has no room to spare.
        Bytes::copy_from_slice(&frames)
    }
}

/// Takes less than there was.
struct Shorter<'a> {
    out: &'a mut BytesMut,
    left: usize,
}

impl Write for Shorter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len()).ok_or(io::ErrorKind::WriteZero)?;
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Each run of a byte becomes a length and the byte.
    pub fn runs(message: &[u8], out: &mut dyn Write) -> io::Result<()> {
        message.chunk_by(|one, next| one == next).try_for_each(|run| {
            out.write_all(&(run.len() as u32).to_be_bytes())?;
            out.write_all(&run[..1])
        })
    }

    fn plain_of(frame: &[u8]) -> Vec<u8> {
        let (head, content) = frame.split_at(HEAD_BYTES);
        assert_eq!(head[1..], (content.len() as u32).to_be_bytes());
        match head[0] {
            0 => content.to_vec(),
            _ => content
                .chunks(5)
                .flat_map(|run| vec![run[4]; u32::from_be_bytes(run[..4].try_into().unwrap()) as usize])
                .collect(),
        }
    }

    proptest! {
        #[test]
        fn messages_come_out_as_they_were_and_never_take_more_room(
            messages in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..600), 1_usize..40), 0..5),
        ) {
            let messages: Vec<Vec<u8>> = messages
                .into_iter()
                .map(|(bytes, repeats)| bytes.iter().flat_map(|byte| vec![*byte; repeats]).collect())
                .collect();
            let framed = |message: &Vec<u8>| [&[0], &(message.len() as u32).to_be_bytes()[..], message].concat();
            let plain: Vec<u8> = messages.iter().flat_map(framed).collect();
            let mut frames = Compression { encoding: "runs", compress: runs }.frames(plain.clone().into());
            prop_assert!(frames.len() <= plain.len());
            for message in &messages {
                let frame = split_first(&mut frames).unwrap();
                let is_shorter = message.len() >= COMPRESSED_BYTES_MIN
                    && message.chunk_by(|one, next| one == next).count() * 5 < message.len();
                prop_assert_eq!(frame[0], u8::from(is_shorter));
                prop_assert_eq!(&plain_of(&frame), message);
            }
            prop_assert!(frames.is_empty());
        }
    }

    #[test]
    fn what_a_client_accepts_is_read_from_all_its_lists() {
        let mut headers = HeaderMap::new();
        assert!(!accepts(&headers, "gzip"));
        headers.append("grpc-accept-encoding", "identity, deflate,gzip".parse().unwrap());
        headers.append("grpc-accept-encoding", "zstd".parse().unwrap());
        for (encoding, is_accepted) in [("gzip", true), ("deflate", true), ("zstd", true), ("zip", false), ("", false)]
        {
            assert_eq!(accepts(&headers, encoding), is_accepted, "{encoding}");
        }
    }
}
