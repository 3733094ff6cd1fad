//! Whatever a user may get wrong is answered with one line that names the file, the field and the remedy.
//!
//! The files are in `bad_input/`, one mistake each, in a folder for each kind or family. A file says itself what is expected:
//!
//! - its first line: `# storebench: FIELD | REMEDY`: the field that is named (`-`: the file as a whole), and a part of what is said
//! - `# API server: WHY`, if an API server takes it all the same (`testing/api-rules` asks Kubernetes' own library)
//! - `# in a cluster: WHY`, if it then does no harm, or `# operator: REMEDY`, if what is said there is something else
//!   (`testing/cluster/admission` asks a real cluster)
//!
//! What would be silly as a file (empty, 2 MB, binary, nested ten thousand deep) is made below.

#![allow(clippy::unwrap_used, reason = "a test: a file that does not read is a failure")]

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::Value;
use storebench_core::input::{InputErrors, load};
use storebench_crds::document::{DOCUMENTS_MAX, FILE_BYTES_MAX, InputError, KINDS};
use storebench_crds::schema;

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn load_all(file: &str, bytes: &[u8]) -> Result<(), InputErrors> {
    load(&[(file.into(), bytes.into())], Path::new("")).map(|_| ())
}

fn load_one(file: &str, bytes: &[u8]) -> Result<(), InputError> {
    load_all(file, bytes).map_err(|errors| errors.first)
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

/// Every file of `bad_input/` with its path below it.
fn bad_files() -> Vec<(String, String)> {
    let mut files = Vec::new();
    for folder in std::fs::read_dir(directory("bad_input")).unwrap().map(|entry| entry.unwrap()) {
        let folder_name = folder.file_name().into_string().unwrap();
        assert!(folder.path().is_dir(), "bad_input/{folder_name}: put it into the folder of its kind or family");
        for file in std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap()) {
            let name = format!("{folder_name}/{}", file.file_name().into_string().unwrap());
            files.push((name, std::fs::read_to_string(file.path()).unwrap()));
        }
    }
    files.sort();
    files
}

#[test]
fn every_mistake_is_answered_with_field_and_remedy() {
    let files = bad_files();
    assert!(files.len() >= 150, "only {} files: were they moved?", files.len());
    let mut wrong = Vec::new();
    for (file, text) in &files {
        let expected = text.lines().next().and_then(|line| line.strip_prefix("# storebench: ")?.split_once(" | "));
        let Some((field, remedy)) = expected else {
            wrong.push(format!("{file}: its first line is not `# storebench: FIELD | REMEDY`"));
            continue;
        };
        match load_all(file, text.as_bytes()) {
            Ok(()) => wrong.push(format!("{file} was accepted")),
            Err(errors) if !errors.others.is_empty() => {
                wrong.push(format!("{file} has one mistake, and this is said of it:\n{errors}"));
            }
            Err(InputErrors { first: error, .. }) => {
                let line = line_of(&error, file);
                if error.field != field.trim_start_matches('-') || !error.problem.contains(remedy) {
                    wrong.push(format!("{line}\n  is not about {field}, or does not say: {remedy}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The messages of all rules in CEL below a schema, but for those about a change.
fn messages(schema: &Value, found: &mut Vec<String>) {
    let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
    let of_a_state = rules.filter(|rule| !rule["rule"].as_str().unwrap().contains("oldSelf"));
    found.extend(of_a_state.map(|rule| rule["message"].as_str().unwrap().to_owned()));
    match schema {
        Value::Object(fields) => fields.values().for_each(|inner| messages(inner, found)),
        Value::Array(items) => items.iter().for_each(|inner| messages(inner, found)),
        _ => {}
    }
}

#[test]
fn every_rule_has_a_file_that_breaks_it() {
    let files = bad_files();
    let first_lines = files.iter().filter_map(|(_, text)| text.lines().next()?.split_once(" | "));
    let remedies: Vec<&str> = first_lines.map(|(_, remedy)| remedy).collect();
    let mut all = Vec::new();
    KINDS.iter().for_each(|kind| messages(&schema::of_kind(kind).unwrap(), &mut all));
    assert!(all.len() >= 100, "only {} rules", all.len());
    let without: Vec<&String> =
        all.iter().filter(|message| !remedies.iter().any(|remedy| message.contains(remedy))).collect();
    assert!(without.is_empty(), "no file in bad_input/ expects: {without:#?}");
}

/// Four mistakes in two objects; what refers to the one that is wrong is no fifth.
const SEVERAL: &str = "\
apiVersion: storebench.dev/v1alpha1
kind: StorageService
metadata: { name: redis }
spec: { engine: redis }
---
apiVersion: storebench.dev/v1alpha1
kind: BenchmarkRun
metadata: { name: demo }
spec:
  arms:
  - { name: redis, baseline: true, serviceRef: { name: redis } }
  - { name: valkey, serviceRef: { name: redis } }
  workloads:
  - name: set
    redis: { command: Set, valueByte: 5 }
    load: { connections: 5, duration: 5s }
  trials: { min: 12 }
  gates:
  - { arm: vlakey, metric: ThroughputPerSecond, ratioAtLeast: 95% }
";

#[test]
fn all_mistakes_are_told_at_once() {
    let errors = load_all("several.yaml", SEVERAL.as_bytes()).unwrap_err();
    let said: Vec<String> = errors.iter().map(|error| line_of(error, "several.yaml")).collect();
    let fields = [
        "StorageService/redis spec.engine",
        "BenchmarkRun/demo spec.workloads[0].redis.valueByte",
        "BenchmarkRun/demo spec.trials.min",
        "BenchmarkRun/demo spec.gates[0].arm",
    ];
    assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), fields, "{said:#?}");
    for (line, part) in
        said.iter().zip(["did you mean Redis?", "did you mean valueBytes?", "give both", "did you mean valkey?"])
    {
        assert!(line.contains(part), "{line}");
    }
}

/// That no arm is the baseline hid that a ratio is a text, so that a third round told it.
#[test]
fn what_a_bound_is_compared_with_does_not_hide_how_it_is_written() {
    let text = SEVERAL
        .replace("engine: redis", "engine: Redis")
        .replace("Byte: 5", "Bytes: 5")
        .replace("baseline: true, ", "");
    let text = text.replace("arm: vlakey", "arm: valkey").replace("95%", "95");
    let errors = load_all("ratio.yaml", text.as_bytes()).unwrap_err();
    let said: Vec<String> = errors.iter().map(|error| line_of(error, "ratio.yaml")).collect();
    for part in ["must be a text, not the number 95", "no arm has baseline: true"] {
        assert!(said.iter().any(|line| line.contains(part)), "{said:#?}");
    }
}

#[test]
fn no_more_is_said_than_anybody_reads() {
    let fields = (0..5_000).map(|index| format!("  wrong{index}: 1\n"));
    let errors = load_all("much.yaml", format!("{SERVICE}{}", fields.collect::<String>()).as_bytes()).unwrap_err();
    assert_eq!(errors.iter().count(), 50);
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
    let cases: [(&str, Vec<u8>, &str); 10] = [
        ("empty", Vec::new(), "write a BenchmarkRun and its StorageServices"),
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
    let line = line_of(&load(&[first, second], Path::new("")).unwrap_err().first, "second.yaml");
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
