//! Makes connections to one server: lookup, connect and handshake, on the thread of the request,
//! within one limit.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::event::PollFlags;
use rustls::ClientConnection;
use ureq::config::Config as UreqConfig;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver as UreqResolver};
use ureq::unversioned::transport::{ConnectionDetails, Connector, NextTimeout};

use super::super::config::ServerUrl;
use super::super::credentials::Credential;
use super::call_context::{self, CallContext};
use super::connection::{Connection, Session, attempt};
use super::dns::{Lookup, Resolver};
use super::interrupt::{Interrupt, Limit};
use super::tcp_connect;
use super::tls::Tls;
use crate::error::{Error, ErrorKind};
use crate::list_watch::RequestPhase;
use crate::sync::Arc;

/// Makes connections to one server.
pub(crate) struct ServerConnector {
    server: ServerUrl,
    tls: Option<Arc<Tls>>,
    limit: Duration,
    resolver: Resolver,
}

impl ServerConnector {
    pub(crate) fn new(
        server: ServerUrl,
        tls: Option<Arc<Tls>>,
        limit: Duration,
        lookup: Box<Lookup>,
    ) -> Self {
        Self {
            server,
            tls,
            limit,
            resolver: Resolver::new(lookup),
        }
    }

    /// Checks the TLS files again, so that no idle connection of an old identity is used. Blocks
    /// within the limits of `call`.
    pub(crate) fn refresh(&self, call: &CallContext) {
        if let Some(tls) = &self.tls {
            tls.refresh(call);
        }
    }

    /// Shows the client certificate of a credential on new connections, if it has one.
    ///
    /// # Errors
    ///
    /// `Config`, if the certificate or its key cannot be used.
    pub(crate) fn use_identity(&self, credential: &Credential) -> Result<(), Error> {
        match (&self.tls, &credential.identity) {
            (Some(tls), Some(identity)) => tls.use_identity(credential.number, identity),
            _ => Ok(()),
        }
    }

    /// Makes a connection, within the limits of the calling thread's context.
    fn dial(&self) -> Result<Connection, Interrupt> {
        let mut call = call_context::current(|call| {
            call.dialed = true;
            Ok(call.clone())
        })?;
        call.until = call.unless_silent(call.until.within(self.limit, Limit::Connect));
        let ServerUrl { host, port, .. } = &self.server;
        call.enter_phase(RequestPhase::LookingUp);
        let resolved = self.resolver.resolve(host, *port, &call);
        let addresses = resolved.map_err(|interrupt| self.late(interrupt, "the lookup of"))?;
        let socket = tcp_connect::connect(&addresses, &call)
            .map_err(|interrupt| self.late(interrupt, "the connect to"))?;
        match &self.tls {
            None => Ok(Connection::new(socket, None)),
            Some(tls) => {
                if let Ok(address) = socket.peer_addr() {
                    call.enter_phase(RequestPhase::Handshake(address));
                }
                handshake(socket, tls, &call)
                    .map_err(|interrupt| self.late(interrupt, "the TLS handshake with"))
            }
        }
    }

    /// Adds the phase to a limit. Any other interrupt stays as it is.
    fn late(&self, interrupt: Interrupt, phase: &str) -> Interrupt {
        let Interrupt::Limit(limit @ Limit::Connect(_)) = interrupt else {
            return interrupt;
        };
        let message = format!("{limit}: {phase} {} took longer", self.server.authority());
        Interrupt::Failed(Error::new(ErrorKind::Timeout, message))
    }
}

/// Makes a TLS connection on a new socket. Blocks within the limits of `call`.
fn handshake(
    socket: TcpStream,
    tls: &Arc<Tls>,
    call: &CallContext,
) -> Result<Connection, Interrupt> {
    let config = tls.current();
    let explain = |error| Interrupt::Failed(tls.explain(error));
    let mut connection =
        ClientConnection::new(Arc::clone(&config), tls.server_name()).map_err(explain)?;
    // A request is small, apart from its bearer token, and is written whole.
    connection.set_buffer_limit(None);
    while connection.is_handshaking() || connection.wants_write() {
        call.check()?;
        let moved = if connection.wants_write() {
            attempt(|| connection.write_tls(&mut &socket))
        } else {
            attempt(|| connection.read_tls(&mut &socket))
        };
        match moved {
            Ok(Some(0)) => return Err(cut_off("the server closed the connection")),
            Ok(Some(_)) => {}
            Ok(None) if connection.wants_write() => call.wait(&socket, PollFlags::OUT)?,
            Ok(None) => call.wait(&socket, PollFlags::IN)?,
            Err(error) => return Err(cut_off(&error.to_string())),
        }
        if let Err(error) = connection.process_new_packets() {
            // The alert for the server is sent if the socket takes it at once.
            let _alert = connection.write_tls(&mut &socket);
            return Err(explain(error));
        }
    }
    let session = Session::new(Box::new(connection), Arc::clone(tls), config);
    Ok(Connection::new(socket, Some(session)))
}

fn cut_off(why: &str) -> Interrupt {
    let message = format!("the TLS handshake was cut off: {why}");
    Interrupt::Failed(Error::new(ErrorKind::Unreachable, message))
}

impl fmt::Debug for ServerConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConnector")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

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
