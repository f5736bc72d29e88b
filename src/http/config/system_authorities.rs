//! The authorities of the system, for a configuration that names none.

use std::path::{Path, PathBuf};

use super::super::certificates::pem::Pem;
use super::super::environment::Environment;
use crate::error::Error;

/// The bundles of authorities that systems trust. The first that exists is used, as in Go.
const SYSTEM_BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The directories of systems without a bundle, with a file for each authority. The first that
/// exists is used.
const SYSTEM_DIRECTORIES: [&str; 2] = ["/etc/ssl/certs", "/etc/pki/tls/certs"];

/// Finds the authorities for a configuration that names none.
///
/// They are in the file of `SSL_CERT_FILE` and in the directories of `SSL_CERT_DIR`, separated by
/// colons. Without these variables they are in the system's bundle, else in its directory.
///
/// # Errors
///
/// `Config`, if the system has none.
pub(crate) fn system_authorities(environment: &Environment) -> Result<Pem, Error> {
    let file = environment.var("SSL_CERT_FILE");
    let file = file.map(|path| environment.at(path));
    let directories = environment.var("SSL_CERT_DIR");
    let directories = directories.map_or_else(Vec::new, |list| {
        let named = std::env::split_paths(list);
        let named = named.filter(|path| !path.as_os_str().is_empty());
        named.map(|path| environment.at(path)).collect()
    });
    let field = match (&file, directories.is_empty()) {
        (Some(_), true) => "SSL_CERT_FILE",
        (None, false) => "SSL_CERT_DIR",
        (Some(_), false) => "SSL_CERT_FILE and SSL_CERT_DIR",
        (None, true) => return of_system(),
    };
    Ok(Pem::files(file, directories, field))
}

