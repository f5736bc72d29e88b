//! The facts of a certificate for the errors of TLS: its names, times, signature and key.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;
use k8s_openapi::jiff::civil::DateTime;
use rustls::pki_types::UnixTime;

use crate::object::visible;

/// How much an error repeats at most of a name, which the maker of the certificate chose.
const NAME_CHARS_MAX: usize = 100;

/// No known algorithm or attribute has a longer identifier.
const IDENTIFIER_BYTES_MAX: usize = 32;

/// Tags of ASN.1.
mod tag {
    pub(super) const INTEGER: u8 = 0x02;
    pub(super) const BIT_STRING: u8 = 0x03;
    pub(super) const OCTET_STRING: u8 = 0x04;
    pub(super) const OBJECT_IDENTIFIER: u8 = 0x06;
    pub(super) const SEQUENCE: u8 = 0x30;
    pub(super) const SET: u8 = 0x31;
    pub(super) const UTC_TIME: u8 = 0x17;
    pub(super) const VERSION: u8 = 0xa0;
    pub(super) const EXTENSIONS: u8 = 0xa3;

    /// Kinds of alternative names.
    pub(super) const EMAIL: u8 = 0x81;
    pub(super) const DNS: u8 = 0x82;
    pub(super) const DIRECTORY: u8 = 0xa4;
    pub(super) const URI: u8 = 0x86;
    pub(super) const IP: u8 = 0x87;
}

/// The extension with a certificate's alternative names, 2.5.29.17.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

/// The attributes of names that have a short form.
const ATTRIBUTES: [(&str, &str); 6] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
];

/// Algorithms of signatures and keys, in words.
const ALGORITHMS: [(&str, &str); 17] = [
    ("1.2.840.10040.4.3", "DSA with SHA-1"),
    ("1.2.840.10045.2.1", "ECDSA"),
    ("1.2.840.10045.3.1.7", "P-256"),
    ("1.2.840.10045.4.1", "ECDSA with SHA-1"),
    ("1.2.840.10045.4.3.2", "ECDSA with SHA-256"),
    ("1.2.840.10045.4.3.3", "ECDSA with SHA-384"),
    ("1.2.840.10045.4.3.4", "ECDSA with SHA-512"),
    ("1.2.840.113549.1.1.1", "RSA"),
    ("1.2.840.113549.1.1.5", "RSA with SHA-1"),
    ("1.2.840.113549.1.1.10", "RSA-PSS"),
    ("1.2.840.113549.1.1.11", "RSA with SHA-256"),
    ("1.2.840.113549.1.1.12", "RSA with SHA-384"),
    ("1.2.840.113549.1.1.13", "RSA with SHA-512"),
    ("1.3.101.112", "Ed25519"),
    ("1.3.101.113", "Ed448"),
    ("1.3.132.0.34", "P-384"),
    ("1.3.132.0.35", "P-521"),
];

/// The facts read from a certificate. None of them is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateFacts {
    /// The subject, such as `O=shop,CN=client-one`.
    pub(crate) subject: String,
    /// The issuer, which signed it.
    pub(crate) issuer: String,
    pub(crate) not_before: Option<UnixTime>,
    pub(crate) not_after: Option<UnixTime>,
    /// The algorithm of its signature, such as `ECDSA with SHA-256`.
    pub(crate) signature: String,
    /// The algorithm of its key, such as `ECDSA P-521`.
    pub(crate) key: String,
    /// The size of an RSA key.
    pub(crate) rsa_bits: Option<usize>,
    /// The alternative names that a client can ask for: names of hosts and addresses.
    pub(crate) hosts: Vec<String>,
    /// The other alternative names, such as `spiffe://shop.test/api`.
    pub(crate) other_names: Vec<String>,
}

