//! The storebench.dev API, version v1alpha1.
//!
//! What users write ([`StorageService`], [`ControlPlane`], [`BenchmarkRun`], [`BenchmarkBaseline`], [`BenchmarkSuite`], [`BenchmarkSchedule`], [`WorkloadTemplate`]), what a run reports (their statuses), what the platform
//! hands to a load pod and gets back ([`job`]), what is known of each store ([`engine`]), and the rules that decide what is acceptable ([`document`], [`schema`]):
//! the same schema and CEL rules that the API server enforces, run here without a cluster.
//!
//! This crate knows types and rules. It starts nothing, connects to nothing, and judges no result.
//!
//! | looking for | where |
//! | --- | --- |
//! | a field that users write | the module of its kind; a family's parameters in [`workload`]; how durations, ratios, bounds of gates and stores of others are written in [`duration`], [`ratio`], [`gate_value`], [`external`] |
//! | what is known of a store | its row in [`engine`] |
//! | a rule, a mistake, a generated file | [`rules`] and [`schema`] (CEL), [`document`] (what a file says and what is wrong with it), [`reference`](mod@reference) (docs) |
//! | what a load is told and says | [`job`]; a meter beside a store is asked as [`meter`] says |
//! | a figure, from the load to the status | [`measure`] is what a load counts, [`measurement`] one workload of one trial, [`descriptor`] what is known of a metric, [`metric`] all of them: what is judged and shown of it, [`latency`] its histograms, [`status`] what a run reports |

// kube's derive repeats `type_ = "string"` once for each printer column.
#![allow(clippy::duplicated_attributes)]

pub mod api_requests;
pub mod benchmark_baseline;
pub mod benchmark_run;
pub mod benchmark_schedule;
pub mod benchmark_suite;
pub mod control_plane;
pub mod descriptor;
pub mod document;
pub mod durability;
pub mod duration;
pub mod engine;
pub mod external;
pub mod gate_value;
pub mod job;
pub mod latency;
pub mod line;
pub mod measure;
pub mod measurement;
pub mod meter;
pub mod metric;
mod object_status;
pub mod ratio;
pub mod reference;
pub mod rules;
pub mod schema;
pub mod status;
pub mod storage_service;
pub mod template;
pub mod workload;
pub mod workload_template;

pub use benchmark_baseline::{BenchmarkBaseline, BenchmarkBaselineSpec};
pub use benchmark_run::{Arm, BenchmarkRun, BenchmarkRunSpec, Gate, Isolation, OnInconclusive};
pub use benchmark_schedule::{BenchmarkSchedule, BenchmarkScheduleSpec};
pub use benchmark_suite::{BenchmarkSuite, BenchmarkSuiteSpec};
pub use control_plane::{ControlPlane, ControlPlaneSpec};
pub use durability::Durability;
pub use duration::DurationText;
pub use engine::EngineKind;
pub use metric::Metric;
pub use ratio::RatioText;
pub use status::{BenchmarkRunStatus, Verdict};
pub use storage_service::{StorageService, StorageServiceSpec};
pub use workload::{Arrivals, HighestRate, Load, LoadMode, Percentile, Workload};
pub use workload_template::{WorkloadTemplate, WorkloadTemplateSpec};

/// The API group of every kind in this crate.
pub const GROUP: &str = "storebench.dev";
/// The API version of every kind in this crate.
pub const VERSION: &str = "v1alpha1";
