//! CRC-64/GO-ISO over the content of a file, and over pages. The top bit of every checksum is set, so that none is zero.

use crc::{CRC_64_GO_ISO, Crc, Digest, Table};

static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_GO_ISO);

/// Set in every checksum that is one; zero means "none".
pub const CHECKSUM_FLAG: u64 = 1 << 63;

/// The checksum of a file while it is read or written: of pages what they hold, not what is stored.
pub struct FileChecksum(Digest<'static, u64, Table<16>>);

impl FileChecksum {
    pub(crate) fn new() -> Self {
        FileChecksum(CRC.digest())
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> u64 {
        self.0.finalize() | CHECKSUM_FLAG
    }
}

/// A page's part in the checksum of a database, which is the XOR over all pages but the lock page, with the top bit set.
pub fn page_checksum(number: u32, page: &[u8]) -> u64 {
    let mut digest = CRC.digest();
    digest.update(&number.to_be_bytes());
    digest.update(page);
    digest.finalize() | CHECKSUM_FLAG
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_polynomial_is_that_of_gos_iso_table() {
        // The check value of CRC-64/GO-ISO, over "123456789".
        let mut checksum = FileChecksum::new();
        checksum.update(b"1234");
        checksum.update(b"56789");
        assert_eq!(checksum.finish(), 0xb909_56c7_75a4_1001 | CHECKSUM_FLAG);
    }
}
