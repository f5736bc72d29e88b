//! The TLS configuration of a client, which is made again when its files change.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::path::Path;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
    ServerName,
};
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use rustls::{ClientConfig, InconsistentKeys, RootCertStore};

use super::super::calls::call_context::{self, CallContext};
use super::super::calls::helper_threads::HelperThreads;
use super::super::calls::interrupt::{Interrupt, Limit};
use super::super::certificates::client_certificate::{self, ClientCertificate};
use super::super::certificates::pem::{ClientIdentity, Pem};
use super::super::config::{Config, TlsSettings, system_authorities};
use super::super::credentials::CheckIdentity;
use super::file_stamps::{WatchedFiles, stamp};
use super::verifier::{NoClientCertificate, Verifier};
use super::{doctor, errors};
use crate::clock::Clock;
use crate::error::Error;
use crate::jobs::JobKind;
use crate::sync::{Arc, Mutex, Rank};

/// Sessions kept for resumption: a few tickets of one server.
const SESSIONS_MAX: usize = 4;

/// How long a request waits for a check of the files.
const FILE_WAIT: Duration = Duration::from_millis(500);

/// The current TLS configuration of a client, and its files.
pub(crate) struct Tls {
    /// The name that the server's certificate has to carry.
    pub(crate) server_name: ServerName<'static>,
    shared: Arc<TlsReloader>,
    /// Reads the files, whose file system may hang. Then the current configuration stays in use.
    reader: HelperThreads<()>,
}

struct TlsReloader {
    provider: Arc<CryptoProvider>,
    hasher: RandomState,
    current: Mutex<CurrentTls>,
}

struct CurrentTls {
    config: Arc<ClientConfig>,
    parts: TlsParts,
    /// Counts the changes of the parts.
    version: u64,
    files: WatchedFiles,
    /// What was wrong with the files at the last look.
    complaints: Vec<String>,
}

/// The parts of a configuration.
#[derive(Clone)]
struct TlsParts {
    /// The settings, with the content of the files.
    settings: TlsSettings,
    /// The number of the credential that has the client certificate; 0 is the configuration's.
    number: u64,
}

