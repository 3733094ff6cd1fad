//! Takes LZ4 blocks apart. Compressors that pass quickly over what does not compress find a run of zeros by its repetition some
//! dozens of bytes before: what repeats itself is copied in pieces that double, and never byte by byte.

/// Bytes that are copied at once where there is room for them, also where fewer are wanted: what follows is written over them.
const STEP: usize = 16;
/// A length that is at its greatest in a token goes on in the bytes behind.
const LITERALS_MAX: usize = 15;
const MATCH_MIN: usize = 4;
const MATCH_MAX: usize = MATCH_MIN + 15;

/// Decompresses a block into `output` from `written` on, and gives where that ends. The block may refer to what is before. `None`: it is damaged,
/// or does not fit.
pub fn decompress(block: &[u8], output: &mut [u8], mut written: usize) -> Option<usize> {
    let mut read = 0;
    loop {
        let token = usize::from(*block.get(read)?);
        read += 1;
        let mut literals = token >> 4;
        if literals < LITERALS_MAX
            && let Some(from) = block.get(read..read + STEP)
            && let Some(to) = output.get_mut(written..written + STEP)
        {
            to.copy_from_slice(from);
        } else {
            if literals == LITERALS_MAX {
                literals += rest_of_length(block, &mut read)?;
            }
            let from = block.get(read..)?.get(..literals)?;
            output.get_mut(written..)?.get_mut(..literals)?.copy_from_slice(from);
        }
        (read, written) = (read + literals, written + literals);
        // The last sequence ends with its literals.
        if read == block.len() {
            return Some(written);
        }
        let offset = usize::from(u16::from_le_bytes(block.get(read..read + 2)?.try_into().ok()?));
        read += 2;
        let start = written.checked_sub(offset).filter(|_| offset > 0)?;
        let mut length = MATCH_MIN + (token & 15);
        if length < MATCH_MAX && offset >= STEP && written + 2 * STEP <= output.len() {
            // No piece reads what it writes.
            output.copy_within(start..start + STEP, written);
            if length > STEP {
                output.copy_within(start + STEP..start + 2 * STEP, written + STEP);
            }
        } else {
            if length == MATCH_MAX {
                length += rest_of_length(block, &mut read)?;
            }
            if length > output.len() - written {
                return None;
            }
            // What is there from the start on is `offset` bytes, then twice as many, and repeats itself every `offset` bytes.
            let mut copied = 0;
            while copied < length {
                let piece = (offset + copied).min(length - copied);
                output.copy_within(start..start + piece, written + copied);
                copied += piece;
            }
        }
        written += length;
    }
}

/// The bytes that a length goes on in, up to one that is not 255.
fn rest_of_length(block: &[u8], read: &mut usize) -> Option<usize> {
    let mut length = 0;
    loop {
        let byte = *block.get(*read)?;
        *read += 1;
        length += usize::from(byte);
        if byte < 255 {
            return Some(length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Runs of what repeats itself every few bytes, and of what does not.
    fn content() -> impl Strategy<Value = Vec<u8>> {
        let run = (vec(any::<u8>(), 1..70), 1..9usize);
        let run = run.prop_map(|(bytes, times)| bytes.repeat(if times > 4 { 1 } else { times * times * 8 }));
        vec(run, 0..12).prop_map(|runs| runs.concat())
    }

    proptest! {
        #[test]
        fn what_was_compressed_is_there_again(content in content()) {
            let block = lz4_flex::block::compress(&content);
            let mut output = vec![0xaa; content.len()];
            prop_assert_eq!(decompress(&block, &mut output, 0), Some(content.len()));
            prop_assert!(output == content);
            // Room for more changes nothing, and room for less is none.
            let mut output = vec![0xaa; content.len() + 100];
            prop_assert_eq!(decompress(&block, &mut output, 0), Some(content.len()));
            prop_assert!(output[..content.len()] == content);
            if let Some(less) = content.len().checked_sub(1) {
                prop_assert_eq!(decompress(&block, &mut vec![0; less], 0), None);
            }
        }

        #[test]
        fn a_damaged_block_gives_what_the_library_gives(content in content(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut block = lz4_flex::block::compress(&content);
            let at = at.index(block.len());
            block[at] = byte;
            let (mut ours, mut theirs) = (vec![0; 9000], vec![0; 9000]);
            let length = decompress(&block, &mut ours, 0);
            prop_assert_eq!(length, lz4_flex::block::decompress_into(&block, &mut theirs).ok());
            let length = length.unwrap_or(0);
            prop_assert!(ours[..length] == theirs[..length]);
        }
    }

    #[test]
    fn lengths_and_offsets_beyond_what_there_is_are_damage() {
        // Nothing at all; literals that are not there; a match before the start; no offset; a length without an end.
        for block in [
            &b""[..],
            b"\x20a",
            b"\x10a\x02\x00",
            b"\x10a\x00\x00",
            b"\x1fa\x01\x00\xff",
            b"\xf0\xff\xff",
            b"\x10a\x01",
        ] {
            assert_eq!(decompress(block, &mut [0; 64], 0), None, "{block:x?}");
        }
        assert_eq!(decompress(b"\x00", &mut [], 0), Some(0));
    }
}
