//! Kubeconfigs shaped as the tools of clusters write them.

use super::{fixture, header, nowhere, proxy, read};
use crate::http::{Config, KubeconfigOptions};

/// Server, namespace and identity of one kubeconfig.
fn told(name: &str, context: Option<&str>) -> (Config, [String; 3]) {
    let mut options = KubeconfigOptions::default().path(fixture(name));
    if let Some(context) = context {
        options = options.context(context);
    }
    let config = Config::infer_from(&options, &nowhere()).unwrap();
    let identity = config.tls.identity.as_ref();
    let identity = identity.map(|identity| {
        let (certificate, key) = (&identity.certificate, &identity.key);
        format!(
            "{} {}",
            read(Some(certificate)).trim(),
            read(Some(key)).trim()
        )
    });
    let identity = identity.or_else(|| header(&config)).unwrap_or_default();
    let told = [config.server_url(), config.namespace().to_owned(), identity];
    (config, told)
}

#[test]
fn a_kubeconfig_of_kind_shows_its_certificate() {
    let (config, told) = told("kind.yaml", None);
    assert_eq!(told, ["https://127.0.0.1:41237", "default", "cert key"]);
    assert_eq!(
        read(config.tls.authorities.as_ref()),
        "not really a certificate"
    );
    assert!(config.source().starts_with("context \"kind-shop\" in "));
}

#[test]
fn a_kubeconfig_of_k3s_names_everything_default() {
    let (_, told) = told("k3s.yaml", None);
    assert_eq!(told, ["https://127.0.0.1:6443", "default", "cert key"]);
}

#[test]
fn a_kubeconfig_of_minikube_has_files_and_extensions() {
    let (config, told) = told("minikube.yaml", None);
    let identity = "certificate out of a file key out of a file";
    assert_eq!(told, ["https://192.168.49.2:8443", "default", identity]);
    assert_eq!(
        read(config.tls.authorities.as_ref()),
        "authority out of a file\n"
    );
}

#[test]
fn a_kubeconfig_of_openshift_has_a_context_for_each_project() {
    let server = "https://api.shop.example:6443";
    let token = "Bearer sha256~made-up_token-of-the-tests";
    let (_, current) = told("openshift.yaml", None);
    assert_eq!(current, [server, "till", token]);
    let (_, other) = told("openshift.yaml", Some("default/api-shop-example:6443/jane"));
    assert_eq!(other, [server, "default", token]);
}

#[test]
fn a_kubeconfig_of_a_company_merges_settings_and_names_its_proxy() {
    let (outer, told_of_outer) = told("corporate.yaml", None);
    let server = "https://k8s.dmz.corp.example:8443/clusters/shop";
    assert_eq!(told_of_outer, [server, "shop", "Bearer made-up"]);
    assert_eq!(
        proxy(&outer),
        "Url(ProxyUrl { url: \"http://proxy.corp.example:3128\", .. })"
    );
    assert!(!outer.compression);
    assert_eq!(outer.tls.name(), "kubernetes.dmz.corp.example");
    assert_eq!(
        read(outer.tls.authorities.as_ref()),
        "not really a certificate"
    );
    assert!(!format!("{outer:?}").contains("canary"), "{outer:?}");
    let (inner, told_of_inner) = told("corporate.yaml", Some("inner"));
    let server = "https://k8s.inner.corp.example:443";
    assert_eq!(told_of_inner, [server, "shop", "Bearer made-up"]);
    assert_eq!(proxy(&inner), "Environment", "an empty proxy-url is none");
}
