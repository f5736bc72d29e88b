//! What a failure of TLS means to whoever configured the client, and what to do about it.

use rustls::{AlertDescription, CertificateError, InvalidMessage};

use super::TlsSettings;
use super::pem::Pem;
use crate::error::{Error, ErrorKind};

/// Where the pieces of the configuration came from.
#[derive(Clone, Debug)]
pub(crate) struct Origins {
    server_name: String,
    authorities: String,
    identity: Option<String>,
}

impl Origins {
    pub(crate) fn new(settings: &TlsSettings, server_name: &str) -> Self {
        Self {
            server_name: server_name.to_owned(),
            authorities: settings
                .authorities
                .as_ref()
                .map(Pem::origin)
                .unwrap_or_default(),
            identity: settings
                .identity
                .as_ref()
                .map(|identity| identity.certificate.origin()),
        }
    }
}

/// Whether rustls cannot read a certificate because it is not of X.509 version 3.
pub(crate) fn is_unsupported_version(error: &rustls::Error) -> bool {
    let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = error else {
        return false;
    };
    other.to_string().contains("UnsupportedCertVersion")
}

/// The error of a failed handshake or of an alert after it.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "rustls's errors are many and grow; the rest speak for themselves"
)]
pub(crate) fn explain(error: rustls::Error, origins: &Origins) -> Error {
    let message = match &error {
        rustls::Error::InvalidCertificate(reason) => certificate(reason, &error, origins),
        rustls::Error::AlertReceived(alert) => alert_received(*alert, origins),
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the server does not speak TLS: is its address http:// instead of https://?".to_owned()
        }
        _ => format!("TLS failed: {error}"),
    };
    Error::new(ErrorKind::Tls, message).with_source(error)
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "rustls's errors are many and grow; the rest speak for themselves"
)]
fn certificate(reason: &CertificateError, error: &rustls::Error, origins: &Origins) -> String {
    let (name, authorities) = (&origins.server_name, &origins.authorities);
    match reason {
        CertificateError::UnknownIssuer => format!(
            "the server's certificate is not signed by an authority in {authorities}: the bundle has to hold the \
             authority that issued it, not the certificate itself (UnknownIssuer)"
        ),
        CertificateError::BadSignature => format!(
            "the server's certificate names an authority in {authorities} but was signed with another key: the bundle \
             is of another cluster, or of this one before its authority was renewed (BadSignature)"
        ),
        CertificateError::NotValidForName => not_for_name(name, ""),
        CertificateError::NotValidForNameContext { presented, .. } => {
            let presented: Vec<_> = presented.iter().map(|name| readable(name)).collect();
            let list = match presented.as_slice() {
                [] => ": it carries no subject alternative name at all".to_owned(),
                names => format!(", only for {}", names.join(", ")),
            };
            not_for_name(name, &list)
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("the server's certificate has expired ({reason}): renew it, or check this machine's clock")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("the server's certificate is not valid yet ({reason}): check this machine's clock")
        }
        _ if is_unsupported_version(error) => {
            "the server's certificate is of X.509 version 1, which this TLS library does not read: \
             reissue it as version 3 (UnsupportedCertVersion)"
                .to_owned()
        }
        _ if error.to_string().contains("CaUsedAsEndEntity") => {
            "the server presents an authority's certificate as its own: give it a certificate of its own, issued by \
             that authority (CaUsedAsEndEntity)"
                .to_owned()
        }
        _ => format!("the server's certificate is refused: {reason} (authorities: {authorities})"),
    }
}

fn not_for_name(name: &str, presented: &str) -> String {
    format!(
        "the server's certificate is not for {name:?}{presented}: use an address it is for, or set tls-server-name"
    )
}

/// rustls prints names as their Rust values.
fn readable(name: &str) -> String {
    let inner = name
        .strip_prefix("DnsName(\"")
        .or_else(|| name.strip_prefix("IpAddress("));
    let Some(inner) = inner else {
        return name.to_owned();
    };
    inner.trim_end_matches(')').trim_matches('"').to_owned()
}

fn alert_received(alert: AlertDescription, origins: &Origins) -> String {
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
    match &origins.identity {
        Some(identity) if about_us => {
            format!("the server refuses the client certificate {identity}: {alert:?}")
        }
        None if about_us => {
            format!("the server asks for a client certificate, and none is configured: {alert:?}")
        }
        _ => format!("the server broke TLS off: {alert:?}"),
    }
}
