//! The program `bench-job`. [`command_line`] is its face, [`specification`] reads the job; here its workloads are run in order,
//! until one does not complete.

pub mod command_line;
pub mod specification;

use std::io;

use storebench_crds::job::{JobOutcome, JobSpec, JobSummary};

use crate::family;
use crate::load::barrier::Passage;
use crate::load::share::Share;
use crate::load::{Ending, Surroundings};

/// Runs this process's share of the workloads of a checked job. The first that does not complete ends it: its outcome
/// decides about the whole trial, and what comes after could not be used. Errors are the loader's own.
pub fn run(spec: &JobSpec, share: Share, around: &Surroundings<'_>) -> io::Result<JobSummary> {
    let summary = run_workloads(spec, share, around)?;
    if summary.outcome != JobOutcome::Completed {
        around.barrier.leave(&summary.outcome);
    }
    Ok(summary)
}

fn run_workloads(spec: &JobSpec, share: Share, around: &Surroundings<'_>) -> io::Result<JobSummary> {
    let mut summary = JobSummary { outcome: JobOutcome::Completed, workloads: Vec::new() };
    for index in 0..spec.workloads.len() {
        let ending = match around.barrier.wait()? {
            Passage::Open => run_workload(spec, index, share, around)?,
            Passage::Over(outcome) => Ending { summary: None, outcome },
        };
        summary.workloads.extend(ending.summary);
        summary.outcome = ending.outcome;
        if summary.outcome != JobOutcome::Completed {
            break;
        }
    }
    Ok(summary)
}

fn run_workload(spec: &JobSpec, index: usize, share: Share, around: &Surroundings<'_>) -> io::Result<Ending> {
    let context = specification::context(spec, index, share).map_err(io::Error::other)?;
    family::run(context, spec, &spec.workloads[index].parameters, around)
}
