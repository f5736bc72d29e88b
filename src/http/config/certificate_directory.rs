//! Reads the certificates in the files of a directory, where OpenSSL and Go find authorities too.

use std::path::{Path, PathBuf};
use std::{fs, io};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use zeroize::Zeroizing;

use crate::local_file::{describe, read_bounded};

/// Appends each file of `directory` that holds certificates to `pem`, in the order of their names,
/// up to `bytes_max` in all. Returns what cannot be read, each with its path. Blocks for reads of
/// local files.
///
/// Files without a certificate, directories inside and links to a file beside them do not count.
pub(crate) fn append_directory(
    directory: &Path,
    bytes_max: u64,
    pem: &mut Zeroizing<Vec<u8>>,
) -> Vec<String> {
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
                pem.extend_from_slice(&bytes);
                pem.push(b'\n');
            }
            Err(why) => complaints.push(complaint(&path, &why)),
        }
    }
    complaints
}

/// Lists what is in a directory, but no links to something in it.
fn paths(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let target = fs::read_link(&path);
        // `openssl rehash` makes one beside each file.
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
    // A pipe or a device beside the certificates is none.
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
