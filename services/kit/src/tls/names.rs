//! Whose certificates are taken, of those that an authority has signed: by common name, or by a host name that they are for. From etcd's
//! `client/pkg/transport/listener.go`.

use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error};

/// Which names are taken; nothing chosen: all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowedNames {
    /// Whatever the authority has signed.
    #[default]
    Any,
    /// A certificate whose subject has one of these common names.
    Common(Vec<String>),
    /// A certificate that is for one of these hosts.
    Hosts(Vec<ServerName<'static>>),
}

impl AllowedNames {
    pub(super) fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let is_allowed = match self {
            Self::Any => true,
            Self::Common(names) => super::common_name(certificate).is_some_and(|name| names.contains(&name)),
            Self::Hosts(hosts) => {
                let certificate = ParsedCertificate::try_from(certificate)?;
                hosts.iter().any(|host| verify_server_name(&certificate, host).is_ok())
            }
        };
        match is_allowed {
            true => Ok(()),
            false => Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)),
        }
    }
}
