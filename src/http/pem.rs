//! PEM material as the configuration names it: inline bytes or a file that is read each time it is needed.

use std::fmt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::environment::Environment;
use crate::error::{Error, ErrorKind};
use crate::sync::Arc;

/// Bytes of a certificate, bundle or key no file may exceed: system bundles have a quarter of this.
const PEM_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Certificates or a key, with the place they came from for messages.
#[derive(Clone)]
pub(crate) enum Pem {
    /// Bytes that stood in the configuration.
    Inline {
        /// The PEM text.
        bytes: Arc<Zeroizing<Vec<u8>>>,
        /// Where it stood, such as `/home/u/.kube/config: users[name=admin].user.client-key-data`.
        field: String,
    },
    /// A file, read anew each time: certificates rotate.
    File {
        /// Its path.
        path: PathBuf,
        /// Which field named it.
        field: String,
    },
}

impl Pem {
    pub(crate) fn inline(bytes: Vec<u8>, field: impl Into<String>) -> Self {
        Self::Inline {
            bytes: Arc::new(Zeroizing::new(bytes)),
            field: field.into(),
        }
    }

    pub(crate) fn file(path: impl Into<PathBuf>, field: impl Into<String>) -> Self {
        Self::File {
            path: path.into(),
            field: field.into(),
        }
    }

    /// The PEM text as it is now. Blocks for the read of a local file.
    ///
    /// # Errors
    ///
    /// `Config`, naming field and file.
    pub(crate) fn read(&self) -> Result<Zeroizing<Vec<u8>>, Error> {
        match self {
            Self::Inline { bytes, .. } => Ok(Zeroizing::clone(bytes)),
            Self::File { path, .. } => read_bounded(path, PEM_BYTES_MAX)
                .map_err(|why| Error::new(ErrorKind::Config, format!("{}: {why}", self.origin()))),
        }
    }

    /// The file, where it is one.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Inline { .. } => None,
            Self::File { path, .. } => Some(path),
        }
    }

    /// The field alone.
    pub(crate) fn field(&self) -> &str {
        match self {
            Self::Inline { field, .. } | Self::File { field, .. } => field,
        }
    }

    /// The place to look at when the content is wrong: field, and file where there is one.
    pub(crate) fn origin(&self) -> String {
        match self {
            Self::Inline { field, .. } => field.clone(),
            Self::File { path, field } => format!("{field}: {}", path.display()),
        }
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pem({})", self.origin())
    }
}

/// Where systems keep the authorities they trust; the first that exists is taken, as Go does.
const SYSTEM_BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The authorities for a server whose configuration names none: `SSL_CERT_FILE`, else the system's bundle.
pub(super) fn system_authorities(environment: &Environment) -> Option<Pem> {
    if let Some(path) = environment.var("SSL_CERT_FILE") {
        return Some(Pem::file(path, "SSL_CERT_FILE"));
    }
    let bundle = SYSTEM_BUNDLES
        .into_iter()
        .map(Path::new)
        .find(|path| path.is_file())?;
    Some(Pem::file(bundle, "the system's certificate authorities"))
}

/// The error of a system that trusts nobody.
pub(super) fn no_system_authorities() -> Error {
    let message = format!(
        "no certificate-authority is configured, and the system has no bundle: looked for {}",
        SYSTEM_BUNDLES.join(", ")
    );
    Error::new(ErrorKind::Config, message)
}

/// Why a file cannot be read, in plain words for the usual reasons.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "other reasons are told in the system's own words"
)]
fn told(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file".to_owned(),
        std::io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

/// Reads a whole file of at most `bytes_max`, a reason without the path as error.
pub(crate) fn read_bounded(path: &Path, bytes_max: u64) -> Result<Zeroizing<Vec<u8>>, String> {
    use std::io::Read as _;
    let file = std::fs::File::open(path).map_err(|error| told(&error))?;
    // Room for all of it at once: a buffer that grows leaves copies behind that nobody overwrites.
    let expected = file
        .metadata()
        .map_err(|error| told(&error))?
        .len()
        .min(bytes_max);
    let room = usize::try_from(expected).unwrap_or_default();
    let mut bytes = Zeroizing::new(Vec::with_capacity(room.saturating_add(1)));
    // One byte more than allowed tells a full file from a larger one.
    file.take(bytes_max.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| told(&error))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > bytes_max {
        return Err(format!("larger than {bytes_max} bytes"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_named_with_its_field() {
        let pem = Pem::file("/nonexistent/ca.crt", "--certificate-authority");
        let error = pem.read().unwrap_err();
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
        assert_eq!(&**pem.read().unwrap(), b"canary");
    }

    #[test]
    fn a_file_without_end_is_refused() {
        let why = read_bounded(Path::new("/dev/zero"), 64).unwrap_err();
        assert_eq!(why, "larger than 64 bytes");
    }
}
