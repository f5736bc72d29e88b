//! A test server's side of TLS, out of a certificate and its key.

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::{Error, ErrorKind};
use crate::sync::Arc;

/// A configuration that shows these certificates to whoever connects, and asks nobody for one.
pub(in crate::testing) fn configuration(
    certificates: &[u8],
    key: &[u8],
    provider: Arc<CryptoProvider>,
) -> Result<Arc<ServerConfig>, Error> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
    let chain = chain.map_err(|error| unusable("certificates", error))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| unusable("key", error))?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable("crypto provider", error))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| unusable("certificates and key", error))?;
    Ok(Arc::new(config))
}

fn unusable(what: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    let message = format!("the test server's {what} cannot be used: {error}");
    Error::new(ErrorKind::Config, message)
}
