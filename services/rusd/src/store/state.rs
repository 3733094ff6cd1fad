//! The state, and what each command does to it.
//!
//! Nothing here knows of time, threads or files. A clone of [`State`] costs a few references: a published one is what readers look
//! at while the next is made.

use std::sync::Arc;

use super::auth::{Access, Auth};
use super::cluster::Cluster;
use super::command::{Caller, Command, Request};
use super::error::Error;
use super::keys::Keys;
use super::keyspace::{Keyspace, Write};
use super::lease::Leases;
use super::record::Record;
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::AlarmType;

#[cfg(test)]
pub(super) mod arbitrary;
mod compare;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
mod txn;

pub use txn::read_only;

/// All that is replicated.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Keys and their versions.
    pub keyspace: Keyspace,
    /// Leases and their keys.
    pub leases: Leases,
    /// Users and roles.
    pub auth: Arc<Auth>,
    /// Members and alarms.
    pub cluster: Arc<Cluster>,
}

/// What a command came to. Headers have the revision only; who, where and which term is the server's to say.
#[derive(Clone, Debug, PartialEq)]
pub enum Response {
    /// Of a put.
    Put(pb::PutResponse),
    /// Of a deletion.
    DeleteRange(pb::DeleteRangeResponse),
    /// Of a transaction.
    Txn(pb::TxnResponse),
    /// Of a lease that was granted.
    LeaseGrant(pb::LeaseGrantResponse),
    /// Of alarms.
    Alarm(pb::AlarmResponse),
    /// Of all that has nothing to say: the newest revision.
    Done(i64),
}

/// What a command came to, or why it did nothing; after [`Error::AnswerTooLarge`] and [`Error::TooManyKeysRead`] it has done everything, and
/// says only that.
pub type Outcome = Result<Response, Error>;

/// How much may still be read for the answer to a command. Without a bound, one transaction with 127 ranges over a million keys would make
/// 18 GB of answers, and one with thousands, each for the first key by another order, would look at keys for minutes; and what nobody waits
/// for is not read at all, so that it costs neither other members nor a start anything.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Of records; `None`: nobody waits for the answer.
    bytes: Option<usize>,
    /// How many keys have been looked at.
    looked: usize,
    /// What there was no room for.
    exceeded: Option<Error>,
}

impl Room {
    /// For an answer that somebody waits for. A member sends it to another in a frame of 64 MiB at most.
    pub const FULL: Self = Self::of(Some(60 << 20));
    /// For an answer that nobody waits for.
    pub const NONE: Self = Self::of(None);
    /// Keys that one answer may look at. One read looks at all that it needs: a million keys once, not twice.
    const LOOKED_MAX: usize = 1_000_000;

    /// For an answer that somebody waits for, where there is no more than that.
    pub(super) fn of_bytes(bytes: usize) -> Self {
        Self::of(Self::FULL.bytes.map(|full| full.min(bytes)))
    }

    const fn of(bytes: Option<usize>) -> Self {
        Self { bytes, looked: 0, exceeded: None }
    }

    /// Whether anything may be read for the answer at all.
    fn is_left(&self) -> bool {
        self.bytes.is_some() && self.exceeded.is_none()
    }

    /// Whether a read may begin that will look at so many keys.
    fn look_at(&mut self, keys: usize) -> bool {
        if self.looked >= Self::LOOKED_MAX {
            self.exceeded = Some(Error::TooManyKeysRead);
        }
        self.looked += keys;
        self.exceeded.is_none()
    }

    /// Takes room for so many bytes, if there is.
    fn take(&mut self, bytes: usize) -> bool {
        let Some(left) = self.bytes.filter(|_| self.exceeded.is_none()) else { return false };
        let left = left.checked_sub(bytes);
        if left.is_none() {
            self.exceeded = Some(Error::AnswerTooLarge);
        }
        self.bytes = Some(left.unwrap_or(0));
        left.is_some()
    }
}

impl State {
    /// Applies a command. `time_millis` is that of its entry. What was read for the answer fits into `room`: see [`Room`].
    pub fn apply(&mut self, command: Command, time_millis: u64, scratch: &mut Vec<u8>, mut room: Room) -> Outcome {
        let outcome = self.apply_within(command, time_millis, scratch, &mut room)?;
        room.exceeded.map_or(Ok(outcome), Err)
    }

