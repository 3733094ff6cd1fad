//! Levels: what is merged restores the same states, also by Litestream, and by names, by time and at the end.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{folder, until};
use ltx::{FileName, Layout, SNAPSHOT_LEVEL};
use std::io::{Cursor, Read as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use support::{Application, content, restored_by_litestream};
use walsync::clock::SystemClock;
use walsync::compaction::{Levels, MergeError, merge_files};
use walsync::replica::Replica;
use walsync::replicator::{Phase, Replicator, Settings};
use walsync::restore::{Target, restore};
use walsync::store::Store as _;
use walsync::store::files::FileStore;
use walsync::store::memory::{Fault, MemoryStore};

const TABLE: &str = "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v BLOB)";

#[test]
#[ignore = "the body of child processes, started by the other tests"]
fn application_process() {
    support::application_process();
}

fn restored(replica: &Replica, target: Target) -> Vec<u8> {
    let folder = folder();
    let path = folder.path().join("restored.db");
    restore(replica, target, &path, true).unwrap();
    std::fs::read(path).unwrap()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => {
                std::fs::copy(entry.path(), &target).unwrap();
                let modified = entry.metadata().unwrap().modified().unwrap();
                std::fs::File::open(&target).unwrap().set_modified(modified).unwrap();
            }
        }
    }
}

#[test]
fn litestream_restores_what_is_merged_as_it_was_latest_by_txid_and_by_time() {
    let place = folder();
    let (database, store) = (place.path().join("app.db"), place.path().join("store"));
    let replica = |store: &Path| Replica::new(Arc::new(FileStore::new(store.to_owned())), Layout::Files, "");
    let mut application = Application::start(&database, TABLE);
    let settings = Settings {
        interval: Duration::from_millis(30),
        levels: [150, 500, 1500].map(Duration::from_millis).to_vec(),
        retention: None,
        ..Settings::default()
    };
    let replicator = Replicator::start(settings, Arc::new(SystemClock::default())).unwrap();
    replicator.add(database.clone(), replica(&store));
    let mut states = std::collections::BTreeMap::new();
    for step in 0..40 {
        application.run(match step % 10 {
            3 => "VACUUM",
            5 => "DELETE FROM t WHERE id % 2",
            7 => "PRAGMA wal_checkpoint(TRUNCATE)",
            8 => "UPDATE t SET v = randomblob(700)",
            _ => "INSERT INTO t(v) VALUES (randomblob(9000))",
        });
        assert!(replicator.sync(harness::LONG));
        states.insert(replicator.status()[0].durable_txid, content(&database));
    }
    let newest = *states.last_key_value().unwrap().0;
    let end = |level: u8| {
        let files = replica(&store).files().unwrap();
        files.iter().filter(|file| file.level == level).map(|file| file.name.max_txid).max()
    };
    until("all of it in level 3", || end(3) == Some(newest));
    drop(replicator);
    application.close();
    for level in 0..=3 {
        // Of what is merged into this level only the merged files are left.
        let left = place.path().join(format!("level-{level}"));
        copy(&store, &left);
        let replica = replica(&left);
        let files = replica.files().unwrap();
        for file in files.iter().filter(|file| file.level < level && file.name.min_txid > 1) {
            replica.remove(file).unwrap();
        }
        let files = replica.files().unwrap();
        let mut ends: Vec<_> = files.iter().filter(|file| file.level == level).collect();
        let fewest = [30, 2, 1, 1][usize::from(level)];
        assert!(ends.len() >= fewest, "level {level}: {} files", ends.len());
        ends.retain(|file| states.contains_key(&file.name.max_txid));
        let url = format!("file://{}", left.display());
        assert!(restored(&replica, Target::Latest) == states[&newest], "level {level}");
        assert!(restored_by_litestream(&url, &[]) == states[&newest], "level {level}, by Litestream");
        for file in ends.iter().step_by(1 + ends.len() / 6) {
            let txid = file.name.max_txid;
            let time = replica.header(file).unwrap().timestamp_millis;
            assert_eq!(time, file.modified_millis, "the time of a file is that of its last commit");
            assert!(restored(&replica, Target::Txid(txid)) == states[&txid], "level {level}, TXID {txid}");
            assert!(restored(&replica, support::time(time)) == states[&txid], "level {level}, time of TXID {txid}");
            let theirs = restored_by_litestream(&url, &["-txid", &format!("{txid:016x}")]);
            assert!(theirs == states[&txid], "level {level}, TXID {txid}, by Litestream");
            // Litestream takes what is before a time, not at it, and no time after the newest.
            if txid == newest {
                continue;
            }
            let after = jiff::Timestamp::from_millisecond(time + 1).unwrap().to_string();
            let theirs = restored_by_litestream(&url, &["-timestamp", &after]);
            assert!(theirs == states[&txid], "level {level}, time of TXID {txid}, by Litestream");
        }
    }
}

