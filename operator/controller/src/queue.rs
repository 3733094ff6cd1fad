//! One run at a time on each pool of nodes: a measurement that shares its machines with another one measures both.
//!
//! Runs of different pools (`spec.nodePool`) know nothing of each other; those without one are a pool, too. Within a pool, who is first
//! is decided from the runs themselves ([`order`], pure): the one that may have something deployed, then those that have begun,
//! go on before others begin; then namespaces take turns, so that one with many runs does not keep the others waiting, and within one
//! the oldest is first. Who holds a turn, and which namespace had it when, is kept in memory; only the leader acts, and a new leader
//! finds the runs that had begun.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::error_boundary::DeserializeGuard;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Resource as _, ResourceExt as _};
use storebench_core::conditions::is_running;
use storebench_crds::BenchmarkRun;
use storebench_crds::status::BenchmarkRunStatus;
use tokio::sync::mpsc;

use crate::lock::lock;

/// A run that may be one this version cannot read.
pub type Guarded = DeserializeGuard<BenchmarkRun>;

/// Waiting runs that are told when it may be their turn.
const WAKE_MAX: usize = 1024;

/// The turn of one pool.
#[derive(Debug, Default)]
struct Turn {
    /// Whose turn it is.
    holder: Option<String>,
    /// When namespaces had a turn last, counted in turns.
    served: HashMap<String, u64>,
}

#[derive(Debug, Default)]
struct Turns {
    /// By pool; only of pools that runs name.
    of_pool: HashMap<Pool, Turn>,
    /// Who gave the turn back and has not asked for it since: the watch may not know yet why.
    left: HashSet<String>,
}

/// The nodes with one value of the label, or all others.
type Pool = Option<String>;

/// The turns, and how those who wait for one are woken.
pub struct Queue {
    turns: Mutex<Turns>,
    wake: mpsc::Sender<ObjectRef<Guarded>>,
    runs: Store<Guarded>,
}

impl Queue {
    /// A queue over the runs of this store, and the stream of runs to look at when a turn ends.
    pub fn new(runs: Store<Guarded>) -> (Self, mpsc::Receiver<ObjectRef<Guarded>>) {
        let (wake, woken) = mpsc::channel(WAKE_MAX);
        (Self { turns: Mutex::default(), wake, runs }, woken)
    }

    /// Takes the turn of its pool for this run if it is its own. Otherwise tells how many of that pool go first.
    pub fn take(&self, uid: &str) -> Result<(), u32> {
        let runs = self.runs.state();
        let known: HashSet<String> = runs.iter().filter_map(|run| run.uid()).collect();
        let mut turns = lock(&self.turns);
        let Turns { of_pool, left } = &mut *turns;
        left.remove(uid);
        left.retain(|left| known.contains(left));
        for turn in of_pool.values_mut() {
            // A holder whose finalizer was removed by hand will never give the turn back.
            if turn.holder.as_ref().is_some_and(|holder| !known.contains(holder)) {
                turn.holder = None;
            }
        }
        let readable = || runs.iter().filter_map(|run| run.0.as_ref().ok());
        let asking = readable().find(|run| run.uid().as_deref() == Some(uid));
        let pool = asking.and_then(|run| run.spec.node_pool.clone());
        let pools: HashSet<&Pool> = readable().map(|run| &run.spec.node_pool).collect();
        of_pool.retain(|other, turn| turn.holder.is_some() || pools.contains(other));
        let mut waiting = waiting(&runs, left);
        // Who asks wants a turn, also where the watch does not know yet that what it waited for has come.
        if let Some(asking) = asking
            && !waiting.iter().any(|entry| entry.uid == uid)
        {
            waiting.extend(place(asking));
        }
        waiting.retain(|entry| entry.pool == pool);
        let turn = of_pool.entry(pool).or_default();
        let order = order(waiting, &turn.served);
        match &turn.holder {
            Some(holder) if holder == uid => Ok(()),
            None if order.first().is_some_and(|first| first.uid == uid) => {
                let next = turn.served.values().max().map_or(0, |last| last.saturating_add(1));
                turn.served.insert(order[0].namespace.clone(), next);
                let namespaces: HashSet<String> = runs.iter().filter_map(|run| run.namespace()).collect();
                turn.served.retain(|namespace, _| namespaces.contains(namespace));
                turn.holder = Some(uid.into());
                Ok(())
            }
            holder => Err(position(&order, uid, holder.as_deref())),
        }
    }

