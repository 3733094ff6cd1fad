//! Bounds that decide what an entry does when it is applied. Whoever changes one makes members of two releases differ, and one that starts again
//! differ from what it was: entries that are in logs must go on doing what they did, so that another bound needs another version of a
//! command. `tests/of_releases.rs` is red then.

/// How many keys, and how many sessions, one entry ends at most: what one entry costs is bounded.
pub const EXPIRED_MAX: usize = 1000;
/// What a transaction reads at most, bytes: every member makes the answer, also when it replays the log.
pub(super) const ANSWER_BYTES_MAX: usize = 4 << 20;
/// What values have that a transaction compares, or writes again with a lease, bytes: all that comes after it in the log waits until they were
/// read, perhaps from a disk, and a few bytes in the log shall not write very many.
pub(super) const LOOKED_AT_BYTES_MAX: usize = 64 << 20;
/// Keys of a lease at most: they end in one entry.
pub(super) const LEASE_KEYS_MAX: u32 = 1000;
/// Keys that the leases have together that one transaction revokes, or a user's also keeps alive: every member looks at them in one step.
pub(super) const REVOKED_MAX: usize = 10_000;
/// A session that nobody has used for so long ends, milliseconds by the clock of the log: an hour.
pub(super) const IDLE_MILLIS: u64 = 3_600_000;
/// Answers that are kept for a session whose client does not say what it has.
pub(super) const ANSWERS_MAX: u32 = 4096;
/// What the answers of a session take, and those of all, bytes: beyond, a session's writes wait. The last one may be larger than its room.
pub(super) const SESSION_BYTES_MAX: u64 = 16 << 20;
pub(super) const ALL_BYTES_MAX: u64 = 256 << 20;
/// Of it, what the answers of a user's sessions take: none fills the room of all.
pub(super) const USER_BYTES_MAX: u64 = 32 << 20;
/// What an answer takes besides its row.
pub(super) const ANSWER_BYTES: u64 = 64;
/// Sessions at a time, and of these those of a user that does not administer: beyond, no other is opened.
pub(super) const SESSIONS_MAX: usize = 65_536;
pub(super) const SESSIONS_OF_ONE_MAX: usize = 4_096;
/// Leases at a time, and of these those of a user that does not administer: beyond, no other is granted.
pub(super) const LEASES_MAX: usize = 1_000_000;
pub(super) const LEASES_OF_ONE_MAX: usize = 10_000;
/// Users at most.
pub(super) const USERS_MAX: usize = 10_000;
/// Prefixes of a user at most.
pub(super) const GRANTS_MAX: usize = 1_000;
