//! The client's server, trust and user: from kubeconfig files, a pod's service account, or the
//! program.

#[expect(
    clippy::module_inception,
    reason = "the folder and the type in it are named by the same thing"
)]
mod config;
mod in_cluster;
mod infer;
mod kubeconfig;
mod proxy_environment;
mod proxy_url;
mod server_url;
mod system_authorities;

pub use self::config::Config;
pub(super) use self::config::{ProxyChoice, TlsSettings};
pub use self::kubeconfig::KubeconfigOptions;
#[cfg(feature = "testing")]
pub(crate) use self::kubeconfig::read_text;
pub(super) use self::proxy_url::{ProxyScheme, ProxyUrl, ProxyUser};
pub(super) use self::server_url::ServerUrl;
pub(super) use self::system_authorities::system_authorities;
