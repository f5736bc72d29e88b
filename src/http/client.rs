//! The client: one server, one identity, one rate; makes lister-watchers and getters for any kind of object.

use std::fmt;
use std::sync::Once;
#[cfg(feature = "testing")]
use std::{io, net::SocketAddr};

use super::agent::{Agent, Endpoint};
use super::byte_budget::ByteBudget;
use super::client_context::{ClientContext, ClientInner, ResourceSet};
use super::client_options::ClientOptions;
use super::config::Config;
use super::config::Environment;
use super::dialer::Dialer;
use super::limiter::Limiter;
use super::request_threads::RequestThreads;
use super::resolve::{Lookup, system_lookup};
use super::streams::{ObjectGetter, ScopeWatcher};
use super::tls::Tls;
use crate::error::Error;
use crate::list_watch::{Api, Getter, ListerWatcher};
use crate::object::{Object, Scope};
use crate::sync::Arc;

/// Idle connections kept for gets: what a burst of first syncs leaves behind.
const POOLED_CONNECTIONS: usize = 8;

/// So many requests of one client connect, write or decode at the same time: a server that comes
/// back is not asked by
/// thousands at once, and their buffers do not pile up. A request whose peer is silent is not
/// counted.
const SLOTS: usize = 16;

/// So many watches of one client are read at the same time: decoding is work for processors, not for waiting.
const READERS_MAX: usize = 16;

/// A client of one API server. Cheap to clone; clones share connections, TLS sessions and the rate limit.
///
/// It implements [`Api`] for every kind. A lister-watcher has one connection of its own, on which it lists and
/// watches, one after the other; gets share a pool. Creating a client connects to nothing.
///
/// Threads: lists are read and watches opened on short-lived threads (`ask-1`), and what comes on a
/// watch is decoded on a second kind (`read-1`, at most 16): the threads that watch keep shallow
/// stacks and empty allocator caches, which would stay resident. Gets run on the caller's thread.
/// At
/// most 16 requests work at a time, those that somebody waits for first; a request whose server is
/// silent gives its place to another one and keeps its `ask` thread. Names are looked up on up to
/// four (`resolver`), files read on `token-file` and `tls-files`. While nothing moves, one `read`
/// thread is left. Dropping the last clone and all that it made joins them; a lookup inside the
/// system's resolver cannot be interrupted and ends by itself.
///
/// The buffers of requests and answers are overwritten before their memory is given back, as they hold tokens and the
/// values of Secrets. What the TLS library and a decompressor hold in passing is not this crate's to overwrite.
#[derive(Clone)]
pub struct Client(Arc<ClientInner>);

impl Client {
    /// A client of the server in `config`. Blocks for the TLS files it names.
    ///
    /// # Errors
    ///
    /// `Config`, naming field and file, when the configuration cannot work.
    pub fn new(config: &Config, options: ClientOptions) -> Result<Self, Error> {
        static WARNED: Once = Once::new();
        WARNED.call_once(|| {
            if let Some(warning) = Environment::process().proxy_warning() {
                log::warn!("{warning}");
            }
        });
        Self::build(config, options, Box::new(system_lookup))
    }

    fn build(config: &Config, options: ClientOptions, lookup: Box<Lookup>) -> Result<Self, Error> {
        let server = config.server.clone();
        let tls = if server.https {
            Some(Arc::new(Tls::new(config)?))
        } else {
            None
        };
        let scheme = if server.https { "https" } else { "http" };
        let authority: Arc<str> = server.authority().into();
        let base = format!("{scheme}://{authority}{}", server.path);
        let dialer = Dialer::new(server, tls, options.connect_timeout, lookup);
        let dialer = Arc::new(dialer);
        let endpoint = Endpoint {
            base,
            headers: Endpoint::headers(&config.headers, &options.user_agent_header())?,
            credentials: config.credentials.clone(),
            dialer: Arc::clone(&dialer),
            body_idle: options.body_idle_timeout,
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
            context: Arc::new(context),
            pool: Agent::new(&dialer, POOLED_CONNECTIONS),
            threads: RequestThreads::new(SLOTS, READERS_MAX),
        };
        Ok(Self(Arc::new(inner)))
    }
}

#[cfg(feature = "testing")]
impl Client {
    /// As [`new`](Self::new), with a lookup of names in place of the system's; it runs on the client's resolver thread.
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
        Self::build(config, options, Box::new(lookup))
    }

    pub(crate) fn inner(&self) -> &ClientInner {
        &self.0
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("server", &self.0.context.endpoint.base)
            .finish_non_exhaustive()
    }
}

impl<K: Object> Api<K> for Client {
    fn lister_watcher(&self, scope: Scope) -> Arc<dyn ListerWatcher<K>> {
        Arc::new(ScopeWatcher::new(&self.0, scope))
    }

    fn getter(&self) -> Arc<dyn Getter<K>> {
        Arc::new(ObjectGetter::new(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::{ConfigMap, Secret};

    use super::*;
    use crate::object::ObjectKey;

    /// B8, B11: what is learnt in one scope holds for every scope of that kind, and for no other kind or client.
    #[test]
    fn b8_b11_what_is_learnt_of_a_server_is_remembered_by_resource() {
        let client = || {
            let config = Config::for_server("http://127.0.0.1:1").unwrap();
            Client::new(&config, ClientOptions::default()).unwrap()
        };
        let (one, other) = (client(), client());
        let whole = |client: &Client| Api::<Secret>::lister_watcher(client, Scope::all());
        let foreign = Api::<ConfigMap>::lister_watcher(&one, Scope::all());
        let by_name =
            Api::<Secret>::lister_watcher(&one, Scope::object(&ObjectKey::new("shop", "db")));
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
}
