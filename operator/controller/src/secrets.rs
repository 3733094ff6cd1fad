//! Which Secrets storebench reads for its users, and gives to the images that they name: those that whoever owns them has labelled so.
//! Who may create a StorageService or BenchmarkRun may so read no Secret that was not meant for it, control planes' keys
//! included.

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, ResourceExt as _};
use ring::hmac;
use storebench_core::reason::Reason;
use storebench_core::validate::ValidatedService;
use storebench_crds::StorageServiceSpec;
use storebench_crds::external::ExternalTls;

use crate::context::Context;
use crate::error::{Error, Tried as _};
use crate::health::Trouble;

/// Set to `"true"` on Secrets that stores and arms may use.
pub const ALLOWED_LABEL: &str = "storebench.dev/allowed";

/// The Secrets that a service names: in its environment, and for an external store. The inner error: why it may not have them, with
/// the remedy.
pub async fn of_service(
    service: &ValidatedService,
    namespace: &str,
    context: &Context,
) -> Result<Result<Vec<Secret>, Trouble>, Error> {
    let secrets = Api::<Secret>::namespaced(context.client.clone(), namespace);
    let mut all = Vec::new();
    for Named { field, secret: name, keys } in named(&service.spec) {
        let found = secrets.get_opt(&name).await.tried(|| format!("get Secret {name}"))?;
        let (reason, text) = match found {
            // Optional or not: what is made later would reach a pod that is there, whatever its label.
            None => (Reason::SecretNotAllowed, format!("there is no Secret/{name}: create it")),
            Some(found) if !is_allowed(&found.metadata) => (Reason::SecretNotAllowed, not_allowed(&name)),
            Some(found) => match lacking(&found, &keys) {
                Some(key) => (Reason::InvalidSecret, format!("Secret/{name} has no key {key}: add it")),
                None => {
                    all.push(found);
                    continue;
                }
            },
        };
        let message = format!("StorageService/{} {field}: {text}", service.name);
        return Ok(Err(Trouble { reason, message }));
    }
    Ok(Ok(all))
}

/// A Secret that a field names, and the keys that it must have.
struct Named {
    field: String,
    secret: String,
    keys: Vec<String>,
}

fn named(spec: &StorageServiceSpec) -> Vec<Named> {
    let mut all = Vec::new();
    for (index, variable) in spec.env.iter().enumerate() {
        if let Some(reference) = variable.value_from.as_ref().and_then(|from| from.secret_key_ref.as_ref()) {
            // The kubelet says which key is missing, where that is not optional.
            let field = format!("spec.env[{index}].valueFrom");
            all.push(Named { field, secret: reference.name.clone(), keys: Vec::new() });
        }
    }
    let Some(external) = &spec.external else { return all };
    if let Some(key) = external.password_from.as_ref().and_then(|from| from.secret_key_ref.as_ref()) {
        let field = "spec.external.passwordFrom.secretKeyRef".to_owned();
        all.push(Named { field, secret: key.name.clone(), keys: vec![key.key.clone()] });
    }
    if let Some(name) = external.tls.as_ref().and_then(|tls| tls.secret_name.as_ref()) {
        let keys = vec![ExternalTls::CA_KEY.to_owned()];
        all.push(Named { field: "spec.external.tls.secretName".to_owned(), secret: name.clone(), keys });
    }
    all
}

fn has(secret: &Secret, key: &str) -> bool {
    secret.data.as_ref().is_some_and(|data| data.contains_key(key))
}

/// The first key that a Secret must have and has not. Of a certificate and its key it must have both or none.
fn lacking(secret: &Secret, keys: &[String]) -> Option<String> {
    let missing = keys.iter().find(|key| !has(secret, key)).cloned();
    let pair = [ExternalTls::CERTIFICATE_KEY, ExternalTls::KEY_KEY];
    let is_for_tls = keys.iter().any(|key| key == ExternalTls::CA_KEY);
    let half = || match pair.map(|key| has(secret, key)) {
        [true, false] => Some(pair[1].to_owned()),
        [false, true] => Some(pair[0].to_owned()),
        [true, true] | [false, false] => None,
    };
    missing.or_else(|| half().filter(|_| is_for_tls))
}

/// Whether the Secret for TLS to an external store, which is among these, has a certificate to show.
pub fn show_certificate(service: &ValidatedService, secrets: &[Secret]) -> bool {
    let tls = service.spec.external.as_ref().and_then(|external| external.tls.as_ref());
    let Some(name) = tls.and_then(|tls| tls.secret_name.as_ref()) else { return false };
    let of_tls = secrets.iter().find(|secret| secret.metadata.name.as_ref() == Some(name));
    of_tls.is_some_and(|secret| has(secret, ExternalTls::CERTIFICATE_KEY))
}

/// What tells whether what is in a Secret was changed, which has no generation: HMAC-SHA-256, hexadecimal. It stands where others read it who
/// may read no Secrets, and says nothing to whoever has not the key.
pub fn content(secret: &Secret, key: &hmac::Key) -> String {
    let mut code = hmac::Context::with_key(key);
    let mut add = |part: &[u8]| {
        code.update(&(part.len() as u64).to_be_bytes());
        code.update(part);
    };
    // Two with the same password are not seen to have it.
    add(secret.name_any().as_bytes());
    for (key, value) in secret.data.iter().flatten() {
        add(key.as_bytes());
        add(&value.0);
    }
    code.sign().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
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
        let key = |text: &str| hmac::Key::new(hmac::HMAC_SHA256, text.as_bytes());
        let named = |name: &str, data: serde_json::Value| -> Secret {
            serde_json::from_value(json!({ "metadata": { "name": name }, "data": data })).unwrap()
        };
        let secret = |data: serde_json::Value| named("s", data);
        let all = [
            json!({}),
            json!({ "a": "YmM=" }),
            json!({ "ab": "Yw==" }),
            json!({ "a": "YmQ=" }),
            json!({ "a": "YmM=", "b": "" }),
        ];
        let mut hashes: Vec<String> = all.map(|data| content(&secret(data), &key("k"))).into();
        let one = json!({ "a": "YmM=" });
        assert_eq!(content(&secret(one.clone()), &key("k")), hashes[1]);
        // Nor does another key, or another Secret with the same in it, say that it is the same.
        hashes.extend([content(&secret(one.clone()), &key("l")), content(&named("t", one), &key("k"))]);
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), 7);
    }

    #[test]
    fn a_secret_for_tls_has_an_authority_and_both_halves_of_a_certificate_or_none() {
        let lacks = |keys: &[&str], wanted: &str| {
            let data: serde_json::Map<String, serde_json::Value> =
                keys.iter().map(|key| ((*key).to_owned(), json!("YQ=="))).collect();
            lacking(&serde_json::from_value(json!({ "data": data })).unwrap(), &[wanted.to_owned()])
        };
        assert_eq!(lacks(&[], "ca.crt").as_deref(), Some("ca.crt"));
        assert_eq!(lacks(&["ca.crt"], "ca.crt"), None);
        assert_eq!(lacks(&["ca.crt", "tls.crt"], "ca.crt").as_deref(), Some("tls.key"));
        assert_eq!(lacks(&["ca.crt", "tls.key"], "ca.crt").as_deref(), Some("tls.crt"));
        assert_eq!(lacks(&["ca.crt", "tls.crt", "tls.key"], "ca.crt"), None);
        assert_eq!(lacks(&["password", "tls.crt"], "password"), None, "a password needs no certificate");
    }
}
