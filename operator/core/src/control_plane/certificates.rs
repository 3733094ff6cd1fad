//! Makes the files of a plan: certificates signed by an authority of the control plane's own, keys, and kubeconfigs that hold
//! what they need.
//!
//! Time and keys, which are random, come in as arguments. The authority's own key is in no file: it is forgotten, so that
//! nobody can ever sign anything else.

use std::collections::BTreeMap;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, Error, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

use super::{Certificate, ControlPlanePlan, Kubeconfig, Purpose};

/// From when until when certificates are valid.
#[derive(Clone, Copy, Debug)]
pub struct Validity {
    /// The first instant.
    pub from: SystemTime,
    /// The last instant.
    pub until: SystemTime,
}

/// Everything that the processes of a plan are given, by path. `key` makes a new key each time that it is called.
pub fn files(
    plan: &ControlPlanePlan,
    validity: Validity,
    mut key: impl FnMut() -> Result<KeyPair, Error>,
) -> Result<BTreeMap<String, String>, Error> {
    let mut files = BTreeMap::new();
    let mut authority: Option<(Issuer<'_, KeyPair>, String)> = None;
    for certificate in &plan.certificates {
        let key = key()?;
        let parameters = parameters(certificate, validity)?;
        let signed = match &authority {
            None => parameters.self_signed(&key)?,
            Some((authority, _)) => parameters.signed_by(&key, authority)?,
        };
        files.insert(format!("{}.crt", certificate.path), signed.pem());
        if certificate.purpose == Purpose::Authority {
            authority = Some((Issuer::new(parameters, key), signed.pem()));
        } else {
            files.insert(format!("{}.key", certificate.path), key.serialize_pem());
        }
    }
    let authority = authority.map(|(_, pem)| pem).unwrap_or_default();
    for kubeconfig in &plan.kubeconfigs {
        let file = |end: &str| files.get(&format!("{}.{end}", kubeconfig.certificate)).cloned().unwrap_or_default();
        let content = content(kubeconfig, &authority, &file("crt"), &file("key"));
        files.insert(kubeconfig.path.clone(), content);
    }
    let key = key()?;
    files.insert(format!("{}.key", plan.service_account), key.serialize_pem());
    files.insert(format!("{}.pub", plan.service_account), key.public_key_pem());
    Ok(files)
}

/// JSON, which is YAML.
fn content(kubeconfig: &Kubeconfig, authority: &str, certificate: &str, key: &str) -> String {
    let data = |pem: &str| STANDARD.encode(pem);
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "storebench", "cluster": {
            "server": kubeconfig.server,
            "certificate-authority-data": data(authority),
        }}],
        "users": [{ "name": kubeconfig.user, "user": {
            "client-certificate-data": data(certificate),
            "client-key-data": data(key),
        }}],
        "contexts": [{ "name": "storebench", "context": { "cluster": "storebench", "user": kubeconfig.user } }],
        "current-context": "storebench",
    })
    .to_string()
}

fn parameters(certificate: &Certificate, validity: Validity) -> Result<CertificateParams, Error> {
    let names = match &certificate.purpose {
        Purpose::Server(names) => names.clone(),
        Purpose::Authority | Purpose::Client => Vec::new(),
    };
    let mut parameters = CertificateParams::new(names)?;
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, certificate.common_name);
    if let Some(organization) = certificate.organization {
        subject.push(DnType::OrganizationName, organization);
    }
    parameters.distinguished_name = subject;
    parameters.not_before = validity.from.into();
    parameters.not_after = validity.until.into();
    match certificate.purpose {
        Purpose::Authority => {
            parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        }
        Purpose::Server(_) => parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth],
        Purpose::Client => parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
    }
    Ok(parameters)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::control_plane::{Placement, plan};

    #[test]
    fn all_that_processes_are_given_is_made_and_the_authoritys_key_is_not() {
        let plan = plan(&Placement {
            bind: "0.0.0.0".into(),
            advertise: "$(POD_IP)".into(),
            host: "plane.benchmarks.svc".into(),
            port: 6443,
            directory: "/plane".into(),
            scratch: "/scratch".into(),
            store: vec!["s:1".into()],
        });
        let from = SystemTime::UNIX_EPOCH;
        let validity = Validity { from, until: from + Duration::from_secs(60) };
        let files = files(&plan, validity, KeyPair::generate).unwrap();
        let processes = std::iter::once(&plan.api_server).chain(&plan.others);
        let given = processes.flat_map(|process| &process.arguments).filter_map(|argument| argument.split_once('='));
        for (_, path) in given.filter(|(_, value)| value.starts_with("/plane/")) {
            assert!(files.contains_key(path), "{path} is not made");
        }
        assert!(!files.contains_key("/plane/authority.key"));
        let administrator: serde_json::Value = serde_json::from_str(&files[&plan.administrator]).unwrap();
        assert_eq!(administrator["clusters"][0]["cluster"]["server"], "https://plane.benchmarks.svc:6443");
        let certificate = administrator["users"][0]["user"]["client-certificate-data"].as_str().unwrap();
        assert_eq!(STANDARD.decode(certificate).unwrap(), files["/plane/administrator.crt"].as_bytes());
    }
}
