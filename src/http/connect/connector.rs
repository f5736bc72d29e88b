//! Makes connections to one server: lookup, connect and handshake, on the thread of the request,
//! within one limit. It gives up a dial that meets silence while others succeed, and dials again.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use rustix::event::PollFlags;
use ureq::config::Config as UreqConfig;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver as UreqResolver};
use ureq::unversioned::transport::{ConnectionDetails, Connector, NextTimeout};

use super::super::calls::call_context::{self, CallContext, HandshakeNotes};
use super::super::calls::interrupt::{Interrupt, Limit, attempt};
use super::super::config::ServerUrl;
use super::super::credentials::Credential;
use super::super::tls::Tls;
use super::byte_stream::ByteStream;
use super::connection::Connection;
use super::dial_pace::DialPace;
use super::dns::{Lookup, Resolver};
use super::proxy::Proxy;
use super::session::Session;
use super::tcp_connect;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, debug_of};
use crate::list_watch::RequestPhase;
use crate::sync::Arc;

/// Makes connections to one server.
pub(crate) struct ServerConnector {
    server: ServerUrl,
    tls: Option<Arc<Tls>>,
    proxy: Option<Proxy>,
    limit: Duration,
    resolver: Resolver,
    pace: DialPace,
}

impl ServerConnector {
    pub(crate) fn new(
        server: ServerUrl,
        tls: Option<Arc<Tls>>,
        proxy: Option<Proxy>,
        limit: Duration,
        lookup: Box<Lookup>,
    ) -> Self {
        Self {
            server,
            tls,
            proxy,
            limit,
            resolver: Resolver::new(lookup),
            pace: DialPace::new(),
        }
    }

    /// Checks the TLS files again, so that no idle connection of an old identity is used. Blocks
    /// within the limits of `call`.
    pub(crate) fn refresh(&self, call: &CallContext) {
        let of_proxy = self.proxy.as_ref().and_then(|proxy| proxy.tls.as_ref());
        for tls in self.tls.iter().chain(of_proxy) {
            tls.refresh(call);
        }
    }

    /// Shows the client certificate of a credential on new connections, or none.
    ///
    /// # Errors
    ///
    /// `Config`, if the certificate or its key cannot be used.
    pub(crate) fn use_identity(&self, credential: &Credential) -> Result<(), Error> {
        let (number, identity) = (credential.number, credential.identity.as_ref());
        let tls = self.tls.as_ref();
        tls.map_or(Ok(()), |tls| tls.use_identity(number, identity))
    }

    /// Adds to the error of a 401 that the client certificate is out of date.
    pub(crate) fn explain_rejection(&self, error: Error) -> Error {
        let why = self.tls.as_ref().and_then(|tls| tls.out_of_date());
        match why {
            Some(why) => error.with_hint(&why),
            None => error,
        }
    }

    /// Makes a connection, within the limits of the calling thread's context.
    fn dial(&self) -> Result<Connection, Interrupt> {
        let mut call = call_context::current(|call| {
            call.dialed = true;
            call.clone()
        })?;
        call.until = call.unless_silent(call.until.within(self.limit, Limit::Connect));
        let mut began = Clock::system().now();
        let mut patience = self.pace.patience(began);
        loop {
            let attempt = match patience {
                Some(patience) => call.within(patience, Limit::Dial),
                None => call.clone(),
            };
            let dialed = self.dial_once(&attempt);
            let now = Clock::system().now();
            let Err(Interrupt::Limit(Limit::Dial(silence))) = dialed else {
                if dialed.is_ok() {
                    self.pace.succeeded(began, now);
                }
                return dialed;
            };
            log::debug!(
                "no connection to {} within {silence:.1?}, while others are made: the client dials \
                 once more",
                self.peer()
            );
            patience = Some(self.pace.patience_after(began, silence));
            began = now;
        }
    }

    /// Makes a connection, or fails, within the limits of `call`.
    fn dial_once(&self, call: &CallContext) -> Result<Connection, Interrupt> {
        let mut stream = match &self.proxy {
            None => {
                call.enter_phase(RequestPhase::LookingUp);
                let ServerUrl { host, port, .. } = &self.server;
                self.connect(host, *port, &self.server.authority(), call)?
            }
            Some(proxy) => self
                .tunnel(proxy, call)
                .map_err(|interrupt| proxy.explain(interrupt))?,
        };
        let Some(tls) = &self.tls else {
            return Ok(Connection::new(stream, None));
        };
        let shaken = handshake(&mut stream, tls, "the server", call);
        let shaken = shaken.map_err(|interrupt| match &self.proxy {
            Some(proxy) => proxy.on_the_way(interrupt),
            None => interrupt,
        });
        let session =
            shaken.map_err(|interrupt| late(interrupt, "the TLS handshake with", &self.peer()))?;
        Ok(Connection::new(stream, Some(session)))
    }

