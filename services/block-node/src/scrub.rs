//! Reads all blocks through, to look for damage before somebody asks for what is damaged.
//!
//! A block that is found damaged is quarantined, as by any other reader, and fetched again by [`crate::backfill`] where there are peers. A pass
//! begins at a block that chance chooses, and goes round: also on a node that is restarted before a pass is over, every block has its turn. No
//! more is read than a rate allows, and nothing is taken from memory that others use: blocks that were read are not kept.
//!
//! What is compared are the checksums over what is stored, which any change since the block was verified breaks; hashes are `verify`'s.

use std::convert::Infallible;
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::RngExt as _;
use tokio::time::{Instant, sleep, sleep_until};
use wal::files::{Directory, RealDirectory};

use crate::metrics::Metrics;
use crate::store::{ReadError, Reader};

/// How long after the start the first pass begins, unless the interval is shorter: a node that starts has something else to do.
const FIRST_AFTER: Duration = Duration::from_secs(60);
/// So much is read at once, and then nothing until the rate allows more.
const PIECE_BYTES: u64 = 256 << 10;
/// And so many blocks at most, whatever is with them: a server that stops waits for what is being looked at.
const PIECE_BLOCKS: u64 = 4_096;
/// What a block that cannot be read counts for at least, bytes: so much the disk reads in any case.
const DAMAGED_BYTES: u64 = 4 << 10;
/// Damaged blocks that are named in the log in a pass; of more, it tells how many.
const NAMED_MAX: usize = 100;

/// When blocks are read through, and how fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// From the beginning of a pass to that of the next, if it is over by then.
    pub interval: Duration,
    /// Bytes of blocks, as they came; not 0.
    pub bytes_per_second: u64,
}

/// What was looked at.
#[derive(Debug, Default)]
struct Looked {
    /// The next block to look at.
    next: u64,
    blocks: u64,
    bytes: u64,
    /// Blocks that were not known to be damaged, or that the file system does not give.
    wrong: Vec<ReadError>,
}

/// Reads blocks of this range until about so many bytes are together, or [`PIECE_BLOCKS`] blocks.
fn look<D: Directory>(reader: &Reader<D>, range: Range<u64>, bytes_max: u64) -> Looked {
    let mut looked = Looked { next: range.start, ..Looked::default() };
    let mut digests = Vec::new();
    let end = range.end.min(range.start.max(reader.first()).saturating_add(PIECE_BLOCKS));
    while looked.next < end && looked.bytes < bytes_max {
        let number = looked.next.max(reader.first());
        looked.next = number + 1;
        if reader.is_quarantined(number) {
            continue;
        }
        match reader.read(number) {
            Ok(stored) => {
                looked.bytes += stored.bytes.len() as u64;
                digests.extend(stored.digest.map(|digest| (number, digest)));
            }
            // It went meanwhile, with the oldest ones.
            Err(ReadError::NotStored(_)) => continue,
            Err(error) => {
                looked.bytes += reader.record_bytes(number).max(DAMAGED_BYTES);
                looked.wrong.push(error);
            }
        }
        looked.blocks += 1;
    }
    match reader.restore_digests(&digests) {
        Ok(0) => {}
        Ok(digests) => tracing::error!(digests, "digests were damaged in their second place, and are written again"),
        Err(error) => tracing::warn!(%error, "digests are damaged in their second place, and cannot be written again"),
    }
    looked
}

/// Reads blocks through again and again, for as long as this runs. Without settings it does nothing.
pub async fn run(settings: Option<Settings>, reader: &Reader<RealDirectory>, metrics: &Metrics) -> Infallible {
    let Some(settings) = settings else { return std::future::pending().await };
    sleep(FIRST_AFTER.min(settings.interval)).await;
    loop {
        let began = Instant::now();
        let (first, next) = (reader.first(), reader.next());
        if first < next {
            let begin = rand::rng().random_range(first..next);
            let mut wrong = 0;
            for range in [begin..next, first..begin] {
                read_through(reader, metrics, range, settings, &mut wrong).await;
            }
            if wrong > NAMED_MAX {
                tracing::error!(wrong, "blocks were found damaged, of which the first {NAMED_MAX} are named");
            }
            tracing::info!(first, last = next - 1, wrong, took = ?began.elapsed(), "read all blocks through");
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        metrics.scrub_last_pass_seconds.set(now.as_secs() as i64);
        sleep_until(began + settings.interval).await;
    }
}

/// Looks at these blocks, and counts those that are damaged and were not known to be.
async fn read_through(
    reader: &Reader<RealDirectory>,
    metrics: &Metrics,
    range: Range<u64>,
    settings: Settings,
    wrong: &mut usize,
) {
    let mut number = range.start;
    while number < range.end {
        let began = Instant::now();
        let (of_thread, end) = (reader.clone(), range.end);
        let looked = match tokio::task::spawn_blocking(move || look(&of_thread, number..end, PIECE_BYTES)).await {
            Ok(looked) => looked,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The server has stopped.
                Err(_) => return,
            },
        };
        number = looked.next;
        metrics.scrubbed.inc_by(looked.blocks);
        metrics.scrub_damaged.inc_by(looked.wrong.len() as u64);
        for error in looked.wrong {
            *wrong += 1;
            if *wrong <= NAMED_MAX {
                tracing::error!("{error}");
            }
        }
        sleep_until(began + pause(looked.bytes, settings.bytes_per_second)).await;
    }
}

