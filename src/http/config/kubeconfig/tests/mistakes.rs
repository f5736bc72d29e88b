//! Mistakes in a kubeconfig, each with the text of its error.

use super::{Stage, at_context, fixture, from_list, nowhere};
use crate::ErrorKind;
use crate::http::config::kubeconfig::merge::Merged;
use crate::http::config::kubeconfig::resolve::resolve;
use crate::http::{Config, KubeconfigOptions};
use crate::tests::dice::Dice;

#[test]
fn auth_providers_are_refused_by_name() {
    let path = fixture("plugins.yaml");
    let environment = from_list(std::slice::from_ref(&path));
    let error = Config::infer_from(&at_context("provider"), &environment).unwrap_err();
    let expected = "users[name=provider].user.auth-provider: the auth provider \"oidc\" is not \
                    supported: use a credential plugin (exec), a token or a client certificate (or \
                    give --token)";
    assert_eq!(error.to_string(), format!("{}: {expected}", path.display()));
    assert_eq!(error.kind(), ErrorKind::Config);
}

/// A kubeconfig of one context `a`, with these fields of its cluster and its user.
fn one(cluster: &str, user: &str) -> String {
    format!(
        "current-context: a\n\
         contexts: [{{name: a, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{{cluster}}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\n"
    )
}

const HTTPS: &str = "server: https://x, insecure-skip-tls-verify: true";

/// Fields of the cluster, fields of the user, and the error.
const FIELDS: &[(&str, &str, &str)] = &[
    (
        "",
        "",
        "clusters[name=c].cluster.server: missing: a cluster names its server",
    ),
    (
        "server: [1]",
        "",
        "clusters[name=c].cluster.server: must be text, not a list",
    ),
    (
        "server: ftp://x",
        "",
        "clusters[name=c].cluster.server: its scheme is neither https nor http",
    ),
    (
        "server: https://x, insecure-skip-tls-verify: \"true\"",
        "",
        "clusters[name=c].cluster.insecure-skip-tls-verify: must be true or false, without quotes",
    ),
    (
        "server: https://x, insecure-skip-tls-verify: yEs",
        "",
        "clusters[name=c].cluster.insecure-skip-tls-verify: must be true or false, without quotes",
    ),
    (
        "server: https://x, tls-server-name: 007",
        "",
        "clusters[name=c].cluster.tls-server-name: must be text, not a number: put it in quotes",
    ),
    (
        HTTPS,
        "token: 12345",
        "users[name=u].user.token: must be text, not a number: put it in quotes",
    ),
    (
        HTTPS,
        "token: no",
        "users[name=u].user.token: must be text, not a truth value: put it in quotes",
    ),
    (
        HTTPS,
        "tokenFile: x, username: jane",
        "users[name=u].user.tokenFile: stands beside a username: remove the one or the other",
    ),
    (
        "server: https://x, certificate-authority-data: Y2E=, insecure-skip-tls-verify: true",
        "",
        "clusters[name=c].cluster.certificate-authority-data: names an authority although \
         insecure-skip-tls-verify is set: remove one of the two",
    ),
    (
        "server: https://x, certificate-authority: ca.crt",
        "",
        "clusters[name=c].cluster.certificate-authority: DIR/ca.crt: no such file",
    ),
    (
        "server: https://x, certificate-authority-data: c@nary",
        "",
        "clusters[name=c].cluster.certificate-authority-data: not base64: it must be the whole PEM \
         file in base64 (base64 -w0 <file>)",
    ),
    (
        "server: https://x, proxy-url: \"http://u:canary@proxy:x\"",
        "",
        "clusters[name=c].cluster.proxy-url: its port is not a number from 0 to 65535",
    ),
    (
        "server: https://x, proxy-url: \"proxy:3128\"",
        "",
        "clusters[name=c].cluster.proxy-url: its scheme is none of http, https and socks5",
    ),
    (
        HTTPS,
        "client-certificate-data: Y2E=, client-key-data: c@nary",
        "users[name=u].user.client-key-data: not base64: it must be the whole PEM file in base64 \
         (base64 -w0 <file>)",
    ),
    (
        HTTPS,
        "client-certificate-data: Y2E=",
        "users[name=u].user.client-certificate-data: a client certificate needs its key: set \
         client-key or client-key-data (or give --client-key)",
    ),
    (
        HTTPS,
        "client-certificate: a.crt, client-key: a.key",
        "users[name=u].user.client-certificate: DIR/a.crt: no such file",
    ),
    (
        HTTPS,
        "tokenFile: gone",
        "users[name=u].user.tokenFile: token file DIR/gone: no such file",
    ),
    (
        HTTPS,
        "token: can ary",
        "users[name=u].user.token: holds a space or another character that no token has",
    ),
    (
        HTTPS,
        "token: canary, username: x",
        "users[name=u].user.token: stands beside username and password: remove the one or the \
         other",
    ),
    (
        HTTPS,
        "username: \"x:y\", password: canary",
        "users[name=u].user.username: a user name with a colon cannot be sent",
    ),
    (
        HTTPS,
        "as-uid: \"7\"",
        "users[name=u].user.as: missing: as-uid, as-groups and as-user-extra need a user to \
         impersonate",
    ),
    (
        HTTPS,
        "as: jane, as-groups: {}",
        "users[name=u].user.as-groups: must be a list of texts",
    ),
    (
        HTTPS,
        "as: \"jane\\r\\nX: canary\"",
        "users[name=u].user.as: cannot be sent: only printable ASCII characters can stand in a \
         header",
    ),
];

