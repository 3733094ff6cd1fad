//! The judgement of storebench: engines, trial schedule, statistics, verdicts, reports.
//!
//! Pure: no I/O, no clock, no randomness but a given seed, no Kubernetes client. Both drivers, the operator and the
//! embedded run, feed the same functions here, so that a number means the same wherever it was measured.

pub mod across;
pub mod address;
pub mod archive;
pub mod conditions;
pub mod control_plane;
pub mod durability;
pub mod engine;
pub mod equality;
pub mod fingerprint;
pub mod gauges;
pub mod input;
pub mod judgement;
pub mod ledger;
pub mod otlp;
pub mod placement;
pub mod record;
pub mod recurrence;
pub mod report;
pub mod schedule;
pub mod statistics;
pub mod status;
pub mod suite;
pub mod trial;
mod units;
pub mod validate;
pub mod validated;
