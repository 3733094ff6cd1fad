//! What a load needs of Secrets to reach a store that was there already: as files of its pod, which its job names. The load itself knows no
//! Secrets, and reads the same files wherever it runs.

use k8s_openapi::api::core::v1::{
    KeyToPath, ProjectedVolumeSource, SecretProjection, Volume, VolumeMount, VolumeProjection,
};
use storebench_crds::external::{External, ExternalTls, PasswordFrom};

const VOLUME: &str = "credentials";
const DIRECTORY: &str = "/credentials";
const PASSWORD: &str = "password";

/// Lets `external` name files instead of Secrets, and returns the volume that has them; `None`: it names none. Of a Secret no other keys
/// are in it than those that are asked for.
pub(super) fn mount(external: &mut External, shows_certificate: bool) -> Option<(Volume, VolumeMount)> {
    let mut sources = Vec::new();
    if let Some(from) = &mut external.password_from
        && let Some(secret) = from.secret_key_ref.take()
    {
        sources.push(projection(secret.name, &[(secret.key.as_str(), PASSWORD)]));
        *from = PasswordFrom { file: Some(path(PASSWORD)), ..PasswordFrom::default() };
    }
    if let Some(tls) = &mut external.tls
        && let Some(secret) = tls.secret_name.take()
    {
        let certificate = [ExternalTls::CERTIFICATE_KEY, ExternalTls::KEY_KEY];
        let keys = std::iter::once(ExternalTls::CA_KEY).chain(certificate.into_iter().filter(|_| shows_certificate));
        sources.push(projection(secret, &keys.map(|key| (key, key)).collect::<Vec<_>>()));
        *tls = ExternalTls {
            ca_file: Some(path(ExternalTls::CA_KEY)),
            certificate_file: shows_certificate.then(|| path(ExternalTls::CERTIFICATE_KEY)),
            key_file: shows_certificate.then(|| path(ExternalTls::KEY_KEY)),
            secret_name: None,
            server_name: tls.server_name.take(),
        };
    }
    if sources.is_empty() {
        return None;
    }
    let volume = Volume {
        name: VOLUME.into(),
        projected: Some(ProjectedVolumeSource { default_mode: Some(0o440), sources: Some(sources) }),
        ..Volume::default()
    };
    let mount = VolumeMount {
        name: VOLUME.into(),
        mount_path: DIRECTORY.into(),
        read_only: Some(true),
        ..VolumeMount::default()
    };
    Some((volume, mount))
}

fn path(file: &str) -> String {
    format!("{DIRECTORY}/{file}")
}

/// These keys of a Secret as files.
fn projection(name: String, keys: &[(&str, &str)]) -> VolumeProjection {
    let item =
        |(key, file): &(&str, &str)| KeyToPath { key: (*key).into(), path: (*file).into(), ..KeyToPath::default() };
    let secret = SecretProjection { name, items: Some(keys.iter().map(item).collect()), ..SecretProjection::default() };
    VolumeProjection { secret: Some(secret), ..VolumeProjection::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn external(fields: serde_json::Value) -> External {
        let mut all = json!({ "endpoints": ["10.0.0.7:6379"], "allowData": true });
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn a_load_finds_files_where_its_store_names_secrets() {
        let mut store = external(json!({
            "user": "bench",
            "passwordFrom": { "file": "mine", "secretKeyRef": { "name": "login", "key": "redis-password" } },
            "tls": { "caFile": "mine", "secretName": "client", "serverName": "redis" },
        }));
        let (volume, mounted) = mount(&mut store, true).unwrap();
        let expected = external(json!({
            "user": "bench",
            "passwordFrom": { "file": "/credentials/password" },
            "tls": {
                "caFile": "/credentials/ca.crt", "certificateFile": "/credentials/tls.crt", "keyFile": "/credentials/tls.key",
                "serverName": "redis",
            },
        }));
        assert_eq!(store, expected);
        assert_eq!((mounted.mount_path.as_str(), mounted.read_only), ("/credentials", Some(true)));
        let sources = serde_json::to_value(volume.projected.unwrap().sources).unwrap();
        assert_eq!(
            sources,
            json!([
                { "secret": { "name": "login", "items": [{ "key": "redis-password", "path": "password" }] } },
                { "secret": { "name": "client", "items": [
                    { "key": "ca.crt", "path": "ca.crt" }, { "key": "tls.crt", "path": "tls.crt" }, { "key": "tls.key", "path": "tls.key" },
                ] } },
            ])
        );
    }

    #[test]
    fn what_a_secret_has_not_is_not_asked_of_it() {
        let mut store = external(json!({ "tls": { "secretName": "client" } }));
        let (volume, _) = mount(&mut store, false).unwrap();
        assert_eq!(store, external(json!({ "tls": { "caFile": "/credentials/ca.crt" } })));
        let sources = serde_json::to_value(volume.projected.unwrap().sources).unwrap();
        assert_eq!(
            sources,
            json!([{ "secret": { "name": "client", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } }])
        );
        let mut open = external(json!({}));
        assert_eq!(mount(&mut open, false), None);
        assert_eq!(open, external(json!({})));
    }
}
