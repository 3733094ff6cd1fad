//! Rows on disk are those that memory has, through commits, restarts and replacements of everything.

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::memory::Memory;
use super::super::rows::single;
use super::super::snapshot;
use super::*;

#[derive(Clone, Debug)]
enum Step {
    Put(Table, Bytes, Bytes),
    Delete(Table, Bytes),
    Commit,
    Clear,
    Restart,
}

fn key() -> impl Strategy<Value = Bytes> {
    vec(prop_oneof![Just(0), Just(b'a'), Just(u8::MAX)], 0..3).prop_map(Bytes::from)
}

fn table() -> impl Strategy<Value = Table> {
    prop_oneof![Just(Table::Keys), Just(Table::Expiries), Just(Table::ALL[Table::ALL.len() - 1])]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (table(), key(), key()).prop_map(|(table, key, value)| Step::Put(table, key, value)),
        3 => (table(), key()).prop_map(|(table, key)| Step::Delete(table, key)),
        3 => Just(Step::Commit),
        1 => Just(Step::Clear),
        1 => Just(Step::Restart),
    ]
}

fn rows(of: &dyn Rows) -> Vec<(Table, Bytes, Bytes)> {
    let mut rows = Vec::new();
    for table in Table::ALL {
        let mut take = |key: &Bytes, value: &Bytes| {
            rows.push((table, key.clone(), value.clone()));
            ControlFlow::Continue(())
        };
        of.scan(table, &[], None, &mut take).unwrap();
    }
    rows
}

fn put_all(storage: &mut impl Storage, rows: &[(Table, Bytes, Bytes)]) {
    for (table, key, value) in rows {
        storage.put(*table, key.clone(), value.clone()).unwrap();
    }
}

const CACHE_BYTES: u64 = 1 << 20;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn disk_has_what_memory_has(steps in vec(step(), 0..60), start in key(), end in key()) {
        let directory = harness::folder();
        let mut disk = Disk::open(directory.path(), CACHE_BYTES).unwrap();
        let mut memory = Memory::default();
        let (mut committed, mut applied) = (Vec::new(), 0);
        for (index, step) in (1..).zip(steps) {
            match step {
                Step::Put(table, key, value) => {
                    disk.put(table, key.clone(), value.clone()).unwrap();
                    memory.put(table, key, value).unwrap();
                }
                Step::Delete(table, key) => {
                    disk.delete(table, &key).unwrap();
                    memory.delete(table, &key).unwrap();
                }
                Step::Commit => {
                    disk.commit(index).unwrap();
                    memory.commit(index).unwrap();
                    (committed, applied) = (rows(&memory), index);
                }
                Step::Clear => {
                    disk.clear().unwrap();
                    memory.clear().unwrap();
                    prop_assert_eq!(disk.applied(), 0);
                }
                Step::Restart => {
                    // An end as it should be: what was committed is there, what was not is gone.
                    drop(disk);
                    disk = Disk::open(directory.path(), CACHE_BYTES).unwrap();
                    prop_assert_eq!(disk.applied(), applied);
                    memory = Memory::default();
                    put_all(&mut memory, &committed);
                    memory.commit(applied).unwrap();
                }
            }
            prop_assert_eq!(rows(&disk), rows(&memory));
            prop_assert_eq!(rows(&*disk.view()), committed.clone());
            for table in Table::ALL {
                let page = |of: &dyn Rows| {
                    let mut page = Vec::new();
                    of.scan(table, &start, Some(&end), &mut |key, _| {
                        page.push(key.clone());
                        if page.len() < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                    }).unwrap();
                    page
                };
                prop_assert_eq!(page(&disk), page(&memory));
                prop_assert_eq!(disk.get(table, &start).unwrap(), memory.get(table, &start).unwrap());
            }
        }
    }
}

/// What `disk_has_what_memory_has` drew once: the second replacement had the identity of the first one, which the start between them had
/// deleted.
#[test]
fn a_replacement_after_one_that_was_not_finished_is_there_after_a_restart() {
    let directory = harness::folder();
    let open = || Disk::open(directory.path(), CACHE_BYTES).unwrap();
    let new = [(Table::Keys, "new".into(), "1".into())];
    for rows_of_the_first in [&[][..], &[(Table::Keys, "first".into(), vec![7; PENDING_BYTES_MAX].into())]] {
        let mut disk = open();
        disk.commit(1).unwrap();
        disk.clear().unwrap();
        put_all(&mut disk, rows_of_the_first);
        drop(disk);
        drop(open());
        let mut disk = open();
        assert_eq!((disk.applied(), rows(&disk)), (1, vec![]));
        disk.clear().unwrap();
        put_all(&mut disk, &new);
        disk.commit(6).unwrap();
        drop(disk);
        let mut disk = open();
        assert_eq!((disk.applied(), rows(&disk)), (6, new.to_vec()));
        // As it began.
        disk.delete(Table::Keys, b"new").unwrap();
        disk.commit(1).unwrap();
    }
}

