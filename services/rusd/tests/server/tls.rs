//! TLS, with and without certificates of clients.

use std::path::{Path, PathBuf};

use base64::Engine;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

use crate::process::Rusd;

fn pem(label: &str, der: &[u8]) -> String {
    let body = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    directory: tempfile::TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(DnType::CommonName, "authority");
        let key = KeyPair::generate().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        std::fs::write(directory.path().join("ca.pem"), pem("CERTIFICATE", certificate.der())).unwrap();
        Self { issuer: Issuer::new(parameters, key), directory }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes `NAME.pem` and `NAME.key`.
    fn sign(&self, name: &str) -> (PathBuf, PathBuf) {
        let mut parameters = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        let write = |suffix: &str, text: String| {
            let path = Path::new(&self.path(name)).with_extension(suffix);
            std::fs::write(&path, text).unwrap();
            path
        };
        (write("pem", pem("CERTIFICATE", certificate.der())), write("key", pem("PRIVATE KEY", &key.serialize_der())))
    }
}

#[test]
fn members_talk_over_mutual_tls_and_no_stranger_joins() {
    let (authority, other) = (Authority::new(), Authority::new());
    authority.sign("peer");
    other.sign("peer");
    let flags = |authority: &Authority| {
        vec![
            format!("--peer-cert-file={}", authority.path("peer.pem")),
            format!("--peer-key-file={}", authority.path("peer.key")),
            format!("--peer-trusted-ca-file={}", authority.path("ca.pem")),
            "--peer-client-cert-auth".to_owned(),
        ]
    };
    let servers = crate::group::group(3, "https", &flags(&authority));
    for (number, server) in servers.iter().enumerate() {
        assert_eq!(server.etcdctl(&["put", &number.to_string(), "v"]), "OK\n");
    }
    assert_eq!(servers[0].etcdctl(&["get", "", "--prefix", "--keys-only"]).split_whitespace().count(), 3);
    let asks = |authority: &Authority| {
        let mut flags = flags(authority);
        flags.extend([
            "--name=stranger".to_owned(),
            "--listen-peer-urls=https://127.0.0.1:0".to_owned(),
            format!("--initial-cluster=m={},stranger=https://127.0.0.1:1", crate::group::peer_url(&servers[0])),
            "--initial-cluster-state=existing".to_owned(),
        ]);
        Rusd::spawn(tempfile::tempdir().unwrap(), flags).refusal()
    };
    let said = asks(&authority);
    assert!(said.contains("knows no member at https://127.0.0.1:1: add it first"), "{said}");
    let said = asks(&other);
    assert!(said.contains("ertificate"), "{said}");
}

#[test]
fn clients_are_served_with_tls_and_strangers_are_not() {
    let authority = Authority::new();
    authority.sign("server");
    authority.sign("client");
    let path = |name: &str| authority.path(name);
    let server = Rusd::start(&[
        &format!("--cert-file={}", path("server.pem")),
        &format!("--key-file={}", path("server.key")),
        &format!("--trusted-ca-file={}", path("ca.pem")),
        "--client-cert-auth",
    ]);
    let (ca, certificate, key) = (path("ca.pem"), path("client.pem"), path("client.key"));
    let with_certificate = ["--cacert", &ca, "--cert", &certificate, "--key", &key];
    assert_eq!(server.etcdctl(&[&with_certificate[..], &["put", "k", "v"]].concat()), "OK\n");
    let mut stranger = server.command(&["--cacert", &ca, "put", "k", "v"]);
    let stranger = stranger.args(["--command-timeout=2s", "--dial-timeout=2s"]).output().unwrap();
    assert!(!stranger.status.success());

    // The certificate's name is the user's.
    let root = |arguments: &[&str]| server.etcdctl(&[&with_certificate[..], arguments].concat());
    root(&["user", "add", "root:secret"]);
    root(&["user", "grant-role", "root", "root"]);
    root(&["user", "add", "client", "--no-password"]);
    root(&["role", "add", "writer"]);
    root(&["role", "grant-permission", "writer", "readwrite", "mine"]);
    root(&["user", "grant-role", "client", "writer"]);
    root(&["auth", "enable"]);
    assert_eq!(root(&["put", "mine", "v"]), "OK\n");
    assert!(server.refused(&[&with_certificate[..], &["put", "yours", "v"]].concat()).contains("permission denied"));
}