    fn apply_within(&mut self, command: Command, time_millis: u64, scratch: &mut Vec<u8>, room: &mut Room) -> Outcome {
        let Command { caller, request } = command;
        self.check_alarms(&request)?;
        access(&request).check(&self.auth, &self.leases, &caller)?;
        match request {
            Request::Put(put) => return self.put(&put, scratch, room).map(Response::Put),
            Request::DeleteRange(delete) => {
                return Ok(Response::DeleteRange(self.changes(scratch).delete_range(&delete, room)));
            }
            Request::Txn(txn) => return txn::apply(self, &txn, scratch, room).map(Response::Txn),
            Request::LeaseGrant(grant) => return self.grant(&grant).map(Response::LeaseGrant),
            Request::Alarm(alarm) => {
                let alarms = self.cluster().alarm(&alarm);
                return Ok(Response::Alarm(pb::AlarmResponse { header: self.header(), alarms }));
            }
            Request::Compaction(compaction) => self.keyspace.compact(compaction.revision)?,
            Request::LeaseRevoke(revoke) => self.revoke(revoke.id, scratch)?,
            Request::LeaseCheckpoint(request) => {
                for checkpoint in &request.checkpoints {
                    self.leases.checkpoint(checkpoint.id, checkpoint.remaining_ttl);
                }
            }
            Request::AuthEnable(_) => self.auth().enable()?,
            Request::AuthDisable(_) => self.auth().disable(),
            Request::Authenticate(issued) => self.auth().authenticate(&issued, time_millis)?,
            Request::TokenRenew(issued) => self.auth().renew_token(&issued, time_millis),
            Request::AuthUserAdd(request) => self.auth().add_user(&request)?,
            Request::AuthUserDelete(request) => self.auth().delete_user(&request.name)?,
            Request::AuthUserChangePassword(request) => self.auth().change_password(&request)?,
            Request::AuthUserGrantRole(request) => self.auth().grant_role(&request.user, &request.role)?,
            Request::AuthUserRevokeRole(request) => self.auth().revoke_role(&request.name, &request.role)?,
            Request::AuthRoleAdd(request) => self.auth().add_role(&request.name)?,
            Request::AuthRoleDelete(request) => self.auth().delete_role(&request.role)?,
            Request::AuthRoleGrantPermission(request) => self.auth().grant_permission(&request)?,
            Request::AuthRoleRevokePermission(request) => self.auth().revoke_permission(&request)?,
            Request::MemberPublish(member) => self.cluster().publish(&member)?,
            Request::MemberAdd(member) => self.cluster().add(member)?,
            Request::MemberPromote(request) => self.cluster().promote(request.id)?,
            Request::MemberUpdate(request) => self.cluster().update(request.id, request.peer_ur_ls)?,
            Request::MemberRemove(request) => self.cluster().remove(&request)?,
            Request::ClusterVersion(request) => self.cluster().version = request.ver,
            Request::Downgrade(downgrade) => self.cluster().downgrade = downgrade,
        }
        Ok(self.done())
    }

    /// What raised alarms forbid: etcd's capped and corrupt appliers.
    fn check_alarms(&self, request: &Request) -> Result<(), Error> {
        let touches_keys = match request {
            Request::Put(_) | Request::DeleteRange(_) | Request::Txn(_) | Request::Compaction(_) => true,
            Request::LeaseGrant(_) | Request::LeaseRevoke(_) => true,
            _ => return Ok(()),
        };
        if touches_keys && self.cluster.has_alarm(AlarmType::Corrupt) {
            return Err(Error::Corrupt);
        }
        let grows = match request {
            Request::Put(_) | Request::LeaseGrant(_) => true,
            Request::Txn(txn) => super::quota::cost_of_txn(txn) > 0,
            _ => false,
        };
        if grows && self.cluster.has_alarm(AlarmType::Nospace) { Err(Error::NoSpace) } else { Ok(()) }
    }

    fn put(&mut self, put: &pb::PutRequest, scratch: &mut Vec<u8>, room: &mut Room) -> Result<pb::PutResponse, Error> {
        txn::check_put(self, put)?;
        Ok(self.changes(scratch).put(put, room))
    }

    fn grant(&mut self, grant: &pb::LeaseGrantRequest) -> Result<pb::LeaseGrantResponse, Error> {
        let lease = self.leases.grant(grant.id, grant.ttl)?;
        Ok(pb::LeaseGrantResponse { header: self.header(), id: lease.id, ttl: lease.ttl_seconds, error: String::new() })
    }

    /// Takes a lease away, and all keys that hang on it, in one revision.
    fn revoke(&mut self, id: i64, scratch: &mut Vec<u8>) -> Result<(), Error> {
        self.leases.get(id).ok_or(Error::LeaseNotFound)?;
        let keys: Vec<Arc<[u8]>> = self.leases.keys(id).cloned().collect();
        let mut changes = self.changes(scratch);
        for key in keys {
            changes.delete(&key);
        }
        self.leases.remove(id);
        Ok(())
    }