impl Tls {
    /// Makes the first configuration. Blocks for reads of local files.
    ///
    /// # Errors
    ///
    /// `Config` or `Tls` names file and cause.
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let mut settings = config.tls.clone();
        if settings.authorities.is_none() && !settings.insecure_skip_verify {
            settings.authorities = Some(system_authorities(&config.environment)?);
        }
        let provider = provider(config.provider.as_ref())?;
        let host = || (config.server.name().to_owned(), String::new());
        let (name, field) = settings.server_name.get_or_insert_with(host);
        let server_name = ServerName::try_from(name.clone()).map_err(|error| {
            let why = format!("{field}{name:?} is no name a certificate can carry: {error}");
            Error::config(why)
        })?;
        let settings = settings.loaded()?;
        let is_fixed = settings.identity.is_some()
            && (settings.keeps_identity || !config.credentials.is_kubeconfig());
        let current = CurrentTls {
            config: build(&settings, &provider)?,
            files: WatchedFiles::default(),
            complaints: Vec::new(),
            parts: TlsParts {
                settings,
                number: if is_fixed { u64::MAX } else { 0 },
            },
            version: 0,
        };
        let shared = Arc::new(TlsReloader {
            provider,
            hasher: RandomState::new(),
            current: Mutex::ranked(Rank::TLS_CONFIG, current),
        });
        Ok(Self {
            server_name,
            shared,
            reader: HelperThreads::new("tls-files", 1, Duration::MAX, JobKind::Hang),
        })
    }

    /// Returns the configuration for a new connection. A connection of an earlier one is not used
    /// for another request.
    pub(crate) fn current(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.shared.current.lock().config)
    }

    /// Makes the configuration again if the files have changed.
    ///
    /// Authorities or a client certificate that cannot be used leave what was there and are logged
    /// once: programs replace certificate and key one after the other. Blocks by `call`, and for
    /// half a second at most.
    pub(crate) fn refresh(&self, call: &CallContext) {
        let current = self.shared.current.lock();
        let has_files = current.parts.settings.files().next().is_some();
        drop(current);
        if !has_files || self.reader.is_stuck(FILE_WAIT) {
            return;
        }
        let call = call.within(FILE_WAIT, Limit::File);
        let shared = Arc::clone(&self.shared);
        let look = self.reader.run("reading TLS files", move || {
            shared.refresh(&Clock::system());
            Ok(())
        });
        match look.result(&call) {
            Ok(()) | Err(Interrupt::Stopped) => {}
            Err(Interrupt::Failed(error)) => {
                log::warn!(
                    "the client cannot look at its TLS files and uses what it read last: {error}"
                );
            }
            Err(interrupt) => log::warn!(
                "the look at the TLS files is {interrupt}, and the client uses what it read last: \
                 does their file system hang?"
            ),
        }
    }

    /// Shows the client certificate of a credential from now on, or none, unless a later one is in
    /// use. Connections with another one are not used for another request.
    ///
    /// # Errors
    ///
    /// `Config` names what is wrong with the certificate or its key.
    pub(crate) fn use_identity(
        &self,
        number: u64,
        identity: Option<&ClientIdentity>,
    ) -> Result<(), Error> {
        {
            let parts = &mut self.shared.current.lock().parts;
            if parts.number >= number {
                return Ok(());
            }
            if parts.settings.identity.as_ref() == identity {
                parts.number = number;
                return Ok(());
            }
        }
        self.shared.change(|parts| {
            if parts.number < number {
                parts.settings.identity = identity.cloned();
                parts.number = number;
            }
        })
    }

    /// Returns a function that checks whether a client certificate can be shown.
    pub(crate) fn check(&self) -> Arc<CheckIdentity> {
        let provider = Arc::clone(&self.shared.provider);
        Arc::new(move |identity| certified(identity, &provider).map(drop))
    }

    /// Makes the error of a TLS failure on the calling thread: what it means, and what to do.
    pub(crate) fn explain(&self, error: rustls::Error) -> Error {
        let settings = self.settings();
        let is_refusal = settings.identity.is_some() && errors::is_about_certificate(&error);
        let notes = call_context::current(|call| {
            let notes = mem::take(&mut call.handshake);
            call.handshake.refuses_identity = is_refusal;
            notes
        });
        let notes = call_context::HandshakeNotes {
            offer: doctor::offer(&self.shared.provider),
            ..notes.unwrap_or_default()
        };
        doctor::explain(error, &settings, &notes)
    }

    /// Makes the error of a connection that ended before the handshake did.
    pub(crate) fn cut_off(&self, why: &str) -> Error {
        doctor::cut_off(why, &self.settings())
    }

    /// Says that the client certificate has expired or is not valid yet, and what to do.
    pub(crate) fn out_of_date(&self) -> Option<String> {
        doctor::out_of_date(self.settings().identity.as_ref()?)
    }

    fn settings(&self) -> TlsSettings {
        self.shared.current.lock().parts.settings.clone()
    }

    /// Returns a function that reads the client certificate of new connections. It does not keep
    /// the thread that reads the files. `has_plugin`: the certificate may come from a plugin.
    pub(crate) fn certificate(
        &self,
        has_plugin: bool,
    ) -> impl Fn() -> Option<ClientCertificate> + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || {
            let parts = shared.current.lock().parts.clone();
            Some(ClientCertificate {
                expires: client_certificate::expires(&parts.settings.identity?.certificate)?,
                is_of_plugin: has_plugin && parts.number < u64::MAX,
            })
        }
    }
}

impl TlsReloader {
    /// Reads the files if they may have changed. Blocks for local files.
    fn refresh(&self, clock: &Clock) {
        // The next check sees a change after this one.
        let TlsParts { settings, number } = self.current.lock().parts.clone();
        let stamps: Vec<_> = settings.files().map(stamp).collect();
        let stamp = self.hasher.hash_one(stamps);
        let now = clock.now();
        if !self.current.lock().files.may_have_changed(stamp, now) {
            return;
        }
        let authorities = settings.authorities.as_ref().map(Pem::loaded).transpose();
        let identity = settings.identity.as_ref().map(ClientIdentity::loaded);
        let identity = identity.transpose();
        // What kept them from being read may end, and their stamp stay the same.
        self.current.lock().files.settled &= authorities.is_ok() && identity.is_ok();
        // One that cannot be used keeps the other from nothing.
        let authorities = authorities.and_then(|new| {
            if new == settings.authorities {
                return Ok(());
            }
            self.change(|parts| parts.settings.authorities.clone_from(&new))
        });
        let identity = identity.and_then(|new| {
            if new == settings.identity {
                return Ok(());
            }
            self.change(|parts| {
                if parts.number == number {
                    parts.settings.identity.clone_from(&new);
                }
            })
        });
        let errors = [authorities, identity].into_iter().filter_map(Result::err);
        let complaints: Vec<_> = errors.map(|error| error.to_string()).collect();
        let before = mem::replace(&mut self.current.lock().complaints, complaints.clone());
        for complaint in complaints.iter().filter(|it| !before.contains(it)) {
            log::warn!(
                "the client cannot use the changed TLS files and uses those before: {complaint}"
            );
        }
    }

