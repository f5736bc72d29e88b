//! The adapter to a real server: the only room that knows ureq and rustls.
//!
//! One part says where the server is and who asks (configuration, kubeconfig, credentials, the limiter); the other
//! one dials, speaks TLS and HTTP, and answers through the port of [`list_watch`](crate::list_watch).

mod config;
mod credentials;
mod environment;
mod in_cluster;
mod kubeconfig;
mod limiter;
mod pem;
mod server;

pub use config::Config;
pub use environment::Environment;
pub use kubeconfig::KubeconfigOptions;