/// How long so many bytes are to last.
fn pause(bytes: u64, bytes_per_second: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / bytes_per_second as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Evidence, Footer, Verified};
    use crate::craft::{Crafter, Shape};
    use crate::store::{Options, Prepared, Store};
    use wal::files::SimulatedDirectory;

    const BLOCKS: u64 = 20;

    fn stored() -> (SimulatedDirectory, Reader<SimulatedDirectory>) {
        let directory = SimulatedDirectory::default();
        let mut store = Store::open(directory.clone(), Options::default()).unwrap();
        let mut crafter = Crafter::new(1, 0);
        for _ in 0..BLOCKS {
            let block = crafter.next(Shape { items: 3, item_bytes: 300 });
            let footer = Footer { previous_root: [0; 48], all_previous_root: Some([0; 48]), state_root: None };
            let (number, bytes, root, digest) = (block.number, block.bytes, block.root, [7; 32]);
            let verified = Verified { number, bytes, root, digest, footer, evidence: Evidence::Dummy, items: 0 };
            store.append(&[Prepared::of(&verified)]).unwrap();
        }
        (directory, store.reader())
    }

    #[test]
    fn what_rots_is_found_without_anybody_asking_for_it_and_told_once() {
        let (directory, reader) = stored();
        let whole = look(&reader, 0..BLOCKS, u64::MAX);
        assert_eq!((whole.next, whole.blocks, whole.wrong.len()), (BLOCKS, BLOCKS, 0));
        for number in [7, 12] {
            let (file, place) = reader.place(number);
            directory.damage(&file, |bytes| bytes[place + 200] ^= 1).unwrap();
        }
        let looked = look(&reader, 0..BLOCKS, u64::MAX);
        let numbers: Vec<_> = looked.wrong.iter().map(ToString::to_string).collect();
        assert_eq!((looked.blocks, numbers.len()), (BLOCKS, 2), "{numbers:?}");
        assert!(numbers[0].starts_with("block 7 is damaged") && numbers[1].starts_with("block 12 "), "{numbers:?}");
        assert_eq!(reader.quarantined_blocks(u64::MAX, 9), [12, 7]);
        let again = look(&reader, 0..BLOCKS, u64::MAX);
        assert_eq!((again.blocks, again.wrong.len()), (BLOCKS - 2, 0), "what is known already is not counted again");
    }

    #[test]
    fn digests_that_rot_in_their_second_place_are_written_again() {
        let (directory, reader) = stored();
        let name = "00000000000000000000.digests";
        let whole = directory.contents(name).unwrap();
        directory.damage(name, |bytes| [3, 100, 500].iter().for_each(|place| bytes[*place] ^= 1)).unwrap();
        assert_eq!(look(&reader, 0..BLOCKS, u64::MAX).wrong.len(), 0);
        assert_eq!(directory.contents(name).unwrap(), whole);
        let operations = directory.operations();
        look(&reader, 0..BLOCKS, u64::MAX);
        assert_eq!(directory.operations(), operations, "nothing is written when nothing is lost");
    }

    #[test]
    fn damaged_blocks_count_as_much_as_whole_ones() {
        let (directory, reader) = stored();
        for number in 0..BLOCKS {
            let (file, place) = reader.place(number);
            directory.damage(&file, |bytes| bytes[place + 200] ^= 1).unwrap();
        }
        let (mut next, mut wrong) = (0, 0);
        while next < BLOCKS {
            let looked = look(&reader, next..BLOCKS, 10_000);
            assert!(looked.next - next <= 3, "{} at once", looked.next - next);
            (next, wrong) = (looked.next, wrong + looked.wrong.len());
        }
        assert_eq!(wrong as u64, BLOCKS);
    }

    #[test]
    fn no_more_is_read_at_once_than_was_asked_for() {
        let (_, reader) = stored();
        let (mut next, mut blocks) = (5, 0);
        while next < BLOCKS {
            let looked = look(&reader, next..BLOCKS, 2_000);
            // The block that crosses the bound is read whole.
            assert!(looked.bytes < 4_000, "{}", looked.bytes);
            assert!(looked.next > next);
            (next, blocks) = (looked.next, blocks + looked.blocks);
        }
        assert_eq!((next, blocks), (BLOCKS, 15));
        assert_eq!(pause(500_000, 1_000_000), Duration::from_millis(500));
    }
}
