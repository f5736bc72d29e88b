//! Explains a failure of TLS to the person who configured the client: the cause, the facts that the
//! client saw, and the field of the kubeconfig that helps.

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{AlertDescription, CertificateError, InvalidMessage, PeerIncompatible};

use super::super::calls::call_context::HandshakeNotes;
use super::super::certificates::client_certificate;
use super::super::certificates::facts::{self, CertificateFacts, shown};
use super::super::certificates::pem::{ClientIdentity, Pem};
use super::super::config::TlsSettings;
use super::errors::{describe, describe_alert, is_about_certificate, is_unsupported_version};
use crate::error::{Error, ErrorKind};

/// How many names of a certificate an error lists.
const NAMES_MAX: usize = 8;

/// How many authorities an error lists. Their names are long.
const AUTHORITIES_MAX: usize = 3;

/// The smallest RSA key whose signatures the usual crypto providers verify.
const RSA_BITS_MIN: usize = 2048;

/// The hint if only the server's side can fix the failure.
const BEYOND_KUBECONFIG: &str = "no field of the kubeconfig changes that";

/// Makes the error of a failed handshake, or of a later alert, from loaded settings.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the texts of the other errors are clear"
)]
pub(crate) fn explain(
    error: rustls::Error,
    settings: &TlsSettings,
    notes: &HandshakeNotes,
) -> Error {
    let case = Case::new(settings, notes);
    let message = match &error {
        rustls::Error::InvalidCertificate(reason) => case.certificate(reason, &error),
        rustls::Error::AlertReceived(alert) => case.alert(*alert, is_about_certificate(&error)),
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            let Case { peer, address, .. } = case;
            format!(
                "{peer} does not speak TLS on this port, but perhaps plain HTTP: correct the port \
                 in {address}, or its scheme"
            )
        }
        rustls::Error::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
        ) => case.old_version(),
        _ => {
            let message = format!("TLS failed: {}", describe(&error));
            return Error::new(ErrorKind::Tls, message).with_source(error);
        }
    };
    // Nothing is left to say, and the texts of rustls are dumps of its values.
    Error::new(ErrorKind::Tls, message)
}

/// Makes the error of a connection that ended before the handshake did.
pub(crate) fn cut_off(why: &str, settings: &TlsSettings) -> Error {
    let (_, address) = peer_of(settings);
    let message = format!(
        "the TLS handshake was cut off: {why}: does the port in {address} speak TLS, and has a \
         load balancer there a server behind it?"
    );
    Error::new(ErrorKind::Unreachable, message)
}

/// Makes the error of a server that answers plain HTTP by TLS.
pub(crate) fn speaks_tls() -> Error {
    let message = "the server speaks TLS on this port, and the client plain HTTP: the \
                   kubeconfig's server has to begin with https://";
    Error::new(ErrorKind::Tls, message)
}

/// Names the peer, and the field of its address.
fn peer_of(settings: &TlsSettings) -> (&'static str, &'static str) {
    if settings.of_proxy {
        ("the proxy", "the kubeconfig's proxy-url")
    } else {
        ("the server", "the kubeconfig's server")
    }
}

/// A failure, and the known facts about it.
struct Case<'a> {
    settings: &'a TlsSettings,
    notes: &'a HandshakeNotes,
    /// The certificates that the peer sent, its own first. None, if they were not refused.
    chain: Vec<CertificateFacts>,
    /// The peer, such as `the server`.
    peer: &'static str,
    /// The field of the peer's address.
    address: &'static str,
    /// The place of the authorities.
    authorities: String,
}

impl<'a> Case<'a> {
    fn new(settings: &'a TlsSettings, notes: &'a HandshakeNotes) -> Self {
        let refused = notes.refused.iter();
        let refused = refused.flat_map(|refused| &refused.certificates);
        let chain = refused.filter_map(|der| CertificateFacts::read(der));
        let authorities = settings.authorities.as_ref().map(Pem::origin);
        let (peer, address) = peer_of(settings);
        Self {
            settings,
            notes,
            chain: chain.collect(),
            peer,
            address,
            authorities: authorities.unwrap_or_default(),
        }
    }

