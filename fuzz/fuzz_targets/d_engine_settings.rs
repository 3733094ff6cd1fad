//! d-engine's configuration: any text is taken, or refused in one line.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use d_engine::settings::{Flags, Settings};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(mistake) = Settings::of(Some(("d-engine.toml", text)), [], Flags::default()) {
        assert!(!mistake.to_string().contains('\n'), "{mistake}");
    }
});
