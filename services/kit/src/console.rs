//! Standard output and standard error. Whoever reads them may stop at any line (`| head -1`): then the rest is for nobody, and no failure.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _, stderr, stdout};

/// Prints a result, which ends its own lines.
///
/// # Errors
/// It could not be written, such as to a disk that is full.
pub fn print(text: impl Display) -> io::Result<()> {
    let mut stdout = stdout().lock();
    match stdout.write_all(text.to_string().as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(io::Error::new(error.kind(), format!("standard output cannot be written: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// Tells a line of what goes on, or why nothing does. Nobody can be told where that fails.
pub fn tell(line: impl Display) {
    // One write for a line, so that those of two programs do not mix.
    let _ = stderr().lock().write_all(format!("{line}\n").as_bytes());
}
