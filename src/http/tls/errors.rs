//! Errors of rustls in words, which rustls prints as values of Rust.

use rustls::pki_types::pem;
use rustls::{AlertDescription, CertificateError};

use crate::object::visible;

/// Whether rustls cannot read a certificate because its X.509 version is not 3.
pub(crate) fn is_unsupported_version(error: &rustls::Error) -> bool {
    let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = error else {
        return false;
    };
    other.to_string().contains("UnsupportedCertVersion")
}

/// Whether it is an alert by which the peer refuses the certificate of this side.
pub(crate) fn is_about_certificate(error: &rustls::Error) -> bool {
    matches!(
        error,
        rustls::Error::AlertReceived(
            AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
                | AlertDescription::CertificateRequired
                | AlertDescription::AccessDenied
        )
    )
}

/// Describes an error of rustls. The texts of rustls print values of Rust and numbers of
/// algorithms.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the texts of the other errors are sentences"
)]
pub(crate) fn describe(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(other)) => {
            spell_out(&other.to_string())
        }
        rustls::Error::InvalidCertificate(reason) => spell_out(&format!("{reason:?}")),
        rustls::Error::InvalidMessage(why) => format!(
            "the server sent a message that cannot be read: {}",
            spell_out(&format!("{why:?}"))
        ),
        rustls::Error::InappropriateMessage { .. }
        | rustls::Error::InappropriateHandshakeMessage { .. } => {
            "the server sent a message out of turn".to_owned()
        }
        rustls::Error::PeerIncompatible(why) => format!(
            "server and client have no settings in common: {}",
            spell_out(&format!("{why:?}"))
        ),
        rustls::Error::PeerMisbehaved(why) => format!(
            "the server breaks the rules of TLS: {}",
            spell_out(&format!("{why:?}"))
        ),
        rustls::Error::InconsistentKeys(why) => spell_out(&format!("{why:?}")),
        other => visible(&other.to_string()).into_owned(),
    }
}

/// Names an alert.
pub(crate) fn describe_alert(alert: AlertDescription) -> String {
    if let AlertDescription::Unknown(code) = alert {
        format!("alert {code}")
    } else {
        spell_out(&format!("{alert:?}"))
    }
}

/// Says what is wrong with a PEM text, without any byte of it.
pub(crate) fn describe_pem(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a block has no END line".to_owned(),
        pem::Error::IllegalSectionStart { .. } => "a BEGIN line is malformed".to_owned(),
        pem::Error::NoItemsFound => "it holds no such block".to_owned(),
        pem::Error::SectionTooLarge => "a block is too large".to_owned(),
        pem::Error::Base64Decode(_) => "a block is no base64".to_owned(),
        pem::Error::Io(_) | _ => "it cannot be read".to_owned(),
    }
}

/// Spells the name of a Rust value in words: `NoCipherSuitesInCommon { .. }` is `no cipher suites
/// in common`.
fn spell_out(value: &str) -> String {
    let name = value.split(|char: char| !char.is_alphanumeric()).next();
    let mut words = String::new();
    let mut was_lower = false;
    for char in name.unwrap_or_default().chars() {
        if (char.is_uppercase() || char.is_numeric()) && was_lower {
            words.push(' ');
        }
        was_lower = char.is_lowercase();
        if char.is_uppercase() && words.ends_with(|last: char| last.is_numeric()) {
            words.push(' ');
        }
        words.extend(char.to_lowercase());
    }
    words
}
