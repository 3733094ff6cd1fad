//! What the statuses of all kinds have in common: the generation that they describe, and conditions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::{Schema, SchemaGenerator, json_schema};

/// The generation that a status describes before anyone looked at its object.
pub(crate) fn never_observed() -> i64 {
    -1
}

/// metav1 conditions as a map by type, which server-side apply can merge.
pub(crate) fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = json_schema!({
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    });
    let item = generator.subschema_for::<Condition>();
    schema.insert("items".into(), item.to_value());
    schema
}
