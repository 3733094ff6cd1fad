//! The program `bench-job`. [`command_line`] is its face, [`specification`] reads the job; here its workloads are run in order,
//! until one does not complete.

pub mod command_line;
pub mod specification;

use std::cell::RefCell;
use std::io;
use std::thread;

use storebench_crds::job::{JobOutcome, JobSpec, JobSummary};

use crate::content::seeds::mix;
use crate::failure::Failure;
use crate::family;
use crate::load::barrier::Passage;
use crate::load::highest_rate::Hunt;
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

/// Looks at the store of a checked job where it is somebody's, and writes nothing: whether it answers and may be loaded. The first workload
/// looks for all. The inner error says why not, with the remedy; the outer is the loader's own.
pub fn look(spec: &JobSpec) -> io::Result<Result<(), Failure>> {
    let Some(workload) = spec.workloads.first() else { return Ok(Ok(())) };
    let context = specification::context(spec, 0, Share::WHOLE).map_err(io::Error::other)?;
    family::look(&context, &workload.parameters)
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

/// Runs a workload. One that looks for the highest rate begins anew, from its connections on, after a rate at which requests failed.
fn run_workload(spec: &JobSpec, index: usize, share: Share, around: &Surroundings<'_>) -> io::Result<Ending> {
    let context = || specification::context(spec, index, share).map_err(io::Error::other);
    let hunt = Hunt::of(&context()?).map(RefCell::new);
    let around = Surroundings { hunt: hunt.as_ref(), ..*around };
    let mut beginnings = 0;
    loop {
        let mut context = context()?;
        if beginnings > 0 {
            // Values of their own, so that none of before is taken for one of now.
            context.seed = mix(context.seed, beginnings);
        }
        let timeout = context.timeout;
        let ending = family::run(context, spec, &spec.workloads[index].parameters, &around)?;
        if !hunt.as_ref().is_some_and(|hunt| hunt.borrow_mut().begin_anew()) {
            return Ok(ending);
        }
        beginnings += 1;
        // By then the store is done with requests whose connections are gone, so that none of them is made over a later one.
        thread::sleep(timeout);
    }
}
