//! The contract between a driver (operator or embedded run) and a load process (`bench-job`).
//!
//! In: a [`JobSpec`] as JSON in a file. Out: a [`JobSummary`] as JSON in the termination message, at most
//! [`SUMMARY_BYTES_MAX`] bytes, and on standard output [`JobLine`]s, each a line that starts with [`LINE_MARK`].
//! Everything else on standard output or standard error is for people. On standard input come [`DriverLine`]s, where the job has
//! `strikesMembers` and asked for it; else nothing is read there.

mod said;
mod spec;

pub use said::{
    DriverLine, Hindrance, JobLine, JobOutcome, JobSummary, LINE_MARK, Phase, SUMMARY_BYTES_MAX, StoreReading,
};
pub use spec::{JobSpec, RestoreTool, SyncCounters};

pub use crate::latency::{ContractError, decode_histogram, encode_histogram, latency_histogram};
pub use crate::measurement::{
    ControlPlaneUsage, LatencyKind, LoadStep, LoaderAudit, MachineUse, Usage, WorkloadSummary,
};
