//! Weeks of replicas in memory, by a seed: what retention keeps is restorable, and whatever is missing is named.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use harness::Random;
use ltx::{Encoder, Header, Layout, NO_CHECKSUM, SNAPSHOT_LEVEL};
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;
use walsync::arena::Arena;
use walsync::chain::{Chain, NoWay};
use walsync::compaction::{LITESTREAM_INTERVALS, Levels, merge_files};
use walsync::replica::{LtxFile, RemoteFile, Replica};
use walsync::restore::{Target, restore};
use walsync::retention::{Policy, RetentionError, enforce, plan};
use walsync::store::memory::MemoryStore;
use walsync::store::{Attributes, Body, Object, Part, Store, StoreError};

const PAGE_BYTES: usize = 512;
/// 2026-11-01, a Sunday.
const BEGIN_MILLIS: i64 = 1_793_491_200_000;

/// What a database holds: of each page, the transaction that wrote it last.
type Pages = BTreeMap<u32, u64>;

/// A database of a few pages and its replica.
struct History {
    random: Random,
    replica: Replica,
    arena: Arc<Arena>,
    levels: Levels,
    now: Duration,
    pages: Pages,
    /// The state at each transaction, and its time.
    states: BTreeMap<u64, (Pages, i64)>,
}

impl History {
    fn new(seed: u64) -> History {
        let mut history = History {
            random: Random::new(seed),
            replica: Replica::new(Arc::new(MemoryStore::default()), Layout::Objects, ""),
            arena: Arena::new(1 << 20, std::env::temp_dir()),
            levels: Levels::new(&[], 3, Duration::ZERO),
            now: Duration::ZERO,
            pages: BTreeMap::new(),
            states: BTreeMap::new(),
        };
        history.pages = (1..=6).map(|page| (page, 1)).collect();
        history.remember(1);
        history.snapshot();
        history
    }

    fn millis(&self) -> i64 {
        BEGIN_MILLIS + self.now.as_millis() as i64
    }

    fn newest(&self) -> u64 {
        *self.states.last_key_value().unwrap().0
    }

    fn remember(&mut self, txid: u64) {
        self.states.insert(txid, (self.pages.clone(), self.millis()));
    }

    fn put(&mut self, level: u8, min_txid: u64, max_txid: u64, pages: &Pages) {
        let header = Header {
            flags: NO_CHECKSUM,
            page_size: PAGE_BYTES as u32,
            commit: self.pages.len() as u32,
            min_txid,
            max_txid,
            timestamp_millis: self.millis(),
            ..Header::default()
        };
        let mut encoder = Encoder::new(self.arena.stage(), header.clone()).unwrap();
        for (number, content) in pages {
            encoder.page(*number, &content.to_be_bytes().repeat(PAGE_BYTES / 8)).unwrap();
        }
        let (content, checksum) = encoder.finish().unwrap();
        let mut file = LtxFile { content, header, checksum };
        self.replica.put(level, &mut file).unwrap();
        self.levels.arrived(level, file.name(), self.now);
    }

    fn snapshot(&mut self) {
        let pages = self.pages.clone();
        self.put(SNAPSHOT_LEVEL, 1, self.newest(), &pages);
    }

    /// A transaction that changes pages, grows or shrinks the database.
    fn commit(&mut self) {
        let txid = self.newest() + 1;
        let size = (self.pages.len() as u64 + self.random.below(3)).saturating_sub(1).clamp(2, 20) as u32;
        let mut changed: Pages = (0..3).map(|_| (1 + self.random.below(size.into()) as u32, txid)).collect();
        changed.extend((self.pages.len() as u32 + 1..=size).map(|page| (page, txid)));
        self.pages.extend(&changed);
        self.pages.split_off(&(size + 1));
        self.put(0, txid, txid, &changed);
        self.remember(txid);
    }

    fn merge(&mut self) {
        while let Some(level) = self.levels.due(&LITESTREAM_INTERVALS, self.now) {
            let batch = self.levels.batch(level);
            let mut file = merge_files(&self.replica, level, &batch, &self.arena, |_| true).unwrap();
            self.replica.put(level + 1, &mut file).unwrap();
            self.levels.merged(level, &batch, self.now);
        }
    }

    /// Seconds to days in which a few transactions come, and are merged in the end.
    fn go_on(&mut self) {
        let most_seconds = [20, 600, 7200, 200_000][self.random.below(4) as usize];
        for _ in 0..1 + self.random.below(6) {
            let next = self.now + Duration::from_secs(1 + self.random.below(most_seconds));
            for interval in LITESTREAM_INTERVALS {
                self.now = next.min(self.now + interval);
                self.merge();
            }
            self.now = next;
            self.commit();
            self.merge();
        }
        if self.random.below(4) == 0 {
            self.snapshot();
        }
    }

    fn files(&self) -> Vec<RemoteFile> {
        self.replica.files().unwrap()
    }