#[test]
fn a_file_that_another_writer_has_replaced_is_seen_by_who_restores_and_by_who_sent_it() {
    let folder = folder();
    let start = |name: &str, levels: Vec<Duration>| {
        let database = folder.path().join(name);
        let mut application = Application::start(&database, TABLE);
        let store = Arc::new(MemoryStore::default());
        let settings = Settings { interval: Duration::from_millis(30), levels, ..Settings::default() };
        let replicator = Replicator::start(settings, Arc::new(SystemClock::default())).unwrap();
        replicator.add(database, Replica::new(store.clone(), Layout::Objects, "app.db"));
        for _ in 0..4 {
            application.run("INSERT INTO t(v) VALUES (randomblob(900))");
            assert!(replicator.sync(harness::LONG));
        }
        (replicator, store, application)
    };
    let (first, store, application) = start("one.db", vec![Duration::from_secs(3)]);
    let (other, others, others_application) = start("two.db", Vec::new());
    // As Litestream does, which knows of no condition.
    let key = store.list("app.db/0000/").unwrap().remove(2).key;
    let mut content = Vec::new();
    others.get(&key, None).unwrap().read_to_end(&mut content).unwrap();
    store.delete(&key).unwrap();
    store.create(&key, &mut Cursor::new(&content), content.len() as u64, &Default::default()).unwrap();
    let replica = Replica::new(store.clone(), Layout::Objects, "app.db");
    let said = restore(&replica, Target::Latest, &folder.path().join("torn.db"), true).unwrap_err().to_string();
    assert!(said.contains("0000000000000003.ltx") && said.contains("a second writer has replaced"), "{said}");
    until("the fence", || matches!(&first.status()[0].phase, Phase::Fenced(replaced) if *replaced == key));
    drop((first, other));
    application.close();
    others_application.close();
}

#[test]
fn what_may_go_is_said_first_and_goes_by_force_alone() {
    let place = folder();
    let (database, store) = (place.path().join("app.db"), place.path().join("store"));
    let replica = Replica::new(Arc::new(FileStore::new(store.clone())), Layout::Files, "");
    let mut application = Application::start(&database, TABLE);
    let clock = Arc::new(support::SetClock::default());
    let levels = [1, 2, 3].map(Duration::from_millis).to_vec();
    let settings = Settings { interval: Duration::from_millis(30), levels, retention: None, ..Settings::default() };
    // A snapshot and a transaction each day.
    let replicator =
        Replicator::start(Settings { snapshot_interval: Duration::ZERO, ..settings }, clock.clone()).unwrap();
    replicator.add(database.clone(), replica.clone());
    for day in 0..100 {
        clock.set(1_790_000_000_000 + day * 86_400_000);
        application.run("INSERT INTO t(v) VALUES (randomblob(1000))");
        assert!(replicator.sync(harness::LONG));
    }
    let newest = replicator.status()[0].durable_txid;
    let is_merged = |file: &walsync::replica::RemoteFile| file.level == 3 && file.name.max_txid == newest;
    until("all of it in level 3", || replica.files().unwrap().iter().any(is_merged));
    drop(replicator);
    let compact = |arguments: &[&str]| {
        harness::output(support::walsync().arg("compact").arg(&store).args(["--monthly", "2"]).args(arguments))
    };
    let before = replica.files().unwrap();
    let said = compact(&[]);
    assert!(said.contains("would remove") && said.ends_with("--force does it\n"), "{said}");
    assert_eq!(replica.files().unwrap(), before);
    let refused = support::walsync().arg("compact").arg(&store).arg("--force").output().unwrap();
    assert!(!refused.status.success(), "a process may watch it, and keep more than the flags do");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--watched-by"), "{refused:?}");
    let keeps = place.path().join("walsync.yml");
    std::fs::write(&keeps, "store: file:///nowhere\nretention: {keep-everything: true}\ndatabases: []\n").unwrap();
    let refused =
        support::walsync().arg("compact").arg(&store).arg("--force").arg("--watched-by").arg(&keeps).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("keeps everything"), "{refused:?}");
    assert_eq!(replica.files().unwrap(), before);
    let done = compact(&["--force", "--unwatched"]);
    let after = replica.files().unwrap();
    assert!(after.len() < before.len() / 2, "{} of {} files are left: {done}", after.len(), before.len());
    assert!(restored(&replica, Target::Latest) == content(&database));
    application.close();
}