#[test]
fn each_mistake_in_a_cluster_or_user_names_file_and_field() {
    let stage = Stage::new("fields");
    for (cluster, user, expected) in FIELDS {
        let error = stage.load(&one(cluster, user)).unwrap_err();
        assert_eq!(error, format!("DIR/config: {expected}"));
        assert!(!error.contains("nary"), "{error}");
    }
}

/// A document, and the beginning of its error.
const DOCUMENTS: &[(&str, &str)] = &[
    ("a: [1", "kubeconfig DIR/config: not YAML: "),
    (
        "just text",
        "kubeconfig DIR/config: is no kubeconfig: it holds a single value, not a mapping",
    ),
    (
        "kind: Pod",
        "DIR/config: kind: must be \"Config\": is this a kubeconfig?",
    ),
    (
        "apiVersion: v2",
        "DIR/config: apiVersion: must be \"v1\": is this a kubeconfig?",
    ),
    (
        "users: {}",
        "DIR/config: users: must be a list, not a mapping",
    ),
    (
        "users: [x]",
        "DIR/config: users[0]: must be a mapping, not a single value",
    ),
    (
        "users: [{user: {}}]",
        "DIR/config: users[0].name: missing: each entry needs a name",
    ),
    (
        "users: [{name: a, user: x}]",
        "DIR/config: users[name=a].user: must be a mapping, not a single value",
    ),
    (
        "users: [{name: a}, {name: a}]",
        "DIR/config: users: the name \"a\" stands twice",
    ),
    (
        "clusters: []",
        "kubeconfig DIR/config: has no current-context: choose a context; there is none",
    ),
    (
        "contexts: [{name: a}]",
        "kubeconfig DIR/config: has no current-context: choose a context; there are: a",
    ),
    (
        "current-context: b\ncontexts: [{name: a}]",
        "context \"b\" does not exist; there are: a",
    ),
    (
        "current-context: a\ncontexts: [{name: a}]",
        "DIR/config: contexts[name=a].context.cluster: missing: a context names its cluster",
    ),
    (
        "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]",
        "cluster \"c\" does not exist (named by context \"a\" in DIR/config); there is none",
    ),
    (
        "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\nclusters: \
         [{name: c}]\nusers: [{name: v}]",
        "user \"u\" does not exist (named by context \"a\" in DIR/config); there are: v",
    ),
];

#[test]
fn each_mistake_in_the_document_is_told_with_its_place() {
    let stage = Stage::new("documents");
    for (text, expected) in DOCUMENTS {
        let error = stage.load(text).unwrap_err();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
    for (count, end) in [
        (10, "there are: a0, a1, a2, a3, a4, a5, a6, a7, a8, a9"),
        (11, "there are: a0, a1, a10, a2, a3, a4, a5, a6, a7, a8, …"),
    ] {
        let names: Vec<_> = (0..count).map(|n| format!("{{name: a{n}}}")).collect();
        let error = stage.load(&format!("contexts: [{}]", names.join(", ")));
        let error = error.unwrap_err();
        assert!(error.ends_with(end), "{error}");
    }
    let options = KubeconfigOptions::default().path(stage.write("config", [0xff, 0xfe, 0x00]));
    let error = stage
        .told(Config::infer_from(&options, &nowhere()))
        .unwrap_err();
    assert_eq!(
        error,
        "kubeconfig DIR/config: holds bytes that are not text"
    );
}

/// However a file has changed: no panic, and no secret in the error.
#[test]
fn mutated_files_are_answered_with_an_error_or_a_configuration() {
    let mut refused = 0_usize;
    let (mut dice, _seed) = Dice::new();
    for name in [
        "first.yaml",
        "whole.json",
        "plugins.yaml",
        "eks.yaml",
        "relative/config",
    ] {
        let path = fixture(name);
        let text = std::fs::read_to_string(&path).unwrap();
        let ascii = text.is_ascii();
        assert!(ascii, "so that it can be cut anywhere");
        for (nth, at) in dice.places(text.len(), 200).enumerate() {
            let (before, after) = text.split_at(at);
            let cut_out = &after[1..];
            for mutated in [
                before.to_owned(),
                format!("{before}{cut_out}"),
                format!("{before}: {cut_out}"),
                format!("{before}[{after}"),
                format!("{before}\n{after}"),
                format!("{before}&x *x{after}"),
            ] {
                let mut merged = Merged::default();
                let context = ["exec", "proxy", "whole"][nth % 3];
                let resolved = merged
                    .add_text(&path, &mutated)
                    .and_then(|()| resolve(&merged, &at_context(context), &nowhere()));
                if let Err(error) = resolved {
                    refused += 1;
                    assert!(!error.to_string().contains("canary"), "{error}");
                }
            }
        }
    }
    assert!(refused > 1_000, "most of them are wrong: {refused}");
}
