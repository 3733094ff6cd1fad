//! Which files, and what may be spoken. Flags say it, in the words of each server.

use std::path::PathBuf;

/// Suites of TLS 1.2 that can be chosen from, by their names in Go; those of TLS 1.3 cannot be chosen, as in Go.
pub const SUITES: [&str; 6] = [
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

/// What a server shows to those who connect to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Its certificates, PEM.
    pub certificate: PathBuf,
    /// Their key, PEM.
    pub key: PathBuf,
    /// Who signs clients' certificates; `None`: clients need none.
    pub client_authority: Option<PathBuf>,
    /// Which of the certificates that it signed are not taken any more, PEM or DER.
    pub revocations: Option<PathBuf>,
    /// What the files are made with if they are not there.
    pub self_signed: Option<SelfSigned>,
    /// What may be spoken.
    pub protocol: Protocol,
}

/// What is shown to a server, and what it is checked with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTlsFiles {
    /// Who signs servers' certificates, PEM; `None`: they are not checked, and keep what is said from nobody but those who only listen.
    pub authority: Option<PathBuf>,
    /// The certificate that is shown and its key, PEM.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// What may be spoken.
    pub protocol: Protocol,
}

/// A certificate that a server makes for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfSigned {
    /// Names and addresses that it is for.
    pub hosts: Vec<String>,
    /// How long it is valid, in years.
    pub validity_years: u64,
    /// Whose it says it is.
    pub organization: String,
}

/// Versions of TLS, and suites of TLS 1.2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protocol {
    /// TLS 1.2 is not spoken.
    pub only_13: bool,
    /// TLS 1.3 is not spoken.
    pub only_12: bool,
    /// By their names in Go, of [`SUITES`]; none: all.
    pub suites: Vec<String>,
}
