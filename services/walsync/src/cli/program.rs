//! A program that runs while databases are replicated: `--exec`, and `exec` in Litestream's configuration.

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use walsync::config::ConfigError;

/// Its words.
pub struct Program(Vec<String>);

impl Program {
    /// What a command line means, without a shell: words, quotes and backslashes, as in Litestream.
    pub fn parse(command: &str) -> Result<Program, ConfigError> {
        match words(command) {
            Some(words) if !words.is_empty() => Ok(Program(words)),
            words => {
                let problem = if words.is_none() { "has a quote without its other one" } else { "is empty" };
                Err(ConfigError::Value { field: "exec".into(), problem: problem.into() })
            }
        }
    }

    /// Starts it, with our own input and output.
    pub fn start(self) -> anyhow::Result<Running> {
        let (name, arguments) = self.0.split_first().context("exec: is empty")?;
        let child = Command::new(name).args(arguments).spawn();
        Ok(Running(child.with_context(|| format!("exec: {name} cannot be started"))?))
    }
}

/// A program at work.
pub struct Running(Child);

impl Running {
    /// How it ended, if it did.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }

    /// Asks it to end, and waits until it has, for as long as that takes: what it commits last is sent, too.
    pub fn end(&mut self) -> io::Result<ExitStatus> {
        kill_process(Pid::from_child(&self.0), Signal::TERM)?;
        self.0.wait()
    }
}

/// Whether a program ended as one does that is told to by a signal: by that, or with the exit code that shells have for it.
pub fn is_told(status: ExitStatus) -> bool {
    let signals = [Signal::TERM, Signal::INT, Signal::HUP].map(Signal::as_raw);
    let signal = status.signal().or_else(|| status.code().map(|code| code - 128));
    signal.is_some_and(|signal| signals.contains(&signal))
}

/// `None`: a quote has no other one.
fn words(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            ('\\', None | Some('"')) => word.get_or_insert_default().push(letters.next()?),
            (letter, Some(open)) if letter == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (letter, None) if letter.is_whitespace() => words.extend(word.take()),
            (letter, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_parted_as_shells_do() {
        for (text, expected) in [
            ("app  -p 80\n", Some(vec!["app", "-p", "80"])),
            (r#"sh -c 'echo "a b"; exit 3' ''"#, Some(vec!["sh", "-c", "echo \"a b\"; exit 3", ""])),
            (r#"a\ b "c\"d"'e f'"#, Some(vec!["a b", "c\"de f"])),
            ("", Some(vec![])),
            ("sh -c 'echo", None),
            ("a\\", None),
        ] {
            assert_eq!(words(text), expected.map(|words| words.into_iter().map(str::to_owned).collect()), "{text}");
        }
        assert!(Program::parse(" ").is_err() && Program::parse("'").is_err() && Program::parse("a").is_ok());
    }
}
