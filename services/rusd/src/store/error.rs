//! Errors that clients see: etcd's codes and etcd's words, in one table.
//!
//! Clients tell errors apart by message and code, so that both are the interface. From `api/v3rpc/rpctypes/error.go` of etcd 3.7.

/// A gRPC status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "they are gRPC's own")]
pub enum Code {
    Canceled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

macro_rules! errors {
    ($($name:ident $code:ident $message:literal)*) => {
        /// An error of etcd's.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
        pub enum Error {
            $(#[doc = $message] #[error($message)] $name,)*
        }

        impl Error {
            /// The gRPC status code.
            pub fn code(self) -> Code {
                match self {
                    $(Self::$name => Code::$code,)*
                }
            }

            /// The gRPC status message.
            pub fn message(self) -> &'static str {
                match self {
                    $(Self::$name => $message,)*
                }
            }

            /// The error with this message.
            pub fn of(message: &str) -> Option<Self> {
                match message {
                    $($message => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

errors! {
    EmptyKey InvalidArgument "etcdserver: key is not provided"
    KeyNotFound InvalidArgument "etcdserver: key not found"
    ValueProvided InvalidArgument "etcdserver: value is provided"
    LeaseProvided InvalidArgument "etcdserver: lease is provided"
    TooManyOps InvalidArgument "etcdserver: too many operations in txn request"
    DuplicateKey InvalidArgument "etcdserver: duplicate key given in txn request"
    InvalidClientApiVersion InvalidArgument "etcdserver: invalid client api version"
    InvalidSortOption InvalidArgument "etcdserver: invalid sort option"
    Compacted OutOfRange "etcdserver: mvcc: required revision has been compacted"
    FutureRevision OutOfRange "etcdserver: mvcc: required revision is a future revision"
    NoSpace ResourceExhausted "etcdserver: mvcc: database space exceeded"
    StreamSortOrder Unimplemented "RangeStream does not support custom sort orders"
    StreamRevisionFilter Unimplemented "RangeStream does not support revision filters"

    LeaseNotFound NotFound "etcdserver: requested lease not found"
    LeaseExists FailedPrecondition "etcdserver: lease already exists"
    LeaseTtlTooLarge OutOfRange "etcdserver: too large lease TTL"

    WatchCanceled Canceled "etcdserver: watch canceled"

    MemberExists FailedPrecondition "etcdserver: member ID already exist"
    PeerUrlExists FailedPrecondition "etcdserver: Peer URLs already exists"
    MemberNotEnoughStarted FailedPrecondition "etcdserver: re-configuration failed due to not enough started members"
    MemberBadUrls InvalidArgument "etcdserver: given member URLs are invalid"
    MemberNotFound NotFound "etcdserver: member not found"
    MemberNotLearner FailedPrecondition "etcdserver: can only promote a learner member"
    LearnerNotReady FailedPrecondition "etcdserver: can only promote a learner member which is in sync with leader"
    TooManyLearners FailedPrecondition "etcdserver: too many learner members in cluster"
    ClusterIdMismatch FailedPrecondition "etcdserver: cluster ID mismatch"

    RequestTooLarge InvalidArgument "etcdserver: request is too large"
    TooManyRequests ResourceExhausted "etcdserver: too many requests"
    AnswerTooLarge ResourceExhausted "rusd: what the request changes is done, but its answer is larger than 60 MiB, or than others leave: ask for less at a time"
    TooManyKeysRead ResourceExhausted "rusd: what the request changes is done, but its reads look at more than a million keys: ask for less at a time"

    RootUserNotExist FailedPrecondition "etcdserver: root user does not exist"
    RootRoleNotExist FailedPrecondition "etcdserver: root user does not have root role"
    UserAlreadyExists FailedPrecondition "etcdserver: user name already exists"
    UserEmpty InvalidArgument "etcdserver: user name is empty"
    UserNotFound FailedPrecondition "etcdserver: user name not found"
    RoleAlreadyExists FailedPrecondition "etcdserver: role name already exists"
    RoleNotFound FailedPrecondition "etcdserver: role name not found"
    RoleEmpty InvalidArgument "etcdserver: role name is empty"
    AuthFailed InvalidArgument "etcdserver: authentication failed, invalid user ID or password"
    NoPasswordUser Unknown "auth: authentication failed, password was given for no password user"
    PermissionNotGiven InvalidArgument "etcdserver: permission not given"
    PermissionDenied PermissionDenied "etcdserver: permission denied"
    RoleNotGranted FailedPrecondition "etcdserver: role is not granted to the user"
    PermissionNotGranted FailedPrecondition "etcdserver: permission is not granted to the role"
    AuthNotEnabled FailedPrecondition "etcdserver: authentication is not enabled"
    InvalidAuthToken Unauthenticated "etcdserver: invalid auth token"
    InvalidAuthManagement InvalidArgument "etcdserver: invalid auth management"
    AuthOldRevision InvalidArgument "etcdserver: revision of auth store is old"

    NoLeader Unavailable "etcdserver: no leader"
    NotLeader FailedPrecondition "etcdserver: not leader"
    LeaderChanged Unavailable "etcdserver: leader changed"
    NotCapable FailedPrecondition "etcdserver: not capable"
    Stopped Unavailable "etcdserver: server stopped"
    Timeout Unavailable "etcdserver: request timed out"
    TimeoutDueToLeaderFail Unavailable "etcdserver: request timed out, possibly due to previous leader failure"
    TimeoutDueToLeaderTransfer Unknown "etcdserver: request timed out, leader transfer took too long"
    TimeoutDueToConnectionLost Unavailable "etcdserver: request timed out, possibly due to connection lost"
    TimeoutWaitAppliedIndex Unavailable "etcdserver: request timed out, waiting for the applied index took too long"
    Unhealthy Unavailable "etcdserver: unhealthy cluster"
    Corrupt DataLoss "etcdserver: corrupt cluster"
    NotSupportedForLearner FailedPrecondition "etcdserver: rpc not supported for learner"
    BadLeaderTransferee FailedPrecondition "etcdserver: bad leader transferee"

    WrongDowngradeVersionFormat InvalidArgument "etcdserver: wrong downgrade target version format"
    InvalidDowngradeTargetVersion InvalidArgument "etcdserver: invalid downgrade target version"
    ClusterVersionUnavailable FailedPrecondition "etcdserver: cluster version not found during downgrade"
    DowngradeInProcess FailedPrecondition "etcdserver: cluster has a downgrade job in progress"
    NoInflightDowngrade FailedPrecondition "etcdserver: no inflight downgrade job"

    RequestCanceled Canceled "etcdserver: request canceled"
    DeadlineExceeded DeadlineExceeded "etcdserver: context deadline exceeded"
    MalformedCommand Internal "rusd: a command of the log cannot be read; was it written by a newer release?"
}
