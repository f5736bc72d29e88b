//! Connects to the server through a proxy: by CONNECT, or by the handshake of SOCKS5.

use std::io::{Read, Write};
use std::net::IpAddr;
use std::time::Duration;

use rustix::event::PollFlags;
use zeroize::Zeroizing;

use super::super::calls::call_context::CallContext;
use super::super::calls::errors;
use super::super::calls::interrupt::{Interrupt, Limit, attempt};
use super::super::certificates::pem::Pem;
use super::super::config::{
    Config, ProxyChoice, ProxyScheme, ProxyUrl, ProxyUser, ServerUrl, system_authorities,
};
use super::super::environment::Environment;
use super::super::tls::Tls;
use super::byte_stream::ByteStream;
use crate::error::{Error, ErrorKind};
use crate::sync::Arc;

/// The longest head of an answer to CONNECT.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The most fields of such a head, as ureq takes them from a server.
const HEAD_FIELDS_MAX: usize = 128;

/// How much of the text of a refusal is read.
const REFUSAL_BYTES_MAX: usize = 4 * 1024;

/// How long the client waits for the text of a refusal. Its status says most.
const REFUSAL_WAIT: Duration = Duration::from_secs(1);

/// The proxy's answer is read and written in small pieces.
const PIECE_BYTES: usize = 512;

/// SOCKS5, RFC 1928 and RFC 1929.
mod socks {
    pub(super) const VERSION: u8 = 5;
    pub(super) const NO_USER: u8 = 0;
    pub(super) const USER: u8 = 2;
    pub(super) const USER_VERSION: u8 = 1;
    pub(super) const CONNECT: u8 = 1;
    pub(super) const IPV4: u8 = 1;
    pub(super) const NAME: u8 = 3;
    pub(super) const IPV6: u8 = 4;

    /// The codes of a refusal, from 1 on, as RFC 1928 words them.
    pub(super) const REFUSALS: [&str; 8] = [
        "general SOCKS server failure",
        "connection not allowed by ruleset",
        "network unreachable",
        "host unreachable",
        "connection refused",
        "TTL expired",
        "command not supported",
        "address type not supported",
    ];
}

/// The proxy on the way to the server.
pub(crate) struct Proxy {
    pub(super) url: ProxyUrl,
    pub(super) tls: Option<Arc<Tls>>,
}

impl Proxy {
    /// Makes the proxy that `config` names, else the one of the environment. Blocks for reads of
    /// local files.
    ///
    /// # Errors
    ///
    /// `Config`, if the proxy cannot be used.
    pub(crate) fn new(config: &Config, environment: &Environment) -> Result<Option<Self>, Error> {
        let url = match &config.proxy {
            ProxyChoice::Direct => None,
            ProxyChoice::Url(url) => Some(url.clone()),
            ProxyChoice::Environment => environment.proxy(&config.server)?.map(|(url, name)| {
                log::debug!(
                    "{} is reached through the proxy {url} ({name})",
                    config.server
                );
                url
            }),
        };
        let Some(url) = url else {
            return Ok(None);
        };
        let tls = match url.scheme {
            ProxyScheme::Http | ProxyScheme::Socks5 => None,
            ProxyScheme::Https => Some(Arc::new(tls_of_proxy(config, &url)?)),
        };
        Ok(Some(Self { url, tls }))
    }

    /// Connects to `server` through the proxy. Blocks within the limits of `call`.
    ///
    /// # Errors
    ///
    /// The proxy's refusal in its own words, or the end of the connection with it.
    pub(crate) fn open(
        &self,
        stream: &mut ByteStream,
        server: &ServerUrl,
        call: &CallContext,
    ) -> Result<(), Interrupt> {
        let mut dialog = Dialog { stream, call };
        match self.url.scheme {
            ProxyScheme::Http | ProxyScheme::Https => self.connect(&mut dialog, server),
            ProxyScheme::Socks5 => self.socks(&mut dialog, server),
        }
    }

    /// Adds the proxy to an error, and removes its user and password.
    pub(crate) fn explain(&self, interrupt: Interrupt) -> Interrupt {
        let error = match interrupt {
            Interrupt::Failed(error) => error,
            Interrupt::Io(error) => {
                Error::new(ErrorKind::Unreachable, error.to_string()).with_source(error)
            }
            other @ (Interrupt::Stopped
            | Interrupt::Limit(_)
            | Interrupt::WouldBlock
            | Interrupt::Protocol(_)) => return other,
        };
        let error = error.context(&format!("the proxy {}", self.url));
        Interrupt::Failed(match &self.url.user {
            Some(user) => error.map_texts(&|text| user.authorization.redact(text)),
            None => error,
        })
    }

