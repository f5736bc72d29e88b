//! The client: one server, one identity, one rate limit. It makes the sources of all kinds of
//! objects.

#[cfg(feature = "testing")]
use std::{io, net::SocketAddr};

use super::agent::{Agent, Endpoint};
use super::calls::byte_budget::ByteBudget;
use super::calls::limiter::Limiter;
use super::calls::request_threads::RequestThreads;
use super::client_context::{ClientContext, ClientInner, ResourceSet};
use super::client_metric::{ClientMetric, ClientState, RequestMetrics};
use super::client_options::ClientOptions;
use super::config::Config;
use super::connect::connector::ServerConnector;
use super::connect::dns::{Lookup, system_lookup};
use super::connect::proxy::Proxy;
use super::credentials::CredentialsStatus;
#[cfg(feature = "testing")]
use super::environment::Environment;
use super::lister_watcher::{HttpListerWatcher, ObjectGetter};
use super::tls::Tls;
use crate::clock::{Clock, Deadline, IntoDeadline};
use crate::error::{Error, ErrorKind, debug_of};
use crate::list_watch::{Api, Bound, Getter, ListRequest, Listed, ListerWatcher, Pages, Selection};
use crate::object::{Object, ObjectKey, Resource, ResourceVersion, Scope, StoredObject};
use crate::policy::PolicyRequest;
use crate::retry::patiently;
use crate::sync::Arc;
use crate::worker::StopToken;

/// Idle connections kept for gets and the client's own lists, for the next burst of first syncs.
const POOLED_CONNECTIONS: usize = 8;

/// Requests of one client that connect, write or decode at the same time. This bounds their
/// buffers, and a server that comes back does not get thousands of requests at once. A request
/// whose server is silent does not count.
const SLOTS: usize = 16;

/// Objects that [`Client::list`] asks for at a time, as client-go's pager does.
const PAGE_ITEMS: u32 = 500;

/// Watches of one client that are read at the same time, because decoding needs processors.
const READERS_MAX: usize = 16;

/// A client of one API server.
///
/// A clone is cheap. Clones share connections, TLS sessions and the rate limit. [`new`](Self::new)
/// connects to nothing. The client implements [`Api`] for every kind. Each lister-watcher has a
/// connection of its own, on which it lists and watches, one after the other. All other requests
/// share a pool of connections.
///
/// # Threads
///
/// - Gets, writes and requests of the program's own run on the caller's thread.
/// - Threads called `ask-1` and so on read lists and open watches. They end with their requests.
/// - Threads called `read-1` and so on, at most 16, decode the events of watches. The threads that
///   watch keep small stacks, because a stack stays as large as it once was. One `read` thread
///   stays when idle.
/// - Up to four threads called `resolver` look up names. `token-file` and `tls-files` read files.
/// - A thread called `plugin` runs the credential plugin of the configuration, one called
///   `token-source` calls the program's [`TokenSource`](super::TokenSource). Clients of one
///   configuration and of its clones share them.
///
/// At most 16 requests work at a time. Requests that a caller waits for go first. A request whose
/// server is silent makes room for another one. The drop of the last clone, and of all that it
/// made, joins these threads and ends a running plugin. A lookup within the system's resolver
/// cannot be interrupted and ends by itself.
///
/// # Secrets
///
/// The client overwrites the buffers of requests and answers before it frees them, because they
/// hold tokens and the values of Secrets. It cannot overwrite the buffers of the TLS library and
/// the decompressor.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<ClientInner>,
    /// The resource of all requests; `None`: that of the type.
    resource: Option<Arc<Resource>>,
}

impl Client {
    /// Makes a client of the server in `config`.
    ///
    /// [`Config::with_proxy`] says which proxy the environment names.
    /// Blocks for reads of the TLS files that `config` names.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config), if the configuration cannot work, names the field and
    /// the file.
    pub fn new(config: &Config, options: ClientOptions) -> Result<Self, Error> {
        let proxy = Proxy::new(config, &config.environment)?;
        Self::build(config, options, proxy, Box::new(system_lookup))
    }

