//! `block-node`: a Hiero block node.

use std::process::ExitCode;

use block_node::command_line::{Command, Simulate};
use block_node::configuration::{ConfigurationError, command_line};
use block_node::console;
use block_node::java_files;
use block_node::server;
use block_node::settings::Flags;
use block_node::simulate;
use block_node::verify;
use clap::error::ErrorKind;
use service_kit::{logs, open_files, panics, signals};

fn main() -> ExitCode {
    // What is created is for this user alone.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let command_line = match command_line(std::env::args_os()) {
        Ok(command_line) => command_line,
        Err(ConfigurationError::CommandLine(error))
            if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) =>
        {
            return ended(console::print(error).map_err(Into::into));
        }
        Err(error @ ConfigurationError::CommandLine(_)) => {
            console::tell(format_args!("block-node: {error} (see --help)"));
            return ExitCode::from(2);
        }
        Err(error) => {
            console::tell(format_args!("block-node: {error}"));
            return ExitCode::from(2);
        }
    };
    ended(match command_line.command {
        None => serve(&command_line.flags),
        Some(Command::Status(flags)) => simulate::status(&flags),
        Some(Command::Simulate(Simulate::Publisher(flags))) => simulate::publisher(&flags),
        Some(Command::Simulate(Simulate::Consumer(flags))) => simulate::consumer(&flags),
        Some(Command::Verify(flags)) => verify::run(&flags),
        Some(Command::Import(flags)) => java_files::run_import(&flags),
        Some(Command::Export(flags)) => java_files::run_export(&flags),
    })
}

fn ended(result: Result<(), Box<dyn std::error::Error>>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::tell(format_args!("block-node: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn serve(flags: &Flags) -> Result<(), Box<dyn std::error::Error>> {
    logs::start(flags.log_format, flags.log_level);
    panics::end_the_process();
    open_files::raise();
    let settings = flags.settings();
    if settings.accept_dummy_proofs {
        tracing::warn!("--accept-dummy-proofs: who made a block is not checked");
    }
    tracing::warn!("TSS signatures of blocks are not checked: hashes are, and what they name of the blocks before");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = signals::stop()?;
        let ready = |addresses: &[String]| tracing::info!(address = addresses.join(" "), "ready");
        server::run(settings, ready, stop).await?;
        Ok(())
    })
}
