//! What the server says of itself, a line at a time: to `logfile`, or else to standard output, and to standard error what goes wrong.
//! Nobody needs to be listening. Where Redis says the same, so do we, in its words: tools look for them.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The values of `loglevel`, from the one that says most; scripts know them by these numbers.
pub const LEVELS: &[&str] = &["debug", "verbose", "notice", "warning"];
const NOTICE: usize = 2;
const WARNING: usize = 3;

static LEAST: AtomicUsize = AtomicUsize::new(NOTICE);
static LOGFILE: OnceLock<File> = OnceLock::new();

/// From now on says what is of this level, and above.
pub fn set_level(name: &str) {
    LEAST.store(LEVELS.iter().position(|level| *level == name).unwrap_or(NOTICE), Ordering::Relaxed);
}

/// From now on says it at the end of a file.
pub fn append_to(path: &Path) -> io::Result<()> {
    let file = File::options().append(true).create(true).open(path)?;
    // Asked for once, at the start.
    drop(LOGFILE.set(file));
    Ok(())
}

/// Something is wrong: standard error.
pub fn warning(text: impl Display) {
    match LOGFILE.get() {
        Some(file) => to_file(file, &text),
        // Where standard error is closed there is nobody to tell.
        None => drop(writeln!(io::stderr(), "rsedis: {text}")),
    }
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
        match LOGFILE.get() {
            Some(file) => to_file(file, &text),
            None => drop(writeln!(io::stdout(), "{text}")),
        }
    }
}

/// In one write, so that lines of several threads stay whole. A disk that is full must not end the server.
fn to_file(mut file: &File, text: &dyn Display) {
    drop(file.write_all(format!("{text}\n").as_bytes()));
}
