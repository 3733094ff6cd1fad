//! What is written, and what must come back: keys and whose they are, values that tell what they are, versions that were
//! acknowledged. Everything follows from a seed.

pub mod doubts;
pub mod expect;
pub mod keys;
pub mod seeds;
pub mod values;
