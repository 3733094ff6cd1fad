//! What the table says, as rules and documentation of the schema.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::ValidationRule;

use super::{DurabilityClass, ENGINES, Engine};
use crate::durability::Durability;

/// The CEL rules on a StorageService's spec that come from the table: replicas and durability.
pub fn cel() -> Vec<ValidationRule> {
    let most = alike(|engine| engine.replicas.len()).into_iter().map(|(count, _)| count).max();
    let replicas = alike(|engine| engine.replicas).into_iter().filter(|(allowed, _)| Some(allowed.len()) != most);
    let replicas = replicas.map(|(allowed, engines)| {
        let all = allowed.iter().map(i32::to_string).collect::<Vec<_>>();
        let (kinds, numbers) = (kinds(&engines), listed(&all, "or"));
        rule(
            ".replicas",
            format!("!({}) || self.replicas in [{}]", is_one_of(&engines), all.join(", ")),
            format!("replicas must be {numbers} for {kinds}; set replicas: {numbers}", kinds = listed(&kinds, "and")),
        )
    });
    let durability = alike(classes).into_iter().filter(|(honoured, _)| honoured.len() < Durability::ALL.len());
    let durability = durability.map(|(honoured, engines)| {
        let quoted = honoured.iter().map(|class| format!("'{class}'")).collect::<Vec<_>>();
        let (kinds, classes) = (kinds(&engines), listed(&honoured, "or"));
        rule(
            ".durability",
            format!("!({}) || self.durability in [{}]", is_one_of(&engines), quoted.join(", ")),
            format!(
                "durability must be {classes} for {kinds}, which can honour no other; use {classes}",
                kinds = listed(&kinds, "and")
            ),
        )
    });
    replicas.chain(durability).collect()
}

/// The documentation of a StorageService's fields that comes from the table, by name of the field.
pub fn documentation() -> [(&'static str, String); 3] {
    let stores = ENGINES.iter().map(|engine| format!("{:?}: {}", engine.kind, engine.description()));
    let engine = format!("The store to deploy. {}", stores.collect::<Vec<_>>().join(" "));
    let replicas = alike(|engine| engine.replicas).into_iter().map(|(allowed, engines)| {
        let allowed = allowed.iter().map(i32::to_string).collect::<Vec<_>>();
        format!("{}: {}.", listed(&kinds(&engines), "and"), listed(&allowed, "or"))
    });
    let replicas = format!("How many members. {}", replicas.collect::<Vec<_>>().join(" "));
    let durability = alike(|engine| engine.durability).into_iter().map(|(honoured, engines)| {
        let one = |honoured: &DurabilityClass| format!("{:?} ({})", honoured.class, honoured.setting);
        let honoured = honoured.iter().map(one).collect::<Vec<_>>();
        format!("{}: {}.", listed(&kinds(&engines), "and"), honoured.join(", "))
    });
    let durability = format!(
        "What an acknowledged write survives. Fsync: power loss; it is synced to disk before it is acknowledged. Interval: a \
         crash of the process; a power loss may take the last second. None: nothing. Arms are only ranked against each \
         other at equal durability. {}",
        durability.collect::<Vec<_>>().join(" ")
    );
    [("engine", engine), ("replicas", replicas), ("durability", durability)]
}

/// Engines that have the same of something, in the table's order.
fn alike<K: PartialEq>(key: impl Fn(&'static Engine) -> K) -> Vec<(K, Vec<&'static Engine>)> {
    let mut groups: Vec<(K, Vec<&'static Engine>)> = Vec::new();
    for engine in ENGINES {
        let key = key(engine);
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, engines)) => engines.push(engine),
            None => groups.push((key, vec![engine])),
        }
    }
    groups
}

fn classes(engine: &'static Engine) -> Vec<String> {
    engine.durability.iter().map(|honoured| format!("{:?}", honoured.class)).collect()
}

fn kinds(engines: &[&Engine]) -> Vec<String> {
    engines.iter().map(|engine| format!("{:?}", engine.kind)).collect()
}

fn is_one_of(engines: &[&Engine]) -> String {
    let quoted = kinds(engines).iter().map(|kind| format!("'{kind}'")).collect::<Vec<_>>();
    format!("self.engine in [{}]", quoted.join(", "))
}

/// `a`, `a or b`, `a, b or c`.
fn listed(words: &[String], conjunction: &str) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} {conjunction} {last}", first.join(", ")),
    }
}

fn rule(field: &str, rule: String, message: String) -> ValidationRule {
    ValidationRule { field_path: Some(field.into()), message: Some(message), rule, ..ValidationRule::default() }
}

#[cfg(test)]
mod tests {
    use crate::document::parse;
    use crate::durability::Durability;
    use crate::engine::ENGINES;

    fn is_accepted(text: &str) -> bool {
        parse("service.yaml", text.as_bytes()).problems.is_empty()
    }

    /// The schema, which is all that an API server knows, says of every combination what the table says.
    #[test]
    fn the_schema_accepts_what_the_table_allows_and_nothing_else() {
        for engine in ENGINES {
            for replicas in 1..=6 {
                for class in Durability::ALL {
                    let text = format!(
                        "apiVersion: storebench.dev/v1alpha1\nkind: StorageService\nmetadata: {{ name: store }}\n\
                         spec: {{ engine: {:?}, replicas: {replicas}, durability: {class:?} }}\n",
                        engine.kind
                    );
                    let is_allowed = engine.replicas.contains(&replicas) && engine.honours(class).is_some();
                    assert_eq!(is_accepted(&text), is_allowed, "{text}");
                }
            }
        }
    }
}
