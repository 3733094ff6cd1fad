//! What each file makes of a database, as its header says: whether that can be, and which points of a replica it can be for. A restore and
//! `verify` judge by the same.

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
}

impl Applied {
    /// After one more file, which holds so many pages.
    ///
    /// # Errors
    /// What is wrong with it, where it is not damaged and yet cannot follow.
    pub fn then(self, header: &Header, pages: u32) -> Result<Applied, String> {
        if self.page_size != 0 && self.page_size != header.page_size {
            return Err("its page size is not that of the files before".into());
        }
        if u64::from(header.commit) > size_max(self.pages, pages, header.page_size) {
            let (commit, before) = (header.commit, self.pages);
            return Err(format!(
                "it says that the database has {commit} pages, which cannot be: it had {before}, and {pages} are in this file"
            ));
        }
        Ok(Applied { page_size: header.page_size, pages: header.commit, files: self.files + 1 })
    }
}

/// What stands after each point that a row of files leads to, or the first of these files that cannot be applied.
pub type Judged = BTreeMap<u64, Result<Applied, RemoteFile>>;

impl Chain {
    /// Follows the plan of every point through what was read of the files: headers, and how many pages there are. Of others nothing is made.
    pub fn judge<'a>(&self, read: impl Fn(&RemoteFile) -> Option<&'a (Header, u32)>) -> Judged {
        let mut judged = Judged::new();
        for (point, file) in &self.reachable {
            let before = match self.before(file) {
                None => Ok(Applied::default()),
                Some(before) => judged.get(&before).copied().unwrap_or(Err(*file)),
            };
            let after = before.and_then(|before| {
                let (header, pages) = read(file).ok_or(*file)?;
                before.then(header, *pages).map_err(|_| *file)
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
