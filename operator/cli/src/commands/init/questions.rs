//! What `storebench init` asks on a terminal where no store was named. Each answer is an option; an empty one is what stands in brackets.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use service_kit::console;
use storebench_core::engine::ENGINES;

use super::{Arguments, Asked, check_gate, check_options, engine, family, is_there};

/// A longer answer is none.
const ANSWER_BYTES_MAX: u64 = 1024;
/// The answer of whoever has one store only.
const NONE: &str = "none";

/// The arguments with what the user answers. Errors: nobody is there who could, or an answer is none.
pub(super) fn asked_of_user(arguments: &Arguments) -> anyhow::Result<Arguments> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        bail!("--engine: name the stores to compare, such as --engine redis --engine valkey; on a terminal init asks");
    }
    asked(arguments, on_terminal)
}

/// Tells how the same file is written without questions.
pub(super) fn tell(answered: &Arguments) {
    console::tell(format_args!("the answers as options: {}", options(answered)));
}

/// The same, by whoever answers a question. What is wrong is told before the next question.
fn asked(arguments: &Arguments, mut answer: impl FnMut(&str) -> anyhow::Result<String>) -> anyhow::Result<Arguments> {
    check_options(arguments)?;
    if arguments.file != Path::new("-") && arguments.file.symlink_metadata().is_ok() {
        return Err(is_there(&arguments.file));
    }
    let mut ask = |question: &str, default: &str| -> anyhow::Result<String> {
        let said = answer(&format!("{question} [{default}]: "))?;
        Ok(if said.trim().is_empty() { default.to_owned() } else { said.trim().to_owned() })
    };
    let mut arguments = arguments.clone();
    let first = ask("First store, with which the other is compared", "redis")?;
    let known = engine(&first)?;
    family(&[known])?;
    let alike = ENGINES.iter().find(|other| other.protocol == known.protocol && other.name != known.name);
    let second = ask("Second store, or none", alike.map_or(NONE, |other| other.name))?;
    arguments.engines = vec![first];
    if !second.eq_ignore_ascii_case(NONE) {
        family(&[known, engine(&second)?])?;
        arguments.engines.push(second);
    }
    check_gate(&arguments, arguments.engines.len())?;
    let words = ask("What is asked of them (write, read, mixed)", &names(&arguments.workloads).join(", "))?;
    let words = words.split([',', ' ']).filter(|word| !word.is_empty());
    arguments.workloads = words.map(workload).collect::<anyhow::Result<_>>()?;
    if arguments.workloads.is_empty() {
        bail!("--workload: nothing was named: use write, read or mixed");
    }
    arguments.duration = ask("For how long each of these is measured in a trial", &arguments.duration)?;
    check_options(&arguments)?;
    Ok(arguments)
}

fn names(workloads: &[Asked]) -> Vec<String> {
    workloads.iter().map(|asked| format!("{asked:?}").to_lowercase()).collect()
}

fn workload(word: &str) -> anyhow::Result<Asked> {
    let known = <Asked as clap::ValueEnum>::from_str(word, true);
    known.map_err(|_| anyhow!("--workload {word}: there is no such workload: use write, read or mixed"))
}

/// What was answered, as it would be typed.
fn options(arguments: &Arguments) -> String {
    let engines = arguments.engines.iter().map(|name| format!("--engine {name} "));
    let workloads = names(&arguments.workloads).into_iter().map(|name| format!("--workload {name} "));
    format!("{}--duration {}", engines.chain(workloads).collect::<String>(), arguments.duration)
}

/// Asks on standard error, so that standard output has the file alone where it is written there.
fn on_terminal(question: &str) -> anyhow::Result<String> {
    let mut stderr = io::stderr().lock();
    let asked = stderr.write_all(question.as_bytes()).and_then(|()| stderr.flush());
    asked.context("standard error cannot be written")?;
    let mut line = String::new();
    let read = io::stdin().lock().take(ANSWER_BYTES_MAX).read_line(&mut line);
    match read.context("standard input cannot be read")? {
        0 => bail!("--engine: standard input ended before all was answered: name the stores with --engine"),
        _ => Ok(line),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::typed;
    use super::*;

    fn answered(words: &[&str], answers: &[&str]) -> anyhow::Result<(Vec<String>, String)> {
        let (mut questions, mut answers) = (Vec::new(), answers.iter());
        let answered = asked(&typed(words), |question| {
            questions.push(question.to_owned());
            Ok(format!("{}\n", answers.next().unwrap()))
        })?;
        assert_eq!(answers.next(), None, "{questions:?}");
        Ok((questions, options(&answered)))
    }

    #[test]
    fn answers_are_options_and_empty_ones_what_stands_in_brackets() {
        let (questions, options) = answered(&[], &["", "", "", ""]).unwrap();
        assert_eq!(options, "--engine redis --engine valkey --workload write --workload read --duration 5s");
        assert!(questions[0].ends_with(" [redis]: ") && questions[1].ends_with(" [valkey]: "), "{questions:?}");
        let (questions, options) = answered(&["--duration", "9s"], &["etcd", "", "mixed,write", ""]).unwrap();
        assert_eq!(options, "--engine etcd --engine rusd --workload mixed --workload write --duration 9s");
        assert!(questions[3].ends_with(" [9s]: "), "what was given is offered: {questions:?}");
        let (_, options) = answered(&[], &["rusd", "none", "Read", "2s"]).unwrap();
        assert_eq!(options, "--engine rusd --workload read --duration 2s");
    }

    #[test]
    fn an_answer_that_is_none_is_told_at_once() {
        let said = |answers: &[&str]| answered(&[], answers).unwrap_err().to_string();
        assert!(said(&["reddis"]).contains("did you mean redis?"));
        assert!(said(&["redis", "valkye"]).starts_with("--engine valkye: there is no such engine: "));
        assert!(said(&["redis", "", "delete"]).starts_with("--workload delete: there is no such workload: "));
        assert!(said(&["walsync"]).starts_with("walsync: init writes files for "));
        assert!(said(&["redis", "etcd"]).contains("no workload that init knows loads all of them"));
        assert!(said(&["redis", "", ","]).starts_with("--workload: nothing was named"));
        assert!(said(&["redis", "", "", "5 apples"]).starts_with("--duration"));
    }

    #[test]
    fn options_that_are_wrong_are_told_before_they_are_asked_about() {
        let said = |words: &[&str], answers: &[&str]| answered(words, answers).unwrap_err().to_string();
        assert!(said(&["--gate", "much"], &[]).starts_with("--gate"));
        assert!(said(&["--gate", "95%"], &["redis", "none"]).starts_with("--gate: compares "));
        let folder = harness::folder();
        let file = folder.path().join("run.yaml");
        std::fs::write(&file, "").unwrap();
        assert!(said(&[file.to_str().unwrap()], &[]).contains("is there already"));
    }
}