    /// Adds the proxy to an error of the handshake behind it: the proxy itself may have answered.
    pub(crate) fn on_the_way(&self, interrupt: Interrupt) -> Interrupt {
        if let Interrupt::Failed(error) = interrupt {
            let hint = format!("on the way is {}: does it open tunnels?", self.url);
            Interrupt::Failed(error.with_hint(&hint))
        } else {
            interrupt
        }
    }

    fn connect(&self, dialog: &mut Dialog<'_>, server: &ServerUrl) -> Result<(), Interrupt> {
        let authority = server.authority();
        let user = self.url.user.as_deref();
        let authorization = user.map(|user| user.authorization.as_str());
        let fields = [
            "CONNECT ",
            &authority,
            " HTTP/1.1\r\nHost: ",
            &authority,
            "\r\nUser-Agent: kubecache/",
            env!("CARGO_PKG_VERSION"),
            authorization.map_or("", |_| "\r\nProxy-Authorization: "),
            authorization.unwrap_or_default(),
            "\r\n\r\n",
        ];
        dialog.send(Zeroizing::new(fields.concat()).as_bytes())?;
        let mut answer = dialog.read_answer(user)?;
        if answer.code / 100 != 2 {
            dialog.read_refusal(&mut answer)?;
            return Err(refused(&format!("CONNECT {authority}"), &answer, user));
        }
        if answer.text.is_empty() {
            Ok(())
        } else {
            Err(broken("it sent bytes that the server cannot have sent yet"))
        }
    }

    fn socks(&self, dialog: &mut Dialog<'_>, server: &ServerUrl) -> Result<(), Interrupt> {
        let user = self.url.user.as_ref();
        let methods: &[u8] = match user {
            Some(_) => &[socks::VERSION, 2, socks::NO_USER, socks::USER],
            None => &[socks::VERSION, 1, socks::NO_USER],
        };
        dialog.send(methods)?;
        let [version] = dialog.receive()?;
        if version != socks::VERSION {
            return Err(foreign("it does not speak SOCKS5", &[version], None));
        }
        let [method] = dialog.receive()?;
        match (method, user) {
            (socks::NO_USER, _) => {}
            (socks::USER, Some(user)) => {
                let mut request = Zeroizing::new(vec![socks::USER_VERSION]);
                for text in [&user.name, &user.password] {
                    request.push(length(text)?);
                    request.extend_from_slice(text.as_bytes());
                }
                dialog.send(&request)?;
                let [_, accepted] = dialog.receive()?;
                if accepted != 0 {
                    return Err(unreachable("it does not accept the user and the password"));
                }
            }
            (_, Some(_)) => return Err(unreachable("it takes no user and password")),
            (_, None) => {
                return Err(unreachable(
                    "it asks for credentials: its URL needs user and password",
                ));
            }
        }
        dialog.send(&socks_request(server)?)?;
        let [version, code, _, kind] = dialog.receive()?;
        if version != socks::VERSION {
            return Err(broken("it does not speak SOCKS5"));
        }
        if code != 0 {
            let index = usize::from(code).saturating_sub(1);
            let words = socks::REFUSALS.get(index).copied();
            let words = words.unwrap_or("no reason known");
            return Err(unreachable(&format!(
                "refused to connect to {}: {words} (SOCKS5 code {code})",
                server.authority()
            )));
        }
        // The address and the port that the proxy itself uses, which the client does not need.
        let address_length = match kind {
            socks::IPV4 => 4,
            socks::IPV6 => 16,
            socks::NAME => {
                let [length] = dialog.receive()?;
                length
            }
            _ => return Err(broken("its answer has an address of an unknown kind")),
        };
        for _ in 0..address_length {
            let [_] = dialog.receive()?;
        }
        let [_, _] = dialog.receive()?;
        Ok(())
    }
}

/// Makes the TLS configuration for a proxy. The client trusts the authorities of the system, or
/// those of the server, and shows no client certificate. Blocks for reads of local files.
fn tls_of_proxy(config: &Config, url: &ProxyUrl) -> Result<Tls, Error> {
    let mut own = config.clone();
    own.server = ServerUrl {
        https: true,
        host: url.host.clone(),
        port: url.port,
        path: String::new(),
    };
    own.tls.identity = None;
    own.tls.server_name = None;
    own.tls.insecure_skip_verify = false;
    own.tls.of_proxy = true;
    if let Some(of_server) = &config.tls.authorities {
        let mut both = of_server.loaded()?.bytes.to_vec();
        // A system without a bundle leaves those of the server.
        let of_system = system_authorities(&config.environment);
        if let Ok(of_system) = of_system.and_then(|pem| pem.loaded()) {
            both.push(b'\n');
            both.extend_from_slice(&of_system.bytes);
        }
        let origin = format!("authorities for the proxy {url}");
        own.tls.authorities = Some(Pem::inline(both, origin));
    }
    Tls::new(&own).map_err(|error| error.context(&format!("the proxy {url}")))
}

