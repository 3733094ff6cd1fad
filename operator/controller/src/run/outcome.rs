//! From what was measured to what users read: the record's head, the report, the status.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::controller::Action;
use kube::{Resource as _, ResourceExt as _};
use storebench_core::across::Baseline;
use storebench_core::archive::{BASELINE_KEY, COMPONENT_LABEL, HEAD_KEY, RECORD_COMPONENT, TrialFile, assemble};
use storebench_core::conditions::{RunState, Stamp, of_run};
use storebench_core::engine;
use storebench_core::fingerprint;
use storebench_core::judgement::judge;
use storebench_core::ledger;
use storebench_core::reason::Reason;
use storebench_core::record::{ArmRecord, Driver, RECORD_VERSION, RunRecord};
use storebench_core::report::{self, Document, Report, document_markdown, document_text, two_runs};
use storebench_core::status::{self, fit, progress};
use storebench_core::trial::{kills, restore_caveat, restores_after_an_outage};
use storebench_core::validate::{ValidatedArm, ValidatedService};
use storebench_crds::BenchmarkRun;
use storebench_crds::benchmark_run::TimeToLive;
use storebench_crds::status::{BenchmarkRunStatus, ReportRef, TrialEntry, TrialState, Verdict};

use super::clusters::{self, Facts};
use super::held;
use super::observe::{Head, Observed, SERVICES_KEY, observe};
use super::perform;
use super::references::References;
use super::step::{Existing, began};
use crate::apply::{apply, create};
use crate::context::Context;
use crate::error::{Error, Tried as _};
use crate::events;
use crate::health::Trouble;
use crate::kind;
use crate::objects::{Labels, Owner, names, share};
use crate::queue::is_true;
use crate::settings::Images;
use crate::signature::Signer;

/// While something is being deleted, a look is due this often, should an event be missed.
const CLEAN_UP_INTERVAL: Duration = Duration::from_secs(3);

