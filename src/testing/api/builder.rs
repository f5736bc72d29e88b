//! The options of an API server before it starts.

use std::time::{Duration, SystemTime};

use rustls::crypto::CryptoProvider;

use super::access::{AccessRequest, AccessRule};
use super::backend::ApiBackend;
use super::representation::DropParameter;
use super::resources::{ApiResource, KindRegistry};
use super::server::ApiServer;
use super::storage::Storage;
use super::writes::ObjectWriter;
use crate::clock::Clock;
use crate::error::Error;
use crate::sync::{Arc, Monitor, Mutex};
use crate::testing::http::{Fault, HttpServer, ServerOptions, ServerTls, TestAuthority};

/// How often watches that take bookmarks get one, as from a real server.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// The namespaces of a new cluster.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The options of an [`ApiServer`] before it starts.
#[derive(Debug)]
pub struct ApiServerBuilder {
    registry: KindRegistry,
    access: AccessRequest,
    bookmark_every: Duration,
    drop_parameter: DropParameter,
    started_at: Option<SystemTime>,
    options: ServerOptions,
}

impl Default for ApiServerBuilder {
    fn default() -> Self {
        Self {
            registry: KindRegistry::built_in(),
            access: AccessRequest::default(),
            bookmark_every: BOOKMARK_EVERY,
            drop_parameter: DropParameter::default(),
            started_at: None,
            options: ServerOptions::default(),
        }
    }
}

impl ApiServer {
    /// Starts a server with the common kinds, on a free port, without TLS and access control.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Resources`](crate::ErrorKind::Resources) when the system refuses a socket, port
    /// or thread.
    pub fn new() -> Result<Self, Error> {
        Self::builder().start()
    }

    /// Makes a server with options.
    pub fn builder() -> ApiServerBuilder {
        ApiServerBuilder::default()
    }
}

impl ApiServerBuilder {
    /// Sets the server's clock. With a fake one, time passes when a test advances it. Default: the
    /// system's.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.options.clock = clock;
        self
    }

    /// Sets the time of day at which the server starts. From then on it follows the clock. Default:
    /// the system's.
    #[must_use]
    pub fn time_of_day(mut self, time: SystemTime) -> Self {
        self.started_at = Some(time);
        self
    }

    /// Sets the port. Default: 0, a free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.options.port = port;
        self
    }

    /// Adds a kind: an [`ApiResource`], or a plain [`Resource`](crate::object::Resource). It
    /// replaces a kind with the same group, version and plural.
    #[must_use]
    pub fn resource(mut self, resource: impl Into<ApiResource>) -> Self {
        self.registry.register(resource.into());
        self
    }

    /// Sets how often a watch that takes bookmarks gets one. Default: a minute. The last one comes
    /// 2 seconds before the end of its `timeoutSeconds`.
    #[must_use]
    pub fn bookmark_every(mut self, every: Duration) -> Self {
        self.bookmark_every = every;
        self
    }

    /// Sets how the server treats `drop=metadata.managedFields` in an `Accept` header. Default: it
    /// leaves the managed fields out.
    #[must_use]
    pub fn drop_parameter(mut self, drop: DropParameter) -> Self {
        self.drop_parameter = drop;
        self
    }

    /// Adds a bearer token of a user with groups. From the first one on, a request without a token
    /// or certificate gets 401. The group `system:masters` may do everything.
    #[must_use]
    pub fn token(mut self, token: &str, user: &str, groups: &[&str]) -> Self {
        self.access.add_token(token, user, groups);
        self
    }

    /// Adds a rule. From the first one on, users may do only what a rule allows, and get 403 for
    /// the rest.
    #[must_use]
    pub fn rule(mut self, rule: AccessRule) -> Self {
        self.access.add_rule(rule);
        self
    }

    /// Adds a fault.
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.options.faults.push(fault);
        self
    }

    /// Makes the server speak TLS with these certificates (a chain, the server's own first) and
    /// their key, both in PEM.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when it cannot use them; the message says
    /// which one and why.
    pub fn tls(
        mut self,
        certificates: &[u8],
        key: &[u8],
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, Error> {
        self.options.tls = Some(ServerTls::of_pem(certificates, key, provider, None)?);
        Ok(self)
    }

    /// Makes the server speak TLS as [`tls`](Self::tls) does, and take client certificates of these
    /// authorities. A certificate's common name is the user, its organizations are the groups. A
    /// client without one may send a token.
    ///
    /// # Errors
    ///
    /// As [`tls`](Self::tls).
    pub fn tls_with_clients(
        mut self,
        certificates: &[u8],
        key: &[u8],
        client_authorities: &[u8],
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, Error> {
        let authorities = Some(client_authorities);
        self.options.tls = Some(ServerTls::of_pem(certificates, key, provider, authorities)?);
        self.access.take_certificates();
        Ok(self)
    }

    /// Makes the server speak TLS with a certificate of that authority, and take its client
    /// certificates, as [`tls_with_clients`](Self::tls_with_clients) does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the authority's provider cannot sign.
    pub fn tls_by(mut self, authority: &TestAuthority) -> Result<Self, Error> {
        self.options.tls = Some(ServerTls::of_authority(authority)?);
        self.access.take_certificates();
        Ok(self)
    }

    /// Starts the server.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Resources`](crate::ErrorKind::Resources) when the system refuses a socket, port
    /// or thread.
    pub fn start(self) -> Result<ApiServer, Error> {
        let started_at = self.started_at.unwrap_or_else(SystemTime::now);
        let storage = Storage::new(self.registry, self.options.clock.clone(), started_at);
        make_namespaces(&storage);
        let backend = ApiBackend {
            storage: Arc::new(storage),
            access: Mutex::new(self.access),
            open: Arc::new(Monitor::new(0)),
            bookmark_every: self.bookmark_every,
            drop_parameter: self.drop_parameter,
        };
        let server = HttpServer::start("api", backend, self.options)?;
        Ok(ApiServer::of(server))
    }
}

fn make_namespaces(storage: &Storage) {
    let mut state = storage.lock();
    let Some(namespaces) = state.registry.find("", "v1", "namespaces").cloned() else {
        return;
    };
    let writer = ObjectWriter {
        storage,
        is_dry_run: false,
        is_test: true,
    };
    for name in NAMESPACES {
        let object = serde_json::json!({"metadata": {"name": name}});
        let made = writer.create(&mut state, &namespaces, "", object);
        debug_assert!(
            made.is_ok(),
            "the names are valid, and there is nothing yet"
        );
    }
}
