//! One TLS configuration per client, made anew when the files it came from change.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, InconsistentKeys, RootCertStore};
use zeroize::Zeroizing;

use super::blocking::Blocking;
use super::config::{Identity, TlsSettings};
use super::environment::Environment;
use super::halt::{Halt, Limit};
use super::helpers::Helpers;
use super::pem::{self, Pem};
use super::tls_errors::{self, Origins};
use super::tls_files::{Stamp, WatchedFiles};
use super::tls_insecure::AnyCertificate;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::sync::{Arc, Mutex, Rank};

/// Sessions kept for resumption: one server, a few of its tickets.
const SESSIONS_MAX: usize = 4;

/// So long a look at the files is waited for.
const FILE_WAIT: Duration = Duration::from_millis(500);

/// The TLS side of a client: the current configuration, and the files it is made of.
pub(crate) struct Tls {
    server_name: ServerName<'static>,
    origins: Origins,
    shared: Arc<TlsReloader>,
    /// A file system may hang: then the configuration at hand goes on being used.
    looks: Helpers<&'static str, ()>,
}

struct TlsReloader {
    settings: TlsSettings,
    provider: Arc<CryptoProvider>,
    hasher: RandomState,
    current: Mutex<CurrentTls>,
    files: Mutex<WatchedFiles>,
}

struct CurrentTls {
    config: Arc<ClientConfig>,
    /// Counts configurations.
    generation: u64,
    fingerprint: u64,
    failed_fingerprint: Option<u64>,
}

/// The bytes a configuration is made of.
struct Material {
    authorities: Option<Bytes>,
    identity: Option<(Bytes, Bytes)>,
}

type Bytes = Zeroizing<Vec<u8>>;

impl Tls {
    /// Reads what the settings name and makes the first configuration. Blocks for local files.
    ///
    /// # Errors
    ///
    /// `Config` or `Tls`, naming file and cause.
    pub(crate) fn new(mut settings: TlsSettings, host: &str) -> Result<Self, Error> {
        if settings.authorities.is_none() && !settings.insecure_skip_verify {
            let system = pem::system_authorities(&Environment::process());
            settings.authorities = Some(system.ok_or_else(pem::no_system_authorities)?);
        }
        let provider = provider(&settings)?;
        let name = settings.server_name.as_deref().unwrap_or(host);
        let server_name = ServerName::try_from(name.to_owned()).map_err(|error| {
            let message = format!("{name:?} is no name a certificate can carry: {error}");
            Error::new(ErrorKind::Config, message)
        })?;
        let origins = Origins::new(&settings, name);
        let material = Material::read(&settings)?;
        let hasher = RandomState::new();
        let fingerprint = material.fingerprint(&hasher);
        let config = build(&settings, &provider, &material)?;
        let current = CurrentTls {
            config,
            generation: 0,
            fingerprint,
            failed_fingerprint: None,
        };
        let shared = Arc::new(TlsReloader {
            settings,
            provider,
            hasher,
            current: Mutex::ranked(Rank::TLS_CONFIG, current),
            files: Mutex::ranked(Rank::TLS_FILES, WatchedFiles::default()),
        });
        let looking = Arc::clone(&shared);
        let looks = Helpers::new("tls-files", 1, Duration::MAX, move |_| {
            looking.refresh();
            Ok(())
        });
        Ok(Self {
            server_name,
            origins,
            shared,
            looks,
        })
    }

