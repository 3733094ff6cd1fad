//! What flags say of TLS: files, certificates that the server makes itself, and what may be spoken. From etcd's `server/embed/config.go`
//! and `client/pkg/transport/listener.go`.

use std::path::{Path, PathBuf};

use rustls::pki_types::ServerName;
use service_kit::tls::{AllowedNames, ClientTlsFiles, Protocol, SUITES, SelfSigned, TlsFiles};

use crate::flags::{Flags, Mistake, Url};

/// Certificates of the peer port, on which members talk to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerTlsFiles {
    /// What a member shows to those who connect to it; it wants certificates of them if there is an authority.
    pub server: TlsFiles,
    /// What it shows to those it connects to, and what it checks them with.
    pub client: ClientTlsFiles,
    /// Whose certificates are taken, on both ends.
    pub allowed: AllowedNames,
}

/// Which names in certificates are taken: as in etcd, of one kind.
pub(super) fn allowed_names(flags: &Flags, prefix: &str) -> Result<AllowedNames, Mistake> {
    let (cn_flag, host_flag) = (format!("{prefix}cert-allowed-cn"), format!("{prefix}cert-allowed-hostname"));
    let list = |flag: &str| -> Vec<String> {
        let names = flags.given(flag).unwrap_or_default().split(',').map(str::trim);
        names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    // etcd has no such flag for clients.
    let common = if prefix == "peer-" { list(&cn_flag) } else { Vec::new() };
    let hosts = list(&host_flag);
    match (common.is_empty(), hosts.is_empty()) {
        (true, true) => Ok(AllowedNames::Any),
        (false, true) => Ok(AllowedNames::Common(common)),
        (true, false) => {
            let host = |name: String| {
                let unusable = Mistake::new(&host_flag, format!("{name:?} is no host name and no address"));
                ServerName::try_from(name).map_err(|_| unusable)
            };
            hosts.into_iter().map(host).collect::<Result<_, _>>().map(AllowedNames::Hosts)
        }
        (false, false) => {
            Err(Mistake::new(&host_flag, format!("and --{cn_flag} exclude each other: leave one of them out")))
        }
    }
}

fn protocol(flags: &Flags) -> Result<Protocol, Mistake> {
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
    Ok(Protocol { only_13, only_12, suites })
}

/// Of the client port, and whether the name in a client's certificate is that of a user.
pub(super) fn of_clients<'a>(
    flags: &Flags,
    data_directory: &Path,
    urls: impl Iterator<Item = &'a Url>,
) -> Result<(Option<TlsFiles>, bool), Mistake> {
    match files(flags, "")? {
        Some(files) => Ok((Some(files), flags.boolean("client-cert-auth", false)?)),
        None if flags.boolean("auto-tls", false)? => {
            Ok((Some(self_signed(flags, data_directory, "client", urls)?), false))
        }
        None => Ok((None, false)),
    }
}

/// Of the peer port.
pub(super) fn of_peers(flags: &Flags, data_directory: &Path, urls: &[Url]) -> Result<Option<PeerTlsFiles>, Mistake> {
    let server = match files(flags, "peer-")? {
        Some(server) => server,
        None if flags.boolean("peer-auto-tls", false)? => {
            let server = self_signed(flags, data_directory, "peer", urls.iter())?;
            let certificate = Some((server.certificate.clone(), server.key.clone()));
            let client = ClientTlsFiles { authority: None, certificate, protocol: server.protocol.clone() };
            return Ok(Some(PeerTlsFiles { server, client, allowed: AllowedNames::Any }));
        }
        None => return Ok(None),
    };
    // As in etcd: whoever names no authority asks nobody for a certificate, and believes those whom the system believes.
    let authority = match &server.client_authority {
        Some(authority) => authority.clone(),
        None => system_authorities().ok_or_else(|| {
            let what = "is required with --peer-cert-file where the system has no authorities: name the one that signs members' \
                        certificates, or set SSL_CERT_FILE";
            Mistake::new("peer-trusted-ca-file", what)
        })?,
    };
    let file = |flag, default: &PathBuf| flags.given(flag).map_or_else(|| default.clone(), PathBuf::from);
    let client = ClientTlsFiles {
        authority: Some(authority),
        certificate: Some((
            file("peer-client-cert-file", &server.certificate),
            file("peer-client-key-file", &server.key),
        )),
        protocol: server.protocol.clone(),
    };
    Ok(Some(PeerTlsFiles { server, client, allowed: allowed_names(flags, "peer-")? }))
}

/// The file of authorities that programs on this system believe: where Go looks for it (`crypto/x509/root_{unix,linux}.go`).
fn system_authorities() -> Option<PathBuf> {
    const KNOWN: [&str; 6] = [
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem",
        "/etc/pki/tls/cacert.pem",
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        "/etc/ssl/cert.pem",
    ];
    match std::env::var_os("SSL_CERT_FILE").filter(|path| !path.is_empty()) {
        Some(path) => Some(path.into()),
        None => KNOWN.iter().map(PathBuf::from).find(|path| path.exists()),
    }
}

/// What the flags say that begin with `prefix`: empty for clients, `peer-` for members.
fn files(flags: &Flags, prefix: &str) -> Result<Option<TlsFiles>, Mistake> {
    let protocol = protocol(flags)?;
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
    Ok(Some(TlsFiles { certificate, key, client_authority, revocations, self_signed: None, protocol }))
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
        self_signed: Some(SelfSigned { hosts, validity_years, organization: "etcd".into() }),
        protocol: protocol(flags)?,
    })
}
