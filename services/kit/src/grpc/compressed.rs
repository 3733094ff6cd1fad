//! Messages that clients send compressed, and `gzip` for both ways. Memory is asked for before it is used, and bounded by the longest
//! message, whatever the bytes claim.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::status::{Code, Status};

/// Room is asked for by so many bytes.
const STEP_BYTES: usize = 64 << 10;

/// Room for so many bytes more, or the error to end with.
pub type RoomFor<'a> = &'a mut dyn FnMut(usize) -> Result<(), Status>;

/// Decompresses what `gzip` has compressed: a [`super::Decompress`].
pub fn gunzip(message: &[u8], bytes_max: usize, room: RoomFor<'_>) -> Result<Vec<u8>, Status> {
    decompressed("gzip", MultiGzDecoder::new(message), bytes_max, room)
}

/// Compresses as `gzip` does, fast rather than well: a [`super::Compress`].
pub fn gzip(message: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let mut encoder = GzEncoder::new(out, Compression::fast());
    encoder.write_all(message)?;
    encoder.finish().map(|_| ())
}

/// All that a decoder of this encoding gives, step by step.
pub fn decompressed(
    encoding: &str,
    mut plain: impl Read,
    bytes_max: usize,
    room: RoomFor<'_>,
) -> Result<Vec<u8>, Status> {
    let mut message = Vec::new();
    loop {
        room(STEP_BYTES)?;
        let step = plain.by_ref().take(STEP_BYTES as u64).read_to_end(&mut message);
        if step.map_err(|error| cannot_decompress(encoding, &error))? == 0 {
            return Ok(message);
        }
        if message.len() > bytes_max {
            return Err(too_long_decompressed(bytes_max));
        }
    }
}

/// What a client is told whose message is longer than any may be.
pub fn too_long_decompressed(bytes_max: usize) -> Status {
    let message = format!("grpc: received message after decompression larger than max {bytes_max}");
    Status::new(Code::ResourceExhausted, message)
}

/// What a client is told whose message is not what it says.
pub fn cannot_decompress(encoding: &str, error: &io::Error) -> Status {
    Status::new(Code::Internal, format!("grpc: failed to decompress the received message, {encoding}: {error}"))
}