/// Writes the record's head: from here on the run has begun. It does not begin where the clusters that are there already cannot be compared,
/// or where what it is held against is missing. The inner error is the user's to mend.
pub async fn begin(
    run: &BenchmarkRun,
    owner: &Owner,
    references: &References,
    context: &Context,
) -> Result<Result<(), Trouble>, Error> {
    let baseline = match held::baseline(run, &owner.namespace, context).await? {
        Ok(baseline) => baseline,
        Err(trouble) => return Ok(Err(trouble)),
    };
    let clusters = match clusters::facts(references).await {
        Ok(clusters) => clusters,
        Err(trouble) => return Ok(Err(trouble)),
    };
    let now = Timestamp::now();
    let kubernetes = context.client.apiserver_version().await.tried(|| "get the API server's version".into())?;
    let mut facts = BTreeMap::from([
        ("kubernetes".to_owned(), kubernetes.git_version),
        ("storebench".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
    ]);
    facts.extend(own(context));
    let arms = &references.run.arms;
    let images = &context.settings.images;
    let services = arms.iter().filter_map(ValidatedArm::service);
    facts.extend(services.flat_map(|service| named_images(service, images)));
    let external = arms.iter().filter_map(ValidatedArm::external);
    facts.extend(external.map(|store| (format!("service {}", store.name), format!("external at {}", store.place()))));
    facts.insert("processor requests".into(), processor_requests(references));
    facts.extend(clusters.iter().map(|(arm, facts)| (format!("cluster {arm}"), facts.to_string())));
    let record = RunRecord {
        record_version: RECORD_VERSION,
        name: run.name_any(),
        storebench_version: env!("CARGO_PKG_VERSION").into(),
        started_at: now.to_string(),
        duration_millis: 0,
        driver: Driver::Kubernetes,
        spec: references.run.spec.clone(),
        arms: arms.iter().map(|arm| arm_record(arm, clusters.get(&arm.name))).collect(),
        trials: Vec::new(),
        fingerprint: fingerprint::of(facts),
        caveats: caveats(references),
        aborted: None,
        left_behind: Vec::new(),
    };
    let mut data = BTreeMap::from([
        (HEAD_KEY.to_owned(), serde_json::to_string(&record)?),
        (SERVICES_KEY.to_owned(), serde_json::to_string(&references.identities)?),
    ]);
    if let Some(baseline) = &baseline {
        data.insert(BASELINE_KEY.into(), serde_json::to_string(baseline)?);
    }
    create(&context.client, &report_map(owner, data, &context.signer)).await?;
    if is_worth_measuring(&record, baseline.as_ref()) {
        events::started(context, run).await;
    }
    Ok(Ok(()))
}

/// Whether there is anything to compare a run with that has begun: it is not held against what was kept of an unlike cluster, or with which it
/// shares nothing, which does not change by waiting.
pub fn is_worth_measuring(record: &RunRecord, baseline: Option<&Baseline>) -> bool {
    let held = baseline.zip(record.spec.baseline_ref.as_ref());
    held.is_none_or(|(baseline, terms)| baseline.check(record, terms).is_ok())
}

/// What the operator itself brings into a comparison: its build, and the images that it takes for loads and meters.
fn own(context: &Context) -> [(String, String); 3] {
    let images = &context.settings.images;
    [
        ("operator build".into(), context.build.clone()),
        ("load image".into(), images.bench_job.clone()),
        ("kubernetes images".into(), images.kubernetes_registry.clone()),
    ]
}

/// Why trials from now on would not be comparable with those before: the operator or an image is not what it was.
pub fn changed(head: &Head, record: &RunRecord, observed: &Observed, context: &Context) -> Option<Trouble> {
    let facts = &head.record.fingerprint.facts;
    let other = own(context).into_iter().find(|(name, now)| facts.get(name) != Some(now));
    let of_operator = || {
        let (name, now) = other?;
        let then = facts.get(&name).map_or("not known", String::as_str);
        let message = format!("the operator was changed while the run was under way, {name}: {now}, and {then} before");
        Some(Trouble { reason: Reason::OperatorChanged, message: format!("{message}: make a new run") })
    };
    let of_image = || {
        let message = super::collect::changed_image(&record.trials, &observed.files)?;
        Some(Trouble {
            reason: Reason::ImageChanged,
            message: format!("{message}: name images by digest, and make a new run"),
        })
    };
    of_operator().or_else(of_image)
}

/// Why a run that takes so long must end: others wait. Time between trials does not count, in which it may have been suspended.
pub fn too_long(record: &RunRecord, existing: &Existing, now: Timestamp, context: &Context) -> Option<Trouble> {
    let hours_max = context.settings.run_hours_max;
    let hours = taken(record, existing, now).as_secs() / 3600;
    (hours >= u64::from(hours_max)).then(|| Trouble {
        reason: Reason::TooLong,
        message: format!(
            "its trials took {hours} h, and a run may take {hours_max}: make a shorter one, or raise the operator's --run-hours-max"
        ),
    })
}

/// How long the trials of a run took, the one that is under way included.
fn taken(record: &RunRecord, existing: &Existing, now: Timestamp) -> Duration {
    let filed = Duration::from_millis(record.trials.iter().map(|trial| trial.duration_millis).sum());
    let deployed = existing.stores.iter().chain(&existing.companions).map(|one| one.created);
    let begun = deployed.chain(existing.jobs.iter().map(began)).min().filter(|begun| *begun < now);
    filed + begun.map_or(Duration::ZERO, |begun| now.duration_since(begun).unsigned_abs())
}

/// The names of the images of a store and of what runs beside it, by the facts that an embedded run has of their executables.
fn named_images(service: &ValidatedService, images: &Images) -> BTreeMap<String, String> {
    let name = &service.name;
    let companions = service.companions.iter();
    let companions = companions.map(|(role, companion)| (format!("{role} of {name}"), images.of_store(companion)));
    std::iter::once((format!("service {name}"), images.of_store(service))).chain(companions).collect()
}

/// In which proportion a busy node shares its processors out among the pods of a trial.
fn processor_requests(references: &References) -> String {
    let of_arm = |arm: &ValidatedArm| {
        let asked = arm.service().and_then(share::asked);
        asked.map(|asked| format!("{asked} for each store of {}", arm.name))
    };
    let others = std::iter::once(format!("{} for each pod", share::POD_CPU));
    others.chain(references.run.arms.iter().filter_map(of_arm)).collect::<Vec<_>>().join(", ")
}

fn caveats(references: &References) -> Vec<String> {
    let mut caveats = Vec::new();
    let arms = &references.run.arms;
    let clusters: Vec<&str> = arms.iter().filter(|arm| arm.cluster().is_some()).map(|arm| arm.name.as_str()).collect();
    if !clusters.is_empty() {
        caveats.push(format!(
            "{} were there already: which store is under them and what it used is not known here",
            clusters.join(" and ")
        ));
    }
    caveats.extend(arms.iter().filter_map(|arm| Some(arm.external()?.caveat(&arm.name))));
    let resources = arms.iter().filter_map(|arm| Some(&arm.service()?.spec.resources)).collect::<Vec<_>>();
    if resources.windows(2).any(|pair| pair[0] != pair[1]) {
        caveats.push("the arms have unequal spec.resources: part of a difference may be theirs".into());
    }
    for arm in arms {
        if let Some(asked) = arm.service().and_then(share::asked).filter(|asked| *asked != share::POD_CPU) {
            caveats.push(format!(
                "the store of {} asks for {asked} of processors (spec.resources) and its load for {}: on a busy node they get unequal shares",
                arm.name,
                share::POD_CPU
            ));
        }
    }
    caveats.extend(arms.iter().filter_map(|arm| arm.service()?.companions_caveat()));
    if kills(&references.run) > 0 {
        caveats.push(
            "a killed member was started again by the kubelet, as soon as that saw it dead, and not when the time of the fault was over: \
             recovery of a store of one member and catching up count from that start"
                .into(),
        );
    }
    if restores_after_an_outage(&references.run) {
        let tool = |arm: &ValidatedArm| {
            let service = arm.service()?;
            // Its name is what is said of it.
            let tool = engine::restore_tool(service.engine, &service.version, String::new(), "")?;
            Some(restore_caveat(&arm.name, &tool))
        };
        caveats.extend(arms.iter().filter_map(tool));
    }
    caveats
}

fn arm_record(arm: &ValidatedArm, cluster: Option<&Facts>) -> ArmRecord {
    ArmRecord { version: cluster.map(|cluster| cluster.version.clone()), ..ArmRecord::of(arm) }
}

fn report_map(owner: &Owner, data: BTreeMap<String, String>, signer: &Signer) -> ConfigMap {
    let labels = Labels::from([(COMPONENT_LABEL.to_owned(), RECORD_COMPONENT.to_owned())]);
    let mut map = ConfigMap {
        metadata: owner.metadata(&names::report(&owner.reference.name), &labels),
        data: Some(data),
        ..ConfigMap::default()
    };
    signer.sign(&owner.reference.uid, &mut map);
    map
}

/// The whole record, as far as it goes.
pub fn record(head: &Head, observed: &Observed) -> RunRecord {
    let files = observed.files.iter().map(|file| TrialFile::clone(file)).collect();
    let mut record = assemble(head.record.clone(), files, false);
    record.caveats.extend(observed.strangers.iter().map(|name| {
        format!(
            "ConfigMap/{name} says that it is a trial of this run, but the operator did not write it: it was left out"
        )
    }));
    record
}

/// The ledger: what was measured, and what is under way.
pub fn entries(record: &RunRecord, existing: &Existing) -> Vec<TrialEntry> {
    let mut entries: Vec<TrialEntry> = status::entries(record);
    for job in &existing.jobs {
        let label = |name: &str| job.labels().get(name).cloned();
        let index = label(crate::objects::TRIAL_LABEL).and_then(|index| index.parse().ok());
        let (Some(index), Some(arm)) = (index, label(crate::objects::ARM_LABEL)) else { continue };
        if !entries.iter().any(|entry: &TrialEntry| entry.index == index && entry.arm == arm) {
            entries.push(TrialEntry {
                index,
                arm,
                job: Some(job.name_any()),
                state: TrialState::Running,
                reason: None,
            });
        }
    }
    entries
}

/// The status of a run that goes on.
pub fn running(run: &BenchmarkRun, record: &RunRecord, existing: &Existing) -> BenchmarkRunStatus {
    let entries = entries(record, existing);
    let message = match entries.last() {
        Some(last) if last.state == TrialState::Running => {
            format!(
                "trial {} of at most {}: {} is being loaded",
                ledger::number(&record.trials, last.index),
                run.spec.trials.max,
                last.arm
            )
        }
        _ => "a store is being started".into(),
    };
    let mut status = progress(&run.spec, entries, message);
    status.report_ref = Some(ReportRef { name: names::report(&run.name_any()) });
    status
}

/// Judges the record, writes the report, and closes the run.
pub async fn finish(
    run: &BenchmarkRun,
    owner: &Owner,
    record: RunRecord,
    begun: &Head,
    hashes: &BTreeMap<String, String>,
    context: &Context,
) -> Result<(), Error> {
    let judgement = judge(&record);
    let mut report = Report { record, judgement };
    let terms = run.spec.baseline_ref.as_ref();
    let held = begun.baseline.as_ref().zip(terms).map(|(baseline, terms)| baseline.hold(&mut report, terms));
    let head = RunRecord { trials: Vec::new(), ..report.record.clone() };
    let moved = held.as_ref().and_then(|held| held.pair.as_ref()).map(|pair| two_runs(std::slice::from_ref(pair)));
    let below =
        |document: fn(Document) -> String| moved.clone().map_or_else(String::new, |one| format!("\n{}", document(one)));
    let mut data = BTreeMap::from([
        (HEAD_KEY.to_owned(), serde_json::to_string(&head)?),
        (SERVICES_KEY.to_owned(), serde_json::to_string(&begun.services)?),
        ("report.txt".to_owned(), report::text(&report, 120, false) + &below(|one| document_text(one, 120, false))),
        ("report.md".to_owned(), report::markdown(&report) + &below(document_markdown)),
    ]);
    if let Some(baseline) = &begun.baseline {
        data.insert(BASELINE_KEY.into(), serde_json::to_string(baseline)?);
    }
    let written = apply(&context.client, &report_map(owner, data, &context.signer)).await;
    let mut status = status::status(&report);
    if let Some(held) = &held {
        status::add_baseline(&mut status, held);
    }
    status.report_ref = Some(ReportRef { name: names::report(&run.name_any()) });
    status.sealed_trials = Some(context.signer.seal(&owner.reference.uid, hashes));
    match written {
        Ok(()) => {}
        // What was measured is in the trials' own files, and the judgement of it stands.
        Err(error) if error.is_final(context.failures.count(&kind::key_of::<BenchmarkRun>(run))) => {
            let why = error.for_user();
            tracing::warn!(run = run.name_any(), "the report cannot be written: {why}");
            events::stalled(context, run, Reason::ReportNotWritten, &why).await;
            status.message = format!("{}; its report could not be written: {why}", status.message);
        }
        Err(error) => return Err(error),
    }
    let verdict = report.judgement.verdict;
    context.metrics.run_is_complete(&owner.namespace, &run.name_any(), &status);
    patch(run, status, RunState::Complete(verdict), context).await?;
    events::completed(context, run, verdict, &report.judgement.message).await;
    tracing::info!(run = run.name_any(), ?verdict, message = report.judgement.message, "complete");
    Ok(())
}

/// Ends a run that had begun and cannot go on. `None`: it had not begun.
pub async fn abandon(
    run: &BenchmarkRun,
    owner: &Owner,
    trouble: &Trouble,
    context: &Context,
) -> Result<Option<Action>, Error> {
    let uid = &owner.reference.uid;
    let observed = observe(context, owner, &[]).await?;
    let Some(head) = &observed.head else { return Ok(None) };
    if perform::delete_others(owner, None, &observed.existing, context).await? {
        return Ok(Some(Action::requeue(CLEAN_UP_INTERVAL)));
    }
    let mut record = record(head, &observed);
    record.aborted = Some(format!("ended after {}: {}", record.trials_in_words(), trouble.message));
    finish(run, owner, record, head, &observed.hashes, context).await?;
    context.queue.leave(uid);
    context.archive.forget(uid);
    Ok(Some(Action::requeue(Duration::ZERO)))
}

/// Ends a run that has begun and of which no record can be written or believed. What it has left is deleted afterwards: a run that is
/// complete and has no report may have left something.
pub async fn close(run: &BenchmarkRun, message: String, context: &Context) -> Result<(), Error> {
    let trials = context.statuses.latest(run).trials;
    let mut status = progress(&run.spec, trials, message.clone());
    status.verdict = Some(Verdict::Invalid);
    patch(run, status, RunState::Complete(Verdict::Invalid), context).await?;
    events::completed(context, run, Verdict::Invalid, &message).await;
    Ok(())
}

/// When a finished run is to be deleted; `None`: never.
pub fn expiry(ttl: Option<&TimeToLive>, status: &BenchmarkRunStatus) -> Option<Timestamp> {
    let ttl = ttl?;
    let text = if status.verdict == Some(Verdict::Passed) { ttl.success.as_ref()? } else { ttl.failure.as_ref()? };
    let complete =
        status.conditions.iter().find(|condition| condition.type_ == "Complete" && condition.status == "True")?;
    complete.last_transition_time.0.checked_add(text.duration()).ok()
}

/// Writes a status if it says anything new.
pub async fn patch(
    run: &BenchmarkRun,
    status: BenchmarkRunStatus,
    state: RunState,
    context: &Context,
) -> Result<(), Error> {
    let name = run.name_any();
    let previous = context.statuses.latest(run);
    let stamp =
        Stamp { now: Time(Timestamp::now()), generation: run.meta().generation, previous: previous.conditions.clone() };
    // What came to its end was signed with the key of then.
    let signing_key = match is_true(&previous.conditions, "Complete") {
        true => previous.signing_key.clone(),
        false => Some(context.signer.public_key()),
    };
    let status = fit(BenchmarkRunStatus {
        observed_generation: run.meta().generation.unwrap_or(-1),
        conditions: of_run(state, &status.message, &stamp),
        signing_key,
        ..status
    });
    if status == previous {
        return Ok(());
    }
    if kind::write_status::<BenchmarkRun>(&name, &run.namespace().unwrap_or_default(), &status, context).await? {
        context.statuses.wrote(run, status);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::step::Deployed;
    use crate::settings::Settings;
    use serde_json::json;
    use storebench_crds::StorageService;

    /// A baseline was taken for unchanged whose object store was another.
    #[test]
    fn what_runs_beside_a_store_is_in_the_fingerprint() {
        let spec = json!({ "engine": "Walsync", "durability": "None" });
        let service = StorageService::new("db", serde_json::from_value(spec).unwrap());
        let service = storebench_core::validate::service(&service).unwrap();
        let settings = <Settings as clap::Parser>::parse_from(["storebench-operator"]);
        let facts = named_images(&service, &settings.images);
        assert_eq!(facts.len(), 2, "{facts:?}");
        assert!(facts["service db"].starts_with("storebench/walsync:"), "{facts:?}");
        assert!(facts["object-store of db"].starts_with("storebench/versitygw:"), "{facts:?}");
    }

    #[test]
    fn the_trial_that_is_under_way_counts_for_how_long_a_run_takes() {
        let now = Timestamp::from_second(10_000).unwrap();
        let mut record = storebench_core::archive::read_head("head", &json!({
            "recordVersion": 1, "name": "r", "storebenchVersion": "0", "startedAt": "2026-01-01T00:00:00Z", "durationMillis": 0,
            "driver": "Kubernetes", "spec": { "arms": [], "workloads": [], "trials": {} }, "arms": [],
            "trials": [{ "index": 0, "arm": "a", "state": "Valid", "startedMillis": 0, "durationMillis": 60_000, "workloads": [] }],
            "fingerprint": { "hash": "", "facts": {} }, "caveats": [],
        }).to_string()).unwrap();
        assert_eq!(taken(&record, &Existing::default(), now), Duration::from_secs(60));
        let created = Timestamp::from_second(9_000).unwrap();
        let store = Deployed { name: "r-1-a".into(), created, is_stopping: false };
        let existing = Existing { stores: vec![store], ..Existing::default() };
        assert_eq!(taken(&record, &existing, now), Duration::from_secs(1_060));
        record.trials.clear();
        assert_eq!(taken(&record, &existing, now), Duration::from_secs(1_000));
    }

    #[test]
    fn a_run_expires_by_its_verdict_from_the_time_it_was_complete() {
        let stamp =
            Stamp { now: Time(Timestamp::from_second(1_000).unwrap()), generation: Some(1), previous: Vec::new() };
        let complete = |verdict| BenchmarkRunStatus {
            verdict: Some(verdict),
            conditions: of_run(RunState::Complete(verdict), "", &stamp),
            ..BenchmarkRunStatus::default()
        };
        let ttl: TimeToLive = serde_json::from_value(json!({ "success": "60s" })).unwrap();
        let due = expiry(Some(&ttl), &complete(Verdict::Passed));
        assert_eq!(due, Some(Timestamp::from_second(1_060).unwrap()));
        assert_eq!(expiry(Some(&ttl), &complete(Verdict::Regressed)), None, "no time was given for that");
        assert_eq!(expiry(None, &complete(Verdict::Passed)), None);
        let running =
            BenchmarkRunStatus { conditions: of_run(RunState::Running, "", &stamp), ..BenchmarkRunStatus::default() };
        assert_eq!(expiry(Some(&ttl), &running), None);
    }
}
