//! The YAML in `crds/yaml/` is what the types generate, `docs/reference.md` too, and `peers/engines.tsv` what the table of engines says.
//! `UPDATE_CRDS=1 cargo test -p storebench-crds --test drift` rewrites them. What people write by hand
//! for the peers agrees with the table.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test: a file that does not read is a failure")]

use std::path::{Path, PathBuf};

use storebench_crds::engine::{Allocator, ENGINES, EngineKind, Source, listing};
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

/// The packages of the engines from one source.
fn packages(of: impl Fn(Source) -> Option<&'static str>) -> Vec<&'static str> {
    ENGINES.iter().filter_map(|engine| of(engine.source)).collect()
}

/// Two replicators stood in the table as fetched on request, and were fetched always by a list of the script's.
#[test]
fn peers_are_fetched_by_default_as_their_rows_say() {
    let output = std::process::Command::new(project().join("peers/fetch")).arg("--list-default").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listed = String::from_utf8(output.stdout).unwrap();
    let of_engines = packages(|source| match source {
        Source::Peer(package) | Source::PeerOnRequest(package) => Some(package),
        Source::Crate(_) | Source::ByHand(_) => None,
    });
    let (engines, tools): (Vec<&str>, Vec<&str>) = listed.lines().partition(|name| of_engines.contains(name));
    let by_default = packages(|source| match source {
        Source::Peer(package) => Some(package),
        Source::Crate(_) | Source::PeerOnRequest(_) | Source::ByHand(_) => None,
    });
    assert_eq!(engines, by_default, "peers/fetch and crds/src/engine/table.rs differ");
    for tool in tools {
        assert!(project().join("peers/recipes").join(tool).is_file(), "peers/fetch: no peers/recipes/{tool}");
    }
}

/// Embedded runs look for an engine's executables in the folder of its name: `embedded/peers.rs` of the command line.
#[test]
fn a_recipe_installs_its_engine_where_embedded_runs_look_for_it() {
    for engine in ENGINES {
        let (Source::Peer(package) | Source::PeerOnRequest(package)) = engine.source else { continue };
        let path = project().join("peers/recipes").join(package);
        let recipe = std::fs::read_to_string(&path).unwrap();
        // Absent: the package's name, as peers/fetch has it.
        let folder = recipe.lines().find_map(|line| line.strip_prefix("folder=")).unwrap_or(package);
        assert_eq!(folder, engine.name, "{}: its folder, and the engine's name", path.display());
        let server = format!("$1/{}\"", engine.binary());
        assert!(recipe.contains(&server), "{}: does not ask {server} for its version", path.display());
    }
}

/// Scripts look for tools of a peer in its folder.
#[test]
fn tools_of_etcd_are_of_its_version() {
    let versions = std::fs::read_to_string(project().join("peers/versions")).unwrap();
    let version = |name: &str| {
        let mut rows = versions.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        rows.find(|row| row.first() == Some(&name)).map(|row| row[1].to_owned())
    };
    assert!(version("etcd").is_some() && version("etcd") == version("etcd-tools"), "one folder has both");
}

/// That program takes many minutes to build: only `operator/cli/tests/originals.rs` starts it, and only where it is.
#[test]
fn the_row_of_the_original_d_engine_has_the_words_of_its_program() {
    let engine = EngineKind::DEngineOriginal.engine();
    let source = format!("peers/{}/{}/src/main.rs", engine.name, engine.default_version);
    let source = std::fs::read_to_string(project().join(source)).unwrap();
    let (_, usage) = source.split_once("const USAGE: &str = \"").unwrap();
    let (usage, _) = usage.split_once('"').unwrap();
    let flags = usage.split_whitespace().filter_map(|word| word.split_once('=')).map(|(flag, _)| flag);
    assert_eq!(flags.collect::<Vec<_>>(), engine.reserved_flags, "{usage}");
    let probe = engine.version_probe;
    let says = format!("println!(\"{}{{}}\", env!(\"CARGO_PKG_VERSION\"))", probe.marker);
    assert!(usage.ends_with(probe.argument) && source.contains(&says), "{says}");
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