    /// Returns the object with `key`, with all of its fields. A [`Compact`](crate::Compact),
    /// [`Dynamic`](crate::Dynamic) or [`Metadata`](crate::Metadata) lacks those that only writers
    /// need ([`ClientOptions::decode`]).
    ///
    /// Blocks until the server's answer, for at most
    /// [`request_timeout`](ClientOptions::request_timeout). The server reads the object with
    /// quorum. A [`getter`](Self::getter) also takes a stop and a version, and asks once.
    ///
    /// If the server asks to wait (429, or an answer that names a wait), the client waits and asks
    /// again, up to ten times. After a 500, 502, 503 or 504 it asks once more, after a short pause.
    /// It does the same after a connection that failed or was cut, unless the connection was
    /// refused or the server's name is not known.
    ///
    /// # Errors
    ///
    /// [`NotFound`](crate::ErrorKind::NotFound) if the object does not exist, else the error of the
    /// server or of the connection. [`Timeout`](crate::ErrorKind::Timeout) names the phase in which
    /// the time ended. If the deadline leaves no time for a wait, the method fails at once.
    /// [`Error::attempts`] counts the tries of a repeated read.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// use k8s_openapi::api::core::v1::Secret;
    /// use kubecache::http::{Client, ClientOptions, Config};
    /// use kubecache::object::ObjectKey;
    /// # use kubecache::testing::{Answer, Exchange, FixtureServer, Recording, objects};
    /// # let secret = objects::secret("shop", "db", "7", &[("password", "made-up")]);
    /// # let path = "/api/v1/namespaces/shop/secrets";
    /// # let listed = Exchange::get(path, Answer::list("7", &[secret])?);
    /// # let server = FixtureServer::replaying(Recording::new().with(listed)).start()?;
    ///
    /// let config = Config::for_server(&server.url())?; // in a program: Config::infer()?
    /// let client = Client::new(&config, ClientOptions::default())?;
    /// let secret = client.get::<Secret>(&ObjectKey::new("shop", "db"))?;
    /// assert_eq!(secret.data.as_ref().unwrap()["password"].0, b"made-up");
    /// # }
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn get<K: Object>(&self, key: &ObjectKey) -> Result<Arc<StoredObject<K>>, Error> {
        self.get_by(key, self.deadline())
    }

