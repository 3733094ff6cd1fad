//! Programs that stand beside what they measure, in its pod.

pub mod control_plane;
pub mod store_meter;
