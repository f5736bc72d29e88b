//! The adapter to a real server: the only room that knows ureq and rustls.
//!
//! One part says where the server is and who asks (configuration, kubeconfig, credentials, the limiter); the other
//! one dials, speaks TLS and HTTP, and answers through the port of [`list_watch`](crate::list_watch).

mod config;
mod context;
mod credentials;
mod environment;
mod in_cluster;
mod infer;
mod kubeconfig;
mod limiter;
mod pem;
mod server;

mod admission;
mod agent;
mod blocking;
mod buffers;
mod byte_budget;
mod client;
mod connect;
mod dialer;
mod failure;
mod halt;
mod handover;
mod helpers;
mod open_watch;
mod options;
#[cfg(feature = "testing")]
mod raw;
mod request_threads;
mod requests;
mod resolve;
mod slots;
mod streams;
mod thread_pool;
mod tls;
mod tls_errors;
mod tls_files;
mod tls_insecure;
mod transport;
mod wakeup;

pub use client::Client;
pub use config::Config;
pub use kubeconfig::KubeconfigOptions;
pub use options::ClientOptions;
#[cfg(feature = "testing")]
pub(crate) use raw::RawAnswer;
