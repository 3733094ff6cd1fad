//! A replicated key-value store with three read levels, each of which keeps its word.
pub mod state;
