//! What is written down of a member while it runs.

use std::io;
use std::path::Path;
use std::sync::Arc;

use futures::executor::block_on;
use replog::Change;
use replog::runtime::identity::{Identity, IdentityError, Known, Place, Standing};
use replog::runtime::{Limits, Member, MemberError, Origin, Start};

use crate::group::{Group, LONG, WAL_OPTIONS, directories, settings};
use crate::machine::List;

/// Whether there has been something in its log.
#[derive(Clone)]
pub struct HasLog(pub bool);

impl Identity for HasLog {
    fn decode(bytes: &[u8]) -> Result<Self, String> {
        Ok(Self(bytes == b"yes"))
    }

    fn encode(&self) -> io::Result<Vec<u8>> {
        Ok(if self.0 { "yes" } else { "no" }.into())
    }

    fn has_log(&self) -> bool {
        self.0
    }

    fn set_has_log(&mut self) {
        self.0 = true;
    }
}

/// As a store starts one that joins.
fn start(group: &Group, id: u64) -> Result<(Member<usize>, Known<HasLog>), MemberError> {
    let folder = group.path(id);
    let place = Place { log: folder.join("wal"), folder: folder.clone() };
    place.make()?;
    let known = match place.standing(place.read()?)? {
        Standing::Member(known) => known,
        Standing::New(_) => Known::begin(&place, HasLog(false))?,
        Standing::Unnamed => panic!("it did not say who it is"),
    };
    let (wal, snapshots) = directories(&folder);
    let member = Member::start(Start {
        id,
        settings: group.settings.clone(),
        limits: Limits::default(),
        wal_options: WAL_OPTIONS,
        machine: List::new(&Arc::default()),
        wal,
        snapshots,
        origin: known.origin(Origin::Join),
        begun: known.begun(),
        transport: group.network.join(id),
    })?;
    Ok((member, known))
}

fn truncate_files(folder: &Path) {
    for file in std::fs::read_dir(folder).unwrap() {
        std::fs::write(file.unwrap().path(), "").unwrap();
    }
}

/// It was told that it had lost what it never had.
#[test]
fn a_member_that_joined_and_heard_nothing_yet_starts_again_and_later_does_not_without_its_log() {
    let group = Group::of(1, settings());
    group.propose("first");
    for _ in 0..3 {
        let (member, known) = start(&group, 2).unwrap();
        assert!(!known.identity().has_log());
        member.stop().unwrap();
    }
    let (member, known) = start(&group, 2).unwrap();
    block_on(group.member(1).handle.change_membership(vec![Change::AddLearner(2)])).unwrap();
    let has_some = |progress: &[(u64, u64)]| progress.iter().any(|(id, has)| *id == 2 && *has > 0);
    group.member(1).handle.wait_for(|status| has_some(&status.progress), LONG).unwrap();
    assert!(known.identity().has_log(), "it has acknowledged what it has not written down");
    member.stop().unwrap();
    start(&group, 2).unwrap().0.stop().unwrap();

    truncate_files(&group.path(2).join("wal"));
    for _ in 0..2 {
        assert!(matches!(start(&group, 2), Err(MemberError::LogLost)));
    }
    std::fs::remove_dir_all(group.path(2).join("wal")).unwrap();
    let refused = start(&group, 2).map(drop);
    assert!(matches!(refused, Err(MemberError::Identity(IdentityError::LogLost(_)))));
}
