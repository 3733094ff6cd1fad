//! What must be equal before two arms may be ranked: what they promise, and what bears on their performance but is none of their merit.
//!
//! Durability must be equal in any case. The other fields may differ where the run says so in `allowUnequal`, and results then name what
//! differs, so that nobody reads a faster disk as a faster store.

use std::collections::BTreeMap;

use serde::Serialize;
use storebench_crds::benchmark_run::ArmField;
use storebench_crds::engine::LinearizableReads;
use storebench_crds::storage_service::Durability;
use storebench_crds::workload::key_value::Door;
use storebench_crds::workload::{ReadsBy, Workload};

use crate::validated::{ExternalStore, Target, ValidatedArm, ValidatedRun, ValidatedService};

/// What an arm promises and stands on, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// What an acknowledged write survives. Absent: not known, as of a cluster that was there already and of which nobody stated it.
    pub durability: Option<Durability>,
    /// Members; 0 where it is not known.
    pub replicas: u32,
    /// Whether clients may ask for reads by a lease, and get them.
    pub has_lease_level: bool,
    /// Whether clients may ask by a stream of frames, and do where the workload wants it.
    pub has_streaming_door: bool,
    /// What the other fields say, in words; a field that says nothing is absent. Absent as a whole: nobody kept them.
    pub fields: Option<BTreeMap<ArmField, String>>,
}

impl Terms {
    /// Those of an arm; `None` where nobody knows its store.
    pub fn of_arm(arm: &ValidatedArm) -> Option<Self> {
        match &arm.target {
            Target::External(store) => Some(Self {
                durability: Some(store.durability),
                replicas: 1,
                has_lease_level: store.engine.protocol.has_lease_level(),
                has_streaming_door: store.engine.protocol.has_streaming_door(),
                fields: Some(of_external(store)),
            }),
            Target::Cluster(cluster) => Some(Self {
                durability: cluster.durability,
                replicas: 0,
                has_lease_level: false,
                has_streaming_door: false,
                fields: Some(BTreeMap::new()),
            }),
            Target::Service(_) | Target::ControlPlane(_) => arm.service().map(Self::of_service),
        }
    }

    /// Those of a service.
    fn of_service(service: &ValidatedService) -> Self {
        Self {
            durability: Some(service.durability),
            replicas: service.replicas,
            has_lease_level: service.engine.protocol.has_lease_level(),
            has_streaming_door: service.engine.protocol.has_streaming_door(),
            fields: Some(of_service(service)),
        }
    }

    /// How a group keeps reads of this workload from being stale; `None` where it does not read so, or has one member.
    fn reads(&self, workload: &Workload) -> Option<&str> {
        let by_engine = self.fields.as_ref()?.get(&ArmField::LinearizableReads)?;
        match workload.parameters.linearizable_reads()? {
            ReadsBy::Lease if self.has_lease_level => Some(BY_LEASE),
            ReadsBy::Lease | ReadsBy::Engine => Some(by_engine),
        }
    }

    /// How requests of this workload reach the store; `None` where no store has a choice.
    fn door(&self, workload: &Workload) -> Option<&'static str> {
        Some(match workload.parameters.door()? {
            Door::Streaming if self.has_streaming_door => "Streaming",
            Door::Streaming | Door::Unary => "Unary",
        })
    }
}

/// In what two arms differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// What the run does not allow, so that they are not ranked. Absent: nothing.
    pub forbidden: Option<String>,
    /// What the run allows. Absent: nothing.
    pub allowed: Option<String>,
}

/// Of records from before fields were kept. Two arms of which nobody knows whether they are equal are not.
const UNKNOWN: &str = "in what else they differ is not known, for the record is from before that was kept: run again";
const BY_LEASE: &str = "by a lease, which trusts clocks";
const BY_ROUND: &str = "by a round among members";

/// What the fields of an arm's service say.
pub fn fields(arm: &ValidatedArm) -> BTreeMap<ArmField, String> {
    match &arm.target {
        Target::External(store) => of_external(store),
        Target::Service(_) | Target::ControlPlane(_) | Target::Cluster(_) => {
            arm.service().map(of_service).unwrap_or_default()
        }
    }
}

