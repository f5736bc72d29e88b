//! Tables of kubeconfigs: which files are found, and which entry wins.

mod mistakes;
mod plugins;
mod shapes;
mod sizes;

use std::path::{Path, PathBuf};

use crate::ErrorKind;
use crate::http::certificates::pem::Pem;
use crate::http::environment::Environment;
use crate::http::{Config, KubeconfigOptions};
use crate::tests::temp_directory::TempDirectory;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/kubeconfig")
        .join(name)
}

/// A directory of one test's own.
struct Stage(TempDirectory);

impl Stage {
    fn new(name: &str) -> Self {
        Self(TempDirectory::new(&format!("kubeconfig-{name}")))
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Loads one kubeconfig, named by its path; the error shows the directory as `DIR`.
    fn load(&self, text: &str) -> Result<Config, String> {
        let options = KubeconfigOptions::default().path(self.write("config", text));
        self.told(Config::infer_from(&options, &nowhere()))
    }

    fn told<T>(&self, result: Result<T, crate::Error>) -> Result<T, String> {
        result.map_err(|error| error.to_string().replace(self.0.to_str().unwrap(), "DIR"))
    }
}

fn nowhere() -> Environment {
    Environment::from_pairs([("HOME", "/nonexistent")])
}

fn from_list(paths: &[PathBuf]) -> Environment {
    let list = std::env::join_paths(paths).unwrap();
    Environment::from_pairs([("KUBECONFIG", list)])
}

fn at_context(name: &str) -> KubeconfigOptions {
    KubeconfigOptions::default().context(name)
}

fn header(config: &Config) -> Option<String> {
    let header = config.credentials.authorization_at_start().unwrap();
    header.map(|header| header.as_str().to_owned())
}

fn read(pem: Option<&Pem>) -> String {
    String::from_utf8(pem.unwrap().loaded().unwrap().bytes.to_vec()).unwrap()
}

fn proxy(config: &Config) -> String {
    format!("{:?}", config.proxy)
}

#[test]
fn of_a_list_the_first_file_that_names_something_wins_whole() {
    let environment = from_list(&[
        fixture("not-there.yaml"),
        fixture("first.yaml"),
        fixture("second.yaml"),
        fixture("first.yaml"),
    ]);
    let config = Config::infer_from(&KubeconfigOptions::default(), &environment).unwrap();
    assert_eq!(config.server_url(), "https://shop.example:6443");
    assert_eq!(config.namespace(), "till");
    assert_eq!(header(&config).as_deref(), Some("Bearer first-token"));
    assert!(
        config.compression,
        "second.yaml's cluster of that name counts for nothing"
    );
    assert!(config.tls.insecure_skip_verify);
    assert_eq!(config.tls.name(), "kubernetes.default");

    let crossed = Config::infer_from(&at_context("crossed"), &environment).unwrap();
    assert_eq!(crossed.server_url(), "http://127.0.0.1:8080/base");
    assert!(!crossed.compression);

    let reversed = from_list(&[fixture("second.yaml"), fixture("first.yaml")]);
    let config = Config::infer_from(&KubeconfigOptions::default(), &reversed).unwrap();
    assert_eq!(config.server_url(), "http://127.0.0.1:8080/base");
}

#[test]
fn credentials_of_a_kubeconfig_are_not_sent_in_the_clear() {
    let environment = from_list(&[fixture("second.yaml")]);
    let config = Config::infer_from(&KubeconfigOptions::default(), &environment).unwrap();
    assert_eq!(header(&config), None);
    let options = at_context("depot").server("https://depot.example");
    let config = Config::infer_from(&options, &environment).unwrap();
    assert_eq!(header(&config).as_deref(), Some("Basic a2VlcGVyOmtleXM="));
}

#[test]
fn paths_are_resolved_against_the_file_they_stand_in() {
    let environment = from_list(&[fixture("relative/config")]);
    let config = Config::infer_from(&KubeconfigOptions::default(), &environment).unwrap();
    assert_eq!(
        config.server_url(),
        "https://10.0.0.1:6443",
        "an authority means https"
    );
    let tls = &config.tls;
    assert_eq!(read(tls.authorities.as_ref()), "authority out of a file\n");
    let identity = tls.identity.as_ref().unwrap();
    assert_eq!(
        read(Some(&identity.certificate)),
        "certificate out of a file\n"
    );
    assert_eq!(read(Some(&identity.key)), "key out of a file\n");
    assert_eq!(
        header(&config).as_deref(),
        Some("Bearer token-out-of-a-file")
    );
}

/// As client-go: what is configured for TLS decides the scheme.
#[test]
fn a_server_without_a_scheme_is_https_with_any_field_of_tls() {
    let stage = Stage::new("schemes");
    let authority = "certificate-authority: ca.crt";
    stage.write(
        "ca.crt",
        include_str!("../../../../../fixtures/certs/authority.pem"),
    );
    for (field, scheme) in [
        ("namespace: x", "http"),
        (authority, "https"),
        ("insecure-skip-tls-verify: true", "https"),
    ] {
        let text = format!(
            "current-context: a\ncontexts: [{{name: a, context: {{cluster: c}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'a.test:6443', {field}}}}}]\n"
        );
        let config = stage.load(&text).unwrap();
        assert_eq!(
            config.server_url(),
            format!("{scheme}://a.test:6443"),
            "{field}"
        );
    }
}

#[test]
fn data_wins_over_files_and_impersonation_becomes_headers() {
    let options = KubeconfigOptions::default().path(fixture("whole.json"));
    let config = Config::infer_from(&options, &nowhere()).unwrap();
    assert_eq!(config.server_url(), "https://[fd00::10]:6443");
    assert_eq!(config.namespace(), "default");
    assert_eq!(
        read(config.tls.authorities.as_ref()),
        "not really a certificate"
    );
    let identity = config.tls.identity.as_ref().unwrap();
    assert_eq!(read(Some(&identity.certificate)), "cert");
    assert_eq!(read(Some(&identity.key)), "key");
    let headers: Vec<_> = config
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    assert_eq!(
        headers,
        [
            "Impersonate-User: jane",
            "Impersonate-Uid: 7",
            "Impersonate-Group: readers",
            "Impersonate-Group: night shift",
            "Impersonate-Extra-acme.example%2FScope: a",
            "Impersonate-Extra-acme.example%2FScope: b",
        ]
    );
}

#[test]
fn options_put_what_they_contradict_aside() {
    let stage = Stage::new("overrides");
    let ca = stage.write("ca.crt", "mine");
    let options = at_context("shop")
        .certificate_authority(ca)
        .server("https://elsewhere")
        .token("mine")
        .namespace("cellar");
    let environment = from_list(&[fixture("first.yaml")]);
    let config = Config::infer_from(&options, &environment).unwrap();
    assert!(!config.tls.insecure_skip_verify, "an authority was given");
    assert_eq!(read(config.tls.authorities.as_ref()), "mine");
    assert_eq!(
        config.tls.server_name, None,
        "the name was for another server"
    );
    assert_eq!(header(&config).as_deref(), Some("Bearer mine"));
    assert_eq!(config.namespace(), "cellar");

    let options = KubeconfigOptions::default().path(fixture("whole.json"));
    let options = options.insecure_skip_tls_verify(true);
    let config = Config::infer_from(&options, &nowhere()).unwrap();
    assert!(config.tls.insecure_skip_verify && config.tls.authorities.is_none());
}

#[test]
fn a_token_option_takes_the_place_of_a_plugin() {
    let environment = from_list(&[fixture("plugins.yaml")]);
    let options = at_context("exec").token("given");
    let config = Config::infer_from(&options, &environment).unwrap();
    assert_eq!(header(&config).as_deref(), Some("Bearer given"));
    let plain = Config::infer_from(&at_context("plain"), &environment).unwrap();
    assert_eq!(header(&plain).as_deref(), Some("Bearer plain-token"));
}

#[test]
fn a_proxy_is_named_by_its_cluster_and_an_empty_one_is_unset() {
    let environment = from_list(&[fixture("plugins.yaml")]);
    let config = Config::infer_from(&at_context("proxy"), &environment).unwrap();
    assert_eq!(
        proxy(&config),
        "Url(ProxyUrl { url: \"http://proxy.example:80\", .. })"
    );
    let plain = Config::infer_from(&at_context("plain"), &environment).unwrap();
    assert_eq!(proxy(&plain), "Environment");
    let stage = Stage::new("no-proxy");
    let unset = stage.load(
        "current-context: a\n\
         contexts: [{name: a, context: {cluster: c}}]\n\
         clusters: [{name: c, cluster: {server: 'https://x', proxy-url: ''}}]\n",
    );
    assert_eq!(proxy(&unset.unwrap()), "Environment");
}

#[test]
fn where_nothing_is_found_each_place_is_named() {
    let stage = Stage::new("nothing");
    let empty = stage.write("empty", "");
    let missing = stage.0.join("missing");
    let rows = [
        (
            nowhere(),
            "KUBECONFIG (not set); /nonexistent/.kube/config (no such file)",
        ),
        (
            Environment::from_pairs([("SHELL", "/bin/sh")]),
            "KUBECONFIG (not set); ~/.kube/config (HOME is not set)",
        ),
        (
            from_list(&[missing, empty]),
            "KUBECONFIG: DIR/missing (no such file), DIR/empty (has no current-context)",
        ),
    ];
    for (environment, looked_at) in rows {
        let options = KubeconfigOptions::default();
        let error = Config::infer_from(&options, &environment).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotConfigured);
        let pod = "KUBERNETES_SERVICE_HOST (not set, so this is no pod)";
        assert_eq!(
            stage.told::<()>(Err(error)),
            Err(format!(
                "no cluster is configured; looked for: {looked_at}; {pod}"
            ))
        );
    }
}

