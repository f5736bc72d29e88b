//! What is said of each way in which TLS fails, and that the manual shows the same text.

use std::fs;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use kubecache::ErrorKind;
use kubecache::http::{Config, KubeconfigOptions};
use rustls::crypto::{ActiveKeyExchange, CryptoProvider, SupportedKxGroup};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{Signer, SigningKey};
use rustls::{
    CipherSuite, CipherSuiteCommon, NamedGroup, RootCertStore, ServerConfig, ServerConnection,
    SignatureAlgorithm, SignatureScheme, SupportedCipherSuite, SupportedProtocolVersion,
    Tls12CipherSuite,
};

use super::server::Server;
use super::tls::{
    accept, accept_and_fail, config, config_by, config_of, der, fixture, pem, refusing,
};
use super::{client_of, get};
use crate::support::TempDirectory;

/// The kubeconfig of a test, beside its authorities.
struct Stage {
    server: Server,
    directory: TempDirectory,
    scheme: &'static str,
    cluster: String,
    user: String,
}

impl Stage {
    /// Trusts the authorities of this fixture.
    fn trusting(authorities: &str) -> Self {
        let server = Server::start();
        let directory = TempDirectory::new("tls-doctor");
        fs::write(directory.join("ca.crt"), pem(authorities)).unwrap();
        Self {
            server,
            directory,
            scheme: "https",
            cluster: "certificate-authority: ca.crt".to_owned(),
            user: String::new(),
        }
    }

    fn cluster(mut self, fields: &str) -> Self {
        fields.clone_into(&mut self.cluster);
        self
    }

    fn showing(mut self, name: &str) -> Self {
        let (certificate, key) = (
            fixture(&format!("{name}.pem")),
            fixture(&format!("{name}.key")),
        );
        let copied = self.directory.join("tls.crt");
        fs::copy(certificate, copied).unwrap();
        self.user = format!("client-certificate: tls.crt, client-key: {}", key.display());
        self
    }

    fn config(&self) -> Config {
        let Self {
            server,
            directory,
            scheme,
            cluster,
            user,
        } = self;
        let port = server.port();
        let path = directory.join("config");
        let text = format!(
            "clusters: [{{name: c, cluster: {{server: '{scheme}://127.0.0.1:{port}', \
             {cluster}}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n"
        );
        fs::write(&path, text).unwrap();
        Config::from_kubeconfig(&KubeconfigOptions::default().path(path)).unwrap()
    }

    /// What a get says while `serve` plays the server, without what differs from run to run.
    fn told(&self, kind: ErrorKind, serve: impl FnOnce(&Server)) -> String {
        let client = client_of(&self.config());
        thread::scope(|scope| {
            let getting = scope.spawn(|| get(&client, "db").map(drop).unwrap_err());
            serve(&self.server);
            let error = getting.join().unwrap();
            assert_eq!(error.kind(), kind, "{error}");
            let (Self { scheme, .. }, port) = (self, self.server.port());
            let what =
                format!("GET {scheme}://127.0.0.1:{port}/api/v1/namespaces/shop/secrets/db: ");
            let text = error.to_string();
            let text = match text.split_once("Unauthorized: ") {
                Some((_, what_helps)) => what_helps,
                None => text.strip_prefix(&what).unwrap_or_else(|| panic!("{text}")),
            };
            text.replace(&self.directory.display().to_string(), "/home/jane")
        })
    }

    fn told_of(&self, server: &Arc<ServerConfig>) -> String {
        self.told(ErrorKind::Tls, |listener| accept_and_fail(listener, server))
    }

    /// What is said of a server with this certificate.
    fn told_of_certificate(&self, name: &str) -> String {
        self.told_of(&of(name))
    }
}

fn of(name: &str) -> Arc<ServerConfig> {
    config(&format!("{name}.pem"), &format!("{name}.key"), false)
}

fn ours() -> Stage {
    Stage::trusting("authority.pem")
}

/// The text is the one that the manual shows for this failure.
#[track_caller]
fn golden(failure: &str, told: &str) {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/manual/tls.md");
    let manual = fs::read_to_string(manual).unwrap();
    let words: Vec<_> = manual.split_whitespace().collect();
    let manual = words.join(" ");
    let (_, entry) = manual
        .split_once(&format!("- **{failure}** - Says: `"))
        .unwrap_or_else(|| panic!("the manual has no {failure:?}: {told}"));
    let (expected, _) = entry.split_once('`').unwrap();
    assert_eq!(told, expected);
}