    /// Changes the parts, and makes the configuration from them. Holds no lock meanwhile, because
    /// it calls code of the crypto provider.
    fn change(&self, change: impl Fn(&mut TlsParts)) -> Result<(), Error> {
        loop {
            let (mut parts, version) = {
                let current = self.current.lock();
                (current.parts.clone(), current.version)
            };
            change(&mut parts);
            let config = build(&parts.settings, &self.provider)?;
            let mut current = self.current.lock();
            if current.version == version {
                current.version = version.wrapping_add(1);
                let before = mem::replace(&mut current.config, config);
                let parts_before = mem::replace(&mut current.parts, parts);
                drop(current);
                drop((before, parts_before));
                return Ok(());
            }
        }
    }
}

impl TlsSettings {
    fn files(&self) -> impl Iterator<Item = &Path> {
        self.pems().flat_map(Pem::paths)
    }

    /// Returns a copy with the present content of the files. Blocks for local files.
    fn loaded(&self) -> Result<Self, Error> {
        let mut loaded = self.clone();
        if let Some(authorities) = &mut loaded.authorities {
            *authorities = authorities.loaded()?;
        }
        if let Some(identity) = &mut loaded.identity {
            *identity = identity.loaded()?;
        }
        Ok(loaded)
    }
}

#[cfg_attr(
    feature = "ring",
    expect(
        clippy::unnecessary_wraps,
        reason = "without the feature there may be none"
    )
)]
fn provider(given: Option<&Arc<CryptoProvider>>) -> Result<Arc<CryptoProvider>, Error> {
    if let Some(provider) = given {
        return Ok(Arc::clone(provider));
    }
    #[cfg(feature = "ring")]
    return Ok(Arc::new(rustls::crypto::ring::default_provider()));
    #[cfg(not(feature = "ring"))]
    Err(Error::config(
        "TLS needs a crypto provider: hand one in, or build kubecache with its feature `ring`",
    ))
}

/// Makes the configuration of loaded settings.
fn build(
    settings: &TlsSettings,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<ClientConfig>, Error> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| {
            Error::config(format!("the crypto provider: {}", errors::describe(&error)))
        })?;
    let is_checked = !settings.insecure_skip_verify;
    let verifier = Verifier {
        roots: is_checked.then(|| roots(settings)).transpose()?,
        algorithms: provider.signature_verification_algorithms,
    };
    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut tls = match &settings.identity {
        Some(identity) => {
            let certified = SingleCertAndKey::from(certified(identity, provider)?);
            builder.with_client_cert_resolver(Arc::new(certified))
        }
        None => builder.with_client_cert_resolver(Arc::new(NoClientCertificate)),
    };
    tls.resumption = if settings.identity.is_some() {
        // A resumed session would keep the identity of the previous certificate.
        Resumption::disabled()
    } else {
        Resumption::in_memory_sessions(SESSIONS_MAX)
    };
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(tls))
}

