//! The dates of a client certificate, for metrics: when it became valid and when it expires.

use std::time::{Duration, SystemTime};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};

use super::facts::CertificateFacts;
use super::pem::Pem;

/// The client certificate of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientCertificate {
    /// When it expires (`notAfter`).
    pub expires: SystemTime,
    /// Whether it comes from a credential plugin, not from the configuration.
    pub is_of_plugin: bool,
}

/// Returns when the first certificate of a chain expires; `None` if it names no end.
pub(crate) fn expires(chain: &Pem) -> Option<SystemTime> {
    system_time(facts(chain)?.not_after?)
}

/// Returns the time since the first certificate of a chain became valid, by this clock.
pub(crate) fn age(chain: &Pem) -> Option<Duration> {
    let not_before = system_time(facts(chain)?.not_before?)?;
    let age = SystemTime::now().duration_since(not_before);
    Some(age.unwrap_or_default())
}

fn system_time(time: UnixTime) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(time.as_secs()))
}

/// Returns the facts of the first certificate of a chain.
pub(crate) fn facts(chain: &Pem) -> Option<CertificateFacts> {
    let certificate = CertificateDer::from_pem_slice(&chain.bytes).ok()?;
    CertificateFacts::read(&certificate)
}
