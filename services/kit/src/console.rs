//! Standard output and standard error. Whoever reads them may stop at any line (`| head -1`): then the rest is for nobody, and no failure.

use std::fmt::{self, Display, Write as _};
use std::io::{self, ErrorKind, Write as _, stderr, stdout};

/// Prints a result, which ends its own lines.
///
/// # Errors
/// It could not be written, such as to a disk that is full.
pub fn print(text: impl Display) -> io::Result<()> {
    print_bytes(text.to_string().as_bytes())
}

/// Prints a result that is no text.
///
/// # Errors
/// As [`print`].
pub fn print_bytes(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
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

/// What is displayed, in one line and in one field of it: control characters are escaped. Names of files may have any, and who gives a file its
/// name shall write no line of ours, and nothing to a terminal.
#[derive(Clone, Copy, Debug)]
pub struct OneLine<T>(pub T);

impl<T: Display> Display for OneLine<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(formatter), "{}", self.0)
    }
}

/// Escapes what is written.
struct Escaping<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.split_inclusive(char::is_control) {
            match piece.chars().next_back().filter(|last| last.is_control()) {
                Some(control) => {
                    write!(self.0, "{}{}", &piece[..piece.len() - control.len_utf8()], control.escape_default())?
                }
                None => self.0.write_str(piece)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_displayed_is_one_field_of_one_line() {
        let name = "/a\nb\t\r\u{1b}[31mü\u{9b}\u{7f}\\n.db";
        assert_eq!(OneLine(name).to_string(), "/a\\nb\\t\\r\\u{1b}[31mü\\u{9b}\\u{7f}\\n.db");
        assert_eq!(OneLine(format_args!("{}: {}", "a\n", 7)).to_string(), "a\\n: 7");
    }
}