impl CertificateFacts {
    /// Reads a certificate of any version in DER. `None`, if `der` is no certificate.
    pub(crate) fn read(der: &[u8]) -> Option<Self> {
        let mut fields = fields(der)?;
        let signature = algorithm(fields.take(tag::SEQUENCE)?);
        let issuer = name(fields.take(tag::SEQUENCE)?);
        let mut validity = Der(fields.take(tag::SEQUENCE)?);
        let (not_before, not_after) = (time(&mut validity), time(&mut validity));
        let subject = name(fields.take(tag::SEQUENCE)?);
        let mut key = Der(fields.take(tag::SEQUENCE)?);
        let key_algorithm = algorithm(key.take(tag::SEQUENCE)?);
        let is_rsa = key_algorithm == "RSA";
        let names = alternative_names(&mut fields).into_iter();
        let (hosts, other_names): (Vec<_>, Vec<_>) = names.partition(|(is_host, _)| *is_host);
        let texts = |names: Vec<(bool, String)>| names.into_iter().map(|(_, name)| name).collect();
        Some(Self {
            hosts: texts(hosts),
            other_names: texts(other_names),
            subject,
            issuer,
            not_before,
            not_after,
            signature,
            rsa_bits: is_rsa.then(|| rsa_bits(&mut key)).flatten(),
            key: key_algorithm,
        })
    }
}

/// The fields of a certificate after its serial number.
fn fields(der: &[u8]) -> Option<Der<'_>> {
    let mut certificate = Der(Der(der).take(tag::SEQUENCE)?);
    let mut fields = Der(certificate.take(tag::SEQUENCE)?);
    if fields.next_tag() == Some(tag::VERSION) {
        fields.take(tag::VERSION)?;
    }
    fields.take(tag::INTEGER)?;
    Some(fields)
}

/// Names the algorithm of an `AlgorithmIdentifier`, whose content this is, and its curve.
pub(crate) fn algorithm(content: &[u8]) -> String {
    let mut content = Der(content);
    let mut next = || content.take(tag::OBJECT_IDENTIFIER).map(dotted);
    let (kind, curve) = (next().unwrap_or_default(), next());
    let kind = in_words(&kind, &ALGORITHMS);
    match curve {
        Some(curve) => format!("{kind} {}", in_words(&curve, &ALGORITHMS)),
        None => kind,
    }
}

fn in_words(dotted: &str, table: &[(&str, &str)]) -> String {
    let known = table.iter().find(|(identifier, _)| *identifier == dotted);
    known.map_or(dotted, |(_, words)| words).to_owned()
}

/// Returns the subject: attributes such as `CN` with their values, in order. `None`, if `der` is no
/// certificate.
#[cfg(feature = "testing")]
pub(crate) fn certificate_subject(der: &[u8]) -> Option<Vec<(String, String)>> {
    let mut fields = fields(der)?;
    // Algorithm, issuer and validity come before it.
    for _ in 0..3 {
        fields.take(tag::SEQUENCE)?;
    }
    Some(attributes(fields.take(tag::SEQUENCE)?))
}

/// Writes a name as `O=shop,CN=client-one`.
fn name(content: &[u8]) -> String {
    let pairs = attributes(content).into_iter();
    let pairs: Vec<_> = pairs
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    short(&pairs.join(","))
}

/// The attributes of a name with their values.
fn attributes(content: &[u8]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut sets = Der(content);
    while let Some(set) = sets.take(tag::SET) {
        let mut set = Der(set);
        while let Some(pair) = set.take(tag::SEQUENCE) {
            let mut pair = Der(pair);
            let attribute = pair.take(tag::OBJECT_IDENTIFIER).unwrap_or_default();
            let (_, value) = pair.next().unwrap_or_default();
            let attribute = in_words(&dotted(attribute), &ATTRIBUTES);
            found.push((attribute, String::from_utf8_lossy(value).into_owned()));
        }
    }
    found
}