    /// The peer's certificate, with its name if it has one.
    fn its_certificate(&self) -> String {
        let peer = self.peer;
        match self.chain.first() {
            Some(own) if !own.subject.is_empty() => {
                format!("{peer}'s certificate \"{}\"", own.subject)
            }
            _ => format!("{peer}'s certificate"),
        }
    }

    /// The certificates that the client trusts.
    fn trusted(&self) -> impl Iterator<Item = CertificateDer<'static>> {
        let bundle = self.settings.authorities.iter();
        bundle.flat_map(|pem| CertificateDer::pem_slice_iter(&pem.bytes).flatten())
    }

    fn trusted_facts(&self) -> impl Iterator<Item = CertificateFacts> {
        self.trusted()
            .filter_map(|der| CertificateFacts::read(&der))
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the texts of the other errors are clear"
    )]
    fn certificate(&self, reason: &CertificateError, error: &rustls::Error) -> String {
        match reason {
            CertificateError::UnknownIssuer => self.unknown_issuer(),
            CertificateError::BadSignature => self.bad_signature(),
            CertificateError::NotValidForNameContext { .. } => self.wrong_name(),
            CertificateError::ExpiredContext { time, not_after } => {
                let which = self.dated(|facts| facts.not_after, *not_after);
                let expired = expired(*not_after, *time);
                format!("{which} {expired}: renew it, or set the clock; {BEYOND_KUBECONFIG}")
            }
            CertificateError::NotValidYetContext { time, not_before } => {
                let which = self.dated(|facts| facts.not_before, *not_before);
                let begins = begins(*not_before, *time);
                format!("{which} {begins}: set the clock, or reissue it; {BEYOND_KUBECONFIG}")
            }
            CertificateError::UnsupportedSignatureAlgorithmContext {
                signature_algorithm_id: signature,
                ..
            } => self.unknown_algorithm(signature, None),
            CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
                signature_algorithm_id: signature,
                public_key_algorithm_id: key,
            } => self.unknown_algorithm(signature, Some(facts::algorithm(key))),
            CertificateError::InvalidPurposeContext { .. } => format!(
                "{} is not for servers: its extended key usage lacks server authentication: \
                 reissue it with that; {BEYOND_KUBECONFIG}",
                self.its_certificate()
            ),
            CertificateError::Other(other) => self.refused(&other.to_string(), error),
            _ => self.otherwise(error),
        }
    }

    /// Explains a refusal of webpki for which rustls has no name.
    fn refused(&self, name: &str, error: &rustls::Error) -> String {
        let (its, issuer, authorities) = (self.its_certificate(), self.issuer(), &self.authorities);
        match name {
            _ if is_unsupported_version(error) => format!(
                "{its} is of X.509 version 1, which this client does not read: reissue it as \
                 version 3, with subject alternative names; {BEYOND_KUBECONFIG} \
                 (UnsupportedCertVersion)"
            ),
            "CaUsedAsEndEntity" => format!(
                "{its} is an authority's, as openssl req -x509 makes it; kubectl takes that, this \
                 client does not: give {} a certificate issued by that authority; \
                 {BEYOND_KUBECONFIG} (CaUsedAsEndEntity)",
                self.peer
            ),
            "EndEntityUsedAsCa" => format!(
                "{its} was issued by {issuer}, which is no authority: have an authority issue it; \
                 {BEYOND_KUBECONFIG} (EndEntityUsedAsCa)"
            ),
            "MaximumPathDepthExceeded" => format!(
                "{its} comes with a chain of {} more, and this client follows 6: add one of them \
                 that is nearer, such as {issuer}, to certificate-authority ({authorities}) \
                 (MaximumPathDepthExceeded)",
                self.chain.len().saturating_sub(1)
            ),
            "PathLenConstraintViolated" => format!(
                "{its} comes with a longer chain than an authority in it allows (its path length \
                 constraint): add {issuer} to certificate-authority ({authorities}), or reissue \
                 that authority (PathLenConstraintViolated)"
            ),
            _ => self.otherwise(error),
        }
    }

    fn otherwise(&self, error: &rustls::Error) -> String {
        let (its, authorities) = (self.its_certificate(), &self.authorities);
        let why = describe(error);
        format!("{its} is refused: {why} (authorities: {authorities})")
    }

    /// The issuer of the peer's certificate.
    fn issuer(&self) -> String {
        let own = self.chain.first();
        own.map_or_else(|| "its issuer".to_owned(), |own| quoted(&own.issuer))
    }

    /// The certificate of the chain that has this time, by name if it is not the peer's own.
    fn dated(&self, of: impl Fn(&CertificateFacts) -> Option<UnixTime>, time: UnixTime) -> String {
        let mut chain = self.chain.iter().enumerate();
        match chain.find(|(_, facts)| of(facts) == Some(time)) {
            None | Some((0, _)) => self.its_certificate(),
            Some((_, facts)) => {
                let (name, peer) = (quoted(&facts.subject), self.peer);
                format!("the certificate of {name}, which {peer} sends with its own,")
            }
        }
    }

    fn unknown_issuer(&self) -> String {
        let (its, authorities) = (self.its_certificate(), &self.authorities);
        let refused = self.notes.refused.as_ref();
        let own = refused.and_then(|refused| refused.certificates.first());
        if own.is_some_and(|own| self.trusted().any(|trusted| trusted == *own)) {
            return format!(
                "{its} stands in {authorities} itself: certificate-authority has to hold the \
                 certificate of its issuer {} instead (UnknownIssuer)",
                self.issuer()
            );
        }
        let missing = quoted(&self.missing_issuer());
        let known = list(
            AUTHORITIES_MAX,
            self.trusted_facts().map(|facts| quoted(&facts.subject)),
        );
        format!(
            "{its} comes from {missing}, which is not in {authorities} (there: {known}): \
             certificate-authority has to hold the certificate of {missing}, or {} has to send it \
             if an authority there issued it (UnknownIssuer)",
            self.peer
        )
    }

    /// The issuer at the end of the chain.
    fn missing_issuer(&self) -> String {
        let mut issuer = self.chain.first().map_or("", |own| &own.issuer);
        for _ in &self.chain {
            let above = self.chain.iter().find(|facts| facts.subject == issuer);
            issuer = above.map_or(issuer, |above| &above.issuer);
        }
        issuer.to_owned()
    }

    fn bad_signature(&self) -> String {
        let its = self.its_certificate();
        let refused = self.notes.refused.as_ref();
        let is_about_key = refused.is_some_and(|refused| refused.is_about_key);
        let signs = |facts: &CertificateFacts| {
            let mut chain = self.chain.iter();
            is_about_key || chain.any(|signed| signed.issuer == facts.subject)
        };
        let signers = self.chain.iter().cloned().chain(self.trusted_facts());
        let is_weak = |facts: &CertificateFacts| {
            facts.rsa_bits.is_some_and(|bits| bits < RSA_BITS_MIN) && signs(facts)
        };
        let weak = signers
            .take(if is_about_key { 1 } else { usize::MAX })
            .find(is_weak);
        if let Some((subject, bits)) = weak.and_then(|weak| Some((weak.subject, weak.rsa_bits?))) {
            return format!(
                "the key of \"{subject}\" is RSA of {bits} bits, and this client takes \
                 {RSA_BITS_MIN} and more: give it a new key; {BEYOND_KUBECONFIG} (BadSignature)"
            );
        }
        if is_about_key {
            return format!(
                "{its} was shown by somebody without its key: give {} the certificate and the key \
                 that belong together; {BEYOND_KUBECONFIG} (BadSignature)",
                self.peer
            );
        }
        format!(
            "{its} names the issuer {}, but was not signed with the key of the one in {}: \
             certificate-authority is of another cluster, or of this one before its authority was \
             renewed: take the present one (BadSignature)",
            self.issuer(),
            self.authorities
        )
    }

    fn wrong_name(&self) -> String {
        let (its, address) = (self.its_certificate(), self.address);
        let name = self.settings.name();
        let own = self.chain.first();
        let (hosts, others) = own.map_or((&[][..], &[][..]), |own| (&own.hosts, &own.other_names));
        let names = list(NAMES_MAX, hosts.iter().chain(others).cloned());
        if names.is_empty() {
            return format!(
                "{its} is not for \"{name}\": it has no subject alternative name at all, and a \
                 common name does not count: reissue it with one; {BEYOND_KUBECONFIG}"
            );
        }
        if hosts.is_empty() {
            return format!(
                "{its} is not for \"{name}\", only for {names}, and none of these names a host: \
                 reissue it with one that does; {BEYOND_KUBECONFIG}"
            );
        }
        let or = if self.settings.of_proxy {
            ""
        } else {
            ", or set tls-server-name to one"
        };
        let these = if others.is_empty() {
            "these"
        } else {
            "the hosts of these"
        };
        format!(
            "{its} is not for \"{name}\", only for {names}: use one of {these} in {address}{or}"
        )
    }

    fn unknown_algorithm(&self, signature: &[u8], key: Option<String>) -> String {
        let signature = facts::algorithm(signature);
        let of_chain = self.chain.iter().find(|facts| facts.signature == signature);
        let which = of_chain.map_or_else(
            || self.its_certificate(),
            |facts| format!("the certificate \"{}\"", facts.subject),
        );
        if signature.ends_with("SHA-1") {
            return format!(
                "{which} is signed with {signature}, which this client does not accept: have its \
                 issuer sign it again, with SHA-256; {BEYOND_KUBECONFIG}"
            );
        }
        let key = key.or_else(|| {
            let issuer = of_chain.map(|facts| facts.issuer.as_str())?;
            let mut signers = self.chain.iter().cloned().chain(self.trusted_facts());
            let signer = signers.find(|facts| facts.subject == issuer);
            signer.map(|facts| facts.key)
        });
        let of_key = key.map_or_else(String::new, |key| format!(" by a key of {key}"));
        format!(
            "{which} is signed with {signature}{of_key}, which this client does not know: reissue \
             it under an authority with an RSA, P-256 or P-384 key, or hand in a crypto provider \
             that knows more; {BEYOND_KUBECONFIG}"
        )
    }

    fn old_version(&self) -> String {
        let Self { peer, address, .. } = self;
        format!(
            "{peer} speaks TLS 1.1 or an older version alone, and this client 1.2 and 1.3: enable \
             one of them at the address in {address}"
        )
    }

    fn alert(&self, alert: AlertDescription, is_about_certificate: bool) -> String {
        let Self { peer, address, .. } = self;
        // In TLS 1.2 nothing else can be the cause once a certificate was asked for.
        let is_failure = alert == AlertDescription::HandshakeFailure;
        let is_about_certificate =
            is_about_certificate || is_failure && self.notes.asks_for_certificate;
        let told = describe_alert(alert);
        match &self.settings.identity {
            Some(identity) if is_about_certificate => self.refused_identity(identity, alert, &told),
            None if is_about_certificate && self.settings.of_proxy => format!(
                "the proxy asks for a client certificate, and proxies are shown none: {told}"
            ),
            None if is_about_certificate => format!(
                "{peer} asks for a client certificate, and none is configured: set \
                 client-certificate and client-key of the user ({told})"
            ),
            _ if alert == AlertDescription::ProtocolVersion => self.old_version(),
            _ if alert == AlertDescription::UnrecognisedName => {
                let name = self.settings.name();
                format!(
                    "{peer} has no certificate for \"{name}\": correct the name in {address}, or \
                     tls-server-name ({told})"
                )
            }
            _ if is_failure || alert == AlertDescription::InsufficientSecurity => format!(
                "{peer} broke TLS off: {told}: it says no more, and takes none of the cipher \
                 suites, curves or signatures that this client offers ({}): it may have CBC, DHE \
                 or RSA key exchange alone, which rustls has not, or a key or curve of P-521: \
                 enable one of each there, or hand in a crypto provider that knows more; \
                 {BEYOND_KUBECONFIG}",
                self.notes.offer
            ),
            _ => format!("{peer} broke TLS off: {told}: its log says why"),
        }
    }

    fn refused_identity(
        &self,
        identity: &ClientIdentity,
        alert: AlertDescription,
        told: &str,
    ) -> String {
        let (peer, origin) = (self.peer, identity.certificate.origin());
        let own = client_certificate::facts(&identity.certificate);
        let end = own.as_ref().and_then(|own| own.not_after);
        let end = end.map_or_else(String::new, |end| format!(", valid until {}", shown(end)));
        let about = own.as_ref().map_or_else(String::new, |own| {
            format!(" (\"{}\" from \"{}\"{end})", own.subject, own.issuer)
        });
        let remedy = own.and_then(|own| own.out_of_date(UnixTime::now()));
        let usual = || {
            if alert == AlertDescription::CertificateExpired {
                "it is valid by the clock of this machine: set the clock that is wrong, there or \
                 here, or renew the certificate"
            } else {
                "client-certificate needs one that an authority of the server issued for client \
                 authentication"
            }
            .to_owned()
        };
        let remedy = remedy.map_or_else(usual, |why| format!("it {why}"));
        format!("{peer} refuses the client certificate {origin}{about}: {told}: {remedy}")
    }
}

