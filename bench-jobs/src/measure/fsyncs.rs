//! How often a store has synced its disk so far: what it counts itself, in its metrics, as its engine's row says.
//!
//! Syncs of snapshots and of new files, which are rare, are counted by no store.

use std::collections::BTreeMap;
use std::time::Duration;

use storebench_crds::job::SyncCounters;

use crate::failure::Failure;
use crate::measure::exposition::{ExpositionError, samples};
use crate::net::http_client::get;

/// A store that does not hand over its metrics within this does not say.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// How often the member has synced so far.
pub fn so_far(member: &SyncCounters) -> Result<u64, Failure> {
    let failed = |why: &dyn std::fmt::Display| Failure::new(format_args!("GET {}: {why}", member.path));
    let text = get(&member.address, &member.path, ANSWER_TIMEOUT).map_err(|error| failed(&error))?;
    let counted = counted(&text, &member.counters).map_err(|error| failed(&error))?;
    counted.ok_or_else(|| failed(&"the answer does not count syncs"))
}

/// The syncs that these metrics count; `None` where none of the counters is there. Some may be absent: an etcd's log has no database.
fn counted(text: &str, counters: &BTreeMap<String, u64>) -> Result<Option<u64>, ExpositionError> {
    let found = samples(text, |name| counters.contains_key(name))?;
    let syncs = found.iter().map(|sample| sample.value as u64 * counters.get(sample.name).copied().unwrap_or_default());
    Ok((!found.is_empty()).then(|| syncs.sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_may_stand_for_several_syncs_and_may_be_absent() {
        let counters = BTreeMap::from([("log_count".to_owned(), 1), ("commit_count".to_owned(), 2)]);
        let counted = |text: &str| counted(text, &counters).unwrap();
        assert_eq!(counted("log_count 506\ncommit_count 16\nother_count 7\n"), Some(538));
        assert_eq!(counted("# HELP log_count x\nlog_count 3\n# EOF\n"), Some(3));
        assert_eq!(counted("has_leader 1\n"), None);
    }
}