    /// What files hold, one after another.
    fn state(&self, files: &[RemoteFile]) -> Pages {
        let mut pages = Pages::new();
        for file in files {
            let read = self.replica.read(file, |header, number, page| {
                pages.insert(number, u64::from_be_bytes(page[..8].try_into().unwrap()));
                pages.split_off(&(header.commit + 1));
                Ok(())
            });
            pages.split_off(&(read.unwrap().0.commit + 1));
        }
        pages
    }
}

fn policy() -> Policy {
    Policy { hourly: 12, daily: 7, weekly: 3, monthly: 2, ..Policy::default() }
}

/// A number of seeds; more by `WALSYNC_SEEDS`.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    0..std::env::var("WALSYNC_SEEDS").map_or(usual, |seeds| seeds.parse().unwrap())
}

#[test]
fn what_is_kept_is_restored_after_weeks_of_merging_and_removing() {
    let (mut removed, mut thinned) = (0, 0);
    for seed in seeds(60) {
        let mut history = History::new(seed);
        let mut kept = Default::default();
        for _ in 0..60 {
            history.go_on();
            let points = plan(&history.files(), &policy(), 3, i64::MAX).unwrap().points;
            removed += enforce(&history.replica, &policy(), 3, i64::MAX, history.newest(), || true).unwrap();
            let chain = Chain::new(history.files());
            for point in &points {
                let plan = chain.plan(*point).unwrap_or_else(|error| panic!("seed {seed}, TXID {point}: {error}"));
                assert_eq!(history.state(&plan), history.states[point].0, "seed {seed}, TXID {point}");
            }
            // Within the last day nothing is coarser than a file of level 1: 30 s.
            let now = history.millis();
            let recent = history.states.iter().filter(|(_, (_, time))| now - time < 86_400_000);
            for (txid, (_, time)) in recent {
                let next = points.range(txid..).next().unwrap();
                let late = history.states[next].1 - time;
                assert!(late <= 30_000, "seed {seed}: TXID {txid} is kept as {next}, {late} ms later");
            }
            kept = points;
        }
        thinned += history.states.len() - kept.len();
    }
    assert!(removed > 1000 && thinned > 1000, "{removed} files removed, {thinned} points given up");
}

#[test]
fn any_object_that_is_missing_is_named_by_every_restore_that_needs_it() {
    let mut needed = 0;
    for seed in seeds(40) {
        let mut history = History::new(seed);
        for _ in 0..12 {
            history.go_on();
            enforce(&history.replica, &policy(), 3, i64::MAX, history.newest(), || true).unwrap();
        }
        let files = history.files();
        let whole = Chain::new(files.clone());
        let points: Vec<u64> = whole.restorable().collect();
        let time = |file: &RemoteFile| Ok::<i64, NoWay>(history.states[&file.name.max_txid].1);
        let mut states: HashMap<Vec<(u8, u64)>, bool> = HashMap::new();
        for gone in &files {
            let left: Vec<RemoteFile> = files.iter().filter(|file| *file != gone).copied().collect();
            let chain = Chain::new(left);
            for &point in &points {
                match chain.plan(point) {
                    Ok(plan) => {
                        assert!(!plan.contains(gone));
                        let key = plan.iter().map(|file| (file.level, file.name.max_txid)).collect();
                        let equal = || history.state(&plan) == history.states[&point].0;
                        assert!(*states.entry(key).or_insert_with(equal), "seed {seed}: {point} without {gone:?}");
                    }
                    Err(error) => {
                        needed += 1;
                        // It can be restored with the file: what the message says is missing is of it.
                        let (below, above) = match &error {
                            NoWay::Hole { below, above, .. } | NoWay::NoSuchPoint { below, above, .. } => {
                                (*below, *above)
                            }
                        };
                        let around = below.unwrap_or(0) < gone.name.max_txid
                            && above.is_none_or(|above| above >= gone.name.min_txid);
                        assert!(around, "seed {seed}: {point} without {gone:?}: {error}");
                    }
                }
                let asked = history.states[&point].1;
                // The newest object of all is the one of which nothing tells.
                if gone.name.max_txid < history.newest()
                    && let Ok(found) = chain.point_at(asked, i64::MAX, time)
                    && chain.plan(found).is_ok()
                {
                    // A point in time may be coarser without the file, but no transaction between the two is lost.
                    let found_whole = whole.point_at(asked, i64::MAX, time).unwrap();
                    assert!(found <= found_whole, "seed {seed}: {found} is after what was asked");
                    let goes_on = || {
                        let mut files: Vec<RemoteFile> = files.iter().filter(|file| *file != gone).copied().collect();
                        files.retain(|file| file.name.min_txid > 1 || file.name.max_txid <= found);
                        Chain::new(files).restorable().any(|point| point >= found_whole)
                    };
                    assert!(found == found_whole || goes_on(), "seed {seed}: {gone:?} is a hole that nobody told of");
                }
            }
        }
    }
    assert!(needed > 500, "{needed}");
}

