//! The CustomResourceDefinitions, as the API server and `storebench validate` both use them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::{BenchmarkRun, StorageService};

/// Every kind's definition, with `status.observedGeneration` defaulting to −1 so that kstatus (Flux, `kubectl wait`)
/// never takes an object for current before a controller has seen it.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    [StorageService::crd(), BenchmarkRun::crd()]
        .into_iter()
        .map(with_status_default)
        .collect()
}

fn with_status_default(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    let status = definition.spec.versions.iter_mut().filter_map(|version| {
        version
            .schema
            .as_mut()?
            .open_api_v3_schema
            .as_mut()?
            .properties
            .as_mut()?
            .get_mut("status")
    });
    for schema in status {
        schema.default = Some(
            k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSON(
                json!({ "observedGeneration": -1 }),
            ),
        );
    }
    definition
}

/// The OpenAPI schema of a kind as JSON; `None` for a kind that is not ours.
pub fn of_kind(kind: &str) -> Option<Value> {
    let definition = definitions()
        .into_iter()
        .find(|definition| definition.spec.names.kind == kind)?;
    let schema = definition
        .spec
        .versions
        .into_iter()
        .next()?
        .schema?
        .open_api_v3_schema?;
    serde_json::to_value(schema).ok()
}

/// metav1 conditions as a map by type, which server-side apply can merge.
pub(crate) fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = json_schema!({
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    });
    let item = generator.subschema_for::<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>();
    schema.insert("items".into(), item.to_value());
    schema
}

/// A definition as YAML, ready for `kubectl apply`.
pub fn to_yaml(definition: &CustomResourceDefinition) -> Result<String, serde_yaml::ser::Error> {
    serde_yaml::to_string(definition)
}
