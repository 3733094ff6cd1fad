//! What a command does to the state. Deterministic: the same entries make the same rows, answers and changes everywhere.
//!
//! A transaction works on an overlay first, and the rows change when all of it can be done. A key whose time is over is there until
//! the entry that ends it, for reads and writes alike: no member ever decides by its own clock.

use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use d_engine_client::{Applied as Results, Operation, OperationResult, Transaction};

use super::bounds::{ANSWER_BYTES_MAX, EXPIRED_MAX};
use super::codec::Malformed;
use super::command::{Command, CommandError};
use super::effort;
use super::leases;
use super::overlay::{Changed, Overlay, Pending};
use super::owners::Owners;
use super::refusal::Refusal;
use super::roster::Roster;
use super::rows::{Known, Value, numbered, of_numbered};
use super::sessions::{self, Before, Room};
use super::snapshot;
use super::storage::{Rows, Storage, StorageError, Table};
use super::users::{Principal, UserChange, Users, owner_of};

/// What keys and values of changes take that wait to be told to those who watch, bytes: of more, values are not held, for the history would not
/// keep these changes anyway.
pub const CHANGES_BYTES_MAX: usize = 32 << 20;

/// What rows of keys take that are not committed yet, bytes: beyond, what was applied so far is committed, though more is at hand.
const UNCOMMITTED_BYTES_MAX: usize = 64 << 20;

/// Changes of a batch that there is always room for.
const CHANGES_ROOM: usize = 1024;

/// What a command came to.
pub type Outcome = Result<Results, Refusal>;

/// What a command came to, and where: of a write that came again, where it was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Its index in the log.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// What it came to.
    pub outcome: Outcome,
}

impl Applied {
    /// As bytes: those that the table of answers has.
    pub fn encode(&self) -> Bytes {
        sessions::encode(self)
    }

    /// Of bytes.
    pub fn decode(bytes: Bytes) -> Result<Self, Malformed> {
        sessions::decode(bytes)
    }
}

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was given a value.
    Put,
    /// It was deleted, or was not there when it should be.
    Delete,
    /// Its time was over.
    Expire,
}

/// Something that happened to a key; one for each key and entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What.
    pub kind: ChangeKind,
    /// The key.
    pub key: Bytes,
    /// Its new value; empty unless it was put.
    pub value: Bytes,
    /// The entry's index.
    pub revision: u64,
    /// What it had before.
    pub previous: Option<Bytes>,
}

impl Change {
    /// What its key and values have.
    pub fn bytes(&self) -> usize {
        self.key.len() + self.value.len() + self.previous.as_ref().map_or(0, Bytes::len)
    }
}

/// Why a member cannot go on: it would have another state than others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// Where tables lie.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A later release wrote the log.
    #[error("entry {0}: {1}")]
    Version(u64, CommandError),
}

impl From<Malformed> for StateError {
    fn from(error: Malformed) -> Self {
        Self::Storage(StorageError(error.to_string()))
    }
}

/// The state.
#[derive(Debug)]
pub struct State<S> {
    storage: S,
    owners: Owners,
    room: Room,
    users: Arc<Users>,
    roster: Arc<Roster>,
    changes: Vec<Change>,
    /// What they have, with what was not held.
    changes_bytes: usize,
    /// What was written since the last commit.
    uncommitted_bytes: usize,
}

impl<S: Storage> State<S> {
    /// Of what the storage has.
    pub fn new(storage: S) -> Result<Self, StorageError> {
        let (owners, room) = (Owners::of(&storage)?, Room::of(&storage)?);
        let users = Arc::new(Users::load(&storage)?);
        let roster = Arc::new(Roster::load(&storage)?);
        Ok(Self { storage, owners, room, users, roster, changes: Vec::new(), changes_bytes: 0, uncommitted_bytes: 0 })
    }

