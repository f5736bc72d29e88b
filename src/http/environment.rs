//! The surroundings a configuration is read from: environment variables and the service account's directory.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where a pod finds its service account's token, certificate authority and namespace.
const SERVICE_ACCOUNT_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The variables by which other programs choose a proxy; this client ignores them.
const PROXY_VARIABLES: [&str; 6] = [
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "ALL_PROXY",
    "all_proxy",
];

/// Environment variables and the service account's directory, the process's own or a test's.
///
/// # Examples
///
/// ```
/// use kubecache::http::{Config, Environment};
///
/// let nothing = Environment::from_pairs([("HOME", "/nowhere")]);
/// let error = Config::infer_with(&Default::default(), &nothing).unwrap_err();
/// assert!(error.to_string().contains("/nowhere/.kube/config"));
/// ```
#[derive(Clone)]
pub struct Environment {
    /// `None`: the process's own.
    variables: Option<BTreeMap<String, OsString>>,
    service_account: PathBuf,
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values of environment variables are often secret.
        let names = self.variables.as_ref().map(BTreeMap::keys);
        f.debug_struct("Environment")
            .field("variables", &names)
            .field("service_account", &self.service_account)
            .finish()
    }
}

impl Environment {
    /// The environment of this process.
    pub fn process() -> Self {
        Self {
            variables: None,
            service_account: PathBuf::from(SERVICE_ACCOUNT_DIR),
        }
    }

    /// An environment of these variables alone, for tests; the service account's directory does not exist in it.
    pub fn from_pairs<N: Into<String>, V: Into<OsString>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let pairs = pairs
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()));
        Self {
            variables: Some(pairs.collect()),
            service_account: PathBuf::from("/nonexistent/serviceaccount"),
        }
    }

    /// Reads the service account's files in another directory.
    #[must_use]
    pub fn with_service_account_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.service_account = directory.into();
        self
    }

    /// The value of a variable; `None` when it is not set or empty, which mean the same here.
    pub fn var(&self, name: &str) -> Option<OsString> {
        let value = match &self.variables {
            None => std::env::var_os(name),
            Some(variables) => variables.get(name).cloned(),
        };
        value.filter(|value| !value.is_empty())
    }

    /// Which proxy variables are set: they are ignored, and the client says so once.
    pub fn proxy_variables(&self) -> Vec<&'static str> {
        PROXY_VARIABLES
            .into_iter()
            .filter(|name| self.var(name).is_some())
            .collect()
    }

    /// What to say, once, of the proxy variables that are set; `None` when none is.
    pub(crate) fn proxy_warning(&self) -> Option<String> {
        let set = self.proxy_variables();
        (!set.is_empty()).then(|| {
            format!(
                "{} set in the environment and ignored: proxies are not supported yet",
                set.join(", ")
            )
        })
    }

    /// A variable as text; bytes that are not UTF-8 are replaced and then fail where they are used.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.var(name)
            .map(|value| value.to_string_lossy().into_owned())
    }

    pub(crate) fn service_account(&self) -> &Path {
        &self.service_account
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_counts_as_not_set() {
        let environment = Environment::from_pairs([("KUBECONFIG", ""), ("all_proxy", "socks://p")]);
        assert_eq!(environment.var("KUBECONFIG"), None);
        assert_eq!(environment.proxy_variables(), ["all_proxy"]);
        assert_eq!(
            environment.proxy_warning().as_deref(),
            Some("all_proxy set in the environment and ignored: proxies are not supported yet")
        );
    }

    #[test]
    fn debug_shows_names_and_no_values() {
        let environment = Environment::from_pairs([("TOKEN", "canary")]);
        assert!(!format!("{environment:?}").contains("canary"));
    }
}