/// The journal that has what the first replacement wrote, has what the second one wrote, too, and is kept for the rows of before: fjall
/// counts what it writes anew when the rows of the first are gone.
#[test]
fn a_replacement_may_be_begun_again_and_again() {
    let directory = harness::folder();
    let open = || Disk::open(directory.path(), CACHE_BYTES).unwrap();
    let journals = || {
        let names = std::fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().path());
        names.filter(|name| name.extension().is_some_and(|kind| kind == "jnl")).count()
    };
    let old = [(Table::Keys, "old".into(), "1".into())];
    let value = Bytes::from(vec![7; 1 << 20]);
    let begin = |disk: &mut Disk, values: u8| {
        disk.clear().unwrap();
        for number in 0..values {
            disk.put(Table::Keys, Bytes::copy_from_slice(&[number]), value.clone()).unwrap();
        }
    };
    let mut disk = open();
    put_all(&mut disk, &old);
    disk.commit(7).unwrap();
    begin(&mut disk, 56);
    drop(disk);
    drop(open());
    let mut disk = open();
    begin(&mut disk, 32);
    // The next journal is begun beside the writing.
    let deadline = Instant::now() + WRITE_TIMEOUT;
    while journals() < 2 {
        assert!(Instant::now() < deadline, "the journal is not full");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(disk);
    let mut disk = open();
    assert_eq!((disk.applied(), rows(&disk)), (7, old.to_vec()));
    begin(&mut disk, 3);
    disk.commit(9).unwrap();
    drop(disk);
    let disk = open();
    assert_eq!((disk.applied(), rows(&disk).len()), (9, 3));
}

#[test]
fn a_replacement_that_was_not_finished_is_as_if_it_had_not_begun() {
    let directory = harness::folder();
    let mut disk = Disk::open(directory.path(), CACHE_BYTES).unwrap();
    put_all(&mut disk, &[(Table::Keys, "old".into(), "1".into())]);
    disk.commit(7).unwrap();
    let before = disk.view();
    disk.clear().unwrap();
    // More than waits in memory.
    let value = Bytes::from(vec![7; 1 << 20]);
    for number in 0..10_u8 {
        disk.put(Table::Keys, Bytes::copy_from_slice(&[number]), value.clone()).unwrap();
    }
    assert_eq!(rows(&disk).len(), 10);
    assert_eq!(rows(&*disk.view()), rows(&*before));
    drop((disk, before));

    let mut disk = Disk::open(directory.path(), CACHE_BYTES).unwrap();
    assert_eq!((disk.applied(), rows(&disk).len()), (7, 1));
    disk.clear().unwrap();
    put_all(&mut disk, &[(Table::Keys, "new".into(), "2".into())]);
    disk.commit(9).unwrap();
    drop(disk);
    let disk = Disk::open(directory.path(), CACHE_BYTES).unwrap();
    assert_eq!((disk.applied(), rows(&disk)), (9, vec![(Table::Keys, "new".into(), "2".into())]));
}

#[test]
fn what_is_read_slowly_is_as_of_one_moment() {
    let directory = harness::folder();
    let mut disk = Disk::open(directory.path(), CACHE_BYTES).unwrap();
    for number in 0..100_u8 {
        let table = Table::ALL[usize::from(number) % Table::ALL.len()];
        put_all(&mut disk, &[(table, Bytes::copy_from_slice(&[number]), vec![number; 5].into())]);
    }
    disk.commit(7).unwrap();
    let (before, mut expected, mut written) = (rows(&*disk.view()), Vec::new(), Vec::new());
    snapshot::write(&*disk.view(), &mut expected).unwrap();
    snapshot::write_tables(disk.view(), &|_| true, &mut written).unwrap();
    assert!(written == expected);
    let all = disk.view().detach().unwrap();
    disk.delete(Table::Keys, &[0]).unwrap();
    put_all(&mut disk, &[(Table::Keys, "new".into(), "1".into()), (Table::Users, "new".into(), "1".into())]);
    disk.commit(8).unwrap();
    // Also where everything is replaced, and nobody else has the files any more.
    disk.clear().unwrap();
    disk.commit(9).unwrap();
    assert_eq!(all.collect::<Result<Vec<_>, _>>().unwrap(), before);
}

