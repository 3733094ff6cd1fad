//! What becomes of the size of a database while files are written over it.
//!
//! Memory: two bits for each page that is written beyond the smallest size, some 2.5 MB for ten million, and at most 140 bytes for a page that
//! has no other near it.

use std::collections::BTreeMap;

/// What becomes of the size of a database while files are written over it.
pub(super) struct Extent {
    page_size: u32,
    /// Pages before.
    before: u32,
    /// Pages after.
    pub after: u32,
    /// The smallest size in between: what lies beyond is no longer what it was.
    smallest: u32,
    /// Pages beyond that which were written since.
    written: Pages,
}

impl Extent {
    pub fn new(before: u32, after: u32, page_size: u32) -> Extent {
        Extent { page_size, before, after, smallest: before, written: Pages::default() }
    }

    /// A file has this page: whether it is to be written.
    pub fn written(&mut self, number: u32) -> bool {
        let is_within = number <= self.after;
        if is_within && number > self.smallest {
            self.written.insert(number);
        }
        is_within
    }

    /// A file is written, after which the database has so many pages.
    pub fn ends_at(&mut self, size: u32) {
        self.smallest = self.smallest.min(size);
        self.written.cut(size);
    }

    /// Pages that are there in the end, and that no file has written: zero, as in a restored database.
    pub fn missing(&self) -> impl Iterator<Item = u32> + '_ {
        let lock_page = ltx::lock_page(self.page_size);
        let is_missing = move |number: &u32| *number != lock_page && !self.written.contains(*number);
        (self.smallest.saturating_add(1)..=self.after).filter(is_missing)
    }

    /// The first page that must go, where the database has become smaller.
    pub fn first_beyond(&self) -> Option<u32> {
        (self.before > self.after).then(|| self.after + 1)
    }
}

/// Pages of a block.
const BLOCK: u32 = 512;

/// Numbers of pages: a bit each, in blocks that have one.
#[derive(Default)]
struct Pages(BTreeMap<u32, [u64; BLOCK as usize / 64]>);

impl Pages {
    fn insert(&mut self, number: u32) {
        let block = self.0.entry(number / BLOCK).or_default();
        block[(number % BLOCK / 64) as usize] |= 1 << (number % 64);
    }

    fn contains(&self, number: u32) -> bool {
        let block = self.0.get(&(number / BLOCK));
        block.is_some_and(|block| block[(number % BLOCK / 64) as usize] >> (number % 64) & 1 == 1)
    }

    /// Leaves those up to `last` alone.
    fn cut(&mut self, last: u32) {
        self.0.split_off(&(last / BLOCK + 1));
        let Some(block) = self.0.get_mut(&(last / BLOCK)) else { return };
        for (bits, first) in block.iter_mut().zip((0..).step_by(64)) {
            let left = (last % BLOCK + 1).saturating_sub(first).min(64);
            *bits &= u64::MAX.checked_shr(64 - left).unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_went_and_came_again_are_zero_unless_written() {
        let mut extent = Extent::new(10, 9, 4096);
        assert!(extent.written(9) && !extent.written(12), "what is cut off later is not written");
        extent.ends_at(6);
        assert!(extent.written(7) && extent.written(3));
        extent.ends_at(9);
        assert_eq!(extent.missing().collect::<Vec<_>>(), [8, 9], "what 9 was before the cut is gone");
        assert_eq!(extent.first_beyond(), Some(10));
        let mut growing = Extent::new(1, 16_386, 65_536);
        growing.ends_at(16_386);
        let missing: Vec<u32> = growing.missing().collect();
        assert_eq!((missing.len(), missing.contains(&16_385)), (16_384, false), "the lock page is never written");
        assert_eq!(growing.first_beyond(), None);
    }

    proptest::proptest! {
        #[test]
        fn pages_are_those_that_were_written_and_not_cut_off(
            steps in proptest::collection::vec((proptest::bool::ANY, 0u32..3000), 0..200),
            shift in proptest::sample::select(vec![1, u32::MAX - 3000]),
        ) {
            let (mut pages, mut expected) = (Pages::default(), std::collections::BTreeSet::new());
            for (is_cut, number) in steps {
                let number = number + shift;
                // One cut in a hundred: they are many enough.
                if is_cut && number % 100 == 0 {
                    pages.cut(number);
                    expected.retain(|known| *known <= number);
                } else {
                    pages.insert(number);
                    expected.insert(number);
                }
            }
            let found: Vec<u32> = (shift - 1..=shift + 2999).filter(|number| pages.contains(*number)).collect();
            assert_eq!(found, expected.into_iter().collect::<Vec<u32>>());
        }
    }

    /// The most memory that this process ever had.
    fn peak_bytes() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    #[test]
    #[ignore = "alone in a process: the other tests have memory of their own"]
    fn ten_million_pages_alone() {
        const PAGES: u32 = 10_000_000;
        let before = peak_bytes();
        let mut extent = Extent::new(1, PAGES, 4096);
        assert!((2..=PAGES).all(|number| extent.written(number)));
        extent.ends_at(PAGES);
        assert_eq!(extent.missing().count(), 0);
        let bytes = peak_bytes() - before;
        assert!(bytes < 4 << 20, "{bytes} bytes");
    }

    #[test]
    fn ten_million_pages_that_a_database_grows_by_take_little_memory() {
        let mut command = harness::command(std::env::current_exe().unwrap());
        let name = "follow::extent::tests::ten_million_pages_alone";
        let output = command.args([name, "--exact", "--ignored", "--nocapture"]).output().unwrap();
        let said = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
}
