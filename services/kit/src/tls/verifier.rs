//! Who is taken: whom an authority has signed, or who is trusted himself, if his name is allowed; or anybody.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::AllowedNames;
use super::authority_shown::{Purpose, Trusted};

/// Whom a verifier takes; `V` is rustls' own for one of the two ends.
#[derive(Debug)]
pub(super) enum Whom<V: ?Sized> {
    /// Those whom an authority stands for, and of these only some names. `by_authority` is `None` where nobody who is trusted may sign.
    Trusted { trusted: Trusted, by_authority: Option<Arc<V>>, allowed: AllowedNames },
    /// Everybody who has the key of the certificate that he shows.
    Anybody,
}

/// Checks whoever is at the other end.
#[derive(Debug)]
pub(super) struct Verifier<V: ?Sized> {
    pub(super) whom: Whom<V>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
    /// Clients need show no certificate, and a server's may be for another host.
    pub(super) is_lenient: bool,
}

impl<V: ?Sized> Verifier<V> {
    /// Checks a certificate; `by_authority` asks rustls' own verifier, `is_meant` what only this end asks.
    fn check(
        &self,
        certificate: &CertificateDer<'_>,
        (purpose, now): (Purpose, UnixTime),
        by_authority: impl FnOnce(&V) -> Result<(), Error>,
        is_meant: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Whom::Trusted { trusted, by_authority: own, allowed } = &self.whom else { return Ok(()) };
        match (trusted.check(certificate, purpose, now), own) {
            (Some(checked), _) => checked.and_then(|()| is_meant())?,
            (None, Some(own)) => by_authority(own)?,
            (None, None) => return Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)),
        }
        allowed.check(certificate)
    }
}

/// What both ends ask of a verifier alike: that who shows a certificate has its key.
macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls12_signature(message, certificate, signed, &self.algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature(message, certificate, signed, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.algorithms.supported_schemes()
        }
    };
}

impl ClientCertVerifier for Verifier<dyn ClientCertVerifier> {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        match &self.whom {
            Whom::Trusted { by_authority: Some(own), .. } => own.root_hint_subjects(),
            _ => &[],
        }
    }

    fn client_auth_mandatory(&self) -> bool {
        !self.is_lenient
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let by_authority = |own: &(dyn ClientCertVerifier + 'static)| {
            own.verify_client_cert(certificate, intermediates, now).map(drop)
        };
        self.check(certificate, (Purpose::Client, now), by_authority, || Ok(()))?;
        Ok(ClientCertVerified::assertion())
    }

    signatures!();
}

impl ServerCertVerifier for Verifier<dyn ServerCertVerifier> {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let by_authority = |own: &(dyn ServerCertVerifier + 'static)| {
            match own.verify_server_cert(certificate, intermediates, server_name, ocsp_response, now) {
                // rustls looks at the name last: all else is well.
                Err(Error::InvalidCertificate(
                    CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
                )) if self.is_lenient => Ok(()),
                checked => checked.map(drop),
            }
        };
        let is_meant = || match self.is_lenient {
            true => Ok(()),
            false => verify_server_name(&ParsedCertificate::try_from(certificate)?, server_name),
        };
        self.check(certificate, (Purpose::Server, now), by_authority, is_meant)?;
        Ok(ServerCertVerified::assertion())
    }

    signatures!();
}
