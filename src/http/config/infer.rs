//! Finds the configuration of a process: kubeconfig files, else the pod's service account.

use super::super::environment::Environment;
use super::config::Config;
use super::in_cluster;
use super::kubeconfig::{self, KubeconfigOptions};
use crate::error::{Error, ErrorKind};

impl Config {
    /// Finds the configuration of this process.
    ///
    /// It reads `KUBECONFIG`, else `~/.kube/config`, else the pod's service account. Blocks for
    /// reads of local files. A client reads a kubeconfig again once the server rejects the token,
    /// password or client certificate of its user.
    ///
    /// # Errors
    ///
    /// [`NotConfigured`](ErrorKind::NotConfigured) names each place where the method looked.
    /// [`Config`](ErrorKind::Config), if the configuration cannot work, names the file and the
    /// field.
    pub fn infer() -> Result<Self, Error> {
        Self::from_kubeconfig(&KubeconfigOptions::default())
    }

    /// Reads the kubeconfig that kubectl's options name, else what [`infer`](Self::infer) finds.
    ///
    /// If the options have a path, the method looks nowhere else. Without a kubeconfig it reads the
    /// pod's service account. In a pod these options apply: tokens, passwords and impersonation,
    /// `namespace`, `certificate_authority` and `disable_compression`. With `server` the method
    /// ignores the service account, because its token is only for its own server.
    /// [`KubeconfigOptions::environment`] replaces the environment of the process.
    ///
    /// # Errors
    ///
    /// As [`infer`](Self::infer).
    pub fn from_kubeconfig(options: &KubeconfigOptions) -> Result<Self, Error> {
        let environment = options.environment.clone();
        Self::infer_from(options, &environment.unwrap_or_else(Environment::process))
    }

    /// Reads the configuration of a pod from its environment and the files of its service account.
    ///
    /// Blocks for reads of local files. The client reads the token again as it rotates.
    ///
    /// # Errors
    ///
    /// [`NotConfigured`](ErrorKind::NotConfigured) names the variable or file that is missing.
    /// [`Config`](ErrorKind::Config) names the one that cannot work.
    pub fn in_cluster() -> Result<Self, Error> {
        Self::in_cluster_of(&Environment::process())
    }

    /// Reads the configuration of a pod as [`in_cluster`](Self::in_cluster) does, from a given
    /// environment.
    ///
    /// # Errors
    ///
    /// As [`in_cluster`](Self::in_cluster).
    pub fn in_cluster_of(environment: &Environment) -> Result<Self, Error> {
        let found = in_cluster::load(&KubeconfigOptions::default(), environment)?;
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::ServerUrl;
    use super::*;
    use crate::tests::temp_directory::TempDirectory;

    const KUBECONFIG: &str = "\
        current-context: a\n\
        contexts: [{name: a, context: {cluster: c, user: u}}]\n\
        clusters: [{name: c, cluster: {server: https://a.test, certificate-authority: ca.pem}}]\n\
        users: [{name: u, user: {exec: {command: sh, interactiveMode: Never, args: [-c, PRINT], \
        apiVersion: client.authentication.k8s.io/v1}}}]\n";

    /// A plugin whose token shows its variables and its working directory.
    const PRINT: &str = "'printf \"{\\\"apiVersion\\\":\\\"client.authentication.k8s.io/v1\\\",\
        \\\"kind\\\":\\\"ExecCredential\\\",\\\"status\\\":{\\\"token\\\":\
        \\\"$MINE-${CARGO_MANIFEST_DIR-none}-$(pwd)\\\"}}\"'";

    fn write(bed: &Path, name: &str, text: &str) {
        let path = bed.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn token(config: &Config) -> String {
        let header = config.credentials.authorization_at_start().unwrap();
        header.unwrap().as_str().to_owned()
    }

    /// Each relative path starts from the given working directory, and the plugin gets the given
    /// variables alone.
    #[test]
    fn a_given_environment_takes_the_place_of_the_process() {
        let bed = TempDirectory::new("given-environment");
        let text = KUBECONFIG.replace("PRINT", PRINT);
        let authority = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/certs/authority.pem");
        for folder in ["cfg", ".kube", "."] {
            write(&bed, &format!("{folder}/config"), &text);
            fs::copy(authority, bed.join(folder).join("ca.pem")).unwrap();
        }
        let environment = Environment::default()
            .variable("PATH", "/usr/bin:/bin")
            .variable("MINE", "given")
            .variable("HTTPS_PROXY", "http://proxy.test:3128")
            .working_directory(&*bed);
        let options = KubeconfigOptions::default().environment(environment.clone());
        let ways = [
            options.clone().path("config"),
            options
                .clone()
                .path("config")
                .certificate_authority("ca.pem"),
            KubeconfigOptions::default().environment(
                environment
                    .clone()
                    .variable("KUBECONFIG", "none:cfg/config"),
            ),
            KubeconfigOptions::default().environment(environment.clone().home(".")),
        ];
        let here = fs::canonicalize(&*bed).unwrap();
        for options in ways {
            let config = Config::from_kubeconfig(&options).unwrap();
            assert_eq!(
                token(&config),
                format!("Bearer given-none-{}", here.display())
            );
            let (proxy, _) = config.environment.proxy(&config.server).unwrap().unwrap();
            assert_eq!(proxy.to_string(), "http://proxy.test:3128");
        }
        let error = Config::from_kubeconfig(&options.path("missing")).unwrap_err();
        let expected = format!("kubeconfig {}: no such file", bed.join("missing").display());
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_pod_is_found_in_a_given_environment() {
        let bed = TempDirectory::new("given-pod");
        write(&bed, "pod/token", "made-up");
        write(&bed, "pod/namespace", "shop");
        let environment = Environment::default()
            .variable("KUBERNETES_SERVICE_HOST", "10.96.0.1")
            .variable("KUBERNETES_SERVICE_PORT", "443")
            .working_directory(&*bed)
            .service_account("pod");
        let config = Config::in_cluster_of(&environment).unwrap();
        assert_eq!(
            (token(&config).as_str(), config.namespace()),
            ("Bearer made-up", "shop")
        );
        let outside = Config::in_cluster_of(&Environment::default()).unwrap_err();
        assert_eq!(outside.kind(), ErrorKind::NotConfigured);
    }

    #[test]
    fn a_configuration_of_a_program_takes_a_given_environment_too() {
        let environment = Environment::default().variable("HTTP_PROXY", "http://canary.test:1");
        assert!(!format!("{environment:?}").contains("canary"));
        let config = Config::for_server("http://a.test")
            .unwrap()
            .with_environment(environment);
        let server = ServerUrl::parse("http://a.test", false).unwrap();
        let (proxy, variable) = config.environment.proxy(&server).unwrap().unwrap();
        assert_eq!(
            (proxy.to_string().as_str(), variable),
            ("http://canary.test:1", "HTTP_PROXY")
        );
    }
}
