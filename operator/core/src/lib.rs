//! The judgement of storebench: engines, trial schedule, statistics, verdicts, reports.
//!
//! Pure: no I/O, no clock, no randomness but a given seed, no Kubernetes client. Both drivers, the operator and the
//! embedded run, feed the same functions here, so that a number means the same wherever it was measured.
//!
//! The way of a run, from files to a verdict:
//!
//! | step | where |
//! | --- | --- |
//! | from bytes to what can be planned | [`input`] reads, [`validate`] finds mistakes, [`validated`] is what was found right; [`address`], [`suite`], [`recurrence`] |
//! | what is started, and how | [`engine`] (processes of stores), [`control_plane`] (of Kubernetes), [`placement`] (on which nodes) |
//! | what is measured next | [`schedule`] (in which order arms take turns), [`ledger`] (what is still to do), [`trial`] (one of them, from its job to its figures) |
//! | what was measured | [`record`] is the raw material, [`archive`] how a cluster keeps it, [`fingerprint`] where it was measured |
//! | what it means | [`statistics`], [`equality`] and [`durability`] (who may be ranked), [`judgement`] (verdict), [`across`] (runs against earlier ones) |
//! | how it is told | [`report`] (text, HTML, JSON, …), [`status`], [`conditions`] and [`reason`] (of objects), [`gauges`] and [`otlp`] (for who collects), `units` |

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
pub mod reason;
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
