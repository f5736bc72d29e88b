//! kubectl's flags: they choose a kubeconfig and its entries, and replace fields.

use std::path::PathBuf;
use std::time::Duration;

use super::super::super::credentials::{PluginOptions, PluginPolicy};
use crate::error::debug_of;
use crate::http::environment::Environment;
use crate::setters::setters;

/// kubectl's flags: the kubeconfig to read, the entries to choose, and the fields to replace.
///
/// Files are read, merged and resolved as client-go does, with these differences:
///
/// - A context that names a user no file has is an error. client-go sends requests without
///   credentials.
/// - If a field is both inline and a file, the inline one counts, as the API says. client-go
///   refuses that.
/// - `token` also replaces a `tokenFile`, a password and a plugin. With client-go the file wins.
/// - A kubeconfig's credentials are not sent over `http://`, as with client-go. The client logs a
///   warning.
/// - Without a configuration there is an error, not `http://localhost:8080`. `KUBERNETES_MASTER` is
///   not read.
/// - `auth-provider` is refused by name.
///
/// The manual has [all differences](crate::manual::differences).
///
/// # Examples
///
/// ```no_run
/// use kubecache::http::{Config, KubeconfigOptions};
///
/// let config = Config::from_kubeconfig(&KubeconfigOptions::default().context("staging"))?;
/// # drop(config);
/// # Ok::<(), kubecache::Error>(())
/// ```
#[doc(alias = "ConfigOverrides")]
#[derive(Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct KubeconfigOptions {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) context: Option<String>,
    pub(crate) cluster: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) server: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) impersonate_user: Option<String>,
    pub(crate) impersonate_groups: Vec<String>,
    pub(crate) impersonate_uid: Option<String>,
    pub(crate) certificate_authority: Option<PathBuf>,
    pub(crate) client_certificate: Option<PathBuf>,
    pub(crate) client_key: Option<PathBuf>,
    pub(crate) tls_server_name: Option<String>,
    pub(crate) insecure_skip_tls_verify: bool,
    pub(crate) disable_compression: bool,
    pub(crate) plugins: PluginOptions,
    pub(crate) environment: Option<Environment>,
    /// Whether the files are read again, for the user's credentials alone.
    pub(super) is_again: bool,
}

setters! { [] KubeconfigOptions;
    /// Reads variables, home, working directory and the pod's files from this environment. Default:
    /// [`Environment::process`], when the configuration is made.
    environment(environment: Environment) = Some(environment);

    /// Uses this context instead of the current one.
    context(context: impl Into<String>) = Some(context.into());

    /// Uses this cluster instead of the context's.
    cluster(cluster: impl Into<String>) = Some(cluster.into());

    /// Uses this user instead of the context's.
    user(user: impl Into<String>) = Some(user.into());

    /// Uses this namespace instead of the context's.
    namespace(namespace: impl Into<String>) = Some(namespace.into());

    /// Uses the server at this URL. The cluster's `tls-server-name` does not apply to it.
    server(url: impl Into<String>) = Some(url.into());

    /// Sends this bearer token instead of the user's token, password or plugin. A client
    /// certificate stays.
    token(token: impl Into<String>) = Some(token.into());

    /// Sends this name by HTTP basic authentication, instead of the user's name, token or plugin.
    /// It cannot be combined with `token`.
    username(username: impl Into<String>) = Some(username.into());

    /// Sends this password with the name.
    password(password: impl Into<String>) = Some(password.into());

    /// Acts as this user (`--as`) instead of the user's `as`. The user's `as-groups`, `as-uid` and
    /// `as-user-extra` stay.
    impersonate_user(user: impl Into<String>) = Some(user.into());

    /// Acts as this UID (`--as-uid`) instead of the user's `as-uid`.
    impersonate_uid(uid: impl Into<String>) = Some(uid.into());

    /// Trusts the authorities in this file. It also overrides the cluster's
    /// `insecure-skip-tls-verify`.
    certificate_authority(path: impl Into<PathBuf>) = Some(path.into());

    /// Shows the client certificate in this file.
    client_certificate(path: impl Into<PathBuf>) = Some(path.into());

    /// Uses the client key in this file.
    client_key(path: impl Into<PathBuf>) = Some(path.into());

    /// Expects the server's certificate to carry this name.
    tls_server_name(name: impl Into<String>) = Some(name.into());

    /// Sets whether any certificate is trusted. Default: false. If true, the cluster's authority is
    /// not used.
    insecure_skip_tls_verify(insecure_skip_tls_verify: bool);

    /// Sets whether compressed answers are refused. Default: as the cluster says.
    disable_compression(disable_compression: bool);

    /// Sets which credential plugins (`exec`) may run. Default: all.
    ///
    /// A kubeconfig whose user has a plugin that may not run is refused.
    plugin_policy(policy: PluginPolicy) in plugins.policy;

    /// Sets how long a run of a credential plugin may take. Then the client kills the plugin.
    /// Default: a minute, and 15 minutes for a plugin that reads a terminal.
    plugin_timeout(timeout: Duration) in plugins.timeout = Some(timeout);

    /// Sets whether credential plugins may read the program's standard input, if it is a terminal.
    /// Default: true. Set it to false in a program that reads it itself.
    plugin_stdin(plugin_stdin: bool) in plugins.no_stdin = !plugin_stdin;
}

impl KubeconfigOptions {
    /// Reads this file instead of `KUBECONFIG` and `~/.kube/config`; it must exist. Each call adds
    /// a file. The first file that names a cluster, context or user wins.
    pub fn path(mut self, path: impl Into<PathBuf>) -> Self {
        self.paths.push(path.into());
        self
    }

    /// Acts in this group (`--as-group`) instead of the user's `as-groups`. Each call adds a group.
    pub fn impersonate_group(mut self, impersonate_group: impl Into<String>) -> Self {
        self.impersonate_groups.push(impersonate_group.into());
        self
    }
}

debug_of!([] KubeconfigOptions, |it|
    paths: it.paths, context: it.context, cluster: it.cluster, user: it.user,
    server: it.server.as_ref().and_then(|url| url.rsplit('@').next()),
    token: it.token.as_ref().map(|_secret| ".."), username: it.username,
    impersonate_user: it.impersonate_user, ..);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_of_options_shows_no_secret() {
        for url in ["https://u:canary@x.test", "https://u:can@canary@x.test/p"] {
            let options = KubeconfigOptions::default().server(url).token("canary");
            let shown = format!("{:?}", options.password("canary"));
            assert!(
                !shown.contains("can") && shown.contains("x.test"),
                "{shown}"
            );
        }
    }
}
