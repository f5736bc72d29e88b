//! Verifies the server's certificate. Notes the facts of a handshake in the context of its call,
//! because rustls keeps nothing of one that fails.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ResolvesClientCert, verify_server_cert_signed_by_trust_anchor, verify_server_name,
};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::super::calls::call_context::{self, RefusedChain};
use crate::sync::Arc;

/// Verifies certificates as rustls does, and notes those that it refuses.
#[derive(Debug)]
pub(crate) struct Verifier {
    /// The authorities to trust. `None` trusts any certificate (`insecure-skip-tls-verify`) of a
    /// peer that has its key.
    pub(crate) roots: Option<RootCertStore>,
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
}

/// Shows no client certificate, and notes that the server asks for one.
#[derive(Debug)]
pub(crate) struct NoClientCertificate;

fn note(own: &CertificateDer<'_>, others: &[CertificateDer<'_>], is_about_key: bool) {
    let certificates = [own].into_iter().chain(others);
    let refused = RefusedChain {
        certificates: certificates
            .cloned()
            .map(CertificateDer::into_owned)
            .collect(),
        is_about_key,
    };
    // Outside of a call there is nothing to note.
    let _outside = call_context::current(|call| call.handshake.refused = Some(Arc::new(refused)));
}

impl Verifier {
    fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let Some(roots) = &self.roots else {
            return Ok(());
        };
        let own = ParsedCertificate::try_from(end_entity)?;
        let known = self.algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&own, roots, intermediates, now, known)?;
        verify_server_name(&own, server_name)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.verify(end_entity, intermediates, server_name, now);
        let verified = verified.inspect_err(|_refusal| note(end_entity, intermediates, false));
        verified.map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let verified = verify_tls12_signature(message, cert, dss, &self.algorithms);
        verified.inspect_err(|_refusal| note(cert, &[], true))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let verified = verify_tls13_signature(message, cert, dss, &self.algorithms);
        verified.inspect_err(|_refusal| note(cert, &[], true))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ResolvesClientCert for NoClientCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let _outside = call_context::current(|call| call.handshake.asks_for_certificate = true);
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}
