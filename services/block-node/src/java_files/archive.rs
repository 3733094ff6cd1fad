//! A ZIP file of the Java node: blocks by number. Its directory is read once.

use std::collections::BTreeMap;
use std::io::{Read, Seek};
use std::ops::RangeInclusive;

use zip::ZipArchive;

use super::{JavaFileError, Packing, block_of, unpack};

/// A ZIP file that is open.
pub struct Archive<R> {
    zip: ZipArchive<R>,
    /// By number: the place in the directory, and how the block is packed.
    blocks: BTreeMap<u64, (usize, Packing)>,
}

impl<R: Read + Seek> Archive<R> {
    /// Reads the directory. Entries that are no blocks by their names are passed over.
    pub fn open(file: R) -> Result<Self, JavaFileError> {
        let zip = ZipArchive::new(file)?;
        let mut blocks = BTreeMap::new();
        for place in 0..zip.len() {
            let Some(name) = zip.name_for_index(place) else { continue };
            let name = name?;
            let name = name.rsplit('/').next().unwrap_or_default();
            let Some((number, packing)) = block_of(name) else { continue };
            if blocks.insert(number, (place, packing)).is_some() {
                return Err(JavaFileError::Twice(number));
            }
        }
        Ok(Self { zip, blocks })
    }

    /// The first block and the last; `None`: it has none.
    pub fn range(&self) -> Option<RangeInclusive<u64>> {
        Some(*self.blocks.first_key_value()?.0..=*self.blocks.last_key_value()?.0)
    }

    /// Which blocks it has, in ascending order.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.blocks.keys().copied()
    }

    /// A block's `Block` message, of at most so many bytes. The entry's checksum is compared.
    pub fn read(&mut self, number: u64, bytes_max: usize) -> Result<Vec<u8>, JavaFileError> {
        let (place, packing) = *self.blocks.get(&number).ok_or(JavaFileError::NoBlock(number))?;
        let mut entry = self.zip.by_index(place)?;
        // All of it, since its checksum is compared at its end. A packed block is hardly larger than the block.
        let packed = unpack(number, &mut entry, Packing::Plain, bytes_max.saturating_add(bytes_max / 128 + 1_024))?;
        match packing {
            Packing::Plain => unpack(number, &packed[..], Packing::Plain, bytes_max),
            Packing::Zstd => unpack(number, &packed[..], Packing::Zstd, bytes_max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::java_files::{file_name, pack};
    use std::io::{Cursor, Write as _};
    use zip::write::SimpleFileOptions;
    use zip::{CompressionMethod, ZipWriter};

    fn zipped(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        for (name, content) in entries {
            writer.start_file(*name, options).unwrap();
            writer.write_all(content).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    #[test]
    fn blocks_are_found_by_number_and_what_is_no_block_is_passed_over() {
        let packed = pack(b"a block").unwrap();
        let names =
            [file_name(11), format!("folder/{}", file_name(10)), "0000000000000000012.blk".into(), "README".into()];
        let bytes = zipped(&[(&names[0], &packed), (&names[1], &packed), (&names[2], b"plain"), (&names[3], b"x")]);
        let mut archive = Archive::open(Cursor::new(bytes)).unwrap();
        assert_eq!(archive.range(), Some(10..=12));
        assert_eq!(archive.numbers().collect::<Vec<_>>(), [10, 11, 12]);
        assert_eq!(archive.read(10, 100).unwrap(), b"a block");
        assert_eq!(archive.read(12, 100).unwrap(), b"plain");
        assert!(matches!(archive.read(13, 100), Err(JavaFileError::NoBlock(13))));
        assert!(matches!(archive.read(11, 3), Err(JavaFileError::TooLarge(11, 3))));
    }

    #[test]
    fn a_changed_byte_or_a_missing_end_is_an_error_and_no_panic() {
        let name = file_name(7);
        let bytes = zipped(&[(&name, &pack(&[5; 300]).unwrap())]);
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 0x41;
            if let Ok(mut archive) = Archive::open(Cursor::new(changed))
                && let Ok(block) = archive.read(7, 1_000)
            {
                assert_eq!(block, [5; 300], "byte {place}");
            }
            assert!(Archive::open(Cursor::new(bytes[..place].to_vec())).is_err(), "{place} bytes");
        }
    }
}
