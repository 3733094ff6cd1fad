//! Which Secrets storebench reads for its users, and gives to the images that they name: those that whoever owns them has labelled so.
//! Who may create a StorageService or BenchmarkRun may so read no Secret that was not meant for it, control planes' keys
//! included.

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use sha2::{Digest as _, Sha256};
use storebench_core::validate::ValidatedService;

use crate::context::Context;
use crate::error::{Error, Tried as _};

/// Set to `"true"` on Secrets that stores and arms may use.
pub const ALLOWED_LABEL: &str = "storebench.dev/allowed";
/// For conditions.
pub const REASON: &str = "SecretNotAllowed";

/// The Secrets that the environment of a service names. The inner error: why it may not have them, with the remedy.
pub async fn of_service(
    service: &ValidatedService,
    namespace: &str,
    context: &Context,
) -> Result<Result<Vec<Secret>, String>, Error> {
    let secrets = Api::<Secret>::namespaced(context.client.clone(), namespace);
    let mut all = Vec::new();
    for (index, variable) in service.spec.env.iter().enumerate() {
        let Some(reference) = variable.value_from.as_ref().and_then(|from| from.secret_key_ref.as_ref()) else {
            continue;
        };
        let name = &reference.name;
        let found = secrets.get_opt(name).await.tried(|| format!("get Secret {name}"))?;
        let text = match found {
            // Optional or not: what is made later would reach a pod that is there, whatever its label.
            None => format!("there is no Secret/{name}: create it"),
            Some(found) if is_allowed(&found.metadata) => {
                all.push(found);
                continue;
            }
            Some(_) => not_allowed(name),
        };
        return Ok(Err(format!("StorageService/{} spec.env[{index}].valueFrom: {text}", service.name)));
    }
    Ok(Ok(all))
}

/// A hash of what is in a Secret, which has no generation: SHA-256, hexadecimal.
pub fn content(secret: &Secret) -> String {
    let mut hash = Sha256::new();
    for (key, value) in secret.data.iter().flatten() {
        for part in [key.as_bytes(), &value.0] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether its owner lets stores and arms use it.
pub fn is_allowed(secret: &ObjectMeta) -> bool {
    secret.labels.as_ref().and_then(|labels| labels.get(ALLOWED_LABEL)).is_some_and(|value| value == "true")
}

/// That a Secret may not be used, with the remedy.
pub fn not_allowed(name: &str) -> String {
    format!(
        "Secret/{name} is not for storebench: whoever owns it may say: kubectl label secret {name} {ALLOWED_LABEL}=true"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn two_secrets_that_differ_in_anything_have_different_hashes() {
        let secret = |data: serde_json::Value| -> Secret { serde_json::from_value(json!({ "data": data })).unwrap() };
        let all = [
            json!({}),
            json!({ "a": "YmM=" }),
            json!({ "ab": "Yw==" }),
            json!({ "a": "YmQ=" }),
            json!({ "a": "YmM=", "b": "" }),
        ];
        let mut hashes: Vec<String> = all.map(|data| content(&secret(data))).into();
        assert_eq!(content(&secret(json!({ "a": "YmM=" }))), hashes[1]);
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), 5);
    }
}
