//! Rules in CEL as values: one term a line, so that a change of a rule is a change of its lines.
//!
//! A type takes its rules with `#[schemars(transform = Rules(RULES))]`; they end up in the schema, where the API server and
//! [`crate::document`] both find them.

use schemars::Schema;
use schemars::transform::Transform;
use serde_json::{Value, json};

/// The rule about the name of an object, which is the same for every kind: names of pods, labels and files are made of it.
pub(crate) fn of_names() -> kube::core::cel::Rule {
    kube::core::cel::Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')")
        .message("metadata.name must be at most 63 of a-z, 0-9 and -, starting and ending with a letter or digit")
}

/// One rule about an object.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The field that is named where the rule is broken, such as `.limit`; empty: the object itself.
    pub field: &'static str,
    /// The CEL expression that must be true of the object, which is `self` in it.
    pub holds: &'static str,
    /// What is said otherwise: the problem and the remedy, in one line.
    pub otherwise: &'static str,
}

/// Adds rules to the schema of a type.
pub(crate) struct Rules(pub(crate) &'static [Rule]);

impl Transform for Rules {
    fn transform(&mut self, schema: &mut Schema) {
        self.0.iter().for_each(|rule| add(schema, rule.field, rule.holds, rule.otherwise));
    }
}

/// Adds one rule to a schema.
pub(crate) fn add(schema: &mut Schema, field: &str, holds: &str, otherwise: &str) {
    let mut rule = json!({ "rule": holds, "message": otherwise });
    if !field.is_empty() {
        rule["fieldPath"] = field.into();
    }
    let rules = schema.ensure_object().entry("x-kubernetes-validations").or_insert_with(|| json!([]));
    if let Value::Array(rules) = rules {
        rules.push(rule);
    }
}
