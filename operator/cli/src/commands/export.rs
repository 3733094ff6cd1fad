//! `storebench export RUN… --to PLACE`: copies saved runs to where they outlive this machine. Nothing is measured, and nothing that is
//! there is written over. A run that was interrupted keeps no other from being copied: it is named, and the exit code says that it stayed.

use std::path::{Path, PathBuf};

use anyhow::bail;
use service_kit::console;

use super::cluster::{Place, run_name};
use super::cluster_record::of_complete;
use crate::destination::Destination;
use crate::exit::Exit;
use crate::find::{self, Which};
use crate::saved::SavedRun;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Saved runs: the folder of one, or a directory of --save, of which the newest of each run is taken, in Git as git:REVISION[:PATH]; or
    /// `benchmarkrun/NAME` for a run in a cluster that is complete
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// s3://BUCKET[/PREFIX]: as objects PREFIX/RUN/TIME-VERDICT/FILE. git:BRANCH[:FOLDER]: as commits to a branch of the Git repository around
    /// the current directory, which nobody has checked out; one that is not there begins empty. http(s)://…/v1/metrics: the figures alone, as
    /// metrics by OTLP/HTTP in JSON; Prometheus takes them at /api/v1/otlp/v1/metrics
    #[arg(long, value_name = "PLACE")]
    to: String,
    /// Where the object store is; absent: AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, or else AWS in AWS_REGION. Credentials are those of AWS's
    /// tools: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    #[command(flatten)]
    place: Place,
}

pub(crate) fn export(arguments: &Arguments) -> anyhow::Result<Exit> {
    let destination = Destination::of(&arguments.to, arguments.endpoint.as_deref())?;
    // What cannot be read is found before anything is sent.
    let mut runs: Vec<SavedRun> = Vec::new();
    let mut interrupted = Vec::new();
    for source in &arguments.runs {
        for run in read(source, &arguments.place, &mut interrupted)? {
            match runs.iter().find(|other| other.path() == run.path()) {
                None => runs.push(run),
                // `latest` is one of the others.
                Some(other) if other.files == run.files => {}
                Some(_) => bail!(
                    "{}: two of these runs have this name and are not the same: export them to places of their own",
                    run.path()
                ),
            }
        }
    }
    for run in &runs {
        let became = destination.export(run)?;
        console::print(format!("{} {became}\n", run.path()))?;
    }
    arguments.runs.iter().for_each(|source| tell_older(source));
    for name in &interrupted {
        console::tell(format_args!(
            "storebench: {name}: was interrupted and is not exported: go on with it first: storebench run FILE --resume DIRECTORY"
        ));
    }
    Ok(if interrupted.is_empty() { Exit::Passed } else { Exit::Usage })
}

/// Says of a directory of --save that it holds more than was exported.
fn tell_older(source: &Path) {
    let count = |which| find::files(source, which).map_or(0, |files| files.len());
    let older = count(Which::All).saturating_sub(count(Which::Newest));
    if older > 0 {
        console::tell(format_args!(
            "storebench: {}: only the newest of each run is exported: pass the folders of the {older} older ones to have them too",
            source.display()
        ));
    }
}

/// The runs of a source that came to their end, and the names of those that were interrupted.
fn read(source: &Path, place: &Place, interrupted: &mut Vec<String>) -> anyhow::Result<Vec<SavedRun>> {
    if let Some(name) = source.to_str().and_then(run_name).filter(|_| !source.exists()) {
        return Ok(vec![SavedRun::of(of_complete(name, place)?)?]);
    }
    let name = source.display();
    if place.namespace.is_some() {
        bail!("{name}: a file has no namespace: leave out --namespace, or write benchmarkrun/NAME");
    }
    let mut runs = Vec::new();
    for file in find::files(source, Which::NewestOrInterrupted).map_err(find::or_of_a_cluster)? {
        if file.is_interrupted()? {
            interrupted.push(file.name());
            continue;
        }
        let mut reports = file.reports()?.reports;
        match (reports.pop(), reports.len()) {
            (Some(report), 0) => runs.push(file.saved_run(report)?),
            _ => bail!("{}: holds no run, or a list: pass folders that storebench run --save has written", file.name()),
        }
    }
    Ok(runs)
}
