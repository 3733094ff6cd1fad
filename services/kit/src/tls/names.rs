//! Whose certificates are taken, of those that an authority has signed: by common name, or by a host name that they are for. From etcd's
//! `client/pkg/transport/listener.go`.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

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
    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
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

/// What was checked before, and its name besides.
#[derive(Debug)]
pub(super) struct Named<V: ?Sized> {
    pub(super) allowed: AllowedNames,
    pub(super) inner: Arc<V>,
}

impl ClientCertVerifier for Named<dyn ClientCertVerifier> {
    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.inner.verify_client_cert(certificate, intermediates, now)?;
        self.allowed.check(certificate)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

impl ServerCertVerifier for Named<dyn ServerCertVerifier> {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.inner.verify_server_cert(certificate, intermediates, server_name, ocsp_response, now)?;
        self.allowed.check(certificate)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
