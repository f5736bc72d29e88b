//! The pods from the kubelet itself, without a watch of pods at the API server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kubecache::http::{Client, Config};
use kubecache::kubelet_pods::KubeletPodsOptions;
use kubecache::list_watch::ListerWatcher;
use kubecache::local_file::read_text;
use kubecache::{Error, ErrorKind};

use crate::pod::Pod;
use crate::{USER_AGENT, flags};

/// Where a kubelet serves, with TLS.
const PORT: u16 = 10250;

/// In a pod: the token of its service account.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// A bundle of authorities is smaller.
const AUTHORITY_BYTES_MAX: u64 = 1024 * 1024;

/// A kubelet answers from memory.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the pods come from, and how the kubelet is reached.
#[derive(Debug, Default)]
pub(crate) struct KubeletOptions {
    pub(crate) is_asked: bool,
    pub(crate) url: Option<String>,
    pub(crate) authority: Option<PathBuf>,
    pub(crate) token_file: Option<PathBuf>,
    /// `None`: the library's own.
    pub(crate) interval: Option<Duration>,
}

impl KubeletOptions {
    /// Takes the value of `--pods-from`.
    pub(crate) fn pods_from(&mut self, word: &str) -> Result<(), String> {
        self.is_asked = match word {
            "kubelet" => true,
            "apiserver" => false,
            _ => {
                return Err(format!("--pods-from {word:?}: write kubelet or apiserver"));
            }
        };
        Ok(())
    }

    /// What does not fit together. `chooses` says whether pods are chosen by namespace or labels.
    pub(crate) fn wrong(&self, chooses: bool, demo: bool) -> Option<&'static str> {
        let says = self.url.is_some()
            || self.authority.is_some()
            || self.token_file.is_some()
            || self.interval.is_some();
        // Without a scheme it would be http.
        let scheme = self.url.as_ref().map(|url| url.split_once("://"));
        let scheme = scheme.map(|parts| parts.unwrap_or_default().0.to_ascii_lowercase());
        match self.is_asked {
            false if says => Some("the --kubelet-… flags need --pods-from kubelet"),
            true if demo => Some("--demo shows recorded pods: leave --pods-from out"),
            true if chooses => Some("a kubelet lists all its pods: leave -n and -l out"),
            true => match scheme.as_deref() {
                None | Some("https") => None,
                Some("http") if self.token_file.is_none() => None,
                Some("http") => Some(
                    "the read-only port of a kubelet takes no token: leave --kubelet-token-file \
                     out",
                ),
                Some(_) => Some("--kubelet-url needs https:// or http:// in front"),
            },
            false => None,
        }
    }

    /// A source of the pods on the node. Reads the authority's file.
    pub(crate) fn source(
        &self,
        node_name: &str,
        request_timeout: Option<Duration>,
    ) -> Result<Arc<dyn ListerWatcher<Pod>>, Error> {
        let url = self.url.clone();
        let url = url.unwrap_or_else(|| format!("https://{node_name}:{PORT}"));
        let mut config = Config::for_server(&url)?.without_proxy();
        if let Some(file) = &self.authority {
            let pem = read_text(file, AUTHORITY_BYTES_MAX).map_err(|error| {
                let text = format!("--kubelet-certificate-authority {error}");
                Error::new(ErrorKind::Config, text)
            })?;
            config = config.with_authorities(pem);
        }
        let own = Path::new(TOKEN);
        let is_tls = config.server_url().starts_with("https:");
        let own = (is_tls && own.exists()).then(|| own.to_owned());
        if let Some(file) = self.token_file.clone().or(own) {
            config = config.with_token_file(file);
        }
        let limit = request_timeout.unwrap_or(REQUEST_TIMEOUT);
        let client = Client::new(&config, flags::client_options(USER_AGENT, Some(limit)))?;
        let polls = KubeletPodsOptions::default();
        let polls = match self.interval {
            Some(interval) => polls.interval(interval),
            None => polls,
        };
        Ok(client.kubelet_pods(polls))
    }
}
