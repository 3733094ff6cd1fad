//! The YAML in `crds/yaml/` is what the types generate. `UPDATE_CRDS=1 cargo test -p storebench-crds --test drift`
//! rewrites it.

use std::path::PathBuf;

use storebench_crds::schema;

#[test]
fn checked_in_yaml_is_what_the_types_generate() {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("yaml");
    for definition in schema::definitions() {
        let path = directory.join(format!("{}.yaml", definition.spec.names.plural));
        let generated = schema::to_yaml(&definition).unwrap();
        if std::env::var_os("UPDATE_CRDS").is_some() {
            std::fs::write(&path, &generated).unwrap();
        }
        let checked_in = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            checked_in == generated,
            "{} has drifted from the types; run: UPDATE_CRDS=1 cargo test -p storebench-crds --test drift",
            path.display()
        );
    }
}

#[test]
fn status_is_never_current_before_a_controller_has_seen_it() {
    for definition in schema::definitions() {
        let schema = schema::of_kind(&definition.spec.names.kind).unwrap();
        assert_eq!(schema["properties"]["status"]["default"], serde_json::json!({ "observedGeneration": -1 }));
    }
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
    for kind in ["StorageService", "ControlPlane", "BenchmarkRun"] {
        let mut missing = Vec::new();
        walk(kind, &schema::of_kind(kind).unwrap(), &mut missing);
        missing.retain(|path| !path.ends_with(".metadata"));
        assert_eq!(missing, Vec::<String>::new());
    }
}