    /// Connects to the first address of `host` that accepts. `peer` is its name in messages.
    fn connect(
        &self,
        host: &str,
        port: u16,
        peer: &str,
        call: &CallContext,
    ) -> Result<ByteStream, Interrupt> {
        let addresses = self.resolver.resolve(host, port, call);
        let addresses = addresses.map_err(|interrupt| late(interrupt, "the lookup of", peer))?;
        let socket = tcp_connect::connect(&addresses, call);
        let socket = socket.map_err(|interrupt| late(interrupt, "the connect to", peer))?;
        Ok(ByteStream::new(socket))
    }

    /// Connects to the server through the proxy.
    fn tunnel(&self, proxy: &Proxy, call: &CallContext) -> Result<ByteStream, Interrupt> {
        let url = &proxy.url;
        let peer = url.to_string();
        call.enter_phase(RequestPhase::LookingUpProxy);
        let mut stream = self.connect(&url.host, url.port, &peer, call)?;
        if let Some(tls) = &proxy.tls {
            let shaken = handshake(&mut stream, tls, "it", call);
            let session =
                shaken.map_err(|interrupt| late(interrupt, "the TLS handshake with", &peer))?;
            stream = stream.within(session);
        }
        if let Ok(address) = stream.socket().peer_addr() {
            call.enter_phase(RequestPhase::Tunnel(address));
        }
        let opened = proxy.open(&mut stream, &self.server, call);
        opened.map_err(|interrupt| late(interrupt, "the answer of", &peer))?;
        Ok(stream)
    }

    /// Names the server, and the proxy on the way to it.
    fn peer(&self) -> String {
        let server = self.server.authority();
        match &self.proxy {
            Some(proxy) => format!("{server} through the proxy {}", proxy.url),
            None => server,
        }
    }
}

/// Adds the phase to a limit. Any other interrupt stays as it is.
fn late(interrupt: Interrupt, phase: &str, peer: &str) -> Interrupt {
    let Interrupt::Limit(limit @ Limit::Connect(_)) = interrupt else {
        return interrupt;
    };
    let message = format!("{limit}: {phase} {peer} took longer");
    Interrupt::Failed(Error::new(ErrorKind::Timeout, message))
}

/// Makes a TLS session on a new stream. Blocks within the limits of `call`.
fn handshake(
    stream: &mut ByteStream,
    tls: &Arc<Tls>,
    peer: &str,
    call: &CallContext,
) -> Result<Session, Interrupt> {
    if let Ok(address) = stream.socket().peer_addr() {
        call.enter_phase(RequestPhase::Handshake(address));
    }
    call_context::current(|call| call.handshake = HandshakeNotes::default())?;
    let cut_off = |why: &str| Interrupt::Failed(tls.cut_off(why));
    let mut session = Session::new(tls)?;
    while session.connection.is_handshaking() || session.connection.wants_write() {
        call.check()?;
        let (moved, awaited) = if session.connection.wants_write() {
            let written = attempt(|| session.connection.write_tls(stream));
            (written, PollFlags::OUT)
        } else if attempt(|| stream.flush().map(|()| 1))?.is_none() {
            (Ok(None), PollFlags::OUT)
        } else {
            let read = attempt(|| session.connection.read_tls(stream));
            (read, PollFlags::IN)
        };
        match moved {
            Ok(Some(0)) => return Err(cut_off(&format!("{peer} closed the connection"))),
            Ok(Some(_)) => {}
            Ok(None) => call.wait(&*stream, awaited)?,
            Err(interrupt @ Interrupt::Io(_)) => {
                return Err(session.last_words(stream).unwrap_or_else(|| {
                    if interrupt.is_closed_by_peer() {
                        cut_off(&format!("{peer} closed the connection: {interrupt}"))
                    } else {
                        cut_off(&interrupt.to_string())
                    }
                }));
            }
            Err(interrupt) => return Err(interrupt),
        }
        if let Err(failure) = session.process() {
            // The alert for the server is sent if the socket takes it at once.
            let _alert = session.connection.write_tls(stream);
            return Err(failure);
        }
    }
    Ok(session)
}

debug_of!([] ServerConnector, |it| server: it.server, ..);

/// The connector, as ureq's trait.
#[derive(Clone, Debug)]
pub(crate) struct UreqConnector(pub(crate) Arc<ServerConnector>);

impl Connector<()> for UreqConnector {
    type Out = Connection;

    fn connect(
        &self,
        _: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Connection>, ureq::Error> {
        Ok(Some(self.0.dial()?))
    }
}

impl UreqResolver for UreqConnector {
    /// ureq looks names up before it searches its pool. The connector does so only for a new
    /// connection.
    fn resolve(
        &self,
        _: &Uri,
        _: &UreqConfig,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let mut addresses = self.empty();
        addresses.push(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0));
        Ok(addresses)
    }
}
