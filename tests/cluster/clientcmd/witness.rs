//! A server that notes what it is sent, with or without TLS, and a proxy in front of it.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    DigitallySignedStruct, DistinguishedName, ServerConfig, ServerConnection, SignatureScheme,
    StreamOwned,
};

/// The first byte of a TLS handshake.
const TLS: u8 = 0x16;

/// The first byte of a SOCKS5 handshake.
const SOCKS: u8 = 5;

/// A client that says nothing for so long is given up.
const SILENCE: Duration = Duration::from_secs(10);

/// The headers that a kubeconfig has to do with.
const HEADERS: [&str; 7] = [
    "host",
    "authorization",
    "impersonate-user",
    "impersonate-uid",
    "impersonate-group",
    "impersonate-extra-",
    "proxy-authorization",
];

/// What one request showed of its sender, one fact a line.
#[derive(Clone, Debug, Eq)]
pub(crate) struct Seen(Vec<String>);

impl Seen {
    pub(crate) fn words(&self) -> &[String] {
        &self.0
    }
}

/// The server and the proxy.
pub(crate) struct Witness {
    port: u16,
    proxy_port: u16,
    notes: Arc<Notes>,
}

#[derive(Default)]
struct Notes {
    seen: Mutex<Vec<Seen>>,
    /// By the port from which the proxy connects: how it was asked.
    tunnels: Mutex<HashMap<u16, String>>,
}

impl Witness {
    pub(crate) fn start() -> Self {
        let notes = Arc::new(Notes::default());
        let tls = server_config();
        let shared = Arc::clone(&notes);
        let port = listen(move |socket| serve(socket, &tls, &shared));
        let shared = Arc::clone(&notes);
        let proxy_port = listen(move |socket| {
            drop(tunnel(socket, port, &shared));
        });
        Self {
            port,
            proxy_port,
            notes,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn proxy_port(&self) -> u16 {
        self.proxy_port
    }

    /// The requests since the last call.
    pub(crate) fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.notes.seen.lock())
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "it ends with its connection, or with the process of the tests"
)]
fn spawn(run: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    thread::spawn(run)
}

/// Accepts for as long as the process lives; each connection has a thread.
fn listen(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = Arc::new(serve);
    spawn(move || {
        while let Ok((socket, _)) = listener.accept() {
            socket.set_read_timeout(Some(SILENCE)).unwrap();
            let serve = Arc::clone(&serve);
            spawn(move || serve(socket));
        }
    });
    port
}

fn serve(socket: TcpStream, tls: &Arc<ServerConfig>, notes: &Notes) {
    let from = socket
        .peer_addr()
        .map(|peer| peer.port())
        .unwrap_or_default();
    let mut words = Vec::new();
    let mut first = [0];
    if !matches!(socket.peek(&mut first), Ok(1)) {
        return;
    }
    if first == [TLS] {
        let connection = ServerConnection::new(Arc::clone(tls)).unwrap();
        let mut stream = StreamOwned::new(connection, socket);
        let Some(head) = read_head(&mut stream) else {
            return;
        };
        words.extend(notes.tunnels.lock().remove(&from));
        let connection = &stream.conn;
        words.push(format!("name {:?}", connection.server_name()));
        let chain = connection.peer_certificates().unwrap_or_default();
        let shown = chain.first().map(|shown| known(shown));
        words.push(format!("certificate {shown:?}"));
        answer(&mut stream, &head, words, notes);
    } else {
        let mut socket = socket;
        if let Some(head) = read_head(&mut socket) {
            words.extend(notes.tunnels.lock().remove(&from));
            words.push("no TLS".to_owned());
            answer(&mut socket, &head, words, notes);
        }
    }
}

fn answer(stream: &mut (impl Read + Write), head: &str, mut words: Vec<String>, notes: &Notes) {
    let mut lines = head.lines();
    words.extend(lines.next().map(str::to_owned));
    let mut headers: Vec<_> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| format!("{}: {}", name.to_ascii_lowercase(), value.trim()))
        .filter(|line| HEADERS.iter().any(|header| line.starts_with(header)))
        .collect();
    headers.sort();
    words.extend(headers);
    notes.seen.lock().push(Seen(words));
    let body = "{\"kind\":\"Secret\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"db\",\
                \"namespace\":\"shop\",\"uid\":\"u\",\"resourceVersion\":\"1\"}}";
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    drop(stream.write_all(answer.as_bytes()));
    drop(stream.flush());
    // The client closes; a close from here could overtake the answer.
    drop(stream.read(&mut [0]));
}