    /// Whether these commands together may take longer than a few dozen milliseconds, by the state before them.
    pub fn takes_long<'a>(&self, commands: impl Iterator<Item = &'a Bytes>) -> Result<bool, StorageError> {
        Ok(self.storage.is_under_pressure() || effort::is_long(&self.storage, commands)?)
    }

    /// Up to which entry it has everything for good.
    pub fn committed(&self) -> u64 {
        self.storage.applied()
    }

    /// What was committed last.
    pub fn view(&self) -> Arc<dyn Rows + Send + Sync> {
        self.storage.view()
    }

    /// The users of now; the same as before unless they have changed.
    pub fn users(&self) -> &Arc<Users> {
        &self.users
    }

    /// What the group knows of itself now; the same as before unless it has changed.
    pub fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    /// How many sessions are open.
    pub fn sessions(&self) -> usize {
        self.owners.sessions()
    }

    /// Makes what was applied visible, all at once.
    pub fn commit(&mut self, index: u64) -> Result<(), StorageError> {
        self.uncommitted_bytes = 0;
        self.storage.commit(index)
    }

    /// What has happened since this was asked last, in order, and what that has, bytes. If these are more than [`CHANGES_BYTES_MAX`], values are
    /// missing.
    pub fn take_changes(&mut self) -> (Vec<Change>, usize) {
        // No larger than they are: they are kept for long.
        let changes = self.changes.drain(..).collect();
        self.changes.shrink_to(CHANGES_ROOM);
        (changes, std::mem::take(&mut self.changes_bytes))
    }

    /// Applies an entry.
    pub fn apply(&mut self, index: u64, term: u64, time_millis: u64, data: Bytes) -> Result<Applied, StateError> {
        self.apply_for(true, index, term, time_millis, data)
    }

    /// Applies an entry of which nobody waits for what it came to: the state becomes the same.
    pub fn apply_unasked(&mut self, index: u64, term: u64, time_millis: u64, data: Bytes) -> Result<(), StateError> {
        self.apply_for(false, index, term, time_millis, data).map(drop)
    }

    fn apply_for(
        &mut self,
        is_asked: bool,
        index: u64,
        term: u64,
        time_millis: u64,
        data: Bytes,
    ) -> Result<Applied, StateError> {
        // Nobody looks at that before the whole batch is visible.
        if self.uncommitted_bytes > UNCOMMITTED_BYTES_MAX {
            self.commit(index - 1)?;
        }
        let applied = |outcome| Applied { index, term, outcome };
        let nothing = Results { succeeded: true, results: Vec::new() };
        // What stays shall not keep the entry's neighbours.
        let data = if Command::stays(&data) { Bytes::copy_from_slice(&data) } else { data };
        let command = match Command::decode(data) {
            Ok(command) => command,
            Err(CommandError::Malformed(_)) => return Ok(applied(Err(Refusal::Malformed))),
            Err(error) => return Err(StateError::Version(index, error)),
        };
        let (who, command) = match command {
            Command::As(who, command) => (who, *command),
            command => (Principal::Nobody, command),
        };
        match command {
            // No command is on behalf of somebody twice.
            Command::As(..) => Ok(applied(Err(Refusal::Malformed))),
            Command::Users(who, change) => {
                let removed = match &change {
                    UserChange::Remove { name } => Some(name.clone()),
                    _ => None,
                };
                let mut users = (*self.users).clone();
                let changed = users.change(&who, change, index, &mut self.storage)?;
                if changed.is_ok() {
                    self.users = Arc::new(users);
                    if let Some(name) = removed {
                        self.owners.release(&mut self.storage, &name, time_millis)?;
                        self.room.release(&name);
                    }
                }
                Ok(applied(changed.map(|()| nothing)))
            }
            Command::Write(transaction, None) if !is_asked && only_reads(&transaction) => Ok(applied(Ok(nothing))),
            Command::Write(transaction, None) => {
                Ok(applied(self.transact(is_asked, index, time_millis, &who, &transaction)?))
            }
            Command::Write(_, Some(stamp)) if !self.may_use_session(&who, stamp.session)? => {
                Ok(applied(Err(Refusal::NoSession)))
            }
            Command::Write(transaction, Some(stamp)) => {
                let session = match sessions::begin(&mut self.storage, &mut self.room, &stamp, time_millis)? {
                    Before::New(session) => session,
                    Before::Answered(before) => return Ok(before),
                    Before::Refused(refusal) => return Ok(applied(Err(refusal))),
                };
                // It is kept.
                let applied = applied(self.transact(true, index, time_millis, &who, &transaction)?);
                sessions::finish(&mut self.storage, &mut self.room, &stamp, session, &applied)?;
                Ok(applied)
            }
            Command::OpenSession if !self.users.may_open_session(&who) => Ok(applied(Err(Refusal::Denied))),
            Command::CloseSession(session) if !self.may_use_session(&who, session)? => {
                Ok(applied(Err(Refusal::NoSession)))
            }
            Command::OpenSession => {
                let owner = owner_of(&who);
                if let Some(refusal) = self.owners.refuse_session(owner, self.users.is_admin(&who)) {
                    return Ok(applied(Err(refusal)));
                }
                sessions::open(&mut self.storage, index, time_millis, owner)?;
                self.owners.opened(owner);
                Ok(applied(Ok(nothing)))
            }
            Command::CloseSession(session) => {
                sessions::close(&mut self.storage, &mut self.room, &mut self.owners, session)?;
                Ok(applied(Ok(nothing)))
            }
            Command::Expire => {
                self.expire(index, time_millis)?;
                Ok(applied(Ok(nothing)))
            }
            Command::Renew(since_millis) => {
                leases::renew(&mut self.storage, since_millis.min(time_millis))?;
                Ok(applied(Ok(nothing)))
            }
            Command::Seen(members) => {
                for member in members {
                    self.know(member, |known| known.is_seen = true)?;
                }
                Ok(applied(Ok(nothing)))
            }
            Command::Place(member, place) => {
                let mut is_removed = false;
                self.know(member, |known| {
                    is_removed = known.is_removed;
                    if !is_removed {
                        known.place = place;
                    }
                })?;
                Ok(applied(if is_removed { Err(Refusal::MemberRemoved) } else { Ok(nothing) }))
            }
            Command::Serial(serial) => {
                Arc::make_mut(&mut self.roster).is_of(serial, &mut self.storage)?;
                Ok(applied(Ok(nothing)))
            }
            Command::Leave(member) => {
                self.know(member, |known| known.is_removed = true)?;
                Ok(applied(Ok(nothing)))
            }
        }
    }

    /// Changes what is known of a member.
    fn know(&mut self, member: u64, change: impl FnOnce(&mut Known)) -> Result<(), StateError> {
        Arc::make_mut(&mut self.roster).know(member, change, &mut self.storage)
    }

    /// Whether a session may be used; of one that is not there somebody else decides.
    fn may_use_session(&self, who: &Principal, session: u64) -> Result<bool, StateError> {
        let owner = sessions::owner(&self.storage, session)?;
        Ok(owner.is_none_or(|owner| self.users.may_use_session(who, &owner)))
    }

    fn transact(
        &mut self,
        is_asked: bool,
        index: u64,
        time_millis: u64,
        who: &Principal,
        transaction: &Transaction,
    ) -> Result<Outcome, StateError> {
        if let Some(refusal) = self.users.refuse_write(who, transaction, &self.storage)? {
            return Ok(Err(refusal));
        }
        let mut overlay = Overlay::new(&self.storage, index, time_millis).of(owner_of(who));
        let mut succeeded = true;
        for compare in &transaction.compares {
            match overlay.is_true(&compare.key, &compare.condition)? {
                Ok(is_true) => succeeded &= is_true,
                Err(refusal) => return Ok(Err(refusal)),
            }
        }
        let operations = if succeeded { &transaction.then } else { &transaction.otherwise };
        let mut results = Vec::with_capacity(if is_asked { operations.len() } else { 0 });
        let mut answer_bytes = 0;
        for operation in operations {
            match overlay.carry_out(operation)? {
                Ok(result) => {
                    if let OperationResult::Got(Some(item)) = &result {
                        answer_bytes += item.key.len() + item.value.len();
                    }
                    if is_asked {
                        results.push(result);
                    }
                }
                Err(refusal) => return Ok(Err(refusal)),
            }
            if answer_bytes > ANSWER_BYTES_MAX {
                return Ok(Err(Refusal::AnswerTooLarge));
            }
        }
        let pending = overlay.into_pending();
        let grants = pending.leases.values().any(|changed| changed.before.is_none() && changed.after.is_some());
        if grants && let Some(refusal) = self.owners.refuse_lease(owner_of(who), self.users.is_admin(who)) {
            return Ok(Err(refusal));
        }
        self.write(index, pending, ChangeKind::Delete)?;
        Ok(Ok(Results { succeeded, results }))
    }

    /// Makes what is pending the state; `gone` is what has happened to keys that are there no more.
    fn write(&mut self, index: u64, pending: Pending, gone: ChangeKind) -> Result<(), StateError> {
        self.changes_bytes += pending.lost_bytes;
        for (key, changed) in pending.keys {
            let Changed { before, after } = *changed;
            self.set(index, key, before, after, gone)?;
        }
        for (number, Changed { before, after }) in pending.leases {
            match (&before, &after) {
                (None, Some(granted)) => self.owners.granted(&granted.owner),
                (Some(ended), None) => self.owners.ended(&ended.owner),
                _ => {}
            }
            leases::set(&mut self.storage, number, before, after)?;
        }
        Ok(())
    }

    /// Gives a key what it has from now on.
    fn set(
        &mut self,
        index: u64,
        key: Bytes,
        before: Option<Value>,
        after: Option<Value>,
        gone: ChangeKind,
    ) -> Result<(), StateError> {
        if let Some(before) = &before {
            if before.expires_millis > 0 {
                self.storage.delete(Table::Expiries, &numbered(before.expires_millis, &key))?;
            }
            if before.lease > 0 {
                self.storage.delete(Table::LeaseKeys, &numbered(before.lease, &key))?;
            }
        }
        // What shared the entry's memory would keep all of it, and its neighbours.
        let (kind, key, value) = match after {
            Some(after) => {
                let (row, key, value) = after.encode_with(&key);
                if after.expires_millis > 0 {
                    self.storage.put(Table::Expiries, numbered(after.expires_millis, &key), Bytes::new())?;
                }
                if after.lease > 0 {
                    self.storage.put(Table::LeaseKeys, numbered(after.lease, &key), Bytes::new())?;
                }
                self.uncommitted_bytes += row.len();
                self.storage.put(Table::Keys, key.clone(), row)?;
                (ChangeKind::Put, key, value)
            }
            None => {
                if before.is_some() {
                    self.storage.delete(Table::Keys, &key)?;
                }
                (gone, Bytes::copy_from_slice(&key), Bytes::new())
            }
        };
        let previous = before.map(|before| before.value);
        let mut change = Change { kind, key, value, revision: index, previous };
        self.changes_bytes += change.bytes();
        if self.changes_bytes > CHANGES_BYTES_MAX {
            (change.value, change.previous) = (Bytes::new(), None);
        }
        self.changes.push(change);
        Ok(())
    }

    fn expire(&mut self, index: u64, time_millis: u64) -> Result<(), StateError> {
        let mut over = Vec::new();
        let end = numbered(time_millis.saturating_add(1), &[]);
        self.storage.scan(Table::Expiries, &[], Some(&end), &mut |row, _| {
            over.push(of_numbered(row).1);
            if over.len() < EXPIRED_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let mut overlay = Overlay::new(&self.storage, index, time_millis);
        for key in &over {
            overlay.set(key, None)?;
        }
        let renewed_millis = leases::renewed(&self.storage)?;
        overlay.end_leases(&end, renewed_millis)?;
        let pending = overlay.into_pending();
        self.write(index, pending, ChangeKind::Expire)?;
        let Self { storage, room, owners, .. } = self;
        Ok(sessions::expire(storage, room, owners, time_millis, renewed_millis, EXPIRED_MAX)?)
    }

    /// Replaces all of it by what a snapshot has.
    pub fn restore(&mut self, from: &mut dyn Read) -> Result<(), snapshot::SnapshotError> {
        self.clear()?;
        snapshot::read(from, &mut self.storage)?;
        (self.owners, self.room) = (Owners::of(&self.storage)?, Room::of(&self.storage)?);
        self.users = Arc::new(Users::load(&self.storage)?);
        self.roster = Arc::new(Roster::load(&self.storage)?);
        Ok(())
    }

    /// All of it goes.
    pub fn clear(&mut self) -> Result<(), StorageError> {
        (self.owners, self.room, self.changes) = (Owners::default(), Room::default(), Vec::new());
        (self.changes_bytes, self.uncommitted_bytes) = (0, 0);
        (self.users, self.roster) = Default::default();
        self.storage.clear()
    }

    /// All that was committed, to be written later.
    pub fn snapshot(&self) -> impl FnOnce(&mut dyn Write) -> std::io::Result<()> + Send + use<S> {
        let view = self.view();
        move |out| snapshot::write_tables(view, &|_| true, out)
    }
}

/// Whether nothing is written, whatever the compares come to.
fn only_reads(Transaction { then, otherwise, .. }: &Transaction) -> bool {
    then.iter().chain(otherwise).all(|operation| matches!(operation, Operation::Get { .. }))
}
