//! What each file makes of a database, as its header says: whether that can be, and which points of a replica it can be for. A restore and
//! `verify` judge by the same.
//!
//! An upload of ours names the one before it, by bytes that Litestream ignores. Where that is another file now, for a second writer has replaced it, what
//! follows is not restored over it. Merged files and snapshots are no uploads: of them nothing is said.

use super::Chain;
use crate::replica::RemoteFile;
use crate::wal_reader::size_max;
use ltx::Header;
use std::collections::BTreeMap;

/// A database after some files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Bytes of a page; 0 before the first file.
    pub page_size: u32,
    /// Pages of the database.
    pub pages: u32,
    /// Files.
    pub files: usize,
    /// The last page that it grew by and that the file had not: it is zero, unless a later file has it.
    pub unwritten: Option<u32>,
    /// Of the last file, where that is an upload.
    pub tag: Option<u32>,
}

/// Where in the reserved bytes of a header the tag of the upload before it is; zero: nobody knew.
const FOLLOWS: std::ops::Range<usize> = 16..20;

/// What an upload is known by, of its checksum.
pub fn tag(checksum: u64) -> u32 {
    (checksum as u32).max(1)
}

/// Writes into a header which upload is before it.
pub fn follow(header: &mut Header, tag: u32) {
    header.reserved[FOLLOWS].copy_from_slice(&tag.to_be_bytes());
}

/// What a file holds, as far as [`Applied::then`] asks. Pages are told in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFile {
    level: u8,
    checksum: u64,
    pages: u32,
    last: u32,
    /// From this one to the last none is missing.
    whole_from: u32,
}

impl InFile {
    /// Of a file of this level, before anything is read.
    pub fn of(level: u8) -> InFile {
        InFile { level, checksum: 0, pages: 0, last: 0, whole_from: 0 }
    }

    /// All of it was read.
    pub fn ends(&mut self, checksum: u64) {
        self.checksum = checksum;
    }

    /// One more page.
    pub fn page(&mut self, header: &Header, number: u32) {
        if self.pages == 0 || number != after(self.last, header.page_size) {
            self.whole_from = number;
        }
        self.pages += 1;
        self.last = number;
    }

    /// The last page of the database beyond `before` that is not here.
    fn missing(&self, header: &Header, before: u32) -> Option<u32> {
        let is_to_the_end = self.pages > 0 && after(self.last, header.page_size) > header.commit;
        let whole_from = if is_to_the_end { self.whole_from } else { header.commit.saturating_add(1) };
        let is_lock_page = |number: &u32| *number == ltx::lock_page(header.page_size);
        let missing = whole_from.saturating_sub(1);
        let missing = if is_lock_page(&missing) { missing - 1 } else { missing };
        (missing > before && missing > 0).then_some(missing)
    }
}

/// The page behind this one. The lock page is in no file.
fn after(number: u32, page_size: u32) -> u32 {
    let next = number.saturating_add(1);
    if next == ltx::lock_page(page_size) { next.saturating_add(1) } else { next }
}

impl Applied {
    /// After one more file, which holds these pages.
    ///
    /// Each page that the database grows by is in the file: in every one that walsync makes, and in each snapshot. Litestream leaves those out that SQLite
    /// took and gave back within a transaction; what they hold nobody reads.
    ///
    /// # Errors
    /// What is wrong with it, where it is not damaged and yet cannot follow.
    pub fn then(self, header: &Header, held: &InFile) -> Result<Applied, String> {
        let (pages, commit, before) = (held.pages, header.commit, self.pages);
        if self.page_size != 0 && self.page_size != header.page_size {
            return Err("its page size is not that of the files before".into());
        }
        if u64::from(commit) > size_max(before, pages, header.page_size) {
            return Err(format!(
                "it says that the database has {commit} pages, which cannot be: it had {before}, and {pages} are in this file"
            ));
        }
        let follows = u32::from_be_bytes(std::array::from_fn(|byte| header.reserved[FOLLOWS.start + byte]));
        if follows != 0 && self.tag.is_some_and(|tag| tag != follows) {
            return Err(
                "it follows another file than the one that is before it now: a second writer has replaced that".into(),
            );
        }
        let missing = held.missing(header, before);
        let is_ours = header.reserved.iter().any(|byte| *byte != 0);
        if let Some(missing) = missing
            && (is_ours || header.is_snapshot())
        {
            return Err(format!(
                "the database grows to {commit} pages from {before}, and page {missing} is not in it: a file of another history lies before it, \
                 from a second writer"
            ));
        }
        let unwritten = missing.or(self.unwritten);
        // The first upload has the name of a snapshot.
        let is_upload = held.level == 0 && header.min_txid == header.max_txid && !header.is_snapshot();
        let tag = is_upload.then(|| tag(held.checksum));
        Ok(Applied { page_size: header.page_size, pages: commit, files: self.files + 1, unwritten, tag })
    }
}

