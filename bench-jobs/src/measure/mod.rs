//! What a store uses: read from `/proc` and the disk where it runs, asked of the meters where it runs elsewhere, and counted by
//! itself where it counts. And who else uses the machine meanwhile.

pub mod control_group;
pub mod disk;
pub mod exposition;
pub mod foreign;
pub mod fsyncs;
pub mod machine;
pub mod meter;
pub mod meters;
pub mod network;
pub mod thread;
