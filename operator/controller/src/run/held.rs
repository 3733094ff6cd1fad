//! The baseline that a run is held against: found before anything is measured, and from then on a part of the run's own record, so that
//! nothing that becomes of the baseline afterwards changes what the run comes to.

use storebench_core::across::Baseline;
use storebench_core::archive::BASELINE_LABEL;
use storebench_core::reason::Reason;
use storebench_crds::BenchmarkRun;
use storebench_crds::benchmark_baseline::BenchmarkBaseline;

use crate::context::Context;
use crate::error::Error;
use crate::health::Trouble;
use crate::kept::kept;
use crate::kind::{self, Named as _};
use crate::objects::Owner;

/// The baseline of a run; `None`: it is held against nothing. The inner error is the user's to mend.
pub async fn baseline(
    run: &BenchmarkRun,
    namespace: &str,
    context: &Context,
) -> Result<Result<Option<Baseline>, Trouble>, Error> {
    let Some(reference) = &run.spec.baseline_ref else { return Ok(Ok(None)) };
    let name = &reference.name;
    let trouble = |reason, message| Ok(Err(Trouble { reason, message }));
    let found = match kind::find::<BenchmarkBaseline>(name, namespace, context).await? {
        Ok(found) => found,
        Err(trouble) => return Ok(Err(trouble)),
    };
    let owner = Owner::of(&found, BASELINE_LABEL)
        .ok_or(Error::Incomplete("a BenchmarkBaseline without name, uid or namespace"))?;
    match kept(&owner, context).await? {
        Ok(Some(figures)) => Ok(Ok(Some(Baseline { name: name.clone(), figures }))),
        Ok(None) => {
            let said = found.status.map(|status| status.message).filter(|message| !message.is_empty());
            let said = said.unwrap_or_else(|| "nothing was kept yet".into());
            trouble(Reason::BaselineNotReady, format!("BenchmarkBaseline/{name} is not ready: {said}"))
        }
        Err(Trouble { message, .. }) => {
            trouble(BenchmarkBaseline::INVALID, format!("BenchmarkBaseline/{name}: {message}"))
        }
    }
}
