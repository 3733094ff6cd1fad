//! The command line: `serve`, `bench`, `ctl`. What is wrong with it is one line, and exit code 2.

mod access;
mod bench;
mod ctl;
mod keys;
mod load;
mod snapshot;
mod users;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::pin::Pin;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use service_kit::command_line::one_line;
use service_kit::{console, logs, open_files, panics, signals};
use tokio::runtime::Builder;

use crate::server::Server;
use crate::settings::{Flags, Settings, check_variables};

/// A replicated key-value store with three read levels, each of which keeps its word.
#[derive(Debug, Parser)]
#[command(name = "d-engine", version, max_term_width = 120)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a member.
    Serve(Box<Flags>),
    /// Loads a group, with the flags of the published report's tool.
    Bench(bench::Arguments),
    /// Looks at a group, and changes a key.
    Ctl(ctl::Arguments),
}

/// Runs what the arguments say.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let command = match parse(arguments) {
        Ok(CommandLine { command }) => command,
        Err(error) if !error.use_stderr() => {
            // Help and version. An error: nobody reads them.
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // Nothing was asked for. An error: nobody reads it.
            let _ = error.print();
            return ExitCode::from(2);
        }
        Err(error) => return usage(&told(&error)),
    };
    let known = variables(&CommandLine::command());
    let checked = check_variables(std::env::vars_os().map(|(name, _)| name), |name| known.contains(name));
    if let Err(mistake) = checked {
        return usage(&mistake.to_string());
    }
    match command {
        Command::Serve(flags) => {
            let level = flags.log_level.clone();
            let Ok(level) = level.parse::<tracing::Level>() else {
                return usage(&format!("--log-level {level}: expected error, warn, info or debug"));
            };
            logs::start(flags.log_format, level);
            panics::end_the_process();
            match Settings::load(*flags) {
                Ok(settings) => end(serve(settings)),
                Err(mistake) => usage(&mistake.to_string()),
            }
        }
        Command::Bench(arguments) => match arguments.check() {
            Ok(load) => end(bench::run(load)),
            Err(mistake) => usage(&mistake),
        },
        Command::Ctl(arguments) => end(wait_for(ctl::run(arguments))),
    }
}

/// What is wrong with the command line, and where a verb is that stands elsewhere: `ctl promote` is `ctl member promote`.
fn told(error: &clap::Error) -> String {
    let said = one_line(&error.to_string());
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(verb)) if !said.contains("similar") => {
            let found = places(&CommandLine::command(), verb);
            if found.is_empty() { said } else { format!("{said}; there is: {}", found.join(", ")) }
        }
        _ => said,
    }
}

/// Where a verb stands, of all below a command.
fn places(command: &clap::Command, verb: &str) -> Vec<String> {
    let mut found: Vec<String> = command.find_subcommand(verb).map(|_| verb.to_owned()).into_iter().collect();
    for below in command.get_subcommands() {
        found.extend(places(below, verb).into_iter().map(|place| format!("{} {place}", below.get_name())));
    }
    found
}

/// As clap does it, and with what it knows besides: whether the members are a variable's.
fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<CommandLine, clap::Error> {
    let matches = CommandLine::command().try_get_matches_from(arguments)?;
    let mut parsed = CommandLine::from_arg_matches(&matches)?;
    if let (Command::Serve(flags), Some((_, of_serve))) = (&mut parsed.command, matches.subcommand()) {
        flags.members_of_environment = of_serve.value_source("members") == Some(ValueSource::EnvVariable);
    }
    Ok(parsed)
}

/// The variables that stand for flags of any command, and the one of a password.
fn variables(command: &clap::Command) -> BTreeSet<String> {
    let own = command.get_arguments().filter_map(|argument| Some(argument.get_env()?.to_string_lossy().into_owned()));
    let below = command.get_subcommands().flat_map(variables);
    own.chain(below).chain([access::PASSWORD.to_owned()]).collect()
}

fn usage(mistake: &str) -> ExitCode {
    console::tell(format_args!("d-engine: {mistake}"));
    ExitCode::from(2)
}

fn end(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::tell(format_args!("d-engine: {}", in_full(&error)));
            ExitCode::FAILURE
        }
    }
}

/// An error with its causes. Many say their cause themselves, in front of a remedy, too: those are not told twice.
fn in_full(error: &anyhow::Error) -> String {
    error.chain().skip(1).fold(error.to_string(), |said, cause| {
        let cause = cause.to_string();
        if said.contains(&cause) { said } else { format!("{said}: {cause}") }
    })
}

/// Does what is done once. In a box, since `block_on` has three places where it polls, and each would have the code of all of it.
fn wait_for<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let work: Pin<Box<dyn Future<Output = anyhow::Result<T>> + '_>> = Box::pin(work);
    Builder::new_current_thread().enable_all().build()?.block_on(work)
}

fn serve(settings: Settings) -> anyhow::Result<()> {
    open_files::raise();
    wait_for(async {
        let stop = signals::stop()?;
        let server = Server::start(settings)?;
        let node = server.engine().node();
        let addresses = server.addresses().join(" ");
        tracing::info!(addresses, member = node.id(), durability = node.durability().name(), "listening");
        Ok(server.run(stop).await?)
    })
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("log: {0}; restore it")]
    struct SaysItself(#[source] std::io::Error);

    #[test]
    fn a_cause_that_its_error_says_itself_is_not_told_twice() {
        let cause = || std::io::Error::other("the disk is full");
        let both: anyhow::Result<()> = Err(SaysItself(cause())).context("cannot start");
        assert_eq!(in_full(&both.unwrap_err()), "cannot start: log: the disk is full; restore it");
        let one: anyhow::Result<()> = Err(cause()).context("file");
        assert_eq!(in_full(&one.unwrap_err()), "file: the disk is full");
    }

    #[test]
    fn a_verb_that_stands_elsewhere_is_shown_there() {
        let told = |arguments: &[&str]| told(&parse(arguments.iter().map(OsString::from)).unwrap_err());
        let said = told(&["d-engine", "ctl", "promote", "4"]);
        assert!(said.contains("'promote'") && said.ends_with("; there is: ctl member promote"), "{said}");
        assert!(told(&["d-engine", "status"]).ends_with("; there is: ctl status"));
        assert!(!told(&["d-engine", "ctl", "nothing"]).contains("there is"));
    }

    #[test]
    fn the_command_line_has_no_flag_that_stands_for_two_things() {
        CommandLine::command().debug_assert();
    }
}
