//! What can go wrong in a reconciliation, and what is done about it: one policy for each class.

use std::time::Duration;

use rand::RngExt as _;
use storebench_core::reason::Reason;
use storebench_crds::line::{one_line, short_line};

use crate::health::Trouble;

/// The first wait after a failure that may pass by itself.
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
/// The longest wait.
const BACKOFF_LAST: Duration = Duration::from_secs(60);

/// After so many errors in a row that the API server answers with, which takes some minutes, one more is of no use.
const FAILURES_MAX: u32 = 10;

/// After so many refusals in a row for want of a permission, which takes a quarter of a minute, one more is of no use.
const FORBIDDEN_MAX: u32 = 6;

/// As much of an answer as fits into a status with its remedy.
const ANSWER_BYTES_MAX: usize = 170;

fn is_quota(status: &kube::core::Status) -> bool {
    status.code == 403 && status.message.contains("exceeded quota")
}

fn is_too_large(status: &kube::core::Status) -> bool {
    status.code == 413 || (status.code == 422 && status.message.contains("Too long"))
}

/// Who asks is not known or lacks a role; what a quota, a policy or an admission plugin forbids has code 403 as well, and is for good.
fn is_permission(status: &kube::core::Status) -> bool {
    status.code == 401 || (status.code == 403 && status.message.contains(" cannot "))
}

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
    /// What a run measured is not what the operator wrote.
    #[error("{0}: whoever may do that can choose what counts; make a new run")]
    Tampered(String),
    /// The record of a run is signed and cannot be read all the same.
    #[error("{0}: make a new run")]
    Damaged(String),
    /// There is an object of this name already, and it is somebody else's.
    #[error("{object} is there already and belongs to {owner}: rename or delete one of the two")]
    NameTaken {
        /// Kind and name.
        object: String,
        /// Whose it is.
        owner: String,
    },
    /// An object of this name belonged to one that was deleted, and is about to be deleted, too.
    #[error("{0} of an earlier object of the same name is still being deleted")]
    StillThere(String),
}

/// What an error calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Somebody else wrote first: look again, soon.
    Conflict,
    /// The API server is down or busy: ever longer waits, with jitter.
    Unreachable,
    /// The operator may not. An API server that has just started says so, too, before it knows its roles: looked at again for
    /// some seconds, and then as good as refused.
    Forbidden,
    /// It was understood and refused for good: quota, a policy, an invalid object. Only somebody else can change
    /// that, so whatever needs it ends or says so, and holds up nobody.
    Refused,
}

impl Class {
    /// For metrics: a bounded set of values.
    pub fn label(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Unreachable => "unreachable",
            Self::Forbidden => "forbidden",
            Self::Refused => "refused",
        }
    }
}

impl Error {
    /// What the error calls for.
    pub fn class(&self) -> Class {
        match self {
            Self::StillThere(_) => Class::Unreachable,
            Self::Api { source, .. } => match &**source {
                kube::Error::Api(status) if status.code == 409 => Class::Conflict,
                kube::Error::Api(status) if matches!(status.code, 408 | 429) || status.code >= 500 => {
                    Class::Unreachable
                }
                kube::Error::Api(status) if is_permission(status) => Class::Forbidden,
                kube::Error::Api(_) => Class::Refused,
                // Whatever else went wrong on the way: nobody has answered.
                _ => Class::Unreachable,
            },
            Self::Archive(_)
            | Self::Json(_)
            | Self::Certificates(_)
            | Self::Incomplete(_)
            | Self::Tampered(_)
            | Self::Damaged(_)
            | Self::NameTaken { .. } => Class::Refused,
        }
    }

    /// Whether it is of no use to try again after so many failures in a row. An API server that answers one request with an
    /// error again and again, such as a webhook's that is gone, is as good as one that refuses.
    pub fn is_final(&self, failures: u32) -> bool {
        match self.class() {
            Class::Refused => true,
            Class::Forbidden => failures >= FORBIDDEN_MAX,
            Class::Conflict => false,
            Class::Unreachable => failures >= FAILURES_MAX && self.answer().is_some(),
        }
    }

    /// What the API server answered.
    fn answer(&self) -> Option<&kube::core::Status> {
        let Self::Api { source, .. } = self else { return None };
        match &**source {
            kube::Error::Api(status) => Some(status),
            _ => None,
        }
    }

