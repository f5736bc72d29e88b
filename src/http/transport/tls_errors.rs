//! The errors of TLS, in words for the user that configured the client, with a remedy.

use rustls::pki_types::pem;
use rustls::{AlertDescription, CertificateError, InvalidMessage};

use super::super::config::Pem;
use super::super::config::TlsSettings;
use crate::error::{Error, ErrorKind};
use crate::object::visible;

/// Whether rustls cannot read a certificate because its X.509 version is not 3.
pub(crate) fn is_unsupported_version(error: &rustls::Error) -> bool {
    let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = error else {
        return false;
    };
    other.to_string().contains("UnsupportedCertVersion")
}

/// Makes the error of a failed handshake, or of a later alert.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the texts of the other errors are clear"
)]
pub(crate) fn explain(error: rustls::Error, settings: &TlsSettings) -> Error {
    let message = match &error {
        rustls::Error::InvalidCertificate(reason) => certificate(reason, &error, settings),
        rustls::Error::AlertReceived(alert) => alert_received(*alert, settings),
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the server does not speak TLS: is its address http:// instead of https://?".to_owned()
        }
        _ => format!("TLS failed: {}", describe(&error)),
    };
    Error::new(ErrorKind::Tls, message).with_source(error)
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

/// Says what is wrong with a PEM text, without any byte of it.
pub(crate) fn describe_pem(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a block has no END line".to_owned(),
        pem::Error::IllegalSectionStart { .. } => "a BEGIN line is malformed".to_owned(),
        pem::Error::NoItemsFound => "it holds no such block".to_owned(),
        pem::Error::SectionTooLarge => "a block is too large".to_owned(),
        pem::Error::Base64Decode(why) => format!("a block is no base64: {why}"),
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

/// Writes a time in its largest unit.
fn rounded(seconds: u64) -> String {
    let rows = [
        (86_400, "day"),
        (3_600, "hour"),
        (60, "minute"),
        (1, "second"),
    ];
    for (unit, name) in rows {
        if seconds >= unit {
            let count = seconds.checked_div(unit).unwrap_or_default();
            let plural = if count == 1 { "" } else { "s" };
            return format!("{count} {name}{plural}");
        }
    }
    "no time".to_owned()
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the texts of the other errors are clear"
)]
fn certificate(reason: &CertificateError, error: &rustls::Error, settings: &TlsSettings) -> String {
    let name = settings.server_name.as_deref().unwrap_or_default();
    let authorities = settings.authorities.as_ref().map(Pem::origin);
    let authorities = authorities.unwrap_or_default();
    match reason {
        CertificateError::UnknownIssuer => format!(
            "the server's certificate is not signed by an authority in {authorities}: the bundle \
             has to hold the \
             authority that issued it, not the certificate itself (UnknownIssuer)"
        ),
        CertificateError::BadSignature => format!(
            "the server's certificate names an authority in {authorities} but was signed with \
             another key: the bundle \
             is of another cluster, or of this one before its authority was renewed (BadSignature)"
        ),
        CertificateError::NotValidForNameContext { presented, .. } => {
            let presented: Vec<_> = presented.iter().map(|name| plain_name(name)).collect();
            let list = match presented.as_slice() {
                [] => ": it carries no subject alternative name at all".to_owned(),
                names => format!(", only for {}", names.join(", ")),
            };
            format!(
                "the server's certificate is not for {name:?}{list}: \
                 use an address it is for, or set tls-server-name"
            )
        }
        CertificateError::ExpiredContext { time, not_after } => {
            let seconds = time.as_secs().saturating_sub(not_after.as_secs());
            format!(
                "the server's certificate has expired, {} ago: \
                 renew it, or check this machine's clock",
                rounded(seconds)
            )
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            let seconds = not_before.as_secs().saturating_sub(time.as_secs());
            format!(
                "the server's certificate is not valid yet, but in {}: check this machine's clock",
                rounded(seconds)
            )
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "the server's certificate is signed with an algorithm that this client does not know: \
             reissue it with \
             another (ECDSA or RSA with SHA-256), or hand in a crypto provider that knows it"
                .to_owned()
        }
        CertificateError::InvalidPurposeContext { .. } => {
            "the server's certificate is not for servers: its extended key usage lacks server \
             authentication"
                .to_owned()
        }
        _ if is_unsupported_version(error) => {
            "the server's certificate is of X.509 version 1, which this TLS library does not read: \
             reissue it as version 3 (UnsupportedCertVersion)"
                .to_owned()
        }
        _ if error.to_string().contains("CaUsedAsEndEntity") => {
            "the server presents an authority's certificate as its own: give it a certificate of \
             its own, issued by \
             that authority (CaUsedAsEndEntity)"
                .to_owned()
        }
        _ => format!(
            "the server's certificate is refused: {} (authorities: {authorities})",
            describe(error)
        ),
    }
}