#[test]
fn an_unknown_issuer() {
    let told = Stage::trusting("other-authority.pem").told_of_certificate("server");
    golden("an unknown issuer", &told);
}

#[test]
fn the_servers_own_certificate_as_authority() {
    let told = Stage::trusting("server.pem").told_of_certificate("server");
    golden("the server's own certificate as authority", &told);
}

#[test]
fn an_authority_of_the_same_name_and_another_key() {
    let told = Stage::trusting("authority-before.pem").told_of_certificate("server");
    golden("an authority of that name with another key", &told);
}

#[test]
fn an_authoritys_certificate_as_the_servers() {
    let told = Stage::trusting("self-signed.pem").told_of_certificate("self-signed");
    golden("an authority's certificate as the server's", &told);
}

#[test]
fn a_leaf_that_issues() {
    let told = ours().told_of_certificate("by-leaf");
    golden("issued by what is no authority", &told);
}

#[test]
fn another_name() {
    let told = ours().told_of_certificate("name-only");
    golden("another name", &told);
    let stage = ours().cluster("certificate-authority: ca.crt, tls-server-name: other.test");
    let told = stage.told_of_certificate("server");
    golden("another name than tls-server-name", &told);
}

#[test]
fn names_of_all_kinds() {
    let stage = Stage::trusting("names-authority.pem");
    let told = stage.told_of_certificate("odd-names");
    golden("another name, among names of other kinds", &told);
    let told = stage.told_of_certificate("no-host");
    golden("no name of a host", &told);
}

#[test]
fn no_name() {
    let told = ours().told_of_certificate("no-name");
    golden("no name at all", &told);
}

/// Replaces the time of this run, and the number of days that it decides.
fn at_any_time(told: &str) -> String {
    let (before, rest) = told.split_once("this machine (").unwrap();
    let (now, behind) = rest.split_once(')').unwrap();
    let now: k8s_openapi::jiff::Timestamp = now.parse().unwrap();
    assert!(now.as_second() > 1_790_000_000, "{now}");
    let (before, unit) = before.split_once(" days").unwrap();
    let number = before.rsplit(' ').next().unwrap();
    assert!(number.parse::<u64>().unwrap() > 1_000, "{number}");
    let before = before.strip_suffix(number).unwrap();
    format!("{before}N days{unit}this machine (NOW){behind}")
}

#[test]
fn an_expired_certificate() {
    golden(
        "an expired certificate",
        &at_any_time(&ours().told_of_certificate("expired")),
    );
}

#[test]
fn a_certificate_of_the_future() {
    golden(
        "a certificate that is not valid yet",
        &at_any_time(&ours().told_of_certificate("not-yet")),
    );
}

#[test]
fn version_1() {
    golden(
        "a certificate of version 1",
        &ours().told_of_certificate("v1"),
    );
    let insecure = ours().cluster("insecure-skip-tls-verify: true");
    golden(
        "a certificate of version 1",
        &insecure.told_of_certificate("v1"),
    );
}

#[test]
fn sha_1() {
    golden(
        "a signature with SHA-1",
        &ours().told_of_certificate("sha1"),
    );
}

#[test]
fn an_authority_on_p521() {
    let told = Stage::trusting("p521-authority.pem").told_of_certificate("by-p521");
    golden("an authority's key on P-521", &told);
}

/// The key of a server that rustls cannot load with ring.
#[derive(Debug)]
struct KeyOnP521;

impl SigningKey for KeyOnP521 {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        assert!(!offered.contains(&SignatureScheme::ECDSA_NISTP521_SHA512));
        None
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }
}

#[test]
fn a_server_key_on_p521() {
    let key = Arc::new(KeyOnP521);
    let server = config_of("client-p521.pem", key, false, rustls::DEFAULT_VERSIONS);
    golden("a server's key on P-521", &ours().told_of(&server));
}

/// A suite of ring's under the number of one that ring has not.
fn suite(number: CipherSuite) -> SupportedCipherSuite {
    let ours = match rustls::crypto::ring::cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 {
        SupportedCipherSuite::Tls12(ours) => ours,
        SupportedCipherSuite::Tls13(_) => unreachable!(),
    };
    SupportedCipherSuite::Tls12(Box::leak(Box::new(Tls12CipherSuite {
        common: CipherSuiteCommon {
            suite: number,
            hash_provider: ours.common.hash_provider,
            confidentiality_limit: ours.common.confidentiality_limit,
        },
        prf_provider: ours.prf_provider,
        kx: ours.kx,
        sign: ours.sign,
        aead_alg: ours.aead_alg,
    })))
}

