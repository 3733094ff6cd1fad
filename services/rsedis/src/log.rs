//! What the server says of itself, a line at a time. Nobody needs to be listening.

use std::fmt::Display;
use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The values of `loglevel`, from the one that says most; scripts know them by these numbers.
pub const LEVELS: &[&str] = &["debug", "verbose", "notice", "warning"];
const NOTICE: usize = 2;
const WARNING: usize = 3;

static LEAST: AtomicUsize = AtomicUsize::new(NOTICE);

/// From now on says what is of this level, and above.
pub fn set_level(name: &str) {
    LEAST.store(LEVELS.iter().position(|level| *level == name).unwrap_or(NOTICE), Ordering::Relaxed);
}

/// Something is wrong: standard error.
pub fn warning(text: impl Display) {
    // Where standard error is closed there is nobody to tell.
    drop(writeln!(std::io::stderr(), "rsedis: {text}"));
}

/// All is well: standard output.
pub fn notice(text: impl Display) {
    at(NOTICE, text);
}

/// Something of a level by its place in [`LEVELS`].
pub fn at(level: usize, text: impl Display) {
    if level >= WARNING {
        warning(text);
    } else if level >= LEAST.load(Ordering::Relaxed) {
        drop(writeln!(std::io::stdout(), "{text}"));
    }
}
