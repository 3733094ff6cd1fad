//! What the server says of itself, a line at a time: to `logfile`, or else to standard output, and to standard error what goes wrong.
//! Nobody needs to be listening. Where Redis says the same, so do we, in its words: tools look for them.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The values of `loglevel`, from the one that says most; scripts know them by these numbers.
pub const LEVELS: &[&str] = &["debug", "verbose", "notice", "warning"];
/// What stands for them in a line.
const MARKS: [char; 4] = ['.', '-', '*', '#'];
const NOTICE: usize = 2;
const WARNING: usize = 3;

static LEAST: AtomicUsize = AtomicUsize::new(NOTICE);
static IS_REPLICA: AtomicBool = AtomicBool::new(false);
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

/// From now on lines tell that this server follows another one, or that it does not.
pub fn set_role(is_replica: bool) {
    IS_REPLICA.store(is_replica, Ordering::Relaxed);
}

/// Something is wrong: standard error.
pub fn warning(text: impl Display) {
    at(WARNING, text);
}

/// All is well: standard output.
pub fn notice(text: impl Display) {
    at(NOTICE, text);
}

/// Something of a level by its place in [`LEVELS`].
pub fn at(level: usize, text: impl Display) {
    if level < LEAST.load(Ordering::Relaxed) {
        return;
    }
    // In one write, so that lines of several threads stay whole. Where a disk is full, or nobody listens, the server goes on.
    let line = line(level, &text);
    drop(match LOGFILE.get() {
        Some(mut file) => file.write_all(line.as_bytes()),
        None if level >= WARNING => io::stderr().write_all(line.as_bytes()),
        None => io::stdout().write_all(line.as_bytes()),
    });
}

/// Why the server does not start, or has ended, a line for each reason: for who has called it, and in the log file, if there is one.
pub fn failure(text: &str) {
    for line in text.lines() {
        if LOGFILE.get().is_some() {
            warning(line);
        }
        drop(writeln!(io::stderr(), "rsedis: {line}"));
    }
}

/// As Redis has it: process, role (of a master or a replica), time of this place, level.
fn line(level: usize, text: &dyn Display) -> String {
    let role = if IS_REPLICA.load(Ordering::Relaxed) { 'S' } else { 'M' };
    let mark = MARKS.get(level).unwrap_or(&'#');
    let time = jiff::Zoned::now();
    format!("{}:{role} {} {mark} {text}\n", std::process::id(), time.strftime("%d %b %Y %H:%M:%S%.3f"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_process_role_time_and_level() {
        let line = line(NOTICE, &"Ready to accept connections");
        let words: Vec<&str> = line.split(' ').collect();
        // Other tests' servers follow somebody meanwhile.
        let process = std::process::id();
        assert!([format!("{process}:M"), format!("{process}:S")].contains(&words[0].to_owned()), "{line}");
        assert_eq!(&words[5..], ["*", "Ready", "to", "accept", "connections\n"], "{line}");
        let time = jiff::civil::DateTime::strptime("%d %b %Y %H:%M:%S%.f", words[1..5].join(" ")).unwrap();
        assert!((jiff::Zoned::now().datetime() - time).get_hours().abs() < 24, "{line}");
        assert_eq!(words[4].len(), "hh:mm:ss.mmm".len(), "{line}");
    }
}
