//! A member that goes on alone, when the others are lost for good: everything in its log counts as decided, and a snapshot of that,
//! with this member as the only one, takes the place of the log.
//!
//! Nothing is lost that this member has: what a quorum had acknowledged without its knowing is kept, and with it what was under way.
//! The others must never come back with what they have: two of three would still be a majority of theirs.

use wal::Record;
use wal::files::Directory;

use crate::entry::EntryKind;
use crate::machine::StateMachine;
use crate::membership::Membership;
use crate::recovery::Recovered;
use crate::replica::Fatal;
use crate::settings::Settings;
use crate::snapshot::{SnapshotJob, load_snapshot};

/// What this member begins with, as the only one, and what must be committed to its log before. `machine` is as before any entry, and
/// is that of everything afterwards. Until the records are committed, all is as it was.
pub(crate) fn go_on<S: StateMachine, D: Directory>(
    id: u64,
    settings: &Settings,
    machine: &mut S,
    recovered: Recovered,
    snapshots: &D,
) -> Result<(Recovered, Vec<Record>), Fatal> {
    let mut time_millis = 0;
    if let Some(meta) = recovered.snapshot() {
        if machine.kept() < meta.index {
            machine.restore(&mut load_snapshot(snapshots, meta)?)?;
            machine.restored(meta.time_millis);
            machine.applied(meta.index);
        }
        time_millis = meta.time_millis;
    }
    let newest = recovered.snapshot().map_or(0, |meta| meta.index);
    for entry in recovered.entries.iter().filter(|entry| entry.index > newest) {
        time_millis = time_millis.max(entry.time_millis);
        if entry.kind == EntryKind::Command {
            machine.apply_unasked(entry);
        }
        machine.applied(entry.index);
    }
    machine.goes_on_alone(id);
    let meta = recovered.describe(settings, Membership::of([id]), time_millis);
    let meta = SnapshotJob::new(meta, machine.snapshot(), snapshots.clone()).run().map_err(Fatal::Files)?;
    Ok(recovered.replaced_by(settings, meta))
}
