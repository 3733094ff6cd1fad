//! The append-only file under power cuts, faults and damage.

use std::sync::{Arc, Mutex};

use wal::files::{Fault, SimulatedDirectory};

use super::*;
use crate::protocol::push_command;

const NAME: &str = "appendonly.aof";
const FILE: &str = "appendonly.aof.1.incr.aof";

fn command(number: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (key, value) = (format!("key:{number}"), "v".repeat(number as usize % 700));
    push_command(&mut bytes, [b"SET".as_slice(), key.as_bytes(), value.as_bytes()].into_iter());
    bytes
}

/// Opens, and tells the numbers of the keys that were replayed.
fn open(directory: &SimulatedDirectory, cuts: bool) -> Result<(Aof<SimulatedDirectory>, Vec<u32>, Loaded), OpenError> {
    let mut keys = Vec::new();
    let (aof, loaded) = Aof::open(directory.clone(), NAME, cuts, |piece| {
        let Piece::Command(args) = piece else { return Err("not a command".to_owned()) };
        let key = String::from_utf8_lossy(args.at(1)).into_owned();
        keys.push(key.trim_start_matches("key:").parse().map_err(|_| "not a key".to_owned())?);
        Ok(0)
    })?;
    Ok((aof, keys, loaded))
}

/// Puts a base, and waits for that.
fn put_base<D: Directory>(aof: &mut Aof<D>, bytes: u64, is_rdb: bool) -> io::Result<()> {
    aof.begin_base("temp-base", bytes, is_rdb)?;
    aof.finish_base()
}

/// SplitMix64, so that a seed tells the whole story.
fn choices(seed: u64) -> impl FnMut() -> u64 {
    let mut random = crate::random::Random::new(seed);
    move || random.word()
}

#[test]
fn power_may_go_at_any_operation_and_nothing_acknowledged_is_lost() {
    let mut refused = 0;
    for seed in 0..400 {
        let directory = SimulatedDirectory::default();
        directory.fail(Fault::Power, seed % 40);
        let mut acknowledged = 0;
        if let Ok((mut aof, _, _)) = open(&directory, true) {
            while acknowledged < 60 {
                // Some turns have several commands.
                let count = 1 + acknowledged % 3;
                let batch: Vec<u8> = (acknowledged..acknowledged + count).flat_map(command).collect();
                if !aof.commit(&batch, Fsync::Always) {
                    break;
                }
                acknowledged += count;
            }
        }
        directory.crash(choices(seed));
        let keys = match open(&directory, true) {
            Ok((_, keys, _)) => keys,
            Err(OpenError::Load(LoadError::Format { offset, .. })) => {
                // Sectors are missing behind the last sync. The remedy that the message names cuts there.
                refused += 1;
                directory.damage(FILE, |bytes| bytes.truncate(offset as usize)).unwrap();
                open(&directory, true).unwrap_or_else(|error| panic!("seed {seed}: {error}")).1
            }
            Err(error) => panic!("seed {seed}: {error}"),
        };
        assert!(keys.len() >= acknowledged as usize, "seed {seed}: {} of {acknowledged}", keys.len());
        assert!(keys.iter().copied().eq(0..keys.len() as u32), "seed {seed}: in order, without holes");
        let (_, again, _) = open(&directory, true).unwrap();
        assert_eq!(again, keys, "seed {seed}: what was shown once stays");
    }
    assert!(refused > 0, "some crash leaves holes");
}

#[test]
fn a_failed_write_is_tried_again_and_a_failed_sync_is_not() {
    let directory = SimulatedDirectory::default();
    let (mut aof, _, _) = open(&directory, true).unwrap();
    assert!(aof.commit(&command(0), Fsync::Always));
    directory.fail(Fault::Write, 0);
    assert!(!aof.commit(&command(1), Fsync::Always));
    assert!(aof.failure().is_some_and(|text| text.starts_with("write: ")));
    aof.tend(Fsync::Always, true);
    assert_eq!(aof.failure(), None, "the disk has room again");
    assert!(aof.commit(&command(2), Fsync::Always));
    assert_eq!(open(&directory.copy(), true).unwrap().1, [0, 1, 2]);
    directory.fail(Fault::DataSync, 0);
    assert!(!aof.commit(&command(3), Fsync::Always));
    aof.tend(Fsync::Always, true);
    assert!(!aof.commit(&command(4), Fsync::Always), "a later sync would lie");
    assert!(aof.failure().is_some_and(|text| text.contains("restart the server")));
    assert!(aof.close().is_err());
}