/// Reads the alternative names from the last fields of a certificate. `true` stands for the name or
/// address of a host. A name of a rare kind is shown as the number of its kind.
fn alternative_names(fields: &mut Der<'_>) -> Vec<(bool, String)> {
    let mut found = Vec::new();
    let mut rest = std::iter::from_fn(|| fields.next());
    let extensions = rest.find(|(tag, _)| *tag == tag::EXTENSIONS);
    let extensions = extensions.and_then(|(_, content)| Der(content).take(tag::SEQUENCE));
    let mut extensions = Der(extensions.unwrap_or_default());
    while let Some(extension) = extensions.take(tag::SEQUENCE) {
        let mut extension = Der(extension);
        if extension.take(tag::OBJECT_IDENTIFIER) != Some(ALTERNATIVE_NAMES) {
            continue;
        }
        // The flag of a critical extension may come before it.
        let mut values = std::iter::from_fn(|| extension.next());
        let value = values.find(|(tag, _)| *tag == tag::OCTET_STRING);
        let names = value.and_then(|(_, value)| Der(value).take(tag::SEQUENCE));
        let mut names = Der(names.unwrap_or_default());
        while let Some((tag, content)) = names.next() {
            found.push(alternative_name(tag, content));
        }
    }
    found
}

fn alternative_name(tag: u8, content: &[u8]) -> (bool, String) {
    let text = || short(&String::from_utf8_lossy(content));
    match tag {
        tag::DNS => (true, text()),
        tag::EMAIL | tag::URI => (false, text()),
        tag::DIRECTORY => (
            false,
            name(Der(content).take(tag::SEQUENCE).unwrap_or_default()),
        ),
        tag::IP => {
            let v4 = <[u8; 4]>::try_from(content).map(IpAddr::from);
            let address = v4.or_else(|_| <[u8; 16]>::try_from(content).map(IpAddr::from));
            match address {
                Ok(address) => (true, address.to_string()),
                Err(_) => (false, "a broken address".to_owned()),
            }
        }
        // The lower bits of a tag are the number of the kind in RFC 5280.
        _ => (false, format!("a name of kind {}", tag & 0x1f)),
    }
}

/// Shortens a stranger's text, and escapes what is invisible.
pub(crate) fn short(text: &str) -> String {
    let cut: String = text.chars().take(NAME_CHARS_MAX).collect();
    let dots = if cut.len() < text.len() { "…" } else { "" };
    format!("{}{dots}", visible(&cut))
}

/// Writes an object identifier in numbers.
fn dotted(bytes: &[u8]) -> String {
    let mut numbers: Vec<u64> = Vec::new();
    let mut number = 0_u64;
    for byte in bytes.iter().take(IDENTIFIER_BYTES_MAX) {
        number = number.wrapping_shl(7) | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            if numbers.is_empty() {
                // The first two share a byte.
                let first = number.checked_div(40).unwrap_or_default().min(2);
                numbers.push(first);
                number = number.saturating_sub(first.saturating_mul(40));
            }
            numbers.push(number);
            number = 0;
        }
    }
    let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
    numbers.join(".")
}

/// The beginning of Unix time.
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// Writes a time as RFC 3339 does. No time of a certificate is beyond the calendar.
pub(crate) fn shown(time: UnixTime) -> String {
    let time = i64::try_from(time.as_secs()).map(SignedDuration::from_secs);
    let time = time.ok().and_then(|since| EPOCH.checked_add(since).ok());
    time.map_or_else(
        || "a time beyond all calendars".to_owned(),
        |time| format!("{time}Z"),
    )
}

