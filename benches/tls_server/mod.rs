//! The TLS half of the benches' servers: the fixture certificate, no client certificates.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub(crate) fn config() -> Arc<ServerConfig> {
    let certificate = include_bytes!("../../fixtures/certs/server.pem");
    let key = include_bytes!("../../fixtures/certs/server.key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate).unwrap()],
            PrivateKeyDer::from_pem_slice(key).unwrap(),
        );
    Arc::new(config.unwrap())
}
