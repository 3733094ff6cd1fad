//! Any text is a configuration or refused; any key of an object names a file in one layout at most; any time in Go's
//! notation is read or refused.
#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use libfuzzer_sys::fuzz_target;
use ltx::Layout;
use walsync::config::Config;
use walsync::config::litestream::Litestream;

fuzz_target!(|text: &str| {
    let _ = Config::parse(text).map(|config| config.settings().is_ok());
    let _ = Litestream::parse(text).is_ok();
    let _ = service_kit::duration::of_go(text);
    let read =
        [Layout::Files, Layout::Objects].map(|layout| layout.parse(text).map(|(level, name)| (layout, level, name)));
    for (layout, level, name) in read.into_iter().flatten() {
        assert_eq!(layout.key(level, name), text);
    }
});
