//! Who may do what: one function over everything that can be asked for.
//!
//! Every request says what it is for as an [`Access`], and [`Access::check`] answers. What is not permitted is denied: there is
//! no way past the `match`, and a new kind of request does not compile before it is in it. From etcd's
//! `server/etcdserver/apply/auth.go`, `v3_server.go` and `api/v3rpc/{key,maintenance,auth}.go` of 3.7.3, which mend GHSA-q8m4-xhhv-38mg,
//! GHSA-rfx7-8w68-q57q, GHSA-x35m-3gp4-4fh5 and GHSA-xg4h-6gfc-h4m8.

use super::super::command::Caller;
use super::super::error::Error;
use super::super::keys::Keys;
use super::super::lease::Leases;
use super::{Auth, Granted};
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::request_op::Request as Operation;

/// What somebody wants to do.
#[derive(Clone, Copy, Debug)]
pub enum Access<'a> {
    /// Something that needs no more than valid credentials: grant a lease, list alarms, ask for the status.
    Authenticated,
    /// Something that only root may: users and roles, compaction, maintenance, members.
    Administrate,
    /// Read keys, or watch them.
    Read(Keys<'a>),
    /// Put a key.
    Put(&'a pb::PutRequest),
    /// Delete keys.
    Delete(&'a pb::DeleteRangeRequest),
    /// A transaction, with all that is nested in it, taken or not.
    Txn(&'a pb::TxnRequest),
    /// Keep a lease alive, or revoke it: keys that hang on it live or die with it.
    ControlLease(i64),
    /// See which keys hang on a lease.
    SeeLease(i64),
    /// See all leases.
    SeeLeases,
    /// See a user: everybody sees itself.
    SeeUser(&'a str),
    /// See a role: who has it sees it.
    SeeRole(&'a str),
}

impl Access<'_> {
    /// Whether a caller may.
    pub fn check(self, auth: &Auth, leases: &Leases, caller: &Caller) -> Result<(), Error> {
        let Caller::Client { user, auth_revision } = caller else { return Ok(()) };
        if !auth.enabled {
            return Ok(());
        }
        let client = Client { auth, leases, user, auth_revision: *auth_revision };
        match self {
            Self::Authenticated => client.is_somebody(),
            Self::Administrate => client.is_root(),
            Self::Read(keys) => client.may_read(keys),
            Self::Put(put) => client.may_put(put),
            Self::Delete(delete) => client.may_delete(delete),
            Self::Txn(txn) => client.may_do(txn),
            Self::ControlLease(id) => client.for_keys_of(id, |key| client.may_write(key)),
            Self::SeeLease(id) => client.for_keys_of(id, |key| client.may_read(key)),
            Self::SeeLeases => {
                client.is_somebody()?;
                leases.iter().try_for_each(|lease| client.for_keys_of(lease.id, |key| client.may_read(key)))
            }
            Self::SeeUser(name) => client.is_root().or_else(|error| if name == user { Ok(()) } else { Err(error) }),
            Self::SeeRole(name) => client.is_root().or_else(|error| {
                let has = auth.users.get(user).is_some_and(|user| user.roles.iter().any(|role| role == name));
                if has { Ok(()) } else { Err(error) }
            }),
        }
    }
}

/// A client of a store that checks.
struct Client<'a> {
    auth: &'a Auth,
    leases: &'a Leases,
    user: &'a str,
    auth_revision: u64,
}

impl Client<'_> {
    fn is_somebody(&self) -> Result<(), Error> {
        if self.user.is_empty() { Err(Error::UserEmpty) } else { Ok(()) }
    }

    fn is_root(&self) -> Result<(), Error> {
        self.is_somebody()?;
        let granted = self.auth.granted.get(self.user).ok_or(Error::UserNotFound)?;
        if granted.is_root { Ok(()) } else { Err(Error::PermissionDenied) }
    }

    /// What the user may do, if its credentials are of now.
    fn granted(&self) -> Result<&Granted, Error> {
        match self.auth_revision {
            0 => Err(Error::UserEmpty),
            old if old < self.auth.revision => Err(Error::AuthOldRevision),
            _ => self.auth.granted.get(self.user).ok_or(Error::PermissionDenied),
        }
    }

    fn may_read(&self, keys: Keys<'_>) -> Result<(), Error> {
        let granted = self.granted()?;
        if granted.is_root || granted.read.cover(keys) { Ok(()) } else { Err(Error::PermissionDenied) }
    }

    fn may_write(&self, keys: Keys<'_>) -> Result<(), Error> {
        let granted = self.granted()?;
        if granted.is_root || granted.write.cover(keys) { Ok(()) } else { Err(Error::PermissionDenied) }
    }

    /// Root may; others if they may so with every key that hangs on the lease.
    fn for_keys_of(&self, lease: i64, may: impl Fn(Keys<'_>) -> Result<(), Error>) -> Result<(), Error> {
        if self.is_root().is_ok() {
            return Ok(());
        }
        self.is_somebody()?;
        self.leases.keys(lease).try_for_each(|key| may(Keys::One(key)))
    }

    fn may_put(&self, put: &pb::PutRequest) -> Result<(), Error> {
        self.may_write(Keys::One(&put.key))?;
        if put.lease != 0 {
            // Who may not write the lease's other keys could not revoke it.
            self.for_keys_of(put.lease, |key| self.may_write(key))?;
        }
        if put.prev_kv { self.may_read(Keys::One(&put.key)) } else { Ok(()) }
    }

    fn may_delete(&self, delete: &pb::DeleteRangeRequest) -> Result<(), Error> {
        let keys = Keys::new(&delete.key, &delete.range_end);
        self.may_write(keys)?;
        if delete.prev_kv { self.may_read(keys) } else { Ok(()) }
    }

    fn may_do(&self, txn: &pb::TxnRequest) -> Result<(), Error> {
        for compare in &txn.compare {
            self.may_read(Keys::new(&compare.key, &compare.range_end))?;
        }
        for operation in txn.success.iter().chain(&txn.failure) {
            match &operation.request {
                Some(Operation::RequestRange(range)) => self.may_read(Keys::new(&range.key, &range.range_end))?,
                Some(Operation::RequestPut(put)) => self.may_put(put)?,
                Some(Operation::RequestDeleteRange(delete)) => self.may_delete(delete)?,
                Some(Operation::RequestTxn(nested)) => self.may_do(nested)?,
                None => {}
            }
        }
        // Even an empty one is somebody's.
        self.granted().map(|_| ())
    }
}