/// On what it runs and how it is set up is known to nobody here.
fn of_external(store: &ExternalStore) -> BTreeMap<ArmField, String> {
    [(ArmField::External, store.place())].into()
}

fn of_service(service: &ValidatedService) -> BTreeMap<ArmField, String> {
    let spec = &service.spec;
    let mut fields = BTreeMap::new();
    let mut say = |field, text: Option<String>| {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            fields.insert(field, text);
        }
    };
    say(ArmField::Args, Some(service.args.join(" ")));
    let mut variables: Vec<String> = spec.env.iter().map(json).collect();
    variables.sort();
    say(ArmField::Env, Some(variables.join(" ")));
    say(
        ArmField::Storage,
        spec.storage.as_ref().map(|storage| {
            let class = storage.storage_class_name.as_deref().unwrap_or("the default class");
            format!("a claim of {} in {class}", storage.size)
        }),
    );
    say(ArmField::Resources, spec.resources.as_ref().map(json));
    say(ArmField::Pod, spec.pod.as_ref().filter(|pod| **pod != Default::default()).map(json));
    say(ArmField::LinearizableReads, reads(service));
    fields
}

/// How a group of this service keeps linearizable reads from being stale. A single member need not.
fn reads(service: &ValidatedService) -> Option<String> {
    let reads = service.engine.linearizable_reads.filter(|_| service.replicas > 1)?;
    let is_by_lease = match reads {
        LinearizableReads::ByRound => false,
        LinearizableReads::ByLease => true,
        LinearizableReads::ByLeaseUnless { flag, value } => told(service, flag) != Some(value),
    };
    Some(if is_by_lease { BY_LEASE } else { BY_ROUND }.to_owned())
}

/// What a store is told by a flag, as it reads it: the last argument counts, and a variable only without one.
fn told<'a>(service: &'a ValidatedService, flag: &str) -> Option<&'a str> {
    let next = service.args.iter().skip(1).map(Some).chain([None]);
    let told = service.args.iter().zip(next).filter_map(|(argument, next)| {
        match argument.trim_start_matches('-').strip_prefix(flag)? {
            "" => next.map(String::as_str),
            value => value.strip_prefix('='),
        }
    });
    told.last().or_else(|| {
        let variable = flag.to_uppercase().replace('-', "_");
        let variable = format!("{}{variable}", service.engine.environment_prefix?);
        let named = service.env.iter().rev().find(|(name, _)| *name == variable);
        named.map(|(_, value)| value.as_str())
    })
}

fn json<T: Serialize>(value: &T) -> String {
    // Objects of the API have nothing in them that JSON has not.
    serde_json::to_string(value).unwrap_or_default()
}

/// In what an arm differs from the baseline, where this workload shows it.
pub fn differences(arm: &Terms, baseline: &Terms, workload: &Workload, allowed: &[ArmField]) -> Differences {
    let mut forbidden = Vec::new();
    let mut permitted = Vec::new();
    // Two of which nobody knows it are compared all the same, and reports say so.
    if arm.durability != baseline.durability {
        let known =
            |durability: Option<Durability>| durability.map_or("not known".into(), |class| format!("{class:?}"));
        forbidden.push(format!("durability {} against {}", known(arm.durability), known(baseline.durability)));
    }
    let (Some(ones), Some(others)) = (&arm.fields, &baseline.fields) else {
        forbidden.push(UNKNOWN.to_owned());
        return Differences { forbidden: Some(forbidden.join("; ")), allowed: None };
    };
    let mut differs = |field: ArmField, text: String| {
        if allowed.contains(&field) { permitted.push(text) } else { forbidden.push(text) }
    };
    if arm.replicas != baseline.replicas {
        differs(ArmField::Replicas, format!("{} replicas against {}", arm.replicas, baseline.replicas));
    }
    let each =
        [ArmField::External, ArmField::Args, ArmField::Env, ArmField::Storage, ArmField::Resources, ArmField::Pod];
    for field in each {
        let [one, other] = [ones, others].map(|fields| fields.get(&field).map(|text| shortened(text)));
        if ones.get(&field) != others.get(&field) {
            let nothing = || if field == ArmField::Storage { "an emptyDir" } else { "none" }.to_owned();
            let (one, other) = (one.unwrap_or_else(nothing), other.unwrap_or_else(nothing));
            differs(field, format!("{} {one} against {other}", field.name()));
        }
    }
    if let (Some(one), Some(other)) = (arm.reads(workload), baseline.reads(workload))
        && one != other
    {
        differs(ArmField::LinearizableReads, format!("linearizableReads {one}, against {other}"));
    }
    if let (Some(one), Some(other)) = (arm.door(workload), baseline.door(workload))
        && one != other
    {
        differs(ArmField::Door, format!("door {one} against {other}"));
    }
    let text = |all: Vec<String>| (!all.is_empty()).then(|| all.join("; "));
    Differences { forbidden: text(forbidden), allowed: text(permitted) }
}

