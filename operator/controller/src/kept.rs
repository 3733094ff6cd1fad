//! What a BenchmarkBaseline keeps: whether it is there and what the operator wrote, and whether it is yet to come. Whoever is held against a
//! baseline reads it here; [`crate::baseline`] writes it.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Resource as _};
use storebench_core::across::Figures;
use storebench_core::archive::FIGURES_KEY;
use storebench_core::reason::Reason;
use storebench_core::report;
use storebench_crds::benchmark_baseline::BenchmarkBaseline;

use crate::apply::check_owner;
use crate::context::Context;
use crate::error::{Error, Tried as _};
use crate::health::Trouble;
use crate::kind;
use crate::objects::{Labels, Owner, names};
use crate::queue::is_true;

/// A baseline that may be one this version cannot read.
pub type Guarded = kind::Guarded<BenchmarkBaseline>;

/// Whether a baseline of the namespace is still to keep a run, as far as this version can tell.
///
/// # Errors
/// [`Error`], if the API server cannot be asked.
pub async fn awaits(run: &str, namespace: &str, context: &Context) -> Result<bool, Error> {
    let baselines = Api::<Guarded>::namespaced(context.client.clone(), namespace);
    let listed = baselines.list(&ListParams::default()).await.tried(|| "list BenchmarkBaselines".into())?;
    Ok(listed.iter().any(|one| may_await(one, run)))
}

/// The same of one. What a newer version wrote may be waiting for any run: one that is deleted for nothing does not come back.
fn may_await(baseline: &Guarded, run: &str) -> bool {
    match &baseline.0 {
        Ok(baseline) => is_awaiting(baseline, run),
        Err(unreadable) => unreadable.metadata.deletion_timestamp.is_none(),
    }
}

/// Whether a baseline has yet to keep a run. One that is stalled does not know that it will.
fn is_awaiting(baseline: &BenchmarkBaseline, run: &str) -> bool {
    let status = baseline.status.clone().unwrap_or_default();
    baseline.spec.run_ref.name == run
        && baseline.meta().deletion_timestamp.is_none()
        && status.figures_ref.is_none()
        && !is_true(&status.conditions, "Stalled")
}

/// What a baseline keeps, as the operator wrote it; `None`: nothing yet. The inner error is the user's to mend.
///
/// # Errors
/// [`Error`], if the API server cannot be asked.
pub async fn kept(owner: &Owner, context: &Context) -> Result<Result<Option<Figures>, Trouble>, Error> {
    let name = names::baseline(&owner.reference.name);
    let maps = Api::<ConfigMap>::namespaced(context.client.clone(), &owner.namespace);
    let Some(map) = maps.get_opt(&name).await.tried(|| format!("get ConfigMap {name}"))? else { return Ok(Ok(None)) };
    match check_owner::<ConfigMap>(&map.metadata, &owner.metadata(&name, &Labels::new())) {
        Err(error @ Error::NameTaken { .. }) => {
            return Ok(Err(error.trouble()));
        }
        other => other?,
    }
    let invalid = |why: &str| {
        let message = format!("ConfigMap {name} {why}: create a new baseline under a new name");
        Ok(Err(Trouble { reason: Reason::InvalidRecord, message }))
    };
    if !context.signer.has_signed(&owner.reference.uid, &map) {
        return invalid("is not what this operator wrote");
    }
    let data = map.data.unwrap_or_default();
    match report::figures_from_json(data.get(FIGURES_KEY).map(String::as_str).unwrap_or_default()) {
        Ok(figures) => Ok(Ok(Some(figures))),
        Err(error) => invalid(&format!("cannot be read by storebench {}: {error}", env!("CARGO_PKG_VERSION"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;
    use storebench_core::conditions::{BaselineState, Stamp, of_baseline};
    use storebench_crds::benchmark_baseline::BenchmarkBaselineStatus;
    use storebench_crds::status::ReportRef;

    fn baseline(state: Option<BaselineState>) -> BenchmarkBaseline {
        let stamp = Stamp { now: Time(Timestamp::UNIX_EPOCH), generation: Some(1), previous: Vec::new() };
        let mut baseline: BenchmarkBaseline =
            serde_json::from_value(json!({ "metadata": { "name": "b" }, "spec": { "runRef": { "name": "nightly" } } }))
                .unwrap();
        baseline.status = state.map(|state| BenchmarkBaselineStatus {
            conditions: of_baseline(state, "", &stamp),
            figures_ref: (state == BaselineState::Kept).then(|| ReportRef { name: "b-baseline".into() }),
            ..BenchmarkBaselineStatus::default()
        });
        baseline
    }

    #[test]
    fn a_run_is_awaited_until_it_is_kept_or_cannot_be() {
        assert!(is_awaiting(&baseline(None), "nightly"), "it was made a moment ago");
        assert!(is_awaiting(&baseline(Some(BaselineState::Waiting)), "nightly"));
        assert!(!is_awaiting(&baseline(Some(BaselineState::Waiting)), "another"));
        assert!(!is_awaiting(&baseline(Some(BaselineState::Kept)), "nightly"));
        assert!(!is_awaiting(&baseline(Some(BaselineState::Stalled(Reason::RunInvalid))), "nightly"));
    }

    /// An older operator deleted by its `ttl` what was to be kept.
    #[test]
    fn a_baseline_that_this_version_cannot_read_may_be_waiting_for_any_run() {
        let unreadable = |metadata: serde_json::Value| -> Guarded {
            serde_json::from_value(json!({ "metadata": metadata, "spec": { "runRef": "of a newer version" } })).unwrap()
        };
        let newer = unreadable(json!({ "name": "b" }));
        assert!(newer.0.is_err() && may_await(&newer, "nightly"));
        assert!(!may_await(
            &unreadable(json!({ "name": "b", "deletionTimestamp": "2026-01-01T00:00:00Z" })),
            "nightly"
        ));
    }
}
