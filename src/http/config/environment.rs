//! The surroundings a configuration is read from: environment variables and the service account's directory.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

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
pub(crate) struct Environment {
    variables: HashMap<OsString, OsString>,
    /// Where a pod's token, certificate authority and namespace are.
    pub(crate) service_account: PathBuf,
}

impl Environment {
    /// The environment of this process.
    pub(crate) fn process() -> Self {
        Self {
            variables: std::env::vars_os().collect(),
            service_account: PathBuf::from(SERVICE_ACCOUNT_DIR),
        }
    }

    /// The value of a variable; `None` when it is not set or empty, which mean the same here.
    pub(crate) fn var(&self, name: &str) -> Option<&OsStr> {
        let value = self.variables.get(OsStr::new(name))?;
        (!value.is_empty()).then_some(value)
    }

    /// What to say, once, of the proxy variables that are set; `None` when none is.
    pub(crate) fn proxy_warning(&self) -> Option<String> {
        let is_set = |name: &&str| self.var(name).is_some();
        let set: Vec<_> = PROXY_VARIABLES.into_iter().filter(is_set).collect();
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
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Environment {
        /// An environment of these variables alone, where no service account is.
        pub(crate) fn from_pairs<N: Into<OsString>, V: Into<OsString>>(
            pairs: impl IntoIterator<Item = (N, V)>,
        ) -> Self {
            let pairs = pairs.into_iter();
            Self {
                variables: pairs
                    .map(|(name, value)| (name.into(), value.into()))
                    .collect(),
                service_account: PathBuf::from("/nonexistent/serviceaccount"),
            }
        }
    }

    #[test]
    fn an_empty_variable_counts_as_not_set() {
        let environment = Environment::from_pairs([("KUBECONFIG", ""), ("all_proxy", "socks://p")]);
        assert_eq!(environment.var("KUBECONFIG"), None);
        assert_eq!(
            environment.proxy_warning().as_deref(),
            Some("all_proxy set in the environment and ignored: proxies are not supported yet")
        );
    }
}