#[test]
fn every_second_syncs_on_another_thread() {
    let directory = SimulatedDirectory::default();
    let (mut aof, _, _) = open(&directory, true).unwrap();
    assert!(aof.commit(&command(0), Fsync::EverySecond));
    while aof.take_syncs() == 0 {
        aof.tend(Fsync::EverySecond, true);
        std::thread::yield_now();
    }
    directory.crash(|| 0);
    assert_eq!(open(&directory, true).unwrap().1, [0]);
}

/// Whoever holds syncs against acknowledgements would take those of bases for syncs of commands.
#[test]
fn the_syncs_that_are_counted_are_those_that_acknowledgements_wait_for() {
    let directory = SimulatedDirectory::default();
    let (mut aof, _, _) = open(&directory, true).unwrap();
    assert_eq!(aof.take_syncs(), 0, "nothing was committed");
    for number in 0..3 {
        assert!(aof.commit(&command(number), Fsync::Always));
    }
    assert_eq!((aof.take_syncs(), aof.take_syncs()), (3, 0));
    aof.begin_increment(Fsync::Always).unwrap();
    directory.create_zeroed("temp-base", 0).unwrap();
    put_base(&mut aof, 0, false).unwrap();
    assert_eq!(aof.take_syncs(), 0, "a rewrite acknowledges nobody");
    directory.fail(Fault::DataSync, 0);
    assert!(!aof.commit(&command(3), Fsync::Always));
    assert_eq!(aof.take_syncs(), 0, "one that fails keeps nothing");
}

/// The process is killed between the rename of a manifest and the sync of its name. The next one sees the new name, and goes by
/// it; then the power goes.
#[test]
fn a_name_that_a_killed_process_did_not_sync_is_safe_before_anything_is_acknowledged() {
    let directory = SimulatedDirectory::default();
    let (mut aof, _, _) = open(&directory, true).unwrap();
    assert!(aof.commit(&command(0), Fsync::Always));
    // The first sync is that of the new increment's name.
    directory.fail(Fault::NameSync, 1);
    assert!(aof.begin_increment(Fsync::Always).is_err());
    drop(aof);
    let (mut aof, _, _) = open(&directory, true).unwrap();
    assert!(aof.manifest().last_increment().is_some_and(|name| name != FILE), "the rename was done");
    assert!(aof.commit(&command(1), Fsync::Always));
    directory.crash(|| 0);
    assert_eq!(open(&directory, true).unwrap().1, [0, 1]);
}

/// A sync of another thread that is under way may still fail: whoever needs safety waits for how it ends.
#[test]
fn nothing_is_called_safe_while_a_sync_is_under_way() {
    let with_failing_sync = || {
        let directory = SimulatedDirectory::default();
        let (mut aof, _, _) = open(&directory, true).unwrap();
        assert!(aof.commit(&command(0), Fsync::EverySecond));
        directory.fail(Fault::DataSync, 0);
        aof.tend(Fsync::EverySecond, true);
        aof
    };
    assert!(with_failing_sync().close().is_err_and(|text| text.starts_with("sync: ")));
    assert!(with_failing_sync().begin_increment(Fsync::Always).is_err());
    let mut aof = with_failing_sync();
    until("its end", || aof.is_ready_for_increment().then_some(()));
    assert!(aof.begin_increment(Fsync::Always).is_err() && !aof.commit(&command(1), Fsync::EverySecond));
    assert!(!with_failing_sync().commit(&command(1), Fsync::Always), "the policy may change");
}

/// A directory whose syncs of files wait while somebody holds this.
fn held() -> (wal::files::HeldDirectory<SimulatedDirectory>, Arc<Mutex<()>>) {
    let gate = Arc::new(Mutex::new(()));
    let waits = Arc::clone(&gate);
    let hold = move || drop(waits.lock().unwrap());
    (wal::files::HeldDirectory::new(SimulatedDirectory::default(), hold), gate)
}

fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    for _ in 0..5_000 {
        if let Some(found) = ask() {
            return found;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("{what} did not come")
}

/// Clients waited for five syncs on the executor.
#[test]
fn nobody_waits_while_a_base_takes_its_place() {
    let (directory, gate) = held();
    let (mut aof, _) = Aof::open(directory.clone(), NAME, true, |_| Ok(0)).unwrap();
    assert!(aof.commit(&command(0), Fsync::Always));
    aof.begin_increment(Fsync::Always).unwrap();
    directory.create_zeroed("temp-base", 0).unwrap();
    let closed = gate.lock().unwrap();
    aof.begin_base("temp-base", 7, false).unwrap();
    assert!(aof.commit(&command(1), Fsync::EverySecond));
    assert!(aof.base_outcome().is_none(), "its manifest is not safe");
    assert_eq!(aof.manifest().replayed().count(), 2, "both increments");
    drop(closed);
    until("the base", || aof.base_outcome()).unwrap();
    assert_eq!((aof.base_bytes(), aof.manifest().files.len()), (7, 2));
    assert!(aof.commit(&command(2), Fsync::Always));
    // Files that are begun anew find a manifest that stays.
    aof.begin_increment(Fsync::Always).unwrap();
    directory.create_zeroed("temp-base", 0).unwrap();
    aof.begin_base("temp-base", 0, false).unwrap();
    drop(aof);
    assert!(!directory.names().unwrap().contains(&"temp-base".to_owned()));
}

/// A second of writes was synced while clients waited.
#[test]
fn what_was_written_before_an_increment_is_synced_by_another_thread() {
    let (directory, gate) = held();
    let (mut aof, _) = Aof::open(directory.clone(), NAME, true, |_| Ok(0)).unwrap();
    assert!(aof.commit(&command(0), Fsync::EverySecond));
    let closed = gate.lock().unwrap();
    assert!(!aof.is_ready_for_increment() && !aof.is_ready_for_increment());
    assert!(aof.commit(&command(1), Fsync::EverySecond));
    drop(closed);
    // Nobody waits for a state in which nothing at all was written since.
    until("its end", || aof.is_ready_for_increment().then_some(()));
    assert_eq!(aof.take_syncs(), 1);
    aof.begin_increment(Fsync::EverySecond).unwrap();
    assert_eq!(aof.take_syncs(), 1, "of what was written meanwhile");
    assert!(aof.commit(&command(2), Fsync::Always), "and acknowledged as before");
    assert_eq!(aof.take_syncs(), 1, "that of the manifest's name acknowledges nobody");
}

/// Where nobody waits for the sync of the manifest's name, nothing may be called safe before it, and one that fails refuses writes.
#[test]
fn nothing_is_safe_before_the_name_of_the_manifest_that_names_its_file() {
    for fails in [false, true] {
        let directory = SimulatedDirectory::default();
        let (mut aof, _, _) = open(&directory, true).unwrap();
        assert!(aof.commit(&command(0), Fsync::Always));
        until("the next increment", || aof.is_ready_for_increment().then_some(()));
        if fails {
            directory.fail(Fault::NameSync, 0);
        }
        aof.begin_increment(Fsync::EverySecond).unwrap();
        assert_eq!(aof.commit(&command(1), Fsync::Always), !fails);
        if fails {
            assert!(!aof.commit(&command(2), Fsync::EverySecond), "a later sync would lie");
        }
        directory.crash(|| 0);
        assert_eq!(open(&directory, true).unwrap().1, if fails { &[0][..] } else { &[0, 1] });
    }
}

/// It is locked, and a replica's file is begun anew behind its master's keys.
#[test]
fn a_directory_may_be_opened_again_as_soon_as_its_file_is_dropped() {
    let folder = harness::folder();
    for part in 0..4 {
        let directory = wal::files::RealDirectory::open(folder.path()).unwrap();
        let mut aof = Aof::begin(directory, NAME).unwrap();
        let next = if part < 2 { Fsync::EverySecond } else { Fsync::Always };
        assert!(aof.commit(&command(0), Fsync::EverySecond));
        if part % 2 == 0 {
            aof.begin_increment(next).unwrap();
        } else {
            aof.is_ready_for_increment();
        }
    }
}

/// The thread of a snapshot that was given up may write on for a while.
#[test]
fn a_snapshot_never_shares_its_file_with_one_that_was_given_up() {
    let folder = harness::folder();
    let directory = wal::files::RealDirectory::open(folder.path()).unwrap();
    let mut server = crate::server::Server::new(Default::default(), 1_700_000_000_000, 3);
    let format = snapshot::Format::Rdb { is_base: false };
    let first = snapshot::Snapshot::begin(&mut server, &directory, "temp", format).unwrap();
    std::fs::hard_link(folder.path().join("temp"), folder.path().join("first")).unwrap();
    first.abandon(&mut server);
    let second = snapshot::Snapshot::begin(&mut server, &directory, "temp", format).unwrap();
    let file = |name| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(folder.path().join(name)).unwrap());
    assert_ne!(file("first"), file("temp"));
    let bytes = second.finish(&mut server).unwrap();
    assert_eq!(std::fs::metadata(folder.path().join("temp")).unwrap().len(), bytes);
}

