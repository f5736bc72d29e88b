//! The configuration of a pod, from its environment and the files of its service account.

use super::super::credentials::Credentials;
use super::config::Config;
use super::environment::Environment;
use super::kubeconfig::{self, KubeconfigOptions, Section};
use super::local_file::read_text;
use super::pem::Pem;
use super::server_url::ServerUrl;
use crate::clock::Clock;
use crate::error::Error;

/// The name of a namespace has at most 63 bytes, and the file may end in a line break.
const NAMESPACE_BYTES_MAX: u64 = 1024;

/// Reads the configuration of the pod. The inner error says what is missing, if there is no pod.
///
/// The options of kubectl apply that client-go applies in a pod. So do those about credentials and
/// impersonation, because a program that ignores them acts as another user.
pub(super) fn load(
    options: &KubeconfigOptions,
    environment: &Environment,
) -> Result<Result<Config, String>, Error> {
    let [host, port] = match service(environment) {
        Ok(service) => service,
        Err(missing) => return Ok(Err(missing)),
    };
    let directory = &environment.service_account;
    let mut config = Config::new(server(&host, &port)?);
    config.source = format!("service account in {}", directory.display());
    let no_user = Section::default();
    config.credentials = match kubeconfig::credentials(&no_user, options)? {
        Credentials::None => {
            Credentials::token_file(directory.join("token"), None, &Clock::system())
        }
        given @ (Credentials::Fixed(_) | Credentials::Renewed(_)) => given,
    };
    config.tls.authorities = Some(match &options.certificate_authority {
        Some(path) => Pem::file(path, "--certificate-authority"),
        None => Pem::file(directory.join("ca.crt"), "service account"),
    });
    config.tls.check()?;
    if options.namespace.is_none()
        && let Some(namespace) = namespace(environment)?
    {
        config.namespace = namespace;
    }
    kubeconfig::apply(&no_user, options, &mut config)?;
    Ok(Ok(config))
}

/// Returns host and port of the API's service. The error says which variable or file is missing.
fn service(environment: &Environment) -> Result<[String; 2], String> {
    let var = |name: &str| {
        let value = environment.text(name);
        value.ok_or_else(|| format!("{name} (not set, so this is no pod)"))
    };
    let service = [
        var("KUBERNETES_SERVICE_HOST")?,
        var("KUBERNETES_SERVICE_PORT")?,
    ];
    let token = environment.service_account.join("token");
    if token.is_file() {
        Ok(service)
    } else {
        Err(format!("{} (no such file)", token.display()))
    }
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

fn namespace(environment: &Environment) -> Result<Option<String>, Error> {
    if let Some(namespace) = environment.text("POD_NAMESPACE") {
        return Ok(Some(namespace));
    }
    let path = environment.service_account.join("namespace");
    if !path.is_file() {
        return Ok(None);
    }
    let text = read_text(&path, NAMESPACE_BYTES_MAX)
        .map_err(|why| Error::config(format!("{}: {why}", path.display())))?;
    Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temp_directory::TempDirectory;

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
            let mut environment = Environment::from_pairs(pairs);
            environment.service_account = self.0.to_path_buf();
            environment
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
            assert_eq!(config.namespace(), "default");
        }
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
        std::fs::remove_file(pod.0.join("ca.crt")).unwrap();
        assert_eq!(
            told(&pod.environment("10.96.0.1", &[])),
            "service account: DIR/ca.crt: no such file"
        );
        std::fs::remove_file(pod.0.join("token")).unwrap();
        assert_eq!(
            told(&pod.environment("10.96.0.1", &[])),
            "DIR/token (no such file)"
        );
    }
}
