//! The client of a Kubernetes API server, over HTTP/1.1 and TLS.
//!
//! [`Config`] says where the server is, how it is trusted and as whom the client sends requests. A
//! [`Client`] sends them. [`Client::get`] and [`Client::list`] read objects with one call.
//! [`Client::create`], [`Client::replace`], [`Client::patch`] and [`Client::delete`] write them.
//! [`Client::send`] and [`Client::stream`] take any other request. Sources for reflectors,
//! informers and managers implement the traits of [`list_watch`](crate::list_watch).

mod calls;
mod config;
mod credentials;

mod client;
mod client_context;
mod client_metric;
mod client_options;
mod lister_watcher;
mod requests;
mod send;
mod transport;
mod watch_stream;
mod writes;

pub use client::Client;
pub use client_metric::{ClientCertificate, ClientMetric, ClientState};
pub use client_options::ClientOptions;
pub use config::{Config, Environment, KubeconfigOptions};
pub use credentials::{CredentialsStatus, PluginEnd, PluginPolicy, PluginRun, Token, TokenSource};
#[cfg(feature = "testing")]
pub(crate) use requests::JSON;
pub use send::{Request, Response, ResponseStream};
#[cfg(feature = "testing")]
pub(crate) use transport::{
    agent::{HttpRequest, ResponseReader},
    call_context::{CallContext, NamedDeadline},
    certificate::certificate_subject,
};

pub use crate::wire::{DecodeOptions, Trim};
pub use writes::{Patch, WriteOptions};
