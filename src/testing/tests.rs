//! A small HTTP client for the tests of this room, which reads answers piece by piece.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::clock::{Clock, Deadline};

/// Far enough away for the slowest machine; a test that gets there fails.
pub(super) fn soon() -> Deadline {
    Clock::system().after(Duration::from_secs(5 * 60))
}

/// One connection.
pub(super) struct Client(BufReader<TcpStream>);

impl Client {
    pub(super) fn of(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(5 * 60)))
            .unwrap();
        Self(BufReader::new(socket))
    }

    pub(super) fn ask(&mut self, target: &str) -> Head {
        self.try_ask(target).unwrap()
    }

    pub(super) fn try_ask(&mut self, target: &str) -> io::Result<Head> {
        self.write("GET", target);
        self.head()
    }

    pub(super) fn send(&mut self, method: &str, target: &str) -> Head {
        self.write(method, target);
        self.head().unwrap()
    }

    pub(super) fn write(&mut self, method: &str, target: &str) {
        let request = format!(
            "{method} {target} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer canary\r\n\r\n"
        );
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
    }

    pub(super) fn head(&mut self) -> io::Result<Head> {
        let mut head = Head::default();
        loop {
            let line = self.line()?;
            match line.split_once(": ") {
                Some((name, value)) => head.headers.push((name.to_owned(), value.to_owned())),
                None if line.is_empty() => return Ok(head),
                None => head.status = line.split(' ').nth(1).unwrap().parse().unwrap(),
            }
        }
    }

    /// Reads the next byte, if one comes before the end; an error is a reset.
    pub(super) fn try_read(&mut self) -> io::Result<usize> {
        self.0.read(&mut [0])
    }

    pub(super) fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    pub(super) fn exactly(&mut self, length: usize) -> io::Result<String> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes)?;
        Ok(String::from_utf8(bytes).unwrap())
    }

    /// The next chunk; empty at the end of the body.
    pub(super) fn chunk(&mut self) -> io::Result<String> {
        let length = usize::from_str_radix(&self.line()?, 16).unwrap();
        let chunk = self.exactly(length)?;
        assert_eq!(self.line()?, "");
        Ok(chunk)
    }

    pub(super) fn body(&mut self) -> io::Result<String> {
        let mut body = String::new();
        loop {
            let chunk = self.chunk()?;
            if chunk.is_empty() {
                return Ok(body);
            }
            body.push_str(&chunk);
        }
    }

    /// Sends an unrecorded request, and returns the message of the answer.
    pub(super) fn unmatched(&mut self) -> String {
        let head = self.ask("/api/v1/namespaces/shop/configmaps");
        assert_eq!(head.status, 404);
        let body = self
            .exactly(head.get("content-length").unwrap().parse().unwrap())
            .unwrap();
        let status: serde_json::Value = serde_json::from_str(&body).unwrap();
        status["message"].as_str().unwrap().to_owned()
    }

    pub(super) fn is_closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(0) | Err(_))
    }
}

#[derive(Default)]
pub(super) struct Head {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
}

impl Head {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }
}
