//! Exit codes: one for each cause, so that a pipeline can tell a regression from a broken measurement.

use std::fmt;
use std::process::ExitCode;

use storebench_core::across::AcrossError;
use storebench_crds::status::Verdict;

/// How the process ends. Ordered by severity: the worst of several runs decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exit {
    /// 0
    Passed,
    /// 3: the trials cannot tell, or there was nothing to compare with.
    Inconclusive,
    /// 2
    Regressed,
    /// 4: the measurement cannot be trusted.
    Invalid,
    /// 130: stopped by a signal.
    Interrupted,
    /// 1: bad input, or a failure of storebench itself.
    Usage,
}

impl Exit {
    /// The exit code of a verdict.
    pub(crate) fn of(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Passed => Self::Passed,
            Verdict::Regressed => Self::Regressed,
            Verdict::Inconclusive | Verdict::NoBaseline => Self::Inconclusive,
            Verdict::Invalid => Self::Invalid,
        }
    }

    /// The exit code of what ended a command before its time.
    pub(crate) fn of_error(error: &anyhow::Error) -> Self {
        match error.is::<NothingToCompare>() || error.is::<AcrossError>() {
            true => Self::Inconclusive,
            false => Self::Usage,
        }
    }
}

/// Runs that are well, and of which none can be compared with another: neither a mistake nor a failure.
#[derive(Debug)]
pub(crate) struct NothingToCompare(pub(crate) String);

impl fmt::Display for NothingToCompare {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for NothingToCompare {}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Passed => 0,
            Exit::Usage => 1,
            Exit::Regressed => 2,
            Exit::Inconclusive => 3,
            Exit::Invalid => 4,
            Exit::Interrupted => 130,
        })
    }
}