    /// For conditions.
    pub fn reason(&self) -> Reason {
        match self {
            Self::NameTaken { .. } => Reason::NameTaken,
            Self::Archive(_) | Self::Tampered(_) | Self::Damaged(_) => Reason::InvalidRecord,
            Self::Api { .. } => match self.answer() {
                Some(status) if is_quota(status) => Reason::QuotaExceeded,
                Some(status) if matches!(status.code, 401 | 403) => Reason::Forbidden,
                // Its message says what it is.
                Some(_) | None => Reason::Refused,
            },
            Self::Json(_) | Self::Certificates(_) | Self::Incomplete(_) | Self::StillThere(_) => Reason::Refused,
        }
    }

    /// For the status of what needs what was refused.
    pub fn trouble(&self) -> Trouble {
        Trouble { reason: self.reason(), message: self.for_user() }
    }

    /// What happened and what to do about it, in one line, for those who read a status.
    pub fn for_user(&self) -> String {
        let (Self::Api { what, .. }, Some(status)) = (self, self.answer()) else { return one_line(&self.to_string()) };
        let remedy = match status.code {
            _ if is_quota(status) => "raise the quota, or ask for less",
            _ if status.code == 401 || status.code == 403 || status.message.contains("denied request") => {
                "change the policy or permission that says so, or what it says it of"
            }
            _ if is_too_large(status) => "it is too large: use fewer workloads in one run",
            500.. => "the API server answers so again and again: mend that first",
            _ => "change what it says is wrong",
        };
        let said = short_line(&status.message, ANSWER_BYTES_MAX);
        let name = what.rsplit(' ').next().unwrap_or_default();
        // Most answers name the object themselves.
        let tried = if said.contains(name) { String::new() } else { format!(" to {what}") };
        format!("the API server refuses{tried}: {said}; {remedy}")
    }

    /// Whether the API server refused an object for its size.
    pub fn is_too_large(&self) -> bool {
        self.answer().is_some_and(is_too_large)
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
        Class::Unreachable | Class::Forbidden => {
            BACKOFF_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(BACKOFF_LAST)
        }
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

    fn answered(code: u16, message: &str) -> Error {
        let status = kube::core::Status::failure(message, "Reason").with_code(code);
        Err::<(), _>(kube::Error::Api(Box::new(status))).tried(|| "apply StatefulSet etcd".into()).unwrap_err()
    }

    #[test]
    fn what_is_refused_for_good_is_told_from_what_may_pass() {
        for code in [400, 404, 405, 413, 422] {
            assert!(answered(code, "no").is_final(0), "{code}");
        }
        let quota = "pods \"x\" is forbidden: exceeded quota: small";
        let policy = "ValidatingAdmissionPolicy 'images' with binding 'images' denied request: image is not allowed";
        assert!(answered(403, quota).is_final(0));
        assert!(answered(403, policy).is_final(0));
        let role = "pods is forbidden: User \"operator\" cannot list resource \"pods\" in API group \"\"";
        for (code, message) in [(401, "Unauthorized"), (403, role)] {
            assert!(!answered(code, message).is_final(0), "an API server that has just started says so");
            assert!(answered(code, message).is_final(FORBIDDEN_MAX));
        }
        let psa = "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\"";
        assert!(answered(403, psa).is_final(0));
        for code in [408, 429, 500, 502, 503, 504] {
            assert!(!answered(code, "not now").is_final(0), "{code}");
            assert!(answered(code, "never").is_final(FAILURES_MAX), "{code}");
        }
        assert!(!answered(409, "somebody was quicker").is_final(1_000));
        let lost =
            Error::Api { what: "list Pods".into(), source: Box::new(kube::Error::LinesCodecMaxLineLengthExceeded) };
        assert!(!lost.is_final(1_000), "nobody answered");
    }

    #[test]
    fn users_read_what_was_refused_and_what_to_do() {
        let quota = answered(403, "pods \"x\" is forbidden: exceeded quota: small");
        assert_eq!(quota.reason(), Reason::QuotaExceeded);
        let said = quota.for_user();
        assert!(
            said.starts_with("the API server refuses to apply StatefulSet etcd: pods \"x\" is forbidden"),
            "{said}"
        );
        assert!(said.ends_with("; raise the quota, or ask for less"), "{said}");
        assert_eq!(answered(403, "denied by policy").reason(), Reason::Forbidden);
        let long = answered(422, "data: Too long: may not be more than 1048576 bytes");
        assert!(long.is_too_large() && answered(413, "").is_too_large() && !answered(422, "no").is_too_large());
        assert!(long.for_user().ends_with("it is too large: use fewer workloads in one run"), "{}", long.for_user());
        assert_eq!(answered(422, "a line\nand another").for_user().lines().count(), 1);
    }
}
