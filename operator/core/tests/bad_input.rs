//! Whatever a user may get wrong is answered with one line that names the file, the field and the remedy.
//!
//! The files are in `bad_input/`, one mistake each; `testing/api-rules` asks Kubernetes' own library about the same files.
//! What would be silly as a file (2 MB, binary, nested ten thousand deep) is made below.

#![allow(clippy::unwrap_used, reason = "a test: a file that does not read is a failure")]

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use storebench_core::input::load;
use storebench_crds::document::{DOCUMENTS_MAX, FILE_BYTES_MAX, InputError};

/// File, then the field that must be named (`-`: the file as a whole), then a part of the remedy.
const CASES: &str = "\
001-empty | - | write a BenchmarkRun and its StorageServices
002-only-comments | - | write a BenchmarkRun and its StorageServices
003-list-at-top | document 1 | start with apiVersion, kind, metadata and spec
004-text-at-top | document 1 | start with apiVersion, kind, metadata and spec
005-tabs | - | line 5, column 2: tabs disallowed within this context (block indentation): indent with spaces
006-unclosed-quote | - | correct the indentation or the quotes there
007-wrong-indentation | - | line 8, column 3: while parsing a block mapping, did not find expected key: correct
008-duplicate-key | - | line 8, column 3: `engine` is given twice: remove one of them
009-alias-bomb | - | write it out without nested aliases
010-unknown-alias | - | define the anchor with &
011-unknown-kind | document 1 kind | write StorageService, ControlPlane or BenchmarkRun
012-wrong-api-version | document 1 apiVersion | write storebench.dev/v1alpha1
013-missing-api-version | document 1 apiVersion | write apiVersion: storebench.dev/v1alpha1
014-missing-kind | document 1 kind | write StorageService, ControlPlane or BenchmarkRun
015-missing-metadata | document 1 metadata.name | give the object a name
016-missing-name | document 1 metadata.name | give the object a name
017-name-is-a-number | document 1 metadata.name | put it in quotes
018-name-with-capitals | document 1 metadata.name | use at most 63 of a-z
019-name-with-dots | document 1 metadata.name | use at most 63 of a-z
020-generated-name | document 1 metadata.name | give the object a name
021-unknown-metadata | StorageService/etcd metadata.lables | did you mean labels?
022-label-is-a-number | StorageService/etcd metadata.labels.version | put it in quotes
023-label-with-spaces | StorageService/etcd metadata.labels.team | use at most 63 of a-z, A-Z
024-unknown-top-field | StorageService/etcd engine | put it under spec, or remove it
025-missing-spec | StorageService/etcd spec | say what you want under spec
026-empty-spec | StorageService/etcd spec | give it a value or remove the field
027-spec-is-a-list | StorageService/etcd spec | write its fields below it, indented
028-two-services-of-one-name | StorageService/etcd metadata.name | choose another name
029-two-runs-of-one-name | BenchmarkRun/demo metadata.name | choose another name
030-misspelt-field | StorageService/etcd spec.durabilty | did you mean durability?
031-foreign-field | StorageService/etcd spec.clusterSize | the fields here are args, durability, engine
032-missing-engine | StorageService/etcd spec.engine | set it to one of Etcd, Rusd, Redis, Valkey
033-unknown-engine | StorageService/etcd spec.engine | use one of Etcd, Rusd, Redis, Valkey
034-engine-in-lower-case | StorageService/etcd spec.engine | use one of Etcd, Rusd, Redis, Valkey
035-two-replicas | StorageService/etcd spec.replicas | replicas must be 1, 3 or 5
036-redis-replicated | StorageService/redis spec.replicas | set replicas: 1
037-replicas-as-text | StorageService/etcd spec.replicas | remove the quotes
038-replicas-as-fraction | StorageService/etcd spec.replicas | write digits only
039-replicas-as-float | StorageService/etcd spec.replicas | write digits only
040-negative-replicas | StorageService/etcd spec.replicas | replicas must be 1, 3 or 5
041-etcd-interval | StorageService/etcd spec.durability | use Fsync or None
042-unknown-durability | StorageService/etcd spec.durability | use one of Fsync, Interval, None
043-image-latest | StorageService/etcd spec.image | image must be pinned by a tag other than latest, or by digest
044-image-without-tag | StorageService/etcd spec.image | image must be pinned by a tag other than latest, or by digest
045-version-as-number | StorageService/etcd spec.version | put it in quotes
046-bad-storage-size | StorageService/etcd spec.storage.size | write it like 10Gi
047-bad-quantity | StorageService/etcd spec.resources.limits.memory | write it like 512Mi
048-tls-without-secret | StorageService/etcd spec.tls.secretName | add it (A Secret of type `kubernetes.io/tls`
049-args-not-a-list | StorageService/etcd spec.args | start each item with `- `
050-env-without-name | StorageService/etcd spec.env[0].name | add it (Name of the environment variable
051-reserved-flag | StorageService/etcd spec.args[0] | remove it
052-reserved-flag-one-dash | StorageService/etcd spec.args[0] | remove it
053-reserved-flag-with-value | StorageService/redis spec.args[0] | remove it
054-reserved-variable | StorageService/etcd spec.env[0].name | remove it
055-no-arms | BenchmarkRun/demo spec.arms | give at least 1
056-five-arms | BenchmarkRun/demo spec.arms | give at most 4
057-two-baselines | BenchmarkRun/demo spec.arms | at most one arm may have baseline: true
058-two-arms-of-one-name | BenchmarkRun/demo spec.arms | arms must have distinct names
059-bad-arm-name | BenchmarkRun/demo spec.arms[1].name | write it like etcd-fsync
060-arm-without-service | BenchmarkRun/demo spec.arms[1] | give exactly one of serviceRef, controlPlaneRef or kubeconfigSecretRef
061-arm-is-a-text | BenchmarkRun/demo spec.arms[1] | write its fields below it, indented
062-unknown-service | BenchmarkRun/demo spec.arms[1].serviceRef.name | add it, or name one of etcd
063-wrong-protocol | BenchmarkRun/demo spec.arms[1].serviceRef.name | choose another workload or another service
064-no-workloads | BenchmarkRun/demo spec.workloads | give at least 1
065-nine-workloads | BenchmarkRun/demo spec.workloads | give at most 8
066-two-workloads-of-one-name | BenchmarkRun/demo spec.workloads | workloads must have distinct names
067-no-family | BenchmarkRun/demo spec.workloads[0] | give exactly one workload family: etcd, redis
068-two-families | BenchmarkRun/demo spec.workloads[0] | give exactly one workload family: etcd, redis
069-two-protocols | BenchmarkRun/demo spec.workloads | split the run
070-unknown-operation | BenchmarkRun/demo spec.workloads[0].etcd.operation | use one of Put, Range, Delete
071-misspelt-parameter | BenchmarkRun/demo spec.workloads[0].etcd.valueByte | did you mean valueBytes?
072-limit-without-prefix | BenchmarkRun/demo spec.workloads[0].etcd.limit | remove limit
073-mixed-without-read-percent | BenchmarkRun/demo spec.workloads[0].etcd.readPercent | say how many of 100 requests
074-read-percent-without-mixed | BenchmarkRun/demo spec.workloads[0].etcd.readPercent | remove readPercent
075-read-percent-above-100 | BenchmarkRun/demo spec.workloads[0].etcd.readPercent | give a number from 0 to 100
076-watchers-without-watch | BenchmarkRun/demo spec.workloads[0].etcd.watchers | remove watchers
077-serializable-put | BenchmarkRun/demo spec.workloads[0].etcd.consistency | remove consistency
078-short-keys | BenchmarkRun/demo spec.workloads[0].etcd.keyBytes | give a number from 24 to 1024
079-rate-in-closed-loop | BenchmarkRun/demo spec.workloads[0].load.rate | set both, or neither for a closed loop
080-open-loop-without-rate | BenchmarkRun/demo spec.workloads[0].load.rate | set both, or neither for a closed loop
081-total-and-duration | BenchmarkRun/demo spec.workloads[0].load | give exactly one of total or duration
082-no-total-no-duration | BenchmarkRun/demo spec.workloads[0].load | give exactly one of total or duration
083-zero-connections | BenchmarkRun/demo spec.workloads[0].load.connections | give a number from 1 to 10000
084-zero-clients | BenchmarkRun/demo spec.workloads[0].load.clients | give a number from 1 to 100000
085-clients-below-connections | BenchmarkRun/demo spec.workloads[0].load.clients | must be at least load.connections
086-clients-differ-for-redis | BenchmarkRun/demo spec.workloads[0].load.clients | use redis.pipeline
087-threads-above-connections | BenchmarkRun/demo spec.workloads[0].load.threads | each thread owns at least one
088-connections-as-text | BenchmarkRun/demo spec.workloads[0].load.connections | remove the quotes
089-connections-as-word | BenchmarkRun/demo spec.workloads[0].load.connections | give a number from 1 to 10000
090-negative-total | BenchmarkRun/demo spec.workloads[0].load.total | give a number from 1 to 1000000000
091-astronomic-total | BenchmarkRun/demo spec.workloads[0].load.total | give a number from 1 to 1000000000
092-duration-in-words | BenchmarkRun/demo spec.workloads[0].load.duration | write it like 500ms, 5s, 2m or 1h
093-duration-as-number | BenchmarkRun/demo spec.workloads[0].load.duration | add a unit, as in 5s
094-duration-as-fraction | BenchmarkRun/demo spec.workloads[0].load.duration | write it like 500ms, 5s, 2m or 1h
095-empty-rate | BenchmarkRun/demo spec.workloads[0].load.rate | give it a value or remove the field
096-min-above-max | BenchmarkRun/demo spec.trials.min | trials.min must not exceed trials.max
097-no-trials | BenchmarkRun/demo spec.trials.max | give a number from 1 to 30
098-empty-trials | BenchmarkRun/demo spec.trials | give it a value or remove the field
099-unknown-isolation | BenchmarkRun/demo spec.isolation | use one of Fresh, Shared
100-no-load-pods | BenchmarkRun/demo spec.parallelism | give a number from 1 to 64
101-suspend-as-text | BenchmarkRun/demo spec.suspend | write one of them, without quotes
102-bad-time-to-live | BenchmarkRun/demo spec.ttl.success | write it like 500ms, 5s, 2m or 1h
103-gate-on-unknown-metric | BenchmarkRun/demo spec.gates[0].metric | use one of ThroughputPerSecond
104-gate-without-metric | BenchmarkRun/demo spec.gates[0].metric | set it to one of ThroughputPerSecond
105-gate-on-unknown-arm | BenchmarkRun/demo spec.gates | arm must name one of spec.arms
106-gate-on-unknown-workload | BenchmarkRun/demo spec.gates | workload must name one of spec.workloads
107-gate-without-baseline | BenchmarkRun/demo spec.gates | baseline: true; mark one
108-gate-on-the-baseline | BenchmarkRun/demo spec.gates | or give atLeast or atMost
109-gate-with-two-bounds | BenchmarkRun/demo spec.gates[0] | give exactly one bound: atLeast, atMost
110-gate-without-bound | BenchmarkRun/demo spec.gates[0] | give exactly one bound: atLeast, atMost
111-gate-with-percent | BenchmarkRun/demo spec.gates[0].ratioAtLeastBasisPoints | give a number from 1 to 10000000
112-gate-with-few-trials | BenchmarkRun/demo spec.trials.min | set trials.min to 3 or more
113-gate-with-few-first-trials | BenchmarkRun/demo spec.trials.min | set trials.min to 3 or more
114-gate-across-durability | BenchmarkRun/demo spec.gates[0] | make the two services alike, or gate on
115-gate-across-replicas | BenchmarkRun/demo spec.gates[0] | make the two services alike, or gate on
116-zero-duration | BenchmarkRun/demo spec.workloads[0].load.duration | must be longer than 0
117-zero-timeout | BenchmarkRun/demo spec.workloads[0].load.timeout | must be longer than 0
118-trials-too-short | BenchmarkRun/demo spec.trials.timeout | set it above that, with room for start-up
119-previous-value-of-a-put | BenchmarkRun/demo spec.workloads[0].etcd.previousValue | remove previousValue
120-bad-service-name | BenchmarkRun/demo spec.arms[1].serviceRef.name | write it like etcd;
121-argument-with-line-break | StorageService/redis spec.args[0] | remove it
122-number-as-key | StorageService/etcd metadata.3 | the fields here are annotations, finalizers, labels, name
123-escape-in-name | document 1 metadata.name | use at most 63 of a-z
124-idle-load-pods | BenchmarkRun/demo spec.parallelism | must not exceed load.connections
125-load-pods-without-keys | BenchmarkRun/demo spec.parallelism | must not exceed load.total or keySpace
126-load-pods-without-requests | BenchmarkRun/demo spec.parallelism | must not exceed load.total or keySpace
127-transaction-above-share | BenchmarkRun/demo spec.parallelism | as many keys
128-watch-of-many-load-pods | BenchmarkRun/demo spec.parallelism | parallelism must be 1 where etcd watches
129-two-references | BenchmarkRun/demo spec.arms[0] | give exactly one of serviceRef, controlPlaneRef or kubeconfigSecretRef
130-unknown-control-plane | BenchmarkRun/demo spec.arms[0].controlPlaneRef.name | add it, or name one of on-etcd
131-control-plane-on-redis | ControlPlane/on-etcd spec.serviceRef.name | name a service of another engine
132-control-plane-on-nothing | ControlPlane/on-etcd spec.serviceRef.name | add it, or name one of etcd
133-kubernetes-on-a-store | BenchmarkRun/demo spec.arms[0].serviceRef.name | name a ControlPlane on it
134-etcd-on-a-control-plane | BenchmarkRun/demo spec.arms[0].controlPlaneRef.name | use kubernetes workloads, or a serviceRef
135-unlike-nodes | BenchmarkRun/demo spec.arms[1].controlPlaneRef.name | make them alike
136-unlike-versions | BenchmarkRun/demo spec.arms[1].controlPlaneRef.name | make them alike
137-two-control-planes-of-one-name | ControlPlane/on-etcd metadata.name | choose another name
138-no-nodes | ControlPlane/on-etcd spec.nodes | give a number from 1 to 5000
139-kubernetes-version-with-v | ControlPlane/on-etcd spec.kubernetesVersion | write it like 1.34.4
140-replicas-of-config-maps | BenchmarkRun/demo spec.workloads[0].kubernetes.replicas | remove replicas
141-no-pod-may-be-replaced | BenchmarkRun/demo spec.workloads[0].kubernetes | must not both be 0
142-surge-above-all | BenchmarkRun/demo spec.workloads[0].kubernetes.maxSurge | write it like 25%
143-surge-of-config-maps | BenchmarkRun/demo spec.workloads[0].kubernetes | remove them
144-each-pod-of-a-rolling-update | BenchmarkRun/demo spec.workloads[0].kubernetes.latencyOf | remove latencyOf
145-watchers-of-nothing | BenchmarkRun/demo spec.workloads[0].kubernetes.watchers | remove watchers
146-objects-of-creations | BenchmarkRun/demo spec.workloads[0].kubernetes.objects | use load.total
147-no-objects-to-change | BenchmarkRun/demo spec.workloads[0].kubernetes.objects | must be at least load.connections
148-mixed-churn-without-read-percent | BenchmarkRun/demo spec.workloads[0].kubernetes.readPercent | say how many of 100 requests read
149-delete-namespaces-for-a-time | BenchmarkRun/demo spec.workloads[0].load.total | needs load.total
150-threads-of-list-and-watch | BenchmarkRun/demo spec.workloads[0].load.threads | must be 1
151-fewer-objects-than-clients | BenchmarkRun/demo spec.workloads[0].kubernetes.objects | must be at least load.connections
152-clients-differ-for-kubernetes | BenchmarkRun/demo spec.workloads[0].load.clients | set connections
153-load-pods-of-kubernetes | BenchmarkRun/demo spec.parallelism | parallelism must be 1 for kubernetes
154-etcd-on-a-cluster | BenchmarkRun/demo spec.arms[0].kubeconfigSecretRef.name | use kubernetes workloads
155-a-cluster-beside-a-control-plane | BenchmarkRun/demo spec.arms[1].controlPlaneRef.name | give all arms a kubeconfigSecretRef, or none
156-bad-secret-name | BenchmarkRun/demo spec.arms[0].kubeconfigSecretRef.name | write it like pair-etcd
157-rusd-none | StorageService/rusd spec.durability | use Fsync
158-reserved-variable-of-rusd | StorageService/rusd spec.env[0].name | remove it
159-gate-on-a-measure-of-another-family | BenchmarkRun/demo spec.gates[0].metric | is measured by etcd workloads only";

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn load_one(file: &str, bytes: &[u8]) -> Result<(), InputError> {
    load(&[(file.into(), bytes.into())]).map(|_| ())
}

/// An error as it must always be: one line of readable length that starts with the file's name.
#[track_caller]
fn line_of(error: &InputError, file: &str) -> String {
    let line = error.to_string();
    assert!(line.starts_with(&format!("{file}: ")), "the file is not named: {line}");
    assert!(!line.chars().any(char::is_control), "more than a line, or control characters: {line:?}");
    assert!(line.len() < 500, "{} bytes: {line}", line.len());
    line
}

#[test]
fn every_mistake_is_answered_with_field_and_remedy() {
    let mut files: Vec<String> = std::fs::read_dir(directory("bad_input"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let cases: Vec<Vec<&str>> = CASES.lines().map(|case| case.split(" | ").collect()).collect();
    let expected: Vec<String> = cases.iter().map(|case| format!("{}.yaml", case[0])).collect();
    assert_eq!(files, expected, "the files and the table differ");
    assert!(cases.len() >= 48, "only {} cases", cases.len());
    let mut wrong = Vec::new();
    for (file, case) in files.iter().zip(&cases) {
        let [_, field, remedy] = case[..] else { panic!("{case:?} is not `file | field | remedy`") };
        let bytes = std::fs::read(directory("bad_input").join(file)).unwrap();
        match load_one(file, &bytes) {
            Ok(()) => wrong.push(format!("{file} was accepted")),
            Err(error) => {
                let line = line_of(&error, file);
                if error.field != field.trim_start_matches('-') || !error.problem.contains(remedy) {
                    wrong.push(format!("{line}\n  is not about {field}, or does not say: {remedy}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const SERVICE: &str = "\
apiVersion: storebench.dev/v1alpha1
kind: StorageService
metadata:
  name: etcd
spec:
  engine: Etcd
";

#[test]
fn what_is_no_text_file_is_refused() {
    const NOT_TEXT: &str = "is not text: pass a YAML file in UTF-8";
    let utf16 = SERVICE.encode_utf16().flat_map(u16::to_le_bytes);
    let blocks = (0..1_000).flat_map(|depth| format!("{}a:\n", " ".repeat(depth)).into_bytes());
    let cases: [(&str, Vec<u8>, &str); 9] = [
        ("executable", b"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00".to_vec(), NOT_TEXT),
        ("compressed", vec![0x1f, 0x8b, 0x08, 0xff, 0xfe, 0x80], NOT_TEXT),
        ("zeroes", vec![0; 4096], NOT_TEXT),
        ("utf-16", [0xff, 0xfe].into_iter().chain(utf16).collect(), NOT_TEXT),
        ("latin-1", b"# caf\xe9\n".iter().copied().chain(SERVICE.bytes()).collect(), NOT_TEXT),
        ("nested-flow", b"[".repeat(10_000), "is not valid YAML at line 1"),
        ("nested-blocks", blocks.collect(), "is not valid YAML at line"),
        ("nested-items", b"- ".repeat(10_000), "is not valid YAML at line 1"),
        ("one-long-line", b"x".repeat(1_000_000), "start with apiVersion"),
    ];
    for (name, bytes, remedy) in cases {
        let line = line_of(&load_one(name, &bytes).unwrap_err(), name);
        assert!(line.contains(remedy), "{line}");
    }
}

#[test]
fn a_long_text_is_not_repeated_in_full() {
    let long = "x".repeat(900_000);
    let mut texts: Vec<String> = ["Etcd", "engine", "name", "etcd", "spec", "StorageService", "v1alpha1"]
        .iter()
        .map(|part| SERVICE.replace(part, &long))
        .collect();
    for field in
        ["image: LONG", "args: LONG", "LONG: 1", "pod: {nodeSelector: {\"\\e[2J\\nLONG\": 5}}", "? LONG\n  : 5"]
    {
        texts.push(format!("{SERVICE}  {}\n", field.replace("LONG", &long[..900])));
    }
    for text in texts {
        line_of(&load_one("long.yaml", text.as_bytes()).unwrap_err(), "long.yaml");
    }
}

#[test]
fn a_large_file_is_refused_before_it_is_parsed() {
    const { assert!(FILE_BYTES_MAX < 2_000_000, "2 MB stand for 200 MB here") };
    // Valid but for its size.
    let padded = |bytes: usize| {
        let mut text = String::from(SERVICE) + "#";
        text.extend(std::iter::repeat_n('x', bytes - text.len()));
        text.into_bytes()
    };
    for bytes in [FILE_BYTES_MAX + 1, 2_000_000] {
        let line = line_of(&load_one("large.yaml", &padded(bytes)).unwrap_err(), "large.yaml");
        assert!(line.contains("larger than 1024 KiB") && line.contains("pass a smaller file"), "{line}");
    }
    load_one("large.yaml", &padded(FILE_BYTES_MAX)).unwrap();
}

#[test]
fn too_many_objects_are_refused() {
    let file = |count: usize| {
        let objects = (0..count).map(|index| SERVICE.replace("name: etcd", &format!("name: etcd-{index}")));
        objects.collect::<Vec<_>>().join("---\n")
    };
    load_one("many.yaml", file(DOCUMENTS_MAX).as_bytes()).unwrap();
    let line = line_of(&load_one("many.yaml", file(DOCUMENTS_MAX + 1).as_bytes()).unwrap_err(), "many.yaml");
    assert!(line.ends_with("holds more than 64 objects: split the file"), "{line}");
}

#[test]
fn names_clash_across_files_too() {
    let [first, second] = ["first.yaml", "second.yaml"].map(|file| (file.to_string(), SERVICE.as_bytes().to_vec()));
    let line = line_of(&load(&[first, second]).unwrap_err(), "second.yaml");
    assert!(line.contains("already used by a StorageService in first.yaml: choose another name"), "{line}");
}

/// A file of `good_input/` with a few slips: a line dropped, doubled, swapped, indented or overwritten, or a value changed.
fn slips() -> impl Strategy<Value = String> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(directory("good_input")).unwrap().map(|entry| entry.unwrap().path()).collect();
    // A seed is only worth something if the order of the files does not depend on the file system.
    paths.sort();
    let texts: Vec<Vec<String>> =
        paths.iter().map(|path| std::fs::read_to_string(path).unwrap().lines().map(String::from).collect()).collect();
    let slip = (any::<prop::sample::Index>(), 0..6_u8, "[ -~é\t]{0,6}");
    (prop::sample::select(texts), prop::collection::vec(slip, 1..4)).prop_map(|(mut lines, slips)| {
        for (index, slip, text) in slips {
            let (at, middle) = (index.index(lines.len()), lines.len() / 2);
            match slip {
                0 => drop(lines.remove(at)),
                1 => lines.insert(at, lines[at].clone()),
                2 => lines.swap(at, middle),
                3 => lines[at].insert_str(0, "  "),
                4 => lines[at] = lines[at].split_once(": ").map_or(text.clone(), |(key, _)| format!("{key}: {text}")),
                _ => lines[at] = text,
            }
        }
        lines.join("\n")
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn any_bytes_are_answered_with_a_line(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Err(error) = load_one("any.yaml", &bytes) {
            line_of(&error, "any.yaml");
        }
    }

    #[test]
    fn any_text_is_answered_with_a_line(text in r#"[ \n\t#&*!|>'"%@`{}\[\],:?a-c0-2.~<=-]{0,60}"#) {
        if let Err(error) = load_one("any.yaml", text.as_bytes()) {
            line_of(&error, "any.yaml");
        }
    }

    #[test]
    fn any_slip_in_a_valid_file_is_answered_with_a_line(text in slips()) {
        if let Err(error) = load_one("slip.yaml", text.as_bytes()) {
            line_of(&error, "slip.yaml");
        }
    }
}
