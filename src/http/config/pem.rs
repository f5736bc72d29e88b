//! Certificates and keys in PEM, inline in a configuration or in a file that it names.

use std::fmt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::environment::Environment;
use super::local_file::read_bounded;
use crate::error::Error;
use crate::sync::Arc;

/// The largest file of certificates or keys. The bundles of systems have a quarter of this.
const PEM_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Certificates or a key, and where they came from, for messages.
#[derive(Clone)]
pub(crate) struct Pem {
    /// The field, such as `/home/u/.kube/config: users[name=admin].user.client-key-data`.
    pub(crate) field: String,
    /// The file that the field names. It is read again as certificates rotate.
    pub(crate) path: Option<PathBuf>,
    /// The PEM text: inline, or of the file if this is [`loaded`](Self::loaded).
    pub(crate) bytes: Arc<Zeroizing<Vec<u8>>>,
}

/// A client certificate with its key.
#[derive(Clone, Debug)]
pub(crate) struct ClientIdentity {
    /// The certificate chain.
    pub(crate) certificate: Pem,
    /// The key of its first certificate.
    pub(crate) key: Pem,
}

impl Pem {
    pub(crate) fn inline(bytes: Vec<u8>, field: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            path: None,
            bytes: Arc::new(Zeroizing::new(bytes)),
        }
    }

    pub(crate) fn file(path: impl Into<PathBuf>, field: impl Into<String>) -> Self {
        Self {
            path: Some(path.into()),
            ..Self::inline(Vec::new(), field)
        }
    }

    /// Returns a copy with the present bytes of the file. Blocks for the read of a local file.
    ///
    /// # Errors
    ///
    /// `Config` names field and file.
    pub(crate) fn loaded(&self) -> Result<Self, Error> {
        let mut loaded = self.clone();
        if let Some(path) = &self.path {
            let bytes = read_bounded(path, PEM_BYTES_MAX)
                .map_err(|why| Error::config(format!("{}: {why}", self.origin())))?;
            loaded.bytes = Arc::new(bytes);
        }
        Ok(loaded)
    }

    /// Names the field, and the file if there is one.
    pub(crate) fn origin(&self) -> String {
        match &self.path {
            None => self.field.clone(),
            Some(path) => format!("{}: {}", self.field, path.display()),
        }
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pem({})", self.origin())
    }
}

/// Where systems keep the authorities they trust. The first that exists is used, as in Go.
const SYSTEM_BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Finds the authorities for a configuration that names none: `SSL_CERT_FILE`, else the system's
/// bundle.
///
/// # Errors
///
/// `Config`, if the system has none.
pub(crate) fn system_authorities(environment: &Environment) -> Result<Pem, Error> {
    if let Some(path) = environment.var("SSL_CERT_FILE") {
        return Ok(Pem::file(path, "SSL_CERT_FILE"));
    }
    let mut bundles = SYSTEM_BUNDLES.into_iter().map(Path::new);
    match bundles.find(|path| path.is_file()) {
        Some(path) => Ok(Pem::file(path, "the system's certificate authorities")),
        None => Err(Error::config(format!(
            "no certificate-authority is configured, and the system has no bundle: looked for {}",
            SYSTEM_BUNDLES.join(", ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn the_systems_authorities_are_those_of_ssl_cert_file() {
        let environment = Environment::from_pairs([("SSL_CERT_FILE", "/mine.pem")]);
        let pem = system_authorities(&environment).unwrap();
        assert_eq!(pem.origin(), "SSL_CERT_FILE: /mine.pem");
    }

    #[test]
    fn a_missing_file_is_named_with_its_field() {
        let pem = Pem::file("/nonexistent/ca.crt", "--certificate-authority");
        let error = pem.loaded().unwrap_err();
        assert_eq!(
            error.to_string(),
            "--certificate-authority: /nonexistent/ca.crt: no such file"
        );
        assert_eq!(error.kind(), ErrorKind::Config);
    }

    #[test]
    fn debug_shows_the_place_and_no_byte() {
        let pem = Pem::inline(b"canary".to_vec(), "users[name=a].user.client-key-data");
        assert_eq!(
            format!("{pem:?}"),
            "Pem(users[name=a].user.client-key-data)"
        );
        assert_eq!(pem.loaded().unwrap().bytes.as_slice(), b"canary");
    }
}
