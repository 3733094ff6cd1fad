//! What a replicator, the object store beside it, and the load that looks into that agree on.
//!
//! The credentials are no secret: who may connect is decided by loopback and by network policies, as for every store here.

/// The role of the object store beside a replicator.
pub const ROLE: &str = "object-store";
/// The bucket that is there from the start.
pub const BUCKET: &str = "storebench";
/// The region, which is a part of signatures.
pub const REGION: &str = "us-east-1";
/// The access key.
pub const ACCESS_KEY: &str = "storebench";
/// The secret key.
pub const SECRET_KEY: &str = "storebench-secret";
/// What replicas have before their names: the replica of `NAME` is `PREFIX/NAME`.
pub const PREFIX: &str = "databases";
/// How the names of databases in the shared directory end.
pub const DATABASE_SUFFIX: &str = ".db";
