//! The environment variables and the service account's directory that a configuration is read from.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::local_file::read_text;

/// The name of a namespace has at most 63 bytes, and the file may end in a line break.
const NAMESPACE_BYTES_MAX: u64 = 1024;

/// Where a pod finds its service account's token, certificate authority and namespace.
const SERVICE_ACCOUNT_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Environment variables and the service account's directory, of the process or of a test. The
/// default has none.
#[derive(Default)]
pub(crate) struct Environment {
    variables: HashMap<OsString, OsString>,
    /// The directory with a pod's token, certificate authority and namespace.
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

    /// Returns the value of a variable; `None` if it is not set or empty.
    pub(crate) fn var(&self, name: &str) -> Option<&OsStr> {
        let value = self.variables.get(OsStr::new(name))?;
        (!value.is_empty()).then_some(value)
    }

    /// Returns a variable as text. Replaced bytes that are not UTF-8 fail where the text is used.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.var(name)
            .map(|value| value.to_string_lossy().into_owned())
    }

    /// Returns host and port of the API's service. The error says which variable or file is
    /// missing.
    pub(super) fn service(&self) -> Result<[String; 2], String> {
        let var = |name: &str| {
            let value = self.text(name);
            value.ok_or_else(|| format!("{name} (not set, so this is no pod)"))
        };
        let service = [
            var("KUBERNETES_SERVICE_HOST")?,
            var("KUBERNETES_SERVICE_PORT")?,
        ];
        let token = self.service_account.join("token");
        if token.is_file() {
            Ok(service)
        } else {
            Err(format!("{} (no such file)", token.display()))
        }
    }

    /// Returns the namespace of the pod that the process runs in; `None` outside of pods. Blocks
    /// for the read of a local file.
    ///
    /// As in client-go, a file that cannot be read counts as missing, but a warning names it.
    pub(super) fn pod_namespace(&self) -> Option<String> {
        self.service().ok()?;
        if let Some(namespace) = self.text("POD_NAMESPACE") {
            return Some(namespace);
        }
        let path = self.service_account.join("namespace");
        match read_text(&path, NAMESPACE_BYTES_MAX) {
            Ok(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
            Err(why) => {
                log::warn!(
                    "{}: {why}: the pod's namespace is not known",
                    path.display()
                );
                None
            }
        }
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
        let environment = Environment::from_pairs([("KUBECONFIG", "")]);
        assert_eq!(environment.var("KUBECONFIG"), None);
    }
}