    /// Whether it is the turn of this run.
    pub fn is_held_by(&self, uid: &str) -> bool {
        lock(&self.turns).of_pool.values().any(|turn| turn.holder.as_deref() == Some(uid))
    }

    /// This run wants no turn (any more): it is over, suspended, deleted, or waits for its user. The others are woken if that
    /// changes anything for them.
    pub fn leave(&self, uid: &str) {
        let mattered = {
            let runs = self.runs.state();
            let mut turns = lock(&self.turns);
            let was_waiting = waiting(&runs, &turns.left).iter().any(|entry| entry.uid == uid);
            let held = turns.of_pool.values_mut().find(|turn| turn.holder.as_deref() == Some(uid));
            let was_holder = held.map(|turn| turn.holder = None).is_some();
            // Who leaves for the first time may be whom others waited for, though the watch knows already that it is over.
            turns.left.insert(uid.into()) || was_holder || was_waiting
        };
        if mattered {
            self.wake_all();
        }
    }

    /// Has every waiting run looked at again.
    pub fn wake_all(&self) {
        for run in self.runs.state() {
            // A full channel means that as many are being woken already; the rest come with their own next look.
            if run.0.as_ref().is_ok_and(|run| entry(run).is_some())
                && self.wake.try_send(ObjectRef::from_obj(&*run)).is_err()
            {
                break;
            }
        }
    }

    /// The runs as they are known from the watch.
    pub fn runs(&self) -> Vec<Arc<Guarded>> {
        self.runs.state()
    }
}

fn waiting(runs: &[Arc<Guarded>], left: &HashSet<String>) -> Vec<Entry> {
    let entries = runs.iter().filter_map(|run| entry(run.0.as_ref().ok()?));
    entries.filter(|entry| !left.contains(&entry.uid)).collect()
}

/// A run that wants a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// Something of it may be deployed.
    is_under_way: bool,
    has_trials: bool,
    /// Sorts the runs of a namespace: by age, then by name.
    age: (i64, String),
    namespace: String,
    pool: Pool,
    uid: String,
}

/// `None` for a run that wants no turn: it is over, waits for its user, or is suspended or being deleted with nothing deployed.
fn entry(run: &BenchmarkRun) -> Option<Entry> {
    let conditions = run.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let is_under_way = run.status.as_ref().is_some_and(is_under_way);
    let is_over = is_true(conditions, "Complete") && !is_under_way;
    // What was true of an earlier generation says nothing of this one.
    let is_stalled = is_true(conditions, "Stalled") && observed(conditions) == run.metadata.generation;
    let is_deleted = run.meta().deletion_timestamp.is_some();
    if is_over || is_stalled || ((is_deleted || run.spec.suspend) && !is_under_way) {
        return None;
    }
    place(run)
}

/// Whether something of a run may be deployed: its status says that it is running before the first of it is made, and until the last of it
/// is gone; and one that is complete without a report was ended before what it had was removed. So whoever takes over from an operator that was
/// killed in between knows it, too.
pub fn is_under_way(status: &BenchmarkRunStatus) -> bool {
    is_running(&status.conditions) || (is_true(&status.conditions, "Complete") && status.report_ref.is_none())
}

/// The place of a run that wants a turn.
fn place(run: &BenchmarkRun) -> Option<Entry> {
    let created = run.meta().creation_timestamp.as_ref().map_or(i64::MAX, |time| time.0.as_second());
    Some(Entry {
        is_under_way: run.status.as_ref().is_some_and(is_under_way),
        has_trials: run.status.as_ref().is_some_and(|status| !status.trials.is_empty()),
        age: (created, run.name_any()),
        namespace: run.namespace().unwrap_or_default(),
        pool: run.spec.node_pool.clone(),
        uid: run.uid()?,
    })
}