/// Fifteen memtables, of which a few wait to be written; a view that is kept has all of them in memory.
#[test]
fn what_is_written_while_all_is_read_slowly_does_not_stay_in_memory() {
    let directory = harness::folder();
    let mut disk = Disk::open(directory.path(), CACHE_BYTES).unwrap();
    let write = |disk: &mut Disk| {
        for number in 0..240_u8 {
            disk.put(Table::Keys, Bytes::copy_from_slice(&[number]), vec![number; 1 << 20].into()).unwrap();
            disk.commit(u64::from(number) + 1).unwrap();
        }
    };
    let bytes = |disk: &Disk| disk.keyspace().tree.version_memtable_size_sum();
    let view = disk.view();
    write(&mut disk);
    let kept_bytes = bytes(&disk);
    drop(view);
    let all = disk.view().detach().unwrap();
    write(&mut disk);
    assert!(kept_bytes > 220 << 20, "{kept_bytes}");
    // It goes to the disk behind who writes, who may be faster for a moment.
    harness::until("room in memory", || bytes(&disk) < 200 << 20);
    assert_eq!(all.count(), 240);
}

/// Readers have the view of before for all that time.
#[test]
fn what_replaces_everything_does_not_stay_in_memory() {
    let directory = harness::folder();
    let mut disk = Disk::open(directory.path(), CACHE_BYTES).unwrap();
    let old = [(Table::Keys, "old".into(), "1".into())];
    put_all(&mut disk, &old);
    disk.commit(1).unwrap();
    let view = disk.view();
    disk.clear().unwrap();
    for number in 0..240_u8 {
        disk.put(Table::Keys, Bytes::copy_from_slice(&[number]), vec![number; 1 << 20].into()).unwrap();
    }
    // It goes to the disk behind who writes, who may be faster for a moment.
    harness::until("room in memory", || disk.keyspace().tree.version_memtable_size_sum() < 200 << 20);
    assert_eq!(rows(&*view), old);
    assert_eq!(view.get(Table::Keys, b"old").unwrap().as_deref(), Some(&b"1"[..]));
    disk.commit(2).unwrap();
    assert_eq!(rows(&*view), old);
    assert_eq!(rows(&*disk.view()).len(), 240);
}

#[test]
fn a_damaged_state_is_moved_aside_and_begun_anew() {
    let root = harness::folder();
    let directory = root.path().join("state");
    // Twice: what is moved aside takes the place of what was.
    for round in 0..2 {
        let mut disk = Disk::open(&directory, CACHE_BYTES).unwrap();
        for number in 1..=9_u8 {
            put_all(&mut disk, &[(Table::Keys, Bytes::copy_from_slice(&[number]), vec![number; 100].into())]);
            disk.commit(number.into()).unwrap();
        }
        drop(disk);
        let files = std::fs::read_dir(&directory).unwrap().map(|file| file.unwrap().path());
        let journals: Vec<_> = files.filter(|file| file.extension().is_some_and(|kind| kind == "jnl")).collect();
        assert_eq!(journals.len(), 1, "round {round}");
        let mut bytes = std::fs::read(&journals[0]).unwrap();
        let value = bytes.windows(100).position(|bytes| bytes == [5; 100]).unwrap();
        bytes[value + 50] ^= 1;
        std::fs::write(&journals[0], &bytes).unwrap();

        // Also with a slash at its end.
        let disk = Disk::open(&directory.join(""), CACHE_BYTES).unwrap();
        assert_eq!((disk.applied(), rows(&disk)), (0, vec![]), "round {round}");
        let kept = root.path().join("state.damaged").join(journals[0].file_name().unwrap());
        assert_eq!(std::fs::read(kept).unwrap(), bytes, "round {round}");
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 2, "round {round}");
    }
}

#[test]
fn a_state_that_another_has_open_is_not_moved_aside() {
    let root = harness::folder();
    let directory = root.path().join("state");
    let disk = Disk::open(&directory, CACHE_BYTES).unwrap();
    assert!(Disk::open(&directory, CACHE_BYTES).is_err());
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1);
    drop(disk);
}