#[test]
fn nothing_is_removed_from_a_replica_that_has_a_hole_or_is_not_listed_whole() {
    let mut history = History::new(1);
    for _ in 0..40 {
        history.go_on();
    }
    let files = history.files();
    let newest = history.newest();
    let stale = enforce(&history.replica, &policy(), 3, i64::MAX, newest + 1, || true).unwrap_err();
    assert!(matches!(stale, RetentionError::StaleListing { listed, .. } if listed == newest), "{stale}");
    assert!(!plan(&files, &policy(), 3, i64::MAX).unwrap().remove.is_empty());
    // Without the file that all others of today stand on.
    let row = Chain::new(files.clone()).plan(newest).unwrap();
    let holed: Vec<RemoteFile> =
        files.iter().filter(|file| file.name.min_txid != row[0].name.min_txid).copied().collect();
    let error = plan(&holed, &policy(), 3, i64::MAX).unwrap_err();
    assert!(matches!(error, RetentionError::Hole(_)), "{error}");
    assert_eq!(history.files(), files);
}

#[test]
fn a_database_that_nobody_writes_keeps_what_it_has() {
    let mut history = History::new(2);
    for _ in 0..5 {
        history.commit();
        history.now += Duration::from_secs(10);
    }
    // Years later by the clock of whoever looks: time is that of the newest file.
    let plan = plan(&history.files(), &policy(), 3, i64::MAX).unwrap();
    assert_eq!(plan.remove, []);
}

#[test]
fn what_is_kept_until_a_long_pause_ends_stays_for_the_grace_after_it() {
    let mut history = History::new(3);
    for _ in 0..20 {
        history.commit();
        history.now += Duration::from_secs(10);
        history.merge();
    }
    let removed = |history: &History| plan(&history.files(), &policy(), 3, history.millis()).unwrap().remove;
    assert_eq!(removed(&history), [], "no upload is older than five minutes");
    // Restores that begin now have chosen their files when the next commit comes.
    let chain = Chain::new(history.files());
    let chosen: Vec<RemoteFile> = history.states.keys().flat_map(|txid| chain.plan(*txid).unwrap()).collect();
    let taken_away = |history: &History| removed(history).into_iter().filter(|file| chosen.contains(file)).count();
    history.now += Duration::from_secs(3 * 86_400);
    history.commit();
    assert_eq!(taken_away(&history), 0);
    history.now += policy().grace + Duration::from_secs(1);
    history.commit();
    assert!(taken_away(&history) > 0, "they have had their time");
}

/// A store in which, once it was listed, files are merged: they vanish, and a file that replaces them is there.
struct MergedMeanwhile {
    store: Arc<MemoryStore>,
    parts: Vec<String>,
    merged: (String, Vec<u8>),
}

impl Store for MergedMeanwhile {
    fn create(&self, key: &str, body: &mut dyn Body, length: u64, attributes: &Attributes) -> Result<(), StoreError> {
        self.store.create(key, body, length, attributes)
    }

    fn get(&self, key: &str, range: Option<std::ops::Range<u64>>) -> Result<Box<dyn Read + Send>, StoreError> {
        self.store.get(key, range)
    }

    fn get_part(&self, key: &str, range: std::ops::Range<u64>, version: Option<&str>) -> Result<Part, StoreError> {
        self.store.get_part(key, range, version)
    }

    fn list_after(&self, prefix: &str, after: &str) -> Result<Vec<Object>, StoreError> {
        let listed = self.store.list_after(prefix, after);
        let (key, content) = &self.merged;
        let length = content.len() as u64;
        let _ = self.store.create(key, &mut std::io::Cursor::new(content), length, &Attributes::default());
        self.parts.iter().for_each(|key| self.store.delete(key).unwrap());
        listed
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.store.delete(key)
    }
}

#[test]
fn a_restore_whose_files_are_removed_under_it_plans_anew() {
    let memory = Arc::new(MemoryStore::default());
    let mut history = History::new(3);
    history.replica = Replica::new(memory.clone(), Layout::Objects, "");
    history.snapshot();
    for _ in 0..3 {
        history.commit();
    }
    // Merged, and then as before: it is merged again when the restore has listed what there is.
    let parts = history.files().into_iter().filter(|file| file.level == 0);
    let parts: Vec<String> = parts.map(|file| history.replica.key(0, file.name)).collect();
    let before = memory.list("").unwrap();
    history.now += LITESTREAM_INTERVALS[0];
    history.merge();
    let merged = memory.list("").unwrap().into_iter().find(|object| !before.contains(object)).unwrap().key;
    let mut content = Vec::new();
    memory.get(&merged, None).unwrap().read_to_end(&mut content).unwrap();
    memory.delete(&merged).unwrap();
    let store = MergedMeanwhile { store: memory, parts, merged: (merged.clone(), content) };
    let replica = Replica::new(Arc::new(store), Layout::Objects, "");
    let folder = harness::folder();
    let restored = restore(&replica, Target::Latest, &folder.path().join("restored.db"), false).unwrap();
    assert_eq!(restored.txid, history.newest());
    assert!(restored.files.iter().any(|(key, _)| *key == merged));
}
