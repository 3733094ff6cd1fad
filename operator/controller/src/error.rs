//! What can go wrong in a reconciliation, and what is done about it: one policy for each class.

use std::time::Duration;

use rand::RngExt as _;

/// The first wait after a failure that may pass by itself.
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
/// The longest wait.
const BACKOFF_LAST: Duration = Duration::from_secs(60);

/// Why a reconciliation did not end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused or could not be reached.
    #[error("{what}: {source}")]
    Api {
        /// What was tried, such as `apply StatefulSet etcd`.
        what: String,
        /// What it said.
        source: Box<kube::Error>,
    },
    /// A ConfigMap of the record is not what was written.
    #[error("{0}")]
    Archive(#[from] storebench_core::archive::ArchiveError),
    /// Something that cannot be written as JSON.
    #[error("cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// Keys and certificates could not be made.
    #[error("keys and certificates: {0}")]
    Certificates(#[from] rcgen::Error),
    /// An object from the API server lacks what every such object has.
    #[error("{0}")]
    Incomplete(&'static str),
}

/// What an error calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Somebody else wrote first: look again, soon.
    Conflict,
    /// The API server is down or busy: ever longer waits, with jitter.
    Unreachable,
    /// It was understood and refused: permissions, quota, an invalid object. Slowly again, since only somebody else can
    /// change it.
    Refused,
}

impl Class {
    /// For metrics: a bounded set of values.
    pub fn label(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
        }
    }
}

impl Error {
    /// What the error calls for.
    pub fn class(&self) -> Class {
        let Self::Api { source, .. } = self else { return Class::Refused };
        match &**source {
            kube::Error::Api(status) if status.code == 409 => Class::Conflict,
            kube::Error::Api(status) if status.code == 429 || status.code >= 500 => Class::Unreachable,
            kube::Error::Api(_) => Class::Refused,
            _ => Class::Unreachable,
        }
    }

    /// Whether the API server said that there is no such object.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Api { source, .. } if matches!(&**source, kube::Error::Api(status) if status.code == 404))
    }
}

/// Says what was tried.
pub trait Tried<T> {
    /// `what` is a verb and an object, such as `apply StatefulSet etcd`.
    fn tried(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> Tried<T> for Result<T, kube::Error> {
    fn tried(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Api { what: what(), source: Box::new(source) })
    }
}

/// How long to wait before the next attempt. `failures` in a row, this one included.
pub fn wait(class: Class, failures: u32) -> Duration {
    let longest = match class {
        Class::Conflict => return Duration::from_millis(200),
        Class::Refused => return BACKOFF_LAST,
        Class::Unreachable => BACKOFF_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(BACKOFF_LAST),
    };
    // Full jitter, so that those who failed together do not return together.
    longest.mul_f64(rand::rng().random_range(0.5..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_end() {
        assert!(wait(Class::Unreachable, 1) <= BACKOFF_FIRST);
        assert!(wait(Class::Unreachable, 5) > BACKOFF_FIRST);
        assert!(wait(Class::Unreachable, 1_000) <= BACKOFF_LAST);
    }
}
