//! The configuration of a pod, from its environment and the files of its service account.

use std::path::Path;

use super::super::certificates::pem::Pem;
use super::super::credentials::Credentials;
use super::super::environment::Environment;
use super::config::Config;
use super::kubeconfig::{self, KubeconfigOptions};
use super::server_url::ServerUrl;
use crate::clock::Clock;
use crate::error::Error;
use crate::yaml::Section;

/// Reads the configuration of the pod. The inner error says what is missing, if there is no pod.
///
/// Applies the options of kubectl that client-go applies in a pod. Applies those for credentials
/// and impersonation too, because the program would act as another user without them.
pub(super) fn load(
    options: &KubeconfigOptions,
    environment: &Environment,
) -> Result<Result<Config, String>, Error> {
    let [host, port] = match environment.service() {
        Ok(service) => service,
        Err(missing) => return Ok(Err(missing)),
    };
    let directory = &environment.pod_directory();
    let mut config = Config::new(server(&host, &port)?, environment);
    config.source = format!("service account in {}", directory.display());
    let no_user = Section::default();
    config.credentials = match kubeconfig::credentials(&no_user, options)? {
        Credentials::None => {
            Credentials::token_file(directory.join("token"), None, &Clock::system())
        }
        given @ (Credentials::Fixed(_) | Credentials::Renewed(_) | Credentials::Withheld) => given,
    };
    config.tls.authorities = match &options.certificate_authority {
        Some(path) => Some(Pem::file(environment.at(path), "--certificate-authority")),
        None => authorities(directory),
    };
    config.tls.check()?;
    config.namespace = environment.pod_namespace().unwrap_or(config.namespace);
    kubeconfig::apply(&no_user, options, &mut config)?;
    Ok(Ok(config))
}

fn server(host: &str, port: &str) -> Result<ServerUrl, Error> {
    let url = if host.contains(':') && !host.starts_with('[') {
        format!("https://[{host}]:{port}")
    } else {
        format!("https://{host}:{port}")
    };
    ServerUrl::parse(&url, true).map_err(|why| {
        Error::config(format!(
            "KUBERNETES_SERVICE_HOST {host:?} and KUBERNETES_SERVICE_PORT {port:?} make no server: \
             {why}"
        ))
    })
}