/// What stands after each point that a row of files leads to, or the first of these files that cannot be applied.
pub type Judged = BTreeMap<u64, Result<Applied, RemoteFile>>;

impl Chain {
    /// Follows the plan of every point through what was read of the files: headers, and which pages there are. Of others nothing is made.
    pub fn judge<'a>(&self, read: impl Fn(&RemoteFile) -> Option<&'a (Header, InFile)>) -> Judged {
        let mut judged = Judged::new();
        for (point, file) in &self.reachable {
            let before = match self.before(file) {
                None => Ok(Applied::default()),
                Some(before) => judged.get(&before).copied().unwrap_or(Err(*file)),
            };
            let after = before.and_then(|before| {
                let (header, held) = read(file).ok_or(*file)?;
                before.then(header, held).map_err(|_| *file)
            });
            judged.insert(*point, after);
        }
        judged
    }

    /// The points nearest to `target` whose plans do without `file`.
    pub(crate) fn around_without(&self, file: &RemoteFile, target: u64) -> (Option<u64>, Option<u64>) {
        let mut needs: BTreeMap<u64, bool> = BTreeMap::new();
        for (point, last) in &self.reachable {
            let before = self.before(last).and_then(|before| needs.get(&before).copied());
            needs.insert(*point, last == file || before == Some(true));
        }
        let without = |(point, needs): (&u64, &bool)| (!needs).then_some(*point);
        (needs.range(..target).rev().find_map(without), needs.range(target.saturating_add(1)..).find_map(without))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u32 = 65_536;

    fn then(before: u32, commit: u32, min_txid: u64, is_ours: bool, pages: &[u32]) -> Result<Option<u32>, String> {
        let mut header = Header { page_size: PAGE, commit, min_txid, max_txid: 7, ..Header::default() };
        header.reserved[0] = u8::from(is_ours);
        let mut held = InFile::of(9);
        pages.iter().for_each(|number| held.page(&header, *number));
        let before = Applied { page_size: PAGE, pages: before, ..Applied::default() };
        before.then(&header, &held).map(|after| after.unwritten)
    }

    #[test]
    fn an_upload_that_follows_another_one_than_is_there_is_refused() {
        let after = |before: Applied, txid: u64, level: u8, follows: u32, checksum: u64| {
            let mut header = Header { page_size: PAGE, commit: 1, min_txid: txid, max_txid: txid, ..Header::default() };
            follow(&mut header, follows);
            let mut held = InFile::of(level);
            held.page(&header, 1);
            held.ends(checksum);
            before.then(&header, &held)
        };
        let first = after(Applied::default(), 1, 0, 0, 70).unwrap();
        assert_eq!(first.tag, None, "a snapshot may have its name");
        let second = after(first, 2, 0, tag(70), 71).unwrap();
        let third = after(second, 3, 0, tag(71), 0x1_0000_0000).unwrap();
        assert_eq!(third.tag, Some(1), "zero says that nobody knew");
        let said = after(second, 3, 0, tag(72), 73).unwrap_err();
        assert!(said.contains("a second writer has replaced"), "{said}");
        assert!(after(second, 3, 0, 0, 73).is_ok(), "Litestream's, or the first after a start");
        let merged = after(first, 2, 1, 0, 99).unwrap();
        assert!(after(merged, 3, 0, tag(71), 73).is_ok());
    }

    #[test]
    fn a_page_that_no_file_has_is_named() {
        assert_eq!(then(0, 3, 1, false, &[1, 2, 3]), Ok(None));
        assert_eq!(then(3, 3, 7, true, &[1]), Ok(None), "it does not grow");
        assert_eq!(then(5, 3, 7, true, &[1, 3]), Ok(None), "it shrinks");
        assert_eq!(then(3, 6, 7, true, &[1, 4, 5, 6]), Ok(None));
        for (before, pages, missing) in [(3, &[1, 5, 6][..], 4), (3, &[1, 4, 6], 5), (3, &[1, 4, 5], 6), (3, &[1], 6)] {
            let said = then(before, 6, 7, true, pages).unwrap_err();
            assert!(said.contains(&format!("page {missing} is not in it")), "{said}");
            assert_eq!(then(before, 6, 7, false, pages), Ok(Some(missing)), "Litestream's");
        }
        let said = then(0, 3, 1, false, &[1, 3]).unwrap_err();
        assert!(said.contains("page 2 is not in it"), "{said}");
        // The lock page is in no file.
        let lock = ltx::lock_page(PAGE);
        assert_eq!(then(lock - 2, lock + 1, 7, true, &[lock - 1, lock + 1]), Ok(None));
        assert_eq!(then(lock - 2, lock, 7, true, &[lock - 1]), Ok(None));
        assert_eq!(then(lock - 1, lock + 1, 7, true, &[lock + 1]), Ok(None));
        assert_eq!(then(lock - 2, lock + 1, 7, false, &[lock + 1]), Ok(Some(lock - 1)));
    }
}
