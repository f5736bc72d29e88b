//! A test server's side of TLS, out of a certificate and its key.

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::error::{Error, ErrorKind};
use crate::sync::Arc;

/// A configuration that shows these certificates to whoever connects. It takes client certificates
/// of `client_authorities`, and asks nobody for one without them.
pub(in crate::testing) fn configuration(
    certificates: &[u8],
    key: &[u8],
    provider: Arc<CryptoProvider>,
    client_authorities: Option<&[u8]>,
) -> Result<Arc<ServerConfig>, Error> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
    let chain = chain.map_err(|error| unusable("certificates", error))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| unusable("key", error))?;
    let clients = match client_authorities {
        None => WebPkiClientVerifier::no_client_auth(),
        Some(authorities) => client_verifier(authorities, &provider)?,
    };
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable("crypto provider", error))?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .map_err(|error| unusable("certificates and key", error))?;
    Ok(Arc::new(config))
}

/// Verifies the certificate of a client that shows one.
fn client_verifier(
    authorities: &[u8],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    const WHAT: &str = "client authorities";
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authorities) {
        let authority = authority.map_err(|error| unusable(WHAT, error))?;
        roots
            .add(authority)
            .map_err(|error| unusable(WHAT, error))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .allow_unauthenticated()
        .build()
        .map_err(|error| unusable(WHAT, error))
}

fn unusable(what: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    let message = format!("the test server's {what} cannot be used: {error}");
    Error::new(ErrorKind::Config, message)
}
