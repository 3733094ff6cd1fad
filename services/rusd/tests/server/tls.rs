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

/// As etcd: members that nobody gave certificates make some, and do not look at each other's.
#[test]
fn members_make_their_own_certificates_when_told_so() {
    let servers = crate::group::group(3, "https", &["--peer-auto-tls".to_owned()]);
    for (number, server) in servers.iter().enumerate() {
        assert_eq!(server.etcdctl(&["put", &number.to_string(), "v"]), "OK\n");
    }
    let key = servers[0].directory().join("data/fixtures/peer/key.pem");
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&key.metadata().unwrap().permissions()) & 0o777, 0o600);
    assert_eq!(servers[0].etcdctl(&["get", "", "--prefix", "--keys-only"]).split_whitespace().count(), 3);
}

#[test]
fn a_server_makes_its_own_certificate_once() {
    let server = Rusd::start(&["--auto-tls", "--self-signed-cert-validity=2", "--tls-min-version=TLS1.3"]);
    let certificate = |server: &Rusd| server.directory().join("data/fixtures/client/cert.pem");
    let before = std::fs::read(certificate(&server)).unwrap();
    assert_eq!(server.etcdctl(&["--insecure-skip-tls-verify", "put", "k", "v"]), "OK\n");
    let (directory, flags) = server.kill();
    let server = Rusd::spawn(directory, flags).ready();
    assert_eq!(std::fs::read(certificate(&server)).unwrap(), before);
    // Who looks at it can trust it, for it names the address.
    let file = certificate(&server);
    assert_eq!(server.etcdctl(&["--cacert", file.to_str().unwrap(), "get", "k", "--print-value-only"]), "v\n");
}

#[test]
fn only_the_versions_and_suites_that_were_chosen_are_spoken() {
    let flags = ["--auto-tls", "--tls-max-version=TLS1.2", "--cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"];
    let server = Rusd::start(&flags);
    assert_eq!(server.etcdctl(&["--insecure-skip-tls-verify", "put", "k", "v"]), "OK\n");
    let offered = |version: &'static rustls::SupportedProtocolVersion, suite: Option<&str>| {
        let mut provider = rustls::crypto::ring::default_provider();
        provider.cipher_suites.retain(|known| suite.is_none_or(|suite| format!("{:?}", known.suite()) == suite));
        let roots = rustls::RootCertStore::empty();
        let config = rustls::ClientConfig::builder_with_provider(provider.into());
        let config =
            config.with_protocol_versions(&[version]).unwrap().with_root_certificates(roots).with_no_client_auth();
        let name = rustls::pki_types::ServerName::try_from("127.0.0.1").unwrap();
        let mut connection = rustls::ClientConnection::new(config.into(), name).unwrap();
        let mut socket = std::net::TcpStream::connect(server.address()).unwrap();
        connection.complete_io(&mut socket).unwrap_err().to_string()
    };
    // Whoever gets as far as the certificate, which this client does not know, was spoken to.
    let chosen = offered(&rustls::version::TLS12, Some("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"));
    assert!(chosen.contains("invalid peer certificate"), "{chosen}");
    let other = offered(&rustls::version::TLS12, Some("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"));
    assert!(other.contains("alert"), "{other}");
    let newer = offered(&rustls::version::TLS13, None);
    assert!(newer.contains("alert"), "{newer}");
}