fn roots(settings: &TlsSettings) -> Result<RootCertStore, Error> {
    let (origin, bytes, unread) = match &settings.authorities {
        Some(pem) => (pem.origin(), pem.bytes.as_slice(), pem.left_out.as_str()),
        None => (String::new(), &[][..], ""),
    };
    let mut left_out = Vec::new();
    if !unread.is_empty() {
        left_out.push(unread.to_owned());
    }
    let mut roots = RootCertStore::empty();
    // Directories hold many authorities twice: alone and in a bundle.
    let mut seen = HashSet::new();
    for (number, block) in (1_usize..).zip(pem_blocks(bytes)) {
        let why = match CertificateDer::from_pem_slice(block) {
            // A block of another kind, such as a key.
            Err(pem::Error::NoItemsFound) => continue,
            Err(error) => errors::describe_pem(&error),
            Ok(certificate) if !seen.insert(certificate.to_vec()) => continue,
            Ok(certificate) => match roots.add(certificate) {
                Ok(()) => continue,
                Err(error) => errors::describe(&error),
            },
        };
        left_out.push(format!("its block {number}: {why}"));
    }
    if roots.is_empty() {
        let why = if left_out.is_empty() {
            "it holds no CERTIFICATE block".to_owned()
        } else {
            first_of(&left_out)
        };
        return Err(Error::config(format!(
            "{origin}: no usable certificate: {why}"
        )));
    }
    if !left_out.is_empty() {
        let why = first_of(&left_out);
        log::warn!("{origin}: authorities that cannot be used are left out: {why}");
    }
    Ok(roots)
}

/// How many authorities that are left out a message names.
const NAMED_MAX: usize = 5;

/// The first causes, and how many more there are.
fn first_of(causes: &[String]) -> String {
    let (named, more) = causes.split_at(causes.len().min(NAMED_MAX));
    match more.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// Splits PEM text before each block, so that a block without an end spoils no other.
fn pem_blocks(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let begins = || memchr::memmem::find_iter(bytes, b"-----BEGIN ");
    let ends = begins().skip(1).chain([bytes.len()]);
    begins()
        .zip(ends)
        .map(|(begin, end)| bytes.get(begin..end).unwrap_or_default())
}

fn certified(identity: &ClientIdentity, provider: &CryptoProvider) -> Result<CertifiedKey, Error> {
    let (certificate_origin, key_origin) = (identity.certificate.origin(), identity.key.origin());
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&identity.certificate.bytes)
        .collect::<Result<_, _>>()
        .map_err(|error| not_pem(&certificate_origin, &error))?;
    if chain.is_empty() {
        let message = format!("{certificate_origin}: it holds no CERTIFICATE block");
        return Err(Error::config(message));
    }
    let key = PrivateKeyDer::from_pem_slice(&identity.key.bytes).map_err(|error| {
        let hint = "an unencrypted PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY block is needed";
        let why = errors::describe_pem(&error);
        Error::config(format!("{key_origin}: {why}: {hint}"))
    })?;
    let key = load_key(&key, provider).map_err(|error| {
        let hint = "RSA of 2048 bits or more, ECDSA on P-256 or P-384 and Ed25519 work with the \
            ring \
                    provider; for P-521 hand in a provider that knows it";
        let why = errors::describe(&error);
        Error::config(format!(
            "{key_origin}: the key cannot be used ({why}): {hint}"
        ))
    })?;
    let certified = CertifiedKey::new(chain, key);
    let other_key = || {
        Error::config(format!(
            "{certificate_origin} and {key_origin} do not belong together: the certificate is for \
             another key"
        ))
    };
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
        Err(rustls::Error::InconsistentKeys(_)) => return Err(other_key()),
        // The server decides whether it accepts an X.509 v1 certificate.
        Err(error) if errors::is_unsupported_version(&error) => {
            if !holds_public_key(&certified) {
                return Err(other_key());
            }
            log::warn!(
                "{certificate_origin}: some servers refuse X.509 v1 certificates, and this is one"
            );
        }
        Err(error) => {
            let why = errors::describe(&error);
            let message = format!("{certificate_origin}: not a certificate: {why}");
            return Err(Error::config(message));
        }
    }
    Ok(certified)
}

/// Loads a key. Its label in PEM does not decide its kind, as in Go: some files carry the wrong
/// one.
///
/// # Errors
///
/// The error of the kind that the label names.
fn load_key(
    key: &PrivateKeyDer<'static>,
    provider: &CryptoProvider,
) -> Result<Arc<dyn SigningKey>, rustls::Error> {
    let load = |key| provider.key_provider.load_private_key(key);
    let labelled = load(key.clone_key());
    let bytes = || key.secret_der().to_vec();
    labelled.or_else(|error| {
        load(PrivatePkcs8KeyDer::from(bytes()).into())
            .or_else(|_| load(PrivatePkcs1KeyDer::from(bytes()).into()))
            .or_else(|_| load(PrivateSec1KeyDer::from(bytes()).into()))
            .map_err(|_other_kind| error)
    })
}

