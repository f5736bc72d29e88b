//! Where a process finds its configuration: kubeconfig files, else the pod's service account.

use super::config::Config;
use super::environment::Environment;
use super::in_cluster;
use super::kubeconfig::{self, KubeconfigOptions};
use crate::error::{Error, ErrorKind};

impl Config {
    /// The configuration this process was given: `KUBECONFIG`, else `~/.kube/config`, else the
    /// pod's service account.
    ///
    /// Blocks for reads of local files.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotConfigured`], naming each place looked at; `Config`, naming file and field,
    /// when a place holds a configuration that cannot work.
    pub fn infer() -> Result<Self, Error> {
        Self::infer_with(&KubeconfigOptions::default())
    }

    /// As [`infer`](Self::infer), with kubectl's options; a path among them is the only place
    /// looked at.
    ///
    /// In a pod, of the options those apply that say who asks (all but the client certificate),
    /// `namespace`, `certificate_authority` and `disable_compression`. With `server` the service
    /// account is not used: its token is for its own server alone.
    ///
    /// # Errors
    ///
    /// As [`infer`](Self::infer).
    pub fn infer_with(options: &KubeconfigOptions) -> Result<Self, Error> {
        Self::infer_from(options, &Environment::process())
    }

    /// The configuration of a pod: the service's address out of the environment, the files of its
    /// service account.
    ///
    /// Blocks for reads of local files. The token is read again as it rotates.
    ///
    /// # Errors
    ///
    /// `NotConfigured`, naming the variable or file that is missing, or `Config`.
    pub fn in_cluster() -> Result<Self, Error> {
        let found = in_cluster::load(&KubeconfigOptions::default(), &Environment::process())?;
        found.map_err(|absent| not_configured("not in a cluster", &absent))
    }

    pub(crate) fn infer_from(
        options: &KubeconfigOptions,
        environment: &Environment,
    ) -> Result<Self, Error> {
        let missing = match kubeconfig::load(options, environment)? {
            Ok(config) => return Ok(config),
            Err(missing) => missing,
        };
        in_cluster::load(options, environment)?.map_err(|absent| {
            let looked_for = format!("{missing}; {absent}");
            not_configured("no cluster is configured; looked for", &looked_for)
        })
    }
}

fn not_configured(what: &str, missing: &str) -> Error {
    Error::new(ErrorKind::NotConfigured, format!("{what}: {missing}"))
}
