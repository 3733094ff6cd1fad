//! Who has how many sessions and leases: each user a part of them, so that none takes what is there for all. It follows from the tables, so
//! that members with the same tables decide alike.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::bounds::{LEASES_MAX, LEASES_OF_ONE_MAX, SESSIONS_MAX, SESSIONS_OF_ONE_MAX};
use super::refusal::Refusal;
use super::storage::{Storage, StorageError};
use super::{leases, sessions};

#[derive(Clone, Copy, Debug, Default)]
struct Owned {
    sessions: usize,
    leases: usize,
}

/// What there is of all, and of each user that has something.
#[derive(Debug, Default)]
pub(super) struct Owners {
    all: Owned,
    users: BTreeMap<Bytes, Owned>,
}

impl Owners {
    /// Of what is kept.
    pub(super) fn of(storage: &impl Storage) -> Result<Self, StorageError> {
        let mut owners = Self::default();
        sessions::each(storage, |_, session| owners.opened(&session.owner))?;
        leases::each(storage, |_, leased| owners.granted(&leased.owner))?;
        Ok(owners)
    }

    /// How many sessions there are.
    pub(super) fn sessions(&self) -> usize {
        self.all.sessions
    }

    /// Why another session is not opened, if it is not.
    pub(super) fn refuse_session(&self, owner: &Bytes, is_admin: bool) -> Option<Refusal> {
        let own = self.users.get(owner).map_or(0, |owned| owned.sessions);
        match self.all.sessions >= SESSIONS_MAX {
            true => Some(Refusal::TooManySessions),
            false => (!is_admin && own >= SESSIONS_OF_ONE_MAX).then_some(Refusal::TooManyOwnSessions),
        }
    }

    /// Why another lease is not granted, if it is not.
    pub(super) fn refuse_lease(&self, owner: &Bytes, is_admin: bool) -> Option<Refusal> {
        let own = self.users.get(owner).map_or(0, |owned| owned.leases);
        match self.all.leases >= LEASES_MAX {
            true => Some(Refusal::TooManyLeases),
            false => (!is_admin && own >= LEASES_OF_ONE_MAX).then_some(Refusal::TooManyOwnLeases),
        }
    }

    pub(super) fn opened(&mut self, owner: &Bytes) {
        self.count(owner, |owned| owned.sessions += 1);
    }

    pub(super) fn closed(&mut self, owner: &Bytes) {
        self.count(owner, |owned| owned.sessions = owned.sessions.saturating_sub(1));
    }

    pub(super) fn granted(&mut self, owner: &Bytes) {
        self.count(owner, |owned| owned.leases += 1);
    }

    pub(super) fn ended(&mut self, owner: &Bytes) {
        self.count(owner, |owned| owned.leases = owned.leases.saturating_sub(1));
    }

    fn count(&mut self, owner: &Bytes, change: impl Fn(&mut Owned)) {
        change(&mut self.all);
        if owner.is_empty() {
            return;
        }
        match self.users.get_mut(owner) {
            Some(owned) => {
                change(owned);
                if owned.sessions == 0 && owned.leases == 0 {
                    self.users.remove(owner);
                }
            }
            None => {
                let mut owned = Owned::default();
                change(&mut owned);
                // Its name alone, and not the entry that it came with.
                self.users.insert(Bytes::copy_from_slice(owner), owned);
            }
        }
    }

    /// A user is removed: what it has is nobody's from here on, and over. It goes with the entries that end what is over, each a part.
    pub(super) fn release(
        &mut self,
        storage: &mut impl Storage,
        owner: &Bytes,
        time_millis: u64,
    ) -> Result<(), StorageError> {
        let Some(owned) = self.users.remove(owner) else { return Ok(()) };
        if owned.sessions > 0 {
            sessions::release(storage, owner)?;
        }
        if owned.leases > 0 {
            leases::release(storage, owner, time_millis)?;
        }
        Ok(())
    }
}