    fn auth(&mut self) -> &mut Auth {
        Arc::make_mut(&mut self.auth)
    }

    fn cluster(&mut self) -> &mut Cluster {
        Arc::make_mut(&mut self.cluster)
    }

    fn header(&self) -> Option<pb::ResponseHeader> {
        header(self.keyspace.revision())
    }

    fn done(&self) -> Response {
        Response::Done(self.keyspace.revision())
    }

    fn changes<'a>(&'a mut self, scratch: &'a mut Vec<u8>) -> Changes<'a> {
        Changes { write: self.keyspace.write(scratch), leases: &mut self.leases }
    }
}

fn header(revision: i64) -> Option<pb::ResponseHeader> {
    Some(pb::ResponseHeader { revision, ..Default::default() })
}

/// What a request wants to do. Only the server itself speaks of members, and of tokens that it made.
fn access(request: &Request) -> Access<'_> {
    match request {
        Request::Put(put) => Access::Put(put),
        Request::DeleteRange(delete) => Access::Delete(delete),
        Request::Txn(txn) => Access::Txn(txn),
        Request::LeaseGrant(_) => Access::Authenticated,
        Request::LeaseRevoke(revoke) => Access::ControlLease(revoke.id),
        Request::Compaction(_) | Request::Alarm(_) | Request::LeaseCheckpoint(_) => Access::Administrate,
        Request::MemberPublish(_) | Request::MemberAdd(_) | Request::MemberPromote(_) => Access::Administrate,
        Request::MemberUpdate(_) | Request::MemberRemove(_) | Request::ClusterVersion(_) => Access::Administrate,
        Request::Downgrade(_) | Request::AuthEnable(_) | Request::AuthDisable(_) => Access::Administrate,
        Request::Authenticate(_) | Request::TokenRenew(_) => Access::Administrate,
        Request::AuthUserAdd(_) | Request::AuthUserDelete(_) => Access::Administrate,
        Request::AuthUserChangePassword(_) | Request::AuthUserGrantRole(_) => Access::Administrate,
        Request::AuthUserRevokeRole(_) | Request::AuthRoleAdd(_) | Request::AuthRoleDelete(_) => Access::Administrate,
        Request::AuthRoleGrantPermission(_) | Request::AuthRoleRevokePermission(_) => Access::Administrate,
    }
}

/// The changes of one transaction: keys, and what hangs on leases.
struct Changes<'a> {
    write: Write<'a>,
    leases: &'a mut Leases,
}

impl Changes<'_> {
    fn space(&self) -> &Keyspace {
        self.write.space()
    }

    /// [`txn::check_put`] has passed.
    fn put(&mut self, put: &pb::PutRequest, room: &mut Room) -> pb::PutResponse {
        let old = (put.ignore_value || put.ignore_lease).then(|| self.space().get(&put.key).cloned()).flatten();
        let old_value = old.as_ref().filter(|_| put.ignore_value).map(Record::value);
        let value = old_value.as_deref().unwrap_or(&put.value);
        let lease = old.as_ref().filter(|_| put.ignore_lease).map_or(put.lease, Record::lease);
        let superseded = self.write.put(&put.key, value, lease);
        let old_lease = superseded.as_ref().map_or(0, Record::lease);
        self.leases.move_key(&put.key, old_lease, lease);
        let prev_kv = superseded.filter(|record| put.prev_kv && room.take(record.encoded_len()));
        let prev_kv = prev_kv.map(|record| record.to_key_value());
        pb::PutResponse { header: header(self.write.revision()), prev_kv }
    }

    fn delete_range(&mut self, delete: &pb::DeleteRangeRequest, room: &mut Room) -> pb::DeleteRangeResponse {
        let keys = Keys::new(&delete.key, &delete.range_end);
        let space = self.space();
        let doomed: Vec<Record> = space.range(keys, space.revision()).cloned().collect();
        for record in &doomed {
            self.delete(record.key());
        }
        let is_told = |record: &&Record| delete.prev_kv && room.take(record.encoded_len());
        let prev_kvs = doomed.iter().take_while(is_told).map(Record::to_key_value).collect();
        pb::DeleteRangeResponse { header: header(self.write.revision()), deleted: doomed.len() as i64, prev_kvs }
    }

    fn delete(&mut self, key: &[u8]) {
        if let Some(deleted) = self.write.delete(key) {
            self.leases.move_key(key, deleted.lease(), 0);
        }
    }
}

/// Checks what the caller of a read may see.
pub fn check(state: &State, caller: &Caller, access: Access<'_>) -> Result<(), Error> {
    access.check(&state.auth, &state.leases, caller)
}
