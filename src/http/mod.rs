//! The client of a Kubernetes API server, over HTTP/1.1 and TLS.
//!
//! [`Config`] names the server, the authorities to trust and the credentials. A [`Client`] sends
//! requests. [`Client::get`] and [`Client::list`] read objects with one call. [`Client::create`],
//! [`Client::replace`], [`Client::patch`] and [`Client::delete`] write them. [`Client::send`] and
//! [`Client::stream`] take any other request. Sources for reflectors, informers and managers
//! implement the traits of [`list_watch`](crate::list_watch).

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
    certificates::facts::certificate_subject,
    requests::JSON,
};
