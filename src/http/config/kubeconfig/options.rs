//! kubectl's flags that choose a kubeconfig, what to take of it, and what to put in its place.

use std::fmt;
use std::path::PathBuf;

/// Which kubeconfig to read, what to choose in it, and what to put in its place: kubectl's flags of the same names.
///
/// Files are read, merged and resolved as client-go does, with these differences, each of which says more or guesses
/// less:
///
/// - a context that names a user no file has is an error (client-go asks as nobody);
/// - where a field stands inline and as a file, the inline one is taken, as the API says (client-go refuses);
/// - `token` also puts a `tokenFile`, a password and a plugin aside (with client-go the file wins);
/// - over `http://` a kubeconfig's credentials are not sent, as with client-go, and a warning says so;
/// - without a configuration there is an error, not `http://localhost:8080`; `KUBERNETES_MASTER` is not read;
/// - `exec`, `auth-provider` and `proxy-url` are refused by name, YAML merge keys (`<<`) with a line.
///
/// # Examples
///
/// ```no_run
/// use kubecache::http::{Config, KubeconfigOptions};
///
/// let mut options = KubeconfigOptions::default();
/// options.context = Some("staging".to_owned());
/// let config = Config::infer_with(&options)?;
/// # Ok::<(), kubecache::Error>(())
/// ```
#[doc(alias = "ConfigOverrides")]
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct KubeconfigOptions {
    /// Files to read instead of `KUBECONFIG` and `~/.kube/config`; each of them must exist.
    pub paths: Vec<PathBuf>,
    /// The context to use instead of the current one.
    pub context: Option<String>,
    /// The cluster to use instead of the context's.
    pub cluster: Option<String>,
    /// The user to use instead of the context's.
    pub user: Option<String>,
    /// The namespace to use instead of the context's.
    pub namespace: Option<String>,
    /// The server's URL; the cluster's `tls-server-name` does not apply to it.
    pub server: Option<String>,
    /// A bearer token instead of the user's token, password or plugin; a client certificate stays.
    pub token: Option<String>,
    /// The name for HTTP basic authentication, instead of the user's name, token or plugin; not beside `token`.
    pub username: Option<String>,
    /// The password that goes with the name.
    pub password: Option<String>,
    /// Whom to act as (`--as`) instead of the user's `as`; its `as-groups`, `as-uid` and `as-user-extra` stay.
    pub impersonate_user: Option<String>,
    /// The groups to act in (`--as-group`), if any, instead of the user's `as-groups`.
    pub impersonate_groups: Vec<String>,
    /// The UID to act as (`--as-uid`) instead of the user's `as-uid`.
    pub impersonate_uid: Option<String>,
    /// A file of authorities to trust; it also ends the cluster's `insecure-skip-tls-verify`.
    pub certificate_authority: Option<PathBuf>,
    /// The client certificate's file.
    pub client_certificate: Option<PathBuf>,
    /// The client key's file.
    pub client_key: Option<PathBuf>,
    /// The name the server's certificate must carry.
    pub tls_server_name: Option<String>,
    /// Trust any certificate: the cluster's authority is put aside.
    pub insecure_skip_tls_verify: bool,
    /// Ask for no compressed answers, whatever the cluster says.
    pub disable_compression: bool,
}

impl fmt::Debug for KubeconfigOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeconfigOptions")
            .field("paths", &self.paths)
            .field("context", &self.context)
            .field("cluster", &self.cluster)
            .field("user", &self.user)
            .field("token", &self.token.as_ref().map(|_secret| ".."))
            .field("username", &self.username)
            .field("impersonate_user", &self.impersonate_user)
            .finish_non_exhaustive()
    }
}
