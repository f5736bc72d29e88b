//! Credential plugins against a real server: a kubeconfig with one, and client certificates.

use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Secret;
use kubecache::ErrorKind;
use kubecache::http::{Client, ClientOptions, Config, KubeconfigOptions};

use super::support::*;

/// A kubeconfig with the tests' plugin, and what the plugin leaves.
pub(crate) struct Stage(pub(crate) PathBuf);

impl Stage {
    /// With the fields of the cluster as a flow mapping has them.
    pub(crate) fn new(name: &str, cluster: &str, settings: &[(&str, String)]) -> Self {
        let directory = directory().join(format!("plugin-{name}"));
        fs::create_dir_all(&directory).unwrap();
        let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/plugin");
        let state = ("STATE", directory.display().to_string());
        let settings = settings
            .iter()
            .chain([&state])
            .map(|(name, value)| format!("{{name: KUBECACHE_PLUGIN_{name}, value: '{value}'}}"));
        let settings: Vec<_> = settings.collect();
        let text = format!(
            "clusters: [{{name: c, cluster: {{{cluster}}}}}]\n\
             users: [{{name: u, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, \
             interactiveMode: Never, command: '{}', env: [{}]}}}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n",
            plugin.display(),
            settings.join(", ")
        );
        fs::write(directory.join("config"), text).unwrap();
        Self(directory)
    }

    pub(crate) fn client(&self, name: &str) -> Client {
        let options = KubeconfigOptions::default().path(self.0.join("config"));
        let config = Config::from_kubeconfig(&options).unwrap();
        let options = ClientOptions::default().user_agent(of_this_run(name));
        Client::new(&config, options).unwrap()
    }
}

#[test]
#[ignore = "needs a real cluster: run tests/cluster/run"]
fn a_plugins_client_certificate_reaches_the_server() {
    let _up = cluster();
    let server = std::env::var("KUBECACHE_CLUSTER_SERVER").unwrap();
    let cluster = format!("server: '{server}', certificate-authority: ../certs/ca.crt");
    let certificate = |name: &str| {
        let path = directory().join("certs").join(name);
        [
            ("LIFE", "60".to_owned()),
            ("CERTIFICATE", path.display().to_string()),
        ]
    };
    let stage = Stage::new("certificate", &cluster, &certificate("admin"));
    get::<Secret>(&stage.client("plugin-admin"), "shop", "storefront-session").unwrap();
    let stage = Stage::new("stranger", &cluster, &certificate("nobody"));
    let refused = get::<Secret>(&stage.client("plugin-nobody"), "shop", "storefront-session");
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Forbidden);
    assert!(refused.to_string().contains("\"nobody\""), "{refused}");
}
