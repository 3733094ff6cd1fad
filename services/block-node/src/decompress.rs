//! Messages that publishers send compressed: `gzip` and `zstd`, as the Java node takes them. Memory is asked for before it is used, and
//! bounded by the longest message, whatever the bytes claim.

use http::HeaderValue;
use service_kit::grpc::{Decompress, RoomFor, Status, cannot_decompress, decompressed, gunzip, too_long_decompressed};
use zstd::zstd_safe::get_frame_content_size;

/// What clients are told.
pub const ACCEPTED: HeaderValue = HeaderValue::from_static("gzip,zstd");

/// The window of a frame that does not say how long its content is: what every decoder must support.
const WINDOW_LOG_MAX: u32 = 23;

/// How messages of this `grpc-encoding` are decompressed.
pub fn of(encoding: &str) -> Option<Decompress> {
    match encoding {
        "gzip" => Some(gunzip),
        "zstd" => Some(zstd),
        _ => None,
    }
}

fn zstd(message: &[u8], bytes_max: usize, room: RoomFor<'_>) -> Result<Vec<u8>, Status> {
    let broken = |error| cannot_decompress("zstd", &error);
    if let Ok(Some(length)) = get_frame_content_size(message) {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > bytes_max {
            return Err(too_long_decompressed(bytes_max));
        }
        room(length)?;
        return zstd::bulk::decompress(message, length).map_err(broken);
    }
    let mut decoder = zstd::Decoder::with_buffer(message).map_err(broken)?;
    decoder.window_log_max(WINDOW_LOG_MAX).map_err(broken)?;
    room(1 << WINDOW_LOG_MAX)?;
    decompressed("zstd", decoder, bytes_max, room)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use service_kit::grpc::Code;
    use std::io::Write as _;

    fn compressed(encoding: &str, plain: &[u8], says_length: bool) -> Vec<u8> {
        if encoding == "gzip" {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(plain).unwrap();
            return encoder.finish().unwrap();
        }
        if says_length {
            return zstd::bulk::compress(plain, 1).unwrap();
        }
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    proptest! {
        #[test]
        fn what_was_compressed_comes_back_and_other_bytes_are_no_panic(
            plain in prop::collection::vec(0_u8..8, 0..200_000),
            says_length: bool,
            noise in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            for encoding in ["gzip", "zstd"] {
                let decompress = of(encoding).unwrap();
                let message = compressed(encoding, &plain, says_length);
                let mut asked = 0;
                let mut room = |bytes| {
                    asked += bytes;
                    Ok(())
                };
                prop_assert_eq!(&decompress(&message, plain.len(), &mut room).unwrap(), &plain);
                prop_assert!(asked >= plain.len());
                if !plain.is_empty() {
                    let refused = decompress(&message, plain.len() - 1, &mut |_| Ok(())).unwrap_err();
                    prop_assert_eq!(refused.code, Code::ResourceExhausted);
                }
                let _ = decompress(&noise, 1_000, &mut |_| Ok(()));
                let cut = &message[..message.len() / 2];
                prop_assert!(decompress(cut, plain.len(), &mut |_| Ok(())).is_err() || plain.is_empty());
            }
        }
    }

    #[test]
    fn a_bomb_stops_where_there_is_no_more_room_for_it() {
        for (encoding, says_length) in [("gzip", true), ("zstd", true), ("zstd", false)] {
            let bomb = compressed(encoding, &vec![0; 100 << 20], says_length);
            assert!(bomb.len() < 1 << 20);
            let mut left = 10_usize << 20;
            let mut room = |bytes: usize| {
                left = left.checked_sub(bytes).ok_or(Status::new(Code::ResourceExhausted, "no room"))?;
                Ok(())
            };
            let refused = of(encoding).unwrap()(&bomb, 1 << 30, &mut room).unwrap_err();
            assert_eq!(refused.message, "no room", "{encoding}");
        }
        assert!(of("deflate").is_none() && of("identity").is_none());
    }
}