    /// The name the server's certificate has to carry.
    pub(crate) fn server_name(&self) -> ServerName<'static> {
        self.server_name.clone()
    }

    /// Counts configurations; a connection of an earlier one is not used for another request.
    pub(crate) fn generation(&self) -> u64 {
        self.shared.current.lock().generation
    }

    /// The configuration for a new connection.
    pub(crate) fn current(&self) -> (Arc<ClientConfig>, u64) {
        let current = self.shared.current.lock();
        (Arc::clone(&current.config), current.generation)
    }

    /// Has the files looked at again, and the configuration made anew if they have changed.
    ///
    /// A change that cannot be used (certificate and key are replaced one after the other) leaves
    /// the configuration as it was and is warned of once. Blocks by `call`, and no longer than a
    /// file system that works takes.
    pub(crate) fn refresh(&self, call: &Blocking) {
        if !self.shared.settings.has_files() || self.looks.is_stuck(FILE_WAIT) {
            return;
        }
        let call = call.within(FILE_WAIT, Limit::File);
        match self.looks.ask("reading TLS files").answer(&call) {
            Ok(()) | Err(Halt::Stopped) => {}
            Err(Halt::Failed(error)) => {
                log::warn!("TLS files are not looked at, those read last are used: {error}");
            }
            Err(halt) => log::warn!(
                "TLS files are {halt}, those read last are used: does their file system hang?"
            ),
        }
    }

    /// What a failure of TLS means, and what to do.
    pub(crate) fn explain(&self, error: rustls::Error) -> Error {
        tls_errors::explain(error, &self.origins)
    }
}

impl TlsReloader {
    /// Looks at the files, and reads them if they may have changed. Blocks for local files.
    fn refresh(&self) {
        // Before they are read: what changes meanwhile is seen at the next look.
        let stamps: Vec<_> = self.settings.files().map(Stamp::of).collect();
        if self
            .files
            .lock()
            .may_have_changed(stamps, Clock::system().now())
        {
            self.read_again();
        }
    }

    fn read_again(&self) {
        let (material, fingerprint) = match Material::read(&self.settings) {
            Ok(material) => {
                let fingerprint = material.fingerprint(&self.hasher);
                (Ok(material), fingerprint)
            }
            Err(error) => {
                let fingerprint = self.hasher.hash_one(error.to_string());
                (Err(error), fingerprint)
            }
        };
        {
            let current = self.current.lock();
            let known = current.failed_fingerprint == Some(fingerprint);
            if current.fingerprint == fingerprint || known {
                return;
            }
        }
        let built = material.and_then(|material| build(&self.settings, &self.provider, &material));
        let failure = {
            let mut current = self.current.lock();
            match built {
                Ok(config) => {
                    current.config = config;
                    current.fingerprint = fingerprint;
                    current.failed_fingerprint = None;
                    current.generation = current.generation.wrapping_add(1);
                    None
                }
                Err(error) => {
                    current.failed_fingerprint = Some(fingerprint);
                    Some(error)
                }
            }
        };
        if let Some(error) = failure {
            log::warn!("changed TLS files are not used, those before still are: {error}");
        }
    }
}

impl TlsSettings {
    fn has_files(&self) -> bool {
        self.files().next().is_some()
    }

    fn files(&self) -> impl Iterator<Item = &Path> {
        let identity = self.identity.iter();
        let pems = identity.flat_map(|identity| [&identity.certificate, &identity.key]);
        pems.chain(&self.authorities).filter_map(Pem::path)
    }
}

impl Material {
    fn read(settings: &TlsSettings) -> Result<Self, Error> {
        let authorities = settings.authorities.as_ref();
        let identity = settings.identity.as_ref();
        Ok(Self {
            authorities: authorities.map(Pem::read).transpose()?,
            identity: identity
                .map(|identity| {
                    Ok::<_, Error>((identity.certificate.read()?, identity.key.read()?))
                })
                .transpose()?,
        })
    }

    fn fingerprint(&self, hasher: &RandomState) -> u64 {
        let identity = self.identity.as_ref();
        let identity = identity.map(|(certificate, key)| (certificate.as_slice(), key.as_slice()));
        hasher.hash_one((
            self.authorities.as_ref().map(|pem| pem.as_slice()),
            identity,
        ))
    }
}

#[cfg_attr(
    feature = "ring",
    expect(
        clippy::unnecessary_wraps,
        reason = "without the feature there may be none"
    )
)]
fn provider(settings: &TlsSettings) -> Result<Arc<CryptoProvider>, Error> {
    if let Some(provider) = &settings.provider {
        return Ok(Arc::clone(provider));
    }
    #[cfg(feature = "ring")]
    return Ok(Arc::new(rustls::crypto::ring::default_provider()));
    #[cfg(not(feature = "ring"))]
    Err(Error::new(
        ErrorKind::Config,
        "TLS needs a crypto provider: hand one in, or build kubecache with its feature `ring`",
    ))
}

