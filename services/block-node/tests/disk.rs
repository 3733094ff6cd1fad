//! What blocks take on disk, beside the layouts of the Java node: one `.blk.zstd` a block, which a file system rounds up to 4 KiB, and ZIP
//! files of them. `cargo test --release -p block-node --test disk -- --nocapture` prints the table.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use block_node::block::{Limits, ProofRules, Verified};
use block_node::craft::{Crafter, Shape, Traffic};
use block_node::store::{LEVEL, Options, Prepared, Store, Trainer};
use wal::files::RealDirectory;

/// What a file takes whole numbers of, bytes.
const FILE_SYSTEM_BLOCK: usize = 4_096;
/// Of an entry in a ZIP file: local header, entry in the directory, and twice its name.
const ZIP_ENTRY_BYTES: usize = 30 + 46 + 2 * 28;

struct Taken {
    raw: usize,
    ours: usize,
    recent: usize,
    historic: usize,
}

impl Taken {
    fn of_recent(&self) -> f64 {
        self.ours as f64 / self.recent as f64
    }
}

/// Stores blocks as the server does, and measures their files.
fn taken(blocks: impl Iterator<Item = Vec<u8>>, level: i32) -> Taken {
    let folder = harness::folder();
    let mut store = Store::open(RealDirectory::open(folder.path()).unwrap(), Options::default()).unwrap();
    let rules = ProofRules::accepted_before();
    let mut trainer = Trainer::new(None);
    let mut taken = Taken { raw: 0, ours: 0, recent: 0, historic: 0 };
    for block in blocks {
        let verified = Verified::of(&block, Limits { block_bytes_max: 1 << 24 }, &rules).unwrap();
        if let Some(training) = trainer.take(&block) {
            training.run(level);
        }
        store.append(&[Prepared::with(&verified, trainer.dictionary(), level)]).unwrap();
        let packed = zstd::bulk::compress(&block, 1).unwrap().len();
        taken.raw += block.len();
        taken.recent += packed.next_multiple_of(FILE_SYSTEM_BLOCK);
        taken.historic += packed + ZIP_ENTRY_BYTES;
    }
    let files = std::fs::read_dir(folder.path()).unwrap();
    taken.ours = files.map(|file| file.unwrap().metadata().unwrap().len() as usize).sum();
    taken
}

fn print(what: &str, blocks: usize, taken: &Taken) {
    let each = |bytes: usize| bytes / blocks;
    println!(
        "{what:>28}: raw {:>7}  ours {:>7}  .blk.zstd {:>7} ({:.2})  ZIP {:>7} ({:.2})",
        each(taken.raw),
        each(taken.ours),
        each(taken.recent),
        taken.of_recent(),
        each(taken.historic),
        taken.ours as f64 / taken.historic as f64,
    );
}

#[test]
fn blocks_of_traffic_take_less_than_in_the_java_layout() {
    // Transactions, blocks, and the share that they may take: at the level that keeps up with publishers, and at one for who has time.
    let fast = [(1, 3_000, 0.3), (13, 1_500, 0.8), (50, 600, 0.95), (500, 100, 1.0)];
    let thorough = [(1, 3_000, 0.3), (13, 1_500, 0.65), (50, 1_000, 0.8), (500, 120, 0.9)];
    for (level, rows) in [(LEVEL, fast), (9, thorough)] {
        for (transactions, blocks, share_max) in rows {
            let (mut crafter, mut traffic) = (Crafter::new(1, 0), Traffic::new(1));
            let taken = taken((0..blocks).map(|_| crafter.next_of(traffic.items(transactions)).bytes), level);
            print(&format!("{transactions} transactions, level {level}"), blocks, &taken);
            assert!(taken.of_recent() < share_max, "{transactions} transactions: {:.3}", taken.of_recent());
        }
    }
}

#[test]
fn blocks_that_are_half_random_take_no_more_than_in_the_java_layout() {
    for (bytes, blocks) in [(1_000, 2_000), (13_000, 1_000), (50_000, 200)] {
        let mut crafter = Crafter::new(1, 0);
        let taken = taken((0..blocks).map(|_| crafter.next(Shape::of_bytes(bytes)).bytes), LEVEL);
        print(&format!("half random, {bytes} bytes"), blocks, &taken);
        assert!(taken.of_recent() < 1.0, "{bytes} bytes: {:.3}", taken.of_recent());
    }
}