/// Whether the public key stands in the first certificate, which rustls cannot read. A key that
/// does not show its public half counts as fitting.
fn holds_public_key(certified: &CertifiedKey) -> bool {
    let (leaf, public) = (certified.cert.first(), certified.key.public_key());
    let (Some(leaf), Some(public)) = (leaf, public) else {
        return true;
    };
    memchr::memmem::find(leaf, &public).is_some()
}

fn not_pem(origin: &str, error: &pem::Error) -> Error {
    let why = errors::describe_pem(error);
    Error::config(format!("{origin}: not PEM: {why}"))
}

#[cfg(all(test, feature = "ring"))]
mod tests {
    use super::*;
    use crate::clock::FakeClock;
    use crate::http::calls::call_context::NamedDeadline;
    use crate::tests::temp_directory::TempDirectory;
    use crate::worker::StopToken;

    fn tls() -> Result<Tls, Error> {
        let config = Config::for_server("https://api.test")?;
        Tls::new(&config.with_insecure_skip_tls_verify())
    }

    fn identities() -> [ClientIdentity; 2] {
        let one = [
            &include_bytes!("../../../fixtures/certs/client-one.pem")[..],
            include_bytes!("../../../fixtures/certs/client-one.key"),
        ];
        let two = [
            &include_bytes!("../../../fixtures/certs/client-two.pem")[..],
            include_bytes!("../../../fixtures/certs/client-two.key"),
        ];
        [one, two].map(|[certificate, key]| ClientIdentity {
            certificate: Pem::inline(certificate.to_vec(), "client-certificate"),
            key: Pem::inline(key.to_vec(), "client-key"),
        })
    }

    #[test]
    fn the_first_blocks_that_cannot_be_used_are_named_and_the_others_counted() {
        let block = |number| {
            format!("-----BEGIN CERTIFICATE-----\nAAA{number}\n-----END CERTIFICATE-----\n")
        };
        for (blocks, end) in [(5, "its block 5: "), (7, " and 2 more")] {
            let config = Config::for_server("https://api.test").unwrap();
            let bundle: String = (1..=blocks).map(block).collect();
            let error = Tls::new(&config.with_authorities(bundle)).err().unwrap();
            let message = error.to_string();
            assert!(
                message.contains("no usable certificate: its block 1: "),
                "{message}"
            );
            assert!(message.contains(end), "{message}");
            assert_eq!(message.contains(" more"), blocks > 5, "{message}");
            assert!(!message.contains("its block 6"), "{message}");
        }
    }

    /// Two requests may bring their credentials in the wrong order.
    #[test]
    fn the_certificate_of_an_earlier_credential_replaces_no_later_one() {
        let tls = tls().unwrap();
        let [one, two] = identities();
        for (number, identity, shown) in [(1, &one, &one), (3, &one, &one), (2, &two, &one)] {
            tls.use_identity(number, Some(identity)).unwrap();
            assert!(tls.settings().identity.as_ref() == Some(shown), "{number}");
        }
        tls.use_identity(4, Some(&two)).unwrap();
        assert!(tls.settings().identity.as_ref() == Some(&two));
    }

    /// The stamp may be that of good content: a process may be out of descriptors meanwhile. Here
    /// the file behind a link comes back, which the directory of the link does not show.
    #[test]
    fn files_that_could_not_be_read_are_read_again_although_they_look_the_same() {
        let directory = TempDirectory::new("tls-unreadable");
        let (links, target) = (directory.join("links"), directory.join("ca.crt"));
        std::fs::create_dir(&links).unwrap();
        std::os::unix::fs::symlink(&target, links.join("ca.crt")).unwrap();
        let (clock, tls) = (FakeClock::new(), tls().unwrap());
        let authorities = Pem::files(None, vec![links.clone()], "authorities");
        tls.shared.current.lock().parts.settings.authorities = Some(authorities);
        let look = || {
            tls.shared.refresh(&Clock::from(clock.clone()));
            clock.advance(Duration::from_secs(10));
            tls.settings().authorities.unwrap().bytes.len()
        };
        let stamp_before = format!("{:?}", stamp(&links));
        assert_eq!([look(), look(), look()], [0; 3]);
        let [one, _] = identities();
        std::fs::write(&target, one.certificate.bytes.as_slice()).unwrap();
        assert_eq!(format!("{:?}", stamp(&links)), stamp_before);
        assert!(look() > 0);
    }

