//! The two servers of the comparison, and one request to either of them.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use kubecache::clock::Clock;
use kubecache::testing::ApiServer;

use super::answers::{Memory, RawAnswer};
use super::rows::Row;
use crate::cluster::support::{PATIENCE, directory, tls_to_the_server};

/// A server that is asked.
pub(super) struct ServerUnderTest {
    address: String,
    tls: Option<Arc<ClientConfig>>,
}

impl ServerUnderTest {
    pub(super) fn real() -> Self {
        let url = std::env::var("KUBECACHE_CLUSTER_SERVER").expect("run tests/cluster/run");
        Self {
            address: url.strip_prefix("https://").unwrap().to_owned(),
            tls: Some(tls_to_the_server()),
        }
    }

    pub(super) fn model(server: &ApiServer) -> Self {
        Self {
            address: server.address().to_string(),
            tls: None,
        }
    }

    /// Sends a row with what earlier answers of this server said, and reads the whole answer.
    pub(super) fn ask(&self, row: &Row, memory: &Memory) -> RawAnswer {
        let mut answer = self.ask_once(row, memory);
        // Some of the real server's work is done behind the answer, such as that of a CRD.
        let (clock, deadline) = (Clock::system(), Clock::system().after(PATIENCE));
        while row.until.is_some_and(|text| !answer.body.contains(text)) {
            assert!(!clock.has_passed(deadline), "{}: {}", row.name, answer.body);
            answer = self.ask_once(row, memory);
        }
        answer
    }

    fn ask_once(&self, row: &Row, memory: &Memory) -> RawAnswer {
        let (path, body) = (memory.fill_in(row.path), memory.fill_in(row.body));
        let authorization = match row.user {
            "" => String::new(),
            "wrong" => "authorization: Bearer wrong\r\n".to_owned(),
            user => {
                let path = directory().join(format!("certs/{user}.token"));
                let token = std::fs::read_to_string(path).unwrap();
                format!("authorization: Bearer {}\r\n", token.trim())
            }
        };
        let head = format!(
            "{} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{authorization}{}\
             content-length: {}\r\n\r\n{body}",
            row.method,
            self.address,
            row.headers(),
            body.len(),
        );
        let socket = TcpStream::connect(&self.address).unwrap();
        socket
            .set_read_timeout(Some(PATIENCE.max(Duration::from_secs(1))))
            .unwrap();
        let text = match &self.tls {
            None => exchange(socket, &head),
            Some(config) => {
                let name = ServerName::try_from("127.0.0.1").unwrap();
                let connection = ClientConnection::new(Arc::clone(config), name).unwrap();
                exchange(StreamOwned::new(connection, socket), &head)
            }
        };
        RawAnswer::parse(&text.unwrap())
    }
}

fn exchange(mut stream: impl Read + Write, head: &str) -> io::Result<Vec<u8>> {
    stream.write_all(head.as_bytes())?;
    let mut text = Vec::new();
    match stream.read_to_end(&mut text) {
        // The real server ends connections without a goodbye.
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(text),
    }
}
