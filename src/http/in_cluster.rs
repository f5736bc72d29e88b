//! The configuration of a pod: the service's address out of the environment, the files of its service account.

use std::path::PathBuf;

use super::config::Config;
use super::credentials::Credentials;
use super::environment::Environment;
use super::kubeconfig::{self, KubeconfigOptions};
use super::pem::{Pem, read_bounded};
use super::server::Server;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};

/// A namespace's name has at most 63 bytes; the file may end in a line break.
const NAMESPACE_BYTES_MAX: u64 = 1024;

/// What makes a process one that runs in a pod.
#[derive(Debug)]
pub(super) struct ServiceAccount {
    host: String,
    port: String,
    directory: PathBuf,
}

/// Looks for variables and token; the text says what is missing.
pub(super) fn find(environment: &Environment) -> Result<ServiceAccount, String> {
    let var = |name: &str| {
        environment
            .text(name)
            .ok_or_else(|| format!("{name} (not set, so this is no pod)"))
    };
    let host = var("KUBERNETES_SERVICE_HOST")?;
    let port = var("KUBERNETES_SERVICE_PORT")?;
    let directory = environment.service_account().to_owned();
    let token = directory.join("token");
    if !token.is_file() {
        return Err(format!("{} (no such file)", token.display()));
    }
    Ok(ServiceAccount {
        host,
        port,
        directory,
    })
}

impl ServiceAccount {
    /// The configuration, with those of kubectl's options that client-go applies in a pod, and those that say who asks:
    /// to pass over them would be to act as somebody else.
    pub(super) fn config(
        &self,
        options: &KubeconfigOptions,
        environment: &Environment,
    ) -> Result<Config, Error> {
        let mut config = Config::new(self.server()?);
        config.source = format!("service account in {}", self.directory.display());
        config.credentials =
            Credentials::token_file(self.directory.join("token"), &Clock::system());
        kubeconfig::apply(options, &mut config)?;
        config.tls.authorities = Some(match &options.certificate_authority {
            Some(path) => Pem::file(path, "--certificate-authority"),
            None => Pem::file(self.directory.join("ca.crt"), "service account"),
        });
        // Fails now rather than at the first handshake, as a kubeconfig that names a missing file does.
        if let Some(authorities) = &config.tls.authorities {
            authorities.read()?;
        }
        config.namespace = self.namespace(options, environment)?;
        Ok(config)
    }

    fn server(&self) -> Result<Server, Error> {
        let host = if self.host.contains(':') && !self.host.starts_with('[') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        Server::parse(&format!("https://{host}:{}", self.port), true).map_err(|why| {
            Error::new(
                ErrorKind::Config,
                format!(
                    "KUBERNETES_SERVICE_HOST {:?} and KUBERNETES_SERVICE_PORT {:?} make no server: {why}",
                    self.host, self.port
                ),
            )
        })
    }

