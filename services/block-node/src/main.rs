//! `block-node`: a Hiero block node.

use std::process::ExitCode;

use block_node::java_files;
use block_node::server;
use block_node::settings::{Command, CommandLine, Flags, Simulate};
use block_node::simulate;
use block_node::verify;
use clap::Parser as _;
use clap::error::ErrorKind;
use service_kit::{logs, open_files, panics, signals};

fn main() -> ExitCode {
    // What is created is for this user alone.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let command_line = match CommandLine::try_parse() {
        Ok(command_line) => command_line,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            print!("{error}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            eprintln!("block-node: {} (see --help)", line.strip_prefix("error: ").unwrap_or(line));
            return ExitCode::from(2);
        }
    };
    let done = match command_line.command {
        None => serve(&command_line.flags),
        Some(Command::Simulate(Simulate::Publisher(flags))) => simulate::publisher(&flags),
        Some(Command::Simulate(Simulate::Consumer(flags))) => simulate::consumer(&flags),
        Some(Command::Verify(flags)) => verify::run(&flags),
        Some(Command::Import(flags)) => java_files::run_import(&flags),
        Some(Command::Export(flags)) => java_files::run_export(&flags),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("block-node: {error}");
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
    tracing::warn!("signatures of blocks are not checked: hashes are, and what they name of the blocks before");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = signals::stop()?;
        let ready = |addresses: &[String]| tracing::info!(address = addresses.join(" "), "ready");
        server::run(settings, ready, stop).await?;
        Ok(())
    })
}