impl CertificateFacts {
    /// Says that a client certificate is not valid at this time, and what to do; `None` if it is.
    fn out_of_date(&self, now: UnixTime) -> Option<String> {
        if let Some(end) = self.not_after.filter(|end| *end < now) {
            return Some(format!("{}: renew it, or set the clock", expired(end, now)));
        }
        let begin = self.not_before.filter(|begin| *begin > now)?;
        let begins = begins(begin, now);
        Some(format!("{begins}: set the clock, or reissue it"))
    }
}

/// Says that the client certificate has expired or is not valid yet, by the clock of this machine.
pub(crate) fn out_of_date(identity: &ClientIdentity) -> Option<String> {
    let why = client_certificate::facts(&identity.certificate)?.out_of_date(UnixTime::now())?;
    let origin = identity.certificate.origin();
    Some(format!("the client certificate {origin} {why}"))
}

fn expired(end: UnixTime, now: UnixTime) -> String {
    let ago = rounded(now.as_secs().saturating_sub(end.as_secs()));
    let (end, clock) = (shown(end), shown(now));
    format!("expired at {end}, {ago} ago by the clock of this machine ({clock})")
}

fn begins(begin: UnixTime, now: UnixTime) -> String {
    let left = rounded(begin.as_secs().saturating_sub(now.as_secs()));
    let (begin, clock) = (shown(begin), shown(now));
    format!("is valid from {begin} on, in {left} by the clock of this machine ({clock})")
}

