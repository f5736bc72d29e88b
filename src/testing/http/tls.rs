//! A test server's side of TLS, from a certificate and its key, or from a test authority.

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::authority::TestAuthority;
use super::faults::Act;
use crate::error::{Error, ErrorKind};
use crate::sync::Arc;

/// The certificates that a server shows.
#[derive(Clone, Debug)]
pub(in crate::testing) struct ServerTls {
    config: Arc<ServerConfig>,
    /// The certificates that clients trust, in PEM.
    certificates: Vec<u8>,
    /// Signs other certificates, for the faults that need them.
    authority: Option<TestAuthority>,
}

impl ServerTls {
    /// Shows these certificates. Accepts client certificates of the authorities `clients`, in PEM,
    /// and clients without one. Without authorities, it asks for no certificate.
    pub(in crate::testing) fn of_pem(
        certificates: &[u8],
        key: &[u8],
        provider: Arc<CryptoProvider>,
        clients: Option<&[u8]>,
    ) -> Result<Self, Error> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
        let chain = chain.map_err(|error| unusable("certificates", error))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| unusable("key", error))?;
        let verifier = match clients {
            Some(authorities) => verifier(authorities, Arc::clone(&provider))?,
            None => WebPkiClientVerifier::no_client_auth(),
        };
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable("crypto provider", error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|error| unusable("certificates and key", error))?;
        Ok(Self {
            config: Arc::new(config),
            certificates: certificates.to_vec(),
            authority: None,
        })
    }

    /// Shows a certificate of that authority, and accepts its client certificates.
    pub(in crate::testing) fn of_authority(authority: &TestAuthority) -> Result<Self, Error> {
        Ok(Self {
            config: authority.server(None, false)?,
            certificates: authority.pem().into_bytes(),
            authority: Some(authority.clone()),
        })
    }

    pub(super) fn certificates(&self) -> &[u8] {
        &self.certificates
    }

    pub(super) fn authority(&self) -> Option<&TestAuthority> {
        self.authority.as_ref()
    }

    /// The configuration for a connection that meets this fault.
    pub(super) fn config(&self, act: Option<&Act>) -> Result<Arc<ServerConfig>, Error> {
        let (flaw, demands) = match act {
            Some(Act::Certificate(flaw)) => (Some(*flaw), false),
            Some(Act::ClientCertificate) => (None, true),
            _ => return Ok(Arc::clone(&self.config)),
        };
        let Some(authority) = &self.authority else {
            let message = "faults of certificates need a server whose TLS is by a test authority";
            return Err(Error::new(ErrorKind::Config, message));
        };
        authority.server(flaw, demands)
    }
}

fn verifier(
    authorities: &[u8],
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities) {
        let added = certificate
            .map_err(|error| unusable("client authorities", error))
            .map(|certificate| roots.add(certificate))?;
        added.map_err(|error| unusable("client authorities", error))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| unusable("client authorities", error))
}

fn unusable(what: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    let message = format!("the test server's {what} cannot be used: {error}");
    Error::new(ErrorKind::Config, message)
}