/// Reads a `UTCTime` (`491231235959Z`) or a `GeneralizedTime`, whose year has four digits. A time
/// before 1970 becomes 1970.
fn time(validity: &mut Der<'_>) -> Option<UnixTime> {
    let (tag, text) = validity.next()?;
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest) = text.split_at_checked(if tag == tag::UTC_TIME { 2 } else { 4 })?;
    let year = year.parse::<i16>().ok()?;
    let year = match (tag, year) {
        (tag::UTC_TIME, 50..) => year.saturating_add(1900),
        (tag::UTC_TIME, _) => year.saturating_add(2000),
        _ => year,
    };
    let part = |at: usize| rest.get(at..)?.get(..2)?.parse::<i8>().ok();
    let (month, day) = (part(0)?, part(2)?);
    let time = DateTime::new(year, month, day, part(4)?, part(6)?, part(8)?, 0).ok()?;
    let since = Duration::try_from(time.duration_since(EPOCH));
    Some(UnixTime::since_unix_epoch(since.unwrap_or_default()))
}

/// Counts the bits of the modulus of an RSA key, which `key` reads next.
fn rsa_bits(key: &mut Der<'_>) -> Option<usize> {
    // The first byte of a bit string counts its unused bits.
    let (_unused, key) = key.take(tag::BIT_STRING)?.split_first()?;
    let modulus = Der(Der(key).take(tag::SEQUENCE)?).take(tag::INTEGER)?;
    let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
    let (first, rest) = modulus.get(zeros..)?.split_first()?;
    let first_bits = u8::BITS.saturating_sub(first.leading_zeros());
    let rest_bits = rest.len().saturating_mul(8);
    Some(rest_bits.saturating_add(usize::try_from(first_bits).ok()?))
}