/// What can be known before a run: that it compares nothing; or which of its arms will not be ranked against the baseline, why, and what to do; a
/// line for each reason of each arm. A gate that needs the ratio is refused elsewhere.
pub fn unranked(run: &ValidatedRun) -> Vec<String> {
    let Some(baseline) = run.arms.iter().find(|arm| arm.baseline) else {
        let all: Vec<&str> = run.arms.iter().map(|arm| arm.name.as_str()).collect();
        // One alone is meant to be measured, and compared with nothing.
        let line = format!(
            "nothing will be compared: no arm is the baseline: add baseline: true to one of {}",
            all.join(", ")
        );
        return if all.len() > 1 { vec![line] } else { Vec::new() };
    };
    let Some(terms) = Terms::of_arm(baseline) else { return Vec::new() };
    let mut lines = Vec::new();
    for arm in run.arms.iter().filter(|arm| arm.name != baseline.name) {
        let Some(own) = Terms::of_arm(arm) else { continue };
        // Which workloads show it: arms may differ in how they read, and that in reads alone.
        let mut workloads: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for workload in &run.spec.workloads {
            if let Some(reason) = differences(&own, &terms, workload, &run.spec.allow_unequal).forbidden {
                workloads.entry(reason).or_default().push(&workload.name);
            }
        }
        for (reason, of) in workloads {
            let everywhere = of.len() == run.spec.workloads.len();
            let place = if everywhere { String::new() } else { format!(" in {}", of.join(", ")) };
            let (arm, baseline, or) = (&arm.name, &baseline.name, permission(&own, &terms));
            lines.push(format!(
                "will not be ranked: {arm} against {baseline}{place}, for {reason}: make the two services alike{or}"
            ));
        }
    }
    lines
}

/// What else may be done about two that may not be ranked than to make them alike; empty: nothing, as no permission makes unequal
/// durability equal.
pub(crate) fn permission(one: &Terms, other: &Terms) -> &'static str {
    if one.durability == other.durability {
        ", or, if that is what you compare, name the field in spec.allowUnequal"
    } else {
        ""
    }
}

