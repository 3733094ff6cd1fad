//! Workload families: what a client of each does, and how its answers are checked. A family is one module here and one line
//! in [`run`] and in [`look`].

pub mod block_stream;
pub mod check;
pub mod etcd;
pub mod key_value;
pub mod kubernetes;
pub mod probe;
pub mod redis;
pub mod sqlite_replication;

use std::io;

use storebench_crds::job::JobSpec;
use storebench_crds::workload::Parameters;

use crate::failure::Failure;
use crate::load::{Context, Ending, Surroundings};

/// Runs one workload of a job. Errors are the loader's own; everything about the store is in the [`Ending`].
pub fn run(context: Context, job: &JobSpec, parameters: &Parameters, around: &Surroundings<'_>) -> io::Result<Ending> {
    match parameters {
        Parameters::Etcd(parameters) => etcd::run(context, parameters, around),
        Parameters::KeyValue(parameters) => key_value::run(context, parameters, around),
        Parameters::Redis(parameters) => redis::run(context, parameters, around),
        Parameters::Kubernetes(parameters) => kubernetes::run(context, job, parameters, around),
        Parameters::BlockStream(parameters) => block_stream::run(context, parameters, around),
        Parameters::SqliteReplication(parameters) => sqlite_replication::run(context, job, parameters, around),
    }
}

/// Looks at a store that is somebody's as a workload does before it loads it. The inner error says why it would not be loaded, with the remedy.
pub fn look(context: &Context, parameters: &Parameters) -> io::Result<Result<(), Failure>> {
    let family = parameters.family();
    let refused = || {
        let text = "workloads load no store that is somebody's, whose keys they do not tell from theirs: let the run have its own";
        Ok(Err(Failure::new(format!("{} {text}", family.field()))))
    };
    match parameters {
        _ if !family.facts().loads_what_is_somebodys => refused(),
        Parameters::Etcd(_) => etcd::look(context),
        Parameters::Redis(parameters) => redis::look(context, parameters),
        Parameters::KeyValue(_)
        | Parameters::Kubernetes(_)
        | Parameters::BlockStream(_)
        | Parameters::SqliteReplication(_) => refused(),
    }
}
