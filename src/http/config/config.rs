//! The configuration of a client: the server, its trust and the credentials.

use std::path::PathBuf;

use rustls::crypto::CryptoProvider;

use super::super::certificates::pem::{ClientIdentity, Pem};
use super::super::credentials::{Credentials, TokenSource, of_program};
use super::super::environment::Environment;
use super::proxy_url::ProxyUrl;
use super::server_url::ServerUrl;
use crate::clock::Clock;
use crate::error::{Error, debug_of};
use crate::setters::setters;
use crate::sync::Arc;

/// The namespace of a configuration that names none.
const DEFAULT_NAMESPACE: &str = "default";

/// The URL of a server, the authorities to trust, and the credentials of the client.
///
/// A clone is cheap. Clones share the credentials that a source returned. `Debug` shows no secret.
///
/// # Examples
///
/// ```no_run
/// use kubecache::http::Config;
///
/// let config = Config::infer()?;
/// println!("{} {}", config.server_url(), config.namespace());
/// # Ok::<(), kubecache::Error>(())
/// ```
#[doc(alias = "rest.Config")]
#[derive(Clone)]
#[must_use]
pub struct Config {
    pub(crate) server: ServerUrl,
    pub(crate) tls: TlsSettings,
    pub(crate) proxy: ProxyChoice,
    /// The cryptography to use; `None` uses the feature's.
    pub(crate) provider: Option<Arc<CryptoProvider>>,
    pub(crate) credentials: Credentials,
    pub(crate) namespace: String,
    /// Headers of every request besides `Authorization`: impersonation.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) compression: bool,
    pub(crate) source: String,
    /// Names the proxy and the system's authorities.
    pub(crate) environment: Arc<Environment>,
}

/// The choice of a proxy.
#[derive(Clone, Debug, Default)]
pub(crate) enum ProxyChoice {
    /// The one that the environment names, if any.
    #[default]
    Environment,
    /// None, whatever the environment says.
    Direct,
    /// This one.
    Url(ProxyUrl),
}

/// The trust in the server, and the client's certificate.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsSettings {
    /// The authorities to trust. `None` means the system's; this crate carries none.
    pub(crate) authorities: Option<Pem>,
    /// The certificate that the client shows, and its key.
    pub(crate) identity: Option<ClientIdentity>,
    /// Whether the program set the certificate, so that no other replaces it.
    pub(crate) keeps_identity: bool,
    /// The name the server's certificate must carry, instead of the URL's host, and the beginning
    /// of errors about it: `/home/u/.kube/config: clusters[…].tls-server-name: `, or nothing.
    pub(crate) server_name: Option<(String, String)>,
    /// Trust any certificate.
    pub(crate) insecure_skip_verify: bool,
    /// Whether this is about a proxy on the way to the server.
    pub(crate) of_proxy: bool,
}

impl TlsSettings {
    /// The certificates and the key.
    pub(crate) fn pems(&self) -> impl Iterator<Item = &Pem> {
        let identity = self.identity.iter();
        let pems = identity.flat_map(|identity| [&identity.certificate, &identity.key]);
        self.authorities.iter().chain(pems)
    }

    /// The name that was set; empty for the URL's host.
    pub(crate) fn name(&self) -> &str {
        self.server_name.as_ref().map_or("", |(name, _)| name)
    }

    /// Checks the settings before the first handshake. Blocks for reads of local files.
    ///
    /// # Errors
    ///
    /// `Config`, if a file cannot be read, or if there is an authority beside
    /// `insecure-skip-tls-verify`, as in client-go.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if let (true, Some(authorities)) = (self.insecure_skip_verify, &self.authorities) {
            return Err(Error::config(format!(
                "{}: names an authority although insecure-skip-tls-verify is set: remove one of \
                 the two",
                authorities.field
            )));
        }
        self.pems().try_for_each(|pem| pem.loaded().map(drop))
    }
}

impl Config {
    /// Makes a configuration for the server at `url`. The methods below complete it.
    ///
    /// It sends credentials over `http://` too, as client-go's `rest.Config` does. A configuration
    /// from a kubeconfig does not.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config), if `url` is not `https://host[:port][/path]` or
    /// `http://…`.
    pub fn for_server(url: &str) -> Result<Self, Error> {
        let server = ServerUrl::parse(url, false);
        let server = server
            .map_err(|why| Error::config(format!("the server's URL cannot be used: {why}")))?;
        Ok(Self::new(server, &Environment::process()))
    }

    pub(crate) fn new(server: ServerUrl, environment: &Environment) -> Self {
        Self {
            source: format!("server {server}"),
            server,
            tls: TlsSettings::default(),
            proxy: ProxyChoice::default(),
            provider: None,
            credentials: Credentials::None,
            namespace: DEFAULT_NAMESPACE.to_owned(),
            headers: Vec::new(),
            compression: true,
            environment: Arc::new(environment.clone()),
        }
    }

    /// Shows this client certificate, in PEM text, and proves that it has its key.
    ///
    /// It replaces the certificate of a kubeconfig or a credential plugin.
    pub fn with_identity(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.tls.identity = Some(ClientIdentity {
            certificate: Pem::inline(certificate.into(), "client certificate"),
            key: Pem::inline(key.into(), "client key"),
        });
        self.tls.keeps_identity = true;
        self
    }

    /// Trusts these certificate authorities, in PEM text, and no others. It ends what
    /// [`with_insecure_skip_tls_verify`](Self::with_insecure_skip_tls_verify) or a kubeconfig says.
    ///
    /// Default: the system's, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name; the manual's
    /// [page on TLS](crate::manual::tls) has the places.
    pub fn with_authorities(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.authorities = Some(Pem::inline(pem.into(), "certificate authorities"));
        self.tls.insecure_skip_verify = false;
        self
    }