fn build(
    settings: &TlsSettings,
    provider: &Arc<CryptoProvider>,
    material: &Material,
) -> Result<Arc<ClientConfig>, Error> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| {
            config(&format!(
                "the crypto provider: {}",
                tls_errors::words(&error)
            ))
        })?;
    let builder = if settings.insecure_skip_verify {
        let verifier = AnyCertificate::new(provider.signature_verification_algorithms);
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
    } else {
        builder.with_root_certificates(roots(settings, material)?)
    };
    let mut tls = match (&settings.identity, &material.identity) {
        (Some(identity), Some((certificate, key))) => {
            let certified = certified(identity, certificate, key, provider)?;
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))
        }
        _ => builder.with_no_client_auth(),
    };
    tls.resumption = if settings.identity.is_some() {
        // A resumed session would keep the identity of the certificate before.
        Resumption::disabled()
    } else {
        Resumption::in_memory_sessions(SESSIONS_MAX)
    };
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(tls))
}

fn roots(settings: &TlsSettings, material: &Material) -> Result<Arc<RootCertStore>, Error> {
    let origin = settings.authorities.as_ref().map(Pem::origin);
    let origin = origin.unwrap_or_default();
    let bytes = material.authorities.as_deref();
    let bytes = bytes.map(Vec::as_slice).unwrap_or_default();
    let mut roots = RootCertStore::empty();
    let mut refused = None;
    for certificate in CertificateDer::pem_slice_iter(bytes) {
        let certificate = certificate.map_err(|error| not_pem(&origin, &error))?;
        // A bundle may hold one that cannot be read beside a hundred that can.
        if let Err(error) = roots.add(certificate) {
            refused = Some(error);
        }
    }
    if roots.is_empty() {
        let why = refused.map_or_else(
            || "it holds no CERTIFICATE block".to_owned(),
            |error| tls_errors::words(&error),
        );
        return Err(config(&format!("{origin}: no usable certificate: {why}")));
    }
    Ok(Arc::new(roots))
}

fn certified(
    identity: &Identity,
    certificate: &[u8],
    key: &[u8],
    provider: &CryptoProvider,
) -> Result<CertifiedKey, Error> {
    let (certificate_origin, key_origin) = (identity.certificate.origin(), identity.key.origin());
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .map_err(|error| not_pem(&certificate_origin, &error))?;
    if chain.is_empty() {
        let message = format!("{certificate_origin}: it holds no CERTIFICATE block");
        return Err(config(&message));
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| {
        let hint = "an unencrypted PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY block is needed";
        config(&format!(
            "{key_origin}: {}: {hint}",
            tls_errors::pem_words(&error)
        ))
    })?;
    let key = provider.key_provider.load_private_key(key).map_err(|error| {
        let hint = "RSA of 2048 bits or more, ECDSA on P-256 or P-384 and Ed25519 work with the ring \
                    provider; for P-521 hand in a provider that knows it";
        let why = tls_errors::words(&error);
        config(&format!("{key_origin}: the key cannot be used ({why}): {hint}"))
    })?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
        Err(rustls::Error::InconsistentKeys(_)) => {
            return Err(config(&format!(
                "{certificate_origin} and {key_origin} do not belong together: the certificate is for another key"
            )));
        }
        // It is only passed on: whether an X.509 v1 certificate is good enough is the server's to say.
        Err(error) if tls_errors::is_unsupported_version(&error) => {
            log::warn!("{certificate_origin}: an X.509 v1 certificate, which some servers refuse");
        }
        Err(error) => {
            return Err(config(&format!(
                "{certificate_origin}: not a certificate: {}",
                tls_errors::words(&error)
            )));
        }
    }
    Ok(certified)
}

fn not_pem(origin: &str, error: &rustls::pki_types::pem::Error) -> Error {
    let why = tls_errors::pem_words(error);
    config(&format!("{origin}: not PEM: {why}"))
}

fn config(message: &str) -> Error {
    Error::new(ErrorKind::Config, message)
}