/// The curve P-521, which ring has not.
#[derive(Debug)]
struct CurveP521;

impl SupportedKxGroup for CurveP521 {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, rustls::Error> {
        panic!("the client offers P-521");
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::secp521r1
    }
}

/// What is said of a server with this provider, by each version of TLS that it has a suite of.
fn told_of_provider(
    provider: CryptoProvider,
    version: &'static SupportedProtocolVersion,
) -> String {
    let key = PrivateKeyDer::from_pem_slice(&pem("server.key")).unwrap();
    let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
    ours().told_of(&config_by(provider, "server.pem", key, false, &[version]))
}

#[test]
fn no_cipher_suite_in_common() {
    for number in [
        CipherSuite::TLS_RSA_WITH_AES_128_GCM_SHA256,
        CipherSuite::TLS_DHE_RSA_WITH_AES_128_GCM_SHA256,
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384,
    ] {
        let provider = CryptoProvider {
            cipher_suites: vec![suite(number)],
            ..rustls::crypto::ring::default_provider()
        };
        golden(
            "no cipher suite or curve in common",
            &told_of_provider(provider, &rustls::version::TLS12),
        );
    }
}

#[test]
fn no_curve_in_common() {
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let provider = CryptoProvider {
            kx_groups: vec![&CurveP521],
            ..rustls::crypto::ring::default_provider()
        };
        golden(
            "no cipher suite or curve in common",
            &told_of_provider(provider, version),
        );
    }
}

#[test]
fn an_authority_with_a_short_rsa_key() {
    let told = Stage::trusting("rsa-1024-authority.pem").told_of_certificate("by-rsa-1024");
    golden("a short RSA key", &told);
}

#[test]
fn a_key_of_another_certificate() {
    golden(
        "a certificate without its key",
        &ours().told_of(&config("server.pem", "name-only.key", false)),
    );
}

#[test]
fn a_certificate_for_clients() {
    golden(
        "a certificate for clients",
        &ours().told_of_certificate("client-one"),
    );
}

#[test]
fn a_long_chain() {
    golden("a long chain", &ours().told_of_certificate("long-chain"));
}

#[test]
fn a_chain_longer_than_its_authority_allows() {
    golden(
        "a chain longer than an authority allows",
        &ours().told_of_certificate("narrow-chain"),
    );
}

/// Reads the client's hello, and answers it.
fn answer_hello(server: &Server, answer: &[u8]) {
    let mut socket = server.accept_socket();
    read_some(&mut socket);
    socket.write_all(answer).unwrap();
    // Closed with the client's last words unread, the answer would be lost.
    drain(&mut socket);
}

fn read_some(mut socket: impl Read) {
    assert!(socket.read(&mut [0; 4096]).unwrap() > 0);
}

fn drain(socket: &mut TcpStream) {
    while socket.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {}
}

#[test]
fn tls_1_1_alone() {
    let protocol_version = [0x15, 3, 2, 0, 2, 2, 70];
    let by_alert = ours().told(ErrorKind::Tls, |server| {
        answer_hello(server, &protocol_version);
    });
    let mut hello = vec![0x16, 3, 2, 0, 42, 2, 0, 0, 38, 3, 2];
    hello.extend([7; 32]);
    hello.extend([0, 0xc0, 0x13, 0]);
    let by_hello = ours().told(ErrorKind::Tls, |server| answer_hello(server, &hello));
    assert_eq!(by_alert, by_hello);
    golden("TLS 1.1 alone", &by_alert);
}

#[test]
fn a_server_that_asks_for_a_client_certificate() {
    let told = ours().told_of(&config("server.pem", "server.key", true));
    golden("a client certificate is missing", &told);
    let key = PrivateKeyDer::from_pem_slice(&pem("server.key")).unwrap();
    let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
    let server = config_of("server.pem", key, true, &[&rustls::version::TLS12]);
    let told = ours().told_of(&server);
    golden("a client certificate is missing", &told);
}