    /// Returns the object with `key`, as [`get`](Self::get) does, but blocks until `deadline` at
    /// most.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn get_by<K: Object>(
        &self,
        key: &ObjectKey,
        deadline: impl IntoDeadline,
    ) -> Result<Arc<StoredObject<K>>, Error> {
        let (kind, clock) = (PolicyRequest::Read, &self.inner.context.options.clock);
        let (deadline, stop) = (deadline.into_deadline(clock), StopToken::never());
        let (newest, getter) = (ResourceVersion::most_recent(), self.getter());
        patiently(kind, clock, (deadline, &stop), &|_| (), || {
            getter.get(key, &newest, deadline, &stop)
        })
    }

    /// Returns all objects in `scope`, in the server's order.
    ///
    /// Reads the list in pages of 500 objects, with quorum. Blocks until the last page has come,
    /// for at most [`request_timeout`](ClientOptions::request_timeout). If the server no longer has
    /// the version of the first page, the method reads the whole list once more, as one page. It
    /// asks again for each page as [`get`](Self::get) does. [`ClientOptions::decode`] sets the
    /// fields of the objects and their maximum number. A [`lister_watcher`](Self::lister_watcher)
    /// passes on each object as it comes, and takes a stop.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get). [`Undecodable`](crate::ErrorKind::Undecodable) names the first object
    /// that is not a `K`. [`TooLarge`](crate::ErrorKind::TooLarge) if the list exceeds a limit.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// use k8s_openapi::api::core::v1::Pod;
    /// use kubecache::http::{Client, ClientOptions, Config};
    /// use kubecache::object::Scope;
    /// # use kubecache::testing::{Answer, Exchange, FixtureServer, Recording, objects};
    /// # let pod = objects::pod("shop", "web-0", "node-1", &[], &[]);
    /// # let path = "/api/v1/namespaces/shop/pods?limit=500";
    /// # let listed = Exchange::get(path, Answer::list("7", &[pod])?);
    /// # let server = FixtureServer::replaying(Recording::new().with(listed)).start()?;
    ///
    /// let config = Config::for_server(&server.url())?; // in a program: Config::infer()?
    /// let client = Client::new(&config, ClientOptions::default())?;
    /// let pods = client.list::<Pod>(Scope::namespace("shop"))?;
    /// assert_eq!(pods.len(), 1);
    /// # }
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn list<K: Object>(&self, scope: Scope) -> Result<Vec<Arc<StoredObject<K>>>, Error> {
        self.list_by(scope, self.deadline())
    }

    /// Returns all objects in `scope`, as [`list`](Self::list) does, but blocks until `deadline` at
    /// most.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list).
    pub fn list_by<K: Object>(
        &self,
        scope: Scope,
        deadline: impl IntoDeadline,
    ) -> Result<Vec<Arc<StoredObject<K>>>, Error> {
        let deadline = deadline.into_deadline(&self.inner.context.options.clock);
        let source = self.source::<K>(scope).pooled();
        let mut bound = Bound::new(source.objects_max());
        let mut pages = Pages::default();
        let mut request = ListRequest {
            limit: PAGE_ITEMS,
            urgent: true,
            ..ListRequest::default()
        };
        let mut objects = Vec::new();
        let (clock, stop) = (&self.inner.context.options.clock, StopToken::never());
        let (kind, until) = (PolicyRequest::Read, (deadline, &stop));
        loop {
            let (mut undecodable, mut is_empty, before) = (None, true, objects.len());
            let page = patiently(kind, clock, until, &|_| (), || {
                // A failed try may have set these.
                (undecodable, is_empty, bound.left_out) = (None, true, 0);
                objects.truncate(before);
                let mut collect = |item| {
                    is_empty = false;
                    match item {
                        Listed::Object(object) if bound.has_room(objects.len()) => {
                            objects.push(object);
                        }
                        Listed::Object(_) => bound.leave_out(1),
                        Listed::Undecodable(item) => {
                            undecodable.get_or_insert(item);
                        }
                    }
                };
                source.list_by(&request, deadline, &stop, &mut collect)
            });
            let page = match page {
                Err(error)
                    if error.kind() == ErrorKind::Expired
                        && request.continue_token.is_some()
                        && request.limit > 0 =>
                {
                    objects.clear();
                    (request.limit, request.continue_token) = (0, None);
                    pages = Pages::default();
                    continue;
                }
                page => page?,
            };
            let what = || format!("list {}", source.describe());
            let token = pages.next(page.continue_token, is_empty);
            if let Some(item) = undecodable {
                return Err(item.error.of_request(&what()));
            }
            if let Some(error) = bound.error(&what()) {
                return Err(error);
            }
            request.continue_token = token.map_err(|error| error.of_request(&what()))?;
            if request.continue_token.is_none() {
                return Ok(objects);
            }
        }
    }

    /// Makes a source of lists and watches of `scope`, with a connection of its own.
    pub fn lister_watcher<K: Object>(&self, scope: Scope) -> Arc<dyn ListerWatcher<K>> {
        Arc::new(self.source(scope))
    }

    /// Makes a source whose lists do not come from the server's cache.
    pub(crate) fn quorum_lister_watcher<K: Object>(
        &self,
        scope: Scope,
    ) -> Arc<dyn ListerWatcher<K>> {
        Arc::new(self.source(scope).consistent())
    }

    /// Makes a source that lists what `path` answers, with versions made of the objects' texts.
    pub(crate) fn lister_of_path<K: Object>(
        &self,
        path: &'static str,
    ) -> Arc<dyn ListerWatcher<K>> {
        Arc::new(self.source(Scope::all()).at_path(path))
    }

    /// Makes a source of single objects, with the fields that [`get`](Self::get) returns. All
    /// getters share the client's pool of connections.
    pub fn getter<K: Object>(&self) -> Arc<dyn Getter<K>> {
        Arc::new(ObjectGetter::new(&self.inner, self.resource::<K>(), false))
    }

    /// Makes a client of `resource`, whatever the type of the objects, such as [`Dynamic`].
    ///
    /// Sends no request. Shares everything with this client, as a clone does.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use kubecache::Dynamic;
    /// use kubecache::http::{Client, ClientOptions, Config};
    /// use kubecache::object::{Resource, Scope};
    ///
    /// let client = Client::new(&Config::infer()?, ClientOptions::default())?;
    /// let racks = client.with_resource(Resource::new("example.com", "v1", "racks", "Rack"));
    /// for rack in racks.list::<Dynamic>(Scope::all())? {
    ///     println!("{:?}", rack.field::<u32>("/spec/units")?);
    /// }
    /// # Ok::<(), kubecache::Error>(())
    /// ```
    ///
    /// [`Dynamic`]: crate::Dynamic
    #[must_use]
    pub fn with_resource(&self, resource: Resource) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            resource: Some(Arc::new(resource)),
        }
    }

    /// Returns how often the client's source of credentials was asked, and its last result.
    ///
    /// Never blocks. `None` if the credentials are fixed, or if there are none.
    pub fn credentials_status(&self) -> Option<CredentialsStatus> {
        self.inner.context.endpoint.credentials.status()
    }

    fn source<K: Object>(&self, scope: Scope) -> HttpListerWatcher<K> {
        HttpListerWatcher::new(&self.inner, self.resource::<K>(), scope)
    }

    pub(crate) fn resource<K: Object>(&self) -> Resource {
        let own = self.resource.as_deref();
        own.map_or_else(K::resource, Resource::clone)
    }

    fn deadline(&self) -> Deadline {
        Clock::system().after(self.inner.context.options.request_timeout)
    }

    fn build(
        config: &Config,
        options: ClientOptions,
        proxy: Option<Proxy>,
        lookup: Box<Lookup>,
    ) -> Result<Self, Error> {
        let server = config.server.clone();
        let tls = server.https.then(|| Tls::new(config).map(Arc::new));
        let tls = tls.transpose()?;
        let scheme = if server.https { "https" } else { "http" };
        let authority: Arc<str> = server.authority().into();
        let base = format!("{scheme}://{authority}{}", server.path);
        let has_plugin = config.credentials.is_plugin();
        let certificate = tls.as_deref().map(|tls| tls.certificate(has_plugin));
        let source = config.credentials.clone();
        let state = move || ClientState {
            certificate: certificate.as_ref().and_then(|certificate| certificate()),
            credentials: source.status(),
        };
        let metrics = options.metrics.clone();
        let metrics = RequestMetrics::start(metrics, &authority, &options.clock, state)?;
        let check = tls.as_deref().map(Tls::check);
        let dialer = ServerConnector::new(server, tls, proxy, options.connect_timeout, lookup);
        let dialer = Arc::new(dialer);
        let plugin_runs = options.metrics.as_ref();
        let plugin_runs = plugin_runs.map(|hook| hook.of_part(ClientMetric::PluginRun));
        let (credentials, lease) = config.credentials.activate(plugin_runs, check);
        let endpoint = Endpoint {
            base,
            headers: Endpoint::headers(&config.headers, &options.user_agent_header())?,
            credentials,
            metrics: Arc::new(metrics),
            dialer: Arc::clone(&dialer),
            second_try_after: options.second_try_after,
        };
        let context = ClientContext {
            endpoint,
            server: authority,
            gzip: cfg!(feature = "gzip") && options.gzip && config.compression,
            limiter: Limiter::new(options.rate, options.burst, &options.clock),
            budget: ByteBudget::new(options.buffered_bytes_max),
            options,
            without_watch_list: ResourceSet::default(),
            bookmark_intervals: ResourceSet::default(),
        };
        let inner = ClientInner {
            _lease: lease,
            context: Arc::new(context),
            pool: Arc::new(Agent::new(&dialer, POOLED_CONNECTIONS)),
            threads: RequestThreads::new(SLOTS, READERS_MAX),
        };
        Ok(Self {
            inner: Arc::new(inner),
            resource: None,
        })
    }
}

