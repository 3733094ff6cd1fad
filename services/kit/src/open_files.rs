//! How many files may be open. Each connection is one; the log and snapshots need some, or the server ends: so connections get what is
//! left, and wait beyond that. From etcd's `server/embed/etcd.go`, which keeps as many for itself.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// For everything but connections.
#[cfg(feature = "server")]
const RESERVED: u64 = 150;

/// Raises the limit as far as this process may, as Go does for its programs.
pub fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::warn!(%error, "the limit on open files (ulimit -n) cannot be raised to its hard limit");
    }
}

/// How many files may be open; `None`: as many as memory allows.
pub fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// How many connections may be open where so many files may be: on sockets that serve gRPC, and on others, so that health and metrics
/// can be asked for when clients have taken all that they may. 0: there is no room.
#[cfg(feature = "server")]
pub fn connections_max(limit: Option<u64>) -> (usize, usize) {
    let left = limit.map_or(u64::MAX, |limit| limit.saturating_sub(RESERVED));
    let left = usize::try_from(left).unwrap_or(usize::MAX).min(tokio::sync::Semaphore::MAX_PERMITS);
    (left - left / 8, left / 8)
}

#[cfg(all(test, feature = "server"))]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_the_log_and_clients_for_health() {
        assert_eq!(connections_max(Some(1024)), (765, 109));
        assert_eq!(connections_max(Some(150)), (0, 0));
        assert_eq!(connections_max(Some(10)), (0, 0));
        assert!(connections_max(None).0 > 1_000_000);
    }
}
