//! TLS, with and without certificates of clients.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine;
use harness::Authority;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose, date_time_ymd};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use crate::process::Rusd;

fn pem(label: &str, der: &[u8]) -> String {
    let body = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
}

#[test]
fn members_talk_over_mutual_tls_and_no_stranger_joins() {
    let (authority, other) = (Authority::new(), Authority::new());
    authority.sign("peer");
    other.sign("peer");
    let flags = |authority: &Authority| {
        vec![
            format!("--peer-cert-file={}", authority.file("peer.pem")),
            format!("--peer-key-file={}", authority.file("peer.key")),
            format!("--peer-trusted-ca-file={}", authority.file("ca.pem")),
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
        Rusd::spawn(harness::folder(), flags).refusal()
    };
    let said = asks(&authority);
    assert!(said.contains("knows no member at https://127.0.0.1:1: add it first"), "{said}");
    let said = asks(&other);
    assert!(said.contains("ertificate"), "{said}");
}

/// Not every name that the authority has signed is that of a member, or of a client.
#[test]
fn only_certificates_of_the_names_that_are_allowed_are_taken() {
    let authority = Authority::new();
    let path = |name: &str| authority.file(name);
    authority.sign("peer");
    authority.sign("somebody");
    let of_peers = |name: &str, allowed: &str| {
        vec![
            format!("--peer-cert-file={}", path(&format!("{name}.pem"))),
            format!("--peer-key-file={}", path(&format!("{name}.key"))),
            format!("--peer-trusted-ca-file={}", path("ca.pem")),
            "--peer-client-cert-auth".to_owned(),
            allowed.to_owned(),
        ]
    };
    let servers = crate::group::group(3, "https", &of_peers("peer", "--peer-cert-allowed-cn=other,peer"));
    assert_eq!(servers[0].etcdctl(&["put", "k", "v"]), "OK\n");
    let mut flags = of_peers("somebody", "--peer-cert-allowed-cn=peer");
    flags.extend([
        "--name=stranger".to_owned(),
        "--listen-peer-urls=https://127.0.0.1:0".to_owned(),
        format!("--initial-cluster=m={},stranger=https://127.0.0.1:1", crate::group::peer_url(&servers[0])),
        "--initial-cluster-state=existing".to_owned(),
    ]);
    let said = Rusd::spawn(harness::folder(), flags).refusal();
    assert!(!said.contains("knows no member") && said.contains("AccessDenied"), "{said}");
    drop(servers);
    let servers = crate::group::group(3, "https", &of_peers("peer", "--peer-cert-allowed-hostname=localhost"));
    assert_eq!(servers[0].etcdctl(&["put", "k", "v"]), "OK\n");

    let of_clients = |host: &str| {
        Rusd::start(&[
            &format!("--cert-file={}", path("peer.pem")),
            &format!("--key-file={}", path("peer.key")),
            &format!("--trusted-ca-file={}", path("ca.pem")),
            "--client-cert-auth",
            &format!("--client-cert-allowed-hostname={host}"),
        ])
    };
    let (ca, certificate, key) = (path("ca.pem"), path("somebody.pem"), path("somebody.key"));
    let put = ["--cacert", &ca, "--cert", &certificate, "--key", &key, "put", "k", "v"];
    assert_eq!(of_clients("elsewhere,localhost").etcdctl(&put), "OK\n");
    let server = of_clients("elsewhere");
    let refused = server.command(&put).args(["--command-timeout=2s", "--dial-timeout=2s"]).output().unwrap();
    assert!(!refused.status.success());
}

#[test]
fn clients_are_served_with_tls_and_strangers_are_not() {
    let authority = Authority::new();
    authority.sign("server");
    authority.sign("client");
    let path = |name: &str| authority.file(name);
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

#[test]
fn a_client_whose_certificate_was_revoked_is_refused_and_the_list_is_read_again() {
    let authority = Authority::new();
    for name in ["server", "alice", "bob"] {
        authority.sign(name);
    }
    let list = authority.file("revoked.crl");
    std::fs::write(&list, authority.revoked(&["alice"])).unwrap();
    let path = |name: &str| authority.file(name);
    let server = Rusd::start(&[
        &format!("--cert-file={}", path("server.pem")),
        &format!("--key-file={}", path("server.key")),
        &format!("--trusted-ca-file={}", path("ca.pem")),
        "--client-cert-auth",
        &format!("--client-crl-file={list}"),
    ]);
    // A handshake, and a byte back: with TLS 1.3 a client learns only then that it was refused.
    let is_served = |name: &str| {
        let (certificate, key) = (path(&format!("{name}.pem")), path(&format!("{name}.key")));
        let mut config = rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots(&path("ca.pem")))
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_file(certificate).unwrap()],
                PrivateKeyDer::from_pem_file(key).unwrap(),
            )
            .unwrap();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let host = ServerName::try_from("127.0.0.1").unwrap();
        let connection = rustls::ClientConnection::new(config.into(), host).unwrap();
        let socket = std::net::TcpStream::connect(server.address()).unwrap();
        let mut stream = rustls::StreamOwned::new(connection, socket);
        let asked = stream.write_all(b"GET /version HTTP/1.1\r\nHost: it\r\n\r\n");
        asked.and_then(|()| stream.read_exact(&mut [0; 8])).is_ok()
    };
    assert!(!is_served("alice") && is_served("bob"));
    // A list that cannot be used leaves the one before; nobody can see when it was looked at, so that this is all that can be said.
    std::fs::write(&list, "no list").unwrap();
    assert!(!is_served("alice"));
    std::fs::write(&list, pem("X509 CRL", &authority.revoked(&["bob"]))).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_served("alice") || is_served("bob") {
        assert!(Instant::now() < deadline, "the new list is not looked at");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn roots(path: &str) -> rustls::RootCertStore {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(path).unwrap()).unwrap();
    roots
}

