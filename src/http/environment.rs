//! The environment that a configuration is read from: variables, directories, the pod's files.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::error::debug_of;
use crate::local_file::read_secret_text;

/// The name of a namespace has at most 63 bytes, and the file may end in a line break.
const NAMESPACE_BYTES_MAX: u64 = 1024;

/// The directory of a pod with the token, certificate authority and namespace of its service
/// account.
const SERVICE_ACCOUNT_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The environment that a configuration is read from: the process's, or one that the program makes.
///
/// These variables count:
///
/// - `KUBECONFIG`, and `HOME` with its `.kube/config`;
/// - `KUBERNETES_SERVICE_HOST`, `KUBERNETES_SERVICE_PORT` and `POD_NAMESPACE` in a pod;
/// - the proxies of [`Config::with_proxy`](super::Config::with_proxy);
/// - `SSL_CERT_FILE` and `SSL_CERT_DIR`, where no certificate authority is configured;
/// - `PATH`, to find the command of a credential plugin. The plugin gets all variables.
///
/// A variable that is empty counts as not set. The [`default`](Self::default) has no variables and
/// no working directory, and the usual directory of the service account. `Debug` shows no value.
///
/// # Examples
///
/// ```
/// use kubecache::http::{Config, Environment, KubeconfigOptions};
/// # let home = std::env::temp_dir().join(format!("kubecache-home-{}", std::process::id()));
/// # std::fs::create_dir_all(home.join(".kube"))?;
/// # let text = "current-context: a
/// # contexts: [{name: a, context: {cluster: c}}]
/// # clusters: [{name: c, cluster: {server: http://shop.example:80}}]".replace("\n# ", "\n");
/// # std::fs::write(home.join(".kube/config"), text)?;
///
/// let environment = Environment::default()
///     .home(&home) // a directory with .kube/config
///     .variable("HTTP_PROXY", "http://proxy.example:3128");
/// let config = Config::from_kubeconfig(&KubeconfigOptions::default().environment(environment))?;
/// assert_eq!(config.server_url(), "http://shop.example:80");
/// # std::fs::remove_dir_all(home)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[must_use]
pub struct Environment {
    variables: HashMap<OsString, OsString>,
    /// Empty, if relative paths are left to the system.
    working_directory: PathBuf,
    /// Whether the program named the working directory, so that it must be there.
    is_named: bool,
    /// The directory with a pod's token, certificate authority and namespace.
    service_account: PathBuf,
}

impl Environment {
    /// Returns the environment of this process as it is now.
    ///
    /// No other function of this crate reads the variables or the working directory of the process.
    pub fn process() -> Self {
        Self {
            variables: std::env::vars_os().collect(),
            working_directory: std::env::current_dir().unwrap_or_default(),
            ..Self::default()
        }
    }

    /// Sets a variable. An empty value counts as not set.
    pub fn variable(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// Sets the home directory: the variable `HOME`.
    pub fn home(self, path: impl Into<PathBuf>) -> Self {
        self.variable("HOME", path.into())
    }

    /// Sets the directory that relative paths start from, and in which plugins run. Relative paths
    /// come from options, from variables and from [`service_account`](Self::service_account).
    /// Default: none, which leaves relative paths to the system. Plugins do not run if the path is
    /// no directory.
    pub fn working_directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.working_directory = path.into();
        self.is_named = true;
        self
    }

    /// Sets the directory of a pod's service account, with `token`, `ca.crt` and `namespace`.
    /// Default: `/var/run/secrets/kubernetes.io/serviceaccount`.
    pub fn service_account(mut self, path: impl Into<PathBuf>) -> Self {
        self.service_account = path.into();
        self
    }

    /// All variables.
    pub(crate) fn variables(&self) -> &HashMap<OsString, OsString> {
        &self.variables
    }

    /// Returns the working directory, in which a plugin runs; `None` leaves it to the system, as
    /// when the directory of this process was removed meanwhile.
    ///
    /// # Errors
    ///
    /// The working directory that the program named is no directory.
    pub(crate) fn directory(&self) -> Result<Option<&Path>, String> {
        let path = self.working_directory.as_path();
        if self.is_named && !path.as_os_str().is_empty() && !path.is_dir() {
            return Err(format!(
                "cannot be run: the working directory {} is no directory: make it, or name \
                 another by Environment::working_directory",
                path.display()
            ));
        }
        Ok(Some(path).filter(|path| path.is_dir()))
    }

    /// Returns `path`, which starts from the working directory if it is relative.
    pub(crate) fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.working_directory.join(path)
    }

    /// The directory with a pod's token, certificate authority and namespace.
    pub(super) fn pod_directory(&self) -> PathBuf {
        self.at(&self.service_account)
    }

    /// Returns the value of a variable; `None` if it is not set or empty.
    pub(crate) fn var(&self, name: &str) -> Option<&OsStr> {
        let value = self.variables.get(OsStr::new(name))?;
        (!value.is_empty()).then_some(value)
    }

    /// Returns a variable as text. Bytes that are not UTF-8 are replaced, and fail where the text
    /// is used.
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
        let token = self.pod_directory().join("token");
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
        let path = self.pod_directory().join("namespace");
        match read_secret_text(&path, NAMESPACE_BYTES_MAX) {
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

impl Default for Environment {
    fn default() -> Self {
        Self {
            variables: HashMap::new(),
            working_directory: PathBuf::new(),
            is_named: false,
            service_account: PathBuf::from(SERVICE_ACCOUNT_DIR),
        }
    }
}

debug_of!([] Environment, |it|
    working_directory: it.working_directory, service_account: it.service_account, ..);

#[cfg(test)]
mod tests {
    use super::*;

    impl Environment {
        /// An environment of these variables alone, without a service account.
        pub(crate) fn from_pairs<N: Into<OsString>, V: Into<OsString>>(
            pairs: impl IntoIterator<Item = (N, V)>,
        ) -> Self {
            let none = Self::default().service_account("/nonexistent/serviceaccount");
            let pairs = pairs.into_iter();
            pairs.fold(none, |environment, (name, value)| {
                environment.variable(name, value)
            })
        }
    }

    #[test]
    fn an_empty_variable_counts_as_not_set() {
        let environment = Environment::from_pairs([("KUBECONFIG", "")]);
        assert_eq!(environment.var("KUBECONFIG"), None);
    }
}
