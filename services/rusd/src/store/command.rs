//! Commands: what stands in the log.
//!
//! | offset | bytes | field | |
//! | --- | --- | --- | --- |
//! | 0 | 1 | version | 1 |
//! | 1 | 1 | kind | see [`Kind`] |
//! | 2 | 1 | caller | 0 the server itself, 1 a client |
//! | 3 | 8 | auth revision | little endian; of a client only |
//! | 11 | 2 | length of the user's name | little endian; of a client only |
//! | 13 | | the user's name | of a client only |
//! | | | the request | etcd's own message as protobuf |
//!
//! The request is what the client sent, byte for byte: see [`encode`].

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use super::error::Error;
use crate::proto::etcdserverpb as pb;

const VERSION: u8 = 1;
const SERVER: u8 = 0;
const CLIENT: u8 = 1;

/// Longest name of a user, in bytes.
pub const USER_MAX_BYTES: usize = u16::MAX as usize;
/// The most that is in front of a request.
pub const HEAD_BYTES_MAX: usize = 13 + USER_MAX_BYTES;

/// On whose behalf something is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The server itself, for what no client asks for: it may do everything.
    Server,
    /// A client. Without credentials the name is empty and the revision 0.
    Client {
        /// The user.
        user: String,
        /// The revision of the users and roles that the credentials were checked against.
        auth_revision: u64,
    },
}

impl Caller {
    /// A client without credentials.
    pub const NOBODY: Self = Self::Client { user: String::new(), auth_revision: 0 };
}

/// A simple token that the API made for a user whose password it checked.
#[derive(Clone, PartialEq, Message)]
pub struct IssuedToken {
    /// The user.
    #[prost(string, tag = "1")]
    pub user: String,
    /// The token.
    #[prost(string, tag = "2")]
    pub token: String,
    /// How long it lives, in seconds; 0 means [`super::auth::TOKEN_TTL_SECONDS`].
    #[prost(uint64, tag = "3")]
    pub ttl_seconds: u64,
    /// The revision of the users and roles that the password was checked against; 0: nothing is known of it, as in commands of earlier releases.
    #[prost(uint64, tag = "4")]
    pub auth_revision: u64,
}

/// Who is removed from the group: etcd's `MemberRemoveRequest`, and whether it is looked at who is left.
#[derive(Clone, PartialEq, Message)]
pub struct MemberRemoval {
    /// The member.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Nothing is removed where no voter would be left. What releases before this field have decided stays as they did it.
    #[prost(bool, tag = "2")]
    pub keeps_a_voter: bool,
}

macro_rules! requests {
    ($($number:literal $name:ident $message:ty)*) => {
        /// What a command does. The numbers are in the log: they never change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "named after etcd's requests")]
        pub enum Kind {
            $($name = $number,)*
        }

        impl Kind {
            /// Of a command that is encoded.
            pub fn of_command(bytes: &[u8]) -> Option<Self> {
                bytes.get(1).copied().and_then(Self::of)
            }

            fn of(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }

        /// A command's request.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "named after etcd's requests")]
        pub enum Request {
            $($name($message),)*
        }

        impl Request {
            /// What it does.
            pub fn kind(&self) -> Kind {
                match self {
                    $(Self::$name(_) => Kind::$name,)*
                }
            }

            fn encode_to_vec(&self) -> Vec<u8> {
                match self {
                    $(Self::$name(message) => message.encode_to_vec(),)*
                }
            }

            fn decode(kind: Kind, bytes: Bytes) -> Result<Self, prost::DecodeError> {
                Ok(match kind {
                    $(Kind::$name => Self::$name(Message::decode(bytes)?),)*
                })
            }
        }
    };
}

requests! {
    1 Put pb::PutRequest
    2 DeleteRange pb::DeleteRangeRequest
    3 Txn pb::TxnRequest
    4 Compaction pb::CompactionRequest
    5 LeaseGrant pb::LeaseGrantRequest
    6 LeaseRevoke pb::LeaseRevokeRequest
    7 LeaseCheckpoint pb::LeaseCheckpointRequest
    8 Alarm pb::AlarmRequest
    // Who a member is. Its vote is the business of the log.
    16 MemberPublish pb::Member
    17 MemberRemove MemberRemoval
    18 ClusterVersion pb::DowngradeVersionTestRequest
    19 Downgrade pb::DowngradeInfo
    24 MemberAdd pb::Member
    25 MemberPromote pb::MemberPromoteRequest
    26 MemberUpdate pb::MemberUpdateRequest
    32 AuthEnable pb::AuthEnableRequest
    33 AuthDisable pb::AuthDisableRequest
    34 Authenticate IssuedToken
    35 AuthUserAdd pb::AuthUserAddRequest
    36 AuthUserDelete pb::AuthUserDeleteRequest
    37 AuthUserChangePassword pb::AuthUserChangePasswordRequest
    38 AuthUserGrantRole pb::AuthUserGrantRoleRequest
    39 AuthUserRevokeRole pb::AuthUserRevokeRoleRequest
    40 AuthRoleAdd pb::AuthRoleAddRequest
    41 AuthRoleDelete pb::AuthRoleDeleteRequest
    42 AuthRoleGrantPermission pb::AuthRoleGrantPermissionRequest
    43 AuthRoleRevokePermission pb::AuthRoleRevokePermissionRequest
    // A token that is used lives on; one that is gone stays gone.
    44 TokenRenew IssuedToken
}

/// A command.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// Who asks for it.
    pub caller: Caller,
    /// For what.
    pub request: Request,
}