/// Asks SOCKS5 to connect to the server. A name is looked up by the proxy.
fn socks_request(server: &ServerUrl) -> Result<Vec<u8>, Interrupt> {
    let mut request = vec![socks::VERSION, socks::CONNECT, 0];
    match server.name().parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => {
            request.push(socks::IPV4);
            request.extend(address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            request.push(socks::IPV6);
            request.extend(address.octets());
        }
        Err(_) => {
            request.extend([socks::NAME, length(server.name())?]);
            request.extend_from_slice(server.name().as_bytes());
        }
    }
    request.extend(server.port.to_be_bytes());
    Ok(request)
}

fn length(text: &str) -> Result<u8, Interrupt> {
    u8::try_from(text.len())
        .map_err(|_too_long| unreachable("SOCKS5 carries no name of more than 255 bytes"))
}

/// Makes the error of an answer to CONNECT that is no success.
fn refused(what: &str, answer: &ProxyAnswer, user: Option<&ProxyUser>) -> Interrupt {
    let ProxyAnswer { code, .. } = answer;
    let reason = errors::printable(&redacted(answer.reason.as_bytes(), user));
    let words = errors::first_words(redacted(&answer.text, user).as_bytes());
    let hint = match (code, user) {
        (407, None) => ": its URL needs user and password",
        (407, Some(_)) => ": it does not accept the user and the password of its URL",
        _ => "",
    };
    let colon = if words.is_empty() { "" } else { ": " };
    unreachable(&format!(
        "answered {what} with {code} {reason}{colon}{words}{hint}"
    ))
}

fn unreachable(why: &str) -> Interrupt {
    Interrupt::Failed(Error::new(ErrorKind::Unreachable, why))
}

/// Returns a part of the proxy's words without the user and the password. It comes before any cut:
/// even half of a password must not show.
fn redacted(words: &[u8], user: Option<&ProxyUser>) -> String {
    let words = String::from_utf8_lossy(words);
    user.map_or_else(
        || words.to_string(),
        |user| user.authorization.redact_part(&words),
    )
}

/// Makes the error of a peer that speaks another protocol, which its first bytes show.
fn foreign(why: &str, bytes: &[u8], user: Option<&ProxyUser>) -> Interrupt {
    let hint = match bytes {
        // Of an alert, and of a handshake.
        [0x15 | 0x16, ..] => "it speaks TLS: its URL has to begin with https://".to_owned(),
        // In the place of the version of SOCKS.
        [b'H'] => "perhaps it speaks HTTP: its URL has to begin with http://".to_owned(),
        [socks::VERSION, ..] => "it speaks SOCKS: its URL has to begin with socks5://".to_owned(),
        _ => {
            let words = errors::first_words(redacted(bytes, user).as_bytes());
            format!("is it a proxy? It says: {words}")
        }
    };
    broken(&format!("{why}: {hint}"))
}

fn broken(why: &str) -> Interrupt {
    Interrupt::Failed(Error::new(ErrorKind::Protocol, why))
}

/// The answer of a proxy to CONNECT.
struct ProxyAnswer {
    code: u16,
    reason: String,
    /// The length of its text, if it says so.
    length: Option<usize>,
    /// The part of the text that has come.
    text: Vec<u8>,
}

/// The exchange with a proxy before the first byte of the server.
struct Dialog<'a> {
    stream: &'a mut ByteStream,
    call: &'a CallContext,
}

