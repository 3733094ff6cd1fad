//! What the server says of itself, a line at a time. Nobody needs to be listening.

use std::fmt::Display;
use std::io::Write as _;

/// Something is wrong: standard error.
pub fn warning(text: impl Display) {
    // Where standard error is closed there is nobody to tell.
    drop(writeln!(std::io::stderr(), "rsedis: {text}"));
}

/// All is well: standard output.
pub fn notice(text: impl Display) {
    drop(writeln!(std::io::stdout(), "{text}"));
}
