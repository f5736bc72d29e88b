//! TLS as it is configured: authorities, names, client certificates and their rotation.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use kubecache::ErrorKind;
use kubecache::http::{Config, KubeconfigOptions};
use kubecache::worker::StopToken;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use rustls::{
    DigitallySignedStruct, DistinguishedName, ServerConfig, ServerConnection, SignatureScheme,
    StreamOwned, SupportedProtocolVersion,
};

use super::server::{Peer, Server};
use super::{bookmark, client_of, get, list, next_bookmark, open, secret, secret_list, secrets};
use crate::support::hung_mount::HungMount;
use crate::support::small_disk::alone_with_mounts;
use crate::support::{TempDirectory, alone_with, until};

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/certs")
        .join(name)
}

pub(crate) fn pem(name: &str) -> Vec<u8> {
    fs::read(fixture(name)).unwrap()
}

pub(crate) fn der(name: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(&pem(name)).unwrap()
}

/// Takes any client certificate but those that it refuses, and none, and remembers it: what an API
/// server does before it authenticates.
#[derive(Debug)]
struct Anybody {
    mandatory: bool,
    refused: Vec<CertificateDer<'static>>,
}

impl ClientCertVerifier for Anybody {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        if self.refused.iter().any(|refused| refused == shown) {
            return Err(rustls::CertificateError::Expired.into());
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

/// The TLS side of a server that shows the chain `certificate` and has the key of `key`.
pub(crate) fn config(certificate: &str, key: &str, mandatory: bool) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::from_pem_slice(&pem(key)).unwrap();
    let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
    config_of(certificate, key, mandatory, rustls::DEFAULT_VERSIONS)
}

pub(crate) fn config_of(
    certificate: &str,
    key: Arc<dyn SigningKey>,
    mandatory: bool,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ServerConfig> {
    let provider = rustls::crypto::ring::default_provider();
    config_by(provider, certificate, key, mandatory, versions)
}

/// The same, of a server with this provider.
pub(crate) fn config_by(
    provider: CryptoProvider,
    certificate: &str,
    key: Arc<dyn SigningKey>,
    mandatory: bool,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ServerConfig> {
    let refused = Vec::new();
    let verifier = Anybody { mandatory, refused };
    config_with(provider, certificate, key, verifier, versions)
}

/// The same, which takes these client certificates for expired.
pub(crate) fn refusing(
    refused: &[&str],
    version: &'static SupportedProtocolVersion,
) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::from_pem_slice(&pem("server.key")).unwrap();
    let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
    let refused = refused.iter().map(|name| der(name)).collect();
    let verifier = Anybody {
        mandatory: true,
        refused,
    };
    let provider = rustls::crypto::ring::default_provider();
    config_with(provider, "server.pem", key, verifier, &[version])
}

/// Refuses the certificate of the next client, and waits until that is gone.
pub(crate) fn refuse(server: &Server, config: &Arc<ServerConfig>) {
    let mut socket = server.accept_socket();
    let mut connection = ServerConnection::new(Arc::clone(config)).unwrap();
    connection.complete_io(&mut socket).unwrap_err();
    // What the client has sent is read, so that the end of the connection loses no alert.
    drop(std::io::copy(&mut socket, &mut std::io::sink()));
}

fn config_with(
    provider: CryptoProvider,
    certificate: &str,
    key: Arc<dyn SigningKey>,
    verifier: Anybody,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ServerConfig> {
    let chain = CertificateDer::pem_file_iter(fixture(certificate)).unwrap();
    let certified = CertifiedKey::new(chain.map(Result::unwrap).collect(), key);
    let config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .unwrap()
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    Arc::new(config)
}

pub(crate) fn of_all_names() -> Arc<ServerConfig> {
    config("server.pem", "server.key", false)
}

pub(crate) type TlsPeer = Peer<StreamOwned<ServerConnection, TcpStream>>;

pub(crate) fn accept(server: &Server, config: &Arc<ServerConfig>) -> TlsPeer {
    let socket = server.accept_socket();
    let connection = ServerConnection::new(Arc::clone(config)).unwrap();
    Peer::new(StreamOwned::new(connection, socket))
}

/// Shakes hands on `socket`, from which `read` was read already.
pub(crate) fn accept_after(socket: TcpStream, mut read: &[u8]) -> TlsPeer {
    let mut connection = ServerConnection::new(of_all_names()).unwrap();
    while !read.is_empty() {
        connection.read_tls(&mut read).unwrap();
    }
    connection.process_new_packets().unwrap();
    Peer::new(StreamOwned::new(connection, socket))
}

/// Lets a client try whatever it wants of a server whose handshake may fail.
pub(crate) fn accept_and_fail(server: &Server, config: &Arc<ServerConfig>) {
    let mut socket = server.accept_socket();
    let mut connection = ServerConnection::new(Arc::clone(config)).unwrap();
    while connection.is_handshaking() && connection.complete_io(&mut socket).is_ok() {}
    while connection
        .complete_io(&mut socket)
        .is_ok_and(|(read, _)| read > 0)
    {}
}

/// Answers one get, and says which certificate the client showed.
fn serve_get(server: &Server, config: &Arc<ServerConfig>) -> Option<CertificateDer<'static>> {
    let mut peer = accept(server, config);
    peer.request();
    let shown = peer.stream().conn.peer_certificates();
    let shown = shown.map(|chain| chain[0].clone().into_owned());
    peer.json(200, &secret("db", "1"));
    shown
}

pub(crate) fn trusting(server: &Server) -> Config {
    Config::for_server(&server.tls_url())
        .unwrap()
        .with_authorities(pem("authority.pem"))
}

/// What a get says that the server's certificate or the client's stands in the way of.
fn failure(server: &Server, tls: &Arc<ServerConfig>, config: &Config) -> String {
    let client = client_of(config);
    thread::scope(|scope| {
        let getting = scope.spawn(|| get(&client, "db").map(drop).unwrap_err());
        accept_and_fail(server, tls);
        let error = getting.join().unwrap();
        assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
        error.to_string()
    })
}

fn success(
    server: &Server,
    tls: &Arc<ServerConfig>,
    config: &Config,
) -> Option<CertificateDer<'static>> {
    let client = client_of(config);
    thread::scope(|scope| {
        let getting = scope.spawn(|| get(&client, "db").map(drop));
        let shown = serve_get(server, tls);
        getting.join().unwrap().unwrap();
        shown
    })
}

#[test]
fn a_list_and_watches_share_one_handshake() {
    let server = Server::start();
    let client = client_of(&trusting(&server));
    thread::scope(|scope| {
        let calls = scope.spawn(|| {
            let source = secrets(&client);
            list(&*source, &StopToken::never()).unwrap();
            for _ in 0..2 {
                let mut watch = open(&*source);
                next_bookmark(&mut *watch);
                watch.next(kubecache::clock::Deadline::NEVER).unwrap();
            }
        });
        let mut peer = accept(&server, &of_all_names());
        peer.request();
        peer.json(200, &secret_list("5", &[secret("db", "1")]));
        for _ in 0..2 {
            peer.request();
            peer.begin();
            // A line in two TLS records.
            let line = bookmark("6");
            peer.chunk(&line[..20]);
            peer.chunk(&line[20..]);
            peer.end();
        }
        calls.join().unwrap();
        assert!(!server.has_visitors());
    });
}

#[test]
fn an_address_in_the_certificate_is_enough() {
    let server = Server::start();
    assert_eq!(success(&server, &of_all_names(), &trusting(&server)), None);
}

/// The fixtures themselves are a directory of certificates, keys and a script.
#[test]
fn the_environment_names_a_directory_of_authorities() {
    let directory = fixture("");
    alone_with(&[("SSL_CERT_DIR", directory.as_os_str())], || {
        let server = Server::start();
        let config = Config::for_server(&server.tls_url()).unwrap();
        success(&server, &of_all_names(), &config);
        let error = failure(&server, &self::config("v1.pem", "v1.key", false), &config);
        assert!(error.contains("version 1"), "{error}");
    });
}

#[test]
fn tls_server_name_takes_the_place_of_the_address() {
    let server = Server::start();
    let tls = config("name-only.pem", "name-only.key", false);
    success(
        &server,
        &tls,
        &trusting(&server).with_tls_server_name("api.test"),
    );
    let other = trusting(&server).with_tls_server_name("other.test");
    let error = failure(&server, &tls, &other);
    assert!(error.contains("not for \"other.test\""), "{error}");
}

#[test]
fn insecure_takes_any_certificate_but_not_from_somebody_without_its_key() {
    let server = Server::start();
    let insecure = Config::for_server(&server.tls_url())
        .unwrap()
        .with_insecure_skip_tls_verify();
    for name in ["name-only", "expired"] {
        let tls = config(&format!("{name}.pem"), &format!("{name}.key"), false);
        success(&server, &tls, &insecure);
    }
    let thief = config("server.pem", "name-only.key", false);
    let error = failure(&server, &thief, &insecure);
    assert!(
        error.contains("BadSignature") || error.contains("bad signature"),
        "{error}"
    );
}

#[test]
fn a_client_certificate_is_shown_with_keys_of_both_forms() {
    let server = Server::start();
    let tls = config("server.pem", "server.key", true);
    for name in ["client-one", "client-two", "client-v1"] {
        let (certificate, key) = (format!("{name}.pem"), format!("{name}.key"));
        let config = trusting(&server).with_identity(pem(&certificate), pem(&key));
        assert_eq!(success(&server, &tls, &config), Some(der(&certificate)));
    }
}

/// A configuration of `ca.crt`, `tls.crt` and `tls.key` in `directory`; writes the first of them.
fn of_files(server: &Server, directory: &Path) -> Config {
    fs::write(directory.join("ca.crt"), pem("authority.pem")).unwrap();
    let kubeconfig = directory.join("config");
    fs::write(
        &kubeconfig,
        format!(
            "clusters: [{{name: c, cluster: {{server: '{}', certificate-authority: ca.crt}}}}]\n\
             users: [{{name: u, user: {{client-certificate: tls.crt, client-key: tls.key}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n",
            server.tls_url()
        ),
    )
    .unwrap();
    let options = KubeconfigOptions::default().path(kubeconfig);
    Config::from_kubeconfig(&options).unwrap()
}

/// F21: a file on a network whose server is gone: the configuration at hand goes on being used.
#[test]
fn a_file_system_that_hangs_stops_no_request() {
    alone_with_mounts(|| {
        let Some(mount) = HungMount::new() else {
            return;
        };
        stops_no_request(mount);
        until(|| kubecache::worker::live_workers() == 0);
    });
}

fn stops_no_request(mount: HungMount) {
    let server = Server::start();
    let tls = config("server.pem", "server.key", true);
    let directory = TempDirectory::new("tls-hang");
    for (name, content) in [("tls.crt", "client-one.pem"), ("tls.key", "client-one.key")] {
        fs::write(directory.join(name), pem(content)).unwrap();
    }
    let client = client_of(&of_files(&server, &directory));
    let path = directory.join("ca.crt");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(mount.file(), &path).unwrap();
    for _ in 0..3 {
        thread::scope(|scope| {
            let getting = scope.spawn(|| get(&client, "db").map(drop));
            assert_eq!(serve_get(&server, &tls), Some(der("client-one.pem")));
            getting.join().unwrap().unwrap();
        });
    }
    drop(client);
    // The read ends, and the thread with it.
    drop(mount);
}

/// A new connection shows the new certificate; the old connection, though still open, is not used
/// any more.
#[test]
fn rotated_files_are_used_for_the_next_request() {
    let server = Server::start();
    let tls = config("server.pem", "server.key", true);
    let directory = TempDirectory::new("rotation");
    let show = |name: &str| {
        fs::write(directory.join("tls.crt"), pem(&format!("{name}.pem"))).unwrap();
        fs::write(directory.join("tls.key"), pem(&format!("{name}.key"))).unwrap();
    };
    show("client-one");
    let client = client_of(&of_files(&server, &directory));
    // A request waits for the files for a moment, and then shows the last ones.
    let get_once = |expected: &str| {
        until(|| {
            thread::scope(|scope| {
                let getting = scope.spawn(|| get(&client, "db").map(drop));
                let shown = serve_get(&server, &tls);
                getting.join().unwrap().unwrap();
                shown == Some(der(expected))
            })
        });
    };
    get_once("client-one.pem");
    show("client-two");
    get_once("client-two.pem");
    // Half of a rotation (the key is still the old one) changes nothing.
    fs::write(directory.join("tls.crt"), pem("client-one.pem")).unwrap();
    get_once("client-two.pem");
    // The authority rotates too.
    fs::write(directory.join("ca.crt"), pem("other-authority.pem")).unwrap();
    show("client-one");
    thread::scope(|scope| {
        let getting = scope.spawn(|| get(&client, "db").map(drop).unwrap_err());
        accept_and_fail(&server, &tls);
        let error = getting.join().unwrap();
        assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    });
    fs::write(directory.join("ca.crt"), pem("authority.pem")).unwrap();
    get_once("client-one.pem");
}

/// What cannot work is told before any connection, with the field it stands in.
#[test]
fn unusable_material_is_refused_with_its_field() {
    let config = || Config::for_server("https://127.0.0.1:1").unwrap();
    let trusting = || config().with_authorities(pem("authority.pem"));
    let rows: [(Config, &str); 8] = [
        (
            config().with_authorities("no pem at all"),
            "certificate authorities: no usable certificate: it holds no CERTIFICATE block",
        ),
        (
            trusting().with_identity(pem("client-v1.pem"), pem("client-one.key")),
            "client certificate and client key do not belong together",
        ),
        (
            trusting().with_identity(pem("client-one.pem"), pem("client-two.key")),
            "client certificate and client key do not belong together",
        ),
        (
            trusting().with_identity(pem("client-p521.pem"), pem("client-p521.key")),
            "client key: the key cannot be used",
        ),
        (
            trusting().with_identity(pem("client-one.key"), pem("client-one.key")),
            "client certificate: it holds no CERTIFICATE block",
        ),
        (
            trusting().with_identity(pem("client-one.pem"), pem("client-one.pem")),
            "client key: ",
        ),
        (
            trusting().with_identity(pem("client-one.pem"), "-----BEGIN PRIVATE KEY-----\n!!\n"),
            "client key: ",
        ),
        (
            trusting().with_tls_server_name("not a name"),
            "\"not a name\" is no name a certificate can carry",
        ),
    ];
    for (config, text) in rows {
        let made = kubecache::http::Client::new(&config, kubecache::http::ClientOptions::default());
        let error = made.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
}

/// A bundle is as good as its good blocks, and a warning names the others.
#[test]
fn a_broken_block_spoils_no_bundle() {
    let text = |name: &str| String::from_utf8(pem(name)).unwrap();
    let (good, key) = (text("authority.pem"), text("server.key"));
    let block =
        |body: &str| format!("-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n");
    let cut = good.lines().take(4).collect::<Vec<_>>().join("\n");
    let broken = [
        (cut.clone(), "its block 1: a block has no END line"),
        (block("!!!!\n"), "its block 1: a block is no base64"),
        (block("MDAwMDAwMDA=\n"), "its block 1: "),
        (
            "-----BEGIN CERTIFICATE\nAAAA\n".to_owned(),
            "its block 1: a BEGIN line",
        ),
    ];
    let server = Server::start();
    let tls = config("server.pem", "server.key", false);
    for (broken, why) in &broken {
        for bundle in [
            format!("{broken}\n{good}"),
            format!("{good}{broken}"),
            format!("{key}{broken}\n{good}{broken}"),
            // Cut in the middle of a line, without a line break before the next block.
            format!("{}{good}", broken.trim_end()),
        ] {
            let trusting = Config::for_server(&server.tls_url()).unwrap();
            let client = client_of(&trusting.with_authorities(bundle));
            thread::scope(|scope| {
                let getting = scope.spawn(|| get(&client, "db").map(drop));
                serve_get(&server, &tls);
                getting.join().unwrap().unwrap();
            });
        }
        let alone = Config::for_server("https://127.0.0.1:1").unwrap();
        let alone = alone.with_authorities(broken.clone());
        let made = kubecache::http::Client::new(&alone, kubecache::http::ClientOptions::default());
        let error = made.map(drop).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

/// The label of a key in PEM does not decide its kind, as in Go.
#[test]
fn a_key_is_taken_under_each_label() {
    let key = String::from_utf8(pem("client-one.key")).unwrap();
    let begin = key.find("-----BEGIN ").unwrap() + "-----BEGIN ".len();
    let label = &key[begin..begin + key[begin..].find("-----").unwrap()];
    for other in ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"] {
        let config = Config::for_server("https://127.0.0.1:1").unwrap();
        let config = config
            .with_authorities(pem("authority.pem"))
            .with_identity(pem("client-one.pem"), key.replace(label, other));
        drop(client_of(&config));
    }
}
