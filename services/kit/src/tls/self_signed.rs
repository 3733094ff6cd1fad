//! Certificates that a server makes for itself. They keep what is said from who only listens, and say nothing of who speaks: nobody
//! checks them. From etcd's `SelfCert`.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{SelfSigned, TlsError, TlsFiles};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Makes a certificate and its key, unless both are there.
pub(super) fn make(files: &TlsFiles, wanted: &SelfSigned) -> Result<(), TlsError> {
    if files.certificate.exists() && files.key.exists() {
        return Ok(());
    }
    let (certificate, key) = certificate(wanted).map_err(|error| TlsError::Make(error.to_string()))?;
    let write = |path: &Path, text: String| {
        write(path, &text).map_err(|error| TlsError::Make(format!("{}: {error}", path.display())))
    };
    write(&files.key, key)?;
    write(&files.certificate, certificate)
}

fn certificate(wanted: &SelfSigned) -> Result<(String, String), rcgen::Error> {
    let mut parameters = CertificateParams::new(wanted.hosts.clone())?;
    parameters.distinguished_name.push(DnType::OrganizationName, wanted.organization.as_str());
    parameters.key_usages = vec![KeyUsagePurpose::KeyEncipherment, KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let years = u32::try_from(wanted.validity_years).unwrap_or(u32::MAX).min(1000);
    parameters.not_before = rcgen::date_time_ymd(1970, 1, 1) + now;
    parameters.not_after = parameters.not_before + years * YEAR;
    let key = KeyPair::generate()?;
    Ok((parameters.self_signed(&key)?.pem(), key.serialize_pem()))
}

/// For nobody else's eyes.
fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    // A file of another start that was interrupted may be there, with other rights.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
