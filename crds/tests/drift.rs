//! The YAML in `crds/yaml/` is what the types generate, `docs/reference.md` too, and `peers/engines.tsv` what the table of engines says.
//! `UPDATE_CRDS=1 cargo test -p storebench-crds --test drift` rewrites them. What people pin by hand agrees with the table.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test: a file that does not read is a failure")]

use std::path::{Path, PathBuf};

use storebench_crds::engine::{Allocator, ENGINES, Source, listing};
use storebench_crds::{reference, schema};

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[track_caller]
fn is_checked_in(path: &Path, generated: &str) {
    if std::env::var_os("UPDATE_CRDS").is_some() {
        std::fs::write(path, generated).unwrap();
    }
    let checked_in = std::fs::read_to_string(path).unwrap_or_default();
    assert!(checked_in == generated, "{} has drifted from the types; run: make generate", path.display());
}

#[test]
fn checked_in_yaml_is_what_the_types_generate() {
    for definition in schema::definitions() {
        let path = project().join("crds/yaml").join(format!("{}.yaml", definition.spec.names.plural));
        is_checked_in(&path, &schema::to_yaml(&definition).unwrap());
    }
}

#[test]
fn scripts_read_what_the_table_of_engines_says() {
    is_checked_in(&project().join("peers/engines.tsv"), &listing::tsv());
}

#[test]
fn readers_read_what_the_types_say() {
    is_checked_in(&project().join("docs/reference.md"), &reference::markdown());
}

/// A version of `peers/versions`.
fn pinned(name: &str) -> Option<String> {
    let versions = std::fs::read_to_string(project().join("peers/versions")).unwrap();
    let mut lines = versions.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.find_map(|line| (line.first() == Some(&name)).then(|| line[1].to_owned()))
}

#[test]
fn a_peer_is_fetched_in_the_version_that_is_deployed_by_default() {
    for engine in ENGINES {
        match engine.source {
            Source::Crate(name) => {
                assert_eq!(engine.default_version, env!("CARGO_PKG_VERSION"), "{}", engine.name);
                let manifest = std::fs::read_to_string(project().join(format!("services/{name}/Cargo.toml")));
                let manifest = manifest.unwrap_or_else(|error| panic!("services/{name}/Cargo.toml: {error}"));
                assert!(manifest.contains(&format!("name = \"{name}\"")), "{}: no crate {name}", engine.name);
                let has_jemalloc = manifest.contains("\ntikv-jemallocator");
                assert_eq!(engine.allocator == Allocator::Jemalloc, has_jemalloc, "{name}: its row's allocator");
            }
            Source::ByHand(how) => assert!(how.contains(engine.default_version), "{}: {how}", engine.name),
            Source::Peer(name) | Source::PeerOnRequest(name) => {
                assert!(
                    project().join("peers/recipes").join(name).is_file(),
                    "{}: no peers/recipes/{name}",
                    engine.name
                );
                let version = pinned(name);
                let name = engine.name;
                assert_eq!(
                    version.as_deref(),
                    Some(engine.default_version),
                    "{name}: peers/versions and its row differ"
                );
            }
        }
    }
}

#[test]
fn status_is_never_current_before_a_controller_has_seen_it() {
    for definition in schema::definitions() {
        let kind = definition.spec.names.kind.as_str();
        let schema = schema::of_kind(kind).unwrap();
        // What others only read has no status, and is current as it is.
        assert_eq!(schema["properties"].get("status").is_none(), kind == "WorkloadTemplate", "{kind}");
        if kind == "WorkloadTemplate" {
            continue;
        }
        assert_eq!(schema["properties"]["status"]["default"], serde_json::json!({ "observedGeneration": -1 }));
    }
}

/// What `Warn` or `Shared` does stood in the types alone.
#[test]
fn every_value_of_a_choice_is_explained() {
    const VALUES_MAX: usize = 16;
    fn walk(path: &str, schema: &serde_json::Value, silent: &mut Vec<String>) {
        let description = schema["description"].as_str().unwrap_or_default();
        let values = schema["enum"].as_array().or_else(|| schema["items"]["enum"].as_array());
        for value in values.filter(|values| values.len() <= VALUES_MAX).into_iter().flatten() {
            let value = value.as_str().unwrap();
            if !description.contains(&format!(" {value}: ")) && !description.contains(&format!("`{value}`")) {
                silent.push(format!("{path}: {value}"));
            }
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            // Types of Kubernetes itself are explained by Kubernetes.
            if !matches!(name.as_str(), "env" | "resources" | "affinity" | "tolerations" | "conditions") {
                walk(&format!("{path}.{name}"), property, silent);
            }
        }
        if let Some(items) = schema.get("items").filter(|items| items.get("enum").is_none()) {
            walk(path, items, silent);
        }
    }
    let mut silent = Vec::new();
    for kind in schema::definitions().into_iter().map(|definition| definition.spec.names.kind) {
        walk(&kind, &schema::of_kind(&kind).unwrap(), &mut silent);
    }
    assert_eq!(silent, Vec::<String>::new());
}

/// `kubectl explain` must be enough to write a run by hand.
#[test]
fn every_field_a_user_writes_is_explained() {
    fn walk(path: &str, schema: &serde_json::Value, missing: &mut Vec<String>) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            if property["description"].as_str().is_none_or(str::is_empty) {
                missing.push(path.clone());
            }
            // Types of Kubernetes itself are explained by Kubernetes.
            if !matches!(name.as_str(), "env" | "resources" | "affinity" | "tolerations") {
                walk(&path, property, missing);
                walk(&path, &property["items"], missing);
            }
        }
    }
    for kind in schema::definitions().into_iter().map(|definition| definition.spec.names.kind) {
        let kind = kind.as_str();
        let mut missing = Vec::new();
        walk(kind, &schema::of_kind(kind).unwrap(), &mut missing);
        missing.retain(|path| !path.ends_with(".metadata"));
        assert_eq!(missing, Vec::<String>::new());
    }
}
