//! Runs a job: every workload in order, until one does not complete, then writes the summary.

use std::io;
use std::sync::Arc;

use storebench_crds::job::{JobOutcome, JobSpec, JobSummary};

use crate::load::Ending;
use crate::metrics::Board;
use crate::report::Report;
use crate::{etcd, redis, specification};

/// Runs the workloads of a checked job. The first that does not complete ends it: its outcome decides about the whole
/// trial, and what comes after could not be used. Errors are the loader's own.
pub fn run(spec: &JobSpec, report: &Report, board: &Arc<Board>) -> io::Result<JobSummary> {
    let mut summary = JobSummary { outcome: JobOutcome::Completed, workloads: Vec::new() };
    for index in 0..spec.workloads.len() {
        let ending = run_workload(spec, index, report, board)?;
        summary.workloads.extend(ending.summary);
        summary.outcome = ending.outcome;
        if summary.outcome != JobOutcome::Completed {
            break;
        }
    }
    Ok(summary)
}

/// One arm for each family. A family is one line here.
fn run_workload(spec: &JobSpec, index: usize, report: &Report, board: &Board) -> io::Result<Ending> {
    let context = specification::context(spec, index).map_err(io::Error::other)?;
    let workload = &spec.workloads[index];
    if let Some(parameters) = &workload.redis {
        return redis::run(context, parameters, report, board);
    }
    if let Some(parameters) = &workload.etcd {
        return etcd::run(context, parameters, report, board);
    }
    Err(io::Error::other(format!("workloads[{index}]: this build has no such family")))
}
