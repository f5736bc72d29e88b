//! A certificate authority for tests: signs right and wrong certificates of a test server and its
//! clients, without any other program.

use std::fmt;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use rustls::{RootCertStore, ServerConfig, SignatureScheme};

use super::faults::CertificateFlaw;
use crate::error::{Error, ErrorKind};
use crate::sync::Arc;

/// The key of every certificate here. It is public with this file, so it protects nothing.
const KEY: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg9sms2gYIlz7wuEXv
YDACzzA0NhdDkNeC12FJHZPI1lehRANCAARBKFDgEqMjCahe4iTQD2GowbGbeX+o
KmabZXH/sZSGcHNlkV1i0/4vDiYcu8MN7Wc4Fx5ttWJGbM+D6C3jbu2K
-----END PRIVATE KEY-----
";

/// A certificate authority for test servers and their clients.
///
/// Its key is in this crate's source: trust it only in tests. Servers get certificates for
/// `localhost` and the loopback addresses, valid from 2020 to 2099.
///
/// # Examples
///
/// ```
/// # #[cfg(all(feature = "testing", feature = "ring"))] {
/// use k8s_openapi::api::core::v1::Secret;
/// use kubecache::http::{Client, ClientOptions, Config};
/// use kubecache::object::Scope;
/// use kubecache::rustls::crypto::ring::default_provider;
/// use kubecache::testing::{Act, ApiServer, CertificateFlaw, Fault, TestAuthority};
///
/// let authority = TestAuthority::new("test-authority", default_provider().into())?;
/// let server = ApiServer::builder().tls_by(&authority)?.start()?;
/// let (certificate, key) = authority.client("jane", &["system:masters"])?;
/// let config = Config::for_server(&server.url())?
///     .with_authorities(authority.pem())
///     .with_identity(certificate, key);
/// let list = || {
///     // A new client has new connections.
///     let client = Client::new(&config, ClientOptions::default())?;
///     client.list::<Secret>(Scope::namespace("shop"))
/// };
/// let expired = server.add_fault(Fault::new(Act::Certificate(CertificateFlaw::Expired)));
/// assert!(list().unwrap_err().to_string().contains("expired"));
/// server.remove_fault(expired);
/// assert!(list()?.is_empty());
/// # }
/// # Ok::<_, kubecache::Error>(())
/// ```
#[derive(Clone)]
pub struct TestAuthority {
    name: String,
    provider: Arc<CryptoProvider>,
    key: Arc<dyn SigningKey>,
    certificate: CertificateDer<'static>,
}

impl fmt::Debug for TestAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TestAuthority").field(&self.name).finish()
    }
}

/// The content of a certificate.
struct Statement<'a> {
    issuer: &'a str,
    subject: &'a str,
    groups: &'a [&'a str],
    validity: (&'a str, &'a str),
    use_of_key: KeyUse<'a>,
}

enum KeyUse<'a> {
    Authority,
    Server { host: &'a str, is_loopback: bool },
    Client,
}

const VALID: (&str, &str) = ("20200101000000Z", "20991231235959Z");

