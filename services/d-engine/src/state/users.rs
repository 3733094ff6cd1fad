//! Users, and what each may do: which keys it may read and write, by prefix. They are part of the state, and change by entries of the log, so
//! that a write is decided where it is applied: a member that has not heard of a revocation lets nothing through.
//!
//! A row's key is the user's name, and its value: whether it administers (1 byte), the index at which it was added or last given a password
//! (8), the hash of its password (string), and a list of grants: prefix (string), and 1 to read, 2 to write, 3 both (1 byte). The row of the
//! empty name, which no user has, says with a byte 1 that users are asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use d_engine_client::{Operation, Query, Scan, Transaction, end_of_prefix};

use super::apply::StateError;
use super::bounds::{GRANTS_MAX, REVOKED_MAX, USERS_MAX};
use super::codec::{Malformed, Reader, put_list, put_number, put_string};
use super::command::KEY_BYTES_MAX;
use super::leases;
use super::refusal::Refusal;
use super::rows::read_all;
use super::storage::{Rows, Storage, StorageError, Table};

/// The longest name, bytes; a hash and a prefix are no longer than this, either, but for prefixes, which are as long as keys.
const NAME_BYTES_MAX: usize = 256;

/// On whose behalf something is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Principal {
    /// Nobody who is known: may do everything as long as users are not asked for, and then nothing.
    #[default]
    Nobody,
    /// The program that the engine is part of: may do everything.
    Process,
    /// A user that has said its password.
    User {
        /// Its name.
        name: Bytes,
        /// When it was given that password: one with another password, or another user of that name, is somebody else.
        since: u64,
    },
}

/// What may be done with a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Read it, and be told of its changes.
    pub read: bool,
    /// Write and delete it.
    pub write: bool,
}

impl Access {
    const READ: Self = Self { read: true, write: false };
    const WRITE: Self = Self { read: false, write: true };
    const BOTH: Self = Self { read: true, write: true };

    fn covers(self, needed: Self) -> bool {
        (self.read || !needed.read) && (self.write || !needed.write)
    }

    pub(super) fn number(self) -> u8 {
        u8::from(self.read) | u8::from(self.write) << 1
    }

    pub(super) fn of(number: u8) -> Option<Self> {
        (1..=3).contains(&number).then_some(Self { read: number & 1 != 0, write: number & 2 != 0 })
    }
}

/// A user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// It may do everything, and change users and members.
    pub is_admin: bool,
    /// The index at which it was added, or last given a password.
    pub since: u64,
    /// What its password is checked against.
    pub hash: Bytes,
    /// What it may do, by prefix; the empty prefix is that of all keys.
    pub grants: BTreeMap<Bytes, Access>,
}

impl User {
    fn encode(&self) -> Bytes {
        let mut out = vec![u8::from(self.is_admin)];
        put_number(&mut out, self.since);
        put_string(&mut out, &self.hash);
        let grants: Vec<_> = self.grants.iter().collect();
        put_list(&mut out, &grants, |out, (prefix, access)| {
            put_string(out, prefix);
            out.push(access.number());
        });
        out.into()
    }

    fn decode(row: &Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(row.clone(), "the row of a user");
        let (is_admin, since, hash) = (reader.flag()?, reader.number()?, reader.string()?);
        let grants = reader.list(|reader| {
            let prefix = reader.string()?;
            match Access::of(reader.byte()?) {
                Some(access) => Ok((prefix, access)),
                None => reader.fail(),
            }
        })?;
        reader.end()?;
        Ok(Self { is_admin, since, hash, grants: grants.into_iter().collect() })
    }

    fn may_write_something(&self) -> bool {
        self.is_admin || self.grants.values().any(|access| access.write)
    }

    /// Whether one of its prefixes has all keys from `start` to `end`, exclusive, and allows this. `None` is the end of all keys.
    fn may(&self, start: &[u8], end: Option<&[u8]>, needed: Access) -> bool {
        let has_all = |prefix: &Bytes| {
            let behind = end_of_prefix(prefix);
            start.starts_with(prefix)
                && match (end, behind) {
                    (_, None) => true,
                    (Some(end), Some(behind)) => end <= &behind[..],
                    (None, Some(_)) => false,
                }
        };
        self.is_admin || self.grants.iter().any(|(prefix, access)| access.covers(needed) && has_all(prefix))
    }
}