impl Dialog<'_> {
    fn send(&mut self, mut bytes: &[u8]) -> Result<(), Interrupt> {
        while !bytes.is_empty() {
            match attempt(|| self.stream.write(bytes))? {
                Some(count) => bytes = bytes.get(count..).unwrap_or_default(),
                None => self.call.wait(&*self.stream, PollFlags::OUT)?,
            }
        }
        while attempt(|| self.stream.flush().map(|()| 1))?.is_none() {
            self.call.wait(&*self.stream, PollFlags::OUT)?;
        }
        Ok(())
    }

    /// Reads the available bytes. Waits for the first one; 0 is the end.
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Interrupt> {
        loop {
            // This never waits if the proxy always has bytes to read.
            self.call.check()?;
            match attempt(|| self.stream.read(into)) {
                Ok(Some(count)) => return Ok(count),
                Ok(None) => self.call.wait(&*self.stream, PollFlags::IN)?,
                Err(interrupt) if interrupt.is_closed_by_peer() => return Ok(0),
                Err(interrupt) => return Err(interrupt),
            }
        }
    }

    /// Reads exactly `N` bytes.
    fn receive<const N: usize>(&mut self) -> Result<[u8; N], Interrupt> {
        let mut bytes = [0; N];
        let mut filled = 0_usize;
        while let Some(room) = bytes.get_mut(filled..).filter(|room| !room.is_empty()) {
            match self.read(room)? {
                0 => {
                    return Err(unreachable(
                        "closed the connection in the handshake of SOCKS5",
                    ));
                }
                count => filled = filled.saturating_add(count),
            }
        }
        Ok(bytes)
    }

    /// Reads the head of an answer to CONNECT, with the bytes that came after it.
    fn read_answer(&mut self, user: Option<&ProxyUser>) -> Result<ProxyAnswer, Interrupt> {
        let mut bytes = Vec::new();
        let mut piece = [0; PIECE_BYTES];
        loop {
            let count = self.read(&mut piece)?;
            if count == 0 {
                let after = bytes.len();
                return Err(unreachable(&format!(
                    "closed the connection after {after} bytes of its answer to CONNECT"
                )));
            }
            bytes.extend_from_slice(piece.get(..count).unwrap_or_default());
            if let Some(answer) = answer_in(&mut bytes, user)? {
                return Ok(answer);
            }
        }
    }

    /// Reads on in the text of a refusal, as far as it comes.
    ///
    /// # Errors
    ///
    /// The stop. Any other end of the text leaves it as it is.
    fn read_refusal(&mut self, answer: &mut ProxyAnswer) -> Result<(), Interrupt> {
        let expected = answer.length.unwrap_or(REFUSAL_BYTES_MAX);
        let expected = expected.min(REFUSAL_BYTES_MAX);
        let text = &mut answer.text;
        let call = self.call.within(REFUSAL_WAIT, Limit::Idle);
        let mut rest = Dialog {
            stream: &mut *self.stream,
            call: &call,
        };
        let mut piece = [0; PIECE_BYTES];
        while text.len() < expected {
            match rest.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => text.extend_from_slice(piece.get(..count).unwrap_or_default()),
                Err(Interrupt::Stopped) => return Err(Interrupt::Stopped),
                Err(_) => break,
            }
        }
        Ok(())
    }
}

/// The answer to CONNECT in the bytes that came so far, once its head is whole.
fn answer_in(
    bytes: &mut Vec<u8>,
    user: Option<&ProxyUser>,
) -> Result<Option<ProxyAnswer>, Interrupt> {
    let mut fields = [httparse::EMPTY_HEADER; HEAD_FIELDS_MAX];
    let mut head = httparse::Response::new(&mut fields);
    match head.parse(bytes) {
        Ok(httparse::Status::Complete(end)) => Ok(Some(ProxyAnswer {
            code: head.code.unwrap_or_default(),
            reason: head.reason.unwrap_or_default().to_owned(),
            length: content_length(head.headers),
            text: bytes.split_off(end),
        })),
        Ok(httparse::Status::Partial) if bytes.len() <= HEAD_BYTES_MAX => Ok(None),
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            let message = format!("its answer to CONNECT is larger than {HEAD_BYTES_MAX} bytes");
            Err(Interrupt::Failed(Error::new(ErrorKind::TooLarge, message)))
        }
        Err(_) => Err(foreign("its answer to CONNECT is no HTTP", bytes, user)),
    }
}

/// The code and the rest of an answer to CONNECT, for the fuzzer; `None` while it is not whole.
#[cfg(feature = "testing")]
pub(crate) fn proxy_answer(mut bytes: Vec<u8>) -> Result<Option<(u16, Vec<u8>)>, ()> {
    let answer = answer_in(&mut bytes, None).map_err(drop)?;
    Ok(answer.map(|answer| (answer.code, answer.text)))
}

fn content_length(fields: &[httparse::Header<'_>]) -> Option<usize> {
    let mut fields = fields.iter();
    let length = fields.find(|field| field.name.eq_ignore_ascii_case("content-length"))?;
    std::str::from_utf8(length.value).ok()?.trim().parse().ok()
}
