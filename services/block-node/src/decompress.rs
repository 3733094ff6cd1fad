//! Messages that publishers send compressed: `gzip` and `zstd`, as the Java node takes them. Memory is asked for before it is used, and
//! bounded by the longest message, whatever the bytes claim.

use http::HeaderValue;
use service_kit::grpc::{Decompress, RoomFor, Status, cannot_decompress, decompressed, gunzip, too_long_decompressed};
use zstd::zstd_safe::{find_frame_compressed_size, get_frame_content_size};

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

/// How long the content of all frames is together, where each says so. Frames that any reader skips have none.
fn said_length(message: &[u8]) -> Option<u64> {
    let (mut rest, mut length) = (message, 0_u64);
    while !rest.is_empty() {
        length = length.saturating_add(get_frame_content_size(rest).ok()??);
        let (_, behind) = rest.split_at_checked(find_frame_compressed_size(rest).ok()?.max(1))?;
        rest = behind;
    }
    (!message.is_empty()).then_some(length)
}

/// A message may be of several frames, as what compresses on several threads or flushes as it goes writes them.
fn zstd(message: &[u8], bytes_max: usize, room: RoomFor<'_>) -> Result<Vec<u8>, Status> {
    let broken = |error| cannot_decompress("zstd", &error);
    if let Some(length) = said_length(message) {
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

    proptest! {
        // As fuzz/fuzz_targets/block_decompress.rs, which finds more.
        #[test]
        fn a_message_that_was_changed_takes_no_more_than_it_asked_for(
            plain in prop::collection::vec(0_u8..8, 0..3_000),
            says_length: bool,
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            repeated in 1..4_usize,
        ) {
            const BYTES_MAX: usize = 5_000;
            for encoding in ["gzip", "zstd"] {
                let mut message = compressed(encoding, &plain, says_length).repeat(repeated);
                for (place, byte) in &changes {
                    let place = place.index(message.len());
                    message[place] = *byte;
                }
                let mut asked = 0;
                let mut room = |bytes| {
                    asked += bytes;
                    Ok(())
                };
                if let Ok(came) = of(encoding).unwrap()(&message, BYTES_MAX, &mut room) {
                    prop_assert!(came.len() <= BYTES_MAX && came.len() <= asked, "{} of {asked}", came.len());
                    let full = of(encoding).unwrap()(&message, BYTES_MAX, &mut |_| Err(Status::new(Code::ResourceExhausted, "")));
                    prop_assert!(full.is_err(), "it was not asked for room");
                }
                prop_assert!(asked <= (1 << WINDOW_LOG_MAX) + (128 << 10), "{asked}");
            }
        }
    }

    /// What any reader skips, whatever it holds.
    fn skippable(bytes: usize) -> Vec<u8> {
        [&0x184D_2A57_u32.to_le_bytes()[..], &(bytes as u32).to_le_bytes(), &vec![7; bytes]].concat()
    }

    #[test]
    fn a_message_of_several_frames_comes_back_whole_and_asks_for_room_for_all_of_it() {
        let plain: Vec<u8> = (0..300_000_u32).map(|number| (number / 7) as u8).collect();
        let (one, two) = plain.split_at(100_000);
        for says_length in [[true, true], [true, false], [false, true], [false, false]] {
            let frame = |plain, number: usize| compressed("zstd", plain, says_length[number]);
            let message =
                [skippable(0), frame(one, 0), skippable(20), skippable(3), frame(&[], 0), frame(two, 1), skippable(9)];
            let message = message.concat();
            let mut asked = 0;
            let mut room = |bytes| {
                asked += bytes;
                Ok(())
            };
            let came = of("zstd").unwrap()(&message, plain.len(), &mut room);
            assert!(came.is_ok_and(|came| came == plain), "{says_length:?}");
            assert!(asked >= plain.len(), "{says_length:?}: {asked}");
            let refused = of("zstd").unwrap()(&message, plain.len() - 1, &mut |_| Ok(())).unwrap_err();
            assert_eq!(refused.code, Code::ResourceExhausted, "{says_length:?}: {refused:?}");
            for cut in [message.len() - 1, message.len() - 9 - 8 - 1, 30] {
                assert!(of("zstd").unwrap()(&message[..cut], plain.len(), &mut |_| Ok(())).is_err(), "{cut}");
            }
            let behind = [&message[..], b"and more"].concat();
            assert!(of("zstd").unwrap()(&behind, plain.len(), &mut |_| Ok(())).is_err());
        }
        assert_eq!(of("zstd").unwrap()(&skippable(5), 10, &mut |_| Ok(())).unwrap(), [0_u8; 0]);
    }

    #[test]
    fn a_bomb_of_many_frames_stops_where_there_is_no_more_room_for_it() {
        for says_length in [true, false] {
            let bomb = compressed("zstd", &vec![0; 1 << 20], says_length).repeat(100);
            let mut left = 10_usize << 20;
            let mut room = |bytes: usize| {
                left = left.checked_sub(bytes).ok_or(Status::new(Code::ResourceExhausted, "no room"))?;
                Ok(())
            };
            let refused = of("zstd").unwrap()(&bomb, 1 << 30, &mut room).unwrap_err();
            assert_eq!(refused.message, "no room", "{says_length}");
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
