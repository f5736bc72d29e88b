//! The client of a Kubernetes [API server][kubernetes], over HTTP/1.1 and TLS.
//!
//! ```
//! # #[cfg(feature = "testing")] {
//! use k8s_openapi::api::core::v1::{ConfigMap, Secret};
//! use kubecache::http::{Client, ClientOptions, Config};
//! use kubecache::object::{Object as _, ObjectKey, Scope};
//!
//! # use kubecache::testing::{ApiServer, objects};
//! # let server = ApiServer::new()?;
//! # server.apply(&objects::secret("shop", "db", "", &[("password", "made-up")]))?;
//! # server.apply(&objects::config_map("shop", "settings", "", &[("tax", "7")]))?;
//! let config = Config::for_server(&server.url())?; // in a program: Config::infer()?
//! let client = Client::new(&config, ClientOptions::default())?; // connects to nothing yet
//! let secret = client.get::<Secret>(&ObjectKey::new("shop", "db"))?; // or the reason why not
//! println!("{secret:?}"); // never prints a value
//! for settings in client.list::<ConfigMap>(Scope::namespace("shop"))? {
//!     println!("{} is at {:?}", settings.key(), settings.resource_version());
//! }
//! # }
//! # Ok::<(), kubecache::Error>(())
//! ```
//!
//! [`Config`] names the server, the authorities to trust and the credentials. A [`Client`] sends
//! requests. [`Client::get`] and [`Client::list`] read [objects] with one call.
//! [`Client::create`], [`Client::replace`], [`Client::patch`] and [`Client::delete`] write them.
//! [`Client::send`] and [`Client::stream`] take any other request. Sources for
//! [reflectors][reflector], [informers][informer] and [managers][manager] implement the traits of
//! [`list_watch`](crate::list_watch).
//!
//! [informer]: crate::manual::glossary#informer
//! [kubernetes]: crate::manual::glossary#kubernetes
//! [manager]: crate::manual::glossary#manager
//! [objects]: crate::manual::glossary#objects-and-the-server
//! [reflector]: crate::manual::glossary#reflector

// The floors, from the ground up: each imports only from those before it. `tests/tidy.rs` holds the
// order.
mod calls;
mod certificates;
mod environment;
mod requests;

mod credentials;

mod config;

mod tls;

mod connect;

mod client_metric;

mod agent;

mod client_context;
mod client_options;

mod lister_watcher;
mod watch_stream;

mod client;

mod send;
mod writes;

pub use certificates::client_certificate::ClientCertificate;
pub use client::Client;
pub use client_metric::{ClientMetric, ClientState};
pub use client_options::ClientOptions;
pub use config::{Config, KubeconfigOptions};
pub use credentials::{CredentialsStatus, PluginEnd, PluginPolicy, PluginRun, Token, TokenSource};
pub use environment::Environment;
pub use send::{Request, Response, ResponseStream};
pub use writes::{Patch, WriteOptions};

pub use crate::wire::{DecodeOptions, Trim, undecodable_reads};

#[cfg(feature = "testing")]
pub(crate) use {
    agent::{HttpRequest, ResponseReader},
    calls::call_context::{CallContext, NamedDeadline},
    calls::errors::retry_after,
    certificates::client_certificate::expires,
    certificates::facts::certificate_subject,
    certificates::pem::Pem,
    config::read_text,
    connect::proxy::proxy_answer,
    credentials::plugin_answer,
    requests::JSON,
};