#[test]
fn a_snapshot_taken_later_does_not_move_the_time_of_its_point() {
    const HOUR_MILLIS: i64 = 3_600_000;
    let at = |hours: i64| 1_790_000_000_000 + hours * HOUR_MILLIS;
    let place = folder();
    let (database, store) = (place.path().join("app.db"), place.path().join("store"));
    let replica = Replica::new(Arc::new(FileStore::new(store.clone())), Layout::Files, "");
    let mut application = Application::start(&database, TABLE);
    let clock = Arc::new(support::SetClock::default());
    let run = |snapshot_interval| {
        let interval = Duration::from_millis(30);
        let settings =
            Settings { interval, levels: Vec::new(), snapshot_interval, retention: None, ..Settings::default() };
        let replicator = Replicator::start(settings, clock.clone()).unwrap();
        replicator.add(database.clone(), replica.clone());
        assert!(replicator.sync(harness::LONG));
        replicator
    };
    clock.set(at(0));
    let replicator = run(harness::LONG);
    clock.set(at(1));
    application.run("INSERT INTO t(v) VALUES (randomblob(1000))");
    assert!(replicator.sync(harness::LONG));
    let point = replicator.status()[0].durable_txid;
    assert!(replicator.stop(harness::LONG).is_empty());
    let expected = content(&database);
    // The next process finds that one is due.
    clock.set(at(2));
    let replicator = run(Duration::ZERO);
    let of_point = || replica.files().unwrap().into_iter().filter(|file| file.name.max_txid == point);
    until("a snapshot", || of_point().any(|file| file.level == SNAPSHOT_LEVEL));
    assert!(replicator.stop(harness::LONG).is_empty());
    application.close();
    // As retention does.
    replica.remove(&of_point().find(|file| file.level == 0).unwrap()).unwrap();
    assert!(restored(&replica, support::time(at(1) + HOUR_MILLIS / 2)) == expected);
    assert!(restored(&replica, support::time(at(1))) == expected);
    assert!(restored(&replica, support::time(at(1) - 1)) != expected);
    assert!(restored_by_litestream(&format!("file://{}", store.display()), &[]) == expected);
}

fn name(min_txid: u64, max_txid: u64) -> FileName {
    FileName { min_txid, max_txid }
}

#[test]
fn files_with_a_gap_between_them_are_not_merged_into_one() {
    let (mut levels, interval) = (Levels::new(&[], 2, Duration::ZERO), [Duration::from_secs(1); 2]);
    for txid in [2, 3, 5, 6] {
        levels.arrived(0, name(txid, txid), Duration::from_secs(txid));
    }
    assert_eq!(levels.due(&interval, Duration::from_millis(2999)), None);
    assert_eq!(levels.due(&interval, Duration::from_secs(3)), Some(0));
    let first = levels.batch(0);
    assert_eq!(first, [name(2, 2), name(3, 3)]);
    levels.merged(0, &first, Duration::from_secs(7));
    assert_eq!((levels.batch(0), levels.batch(1)), (vec![name(5, 5), name(6, 6)], vec![name(2, 3)]));
    // A snapshot is no file of a level that is merged, and not even the first file of level 0 is.
    levels.arrived(0, name(1, 1), Duration::from_secs(7));
    levels.arrived(SNAPSHOT_LEVEL, name(1, 6), Duration::from_secs(7));
    assert_eq!(levels.due(&interval, Duration::from_millis(7999)), None);
}

#[test]
fn more_files_than_are_read_at_once_are_merged_as_well() {
    use walsync::arena::Arena;
    use walsync::replica::LtxFile;
    let arena = Arena::new(0, std::env::temp_dir());
    let store = Arc::new(MemoryStore::default());
    let replica = Replica::new(store.clone(), Layout::Objects, "");
    let names: Vec<FileName> = (2..302).map(|txid| name(txid, txid)).collect();
    for name in &names {
        let header = ltx::Header {
            flags: ltx::NO_CHECKSUM,
            page_size: 512,
            commit: 50,
            min_txid: name.min_txid,
            max_txid: name.max_txid,
            timestamp_millis: name.max_txid as i64,
            ..ltx::Header::default()
        };
        let mut encoder = ltx::Encoder::new(arena.stage(), header.clone()).unwrap();
        encoder.page(1 + name.max_txid as u32 % 40, &[name.max_txid as u8; 512]).unwrap();
        let (content, checksum) = encoder.finish().unwrap();
        replica.put(0, &mut LtxFile { content, header, checksum }).unwrap();
    }
    // Whoever has lost a permission has lost no file, and takes no batch for damaged.
    store.set_fault(Fault::Forbid);
    let refused = merge_files(&replica, 0, &names, &arena, |_| true).map(drop);
    assert!(matches!(refused, Err(MergeError::Store(_))), "{refused:?}");
    store.set_fault(Fault::None);
    let gone = merge_files(&replica, 0, &[name(1, 1)], &arena, |_| true).map(drop);
    assert!(matches!(gone, Err(MergeError::Damaged(_))), "{gone:?}");
    let mut merged = merge_files(&replica, 0, &names, &arena, |_| true).unwrap();
    assert_eq!((merged.header.min_txid, merged.header.max_txid, merged.header.timestamp_millis), (2, 301, 301));
    replica.put(1, &mut merged).unwrap();
    let file = replica.files().unwrap().into_iter().find(|file| file.level == 1).unwrap();
    let mut pages = Vec::new();
    let note = |_: &ltx::Header, number, page: &[u8]| {
        pages.push((number, page[0]));
        Ok(())
    };
    replica.read(&file, note).unwrap();
    let newest = |page: u32| (page, (262..302u32).find(|txid| 1 + txid % 40 == page).unwrap() as u8);
    assert_eq!(pages, (1..=40).map(newest).collect::<Vec<_>>());
}
