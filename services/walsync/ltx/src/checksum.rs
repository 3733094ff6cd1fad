//! CRC-64/GO-ISO over the content of a file, and over pages. The top bit of every checksum is set, so that none is zero.
//!
//! Its polynomial is x^64 + x^4 + x^3 + x + 1, so that x^64 is x^4 + x^3 + x + 1: a word is taken in by a few shifts, and without a table. Squares
//! have as few terms, and x^(8·64) is x^32 + x^24 + x^8 + 1: eight words are taken in side by side, which processors do several at once.

/// Set in every checksum that is one; zero means "none".
pub const CHECKSUM_FLAG: u64 = 1 << 63;

/// Words that are taken in side by side.
const LANES: usize = 8;
const BLOCK: usize = LANES * 8;

/// Multiplied by x^4 + x^3 + x + 1 = (x + 1)(x^3 + 1); what that shifts out is the caller's. The highest bit is that of x^0, as in every
/// reflected CRC.
fn reduced(over: u64) -> u64 {
    let value = over ^ (over >> 1);
    value ^ (value >> 3)
}

/// Multiplied by x^64.
fn by_word(value: u64) -> u64 {
    let over = (value << 63) ^ (value << 61) ^ (value << 60);
    reduced(value) ^ reduced(over)
}

/// Multiplied by x^(8·64), of which x^32 + x^24 + x^8 + 1 = (x^8 + 1)(x^24 + 1) is left.
fn by_block(value: u64) -> u64 {
    let over = (value << 56) ^ (value << 40) ^ (value << 32);
    let here = value ^ (value >> 8);
    here ^ (here >> 24) ^ reduced(over)
}

/// The state of the CRC after more bytes.
fn crc(mut state: u64, bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    if let Some((first, blocks)) = blocks.split_first() {
        let mut lanes = words(first);
        lanes[0] ^= state;
        for block in blocks {
            let words = words(block);
            lanes = std::array::from_fn(|lane| by_block(lanes[lane]) ^ words[lane]);
        }
        state = lanes.iter().fold(0, |state, lane| by_word(state ^ lane));
    }
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        state = by_word(state ^ u64::from_le_bytes(*word));
    }
    for byte in rest {
        let value = state ^ u64::from(*byte);
        state = (value >> 8) ^ by_word(value << 56);
    }
    state
}

fn words(block: &[u8; BLOCK]) -> [u64; LANES] {
    let words = block.as_chunks::<8>().0;
    std::array::from_fn(|lane| u64::from_le_bytes(words[lane]))
}

/// The checksum of a file while it is read or written: of pages what they hold, not what is stored.
pub(crate) struct FileChecksum(u64);

impl FileChecksum {
    pub(crate) fn new() -> Self {
        FileChecksum(u64::MAX)
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0 = crc(self.0, bytes);
    }

    pub(crate) fn finish(self) -> u64 {
        !self.0 | CHECKSUM_FLAG
    }
}

/// A page's part in the checksum of a database, which is the XOR over all pages but the lock page, with the top bit set.
pub fn page_checksum(number: u32, page: &[u8]) -> u64 {
    let mut checksum = FileChecksum::new();
    checksum.update(&number.to_be_bytes());
    checksum.update(page);
    checksum.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_polynomial_is_that_of_gos_iso_table() {
        // The check value of CRC-64/GO-ISO, over "123456789".
        let mut checksum = FileChecksum::new();
        checksum.update(b"1234");
        checksum.update(b"56789");
        assert_eq!(checksum.finish(), 0xb909_56c7_75a4_1001 | CHECKSUM_FLAG);
    }

    proptest! {
        #[test]
        fn it_is_what_a_table_gives(bytes in proptest::collection::vec(any::<u8>(), 0..700), cut in any::<prop::sample::Index>()) {
            let cut = cut.index(bytes.len() + 1);
            let mut checksum = FileChecksum::new();
            checksum.update(&bytes[..cut]);
            checksum.update(&bytes[cut..]);
            let table = crc::Crc::<u64>::new(&crc::CRC_64_GO_ISO);
            prop_assert_eq!(checksum.finish(), table.checksum(&bytes) | CHECKSUM_FLAG);
        }
    }
}
