//! The CustomResourceDefinitions, as the API server and `storebench validate` both use them.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use kube::core::schema::StructuralSchemaRewriter;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use crate::engine::rules;
use crate::job::JobSpec;
use crate::{
    BenchmarkBaseline, BenchmarkRun, BenchmarkSchedule, BenchmarkSuite, ControlPlane, StorageService, WorkloadTemplate,
};

/// Of a choice among more values than this, as among metrics, the reference has a table, and a description no place.
const MEANINGS_MAX: usize = 16;

/// Every kind's definition, with `status.observedGeneration` defaulting to −1 so that kstatus (Flux, `kubectl wait`)
/// never takes an object for current before a controller has seen it, and with what the table of engines says.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    DEFINITIONS.clone()
}

/// Made once in a process: who checks a file asks for several kinds.
static DEFINITIONS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(made);

fn made() -> Vec<CustomResourceDefinition> {
    let mut service = definition::<StorageService>();
    add_engines(&mut service);
    let others = [
        definition::<ControlPlane>(),
        definition::<WorkloadTemplate>(),
        definition::<BenchmarkRun>(),
        definition::<BenchmarkBaseline>(),
        definition::<BenchmarkSuite>(),
        definition::<BenchmarkSchedule>(),
    ];
    std::iter::once(service).chain(others).map(adapted).collect()
}

/// The definition of a kind, with what the values of its choices mean.
fn definition<K: CustomResourceExt + JsonSchema>() -> CustomResourceDefinition {
    let mut definition = K::crd();
    let documented = inline().into_generator().into_root_schema_for::<K>().to_value();
    let schemas =
        definition.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
    schemas.for_each(|schema| add_meanings(schema, &[&documented]));
    definition
}

/// Schemas that refer to no others, as those of a definition must be.
fn inline() -> SchemaSettings {
    SchemaSettings::openapi3().with(|settings| settings.inline_subschemas = true)
}

/// The rules about single engines, and what the fields say of them.
fn add_engines(service: &mut CustomResourceDefinition) {
    let schemas =
        service.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
    for spec in schemas.filter_map(|schema| schema.properties.as_mut()?.get_mut("spec")) {
        spec.x_kubernetes_validations.get_or_insert_default().extend(rules::cel());
        for (field, text) in rules::documentation() {
            if let Some(field) = spec.properties.as_mut().and_then(|fields| fields.get_mut(field)) {
                field.description = Some(text);
            }
        }
    }
}

/// Says behind a field's description what each of its values means, which a structural schema has no place for: it has the values of a
/// choice as one list. `documented` is the same schema as it was before, with its alternatives.
fn add_meanings(schema: &mut JSONSchemaProps, documented: &[&Value]) {
    let documented = alternatives(documented);
    let of_items: Vec<&Value> = documented.iter().filter_map(|one| one.get("items")).collect();
    let items = match schema.items.as_mut() {
        Some(JSONSchemaPropsOrArray::Schema(items)) => Some(items),
        _ => None,
    };
    let (values, of_values) = match (&schema.enum_, &items) {
        (Some(values), _) => (Some(values), documented.clone()),
        (None, Some(items)) => (items.enum_.as_ref(), alternatives(&of_items)),
        (None, None) => (None, Vec::new()),
    };
    let meaning = |value: &JSON| {
        let value = value.0.as_str()?;
        let one = of_values.iter().find(|one| one["const"] == value || one["enum"] == json!([value]))?;
        Some(format!(" {value}: {}", one["description"].as_str()?.replace('\n', " ")))
    };
    let meanings: String =
        values.filter(|values| values.len() <= MEANINGS_MAX).into_iter().flatten().filter_map(meaning).collect();
    if !meanings.is_empty() {
        schema.description.get_or_insert_default().push_str(&meanings);
    }
    if let Some(items) = items.filter(|items| items.enum_.is_none()) {
        add_meanings(items, &of_items);
    }
    for (name, property) in schema.properties.iter_mut().flatten() {
        let of_property: Vec<&Value> = documented.iter().filter_map(|one| one.get("properties")?.get(name)).collect();
        add_meanings(property, &of_property);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = schema.additional_properties.as_mut() {
        let of_values: Vec<&Value> = documented.iter().filter_map(|one| one.get("additionalProperties")).collect();
        add_meanings(values, &of_values);
    }
}

/// These schemas, and all that they are composed of.
fn alternatives<'a>(schemas: &[&'a Value]) -> Vec<&'a Value> {
    let mut found: Vec<&Value> = schemas.to_vec();
    let mut next = 0;
    while let Some(schema) = found.get(next) {
        let composed = ["oneOf", "anyOf", "allOf"].iter().filter_map(|word| schema.get(word)?.as_array());
        let composed: Vec<&Value> = composed.flatten().collect();
        found.extend(composed);
        next += 1;
    }
    found
}

fn adapted(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    let schemas =
        definition.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
    for schema in schemas {
        refuse_nulls(schema);
        if let Some(status) = schema.properties.as_mut().and_then(|properties| properties.get_mut("status")) {
            status.default = Some(JSON(json!({ "observedGeneration": -1 })));
        }
    }
    // As kustomize labels everything that it installs; Helm installs CRDs as they are.
    let labels = definition.metadata.labels.get_or_insert_default();
    labels.insert("app.kubernetes.io/part-of".into(), "storebench".into());
    definition
}

/// Takes `nullable` back, which is generated for every optional field: a null would reach the CEL rules, where an absent
/// field is what they ask about. Without it the API server drops nulls, and this crate refuses them with the remedy.
fn refuse_nulls(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    for property in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        refuse_nulls(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = schema.items.as_mut() {
        refuse_nulls(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = schema.additional_properties.as_mut() {
        refuse_nulls(values);
    }
}

/// The OpenAPI schema of a kind as JSON; `None` for a kind that is not ours.
pub fn of_kind(kind: &str) -> Option<Value> {
    let definition = DEFINITIONS.iter().find(|definition| definition.spec.names.kind == kind)?;
    let schema = definition.spec.versions.first()?.schema.as_ref()?.open_api_v3_schema.as_ref()?;
    serde_json::to_value(schema).ok()
}

/// The schema of a job as JSON, of the same form as that of a kind.
pub fn of_job() -> Value {
    let generator = inline().with_transform(StructuralSchemaRewriter).into_generator();
    let mut schema = generator.into_root_schema_for::<JobSpec>().to_value();
    refuse_nulls_in(&mut schema);
    schema
}

/// As [`refuse_nulls`].
fn refuse_nulls_in(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("nullable");
            fields.values_mut().for_each(refuse_nulls_in);
        }
        Value::Array(items) => items.iter_mut().for_each(refuse_nulls_in),
        _ => {}
    }
}

/// A definition as YAML, ready for `kubectl apply`.
pub fn to_yaml(definition: &CustomResourceDefinition) -> Result<String, serde_yaml::ser::Error> {
    serde_yaml::to_string(definition)
}