/// A sequence of values in DER.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    fn next_tag(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// Takes the content of the next value, if it has this tag.
    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        if self.next_tag() != Some(tag) {
            return None;
        }
        self.next().map(|(_, content)| content)
    }

    /// Takes the next value: its tag and its content.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (tag, rest) = self.0.split_first()?;
        let (first, mut rest) = rest.split_first()?;
        let mut length = usize::from(*first);
        if length >= 0x80 {
            let count = length.saturating_sub(0x80);
            let (digits, behind) = rest.split_at_checked(count).filter(|_| count <= 4)?;
            length = digits.iter().try_fold(0_usize, |length, digit| {
                length.checked_mul(256)?.checked_add(usize::from(*digit))
            })?;
            rest = behind;
        }
        let (content, behind) = rest.split_at_checked(length)?;
        self.0 = behind;
        Some((*tag, content))
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    fn fixture(name: &str) -> Vec<u8> {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let pem = std::fs::read(root.join("fixtures/certs").join(name)).unwrap();
        CertificateDer::from_pem_slice(&pem).unwrap().to_vec()
    }

    fn facts(name: &str) -> CertificateFacts {
        CertificateFacts::read(&fixture(name)).unwrap()
    }

    #[test]
    fn certificates_of_each_kind_are_read() {
        let rows = [
            (
                "server",
                "CN=server",
                "CN=authority",
                "ECDSA with SHA-256",
                "ECDSA P-256",
            ),
            (
                "client-two",
                "O=shop,CN=client-two",
                "CN=authority",
                "ECDSA with SHA-256",
                "ECDSA P-256",
            ),
            (
                "v1",
                "CN=v1",
                "CN=authority",
                "ECDSA with SHA-256",
                "ECDSA P-256",
            ),
            (
                "sha1",
                "CN=sha1",
                "CN=authority",
                "ECDSA with SHA-1",
                "ECDSA P-256",
            ),
            (
                "p521-authority",
                "CN=p521-authority",
                "CN=p521-authority",
                "ECDSA with SHA-512",
                "ECDSA P-521",
            ),
            (
                "by-rsa-1024",
                "CN=by-rsa-1024",
                "CN=rsa-1024-authority",
                "RSA with SHA-256",
                "ECDSA P-256",
            ),
        ];
        for (name, subject, issuer, signature, key) in rows {
            let facts = facts(&format!("{name}.pem"));
            let read = (
                &*facts.subject,
                &*facts.issuer,
                &*facts.signature,
                &*facts.key,
            );
            assert_eq!(read, (subject, issuer, signature, key));
            assert_eq!(facts.rsa_bits, None);
        }
        assert_eq!(facts("rsa-1024-authority.pem").rsa_bits, Some(1024));
    }

    #[test]
    fn times_of_both_forms_are_read() {
        let times = |name| {
            let facts = facts(name);
            let (begin, end) = (facts.not_before.unwrap(), facts.not_after.unwrap());
            format!("{} {}", shown(begin), shown(end))
        };
        assert_eq!(
            times("expired.pem"),
            "2020-01-01T00:00:00Z 2021-01-01T00:00:00Z"
        );
        assert_eq!(
            times("not-yet.pem"),
            "2120-01-01T00:00:00Z 2121-01-01T00:00:00Z"
        );
        let read = |tag: u8, text: &str| {
            let length = u8::try_from(text.len()).unwrap();
            let der = [&[tag, length], text.as_bytes()].concat();
            time(&mut Der(&der)).map(shown)
        };
        for (tag, text, expected) in [
            // RFC 5280: a certificate without a well-defined end.
            (0x18, "99991231235959Z", Some("9999-12-31T23:59:59Z")),
            (0x18, "00000101000000Z", Some("1970-01-01T00:00:00Z")),
            (tag::UTC_TIME, "500101000000Z", Some("1970-01-01T00:00:00Z")),
            (tag::UTC_TIME, "491231235959Z", Some("2049-12-31T23:59:59Z")),
            (0x18, "99991331235959Z", None),
        ] {
            assert_eq!(read(tag, text).as_deref(), expected, "{text}");
        }
    }

    /// A certificate comes from a stranger: cut or changed anywhere, it is read or refused.
    #[test]
    fn a_broken_certificate_is_no_panic() {
        let whole = fixture("rsa-1024-authority.pem");
        for end in 0..whole.len() {
            assert_eq!(CertificateFacts::read(&whole[..end]), None, "cut at {end}");
        }
        for at in 0..whole.len() {
            for value in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut broken = whole.clone();
                broken[at] = value;
                drop(CertificateFacts::read(&broken));
            }
        }
    }

    #[test]
    fn a_long_or_odd_name_is_cut_and_visible() {
        let attribute = b"\x06\x03\x55\x04\x03";
        let text = format!("\x1b[2J{}", "x".repeat(100));
        let mut pair = attribute.to_vec();
        pair.extend([0x0c, u8::try_from(text.len()).unwrap()]);
        pair.extend(text.as_bytes());
        let length = u8::try_from(pair.len()).unwrap();
        let mut set = vec![tag::SET, length + 2, tag::SEQUENCE, length];
        set.extend(pair);
        let shown = name(&set);
        assert!(
            shown.starts_with("CN=\\u{1b}[2Jxxx") && shown.ends_with("x…"),
            "{shown}"
        );
    }

    #[test]
    fn alternative_names_of_each_kind_are_read() {
        let hosts = ["localhost", "api.test", "127.0.0.1", "::1"];
        assert_eq!(facts("server.pem").hosts, hosts);
        assert!(facts("no-name.pem").hosts.is_empty());
        let odd = facts("odd-names.pem");
        let hosts = ["*.shop.test", "10.0.0.1", "fe80::", "2001:db8:0:1::2:0"];
        assert_eq!(odd.hosts, hosts);
        let others = [
            "spiffe://shop.test/ns/till/sa/api",
            "jane@shop.test",
            "O=shop,CN=till",
            "a name of kind 8",
            "a name of kind 0",
        ];
        assert_eq!(odd.other_names, others);
        assert_eq!(
            alternative_name(tag::IP, &[1, 2, 3]),
            (false, "a broken address".to_owned())
        );
    }

    #[test]
    fn an_unknown_algorithm_is_told_by_its_number() {
        assert_eq!(algorithm(b"\x06\x03\x2a\x03\x04\x05\x00"), "1.2.3.4");
    }
}
