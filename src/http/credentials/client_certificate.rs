//! When a client certificate became valid and when it expires, for metrics.

use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::super::config::Pem;
use super::super::transport::certificate::CertificateFacts;
use super::lifetime::system_time;

/// Returns when the first certificate of a chain expires; `None` if it does not say.
pub(crate) fn expires(chain: &Pem) -> Option<SystemTime> {
    facts(chain)?.not_after.map(system_time)
}

/// Returns the time since the first certificate of a chain became valid, by this clock.
pub(crate) fn age(chain: &Pem) -> Option<Duration> {
    let not_before = facts(chain)?.not_before?;
    Some(
        SystemTime::now()
            .duration_since(system_time(not_before))
            .unwrap_or_default(),
    )
}

fn facts(chain: &Pem) -> Option<CertificateFacts> {
    let certificate = CertificateDer::from_pem_slice(&chain.bytes).ok()?;
    CertificateFacts::read(&certificate)
}
