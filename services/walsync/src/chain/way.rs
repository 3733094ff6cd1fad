//! The way of a follower: from where it stands, which need not be a point of the replica any more, and not from a snapshot.

use crate::replica::RemoteFile;
use std::collections::BTreeMap;

/// A way through the files of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// In the order of their application.
    pub files: Vec<RemoteFile>,
    /// The point that they lead to; where there are none, that where they begin.
    pub reached: u64,
    /// The newest point that any file names.
    pub newest: u64,
}

/// The way from a point as far as files lead, with the fewest bytes to read. Each file goes on from any point within it or just before
/// it: pages are those after its last transaction, whatever it repeats.
pub fn way_from(files: &[RemoteFile], point: u64) -> Way {
    let newest = files.iter().map(|file| file.name.max_txid).max().unwrap_or(0);
    let mut ahead: Vec<&RemoteFile> = files.iter().filter(|file| file.name.max_txid > point).collect();
    ahead.sort_by_key(|file| (file.name.max_txid, file.size));
    // Of each point that can be reached: bytes to read, the last file, and the point before it.
    let mut reached: BTreeMap<u64, (u64, Option<(RemoteFile, u64)>)> = BTreeMap::from([(point, (0, None))]);
    for file in ahead {
        let (min, max) = (file.name.min_txid, file.name.max_txid);
        let before = reached.range(min.saturating_sub(1)..max).map(|(before, (bytes, _))| (*bytes, *before)).min();
        let Some((bytes, before)) = before else { continue };
        let bytes = bytes.saturating_add(file.size);
        if reached.get(&max).is_none_or(|(known, _)| bytes < *known) {
            reached.insert(max, (bytes, Some((*file, before))));
        }
    }
    let end = reached.last_key_value().map_or(point, |(end, _)| *end);
    let (mut way, mut at) = (Vec::new(), end);
    while let Some((_, Some((file, before)))) = reached.get(&at) {
        way.push(*file);
        at = *before;
    }
    way.reverse();
    Way { files: way, reached: end, newest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ltx::FileName;
    use std::collections::BTreeSet;

    fn file(level: u8, min_txid: u64, max_txid: u64, size: u64) -> RemoteFile {
        RemoteFile { level, name: FileName { min_txid, max_txid }, size, modified_millis: 0 }
    }

    fn way(files: &[RemoteFile], point: u64) -> (Vec<(u64, u64)>, u64, u64) {
        let way = way_from(files, point);
        let names = way.files.iter().map(|file| (file.name.min_txid, file.name.max_txid)).collect();
        (names, way.reached, way.newest)
    }

    #[test]
    fn the_way_with_the_fewest_bytes_is_taken_and_repeats_what_it_must() {
        let files = [file(9, 1, 6, 1000), file(1, 2, 6, 60), file(0, 5, 5, 10), file(0, 6, 6, 10), file(0, 7, 7, 10)];
        assert_eq!(way(&files, 4), (vec![(5, 5), (6, 6), (7, 7)], 7, 7));
        // The uploads of 3 and 4 are gone: the merged file has them, and repeats what is there.
        assert_eq!(way(&files, 2), (vec![(2, 6), (7, 7)], 7, 7));
        assert_eq!(way(&files, 7), (vec![], 7, 7));
        assert_eq!(way(&files, 9), (vec![], 9, 7), "the replica ends before");
        assert_eq!(way(&[], 3), (vec![], 3, 0));
    }

    proptest::proptest! {
        #[test]
        fn a_way_has_no_hole_and_goes_as_far_as_any_does(
            names in proptest::collection::vec((1u64..16, 0u64..5, 1u64..100), 0..12),
            point in 0u64..16,
            // Also where counting on would overflow.
            shift in proptest::sample::select(vec![0, ltx::TXID_MAX - 20]),
        ) {
            let files: Vec<RemoteFile> =
                names.iter().map(|(min, more, size)| file(0, min + shift, min + more + shift, *size)).collect();
            let way = way_from(&files, point + shift);
            let mut at = point + shift;
            for file in &way.files {
                assert!(file.name.min_txid <= at + 1 && file.name.max_txid > at, "{way:?}");
                at = file.name.max_txid;
            }
            assert_eq!(at, way.reached);
            // Nothing goes on from any point that can be reached, but to others that are.
            let mut reachable = BTreeSet::from([point + shift]);
            for _ in &files {
                let steps: Vec<u64> = files
                    .iter()
                    .map(|file| file.name)
                    .filter(|name| reachable.iter().any(|at| name.min_txid <= at + 1 && name.max_txid > *at))
                    .map(|name| name.max_txid)
                    .collect();
                reachable.extend(steps);
            }
            assert_eq!(Some(&way.reached), reachable.last());
        }
    }

    #[test]
    fn a_hole_ends_the_way_unless_a_snapshot_lies_beyond() {
        let holed = [file(0, 5, 5, 10), file(0, 7, 7, 10)];
        assert_eq!(way(&holed, 4), (vec![(5, 5)], 5, 7));
        assert_eq!(way(&holed, 5), (vec![], 5, 7));
        let mended = [holed[0], holed[1], file(9, 1, 6, 1000)];
        assert_eq!(way(&mended, 4), (vec![(1, 6), (7, 7)], 7, 7));
    }
}
