//! What a store uses: read from `/proc` and the disk where it runs, asked of the meters where it runs elsewhere, and counted by
//! itself where it counts.

pub mod disk;
pub mod exposition;
pub mod fsyncs;
pub mod machine;
pub mod meter;
pub mod meters;