/// Reads until the empty line; `None` if it does not come.
fn read_head(stream: &mut impl Read) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.extend(byte);
    }
    String::from_utf8(head).ok()
}

/// Does what a proxy is asked for, but always connects to the server of this test.
fn tunnel(mut client: TcpStream, port: u16, notes: &Notes) -> std::io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", port))?;
    let from = server.local_addr()?.port();
    let mut first = [0];
    client.peek(&mut first)?;
    let asked = if first == [SOCKS] {
        socks(&mut client)?
    } else {
        let head = read_head(&mut client).unwrap_or_default();
        let user = head
            .lines()
            .find(|line| line.to_ascii_lowercase().starts_with("proxy-authorization"));
        format!("{} {user:?}", head.lines().next().unwrap_or_default())
    };
    notes
        .tunnels
        .lock()
        .insert(from, format!("through {asked}"));
    client.write_all(if first == [SOCKS] {
        b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"
    } else {
        b"HTTP/1.1 200 OK\r\n\r\n"
    })?;
    let (mut upwards, mut to) = (client.try_clone()?, server.try_clone()?);
    let copying = spawn(move || {
        drop(std::io::copy(&mut upwards, &mut to));
        drop(to.shutdown(Shutdown::Write));
    });
    drop(std::io::copy(&mut &server, &mut client));
    drop(client.shutdown(Shutdown::Both));
    drop(server.shutdown(Shutdown::Both));
    drop(copying.join());
    Ok(())
}

/// Takes any user. Returns what was asked for.
fn socks(client: &mut TcpStream) -> std::io::Result<String> {
    let read = |count: u8| {
        let mut bytes = vec![0; usize::from(count)];
        client.try_clone()?.read_exact(&mut bytes)?;
        Ok::<_, std::io::Error>(bytes)
    };
    let count = read(2)?[1];
    let methods = read(count)?;
    let mut asked = String::from("socks");
    if methods.contains(&2) {
        client.write_all(&[5, 2])?;
        let mut read = |count: u8| {
            let mut bytes = vec![0; usize::from(count)];
            client.read_exact(&mut bytes)?;
            Ok::<_, std::io::Error>(bytes)
        };
        let length = read(2)?[1];
        let user = String::from_utf8_lossy(&read(length)?).into_owned();
        let length = read(1)?[0];
        let password = String::from_utf8_lossy(&read(length)?).into_owned();
        asked = format!("socks of {user}:{password}");
        client.write_all(&[1, 0])?;
    } else {
        client.write_all(&[5, 0])?;
    }
    let mut read = |count: u8| {
        let mut bytes = vec![0; usize::from(count)];
        client.read_exact(&mut bytes)?;
        Ok::<_, std::io::Error>(bytes)
    };
    let kind = read(4)?[3];
    let length = match kind {
        1 => 4,
        4 => 16,
        _ => read(1)?[0],
    };
    let address = read(length)?;
    let port = read(2)?;
    Ok(format!("{asked} to {kind} {address:?} {port:?}"))
}

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(super::fixture(name)).unwrap()
}

/// The fixture that a client certificate is.
fn known(shown: &CertificateDer<'_>) -> &'static str {
    ["client-one.pem", "client-two.pem", "client-v1.pem"]
        .into_iter()
        .find(|name| CertificateDer::from_pem_slice(&fixture(name)).unwrap() == *shown)
        .unwrap_or("another")
}

fn server_config() -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::from_pem_slice(&fixture("server.key")).unwrap();
    let key = provider.key_provider.load_private_key(key).unwrap();
    let certificate = CertificateDer::from_pem_slice(&fixture("server.pem")).unwrap();
    let certified = CertifiedKey::new(vec![certificate], key);
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(Arc::new(Anybody))
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    Arc::new(config)
}

/// Takes any client certificate, and none.
#[derive(Debug)]
struct Anybody;

impl ClientCertVerifier for Anybody {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
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
        rustls::crypto::ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