/// Returns the authorities of the service account. Without a file of them the client trusts the
/// system's, as in client-go. Blocks for the read of a local file.
fn authorities(directory: &Path) -> Option<Pem> {
    let pem = Pem::file(directory.join("ca.crt"), "service account");
    match pem.loaded() {
        Ok(_) => Some(pem),
        Err(error) => {
            log::warn!("{error}: the system's certificate authorities are trusted instead");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::temp_directory::TempDirectory;

    struct Pod(TempDirectory);

    impl Pod {
        fn new(name: &str) -> Self {
            let pod = Self(TempDirectory::new(&format!("pod-{name}")));
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
            Environment::from_pairs(pairs).service_account(&*self.0)
        }
    }

    fn in_pod(environment: &Environment) -> Result<Result<Config, String>, Error> {
        load(&KubeconfigOptions::default(), environment)
    }

    fn header(config: &Config) -> String {
        let header = config.credentials.authorization_at_start().unwrap();
        header.unwrap().as_str().to_owned()
    }

    #[test]
    fn a_pod_finds_its_server_its_token_and_its_namespace() {
        let pod = Pod::new("finds");
        let environment = pod.environment("10.96.0.1", &[]);
        let config = Config::infer_from(&KubeconfigOptions::default(), &environment).unwrap();
        assert_eq!(config.server_url(), "https://10.96.0.1:443");
        assert_eq!(config.namespace(), "shop");
        assert_eq!(header(&config), "Bearer pod-token");
        let authorities = config.tls.authorities.as_ref().unwrap().loaded().unwrap();
        assert_eq!(authorities.bytes.as_slice(), b"the cluster's");
    }

    #[test]
    fn addresses_get_their_brackets_and_the_variable_wins_over_the_file() {
        let pod = Pod::new("brackets");
        for host in ["fd00:10:96::1", "[fd00:10:96::1]"] {
            let environment = pod.environment(host, &[("POD_NAMESPACE", "cellar")]);
            let config = in_pod(&environment).unwrap().unwrap();
            assert_eq!(config.server_url(), "https://[fd00:10:96::1]:443");
            assert_eq!(config.namespace(), "cellar");
        }
        std::fs::remove_file(pod.0.join("namespace")).unwrap();
        let config = in_pod(&pod.environment("a.b", &[])).unwrap().unwrap();
        assert_eq!(config.namespace(), "default");
    }

    #[test]
    fn of_the_options_token_authority_and_namespace_apply() {
        let pod = Pod::new("options");
        let options = KubeconfigOptions::default()
            .token("given")
            .certificate_authority(pod.0.join("namespace"))
            .namespace("attic")
            .impersonate_user("jane")
            .disable_compression(true);
        let config = Config::infer_from(&options, &pod.environment("10.96.0.1", &[])).unwrap();
        assert_eq!(header(&config), "Bearer given");
        assert_eq!(config.namespace(), "attic");
        let acting = [("Impersonate-User".to_owned(), "jane".to_owned())];
        assert_eq!(config.headers, acting);
        assert!(!config.compression);
        let authorities = config.tls.authorities.as_ref().unwrap().loaded().unwrap();
        assert_eq!(authorities.bytes.as_slice(), b"shop\n");
    }

    /// The service account's token is for the cluster's own server.
    #[test]
    fn a_server_that_is_named_is_not_shown_the_pods_token() {
        let pod = Pod::new("elsewhere");
        for server in ["https://elsewhere.test", "http://elsewhere.test"] {
            let options = KubeconfigOptions::default().server(server);
            let config = Config::infer_from(&options, &pod.environment("10.96.0.1", &[])).unwrap();
            assert!(config.server_url().starts_with(server));
            assert!(
                config
                    .credentials
                    .authorization_at_start()
                    .unwrap()
                    .is_none()
            );
            assert_eq!(config.namespace(), "shop", "of the pod");
        }
    }

    /// A context that names no namespace means the pod's, where the process runs in one.
    #[test]
    fn a_kubeconfig_without_a_namespace_takes_the_pods() {
        let pod = Pod::new("namespace");
        let context = "current-context: a\n\
             clusters: [{name: c, cluster: {server: 'https://x'}}]\n\
             contexts: [{name: a, context: {cluster: c";
        pod.write("none", &format!("{context}}}}}]\n"));
        pod.write("default", &format!("{context}, namespace: default}}}}]\n"));
        let namespace = |file: &str, environment: &Environment, given: Option<&str>| {
            let options = KubeconfigOptions::default().path(pod.0.join(file));
            let options = match given {
                Some(given) => options.namespace(given),
                None => options,
            };
            let config = Config::infer_from(&options, environment).unwrap();
            config.namespace().to_owned()
        };
        let environment = pod.environment("10.96.0.1", &[]);
        assert_eq!(namespace("none", &environment, None), "shop");
        assert_eq!(namespace("default", &environment, None), "default");
        assert_eq!(namespace("none", &environment, Some("attic")), "attic");
        let named = pod.environment("10.96.0.1", &[("POD_NAMESPACE", "cellar")]);
        assert_eq!(namespace("none", &named, None), "cellar");
        let outside = Environment::from_pairs([("POD_NAMESPACE", "cellar")]);
        assert_eq!(namespace("none", &outside, None), "default");
        std::fs::remove_file(pod.0.join("namespace")).unwrap();
        assert_eq!(namespace("none", &environment, None), "default");
    }

    #[test]
    fn without_its_authorities_a_pod_trusts_those_of_the_system() {
        let pod = Pod::new("authorities");
        std::fs::remove_file(pod.0.join("ca.crt")).unwrap();
        let config = in_pod(&pod.environment("10.96.0.1", &[])).unwrap().unwrap();
        assert!(config.tls.authorities.is_none());
        let options = KubeconfigOptions::default().certificate_authority("/nonexistent/ca.crt");
        let given = load(&options, &pod.environment("10.96.0.1", &[])).unwrap_err();
        assert!(given.to_string().contains("/nonexistent/ca.crt"), "{given}");
    }

    #[test]
    fn what_is_missing_is_named() {
        let pod = Pod::new("missing");
        let told = |environment: &Environment| {
            let why = match in_pod(environment) {
                Ok(found) => found.unwrap_err(),
                Err(error) => error.to_string(),
            };
            why.replace(pod.0.to_str().unwrap(), "DIR")
        };
        assert_eq!(
            told(&Environment::from_pairs([("HOME", "/")])),
            "KUBERNETES_SERVICE_HOST (not set, so this is no pod)"
        );
        assert_eq!(
            told(&pod.environment("a b", &[])),
            "KUBERNETES_SERVICE_HOST \"a b\" and KUBERNETES_SERVICE_PORT \"443\" make no server: \
             it holds a space or a character that is not ASCII"
        );
        std::fs::remove_file(pod.0.join("token")).unwrap();
        assert_eq!(
            told(&pod.environment("10.96.0.1", &[])),
            "DIR/token (no such file)"
        );
    }
}
