//! The operator: realises StorageServices, ControlPlanes and BenchmarkRuns with pods. See README.md beside this folder.
//!
//! [`service`], [`control_plane`], [`run`], [`baseline`], [`suite`] and [`schedule`] hold one controller each; [`kind`] is what they have in common. [`objects`] builds what they apply, [`health`] reads what pods say of
//! themselves, [`queue`] lets one run at a time; all three are pure or nearly so. [`operator`] puts everything together.

pub mod apply;
pub mod baseline;
pub mod context;
pub mod control_plane;
pub mod deploy;
pub mod error;
pub mod events;
pub mod health;
pub mod kept;
pub mod kind;
pub mod lease;
pub mod lock;
pub mod made;
pub mod meter;
pub mod objects;
pub mod operator;
pub mod queue;
pub mod run;
pub mod schedule;
pub mod secrets;
pub mod service;
pub mod settings;
pub mod signature;
pub mod suite;
pub mod telemetry;