fn of_system() -> Result<Pem, Error> {
    let field = "the system's certificate authorities";
    let mut bundles = SYSTEM_BUNDLES.into_iter().map(Path::new);
    if let Some(path) = bundles.find(|path| path.is_file()) {
        return Ok(Pem::file(path, field));
    }
    let mut directories = SYSTEM_DIRECTORIES.into_iter().map(PathBuf::from);
    match directories.find(|path| path.is_dir()) {
        Some(directory) => Ok(Pem::files(None, vec![directory], field)),
        None => Err(Error::config(format!(
            "no certificate-authority is configured, and the system has no authorities: looked \
             for {} and {}",
            SYSTEM_BUNDLES.join(", "),
            SYSTEM_DIRECTORIES.join(", ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;
    use crate::tests::temp_directory::TempDirectory;

    fn fixture(name: &str) -> PathBuf {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        root.join("fixtures/certs").join(name)
    }

    /// Directories of certificates.
    struct Stage(TempDirectory);

    impl Stage {
        fn new(name: &str) -> Self {
            let path = TempDirectory::new(name);
            for directory in ["a", "b", "empty"] {
                fs::create_dir_all(path.join(directory)).unwrap();
            }
            let copy = |from: &str, to: &str| fs::copy(fixture(from), path.join(to)).unwrap();
            copy("authority.pem", "a/one.pem");
            copy("other-authority.pem", "b/two.crt");
            copy("authority-before.pem", "b/three.0");
            Self(path)
        }

        fn find(&self, variables: &[(&str, &str)]) -> Pem {
            let here = |text: &str| text.replace('@', &self.0.display().to_string());
            let variables = variables.iter().map(|(name, text)| (*name, here(text)));
            system_authorities(&Environment::from_pairs(variables)).unwrap()
        }

        /// The certificates, as the names of their fixtures, or the error.
        fn read(&self, variables: &[(&str, &str)]) -> String {
            let pem = match self.find(variables).loaded() {
                Ok(pem) => pem,
                Err(error) => {
                    return error
                        .to_string()
                        .replace(&self.0.display().to_string(), "@");
                }
            };
            let known = ["authority", "other-authority", "authority-before"].map(|name| {
                let der = CertificateDer::from_pem_file(fixture(&format!("{name}.pem")));
                (name, der.unwrap())
            });
            let name = |der: Result<CertificateDer<'_>, _>| {
                let der = der.unwrap();
                known.iter().find(|(_, known)| *known == der).unwrap().0
            };
            let names: Vec<_> = CertificateDer::pem_slice_iter(&pem.bytes)
                .map(name)
                .collect();
            names.join(" ")
        }
    }

    #[test]
    fn the_variables_name_a_file_and_directories() {
        let stage = Stage::new("ssl-cert");
        let rows: [(&[(&str, &str)], &str); 5] = [
            (&[("SSL_CERT_FILE", "@/a/one.pem")], "authority"),
            (&[("SSL_CERT_DIR", "@/a")], "authority"),
            (
                &[("SSL_CERT_DIR", "@/b:@/a")],
                "authority-before other-authority authority",
            ),
            (&[("SSL_CERT_DIR", ":@/a:@/missing")], "authority"),
            (
                &[("SSL_CERT_FILE", "@/b/two.crt"), ("SSL_CERT_DIR", "@/a")],
                "other-authority authority",
            ),
        ];
        for (variables, expected) in rows {
            assert_eq!(stage.read(variables), expected, "{variables:?}");
        }
        let pem = stage.find(&[("SSL_CERT_FILE", "/mine.pem"), ("SSL_CERT_DIR", "/x:/y")]);
        let expected = "SSL_CERT_FILE and SSL_CERT_DIR: /mine.pem, /x, /y";
        assert_eq!(pem.origin(), expected);
    }

    #[test]
    fn what_cannot_be_read_is_named_if_nothing_else_is_there() {
        let stage = Stage::new("ssl-cert-broken");
        let rows: [(&[(&str, &str)], &str); 3] = [
            (
                &[("SSL_CERT_FILE", "@/missing.pem"), ("SSL_CERT_DIR", "@/a")],
                "SSL_CERT_FILE and SSL_CERT_DIR: @/missing.pem: no such file",
            ),
            (
                &[("SSL_CERT_DIR", "@/missing")],
                "SSL_CERT_DIR: @/missing: no such file",
            ),
            (
                &[("SSL_CERT_FILE", "@/a")],
                "SSL_CERT_FILE: @/a: it is a directory",
            ),
        ];
        for (variables, expected) in rows {
            assert_eq!(stage.read(variables), expected, "{variables:?}");
        }
        let empty = stage.0.join("empty");
        symlink("loop.pem", empty.join("../loop.pem")).unwrap();
        symlink("../loop.pem", empty.join("loop.pem")).unwrap();
        fs::write(empty.join("broken.pem"), "-----BEGIN CERTIFICATE-----\n!\n").unwrap();
        let told = stage.read(&[("SSL_CERT_DIR", "@/empty")]);
        let expected = "SSL_CERT_DIR: @/empty/broken.pem: not PEM, @/empty/loop.pem: ";
        assert!(told.starts_with(expected), "{told}");
        let beside = stage.read(&[("SSL_CERT_DIR", "@/empty:@/a")]);
        assert_eq!(beside, "authority");
    }

    #[test]
    fn links_beside_files_and_whatever_is_no_certificate_do_not_count() {
        let stage = Stage::new("ssl-cert-odd");
        let directory = stage.0.join("a");
        symlink("one.pem", directory.join("5ad8a5d6.0")).unwrap();
        symlink("../b/two.crt", directory.join("two.pem")).unwrap();
        symlink("nowhere", directory.join("dangling")).unwrap();
        fs::write(directory.join("README"), "no certificate").unwrap();
        fs::create_dir(directory.join("java")).unwrap();
        let pipe = std::process::Command::new("mkfifo")
            .arg(directory.join("pipe"))
            .status();
        assert!(pipe.unwrap().success());
        assert_eq!(
            stage.read(&[("SSL_CERT_DIR", "@/a")]),
            "authority other-authority"
        );
    }
}
