//! Who signs certificates, and the files that servers and clients read them from.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};

/// An authority, and a folder with its certificate and all that it has signed; gone when it is dropped.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// One that nobody knows yet; its certificate is in `ca.pem`.
    pub fn new() -> Self {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(DnType::CommonName, "authority");
        let (key, folder) = (KeyPair::generate().unwrap(), crate::folder());
        std::fs::write(folder.path().join("ca.pem"), parameters.self_signed(&key).unwrap().pem()).unwrap();
        Self { issuer: Issuer::new(parameters, key), folder }
    }

    /// Its own certificate, PEM.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// The path of a file in its folder, as flags take it.
    pub fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes a certificate for loopback and its key, `NAME.pem` and `NAME.key`. Its common name is the name, and so is its number.
    pub fn sign(&self, name: &str) -> (PathBuf, PathBuf) {
        self.sign_as(name, |_| {})
    }

    /// As [`Authority::sign`], with something else in it.
    pub fn sign_as(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> (PathBuf, PathBuf) {
        let (parameters, key) = (parameters(name, change), KeyPair::generate().unwrap());
        self.write(name, &parameters.signed_by(&key, &self.issuer).unwrap(), &key)
    }

    /// As [`Authority::sign_as`], signed by the certificate's own key instead of this authority's: nobody else has signed it.
    pub fn self_signed(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> (PathBuf, PathBuf) {
        let (parameters, key) = (parameters(name, change), KeyPair::generate().unwrap());
        self.write(name, &parameters.self_signed(&key).unwrap(), &key)
    }

    /// As [`Authority::sign_as`], signed by one that [`Authority::self_signed`] has made, whether that may sign or not.
    pub fn signed_by(
        &self,
        issuer: &str,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> (PathBuf, PathBuf) {
        let issuer_key = std::fs::read_to_string(self.file(&format!("{issuer}.key"))).unwrap();
        let issuer = Issuer::new(parameters(issuer, |_| {}), KeyPair::from_pem(&issuer_key).unwrap());
        let (parameters, key) = (parameters(name, change), KeyPair::generate().unwrap());
        self.write(name, &parameters.signed_by(&key, &issuer).unwrap(), &key)
    }

    fn write(&self, name: &str, certificate: &Certificate, key: &KeyPair) -> (PathBuf, PathBuf) {
        let write = |suffix: &str, text: String| {
            let path = Path::new(&self.file(name)).with_extension(suffix);
            std::fs::write(&path, text).unwrap();
            path
        };
        (write("pem", certificate.pem()), write("key", key.serialize_pem()))
    }

    /// A list of revoked certificates, by their names, DER. It has long expired: etcd does not look.
    pub fn revoked(&self, names: &[&str]) -> Vec<u8> {
        let revoked = |name: &&str| RevokedCertParams {
            serial_number: SerialNumber::from_slice(name.as_bytes()),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2020, 2, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: names.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().der().to_vec()
    }
}

fn parameters(name: &str, change: impl FnOnce(&mut CertificateParams)) -> CertificateParams {
    let mut parameters = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.serial_number = Some(SerialNumber::from_slice(name.as_bytes()));
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    change(&mut parameters);
    parameters
}