#[cfg(feature = "testing")]
impl Client {
    /// Makes a client as [`new`](Self::new) does, with a lookup of names in place of the system's.
    ///
    /// The client calls `lookup` on its `resolver` threads. It ignores proxies of the environment.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    #[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
    pub fn with_lookup(
        config: &Config,
        options: ClientOptions,
        lookup: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let proxy = Proxy::new(config, &Environment::default())?;
        Self::build(config, options, proxy, Box::new(lookup))
    }
}

debug_of!([] Client, |it| server: it.inner.context.endpoint.base, ..);

impl<K: Object> Api<K> for Client {
    fn lister_watcher(&self, scope: Scope) -> Arc<dyn ListerWatcher<K>> {
        Self::lister_watcher(self, scope)
    }

    fn lister_watcher_of(
        &self,
        scope: Scope,
        selection: Arc<dyn Selection>,
    ) -> Arc<dyn ListerWatcher<K>> {
        Arc::new(self.source(scope).selecting(selection))
    }

    fn getter(&self) -> Arc<dyn Getter<K>> {
        Arc::new(ObjectGetter::new(&self.inner, self.resource::<K>(), true))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::{ConfigMap, Secret};

    use super::*;

    /// B8, B11: facts learnt in one scope hold for every scope of that kind, and for no other kind
    /// or client.
    #[test]
    fn b8_b11_what_is_learnt_of_a_server_is_remembered_by_resource() {
        let client = || {
            let config = Config::for_server("http://127.0.0.1:1").unwrap();
            Client::new(&config, ClientOptions::default()).unwrap()
        };
        let (one, other) = (client(), client());
        let whole = |client: &Client| client.lister_watcher::<Secret>(Scope::all());
        let foreign = one.lister_watcher::<ConfigMap>(Scope::all());
        let by_name = one.lister_watcher::<Secret>(Scope::object(&ObjectKey::new("shop", "db")));
        assert!(by_name.bookmark_interval().is_none() && whole(&one).supports_watch_list());
        assert!(by_name.lists_one_object() && !whole(&one).lists_one_object());
        for seconds in [9, 7] {
            by_name.bookmark_came(Duration::from_secs(seconds));
            by_name.watch_list_failed();
        }
        let longest = Some(Duration::from_secs(9));
        assert!(whole(&one).bookmark_interval() == longest && !whole(&one).supports_watch_list());
        assert!(foreign.bookmark_interval().is_none() && foreign.supports_watch_list());
        let other = whole(&other);
        assert!(other.bookmark_interval().is_none() && other.supports_watch_list());
    }

    #[cfg(feature = "testing")]
    mod decoders {
        use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

        use super::*;
        use crate::clock::Deadline;
        use crate::error::ErrorKind;
        use crate::http::WriteOptions;
        use crate::testing::ApiServer;

        /// An object whose decoder panics.
        #[derive(serde_derive::Serialize)]
        struct Odd {
            metadata: ObjectMeta,
        }

        impl<'de> serde::Deserialize<'de> for Odd {
            fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
                panic!("made up");
            }
        }

        crate::impl_object!(Odd, Resource::new("", "v1", "configmaps", "ConfigMap"));

        #[test]
        fn a_decoder_of_the_program_that_panics_is_the_error_of_its_request() {
            let server = ApiServer::new().unwrap();
            let config = Config::for_server(&server.url()).unwrap();
            let client = Client::new(&config, ClientOptions::default()).unwrap();
            let key = ObjectKey::new("default", "m");
            let metadata = ObjectMeta {
                namespace: Some(key.namespace().to_owned()),
                name: Some(key.name().to_owned()),
                ..ObjectMeta::default()
            };
            let odd = Odd { metadata };
            let created = client.create(&odd, &WriteOptions::default(), Deadline::NEVER);
            let read = client.get::<Odd>(&key);
            for ended in [created, read] {
                let error = ended.map(drop).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Panicked, "{error}");
            }
        }
    }
}
