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

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, Subcommand};
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
    let command = match CommandLine::try_parse_from(arguments) {
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
        Err(error) => return usage(&one_line(&error.to_string())),
    };
    match command {
        Command::Serve(flags) => {
            let level = flags.log_level.clone();
            let Ok(level) = level.parse::<tracing::Level>() else {
                return usage(&format!("--log-level {level}: expected error, warn, info or debug"));
            };
            logs::start(flags.log_format, level);
            panics::end_the_process();
            let known = variables(&CommandLine::command());
            let checked = check_variables(std::env::vars_os().map(|(name, _)| name), |name| known.contains(name));
            match checked.and_then(|()| Settings::load(*flags)) {
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
/// An error with its causes. Many say their cause themselves, in front of a remedy, too: those are not told twice.
fn in_full(error: &anyhow::Error) -> String {
    error.chain().skip(1).fold(error.to_string(), |said, cause| {
        let cause = cause.to_string();
        if said.contains(&cause) { said } else { format!("{said}: {cause}") }
    })
}