    fn namespace(
        &self,
        options: &KubeconfigOptions,
        environment: &Environment,
    ) -> Result<String, Error> {
        if let Some(namespace) = &options.namespace {
            return Ok(namespace.clone());
        }
        if let Some(namespace) = environment.text("POD_NAMESPACE") {
            return Ok(namespace);
        }
        let path = self.directory.join("namespace");
        if !path.is_file() {
            return Ok("default".to_owned());
        }
        let told = |why: &str| Error::new(ErrorKind::Config, format!("{}: {why}", path.display()));
        let bytes = read_bounded(&path, NAMESPACE_BYTES_MAX).map_err(|why| told(&why))?;
        let text = std::str::from_utf8(&bytes)
            .map_err(|_position| told("holds bytes that are not text"))?
            .trim();
        Ok(if text.is_empty() { "default" } else { text }.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pod(PathBuf);

    impl Pod {
        fn new(name: &str) -> Self {
            let pid = std::process::id();
            let directory = std::env::temp_dir().join(format!("kubecache-pod-{name}-{pid}"));
            std::fs::create_dir_all(&directory).unwrap();
            let pod = Self(directory);
            pod.write("token", "pod-token\n");
            pod.write("ca.crt", "the cluster's");
            pod.write("namespace", "shop\n");
            pod
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.0.join(name), text).unwrap();
        }

        fn environment(&self, host: &str, more: &[(&str, &str)]) -> Environment {
            let service = [
                ("KUBERNETES_SERVICE_HOST", host),
                ("KUBERNETES_SERVICE_PORT", "443"),
                ("HOME", "/nonexistent"),
            ];
            let pairs = service.into_iter().chain(more.iter().copied());
            Environment::from_pairs(pairs).with_service_account_dir(&self.0)
        }
    }

    impl Drop for Pod {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    fn header(config: &Config) -> String {
        let header = config.credentials.authorization_at_start().unwrap();
        header.unwrap().as_str().to_owned()
    }

    #[test]
    fn a_pod_finds_its_server_its_token_and_its_namespace() {
        let pod = Pod::new("finds");
        let environment = pod.environment("10.96.0.1", &[]);
        let config = Config::infer_with(&KubeconfigOptions::default(), &environment).unwrap();
        assert_eq!(config.server_url(), "https://10.96.0.1:443");
        assert_eq!(config.namespace(), "shop");
        assert_eq!(header(&config), "Bearer pod-token");
        let authorities = config.tls.authorities.as_ref().unwrap().read().unwrap();
        assert_eq!(authorities.as_slice(), b"the cluster's");
    }

    #[test]
    fn addresses_get_their_brackets_and_the_variable_wins_over_the_file() {
        let pod = Pod::new("brackets");
        for host in ["fd00:10:96::1", "[fd00:10:96::1]"] {
            let environment = pod.environment(host, &[("POD_NAMESPACE", "cellar")]);
            let config = Config::in_cluster(&environment).unwrap();
            assert_eq!(config.server_url(), "https://[fd00:10:96::1]:443");
            assert_eq!(config.namespace(), "cellar");
        }
        std::fs::remove_file(pod.0.join("namespace")).unwrap();
        let config = Config::in_cluster(&pod.environment("a.b", &[])).unwrap();
        assert_eq!(config.namespace(), "default");
    }

    #[test]
    fn of_the_options_token_authority_and_namespace_apply() {
        let pod = Pod::new("options");
        let options = KubeconfigOptions {
            token: Some("given".to_owned()),
            certificate_authority: Some(pod.0.join("namespace")),
            namespace: Some("attic".to_owned()),
            impersonate_user: Some("jane".to_owned()),
            disable_compression: true,
            ..KubeconfigOptions::default()
        };
        let config = Config::infer_with(&options, &pod.environment("10.96.0.1", &[])).unwrap();
        assert_eq!(header(&config), "Bearer given");
        assert_eq!(config.namespace(), "attic");
        let acting = [("Impersonate-User".to_owned(), "jane".to_owned())];
        assert_eq!(config.headers, acting);
        assert!(!config.compression);
        let authorities = config.tls.authorities.as_ref().unwrap().read().unwrap();
        assert_eq!(authorities.as_slice(), b"shop\n");
    }

    /// The token is for the server that the pod was given it for.
    #[test]
    fn a_server_that_is_named_is_not_shown_the_pods_token() {
        let pod = Pod::new("elsewhere");
        for server in ["https://elsewhere.test", "http://elsewhere.test"] {
            let options = KubeconfigOptions {
                server: Some(server.to_owned()),
                ..KubeconfigOptions::default()
            };
            let config = Config::infer_with(&options, &pod.environment("10.96.0.1", &[])).unwrap();
            assert!(config.server_url().starts_with(server));
            assert!(
                config
                    .credentials
                    .authorization_at_start()
                    .unwrap()
                    .is_none()
            );
            assert_eq!(config.namespace(), "default");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let pod = Pod::new("missing");
        let told = |environment: &Environment| {
            let error = Config::in_cluster(environment).unwrap_err();
            error.to_string().replace(pod.0.to_str().unwrap(), "DIR")
        };
        assert_eq!(
            told(&Environment::from_pairs([("HOME", "/")])),
            "not in a cluster: KUBERNETES_SERVICE_HOST (not set, so this is no pod)"
        );
        assert_eq!(
            told(&pod.environment("a b", &[])),
            "KUBERNETES_SERVICE_HOST \"a b\" and KUBERNETES_SERVICE_PORT \"443\" make no server: \
             it holds a space or a character that is not ASCII"
        );
        std::fs::remove_file(pod.0.join("ca.crt")).unwrap();
        assert_eq!(
            told(&pod.environment("10.96.0.1", &[])),
            "service account: DIR/ca.crt: no such file"
        );
        std::fs::remove_file(pod.0.join("token")).unwrap();
        assert_eq!(
            told(&pod.environment("10.96.0.1", &[])),
            "not in a cluster: DIR/token (no such file)"
        );
    }
}