fn files(of: &Path, found: &mut Vec<std::path::PathBuf>) {
    for file in std::fs::read_dir(of).unwrap() {
        let path = file.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// Some was found at each start, or not before a block was read, and at each start again; without a journal nothing was there, and all of it
/// was said to be applied.
#[test]
fn whatever_is_damaged_nothing_is_missing_and_the_next_start_but_one_goes_on() {
    const ROWS: u64 = 60;
    let root = harness::folder();
    let (good, copy, aside) = (root.path().join("good"), root.path().join("copy"), root.path().join("copy.damaged"));
    let mut disk = Disk::open(&good, CACHE_BYTES).unwrap();
    let value = |number: u64| vec![number as u8; 20_000];
    for number in 0..ROWS {
        disk.put(Table::Keys, single(number), value(number).into()).unwrap();
        disk.commit(number + 1).unwrap();
    }
    disk.defragmentation().unwrap()().unwrap();
    drop(disk);
    let mut all = Vec::new();
    files(&good, &mut all);
    let (mut later, mut begun_anew) = (0, 0);
    for (file, how) in all.iter().flat_map(|file| ["empty", "half", "gone", "first", "middle"].map(|how| (file, how))) {
        let mut bytes = std::fs::read(file).unwrap();
        let said = format!("{} of {} bytes: {how}", file.display(), bytes.len());
        let copied = std::process::Command::new("cp").arg("-a").arg(&good).arg(&copy).status().unwrap();
        assert!(copied.success());
        let damaged = copy.join(file.strip_prefix(&good).unwrap());
        let half = bytes.len() / 2;
        match how {
            "empty" => bytes.clear(),
            "half" => bytes.truncate(half),
            "first" => bytes.iter_mut().take(1).for_each(|byte| *byte ^= 0x40),
            _ => bytes.iter_mut().skip(half).take(1).for_each(|byte| *byte ^= 0x40),
        }
        if how == "gone" {
            std::fs::remove_file(&damaged).unwrap()
        } else {
            std::fs::write(&damaged, &bytes).unwrap()
        }
        let is_right = |disk: &Disk| {
            let mut found = Vec::new();
            disk.scan(Table::Keys, &[], None, &mut |key, value| {
                found.push((key.clone(), value.clone()));
                ControlFlow::Continue(())
            })?;
            match disk.applied() {
                0 => assert_eq!(found, [], "{said}"),
                applied => {
                    assert_eq!(applied, ROWS, "{said}");
                    assert!(
                        found.iter().cloned().eq((0..ROWS).map(|number| (single(number), value(number).into()))),
                        "{said}"
                    );
                }
            }
            Ok::<_, StorageError>(disk.applied() == 0)
        };
        match Disk::open(&copy, CACHE_BYTES) {
            // A byte of a version may be that of another release.
            Err(error) => assert!(how == "first" && error.0.contains("move the directory away"), "{said}: {error}"),
            Ok(mut disk) => {
                let is_anew = is_right(&disk).unwrap_or_else(|error| {
                    assert!(error.0.contains("start again: they are moved aside"), "{said}: {error}");
                    assert!(disk.commit(ROWS + 1).is_err(), "{said}");
                    later += 1;
                    drop(disk);
                    is_right(&Disk::open(&copy, CACHE_BYTES).unwrap()).unwrap()
                });
                begun_anew += u32::from(is_anew);
            }
        }
        for folder in [&copy, &aside] {
            drop(std::fs::remove_dir_all(folder));
        }
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1, "{said}: nothing is left");
    }
    assert!(later > 0 && begun_anew > later, "{later}, {begun_anew}");
}

/// Threads of the tree do not say why they cannot go on.
#[test]
fn a_state_that_may_be_damaged_is_read_at_the_next_start() {
    let root = harness::folder();
    let directory = root.path().join("state");
    let mut disk = Disk::open(&directory, CACHE_BYTES).unwrap();
    for number in 0..20 {
        disk.put(Table::Keys, single(number), vec![7; 20_000].into()).unwrap();
    }
    disk.commit(1).unwrap();
    disk.defragmentation().unwrap()().unwrap();
    let reopened = |disk: Disk| {
        disk.damage.failed(fjall::Error::Poisoned);
        drop(disk);
        Disk::open(&directory, CACHE_BYTES).unwrap()
    };
    let disk = reopened(disk);
    assert_eq!((disk.applied(), rows(&disk).len(), disk.damage.noted()), (1, 20, Noted::Nothing));
    let mut all = Vec::new();
    files(&directory, &mut all);
    let table = all
        .iter()
        .max_by_key(|file| (file.parent().is_some_and(|of| of.ends_with("tables")), file.metadata().unwrap().len()));
    let table = table.unwrap();
    let mut bytes = std::fs::read(table).unwrap();
    let half = bytes.len() / 2;
    bytes[half] ^= 1;
    std::fs::write(table, bytes).unwrap();
    let disk = reopened(disk);
    assert_eq!((disk.applied(), rows(&disk).len(), disk.damage.noted()), (0, 0, Noted::Nothing));
}
