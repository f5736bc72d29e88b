//! Certificates and keys: as PEM in files and configurations, and the facts that they state.

pub(super) mod client_certificate;
pub(super) mod facts;
pub(super) mod pem;