fn with_contents(bytes: &[u8]) -> SimulatedDirectory {
    let directory = SimulatedDirectory::default();
    open(&directory, true).unwrap();
    directory.damage(FILE, |content| *content = bytes.to_vec()).unwrap();
    directory
}

#[test]
fn a_tail_is_cut_wherever_it_ends_or_the_start_is_refused() {
    let whole: Vec<u8> = (1..4).flat_map(command).collect();
    let third = whole.len() - command(3).len();
    for end in third + 1..whole.len() {
        let directory = with_contents(&whole[..end]);
        let refused = open(&directory, false).map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains(&format!("byte {third}: Unexpected end of file")), "{refused}");
        let (_, keys, loaded) = open(&directory, true).unwrap();
        assert_eq!((keys, loaded.cut_bytes), (vec![1, 2], (end - third) as u64));
        assert_eq!(directory.contents(FILE).unwrap(), &whole[..third]);
    }
}

#[test]
fn an_unfinished_transaction_is_cut_as_a_whole() {
    let mut bytes = command(1);
    let whole = bytes.len();
    push_command(&mut bytes, [b"MULTI".as_slice()].into_iter());
    bytes.extend(command(2));
    let directory = with_contents(&bytes);
    assert_eq!(open(&directory, true).unwrap().1, [1]);
    assert_eq!(directory.contents(FILE).unwrap().len(), whole);
    push_command(&mut bytes, [b"EXEC".as_slice()].into_iter());
    bytes.extend_from_slice(b"#TS:1700000000\r\n");
    bytes.extend(command(3));
    assert_eq!(open(&with_contents(&bytes), true).unwrap().1, [1, 2, 3]);
}

#[test]
fn damage_is_refused_with_its_place_and_remedy() {
    let mut bytes: Vec<u8> = (1..4).flat_map(command).collect();
    let second = command(1).len();
    bytes[second] = b'x';
    let error = open(&with_contents(&bytes), true).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains(&format!("{FILE}, byte {second}: expected '*', got 'x'")), "{error}");
    assert!(error.contains("redis-check-aof --fix"), "{error}");
}

/// Who wrote it had done it.
#[test]
fn a_command_that_cannot_be_done_again_is_refused_with_its_place() {
    let mut bytes = Vec::new();
    push_command(&mut bytes, [b"SET".as_slice(), b"key", b"value"].into_iter());
    let place = bytes.len();
    push_command(&mut bytes, [b"LPUSH".as_slice(), b"key", b"element"].into_iter());
    let error = Written::open(&with_contents(&bytes)).map(drop).unwrap_err().to_string();
    assert!(error.contains(&format!("byte {place}")), "{error}");
    assert!(error.contains("lpush is answered with -WRONGTYPE"), "{error}");
}

#[test]
fn only_the_last_file_may_be_cut() {
    let directory = with_contents(&command(1)[..5]);
    let manifest = "file appendonly.aof.1.incr.aof seq 1 type i\nfile appendonly.aof.2.incr.aof seq 2 type i\n";
    directory.create_zeroed("appendonly.aof.2.incr.aof", 0).unwrap();
    directory.damage("appendonly.aof.manifest", |bytes| *bytes = manifest.into()).unwrap();
    let error = open(&directory, true).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("1.incr.aof, byte 0: Unexpected end of file"), "{error}");
}

/// A server with what a client sends it: effects go to the file, as in a turn of the loop.
struct Written {
    server: crate::server::Server,
    aof: Aof<SimulatedDirectory>,
}

impl Written {
    fn open(directory: &SimulatedDirectory) -> Result<Self, OpenError> {
        let mut server = crate::server::Server::new(Default::default(), 1_700_000_000_000, 3);
        let (aof, _) = recover::replay(&mut server, directory.clone())?;
        server.effects.is_enabled = true;
        Ok(Self { server, aof })
    }

    /// Whether it is safe.
    fn run(&mut self, words: &[&[u8]]) -> bool {
        let mut client = crate::session::Session { is_authenticated: true, may_all: true, ..Default::default() };
        let args = crate::protocol::OwnedArgs::new(words.iter().copied());
        crate::command::execute(&mut self.server, &mut client, args.as_args());
        let bytes = std::mem::take(&mut self.server.effects.bytes);
        self.aof.commit(&bytes, Fsync::Always)
    }