impl TestAuthority {
    /// Makes an authority of that name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] when the provider cannot sign with ECDSA on P-256.
    pub fn new(name: &str, provider: Arc<CryptoProvider>) -> Result<Self, Error> {
        let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).map_err(unusable)?;
        let key = provider.key_provider.load_private_key(key);
        let key = key.map_err(unusable)?;
        let own = Statement {
            issuer: name,
            subject: name,
            groups: &[],
            validity: VALID,
            use_of_key: KeyUse::Authority,
        };
        Ok(Self {
            name: name.to_owned(),
            certificate: signed(&*key, &own)?,
            provider,
            key,
        })
    }

    /// Makes an authority of another name, with the same provider.
    pub(super) fn another(&self, name: &str) -> Result<Self, Error> {
        Self::new(name, Arc::clone(&self.provider))
    }

    /// Returns the authority's certificate in PEM, for those who must trust it.
    pub fn pem(&self) -> String {
        pem(&self.certificate)
    }

    /// Makes a client's certificate and key, both in PEM: `user` is the user's name, `groups` are
    /// the user's groups.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] when the provider cannot sign.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<(String, String), Error> {
        let certificate = self.sign(user, groups, VALID, KeyUse::Client)?;
        Ok((pem(&certificate), KEY.to_owned()))
    }

    fn sign(
        &self,
        subject: &str,
        groups: &[&str],
        validity: (&str, &str),
        use_of_key: KeyUse<'_>,
    ) -> Result<CertificateDer<'static>, Error> {
        let statement = Statement {
            issuer: &self.name,
            subject,
            groups,
            validity,
            use_of_key,
        };
        signed(&*self.key, &statement)
    }

    /// A server's side of TLS, which asks for client certificates of this authority. `demands` says
    /// whether it requires one.
    pub(in crate::testing) fn server(
        &self,
        flaw: Option<CertificateFlaw>,
        demands: bool,
    ) -> Result<Arc<ServerConfig>, Error> {
        let (host, is_loopback) = match flaw {
            Some(CertificateFlaw::WrongHost) => ("another-host.example", false),
            _ => ("localhost", true),
        };
        let validity = match flaw {
            Some(CertificateFlaw::Expired) => ("20200101000000Z", "20200201000000Z"),
            Some(CertificateFlaw::NotYetValid) => ("20990101000000Z", "20991231235959Z"),
            _ => VALID,
        };
        let stranger = match flaw {
            Some(CertificateFlaw::UnknownAuthority) => {
                Some(Self::new("unknown-authority", Arc::clone(&self.provider))?)
            }
            _ => None,
        };
        let signer = stranger.as_ref().unwrap_or(self);
        let use_of_key = KeyUse::Server { host, is_loopback };
        let certificate = signer.sign("test-server", &[], validity, use_of_key)?;
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).map_err(unusable)?;
        let provider = Arc::clone(&self.provider);
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let clients = if demands {
            clients
        } else {
            clients.allow_unauthenticated()
        };
        let certified = CertifiedKey::new(vec![certificate], Arc::clone(&self.key));
        let config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_client_cert_verifier(clients.build().map_err(unusable)?)
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        Ok(Arc::new(config))
    }
}

fn unusable(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    let message = format!("the test authority cannot sign with this provider: {error}");
    Error::new(ErrorKind::Config, message).with_source(error)
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(certificate);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, tail) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = tail;
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

// X.509 as RFC 5280 has it, in DER.

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OCTETS: u8 = 0x04;
const BITS: u8 = 0x03;

/// The identifiers of the parts of a certificate (OBJECT IDENTIFIER).
mod oid {
    pub(super) const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
    pub(super) const COMMON_NAME: &[u8] = &[0x55, 4, 3];
    pub(super) const ORGANIZATION: &[u8] = &[0x55, 4, 10];
    pub(super) const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
    pub(super) const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 17];
    pub(super) const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
    pub(super) const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];
    pub(super) const SERVER: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
    pub(super) const CLIENT: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];
}

fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut value = vec![tag];
    match u8::try_from(content.len()) {
        Ok(short @ ..0x80) => value.push(short),
        Ok(length) => value.extend_from_slice(&[0x81, length]),
        Err(_) => {
            let length = u16::try_from(content.len()).unwrap_or(u16::MAX);
            value.push(0x82);
            value.extend_from_slice(&length.to_be_bytes());
        }
    }
    value.extend(content);
    value
}

fn identifier(bytes: &[u8]) -> Vec<u8> {
    der(6, &[bytes])
}

fn attribute(kind: &[u8], text: &str) -> Vec<u8> {
    let pair = der(
        SEQUENCE,
        &[&identifier(kind), &der(0x0c, &[text.as_bytes()])],
    );
    der(SET, &[&pair])
}