    /// Trusts any certificate that the server shows, instead of any authorities. This is for tests.
    pub fn with_insecure_skip_tls_verify(mut self) -> Self {
        self.tls.authorities = None;
        self.tls.insecure_skip_verify = true;
        self
    }

    /// Reaches the server through the proxy at `url`: `http`, `https` or `socks5`, with or without
    /// user and password.
    ///
    /// Default: the proxy that the environment names when the configuration is made, or that
    /// [`with_environment`](Self::with_environment) names. `HTTPS_PROXY` is for a server with
    /// `https`, `HTTP_PROXY` for one with `http`, and `ALL_PROXY` for both. `NO_PROXY` lists
    /// exceptions, as in Go: domains, addresses, CIDRs, `*`. Each may be written in small letters.
    /// A server on this machine has no proxy.
    ///
    /// The client asks the proxy for a tunnel to the server, so the proxy sees no request. The
    /// proxy looks up the server's name. The connect limit of the client covers the proxy's answer
    /// too.
    ///
    /// For a proxy with `https`, the client trusts the authorities of the system or those of the
    /// server. It never shows that proxy the client certificate.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) says what is wrong with `url`, without repeating it.
    ///
    /// # Examples
    ///
    /// ```
    /// use kubecache::http::Config;
    ///
    /// let config = Config::for_server("https://10.0.0.1:6443")?;
    /// let config = config.with_proxy("http://jane:secret@proxy.example:3128")?;
    /// assert!(!format!("{config:?}").contains("secret"));
    /// # Ok::<(), kubecache::Error>(())
    /// ```
    pub fn with_proxy(mut self, url: &str) -> Result<Self, Error> {
        let proxy = ProxyUrl::parse(url);
        self.proxy = ProxyChoice::Url(
            proxy.map_err(|why| Error::config(format!("the proxy's URL cannot be used: {why}")))?,
        );
        Ok(self)
    }

    /// Reaches the server without a proxy, whatever the environment or a kubeconfig says.
    pub fn without_proxy(mut self) -> Self {
        self.proxy = ProxyChoice::Direct;
        self
    }

    /// Sends this bearer token.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config), if no header can carry the token.
    pub fn with_token(mut self, token: &str) -> Result<Self, Error> {
        let credentials = Credentials::token(token);
        self.credentials = credentials.map_err(|why| Error::config(format!("the token {why}")))?;
        Ok(self)
    }

    /// Returns the URL of the server, such as `https://10.0.0.1:6443`.
    pub fn server_url(&self) -> String {
        self.server.to_string()
    }

    /// Returns the namespace of the context or the pod. Default: `default`.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Says where the configuration came from, for a program's first log line.
    pub fn source(&self) -> &str {
        &self.source
    }
}

setters! { [] Config;
    /// Reads the proxy and the system's authorities from this environment. Default: the one that
    /// the configuration was made from.
    with_environment(environment: Environment) in environment = Arc::new(environment);

    /// Expects the server's certificate to carry `name`, instead of the URL's host.
    with_tls_server_name(name: impl Into<String>)
        in tls.server_name = Some((name.into(), String::new()));

    /// Uses this crypto provider. Default: ring, with the feature `ring`.
    ///
    /// Without that feature, TLS needs a provider set here. The crate never installs one for the
    /// whole process.
    with_provider(provider: Arc<CryptoProvider>) in provider = Some(provider);

    /// Sends the bearer token in this file.
    ///
    /// The client reads the file every 50 seconds, and once more when the server rejects the token.
    with_token_file(path: impl Into<PathBuf>)
        in credentials = Credentials::token_file(path, None, &Clock::system());

    /// Sends the bearer tokens that `source` returns.
    ///
    /// [`TokenSource`] says when the client asks it. Clones of the configuration share its tokens.
    with_token_source(source: Arc<dyn TokenSource>)
        in credentials = Credentials::source(of_program(source));

    /// Sets the namespace that [`namespace`](Self::namespace) returns, for programs that name none.
    with_namespace(namespace: impl Into<String>) in namespace = namespace.into();
}

debug_of!([] Config, |it|
    source: it.source, server: it.server_url(), tls: it.tls, proxy: it.proxy,
    credentials: it.credentials, namespace: it.namespace, ..);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_of_a_configuration_shows_no_secret() {
        let config = Config::for_server("https://shop.example")
            .unwrap()
            .with_authorities("ca")
            .with_identity("cert", "canary")
            .with_token("canary")
            .unwrap()
            .with_proxy("http://canary:canary@p")
            .unwrap();
        let shown = format!("{config:?}");
        assert!(!shown.contains("canary"), "{shown}");
        assert_eq!(config.server_url(), "https://shop.example:443");
        assert_eq!(config.namespace(), "default");
    }

    /// Seen: authorities beside it, and any certificate was trusted.
    #[test]
    fn the_trust_that_is_set_last_counts() {
        let config = || Config::for_server("https://shop.example").unwrap();
        let insecure = config().with_authorities("ca");
        let insecure = insecure.with_insecure_skip_tls_verify().tls;
        assert!(insecure.insecure_skip_verify && insecure.authorities.is_none());
        let checked = config().with_insecure_skip_tls_verify();
        let checked = checked.with_authorities("ca").tls;
        assert!(!checked.insecure_skip_verify && checked.authorities.is_some());
    }

    #[test]
    fn a_token_no_header_carries_is_refused_without_repeating_it() {
        let config = Config::for_server("http://x").unwrap();
        let error = config.with_token("can\nary").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the token holds a space or another character that no token has"
        );
    }
}
