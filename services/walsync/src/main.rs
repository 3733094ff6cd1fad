//! `walsync`: see `walsync --help`. Exit code 0: done; 1: it failed; 2: wrong words, nothing was touched.

mod bench;
mod cli;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};
use service_kit::console::{self, OneLine};
use std::process::ExitCode;

fn main() -> ExitCode {
    let known = cli::Walsync::command();
    let arguments = cli::long_flags(&known, std::env::args_os());
    let matches = known.try_get_matches_from(arguments);
    let command = match matches.and_then(|matches| cli::Walsync::from_arg_matches(&matches)) {
        Ok(command) => command,
        // Who says nothing wants to know what there is to say.
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            console::tell(format_args!("{}", error.to_string().trim_end()));
            return ExitCode::from(2);
        }
        Err(error) if error.use_stderr() => {
            // One line that says what is wrong; the whole usage is one --help away.
            let line = match cli::unknown_verb(&error) {
                Some(line) => line,
                None => service_kit::command_line::one_line(&error.to_string()),
            };
            match cli::instead(&error) {
                Some(instead) => console::tell(OneLine(format_args!("walsync: {line}: {instead}"))),
                None => console::tell(OneLine(format_args!("walsync: {line}"))),
            }
            return ExitCode::from(2);
        }
        Err(error) => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
    };
    match command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::tell(OneLine(format_args!("walsync: {error:#}")));
            let wrong_words = error.downcast_ref::<walsync::config::ConfigError>().is_some();
            ExitCode::from(if wrong_words { 2 } else { 1 })
        }
    }
}
