//! The methods that are served, by path. What is not here is answered with `Unimplemented`.

use bytes::Bytes;
use prost::Message;
use service_kit::grpc::{self, Requests, Responses, Status, Stream, Unary};

use crate::api::Api;
use crate::proto::etcdserverpb as pb;

macro_rules! methods {
    (
        unary { $($unary_path:literal $unary:ident $answer:ident)* }
        stream { $($stream_path:literal $stream:ident $serve:ident)* }
    ) => {
        /// A method of the API.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum Method {
            $($unary,)*
            $($stream,)*
        }

        impl Method {
            /// All of them with their paths, in the order of their [numbers](Self::number).
            pub const ALL: &'static [(&'static str, Self)] =
                &[$(($unary_path, Self::$unary),)* $(($stream_path, Self::$stream),)*];

            /// Its place among all of them.
            pub fn number(self) -> usize {
                self as usize
            }

            /// The method with this path.
            pub fn of(path: &str) -> Option<Self> {
                match path {
                    $($unary_path => Some(Self::$unary),)*
                    $($stream_path => Some(Self::$stream),)*
                    _ => None,
                }
            }

            /// Whether requests or answers are a stream.
            pub fn is_stream(self) -> bool {
                matches!(self, $(Self::$stream)|*)
            }
        }

        impl Api {
            pub(super) fn dispatch(&self, method: Method, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
                match method {
                    $(Method::$unary => self.$answer(call, message),)*
                    $(Method::$stream)|* => Err(Status::new(grpc::Code::Internal, "a stream was called as if it were none")),
                }
            }

            pub(super) fn dispatch_stream(
                &self,
                method: Method,
                call: grpc::Caller,
                requests: Requests,
                responses: Responses,
            ) -> Stream {
                match method {
                    $(Method::$stream => Box::pin(self.$serve(call, requests, responses)),)*
                    $(Method::$unary)|* => Box::pin(async {
                        Err(Status::new(grpc::Code::Internal, "a method without streams was called as one"))
                    }),
                }
            }
        }
    };
}

impl Method {
    /// What kind of method it is, in the words of gRPC's metrics.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Watch | Self::LeaseKeepAlive => "bidi_stream",
            Self::RangeStream | Self::Snapshot | Self::Observe | Self::HealthWatch => "server_stream",
            _ => "unary",
        }
    }

    /// Whether a learner answers it: reads that need not be the newest, and what is asked of one member.
    pub(super) fn is_for_learners(self, message: &[u8]) -> bool {
        match self {
            Self::Status | Self::Snapshot | Self::HealthCheck | Self::HealthWatch => true,
            Self::Range => pb::RangeRequest::decode(message).is_ok_and(|request| request.serializable),
            _ => false,
        }
    }
}

methods! {
    unary {
        "/etcdserverpb.KV/Range" Range range
        "/etcdserverpb.KV/Put" Put put
        "/etcdserverpb.KV/DeleteRange" DeleteRange delete_range
        "/etcdserverpb.KV/Txn" Txn txn
        "/etcdserverpb.KV/Compact" Compact compact
        "/etcdserverpb.Lease/LeaseGrant" LeaseGrant lease_grant
        "/etcdserverpb.Lease/LeaseRevoke" LeaseRevoke lease_revoke
        "/etcdserverpb.Lease/LeaseTimeToLive" LeaseTimeToLive lease_time_to_live
        "/etcdserverpb.Lease/LeaseLeases" LeaseLeases lease_leases
        "/etcdserverpb.Cluster/MemberAdd" MemberAdd member_add
        "/etcdserverpb.Cluster/MemberList" MemberList member_list
        "/etcdserverpb.Cluster/MemberPromote" MemberPromote member_promote
        "/etcdserverpb.Cluster/MemberRemove" MemberRemove member_remove
        "/etcdserverpb.Cluster/MemberUpdate" MemberUpdate member_update
        "/etcdserverpb.Maintenance/Alarm" Alarm alarm
        "/etcdserverpb.Maintenance/Status" Status status
        "/etcdserverpb.Maintenance/Defragment" Defragment defragment
        "/etcdserverpb.Maintenance/Hash" Hash hash
        "/etcdserverpb.Maintenance/HashKV" HashKv hash_kv
        "/etcdserverpb.Maintenance/MoveLeader" MoveLeader move_leader
        "/etcdserverpb.Maintenance/Downgrade" Downgrade downgrade
        "/etcdserverpb.Auth/AuthEnable" AuthEnable auth_enable
        "/etcdserverpb.Auth/AuthDisable" AuthDisable auth_disable
        "/etcdserverpb.Auth/AuthStatus" AuthStatus auth_status
        "/etcdserverpb.Auth/Authenticate" Authenticate authenticate
        "/etcdserverpb.Auth/UserAdd" UserAdd user_add
        "/etcdserverpb.Auth/UserGet" UserGet user_get
        "/etcdserverpb.Auth/UserList" UserList user_list
        "/etcdserverpb.Auth/UserDelete" UserDelete user_delete
        "/etcdserverpb.Auth/UserChangePassword" UserChangePassword user_change_password
        "/etcdserverpb.Auth/UserGrantRole" UserGrantRole user_grant_role
        "/etcdserverpb.Auth/UserRevokeRole" UserRevokeRole user_revoke_role
        "/etcdserverpb.Auth/RoleAdd" RoleAdd role_add
        "/etcdserverpb.Auth/RoleGet" RoleGet role_get
        "/etcdserverpb.Auth/RoleList" RoleList role_list
        "/etcdserverpb.Auth/RoleDelete" RoleDelete role_delete
        "/etcdserverpb.Auth/RoleGrantPermission" RoleGrantPermission role_grant_permission
        "/etcdserverpb.Auth/RoleRevokePermission" RoleRevokePermission role_revoke_permission
        "/v3lockpb.Lock/Lock" Lock lock
        "/v3lockpb.Lock/Unlock" Unlock unlock
        "/v3electionpb.Election/Campaign" Campaign campaign
        "/v3electionpb.Election/Proclaim" Proclaim proclaim
        "/v3electionpb.Election/Leader" Leader leader
        "/v3electionpb.Election/Resign" Resign resign
        "/grpc.health.v1.Health/Check" HealthCheck health_check
    }
    stream {
        "/etcdserverpb.KV/RangeStream" RangeStream range_stream
        "/etcdserverpb.Watch/Watch" Watch watch
        "/etcdserverpb.Lease/LeaseKeepAlive" LeaseKeepAlive lease_keep_alive
        "/etcdserverpb.Maintenance/Snapshot" Snapshot snapshot
        "/v3electionpb.Election/Observe" Observe observe
        "/grpc.health.v1.Health/Watch" HealthWatch health_watch
    }
}