/// A change of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserChange {
    /// Adds one.
    Add {
        /// Its name, which nobody has.
        name: Bytes,
        /// The hash of its password.
        hash: Bytes,
        /// Whether it administers.
        is_admin: bool,
    },
    /// Gives one another password: what is open with the old one ends.
    Password {
        /// Its name.
        name: Bytes,
        /// The hash of its password.
        hash: Bytes,
    },
    /// Removes one, and what it has: sessions with their answers, and leases.
    Remove {
        /// Its name.
        name: Bytes,
    },
    /// Removes one and leaves what it has, as earlier releases did: it is read in their logs, and never written.
    RemoveAlone {
        /// Its name.
        name: Bytes,
    },
    /// Lets one do something with all keys that begin so, instead of what it could do with that prefix before.
    Grant {
        /// Its name.
        name: Bytes,
        /// What the keys begin with.
        prefix: Bytes,
        /// What it may do.
        access: Access,
    },
    /// Takes a prefix back.
    Revoke {
        /// Its name.
        name: Bytes,
        /// As it was granted.
        prefix: Bytes,
    },
    /// From now on users are asked for, or no longer.
    Enable(bool),
}

/// A change that no member makes: nothing has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// Its rows would be taken for others, or it could not sign in.
    #[error("a user's name has 1 to {NAME_BYTES_MAX} bytes, and no colon")]
    Name,
    /// No key begins so.
    #[error("a prefix has at most {KEY_BYTES_MAX} bytes")]
    Prefix,
    /// It would do nothing.
    #[error("a grant is to read, to write, or both")]
    Access,
    /// It is of earlier releases.
    #[error("nobody removes a user without what it has any more: use UserChange::Remove")]
    RemovesAlone,
}

impl UserChange {
    /// Checks what somebody asks for, before it enters the log.
    pub fn check(&self) -> Result<(), ChangeError> {
        let (name, prefix) = match self {
            Self::Add { name, .. } | Self::Password { name, .. } | Self::Remove { name } => (name, &Bytes::new()),
            Self::Grant { access, .. } if !access.read && !access.write => return Err(ChangeError::Access),
            Self::Grant { name, prefix, .. } | Self::Revoke { name, prefix } => (name, prefix),
            Self::RemoveAlone { .. } => return Err(ChangeError::RemovesAlone),
            Self::Enable(_) => return Ok(()),
        };
        match (name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(&b':'), prefix.len() > KEY_BYTES_MAX) {
            (true, _) => Err(ChangeError::Name),
            (_, true) => Err(ChangeError::Prefix),
            _ => Ok(()),
        }
    }
}

/// Who a principal is to the users of a moment.
enum Subject<'a> {
    Anything,
    User(&'a User),
    Nobody,
}

/// All users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users {
    is_enabled: bool,
    /// Each is shared with the users of before: a change copies the one that it is of.
    users: BTreeMap<Bytes, Arc<User>>,
}

impl Users {
    /// As they stand in a storage.
    pub fn load(rows: &dyn Rows) -> Result<Self, StorageError> {
        let mut users = Self::default();
        read_all(rows, Table::Users, |name, row| {
            if name.is_empty() {
                users.is_enabled = row[..] == [1];
            } else {
                users.users.insert(Bytes::copy_from_slice(name), Arc::new(User::decode(row)?));
            }
            Ok(())
        })?;
        Ok(users)
    }

    /// Whether users are asked for.
    pub fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// All of them, by name.
    pub fn all(&self) -> &BTreeMap<Bytes, Arc<User>> {
        &self.users
    }