/// Enough to tell two values apart in a line of a report; the record has the rest.
fn shortened(text: &str) -> String {
    const CHARACTERS_MAX: usize = 80;
    if text.chars().count() <= CHARACTERS_MAX {
        return text.to_owned();
    }
    let beginning: String = text.chars().take(CHARACTERS_MAX).collect();
    format!("{beginning}…")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use storebench_crds::{StorageService, StorageServiceSpec};

    fn terms(spec: serde_json::Value) -> Terms {
        let spec: StorageServiceSpec = serde_json::from_value(spec).unwrap();
        Terms::of_service(&crate::validate::service(&StorageService::new("store", spec)).unwrap())
    }

    fn workload(parameters: serde_json::Value) -> Workload {
        let mut all = json!({ "name": "w", "load": { "duration": "1s" } });
        all.as_object_mut().unwrap().extend(parameters.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    }

    fn put() -> Workload {
        workload(json!({ "etcd": { "operation": "Put" } }))
    }

    #[test]
    fn whatever_bears_on_performance_is_named_and_forbidden_unless_the_run_allows_it_by_name() {
        let plain = terms(json!({ "engine": "Etcd" }));
        let cases = [
            (json!({ "args": ["--snapshot-count=5"] }), ArmField::Args, "args --snapshot-count=5 against none"),
            (
                json!({ "env": [{ "name": "GOGC", "value": "400" }] }),
                ArmField::Env,
                "env {\"name\":\"GOGC\",\"value\":\"400\"} against none",
            ),
            (
                json!({ "storage": { "size": "1Gi" } }),
                ArmField::Storage,
                "storage a claim of 1Gi in the default class against an emptyDir",
            ),
            (
                json!({ "resources": { "limits": { "cpu": "4" } } }),
                ArmField::Resources,
                "resources {\"limits\":{\"cpu\":\"4\"}} against none",
            ),
            (
                json!({ "pod": { "nodeSelector": { "disk": "fast" } } }),
                ArmField::Pod,
                "pod {\"nodeSelector\":{\"disk\":\"fast\"}} against none",
            ),
            (json!({ "replicas": 3 }), ArmField::Replicas, "3 replicas against 1"),
        ];
        for (mut spec, field, text) in cases {
            spec["engine"] = "Etcd".into();
            let unequal = terms(spec);
            let found = |allowed: &[ArmField]| differences(&unequal, &plain, &put(), allowed);
            assert_eq!(found(&[]), Differences { forbidden: Some(text.into()), allowed: None });
            assert_eq!(found(&[field]), Differences { forbidden: None, allowed: Some(text.into()) });
            let others: Vec<_> = [ArmField::Args, ArmField::Env].into_iter().filter(|other| *other != field).collect();
            assert_eq!(found(&others).forbidden.as_deref(), Some(text), "another field's permission");
            assert_eq!(differences(&unequal, &unequal, &put(), &[]), Differences::default());
        }
    }

    #[test]
    fn storage_classes_differ_as_much_as_an_empty_directory_and_a_claim() {
        let class =
            |name: &str| terms(json!({ "engine": "Etcd", "storage": { "size": "1Gi", "storageClassName": name } }));
        let found = differences(&class("ram"), &class("disk"), &put(), &[]).forbidden.unwrap();
        assert_eq!(found, "storage a claim of 1Gi in ram against a claim of 1Gi in disk");
    }

    #[test]
    fn arms_whose_fields_nobody_kept_are_not_equal_but_unknown() {
        let known = terms(json!({ "engine": "Etcd" }));
        let unknown = Terms { fields: None, ..known.clone() };
        let every = [ArmField::Args, ArmField::Env, ArmField::Storage, ArmField::Resources, ArmField::Pod];
        for (one, other) in [(&unknown, &known), (&known, &unknown), (&unknown, &unknown)] {
            let found = differences(one, other, &put(), &every);
            assert!(found.forbidden.unwrap().ends_with("from before that was kept: run again"));
        }
    }

    #[test]
    fn no_permission_makes_unequal_durability_equal() {
        let [fsync, none] = ["Fsync", "None"].map(|class| terms(json!({ "engine": "Etcd", "durability": class })));
        let every =
            [ArmField::Args, ArmField::Env, ArmField::Replicas, ArmField::Storage, ArmField::Resources, ArmField::Pod];
        assert_eq!(differences(&none, &fsync, &put(), &every).forbidden.unwrap(), "durability None against Fsync");
    }

    #[test]
    fn a_read_that_trusts_a_clock_is_no_read_that_asks_a_majority() {
        let group = |engine: &str, args: &[&str]| terms(json!({ "engine": engine, "replicas": 3, "args": args }));
        let (rusd, etcd, d_engine) = (group("Rusd", &[]), group("Etcd", &[]), group("DEngine", &[]));
        let range = workload(json!({ "etcd": { "operation": "Range" } }));
        let said = "linearizableReads by a lease, which trusts clocks, against by a round among members";
        let forbidden = |one: &Terms, workload: &Workload| differences(one, &etcd, workload, &[]).forbidden;
        assert_eq!(forbidden(&rusd, &range).as_deref(), Some(said));
        assert_eq!(forbidden(&rusd, &put()), None, "a write is none");
        let serializable = workload(json!({ "etcd": { "operation": "Range", "consistency": "Serializable" } }));
        assert_eq!(forbidden(&rusd, &serializable), None);
        for args in [&["--linearizable-reads=round"][..], &["--linearizable-reads", "round"]] {
            let found = differences(&group("Rusd", args), &etcd, &range, &[ArmField::Args]).forbidden;
            assert_eq!(found, None, "{args:?}");
        }
        let told = |args: &[&str], name: &str| {
            let env = json!([{ "name": name, "value": "round" }]);
            let told = terms(json!({ "engine": "Rusd", "replicas": 3, "args": args, "env": env }));
            differences(&told, &etcd, &range, &[ArmField::Args, ArmField::Env]).forbidden
        };
        // rusd reads etcd's variables, and of two arguments the last.
        assert_eq!(told(&[], "ETCD_LINEARIZABLE_READS"), None);
        assert_eq!(told(&[], "RUSD_LINEARIZABLE_READS").as_deref(), Some(said));
        assert_eq!(told(&["--linearizable-reads=lease"], "ETCD_LINEARIZABLE_READS").as_deref(), Some(said));
        let twice = ["--linearizable-reads=round", "--linearizable-reads=lease"];
        assert_eq!(told(&twice, "X").as_deref(), Some(said));
        let get = |level: &str| workload(json!({ "keyValue": { "operation": "Get", "readLevel": level } }));
        assert_eq!(forbidden(&d_engine, &get("Lease")).as_deref(), Some(said));
        assert_eq!(forbidden(&d_engine, &get("Linearizable")), None);
        assert_eq!(forbidden(&rusd, &get("Eventual")), None);
        let single = |engine: &str| terms(json!({ "engine": engine }));
        assert_eq!(differences(&single("Rusd"), &single("Etcd"), &range, &[]), Differences::default(), "one member");
    }

    #[test]
    fn what_acknowledges_from_memory_is_never_ranked_with_what_syncs() {
        let [original, memory, synced] = [("DEngineOriginal", "None"), ("DEngine", "None"), ("DEngine", "Fsync")]
            .map(|(engine, class)| terms(json!({ "engine": engine, "replicas": 3, "durability": class })));
        let all = [ArmField::LinearizableReads];
        let put = workload(json!({ "keyValue": { "operation": "Put" } }));
        let found = differences(&synced, &original, &put, &all).forbidden;
        assert_eq!(found.as_deref(), Some("durability Fsync against None"));
        assert_eq!(differences(&memory, &original, &put, &all), Differences::default());
        let get = workload(json!({ "keyValue": { "operation": "Get" } }));
        let found = differences(&memory, &original, &get, &[]).forbidden.unwrap();
        assert!(found.starts_with("linearizableReads by a round among members, against by a lease"), "{found}");
    }

    #[test]
    fn a_stream_of_frames_is_no_call_for_each_request() {
        let group = |engine: &str| terms(json!({ "engine": engine, "replicas": 3 }));
        let (etcd, d_engine) = (group("Etcd"), group("DEngine"));
        let by = |door: &str| workload(json!({ "keyValue": { "operation": "Put", "door": door } }));
        let found = differences(&d_engine, &etcd, &by("Streaming"), &[]);
        assert_eq!(found.forbidden.as_deref(), Some("door Streaming against Unary"));
        let found = differences(&d_engine, &etcd, &by("Streaming"), &[ArmField::Door]);
        let named = Differences { forbidden: None, allowed: Some("door Streaming against Unary".into()) };
        assert_eq!(found, named);
        assert_eq!(differences(&d_engine, &etcd, &by("Unary"), &[]), Differences::default());
        assert_eq!(differences(&d_engine, &d_engine, &by("Streaming"), &[]), Differences::default());
        let unsaid = workload(json!({ "keyValue": { "operation": "Put" } }));
        assert_eq!(differences(&d_engine, &etcd, &unsaid, &[]), Differences::default());
        // What d-engine has by its streaming RPC alone need not be said to be so.
        let lock = workload(json!({ "keyValue": { "operation": "Lock" } }));
        let found = differences(&d_engine, &etcd, &lock, &[]);
        assert_eq!(found.forbidden.as_deref(), Some("door Streaming against Unary"));
    }
}
