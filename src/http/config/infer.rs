//! Where a process finds its configuration: kubeconfig files, else the pod's service account.

use super::config::Config;
use super::environment::Environment;
use super::in_cluster;
use super::kubeconfig::{self, KubeconfigOptions};
use crate::error::{Error, ErrorKind};

impl Config {
    /// Finds the configuration of this process.
    ///
    /// It reads `KUBECONFIG`, else `~/.kube/config`, else the pod's service account. Blocks for
    /// reads of local files.
    ///
    /// # Errors
    ///
    /// [`NotConfigured`](ErrorKind::NotConfigured) names each place where the method looked.
    /// [`Config`](ErrorKind::Config) names file and field of a configuration that cannot work.
    pub fn infer() -> Result<Self, Error> {
        Self::infer_with(&KubeconfigOptions::default())
    }

    /// Finds the configuration as [`infer`](Self::infer) does, with kubectl's options.
    ///
    /// If the options have a path, the method looks nowhere else. In a pod these options apply:
    /// tokens, passwords and impersonation, `namespace`, `certificate_authority` and
    /// `disable_compression`. With `server` the service account is not used, because its token is
    /// for its own server alone.
    ///
    /// # Errors
    ///
    /// As [`infer`](Self::infer).
    pub fn infer_with(options: &KubeconfigOptions) -> Result<Self, Error> {
        Self::infer_from(options, &Environment::process())
    }

    /// Reads the configuration of a pod from its environment and the files of its service account.
    ///
    /// Blocks for reads of local files. The client reads the token again as it rotates.
    ///
    /// # Errors
    ///
    /// [`NotConfigured`](ErrorKind::NotConfigured) names the variable or file that is missing.
    /// [`Config`](ErrorKind::Config) names what cannot work.
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
