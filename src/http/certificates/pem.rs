//! Certificates and keys in PEM, inline in a configuration or in the files that it names.

use std::path::{Path, PathBuf};
use std::{fs, io};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use zeroize::Zeroizing;

use crate::error::{Error, debug_of};
use crate::local_file::{describe, read_bounded};
use crate::object::wipe::append;
use crate::sync::Arc;

/// The largest file of certificates or keys. The bundles of systems have a quarter of this size.
const PEM_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Certificates or a key, and where they came from, for messages.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Pem {
    /// The field, such as `/home/u/.kube/config: users[name=admin].user.client-key-data`.
    pub(crate) field: String,
    /// The file that the field names. It is read again as certificates rotate.
    pub(crate) path: Option<PathBuf>,
    /// The directories whose files hold more certificates.
    pub(crate) directories: Vec<PathBuf>,
    /// The errors of unreadable files in the directories when this was [`loaded`](Self::loaded).
    pub(crate) left_out: String,
    /// The PEM text: inline, or of the files if this is [`loaded`](Self::loaded).
    pub(crate) bytes: Arc<Zeroizing<Vec<u8>>>,
}

/// A client certificate with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
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
            directories: Vec::new(),
            left_out: String::new(),
            bytes: Arc::new(Zeroizing::new(bytes)),
        }
    }

    pub(crate) fn file(path: impl Into<PathBuf>, field: impl Into<String>) -> Self {
        Self::files(Some(path.into()), Vec::new(), field)
    }

    /// Certificates of a file, and of all files in some directories.
    pub(crate) fn files(
        path: Option<PathBuf>,
        directories: Vec<PathBuf>,
        field: impl Into<String>,
    ) -> Self {
        Self {
            path,
            directories,
            ..Self::inline(Vec::new(), field)
        }
    }

    /// The file and the directories.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        let paths = self.path.iter().chain(&self.directories);
        paths.map(PathBuf::as_path)
    }

    /// Returns a copy with the present bytes of the files. Blocks for reads of local files.
    ///
    /// Leaves out what cannot be read in a directory, as long as there is a certificate.
    ///
    /// # Errors
    ///
    /// `Config` names the field and the unreadable file.
    pub(crate) fn loaded(&self) -> Result<Self, Error> {
        let mut loaded = self.clone();
        if self.paths().next().is_none() {
            return Ok(loaded);
        }
        let broken = |why: &str| Error::config(format!("{}: {why}", self.field));
        let mut bytes = match &self.path {
            Some(path) => read_bounded(path, PEM_BYTES_MAX)
                .map_err(|why| broken(&format!("{}: {why}", path.display())))?,
            None => Zeroizing::default(),
        };
        let mut complaints = Vec::new();
        for directory in &self.directories {
            bytes.push(b'\n');
            complaints.extend(append_directory(directory, PEM_BYTES_MAX, &mut bytes));
        }
        loaded.left_out = complaints.join(", ");
        if bytes.trim_ascii().is_empty() && !loaded.left_out.is_empty() {
            return Err(broken(&loaded.left_out));
        }
        loaded.bytes = Arc::new(bytes);
        Ok(loaded)
    }

    /// Names the field, and the files if there are any.
    pub(crate) fn origin(&self) -> String {
        let paths: Vec<_> = self
            .paths()
            .map(|path| path.display().to_string())
            .collect();
        if paths.is_empty() {
            self.field.clone()
        } else {
            format!("{}: {}", self.field, paths.join(", "))
        }
    }
}

impl ClientIdentity {
    /// Returns a copy with the present bytes of the files, as [`Pem::loaded`] does.
    pub(crate) fn loaded(&self) -> Result<Self, Error> {
        Ok(Self {
            certificate: self.certificate.loaded()?,
            key: self.key.loaded()?,
        })
    }
}

debug_of!([] Pem, |it| origin: it.origin(), ..);

/// Appends each file of `directory` that holds certificates to `pem`, in the order of their names,
/// up to `bytes_max` in all. Returns the errors of unreadable files, each with its path. Blocks for
/// reads of local files.
///
/// Skips files without a certificate, directories, and links to a file of the same directory.
fn append_directory(directory: &Path, bytes_max: u64, pem: &mut Zeroizing<Vec<u8>>) -> Vec<String> {
    let complaint = |path: &Path, why: &str| format!("{}: {why}", path.display());
    let paths = match paths(directory) {
        Ok(paths) => paths,
        Err(error) => return vec![complaint(directory, &describe(&error))],
    };
    let mut complaints = Vec::new();
    for path in paths {
        let taken = u64::try_from(pem.len()).unwrap_or(u64::MAX);
        match certificates(&path, bytes_max.saturating_sub(taken)) {
            Ok(None) => {}
            Ok(Some(bytes)) => {
                append(pem, &bytes);
                append(pem, b"\n");
            }
            Err(why) => complaints.push(complaint(&path, &why)),
        }
    }
    complaints
}

/// Lists the paths in a directory, but no links to another path in it.
fn paths(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let target = fs::read_link(&path);
        // `openssl rehash` makes such a link beside each file.
        if !target.is_ok_and(|target| target.components().count() == 1) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Reads a file if it holds certificates.
fn certificates(path: &Path, bytes_max: u64) -> Result<Option<Zeroizing<Vec<u8>>>, String> {
    let metadata = fs::metadata(path).map_err(|error| describe(&error))?;
    // A pipe or a device beside the certificates is no certificate.
    if !metadata.is_file() {
        return Ok(None);
    }
    let bytes = read_bounded(path, bytes_max)?;
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        certificate.map_err(|_malformed| "not PEM")?;
    }
    let has_any = CertificateDer::pem_slice_iter(&bytes).next().is_some();
    Ok(has_any.then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

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
            "Pem { origin: \"users[name=a].user.client-key-data\", .. }"
        );
        assert_eq!(pem.loaded().unwrap().bytes.as_slice(), b"canary");
    }
}
