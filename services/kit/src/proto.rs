//! Messages of health and reflection.

#![allow(missing_docs, clippy::all, reason = "made by the build")]

include!(concat!(env!("OUT_DIR"), "/kit.rs"));

/// What describes them.
pub(crate) const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kit.descriptors"));
