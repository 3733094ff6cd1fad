//! The command line of `bench-job`, which is also `storebench bench-job`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgGroup, Parser};
use storebench_crds::job::JobOutcome;

use crate::job;
use crate::job::specification;
use crate::load::Surroundings;
use crate::load::barrier::Barrier;
use crate::load::control::Control;
use crate::load::share::Share;
use crate::measure::meters::Meters;
use crate::program;
use crate::report::board::Board;
use crate::report::scrape;
use crate::report::{Report, write_summary};

/// Loads one storage service as a job says, checks its answers, and reports what it measured.
///
/// The job is JSON: endpoints, a seed, and workloads as in a BenchmarkRun. Standard output carries lines for the
/// driver that start with "@storebench "; progress for people goes to standard error.
#[derive(Parser, Debug)]
#[command(version, after_help = AFTER_HELP, group = ArgGroup::new("source").required(true).args(["job", "job_json"]))]
struct Arguments {
    /// The job to run, a JSON file.
    #[arg(long, value_name = "FILE", env = "BENCH_JOB_FILE")]
    job: Option<PathBuf>,
    /// The job to run, the JSON itself.
    #[arg(long, value_name = "JSON", env = "BENCH_JOB_JSON")]
    job_json: Option<String>,
    /// Which of the job's load processes this is, from 0.
    #[arg(long, value_name = "NUMBER", env = "JOB_COMPLETION_INDEX", default_value_t = 0)]
    process: u32,
    /// Where the summary is written, as JSON of at most 4096 bytes. Absent: /dev/termination-log if that exists, else
    /// the last line of standard output.
    #[arg(long, value_name = "PATH", env = "BENCH_JOB_TERMINATION_MESSAGE")]
    termination_message: Option<PathBuf>,
    /// Serve live figures at http://ADDRESS/metrics in OpenMetrics, such as 0.0.0.0:9464. Absent: not served. Where that cannot be done the
    /// job goes on without.
    #[arg(long, value_name = "ADDRESS", env = "BENCH_JOB_METRICS_LISTEN")]
    metrics_listen: Option<SocketAddr>,
    /// What a job with `metersStrike` shows to the meters beside the members. Better given as a variable, since a command line can be read by
    /// others.
    #[arg(long, value_name = "TOKEN", env = "BENCH_JOB_STRIKE_TOKEN", hide_env_values = true)]
    strike_token: Option<String>,
    /// Write progress to standard error even if that is not a terminal.
    #[arg(long, short)]
    verbose: bool,
}

const AFTER_HELP: &str = "\
Exit code: 0 when a summary was written, whatever it says; 1 when the command line or the job file is wrong or the \
loader itself failed, with the reason on standard error. Whether the store answered wrongly, failed, or the loader \
was hindered is in the outcome of the summary.

Example:
  echo '{\"run\": \"try\", \"arm\": \"redis\", \"trial\": 0, \"seed\": 1, \"endpoints\": [\"127.0.0.1:6379\"],
         \"workloads\": [{\"name\": \"set\", \"redis\": {\"command\": \"Set\", \"pipeline\": 16},
                        \"load\": {\"connections\": 50, \"duration\": \"5s\"}}]}' > job.json
  bench-job --job job.json --verbose";

/// Runs `bench-job` with the given arguments, the first of which is the program's name as it appears in messages.
pub fn main_with<I, T>(arguments: I) -> ExitCode
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    program::main_with("bench-job", arguments, |arguments: Arguments| run(&arguments))
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let spec = match (&arguments.job, &arguments.job_json) {
        (Some(file), _) => specification::read(file)?,
        (None, text) => specification::parse(text.as_deref().unwrap_or_default())?,
    };
    let share = Share::new(arguments.process, spec.processes)?;
    let report = Report::new(arguments.verbose);
    let board = Arc::new(Board::default());
    if let Some(address) = arguments.metrics_listen {
        match scrape::serve(address, Arc::clone(&board)) {
            Ok(served) => report.tell(|| format!("metrics at http://{served}/metrics")),
            // They are for whoever looks on; what is measured does not need them.
            Err(error) => report.warn(&format!("no live figures: --metrics-listen {address}: {error}")),
        }
    }
    // Connections are files, and so are those of a database. Where the hard limit is too low as well, connecting says so.
    service_kit::open_files::raise();
    report.tell(|| {
        format!("run {}, arm {}, trial index {}: {}", spec.run, spec.arm, spec.trial, spec.endpoints.join(", "))
    });
    // Listens before the idle store is watched, and begins afterwards: the others wait meanwhile.
    let barrier = Barrier::open(&spec, share)?;
    let meters = match share.is_first() {
        true => Meters::begin(&spec, &report),
        false => Meters::none(),
    };
    let control = match (spec.meters_strike, spec.strikes_members) {
        (true, _) => Some(Control::of_meters(&spec, arguments.strike_token.as_deref().unwrap_or_default())?),
        (false, true) => Some(Control::listen(std::io::BufReader::new(std::io::stdin()))?),
        (false, false) => None,
    };
    let control = control.map(Arc::new);
    let around = Surroundings {
        report: &report,
        board: &board,
        barrier: &barrier,
        meters: &meters,
        onlooker: None,
        control: control.as_ref(),
        hunt: None,
    };
    let summary = job::run(&spec, share, &around);
    // What the store cost is known even where the job has failed.
    meters.conclude(&report)?;
    let summary = summary?;
    report.tell(|| match &summary.outcome {
        JobOutcome::Completed => "completed".into(),
        JobOutcome::WrongAnswer { workload, count, key, detail } => {
            format!("{workload}: {count} wrong answers, the first at {key}: {detail}")
        }
        JobOutcome::StoreFailed { workload, detail } => format!("{workload}: the store failed: {detail}"),
        JobOutcome::Hindered { workload, detail, .. } => format!("{workload}: the loader was hindered: {detail}"),
    });
    write_summary(&summary, arguments.termination_message.as_deref())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_example_in_the_help_is_a_good_job() {
        let job = AFTER_HELP.split('\'').nth(1).unwrap();
        specification::parse(job).unwrap();
    }
}
