//! Which Secrets storebench reads for its users, and gives to the images that they name: those that whoever owns them has labelled so.
//! Who may create a StorageService or BenchmarkRun may so read no Secret that was not meant for it, control planes' keys
//! included.

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use storebench_core::validate::ValidatedService;

use crate::context::Context;
use crate::error::{Error, Tried as _};

/// Set to `"true"` on Secrets that stores and arms may use.
pub const ALLOWED_LABEL: &str = "storebench.dev/allowed";
/// For conditions.
pub const REASON: &str = "SecretNotAllowed";

/// Why a service may not have the Secrets that its environment names, with the remedy; `None`: it may.
pub async fn refusal(service: &ValidatedService, namespace: &str, context: &Context) -> Result<Option<String>, Error> {
    let secrets = Api::<Secret>::namespaced(context.client.clone(), namespace);
    for (index, variable) in service.spec.env.iter().enumerate() {
        let Some(reference) = variable.value_from.as_ref().and_then(|from| from.secret_key_ref.as_ref()) else {
            continue;
        };
        let name = &reference.name;
        let found = secrets.get_metadata_opt(name).await.tried(|| format!("get Secret {name}"))?;
        let text = match found {
            // Optional or not: what is made later would reach a pod that is there, whatever its label.
            None => format!("there is no Secret/{name}: create it"),
            Some(found) if is_allowed(&found.metadata) => continue,
            Some(_) => not_allowed(name),
        };
        return Ok(Some(format!("StorageService/{} spec.env[{index}].valueFrom: {text}", service.name)));
    }
    Ok(None)
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
