//! What restores the databases that an arm replicates: its own tool, where the speed of that is measured; where it is asked what an
//! outage cost, Litestream's for every arm, if it is installed, so that no arm is the judge of itself.

use std::collections::BTreeMap;

use storebench_core::engine;
use storebench_core::trial::{restore_caveat, restores_after_an_outage};
use storebench_core::validate::{ValidatedArm, ValidatedRun};
use storebench_crds::EngineKind;
use storebench_crds::engine::object_store;
use storebench_crds::job::RestoreTool;

use super::peers::{self, Binaries};

/// The tool for an arm, whose companions are at these addresses; `None` where nothing is restored.
pub(super) fn tool(
    run: &ValidatedRun,
    arm: &ValidatedArm,
    binaries: &Binaries,
    companions: &BTreeMap<String, String>,
) -> Option<RestoreTool> {
    let object_store = companions.get(object_store::ROLE)?;
    let own = (arm.service()?.engine, binaries.store.as_ref()?.store.clone());
    let litestream = EngineKind::Litestream.engine();
    let (engine, binary) = if restores_after_an_outage(run) && own.0.kind != litestream.kind {
        let mut installed = peers::installed(litestream);
        let preferred = installed.iter().position(|binary| binary.version == litestream.default_version);
        let found = (!installed.is_empty()).then(|| installed.swap_remove(preferred.unwrap_or(0)));
        found.map_or(own, |found| (litestream, found))
    } else {
        own
    };
    engine::restore_tool(engine, &binary.version, binary.path.display().to_string(), object_store)
}

/// Who restores after an outage, for the report; `None` where there is none, or nothing of the arm is installed.
pub(super) fn caveat(run: &ValidatedRun, arm: &ValidatedArm, binaries: Option<&Binaries>) -> Option<String> {
    if !restores_after_an_outage(run) {
        return None;
    }
    // Where the store will be is not known yet, nor is it said.
    let anywhere = [(object_store::ROLE.to_owned(), String::new())].into();
    Some(restore_caveat(&arm.name, &tool(run, arm, binaries?, &anywhere)?))
}
