//! A test server for its owner: it listens, logs requests, and takes faults at run time.

use std::time::Duration;

use super::faults::{Fault, FaultBoard, FaultId};
use super::port::Port;
use super::received::{Answered, Received, RequestLog};
use super::service::Service;
use super::tls::ServerTls;
use super::{Backend, RequestMessage};
use crate::clock::{Clock, IntoDeadline};
use crate::error::{Error, ErrorKind};
use crate::sync::{
    Arc, Monitor, Mutex,
    atomic::{AtomicU64, Ordering},
};

/// The options of every test server before it starts.
#[derive(Debug, Clone)]
pub(in crate::testing) struct ServerOptions {
    pub(in crate::testing) clock: Clock,
    /// 0: a free one.
    pub(in crate::testing) port: u16,
    pub(in crate::testing) tls: Option<ServerTls>,
    pub(in crate::testing) faults: Vec<Fault>,
    /// The maximum time for a whole handshake, or a request once it has begun, before the
    /// connection ends.
    pub(in crate::testing) request_wait: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            port: 0,
            tls: None,
            faults: Vec::new(),
            request_wait: Duration::from_secs(60),
        }
    }
}

/// A backend that listens on a loopback port. Dropping it ends and joins every thread of it.
#[derive(Debug)]
pub(in crate::testing) struct HttpServer<S> {
    /// None while the server is crashed.
    service: Mutex<Option<Service>>,
    /// Reserved even while the server is crashed.
    _port: Port,
    address: std::net::SocketAddr,
    name: &'static str,
    core: Arc<ServerCore<S>>,
}

/// The state that the connections share.
#[derive(Debug)]
pub(super) struct ServerCore<S> {
    pub(super) backend: S,
    pub(super) clock: Clock,
    pub(super) tls: Mutex<Option<ServerTls>>,
    pub(super) faults: FaultBoard,
    pub(super) connections: AtomicU64,
    pub(super) request_wait: Duration,
    log: Arc<Monitor<RequestLog>>,
}

impl<S: Backend> HttpServer<S> {
    /// Starts the server. `name` names its threads.
    ///
    /// # Errors
    ///
    /// `Resources` when the system refuses a socket, port or thread.
    pub(in crate::testing) fn start(
        name: &'static str,
        backend: S,
        options: ServerOptions,
    ) -> Result<Self, Error> {
        let core = Arc::new(ServerCore {
            backend,
            clock: options.clock,
            tls: Mutex::new(options.tls),
            faults: FaultBoard::new(options.faults),
            connections: AtomicU64::new(0),
            request_wait: options.request_wait,
            log: Arc::default(),
        });
        let port = Port::keep(options.port).map_err(not_started(name))?;
        let service = listen(name, port.number(), &core)?;
        Ok(Self {
            address: service.address(),
            service: Mutex::new(Some(service)),
            _port: port,
            name,
            core,
        })
    }

    /// Closes the port and resets every connection, like a killed process. Returns when all threads
    /// have ended.
    pub(in crate::testing) fn crash(&self) {
        let service = self.service.lock().take();
        if let Some(service) = service {
            service.crash();
        }
    }

    /// Listens again on the same port. Does nothing if the server already listens.
    pub(in crate::testing) fn come_back(&self) -> Result<(), Error> {
        let mut service = self.service.lock();
        if service.is_none() {
            *service = Some(listen(self.name, self.address.port(), &self.core)?);
        }
        Ok(())
    }

    /// Shows other certificates from now on.
    pub(in crate::testing) fn rotate_tls(&self, tls: ServerTls) {
        *self.core.tls.lock() = Some(tls);
    }

    /// The certificates for its clients to trust, in PEM; `None` without TLS.
    pub(in crate::testing) fn certificates(&self) -> Option<Vec<u8>> {
        let tls = self.core.tls.lock();
        tls.as_ref().map(|tls| tls.certificates().to_vec())
    }

    /// Shows certificates of another authority, with that name, from now on.
    pub(in crate::testing) fn rotate_authority(&self, name: &str) -> Result<(), Error> {
        let authority = self
            .core
            .tls
            .lock()
            .as_ref()
            .and_then(ServerTls::authority)
            .cloned();
        let authority = authority.ok_or_else(|| {
            let message = "rotating TLS: the server does not speak it by a test authority";
            Error::new(ErrorKind::Config, message)
        })?;
        self.rotate_tls(ServerTls::of_authority(&authority.another(name)?)?);
        Ok(())
    }

    pub(in crate::testing) fn address(&self) -> std::net::SocketAddr {
        self.address
    }

    pub(in crate::testing) fn url(&self) -> String {
        let is_tls = self.core.tls.lock().is_some();
        let scheme = if is_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.address())
    }

    pub(in crate::testing) fn backend(&self) -> &S {
        &self.core.backend
    }

    /// Dead once no thread has any part of the server.
    #[cfg(test)]
    pub(in crate::testing) fn life(&self) -> std::sync::Weak<impl Sized + use<S>> {
        Arc::downgrade(&self.core)
    }

    pub(in crate::testing) fn requests(&self) -> Vec<Received> {
        self.core.log.lock().remembered().to_vec()
    }

    pub(in crate::testing) fn connections(&self) -> u64 {
        self.core.connections.load(Ordering::SeqCst)
    }

    pub(in crate::testing) fn log(&self) -> &Arc<Monitor<RequestLog>> {
        &self.core.log
    }

    /// Waits until `enough` accepts the requests so far. Returns whether it did by `deadline`.
    pub(in crate::testing) fn wait_for_requests(
        &self,
        deadline: impl IntoDeadline,
        enough: impl Fn(&[Received]) -> bool,
    ) -> bool {
        let deadline = deadline.into_deadline(&self.core.clock);
        let clock = &self.core.clock;
        let mut received = self.core.log.lock();
        loop {
            if enough(received.remembered()) {
                return true;
            }
            if clock.has_passed(deadline) {
                return false;
            }
            received = clock.wait_until(&self.core.log, received, deadline);
        }
    }

    pub(in crate::testing) fn faults(&self) -> &FaultBoard {
        &self.core.faults
    }

    pub(in crate::testing) fn add_fault(&self, fault: Fault) -> FaultId {
        self.core.faults.add(fault)
    }

    /// Ends every connection; returns when all threads have ended.
    pub(in crate::testing) fn stop(self) {
        let service = self.service.lock().take();
        if let Some(service) = service {
            service.stop();
        }
    }
}

fn listen<S: Backend>(
    name: &'static str,
    port: u16,
    core: &Arc<ServerCore<S>>,
) -> Result<Service, Error> {
    Service::spawn(name, port, Arc::clone(core)).map_err(not_started(name))
}

fn not_started(name: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |error| {
        let text = format!("starting the {name} server: {error}");
        Error::new(ErrorKind::Resources, text).with_source(error)
    }
}

impl<S> ServerCore<S> {
    pub(super) fn next_connection(&self) -> u64 {
        self.connections
            .fetch_add(1, Ordering::SeqCst)
            .saturating_add(1)
    }

    pub(super) fn received(
        &self,
        request: &RequestMessage,
        at: std::time::Instant,
        answered: Answered,
    ) {
        self.log.lock().push(request, at, answered);
        self.log.notify_all();
    }
}