fn name_of(common: &str, groups: &[&str]) -> Vec<u8> {
    let mut parts: Vec<_> = groups
        .iter()
        .map(|group| attribute(oid::ORGANIZATION, group))
        .collect();
    parts.push(attribute(oid::COMMON_NAME, common));
    der(SEQUENCE, &[&parts.concat()])
}

fn time(text: &str) -> Vec<u8> {
    // Until 2049 the year has two digits.
    match text.strip_prefix("20") {
        Some(short) if short < "50" => der(0x17, &[short.as_bytes()]),
        _ => der(0x18, &[text.as_bytes()]),
    }
}

fn extension(kind: &[u8], is_critical: bool, value: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if is_critical { &[1, 1, 0xff] } else { &[] };
    der(
        SEQUENCE,
        &[&identifier(kind), critical, &der(OCTETS, &[value])],
    )
}

fn extensions(use_of_key: &KeyUse<'_>) -> Vec<u8> {
    let purpose = |kind| {
        let purposes = der(SEQUENCE, &[&identifier(kind)]);
        extension(oid::EXTENDED_KEY_USAGE, false, &purposes)
    };
    let usage = |bits: &[u8]| extension(oid::KEY_USAGE, true, &der(BITS, &[bits]));
    let all = match use_of_key {
        KeyUse::Authority => {
            let is_authority = der(SEQUENCE, &[&[1, 1, 0xff]]);
            [
                extension(oid::BASIC_CONSTRAINTS, true, &is_authority),
                usage(&[2, 0b0000_0100]),
            ]
            .concat()
        }
        KeyUse::Server { host, is_loopback } => {
            let mut names = der(0x82, &[host.as_bytes()]);
            if *is_loopback {
                names.extend(der(0x87, &[&[127, 0, 0, 1]]));
                names.extend(der(0x87, &[&std::net::Ipv6Addr::LOCALHOST.octets()]));
            }
            let names = der(SEQUENCE, &[&names]);
            [
                usage(&[7, 0b1000_0000]),
                purpose(oid::SERVER),
                extension(oid::ALTERNATIVE_NAMES, false, &names),
            ]
            .concat()
        }
        KeyUse::Client => [usage(&[7, 0b1000_0000]), purpose(oid::CLIENT)].concat(),
    };
    der(0xa3, &[&der(SEQUENCE, &[&all])])
}

/// A certificate with that content, signed with the key that it also contains.
fn signed(key: &dyn SigningKey, says: &Statement<'_>) -> Result<CertificateDer<'static>, Error> {
    let scheme = SignatureScheme::ECDSA_NISTP256_SHA256;
    let (Some(signer), Some(public)) = (key.choose_scheme(&[scheme]), key.public_key()) else {
        let message = "the test authority cannot sign: the provider has no ECDSA on P-256";
        return Err(Error::new(ErrorKind::Config, message));
    };
    let algorithm = der(SEQUENCE, &[&identifier(oid::ECDSA_WITH_SHA256)]);
    // Certificates of one authority with different content have different numbers.
    let validity = [time(says.validity.0), time(says.validity.1)].concat();
    let subject = name_of(says.subject, says.groups);
    let extensions = extensions(&says.use_of_key);
    let number = [&*subject, &validity, &extensions].concat();
    let number = number.iter().fold(7_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(*byte))
    });
    let mut serial = vec![1];
    serial.extend_from_slice(&number.to_be_bytes());
    let body = der(
        SEQUENCE,
        &[
            &der(0xa0, &[&[2, 1, 2]]),
            &der(2, &[&serial]),
            &algorithm,
            &name_of(says.issuer, &[]),
            &der(SEQUENCE, &[&validity]),
            &subject,
            &public,
            &extensions,
        ],
    );
    let signature = signer.sign(&body).map_err(unusable)?;
    let signature = der(BITS, &[&[0], &signature]);
    Ok(der(SEQUENCE, &[&body, &algorithm, &signature]).into())
}