/// Returns a name without the Rust value around it that rustls prints.
fn plain_name(name: &str) -> String {
    let inner = name
        .strip_prefix("DnsName(\"")
        .or_else(|| name.strip_prefix("IpAddress("));
    let Some(inner) = inner else {
        return visible(name).into_owned();
    };
    visible(inner.trim_end_matches(')').trim_matches('"')).into_owned()
}

fn alert_received(alert: AlertDescription, settings: &TlsSettings) -> String {
    let about_us = matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateRequired
            | AlertDescription::AccessDenied
    );
    let alert = if let AlertDescription::Unknown(code) = alert {
        format!("alert {code}")
    } else {
        spell_out(&format!("{alert:?}"))
    };
    match &settings.identity {
        Some(identity) if about_us => {
            let origin = identity.certificate.origin();
            format!("the server refuses the client certificate {origin}: {alert}")
        }
        None if about_us => {
            format!("the server asks for a client certificate, and none is configured: {alert}")
        }
        _ => format!("the server broke TLS off: {alert}"),
    }
}

#[cfg(test)]
mod tests {
    use rustls::{Error as Tls, ExtendedKeyPurpose, PeerIncompatible, PeerMisbehaved};

    use super::*;

    fn other(message: &'static str) -> rustls::OtherError {
        rustls::OtherError(std::sync::Arc::new(std::io::Error::other(message)))
    }

    fn certificate_rows() -> Vec<(Tls, &'static str)> {
        let at = rustls::pki_types::UnixTime::since_unix_epoch;
        let seconds = std::time::Duration::from_secs;
        let bytes = vec![0x2a, 0x86, 0x48];
        vec![
            (
                Tls::InvalidCertificate(
                    CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
                        signature_algorithm_id: bytes.clone(),
                        public_key_algorithm_id: bytes.clone(),
                    },
                ),
                "signed with an algorithm that this client does not know",
            ),
            (
                Tls::InvalidCertificate(CertificateError::UnsupportedSignatureAlgorithmContext {
                    signature_algorithm_id: bytes,
                    supported_algorithms: Vec::new(),
                }),
                "signed with an algorithm that this client does not know",
            ),
            (
                Tls::InvalidCertificate(CertificateError::InvalidPurposeContext {
                    required: ExtendedKeyPurpose::ServerAuth,
                    presented: vec![ExtendedKeyPurpose::Other(vec![1, 3, 6, 1])],
                }),
                "not for servers",
            ),
            (
                Tls::InvalidCertificate(CertificateError::ExpiredContext {
                    time: at(seconds(1_700_000_000)),
                    not_after: at(seconds(1_699_000_000)),
                }),
                "has expired, 11 days ago",
            ),
            (
                Tls::InvalidCertificate(CertificateError::NotValidYetContext {
                    time: at(seconds(1_700_000_000)),
                    not_before: at(seconds(1_700_000_130)),
                }),
                "not valid yet, but in 2 minutes",
            ),
            (
                Tls::InvalidCertificate(CertificateError::Other(other(
                    "MissingOrMalformedExtensions",
                ))),
                "refused: missing or malformed extensions",
            ),
            (
                Tls::InvalidCertificate(CertificateError::UnhandledCriticalExtension),
                "refused: unhandled critical extension",
            ),
        ]
    }

    fn other_rows() -> Vec<(Tls, &'static str)> {
        vec![
            (
                Tls::InvalidMessage(InvalidMessage::MissingData("ServerHello")),
                "sent a message that cannot be read: missing data",
            ),
            (
                Tls::AlertReceived(AlertDescription::HandshakeFailure),
                "the server broke TLS off: handshake failure",
            ),
            (
                Tls::AlertReceived(AlertDescription::Unknown(0x7b)),
                "the server broke TLS off: alert 123",
            ),
            (
                Tls::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13),
                "server does not support tls 12 or 13",
            ),
            (
                Tls::PeerMisbehaved(PeerMisbehaved::SelectedUnofferedCipherSuite),
                "breaks the rules of TLS: selected unoffered cipher suite",
            ),
            (
                Tls::InappropriateMessage {
                    expect_types: Vec::new(),
                    got_type: rustls::ContentType::Handshake,
                },
                "out of turn",
            ),
        ]
    }

    /// D16: sentences without numbers of algorithms and values of Rust.
    #[test]
    fn a_failure_is_told_in_words() {
        let settings = TlsSettings {
            server_name: Some("api.test".to_owned()),
            authorities: Some(Pem::inline(Vec::new(), "ca.crt")),
            ..TlsSettings::default()
        };
        for (error, text) in certificate_rows().into_iter().chain(other_rows()) {
            let shown = explain(error, &settings).to_string();
            assert!(shown.contains(text), "{shown}");
            let has_values = shown.contains(['[', '{', '"']) || shown.contains("(\"");
            assert!(!has_values, "{shown}");
        }
    }
}