    fn subject(&self, who: &Principal) -> Subject<'_> {
        match who {
            Principal::Process => Subject::Anything,
            _ if !self.is_enabled => Subject::Anything,
            Principal::Nobody => Subject::Nobody,
            Principal::User { name, since } => {
                let user = self.users.get(name).filter(|user| user.since == *since);
                user.map_or(Subject::Nobody, |user| Subject::User(user))
            }
        }
    }

    /// Whether it is anybody: a user that has been removed, or given another password, is nobody any more.
    pub fn knows(&self, who: &Principal) -> bool {
        !matches!(self.subject(who), Subject::Nobody)
    }

    /// Whether it may open a session: these are for writes.
    pub fn may_open_session(&self, who: &Principal) -> bool {
        match self.subject(who) {
            Subject::Anything => true,
            Subject::User(user) => user.may_write_something(),
            Subject::Nobody => false,
        }
    }

    /// Whether it may change users and members, and see everything.
    pub fn is_admin(&self, who: &Principal) -> bool {
        match self.subject(who) {
            Subject::Anything => true,
            Subject::User(user) => user.is_admin,
            Subject::Nobody => false,
        }
    }

    fn may(&self, who: &Principal, start: &[u8], end: Option<&[u8]>, needed: Access) -> bool {
        match self.subject(who) {
            Subject::Anything => true,
            Subject::User(user) => user.may(start, end, needed),
            Subject::Nobody => false,
        }
    }

    fn may_touch(&self, who: &Principal, key: &[u8], needed: Access) -> bool {
        self.may(who, key, Some(&after(key)), needed)
    }

    /// Whether it may read all keys from `start` to `end`, exclusive; `None` is the end of all keys.
    pub fn may_read_range(&self, who: &Principal, start: &[u8], end: Option<&[u8]>) -> bool {
        self.may(who, start, end, Access::READ)
    }

    /// Whether it may be told of changes of one key, or of those from `start` to `end`.
    pub fn may_watch(&self, who: &Principal, start: &[u8], end: Option<&[u8]>) -> bool {
        match end {
            Some(end) => self.may_read_range(who, start, Some(end)),
            None => self.may_touch(who, start, Access::READ),
        }
    }

    /// Whether it may ask this.
    pub fn may_read(&self, who: &Principal, query: &Query) -> bool {
        match query {
            Query::Get(key) => self.may_touch(who, key, Access::READ),
            Query::GetMany(keys) => self.knows(who) && keys.iter().all(|key| self.may_touch(who, key, Access::READ)),
            Query::Scan(Scan { start, end, .. }) => self.may_read_range(who, start, end.as_deref()),
        }
    }

    /// Whether it may touch all keys of a transaction, whichever branch is taken: for who refuses it before it is in the log. What becomes of one
    /// that is there is for [`Users::refuse_write`] to say, which knows of leases as well.
    pub fn may_write(&self, who: &Principal, Transaction { compares, then, otherwise }: &Transaction) -> bool {
        let user = match self.subject(who) {
            Subject::Anything => return true,
            Subject::Nobody => return false,
            Subject::User(user) if user.is_admin => return true,
            Subject::User(user) => user,
        };
        let may = |key: &[u8], needed| user.may(key, Some(&after(key)), needed);
        compares.iter().all(|compare| may(&compare.key, Access::READ))
            && then.iter().chain(otherwise).all(|operation| match operation {
                Operation::Put { key, .. } | Operation::Delete { key } | Operation::Attach { key, .. } => {
                    may(key, Access::WRITE)
                }
                Operation::Get { key } => may(key, Access::READ),
                Operation::Add { key, .. } => may(key, Access::BOTH),
                Operation::Grant { .. } | Operation::KeepAlive { .. } | Operation::Revoke { .. } => {
                    user.may_write_something()
                }
            })
    }

    /// Why it may not do all of a transaction, whichever branch is taken; `None`: it may.
    pub(super) fn refuse_write(
        &self,
        who: &Principal,
        Transaction { compares, then, otherwise }: &Transaction,
        storage: &impl Storage,
    ) -> Result<Option<Refusal>, StateError> {
        let user = match self.subject(who) {
            Subject::Anything => return Ok(None),
            Subject::Nobody => return Ok(Some(Refusal::Denied)),
            Subject::User(user) if user.is_admin => return Ok(None),
            Subject::User(user) => user,
        };
        let may = |key: &[u8], needed| user.may(key, Some(&after(key)), needed);
        // A lease ends with its keys, which its owner alone could attach.
        let owned = |lease: u64| -> Result<Option<u32>, StateError> {
            let Some(leased) = leases::get(storage, lease)? else { return Ok(Some(0)) };
            Ok((leased.owner == *owner_of(who)).then_some(leased.keys))
        };
        if !compares.iter().all(|compare| may(&compare.key, Access::READ)) {
            return Ok(Some(Refusal::Denied));
        }
        let mut kept = BTreeSet::new();
        let mut keys = 0;
        for operation in then.iter().chain(otherwise) {
            let is_allowed = match operation {
                Operation::Put { key, .. } | Operation::Delete { key } => may(key, Access::WRITE),
                Operation::Get { key } => may(key, Access::READ),
                // What it adds up to is read.
                Operation::Add { key, .. } => may(key, Access::BOTH),
                Operation::Attach { key, lease } => may(key, Access::WRITE) && owned(*lease)?.is_some(),
                Operation::Grant { .. } => user.may_write_something(),
                Operation::KeepAlive { lease } | Operation::Revoke { lease } if kept.insert(*lease) => {
                    let Some(count) = owned(*lease)?.filter(|_| user.may_write_something()) else {
                        return Ok(Some(Refusal::Denied));
                    };
                    keys += count as usize;
                    if keys > REVOKED_MAX {
                        return Ok(Some(Refusal::TooManyRevokedKeys));
                    }
                    // Whether they stay or go is written with it.
                    leases::are_keys_all(storage, *lease, |key| may(key, Access::WRITE))?
                }
                // It was looked at.
                Operation::KeepAlive { .. } | Operation::Revoke { .. } => true,
            };
            if !is_allowed {
                return Ok(Some(Refusal::Denied));
            }
        }
        Ok(None)
    }

    /// Whether it may use a session that was opened on this behalf.
    pub(super) fn may_use_session(&self, who: &Principal, owner: &Bytes) -> bool {
        match self.subject(who) {
            Subject::Anything => true,
            Subject::User(_) => owner == owner_of(who),
            Subject::Nobody => false,
        }
    }

    /// Whether it may change users so: everybody may choose another password.
    pub fn may_change(&self, who: &Principal, change: &UserChange) -> bool {
        let is_own_password = matches!(
            (change, who),
            (UserChange::Password { name, .. }, Principal::User { name: own, .. }) if name == own && self.knows(who)
        );
        self.is_admin(who) || is_own_password
    }

    /// Changes users, and what the storage has of them.
    pub(super) fn change(
        &mut self,
        who: &Principal,
        change: UserChange,
        index: u64,
        storage: &mut impl Storage,
    ) -> Result<Result<(), Refusal>, StateError> {
        if !self.may_change(who, &change) {
            return Ok(Err(Refusal::Denied));
        }
        let name = match &change {
            UserChange::Add { name, .. }
            | UserChange::Password { name, .. }
            | UserChange::Remove { name }
            | UserChange::RemoveAlone { name }
            | UserChange::Grant { name, .. }
            | UserChange::Revoke { name, .. } => Bytes::copy_from_slice(name),
            UserChange::Enable(is_enabled) => {
                if *is_enabled && !self.users.values().any(|user| user.is_admin) {
                    return Ok(Err(Refusal::NoAdmin));
                }
                self.is_enabled = *is_enabled;
                storage.put(Table::Users, Bytes::new(), vec![u8::from(*is_enabled)].into())?;
                return Ok(Ok(()));
            }
        };
        let Some(user) = self.users.get(&name) else {
            let UserChange::Add { hash, is_admin, .. } = change else { return Ok(Err(Refusal::NoUser)) };
            if self.users.len() >= USERS_MAX {
                return Ok(Err(Refusal::TooManyUsers));
            }
            let user = User { is_admin, since: index, hash, grants: BTreeMap::new() };
            return self.set(name, Some(user), storage).map(Ok);
        };
        let mut user = User::clone(user);
        match change {
            UserChange::Add { .. } | UserChange::Enable(_) => return Ok(Err(Refusal::UserExists)),
            UserChange::Password { hash, .. } => (user.hash, user.since) = (hash, index),
            UserChange::Remove { .. } | UserChange::RemoveAlone { .. } => {
                let others = self.users.iter().any(|(other, user)| *other != name && user.is_admin);
                if self.is_enabled && !others {
                    return Ok(Err(Refusal::NoAdmin));
                }
                return self.set(name, None, storage).map(Ok);
            }
            UserChange::Grant { prefix, access, .. } => {
                user.grants.insert(Bytes::copy_from_slice(&prefix), access);
                if user.grants.len() > GRANTS_MAX {
                    return Ok(Err(Refusal::TooManyUsers));
                }
            }
            UserChange::Revoke { prefix, .. } => {
                if user.grants.remove(&prefix).is_none() {
                    return Ok(Err(Refusal::NoGrant));
                }
            }
        }
        self.set(name, Some(user), storage).map(Ok)
    }

    fn set(&mut self, name: Bytes, user: Option<User>, storage: &mut impl Storage) -> Result<(), StateError> {
        match user {
            Some(user) => {
                storage.put(Table::Users, name.clone(), user.encode())?;
                self.users.insert(name, Arc::new(user));
            }
            None => {
                storage.delete(Table::Users, &name)?;
                self.users.remove(&name);
            }
        }
        Ok(())
    }
}

/// Whose a lease or a session is that is made on this behalf; empty: nobody's.
pub(super) fn owner_of(who: &Principal) -> &Bytes {
    static NOBODY: Bytes = Bytes::new();
    match who {
        Principal::User { name, .. } => name,
        Principal::Nobody | Principal::Process => &NOBODY,
    }
}

/// The first key behind one.
fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

#[cfg(test)]
mod tests;