/// Whether a condition is true.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    conditions.iter().any(|condition| condition.type_ == type_ && condition.status == "True")
}

fn observed(conditions: &[Condition]) -> Option<i64> {
    conditions.first()?.observed_generation
}

/// In which order these runs of one pool have their turns, if no others come. `served` says when namespaces had one last.
fn order(mut waiting: Vec<Entry>, served: &HashMap<String, u64>) -> Vec<Entry> {
    waiting.sort_by(|one, other| one.age.cmp(&other.age));
    let mut served = served.clone();
    let mut turns = served.values().max().map_or(0, |last| last.saturating_add(1));
    let mut order = Vec::with_capacity(waiting.len());
    while !waiting.is_empty() {
        // The first of equals is the oldest: a namespace that never had a turn before one that had.
        let rank = |entry: &Entry| (!entry.is_under_way, !entry.has_trials, served.get(&entry.namespace).copied());
        let next = (0..waiting.len()).min_by_key(|index| rank(&waiting[*index])).unwrap_or_default();
        let next = waiting.remove(next);
        served.insert(next.namespace.clone(), turns);
        turns = turns.saturating_add(1);
        order.push(next);
    }
    order
}

/// How many go before this run; the holder of the turn always does.
fn position(order: &[Entry], uid: &str, holder: Option<&str>) -> u32 {
    let own = order.iter().position(|entry| entry.uid == uid).unwrap_or(order.len());
    let goes_first =
        |(index, entry): &(usize, &Entry)| entry.uid != uid && (holder == Some(entry.uid.as_str()) || *index < own);
    order.iter().enumerate().filter(goes_first).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;
    use storebench_core::conditions::{RunState, Stamp, of_run};

    fn run(name: &str, created: i64, suspend: bool, status: serde_json::Value) -> BenchmarkRun {
        let created = k8s_openapi::jiff::Timestamp::from_second(created).unwrap().to_string();
        serde_json::from_value(json!({
            "apiVersion": "storebench.dev/v1alpha1", "kind": "BenchmarkRun",
            "metadata": { "name": name, "namespace": "n", "uid": name, "creationTimestamp": created, "generation": 1 },
            "spec": { "arms": [], "workloads": [], "suspend": suspend },
            "status": status,
        }))
        .unwrap()
    }

    fn entries(runs: &[BenchmarkRun]) -> Vec<Entry> {
        order(runs.iter().filter_map(entry).collect(), &HashMap::new())
    }

    fn first(order: &[Entry]) -> Option<&str> {
        order.first().map(|entry| entry.uid.as_str())
    }

    #[test]
    fn a_namespace_with_many_runs_does_not_keep_the_others_waiting() {
        let of = |namespace: &str, name: &str, created: i64| {
            let mut run = run(name, created, false, json!({}));
            run.metadata.namespace = Some(namespace.into());
            run
        };
        let mut runs: Vec<BenchmarkRun> = (0..50).map(|index| of("many", &format!("m{index:02}"), index)).collect();
        runs.extend([of("few", "f0", 100), of("few", "f1", 101), of("other", "o0", 102)]);
        let uids = |served: &HashMap<String, u64>| -> Vec<String> {
            order(runs.iter().filter_map(entry).collect(), served).into_iter().map(|entry| entry.uid).collect()
        };
        assert_eq!(uids(&HashMap::new())[..6], ["m00", "f0", "o0", "m01", "f1", "m02"]);
        let served = HashMap::from([("many".to_owned(), 0)]);
        assert_eq!(uids(&served)[..5], ["f0", "o0", "m00", "f1", "m01"], "it had its turn");
        assert_eq!(uids(&served).len(), 53);
    }

    fn condition(type_: &str, generation: i64) -> serde_json::Value {
        json!({ "conditions": [{
            "type": type_, "status": "True", "reason": "R", "message": "", "observedGeneration": generation,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }] })
    }

    /// The status of a run that has a report.
    fn over() -> serde_json::Value {
        let mut over = condition("Complete", 1);
        over["reportRef"] = json!({ "name": "report" });
        over
    }

    #[test]
    fn a_stalled_run_that_asks_again_takes_its_turn() {
        let (reader, mut writer) = kube::runtime::reflector::store();
        let stalled = DeserializeGuard(Ok(run("stalled", 1, false, condition("Stalled", 1))));
        writer.apply_watcher_event(&kube::runtime::watcher::Event::Apply(stalled));
        let (queue, _woken) = Queue::new(reader);
        assert_eq!(queue.take("stalled"), Ok(()));
        assert!(queue.is_held_by("stalled"));
        queue.leave("stalled");
        assert!(!queue.is_held_by("stalled"));
    }

    #[test]
    fn runs_of_different_pools_do_not_wait_for_each_other() {
        let (reader, mut writer) = kube::runtime::reflector::store();
        let mut known = |name: &str, created: i64, pool: Option<&str>, status: serde_json::Value| {
            let mut run = run(name, created, false, status);
            run.spec.node_pool = pool.map(str::to_owned);
            writer.apply_watcher_event(&kube::runtime::watcher::Event::Apply(DeserializeGuard(Ok(run))));
        };
        known("anywhere", 1, None, json!({}));
        known("fast", 2, Some("fast"), json!({}));
        known("fast-too", 3, Some("fast"), json!({}));
        known("slow", 4, Some("slow"), json!({}));
        let (queue, _woken) = Queue::new(reader);
        assert_eq!(queue.take("fast-too"), Err(1), "the one before it in its pool has not asked yet");
        for first in ["slow", "fast", "anywhere"] {
            assert_eq!(queue.take(first), Ok(()), "{first}");
        }
        assert_eq!(queue.take("fast-too"), Err(1));
        queue.leave("slow");
        assert_eq!(queue.take("fast-too"), Err(1), "the turn of another pool is not its own");
        assert!(queue.is_held_by("fast") && queue.is_held_by("anywhere") && !queue.is_held_by("slow"));
        queue.leave("fast");
        assert_eq!(queue.take("fast-too"), Ok(()));
        // A pool that no run names any more is forgotten, but for its holder.
        known("fast", 2, Some("fast"), over());
        assert_eq!(queue.take("anywhere"), Ok(()));
        assert_eq!(lock(&queue.turns).of_pool.len(), 3);
    }

    #[test]
    fn the_oldest_goes_first_and_others_are_counted() {
        let waiting = entries(&[
            run("young", 30, false, json!({})),
            run("old", 10, false, json!({})),
            run("middle", 20, false, json!({})),
        ]);
        assert_eq!(first(&waiting), Some("old"));
        assert_eq!(position(&waiting, "young", None), 2);
        assert_eq!(position(&waiting, "middle", Some("old")), 1);
    }

    #[test]
    fn a_run_that_has_begun_goes_on_before_an_older_one_begins() {
        let begun = json!({ "trials": [{ "index": 0, "arm": "a", "state": "Valid" }] });
        let waiting = entries(&[run("old", 10, false, json!({})), run("begun", 20, false, begun)]);
        assert_eq!(first(&waiting), Some("begun"));
    }

    /// The status of a run of which a trial counts.
    fn measured(state: RunState) -> serde_json::Value {
        let mut status = in_state(state);
        status["trials"] = json!([{ "index": 0, "arm": "a", "state": "Valid" }]);
        status
    }

    fn in_state(state: RunState) -> serde_json::Value {
        let stamp = Stamp { now: Time(Timestamp::UNIX_EPOCH), generation: Some(1), previous: Vec::new() };
        json!({ "conditions": of_run(state, "", &stamp) })
    }

    #[test]
    fn a_run_that_is_suspended_while_its_first_store_starts_has_its_turn_until_that_is_gone() {
        let runs = |state| [run("first", 20, true, in_state(state)), run("next", 10, false, json!({}))];
        assert_eq!(first(&entries(&runs(RunState::Running))), Some("first"), "its store is there");
        assert_eq!(first(&entries(&runs(RunState::Suspended))), Some("next"), "its store is gone");
    }

    #[test]
    fn a_run_that_is_deleted_has_its_turn_until_what_it_deployed_is_gone() {
        let deleted = |state| {
            let mut deleted = run("deleted", 20, false, in_state(state));
            deleted.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
            [deleted, run("next", 10, false, json!({}))]
        };
        assert_eq!(first(&entries(&deleted(RunState::Running))), Some("deleted"));
        assert_eq!(first(&entries(&deleted(RunState::Queued))), Some("next"));
    }

    /// The next run began beside what was still being removed, where the operator was killed meanwhile.
    #[test]
    fn a_run_that_was_refused_has_its_turn_until_what_it_deployed_is_gone() {
        let (reader, mut writer) = kube::runtime::reflector::store();
        for run in [run("closed", 20, false, condition("Complete", 1)), run("next", 10, false, json!({}))] {
            writer.apply_watcher_event(&kube::runtime::watcher::Event::Apply(DeserializeGuard(Ok(run))));
        }
        let (queue, mut woken) = Queue::new(reader);
        assert_eq!(queue.take("next"), Err(1));
        queue.leave("closed");
        // In no order, and all of them: one that stays in the channel would be taken for one that is woken by the next line.
        let woke: Vec<_> = std::iter::from_fn(|| woken.try_recv().ok()).collect();
        assert!(woke.iter().any(|run| run.name == "next"), "{woke:?}");
        queue.leave("closed");
        assert!(woken.try_recv().is_err(), "nothing has changed since");
        assert_eq!(queue.take("next"), Ok(()));
    }

    /// Whoever ends what an operator before it began may never have taken the turn.
    #[test]
    fn who_leaves_without_having_held_the_turn_wakes_those_that_wait_though_the_watch_knows_that_it_is_over() {
        let (reader, mut writer) = kube::runtime::reflector::store();
        for run in [run("over", 1, false, over()), run("next", 2, false, json!({}))] {
            writer.apply_watcher_event(&kube::runtime::watcher::Event::Apply(DeserializeGuard(Ok(run))));
        }
        let (queue, mut woken) = Queue::new(reader);
        queue.leave("over");
        assert_eq!(woken.try_recv().unwrap().name, "next");
        queue.leave("over");
        assert!(woken.try_recv().is_err(), "nothing has changed since");
    }

    /// An operator that takes over does not know whose turn it was.
    #[test]
    fn who_has_a_store_that_starts_goes_before_who_has_been_measured_and_has_nothing_deployed() {
        let starting = run("starting", 20, false, in_state(RunState::Running));
        let waiting = entries(&[
            run("old", 1, false, json!({})),
            run("measured", 10, false, measured(RunState::Queued)),
            starting,
        ]);
        let uids: Vec<&str> = waiting.iter().map(|entry| entry.uid.as_str()).collect();
        assert_eq!(uids, ["starting", "measured", "old"]);
    }

    #[test]
    fn who_wants_no_turn_holds_up_nobody() {
        let waiting = entries(&[
            run("over", 1, false, over()),
            run("invalid", 2, false, condition("Stalled", 1)),
            run("suspended", 3, true, json!({})),
            run("held", 4, true, measured(RunState::Suspended)),
            run("next", 5, false, json!({})),
        ]);
        assert_eq!(first(&waiting), Some("next"));
        assert_eq!(position(&waiting, "next", None), 0);
    }

    #[test]
    fn a_stalled_run_that_was_resumed_is_back_in_the_queue() {
        let mut resumed = run("resumed", 1, false, condition("Stalled", 1));
        resumed.metadata.generation = Some(2);
        assert_eq!(first(&entries(&[resumed])), Some("resumed"));
    }
}
