//! What blocks are byte for byte, by number, beside the digest that stands with each: what takes a block on the disk away leaves this.

use super::rows::Row;
use crate::block::{DIGEST_BYTES, Digest};

/// The digest of the block that was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Acknowledged(pub(super) Digest);

impl Acknowledged {
    fn checksum(self, number: u64) -> [u8; 4] {
        crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), &self.0).to_le_bytes()
    }
}

impl Row for Acknowledged {
    const SUFFIX: &'static str = ".digests";
    const BYTES: usize = DIGEST_BYTES + 4;

    fn encode(self, number: u64, out: &mut Vec<u8>) {
        out.extend(self.0);
        out.extend(self.checksum(number));
    }

    fn decode(number: u64, bytes: &[u8]) -> Option<Self> {
        let (digest, checksum) = bytes.split_first_chunk::<DIGEST_BYTES>()?;
        let acknowledged = Self(*digest);
        // Zeros are what was never written.
        (*digest != [0; DIGEST_BYTES] && acknowledged.checksum(number) == checksum).then_some(acknowledged)
    }
}