/// Describes the offer of a client with this provider.
pub(crate) fn offer(provider: &CryptoProvider) -> String {
    let suites = provider.cipher_suites.iter();
    let groups = provider.kx_groups.iter();
    let schemes = provider.signature_verification_algorithms;
    let schemes = schemes.supported_schemes().into_iter();
    let suites = suites.map(|suite| {
        let name = format!("{:?}", suite.suite());
        let short = name.split_once("_WITH_").map(|(_, short)| short);
        let short = short.or(name.strip_prefix("TLS13_"));
        short.unwrap_or(&name).to_owned()
    });
    let schemes = schemes.map(|scheme| {
        let name = format!("{scheme:?}");
        name.split("_SHA").next().unwrap_or_default().to_owned()
    });
    format!(
        "ECDHE with {}; {}; {}",
        distinct(suites),
        distinct(groups.map(|group| format!("{:?}", group.name()))),
        distinct(schemes)
    )
}

fn distinct(names: impl Iterator<Item = String>) -> String {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen.join(", ")
}

fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

/// Lists the first names, and counts the others.
fn list(max: usize, names: impl Iterator<Item = String>) -> String {
    let mut names: Vec<_> = names.collect();
    let others = names.len().saturating_sub(max);
    if others > 0 {
        names.truncate(max);
        names.push(format!("{others} more"));
    }
    names.join(", ")
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

#[cfg(test)]
mod tests {
    use rustls::{Error as Tls, ExtendedKeyPurpose, PeerIncompatible, PeerMisbehaved};

    use super::*;
    use crate::http::calls::call_context::RefusedChain;

    fn other(message: &'static str) -> rustls::OtherError {
        rustls::OtherError(std::sync::Arc::new(std::io::Error::other(message)))
    }

    fn certificate_rows() -> Vec<(Tls, &'static str)> {
        let at = UnixTime::since_unix_epoch;
        let seconds = std::time::Duration::from_secs;
        let bytes = b"\x06\x03\x2a\x03\x04".to_vec();
        vec![
            (
                Tls::InvalidCertificate(
                    CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
                        signature_algorithm_id: bytes.clone(),
                        public_key_algorithm_id: bytes.clone(),
                    },
                ),
                "signed with 1.2.3.4 by a key of 1.2.3.4, which this client does not know",
            ),
            (
                Tls::InvalidCertificate(CertificateError::UnsupportedSignatureAlgorithmContext {
                    signature_algorithm_id: bytes,
                    supported_algorithms: Vec::new(),
                }),
                "signed with 1.2.3.4, which this client does not know",
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
                "expired at 2023-11-03T08:26:40Z, 11 days ago by the clock of this machine (2023-",
            ),
            (
                Tls::InvalidCertificate(CertificateError::NotValidYetContext {
                    time: at(seconds(1_700_000_000)),
                    not_before: at(seconds(1_700_000_130)),
                }),
                "is valid from 2023-11-14T22:15:30Z on, in 2 minutes by the clock",
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
                Tls::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon),
                "have no settings in common: no cipher suites in common",
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

    /// A proxy has another field, and sees no client certificate.
    #[test]
    fn what_a_proxy_does_is_not_blamed_on_the_server() {
        let settings = TlsSettings {
            server_name: Some(("proxy.test".to_owned(), String::new())),
            of_proxy: true,
            ..TlsSettings::default()
        };
        let wrong_name = CertificateError::NotValidForNameContext {
            expected: "proxy.test".try_into().unwrap(),
            presented: Vec::new(),
        };
        let shown = include_bytes!("../../../fixtures/certs/name-only.pem");
        let shown = CertificateDer::from_pem_slice(shown).unwrap();
        let notes = HandshakeNotes {
            refused: Some(crate::sync::Arc::new(RefusedChain {
                certificates: vec![shown],
                is_about_key: false,
            })),
            ..HandshakeNotes::default()
        };
        let rows = [
            (
                Tls::InvalidCertificate(wrong_name),
                "the proxy's certificate \"CN=name-only\" is not for \"proxy.test\", only for \
                 api.test: use one of these in the kubeconfig's proxy-url",
            ),
            (
                Tls::AlertReceived(AlertDescription::CertificateRequired),
                "the proxy asks for a client certificate, and proxies are shown none: certificate \
                 required",
            ),
            (
                Tls::InvalidMessage(InvalidMessage::InvalidContentType),
                "the proxy does not speak TLS on this port, but perhaps plain HTTP: correct the \
                 port in the kubeconfig's proxy-url, or its scheme",
            ),
        ];
        for (error, text) in rows {
            let shown = explain(error, &settings, &notes);
            assert_eq!(shown.to_string(), text);
        }
    }

    #[test]
    fn a_long_list_of_names_is_counted() {
        let names = (0..10).map(|number| format!("n{number}"));
        assert_eq!(list(3, names), "n0, n1, n2, 7 more");
    }

    /// D16: sentences without numbers of algorithms and values of Rust.
    #[test]
    fn a_failure_is_told_in_words() {
        let settings = TlsSettings {
            server_name: Some(("api.test".to_owned(), String::new())),
            authorities: Some(Pem::inline(Vec::new(), "ca.crt")),
            ..TlsSettings::default()
        };
        for (error, text) in certificate_rows().into_iter().chain(other_rows()) {
            let shown = explain(error, &settings, &HandshakeNotes::default()).to_string();
            assert!(shown.contains(text), "{shown}");
            let has_values = shown.contains(['[', '{', '"']) || shown.contains("(\"");
            assert!(!has_values, "{shown}");
        }
    }
}
