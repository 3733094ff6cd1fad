//! Stores that were there already, looked at before the first trial: that one of them is away, or holds keys, is told before anything was
//! measured, and not at its turn. Nothing is written. Each load looks again: much may happen in between.

use std::collections::BTreeSet;

use anyhow::Context as _;
use bench_jobs::job::look;
use storebench_core::trial::job;
use storebench_core::validate::ValidatedRun;

/// Why stores of these runs would not be loaded, each store once: field and problem.
pub(crate) fn problems(runs: &[ValidatedRun]) -> anyhow::Result<Vec<(String, String)>> {
    let arms = runs.iter().flat_map(|run| run.arms.iter().map(move |arm| (run, arm)));
    let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
    for (run, arm) in arms {
        let Some(store) = arm.external().filter(|store| seen.insert(store.name.as_str())) else { continue };
        let job = job(run, &arm.name, 0, store.external.endpoints.clone());
        let looked = look(&job).with_context(|| format!("StorageService/{} cannot be looked at", store.name))?;
        let field = format!("StorageService/{} spec.external", store.name);
        found.extend(looked.err().map(|why| (field, why.text().to_owned())));
    }
    Ok(found)
}
