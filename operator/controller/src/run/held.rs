//! The baseline that a run is held against: found before anything is measured, and from then on a part of the run's own record, so that
//! nothing that becomes of the baseline afterwards changes what the run comes to.

use kube::core::error_boundary::DeserializeGuard;
use kube::{Api, Resource as _};
use storebench_core::across::Baseline;
use storebench_core::archive::BASELINE_LABEL;
use storebench_crds::BenchmarkRun;

use super::references::Problem;
use crate::baseline::{self, kept};
use crate::context::Context;
use crate::error::{Error, Tried as _};
use crate::health::Trouble;
use crate::objects::Owner;

/// The baseline of a run; `None`: it is held against nothing. The inner error is the user's to mend.
pub async fn baseline(
    run: &BenchmarkRun,
    namespace: &str,
    context: &Context,
) -> Result<Result<Option<Baseline>, Problem>, Error> {
    let Some(reference) = &run.spec.baseline_ref else { return Ok(Ok(None)) };
    let name = &reference.name;
    let problem = |reason, message| Ok(Err(Problem { reason, message }));
    let baselines = Api::<baseline::Guarded>::namespaced(context.client.clone(), namespace);
    let found = match baselines.get_opt(name).await.tried(|| format!("get BenchmarkBaseline {name}"))? {
        Some(DeserializeGuard(Ok(found))) if found.meta().deletion_timestamp.is_none() => found,
        Some(DeserializeGuard(Err(invalid))) => {
            let why = &invalid.error;
            return problem(
                "InvalidBaseline",
                format!("BenchmarkBaseline/{name} cannot be read by this version: {why}"),
            );
        }
        _ => {
            let message = format!("there is no BenchmarkBaseline/{name} in namespace {namespace}: create it");
            return problem("BaselineMissing", message);
        }
    };
    let owner = Owner::of(&found, BASELINE_LABEL)
        .ok_or(Error::Incomplete("a BenchmarkBaseline without name, uid or namespace"))?;
    match kept(&owner, context).await? {
        Ok(Some(figures)) => Ok(Ok(Some(Baseline { name: name.clone(), figures }))),
        Ok(None) => {
            let said = found.status.map(|status| status.message).filter(|message| !message.is_empty());
            let said = said.unwrap_or_else(|| "nothing was kept yet".into());
            problem("BaselineNotReady", format!("BenchmarkBaseline/{name} is not ready: {said}"))
        }
        Err(Trouble { message, .. }) => problem("InvalidBaseline", format!("BenchmarkBaseline/{name}: {message}")),
    }
}