#[test]
fn a_list_of_revoked_certificates_that_cannot_be_used_ends_the_start_and_is_named() {
    let authority = Authority::new();
    authority.sign("server");
    std::fs::write(authority.file("no.crl"), "no list").unwrap();
    let mut flags = vec![
        format!("--cert-file={}", authority.file("server.pem")),
        format!("--key-file={}", authority.file("server.key")),
        format!("--client-crl-file={}", authority.file("no.crl")),
    ];
    let said = Rusd::spawn(harness::folder(), flags.clone()).refusal();
    assert!(said.contains("--trusted-ca-file: is required with --client-crl-file"), "{said}");
    flags.push(format!("--trusted-ca-file={}", authority.file("ca.pem")));
    let said = Rusd::spawn(harness::folder(), flags).refusal();
    assert!(said.contains("no.crl cannot be used as a list of revoked certificates"), "{said}");
}

#[test]
fn a_member_whose_certificate_was_revoked_does_not_join() {
    let authority = Authority::new();
    let list = authority.file("revoked.crl");
    std::fs::write(&list, authority.revoked(&["lost"])).unwrap();
    let flags = |name: &str| {
        authority.sign(name);
        vec![
            format!("--peer-cert-file={}", authority.file(&format!("{name}.pem"))),
            format!("--peer-key-file={}", authority.file(&format!("{name}.key"))),
            format!("--peer-trusted-ca-file={}", authority.file("ca.pem")),
            "--peer-client-cert-auth".to_owned(),
            format!("--peer-crl-file={list}"),
        ]
    };
    let servers = crate::group::group(3, "https", &flags("peer"));
    assert_eq!(servers[0].etcdctl(&["put", "k", "v"]), "OK\n");
    let mut flags = flags("lost");
    flags.extend([
        "--name=lost".to_owned(),
        "--listen-peer-urls=https://127.0.0.1:0".to_owned(),
        format!("--initial-cluster=m={},lost=https://127.0.0.1:1", crate::group::peer_url(&servers[0])),
        "--initial-cluster-state=existing".to_owned(),
    ]);
    let said = Rusd::spawn(harness::folder(), flags).refusal();
    assert!(said.contains("ertificate"), "{said}");
}