#[test]
fn the_default_file_is_found_and_a_named_one_must_exist() {
    let stage = Stage::new("default");
    let text = std::fs::read_to_string(fixture("first.yaml")).unwrap();
    stage.write(".kube/config", text);
    let home = Environment::from_pairs([("HOME", stage.0.to_str().unwrap())]);
    let config = Config::infer_from(&KubeconfigOptions::default(), &home).unwrap();
    assert!(
        config.source().ends_with("/.kube/config"),
        "{}",
        config.source()
    );

    let options = KubeconfigOptions::default().path(stage.0.join("missing"));
    let error = stage.told(Config::infer_from(&options, &home)).unwrap_err();
    assert_eq!(error, "kubeconfig DIR/missing: no such file");
    let options = KubeconfigOptions::default().path(stage.0.to_path_buf());
    let error = stage.told(Config::infer_from(&options, &home)).unwrap_err();
    assert_eq!(error, "kubeconfig DIR: it is a directory");
}

#[test]
fn options_say_who_asks_in_place_of_the_user() {
    let stage = Stage::new("who");
    let path = stage.write(
        "config",
        "current-context: c\n\
         contexts: [{name: c, context: {cluster: k, user: u}}]\n\
         clusters: [{name: k, cluster: {server: 'https://a.test', \
         insecure-skip-tls-verify: true}}]\n\
         users: [{name: u, user: {token: t, as: jane, as-groups: [day], as-uid: '7'}}]\n",
    );
    let told = |change: fn(KubeconfigOptions) -> KubeconfigOptions| {
        let options = change(KubeconfigOptions::default().path(path.clone()));
        let config = stage.told(Config::infer_from(&options, &nowhere()))?;
        let mut told = vec![header(&config).unwrap(), config.compression.to_string()];
        told.extend(config.headers.iter().map(|(_, value)| value.clone()));
        Ok::<_, String>(told.join(" "))
    };
    let given = told(|options| options);
    assert_eq!(given.unwrap(), "Bearer t true jane 7 day");
    let given = told(|options| {
        let options = options.impersonate_user("joe").impersonate_uid("8");
        let options = options.impersonate_group("night").impersonate_group("dawn");
        let options = options.username("u").password("p");
        options.disable_compression(true)
    });
    assert_eq!(given.unwrap(), "Basic dTpw false joe 8 night dawn");
    let both = told(|options| options.token("canary").username("u"));
    assert_eq!(
        both.unwrap_err(),
        "--token stands beside --username or --password: give the one or the other"
    );
    let nameless = told(|options| options.password("canary"));
    assert_eq!(
        nameless.unwrap_err(),
        "--password has no name beside it: add --username"
    );
    let odd = told(|options| options.impersonate_group("a\nb"));
    assert_eq!(
        odd.unwrap_err(),
        "--as-group: cannot be sent: only printable ASCII characters can stand in a header"
    );
    let blank = told(|options| options.impersonate_user(" eve "));
    assert_eq!(
        blank.unwrap_err(),
        "--as: begins or ends with a blank, which servers cut off: remove it"
    );
    let empty = told(|options| options.impersonate_group(""));
    assert_eq!(
        empty.unwrap_err(),
        "--as-group: is empty: remove it, or name somebody"
    );
    let nobody = KubeconfigOptions::default().server("https://a.test");
    let nobody = nobody.impersonate_uid("8");
    assert_eq!(
        stage
            .told(Config::infer_from(&nobody, &nowhere()))
            .unwrap_err(),
        "--as is missing: --as-uid and --as-group need a user to impersonate"
    );
}
