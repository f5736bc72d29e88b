//! Notes what a handshake shows, in the context of its call: rustls keeps nothing of one that
//! fails.

use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, SignatureScheme};

use super::call_context::{self, RefusedChain};
use crate::sync::Arc;

/// Verifies as another verifier does, and notes the certificates that it refuses.
#[derive(Debug)]
pub(crate) struct WitnessedVerifier(pub(crate) Arc<dyn ServerCertVerifier>);

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
    // Outside of a call nobody is told.
    let _outside = call_context::current(|call| {
        call.handshake.refused = Some(Arc::new(refused));
        Ok(())
    });
}

impl ServerCertVerifier for WitnessedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified =
            self.0
                .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        verified.inspect_err(|_refusal| note(end_entity, intermediates, false))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let verified = self.0.verify_tls12_signature(message, cert, dss);
        verified.inspect_err(|_refusal| note(cert, &[], true))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let verified = self.0.verify_tls13_signature(message, cert, dss);
        verified.inspect_err(|_refusal| note(cert, &[], true))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

impl ResolvesClientCert for NoClientCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let _outside = call_context::current(|call| {
            call.handshake.asks_for_certificate = true;
            Ok(())
        });
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}
