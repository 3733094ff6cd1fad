//! How many databases may be open at once. Each takes descriptors, of which a process may have so many: one database too many would leave none for
//! the uploads, restores and WALs of all others. So it alone is refused, until another one goes or the limit is raised.

use crate::pin::PinKind;
use crate::source::SourceError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// For everything else, or half of what there is: connections to the store and of who asks, staged files, restores for a trial, and what threads open
/// before they close what they had.
const RESERVED: u64 = 128;

/// What databases may take.
#[derive(Default)]
pub(super) struct OpenFiles {
    /// `None`: as much as memory allows.
    limit: Option<u64>,
    taken: Arc<AtomicU64>,
}

/// What a database takes, until this is dropped.
pub struct Place {
    files: u64,
    taken: Arc<AtomicU64>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.files, Ordering::AcqRel);
    }
}

/// Descriptors of a database at most: its three files, and those of what holds it, which are its own.
fn files_of(kind: PinKind) -> u64 {
    match kind {
        PinKind::Locks => 5,
        PinKind::ReadTransaction => 6,
    }
}

impl OpenFiles {
    /// Where a process may have so many.
    pub(super) fn of_limit(limit: Option<u64>) -> OpenFiles {
        OpenFiles { limit, ..OpenFiles::default() }
    }

    /// Takes what a database needs that is held in this way; what it had is given back.
    pub(super) fn take(&self, place: &mut Option<Place>, kind: PinKind) -> Result<(), SourceError> {
        let files = files_of(kind);
        if place.as_ref().is_some_and(|place| place.files >= files) {
            return Ok(());
        }
        *place = None;
        let max = self.limit.map_or(u64::MAX, |limit| limit - RESERVED.min(limit / 2));
        let more = |taken: u64| Some(taken + files).filter(|taken| *taken <= max);
        if self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_err() {
            let limit = self.limit.unwrap_or(u64::MAX);
            return Err(SourceError::Refused(format!(
                "of {limit} files that may be open at once databases take {max}, {files} each, and others have them: raise the hard limit (ulimit -Hn, \
                 or LimitNOFILE= of systemd), or watch fewer databases"
            )));
        }
        *place = Some(Place { files, taken: self.taken.clone() });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_leave_files_for_everything_else_and_give_theirs_back() {
        let open_files = OpenFiles::of_limit(Some(1024));
        let mut places: Vec<Option<Place>> = (0..200).map(|_| None).collect();
        let taken = |places: &mut [Option<Place>]| {
            places.iter_mut().filter_map(|place| open_files.take(place, PinKind::Locks).ok()).count()
        };
        assert_eq!(taken(&mut places), (1024 - 128) / 5);
        assert_eq!(taken(&mut places), (1024 - 128) / 5, "who has a place keeps it");
        places.truncate(100);
        assert_eq!(taken(&mut places), 100);
        // Another kind takes more.
        open_files.take(&mut places[0], PinKind::ReadTransaction).unwrap();
        assert_eq!(open_files.taken.load(Ordering::Relaxed), 99 * 5 + 6);
        drop(places);
        assert_eq!(open_files.taken.load(Ordering::Relaxed), 0);
        let error = OpenFiles::of_limit(Some(9)).take(&mut None, PinKind::ReadTransaction).unwrap_err().to_string();
        assert!(error.contains("of 9 files") && error.contains("ulimit"), "{error}");
        OpenFiles::of_limit(None).take(&mut None, PinKind::Locks).unwrap();
    }
}
