//! What flags say of TLS: files, certificates that the server makes itself, and what may be spoken. From etcd's `server/embed/config.go`
//! and `client/pkg/transport/listener.go`.

use std::path::{Path, PathBuf};

use crate::flags::{Flags, Mistake, Url};

/// Suites of TLS 1.2 that can be chosen from; those of TLS 1.3 cannot be chosen, as in Go.
const SUITES: [&str; 6] = [
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

/// Certificates of the client port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Our certificates, PEM.
    pub certificate: PathBuf,
    /// Their key, PEM.
    pub key: PathBuf,
    /// Who signs clients' certificates; `None`: clients need none.
    pub client_authority: Option<PathBuf>,
    /// Which of the certificates that it signed are not taken any more, PEM or DER.
    pub revocations: Option<PathBuf>,
    /// Whether the name in a client's certificate is that of a user.
    pub client_cert_auth: bool,
    /// What the files are made with if they are not there.
    pub self_signed: Option<SelfSigned>,
    /// What may be spoken.
    pub protocol: Protocol,
}

/// Certificates of the peer port, on which members talk to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerTlsFiles {
    /// What a member shows to those who connect to it; it wants certificates of them if there is an authority.
    pub server: TlsFiles,
    /// Who signs members' certificates; `None`: they are not checked.
    pub authority: Option<PathBuf>,
    /// The certificate that it shows to those it connects to, PEM.
    pub client_certificate: PathBuf,
    /// Its key, PEM.
    pub client_key: PathBuf,
}

/// A certificate that the server makes for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfSigned {
    /// Names and addresses that it is for.
    pub hosts: Vec<String>,
    /// How long it is valid, in years.
    pub validity_years: u64,
}

/// Versions of TLS, and suites of TLS 1.2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protocol {
    /// TLS 1.2 is not spoken.
    pub only_13: bool,
    /// TLS 1.3 is not spoken.
    pub only_12: bool,
    /// By their names in Go; none: all.
    pub suites: Vec<String>,
}

impl Protocol {
    fn of(flags: &Flags) -> Result<Self, Mistake> {
        let version = |flag: &str, default: bool| match flags.given(flag) {
            None | Some("") => Ok(default),
            Some("TLS1.2") => Ok(false),
            Some("TLS1.3") => Ok(true),
            Some(other) => Err(Mistake::new(flag, format!("expected TLS1.2 or TLS1.3, found {other:?}"))),
        };
        let (only_13, only_12) = (version("tls-min-version", false)?, !version("tls-max-version", true)?);
        if only_13 && only_12 {
            return Err(Mistake::new("tls-min-version", "is greater than --tls-max-version"));
        }
        const FLAG: &str = "cipher-suites";
        let names = flags.given(FLAG).unwrap_or_default().split(',').filter(|name| !name.is_empty());
        let suites = names.map(str::to_owned).collect::<Vec<_>>();
        if let Some(unknown) = suites.iter().find(|name| !SUITES.contains(&name.as_str())) {
            return Err(Mistake::new(FLAG, format!("{unknown:?} is none of {}", SUITES.join(", "))));
        }
        if only_13 && !suites.is_empty() {
            return Err(Mistake::new(FLAG, "cannot be chosen when only TLS1.3 is enabled"));
        }
        Ok(Self { only_13, only_12, suites })
    }
}

/// Of the client port.
pub(super) fn of_clients<'a>(
    flags: &Flags,
    data_directory: &Path,
    urls: impl Iterator<Item = &'a Url>,
) -> Result<Option<TlsFiles>, Mistake> {
    match files(flags, "")? {
        None if flags.boolean("auto-tls", false)? => self_signed(flags, data_directory, "client", urls).map(Some),
        files => Ok(files),
    }
}

/// Of the peer port.
pub(super) fn of_peers(flags: &Flags, data_directory: &Path, urls: &[Url]) -> Result<Option<PeerTlsFiles>, Mistake> {
    let server = match files(flags, "peer-")? {
        Some(server) => server,
        None if flags.boolean("peer-auto-tls", false)? => {
            let server = self_signed(flags, data_directory, "peer", urls.iter())?;
            let (client_certificate, client_key) = (server.certificate.clone(), server.key.clone());
            return Ok(Some(PeerTlsFiles { server, authority: None, client_certificate, client_key }));
        }
        None => return Ok(None),
    };
    if server.client_authority.is_none() {
        return Err(Mistake::new(
            "peer-trusted-ca-file",
            "is required with --peer-cert-file: members check each other",
        ));
    }
    let file = |flag, default: &PathBuf| flags.given(flag).map_or_else(|| default.clone(), PathBuf::from);
    let client_certificate = file("peer-client-cert-file", &server.certificate);
    let client_key = file("peer-client-key-file", &server.key);
    Ok(Some(PeerTlsFiles { authority: server.client_authority.clone(), server, client_certificate, client_key }))
}

/// What the flags say that begin with `prefix`: empty for clients, `peer-` for members.
fn files(flags: &Flags, prefix: &str) -> Result<Option<TlsFiles>, Mistake> {
    let protocol = Protocol::of(flags)?;
    let name = |flag: &str| format!("{prefix}{flag}");
    let mistake =
        |flag: &str, other: &str| Err(Mistake::new(&name(flag), format!("is required with --{}", name(other))));
    let (certificate, key) = match (flags.given(&name("cert-file")), flags.given(&name("key-file"))) {
        (Some(certificate), Some(key)) => (certificate.into(), key.into()),
        (None, None) => return Ok(None),
        (Some(_), None) => return mistake("key-file", "cert-file"),
        (None, Some(_)) => return mistake("cert-file", "key-file"),
    };
    let authority = flags.given(&name("trusted-ca-file")).map(PathBuf::from);
    // etcd's name for it does not begin like the others of clients.
    let revocations_flag = if prefix.is_empty() { "client-crl-file" } else { "crl-file" };
    let revocations = flags.given(&name(revocations_flag)).map(PathBuf::from);
    // As in etcd: clients are asked for certificates where somebody is named who signs them.
    let client_cert_auth = flags.boolean(&name("client-cert-auth"), false)?;
    let client_authority = match (client_cert_auth, authority) {
        (true, None) => return mistake("trusted-ca-file", "client-cert-auth"),
        (false, None) if revocations.is_some() => return mistake("trusted-ca-file", revocations_flag),
        (_, authority) => authority,
    };
    Ok(Some(TlsFiles {
        certificate,
        key,
        client_authority,
        revocations,
        client_cert_auth,
        self_signed: None,
        protocol,
    }))
}

/// Files in the data directory, where etcd has them.
fn self_signed<'a>(
    flags: &Flags,
    data_directory: &Path,
    whose: &str,
    urls: impl Iterator<Item = &'a Url>,
) -> Result<TlsFiles, Mistake> {
    const FLAG: &str = "self-signed-cert-validity";
    let validity_years = flags.number(FLAG, 1)?;
    if validity_years == 0 {
        return Err(Mistake::new(FLAG, "must be greater than 0"));
    }
    let hosts = urls.filter(|url| !url.is_unix).map(|url| url.host.trim_matches(['[', ']']).to_owned()).collect();
    let folder = data_directory.join("fixtures").join(whose);
    Ok(TlsFiles {
        certificate: folder.join("cert.pem"),
        key: folder.join("key.pem"),
        client_authority: None,
        revocations: None,
        client_cert_auth: false,
        self_signed: Some(SelfSigned { hosts, validity_years }),
        protocol: Protocol::of(flags)?,
    })
}
