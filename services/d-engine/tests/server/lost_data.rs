//! Engines that have lost what they acknowledged: they do not come back as if nothing had been.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use d_engine::state::{Disk, Storage as _};
use d_engine::{Address, Engine, MemberChange, Options, StateStorage};

use crate::group::PATIENCE;

/// How the files of a log are lost: all of it, and as a file system leaves it whose names came back without their bytes.
const LOSSES: [fn(&Path); 3] = [
    |file| fs::remove_file(file).unwrap(),
    |file| fs::write(file, "").unwrap(),
    |file| fs::write(file, vec![0; file.metadata().unwrap().len() as usize]).unwrap(),
];

fn lose(wal: &Path, how: fn(&Path)) {
    fs::read_dir(wal).unwrap().for_each(|file| how(&file.unwrap().path()));
}

/// With what to do; and no start after it is taken for the first one.
fn is_refused(options: &Options) {
    for _ in 0..2 {
        let refused = Engine::start(options.clone()).map(drop).unwrap_err().to_string();
        assert!(refused.contains("wal had a log, and it is gone"), "{refused}");
        assert!(refused.contains("Restore the directory, or replace the member by a new one"), "{refused}");
        assert!(refused.contains("begins anew with a backup, in an empty directory"), "{refused}");
    }
}

/// How far a state on disk is; 0: there is none.
fn applied(options: &Options) -> u64 {
    match options.storage {
        StateStorage::Memory => 0,
        StateStorage::Disk { cache_bytes } => {
            Disk::open(&options.directory.join("state"), cache_bytes).unwrap().applied()
        }
    }
}

/// It was taken for a log that was never begun: the member founded its group again, without what it had acknowledged.
#[tokio::test]
async fn a_member_whose_log_has_lost_its_content_does_not_begin_anew() {
    for storage in [StateStorage::Memory, StateStorage::Disk { cache_bytes: 1 << 20 }] {
        for how in LOSSES {
            let root = harness::folder();
            let options = Options { storage, ..Options::alone(root.path().join("data")) };
            let engine = Engine::start(options.clone()).unwrap();
            engine.wait_ready(PATIENCE).await.unwrap();
            engine.client().put("k", "v").await.unwrap();
            engine.stop().unwrap();
            lose(&options.directory.join("wal"), how);
            let state = applied(&options);
            is_refused(&options);
            assert_eq!(applied(&options), state, "what may be all that is left was thrown away");
        }
    }
}

/// Of three, without one: that one comes back, and elects with another who lacks it, too.
#[tokio::test]
async fn a_member_of_three_whose_log_has_lost_its_content_is_refused_and_the_others_go_on() {
    for how in LOSSES {
        let root = harness::folder();
        let options = group(root.path(), 3);
        let mut engines: Vec<Engine> = (1..=3).map(|id| Engine::start(options(id)).unwrap()).collect();
        for engine in &engines {
            engine.wait_ready(PATIENCE).await.unwrap();
        }
        engines[0].client().put("k", "v").await.unwrap();
        engines.pop().unwrap().stop().unwrap();
        lose(&options(3).directory.join("wal"), how);
        is_refused(&options(3));
        engines[0].client().put("k", "w").await.unwrap();
        assert_eq!(engines[1].client().get("k").await.unwrap().unwrap().value, "w");
    }
}

/// Nobody had sent it anything: it has not lost what it never had.
#[tokio::test]
async fn a_member_that_joined_and_heard_nothing_yet_starts_again() {
    let root = harness::folder();
    let founders = group(root.path(), 2);
    let mut engines: Vec<Engine> = (1..=2).map(|id| Engine::start(founders(id)).unwrap()).collect();
    for engine in &engines {
        engine.wait_ready(PATIENCE).await.unwrap();
    }
    let place = Address { client: String::new(), peer: harness::free_address().to_string() };
    let leads = || engines.iter().find(|engine| engine.node().leads());
    let leader = harness::eventually("there is a leader", leads);
    leader.node().change_members(MemberChange::Add(3, place.clone())).await.unwrap();
    for engine in &engines {
        harness::until("all know the third one", || engine.node().members().contains_key(&3));
    }
    // Without a majority nobody leads, and who has just joined is sent nothing.
    engines.remove(0).stop().unwrap();
    harness::until("nobody leads", || !engines[0].node().leads() && engines[0].leadership().borrow().leader.is_none());
    let joins =
        Options { id: 3, join: vec![founders(2).members[&2].peer.clone()], ..Options::alone(root.path().join("3")) };
    for _ in 0..3 {
        Engine::start(joins.clone()).unwrap().stop().unwrap();
    }
    let joined = Engine::start(joins).unwrap();
    engines.push(Engine::start(founders(1)).unwrap());
    joined.wait_ready(PATIENCE).await.unwrap();
}

/// Members of a group of so many, by their numbers.
fn group(root: &Path, size: u64) -> impl Fn(u64) -> Options {
    let peer = |_| Address { client: String::new(), peer: harness::free_address().to_string() };
    let members: BTreeMap<u64, Address> = (1..=size).map(|id| (id, peer(id))).collect();
    let root = root.to_owned();
    move |id| Options { id, members: members.clone(), ..Options::alone(root.join(id.to_string())) }
}