    #[test]
    fn authorities_and_client_certificate_rotate_although_the_other_cannot_be_used() {
        let directory = TempDirectory::new("tls-parts");
        let [ca, crt, key] = ["ca.crt", "tls.crt", "tls.key"].map(|name| directory.join(name));
        let trusted = [
            &include_bytes!("../../../fixtures/certs/authority.pem")[..],
            include_bytes!("../../../fixtures/certs/other-authority.pem"),
        ];
        let identities = identities();
        let trust = |number: usize| std::fs::write(&ca, trusted[number]).unwrap();
        let show = |number: usize| {
            let ClientIdentity {
                certificate,
                key: of_it,
            } = &identities[number];
            std::fs::write(&crt, certificate.bytes.as_slice()).unwrap();
            std::fs::write(&key, of_it.bytes.as_slice()).unwrap();
        };
        let start = || {
            trust(0);
            show(0);
            let mut config = Config::for_server("https://api.test").unwrap();
            config.tls.authorities = Some(Pem::file(&ca, "ca"));
            config.tls.identity = Some(ClientIdentity {
                certificate: Pem::file(&crt, "crt"),
                key: Pem::file(&key, "key"),
            });
            Tls::new(&config).unwrap()
        };
        // The clock stands, so that each look reads the files.
        let clock = Clock::from(FakeClock::new());
        let look = |tls: &Tls| {
            tls.shared.refresh(&clock);
            let settings = tls.settings();
            let authorities = settings.authorities.unwrap().bytes;
            let shown = settings.identity.unwrap().certificate.bytes;
            let is = |bytes: &[u8], of: &[&[u8]; 2]| of.iter().position(|it| *it == bytes);
            let certificates = [0, 1].map(|it: usize| identities[it].certificate.bytes.as_slice());
            (is(&authorities, &trusted), is(&shown, &certificates))
        };
        for unusable in [None, Some(&b""[..]), Some(b"no PEM")] {
            let spoil = |path: &Path| match unusable {
                None => std::fs::remove_file(path).unwrap(),
                Some(bytes) => std::fs::write(path, bytes).unwrap(),
            };
            let tls = start();
            spoil(&ca);
            show(1);
            assert_eq!(look(&tls), (Some(0), Some(1)), "{unusable:?}");
            trust(1);
            assert_eq!(look(&tls), (Some(1), Some(1)), "{unusable:?}");

            let tls = start();
            spoil(&key);
            trust(1);
            let config = tls.current();
            assert_eq!(look(&tls), (Some(1), Some(0)), "{unusable:?}");
            // Connections of the configuration go on being used while nothing changes.
            let (now, _) = (tls.current(), look(&tls));
            assert!(Arc::ptr_eq(&now, &tls.current()) && !Arc::ptr_eq(&now, &config));
            show(1);
            assert_eq!(look(&tls), (Some(1), Some(1)), "{unusable:?}");
        }
    }

    /// A plugin is asked for another one, which costs its time.
    #[test]
    fn a_certificate_is_refused_only_if_one_was_shown_and_the_server_says_so() {
        use rustls::AlertDescription::{CertificateExpired, ProtocolVersion};
        let [one, _] = identities();
        for (identity, alert, is_refusal) in [
            (Some(&one), CertificateExpired, true),
            (Some(&one), ProtocolVersion, false),
            (None, CertificateExpired, false),
        ] {
            let tls = tls().unwrap();
            tls.use_identity(1, identity).unwrap();
            let call = CallContext::new(&StopToken::never(), NamedDeadline::NEVER).unwrap();
            let explain = || drop(tls.explain(rustls::Error::AlertReceived(alert)));
            let ((), call) = call.during(explain);
            assert_eq!(
                call.unwrap().handshake.refuses_identity,
                is_refusal,
                "{alert:?}"
            );
        }
    }
}
