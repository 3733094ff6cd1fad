//! Makes the certificates and keys of a plan: new ones for each control plane, valid for a day, signed by an authority that
//! is forgotten with it.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use storebench_core::control_plane::{Certificate, ControlPlanePlan, Purpose};

/// How long before and after now a certificate is valid: clocks of one machine agree, so an hour is ample.
const VALID_BEFORE: Duration = Duration::from_secs(3600);
const VALID_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Makes everything that a plan certifies, and writes it where the plan says.
pub(super) fn make(plan: &ControlPlanePlan) -> anyhow::Result<()> {
    let mut authority = None;
    for certificate in &plan.certificates {
        let key = KeyPair::generate()?;
        let parameters = parameters(certificate)?;
        let signed = match &authority {
            None => parameters.self_signed(&key)?,
            Some(authority) => parameters.signed_by(&key, authority)?,
        };
        write(&format!("{}.crt", certificate.path), &signed.pem())?;
        write(&format!("{}.key", certificate.path), &key.serialize_pem())?;
        if certificate.purpose == Purpose::Authority {
            authority = Some(Issuer::new(parameters, key));
        }
    }
    let key = KeyPair::generate()?;
    write(&format!("{}.key", plan.service_account), &key.serialize_pem())?;
    write(&format!("{}.pub", plan.service_account), &key.public_key_pem())
}

fn parameters(certificate: &Certificate) -> anyhow::Result<CertificateParams> {
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
    let now = SystemTime::now();
    parameters.not_before = (now - VALID_BEFORE).into();
    parameters.not_after = (now + VALID_AFTER).into();
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

/// Writes a file that only its owner may read.
fn write(path: &str, text: &str) -> anyhow::Result<()> {
    let open = || -> std::io::Result<File> { OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) };
    open().and_then(|mut file| file.write_all(text.as_bytes())).with_context(|| format!("{path}: cannot be written"))
}