/// Whether a server answers who shows this certificate. A handshake, and a byte back: with TLS 1.3 a client learns only then that it
/// was refused.
fn is_served(address: &str, certificate: &Path, key: &Path) -> bool {
    let mut config = rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(std::sync::Arc::new(AnyServer))
        .with_client_auth_cert(
            vec![CertificateDer::from_pem_file(certificate).unwrap()],
            PrivateKeyDer::from_pem_file(key).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let host = ServerName::try_from("127.0.0.1").unwrap();
    let connection = rustls::ClientConnection::new(config.into(), host).unwrap();
    let socket = std::net::TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(harness::LONG)).unwrap();
    let mut stream = rustls::StreamOwned::new(connection, socket);
    let asked = stream.write_all(b"GET /version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    asked.and_then(|()| stream.read_exact(&mut [0; 8])).is_ok()
}

/// Who wants no certificate of the server.
#[derive(Debug)]
struct AnyServer;

impl rustls::client::danger::ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A client whose certificate was its own authority waited for ever; and who is trusted but may sign nothing could sign.
#[test]
fn certificates_of_clients_are_taken_that_etcd_takes_and_no_others() {
    let authority = Authority::new();
    authority.sign("server");
    let is_ca = |parameters: &mut CertificateParams| parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let change = |change: fn(&mut CertificateParams)| {
        move |parameters: &mut CertificateParams| {
            is_ca(parameters);
            change(parameters);
        }
    };
    let past = |parameters: &mut CertificateParams| parameters.not_after = date_time_ymd(2020, 1, 1);
    let for_servers = |parameters: &mut CertificateParams| {
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    };
    let other = Authority::new();
    let mut trusted = std::fs::read_to_string(authority.path()).unwrap();
    let mut trust = |name: &str, (certificate, key): (PathBuf, PathBuf)| {
        trusted.push_str(&std::fs::read_to_string(&certificate).unwrap());
        (name.to_owned(), certificate, key)
    };
    let mut shown = vec![
        trust("its own authority", authority.self_signed("own", is_ca)),
        trust("its own authority, expired", authority.self_signed("own-past", change(past))),
        trust("its own authority, for servers", authority.self_signed("own-servers", change(for_servers))),
        trust(
            "its own authority, for all",
            authority.self_signed("own-all", change(|it| it.extended_key_usages.clear())),
        ),
        trust(
            "its own authority, which may not sign",
            authority.self_signed("own-no-sign", change(|it| it.key_usages = vec![KeyUsagePurpose::DigitalSignature])),
        ),
        trust("trusted itself", authority.self_signed("plain", |_| {})),
        trust("trusted itself, expired", authority.self_signed("plain-past", past)),
    ];
    let by_plain = authority.signed_by("plain", "by-plain", |_| {});
    let by_own = authority.signed_by("own", "by-own", is_ca);
    let by_no_sign = authority.signed_by("own-no-sign", "by-no-sign", is_ca);
    let more = [
        ("its own authority, unknown", authority.self_signed("own-unknown", is_ca)),
        ("signed, and nothing else", authority.sign("signed")),
        ("signed, an authority", authority.sign_as("signed-ca", is_ca)),
        ("signed, an authority, expired", authority.sign_as("signed-past", change(past))),
        ("signed, an authority, for servers", authority.sign_as("signed-servers", change(for_servers))),
        ("signed by another of the same name", other.sign_as("signed-other", is_ca)),
        ("signed by who is trusted and may not sign", by_plain),
        ("signed by another that is trusted", by_own),
        ("an authority signed by one that may not sign", by_no_sign),
    ];
    shown.extend(more.map(|(name, (certificate, key))| (name.to_owned(), certificate, key)));
    std::fs::write(authority.file("trusted.pem"), trusted).unwrap();
    let file = |name: &str| authority.file(name);
    let (http, data) = (format!("https://{}", harness::free_address()), harness::folder());
    let flags = [
        format!("--cert-file={}", file("server.pem")),
        format!("--key-file={}", file("server.key")),
        format!("--trusted-ca-file={}", file("trusted.pem")),
        "--client-cert-auth".to_owned(),
    ];
    let flags = flags.iter().map(String::as_str).collect::<Vec<_>>();
    let rusd = Rusd::start(&flags);
    let _etcd = harness::Etcd::start_with(data.path(), &[&flags[..], &["--listen-client-http-urls", &http]].concat());
    let answers = |address: &str| {
        let answer = |(name, certificate, key): &(String, PathBuf, PathBuf)| {
            (name.clone(), is_served(address, certificate, key))
        };
        shown.iter().map(answer).collect::<Vec<_>>()
    };
    let by_etcd = answers(http.trim_start_matches("https://"));
    assert!(by_etcd.contains(&("its own authority".into(), true)), "{by_etcd:#?}");
    assert_eq!(answers(rusd.address()), by_etcd);
}