#[test]
fn a_client_certificate_of_another_authority() {
    let server = verifying("other-authority.pem");
    let told = ours().showing("client-one").told_of(&server);
    let (told, end) = told.split_once(", valid until ").unwrap();
    let (_, rest) = end.split_once(')').unwrap();
    golden(
        "a client certificate is refused",
        &format!("{told}, valid until END){rest}"),
    );
}

/// A server that takes the client certificates of this authority.
fn verifying(authority: &str) -> Arc<ServerConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(der(authority)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider));
    let key = PrivateKeyDer::from_pem_slice(&pem("server.key")).unwrap();
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![der("server.pem")], key)
        .unwrap();
    Arc::new(server)
}

/// The server's clock or ours decides, and our own certificate tells us which.
#[test]
fn a_client_certificate_that_is_out_of_date() {
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for (name, failure) in [
            ("expired", "a client certificate has expired"),
            ("not-yet", "a client certificate is not valid yet"),
        ] {
            let server = refusing(&[&format!("{name}.pem")], version);
            let told = ours().showing(name).told_of(&server);
            golden(failure, &at_any_time(&told));
        }
        let told = ours().showing("client-one");
        let told = told.told_of(&refusing(&["client-one.pem"], version));
        let (told, end) = told.split_once(", valid until ").unwrap();
        let (_, rest) = end.split_once(')').unwrap();
        golden(
            "a client certificate has expired by another clock",
            &format!("{told}, valid until END){rest}"),
        );
    }
    // An alert that blames something else, as servers of other makes send.
    let server = verifying("other-authority.pem");
    let told = ours().showing("expired").told_of(&server);
    assert!(
        told.contains(" expired at 2021-01-01T00:00:00Z, "),
        "{told}"
    );
}

/// An API server takes any certificate in the handshake, and answers 401.
#[test]
fn a_401_to_a_client_certificate_that_is_out_of_date() {
    let told = ours()
        .showing("expired")
        .told(ErrorKind::Unauthorized, |server| {
            let mut peer = accept(server, &of("server"));
            peer.request();
            peer.json(
                401,
                "{\"kind\":\"Status\",\"code\":401,\"message\":\"Unauthorized\"}",
            );
        });
    golden(
        "a 401 to a client certificate that has expired",
        &at_any_time(&told),
    );
}

#[test]
fn a_401_to_a_client_that_sends_no_credentials_in_the_clear() {
    for user in ["token: canary", "username: a, password: canary"] {
        let mut stage = ours();
        stage.scheme = "http";
        stage.cluster = "disable-compression: true".to_owned();
        stage.user = user.to_owned();
        let told = stage.told(ErrorKind::Unauthorized, |server| {
            let mut peer = server.accept();
            assert_eq!(peer.request().header("Authorization"), None);
            peer.json(
                401,
                "{\"kind\":\"Status\",\"code\":401,\"message\":\"Unauthorized\"}",
            );
        });
        golden("a 401 over plain HTTP", &told);
    }
}

#[test]
fn plain_http_on_the_port() {
    let told = ours().told(ErrorKind::Tls, |server| {
        answer_hello(server, b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    golden("plain HTTP where TLS is expected", &told);
}

#[test]
fn tls_on_the_port_of_a_plain_url() {
    let mut stage = ours();
    stage.scheme = "http";
    let told = stage.told(ErrorKind::Tls, |listener| {
        let mut socket = listener.accept_socket();
        let mut connection = ServerConnection::new(of("server")).unwrap();
        while connection
            .complete_io(&mut socket)
            .is_ok_and(|(read, _)| read > 0)
        {}
        while connection.wants_write() {
            connection.write_tls(&mut socket).unwrap();
        }
        drain(&mut socket);
    });
    golden("TLS where plain HTTP is expected", &told);
}

#[test]
fn broken_off_in_the_handshake() {
    let ended = ours().told(ErrorKind::Unreachable, |server| {
        read_some(&mut server.accept_socket());
    });
    golden("broken off in the handshake", &ended);
    let reset = ours().told(ErrorKind::Unreachable, |server| {
        let peer = server.accept();
        read_some(peer.stream());
        peer.reset();
    });
    golden("reset in the handshake", &reset);
}

#[test]
fn an_unknown_name() {
    let stage = ours().cluster("certificate-authority: ca.crt, tls-server-name: other.test");
    let unrecognised_name = [0x15, 3, 3, 0, 2, 2, 112];
    let told = stage.told(ErrorKind::Tls, |server| {
        answer_hello(server, &unrecognised_name);
    });
    golden("a name that the server does not know", &told);
}
