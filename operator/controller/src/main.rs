//! `storebench-operator`: flags and log; everything else is in the library.

use std::process::ExitCode;

use clap::Parser as _;
use storebench_operator::operator;
use storebench_operator::settings::{LogFormat, Settings};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let settings = Settings::parse();
    if let Err(problem) = settings.check() {
        eprintln!("storebench-operator: {problem}");
        return ExitCode::from(2);
    }
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,kube_client=error"));
    // Where stderr cannot be written lines are lost: told of there, too, that would end the operator.
    let log = tracing_subscriber::fmt()
        .log_internal_errors(false)
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(std::io::stderr);
    match settings.log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    // Two threads: one may judge a run while the other keeps the Lease.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(operator::run(settings)),
        Err(error) => Err(anyhow::Error::new(error).context("no runtime")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