    fn begin(&mut self, format: snapshot::Format) -> io::Result<snapshot::Snapshot> {
        // By threads in half of them.
        while format == snapshot::Format::Commands && !self.aof.is_ready_for_increment() {
            std::thread::yield_now();
        }
        self.aof.begin_increment(Fsync::Always)?;
        self.server.effects.forget_selected();
        snapshot::Snapshot::begin(&mut self.server, self.aof.directory(), "temp-base", format)
    }

    fn counts(&mut self) -> Vec<i64> {
        let keys = &self.server.databases[0];
        let value = |number: u32| {
            let place = keys.find(&crate::keyspace::Key::new(format!("n{number}").as_bytes()));
            place.and_then(|place| keys.entry(place).text()).map_or(0, |text| match text {
                crate::structure::listpack::Item::Integer(number) => number,
                crate::structure::listpack::Item::Bytes(_) => -1,
            })
        };
        (0..20).map(value).collect()
    }
}

/// INCR is not the same when it is done twice: a base that is not of the moment when its increment began would show.
#[test]
fn a_rewrite_may_be_cut_at_any_operation() {
    let (mut rewritten, mut refused) = (0, 0);
    for seed in 0..400 {
        let directory = SimulatedDirectory::default();
        directory.fail(Fault::Power, seed % 200);
        let mut random = crate::random::Random::new(seed);
        let mut acknowledged = vec![0; 20];
        let format = if seed % 2 == 0 { snapshot::Format::Rdb { is_base: true } } else { snapshot::Format::Commands };
        // What was sent and not acknowledged may be there or not.
        let mut in_doubt = None;
        if let Ok(mut written) = Written::open(&directory) {
            let mut job = None;
            for step in 0..60 {
                let number = random.below(20).unwrap();
                if !written.run(&[b"INCR", format!("n{number}").as_bytes()]) {
                    in_doubt = Some(number);
                    break;
                }
                acknowledged[number] += 1;
                if step % 20 == 10 {
                    match written.begin(format) {
                        Ok(begun) => job = Some(begun),
                        Err(_) => break,
                    }
                }
                if step % 20 == 15
                    && let Some(job) = job.take()
                {
                    let Ok(bytes) = job.finish(&mut written.server) else { break };
                    let is_rdb = format != snapshot::Format::Commands;
                    if put_base(&mut written.aof, bytes, is_rdb).is_err() {
                        break;
                    }
                    rewritten += 1;
                }
            }
        }
        directory.crash(choices(seed));
        let mut recovered = match Written::open(&directory) {
            Ok(recovered) => recovered,
            Err(OpenError::Load(LoadError::Format { file, .. })) => {
                // Sectors are missing behind the last sync, as above.
                assert!(file.contains(".incr."), "seed {seed}: {file}");
                refused += 1;
                continue;
            }
            Err(error) => panic!("seed {seed}: {error}"),
        };
        let mut counts = recovered.counts();
        if let Some(number) = in_doubt {
            assert!((0..=1).contains(&(counts[number] - acknowledged[number])), "seed {seed}");
            counts[number] = acknowledged[number];
        }
        assert_eq!(counts, acknowledged, "seed {seed}");
    }
    assert!(rewritten > 100 && refused < 60, "{rewritten} {refused}");
}

#[test]
fn a_base_takes_the_place_of_what_was_before() {
    let directory = SimulatedDirectory::default();
    let mut written = Written::open(&directory).unwrap();
    for format in [snapshot::Format::Rdb { is_base: true }, snapshot::Format::Commands] {
        assert!(written.run(&[b"SET", b"before", b"1"]));
        let job = written.begin(format).unwrap();
        assert!(written.run(&[b"SET", b"before", b"2"]) && written.run(&[b"SADD", b"during", b"a"]));
        let bytes = job.finish(&mut written.server).unwrap();
        put_base(&mut written.aof, bytes, format != snapshot::Format::Commands).unwrap();
    }
    let mut names = directory.names().unwrap();
    names.sort();
    assert_eq!(names, ["appendonly.aof.3.base.aof", "appendonly.aof.3.incr.aof", "appendonly.aof.manifest"]);
    let recovered = Written::open(&directory).unwrap();
    assert_eq!(
        crate::digest::of_databases(&recovered.server.databases),
        crate::digest::of_databases(&written.server.databases)
    );
}