/// A command of a request that is encoded already: of the bytes that the client sent.
pub fn encode(caller: &Caller, kind: Kind, request: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(16 + request.len());
    out.put_slice(&[VERSION, kind as u8]);
    match caller {
        Caller::Server => out.put_u8(SERVER),
        Caller::Client { user, auth_revision } => {
            // A longer name is nobody's: it cannot be added.
            let user = if user.len() > USER_MAX_BYTES { "" } else { user };
            out.put_u8(CLIENT);
            out.put_u64_le(*auth_revision);
            out.put_u16_le(user.len() as u16);
            out.put_slice(user.as_bytes());
        }
    }
    out.put_slice(request);
    out.freeze()
}

impl Command {
    /// The bytes for the log.
    pub fn encode(&self) -> Bytes {
        encode(&self.caller, self.request.kind(), &self.request.encode_to_vec())
    }

    /// What [`Command::encode`] was given. Keys and values share the memory of `bytes`.
    pub fn decode(bytes: &Bytes) -> Result<Self, Error> {
        let (caller, kind, start) = head(bytes).ok_or(Error::MalformedCommand)?;
        let request = Request::decode(kind, bytes.slice(start..)).map_err(|_| Error::MalformedCommand)?;
        Ok(Self { caller, request })
    }
}

/// The caller, the kind, and where the request begins.
fn head(bytes: &[u8]) -> Option<(Caller, Kind, usize)> {
    let [VERSION, kind, caller, rest @ ..] = bytes else { return None };
    let kind = Kind::of(*kind)?;
    match *caller {
        SERVER => Some((Caller::Server, kind, 3)),
        CLIENT => {
            let (auth_revision, rest) = rest.split_first_chunk::<8>()?;
            let (len, rest) = rest.split_first_chunk::<2>()?;
            let len = usize::from(u16::from_le_bytes(*len));
            let user = String::from_utf8(rest.get(..len)?.to_vec()).ok()?;
            Some((Caller::Client { user, auth_revision: u64::from_le_bytes(*auth_revision) }, kind, 13 + len))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(key in proptest::collection::vec(any::<u8>(), 0..50), lease in any::<i64>(), user in ".{0,20}", auth_revision in any::<u64>(), server in any::<bool>()) {
            let caller = if server { Caller::Server } else { Caller::Client { user, auth_revision } };
            let put = pb::PutRequest { key: key.into(), lease, ..pb::PutRequest::default() };
            let command = Command { caller, request: Request::Put(put) };
            prop_assert_eq!(Command::decode(&command.encode()), Ok(command));
        }

        #[test]
        fn hostile_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), kind in 0..50u8, caller in 0..3u8) {
            drop(Command::decode(&Bytes::from(bytes.clone())));
            let all: Vec<u8> = [VERSION, kind, caller].into_iter().chain(bytes).collect();
            drop(Command::decode(&all.into()));
        }
    }

    #[test]
    fn a_put_of_bytes_that_are_not_text_keeps_its_lease_and_every_byte() {
        // The original rusd sent `PUT:key:value` as text.
        let put = pb::PutRequest {
            key: b"a:b\xff".as_slice().into(),
            value: b"\x00:\xfe".as_slice().into(),
            lease: 7,
            ..Default::default()
        };
        let command = Command { caller: Caller::NOBODY, request: Request::Put(put) };
        assert_eq!(Command::decode(&command.encode()), Ok(command));
    }

    #[test]
    fn deeply_nested_transactions_are_refused_without_a_panic() {
        let mut txn = pb::TxnRequest::default();
        for _ in 0..200 {
            let request = Some(pb::request_op::Request::RequestTxn(txn));
            txn = pb::TxnRequest { success: vec![pb::RequestOp { request }], ..Default::default() };
        }
        let bytes = Command { caller: Caller::NOBODY, request: Request::Txn(txn) }.encode();
        assert_eq!(Command::decode(&bytes), Err(Error::MalformedCommand));
    }
}
